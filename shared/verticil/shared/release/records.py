"""The synthetic records of a release: drawn as its study says, and kept outside memory where there are very many.

The same for the same models and study, however they are kept. Drawing is `synthesis`', writing `formats.tables`'.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.numerics.knowledge.columns import columns as columns_of
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.unlinked_files import KeptRows
from verticil.shared.study.document import Study
from verticil.shared.synthesis.linked_places import inside_bins
from verticil.shared.synthesis.synthesis import CHUNK, decode_of_study, no_numbers, sample_study_codes, written_columns
from verticil.shared.synthesis.table_columns import PIECE, Numbers, PiecewiseTable, WrittenColumn
from verticil.shared.synthesis.within_bins import tilts_of

if TYPE_CHECKING:
    import pandas as pd

IN_ONE_PIECE: Final = 1 << 30
"""Most bytes of codes, and of what drawing them takes, for which the records of a release are drawn together."""
_DRAWING_BYTES: Final = 28  # for each record, while one variable is drawn: group, bucket, rank, category
_SWAPPING_BYTES: Final = 8  # for each cell, while records of a joint model are swapped


def draw_release_records(
    network: Network,
    study: Study,
    n_common: int,
    joint: JointModel | None = None,
    sampled: Sequence[Network] = (),
    *,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[tuple[Codes, ...], pd.DataFrame | PiecewiseTable]:
    """Return the synthetic records of a release, in codes and as a table: the same for the same models and study.

    They come from the joint model where there is one, else from networks of a posterior (`sampled`) where the study's records do:
    in equal parts, record i (from 0) from network i mod M. All meet what the study states of records.

    Up to `PIECE` records the table is a frame. More are kept, codes and table, in a file without a name. As long as the codes of
    all and what drawing them takes fit into `IN_ONE_PIECE` bytes they are drawn together, above in chunks (`sample_chunks`).

    Args:
        network, joint, sampled: the models.
        study: the effective study.
        n_common: people in common.
        folder: for that file; None: the system's for temporary files.
        progress: called with the number of records that are drawn.

    Raises:
        DataFault: LEARNING_FAILED, the network is too wide to be sampled without replacement, or by the study's rules; DISK_FULL.
    """
    rule = study.release
    generator = np.random.Generator(np.random.Philox(rule.seed))
    n, source = rule.synthetic_records or n_common, joint or network
    tilts = tilts_of(sampled if study.records_from == "posterior" else (network,), study)
    if n <= PIECE:
        ((codes, _),) = sample_study_codes(source, study, n, networks=sampled, generator=generator, at_once=n)
        progress(n)
        return tuple(codes), decode_of_study(study, codes, generator, tilts)
    place = Path(tempfile.gettempdir()) if folder is None else folder
    schema, variables = study.schema, columns_of(study.knowledge, study.schema).published
    with disk_faults(place):
        store = _ColumnStore(place, n, schema.variables, variables.variables)
        each = len(schema) * (1 if isinstance(source, Network) else _SWAPPING_BYTES) + _DRAWING_BYTES
        whole = n * each <= IN_ONE_PIECE
        for codes, first in sample_study_codes(
            source, study, n, networks=sampled, generator=generator, at_once=n if whole else CHUNK
        ):
            store.take_codes(first, codes)
            at = dict.fromkeys(variables.names, first)
            for column in _columns(study, codes, generator, tilts, first):
                name = column.variable.name
                store.take(at[name], column)
                at[name] += len(column.codes)
            progress(first + len(codes[0]))
        return store.finish(labelled=study.labels_missing_numbers)


def _columns(
    study: Study, codes: Sequence[Codes], generator: np.random.Generator, tilts: Mapping[int, Floats], first: int
) -> Iterator[WrittenColumn]:
    schema, knowledge = study.schema, study.knowledge
    try:
        yield from written_columns(
            schema,
            codes,
            generator,
            knowledge=knowledge,
            tilts=tilts,
            inside=inside_bins(study),
            first=first,
            at_once=PIECE,
        )
    except ValueError as error:
        raise no_numbers(error) from None


class _ColumnStore:
    """Columns of records that come in batches, kept in a file without a name.

    Args:
        folder: for it.
        n: records.
        variables: of the study.
        published: columns of the table.
    """

    def __init__(self, folder: Path, n: int, variables: Sequence[Variable], published: Sequence[Variable]) -> None:
        self._variables, self._published = tuple(variables), tuple(published)
        widths = {f"code {v}": np.dtype(variable.code_dtype).itemsize for v, variable in enumerate(variables)}
        for variable in published:
            widths[f"published {variable.name}"] = np.dtype(variable.code_dtype).itemsize
            widths[f"numbers {variable.name}"] = 8 if variable.bins is not None else 0
        self._kept = KeptRows(folder, n, widths)
        self._decimals: dict[str, int] = {}

    def take_codes(self, at: int, codes: Sequence[Codes]) -> None:
        """Store the codes of some records from record `at` on, of each variable of the study."""
        for v, (variable, column) in enumerate(zip(self._variables, codes, strict=True)):
            self._kept.write(f"code {v}", at, column.astype(variable.code_dtype, copy=False))

    def take(self, at: int, column: WrittenColumn) -> None:
        """Some records of a column of the table, from record `at` on."""
        variable = column.variable
        self._kept.write(f"published {variable.name}", at, column.codes.astype(variable.code_dtype, copy=False))
        if column.numbers is not None:
            self._kept.write(f"numbers {variable.name}", at, column.numbers)
            self._decimals[variable.name] = column.decimals

    def finish(self, *, labelled: bool) -> tuple[tuple[Codes, ...], PiecewiseTable]:
        """Return the codes and the table."""
        arrays = self._kept.arrays()

        def codes(name: str, variable: Variable) -> Codes:
            raw = arrays[name].reshape(-1)
            return raw if np.dtype(variable.code_dtype).itemsize == 1 else raw.view(np.uint16)

        def numbers(name: str, variable: Variable) -> Numbers:
            raw = arrays[name].reshape(-1)
            return raw.view(np.int64) if variable.integer else raw.view(np.float64)

        columns = [
            WrittenColumn(
                variable=variable,
                codes=codes(f"published {variable.name}", variable),
                numbers=None if variable.bins is None else numbers(f"numbers {variable.name}", variable),
                decimals=self._decimals.get(variable.name, 0),
            )
            for variable in self._published
        ]
        own = tuple(codes(f"code {v}", variable) for v, variable in enumerate(self._variables))
        return own, PiecewiseTable(columns, with_labels=labelled)
