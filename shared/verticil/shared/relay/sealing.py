"""What passes through the miner from party to party, and how it is kept from it.

Every party that is reached through the miner, or reaches others so, has a sealing key (X25519) beside its other keys:
``NAME.seal``, made at the site, mode 0600. The public halves stand in federation.toml, ``[sealing]``: the same bytes at every
site, compared when the federation is set up. They are pinned there and do *not* follow from certificates, so that whoever runs
the miner and the certificate authority at the same time still cannot put a key of its own between two parties. A party's key
is renewed by making a new one (``verticil pki seal NAME.crt --new``), changing its line in every site's federation.toml and
starting the daemons anew; until all have done so, those who differ refuse each other and the studies wait.

An envelope is a version (1 byte) and a message sealed with HPKE, mode Auth (`hpke`). Bound into the seal are that version, the
federation, the sender and the recipient, in this order, so that an envelope opens for nobody else, in no other federation, and
not when it is sent back. What it says (which call, which piece, the last or not; `verticil.wire.v1.relay_pb2`) is sealed.

The miner learns who tells whom something, when, and how many bytes. It can delay, drop and repeat envelopes, which costs time
and nothing else: repeated ones are told from new ones by `freshness` and by the pieces' sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from verticil.shared.errors import DataFault, Misuse, PeerFault
from verticil.shared.identity.identity import Identity, Role
from verticil.shared.identity.pki import key_files, load_private_key
from verticil.shared.relay.hpke import OVERHEAD, open_sealed, seal

_VERSION: Final = b"\x01"
_CONTEXT: Final = "verticil/relay/v1"

PIECE_LIMIT: Final = 525_312
"""Most bytes of a reply message in one envelope: 512 KiB of data and what describes them (513 KiB)."""
ENVELOPE_LIMIT: Final = 540_672
"""Most bytes of an envelope (528 KiB)."""


def load_sealing_key(path: Path, pinned: bytes) -> X25519PrivateKey:
    """A party's own sealing key: the one whose public half is pinned, from `path` or, while it is renewed, from beside it.

    Raises:
        DataFault: SECRET_MISSING, there is none.
        Misuse: CONFIG_INVALID, it is another one than federation.toml says.
        PeerFault: CERTIFICATE_INVALID, the file does not hold a private key.
    """
    places = [place for place in key_files(path) if place.exists()]
    if not places:
        raise DataFault(
            "SECRET_MISSING", f"{path}: the sealing key is missing", hint="make it: verticil pki seal NAME.crt"
        )
    for place in places:
        key = load_private_key(place, what="sealing key")
        if isinstance(key, X25519PrivateKey) and key.public_key().public_bytes_raw() == pinned:
            return key
    raise Misuse(
        "CONFIG_INVALID",
        f"{path}: not the key that federation.toml pins for this party in [sealing] ({pinned.hex()[:16]}…)",
        hint="verticil pki seal NAME.crt shows the public half; the same federation.toml belongs at every site",
    )


class Seals:
    """Seals envelopes for peers and opens theirs. Safe in several threads.

    Args:
        identity: this party.
        key: its sealing key.
        pinned: public sealing keys by party, from federation.toml.
    """

    def __init__(self, identity: Identity, key: X25519PrivateKey, pinned: Mapping[str, bytes]) -> None:
        self._identity = identity
        self._key = key
        self._peers = {
            name: X25519PublicKey.from_public_bytes(raw) for name, raw in pinned.items() if name != identity.name
        }

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody else whose key is pinned."""
        return tuple(self._peers)

    def seal(self, recipient: str, message: bytes) -> bytes:
        """An envelope for a peer.

        Raises:
            Misuse: CONFIG_INVALID, federation.toml pins no usable key of that party.
        """
        key = self._peers.get(recipient)
        if key is not None:
            info = _info(self._identity, self._named(recipient))
            try:
                return _VERSION + seal(message, recipient=key, sender=self._key, info=info, aad=_VERSION)
            except ValueError:
                pass  # a point of small order
        raise Misuse(
            "CONFIG_INVALID",
            f"federation.toml: sealing.{recipient}: no sealing key of that party, and it is reached through the miner",
            hint="its operator reads it out: verticil pki seal NAME.crt",
        )

    def open(self, sender: str, envelope: bytes) -> bytes:
        """What a peer has sealed for this party.

        Raises:
            PeerFault: MESSAGE_INVALID, it is not that peer's, not for us, or was changed.
        """
        key = self._peers.get(sender)
        plain = None
        if key is not None and len(_VERSION) + OVERHEAD <= len(envelope) <= ENVELOPE_LIMIT and envelope[:1] == _VERSION:
            info = _info(self._named(sender), self._identity)
            plain = open_sealed(envelope[1:], recipient=self._key, sender=key, info=info, aad=_VERSION)
        if plain is None:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"an envelope of {len(envelope)} bytes that is said to be from '{sender[:63]}' is not sealed by it for "
                f"'{self._identity.name}'",
                hint="the miner changed it, or the two sites do not have the same federation.toml",
            )
        return plain

    def _named(self, peer: str) -> Identity:
        return Identity(federation=self._identity.federation, role=Role.PARTY, name=peer)


def _info(sender: Identity, recipient: Identity) -> bytes:
    return "\n".join((_CONTEXT, sender.uri, recipient.uri)).encode("ascii")
