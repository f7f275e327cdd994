"""What an export, an import or a closure answers its operator, at a party and at the miner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verticil.shared.view import left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStage:
    """Where a study stands; `stage`: what the party does about it."""

    study: str
    digest: str
    state: str
    stage: str | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Entries of one kind in a bundle, and their bytes."""

    number: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A bundle that was written.

    Attributes:
        party: for whom; None: for the miner.
        file, bundle, bytes: where, its number, and how large.
        answers: number of the last bundle of the other side; None: there is none.
        sealed: only the other side can read it.
        holds: of each kind.
    """

    party: str | None = left_out()
    file: str
    bundle: int
    answers: int | None
    sealed: bool
    bytes: int
    holds: Mapping[str, Held] | None = left_out()
    studies: tuple[StudyStage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What the other side did not accept, and why."""

    what: str
    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A bundle that was taken in.

    Attributes:
        party: whose; None: the miner's.
        bundle, sha256: which.
        repeated: it had been taken in before.
        skipped: numbers of bundles that never arrived.
        releases: folders that were written.
    """

    party: str | None = left_out()
    bundle: int
    sha256: str
    repeated: bool
    skipped: tuple[int, ...] | None = left_out()
    refused: tuple[Refused, ...]
    studies: tuple[StudyStage, ...]
    releases: tuple[str, ...] | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A study that the miner's operator has ended."""

    study: str
    digest: str
    submitter: str
    state: str
    reason: str
