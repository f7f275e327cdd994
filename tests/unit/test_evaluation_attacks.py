"""What attacks are made of, each against brute force or another program: distances, neighbours, risks, curves, conditions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from verticil.evaluate.measures import singling_out
from verticil.evaluate.measures.coded import CodedTable, number_records
from verticil.evaluate.measures.disclosure import AttackedRecords, gcap
from verticil.evaluate.measures.neighbours import Distances, find_links, guesses, nearest, points
from verticil.evaluate.measures.risks import nearer, rate, risk, separation


def table(seed: int, n: int, *, states: tuple[int, ...] = (3, 2, 6, 5)) -> CodedTable:
    """Categories, and in the last two columns numbers that are missing now and then; the last code is that of missing ones."""
    generator = np.random.default_rng(seed)
    codes, values = [], []
    for place, size in enumerate(states):
        column = generator.integers(0, size, n).astype(np.uint8)
        numeric = place >= len(states) - 2
        numbers = np.where(column == size - 1, np.nan, column * 10 + generator.integers(0, 10, n))
        codes.append(column)
        values.append(numbers if numeric else None)
    names = tuple(f"c{place}" for place in range(len(states)))
    return CodedTable(names=names, codes=tuple(codes), n_states=states, values=tuple(values))


def gower(a: CodedTable, i: int, b: CodedTable, j: int, column: int, units: int) -> int:
    """Of one column, written out: b is what is published."""
    mine, theirs = a.values[column], b.values[column]
    if mine is None or theirs is None:
        return units * int(a.codes[column][i] != b.codes[column][j])
    if math.isnan(mine[i]) or math.isnan(theirs[j]):
        return units * int(math.isnan(mine[i]) != math.isnan(theirs[j]))
    known = theirs[~np.isnan(theirs)].tolist()

    def place(x: float) -> int:
        return round(units * (sum(y < x for y in known) + sum(y == x for y in known) / 2) / len(known))

    return abs(place(float(mine[i])) - place(float(theirs[j])))


def distances(a: CodedTable, b: CodedTable, units: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """(columns, a, b)."""
    return np.array(
        [[[gower(a, i, b, j, column, units) for j in range(b.n)] for i in range(a.n)] for column in range(len(a.names))]
    )


@pytest.mark.parametrize("seed", range(3))
def test_distances_are_gowers_column_by_column(seed: int) -> None:
    asked, published = table(seed, 25), table(seed + 10, 30)
    there, here = points(published, asked)
    apart = distances(asked, published, here.units)
    made = Distances(here, there)
    (block,) = made.blocks
    total = made.total(block, range(4))
    assert total.tolist() == apart.sum(axis=0).tolist()
    for column in range(4):
        assert made.without(total, block, column).tolist() == (apart.sum(axis=0) - apart[column]).tolist()
    assert nearest(here, there).tolist() == apart.sum(axis=0).min(axis=1).tolist()


def test_many_columns_do_not_run_over() -> None:
    states = (2,) * 600 + (5, 5)
    asked, published = table(1, 3, states=states), table(2, 4, states=states)
    there, here = points(published, asked)
    assert nearest(here, there).tolist() == distances(asked, published, here.units).sum(axis=0).min(axis=1).tolist()
    assert here.units == 65535 // 602


@pytest.mark.parametrize("seed", range(3))
def test_parts_are_linked_where_one_record_is_nearest_to_both(seed: int) -> None:
    asked, published = table(seed, 30), table(seed + 10, 200)
    there, here = points(published, asked)
    apart = distances(asked, published, here.units)
    left, right = apart[[0, 2]].sum(axis=0), apart[[1, 3]].sum(axis=0)
    expected = [
        any(left[i, j] == left[i].min() and right[i, j] == right[i].min() for j in range(published.n))
        for i in range(asked.n)
    ]
    assert find_links(here, there, [0, 2]).tolist() == expected
    assert 0 < sum(expected) < asked.n
    there, here = points(published, published)
    assert find_links(there, here, [0, 2]).all()


@pytest.mark.parametrize("seed", range(3))
def test_guesses_are_those_of_the_nearest_whose_value_is_possible(seed: int) -> None:
    asked, published = table(seed, 30), table(seed + 10, 50)
    there, here = points(published, asked)
    apart = distances(asked, published, here.units)
    possible = np.random.default_rng(seed).random((asked.n, 6)) < 0.5
    for found in guesses(here, there, [None, None, possible, None]):
        rest = apart.sum(axis=0) - apart[found.column]
        for i in range(asked.n):
            near = [j for j in range(published.n) if rest[i, j] == rest[i].min()]
            said = [int(published.codes[found.column][j]) for j in near]
            kept = [(j, code) for j, code in zip(near, said, strict=True) if found.column != 2 or possible[i, code]]
            counts = np.bincount([code for _, code in kept], minlength=asked.n_states[found.column])
            assert found.counts[i].tolist() == counts.tolist()
            assert found.first[i] == (kept[0][0] if kept else -1)


def test_an_attacker_with_rules_gives_nothing_to_what_they_forbid() -> None:
    """Two published records are nearest, one of them with a value that the person cannot have."""
    published = AttackedRecords(keys=(np.array([0, 0, 1]),), sensitive=np.array([0, 1, 2]))
    asked = AttackedRecords(keys=(np.array([0, 0]),), sensitive=np.array([0, 2]))
    assert gcap(asked, published).probability.tolist() == [0.5, 0.0]
    only = np.array([[True, False, True], [False, False, True]])
    knowing = AttackedRecords(keys=asked.keys, sensitive=asked.sensitive, possible=only)
    # The second person's nearest records say nothing that is possible: what is, is taken from the margin.
    assert gcap(knowing, published).probability.tolist() == [1.0, 1.0]
    rare = AttackedRecords(keys=(np.array([0, 0, 1, 1, 1]),), sensitive=np.array([0, 1, 2, 3, 3]))
    one = AttackedRecords(
        keys=(np.array([0]),), sensitive=np.array([2]), possible=np.array([[False, False, True, True]])
    )
    assert gcap(one, rare).probability.tolist() == pytest.approx([1 / 3])
    with pytest.raises(ValueError, match="some for each"):
        AttackedRecords(keys=asked.keys, sensitive=asked.sensitive, possible=np.zeros((2, 3), dtype=bool))


def test_records_are_numbered_by_their_numbers() -> None:
    a = table(3, 400)
    same = np.array([0, 5, 9, 399])
    mine, theirs = number_records(a, a.rows(same))
    assert theirs.tolist() == mine[same].tolist()
    rows = list(
        zip(
            *(column.tolist() for column in a.codes),
            *(np.nan_to_num(v, nan=-1).tolist() for v in a.values[2:]),
            strict=True,
        )
    )
    assert len(set(rows)) == len(set(mine.tolist()))


def test_classifiers_do_not_see_what_they_predict_and_a_missing_number_is_the_mean() -> None:
    made = CodedTable(
        names=("a", "b", "c"),
        codes=(
            np.array([2, 0, 1], dtype=np.uint8),
            np.array([1, 0, 0], dtype=np.uint8),
            np.array([0, 1, 1], dtype=np.uint8),
        ),
        n_states=(3, 2, 2),
        values=(None, np.array([4.0, np.nan, 8.0]), None),
    )
    assert made.features(2).tolist() == [[2.0, 4.0], [0.0, 6.0], [1.0, 8.0]]


def test_rates_have_wilsons_interval() -> None:
    """1 of 10: .0179 to .4042, as in Brown, Cai & DasGupta (2001) and in every package."""
    found = rate(1, 10)
    assert found.value - found.error == pytest.approx(0.0179, abs=5e-5)
    assert found.value + found.error == pytest.approx(0.4042, abs=5e-5)


def test_a_risk_is_what_the_control_leaves() -> None:
    """By hand, with z^2 = 3.841: (80 + z^2/2) / (100 + z^2) and (50 + z^2/2) / (100 + z^2)."""
    z2 = 3.8414588
    attack, control = (80 + z2 / 2) / (100 + z2), (50 + z2 / 2) / (100 + z2)
    assert risk(rate(80, 100), rate(50, 100)).value == pytest.approx((attack - control) / (1 - control))
    assert risk(rate(50, 100), rate(80, 100)).value < 0


def test_a_perfect_attack_has_a_risk() -> None:
    for attack, control in ((rate(500, 500), rate(0, 500)), (rate(500, 500), rate(500, 500)), (rate(1, 1), rate(1, 1))):
        found = risk(attack, control)
        assert math.isfinite(found.value)
        assert found.low <= found.value <= found.high
    assert math.isnan(risk(rate(3, 3), rate(0, 0)).value)


@pytest.mark.parametrize("seed", range(3))
def test_curves_are_those_of_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    members, others = generator.integers(0, 12, 300), generator.integers(1, 14, 200)
    truth, scores = np.repeat([1, 0], [300, 200]), -np.concatenate([members, others])
    found = separation(members, others)
    assert found.area == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert found.false.tolist() == pytest.approx(false.tolist())
    assert found.true.tolist() == pytest.approx(true.tolist())
    for share in (0.003, 0.05, 0.2, 1.0):
        assert found.true_positive_rate(share) == pytest.approx(np.interp(share, false, true))
    assert found.advantage == pytest.approx((true - false).max())


def test_what_is_found_of_members_is_the_share_of_false_alarms_where_nothing_tells_them() -> None:
    """Also where all scores tie: a coin decides."""
    nothing = separation(np.zeros(50), np.zeros(70))
    assert nothing.true_positive_rate(0.01) == pytest.approx(0.01)
    assert nothing.area == 0.5
    perfect = separation(np.zeros(50), np.ones(70))
    assert perfect.true_positive_rate(0.0) == perfect.area == 1.0


def test_the_share_of_nearer_records_counts_ties_half() -> None:
    assert nearer(np.array([1, 1, 5, 2]), np.array([2, 1, 1, 3])) == 0.625


@pytest.mark.parametrize("several", [False, True])
def test_conditions_hold_for_one_published_record(several: bool) -> None:
    published, people = table(4, 900, states=(30, 4, 25, 25)), table(5, 250, states=(30, 4, 25, 25))
    make = singling_out.of_several if several else singling_out.of_one_column
    made = make(published, 80, generator=np.random.default_rng(1))
    assert 5 < len(made) <= 80
    distinct = {tuple(row) for row in rows(published)}
    held = made.holding(people)
    for place in range(len(made)):
        own = list(zip(made.columns[place], made.low[place], made.high[place], strict=True))
        assert sum(all(low <= row[c] <= high for c, low, high in own) for row in distinct) == 1
        assert held[place] == sum(all(low <= row[c] <= high for c, low, high in own) for row in rows(people))
    assert len({(*made.columns[i], *made.low[i], *made.high[i]) for i in range(len(made))}) == len(made)


def rows(of: CodedTable) -> list[list[float]]:
    """Numbers, or codes; a missing number is infinite."""
    columns = [
        codes.astype(float) if values is None else np.where(np.isnan(values), np.inf, values)
        for codes, values in zip(of.codes, of.values, strict=True)
    ]
    return np.column_stack(columns).tolist()


def test_nothing_singles_out_where_all_records_are_equal_in_every_column() -> None:
    categories = CodedTable(
        names=("a", "b"), codes=(np.zeros(9, dtype=np.uint8),) * 2, n_states=(2, 2), values=(None, None)
    )
    twice = CodedTable(
        names=("a", "b"),
        codes=(np.array([0, 1] * 4, dtype=np.uint8), np.zeros(8, dtype=np.uint8)),
        n_states=(2, 2),
        values=(None, None),
    )
    generator = np.random.default_rng(0)
    assert len(singling_out.of_several(categories, 10, generator=generator)) == 1  # the one distinct record itself
    assert (
        len(singling_out.of_one_column(twice, 10, generator=generator)) == 2
    )  # two distinct records, told apart by one column
    wide = table(4, 4000, states=(2, 2, 3, 3))
    assert (
        len(
            singling_out.of_one_column(
                CodedTable(names=wide.names[:2], codes=wide.codes[:2], n_states=(2, 2), values=(None, None)),
                10,
                generator=generator,
            )
        )
        == 0
    )
