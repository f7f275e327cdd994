"""Hybrid public key encryption with an authenticated sender: RFC 9180, mode Auth, in single shots.

The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305. A message can be opened by the holder of the recipient's
private key only, and opens only if the holder of the sender's private key (or of the recipient's, who could write to itself)
sealed it with the same `info` and `aad`. Each message has an ephemeral key of its own, so there are no counters to keep and a
nonce is never used twice.

It does not hide who seals for whom if that is known otherwise, nor how long a message is; whoever gets a recipient's private
key later opens what was sealed for it before (section 9.1: no forward secrecy with respect to the recipient) and can seal
messages *to* that recipient in anybody's name. Section numbers are those of the RFC; its test vector A.2.3 is in the tests.
`cryptography` has the base mode, without a sender, and no other.
"""

from __future__ import annotations

import hmac
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

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
    encapsulated = fresh.public_key().public_bytes_raw()
    shared = fresh.exchange(recipient) + sender.exchange(recipient)
    context = encapsulated + recipient.public_bytes_raw() + sender.public_key().public_bytes_raw()
    key, nonce = _schedule(shared, context, info)
    return encapsulated + ChaCha20Poly1305(key).encrypt(nonce, plaintext, aad)


def open_sealed(
    sealed: bytes, *, recipient: X25519PrivateKey, sender: X25519PublicKey, info: bytes, aad: bytes
) -> bytes | None:
    """Open a message (section 6.1, OpenAuth).

    Returns:
        The plaintext; None when this is not a message of that sender for this recipient with this `info` and `aad`.
    """
    if len(sealed) < OVERHEAD:
        return None
    encapsulated, ciphertext = sealed[:_KEY_BYTES], sealed[_KEY_BYTES:]
    try:
        shared = recipient.exchange(X25519PublicKey.from_public_bytes(encapsulated)) + recipient.exchange(sender)
        context = encapsulated + recipient.public_key().public_bytes_raw() + sender.public_bytes_raw()
        key, nonce = _schedule(shared, context, info)
        return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, aad)
    except (InvalidTag, ValueError):
        return None


def _schedule(shared: bytes, context: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of the one message of a context (sections 4.1 and 5.1)."""
    secret = _expand(_KEM, _extract(_KEM, b"", b"eae_prk", shared), b"shared_secret", context, _KEY_BYTES)
    bound = _MODE_AUTH + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", info)
    schedule = _extract(_SUITE, secret, b"secret", b"")
    return (
        _expand(_SUITE, schedule, b"key", bound, _KEY_BYTES),
        _expand(_SUITE, schedule, b"base_nonce", bound, _NONCE_BYTES),
    )


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return HKDFExpand(algorithm=hashes.SHA256(), length=length, info=labelled).derive(key)
