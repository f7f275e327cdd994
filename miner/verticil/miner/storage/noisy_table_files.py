"""The tables of a study with noise on tables, in a file: what the miner counted for a moment, and what it learns from.

    "VTTABLE1" ‖ binding (32 bytes) ‖ SHA-256 of what precedes and follows ‖ counts

The counts are those of `verticil.shared.study.tables.tables_of`, one table after the other, each in C order, int64,
little-endian; which tables, and of which shapes, the study says. Noisy tables of two resolutions are followed by those in runs,
whose shapes follow from the counts before them. The *binding* is a digest of all that the counts are a function
of but for the noise's key: the effective study, the columns, how many people there are, and sigma. A file is read whole and
strictly: one that is torn, of another study, or longer or shorter than it must be, is STATE_CORRUPT.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from verticil.miner.learning.exact_tables import coarse_runs, tables_with, with_coarse
from verticil.miner.storage.store import write_durably
from verticil.shared.core.arrays import Ints
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.study.canonical import digest
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import table_deviations
from verticil.shared.study.tables import coarse_pairs, tables_of

_MAGIC: Final = b"VTTABLE1"
_HEADER: Final = len(_MAGIC) + 64


def binding_of_tables(study: Study, columns: Sequence[bytes], n_records: int, sigma: float) -> bytes:
    """Return the SHA-256 of what tables are counted from, and of the noise on them.

    Args:
        study: the effective study.
        columns: SHA-256 of the stored column of each unit.
        n_records: how many people there are.
        sigma: parameter of the noise; 0: none.
    """
    parts_of_binding = [digest(study).hex(), [column.hex() for column in columns], n_records, str(sigma)]
    return hashlib.sha256(json.dumps(parts_of_binding).encode("ascii")).digest()


def write_tables(path: Path, tables: NoisyTables, binding: bytes) -> None:
    """Put the tables in their place, durably, whole or not at all.

    Args:
        path: the file; its folder exists.
        tables: whole numbers, in the order of `tables_of`, and of `coarse_pairs`.
        binding: see `binding_of_tables`.

    Raises:
        DataFault: DISK_FULL.
    """
    counts = b"".join(np.ascontiguousarray(table.counts, dtype="<i8").tobytes() for table in tables.all_tables)
    head = _MAGIC + binding
    write_durably(path, head + hashlib.sha256(head + counts).digest() + counts)


def read_tables(path: Path, study: Study, n_records: int, binding: bytes, *, noisy: bool) -> NoisyTables:
    """Read what `write_tables` wrote.

    Args:
        path: the file.
        study: the effective study.
        n_records: how many people there are.
        binding: that it must have.
        noisy: whether the counts have the study's noise, or are exact.

    Raises:
        DataFault: STATE_CORRUPT.
        FileNotFoundError: there is none.
    """
    data = path.read_bytes()
    head, counts = _MAGIC + binding, data[_HEADER:]
    sizes = [unit.transition.n_states for unit in study.units]
    shapes = [tuple(sizes[unit] for unit in units) for units in tables_of(study)]
    n_bytes = 8 * sum(map(math.prod, shapes))

    def damaged() -> DataFault:
        other = len(data) >= _HEADER and data[: len(head)] != head
        problem = "they are of another study" if other else "their bytes are not those that were written"
        return DataFault("STATE_CORRUPT", f"{path.name} of study '{study.id}': {problem}")

    if data[:_HEADER] != head + hashlib.sha256(head + counts).digest() or len(counts) < n_bytes:
        raise damaged()
    parts, deviations = _tables_in(counts[:n_bytes], shapes), table_deviations(study) if noisy else None
    tables, rest = tables_with(study, parts, n_records, deviations=deviations), counts[n_bytes:]
    pairs = coarse_pairs(study) if noisy else ()
    sizes = [int(runs.max()) + 1 for runs in coarse_runs(study, tables)] if pairs else []
    shapes = [tuple(sizes[unit] for unit in units) for units in pairs]
    if len(rest) != 8 * sum(map(math.prod, shapes)):
        raise damaged()
    return with_coarse(study, tables, _tables_in(rest, shapes)) if pairs else tables


def _tables_in(data: bytes, shapes: Sequence[tuple[int, ...]]) -> list[Ints]:
    """Return the tables of some shapes that bytes hold, one after the other."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = np.split(np.frombuffer(data, dtype="<i8"), ends)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
