"""A peer's statement that it has deleted what another party gave it for a study (Model I); the peer signs these bytes.

It is the peers' counterpart of the miner's `verticil.shared.formats.deletion`. It names what the other party can compare with its
own record: its randomized columns and its signed parameters, by SHA-256 and size. Everything else that was kept for the study
(pseudonyms, blinded lists, working files) is gone, too, and is not named: the size of a list would tell how many
people two parties have in common.

What it is not: a proof. Whoever signs it says what it did with the files of its state directory; copies that it made before, its
backups, and what a release already says of the data are not in it. `ended` is `published` at a peer that has the release: that
stays, and cannot be recalled.

`PeerHolding` is the statement of the same things while they are there, or afterwards: of what a peer has, or had. A party whose
ledger comes from an old backup charges by it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

import rfc8785

from verticil.shared.errors import GateFailed, PeerFault
from verticil.shared.formats.json_document import Node, parse

Ended = Literal["published", "denied", "expired", "withdrawn", "failed"]

_FORM: Final = "verticil/peer-deletion/v1"
_HELD: Final = "verticil/peer-holding/v1"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SHA256_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Bytes that are gone."""

    sha256: bytes
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDeletion:
    """What a peer deleted of one party's.

    Attributes:
        study_digest: of the proposal.
        study_id: for people.
        party: whose it was.
        columns: unit -> the artifact; empty when none had come whole.
        parameters: the party's signed parameters; None: they had not come.
        ended: how the study ended at the peer.
        peer: who deleted.
        deleted_at: UTC, whole seconds: it was gone then.
    """

    study_digest: bytes
    study_id: str
    party: str
    columns: Mapping[int, Deleted]
    parameters: Deleted | None
    ended: Ended
    peer: str
    deleted_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerHolding:
    """What a peer has, or had, of one party's; attributes as of `PeerDeletion`."""

    study_digest: bytes
    party: str
    columns: Mapping[int, Deleted]
    parameters: Deleted | None
    peer: str


def peer_holding_body(said: PeerHolding) -> bytes:
    """The canonical JSON (RFC 8785) that is signed.

    >>> said = PeerHolding(study_digest=bytes(32), party="clinic", peer="insurer", parameters=None,
    ...     columns={0: Deleted(sha256=bytes(32), size=9)})
    >>> parse_peer_holding(peer_holding_body(said)) == said
    True
    """
    return rfc8785.dumps(
        {
            "form": _HELD,
            "study_digest": said.study_digest.hex(),
            "party": said.party,
            "columns": [{"unit": unit, **_facts(item)} for unit, item in sorted(said.columns.items())],
            "parameters": None if said.parameters is None else _facts(said.parameters),
            "peer": said.peer,
        }
    )


def parse_peer_holding(body: bytes) -> PeerHolding:
    """Read what `peer_holding_body` wrote; the signature is checked by the caller.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    try:
        node = parse(body, source="holding")
        if (form := node["form"].text()) != _HELD:
            node["form"].fail(f"got '{form[:80]}', expected '{_HELD}'")
        return PeerHolding(
            study_digest=_sha256(node["study_digest"]),
            party=node["party"].text(),
            columns={item["unit"].integer(): _deleted(item) for item in node["columns"].items()},
            parameters=None if node["parameters"].value is None else _deleted(node["parameters"]),
            peer=node["peer"].text(),
        )
    except (GateFailed, ValueError) as error:
        problem = error.message if isinstance(error, GateFailed) else "a digest is not one"
        raise PeerFault("MESSAGE_INVALID", f"statement of what is held: {problem}") from None


def peer_deletion_body(said: PeerDeletion) -> bytes:
    """The canonical JSON (RFC 8785) that is signed.

    >>> said = PeerDeletion(study_digest=bytes(32), study_id="hearts", party="clinic", ended="withdrawn", peer="insurer",
    ...     columns={0: Deleted(sha256=bytes(32), size=9)}, parameters=None,
    ...     deleted_at=dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC))
    >>> parse_peer_deletion(peer_deletion_body(said)) == said
    True
    """
    return rfc8785.dumps(
        {
            "form": _FORM,
            "study_digest": said.study_digest.hex(),
            "study_id": said.study_id,
            "party": said.party,
            "columns": [{"unit": unit, **_facts(item)} for unit, item in sorted(said.columns.items())],
            "parameters": None if said.parameters is None else _facts(said.parameters),
            "ended": said.ended,
            "peer": said.peer,
            "deleted_at": said.deleted_at.astimezone(dt.UTC).strftime(_TIME),
        }
    )


def parse_peer_deletion(body: bytes) -> PeerDeletion:
    """Read what `peer_deletion_body` wrote; the signature is checked by the caller.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    try:
        return _read(parse(body, source="deletion"))
    except (GateFailed, ValueError) as error:
        problem = error.message if isinstance(error, GateFailed) else "a digest or a time is not one"
        raise PeerFault("MESSAGE_INVALID", f"statement of a deletion: {problem}") from None


def _read(node: Node) -> PeerDeletion:
    if (form := node["form"].text()) != _FORM:
        node["form"].fail(f"got '{form[:80]}', expected '{_FORM}'")
    ended, endings = node["ended"].text(), get_args(Ended)
    if ended not in endings:
        node["ended"].fail(f"expected one of {', '.join(endings)}")
    return PeerDeletion(
        study_digest=_sha256(node["study_digest"]),
        study_id=node["study_id"].text(),
        party=node["party"].text(),
        columns={item["unit"].integer(): _deleted(item) for item in node["columns"].items()},
        parameters=None if node["parameters"].value is None else _deleted(node["parameters"]),
        ended=cast("Ended", ended),
        peer=node["peer"].text(),
        deleted_at=dt.datetime.strptime(node["deleted_at"].text(), _TIME).replace(tzinfo=dt.UTC),
    )


def _facts(item: Deleted) -> dict[str, str | int]:
    return {"sha256": item.sha256.hex(), "bytes": item.size}


def _deleted(node: Node) -> Deleted:
    return Deleted(sha256=_sha256(node["sha256"]), size=node["bytes"].integer())


def _sha256(node: Node) -> bytes:
    value = bytes.fromhex(node.text())
    if len(value) != _SHA256_BYTES:
        node.fail("expected the 64 hexadecimal digits of a SHA-256")
    return value
