"""Which role may call what. A method that is not in the table may be called by nobody.

Only role and federation are decided here, for gRPC and for the in-memory transport alike; whether a party belongs to a study or
owns a unit is the service's to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from verticil.shared.errors import PeerFault
from verticil.shared.transport.identity import Identity, Role

__all__ = ["ROLES", "check_access"]

_PARTY: Final = frozenset({Role.PARTY})
_ANALYST: Final = frozenset({Role.ANALYST})
_ANYONE: Final = frozenset(Role)

ROLES: Final[Mapping[str, frozenset[Role]]] = {
    "/verticil.wire.v1.Coordinator/Hello": _PARTY,
    "/verticil.wire.v1.Coordinator/Poll": _PARTY,
    "/verticil.wire.v1.Coordinator/Report": _PARTY,
    "/verticil.wire.v1.Coordinator/PutPseudonyms": _PARTY,
    "/verticil.wire.v1.Coordinator/GetAlignment": _PARTY,
    "/verticil.wire.v1.Coordinator/PutBlinded": _PARTY,
    "/verticil.wire.v1.Coordinator/GetBlinded": _PARTY,
    "/verticil.wire.v1.Coordinator/BeginUpload": _PARTY,
    "/verticil.wire.v1.Coordinator/PutChunks": _PARTY,
    "/verticil.wire.v1.Coordinator/FinishUpload": _PARTY,
    "/verticil.wire.v1.Coordinator/GetRelease": _PARTY,
    "/verticil.wire.v1.Coordinator/PutScores": _PARTY,
    "/verticil.wire.v1.Control/SubmitStudy": _ANALYST,
    "/verticil.wire.v1.Control/GetStudy": _ANALYST,
    "/verticil.wire.v1.Control/ListStudies": _ANALYST,
    "/verticil.wire.v1.Control/CancelStudy": _ANALYST,
    "/verticil.wire.v1.Control/GetRelease": _ANALYST,
    "/verticil.wire.v1.Peer/Hello": _PARTY,
    "/verticil.wire.v1.Peer/GetStudyDigest": _PARTY,
    "/verticil.wire.v1.Peer/GetPseudonyms": _PARTY,
    "/verticil.wire.v1.Peer/GetColumn": _PARTY,
    "/verticil.wire.v1.Peer/GetParameters": _PARTY,
    "/verticil.wire.v1.Peer/GetSignature": _PARTY,
    "/grpc.health.v1.Health/Check": _ANYONE,
    "/grpc.health.v1.Health/Watch": _ANYONE,
}
"""Full method name -> roles. The health methods serve the nodes' own probes; a probe needs a certificate, too."""


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
