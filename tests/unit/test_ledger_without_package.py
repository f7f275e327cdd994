"""A ledger that holds an event of a package that is not installed: it opens, and what was charged counts."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest

from verticil.curator.spending import UNLIMITED, charge
from verticil.curator.state import open_state
from verticil.gan.accounting import GeneratorTraining
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import PUBLIC
from verticil.shared.study.reading import read_study

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
STUDY = """schema = 1
id = "alone"
purpose = "A clinic's own table"
expires = 2099-01-01
[[party]]
name = "clinic"
[[variable]]
party = "clinic"
name = "a"
categories = ["x", "y"]
[[variable]]
party = "clinic"
name = "b"
categories = ["x", "y"]
[randomization_default]
scheme = "none"
[structure]
method = "greedy"
seed = 1
"""
TRAINING = GeneratorTraining(steps=100, rate=0.05, sigma=2.0, tables=2, counts=50.0, delta=1e-6, reader=PUBLIC.name)

# What a later run of the owner does, in a process that finds no package: it prints what it saw.
LATER = """
import datetime as dt, json, sys
from pathlib import Path
from verticil.shared.core import plugins
if sys.argv[2] == "without":
    plugins._installed = lambda _path: ()
from verticil.curator.spending import UNLIMITED, charge
from verticil.curator.state import open_state
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.shared.core.errors import VerticilError
from verticil.shared.privacy.accounts import PUBLIC, Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts
from verticil.shared.study.reading import read_study

folder, now = Path(sys.argv[1]), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
study = read_study(folder / "study.toml", by_owner=True)
event = DiscreteGaussianCounts(sigma=20.0, tables=1, delta=1e-6, reader=PUBLIC.name)
release = ColumnDraw(
    variables=("a",), dataset="people", sources=("a",), codebook_digest=bytes(32), transition_digest=b"n" * 32,
    secret_id=b"s" * 8, fingerprint=b"f" * 32, event=event,
)
seen = {}
with open_state(folder / "state", "clinic", now=now) as state:
    state.ledger.check_rows()
    before = state.ledger.sum_charges("people", PUBLIC)
    seen["before"] = [before.epsilon, before.delta]
    seen["rows"] = [[row.study_id, row.epsilon, row.delta] for row in state.ledger.rows()]
    try:
        seen["event"] = type(state.ledger.rows()[0].event).__name__
    except VerticilError as error:
        seen["event"] = error.message
    try:
        charge(state, study, release, budget=Cost(epsilon=before.epsilon, delta=1.0), now=now)
    except VerticilError as error:
        seen["refused"] = f"{error.code} {error.message}"
    spending = charge(state, study, release, budget=UNLIMITED, now=now)
    seen["total"] = [spending.total.epsilon, spending.total.delta]
    seen["own"] = spending.cost.epsilon
seen["imported"] = "verticil.gan.accounting" in sys.modules
print(json.dumps(seen))
"""


@pytest.fixture
def charged(tmp_path: Path) -> Path:
    """The folder of an owner whose ledger has a generator's training."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    study = read_study(tmp_path / "study.toml", by_owner=True)
    release = ColumnDraw(
        variables=("a", "b"),
        dataset="people",
        sources=("a", "b"),
        codebook_digest=bytes(32),
        transition_digest=bytes(32),
        secret_id=b"s" * 8,
        fingerprint=b"f" * 32,
        event=TRAINING,
    )
    with open_state(tmp_path / "state", "clinic", now=NOW) as state:
        charge(state, study, release, budget=UNLIMITED, now=NOW)
    return tmp_path


def later(folder: Path, *, package: str) -> dict[str, object]:
    command = [sys.executable, "-c", LATER, str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.whole
def test_a_ledger_opens_without_the_package_and_what_was_charged_counts(charged: Path) -> None:
    cost, seen = cost_of(TRAINING), later(charged, package="without")
    assert seen["before"] == [cost.epsilon, cost.delta]
    assert seen["rows"] == [["alone", cost.epsilon, cost.delta]]
    assert "generator-training" in str(seen["event"])
    assert "no kind of this name is known here" in str(seen["event"])
    assert str(seen["refused"]).startswith("BUDGET_EXCEEDED")
    own = seen["own"]
    assert isinstance(own, float)
    assert seen["total"] == [pytest.approx(cost.epsilon + own), pytest.approx(cost.delta + 1e-6)]
    assert seen["imported"] is False


@pytest.mark.whole
def test_with_the_package_the_event_is_read_and_the_sums_are_the_same(charged: Path) -> None:
    cost, seen = cost_of(TRAINING), later(charged, package="with")
    assert (seen["event"], seen["imported"]) == ("GeneratorTraining", True)
    assert seen["before"] == [cost.epsilon, cost.delta]
    assert str(seen["refused"]).startswith("BUDGET_EXCEEDED")


def test_a_kind_of_a_package_is_registered_when_an_event_of_it_is_read() -> None:
    code = (
        "import sys; from verticil.shared.privacy import events; before = events.kind_names()\n"
        "event = events.from_json(sys.argv[1]); print('generator-training' in before, type(event).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, events.to_json(TRAINING)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "GeneratorTraining"]
