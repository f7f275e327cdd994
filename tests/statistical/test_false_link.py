"""Two independent parents of a column: no way of learning finds a link between them to get out of their noise.

Of v0 -> v1 <- v2, 5,000 people, epsilon 3. The seeds are fixed, so the tests raise no false alarm."""

from __future__ import annotations

import numpy as np
import pytest

from support import studies
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.edge_confidence import edge_strengths
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.miner.learning.selection import search_columns
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import CONFIRMED
from verticil.shared.study.document import Study


def study_of(method: str, score: str) -> Study:
    return studies.study_of(
        studies.numbered((2, 2, 2)), epsilon=3.0, structure={"method": method, "score": score, "max_parents": 2}
    )


def columns_of(study: Study) -> list[np.ndarray]:
    rng, n = np.random.default_rng(2), 5_000
    v0, v2 = rng.integers(0, 2, n), rng.integers(0, 2, n)
    v1 = (rng.random(n) < 1 / (1 + np.exp(-2.0 * (2 * v0 - 1 + 2 * v2 - 1)))).astype(int)
    ends = study.units[0].transition.probabilities[:, 0]
    return [(rng.random(n) >= ends[column]).astype(np.uint8) for column in (v0, v1, v2)]


@pytest.mark.parametrize(
    ("method", "score"), [("hill-climb", "bic"), ("hill-climb", "bic-noise"), ("order", "mutual-information")]
)
def test_a_search_finds_the_two_parents_and_no_link_between_them(method: str, score: str) -> None:
    study = study_of(method, score)
    found = search_columns(columns_of(study), study, progress=lambda *_: None, interruption=UNINTERRUPTED)
    assert found.result.dag.parents[1] == (0, 2)
    assert not {(0, 2), (2, 0)} & set(found.result.dag.edges())


def test_the_false_link_is_weak_beside_the_true_ones() -> None:
    """Whatever stands beside it; `minimum_strength` takes it out, and leaves the others."""
    study = study_of("hill-climb", "bic")
    units = [study.column_unit(v) for v in range(3)]
    tables = FamilyTables(columns_of(study), units, (2, 2, 2))
    strengths = edge_strengths(Dag(parents=((), (0, 2), (0,))), tables, seed=1)
    assert strengths[0, 2].strength < CONFIRMED
    assert min(strengths[0, 1].strength, strengths[2, 1].strength) > 0.95
