"""From approved data to released bytes: what both protocols do before anything goes out.

`fill_spool` draws the noise of the units that are asked for, after the ledger has assessed all of them; `enter_in_ledger` writes
down each attempted send.

Released bytes on the party's disk, named by their SHA-256.

What is in the spool was randomized and is on its way out; raw values never come here. A file appears whole or not at all: it is
written under a temporary name, flushed to the disk, renamed, and the folder is flushed. What a killed process left half
written is removed when the spool is opened.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.log import Event, What
from verticil.party.dataset import perturb, subsets
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import LocalDataset, unit_codes
from verticil.party.policy.ledger_rows import make_audit_fields
from verticil.party.policy.planned_statistics import accounts_of, statistics_of
from verticil.party.protocol.planning import StoppedError
from verticil.party.protocol.statistics import charge_published
from verticil.party.site import Site
from verticil.party.storage.studies import Artifact, StudyRecord
from verticil.shared.core.arrays import Codes, taken
from verticil.shared.core.errors import DataFault, Refusal
from verticil.shared.federation.audit import DAEMON
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.numerics.model import artifact
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import replace_file
from verticil.shared.storage.durable import remove
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables, protocol_of
from verticil.shared.study.tables import profiled

_PART = ".part"
_WORTH_COMPILING: Final = 5_000_000
"""Records from which on the compiled kernels win back the seconds of their import."""
_AT_ONCE: Final = 1 << 18
"""Records that are drawn for together; a multiple of 8, see `artifact.pack_parts`."""
_RESERVE = 1 << 20
"""Free space that is left to the ledger and the state: what is written there must never fail for lack of room."""


def fill_spool(
    site: Site,
    spool: Spool,
    record: StudyRecord,
    *,
    effective: Study,
    holding: LocalDataset,
    rows: NDArray[np.int64],
    units: Collection[int],
    at: dt.datetime,
) -> None:
    """Randomize those of `units` that are not in the spool.

    Args:
        site: this party.
        spool: where released bytes go.
        record: the study.
        effective: the effective study.
        holding: the approved data.
        rows: the common people, in the common order.
        units: own units.
        at: now, for the audit log.

    Raises:
        Refusal: DATA_CHANGED, EPSILON_INFINITE, BUDGET_EXCEEDED; nothing was drawn.
        DataFault: DISK_FULL (before anything is drawn, when it can be foreseen), STATE_CORRUPT.
    """
    holding = holding.renumber(record.task.proposal_study, effective, site.config.name)
    every = site.column_draws(effective, holding)
    reserve(site, record, effective, every)
    column_draws = {index: column_draw for index, column_draw in every.items() if index in units}
    # All of them, before any is drawn.
    assessments = site.ledger.assess(list(column_draws.values()), site.config.policy, study_digest=record.digest)
    artifacts: list[Artifact] = []
    there = site.state.artifacts(record.digest, record.task.effective_digest)
    channels = [effective.units[index].transition for index in column_draws if index not in there]
    spool.ensure_room(
        sum(
            artifact.packed_size(len(rows), channel.n_states, codes_per_record=channel.codes_per_record)
            for channel in channels
        )
    )
    for (index, column_draw), assessment in zip(column_draws.items(), assessments, strict=True):
        if index in there:
            continue
        pieces = _pack_codes(
            site, effective, holding, rows, index=index, column_draw=column_draw, version_tag=assessment.version_tag
        )
        channel = effective.units[index].transition
        item = Artifact(
            unit=index,
            effective_digest=record.task.effective_digest,
            sha256=spool.put(pieces),
            size=artifact.packed_size(len(rows), channel.n_states, codes_per_record=channel.codes_per_record),
            facts=column_draw.to_json(),
            version_tag=assessment.version_tag,
        )
        event = unit_event(What.RANDOMIZED, record, item, charge=assessment.charge.epsilon)
        if opens_tables(effective):  # who knows all other rows could try one person's values against a digest
            event = replace(event, sha256=b"")
        site.audit.record(event, at)
        artifacts.append(item)
    site.state.store_artifacts(record.digest, artifacts)


def _pack_codes(
    site: Site,
    effective: Study,
    holding: LocalDataset,
    rows: NDArray[np.int64],
    *,
    index: int,
    column_draw: ColumnDraw,
    version_tag: bytes,
) -> Iterator[bytes]:
    channel = effective.units[index].transition
    parts = randomize_in_parts(
        holding, rows, effective, index, column_draw=column_draw, version_tag=version_tag, site_secret=site.site_secret
    )
    return artifact.pack_parts(parts, len(rows) * channel.codes_per_record, channel.n_states)


def randomize(
    holding: LocalDataset,
    rows: NDArray[np.int64],
    study: Study,
    index: int,
    *,
    column_draw: ColumnDraw,
    version_tag: bytes,
    site_secret: bytes,
) -> Codes:
    """Return the released codes of one unit in the common order.

    Args:
        holding: this party's people.
        rows: the common ones, in the common order.
        study: the effective study.
        index: of the unit.
        column_draw: what the ledger will say; it names what the noise depends on.
        version_tag: of the ledger's assessment.
        site_secret: of this site.

    Returns:
        (len(rows) * codes per record,), uint8 or uint16; see `perturb.perturb` and, for subset selection, `subsets.select`.
    """
    channel = study.units[index].transition
    n, n_done = len(rows) * channel.codes_per_record, 0
    codes_out: Codes = np.empty(n, np.uint8) if channel.n_states <= 256 else np.empty(n, np.uint16)
    for part in randomize_in_parts(
        holding, rows, study, index, column_draw=column_draw, version_tag=version_tag, site_secret=site_secret
    ):
        codes_out[n_done : n_done + part.size] = part
        n_done += part.size
    return codes_out


def randomize_in_parts(
    holding: LocalDataset,
    rows: NDArray[np.int64],
    study: Study,
    index: int,
    *,
    column_draw: ColumnDraw,
    version_tag: bytes,
    site_secret: bytes,
) -> Iterator[Codes]:
    """Yield what `randomize` gives, `_AT_ONCE` records after the other; only those are in memory."""
    unit = study.units[index]
    key = perturb.unit_key(
        site_secret,
        dataset=column_draw.dataset,
        source_columns=column_draw.sources,
        codebook_digest=column_draw.codebook_digest,
        transition_digest=column_draw.transition_digest,
        version_tag=version_tag,
    )
    channel = unit.transition

    def randomize_part(some: NDArray[np.int64]) -> Codes:
        codes = unit_codes(study, index, {name: taken(holding.codes[name], some) for name in unit.variables})
        if isinstance(channel, Subset):
            return subsets.select(key, taken(holding.tags, some), codes, channel)
        # Both give the same bytes; a small table is done before numba has been imported.
        draw = perturb.perturb if len(rows) >= _WORTH_COMPILING else perturb.perturb_numpy
        return draw(key, taken(holding.tags, some), codes, channel)

    for start in range(0, len(rows), _AT_ONCE):
        yield randomize_part(rows[start : start + _AT_ONCE])


def reserve(site: Site, record: StudyRecord, effective: Study, column_draws: Mapping[int, ColumnDraw]) -> None:
    """Keep room for everything that the study sends and shares, of all data sets; raises as `Ledger.reserve`.

    Args:
        site: this party.
        record: the study.
        effective: the effective study.
        column_draws: of own units.
    """
    sent_units, shared = protocol_of(effective).readable(effective), {}
    for account, events in statistics_of(
        effective, site.config.name, accounts_of(column_draws, site.ledger.account)
    ).items():
        # tables with measured bins were charged with the approval
        left = [
            event for event in events if not (profiled(effective) and site.ledger.has_statistics(record.digest, event))
        ]
        shared[account] = left
    site.ledger.reserve(
        record.digest,
        {index: column_draw for index, column_draw in column_draws.items() if index in sent_units},
        site.config.policy,
        shared=shared,
    )


def refill_spool(
    site: Site, spool: Spool, record: StudyRecord, *, effective: Study, holding: LocalDataset, rows: NDArray[np.int64]
) -> None:
    """Make again what was sent and is no longer in the spool; nothing leaves, so nothing is charged. Arguments as `fill_spool`.

    Raises:
        Refusal: DATA_CHANGED, other bytes come out.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    holding = holding.renumber(record.task.proposal_study, effective, site.config.name)
    column_draws = site.column_draws(effective, holding)
    for index, item in site.state.artifacts(record.digest, record.task.effective_digest).items():
        if spool.holds(item.sha256):
            continue
        pieces = _pack_codes(
            site, effective, holding, rows, index=index, column_draw=column_draws[index], version_tag=item.version_tag
        )
        try:
            spool.put(pieces, sha256=item.sha256)
        except OtherBytesError:
            raise Refusal(
                "DATA_CHANGED", f"study '{effective.id}': unit {index} cannot be made again as it was sent"
            ) from None


def enter_in_ledger(site: Site, record: StudyRecord, item: Artifact, recipient: str, at: dt.datetime) -> None:
    """Write the row of one attempted send, and its line in the audit log; the unit may leave when this returns. Further sends of
    the same bytes to the same recipient are counted, in both.

    Raises as `Ledger.record` and `AuditLog.record`; StoppedError, when the study was revoked or denied since the step was
    planned.
    """
    with site.database.transaction():
        # A decision comes before this row, and is found, or after it, and stops what follows.
        if record.digest in site.revocations.list_stopped():
            raise StoppedError
        _enter(site, record, item, recipient, at)


def _enter(site: Site, record: StudyRecord, item: Artifact, recipient: str, at: dt.datetime) -> None:
    column_draw, again = (
        ColumnDraw.from_json(item.facts),
        site.ledger.has_sent(record.digest, item.unit, recipient, item.sha256),
    )
    effective = record.task.effective_study
    if not site.ledger.columns_sent(record.digest):  # before the first row all of it is kept, or nothing leaves
        artifacts = site.state.artifacts(record.digest, record.task.effective_digest)
        reserve(
            site,
            record,
            effective,
            {unit: ColumnDraw.from_json(artifact.facts) for unit, artifact in artifacts.items()},
        )
    charge_published(site, effective, record.digest, at)
    charge = site.ledger.record(
        column_draw,
        version_tag=item.version_tag,
        policy=site.config.policy,
        study_digest=record.digest,
        study_id=record.study_id,
        unit=item.unit,
        recipient=recipient,
        artifact_sha256=item.sha256,
        size=item.size,
        at=at,
    )
    event = unit_event(What.SEND, record, item, charge=charge.epsilon, recipient=recipient)
    if again and not charge:
        site.audit.again(event, at)
    else:
        numbered_draw = replace(column_draw, event=site.ledger.last_event())
        audit_fields = make_audit_fields(numbered_draw, unit=item.unit, version_tag=item.version_tag, charge=charge)
        site.audit.record(replace(event, ledger=audit_fields), at)


def unit_event(
    what: What,
    record: StudyRecord,
    item: Artifact,
    *,
    charge: float | None = None,
    recipient: str = "",
    peer_event: bytes = b"",
) -> Event:
    """Return the audit log's event of a randomized unit."""
    column_draw = ColumnDraw.from_json(item.facts)
    return Event(
        what=what,
        who=DAEMON,
        study=record.digest,
        study_id=record.study_id,
        columns=column_draw.variables,
        epsilon=column_draw.epsilon,
        charged=charge,
        size=item.size,
        sha256=item.sha256,
        recipient=recipient,
        peer_event=peer_event,
    )


class OtherBytesError(Exception):
    """What was to be stored is not what was expected."""


class Spool:
    """The folder of released bytes.

    Args:
        directory: made (0700) when absent.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with disk_faults(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in directory.glob(f"*{_PART}"):
                leftover.unlink()

    def path(self, sha256: bytes) -> Path:
        """Return the path for the bytes with this digest; the file may be absent."""
        return self.directory / sha256.hex()

    def ensure_room(self, n_bytes: int) -> None:
        """Refuse up front what would not fit, before anything is drawn for it.

        Raises:
            DataFault: DISK_FULL, with the numbers.
        """
        free = shutil.disk_usage(self.directory).free
        if free - n_bytes < _RESERVE:
            raise DataFault(
                "DISK_FULL",
                f"{self.directory}: {n_bytes} bytes are to be sent, the disk has {max(free - _RESERVE, 0)} above the"
                f" reserve of {_RESERVE}",
                hint="make room there; a running daemon then goes on by itself",
            )

    def put(self, pieces: Iterable[bytes], *, sha256: bytes | None = None) -> bytes:
        """Store bytes; when it returns they are on the disk. Storing the same bytes twice is storing them once.

        One at a time: who puts holds `Node.heavy`.

        Args:
            pieces: of them.
            sha256: their SHA-256, where it is known.

        Returns:
            Their SHA-256.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT; the spool is as it was.
            OtherBytesError: they have another SHA-256; the spool is as it was.
        """
        digest = hashlib.sha256()

        def read() -> Iterator[bytes]:
            for piece in pieces:
                digest.update(piece)
                yield piece

        def store_under_digest() -> Path:
            if sha256 is not None and digest.digest() != sha256:
                raise OtherBytesError
            return self.path(digest.digest())

        with disk_faults(self.directory):
            replace_file(store_under_digest, read(), part=self.directory / f"new{_PART}")
        return digest.digest()

    def holds(self, sha256: bytes) -> bool:
        """Return whether the bytes with this digest are there and unharmed (they are read)."""
        try:
            with self.path(sha256).open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest() == sha256
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DataFault("STATE_CORRUPT", f"{self.path(sha256)}: cannot be read ({error.strerror})") from None

    def discard(self, sha256: bytes) -> None:
        """Remove bytes that are not needed any more; the same values can always be made again."""
        remove(self.path(sha256))
