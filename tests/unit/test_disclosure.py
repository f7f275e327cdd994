"""CAP and GCAP: the worked example of the method notes, brute force, and what the numbers are put beside."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.evaluate.measures.disclosure import AttackedRecords, cap, disclosure, gcap, majority_share


def known(*records: tuple[int, ...]) -> AttackedRecords:
    """Records whose last entry is the sensitive attribute."""
    table = np.array(records)
    return AttackedRecords(keys=tuple(table[:, :-1].T), sensitive=table[:, -1])


# (key; sensitive), x = 0 and y = 1.
ORIGINAL = known((0, 0, 0), (0, 1, 1), (1, 1, 0), (2, 2, 1))
SYNTHETIC = known((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 0), (1, 1, 0))


def brute_force(attacked: AttackedRecords, published: AttackedRecords) -> tuple[list[float], list[int]]:
    """Equation 1 of Hittmeir et al., written out record by record."""
    shares, distances = [], []
    for record, truth in enumerate(attacked.sensitive):
        apart = [
            sum(int(a[record] != b[row]) for a, b in zip(attacked.keys, published.keys, strict=True))
            for row in range(len(published.sensitive))
        ]
        nearest = [value for value, away in zip(published.sensitive, apart, strict=True) if away == min(apart)]
        shares.append(nearest.count(truth) / len(nearest))
        distances.append(min(apart))
    return shares, distances


def test_generalized_attribution_of_the_worked_example() -> None:
    found = gcap(ORIGINAL, SYNTHETIC)
    assert found.probability.tolist() == pytest.approx([1 / 2, 1, 1, 1 / 3])
    assert found.mean == pytest.approx(0.708333, abs=5e-7)
    assert found.distance.tolist() == [0, 0, 0, 2]
    assert found.matched == 0.75


def test_attribution_by_complete_match_is_undefined_without_one() -> None:
    found = cap(ORIGINAL, SYNTHETIC)
    assert found.probability[:3].tolist() == [0.5, 1, 1]
    assert np.isnan(found.probability[3])
    assert found.mean == pytest.approx(0.833333, abs=5e-7)
    assert found.vote.tolist() == [0, 1, 0, -1]
    assert found.accuracy == 0.75  # no vote is no right answer
    assert found.distance.tolist() == [0, 0, 0, 2]  # of two key attributes
    assert np.isnan(cap(known((7, 7, 0)), SYNTHETIC).mean)


@pytest.mark.parametrize("seed", range(6))
def test_attribution_agrees_with_the_formula_record_by_record(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 6, 4)
    attacked, published = (
        AttackedRecords(keys=tuple(generator.integers(0, k, n) for k in sizes), sensitive=generator.integers(0, 3, n))
        for n in (80, 40)
    )
    found = gcap(attacked, published)
    shares, distances = brute_force(attacked, published)
    assert found.probability.tolist() == pytest.approx(shares)
    assert found.distance.tolist() == distances
    exact = cap(attacked, published)
    assert (np.isnan(exact.probability) == (found.distance > 0)).all()
    assert exact.probability[found.distance == 0].tolist() == pytest.approx(
        found.probability[found.distance == 0].tolist()
    )


def test_keys_too_wide_for_one_number_are_told_apart() -> None:
    """Each has 31 bits: in 64, what tells these apart is shifted out."""
    keys = (np.arange(20), *[np.full(20, 2**31 - 1)] * 3)
    records = AttackedRecords(keys=keys, sensitive=np.arange(20) % 5)
    assert gcap(records, records).mean == 1.0


def test_a_value_that_is_never_published_is_never_attributed() -> None:
    assert gcap(known((0, 5)), known((0, 1), (0, 1))).probability.tolist() == [0.0]


def test_members_are_attacked_beside_others_and_the_baseline() -> None:
    """Records published as they are: members with unique keys are known for sure, others are guessed."""
    generator = np.random.default_rng(1)
    n = 2_000
    key, sensitive = generator.integers(0, 10**6, 2 * n), (generator.random(2 * n) < 0.3).astype(np.int64)
    members, others = (
        AttackedRecords(keys=(key[part],), sensitive=sensitive[part]) for part in (slice(n), slice(n, None))
    )
    found = disclosure(members, others, members)
    assert found.gcap > 0.99
    assert found.matched == 1.0
    # An unknown key is at distance 1 of everybody: the share of the true value among all, p^2 + (1 - p)^2 = .58.
    assert found.others_gcap == pytest.approx(0.58, abs=0.03)
    assert found.others_vote == pytest.approx(found.others_baseline, abs=1e-3)
    assert found.baseline == majority_share(members.sensitive) == pytest.approx(0.7, abs=0.03)


def test_unfit_records_are_refused() -> None:
    with pytest.raises(ValueError, match="as many"):
        gcap(ORIGINAL, known((0, 0)))
    with pytest.raises(ValueError, match="at least one"):
        AttackedRecords(keys=(), sensitive=np.array([1]))
    with pytest.raises(ValueError, match="no published record"):
        gcap(ORIGINAL, AttackedRecords(keys=(np.array([], dtype=int),) * 2, sensitive=np.array([], dtype=int)))
