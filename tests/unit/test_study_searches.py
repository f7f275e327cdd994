"""What a study says of its search: the keys, the bytes, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.record import canonical_json
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.study import canonical
from verticil.shared.study.document import CustomRule, HillClimbRule, OrderRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.structure_document import parse_structure, structure_body

TEXT = """\
schema = 1
id = "searches"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "a"
[[party]]
name = "b"
""" + "".join(
    f'[[variable]]\nparty = "{party}"\nname = "{name}"\ncategories = ["0", "1", "2"]\n'
    for party, name in (("a", "x"), ("a", "y"), ("a", "z"), ("b", "s"), ("b", "t"))
)
RANDOMIZED = '[randomization_default]\nscheme = "symmetric"\nepsilon = 2.0\n'


def read(tmp_path: Path, structure: str, *, randomized: str = RANDOMIZED, model: str = "central") -> Study:
    path = tmp_path / "study.toml"
    path.write_text(
        TEXT.replace("expires", f'model = "{model}"\nexpires', 1) + randomized + structure, encoding="utf-8"
    )
    return read_study(path)


def test_a_study_that_names_no_method_lets_the_data_choose(tmp_path: Path):
    rule = read(tmp_path, "").structure
    assert (rule.method, rule.score, rule.prefer) == ("auto", "auto", "synthesis")
    assert read(tmp_path, "[structure.genetic]\ngenerations = 7").structure.method == "genetic"


@pytest.mark.parametrize(
    ("method", "score"),
    [
        ("genetic", "mutual-information"),
        ("greedy", "mutual-information"),
        ("order", "mutual-information"),
        ("tree", "mutual-information"),
        ("hill-climb", "bic"),
        ("auto", "auto"),
    ],
)
def test_every_method_has_a_score_of_its_own(tmp_path: Path, method: str, score: str):
    study = read(tmp_path, f'[structure]\nmethod = "{method}"')
    assert (study.structure.method, study.structure.score) == (method, score)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_all_keys_are_read_and_come_back(tmp_path: Path):
    text = """
[structure]
prefer = "structure"
tiers = [["x"], ["y", "z"]]
required = [["x", "y"]]
forbidden = [["x", "z"]]
target = "y"
sensitive = ["s", "t"]
hide_from = ["x"]
"""
    with pytest.raises(Misuse, match="the custom network forbids it"):  # the target has no parents
        read(tmp_path, text)
    study = read(tmp_path, text.replace('["x", "y"]]', '["y", "z"]]'))
    rule = study.structure
    assert rule.tiers == (("x",), ("y", "z"))
    assert rule.custom == CustomRule(target="y", sensitive=("s", "t"), hide_from=("x",))
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    order = read(tmp_path, '[structure]\nmethod = "order"\n[structure.order]\nchains = 3\nexact = true')
    assert order.structure.order == OrderRule(chains=3, exact=True)
    assert canonical.from_bytes(canonical.to_bytes(order)) == order
    climb = read(
        tmp_path, '[structure]\nmethod = "hill-climb"\nscore = "bic-noise"\n[structure.hill_climb]\npatience = 4'
    )
    assert climb.structure.hill_climb == HillClimbRule(patience=4)
    assert canonical.from_bytes(canonical.to_bytes(climb)) == climb


def test_keys_that_are_not_used_are_not_in_the_bytes(tmp_path: Path):
    plain = json.loads(canonical.to_bytes(read(tmp_path, '[structure]\nmethod = "genetic"')))["structure"]
    assert set(plain) == {
        "method", "score", "max_parents", "max_family_cells", "seed", "required", "forbidden", "genetic",
    }  # fmt: skip
    study = read(tmp_path, '[structure]\ntarget = "x"\nsensitive = ["s"]')
    document = json.loads(canonical.to_bytes(study))
    assert document["structure"]["custom"] == {"target": "x", "sensitive": ["s"], "hide_from": None}
    document["structure"]["prefer"] = "synthesis"  # the default, written out: not the one form
    with pytest.raises(PeerFault, match="not in canonical form"):
        canonical.from_bytes(canonical_json(document))


def test_bdeu_is_for_columns_that_are_not_randomized(tmp_path: Path):
    text = '[structure]\nmethod = "hill-climb"\nscore = "bdeu"'
    assert read(tmp_path, text, randomized='[randomization_default]\nscheme = "none"\n').structure.score == "bdeu"
    with pytest.raises(
        Misuse, match=r"'x', 'y', 'z', 's', 't' are randomized: it would find edges between independent"
    ):
        read(tmp_path, text)


def test_an_effective_study_whose_declarations_randomize_is_refused_bdeu(tmp_path: Path):
    text = '[structure]\nmethod = "hill-climb"\nscore = "bdeu"'
    study = read(tmp_path, text, randomized='[randomization_default]\nscheme = "none"\n')
    noisy = read(tmp_path, "").units[0]
    assert study.units[0].transition == quantize(identity(3))
    with pytest.raises(PeerFault, match="'x' is randomized"):
        canonical.from_bytes(canonical.to_bytes(study.with_declaration({0: noisy})))


@pytest.mark.parametrize("method", ["greedy", "hill-climb"])
def test_between_peers_only_scores_of_pairs_are_known(tmp_path: Path, method: str):
    with pytest.raises(Misuse, match=r"STUDY_UNSUPPORTED.*send scores of pairs only"):
        read(tmp_path, f'[structure]\nmethod = "{method}"', model="peer")
    assert read(tmp_path, "", model="peer").structure.method == "auto"


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ('method = "tree"\nrequired = [["x", "z"], ["y", "z"]]', "'z' has 2 required parents, a tree admits one"),
        ('target = "x"\nsensitive = ["x"]', "'x' is the target too"),
        ('target = "x"\nsensitive = ["s", "s"]', "'s' more than once"),
        ('target = "x"\nsensitive = ["s"]\nhide_from = ["s"]', "'s' are sensitive too"),
        ('target = "q"\nsensitive = ["s"]', "'q' is not a variable"),
        ('required = [["x", "y"], ["y", "x"]]', "make a cycle"),
        ("max_parents = 5", "got 5 for 5 variables, expected at most 4"),
        ("max_parents = 1\nrequired = [['x', 'z'], ['y', 'z']]", "2 parents, study.toml: structure.max_parents is 1"),
        ('method = "order"\n[structure.order]\nchains = 0', "order.chains: got 0"),
        ('method = "hill-climb"\n[structure.hill_climb]\npatience = 0', "hill_climb.patience: got 0"),
        (
            'method = "given"\ntarget = "x"\nsensitive = ["s"]\nparents = { y = ["s"] }',
            "'s' is not separated from 'y' by the target 'x' (1 such pairs)",
        ),
        ('method = "given"\nparents = {}\ntiers = [["x"]]', "tiers: goes with a search"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, structure: str, words: str):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, f"[structure]\n{structure}\n")
    assert caught.value.code == "STUDY_INVALID"
    assert words in caught.value.message


def test_a_given_network_may_keep_the_promise_in_its_own_way(tmp_path: Path):
    study = read(
        tmp_path, '[structure]\nmethod = "given"\ntarget = "x"\nsensitive = ["s"]\nparents = { s = ["x"], x = ["y"] }'
    )
    assert study.structure.custom is not None


def test_a_structure_from_the_miner_must_keep_every_declaration(tmp_path: Path):
    study = read(tmp_path, '[structure]\ntarget = "x"\nsensitive = ["s"]\ntiers = [["y"], ["z"]]', model="peer")
    digest = canonical.digest(study)
    kept = structure_body(digest, [[], [], [1], [0], []], {"method": "auto"})
    assert parse_structure(kept, study, digest).dag.edges() == ((1, 2), (0, 3))
    for parents, words in (
        ([[], [], [], [1], []], "'s' is not separated from 'y' by the target 'x'"),
        ([[], [2], [], [], []], "'z' -> 'y' is not allowed"),
    ):
        with pytest.raises(PeerFault, match=words):
            parse_structure(structure_body(digest, parents, {"method": "auto"}), study, digest)


def test_the_exact_search_needs_few_variables(tmp_path: Path):
    more = "".join(f'[[variable]]\nparty = "b"\nname = "v{i}"\ncategories = ["0", "1"]\n' for i in range(11))
    text = '[structure]\nmethod = "order"\n[structure.order]\nexact = true\n'
    with pytest.raises(Misuse, match="16 variables may stand in any order, expected at most 15"):
        read(tmp_path, more + text)
    tiers = '[structure]\nmethod = "order"\ntiers = [["x", "y", "z", "s", "t"], ['
    tiers += ", ".join(f'"v{i}"' for i in range(11)) + "]]\n[structure.order]\nexact = true\n"
    assert read(tmp_path, more + tiers).structure.order.exact


def test_the_preference_is_one_of_two(tmp_path: Path):
    with pytest.raises(Misuse, match="prefer: got 'speed', expected one of synthesis, structure"):
        read(tmp_path, '[structure]\nprefer = "speed"')
    study = read(tmp_path, "")
    broken = dataclasses.replace(study, structure=dataclasses.replace(study.structure, prefer="speed"))
    with pytest.raises(PeerFault, match="prefer"):
        canonical.from_bytes(canonical.to_bytes(broken))
