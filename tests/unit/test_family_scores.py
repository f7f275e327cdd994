"""Scores of families from randomized counts, against closed forms, brute force and the numbers of scores.md section 5."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.scores import FamilyScores
from verticil.shared.core.errors import DataFault
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import Transition, binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.information import pair_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.estimation.unit_axis import contrast_factor
from verticil.shared.numerics.model.graph import Dag


def records(shape: tuple[int, ...], counts: list[int]) -> list[np.ndarray]:
    """Columns with these counts, cells in lexicographic order."""
    cells = np.repeat(np.arange(len(counts)), counts)
    return [column.astype(np.uint8) for column in np.unravel_index(cells, shape)]


def scores_of(columns: list[np.ndarray], channels: list[Transition], level: float = 0.05) -> FamilyScores:
    units = [ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(channels)]
    n_states = [channel.n_states for channel in channels]
    tables = FamilyTables(columns, units, n_states, [f"v{v}" for v in range(len(channels))])
    return FamilyScores(tables, level=level)


def exactly(*n_states: int) -> list[Transition]:
    return [quantize(identity(k)) for k in n_states]


def dags(d: int) -> list[Dag]:
    found = []
    subsets = [
        [s for r in range(d) for s in itertools.combinations([p for p in range(d) if p != c], r)] for c in range(d)
    ]
    for parents in itertools.product(*subsets):
        try:
            found.append(Dag(parents=parents))
        except ValueError:
            continue
    return found


@pytest.mark.parametrize(
    ("shape", "counts", "best", "probability", "log_prior"),
    [
        # scores.md section 5, BDeu with an equivalent sample size of 1.
        ((2, 2, 2), [30, 10, 20, 5, 4, 16, 3, 12], ((), (), (0,)), 0.418655, 0.0),
        ((2, 3, 2), [12, 3, 7, 8, 5, 9, 2, 10, 6, 4, 3, 11], ((), (), ()), 0.643371, -1.0),
    ],
)
def test_bdeu_gives_the_exact_posterior_of_all_networks(shape, counts, best, probability, log_prior):
    scores = scores_of(records(shape, counts), exactly(*shape))
    graphs = dags(3)
    assert len(graphs) == 25
    total = np.array([sum(scores.bdeu(c, p) + log_prior * len(p) for c, p in enumerate(dag.parents)) for dag in graphs])
    posterior = np.exp(total - np.logaddexp.reduce(total))
    assert posterior[[dag.parents for dag in graphs].index(best)] == pytest.approx(probability, abs=1e-6)


def test_log_evidence_of_bdeu():
    """scores.md section 5: log of the sum over the 25 graphs, d3 counts, gamma 0."""
    scores = scores_of(records((2, 2, 2), [30, 10, 20, 5, 4, 16, 3, 12]), exactly(2, 2, 2))
    total = [sum(scores.bdeu(c, p) for c, p in enumerate(dag.parents)) for dag in dags(3)]
    assert np.logaddexp.reduce(total) == pytest.approx(-194.009632, abs=1e-5)


def test_bdeu_is_refused_on_randomized_columns():
    columns = records((2, 2), [5, 4, 3, 8])
    scores = scores_of(columns, [quantize(identity(2)), quantize(binary(0.1, 0.2))])
    with pytest.raises(ValueError, match="a column of the family is randomized"):
        scores.bdeu(0, (1,))
    assert math.isfinite(scores.bdeu(0, ()))


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (3, 2.0), (7, 0.5), (15, 3.0)])
def test_the_contrast_factor_of_randomized_response_is_its_eigenvalue(k, epsilon):
    axis = as_design([quantize(symmetric(k, epsilon=epsilon))]).axes[0]
    expected = (math.exp(epsilon) - 1) / (math.exp(epsilon) + k - 1)  # randomization.md 1.1
    assert contrast_factor(axis) == pytest.approx(expected, rel=1e-9)


def test_contrast_factors_of_other_channels():
    assert contrast_factor(as_design([quantize(identity(4))]).axes[0]) == 1.0
    # Binary with flips .1 and .25, half the people in each: Var = f (1 - f) / (1 - .1 - .25)^2, f the share of ones.
    share = 0.5 * 0.1 + 0.5 * 0.75
    expected = math.sqrt(0.25 / (share * (1 - share))) * 0.65
    assert contrast_factor(as_design([quantize(binary(0.1, 0.25))]).axes[0]) == pytest.approx(expected, rel=1e-9)
    # Subset selection at epsilon 1: less is lost than by randomized response over so many categories.
    sets, single = subset_selection(16, epsilon=1.0), quantize(symmetric(16, epsilon=1.0))
    assert contrast_factor(as_design([single]).axes[0]) < contrast_factor(as_design([sets]).axes[0]) < 1


def test_the_contrast_factor_of_a_compound_is_that_of_its_cells():
    unit = ColumnUnit(
        variables=(0, 1),
        domain=tuple(itertools.product(range(2), range(3))),
        channel=quantize(symmetric(6, epsilon=2.0)),
    )
    whole = family_design([unit], (2, 3), (0, 1)).axes[0]
    assert contrast_factor(whole) == pytest.approx((math.e**2 - 1) / (math.e**2 + 5), rel=1e-9)
    # Randomized response over the pairs is randomized response over the first variable, with the same eigenvalue.
    part = family_design([unit], (2, 3), (0,)).axes[0]
    assert part.merged is not None
    assert contrast_factor(part) == pytest.approx((math.e**2 - 1) / (math.e**2 + 5), rel=1e-9)


def test_bic_without_randomization_is_the_textbooks():
    counts = np.array([[30, 10], [20, 40], [5, 15]])
    scores = scores_of(records((3, 2), counts.ravel().tolist()), exactly(3, 2))
    n = counts.sum()
    likelihood = sum(count * math.log(count / row.sum()) for row in counts for count in row)
    assert scores.bic(1, (0,)) == pytest.approx(likelihood - 0.5 * math.log(n) * 3, abs=1e-9)
    assert scores.bic_noise(1, (0,)) == scores.bic(1, (0,))
    alone = counts.sum(axis=0)
    assert scores.bic(1, ()) == pytest.approx(float((alone * np.log(alone / n)).sum()) - 0.5 * math.log(n), abs=1e-9)


def test_randomized_families_are_scored_by_their_em_counts():
    channels = [quantize(symmetric(3, epsilon=2.0)), quantize(binary(0.1, 0.2)), quantize(identity(2))]
    columns = records((3, 2, 2), [30, 10, 20, 5, 4, 16, 3, 12, 9, 9, 40, 2])
    scores = scores_of(columns, channels)
    observed = np.array([30, 10, 20, 5, 4, 16, 3, 12, 9, 9, 40, 2]).reshape(3, 2, 2)
    for child, parents in ((2, (0, 1)), (0, (1, 2)), (1, (0, 2))):
        table = np.moveaxis(em_projection(observed, channels, iterations=60), child, -1).reshape(-1, (3, 2, 2)[child])
        filled = table > 0
        rows = np.broadcast_to(table.sum(axis=1, keepdims=True), table.shape)
        likelihood = float((table[filled] * np.log(table[filled] / rows[filled])).sum())
        assert scores.likelihood(child, parents) == pytest.approx(likelihood, abs=1e-6)
    noise = scores.noise((0, 1, 2))
    assert noise == pytest.approx(1 / math.prod(contrast_factor(axis) for axis in as_design(channels).axes), rel=1e-12)
    gap = scores.bic(2, (0, 1)) - scores.bic_noise(2, (0, 1))
    assert gap == pytest.approx((noise - 1) * 0.5 * math.log(160) * 6, rel=1e-9)


def test_information_of_one_parent_is_that_of_the_pair():
    channels = [quantize(symmetric(3, epsilon=1.0)), quantize(symmetric(2, epsilon=1.5))]
    columns = records((3, 2), [400, 100, 200, 300, 150, 350])
    scores = scores_of(columns, channels)
    observed = np.array([[400, 100], [200, 300], [150, 350]])
    expected = pair_information(observed, channels, level=0.05)
    assert expected > 0
    assert scores.information(1, (0,)) == pytest.approx(expected, rel=1e-9)
    assert scores.information(0, (1,)) == pytest.approx(expected, rel=1e-9)
    assert scores_of(records((3, 2), [100] * 6), channels).information(1, (0,)) == 0.0


def test_information_with_two_parents_has_its_bias_taken_off():
    """Independent columns, n = 20,000, epsilon 1: without the correction the mean would be near (J-1)(K-1)/(2 n lambda^2)."""
    generator = np.random.default_rng(3)
    channels = [quantize(symmetric(3, epsilon=1.0))] * 3
    lam = (math.e - 1) / (math.e + 2)
    rough = 8 * 2 / (2 * 20_000 * lam**6)
    found = [
        scores_of(
            [generator.integers(0, 3, 20_000).astype(np.uint8) for _ in range(3)], channels, level=1.1
        ).information(2, (0, 1))
        for _ in range(20)
    ]
    assert np.mean(found) < 0.35 * rough


def test_a_table_that_cannot_be_counted_names_its_family():
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(2))) for v in range(27)]
    columns = [np.zeros(4, dtype=np.uint8)] * 27
    tables = FamilyTables(columns, units, [2] * 27, [f"v{v}" for v in range(27)])
    with pytest.raises(
        DataFault, match=r"the family of 'v26' with the parents 'v0', .*: its released table has 134217728"
    ):
        tables.count_family(range(27))


def test_a_family_is_counted_once_whoever_is_the_child():
    asked: list[int] = []
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(2))) for v in range(3)]
    columns = records((2, 2, 2), [1, 2, 3, 4, 5, 6, 7, 8])
    tables = FamilyTables(columns, units, [2, 2, 2], ["a", "b", "c"], check=lambda: asked.append(1))
    scores = FamilyScores(tables)
    for child, parents in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1)), (2, (0, 1))):
        scores.bic(child, parents)
    assert len(asked) == 1
