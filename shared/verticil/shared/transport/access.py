"""Who may call what: the roles of each method, and the certificates that count no more.

A method that is not in the table may be called by nobody. Only role, federation and revocation are decided here, for gRPC
and for the in-memory transport alike; whether a party belongs to a study or owns a unit is the service's to decide, and so
is that a consumer sees published studies only. A party works on studies; an analyst proposes them; a consumer takes what is
published; an auditor looks at where studies stand and takes nothing; a miner calls nobody.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from verticil.shared.errors import PeerFault
from verticil.shared.identity.identity import Identity, Role
from verticil.shared.transport.coordinator import Control, Coordinator
from verticil.shared.transport.peer import Peer

_ANYONE: Final = frozenset(Role)

ROLES: Final[Mapping[str, frozenset[Role]]] = {
    **{method.path: method.roles for calls in (Coordinator, Control, Peer) for method in calls.methods()},
    "/grpc.health.v1.Health/Check": _ANYONE,
    "/grpc.health.v1.Health/Watch": _ANYONE,
}
"""Full method name -> roles. The health methods serve the nodes' own probes; a probe needs a certificate, too."""


NOT_LET_IN: Final = frozenset(
    {"CERTIFICATE_INVALID", "CERTIFICATE_REVOKED", "IDENTITY_REFUSED", "PARTY_UNKNOWN", "NOT_OWNER"}
)
"""Codes of calls that are refused for who the caller is, or for whom it pretended to speak: an audit log has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """A call that was refused for who its caller is, or claims to be; for an audit.

    Attributes:
        caller: the identity in its certificate; empty when there is none.
        serial: of its certificate, lower-case hex; empty when there is none.
        method: full name of the method.
        code: of the error that it was told.
        message: of that error.
    """

    caller: str
    serial: str
    method: str
    code: str
    message: str


class Revocations(Protocol):
    """The deny-list that a node goes by (`verticil.shared.membership.revocation.DenyList`). Fast, and safe in several threads."""

    def serials(self) -> frozenset[int]:
        """Serial numbers of certificates that count no more."""
        ...

    def since(self) -> Mapping[int, dt.datetime]:
        """The same, with the time since which each counts no more: what had been signed before stays valid."""
        ...

    def number(self) -> int:
        """Number of the list; 0 without one."""
        ...

    def newer_than(self, number: int) -> bytes:
        """The list, DER, for somebody who has the one with that number; empty when theirs is as new."""
        ...

    def offer(self, encoded: bytes) -> bool:
        """Take a list that somebody tells, if it is newer and the authority's; whether it was taken.

        Raises:
            PeerFault: CERTIFICATE_INVALID, the authority did not sign it.
        """
        ...


class _NobodyRevoked:
    def serials(self) -> frozenset[int]:
        return frozenset()

    def since(self) -> Mapping[int, dt.datetime]:
        return {}

    def number(self) -> int:
        return 0

    def newer_than(self, number: int) -> bytes:
        del number
        return b""

    def offer(self, encoded: bytes) -> bool:
        del encoded
        return False


EMPTY_DENY_LIST: Final[Revocations] = _NobodyRevoked()
"""Where there is no authority that could revoke: within one process, and in tests."""


def check_revoked(serial: int, identity: Identity, revocations: Revocations) -> None:
    """Refuse a certificate that the authority has revoked.

    Raises:
        PeerFault: CERTIFICATE_REVOKED.
    """
    if serial in revocations.serials():
        raise PeerFault(
            "CERTIFICATE_REVOKED",
            f"the certificate of {identity} with serial {serial:x} was revoked by the authority",
            hint="its holder makes new keys and has them signed: verticil pki request NAME --role ROLE --new-keys",
        )


def check_access(
    identity: Identity, method: str, *, federation: str, roles: Mapping[str, frozenset[Role]] = ROLES
) -> None:
    """Refuse a caller of another federation or of a role that may not call `method`.

    Raises:
        PeerFault: IDENTITY_REFUSED.
    """
    if identity.federation != federation:
        raise PeerFault(
            "IDENTITY_REFUSED",
            f"certificate of federation '{identity.federation}', expected '{federation}'",
            hint="use the certificate that this federation's authority issued",
        )
    allowed = roles.get(method, frozenset())
    if identity.role not in allowed:
        expected = " or ".join(sorted(allowed)) or "none: nobody may call it"
        raise PeerFault(
            "IDENTITY_REFUSED",
            f"{method.rpartition('/')[2]}: certificate of role '{identity.role}', expected role {expected}",
            hint="use the certificate that was issued for this task",
        )
