"""A backup that does not open: whether the passphrase is another one or the file is damaged is told apart."""

from __future__ import annotations

import io
import json

import pytest
import rfc8785

from verticil.party.operator import sealed_file as sealing
from verticil.shared.core.errors import GateFailed

WORDS = "twelve letters and more"
DATA = [bytes([n]) * 700_000 for n in range(4)]


def opened(data: bytes, words: str = WORDS) -> bytes:
    return b"".join(sealing.unseal(io.BytesIO(data), words, "site.backup"))


@pytest.fixture(scope="module")
def sealed() -> bytes:
    return b"".join(sealing.seal(DATA, WORDS, {"party": "north"}, cost=2**4))


def test_damage_is_not_called_a_wrong_passphrase(sealed: bytes) -> None:
    assert opened(sealed) == b"".join(DATA)
    with pytest.raises(GateFailed, match="does not open with this passphrase") as other:
        opened(sealed, WORDS + "!")
    assert other.value.hint == "the file itself looks whole"
    end_of_head = sealed.index(b"}") + 1
    damaged = {
        "in its head": _flipped(sealed, sealed.index(b'"salt":"') + 9),
        "in frame 0": _flipped(sealed, end_of_head + 5),
        "in frame 1": _flipped(sealed, end_of_head + 2**20 + 100),
        "cut off in frame 0": sealed[: end_of_head + 100],
        "cut off in frame 2": sealed[:-1],
    }
    for where, data in damaged.items():
        with pytest.raises(GateFailed, match=where) as damage:
            opened(data)
        assert "passphrase is" in damage.value.hint
        assert "does not open" not in damage.value.message


def _flipped(data: bytes, place: int) -> bytes:
    """One digit of a hexadecimal text, or one bit."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_backup_of_an_early_program_is_refused_by_name() -> None:
    """The first programs wrote no sum into the head."""
    head = {"party": "north", "n": 2**4, "r": 8, "p": 1, "salt": "ab" * 16}
    text = rfc8785.dumps(head)
    frames = list(sealing._split_frames(DATA))
    cipher = sealing._cipher(WORDS, json.loads(text))
    body = [cipher.encrypt(sealing._nonce(n, last=last), frame, text) for n, (frame, last) in enumerate(frames)]
    old = b"verticil backup 1\n" + len(text).to_bytes(2, "big") + text + b"".join(body)
    with pytest.raises(GateFailed, match=r"a backup of before version 1\.0\.0") as caught:
        opened(old)
    assert (caught.value.code, caught.value.exit_code) == ("BACKUP_UNSUPPORTED", 6)
    assert "begin anew" in caught.value.hint


@pytest.mark.parametrize(
    "altered", [b'{"a":', b'{"a":tru}', b"\xff", b"{'a':1}", b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 9999]
)
def test_no_words_of_a_parser_leave_an_altered_document(altered: bytes) -> None:
    from verticil.shared.documents.json_document import parse

    with pytest.raises(GateFailed) as refused:
        parse(altered, source="statement")
    said = refused.value.message
    for theirs in ("Expecting", "codec", "delimiter", "recursion", "property", "(char"):
        assert theirs not in said
