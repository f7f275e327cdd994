"""Errors as messages: `ErrorDetail`, in failed calls and inside replies.

What goes out is a code, a message and a hint that follow the rule of `verticil.shared.errors` (no data value, no record
id); of an unexpected exception nothing goes out but an incident number that the sender also writes to its own log. What
comes in was written by someone else: it is cut to length, control characters are removed (it may end on a terminal), message and
hint say whose they are, and an unknown code becomes MESSAGE_INVALID.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

import grpc

from verticil.shared.errors import InternalFault, VerticilError, from_code
from verticil.wire.v1 import common_pb2

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

_log = logging.getLogger(__name__)


def to_detail(error: VerticilError) -> common_pb2.ErrorDetail:
    """The message that tells `error` to a peer."""
    return common_pb2.ErrorDetail(
        code=error.code, message=shown(error.message, _TEXT_LIMIT), hint=shown(error.hint, _TEXT_LIMIT)
    )


def from_detail(detail: common_pb2.ErrorDetail, *, teller: str = "") -> VerticilError:
    """The error that a peer told.

    Args:
        detail: as it came.
        teller: who told it, to be named in front of its message and its hint; empty: the caller says it elsewhere.

    >>> told = common_pb2.ErrorDetail(code="NOT_OWNER", message="unit 3", hint="ask")
    >>> str(from_detail(told)), str(from_detail(told, teller="the miner"))
    ('NOT_OWNER: unit 3 (hint: ask)', 'NOT_OWNER: the miner says: unit 3 (hint: the miner says: ask)')
    """
    message = shown(detail.message, _TEXT_LIMIT) or "the peer gave no message"
    hint = shown(detail.hint, _TEXT_LIMIT)
    if teller:
        message, hint = f"{teller} says: {message}", f"{teller} says: {hint}" if hint else ""
    error = from_code(shown(detail.code, _CODE_LIMIT), message, hint=hint)
    error.teller = teller
    return error


def status_of(error: VerticilError) -> grpc.StatusCode:
    """The status of a call that failed with `error`."""
    return _STATUS.get(error.code) or _FAMILY_STATUS.get(error.family, grpc.StatusCode.FAILED_PRECONDITION)


def without_text(error: Exception, *, method: str) -> InternalFault:
    """What a caller is told of an unexpected exception; the log gets its type and place (see `verticil.shared.logs`)."""
    incident = secrets.token_hex(4)
    _log.error("%s: unexpected error, incident %s", method, incident, exc_info=error)
    return InternalFault(
        "INTERNAL",
        f"the other side met an unexpected error, incident {incident}",
        hint="its operator finds the incident in the log",
    )


def shown(text: str, limit: int) -> str:
    """A text that came from elsewhere, as it may end on a terminal: cut to `limit` letters, without control characters."""
    found = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return found if len(found) <= limit else found[: limit - 1] + "…"
