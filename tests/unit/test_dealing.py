"""Sampling without replacement: decks by hand, how near their counts come to the network, and what a wide network says."""

import numpy as np
import pytest

from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.elimination import configuration_shares
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.synthesis.category_draws import deck_boundaries
from verticil.shared.synthesis.synthesis import sample_codes

PARENTS = ((), (0,), (0,), (1, 2), (3,))
STATES = (3, 4, 2, 3, 5)


def network_of(parents: tuple[tuple[int, ...], ...] = PARENTS, seed: int = 1) -> Network:
    generator = np.random.default_rng(seed)
    families = []
    for child, family in enumerate(parents):
        n_rows = int(np.prod([STATES[p] for p in family], dtype=int))
        table = generator.dirichlet(np.ones(STATES[child]), n_rows)
        families.append(
            Family(
                child=child, parents=family, probability=table, estimate=table, standard_error=table,
                interval_low=table, interval_high=table, unstable=np.zeros(table.shape, dtype=np.bool_),
            )
        )  # fmt: skip
    variables = tuple(Variable(name=f"v{i}", owner="a", labels=tuple("abcde"[:k])) for i, k in enumerate(STATES))
    return Network(schema=Schema(variables=variables), dag=Dag(parents=parents), families=tuple(families))


def joint(network: Network) -> np.ndarray:
    table = np.ones(STATES)
    for family in network.families:
        scope = (*family.parents, family.child)
        factor = family.probability.reshape([STATES[v] for v in scope])
        order = np.argsort(scope)
        shape = [STATES[v] if v in scope else 1 for v in range(len(STATES))]
        table = table * factor.transpose(order).reshape(shape)
    return table


def shares_of(network: Network) -> list[np.ndarray]:
    steps = [
        elimination.ConditionalStep(child=f.child, parents=f.parents, probability=f.probability)
        for f in network.families
    ]
    return configuration_shares(steps, STATES)


def boundaries(cumulative: list[list[float]], shares: list[float], sizes: list[int], seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return deck_boundaries(np.array(cumulative), np.array(shares), np.array(sizes), generator, use_compiled=False)


def test_a_deck_that_fits_is_dealt_out_whole():
    assert boundaries([[0.5, 1.0], [0.25, 1.0]], [0.6, 0.4], [6, 4]).tolist() == [[3, 6], [1, 4]]


def test_a_deck_that_is_used_up_is_begun_again():
    """Decks of 3 + 3 and 1 + 3 cards: 6 + 6 records are two rounds of the first; none are left for the second."""
    assert boundaries([[0.5, 1.0], [0.25, 1.0]], [0.75, 0.25], [12, 0])[0].tolist() == [6, 12]
    for seed in range(20):  # 6 and 4 cards; 10 records each: one round and 4 cards, two rounds and 2 cards
        first, second = boundaries([[0.5, 1.0], [0.25, 1.0]], [0.6, 0.4], [6 + 4 - 4 + 4, 0], seed)
        assert first[-1] == 10
        assert 3 + 1 <= first[0] <= 3 + 3
        assert second.tolist() == [0, 0]


def test_a_part_of_a_deck_is_a_random_part():
    """4 of 5 red and 5 black cards: the mean number of red ones is 2, hypergeometric, sd 0.816 / sqrt(1000) = 0.026; 6 sd."""
    red = [boundaries([[0.5, 1.0], [0.0, 1.0]], [1.0, 0.0], [4, 6], seed)[0, 0] for seed in range(1000)]
    assert abs(np.mean(red) - 2) < 6 * 0.026
    assert set(red) == {0, 1, 2, 3, 4}


def test_a_configuration_without_a_deck_follows_its_row():
    assert boundaries([[0.5, 1.0], [0.5, 1.0]], [1.0, 0.0], [5, 10])[1].tolist() == [5, 10]


def test_shares_of_parents_are_those_of_the_joint():
    network = network_of()
    whole = joint(network)
    for family, share in zip(network.families, shares_of(network), strict=True):
        others = tuple(v for v in range(len(STATES)) if v not in family.parents)
        np.testing.assert_allclose(share, whole.sum(axis=others).ravel(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [1, 50, 1000, 20_011])
def test_errors_do_not_pass_from_generation_to_generation(n):
    """In a chain the counts of a family differ from n P by less than 1 for it and 1 for each generation above.

    Of the root and its children that is proved: a table is rounded by less than 1, and its decks miss the parents' counts by less
    than 2. Independent draws would miss by 60 at n = 20,011.
    """
    network = network_of(((), (0,), (1,), (2,), (3,)))
    codes = sample_codes(network, n, generator=np.random.default_rng(n), method="without-replacement")
    for family, share in zip(network.families, shares_of(network), strict=True):
        expected = n * share[:, None] * family.probability
        row = codes[family.parents[0]].astype(int) if family.parents else np.zeros(n, int)
        counts = np.zeros(expected.shape)
        np.add.at(counts, (row, codes[family.child]), 1)
        assert np.abs(counts - expected).max() < 1 + family.child


def test_it_is_nearer_to_the_network_than_independent_draws():
    """Mean distance of the family tables from n P over 20 samples: by theory sqrt(cells)-fold smaller; a third is asked for."""
    network, n = network_of(), 20_000
    expected = [s[:, None] * f.probability for f, s in zip(network.families, shares_of(network), strict=True)]

    def distance(method: str) -> float:
        total = 0.0
        for seed in range(20):
            codes = sample_codes(network, n, generator=np.random.default_rng(seed), method=method)
            for family, table in zip(network.families, expected, strict=True):
                row = np.zeros(n, dtype=int)
                for parent in family.parents:
                    row = row * STATES[parent] + codes[parent]
                counts = np.bincount(row * STATES[family.child] + codes[family.child], minlength=table.size)
                total += float(np.abs(counts / n - table.ravel()).sum())
        return total

    assert 3 * distance("without-replacement") < distance("independent")


@pytest.mark.parametrize("evidence", [{4: 2}, {0: 1, 3: 2}])
@pytest.mark.parametrize("method", ["systematic", "independent", "without-replacement"])
def test_every_way_of_drawing_keeps_to_the_evidence(method, evidence):
    """All pairs and singles of 40,000 records against the exact conditional joint; 6 standard errors of independent draws."""
    network, n = network_of(), 40_000
    whole = joint(network)
    kept = np.zeros(STATES)
    place = tuple(evidence.get(v, slice(None)) for v in range(len(STATES)))
    kept[place] = whole[place]
    kept /= kept.sum()
    codes = sample_codes(network, n, generator=np.random.default_rng(3), method=method, evidence=evidence)
    counts = np.zeros(STATES)
    np.add.at(counts, tuple(column.astype(int) for column in codes), 1)
    assert (np.abs(counts / n - kept) <= 6 * np.sqrt(kept * (1 - kept) / n) + 6 / n).all()
    for variable, code in evidence.items():
        assert (codes[variable] == code).all()


def test_a_network_too_wide_for_decks_is_refused_and_others_still_draw(monkeypatch):
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 10)
    with pytest.raises(ValueError, match=r"needs a table of .* cells, expected at most 10"):
        sample_codes(network_of(), 5, generator=np.random.default_rng(0), method="without-replacement")
    assert len(sample_codes(network_of(), 5, generator=np.random.default_rng(0))[0]) == 5
