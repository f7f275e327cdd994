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
from typing import Annotated, ClassVar, Literal

from verticil.shared.record import Key, Sha256, decode

Why = Literal["revoked", "ended", "retention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What the miner deleted; `record.encode` makes the bytes that are signed.

    Attributes:
        study_digest: of the proposal.
        study_id: for people.
        party: whose columns they were.
        artifacts: unit -> SHA-256 of the artifact, as in its receipt; empty when nothing had been stored.
        why: a party revoked; the study ended without a release; or the days of retention have passed.
        miner: who deleted.
        deleted_at: UTC, whole seconds.
    """

    MARK: ClassVar = {"form": "verticil/deletion/v1"}

    study_digest: Sha256
    study_id: str
    party: str
    artifacts: Annotated[Mapping[int, Sha256], Key(by=("unit", "sha256"))]
    why: Why
    miner: str
    deleted_at: dt.datetime


def parse_deletion(body: bytes) -> Deletion:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.record import encode
    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> said = Deletion(study_digest=bytes(32), study_id="hearts", party="clinic", artifacts={0: bytes(32)}, why="revoked",
    ...     miner="miner", deleted_at=at)
    >>> parse_deletion(encode(said)) == said
    True

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(Deletion, body, source="statement of a deletion")
