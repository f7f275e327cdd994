"""Noise, pads and sums of shares; opened tables against each other: false alarms at the stated rate, planted faults seen."""

from __future__ import annotations

import doctest
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from verticil.shared.core.arrays import Ints
from verticil.shared.core.errors import Misuse
from verticil.shared.masked.arithmetic import field, opening, streams
from verticil.shared.masked.arithmetic.field import Words
from verticil.shared.masked.arithmetic.opening import Alarm, Ratio
from verticil.shared.mechanisms import discrete_gaussian

KEY = bytes(range(32))


def test_doctests():
    assert doctest.testmod(opening).failed == 0


# ---- how much noise


@pytest.mark.parametrize("sigma", [3.0, 3.0000000001, 13.0859375, 57.5, 1000 / 3, 16_384.0])
def test_each_ones_sigma_is_the_least_number_that_is_enough(sigma):
    """In whole numbers: it is enough, the double below is not. Where the root is a double, it is the root."""
    for counted in (2, 3, 5, 25):
        for tolerate in {1, counted - 1}:
            left = counted - tolerate
            if sigma < 3 * math.sqrt(left):
                continue
            ratio = sigma.as_integer_ratio()
            each = opening.sigma_each(ratio, counted, tolerate)
            below = math.nextafter(each[0] / each[1], 0.0)
            assert Fraction(*each) == Fraction(each[0] / each[1])
            assert Fraction(*each) ** 2 * left >= Fraction(*ratio) ** 2 > Fraction(below) ** 2 * left
            assert opening.enough(each, ratio, counted, tolerate)
            assert not opening.enough(below.as_integer_ratio(), ratio, counted, tolerate)
            if math.isqrt(left) ** 2 == left:
                assert Fraction(*each) == Fraction(*ratio) / math.isqrt(left)


def test_a_ratio_that_is_no_double_is_enough_for_by_whole_numbers():
    each = opening.sigma_each((10**30 + 1, 10**29), 2, 1)
    assert Fraction(*each) == Fraction(math.nextafter(10.0, 11.0))


@pytest.mark.parametrize(
    ("sigma", "counted", "tolerate", "says"),
    [
        ((598, 100), 5, 1, "noise of 2.99 people from each of 5 contributors: expected 3 to 16384 .hint: a smaller"),
        ((1, 10**6), 2, 1, "noise of 1e-06 people"),
        ((0, 1), 2, 1, "noise of 0 people"),
        ((-9, 1), 2, 1, "noise of -9 people"),
        ((16_385, 1), 2, 1, "noise of 1.638e.04 people .* 16384 .hint: fewer tables"),
        ((9, 1), 2, 2, "tolerate is 2 where the noise of 2 contributors"),
        ((9, 1), 2, 0, "tolerate is 0 where the noise of 2 contributors"),
        ((900, 1), 26, 1, "tolerate is 1 where the noise of 26 contributors .* at most 25"),
    ],
)
def test_noise_that_does_not_do_is_refused(sigma, counted, tolerate, says):
    with pytest.raises(Misuse, match=f"^STUDY_UNSUPPORTED: .*{says}") as told:
        opening.sigma_each(sigma, counted, tolerate)
    assert told.value.hint


def test_noise_is_the_sampler_s_by_key_and_sigma():
    for sigma in (3.0, 13.0859375):
        ratio = sigma.as_integer_ratio()
        drawn = field.signed(opening.noise(KEY, (40, 50), ratio))
        assert np.array_equal(drawn, discrete_gaussian.draw(KEY, b"", (40, 50), sigma))
        assert not np.array_equal(drawn, field.signed(opening.noise(bytes(32), (40, 50), ratio)))
    for bad in ((1, 3), (10**30 + 1, 10**29)):
        with pytest.raises(ValueError, match="is no double"):
            opening.noise(KEY, (2,), bad)
    with pytest.raises(ValueError, match="of a part of a sum, expected at least 3"):
        opening.noise(KEY, (2,), (2, 1))


def has_variance(numbers: Ints, variance: float) -> bool:
    """Whether so many normal numbers could have this variance: chi^2, two sides, false alarm 1e-6."""
    ratio = float((numbers.astype(np.float64) ** 2).sum()) / variance
    return 2 * min(stats.chi2.cdf(ratio, numbers.size), stats.chi2.sf(ratio, numbers.size)) > 1e-6


@pytest.mark.parametrize(("counted", "tolerate"), [(2, 1), (3, 1), (5, 1), (5, 3)])
def test_all_draws_have_the_variance_that_is_said_and_what_must_be_left_is_left(counted, tolerate):
    sigma = (13.0859375).as_integer_ratio()
    each = opening.sigma_each(sigma, counted, tolerate)
    draws = [opening.noise(streams.key_of(KEY, c), (300, 400), each) for c in range(counted)]
    whole, left = opening.open_sum(draws), opening.open_sum(draws[tolerate:])
    assert has_variance(whole, opening.deviation(each, counted) ** 2)
    assert has_variance(left, opening.deviation(sigma) ** 2)
    assert math.isclose(
        opening.deviation(each, counted) ** 2, opening.deviation(sigma) ** 2 * counted / (counted - tolerate)
    )
    assert not has_variance(opening.open_sum(draws[1:]), opening.deviation(each, counted) ** 2)
    assert not has_variance(whole, opening.deviation(sigma) ** 2)


# ---- pads and sums


def shares(parts: Sequence[Words]) -> list[Words]:
    """Each party's part under the pads of all pairs."""

    def pad(i: int, j: int) -> Words:
        return streams.words(streams.key_of(KEY, "pad", i, j), parts[0].shape)

    return [
        opening.add_pads(part, (pad(i, j) for j in range(i + 1, len(parts))), (pad(j, i) for j in range(i)))
        for i, part in enumerate(parts)
    ]


@pytest.mark.parametrize("parties", [2, 3, 4, 5])
def test_pads_cancel_in_the_sum_of_all_and_only_there(parties):
    table = np.array([[-700, 0, 3], [2**31 - 6, 1 - 2**31 + 6, -1]])
    generator = np.random.default_rng(parties)
    parts = [generator.integers(0, field.P, table.shape, dtype=np.uint32) for _ in range(parties - 1)]
    rest = field.from_numbers(table)
    for part in parts:
        rest = field.subtract(rest, part)
    out = shares([*parts, rest])
    assert opening.open_sum(out).tolist() == table.tolist()
    assert opening.open_sum(iter(out)).tolist() == table.tolist()
    for left_out in range(parties):
        some = opening.open_sum(share for i, share in enumerate(out) if i != left_out)
        kept = opening.open_sum(part for i, part in enumerate([*parts, rest]) if i != left_out)
        assert not np.any(some == kept)
        assert not np.any(out[left_out] == [*parts, rest][left_out])
    with pytest.raises(ValueError, match="no share of a table"):
        opening.open_sum([])


# ---- opened tables with each other

SIZES = (20, 20, 20, 20, 2, 11, 11, 11, 11, 16, 16, 15, 15)
PAIRS = tuple(itertools.combinations(range(len(SIZES)), 2))
N_PEOPLE = 5000


def exact(tables: Sequence[tuple[int, ...]], sizes: Sequence[int], n: int = N_PEOPLE) -> list[Ints]:
    codes = [np.random.default_rng(unit).integers(0, size, n) for unit, size in enumerate(sizes)]
    found: list[Ints] = []
    for units in tables:
        shape = [sizes[unit] for unit in units]
        cells = np.ravel_multi_index([codes[unit] for unit in units], shape)
        found.append(np.bincount(cells, minlength=math.prod(shape)).reshape(shape))
    return found


def noisy(counts: Sequence[Ints], sigma: Ratio, *, draws: int = 1, seed: int = 0) -> list[Ints]:
    """Each table with so many draws on each cell, every one of a key of its own."""
    found: list[Ints] = []
    for number, table in enumerate(counts):
        keys = [streams.key_of(KEY, seed, number, contributor) for contributor in range(draws)]
        parts = [opening.noise(key, table.shape, sigma) for key in keys]
        found.append(opening.open_sum([field.from_numbers(table), *parts]))
    return found


def test_honest_tables_alarm_nobody():
    """20 rounds of Adult's sizes, three contributors: 2e-5 in all; the seeds are fixed."""
    counts = exact(PAIRS, SIZES)
    for seed in range(20):
        tables = noisy(counts, (8, 1), draws=3, seed=seed)
        assert not opening.margin_alarms(PAIRS, tables, [opening.deviation((8, 1), 3)] * len(PAIRS), N_PEOPLE)


def alarmed(rate: float, monkeypatch: pytest.MonkeyPatch, claimed: float) -> int:
    """Of 400 honest rounds, how many alarm when that may happen with this chance; deviations are those of tables' owners."""
    monkeypatch.setattr(opening, "FALSE_ALARM", rate)
    sizes, tables = (2, 3, 2, 30), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1, 2)]
    sigmas = [3.0, 5.0, 3.0, 9.0, 3.0, 3.0, 4.0]
    counts = exact(tables, sizes, 300)
    found = 0
    for seed in range(400):
        noise = [
            discrete_gaussian.draw(streams.key_of(KEY, seed, number), b"", table.shape, sigma)
            for number, (table, sigma) in enumerate(zip(counts, sigmas, strict=True))
        ]
        opened = [table + more for table, more in zip(counts, noise, strict=True)]
        found += bool(opening.margin_alarms(tables, opened, [claimed * s for s in sigmas], 300))
    return found


def test_false_alarms_are_at_most_as_often_as_is_said(monkeypatch):
    """At a rate of 1/2 in place of 1e-6 a bound that is off shows: binomial, false alarm 1e-6 for either test."""
    assert stats.binomtest(alarmed(0.5, monkeypatch, 1.0), 400, 0.5, alternative="greater").pvalue > 1e-6
    assert stats.binomtest(alarmed(0.5, monkeypatch, 0.7), 400, 0.5, alternative="greater").pvalue < 1e-6


def test_a_shift_that_moves_a_margin_alarms_by_name():
    deviations = [opening.deviation((8, 1), 3)] * len(PAIRS)
    tables = noisy(exact(PAIRS, SIZES), (8, 1), draws=3)
    at = PAIRS.index((1, 9))
    tables[at][4, 3] += 1000
    tables[at][5, 4] -= 1000
    alarms = opening.margin_alarms(PAIRS, tables, deviations, N_PEOPLE)
    assert {alarm.units for alarm in alarms} == {(1,), (9,)}
    assert all(at in (alarm.table, alarm.other) for alarm in alarms)
    assert len(alarms) == 2 * 11
    tables = noisy(exact(PAIRS, SIZES), (8, 1), draws=3)
    tables[at][4:6, 3:5] += np.array([[1000, -1000], [-1000, 1000]])  # an association is planted: no margin moves
    assert not opening.margin_alarms(PAIRS, tables, deviations, N_PEOPLE)


def test_a_total_that_is_not_the_number_of_people_alarms():
    tables = noisy(exact([(0,)], [4]), (8, 1))
    assert not opening.margin_alarms([(0,)], tables, [8.0], N_PEOPLE)
    assert opening.margin_alarms([(0,)], tables, [8.0], N_PEOPLE + 200) == (Alarm((), 0, None),)


def test_a_triple_is_compared_with_pairs_and_triples_in_all_margins():
    tables, sizes = [(0, 1), (0, 1, 2), (0, 1, 3)], (3, 4, 2, 2)
    opened = noisy(exact(tables, sizes), (3, 1))
    deviations = [3.0] * 3
    assert not opening.margin_alarms(tables, opened, deviations, N_PEOPLE)
    for cells, sign in [
        ((0, 0), 1),
        ((1, 1), 1),
        ((0, 1), -1),
        ((1, 0), -1),
    ]:  # rows and columns do not move, the pair does
        opened[2][(*cells, 0)] += 100 * sign
    alarms = opening.margin_alarms(tables, opened, deviations, N_PEOPLE)
    assert alarms == (Alarm((0, 1), 0, 2), Alarm((0, 1), 1, 2))


def test_noise_that_a_contributor_leaves_out_is_seen_in_a_large_study_only():
    said = opening.deviation((8, 1), 3)
    few, of_few = PAIRS[:3], [said] * 3
    for seed in range(5):
        lazy = noisy(exact(PAIRS, SIZES), (8, 1), draws=2, seed=seed)
        assert opening.margin_alarms(PAIRS, lazy, [said] * len(PAIRS), N_PEOPLE) == (Alarm((), None, None),)
        assert not opening.margin_alarms(few, lazy[:3], of_few, N_PEOPLE)
    bare = exact(PAIRS, SIZES)
    assert opening.margin_alarms(PAIRS, bare, [said] * len(PAIRS), N_PEOPLE) == (Alarm((), None, None),)
    assert not opening.margin_alarms(few, bare[:3], of_few, N_PEOPLE)  # 41 degrees of freedom


def test_tables_that_are_not_their_units_are_refused():
    with pytest.raises(ValueError, match="axes"):
        opening.margin_alarms([(0, 1)], [np.zeros(3, np.int64)], [3.0], 5)
    with pytest.raises(ValueError, match="zip"):
        opening.margin_alarms([(0,)], [], [3.0], 5)
    assert opening.margin_alarms([], [], [], 5) == ()
