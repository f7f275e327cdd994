"""A party's countersignature: it has looked at the release before anybody else could, and has nothing against it.

The statement names the study, the SHA-256 of the manifest (and with it every file), the party and the person who looked; the
party's signing key signs it, and it goes into `manifest.sig` beside the publisher's signature. It does not say that the figures
are right: a party can check what concerns its own data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from verticil.shared.errors import GateFailed
from verticil.shared.formats.json_document import Node
from verticil.shared.identity.identity import Role
from verticil.shared.record import Key, Sha256, decode, tame
from verticil.shared.release.evidence import Denied, signed_statement, signer
from verticil.shared.study.document import Study


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
    entries: Iterable[Node],
    study: Study,
    *,
    study_digest: str,
    manifest_sha256: bytes,
    authority: bytes,
    anchored: bool,
    denied: Denied,
    complete: bool,
) -> tuple[str, ...]:
    """Check the countersignatures of a release.

    Args:
        entries: of manifest.sig.
        study: the effective study.
        study_digest: of the proposal, as the manifest says.
        manifest_sha256: of the manifest's bytes.
        authority: certificate of the federation's authority, DER.
        anchored: whether the reader brought it.
        denied: the reader's deny-list.
        complete: whether there must be as many as the study asks for.

    Returns:
        The parties that have countersigned, in the study's order.

    Raises:
        GateFailed: RELEASE_INVALID, one does not hold, or there are too few; RELEASE_UNTRUSTED, one is of another authority.
    """
    found: list[str] = []
    for entry in entries:
        signed = signed_statement(entry)
        statement = decode(
            Countersignature,
            signed.body,
            source=f"{entry.where}: body",
            fault=lambda error: GateFailed("RELEASE_INVALID", tame(error.message)),
        )
        signer(
            signed,
            authority,
            role=Role.PARTY,
            name=statement.party,
            at=statement.signed_at,
            where=entry.where,
            anchored=anchored,
            denied=denied,
        )
        if statement.party not in study.parties or statement.party in found:
            entry.fail(f"'{statement.party}' is no party of the study, or has countersigned already")
        if (statement.study_digest.hex(), statement.manifest_sha256) != (study_digest, manifest_sha256):
            entry.fail(f"'{statement.party}' has countersigned another release")
        found.append(statement.party)
    if complete and len(found) < study.countersignatures_needed:
        raise GateFailed(
            "RELEASE_INVALID",
            f"manifest.sig: countersigned by {len(found)} parties, expected {study.countersignatures_needed} by the study",
            hint="it is not published yet: the parties look at it first",
        )
    return tuple(party for party in study.parties if party in found)
