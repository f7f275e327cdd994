"""Pseudonyms, the bitmap, normalisation and the key's file. Values of pseudonyms: tests/vectors."""

import hashlib
import os

import pytest

from support.linking import pseudonyms
from verticil.party.dataset.keyfile import check_key, check_value, read_key, write_key
from verticil.party.dataset.pseudonyms import (
    check_common_size,
    check_own_size,
    common_from_bitmap,
    linkage_context,
    normalise_ids,
)
from verticil.shared.core.errors import DataFault, Misuse, PeerFault, Refusal

KEY = bytes(range(32))
CONTEXT = linkage_context(bytes(32))
IDS = [f"person-{i}" for i in range(21)]


def bitmap_of(members, n):
    """Bit i of byte j is record 8j + i."""
    data = bytearray((n + 7) // 8)
    for member in members:
        data[member // 8] |= 1 << member % 8
    return bytes(data)


def test_order_is_ascending_and_leads_back_to_the_rows():
    values, order = pseudonyms(KEY, CONTEXT, IDS)
    rows = [row.tobytes() for row in values]
    assert rows == sorted(rows)
    assert sorted(order.tolist()) == list(range(len(IDS)))
    one_by_one = [pseudonyms(KEY, CONTEXT, [record_id])[0].tobytes() for record_id in IDS]
    assert [one_by_one[row] for row in order] == rows


def test_the_order_of_the_table_does_not_show():
    assert (pseudonyms(KEY, CONTEXT, IDS)[0] == pseudonyms(KEY, CONTEXT, IDS[::-1])[0]).all()


@pytest.mark.parametrize(("key", "context"), [(bytes(32), CONTEXT), (KEY, linkage_context(bytes([1]) * 32))])
def test_another_key_or_study_gives_unrelated_pseudonyms(key, context):
    mine = {row.tobytes() for row in pseudonyms(KEY, CONTEXT, IDS)[0]}
    assert mine.isdisjoint(row.tobytes() for row in pseudonyms(key, context, IDS)[0])


def test_no_ids():
    values, order = pseudonyms(KEY, CONTEXT, [])
    assert values.shape == (0, 16)
    assert order.shape == (0,)
    rows = common_from_bitmap(values, b"", expected_sha256=hashlib.sha256(b"").digest(), n_common=0, minimum=0)
    assert rows.size == 0


def test_misuse():
    with pytest.raises(ValueError, match="31 bytes"):
        pseudonyms(KEY[1:], CONTEXT, IDS)
    with pytest.raises(ValueError, match="31 bytes"):
        linkage_context(bytes(31))
    with pytest.raises(ValueError, match="unknown normalisation"):
        normalise_ids(IDS, ["soundex"])


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 21])
def test_two_parties_find_the_same_people_in_the_same_order(n):
    """The miner is three lines of Python on sets; both parties recompute its digest."""
    mine = IDS[:n]
    theirs = [*IDS[2::3], "someone else", "and another"]
    tables = {"mine": mine, "theirs": theirs}
    lists = {name: pseudonyms(KEY, CONTEXT, ids) for name, ids in tables.items()}
    common = sorted(set.intersection(*({row.tobytes() for row in values} for values, _ in lists.values())))
    digest = hashlib.sha256(b"".join(common)).digest()
    found = {}
    for name, (values, order) in lists.items():
        members = [i for i, row in enumerate(values) if row.tobytes() in common]
        rows = common_from_bitmap(
            values, bitmap_of(members, len(values)), expected_sha256=digest, n_common=len(common), minimum=0
        )
        found[name] = [tables[name][order[row]] for row in rows]
    assert found["mine"] == found["theirs"]
    assert set(found["mine"]) == set(mine) & set(theirs)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bitmap": b"\0\0"}, "bitmap of 2 bytes for 21 records, expected 3"),
        ({"bitmap": bitmap_of([0, 5, 20, 23], 24)}, "behind the end"),
        ({"n_common": 4}, "marks 3 records, the miner reports 4"),
        ({"bitmap": bitmap_of([0, 5, 19], 21)}, "not the common list"),
        ({"expected_sha256": bytes(32)}, "not the common list"),
    ],
)
def test_an_answer_that_contradicts_the_own_list_is_refused(change, problem):
    values, _ = pseudonyms(KEY, CONTEXT, IDS)
    members = [0, 5, 20]
    answer = {
        "bitmap": bitmap_of(members, 21),
        "expected_sha256": hashlib.sha256(values[members].tobytes()).digest(),
        "n_common": 3,
        "minimum": 3,
    }
    assert common_from_bitmap(values, **answer).tolist() == members
    with pytest.raises(PeerFault, match=problem) as caught:
        common_from_bitmap(values, **{**answer, **change})
    assert caught.value.code == "ALIGNMENT_MISMATCH"


def test_too_few_common_people():
    values, _ = pseudonyms(KEY, CONTEXT, IDS)
    digest = hashlib.sha256(values[[0, 5]].tobytes()).digest()
    with pytest.raises(Refusal, match="2 records in common, expected at least 3") as caught:
        common_from_bitmap(values, bitmap_of([0, 5], 21), expected_sha256=digest, n_common=2, minimum=3)
    assert (caught.value.code, caught.value.exit_code) == ("LINKAGE_TOO_SMALL", 3)


@pytest.mark.parametrize(
    ("steps", "before", "after"),
    [
        ([], " A1", " A1"),
        (["trim"], " \tA1\u00a0", "A1"),
        (["nfkc"], "\uff21\u2460", "A1"),
        (["casefold"], "STRASSE Straße", "strasse strasse"),
        (["digits-only"], "00-12 x\u0663", "0012"),  # an Arabic-Indic digit is no ASCII digit
        (["nfkc", "digits-only"], "\uff10\uff11", "01"),
        (["digits-only", "nfkc"], "\uff10\uff11", ""),  # in this order
    ],
)
def test_normalisation(steps, before, after):
    assert normalise_ids([before], steps) == [after]


def test_key_file(tmp_path):
    path = tmp_path / "linkage.key"
    write_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_key(path)) == 32
    assert path.read_bytes() == read_key(path).hex().encode() + b"\n"
    assert check_key(path) == check_value(read_key(path))
    assert read_key(path).hex()[:16] != check_key(path)
    with pytest.raises(Misuse, match="exists") as caught:
        write_key(path)
    assert caught.value.code == "FILE_EXISTS"


def test_key_file_faults(tmp_path):
    with pytest.raises(DataFault) as missing:
        read_key(tmp_path / "absent")
    assert missing.value.code == "SECRET_MISSING"
    with pytest.raises(Misuse) as folder:
        write_key(tmp_path / "absent" / "key")
    assert folder.value.code == "FILE_MISSING"
    path = tmp_path / "key"
    for text in (b"", b"ab" * 31, b"ab" * 33, b"zz" * 32, bytes(32), b"ab" * 32 + b"\n\n"):
        path.write_bytes(text)
        path.chmod(0o600)
        with pytest.raises(Misuse, match="64 hexadecimal") as caught:
            read_key(path)
        assert text.decode("latin-1").strip() not in str(caught.value) or not text.strip()
    path.write_bytes(b"AB" * 32)
    path.chmod(0o640)
    with pytest.raises(Misuse, match="mode 0640, expected 0600"):
        read_key(path)
    os.chmod(path, 0o400)
    assert read_key(path) == b"\xab" * 32


def test_arrays_of_foreign_bytes_are_not_needed_to_be_bytes():
    values, _ = pseudonyms(KEY, CONTEXT, IDS)
    rows = common_from_bitmap(
        values,
        memoryview(bytearray(bitmap_of(range(21), 21))),
        expected_sha256=hashlib.sha256(values.tobytes()).digest(),
        n_common=21,
        minimum=1,
    )
    assert rows.tolist() == list(range(21))


def test_as_many_as_are_asked_for_are_enough():
    check_own_size(100, 100)
    check_common_size(100, 100)
    for check in (check_own_size, check_common_size):
        with pytest.raises(Refusal, match="LINKAGE_TOO_SMALL"):
            check(99, 100)
