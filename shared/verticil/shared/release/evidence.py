"""Reading signed evidence out of a release: what every check of `verification` and of the protocols starts from.

Every fault is a `GateFailed`: RELEASE_INVALID, or RELEASE_UNTRUSTED where a certificate is not of the reader's own authority.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping

from cryptography import x509

from verticil.shared.errors import GateFailed, PeerFault
from verticil.shared.formats.json_document import Json, Node
from verticil.shared.identity.identity import Identity, Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.release.content import SignedStatement
from verticil.wire.v1 import common_pb2


class Denied:
    """The reader's deny-list, and what it found.

    What had been signed before its certificate was revoked stays valid, and is remembered for the reader. The time of signing is
    the signer's own word: whoever has stolen a key can backdate with it.

    Args:
        since: serial number -> since when.
    """

    def __init__(self, since: Mapping[int, dt.datetime]) -> None:
        self._since = since
        self._later: dict[str, list[str]] = {}

    @property
    def later(self) -> tuple[str, ...]:
        """Which signers' certificates were revoked after they had signed, and what they had signed, in words."""
        return tuple(f"{words}, after it had signed {', '.join(signed)}" for words, signed in self._later.items())

    def check(self, signed: common_pb2.Signed, identity: Identity, at: dt.datetime, where: str) -> None:
        """Refuse a statement that was signed with a certificate that had been revoked by then.

        Raises:
            GateFailed: RELEASE_UNTRUSTED, naming signer, serial and time.
        """
        serial = x509.load_der_x509_certificate(signed.certificate).serial_number
        since = self._since.get(serial)
        if since is None:
            return
        words = f"the certificate of {identity} with serial {serial:x} was revoked at {since:%Y-%m-%d %H:%M} UTC"
        if since <= at:
            raise GateFailed(
                "RELEASE_UNTRUSTED",
                f"{where}: {words}, and this was signed at {at:%Y-%m-%d %H:%M} UTC",
                hint="ask the federation's coordinator why it was revoked; what is published may have to be signed anew",
            )
        if where not in (signed_so := self._later.setdefault(words, [])):
            signed_so.append(where)


def signer(
    signed: common_pb2.Signed,
    authority: bytes,
    *,
    role: Role,
    name: str | None = None,
    at: dt.datetime,
    where: str,
    anchored: bool,
    denied: Denied,
) -> Identity:
    """Who signed, in that role; a fault becomes one of the release.

    Args:
        signed, authority, role, name, at: see `verify_signed`.
        where: what was signed, for the message.
        anchored: the authority is the reader's own.
        denied: the reader's deny-list.

    Raises:
        GateFailed: RELEASE_INVALID or RELEASE_UNTRUSTED.
    """
    try:
        identity = verify_signed(signed, authority, role=role, name=name, at=at)
    except PeerFault as error:
        # Under the reader's own CA certificate, a chain that leads elsewhere is a question of trust; a wrong signature never is.
        code = "RELEASE_UNTRUSTED" if anchored and error.code != "MESSAGE_INVALID" else "RELEASE_INVALID"
        raise GateFailed(code, f"{where}: {error.message}") from None
    denied.check(signed, identity, at, where)
    return identity


def signed_statement(node: Node) -> common_pb2.Signed:
    """A signed statement as a manifest holds it: body as text, signature and certificate in base64."""
    return common_pb2.Signed(
        body=node["body"].text().encode("utf-8"),
        signature=base64_bytes(node["signature"]),
        certificate=base64_bytes(node["certificate"]),
    )


def signed_document(statement: SignedStatement) -> dict[str, Json]:
    """What `signed_statement` reads."""
    return {
        "body": statement.body.decode("utf-8"),
        "signature": base64_text(statement.signature),
        "certificate": base64_text(statement.certificate),
    }


def base64_text(data: bytes) -> str:
    """What `base64_bytes` reads."""
    return base64.b64encode(data).decode("ascii")


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
