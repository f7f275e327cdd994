"""What the catalogue returns: the durable facts of one study, as frozen values.

No state is stored. `verticil.shared.study.states` derives it from these facts, so that a miner that was killed at any moment
and started again comes to the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from verticil.shared.core.errors import VerticilError
from verticil.wire.v1 import common_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignature:
    """A signed statement as it came or went: body (canonical JSON), Ed25519 signature, signer's certificate (DER)."""

    body: bytes
    signature: bytes
    certificate: bytes

    @classmethod
    def of(cls, signed: common_pb2.Signed) -> Self:
        """Make the same statement, to be kept."""
        return cls(body=signed.body, signature=signed.signature, certificate=signed.certificate)

    @property
    def message(self) -> common_pb2.Signed:
        """As it goes over the wire."""
        return common_pb2.Signed(body=self.body, signature=self.signature, certificate=self.certificate)


class Bitmap(NamedTuple):
    """Size and SHA-256 of a party's bitmap."""

    size: int
    sha256: bytes


class Hop(NamedTuple):
    """Whose blinded list it is, by position in the study, and behind which hop."""

    owner: int
    hop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A party's certificate.

    Attributes:
        party: whose.
        serial: lower-case hex.
        not_before, not_after: when it is valid, ISO 8601, UTC.
        carried_at: when the last file of the party's came, ISO 8601; empty: the party came over a line last.
    """

    party: str
    serial: str
    not_before: str
    not_after: str
    carried_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredList:
    """A party's list. `committed` bytes of `size` are on disk; `complete` when digest and order were checked."""

    size: int
    sha256: bytes
    committed: int = 0
    complete: bool = False

    def is_same(self, other: StoredList) -> bool:
        """Return whether both have the same size and SHA-256."""
        return (self.size, self.sha256) == (other.size, other.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlinded(StoredList):
    """A blinded list at one hop (linkage dh-psi), with the statement that the party that sent it signed."""

    statement: StoredSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An artifact in transit. `committed` bytes of `size` are on disk."""

    upload_id: str
    study: bytes
    unit: int
    size: int
    sha256: bytes
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A unit whose artifact was verified, unpacked and receipted.

    Attributes:
        upload_id: of the upload that brought it; finishing that again gives the same receipt.
        artifact_sha256, artifact_size: of the packed artifact, as the receipt says.
        n_records: records in the column; each has as many codes as the unit's channel says.
        item_bytes: 1 or 2.
        column_sha256: of the file of codes.
        receipt: what the party got; the same bytes for every repetition.
    """

    unit: int
    upload_id: str
    artifact_sha256: bytes
    artifact_size: int
    n_records: int
    item_bytes: int
    column_sha256: bytes
    receipt: StoredSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """A file that may be fetched; no other name is ever opened."""

    path: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a study ended: a code of the tree of errors, message, hint."""

    code: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: VerticilError | common_pb2.ErrorDetail) -> Self:
        """Make the same failure, to be kept."""
        return cls(code=error.code, message=error.message, hint=error.hint)

    @property
    def detail(self) -> common_pb2.ErrorDetail:
        """As it goes over the wire."""
        return common_pb2.ErrorDetail(code=self.code, message=self.message, hint=self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A party took its approval back: what the person wrote, and when the miner heard of it (ISO 8601)."""

    reason: str
    revoked_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """The miner's operator closed a study: what the person wrote, and when (ISO 8601)."""

    reason: str
    closed_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """Everything the miner durably knows of one study.

    Attributes:
        digest: of the proposal.
        sequence: order of submission.
        version: grows with every change of a fact.
        effective, effective_digest: set with the last approval.
        approvals, denials (reasons), lists: by party.
        bitmaps: size and SHA-256 of each party's bitmap; set with `n_common` and `common_sha256`.
        confirmed: parties that recomputed the common list and accept it.
        columns: by unit.
        damaged: by unit: columns that were receipted and then found damaged on the disk; they are asked for again.
        uploading: an upload has begun.
        learning: None, or the stage that was reached: ``estimating`` or ``learning``.
        attempts: how often learning came to nothing: its process died without a word, or columns were damaged.
        failure: set when the study failed.
        withdrawn, expired: whether it ended so.
        published_at: ISO 8601; None before.
        linkage_removed, columns_removed: whether those files were deleted after the end.
        revocations: by party; they end a study that is not published.
        closure: set when the miner's operator closed it; it is withdrawn, too.
        deletions: by party: what the miner signed that it deleted.
        review_manifest: SHA-256 of the manifest of the release that waits for countersignatures, or waited; empty: none does.
        countersignatures: of that release, by party.
        commitments: by party, its signed statement of the common list (linkage order-commitment and dh-psi).
        declined: reasons of the parties that denied while the study may go on without them; others are in `denials`.
        sub_model: the miner's signed statement of the sub-model that the study became; None: all parties are in it.
        decided_at: when it was fixed, ISO 8601.
        blinded: by owner and hop, see `verticil.miner.storage.linkage` (linkage dh-psi).
        void_approvals: by party that had approved with a certificate before it was revoked, when it was (ISO 8601); the party may
            have approved anew.
    """

    digest: bytes
    sequence: int
    study_id: str
    version: int
    proposal: bytes
    submitter: str
    submitted_at: str
    effective: bytes
    effective_digest: bytes
    approvals: Mapping[str, StoredSignature]
    denials: Mapping[str, str]
    lists: Mapping[str, StoredList]
    bitmaps: Mapping[str, tuple[int, bytes]]
    n_common: int | None
    common_sha256: bytes
    confirmed: frozenset[str]
    columns: Mapping[int, StoredColumn]
    uploading: bool
    learning: str | None
    attempts: int
    failure: Failure | None
    withdrawn: bool
    expired: bool
    published_at: str | None
    linkage_removed: bool
    columns_removed: bool
    revocations: Mapping[str, Revocation]
    deletions: Mapping[str, StoredSignature]
    review_manifest: bytes = b""
    countersignatures: Mapping[str, StoredSignature] = field(default_factory=dict)
    commitments: Mapping[str, StoredSignature] = field(default_factory=dict)
    blinded: Mapping[tuple[int, int], StoredBlinded] = field(default_factory=dict)
    declined: Mapping[str, str] = field(default_factory=dict)
    sub_model: StoredSignature | None = None
    decided_at: str | None = None
    closure: Closure | None = None
    void_approvals: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[int, StoredColumn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredStudy:
    """What is known of a study between peers whose structure the miner searches.

    Attributes:
        digest: of the effective study.
        effective: its canonical bytes.
        parties: whose scores are here.
        structure: the signed structure; None before.
        failure: set when the search failed.
    """

    digest: bytes
    effective: bytes
    parties: frozenset[str]
    structure: StoredSignature | None
    failure: Failure | None
