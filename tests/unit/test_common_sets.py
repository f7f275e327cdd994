"""Common sets of earlier studies: what leaves a handful of people is found, nothing is forgotten, and files say nothing."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from verticil.party.audit.common_sets import CommonSets
from verticil.party.audit.set_sums import count_left
from verticil.party.dataset.local_person_keys import PersonMacs
from verticil.party.storage.database import Database

SECRET = b"s" * 32


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path, create=True) as opened:
        for number in range(70):
            opened.write(
                "INSERT INTO study (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest,"
                " remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent)"
                " VALUES (?, ?, x'', '', 0, 0, x'', x'', 0, 0, 0, '[]', '', '', 0)",
                (digest_of(number), f"study-{number}"),
            )
        yield opened


@pytest.fixture
def sets(database, tmp_path):
    return CommonSets(database, tmp_path)


def digest_of(number: int) -> bytes:
    return bytes([number]) * 32


def keys_of(ids, *, secret: bytes = SECRET):
    return PersonMacs(secret).of(list(ids))[0]


def people(sets, *numbers, text: str = "person-{}"):
    return sets.people(keys_of(text.format(number) for number in itertools.chain(*numbers)))


def similar(sets, number, whom, minimum=100, rule=()):
    found = sets.similar(digest_of(number), whom, minimum=minimum)
    return [" ".join(item.study_ids) for item in found]


def remember(sets, number, whom):
    sets.remember(digest_of(number), whom, ())


def expand(counted: Counter[int]):
    return np.array(sorted(counted.elements()), dtype=np.uint64)


def test_what_is_left_of_a_sum_is_what_python_counts():
    generator = np.random.default_rng(3)
    for n_keys in (40, 9000):
        for _ in range(10):
            some = [set(generator.integers(0, n_keys, generator.integers(0, n_keys)).tolist()) for _ in range(3)]
            one, two, three = (np.array(sorted(found), dtype=np.uint64) for found in some)
            assert count_left([one], [two], enough=10**9) == len(some[0] ^ some[1])
            numbers = {key: (key in some[0]) + (key in some[1]) - (key in some[2]) for key in set().union(*some)}
            assert count_left([one, two], [three], enough=10**9) == sum(map(bool, numbers.values()))


def test_keys_that_several_people_have_count_as_few_as_they_may():
    generator = np.random.default_rng(4)
    some, others = (Counter(generator.integers(0, 50, 40_000).tolist()) for _ in range(2))
    left = sum(abs(some[key] - others[key]) for key in some | others)
    assert count_left([expand(some)], [expand(others)], enough=10**9) == left
    assert count_left([expand(Counter({1: 4})), expand(Counter({1: 3}))], [expand(Counter({1: 2}))], enough=10) == 3


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [(0, 1000, False), (0, 999, True), (0, 901, True), (0, 900, False), (50, 1049, True), (50, 1050, False)],
    ids=["the same", "one fewer", "99 fewer", "100 fewer", "moved by 99", "moved by 100"],
)
def test_sets_that_differ_by_fewer_than_the_minimum_are_named(sets, first, last, found):
    remember(sets, 0, people(sets, range(1000)))
    assert similar(sets, 1, people(sets, range(first, last))) == (["study-0"] if found else [])


def test_one_person_is_not_told_by_three_sets_of_which_no_two_are_near(sets):
    """U, A = U without S, and B = S with one person more: A + B - U is that person's row."""
    everybody, s = range(2000), range(1000, 1300)
    without_s = [number for number in everybody if number not in s]
    parts = {"U": everybody, "A": without_s, "B": [*s, 7]}
    for order in itertools.permutations(parts):
        for number, name in enumerate(order[:2]):
            remember(sets, number, people(sets, parts[name]))
        last = people(sets, parts[order[2]])
        assert similar(sets, 2, last) == ["study-0 study-1"], order
    exact = list(s)
    remember(sets, 0, people(sets, everybody))
    remember(sets, 1, people(sets, without_s))
    assert similar(sets, 2, people(sets, exact)) == []  # nobody is left
    assert similar(sets, 2, people(sets, exact[:-1])) == ["study-0 study-1"]
    assert similar(sets, 2, people(sets, exact[:-100])) == []


def test_another_spelling_is_the_same_person_and_another_letter_is_another_one(sets):
    remember(sets, 0, people(sets, range(400), text="P-{:05}"))
    assert similar(sets, 1, people(sets, range(400), text=" p-{:05} ")) == []
    assert similar(sets, 1, people(sets, range(399), text="p{:05}")) == ["study-0"]
    assert similar(sets, 1, people(sets, range(400), text="p{:05}")) == [
        "study-0"
    ]  # whether they are the same is not known
    one_other = sets.people(keys_of([*(f"P-{number:05}" for number in range(399)), "Q-00399"]))
    assert similar(sets, 1, one_other) == ["study-0"]


def test_a_study_is_not_compared_with_itself_and_order_does_not_matter(sets):
    whom, turned = people(sets, range(500)), people(sets, range(500)[::-1])
    assert np.array_equal(whom.keys, turned.keys)
    assert whom.exact_sum == turned.exact_sum
    remember(sets, 0, whom)
    remember(sets, 0, whom)
    assert similar(sets, 0, people(sets, range(499))) == []


def test_a_set_has_one_place_and_is_never_dropped(sets, tmp_path):
    """64 studies about the same people had pushed the first ones out."""
    first = people(sets, range(300))
    remember(sets, 0, first)
    for number in range(1, 66):
        remember(sets, number, people(sets, range(400)))
    assert sets.places() == 2
    assert similar(sets, 69, people(sets, range(299))) == ["study-0"]
    assert sets.has_room(first, 2)
    assert not sets.has_room(people(sets, range(700)), 2)
    assert sets.has_room(people(sets, range(700)), 3)
    files = sorted(file.stat().st_size for file in (tmp_path / "common").iterdir())
    assert files == [8 * 300, 8 * 400]
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "common").iterdir()} == {0o600}


def test_sets_with_the_same_loose_keys_have_places_of_their_own(sets):
    for number, letter in enumerate("ab"):
        remember(sets, number, people(sets, range(200), text=letter + "{}"))
    assert sets.places() == 2


def test_another_secret_gives_other_keys(sets):
    keys = people(sets, range(200)).keys
    others = sets.people(keys_of((f"person-{number}" for number in range(200)), secret=b"t" * 32)).keys
    assert not set(keys.tolist()) & set(others.tolist())


def test_a_set_whose_file_is_harmed_is_near_what_has_nearly_as_many_people(sets, tmp_path, caplog):
    remember(sets, 0, people(sets, range(1000)))
    (path,) = (tmp_path / "common").iterdir()
    path.write_bytes(path.read_bytes()[:-8])
    assert similar(sets, 1, people(sets, range(5000, 5999))) == ["study-0"]
    assert similar(sets, 1, people(sets, range(5000, 5900))) == []
    assert similar(sets, 1, people(sets, range(1000))) == []  # the database knows that they are the same
    assert "lost or changed" in caplog.text


def test_warnings_name_the_earlier_studies(sets):
    remember(sets, 0, people(sets, range(1000)))
    whom = people(sets, range(990))
    sets.remember(digest_of(1), whom, sets.similar(digest_of(1), whom, minimum=100))
    assert sets.warnings() == {digest_of(1): ("study-0",)}
    remember(sets, 2, people(sets, range(600)))
    whom = people(sets, range(599, 1000))
    sets.remember(digest_of(3), whom, sets.similar(digest_of(3), whom, minimum=5))
    assert sets.warnings()[digest_of(3)] == ("study-0 with study-2",)
