"""``verticil release regress`` and ``release tabulate``: what they print, and how they name what is wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from support.release_tables import all_pairs, release_of
from support.studies import study_of
from verticil.analysis.regression import regress
from verticil.cli.main import main
from verticil.shared.numerics.model.schema import Variable

VARIABLES = (
    Variable(
        name="weight", owner="a", labels=("[40,60)", "[60,80)", "[80,120)"), bins=(40.0, 60.0, 80.0, 120.0), unit="kg"
    ),
    Variable(name="ward", owner="a", labels=("north", "south", "ship")),
)


@pytest.fixture(scope="module")
def release() -> SimpleNamespace:
    generator = np.random.default_rng(1)
    ward = generator.choice(2, 2000, p=[0.7, 0.3])
    weight = np.minimum(generator.choice(2, 2000) + ward, 2)
    columns = [weight.astype(np.uint8), ward.astype(np.uint8)]
    return release_of(columns, all_pairs(study_of(VARIABLES), ("weight", "ward")), seed=1)


def run(
    release: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("verticil.shared.release.drawing.open_models", lambda _: release)
    status = main(["release", *words])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_coefficients_are_printed_with_their_intervals_and_what_they_are_compared_with(
    release: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("regress", "folder", "weight ~ ward", "--level", "0.9")
    status, shown, _ = run(release, monkeypatch, capsys, *words)
    own = regress(release, "weight ~ ward", level=0.9).coefficients
    assert status == 0
    lines = shown.splitlines()
    assert lines[1].split() == ["coefficient", "estimate", "standard", "error", "90", "%", "interval"]
    assert lines[3].split()[:2] == ["ward[south]", f"{own.estimate[1]:.4g}"]
    assert lines[-3:] == [
        "weight: in kg",
        "ward: compared with north",
        "too rare for a coefficient of their own: ward[ship]",
    ]
    answer = json.loads(run(release, monkeypatch, capsys, *words, "--format", "json")[1])
    assert [row["low"] for row in answer["coefficients"]] == own.low.tolist()
    assert (answer["level"], answer["reference"], answer["merged"]) == (0.9, {"ward": "north"}, ["ward[ship]"])


def test_shares_of_combinations_are_printed_in_the_order_of_the_categories(
    release: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, shown, _ = run(release, monkeypatch, capsys, "tabulate", "folder", "ward", "weight")
    assert status == 0
    assert [line.split()[:2] for line in shown.splitlines()[2:5]] == [["north", label] for label in VARIABLES[0].labels]
    answer = json.loads(run(release, monkeypatch, capsys, "tabulate", "folder", "ward", "--format", "json")[1])
    shares = {row["categories"]["ward"]: row["estimate"] for row in answer["shares"]}
    assert shares == pytest.approx({"north": 0.7, "south": 0.3, "ship": 0.0}, abs=0.05)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("regress", "folder", "wieght ~ ward"), "FORMULA: 'wieght': no such variable"),
        (("regress", "folder", "weight ~ ward", "--level", "2"), "--level: got 2"),
        (("tabulate", "folder", "ward", "ward"), "COLUMN: got 2 columns"),
        (("tabulate", "folder", "wrad"), "COLUMN: 'wrad': no such variable"),
    ],
)
def test_what_is_wrong_is_named_by_its_argument(
    release: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    status, _, errors = run(release, monkeypatch, capsys, *words)
    assert (status, message in errors) == (2, True)
