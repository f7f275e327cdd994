"""What a node signs when it has deleted what a party gave it for a study: the miner, and a peer.

The miner's statement is that it has deleted what a party sent.

It is written when the party's randomized columns leave the miner's disk: because a party took its approval back, because the
study ended without a release, or because the days of retention have passed. Pseudonyms, alignment and transfers under way were
deleted before. Of masked tables, of which no column was there, it says that the miner's part of the round is gone. It names
every artifact that was deleted by the SHA-256 of its receipt, so that the party can compare the two.

What it is not: a proof. The signer says what it did with the files of its state directory; copies that it made before,
its backups, and what a release already says of the data are not in it.

A peer's statement (Model I) is the counterpart of the miner's. It names what the other party can compare with its
own record: its randomized columns and its signed parameters, by SHA-256 and size. Everything else that was kept for the study
(pseudonyms, blinded lists, working files) is gone, too, and is not named: the size of a list would tell how many
people two parties have in common.

What it is not: a proof. The signer says what it did with the files of its state directory; copies that it made before, its
backups, and what a release already says of the data are not in it. `ended` is `published` at a peer that has the release: that
stays, and cannot be recalled.

`PeerHolding` is the statement of the same things while they are there, or afterwards: of what a peer has, or had. A party whose
ledger comes from an old backup charges by it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from verticil.shared.documents.record import OPTIONAL, Count, Key, Sha256, decode

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
        masked: what was deleted is the miner's part of a round of masked tables: its keys and noise, shares and messages.
    """

    MARK: ClassVar = {"form": "verticil/deletion/v1"}

    study_digest: Sha256
    study_id: str
    party: str
    artifacts: Annotated[Mapping[int, Sha256], Key(by=("unit", "sha256"))]
    why: Why
    miner: str
    deleted_at: dt.datetime
    masked: Annotated[bool, OPTIONAL] = False


def parse_deletion(body: bytes) -> Deletion:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.documents.record import encode
    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> said = Deletion(study_digest=bytes(32), study_id="hearts", party="clinic", artifacts={0: bytes(32)}, why="revoked",
    ...     miner="miner", deleted_at=at)
    >>> parse_deletion(encode(said)) == said
    True

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(Deletion, body, source="statement of a deletion")


Ended = Literal["published", "denied", "expired", "withdrawn", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Bytes that are gone."""

    sha256: Sha256
    size: Annotated[Count, Key(name="bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDeletion:
    """What a peer deleted of one party's; `record.encode` makes the bytes that are signed.

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

    MARK: ClassVar = {"form": "verticil/peer-deletion/v1"}

    study_digest: Sha256
    study_id: str
    party: str
    columns: Annotated[Mapping[int, Deleted], Key(by=("unit",))]
    parameters: Deleted | None
    ended: Ended
    peer: str
    deleted_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerHolding:
    """What a peer has, or had, of one party's.

    Attributes:
        study_digest, party, columns, parameters, peer: as of `PeerDeletion`.
        linked: the peer has found the people who are common to it and the party (Model III).
    """

    MARK: ClassVar = {"form": "verticil/peer-holding/v1"}

    study_digest: Sha256
    party: str
    columns: Annotated[Mapping[int, Deleted], Key(by=("unit",))]
    parameters: Deleted | None
    peer: str
    linked: Annotated[bool, OPTIONAL] = False


def parse_peer_holding(body: bytes) -> PeerHolding:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.documents.record import encode
    >>> said = PeerHolding(study_digest=bytes(32), party="clinic", peer="insurer", parameters=None,
    ...     columns={0: Deleted(sha256=bytes(32), size=9)})
    >>> parse_peer_holding(encode(said)) == said
    True

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(PeerHolding, body, source="statement of what is held")


def parse_peer_deletion(body: bytes) -> PeerDeletion:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.documents.record import encode
    >>> said = PeerDeletion(study_digest=bytes(32), study_id="hearts", party="clinic", ended="withdrawn", peer="insurer",
    ...     columns={0: Deleted(sha256=bytes(32), size=9)}, parameters=None,
    ...     deleted_at=dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC))
    >>> parse_peer_deletion(encode(said)) == said
    True

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(PeerDeletion, body, source="statement of a deletion")
