"""BIF: read back by pgmpy and pyAgrum, by label, to 1e-9; the subset that bnlearn's reader accepts is checked as text."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import numpy as np

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.formats import bif
from verticil.shared.release.formats.bif import label_map, network_to_bif, token_for, write_label_map


def _family(child, parents, rows):
    p = np.array(rows)
    return Family(
        child=child, parents=parents, probability=p, estimate=p, standard_error=p * 0, interval_low=p, interval_high=p,
        unstable=np.zeros(p.shape, dtype=bool),
    )  # fmt: skip


def test_the_file_of_a_small_network_letter_by_letter():
    schema = Schema(
        variables=(
            Variable(name="rain", owner="a", labels=("no", "yes")),
            Variable(name="wet?", owner="b", labels=("<1", "[1,5)")),
        )
    )
    network = Network(
        schema=schema,
        dag=Dag(parents=((), (0,))),
        families=(_family(0, (), [[0.75, 0.25]]), _family(1, (0,), [[0.5, 0.5], [0.125, 0.875]])),
    )
    text = network_to_bif(network).decode("ascii")
    assert text.split("\n", 3)[3] == (
        '// variable rain "rain"\n'
        '// category rain no "no"\n'
        '// category rain yes "yes"\n'
        '// variable wet "wet\\u003f"\n'
        '// category wet lt_1 "<1"\n'
        '// category wet i1_5 "\\u005b1\\u002c5\\u0029"\n'
        "network verticil {\n}\n"
        "variable rain {\n  type discrete [ 2 ] { no, yes };\n}\n"
        "variable wet {\n  type discrete [ 2 ] { lt_1, i1_5 };\n}\n"
        "probability ( rain ) {\n  table 0.75, 0.25;\n}\n"
        "probability ( wet | rain ) {\n  (no) 0.5, 0.5;\n  (yes) 0.125, 0.875;\n}\n"
    )


def test_every_probability_is_read_back_to_1e_9(hard_network, read_elsewhere, difference, tmp_path: Path):
    path = tmp_path / "network.bif"
    path.write_bytes(network_to_bif(hard_network))
    tokens = label_map(hard_network.schema)
    assert difference(hard_network, read_elsewhere(path), tokens.variables, tokens.categories) <= 1e-9


def test_without_rounding_single_precision_shows(make_network, tmp_path: Path):
    """Why published probabilities are multiples of 2^-24: pyAgrum reads BIF in single precision."""
    import pyagrum

    network = make_network((Variable(name="x", owner="a", labels=("a", "b", "c")),), ((),), rounded=False)
    path = tmp_path / "network.bif"
    path.write_bytes(network_to_bif(network))
    read = pyagrum.loadBN(str(path))
    worst = np.abs(np.array(read.cpt(0).tolist()) - network.families[0].probability[0]).max()
    assert 1e-9 < worst < 1e-7


def test_the_comments_and_the_sidecar_give_the_labels_back(hard_network):
    schema, tokens = hard_network.schema, label_map(hard_network.schema)
    sidecar = json.loads(write_label_map(schema))["variables"]
    assert [(v["token"], v["name"]) for v in sidecar] == list(zip(tokens.variables, schema.names, strict=True))
    comments = [line for line in network_to_bif(hard_network).decode().splitlines() if line.startswith("// category")]
    found: dict[str, list[tuple[str, str]]] = {}
    for line in comments:
        variable, token, label = line.removeprefix("// category ").split(" ", 2)
        assert not set("(){};|,/") & set(label)
        found.setdefault(variable, []).append((token, json.loads(label)))
    for position, variable in enumerate(schema.variables):
        pairs = list(zip(tokens.categories[position], variable.labels, strict=True))
        assert found[tokens.variables[position]] == pairs
        assert [(c["token"], c["label"]) for c in sidecar[position]["categories"]] == pairs


def test_tokens_are_safe_and_distinct_without_regard_to_case(hard_network):
    tokens = label_map(hard_network.schema)
    for group in (tokens.variables, *tokens.categories):
        assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", token) for token in group)
        assert len({token.lower() for token in group}) == len(group)
    assert tokens.variables == ("my_var", "a_and_b", "MY_VAR_2", "probability_")
    assert tokens.categories[1] == ("A", "a_2", "A_2_2")


def test_bnlearn_finds_what_its_reader_wants(hard_network):
    """bnlearn, R/foreign-read.R: first ``network``, comments excepted; blanks in ``{ a, b }`` and around ``|``."""
    lines = [line for line in network_to_bif(hard_network).decode("ascii").splitlines() if not line.startswith("//")]
    assert lines[0].startswith("network ")
    assert not any("//" in line or "default" in line.split() or "property" in line.split() for line in lines)
    assert all(re.fullmatch(r"  type discrete \[ \d+ \] \{ \w+(, \w+)+ \};", line) for line in lines if "type" in line)
    headers = [line for line in lines if line.startswith("probability ")]
    assert all(re.fullmatch(r"probability \( \w+( \| \w+(, \w+)*)? \) \{", header) for header in headers)


def test_a_long_label_makes_a_short_token_and_no_label_makes_none():
    assert len(token_for("x" * 500)) <= 48
    assert token_for("漢字") == "_"


def test_examples_in_the_docstrings():
    assert doctest.testmod(bif).failed == 0
