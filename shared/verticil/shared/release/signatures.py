"""Reading signed evidence out of a release: what every check of `verification` and of the protocols starts from.

Every fault is a `GateFailed`: RELEASE_INVALID, or RELEASE_UNTRUSTED where a certificate is not of the reader's own authority.

In a release that is a sub-model the evidence is that the study permits it, who fixed it, and who is not in it.

Such a release holds, besides the study as it was carried out, the study as it was proposed and approved (``proposal.json``) and
the miner's signed statement of who was left out (in the manifest). From these a reader sees offline that the proposal has the
digest that the receipts are of, that its quorum permits what remains, and that nothing else differs but noise, never weaker.

That the parties were missing is the miner's word. Between a party that was late and one that was shut out a reader cannot tell.

A party's countersignature says that it has looked at the release before anybody else could, and has nothing against it.

The statement names the study, the SHA-256 of the manifest (and with it every file), the party and the person who looked; the
party's signing key signs it, and it goes into `manifest.sig` beside the publisher's signature. It does not say that the figures
are right: a party can check what concerns its own data.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from cryptography import x509

from verticil.shared.core.errors import GateFailed, PeerFault, VerticilError
from verticil.shared.documents.foreign_files.limits import DOCUMENT_BYTES
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.documents.record import Key, Sha256, decode, tame, write
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.release.content import PROPOSAL, SignedStatement
from verticil.shared.study import canonical
from verticil.shared.study.approval import check_own_part
from verticil.shared.study.document import Study
from verticil.shared.study.sub_model import check_sub_model, parse_sub_model
from verticil.wire.v1 import common_pb2


class Denied:
    """The reader's deny-list, and what it found.

    What had been signed before its certificate was revoked stays valid, and is remembered for the reader. The time of signing is
    the signer's own word: the thief of a key can backdate with it.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """By what a reader checks who signed.

    Attributes:
        authority: DER of the authority that all certificates must be of.
        anchored: the authority is the reader's own.
        denied: the reader's deny-list.
    """

    authority: bytes
    anchored: bool
    denied: Denied

    def signer(
        self,
        signed: common_pb2.Signed,
        *,
        role: Role,
        name: str | None = None,
        at: dt.datetime,
        where: str,
        anchored: bool = False,
    ) -> Identity:
        """Return who signed, in that role; a fault becomes one of the release.

        Args:
            signed, role, name, at: see `verify_signed`.
            where: what was signed, for the message.
            anchored: another authority is a question of trust; else the release is not of one piece.

        Raises:
            GateFailed: RELEASE_INVALID or RELEASE_UNTRUSTED.
        """
        try:
            identity = verify_signed(signed, self.authority, role=role, name=name, at=at)
        except PeerFault as error:
            # Under the reader's own CA certificate, a chain that leads elsewhere is a question of trust; a wrong signature
            # never is.
            code = "RELEASE_UNTRUSTED" if anchored and error.code != "MESSAGE_INVALID" else "RELEASE_INVALID"
            raise GateFailed(code, f"{where}: {error.message}") from None
        self.denied.check(signed, identity, at, where)
        return identity


def signed_statement(node: JsonNode) -> common_pb2.Signed:
    """Return a signed statement as a manifest holds it: body as text, signature and certificate in base64."""
    return common_pb2.Signed(
        body=node["body"].text().encode("utf-8"),
        signature=base64_bytes(node["signature"]),
        certificate=base64_bytes(node["certificate"]),
    )


def signed_document(statement: SignedStatement) -> dict[str, Json]:
    """Write the document that `signed_statement` reads."""
    return {
        "body": statement.body.decode("utf-8"),
        "signature": base64_text(statement.signature),
        "certificate": base64_text(statement.certificate),
    }


def base64_text(data: bytes) -> str:
    """Write the text that `base64_bytes` reads."""
    return base64.b64encode(data).decode("ascii")


def expect(node: JsonNode, expected: str) -> None:
    """Refuse a text that is not the expected one."""
    if (actual := node.text()) != expected:
        node.fail(f"got '{actual}', expected '{expected}'")


def base64_bytes(node: JsonNode) -> bytes:
    """Return the bytes that a text is the base64 of."""
    try:
        return base64.b64decode(node.text(), validate=True)
    except ValueError:
        return node.fail("expected base64")


def utc_time(node: JsonNode) -> dt.datetime:
    """Return the time that a text is, in UTC and whole seconds."""
    try:
        return dt.datetime.strptime(node.text(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return node.fail("expected a UTC time such as 2026-11-21T10:00:00Z")


_ANY_PARTY = ""


def parties_left_out(study: Study, statement: Json) -> dict[str, Json]:
    """Return what the manifest of a sub-model says of it.

    Args:
        study: the effective study.
        statement: the miner's, as signed statements stand in a manifest.
    """
    return {"parties_left_out": [write(item) for item in study.left_out], "sub_model": statement}


def check_sub_model_evidence(
    directory: Path,
    manifest: JsonNode,
    documents: tuple[JsonNode, ...],
    study: Study,
    trust: Trust,
    *,
    published: dt.datetime,
) -> tuple[str, ...]:
    """Check all of it; a release of all parties must hold nothing of the kind.

    Args:
        directory: the release; its files are those of the manifest.
        manifest: `manifest.json`.
        documents: all that name the parties left out.
        study: the effective study.
        trust: the reader's.
        published: time of publication.

    Returns:
        The parties that were left out.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    target = [write(item) for item in study.left_out] if study.left_out else None
    for document in documents:
        entries = document.get("parties_left_out")
        if (None if entries is None else entries.value) != target:
            document.fail("its parties_left_out are not those of study.json")
    if (PROPOSAL in manifest["files"].keys()) != bool(study.left_out):  # noqa: SIM118 (a Node is no mapping)
        manifest["files"].fail(f"{PROPOSAL} belongs to a sub-model, and to no other release")
    if not study.left_out:
        return ()
    signed = signed_statement(manifest["sub_model"])
    where = "manifest.json: sub_model"
    try:
        sub_model = parse_sub_model(signed.body)
        if sub_model.decided_at > published:
            manifest["sub_model"].fail("decided later than the publication")
        trust.signer(signed, role=Role.MINER, at=sub_model.decided_at, where=where)
        proposal_bytes = read_document(directory, PROPOSAL)
        digest = hashlib.sha256(proposal_bytes).digest()
        if digest.hex() != manifest["study_digest"].text():
            raise GateFailed("RELEASE_INVALID", f"{PROPOSAL}: SHA-256 is {digest.hex()}, expected the study's digest")
        proposal = canonical.from_bytes(proposal_bytes, source=PROPOSAL, wire=False)
        effective_digest = bytes.fromhex(manifest["effective_digest"].text())
        check_sub_model(sub_model, proposal_digest=digest, effective=study, effective_digest=effective_digest)
        check_own_part(proposal, study, _ANY_PARTY)
    except GateFailed:
        raise
    except (VerticilError, ValueError) as error:
        problem = error.message if isinstance(error, VerticilError) else "a digest is not one"
        raise GateFailed("RELEASE_INVALID", f"{where}: {problem}") from None
    return tuple(item.party for item in study.left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Countersignature:
    """What a countersignature says; `record.encode` makes the bytes that a party signs.

    Attributes:
        study_digest: SHA-256 of the proposal.
        manifest_sha256: of manifest.json.
        party: whose it is.
        approver: who looked, in the party's own words.
        signed_at: UTC, to the second.
    """

    MARK: ClassVar = {"form": "verticil/countersignature/v1"}

    study_digest: Annotated[Sha256, Key(name="study_sha256")]
    manifest_sha256: Sha256
    party: str
    approver: str
    signed_at: dt.datetime


def read_countersignature(body: bytes) -> Countersignature:
    """Read what another node signed.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(Countersignature, body, source="countersignature")


def check_countersignatures(
    entries: Iterable[JsonNode],
    study: Study,
    trust: Trust,
    *,
    study_digest: str,
    manifest_sha256: bytes,
    complete: bool,
) -> tuple[str, ...]:
    """Check the countersignatures of a release.

    Args:
        entries: of manifest.sig.
        study: the effective study.
        trust: the reader's.
        study_digest: of the proposal, as the manifest says.
        manifest_sha256: of the manifest's bytes.
        complete: whether there must be as many as the study asks for.

    Returns:
        The parties that have countersigned, in the study's order.

    Raises:
        GateFailed: RELEASE_INVALID, one does not hold, or there are too few; RELEASE_UNTRUSTED, one is of another authority.
    """
    names: list[str] = []
    for entry in entries:
        signed = signed_statement(entry)
        statement = decode(
            Countersignature,
            signed.body,
            source=f"{entry.where}: body",
            fault=lambda error: GateFailed("RELEASE_INVALID", tame(error.message)),
        )
        trust.signer(
            signed,
            role=Role.PARTY,
            name=statement.party,
            at=statement.signed_at,
            where=entry.where,
            anchored=trust.anchored,
        )
        if statement.party not in study.parties or statement.party in names:
            entry.fail(f"'{statement.party}' is no party of the study, or has countersigned already")
        if (statement.study_digest.hex(), statement.manifest_sha256) != (study_digest, manifest_sha256):
            entry.fail(f"'{statement.party}' has countersigned another release")
        names.append(statement.party)
    if complete and len(names) < study.countersignatures_needed:
        raise GateFailed(
            "RELEASE_INVALID",
            f"manifest.sig: countersigned by {len(names)} parties, expected {study.countersignatures_needed} by the study",
            hint="it is not published yet: the parties look at it first",
        )
    return tuple(party for party in study.parties if party in names)


def read_document(
    directory: Path, name: str, *, most: int = DOCUMENT_BYTES, hint: str = "this is not a release"
) -> bytes:
    """Read a document of a release.

    Args:
        directory: the release.
        name: of the file.
        most: bytes; of a larger file none is read.
        hint: what it means when there is none.

    Raises:
        GateFailed: RELEASE_INVALID, there is none, it is no plain file, or it is larger.
    """
    path = directory / name
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise GateFailed("RELEASE_INVALID", f"{path}: not a plain file")
        if status.st_size > most:
            raise GateFailed("RELEASE_INVALID", f"{path}: {status.st_size} bytes, expected at most {most}")
        return path.read_bytes()
    except FileNotFoundError:
        raise GateFailed("RELEASE_INVALID", f"{path}: missing", hint=hint) from None
