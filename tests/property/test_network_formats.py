"""Whatever the names and labels are: BIF and XMLBIF are read back by pgmpy and pyAgrum, cell by cell, to 1e-9."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verticil.shared.numerics.model.rounding import RESOLUTION, round_rows
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release.formats.bif import label_map, network_to_bif, network_to_xmlbif

# What a schema accepts: no control characters, nothing blank at the ends. Half of the letters are those that readers trip over.
LETTERS = st.one_of(
    st.sampled_from(list("(){}[]<>|;,:/\\\"'&%#=+-_.?!* \u00a0aA0")),
    st.characters(exclude_categories=("Cs", "Cc", "Cn", "Zl", "Zp"), exclude_characters="\ufeff"),
)
TEXTS = st.text(LETTERS, min_size=1, max_size=8).filter(lambda text: text == text.strip())
LABELS = st.lists(TEXTS, min_size=2, max_size=5, unique=True).map(tuple)
SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NETWORKS = given(
    names=st.lists(TEXTS, min_size=3, max_size=3, unique=True),
    labels=st.tuples(LABELS, LABELS, LABELS),
    seed=st.integers(0, 99),
)


def _check(make_network, read, difference, folder, names, labels, seed):
    variables = tuple(
        Variable(name=name, owner="a", labels=tuple(group)) for name, group in zip(names, labels, strict=True)
    )
    network = make_network(variables, ((), (0,), (0, 1)), seed=seed)
    tokens = label_map(network.schema)
    (folder / "n.bif").write_bytes(network_to_bif(network))
    (folder / "n.bifxml").write_bytes(network_to_xmlbif(network))
    assert difference(network, read(folder / "n.bif"), tokens.variables, tokens.categories) <= 1e-9
    assert difference(network, read(folder / "n.bifxml"), network.schema.names, labels) <= 1e-9


@SETTINGS
@NETWORKS
def test_both_formats_in_pyagrum(make_network, read_with_pyagrum, difference, tmp_path, names, labels, seed):
    _check(make_network, read_with_pyagrum, difference, tmp_path, names, labels, seed)


@pytest.mark.whole
@settings(SETTINGS, max_examples=4)
@NETWORKS
def test_both_formats_in_pgmpy(make_network, read_with_pgmpy, difference, tmp_path, names, labels, seed):
    """Few examples: pgmpy takes a second for one. The next test tries more."""
    _check(make_network, read_with_pgmpy, difference, tmp_path, names, labels, seed)


@pytest.mark.slow
@settings(SETTINGS, max_examples=100)
@NETWORKS
def test_both_formats_in_pgmpy_at_length(make_network, read_with_pgmpy, difference, tmp_path, names, labels, seed):
    _check(make_network, read_with_pgmpy, difference, tmp_path, names, labels, seed)


@SETTINGS
@given(labels=LABELS)
def test_the_label_map_is_one_to_one(make_network, labels):
    network = make_network((Variable(name="x", owner="a", labels=labels),), ((),))
    lines = [line for line in network_to_bif(network).decode("ascii").splitlines() if line.startswith("// category ")]
    pairs = [line.removeprefix("// category x ").split(" ", 1) for line in lines]
    assert [json.loads(text) for _, text in pairs] == list(labels)
    assert len({token.lower() for token, _ in pairs}) == len(labels)


@SETTINGS
@given(
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=30).filter(lambda w: sum(w) > 1e-3),
    scale=st.sampled_from([1.0, 1e-6, 1e-12]),
)
def test_rounding(weights, scale):
    row = np.array([[weights[0] + 1e-3, *(weight * scale for weight in weights[1:])]])
    row /= row.sum()
    rounded = round_rows(row)
    units = rounded * RESOLUTION
    assert (units == np.floor(units)).all()
    assert rounded.sum() == 1
    assert rounded.astype(np.float32).astype(np.float64).tolist() == rounded.tolist()
    assert ((rounded > 0) == (row > 0)).all()
    assert (np.diff(rounded[0][np.argsort(row[0], kind="stable")]) >= -1 / RESOLUTION).all()
    n_raised = int(((row > 0) & (row * RESOLUTION < 1)).sum())
    assert np.abs(rounded - row).max() * RESOLUTION <= 1 + n_raised
    assert round_rows(rounded).tolist() == rounded.tolist()


def test_largest_remainder_against_all_neighbours():
    """For a row without rare categories no other row of whole units is nearer: tried against every floor-or-ceiling choice."""
    generator = np.random.default_rng(3)
    for _ in range(50):
        row = generator.dirichlet(np.ones(5))
        exact = row * RESOLUTION
        ours = np.abs(round_rows(row[None])[0] * RESOLUTION - exact).sum()
        choices = (np.floor(exact) + np.array(up) for up in itertools.product((0, 1), repeat=5))
        best = min(np.abs(units - exact).sum() for units in choices if units.sum() == RESOLUTION)
        assert ours <= best + 1e-6
