"""A file that only a passphrase opens: scrypt (RFC 7914) for the key, ChaCha20-Poly1305 (RFC 8439) for the bytes.

Promises
- One who has the file and not the passphrase learns its size and what the head says in clear: the party's name and when it was
  made.
- Any change is found, and nothing that was changed is ever handed out: the head, each frame of a mebibyte, their order and the
  end are authenticated (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015: the nonce is the frame's
  number and whether it is the last; the key is new for each file, because its salt is).
- Opening costs 128 MiB and a fraction of a second for each guess. That is no help to a short passphrase: at least 12 letters.

Memory is bounded by the frame, whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Final, cast

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from verticil.party.storage.database import SCHEMA
from verticil.shared.core.errors import GateFailed, Misuse

LEAST_LETTERS: Final = 12
"""The shortest passphrase."""
_MAGIC: Final = b"verticil backup 1\n"
_COST: Final = 2**17
_BLOCK_SIZE: Final = 8
_MOST_COST: Final = 2**20
"""A file says what opening it costs; more than this, a gibibyte, is not spent on one that may be anybody's."""
_FRAME: Final = 1 << 20
_TAG: Final = 16
_LARGEST_HEAD: Final = 4096
_CHECK: Final = b"\xff" * 12
"""Nonce of no frame: the empty text under it says whether a key is the right one, as the first frame would."""
ANOTHER_COPY: Final = "it is damaged, whatever the passphrase is: take another copy of the backup"


def make_version_fault(name: str) -> GateFailed:
    """Return the refusal of a backup that an older version made."""
    return GateFailed(
        "BACKUP_UNSUPPORTED",
        f"{name}: a backup of before version 1.0.0 of verticil, which this version does not read",
        hint=f"{SCHEMA.anew}, and the version that made the backup still restores it",
    )


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _sum(head: Mapping[str, object]) -> str:
    """Return a checksum of everything else in the head: it tells damage from another passphrase, and proves nothing."""
    rest = {name: value for name, value in head.items() if name != "sum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:16]


def _check(head: Mapping[str, object], cipher: ChaCha20Poly1305, name: str) -> None:
    """Check that the head is whole, and the passphrase the right one.

    Raises:
        GateFailed: BACKUP_INVALID, the head was changed, or it is another passphrase; BACKUP_UNSUPPORTED, it is of before 1.0.0.
    """
    if "sum" not in head:
        raise make_version_fault(name)
    if head["sum"] != _sum(head):
        raise GateFailed("BACKUP_INVALID", f"{name}: was changed in its head", hint=ANOTHER_COPY)
    if head.get("check") != cipher.encrypt(_CHECK, b"", None).hex():
        raise GateFailed(
            "BACKUP_INVALID", f"{name}: does not open with this passphrase", hint="the file itself looks whole"
        )


def _cipher(passphrase: str, head: Mapping[str, object]) -> ChaCha20Poly1305:
    n, r, p = (cast("int", head[name]) for name in ("n", "r", "p"))
    key = Scrypt(salt=bytes.fromhex(cast("str", head["salt"])), length=32, n=n, r=r, p=p).derive(passphrase.encode())
    return ChaCha20Poly1305(key)


def _split_frames(data: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Frames of `data`, each with whether it is the last; there is always a last one, and it may be empty."""
    buffer = bytearray()
    for piece in data:
        buffer += piece
        while len(buffer) > _FRAME:
            yield bytes(buffer[:_FRAME]), False
            del buffer[:_FRAME]
    yield bytes(buffer), True


def seal(
    data: Iterable[bytes], passphrase: str, head_fields: Mapping[str, str], *, cost: int = _COST
) -> Iterator[bytes]:
    """Encrypt.

    Args:
        data: in pieces of any size.
        passphrase: that opens it.
        head_fields: stands in the head, in clear.
        cost: scrypt's N, a power of two; a guess takes 1 KiB of memory for each unit.

    Yields:
        The file's bytes.

    Raises:
        Misuse: USAGE, the passphrase is too short.
    """
    if len(passphrase) < LEAST_LETTERS:
        raise Misuse(
            "USAGE",
            f"the passphrase has {len(passphrase)} letters, expected at least {LEAST_LETTERS}",
            hint="choose a few words of your own, and keep them in another place than the backup",
        )
    head: dict[str, str | int] = {
        **head_fields,
        "n": cost,
        "r": _BLOCK_SIZE,
        "p": 1,
        "salt": secrets.token_bytes(16).hex(),
    }
    cipher = _cipher(passphrase, head)
    head["check"] = cipher.encrypt(_CHECK, b"", None).hex()
    head["sum"] = _sum(head)
    text = rfc8785.dumps({**head})
    yield _MAGIC + len(text).to_bytes(2, "big") + text
    for number, (frame, last) in enumerate(_split_frames(data)):
        yield cipher.encrypt(_nonce(number, last=last), frame, text)


def read_head(file: IO[bytes], name: str) -> tuple[Mapping[str, object], bytes]:
    """Return the fields of the head, not yet authenticated, and its bytes.

    Raises:
        Misuse: FILE_MISSING, it is no such file.
        GateFailed: BACKUP_INVALID, the head was changed.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise Misuse("FILE_MISSING", f"{name}: is not a backup of a party", hint="made by: verticil party backup")
    fault = GateFailed("BACKUP_INVALID", f"{name}: was changed in its head", hint=ANOTHER_COPY)
    text = file.read(int.from_bytes(file.read(2), "big"))
    try:
        head = cast("object", json.loads(text)) if len(text) <= _LARGEST_HEAD else None
    except (ValueError, RecursionError):
        raise fault from None
    if not isinstance(head, dict):
        raise fault
    fields = cast("dict[str, object]", head)
    numbers = [fields.get(key) for key in ("n", "r", "p")]
    salt = fields.get("salt")
    if not all(isinstance(number, int) and 1 <= number <= _MOST_COST for number in numbers) or not isinstance(
        salt, str
    ):
        raise fault
    n, r, p = cast("list[int]", numbers)
    if (
        n < 2
        or n & (n - 1)
        or n * r > _MOST_COST * 8
        or p > 16
        or len(salt) != 32
        or set(salt) - set("0123456789abcdef")
    ):
        raise fault
    return fields, text


def unseal(file: IO[bytes], passphrase: str, name: str) -> Iterator[bytes]:
    """Decrypt.

    Args:
        file: what `seal` made, from its beginning.
        passphrase: that it was made with.
        name: for messages.

    Yields:
        Pieces of the data, each checked before it is handed out.

    Raises:
        Misuse: FILE_MISSING, it is no such file.
        GateFailed: BACKUP_INVALID, another passphrase, or (which the message tells apart) the file was changed or cut off; what
            was handed out before is true but not the whole. BACKUP_UNSUPPORTED, it is of before 1.0.0.
    """
    head, text = read_head(file, name)
    cipher = _cipher(passphrase, head)
    _check(head, cipher, name)
    number = 0
    frame = file.read(_FRAME + _TAG)
    while True:
        following = file.read(_FRAME + _TAG) if len(frame) == _FRAME + _TAG else b""
        last = not following
        try:
            plain = cipher.decrypt(_nonce(number, last=last), frame, text)
        except InvalidTag:
            raise GateFailed(
                "BACKUP_INVALID", f"{name}: was changed or cut off in frame {number}", hint=ANOTHER_COPY
            ) from None
        yield plain
        if last:
            return
        frame, number = following, number + 1
