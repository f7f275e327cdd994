"""The site secret: 32 random bytes, made once at ``party init``, readable by the owner only, never sent.

All sticky noise comes from it (contract.md section 2). A site that loses it draws new noise for every record, which is a new
release and is charged again: back it up. The file holds 64 hexadecimal digits and, in a second line, the format of what is
derived from it, ``format = 2``; without that line it is 1. The format decides how tags of records are made
(`SiteSecret.tag_key`), so a secret keeps the one that it was made with for ever, and it goes where the secret goes: into backups,
and to a state that is made anew around it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.shared.core.errors import DataFault
from verticil.shared.core.permissions import not_permitted
from verticil.shared.storage.disk import create_file

FILE_NAME = "site.secret"
FORMAT: Final = 2
"""Of new secrets."""
_SIZE = 32
_FORMAT_LINES: Final = {"": 1, f"format = {FORMAT}": FORMAT}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSecret:
    """A site secret and the format that it was made with.

    Attributes:
        value: 32 bytes.
        format: 1 or 2.
    """

    value: bytes = field(repr=False)
    format: int = FORMAT

    @property
    def tag_key(self) -> bytes:
        """Key of the tags of records, 32 bytes.

        In format 2 ``HKDF-SHA-256(site secret, info = "verticil/record-tag/v2")``, so that no key serves two purposes; in
        format 1 the secret itself.
        """
        if self.format == 1:
            return self.value
        return HKDF(algorithm=hashes.SHA256(), length=_SIZE, salt=None, info=b"verticil/record-tag/v2").derive(
            self.value
        )


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
        f"{value.hex()}\nformat = {FORMAT}\n".encode("ascii"),
        mode=0o600,
        exists_hint="a site secret is never overwritten: new noise is a new release",
    )
    return path


def read_secret(directory: Path) -> SiteSecret:
    """Read the site secret from `directory`.

    Raises:
        DataFault: SECRET_MISSING when there is none, when others may read it, when it is not 64 hexadecimal digits, or of
            a format that is not known; STATE_READ_ONLY, another user's.
    """
    path = directory / FILE_NAME
    restore = (
        "restore it from your backup; a new secret (party init in a new folder) draws new noise and is charged again"
    )
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text, _, id_text = path.read_text(encoding="ascii").strip().partition("\n")
    except FileNotFoundError:
        raise DataFault("SECRET_MISSING", f"{path}: no site secret", hint=restore) from None
    except (OSError, UnicodeDecodeError) as error:
        denied = not_permitted(error, path, what="site secret") if isinstance(error, OSError) else None
        fault = DataFault("SECRET_MISSING", f"{path}: the site secret cannot be read", hint=restore)
        raise denied or fault from None
    if mode & 0o077:
        raise DataFault(
            "SECRET_MISSING", f"{path}: mode {mode:04o}, expected 0600: others may read it", hint=f"chmod 600 {path}"
        )
    if len(text) != 2 * _SIZE or set(text) - set("0123456789abcdef"):
        raise DataFault("SECRET_MISSING", f"{path}: expected {2 * _SIZE} hexadecimal digits", hint=restore)
    if id_text.strip() not in _FORMAT_LINES:
        raise DataFault(
            "SECRET_MISSING",
            f"{path}: the second line is not `format = {FORMAT}`, the newest that is known here",
            hint="use the version of verticil that made it, or restore it from your backup",
        )
    return SiteSecret(value=bytes.fromhex(text), format=_FORMAT_LINES[id_text.strip()])


def secret_id(secret: bytes) -> bytes:
    """Return a name of the secret for the ledger (16 bytes of an HMAC under it), from which the secret cannot be computed."""
    return hmac.new(secret, b"verticil/secret-id/v1", hashlib.sha256).digest()[:16]
