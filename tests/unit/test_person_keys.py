"""Keys of people that no study chooses: two of each id, and those of a whole table."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.party.dataset.local_person_keys import PersonMacs, TableKeys
from verticil.party.dataset.pseudonyms import NORMALISATIONS
from verticil.shared.storage import sorting

SECRET = b"s" * 32


def keys(*ids: str) -> list[tuple[bytes, bytes]]:
    pairs, _ = PersonMacs(SECRET).of(ids)
    return [(pair[:8].tobytes(), pair[8:].tobytes()) for pair in pairs]


def test_one_id_in_every_spelling_that_linkage_knows_has_the_same_loose_key() -> None:
    """Whatever steps of normalisation are applied to the ids before, in whatever order, the loose key stays."""
    spelling = " P-００7a "
    ((_, expected),) = keys(spelling)
    for n in range(len(NORMALISATIONS) + 1):
        for steps in itertools.permutations(NORMALISATIONS, n):
            text = spelling
            for step in steps:
                text = NORMALISATIONS[step](text)
            if "digits-only" not in steps or "nfkc" in steps[: steps.index("digits-only")]:
                assert keys(text)[0][1] == expected, steps


def test_the_exact_key_tells_letters_apart_and_no_spelling_of_one_letter() -> None:
    a, b, same, plain = keys("A7", "B7", " a７ ", "a7")
    assert keys("A7", "B7") == [a, b]  # all of them ASCII
    assert a[1] == b[1]
    assert a[0] != b[0]
    assert a == same == plain == keys("a7")[0]


def test_an_id_without_digits_has_one_key_twice() -> None:
    anna, beth = keys("anna", "beth")
    assert anna[0] == anna[1] != beth[1]


def test_keys_are_those_of_the_site_secret() -> None:
    other, _ = PersonMacs(b"o" * 32).of(["7"])
    assert other.tobytes() != b"".join(keys("7")[0])


@pytest.mark.parametrize("length", [1, 15, 16, 31, 32, 95, 96, 5000])
def test_a_key_is_the_mac_of_an_id_whatever_stands_beside_it(length: int) -> None:
    """Against the same chain of blocks by CBC, one id at a time; a longer id is known by its SHA-256."""
    derived = HKDF(hashes.SHA256(), 32, None, b"verticil/person-key/v1").derive(SECRET)
    text = ("x" * length).encode() if length < 96 else hashlib.sha256(b"x" * length).hexdigest().encode()
    blocks = bytes([len(text)]) + text
    blocks += bytes(-len(blocks) % 16)
    encryptor = Cipher(algorithms.AES(derived), modes.CBC(bytes(16))).encryptor()
    expected = encryptor.update(blocks)[-16:][:8]
    assert keys("y" * 40, "x" * length, "z")[1] == (expected, expected)


def test_who_has_no_id_is_nobody() -> None:
    _, somebody = PersonMacs(SECRET).of(["7", " ", "", "\udcff", "x"])
    assert somebody.tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("memory_people", [10_000, 100])
def test_the_keys_of_a_table_are_there_once_and_ascend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_people: int
) -> None:
    """Against a set of Python, in memory and outside; repeated ids are anywhere, also across the ends of blocks."""
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 4)
    monkeypatch.setattr(sorting, "BLOCK_ROWS", 16)
    numbers = np.random.default_rng(0).integers(0, 400, 1500)
    ids = [f"{'ab'[number % 2]}{number // 2}" for number in numbers] + ["7"] * 74  # the last batch has digits alone
    table, macs = TableKeys(tmp_path, memory_people=memory_people), PersonMacs(SECRET)
    for start in range(0, len(ids), 37):
        table.take(macs.of(ids[start : start + 37])[0])
    people = table.finish()
    expected, _ = macs.of(sorted(set(ids)))
    for name, place in (("exact", slice(0, 8)), ("loose", slice(8, 16))):
        own = {int.from_bytes(row[place].tobytes(), "big") for row in expected}
        assert getattr(people, name).tolist() == sorted(own)
    assert len(people.loose) < len(people.exact)
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_people_has_no_keys(tmp_path: Path) -> None:
    people = TableKeys(tmp_path).finish()
    assert people.exact.size == people.loose.size == 0
