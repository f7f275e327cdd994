"""Who sent a bundle, and whether it is for this side: what a connection's handshake checks, for a file.

The maker is whoever the certificate that signed the statement names: issued by this federation's authority for signing, valid
now, not on the deny-list, of the role that makes bundles in that direction. Nothing of the content is looked at before.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from verticil.shared.airgap.bundle import look
from verticil.shared.airgap.statement import Direction, Reference, Statement, digest_of
from verticil.shared.errors import GateFailed
from verticil.shared.identity.identity import Identity, Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.transport.authorization import Revocations, check_revoked
from verticil.shared.transport.version import agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A bundle whose statement holds.

    Attributes:
        statement: what it says.
        sha256: names it.
        maker: who signed it.
        certificate: that it was signed with.
    """

    statement: Statement
    sha256: bytes
    maker: Identity
    certificate: x509.Certificate

    @property
    def reference(self) -> Reference:
        """Number and SHA-256."""
        return Reference(number=self.statement.number, sha256=self.sha256)


def receive(
    path: Path,
    *,
    federation: str,
    direction: Direction,
    party: str | None,
    authority: bytes,
    revocations: Revocations,
    at: dt.datetime,
) -> Arrival:
    """Verify the statement of a bundle.

    Args:
        path: the file.
        federation: this side's.
        direction: in which bundles for this side travel.
        party: this party's name; None at the miner, which takes those of any.
        authority: certificate of the federation's authority.
        revocations: the deny-list.
        at: now.

    Raises:
        Misuse: FILE_MISSING.
        GateFailed: BUNDLE_INVALID, no bundle, or one for somebody else.
        PeerFault: CERTIFICATE_INVALID, CERTIFICATE_REVOKED, IDENTITY_REFUSED, MESSAGE_INVALID (the signature is not one),
            VERSION_UNSUPPORTED.
    """
    statement, signed = look(path)
    for what, got, expected, hint in (
        ("federation", statement.federation, federation, "name a bundle of this federation"),
        ("direction", statement.direction, direction, "what this side exported is imported at the other"),
        ("party", statement.party, statement.party if party is None else party, "it belongs at that party's site"),
    ):
        if got != expected:
            shown = "".join(c if c.isprintable() else " " for c in got)
            raise GateFailed("BUNDLE_INVALID", f"{path.name}: {what} is '{shown}', expected '{expected}'", hint=hint)
    to_miner = direction == "to-miner"
    maker = verify_signed(
        signed,
        authority,
        role=Role.PARTY if to_miner else Role.MINER,
        name=statement.party if to_miner else None,
        at=at,
    )
    certificate = x509.load_der_x509_certificate(signed.certificate)
    check_revoked(certificate.serial_number, maker, revocations)
    agree(statement.protocol, here="this side", there="the side that made the bundle")
    return Arrival(statement=statement, sha256=digest_of(signed.body), maker=maker, certificate=certificate)
