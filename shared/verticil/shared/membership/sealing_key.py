"""A site's sealing key as a file: make it where a site of an earlier version has none, show its public half, renew it.

``NAME.seal`` lies beside the node's other keys, mode 0600. A new one is made as ``NAME.next.seal`` and the one in use stays; the
daemon takes the one that federation.toml pins (`verticil.shared.transport.sealing`). When the next renewal is made, what was the
new key gets the name, and the one before it is kept aside: no key is overwritten.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from verticil.shared.disk import create_file, write_fault
from verticil.shared.errors import PeerFault
from verticil.shared.identity.authority import new_sealing_pem
from verticil.shared.identity.pki import key_files, load_private_key
from verticil.shared.membership.installation import move_in


def make_sealing_key(path: Path, *, new: bool = False) -> tuple[Path, bool]:
    """See that there is a sealing key.

    Args:
        path: ``NAME.seal``; its folder exists.
        new: make another one although there is one.

    Returns:
        The file of the key that belongs into federation.toml now, and whether it was made now.

    Raises:
        Misuse: FILE_MISSING, nothing can be written there.
        DataFault: DISK_FULL; nothing has changed then.
    """
    waiting = key_files(path)[1]
    if not new:
        for place in (waiting, path):
            if place.exists():
                return place, False
    target = path
    if path.exists():
        target = waiting
        if waiting.exists():
            try:
                move_in(waiting)
            except OSError as error:
                raise write_fault(error, waiting) from None
    create_file(target, new_sealing_pem(), mode=0o600, exists_hint="run it again")
    return target, True


def public_sealing_key(path: Path) -> str:
    """The public half, as it stands in federation.toml.

    Raises:
        DataFault: SECRET_MISSING.
        PeerFault: CERTIFICATE_INVALID, it is no sealing key.
    """
    key = load_private_key(path, what="sealing key")
    if not isinstance(key, X25519PrivateKey):
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: not an X25519 key")
    return key.public_key().public_bytes_raw().hex()
