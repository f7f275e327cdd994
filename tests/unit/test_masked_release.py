"""A release of masked tables: it names the round's plan and the opened tables, has no receipts, and says who could read what."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticil.cli.main import main
from verticil.shared.core.errors import GateFailed
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.release.content import OpenedTables, ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.manifest import sign_release
from verticil.shared.release.masked import opened_tables
from verticil.shared.release.report.page import render
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical, rules
from verticil.shared.study.document import Study, TablesRule
from verticil.shared.study.masked import plan_of
from verticil.shared.study.protocols import table_deviations
from verticil.shared.study.tables import tables_of

OPENED = OpenedTables(sha256=bytes(range(32)), alarms=("one",))
Signed = Callable[[ReleaseContent], Path]


@pytest.fixture(scope="module")
def study(release_study: Study) -> Study:
    """Two parties, so the miner deals; one column is not randomized."""
    made = dataclasses.replace(release_study, model="masked", tables=TablesRule(epsilon=1.0, delta=1e-9))
    rules.check(made, source="study")
    return made


@pytest.fixture(scope="module")
def content(release_content: ReleaseContent, study: Study) -> ReleaseContent:
    effective = canonical.digest(study).hex()
    return dataclasses.replace(
        release_content, study=study, effective_digest=effective, simulation=False, opened=OPENED
    )


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    """Writes, signs and verifies."""
    made = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    create_authority(tmp_path / "house", "hearts", at=made)
    issued = issue(tmp_path / "house", "miner", Role.MINER, tmp_path / "nodes", hosts=("localhost",), at=made)
    key = SigningKey.load(issued.signing_key, issued.certificate)
    ca = (tmp_path / "house" / "ca.crt").read_bytes()

    def write(content: ReleaseContent) -> Path:
        folder = write_release(tmp_path / "release", content)
        sign_release(folder, key, ca_certificate=ca)
        verified = verify_release(folder, ca_certificate=ca)
        told = (verified.opened_tables_sha256, verified.alarms)
        assert told == ((OPENED.sha256.hex(), ("one",)) if content.opened else (None, ()))
        return folder

    return write


def test_it_states_plan_tables_dealers_and_noise_and_verifies(
    content: ReleaseContent, study: Study, signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = signed(content)
    assert main(["release", "verify", str(folder), "--ca", str(tmp_path / "house" / "ca.crt")]) == 0
    said = capsys.readouterr().out
    assert "files and the plan of the round, signed by" in said
    assert "do not fit together: one" in said
    strictly = ["release", "verify", str(folder), "--ca", str(tmp_path / "house" / "ca.crt"), "--strict"]
    for form in ("text", "json"):
        assert main([*strictly, "--format", form]) == 6, "an alarm is not let through"
    capsys.readouterr()
    assert "and keeps all margins, 300 say, is not noticed by any party" in " ".join(said.split())
    assert "and keeps all margins, 300 say, is not noticed." in " ".join((folder / "report.html").read_text().split())
    manifest = json.loads((folder / "manifest.json").read_text())
    plan = plan_of(study, 1234, proposal=bytes.fromhex(content.study_digest))
    assert manifest["opened"] == {
        "plan_sha256": plan.digest.hex(),
        "tables_sha256": OPENED.sha256.hex(),
        "alarms": ["one"],
    }
    assert "receipts" not in manifest
    said = manifest["masked"]
    assert said == json.loads((folder / "model.json").read_text())["masked"]
    assert said["dealers"] == [{"pair": ["clinic", "registry"], "dealer": "miner"}]
    assert (said["tables"], said["tolerate"], said["counted"]) == (10, 1, ["clinic", "registry"])
    assert said["sigma_of_each_across_parties"] == plan.sigma_each[0] / plan.sigma_each[1]
    assert said["sigma_within_a_party"] == plan.sigma[0] / plan.sigma[1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"opened": None}, "opened: missing"),
        ({"n_common": 1235}, "plan_sha256"),
        ({"plan": "00" * 32}, "plan_sha256"),
        ({"tables": "x"}, "tables_sha256"),
        ({"dealer": "registry"}, "what it says of readers and noise"),
    ],
)
def test_what_is_not_of_the_study_does_not_verify(
    content: ReleaseContent, signed: Signed, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], problem: str
) -> None:
    from verticil.shared.release.folder import writing

    written = writing._manifest

    def other(folder: Path, content: ReleaseContent) -> Any:
        document: Any = written(folder, content)
        if "opened" in change:
            del document["opened"]
        document["n_common"] = change.get("n_common", document["n_common"])
        for key in ("plan", "tables"):
            if key in change:
                document["opened"][f"{key}_sha256"] = change[key]
        if "dealer" in change:
            document["masked"]["dealers"][0]["dealer"] = change["dealer"]
        return document

    monkeypatch.setattr(writing, "_manifest", other)
    with pytest.raises(GateFailed, match=problem):
        signed(content)


def test_a_simulation_may_have_opened_no_tables_and_nothing_else_may(content: ReleaseContent, signed: Signed) -> None:
    with pytest.raises(ValueError, match="digest"):
        dataclasses.replace(content, opened=None)
    folder = signed(dataclasses.replace(content, opened=None, simulation=True))
    assert "opened" not in json.loads((folder / "manifest.json").read_text())


def test_the_report_has_the_four_figures_before_anything_else_and_says_who_could_read(content: ReleaseContent) -> None:
    page = render(content)
    words = " ".join(re.sub(r"<[^>]*>", "", page).split())
    assert page.index("The four figures") < page.index("1. What this is")
    assert "everybody: epsilon 1, delta 1e-09" in words
    assert "miner for clinic, registry" in words
    assert "region is not randomized at all" in words
    assert "all organisations, and not the miner" in words


def test_opened_tables_are_named_by_their_counts_and_compared_with_each_other(
    content: ReleaseContent, study: Study
) -> None:
    """Honest noise alarms with a chance of 1e-6 at most; a table with people moved between two categories does."""
    shapes = [tuple(study.units[unit].transition.n_states for unit in table) for table in tables_of(study)]
    generator = np.random.default_rng(1)
    counts = []
    for shape, deviation in zip(shapes, table_deviations(study), strict=True):
        exact = np.full(shape, 12_000 / math.prod(shape))
        counts.append(np.rint(exact + deviation * generator.standard_normal(shape)).astype(np.int64))
    honest = opened_tables(study, counts, 12_000)
    assert honest.alarms == ()
    assert honest.sha256 == hashlib.sha256(b"".join(table.astype("<i8").tobytes() for table in counts)).digest()
    counts[0][0] += 2000
    counts[0][1] -= 2000
    shifted = opened_tables(study, counts, 12_000)
    assert shifted.sha256 != honest.sha256
    assert any("the table of column 'age' and column 'smoker'" in alarm for alarm in shifted.alarms)
    assert "do not fit together" in render(dataclasses.replace(content, opened=shifted))
    assert "they fit together" in render(dataclasses.replace(content, opened=honest))
    more = opened_tables(study, [table + 500 for table in counts], 12_000)
    assert any("its total is too far from the number of people" in alarm for alarm in more.alarms)
