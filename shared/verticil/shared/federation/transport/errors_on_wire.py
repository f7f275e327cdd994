"""Errors as messages: `ErrorDetail`, in failed calls and inside replies.

What goes out is a code, a message and a hint that follow the rule of `verticil.shared.core.errors` (no data value, no record
id); of an unexpected exception nothing goes out but an incident number that the sender also writes to its own log. What
comes in was written by someone else: it is cut to length, control characters are removed (it may end on a terminal), message and
hint say whose they are, and an unknown code becomes MESSAGE_INVALID.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from verticil.shared.core.errors import InternalFault, PeerFault, VerticilError, from_code, printable
from verticil.shared.federation.transport.interface import MESSAGE_LIMIT
from verticil.wire.v1 import common_pb2

ERROR_KEY: Final = "verticil-error-bin"
"""Trailing metadata with the `ErrorDetail` of a failed call."""

_TEXT_LIMIT: Final = 1000  # characters; trailing metadata are limited to 8 KiB by gRPC
_CODE_LIMIT: Final = 64

_STATUS: Final[dict[str, grpc.StatusCode]] = {
    "STUDY_UNKNOWN": grpc.StatusCode.NOT_FOUND,
    "STUDY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "DISK_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RESOURCE_EXHAUSTED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "DEADLINE": grpc.StatusCode.DEADLINE_EXCEEDED,
    "CERTIFICATE_INVALID": grpc.StatusCode.UNAUTHENTICATED,
    "CERTIFICATE_REVOKED": grpc.StatusCode.UNAUTHENTICATED,
    "IDENTITY_REFUSED": grpc.StatusCode.PERMISSION_DENIED,
    "PARTY_UNKNOWN": grpc.StatusCode.PERMISSION_DENIED,
    "NOT_OWNER": grpc.StatusCode.PERMISSION_DENIED,
    "CHUNK_CORRUPT": grpc.StatusCode.ABORTED,
    "SESSION_REPLACED": grpc.StatusCode.ABORTED,
    "OFFSET_MISMATCH": grpc.StatusCode.ABORTED,
    "INTERNAL": grpc.StatusCode.INTERNAL,
}
_FAMILY_STATUS: Final[dict[str, grpc.StatusCode]] = {
    "Misuse": grpc.StatusCode.INVALID_ARGUMENT,
    "PeerFault": grpc.StatusCode.FAILED_PRECONDITION,
    "Refusal": grpc.StatusCode.FAILED_PRECONDITION,
}
"""For generic tools only; our own callers read the `ErrorDetail`. Everything else is FAILED_PRECONDITION: not to be retried."""

_RETRIABLE: Final = frozenset(
    {"UNREACHABLE", "DEADLINE", "RESOURCE_EXHAUSTED", "CHUNK_CORRUPT", "OFFSET_MISMATCH", "NOT_READY"}
)

_MEANING: Final[dict[grpc.StatusCode, tuple[str, str, str]]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: ("DEADLINE", "no answer in time", "try again; the call is safe to repeat"),
    grpc.StatusCode.UNIMPLEMENTED: (
        "VERSION_UNSUPPORTED",
        "does not know this call",
        "use the same version on both sides",
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("RESOURCE_EXHAUSTED", "serves as many calls as it can", "try again later"),
    grpc.StatusCode.UNAUTHENTICATED: (
        "IDENTITY_REFUSED",
        "refuses our certificate",
        "something between us and the peer answers",
    ),
    grpc.StatusCode.PERMISSION_DENIED: (
        "IDENTITY_REFUSED",
        "refuses the call",
        "something between us and the peer answers",
    ),
}
_BROKEN_OFF: Final = ("UNREACHABLE", "the call was broken off", "try again; the call is safe to repeat")
"""CANCELLED, INTERNAL and UNKNOWN are how a reset stream or a killed peer looks."""

_log = logging.getLogger(__name__)


def to_detail(error: VerticilError) -> common_pb2.ErrorDetail:
    """Return the message that tells `error` to a peer."""
    return common_pb2.ErrorDetail(
        code=error.code, message=shorten(error.message, _TEXT_LIMIT), hint=shorten(error.hint, _TEXT_LIMIT)
    )


def from_detail(detail: common_pb2.ErrorDetail, *, teller: str = "") -> VerticilError:
    """Return the error that a peer sent.

    Args:
        detail: as it came.
        teller: who sent it, to be named in front of its message and its hint; empty: the caller says it elsewhere.

    >>> told = common_pb2.ErrorDetail(code="NOT_OWNER", message="unit 3", hint="ask")
    >>> str(from_detail(told)), str(from_detail(told, teller="the miner"))
    ('NOT_OWNER: unit 3 (hint: ask)', 'NOT_OWNER: the miner says: unit 3 (hint: the miner says: ask)')
    """
    message = shorten(detail.message, _TEXT_LIMIT) or "the peer gave no message"
    hint = shorten(detail.hint, _TEXT_LIMIT)
    if teller:
        message, hint = f"{teller} says: {message}", f"{teller} says: {hint}" if hint else ""
    error = from_code(shorten(detail.code, _CODE_LIMIT), message, hint=hint)
    error.teller = teller
    return error


def status_of(error: VerticilError) -> grpc.StatusCode:
    """Return the status of a call that failed with `error`."""
    return _STATUS.get(error.code) or _FAMILY_STATUS.get(error.family, grpc.StatusCode.FAILED_PRECONDITION)


def without_text(error: Exception, *, method: str) -> InternalFault:
    """Return what a caller gets for an unexpected exception; the log gets its type and place (see
    `verticil.shared.core.logs`).
    """
    incident = secrets.token_hex(4)
    _log.error("%s: unexpected error, incident %s", method, incident, exc_info=error)
    return InternalFault(
        "INTERNAL",
        f"the other side met an unexpected error, incident {incident}",
        hint="its operator finds the incident in the log",
    )


def shorten(text: str, limit: int) -> str:
    """Return a text from elsewhere, as it may end on a terminal: cut to `limit` letters, without control characters."""
    text_start = printable(text[: limit + 1])
    return text_start if len(text_start) <= limit else text_start[: limit - 1] + "…"


def retriable(error: VerticilError) -> bool:
    """Return whether the same request may succeed later without anybody changing anything (back off, with jitter).

    Refused identities, wrong versions and invalid messages stay what they are; trying again only fills logs.

    >>> retriable(PeerFault("UNREACHABLE", "miner")), retriable(PeerFault("IDENTITY_REFUSED", "role"))
    (True, False)
    """
    return error.code in _RETRIABLE


def interpret(error: grpc.aio.AioRpcError, peer: str) -> PeerFault:
    """Return what a status without an `ErrorDetail` means: it comes from gRPC, not from a service of ours."""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (error.details() or ""):
        return PeerFault("MESSAGE_INVALID", f"{peer}: a message is larger than {MESSAGE_LIMIT} bytes")
    code, problem, hint = _MEANING.get(error.code(), _BROKEN_OFF)
    return PeerFault(code, f"{peer}: {problem} ({error.code().name})", hint=hint)


def told_in(error: grpc.aio.AioRpcError, teller: str) -> VerticilError | None:
    """Return the error that the peer has sent with a failed call; None: it sent none."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY and isinstance(value, bytes):
            try:
                return from_detail(common_pb2.ErrorDetail.FromString(value), teller=teller)
            except DecodeError:
                return PeerFault("MESSAGE_INVALID", "the peer reported an error that cannot be read")
    return None
