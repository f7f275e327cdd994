"""The site secret: 32 random bytes, made once at ``party init``, readable by the owner only, never sent.

All sticky noise comes from it (contract.md section 2). Whoever loses it draws new noise for every record, which is a new
release and is charged again: back it up. The file holds 64 hexadecimal digits and a newline.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from pathlib import Path

from verticil.shared.disk import create_file
from verticil.shared.errors import DataFault

__all__ = ["FILE_NAME", "create_secret", "read_secret", "secret_id"]

FILE_NAME = "site.secret"
_SIZE = 32


def create_secret(directory: Path, *, secret: bytes | None = None) -> Path:
    """Write a new site secret into `directory`.

    Args:
        directory: the party's state directory; it exists.
        secret: 32 bytes; None draws them from the operating system (anything else is for the simulation's ``--seed``).

    Returns:
        The file's path.

    Raises:
        Misuse: FILE_EXISTS; a secret is never overwritten.
        DataFault: DISK_FULL; there is no file then.
    """
    value = secrets.token_bytes(_SIZE) if secret is None else secret
    if len(value) != _SIZE:
        raise ValueError(f"the site secret has {len(value)} bytes, expected {_SIZE}")
    path = directory / FILE_NAME
    create_file(
        path,
        f"{value.hex()}\n".encode("ascii"),
        mode=0o600,
        exists_hint="a site secret is never overwritten: new noise is a new release",
    )
    return path


def read_secret(directory: Path) -> bytes:
    """Read the site secret from `directory`.

    Raises:
        DataFault: SECRET_MISSING when there is none, when others may read it, or when it is not 64 hexadecimal digits.
    """
    path = directory / FILE_NAME
    restore = (
        "restore it from your backup; a new secret (party init in a new folder) draws new noise and is charged again"
    )
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise DataFault("SECRET_MISSING", f"{path}: no site secret", hint=restore) from None
    except (OSError, UnicodeDecodeError):
        raise DataFault("SECRET_MISSING", f"{path}: the site secret cannot be read", hint=restore) from None
    if mode & 0o077:
        raise DataFault(
            "SECRET_MISSING", f"{path}: mode {mode:04o}, expected 0600: others may read it", hint=f"chmod 600 {path}"
        )
    if len(text) != 2 * _SIZE or set(text) - set("0123456789abcdef"):
        raise DataFault("SECRET_MISSING", f"{path}: expected {2 * _SIZE} hexadecimal digits", hint=restore)
    return bytes.fromhex(text)


def secret_id(secret: bytes) -> bytes:
    """A name of the secret for the ledger (16 bytes of an HMAC under it), from which it cannot be found."""
    return hmac.new(secret, b"verticil/secret-id/v1", hashlib.sha256).digest()[:16]
