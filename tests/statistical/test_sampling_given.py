"""Sampling with evidence against rejection sampling of the same network. Seeds are fixed; false-alarm rate 1e-6 a test.

Null: the tables of three variables, in n conditional records and in those of 400,000 independent records that have the
evidence, come from the same distribution; homogeneity chi-square over cells with at least 10 records in all, the rest merged.
Both are drawn independently (not systematically), so that the statistic has its textbook distribution.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.synthesis.synthesis import CHUNK, sample_chunks, sample_codes

STATES = (2, 3, 2, 3, 4)
PARENTS = ((), (0,), (0,), (1, 2), (2, 3))
EVIDENCE = {3: 1, 4: 2}
FALSE_ALARM = 1e-6


def network_of(seed: int) -> Network:
    generator = np.random.default_rng(seed)
    families = []
    for child, family in enumerate(PARENTS):
        table = generator.dirichlet(np.ones(STATES[child]), int(np.prod([STATES[p] for p in family], dtype=int)))
        families.append(
            Family(
                child=child,
                parents=family,
                probability=table,
                estimate=table,
                standard_error=table,
                interval_low=table,
                interval_high=table,
                unstable=np.zeros(table.shape, dtype=np.bool_),
            )
        )
    variables = tuple(Variable(name=f"v{i}", owner="a", labels=tuple("abcd"[:k])) for i, k in enumerate(STATES))
    return Network(schema=Schema(variables=variables), dag=Dag(parents=PARENTS), families=tuple(families))


def free_counts(codes: list[np.ndarray]) -> np.ndarray:
    cell = np.ravel_multi_index([codes[v].astype(int) for v in (0, 1, 2)], STATES[:3])
    return np.bincount(cell, minlength=int(np.prod(STATES[:3])))


def rejects(first: np.ndarray, second: np.ndarray) -> bool:
    enough = first + second >= 10
    table = np.array([[*counts[enough], counts[~enough].sum()] for counts in (first, second)], dtype=float)
    table = table[:, table.sum(axis=0) > 0]
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    return bool(chi2.sf(statistic, table.shape[1] - 1) < FALSE_ALARM)


def test_evidence_agrees_with_rejection_sampling() -> None:
    network = network_of(1)
    everybody = sample_codes(network, 400_000, generator=np.random.default_rng(2), method="independent")
    kept = np.all([everybody[v] == code for v, code in EVIDENCE.items()], axis=0)
    assert kept.sum() > 5000
    conditional = sample_codes(
        network, int(kept.sum()), generator=np.random.default_rng(3), method="independent", evidence=EVIDENCE
    )
    for variable, code in EVIDENCE.items():
        assert (conditional[variable] == code).all()
    assert not rejects(free_counts(conditional), free_counts([column[kept] for column in everybody]))
    # The planted fault: evidence written into records that were drawn without it.
    assert rejects(
        free_counts([column[: kept.sum()] for column in everybody]), free_counts([c[kept] for c in everybody])
    )


def test_chunks_are_one_sample_after_the_other() -> None:
    network, n = network_of(1), CHUNK + 1000
    pieces = list(sample_chunks(network, n, generator=np.random.default_rng(5)))
    generator = np.random.default_rng(5)
    expected = [sample_codes(network, size, generator=generator) for size in (CHUNK, 1000)]
    assert [len(piece[0]) for piece in pieces] == [CHUNK, 1000]
    for piece, wanted in zip(pieces, expected, strict=True):
        for column, other in zip(piece, wanted, strict=True):
            np.testing.assert_array_equal(column, other)
