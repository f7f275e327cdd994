"""The linkage key's file: 64 hexadecimal digits and a newline, readable by its owner only.

The parties share the key among themselves; the miner never gets it. `check_value` lets two parties compare their copies over
the telephone: it is a MAC of a constant, and says nothing about a key of 256 random bits.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.permissions import not_permitted
from verticil.shared.storage.disk import create_file

KEY_BYTES: Final = 32
_TEXT: Final = re.compile(rb"[0-9a-fA-F]{64}\n?")


def write_key(path: Path) -> None:
    """Make a new key and write it, mode 0600.

    Raises:
        Misuse: FILE_EXISTS; a key is never overwritten. FILE_MISSING when the folder does not exist.
        DataFault: DISK_FULL; there is no file then.
    """
    text = secrets.token_bytes(KEY_BYTES).hex().encode("ascii") + b"\n"
    create_file(path, text, mode=0o600, exists_hint="a key is never overwritten; choose another path")


def read_key(path: Path) -> bytes:
    """Read a key: 32 bytes.

    Raises:
        DataFault: SECRET_MISSING, there is no such file or it cannot be read; STATE_READ_ONLY, another user's.
        Misuse: CONFIG_INVALID, others than the owner may use the file, or it holds no key.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(2 * KEY_BYTES + 2)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        hint = "one party runs `verticil linkage new-key` and hands the file to the other parties, never to the miner"
        fault = DataFault("SECRET_MISSING", f"linkage key {path}: {reason}", hint=hint)
        raise not_permitted(error, path, what="linkage key") or fault from None
    if mode & 0o077:
        raise Misuse(
            "CONFIG_INVALID",
            f"linkage key {path}: mode {mode:04o}, expected 0600 (the owner only)",
            hint=f"chmod 600 {path}",
        )
    if not _TEXT.fullmatch(text):
        raise Misuse("CONFIG_INVALID", f"linkage key {path}: expected {2 * KEY_BYTES} hexadecimal digits and a newline")
    return bytes.fromhex(text.decode("ascii"))


def check_value(key: bytes) -> str:
    """First 8 bytes of HMAC-SHA-256(key, "verticil/linkage/check-value/v1"), hexadecimal."""
    return hmac.digest(key, b"verticil/linkage/check-value/v1", hashlib.sha256).hex()[:16]


def check_key(path: Path) -> str:
    """Read the key at `path` and return its `check_value`; raises as `read_key`."""
    return check_value(read_key(path))
