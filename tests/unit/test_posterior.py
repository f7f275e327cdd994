"""Posteriors of graphs: exact ones against numbers worked out apart, what sets of parents may be, chains and their samples."""

from __future__ import annotations

import numpy as np
import pytest

from support.posterior import FOUR, MIXED, THREE, sets_of
from verticil.shared.arrays import Counts
from verticil.shared.posterior.chains import Chains, sample_graphs
from verticil.shared.posterior.exact import exact_posterior
from verticil.shared.posterior.local_scores import bdeu_score, dirichlet_score

D4_ROWS = [
    [0, 0.212098, 0.111810, 0.155732],
    [0.436637, 0, 0.226874, 0.439414],
    [0.106030, 0.127954, 0, 0.294671],
    [0.321605, 0.560568, 0.639467, 0],
]
D4_GAMMA_1 = [
    [0, 0.168818, 0.057453, 0.117049],
    [0.383745, 0, 0.135561, 0.427692],
    [0.058264, 0.073726, 0, 0.277247],
    [0.247432, 0.572287, 0.624793, 0],
]
D4_ALPHA_2 = [
    [0, 0.138648, 0.021857, 0.081844],
    [0.382942, 0, 0.070851, 0.420158],
    [0.034131, 0.029599, 0, 0.242769],
    [0.221248, 0.579820, 0.641845, 0],
]
MIXED_ROWS = [[0, 0.115434, 0.493776], [0.116005, 0, 0.388182], [0.292262, 0.199434, 0]]
D3_0 = [[0, 0.172086, 0.520273], [0.109540, 0, 0.104361], [0.479727, 0.154148, 0]]
D3_1 = [[0, 0.082523, 0.518968], [0.053370, 0, 0.050135], [0.481031, 0.073219, 0]]
D3_BDEU = [[0, 0.056552, 0.501535], [0.030078, 0, 0.026623], [0.498464, 0.050026, 0]]
ONES, BDEU = dirichlet_score, bdeu_score


@pytest.mark.parametrize(
    ("counts", "score", "gamma", "alpha", "log_normalizer", "graphs", "edges"),
    [
        (THREE, ONES, 0, 1, -191.408150, {(0, 0, 1): 0.263616, (4, 0, 0): 0.245436, (0, 1, 1): 0.072775}, D3_0),
        (THREE, ONES, 1, 1, -192.796427, {(0, 0, 1): 0.388686, (4, 0, 0): 0.361880}, D3_1),
        (THREE, BDEU, 0, 1, -194.009632, {(0, 0, 1): 0.418655, (4, 0, 0): 0.418655}, D3_BDEU),
        (FOUR, ONES, 0, 1, -342.318844, {(0, 1, 8, 2): 0.053993, (2, 8, 8, 0): 0.053993}, D4_ROWS),
        (FOUR, ONES, 1, 1, -345.697265, {(2, 8, 8, 0): 0.078828}, D4_GAMMA_1),
        (FOUR, ONES, 1, 2, -346.020287, {}, D4_ALPHA_2),
        (MIXED, ONES, 1, 1, -202.963699, {(0, 0, 3): 0.287391, (0, 0, 0): 0.110291}, MIXED_ROWS),
        (MIXED, BDEU, 1, 1, -207.030786, {(0, 0, 0): 0.643371}, None),
    ],
)
def test_exact_posteriors(
    counts: Counts,
    score: object,
    gamma: float,
    alpha: float,
    log_normalizer: float,
    graphs: dict[tuple[int, ...], float],
    edges: list[list[float]] | None,
) -> None:
    """25 and 543 graphs: the numbers are of another program, given to six places."""
    exact = exact_posterior(sets_of(counts, score, gamma=gamma, alpha=alpha))  # type: ignore[arg-type]
    assert exact.log_normalizer == pytest.approx(log_normalizer, abs=1e-6)
    assert len(exact.parents) == {3: 25, 4: 543}[counts.ndim]
    for graph, probability in graphs.items():
        assert exact.of(*graph) == pytest.approx(probability, abs=1e-6)
    if edges is not None:
        assert exact.edge_probability == pytest.approx(np.array(edges), abs=1e-6)


@pytest.mark.parametrize("together", [2, 3, 4])
@pytest.mark.parametrize("counts", [THREE, FOUR, MIXED])
def test_chains_find_the_exact_posterior(counts: Counts, together: int) -> None:
    """20,000 steps of four chains; 16,000 graphs kept, so an error of .02 is 5 standard errors or more of any edge."""
    sets = sets_of(counts)
    sample = sample_graphs(sets, Chains(together=together), seed=1)
    assert np.abs(sample.edge_probability - exact_posterior(sets).edge_probability).max() < 0.02
    assert sample.diagnostics.agree
    assert sum(share for _, share in sample.distinct()) == pytest.approx(1)
