"""Seals between parties: RFC 9180's own numbers, and that nothing opens but what was sealed, by whom, for whom and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.party.protocol.relay.server import CALLS, ReplayProtection, Verdict
from verticil.shared.core.errors import VerticilError
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.membership.installation import make_sealing_key, public_sealing_key
from verticil.shared.federation.transport.sealing import (
    ENVELOPE_LIMIT,
    OVERHEAD,
    Seals,
    load_sealing_key,
    open_sealed,
    seal,
)

KEYS = {name: X25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i, name in enumerate(("a", "b", "eve"), 1)}
PINS = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}


def seals(name: str, *, federation: str = "fed", role: Role = Role.PARTY) -> Seals:
    return Seals(Identity(federation=federation, role=role, name=name), KEYS[name], PINS)


def fails(code: str, call: object) -> str:
    with pytest.raises(VerticilError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.code == code
    return str(caught.value)


# --- RFC 9180, appendix A.2.3: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305, mode Auth, sequence 0 ---

INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
EPHEMERAL = X25519PrivateKey.from_private_bytes(
    bytes.fromhex("c94619e1af28971c8fa7957192b7e62a71ca2dcdde0a7cc4a8a9e741d600ab13")
)
RECIPIENT = X25519PrivateKey.from_private_bytes(
    bytes.fromhex("3ca22a6d1cda1bb9480949ec5329d3bf0b080ca4c45879c95eddb55c70b80b82")
)
SENDER = X25519PrivateKey.from_private_bytes(
    bytes.fromhex("2def0cb58ffcf83d1062dd085c8aceca7f4c0c3fd05912d847b61f3e54121f05")
)
PLAIN = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")
AAD = bytes.fromhex("436f756e742d30")
ENC = bytes.fromhex("f7674cc8cd7baa5872d1f33dbaffe3314239f6197ddf5ded1746760bfc847e0e")
CT = bytes.fromhex("ab1a13c9d4f01a87ec3440dbd756e2677bd2ecf9df0ce7ed73869b98e00c09be111cb9fdf077347aeb88e61bdf")


def test_feature_13_the_seal_is_the_one_of_rfc_9180() -> None:
    recipient, sender = RECIPIENT.public_key(), SENDER.public_key()
    assert recipient.public_bytes_raw().hex() == "1a478716d63cb2e16786ee93004486dc151e988b34b475043d3e0175bdb01c44"
    assert sender.public_bytes_raw().hex() == "f0f4f9e96c54aeed3f323de8534fffd7e0577e4ce269896716bcb95643c8712b"
    sealed = seal(PLAIN, recipient=recipient, sender=SENDER, info=INFO, aad=AAD, ephemeral=EPHEMERAL)
    assert sealed == ENC + CT
    assert len(sealed) == len(PLAIN) + OVERHEAD
    assert open_sealed(ENC + CT, recipient=RECIPIENT, sender=sender, info=INFO, aad=AAD) == PLAIN
    for info, aad in ((INFO + b".", AAD), (INFO, AAD + b"."), (AAD, INFO)):
        assert open_sealed(ENC + CT, recipient=RECIPIENT, sender=sender, info=info, aad=aad) is None


def test_feature_13_the_base_mode_without_a_sender_does_not_open() -> None:
    """Anybody could seal so: `cryptography` does it with the public key alone."""
    from cryptography.hazmat.primitives import hpke

    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    sealed = suite.encrypt(PLAIN, RECIPIENT.public_key(), info=INFO)
    assert suite.decrypt(sealed, RECIPIENT, info=INFO) == PLAIN
    assert len(sealed) == len(PLAIN) + OVERHEAD, "the same shape"
    assert open_sealed(sealed, recipient=RECIPIENT, sender=SENDER.public_key(), info=INFO, aad=b"") is None


# --- envelopes ---


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_feature_13_only_the_recipient_opens_and_learns_the_sender(plain: bytes) -> None:
    envelope = seals("a").seal("b", plain)
    assert seals("b").open("a", envelope) == plain
    for who, sender in (("b", "eve"), ("eve", "a"), ("eve", "b"), ("a", "b"), ("b", "b"), ("b", "nobody"), ("b", "")):
        fails("MESSAGE_INVALID", lambda who=who, sender=sender: seals(who).open(sender, envelope))
    fails("MESSAGE_INVALID", lambda: seals("b", federation="other").open("a", envelope))
    assert envelope != seals("a").seal("b", plain), "every envelope has a key of its own"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_feature_13_a_changed_envelope_does_not_open(data: st.DataObject) -> None:
    envelope = bytearray(seals("a").seal("b", b"x" * 40))
    place = data.draw(st.integers(0, len(envelope) - 1))
    envelope[place] ^= 1 << data.draw(st.integers(0, 7))
    # Also the top bit of the ephemeral key, which X25519 ignores (RFC 7748): the key is part of what is derived.
    fails("MESSAGE_INVALID", lambda: seals("b").open("a", bytes(envelope)))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=120))
def test_whatever_arrives_is_refused_in_one_way(junk: bytes) -> None:
    text = fails("MESSAGE_INVALID", lambda: seals("b").open("a", junk))
    assert f"{len(junk)} bytes" in text
    fails("MESSAGE_INVALID", lambda: seals("b").open("a", b"\x01" + junk))


def test_sizes_and_versions_are_checked_first() -> None:
    envelope = seals("a").seal("b", b"x")
    fails("MESSAGE_INVALID", lambda: seals("b").open("a", b"\x02" + envelope[1:]))
    too_long = seals("a").seal("b", b"x" * ENVELOPE_LIMIT)
    fails("MESSAGE_INVALID", lambda: seals("b").open("a", too_long))
    for cut in (0, 1, OVERHEAD, len(envelope) - 1):
        fails("MESSAGE_INVALID", lambda cut=cut: seals("b").open("a", envelope[:cut]))


def test_nothing_is_sealed_for_a_key_that_keeps_no_secret() -> None:
    """A point of small order, and a party without a key."""
    weak = Seals(Identity(federation="fed", role=Role.PARTY, name="a"), KEYS["a"], {**PINS, "b": bytes(32)})
    assert "sealing.b" in fails("CONFIG_INVALID", lambda: weak.seal("b", b"x"))
    assert "sealing.nobody" in fails("CONFIG_INVALID", lambda: weak.seal("nobody", b"x"))
    fails("MESSAGE_INVALID", lambda: weak.open("b", seals("b").seal("a", b"x")))


# --- freshness ---


def test_feature_13_a_request_is_answered_once_and_only_with_the_present_challenge() -> None:
    fresh = ReplayProtection()
    challenge = fresh.challenge("a")
    assert fresh.judge("a", b"1", b"") is Verdict.STALE
    assert fresh.judge("a", b"1", challenge) is Verdict.NEW
    assert fresh.judge("a", b"1", challenge) is Verdict.REPEATED
    assert fresh.judge("b", b"1", challenge) is Verdict.STALE, "each sender has its own"
    assert ReplayProtection().judge("a", b"2", challenge) is Verdict.STALE, "a new process has forgotten it"


def test_calls_to_remember_are_bounded_and_none_is_answered_twice() -> None:
    fresh = ReplayProtection()
    first = fresh.challenge("a")
    calls = [number.to_bytes(4, "big") for number in range(CALLS)]
    assert {fresh.judge("a", call, first) for call in calls} == {Verdict.NEW}
    assert {fresh.judge("a", call, first) for call in calls} == {Verdict.STALE}
    second = fresh.challenge("a")
    assert second != first
    assert fresh.judge("a", calls[0], second) is Verdict.NEW


# --- the key's file ---


def test_a_sealing_key_is_made_shown_and_renewed(tmp_path: Path) -> None:
    path = tmp_path / "clinic.seal"
    found, made = make_sealing_key(path)
    assert (found, made, path.stat().st_mode & 0o777) == (path, True, 0o600)
    first = public_sealing_key(path)
    assert make_sealing_key(path) == (path, False)
    waiting, made = make_sealing_key(path, new=True)
    assert (waiting.name, made, waiting.stat().st_mode & 0o777) == ("clinic.next.seal", True, 0o600)
    second = public_sealing_key(waiting)
    assert make_sealing_key(path) == (waiting, False), "the one to be pinned is shown"
    for pinned in (first, second):  # until all sites have the new line, and from then on
        key = load_sealing_key(path, bytes.fromhex(pinned))
        assert key.public_key().public_bytes_raw().hex() == pinned
    make_sealing_key(path, new=True)
    assert public_sealing_key(path) == second
    assert public_sealing_key(next(tmp_path.glob("clinic.retired-*.seal"))) == first, "nobody overwrites a key"
    text = fails("CONFIG_INVALID", lambda: load_sealing_key(path, bytes.fromhex(first)))
    assert first[:16] in text
    assert "verticil pki seal" in text
    fails("SECRET_MISSING", lambda: load_sealing_key(tmp_path / "absent.seal", bytes(32)))


def test_points_are_what_they_are_said_to_be() -> None:
    """The pins of the tests above, so that a slip there is seen."""
    assert all(X25519PublicKey.from_public_bytes(PINS[name]) == key.public_key() for name, key in KEYS.items())
