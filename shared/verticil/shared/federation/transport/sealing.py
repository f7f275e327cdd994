"""What passes sealed between two nodes: hybrid public key encryption with an authenticated sender, and its keys.

Every party that is reached through the miner, or reaches others so, has a sealing key (X25519) beside its other keys:
``NAME.seal``, made at the site, mode 0600. The public halves stand in federation.toml, ``[sealing]``: the same bytes at every
site, compared when the federation is set up. They are pinned there and do *not* follow from certificates, so that an operator of
both the miner and the certificate authority still cannot put a key of its own between two parties. A party's key
is renewed by making a new one (``verticil pki seal NAME.crt --new``), changing its line in every site's federation.toml and
starting the daemons anew; until all have done so, those who differ refuse each other and the studies wait.

An envelope is a version (1 byte) and a message sealed with HPKE, mode Auth (`seal`). Bound into the seal are that version, the
federation, the sender and the recipient, in this order, so that an envelope opens for no other node, in no other federation, and
not when it is sent back. What it says (which call, which piece, the last or not; `verticil.wire.v1.relay_pb2`) is sealed.

The miner learns who tells whom something, when, and how many bytes. It can delay, drop and repeat envelopes, which costs time
and nothing else: repeated ones are distinguished from new ones by replay protection and by the pieces' sequence.

HPKE is hybrid public key encryption with an authenticated sender: RFC 9180, mode Auth, in single shots. The suite is
DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305. A message can be opened by the holder of the recipient's private key
only, and opens only if the holder of the sender's private key (or of the recipient's, who could write to itself) sealed it with
the same `info` and `aad`. Each message has an ephemeral key of its own, so there are no counters to keep and a nonce is never
used twice.

It does not hide who seals for whom if that is known otherwise, nor how long a message is. Who gets a recipient's private key
later opens what was sealed for it before (section 9.1: no forward secrecy with respect to the recipient) and can seal messages
*to* that recipient in anybody's name. Section numbers are those of the RFC; its test vector A.2.3 is in the tests.
`cryptography` has the base mode, without a sender, and no other.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import key_files, load_private_key

_KEM: Final = b"KEM\x00\x20"
_SUITE: Final = b"HPKE\x00\x20\x00\x01\x00\x03"
_MODE_AUTH: Final = b"\x02"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16

OVERHEAD: Final = _KEY_BYTES + _TAG_BYTES
"""By how many bytes a sealed message is longer than its plaintext."""


def seal(
    plaintext: bytes,
    *,
    recipient: X25519PublicKey,
    sender: X25519PrivateKey,
    info: bytes,
    aad: bytes,
    ephemeral: X25519PrivateKey | None = None,
) -> bytes:
    """Seal a message (section 6.1, SealAuth).

    Args:
        plaintext: the message.
        recipient: who can open it.
        sender: by whom it is authenticated.
        info: what both sides know of it; opens with the same only.
        aad: what stands beside it in clear; opens with the same only.
        ephemeral: for test vectors; a fresh key when absent.

    Returns:
        The encapsulated key, then the ciphertext with its tag.

    Raises:
        ValueError: the recipient's key is a point of small order, with which nothing can be kept secret.
    """
    fresh = X25519PrivateKey.generate() if ephemeral is None else ephemeral
    public_bytes = fresh.public_key().public_bytes_raw()
    shared = fresh.exchange(recipient) + sender.exchange(recipient)
    context = public_bytes + recipient.public_bytes_raw() + sender.public_key().public_bytes_raw()
    key, nonce = _schedule(shared, context, info)
    return public_bytes + ChaCha20Poly1305(key).encrypt(nonce, plaintext, aad)


def open_sealed(
    sealed: bytes, *, recipient: X25519PrivateKey, sender: X25519PublicKey, info: bytes, aad: bytes
) -> bytes | None:
    """Open a message (section 6.1, OpenAuth).

    Returns:
        The plaintext; None when this is not a message of that sender for this recipient with this `info` and `aad`.
    """
    if len(sealed) < OVERHEAD:
        return None
    public_bytes, ciphertext = sealed[:_KEY_BYTES], sealed[_KEY_BYTES:]
    try:
        shared = recipient.exchange(X25519PublicKey.from_public_bytes(public_bytes)) + recipient.exchange(sender)
        context = public_bytes + recipient.public_key().public_bytes_raw() + sender.public_bytes_raw()
        key, nonce = _schedule(shared, context, info)
        return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, aad)
    except (InvalidTag, ValueError):
        return None


def _schedule(shared: bytes, context: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of the one message of a context (sections 4.1 and 5.1)."""
    secret = _expand(_KEM, _extract(_KEM, b"", b"eae_prk", shared), b"shared_secret", context, _KEY_BYTES)
    key_context = _MODE_AUTH + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", info)
    schedule = _extract(_SUITE, secret, b"secret", b"")
    return (
        _expand(_SUITE, schedule, b"key", key_context, _KEY_BYTES),
        _expand(_SUITE, schedule, b"base_nonce", key_context, _NONCE_BYTES),
    )


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    label_bytes = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return HKDFExpand(algorithm=hashes.SHA256(), length=length, info=label_bytes).derive(key)


_VERSION: Final = b"\x01"
_CONTEXT: Final = "verticil/relay/v1"

PIECE_LIMIT: Final = 525_312
"""Most bytes of a reply message in one envelope: 512 KiB of data and what describes them (513 KiB)."""
ENVELOPE_LIMIT: Final = 540_672
"""Most bytes of an envelope (528 KiB)."""


def load_sealing_key(path: Path, public_key: bytes) -> X25519PrivateKey:
    """Load a party's own sealing key, whose public half is pinned: from `path` or, while it is renewed, from beside it.

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
        if isinstance(key, X25519PrivateKey) and key.public_key().public_bytes_raw() == public_key:
            return key
    raise Misuse(
        "CONFIG_INVALID",
        f"{path}: not the key that federation.toml pins for this party in [sealing] ({public_key.hex()[:16]}…)",
        hint="verticil pki seal NAME.crt shows the public half; the same federation.toml belongs at every site",
    )


class Seals:
    """Seals envelopes for peers and opens theirs. Safe in several threads.

    Args:
        identity: this party.
        key: its sealing key.
        pinned: public sealing keys by party, from federation.toml.
    """

    def __init__(self, identity: Identity, key: X25519PrivateKey, key_pins: Mapping[str, bytes]) -> None:
        self._identity = identity
        self._key = key
        self._peers = {
            name: X25519PublicKey.from_public_bytes(raw) for name, raw in key_pins.items() if name != identity.name
        }

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody else whose key is pinned."""
        return tuple(self._peers)

    def seal(self, recipient: str, message: bytes) -> bytes:
        """Seal an envelope for a peer.

        Raises:
            Misuse: CONFIG_INVALID, federation.toml pins no usable key of that party.
        """
        key = self._peers.get(recipient)
        if key is not None:
            info = _info(self._identity, self._identity_of(recipient))
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
        """Open what a peer has sealed for this party.

        Raises:
            PeerFault: MESSAGE_INVALID, it is not that peer's, not for us, or was changed.
        """
        key = self._peers.get(sender)
        plain = None
        if key is not None and len(_VERSION) + OVERHEAD <= len(envelope) <= ENVELOPE_LIMIT and envelope[:1] == _VERSION:
            info = _info(self._identity_of(sender), self._identity)
            plain = open_sealed(envelope[1:], recipient=self._key, sender=key, info=info, aad=_VERSION)
        if plain is None:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"an envelope of {len(envelope)} bytes that is said to be from '{sender[:63]}' is not sealed by it for "
                f"'{self._identity.name}'",
                hint="the miner changed it, or the two sites do not have the same federation.toml",
            )
        return plain

    def _identity_of(self, peer: str) -> Identity:
        return Identity(federation=self._identity.federation, role=Role.PARTY, name=peer)


def _info(sender: Identity, recipient: Identity) -> bytes:
    return "\n".join((_CONTEXT, sender.uri, recipient.uri)).encode("ascii")
