"""Reading signed evidence out of a release: what every check of `verification` and `peer_verification` starts from.

Every fault is a `GateFailed`: RELEASE_INVALID, or RELEASE_UNTRUSTED where a certificate is not of the reader's own authority.
"""

from __future__ import annotations

import base64
import datetime as dt

from verticil.shared.errors import GateFailed, PeerFault
from verticil.shared.formats.json_document import Node
from verticil.shared.transport.identity import Identity, Role
from verticil.shared.transport.signing import verify_signed
from verticil.wire.v1 import common_pb2

__all__ = ["base64_bytes", "expect", "signed_statement", "signer", "utc_time"]


def signer(
    signed: common_pb2.Signed,
    authority: bytes,
    *,
    role: Role,
    name: str | None = None,
    at: dt.datetime,
    where: str,
    anchored: bool,
) -> Identity:
    """Who signed, in that role; a fault becomes one of the release.

    Args:
        signed, authority, role, name, at: see `verify_signed`.
        where: what was signed, for the message.
        anchored: the authority is the reader's own.

    Raises:
        GateFailed: RELEASE_INVALID or RELEASE_UNTRUSTED.
    """
    try:
        return verify_signed(signed, authority, role=role, name=name, at=at)
    except PeerFault as error:
        # Under the reader's own CA certificate, a chain that leads elsewhere is a question of trust; a wrong signature never is.
        code = "RELEASE_UNTRUSTED" if anchored and error.code != "MESSAGE_INVALID" else "RELEASE_INVALID"
        raise GateFailed(code, f"{where}: {error.message}") from None


def signed_statement(node: Node) -> common_pb2.Signed:
    """A signed statement as a manifest holds it: body as text, signature and certificate in base64."""
    return common_pb2.Signed(
        body=node["body"].text().encode("utf-8"),
        signature=base64_bytes(node["signature"]),
        certificate=base64_bytes(node["certificate"]),
    )


def expect(node: Node, expected: str) -> None:
    """Refuse a text that is not the expected one."""
    if (got := node.text()) != expected:
        node.fail(f"got '{got}', expected '{expected}'")


def base64_bytes(node: Node) -> bytes:
    """The bytes that a text is the base64 of."""
    try:
        return base64.b64decode(node.text(), validate=True)
    except ValueError:
        return node.fail("expected base64")


def utc_time(node: Node) -> dt.datetime:
    """The time that a text is, in UTC and whole seconds."""
    try:
        return dt.datetime.strptime(node.text(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return node.fail("expected a UTC time such as 2026-11-21T10:00:00Z")
