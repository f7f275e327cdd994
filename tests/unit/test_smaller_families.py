"""Rows that few records are behind lean on families with fewer parents: `smaller_families`, and what a study gets by default."""

import dataclasses
import math

import numpy as np
import pytest

from verticil.party.protocol.peer.parameters import learn_families
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.estimators import clip_projection, em_estimate, simplex_projection
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters
from verticil.shared.numerics.estimation.parent_smoothing import RECORDS, backed_off, leaned_on, row_weight
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.simulation.federations import adult

EDUCATION, AGE, WORK = 16, 8, 9
FIFTH = 2
"""A rare category, of which one in twenty earns much."""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.toml"
    path.write_text(adult.study_text(), encoding="utf-8")
    return read_study(path)


def census(n: int = 30_000) -> np.ndarray:
    """Counts of education, age, work, income; income depends on education alone."""
    generator = np.random.default_rng(3)
    shares = np.full(EDUCATION, 0.99 / (EDUCATION - 1))
    shares[FIFTH] = 0.01
    education = generator.choice(EDUCATION, n, p=shares)
    rich = np.linspace(0.1, 0.6, EDUCATION)
    rich[FIFTH] = 0.05
    columns = (
        education,
        generator.integers(0, AGE, n),
        generator.integers(0, WORK, n),
        generator.random(n) < rich[education],
    )
    table = np.zeros((EDUCATION, AGE, WORK, 2))
    np.add.at(table, tuple(np.asarray(column, dtype=np.intp) for column in columns), 1.0)
    return table


@pytest.mark.parametrize("estimator", [em_estimate, clip_projection, simplex_projection])
def test_a_share_that_many_cells_divide_is_not_moved_to_one_half(shipped, estimator):
    """With half a record in every cell it was 13 % of these people, and 5 % is true."""
    counts = census()
    channels = [quantize(identity(k)) for k in counts.shape]
    family = family_parameters(
        counts, channels, 3, (0, 1, 2), prior_count=shipped.parameters.prior_count, level=0.95, estimator=estimator
    )
    told = (family.probability.reshape(counts.shape)[..., 1] * counts.sum(axis=-1)).sum(axis=(1, 2))[FIFTH]
    people, rich = counts[FIFTH].sum(), counts[FIFTH, ..., 1].sum()
    assert people > 200
    assert abs(told / people - rich / people) < 0.03


def test_a_row_leans_on_the_table_without_the_parent_that_tells_least():
    strong, weak = np.array([[40.0, 10.0], [5.0, 45.0]]), np.array([0.5, 0.5])
    counts = (strong[:, None, :] * weak[None, :, None]).copy()
    counts[0, 1] = 0.0  # nobody
    design = as_design([quantize(identity(2))] * 3)
    rows = backed_off(counts, design).reshape(2, 2, 2)
    root = (counts.sum(axis=(0, 1)) + 1 / 2) / (counts.sum() + 1)
    first = counts.sum(axis=1)
    smaller = (first + RECORDS * root) / (first.sum(axis=1, keepdims=True) + RECORDS)
    np.testing.assert_allclose(rows[0, 1], smaller[0], rtol=1e-12)
    expected = (counts[1, 0] + RECORDS * smaller[1]) / (counts[1, 0].sum() + RECORDS)
    np.testing.assert_allclose(rows[1, 0], expected, rtol=1e-12)


def test_noise_makes_rows_lean_more():
    channels = [quantize(symmetric(4, epsilon=2.0)), quantize(identity(3)), quantize(symmetric(5, epsilon=1.0))]
    left = (math.e**2 - 1) / (math.e**2 + 3), (math.e - 1) / (math.e + 4)
    design = as_design(channels)
    assert row_weight(design, (0, 1)) == pytest.approx(RECORDS / (left[0] * left[1]), rel=1e-9)
    assert row_weight(design, (1,)) == pytest.approx(RECORDS / left[1], rel=1e-9)
    assert row_weight(design, ()) == pytest.approx(1 / left[1], rel=1e-9)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3), (3, 2, 4, 5)])
def test_what_rows_leaned_on_can_be_taken_off_again(shape):
    """A party finds the counts behind published rows from the rows and their totals."""
    generator = np.random.default_rng(5)
    design = as_design([quantize(symmetric(k, epsilon=2.0)) for k in shape])
    counts = generator.dirichlet(np.full(shape[-1], 0.4), size=shape[:-1]) * generator.uniform(
        5, 90, size=(*shape[:-1], 1)
    )
    rows, totals = backed_off(counts, design).reshape(shape), counts.sum(axis=-1)
    weight = row_weight(design, tuple(range(len(shape) - 1)))
    again = (totals[..., None] + weight) * rows - weight * leaned_on(rows, totals, design)
    assert np.abs(again - counts).max() <= 1e-9
    assert np.abs(totals[..., None] * rows - counts).max() > 1


def test_impossible_combinations_stay_impossible():
    domain = tuple((a, b) for a in range(3) for b in range(3) if (a, b) != (0, 2))
    units = [
        ColumnUnit(variables=(0, 1), domain=domain, channel=quantize(symmetric(8, epsilon=2.0))),
        ColumnUnit(variables=(2,), domain=None, channel=quantize(identity(2))),
    ]
    design = family_design(units, (3, 3, 2), (0, 2, 1))
    observed = np.random.default_rng(1).integers(0, 9, design.released_shape).astype(np.float64)
    table = family_parameters(observed, design, 1, (0, 2), prior_count=None, level=0.95).probability.reshape(3, 2, 3)
    assert (table[0, :, 2] == 0).all()
    assert np.count_nonzero(table) == table.size - 2
    np.testing.assert_allclose(table.sum(axis=-1), 1.0, rtol=1e-12)


def test_both_models_lean_alike(shipped):
    """A party that has all columns of a family raw gives it the probabilities that a miner gives it."""
    party, variables = "tax_office", shipped.schema.owned_by("tax_office")
    sizes = [shipped.schema[v].n_states for v in variables]
    generator = np.random.default_rng(2)
    raw = {v: generator.integers(0, k, 500).astype(np.uint8) for v, k in zip(variables, sizes, strict=True)}
    child, parents = variables[-1], variables[:-1]
    dag = Dag(parents=tuple(parents if v == child else () for v in range(len(shipped.schema))))
    families, _ = learn_families(raw, {}, dataclasses.replace(shipped, model="peer"), party, dag, noise=None)
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(raw[v].astype(np.intp) for v in variables), 1.0)
    ours = family_parameters(
        counts, [quantize(identity(k)) for k in sizes], child, parents, prior_count=None, level=0.95
    )
    np.testing.assert_array_equal(families[-1].probability, ours.probability)


def test_a_study_with_a_prior_count_keeps_its_form_and_a_new_one_has_no_key(shipped):
    kept = dataclasses.replace(shipped, parameters=dataclasses.replace(shipped.parameters, prior_count=0.5))
    assert b'"parameters":{"estimator":"em","interval_level":0.95,"prior_count":0.5}' in canonical.to_bytes(kept)
    assert b"prior_count" not in canonical.to_bytes(shipped)
    for study in (kept, shipped):
        assert canonical.from_bytes(canonical.to_bytes(study)) == study
