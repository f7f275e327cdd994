"""Sealing and opening the messages of a round: by which keys, bound to what.

model-three.md, section 2: what is public is sealed to the recipient's pinned key, what is secret to its key of the round,
which its hello says; a miner that deals has a key of the round for that, and another one for the shares. Whoever seals is
authenticated by its pinned key. The signature is by the key that its hello says, with a certificate of the federation.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.masked.arithmetic.derivation import PURPOSE
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.arithmetic.streams import encode_fields
from verticil.shared.masked.round import envelope
from verticil.shared.masked.round.documents import Hello
from verticil.shared.masked.round.schedule import PUBLIC, Kind, Message
from verticil.shared.masked.round.secrets import Secrets
from verticil.wire.v1 import common_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who a node is, and by what it knows the others.

    Attributes:
        signing: signs its messages.
        sealing: its own sealing key, whose public half is pinned elsewhere.
        pinned: public sealing keys (32 bytes) of all contributors by name, its own, too.
        verify: checks that a contributor of this name signed, with a certificate that counts now; raises as
            `verticil.shared.federation.identity.signing.verify_signed`.
    """

    signing: SigningKey
    sealing: X25519PrivateKey
    pinned: Mapping[str, bytes]
    verify: Callable[[common_pb2.Signed, str], None]

    @property
    def public_signing_key(self) -> bytes:
        """Of this node, 32 bytes."""
        return signing_key_of(self.signing.certificate)

    def check(self, names: Iterable[str], me: str) -> None:
        """See that a key is pinned for every contributor, and the own one is the own.

        Raises:
            Misuse: CONFIG_INVALID, naming whose is missing.
        """
        check_pinned(self.pinned, names)
        if self.pinned[me] != self.sealing.public_key().public_bytes_raw():
            raise Misuse(
                "CONFIG_INVALID",
                f"the sealing key of '{me}' is not the one that federation.toml pins for it",
                hint="the same federation.toml belongs at every site",
            )


def check_pinned(pins: Container[str], names: Iterable[str]) -> None:
    """See that a sealing key is pinned for every contributor.

    Raises:
        Misuse: CONFIG_INVALID, naming whose is missing.
    """
    for name in names:
        if name not in pins:
            where = "[miner] sealing_key" if name == "miner" else f"[sealing] {name}"
            raise Misuse(
                "CONFIG_INVALID",
                f"federation.toml: {where}: missing, expected the public sealing key of '{name}' for masked tables",
                hint="its operator reads it out: verticil pki seal NAME.crt; the same federation.toml belongs at every site",
            )


class Mail:
    """Seals and opens the messages of one node.

    Args:
        plan: of the round.
        plan_sha256: of its canonical bytes.
        me: this node.
        credentials: its keys.
    """

    def __init__(self, plan: Plan, plan_sha256: bytes, me: str, credentials: Credentials) -> None:
        self._plan, self._digest, self._me, self._credentials = plan, plan_sha256, me, credentials

    def name(self, message: Message) -> str:
        """Name a message for people."""
        about = "" if message.pair < 0 else f" of pair {message.pair}"
        about += "" if message.table < 0 else f" of table {message.table}"
        about += f", rows of '{message.owner}'" if message.owner else ""
        about += f", checked by '{message.verifier}'" if message.table >= 0 and message.verifier else ""
        about += f", run {message.run}" if message.run >= 0 else ""
        return f"masked tables: '{message.kind}'{about} from '{message.sender}' to '{message.recipient}'"

    def _what(self, message: Message, transcript: bytes) -> bytes:
        plan = self._plan
        return encode_fields(
            PURPOSE,
            "message",
            plan.study,
            plan.round,
            self._digest,
            message.index,
            str(message.kind),
            message.sender,
            message.recipient,
            transcript,
        )

    def seal(
        self,
        target: Path,
        message: Message,
        frames: Iterable[bytes],
        *,
        count: int,
        transcript: bytes,
        hellos: Mapping[str, Hello],
    ) -> None:
        """Make the file of a message of this node.

        Args:
            target: the file.
            message: which.
            frames: in order.
            count: how many they are.
            transcript: that it is bound to.
            hellos: of all, where it is secret.

        Raises:
            DataFault: DISK_FULL.
        """
        envelope.write(
            target,
            frames,
            count=count,
            what=self._what(message, transcript),
            recipient=X25519PublicKey.from_public_bytes(self._key_of(message, hellos)),
            sender=self._credentials.sealing,
            sign=self._credentials.signing.sign,
        )

    def _key_of(self, message: Message, hellos: Mapping[str, Hello]) -> bytes:
        if message.kind in PUBLIC:
            return self._credentials.pinned[message.recipient]
        hello = hellos[message.recipient]
        return hello.dealing if self._to_dealing_miner(message) else hello.sealing

    def _to_dealing_miner(self, message: Message) -> bool:
        return message.recipient == self._plan.miner and message.kind is not Kind.SHARE

    def check_signature(
        self, path: Path, message: Message, transcript: bytes, hellos: Mapping[str, Hello], sizes: Sequence[int]
    ) -> common_pb2.Signed:
        """See who signed the file of a message that came, with frames of these sizes at most; they are not opened.

        Raises:
            PeerFault: MESSAGE_INVALID, and as `Credentials.verify`.
        """
        name = self.name(message)
        signed = envelope.read_signed(path, what=self._what(message, transcript), name=name, sizes=sizes)
        self._credentials.verify(signed, message.sender)
        hello = hellos.get(message.sender)
        if hello is not None and signing_key_of(signed.certificate) != hello.signing:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"{name}: signed with another key than its hello says",
                hint="a signing key is renewed between rounds; the round ends",
            )
        return signed

    def open_frames(
        self, path: Path, message: Message, transcript: bytes, secrets: Secrets | None, sizes: Sequence[int]
    ) -> Iterator[bytes]:
        """Read the frames of a message that came, of these sizes at most.

        Raises:
            PeerFault: MESSAGE_INVALID.
        """
        return envelope.read_frames(
            path,
            what=self._what(message, transcript),
            recipient=self._own_key(message, secrets),
            sender=X25519PublicKey.from_public_bytes(self._credentials.pinned[message.sender]),
            name=self.name(message),
            sizes=sizes,
        )

    def _own_key(self, message: Message, secrets: Secrets | None) -> X25519PrivateKey:
        if message.kind in PUBLIC:
            return self._credentials.sealing
        if secrets is None:
            raise ValueError("the keys of the round are deleted")
        return X25519PrivateKey.from_private_bytes(
            secrets.dealing if self._to_dealing_miner(message) else secrets.sealing
        )


def signing_key_of(certificate: bytes) -> bytes:
    """Return the public key (32 bytes) in a signing certificate (DER) that was verified."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise PeerFault("CERTIFICATE_INVALID", "signer's certificate: not one for signing with Ed25519")
    return key.public_bytes_raw()
