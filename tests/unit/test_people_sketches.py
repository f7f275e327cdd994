"""Sketches of people: the share of two tables, how it can err, and what is stored of it."""

from __future__ import annotations

import itertools
import math
import stat
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verticil.party.dataset.local_person_keys import PeopleOfTable, PersonMacs, TableKeys
from verticil.party.people.sketch import LIMIT, Sketch, false_alarm, miss, number_keys, share
from verticil.party.people.sketches import Sketches
from verticil.party.storage.database import Database
from verticil.party.storage.secret import create_secret
from verticil.shared.storage import durable

MACS = PersonMacs(bytes(range(32)))


def people(folder: Path, ids: Iterable[str]) -> PeopleOfTable:
    pairs, are_people = MACS.of(list(ids))
    keys = TableKeys(folder)
    keys.take(pairs[are_people])
    return keys.finish()


def numbers(folder: Path, some: Iterable[int], spelled: str = "{}") -> PeopleOfTable:
    return people(folder, [spelled.format(number) for number in some])


# ---- the share


@pytest.mark.parametrize("smaller", [1, 2, 3, 7, 100, 3000])
@pytest.mark.parametrize("larger", [3000, 20_000])
def test_a_table_with_nine_tenths_of_its_people_in_a_larger_one_is_recognised(
    tmp_path: Path, smaller: int, larger: int
) -> None:
    both = math.ceil(0.9 * smaller)
    one = Sketch.of(numbers(tmp_path, range(larger - both, larger - both + smaller)))
    other = Sketch.of(numbers(tmp_path, range(larger)))
    assert share(one, other) == share(other, one) == Fraction(both, smaller)
    assert share(one, other) > LIMIT


def test_tables_of_different_people_share_nobody(tmp_path: Path) -> None:
    one, other = numbers(tmp_path, range(20_000)), numbers(tmp_path, range(20_000, 50_000))
    assert share(Sketch.of(one), Sketch.of(other)) == 0
    assert share(Sketch.of(numbers(tmp_path, ())), Sketch.of(one)) == 0
    assert share(Sketch.of(numbers(tmp_path, (1, 2, 3))), Sketch.of(numbers(tmp_path, (3, 4, 5)))) == LIMIT


def test_ids_spelled_otherwise_are_recognised_where_digits_tell_people_apart(tmp_path: Path) -> None:
    one = Sketch.of(numbers(tmp_path, range(300), "P-{}"))
    other = Sketch.of(numbers(tmp_path, range(300), "p {} "))
    assert share(one, other) == 1
    assert share(Sketch(exact=one.exact, loose=None), other) == 0
    letters = Sketch.of(people(tmp_path, [f"{letter}{number}" for letter in "ab" for number in range(100)]))
    assert letters.loose is None
    assert share(letters, Sketch.of(numbers(tmp_path, range(200)))) == 0


def test_rows_without_ids_are_told_apart_by_how_often_they_occur() -> None:
    keys = np.array([5, 9, 5, 5, 9, 7], dtype=np.uint64)
    found = number_keys(keys)
    assert len(found) == 6
    assert {5, 7, 9} <= set(found.tolist())
    fewer = number_keys(np.array([5, 5, 7], dtype=np.uint64))
    assert len(np.intersect1d(found, fewer)) == 3
    assert len(number_keys(np.empty(0, dtype=np.uint64))) == 0


# ---- how it can err


def test_different_people_are_taken_for_the_same_with_probability_below_1e_9() -> None:
    """Of any two sizes up to four billion: the bound is largest for one person against all others."""
    sizes = [1, 2, 3, 5, 10, 100, 10_000, 10**6, 10**8, 4 * 10**9]
    for smaller, larger in itertools.combinations_with_replacement(sizes, 2):
        assert false_alarm(smaller, larger) <= 1e-9
    assert false_alarm(1, 10**9) == pytest.approx(2 * 10**9 / 2**64)
    assert false_alarm(0, 5) == 0


def test_the_same_people_are_missed_with_probability_below_1e_9() -> None:
    for smaller in (1, 2, 3, 4, 5, 10, 30, 1000, 10**6, 10**9, 10**10):
        assert miss(smaller) <= 1e-9
    assert miss(3) == pytest.approx(3 / 2.0**128)  # two of the three pairs would have to have one key
    assert miss(2) == 0  # one key at least is left, and it is in the other table


def test_the_bounds_hold_for_keys_so_short_that_errors_are_seen() -> None:
    """With keys of 6 bits in place of 64, 20,000 draws: the formulas bound what is counted, and are not far above it."""
    draw, bits, n = np.random.default_rng(1), 6, 20_000
    for smaller, larger in ((1, 3), (2, 3), (3, 5), (4, 6)):
        keys = draw.integers(0, 2**bits, (n, smaller + larger))
        hits = (keys[:, :smaller, None] == keys[:, None, smaller:]).any(axis=2).sum(axis=1)
        seen = float((hits > smaller / 3).mean())
        needed = smaller // 3 + 1
        exact_bound = math.comb(smaller, needed) * (larger / 2**bits) ** needed
        assert seen <= exact_bound + 5 * math.sqrt(exact_bound / n)
        stated = false_alarm(smaller, larger) / 2 * (2.0 ** (64 - bits)) ** needed
        assert stated == pytest.approx(exact_bound)


# ---- what is stored


@pytest.fixture
def database(tmp_path: Path) -> Database:
    create_secret(tmp_path, secret=bytes(32))
    return Database(tmp_path, create=True)


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "people").glob("*")}


def test_sketches_are_stored_once_for_each_set_and_only_for_the_site(tmp_path: Path, database: Database) -> None:
    sketches = Sketches(database, tmp_path)
    table = numbers(tmp_path, range(1000))
    sketches.take({"one": table, "other": table}, for_study=True)
    assert len(files(tmp_path)) == 1  # the last reading, everybody so far, exact and loose keys, of both
    (path,) = (tmp_path / "people").glob("*")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == 8 * 1000
    assert sketches.of("one") == {"other": 1.0}
    assert sketches.of("other") == {"one": 1.0}
    assert sketches.digest(["one"]) == bytes.fromhex(path.name)
    sketches.take({"one": numbers(tmp_path, range(5000, 5010))})
    assert sketches.of("other") == {"one": 1.0}  # the last reading shares nobody; everybody so far does
    sketches.take({"two": numbers(tmp_path, range(900, 1100))})
    assert sketches.of("two") == {"one": 0.5, "other": 0.5}
    sketches.take({"two": numbers(tmp_path, range(2000, 2010))})
    assert sketches.of("two") == {"one": 0.0, "other": 0.0}  # of a reading for no study nothing stays
    assert len(files(tmp_path)) == 3


def test_everybody_of_readings_for_studies_is_added_up(tmp_path: Path, database: Database) -> None:
    sketches = Sketches(database, tmp_path)
    for start in (0, 100, 200, 100):
        table = {"one": numbers(tmp_path, range(start, start + 100), "P{}")}
        sketches.take(table)  # as `party check` reads it
        sketches.take(table, for_study=True)
    for part in (range(30), range(130, 160), range(270, 300)):
        sketches.take({"part": numbers(tmp_path, part, "p-{}")})
        assert sketches.of("part") == {"one": 1.0}
    sketches.take({"part": numbers(tmp_path, range(250, 400))})
    assert sketches.of("part") == {"one": pytest.approx(50 / 150)}


def test_a_lost_file_makes_no_share_smaller(tmp_path: Path, database: Database) -> None:
    sketches = Sketches(database, tmp_path)
    sketches.take({"one": numbers(tmp_path, range(100))}, for_study=True)
    sketches.take({"two": numbers(tmp_path, range(50, 150))})
    lost = sketches.digest(["one"]) or b""
    (tmp_path / "people" / lost.hex()).write_bytes(b"changed")
    assert not sketches.is_stored("one")
    assert sketches.is_stored("two")
    sketches.take({"two": numbers(tmp_path, range(60, 160))})
    assert sketches.of("two") == {"one": 0.5}  # it cannot be compared: what was known stays
    sketches.take({"one": numbers(tmp_path, range(100))})
    assert sketches.is_stored("one")
    assert sketches.of("two") == {"one": 0.4}


def test_reading_the_same_table_again_writes_nothing(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sketches = Sketches(database, tmp_path)
    table = numbers(tmp_path, range(100))
    sketches.take({"one": table}, for_study=True)

    def refused(*_: object) -> None:
        raise AssertionError("written again")

    monkeypatch.setattr(durable, "rename", refused)
    sketches.take({"one": table}, for_study=True)
    sketches.take({"one": table})
