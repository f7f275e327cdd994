"""The miner's statement that it has deleted what a party sent for a study; the miner signs these bytes.

It is written when the party's randomized columns leave the miner's disk: because a party took its approval back, because the
study ended without a release, or because the days of retention have passed. Pseudonyms, alignment and transfers under way were
deleted before. It names every artifact that was deleted by the SHA-256 of its receipt, so that the party can compare the two.

What it is not: a proof. Whoever signs it says what it did with the files of its state directory; copies that it made before,
its backups, and what a release already says of the data are not in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

import rfc8785

from verticil.shared.errors import GateFailed, PeerFault
from verticil.shared.formats.json_document import Node, parse

Why = Literal["revoked", "ended", "retention"]

_FORM: Final = "verticil/deletion/v1"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SHA256_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What the miner deleted.

    Attributes:
        study_digest: of the proposal.
        study_id: for people.
        party: whose columns they were.
        artifacts: unit -> SHA-256 of the artifact, as in its receipt; empty when nothing had been stored.
        why: a party revoked; the study ended without a release; or the days of retention have passed.
        miner: who deleted.
        deleted_at: UTC, whole seconds.
    """

    study_digest: bytes
    study_id: str
    party: str
    artifacts: Mapping[int, bytes]
    why: Why
    miner: str
    deleted_at: dt.datetime


def deletion_body(deletion: Deletion) -> bytes:
    """The canonical JSON (RFC 8785) that is signed.

    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> said = Deletion(study_digest=bytes(32), study_id="hearts", party="clinic", artifacts={0: bytes(32)}, why="revoked",
    ...     miner="miner", deleted_at=at)
    >>> parse_deletion(deletion_body(said)) == said
    True
    """
    return rfc8785.dumps(
        {
            "form": _FORM,
            "study_digest": deletion.study_digest.hex(),
            "study_id": deletion.study_id,
            "party": deletion.party,
            "artifacts": [
                {"unit": unit, "sha256": sha256.hex()} for unit, sha256 in sorted(deletion.artifacts.items())
            ],
            "why": deletion.why,
            "miner": deletion.miner,
            "deleted_at": deletion.deleted_at.astimezone(dt.UTC).strftime(_TIME),
        }
    )


def parse_deletion(body: bytes) -> Deletion:
    """Read what `deletion_body` wrote; the signature is checked by the caller.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    try:
        return _read(parse(body, source="deletion"))
    except (GateFailed, ValueError) as error:
        problem = error.message if isinstance(error, GateFailed) else "a digest or a time is not one"
        raise PeerFault("MESSAGE_INVALID", f"statement of a deletion: {problem}") from None


def _read(node: Node) -> Deletion:
    if (form := node["form"].text()) != _FORM:
        node["form"].fail(f"got '{form[:80]}', expected '{_FORM}'")
    why, reasons = node["why"].text(), get_args(Why)
    if why not in reasons:
        node["why"].fail(f"expected one of {', '.join(reasons)}")
    return Deletion(
        study_digest=_sha256(node["study_digest"]),
        study_id=node["study_id"].text(),
        party=node["party"].text(),
        artifacts={item["unit"].integer(): _sha256(item["sha256"]) for item in node["artifacts"].items()},
        why=cast("Why", why),
        miner=node["miner"].text(),
        deleted_at=dt.datetime.strptime(node["deleted_at"].text(), _TIME).replace(tzinfo=dt.UTC),
    )


def _sha256(node: Node) -> bytes:
    value = bytes.fromhex(node.text())
    if len(value) != _SHA256_BYTES:
        node.fail("expected the 64 hexadecimal digits of a SHA-256")
    return value
