"""``[privbayes]``: the keys that the owner of a whole table chooses, the bytes, and what is refused by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import verticil.api as vt
from verticil.api.study import resolve_study
from verticil.cli.main import main
from verticil.curator.study import owners_study
from verticil.shared.core.errors import Misuse
from verticil.shared.study import canonical, rules
from verticil.shared.study.document import Study
from verticil.shared.study.privbayes_rule import PrivBayesRule
from verticil.shared.study.reading import read_study

TEXT = """\
schema = 1
id = "alone"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "a"
[[party]]
name = "b"
[[variable]]
party = "a"
name = "x"
categories = ["0", "1"]
[[variable]]
party = "b"
name = "y"
categories = ["0", "1"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
"""


def owners(tmp_path: Path, said: str) -> Study:
    path = tmp_path / "study.toml"
    path.write_text(TEXT + said, encoding="utf-8")
    return owners_study(read_study(path, by_owner=True), method="privbayes")


def test_every_key_is_read_from_a_study_of_several_parties_and_kept(tmp_path: Path) -> None:
    said = '[privbayes]\ntau = 12\nnegative = "clip"\nconsistent = false\nneighbours = "add-remove"\n'
    study = owners(tmp_path, said)
    assert study.privbayes == PrivBayesRule(tau=12.0, negative="clip", consistent=False, neighbours="add-remove")
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_defaults_leave_the_digest_as_it_was(tmp_path: Path) -> None:
    study = owners(tmp_path, "")
    assert "privbayes" not in json.loads(canonical.to_bytes(study))
    written = owners(tmp_path, '[privbayes]\nnegative = "simplex"\nconsistent = true\nneighbours = "replace"\n')
    assert canonical.digest(written) == canonical.digest(study)
    assert canonical.digest(owners(tmp_path, "[privbayes]\ntau = 12\n")) != canonical.digest(study)


def test_another_method_of_the_owner_has_none_of_it(tmp_path: Path) -> None:
    owners(tmp_path, "[privbayes]\ntau = 12\n")
    read = read_study(tmp_path / "study.toml", by_owner=True)
    assert owners_study(read, method="joint").privbayes == PrivBayesRule()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("tau = 0", "privbayes.tau: got 0, expected a finite number of cells > 0"),
        ("tau = -3", "privbayes.tau: got -3, expected a finite number of cells > 0"),
        ("tau = inf", "privbayes.tau: "),
        ("tau = nan", "privbayes.tau: "),
        ('negative = "zero"', "expected one of simplex, clip"),
        ('neighbours = "both"', "expected one of replace, add-remove"),
        ("consistent = 1", "consistent"),
        ("cells = 3", "unknown key"),
    ],
)
def test_what_it_does_not_know_is_named(tmp_path: Path, said: str, message: str) -> None:
    with pytest.raises(Misuse) as caught:
        owners(tmp_path, f"[privbayes]\n{said}\n")
    assert caught.value.code == "STUDY_INVALID"
    assert message in caught.value.message


def test_a_value_that_was_read_from_nowhere_is_checked_too(tmp_path: Path) -> None:
    study = owners(tmp_path, "[privbayes]\ntau = 4\n")
    for rule, message in (
        (PrivBayesRule(negative="zero"), "privbayes.negative: got 'zero', expected one of simplex, clip"),
        (PrivBayesRule(neighbours="both"), "privbayes.neighbours: got 'both', expected one of replace, add-remove"),
    ):
        with pytest.raises(Misuse) as caught:
            rules.check(dataclasses.replace(study, privbayes=rule), source="a study")
        assert message in caught.value.message


def test_a_study_that_nobody_carries_out_alone_refuses_it(tmp_path: Path) -> None:
    """Where a miner is given noisy tables the keys would change nothing, and epsilon would not be about whom they name."""
    (tmp_path / "study.toml").write_text(TEXT + '[privbayes]\nneighbours = "add-remove"\n', encoding="utf-8")
    with pytest.raises(
        Misuse, match="goes with the owner of a whole table who runs PrivBayes, got the model 'central'"
    ):
        read_study(tmp_path / "study.toml")
    noisy = '[structure]\nmethod = "privbayes"\n[tables]\nepsilon = 1.0\ndelta = 1e-9\n[privbayes]\ntau = 4\n'
    (tmp_path / "study.toml").write_text(TEXT + noisy, encoding="utf-8")
    with pytest.raises(Misuse, match="goes with the owner of a whole table"):
        read_study(tmp_path / "study.toml")


OWN = TEXT.replace('[[party]]\nname = "b"\n', "").replace('party = "b"', 'party = "a"')
SAID = '[privbayes]\nneighbours = "add-remove"\n[posterior]\nsteps = 500\n'
RULE = '[[knowledge.rule]]\nname = "n"\nkind = "implication"\nif = { x = "0" }\nthen = { y = "0" }\n'


def test_a_study_of_one_owner_is_read_alike_by_every_command(tmp_path: Path) -> None:
    """Before, `study check`, `knowledge` and the interface of Python refused what `synthesize` carries out."""
    (path := tmp_path / "study.toml").write_text(OWN + RULE + SAID, encoding="utf-8")
    assert main(["study", "check", str(path)]) == 0
    assert main(["knowledge", "show", str(path)]) == 0
    study = vt.study.read(path)
    assert study.resolved == read_study(path, by_owner=True)
    assert study.check(n=300).n == 300
    for carry_out in (lambda: resolve_study(study), lambda: resolve_study(path), lambda: read_study(path)):
        with pytest.raises(Misuse, match="let the owner"):
            carry_out()


def test_of_several_parties_the_owner_alone_reads_it(tmp_path: Path) -> None:
    (path := tmp_path / "study.toml").write_text(TEXT + RULE + SAID, encoding="utf-8")
    assert main(["knowledge", "show", str(path)]) == 0
    assert main(["study", "check", str(path)]) == 2
    study = vt.study.read(path)
    assert resolve_study(study, by_owner=True) == resolve_study(path, by_owner=True) == read_study(path, by_owner=True)
    with pytest.raises(Misuse, match="let the owner"):
        study.check()
    with pytest.raises(Misuse, match="let the owner"):
        vt.simulate(study, {}, unreviewed=True)
