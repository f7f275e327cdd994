"""What an offline exchange remembers and answers, at a party and at the miner: the journal of bundles, and the outcome.

The journal says which bundles one side made for the other, and took in from it: a JSON file, replaced as a whole.

Rules for a bundle that arrives
1. One that was taken in before is *repeated*: nothing happens, however often.
2. Its number must be higher than that of every one taken in before; a lower one is refused (it is late, or another bundle has its
   number).
3. The bundle that it answers must be one that this side made.

Numbers may be left out. A bundle says everything that its maker has to say since the last answer that reached it, so one that was
lost on the way is made good by the next one, and when it turns up after all, rule 2 refuses it.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from verticil.shared.core.errors import DataFault, GateFailed, Misuse
from verticil.shared.documents.record import parse, read, write
from verticil.shared.documents.view_models import left_out
from verticil.shared.federation.airgap.bundle import Direction, Reference, Statement
from verticil.shared.federation.transport.errors_on_wire import from_detail
from verticil.shared.federation.transport.version import PROTOCOL_VERSION
from verticil.shared.storage.disk import replace_file, write_fault
from verticil.wire.v1 import carried_pb2

CARRIED_FOLDER: Final = "carried"
"""Where a site keeps its journal, in its state directory."""

_FILE: Final = "journal.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Bundles made and taken in, oldest first.

    Attributes:
        made, taken: by this side, from the other side.
        told: of each made bundle, by its number, what it says that must be known to have arrived: kind and digest of a study.
        refused: serialized `CarriedRefusal` for the last bundle that was taken in.
    """

    MARK: ClassVar = {"form": "verticil/carried-journal/v1"}

    made: tuple[Reference, ...] = ()
    taken: tuple[Reference, ...] = ()
    told: Mapping[str, tuple[tuple[str, bytes], ...]]
    refused: tuple[bytes, ...] = ()

    @property
    def last_taken(self) -> Reference | None:
        """The last bundle of the other side."""
        return self.taken[-1] if self.taken else None

    @property
    def next_number(self) -> int:
        """Of the next bundle that this side makes."""
        return 1 + max((reference.number for reference in self.made), default=0)

    def statement(
        self, federation: str, direction: Direction, party: str, *, made_at: dt.datetime, sealed: bool
    ) -> Statement:
        """Make the statement of this side's next bundle; `pack` adds what the bundle holds."""
        return Statement(
            federation=federation,
            direction=direction,
            party=party,
            number=self.next_number,
            answers=self.last_taken,
            made_at=made_at,
            protocol=PROTOCOL_VERSION,
            sealed=sealed,
            size=0,
            pieces=(),
        )

    def with_made(self, reference: Reference, reports: tuple[tuple[str, bytes], ...] = ()) -> Journal:
        """After another bundle was made."""
        return replace(self, made=(*self.made, reference), told={**self.told, str(reference.number): reports})

    def with_taken(self, reference: Reference, refusals: tuple[bytes, ...] = ()) -> Journal:
        """After another bundle was taken in."""
        return replace(self, taken=(*self.taken, reference), refused=refusals)


def check_arrival(
    journal: Journal, statement: Statement, sha256: bytes, *, accept_older: bool = False
) -> Journal | None:
    """Return whether a bundle is the next, by the rules above.

    Args:
        journal: of this side.
        statement: of the bundle, verified.
        sha256: of the bundle.
        accept_older: the state of this side comes from a backup: go on from what the other side has.

    Returns:
        The journal to go on with; None: the bundle was taken in before.

    Raises:
        GateFailed: BUNDLE_OUT_OF_ORDER.
    """
    arriving = Reference(number=statement.number, sha256=sha256)
    if arriving in journal.taken:
        return None
    last = journal.last_taken
    if last is not None and statement.number <= last.number:
        raise GateFailed(
            "BUNDLE_OUT_OF_ORDER",
            f"{statement.name}, made {statement.made_at:%Y-%m-%dT%H:%M:%SZ}: this side has imported bundle {last.number}, "
            f"{'another one of the same number' if statement.number == last.number else 'which is newer'}",
            hint="import the newest one only; a newer bundle says all that an older one said",
        )
    answers = statement.answers
    if answers is not None and answers not in journal.made:
        if not accept_older:
            raise GateFailed(
                "BUNDLE_OUT_OF_ORDER",
                f"{statement.name}: answers bundle {answers.number} ({answers.sha256.hex()[:16]}) of this side,"
                " which did not make it",
                hint="the state here is older than what was carried: restore the newest backup, or --accept-older",
            )
        return replace(journal, made=(*journal.made, answers))
    return journal


def load_journal(folder: Path) -> Journal:
    """Return the journal in `folder`; an empty one when there is none.

    Raises:
        DataFault: STATE_CORRUPT.
    """
    path = folder / _FILE
    try:
        return read(Journal, parse(path.read_bytes(), source=str(path)))
    except FileNotFoundError:
        return Journal(told={})
    except Misuse:
        raise DataFault("STATE_CORRUPT", f"{path}: cannot be read", hint="restore the newest backup") from None


def last_crossing(folder: Path) -> tuple[dt.datetime | None, Journal]:
    """Return when a bundle was last made or taken in (UTC; None: never), and the journal.

    Raises:
        DataFault: STATE_CORRUPT.
    """
    journal = load_journal(folder)
    if not journal.made and not journal.taken:
        return None, journal
    # The journal is written whole with every crossing, and with nothing else.
    return dt.datetime.fromtimestamp((folder / _FILE).stat().st_mtime, dt.UTC), journal


def store_journal(folder: Path, journal: Journal) -> None:
    """Write the journal, whole or not at all.

    Raises:
        DataFault: DISK_FULL.
    """
    path = folder / _FILE
    try:
        replace_file(path, json.dumps(write(journal), indent=1).encode("ascii"), part=folder / f".{_FILE}.part")
    except OSError as error:
        raise write_fault(error, path) from None


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

    @classmethod
    def told(cls, refusals: Iterable[carried_pb2.CarriedRefusal], teller: str) -> tuple[Refused, ...]:
        """Return the refusals as `teller` says them in a bundle."""
        said = [(refusal.what, from_detail(refusal.error, teller=teller)) for refusal in refusals]
        return tuple(cls(what=what, code=error.code, message=error.message, hint=error.hint) for what, error in said)


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
