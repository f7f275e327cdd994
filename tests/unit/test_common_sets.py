"""Common sets of earlier studies: small differences are found, and the files say nothing without the secret."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.party.audit import common_sets
from verticil.party.audit.common_sets import CommonSets, difference
from verticil.party.dataset.perturb import record_tags
from verticil.party.storage.database import Database

SECRET = b"s" * 32


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path, create=True) as opened:
        for number in range(5):
            opened.write(
                "INSERT INTO study (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest,"
                " remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent)"
                " VALUES (?, ?, x'', '', 0, 0, x'', x'', 0, 0, 0, '[]', '', '', 0)",
                (bytes([number]) * 32, f"study-{number}"),
            )
        yield opened


def people(first: int, last: int, *, secret: bytes = SECRET):
    return record_tags(secret, [f"person-{number}" for number in range(first, last)])


def test_the_difference_is_that_of_python_sets():
    generator = np.random.default_rng(3)
    for _ in range(20):
        one, two = (set(generator.integers(0, 60, generator.integers(0, 50)).tolist()) for _ in range(2))
        arrays = [np.array(sorted(found), dtype=np.uint64) for found in (one, two)]
        assert difference(*arrays) == len(one ^ two)


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [(0, 1000, False), (0, 999, True), (0, 901, True), (0, 900, False), (50, 1049, True), (50, 1050, False)],
    ids=["the same", "one fewer", "99 fewer", "100 fewer", "moved by 99", "moved by 100"],
)
def test_sets_that_differ_by_fewer_than_the_minimum_are_named(database, tmp_path, first, last, found):
    sets = CommonSets(database, tmp_path, site_secret=SECRET)
    sets.remember(b"\0" * 32, sets.keys(people(0, 1000)), ())
    similar = sets.similar(b"\1" * 32, sets.keys(people(first, last)), minimum=100)
    assert [item.study_id for item in similar] == (["study-0"] if found else [])


def test_a_study_is_not_compared_with_itself_and_order_does_not_matter(database, tmp_path):
    sets = CommonSets(database, tmp_path, site_secret=SECRET)
    keys = sets.keys(people(0, 500))
    assert np.array_equal(keys, sets.keys(people(0, 500)[::-1]))
    sets.remember(b"\0" * 32, keys, ())
    sets.remember(b"\0" * 32, keys, ())
    assert sets.similar(b"\0" * 32, sets.keys(people(0, 499)), minimum=100) == ()


def test_what_is_kept_is_8_bytes_a_person_and_only_the_newest_sets(database, tmp_path, monkeypatch):
    monkeypatch.setattr(common_sets, "MAX_SETS", 2)
    sets = CommonSets(database, tmp_path, site_secret=SECRET)
    dropped = [sets.remember(bytes([n]) * 32, sets.keys(people(0, 300 + 100 * n)), ()) for n in range(4)]
    assert dropped == [(), (), (b"\0" * 32,), (b"\1" * 32,)]
    files = sorted((tmp_path / "common").iterdir())
    assert [file.stat().st_size for file in files] == [8 * 500, 8 * 600]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_another_secret_gives_other_keys_and_no_tag_is_in_them(tmp_path, database):
    tags = people(0, 200)
    keys = CommonSets(database, tmp_path, site_secret=SECRET).keys(tags)
    others = CommonSets(database, tmp_path, site_secret=b"t" * 32).keys(tags)
    assert not set(keys.tolist()) & set(others.tolist())
    assert not set(keys.tolist()) & {int.from_bytes(tag[:8].tobytes(), "little") for tag in tags}


def test_a_harmed_file_is_passed_over(database, tmp_path, caplog):
    sets = CommonSets(database, tmp_path, site_secret=SECRET)
    sets.remember(b"\0" * 32, sets.keys(people(0, 1000)), ())
    (path,) = (tmp_path / "common").iterdir()
    path.write_bytes(path.read_bytes()[:-8])
    assert sets.similar(b"\1" * 32, sets.keys(people(0, 999)), minimum=100) == ()
    assert "nothing can be compared with it" in caplog.text


def test_warnings_name_the_earlier_study(database, tmp_path):
    sets = CommonSets(database, tmp_path, site_secret=SECRET)
    sets.remember(b"\0" * 32, sets.keys(people(0, 1000)), ())
    keys = sets.keys(people(0, 990))
    sets.remember(b"\1" * 32, keys, sets.similar(b"\1" * 32, keys, minimum=100))
    assert sets.warnings() == {b"\1" * 32: ("study-0",)}
