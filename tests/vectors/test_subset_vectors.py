"""Known answers for subset selection and for the codebook digest of a compound.

`subsets.json` is fixed: it only changes with the contract, never with the code. Everything in it is computed here a second time
in plain Python, one record and one block after the other, with `hmac`, `hashlib` and AES, sharing nothing with the product but
the text of the construction; then the product is asked. ``python tests/vectors/test_subset_vectors.py`` prints the file anew.
"""

import hashlib
import hmac
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from verticil.party.dataset.perturb import compound_digest, record_tags, unit_key
from verticil.party.dataset.subsets import select
from verticil.shared.mechanisms.subset import Subset

FILE = Path(__file__).with_name("subsets.json")

SECRET = bytes(range(32))
IDS = ["1", "0017", "17", "Zoë", "東京-7", "a@b.example", "x" * 100, "12ee079d80ff"]
CODES = [0, 1, 8, 3, 300, 2, 8, 7]
CODEBOOKS = [hashlib.sha256(name).digest() for name in (b"first", b"second")]
IMPOSSIBLE = [[2, 1], [0, 3]]
# K odd and even, one and two bytes, sets of one, of most, and of some; weights by hand, the last the smallest above chance.
CHANNELS = [(9, 2, 2**63), (9, 1, 2**64 - 1), (8, 7, 2**64 - 2**60), (301, 5, 5 * 2**64 // 301 + 1)]


def aes(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def hkdf(key, info):
    """RFC 5869 with SHA-256, no salt, 32 bytes of output (one block)."""
    extracted = hmac.new(bytes(32), key, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def prefixed(data):
    return len(data).to_bytes(4, "big") + data


def one_set(key, block, code, n_states, size, weight):
    inside = int.from_bytes(aes(key, block)[:8], "little") < weight
    others = [x for x in range(n_states) if x != code]
    needed = size - inside
    n_pairs = (n_states + 1) // 2
    for number in range(10):
        drawn = {}
        for x in others:
            counter = number * n_pairs + x // 2
            half = aes(hkdf(key, b"verticil/subset/v1" + counter.to_bytes(4, "big")), block)[8 * (x % 2) :][:8]
            drawn[x] = int.from_bytes(half, "little")
        ranked = sorted(others, key=drawn.__getitem__)
        if 0 < needed < len(ranked) and drawn[ranked[needed - 1]] == drawn[ranked[needed]]:
            continue
        return sorted(ranked[:needed] + [code] * inside)
    raise AssertionError("no record draws ten times")


def one_at_a_time():
    codebook = hashlib.sha256(b"".join(CODEBOOKS) + b"[[0,3],[2,1]]").digest()
    channels = []
    for n_states, size, weight in CHANNELS:
        matrix = hashlib.sha256(f"subset {n_states} {size} {weight}".encode()).digest()
        info = b"verticil/perturb/v1" + prefixed(b"people") + (2).to_bytes(4, "big") + prefixed(b"a") + prefixed(b"b")
        key = hkdf(hkdf(SECRET, info), codebook + matrix)
        records = []
        for record_id, code in zip(IDS, CODES, strict=True):
            true = code % n_states
            block = hmac.new(SECRET, record_id.encode(), hashlib.sha256).digest()[:14] + true.to_bytes(2, "little")
            records.append(
                {"id": record_id, "code": true, "released": one_set(key, block, true, n_states, size, weight)}
            )
        channels.append(
            {"n_states": n_states, "size": size, "weight": str(weight), "unit_key": key.hex(), "records": records}
        )
    return {
        "site_secret": SECRET.hex(),
        "codebook_digest": codebook.hex(),
        "codebook_digest_whole": hashlib.sha256(b"".join(CODEBOOKS)).hexdigest(),
        "channels": channels,
    }


@pytest.fixture(scope="module")
def vectors():
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_file_is_what_one_record_at_a_time_gives(vectors):
    assert vectors == one_at_a_time()


def test_the_vectors_have_both_kinds_of_sets(vectors):
    kinds = {record["code"] in record["released"] for c in vectors["channels"] for record in c["records"]}
    assert kinds == {True, False}


def test_codebook_digest_of_a_compound(vectors):
    assert compound_digest(CODEBOOKS, IMPOSSIBLE).hex() == vectors["codebook_digest"]
    assert compound_digest(CODEBOOKS, IMPOSSIBLE[::-1]).hex() == vectors["codebook_digest"]
    assert compound_digest(CODEBOOKS, ()).hex() == vectors["codebook_digest_whole"]


@pytest.mark.parametrize("position", range(len(CHANNELS)))
def test_released_sets(vectors, position):
    channel = vectors["channels"][position]
    subset = Subset(n_states=channel["n_states"], size=channel["size"], weight=int(channel["weight"]))
    key = unit_key(
        SECRET,
        dataset="people",
        source_columns=["a", "b"],
        codebook_digest=bytes.fromhex(vectors["codebook_digest"]),
        transition_digest=subset.digest(),
    )
    assert key.hex() == channel["unit_key"]
    codes = np.array([record["code"] for record in channel["records"]], dtype=np.uint16)
    released = select(key, record_tags(SECRET, IDS), codes, subset)
    assert released.dtype == (np.uint8 if subset.n_states <= 256 else np.uint16)
    assert released.reshape(len(IDS), -1).tolist() == [record["released"] for record in channel["records"]]


if __name__ == "__main__":
    print(json.dumps(one_at_a_time(), indent=1, ensure_ascii=False))
