"""What one side remembers of the bundles that it made for the other, and took in from it. A JSON file, replaced as a whole.

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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from verticil.shared.airgap.statement import Reference, Statement
from verticil.shared.disk import replace_file, write_fault
from verticil.shared.errors import DataFault, GateFailed

CARRIED_FOLDER: Final = "carried"
"""Where a site keeps its journal, in its state directory."""

_FILE: Final = "journal.json"
_FORM: Final = "verticil/carried-journal/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Bundles made and taken in, oldest first.

    Attributes:
        made, taken: by this side, from the other side.
        told: of each made bundle, what it tells that must be known to have arrived: kind and digest of a study.
        refused: serialized `CarriedRefusal` for the last bundle that was taken in.
    """

    made: tuple[Reference, ...] = ()
    taken: tuple[Reference, ...] = ()
    told: Mapping[int, tuple[tuple[str, bytes], ...]]
    refused: tuple[bytes, ...] = ()

    @property
    def next_number(self) -> int:
        """Of the next bundle that this side makes."""
        return 1 + max((reference.number for reference in self.made), default=0)

    @property
    def last_taken(self) -> Reference | None:
        """The last bundle of the other side."""
        return self.taken[-1] if self.taken else None

    def with_made(self, reference: Reference, told: tuple[tuple[str, bytes], ...] = ()) -> Journal:
        """After another bundle was made."""
        return replace(self, made=(*self.made, reference), told={**self.told, reference.number: told})

    def with_taken(self, reference: Reference, refused: tuple[bytes, ...] = ()) -> Journal:
        """After another bundle was taken in."""
        return replace(self, taken=(*self.taken, reference), refused=refused)


def check_arrival(
    journal: Journal, statement: Statement, sha256: bytes, *, accept_older: bool = False
) -> Journal | None:
    """Whether a bundle is the next, by the rules above.

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
        same = " and is another bundle of the same number" if statement.number == last.number else ""
        raise GateFailed(
            "BUNDLE_OUT_OF_ORDER",
            f"{statement.name}, made {statement.made_at:%Y-%m-%dT%H:%M:%SZ}: bundle {last.number} was imported before{same}",
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
    """The journal in `folder`; an empty one when there is none.

    Raises:
        DataFault: STATE_CORRUPT.
    """
    path = folder / _FILE
    try:
        said = cast("dict[str, object]", json.loads(path.read_bytes()))
        if said["form"] != _FORM:
            raise ValueError(_FORM)
        told = cast("dict[str, list[list[str]]]", said["told"])
        return Journal(
            made=_references(said["made"]),
            taken=_references(said["taken"]),
            told={int(n): tuple((kind, bytes.fromhex(digest)) for kind, digest in of) for n, of in told.items()},
            refused=tuple(bytes.fromhex(refusal) for refusal in cast("list[str]", said["refused"])),
        )
    except FileNotFoundError:
        return Journal(told={})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataFault("STATE_CORRUPT", f"{path}: cannot be read", hint="restore the newest backup") from None


def last_crossing(folder: Path) -> tuple[dt.datetime | None, Journal]:
    """When a bundle was last made or taken in (UTC; None: never), and the journal.

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
    said = {
        "form": _FORM,
        "made": [_reference(reference) for reference in journal.made],
        "taken": [_reference(reference) for reference in journal.taken],
        "told": {str(n): [[kind, digest.hex()] for kind, digest in of] for n, of in journal.told.items()},
        "refused": [refusal.hex() for refusal in journal.refused],
    }
    path = folder / _FILE
    try:
        replace_file(path, json.dumps(said, indent=1).encode("ascii"), part=folder / f".{_FILE}.part")
    except OSError as error:
        raise write_fault(error, path) from None


def _reference(reference: Reference) -> dict[str, object]:
    return {"number": reference.number, "sha256": reference.sha256.hex()}


def _references(value: object) -> tuple[Reference, ...]:
    items = cast("list[dict[str, object]]", value)
    return tuple(
        Reference(number=cast("int", item["number"]), sha256=bytes.fromhex(cast("str", item["sha256"])))
        for item in items
    )
