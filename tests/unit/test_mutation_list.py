"""The list of planted faults fits the tree: whoever moves a text that it names learns so here, and not when it is run whole."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

from mutation import run


def test_every_fault_can_be_planted_and_names_a_test() -> None:
    faults = run.listed()
    assert run.problems(faults) == []
    assert len(faults) >= 100
    parts = Counter(
        part
        for fault in faults
        for part in ("mechanisms", "estimation", "learning", "ledger", "approval", "linkage", "signing")
        if f"/{part}" in fault.file
    )
    assert len(parts) == 7
    assert sum(bool(fault.survives) for fault in faults) < len(faults) / 20


def test_a_list_that_does_not_fit_is_told() -> None:
    good = run.listed()[0]
    for change, says in (
        ({"was": "no such text"}, "stands 0 times"),
        ({"was": "e"}, "times in the file, expected once"),
        ({"file": "shared/none.py"}, "stands 0 times"),
        ({"tests": ("tests/unit/test_none.py",)}, "there is no test"),
        ({"tests": ("tests/unit/test_transition.py::test_none",)}, "there is no test"),
        ({"tests": ()}, "no test is named"),
        ({"becomes": good.was}, "nothing is changed"),
    ):
        (told,) = run.problems([dataclasses.replace(good, **change)])
        assert says in told
    assert "listed twice" in run.problems([good, good])[0]


def test_a_survivor_that_is_not_listed_and_a_killed_one_that_is_are_told() -> None:
    fault = run.listed()[0]
    listed = dataclasses.replace(fault, survives="no test can notice")
    assert [run.judged(fault, code) for code in (0, 1)] == ["SURVIVED", "killed"]
    assert [run.judged(listed, code) for code in (0, 1)] == ["survived, as listed", "KILLED, BUT LISTED AS A SURVIVOR"]
    assert run.judged(fault, 2).startswith("BROKEN")
    assert run.judged(fault, run.NO_PYTEST).startswith("BROKEN")


def test_a_verdict_is_kept_with_the_test_that_failed_until_source_or_tests_change(tmp_path: Path) -> None:
    fault = run.listed()[0]
    test = f"{fault.tests[0]}::test_one[a value - b]"
    run.Kept(file := tmp_path / "verdicts").write(fault, "killed", f"FAILED {test} - assert 1 == 2\n1 failed", 1.0)
    kept = run.Kept(file)
    assert (kept.verdict(fault), kept.killer(fault)) == ("killed", test)
    other = dataclasses.replace(fault, survives="of another reason")
    assert run.Kept(file).verdict(other) == ""
    kept.write(fault, "SURVIVED", "1 passed", 1.0)
    assert run.Kept(file).verdict(fault) == ""
    assert run.Kept(None).verdict(fault) == ""
