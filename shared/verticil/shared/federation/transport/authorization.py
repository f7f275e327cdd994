"""The gate before every service: who calls, whether that counts now, whether it may call this, and how often at a time.

Identity comes from the certificate of the connection only, read anew for each call together with its validity and the
deny-list; the role table decides what may be called. Each call that is refused for who its caller is, is logged and passed to
`on_refusal`. Nothing here knows what a call does.

The roles of a method stand in its table (`verticil.shared.federation.transport.interface`); a method that is in none is refused
to all. Only role, federation and revocation are decided here, for gRPC and for the in-memory transport alike; whether a party
belongs to a study or owns a unit is the service's to decide, and so is that a consumer sees published studies only. A party works
on studies; an analyst proposes them; a consumer takes what is published; an auditor looks at where studies stand and takes
nothing; a miner makes no calls.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import grpc
from cryptography import x509
from google.protobuf.message import Message

from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import check_validity, identity_of
from verticil.shared.federation.transport.interface import Control, Coordinator, Peer
from verticil.shared.federation.transport.version import PROTOCOL_KEY, agree

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
        code: of the error that it got.
        message: of that error.
    """

    caller: str
    serial: str
    method: str
    code: str
    message: str


class Revocations(Protocol):
    """The deny-list that a node goes by (`verticil.shared.federation.membership.revocation.DenyList`). Fast, and safe in several
    threads."""

    def serials(self) -> frozenset[int]:
        """Serial numbers of certificates that count no more."""
        ...

    def since(self) -> Mapping[int, dt.datetime]:
        """Return the serials with the time since which each counts no more: what was signed before stays valid."""
        ...

    def number(self) -> int:
        """Number of the list; 0 without one."""
        ...

    def newer_than(self, number: int) -> bytes:
        """Return the list, DER, for somebody who has the one with that number; empty when theirs is as new."""
        ...

    def offer(self, data: bytes) -> bool:
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

    def offer(self, data: bytes) -> bool:
        del data
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
    roles_of_method = roles.get(method, frozenset())
    if identity.role not in roles_of_method:
        role_names = " or ".join(sorted(roles_of_method)) or "none: no role may call it"
        raise PeerFault(
            "IDENTITY_REFUSED",
            f"a certificate of role '{identity.role}' calls {method.rpartition('/')[2]}, expected role {role_names}",
            hint="use the certificate that was issued for this task",
        )


OnCaller = Callable[[Identity, x509.Certificate], None]

_METHOD: Final = re.compile(r"/[\w.]{1,60}/\w{1,40}", re.ASCII)

_log = logging.getLogger(__name__)


class TooManyCalls(PeerFault):
    """The caller has as many calls under way as one may have. What else it streams is not waited for."""

    def __init__(self, n_calls: int) -> None:
        super().__init__(
            "RESOURCE_EXHAUSTED",
            f"{n_calls} calls of this caller are under way, as many as allowed",
            hint="try again later",
        )


@dataclass(slots=True, kw_only=True)
class Caller:
    """Who calls, as far as it is known."""

    identity: Identity | None = None
    serial: int = 0

    def __str__(self) -> str:
        return "unknown caller" if self.identity is None else f"{self.identity} (serial {self.serial:x})"


class Context(Protocol):
    """What is used of gRPC's context of a call."""

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return what TLS knows of the caller."""
        ...

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return what the caller sent beside its request."""
        ...

    def set_trailing_metadata(self, trailing_metadata: Sequence[tuple[str, str]]) -> None:
        """Say something at the end of the answer."""
        ...

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Sequence[tuple[str, str | bytes]]
    ) -> None:
        """End the call with an error; raises."""
        ...

    async def send_initial_metadata(self, initial_metadata: Sequence[tuple[str, bytes]]) -> None:
        """Begin the answer with the metadata."""
        ...

    async def write(self, message: Message) -> None:
        """Send one message of a streamed answer."""
        ...


class Authorizer:
    """Lets callers of one federation in.

    Args:
        federation: its name.
        roles: full method name -> roles that may call it; what is not there is refused to all.
        maximum: calls at a time; one caller may have a quarter of them under way.
        clock: the time that certificates are checked against.
        revocations: the deny-list by which callers' certificates are refused.
        on_refusal: called with each call that is refused for who its caller is. Must be quick.
        on_caller: called with who calls and with which certificate, also when the call is refused. Must be quick.
    """

    def __init__(
        self,
        federation: str,
        *,
        roles: Mapping[str, frozenset[Role]],
        maximum: int,
        clock: Callable[[], dt.datetime],
        revocations: Revocations,
        on_refusal: Callable[[RefusedCall], None] | None,
        on_caller: OnCaller | None = None,
    ) -> None:
        self._federation = federation
        self._roles = roles
        self._maximum = maximum
        self._clock = clock
        self._revocations = revocations
        self._on_refusal = on_refusal
        self._on_caller = on_caller
        self._calls: Counter[str] = Counter()

    def enter(self, method: str, context: Context, caller: Caller) -> Identity:
        """Return the caller, if it may call `method`; `caller` learns it even when it may not. Call it in the call's own
        task.

        Raises:
            PeerFault: IDENTITY_REFUSED, CERTIFICATE_INVALID, CERTIFICATE_REVOKED, VERSION_UNSUPPORTED, RESOURCE_EXHAUSTED.
        """
        identity = self._identify(context, caller)
        self.check_standing(caller, identity)
        check_access(identity, method, federation=self._federation, roles=self._roles)
        _check_version(context)
        self._admit(identity.uri)
        return identity

    def check_standing(self, caller: Caller, identity: Identity) -> None:
        """Refuse who has been revoked by now.

        Raises:
            PeerFault: CERTIFICATE_REVOKED.
        """
        check_revoked(caller.serial, identity, self._revocations)

    def unknown(self, method: str, context: Context) -> None:
        """Note a call of a method that this server does not have."""
        caller = Caller()
        method_name = method if _METHOD.fullmatch(method) else "?"  # what is logged is never a stranger's text
        try:
            identity = self._identify(context, caller)
            self.check_standing(caller, identity)
            raise PeerFault("IDENTITY_REFUSED", "no such method here")
        except PeerFault as fault:
            self.note(method_name, caller, fault)

    def note(self, method: str, caller: Caller, error: VerticilError) -> None:
        """Log an answer that is an error; asking too early is part of the protocol, and no news."""
        is_refused = error.code in NOT_LET_IN
        level = (
            logging.WARNING
            if is_refused or error.code == "DISK_FULL"
            else logging.DEBUG
            if error.code == "NOT_READY"
            else logging.INFO
        )
        _log.log(level, "%s by %s: %s", method, caller, error)
        if is_refused and self._on_refusal is not None:
            has_identity = caller.identity is not None
            self._on_refusal(
                RefusedCall(
                    caller=str(caller.identity) if has_identity else "",
                    serial=f"{caller.serial:x}" if has_identity else "",
                    method=method,
                    code=error.code,
                    message=error.message,
                )
            )

    def _admit(self, caller: str) -> None:
        """Count a call until its task ends, so that no caller can keep the others out."""
        task = asyncio.current_task()
        if task is None:
            return
        if self._calls[caller] >= max(1, self._maximum // 4):
            raise TooManyCalls(self._calls[caller])

        def log_end(_task: asyncio.Task[object]) -> None:
            self._calls[caller] -= 1
            if not self._calls[caller]:
                del self._calls[caller]

        self._calls[caller] += 1
        task.add_done_callback(log_end)

    def _identify(self, context: Context, caller: Caller) -> Identity:
        certificates = context.auth_context().get("x509_pem_cert", ())
        if len(certificates) != 1:
            raise PeerFault("IDENTITY_REFUSED", f"got {len(certificates)} client certificates, expected one")
        certificate, identity = _read(bytes(certificates[0]))
        caller.identity, caller.serial = identity, certificate.serial_number
        if self._on_caller is not None and identity.federation == self._federation:
            self._on_caller(identity, certificate)
        check_validity(certificate, at=self._clock(), what="client certificate")
        return identity


def _check_version(context: Context) -> None:
    text = next((value for key, value in context.invocation_metadata() or () if key == PROTOCOL_KEY), None)
    version = int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 6 else 0
    agree(version, here="the answering side", there="the calling side")


@functools.lru_cache(maxsize=256)
def _read(pem: bytes) -> tuple[x509.Certificate, Identity]:
    certificate = x509.load_pem_x509_certificate(pem)
    return certificate, identity_of(certificate)
