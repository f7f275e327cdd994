"""Whether the miner remembers what it knew: its catalogue is held against its audit log and against the studies' folders.

A catalogue is never behind either of them. A study has its folder only after it is in the catalogue, and the audit log says from
time to time how many studies and versions there were, which only grow. So a catalogue that is empty or older beside them has lost
something (an old copy, a lost or broken ``catalogue.sqlite-wal``, a file that was put elsewhere), and a miner that went on would
keep columns of studies that it does not know. It does not start; with `accept_older` it ends what it has forgotten: linkage and
columns are deleted, and a party that asks for such a study learns it (`PollReply.forgotten`).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.miner.storage.audit import CatalogueSize, MinerAudit
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.schema import CATALOGUE, SCHEMA
from verticil.miner.storage.store import Store
from verticil.shared.core.errors import DataFault
from verticil.shared.storage.database import inspect, looking, version_of

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What a state directory knows.

    Attributes:
        found: studies and versions in the catalogue; None: it is empty, or not there.
        anchored: what the audit log says last.
        used: there is an audit log.
        strangers: digests of the folders of studies that the catalogue does not know.
    """

    found: CatalogueSize | None
    anchored: CatalogueSize
    used: bool
    strangers: frozenset[bytes]

    @property
    def loss(self) -> str:
        """What is lost, in words; empty: nothing."""
        if self.found is None:
            return "there is none" if self.used or self.strangers else ""
        if self.found.studies < self.anchored.studies or self.found.versions < self.anchored.versions:
            return f"it has {self.found.words}, and the audit log counts {self.anchored.words}"
        return f"it does not know {len(self.strangers)} studies that have a folder" if self.strangers else ""


def check_memory(directory: Path) -> None:
    """Check that the catalogue is not behind the audit log and the studies' folders; changes nothing.

    Raises:
        DataFault: CATALOGUE_OLDER; STATE_CORRUPT, the catalogue or the audit log cannot be read.
    """
    memory = _look(directory)
    if memory.loss:
        strangers = ", ".join(sorted(digest.hex()[:16] for digest in memory.strangers)[:5])
        raise DataFault(
            "CATALOGUE_OLDER",
            f"{directory / CATALOGUE}: {memory.loss}" + (f"; without facts: {strangers}" if strangers else ""),
            hint="restore the newest backup of the whole state directory first; where there is none,"
            " `verticil miner run --accept-older` ends what was forgotten and tells the parties",
        )


def end_forgotten(store: Store, catalogue: Catalogue, at: dt.datetime) -> None:
    """Go on from an older catalogue: end the studies that it does not know, and write that into the audit log. Repeatable."""
    memory = _look(store.root)
    if not memory.loss:
        return
    catalogue.forgotten.add(memory.strangers, f"{at:%Y-%m-%dT%H:%M:%SZ}")
    for digest in memory.strangers:
        files = store.study(digest)
        files.remove_linkage()
        files.remove_columns()
    MinerAudit(store.root).accept(catalogue.known(), at, loss=memory.loss, ended_studies=sorted(memory.strangers))


def _look(directory: Path) -> _Memory:
    audit = MinerAudit(directory)
    counts, digests_in_catalogue = _catalogue(directory / CATALOGUE)
    folders = (path.name for path in (directory / "studies").glob("*"))
    digests = frozenset(bytes.fromhex(name) for name in folders if _DIGEST.fullmatch(name))
    return _Memory(
        found=counts, anchored=audit.last_anchor(), used=audit.is_used, strangers=digests - digests_in_catalogue
    )


def _catalogue(path: Path) -> tuple[CatalogueSize | None, frozenset[bytes]]:
    """Return what a catalogue counts, and the digests that it knows or has ended. Only reads."""
    if not version_of(path, SCHEMA):
        return None, frozenset()
    with looking(path) as connection:
        rows: list[tuple[bytes, int]] = connection.execute("SELECT digest, version FROM study").fetchall()
        ended_rows: list[tuple[bytes]] = connection.execute("SELECT digest FROM forgotten").fetchall()
    counts = CatalogueSize(studies=len(rows), versions=sum(row[1] for row in rows))
    return counts, frozenset([*(digest for digest, _ in rows), *(digest for (digest,) in ended_rows)])


def inspect_catalogue(directory: Path) -> int:
    """Check the catalogue of a state directory as `verticil doctor` does: whole, of a known version, and not behind. Only reads.

    Returns:
        The version of its schema; 0: there is none yet, and nothing says that there was one.

    Raises:
        DataFault: STATE_CORRUPT, damaged or of a newer version; STATE_READ_ONLY, it cannot be opened there; CATALOGUE_OLDER.
    """
    version = inspect(directory / CATALOGUE, SCHEMA)
    check_memory(directory)
    return version
