"""Known answers for pseudonym, tag, unit key, block, u and released code.

`randomization.json` is fixed: it only changes with the contract, never with the code. Everything in it is computed here a second
time, one record after the other, with `hmac`, `hashlib` and one AES block at a time, sharing nothing with the product but the
text of the contract; then the product is asked. ``python tests/vectors/test_randomization_vectors.py`` prints the file anew.
"""

import hashlib
import hmac
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from support.linking import pseudonyms
from verticil.party.dataset.perturb import (
    codebook_digest,
    fingerprint,
    perturb,
    perturb_numba,
    perturb_numpy,
    record_tags,
    unit_key,
)
from verticil.party.dataset.pseudonyms import linkage_context
from verticil.party.storage.secret import SiteSecret
from verticil.shared.mechanisms.transition import SCALE, Transition
from verticil.shared.numerics.model.schema import Missing, Variable

FILE = Path(__file__).with_name("randomization.json")

SECRET = bytes(range(32))
LINKAGE_KEY = bytes(range(32, 64))
PROPOSAL = hashlib.sha256(b"proposal").digest()
IDS = ["1", "0017", "17", "Zoë", "東京-7", "a@b.example", "x" * 100, "12ee079d80ff"]
CODES = [0, 1, 2, 3, 0, 2, 1, 3]
# Row 1: zeros first and last; row 2: the identity; row 3: one unit of 2^64 below certainty.
WEIGHTS = [
    [SCALE // 2, SCALE // 4, SCALE // 8, SCALE // 8],
    [0, SCALE // 3, SCALE - SCALE // 3, 0],
    [0, 0, SCALE, 0],
    [1, 0, 0, SCALE - 1],
]
VARIABLE = Variable(
    name="called otherwise in the study",
    owner="anyone",
    labels=("[0,1.5)", "[1.5,20)", "elsewhere", "unknown"),
    bins=(0.0, 1.5, 20.0),
    outside="clamp",
    other="elsewhere",
    missing=Missing(category="unknown", spellings=("?", "")),
)
RECODE = {"fünf": "5"}
CODEBOOK_TEXT = (
    '{"bins":[0,1.5,20],"labels":["[0,1.5)","[1.5,20)","elsewhere","unknown"],'
    '"missing":["unknown",["","?"]],"other":"elsewhere","outside":"clamp","recode":{"fünf":"5"}}'
)


def hkdf(key, info):
    """RFC 5869 with SHA-256, no salt, 32 bytes of output (one block)."""
    extracted = hmac.new(bytes(32), key, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def prefixed(data):
    return len(data).to_bytes(4, "big") + data


def one_at_a_time():
    codebook = hashlib.sha256(CODEBOOK_TEXT.encode()).digest()
    rows = ",".join("[" + ",".join(f'"{weight}"' for weight in row) + "]" for row in WEIGHTS)
    matrix = hashlib.sha256(f"[{rows}]".encode()).digest()
    info = b"verticil/perturb/v1" + prefixed(b"people") + (1).to_bytes(4, "big") + prefixed("größe".encode())
    key = hkdf(hkdf(SECRET, info), codebook + matrix)
    fresh = hkdf(hkdf(SECRET, info + prefixed(b"version 2")), codebook + matrix)
    joint_info = b"verticil/perturb/v1" + prefixed(b"people") + (2).to_bytes(4, "big") + prefixed(b"a") + prefixed(b"b")
    records = []
    for record_id, code in zip(IDS, CODES, strict=True):
        tag = hmac.new(SECRET, record_id.encode(), hashlib.sha256).digest()[:14]
        block = tag + code.to_bytes(2, "little")
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        u = int.from_bytes((encryptor.update(block) + encryptor.finalize())[:8], "little")
        released, cumulative = 0, 0
        for weight in WEIGHTS[code][:-1]:
            cumulative += weight
            released += u >= cumulative
        pseudonym = hmac.new(LINKAGE_KEY, b"verticil/linkage/v1" + PROPOSAL + record_id.encode(), hashlib.sha256)
        records.append(
            {
                "id": record_id,
                "pseudonym": pseudonym.digest()[:16].hex(),
                "tag": tag.hex(),
                "code": code,
                "block": block.hex(),
                "u": str(u),
                "released": int(released),
            }
        )
    return {
        "site_secret": SECRET.hex(),
        "linkage_key": LINKAGE_KEY.hex(),
        "proposal_digest": PROPOSAL.hex(),
        "codebook_digest": codebook.hex(),
        "matrix_digest": matrix.hex(),
        "unit_key": key.hex(),
        "unit_key_fresh": fresh.hex(),
        "unit_key_joint": hkdf(hkdf(SECRET, joint_info), codebook + matrix).hex(),
        "fingerprint": hashlib.sha256(b"".join(sorted(bytes.fromhex(r["block"]) for r in records))).hexdigest(),
        "records": records,
        "tags_in_format_2": [
            hmac.new(hkdf(SECRET, b"verticil/record-tag/v2"), record_id.encode(), hashlib.sha256).digest()[:14].hex()
            for record_id in IDS
        ],
    }


@pytest.fixture(scope="module")
def vectors():
    return json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def transition():
    return Transition(weights=tuple(tuple(row) for row in WEIGHTS))


def test_own_hkdf_is_that_of_rfc_5869():
    """Test case 3 (no salt, no info): the first 32 of its 42 bytes are the first output block."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert hkdf(bytes([0x0B]) * 22, b"").hex() == expected


def test_file_is_what_one_record_at_a_time_gives(vectors):
    assert vectors == one_at_a_time()


def test_pseudonyms(vectors):
    values, order = pseudonyms(LINKAGE_KEY, linkage_context(PROPOSAL), IDS)
    expected = [record["pseudonym"] for record in vectors["records"]]
    assert [row.tobytes().hex() for row in values] == sorted(expected)
    assert [expected[row] for row in order] == sorted(expected)


@pytest.mark.parametrize("form", [1, 2])
def test_tags(vectors, form):
    """Of format 1, which states of before it was written down keep for ever, and of format 2."""
    found = record_tags(SiteSecret(value=SECRET, format=form).tag_key, IDS)
    expected = vectors["tags_in_format_2"] if form == 2 else [record["tag"] for record in vectors["records"]]
    assert [row.tobytes().hex() for row in found] == expected


def test_unit_keys(vectors, transition):
    common = {"codebook_digest": codebook_digest(VARIABLE, RECODE), "transition_digest": transition.digest()}
    assert common["codebook_digest"].hex() == vectors["codebook_digest"]
    assert common["transition_digest"].hex() == vectors["matrix_digest"]
    one = unit_key(SECRET, dataset="people", source_columns=["größe"], **common)
    fresh = unit_key(SECRET, dataset="people", source_columns=["größe"], version_tag=b"version 2", **common)
    joint = unit_key(SECRET, dataset="people", source_columns=["a", "b"], **common)
    assert [one.hex(), fresh.hex(), joint.hex()] == [
        vectors[name] for name in ("unit_key", "unit_key_fresh", "unit_key_joint")
    ]


@pytest.mark.parametrize("path", [perturb, perturb_numpy, perturb_numba])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_released_codes(vectors, transition, path, dtype):
    key = bytes.fromhex(vectors["unit_key"])
    released = path(key, record_tags(SECRET, IDS), np.array(CODES, dtype=dtype), transition)
    assert released.dtype == np.uint8
    assert released.tolist() == [record["released"] for record in vectors["records"]]


def test_fingerprint(vectors):
    assert fingerprint(record_tags(SECRET, IDS), np.array(CODES, dtype=np.uint8)).hex() == vectors["fingerprint"]


if __name__ == "__main__":
    print(json.dumps(one_at_a_time(), indent=1, ensure_ascii=False))
