"""The synthetic records of a release, read back and held against the network that they are said to be drawn from.

`read_records` turns synthetic.csv and synthetic.parquet into codes, piece by piece; their writer may mean harm.
`unlikely_family` is the test. Every record is drawn family by family, so given the counts of a family's parent configurations
n_j the counts n_jk of its child are draws from the published rows p_j. With p^_jk = n_jk / n_j, of K_j possible categories,

    G = sum_j n_j KL(p^_j || p_j),      P(G >= t) <= exp(-t) (e t / D)^D   for t > D = sum_j (K_j - 1),

because the moments of each term are at most those of a gamma variable of shape K_j - 1 (Agrawal 2020, for any n_j and p_j; no
approximation for many records). The bound is for independent draws; the other ways of drawing scatter less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.errors import GateFailed
from verticil.shared.model.network import Family, Network
from verticil.shared.model.schema import Schema, Variable

if TYPE_CHECKING:
    import pyarrow as pa

Codes = NDArray[np.uint16]

TABLES: Final = ("synthetic.csv", "synthetic.parquet")
_BATCH: Final = 65_536  # records
_BLOCK_BYTES: Final = 2**20
_NUMBER: Final = 25  # bytes of a written one


def table_bytes(schema: Schema, n_records: int) -> int:
    """Most bytes of a written table of so many records, compressed or not."""
    widths = [max(_NUMBER, *(2 * len(label.encode()) + 3 for label in item.labels)) for item in schema.variables]
    labels = sum(8 * len(label.encode()) + 64 for item in schema.variables for label in (item.name, *item.labels))
    return _BLOCK_BYTES + labels + n_records * sum(widths)


def read_records(path: Path, schema: Schema, n_records: int) -> list[Codes]:
    """Read a table of synthetic records.

    Args:
        path: synthetic.csv or synthetic.parquet.
        schema: what its columns are, in their order.
        n_records: how many there must be; of more not even the first is kept.

    Returns:
        (n_records,) codes of each variable.

    Raises:
        GateFailed: RELEASE_INVALID, it is not such a table.
    """
    import pyarrow as pa

    codes = [np.empty(n_records, dtype=np.uint16) for _ in schema.variables]
    done = 0
    try:
        for batch in (_csv if path.suffix == ".csv" else _parquet)(path, schema, n_records):
            if done + batch.num_rows > n_records:
                raise _invalid(path, f"has more than the {n_records} records of the study")
            for variable, target, column in zip(schema.variables, codes, batch.columns, strict=True):
                target[done : done + batch.num_rows] = _codes(path, variable, column)
            done += batch.num_rows
    except (pa.ArrowException, OSError, ValueError):
        raise _invalid(path, "is not a table of the study's columns") from None
    if done != n_records:
        raise _invalid(path, f"has {done} records, expected {n_records}")
    return codes


def _csv(path: Path, schema: Schema, n_records: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import csv

    del n_records
    reader = csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(schema.names, pa.string()), strings_can_be_null=False
        ),
    )
    with reader:
        _check_names(path, reader.schema.names, schema)
        yield from reader


def _parquet(path: Path, schema: Schema, n_records: int) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names, schema)
        if file.metadata.num_rows != n_records:
            raise _invalid(path, f"says that it has {file.metadata.num_rows} records, expected {n_records}")
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > table_bytes(schema, n_records):
            raise _invalid(path, f"is larger than {n_records} records of the study can be")
        yield from file.iter_batches(batch_size=_BATCH, use_threads=False)


def _check_names(path: Path, names: Sequence[str], schema: Schema) -> None:
    if tuple(names) != schema.names:
        raise _invalid(path, "has other columns than the study")


def _codes(path: Path, variable: Variable, column: pa.Array) -> Codes:
    """The codes behind what `synthesis.decode` wrote."""
    import pyarrow as pa

    column.validate(
        full=True
    )  # an index of a foreign dictionary may point nowhere; a ValueError is the reader's to tell
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    places = {label: code for code, label in enumerate(variable.labels) if code >= variable.n_bins}
    edges = () if variable.bins is None else variable.bins
    if edges and len(places) == 1:
        places[""] = variable.n_bins  # the number that is none
    values = [*encoded.dictionary.to_pylist(), ""]  # the last one is null's
    meaning = np.array([_code(value, places, edges) for value in values], dtype=np.int64)
    if not len(column):
        return np.empty(0, dtype=np.uint16)
    index = encoded.indices.cast(pa.int64()).fill_null(len(values) - 1)
    index = np.from_dlpack(index).view(np.int64)  # to_numpy would import pandas
    codes = meaning[index]
    if (codes < 0).any():
        raise _invalid(path, f"column '{variable.name}' has an entry that is none of its categories or bins")
    return np.asarray(codes, dtype=np.uint16)


def _code(value: object, places: dict[str, int], edges: Sequence[float]) -> int:
    """The code of one written value; -1: none."""
    if isinstance(value, str) and value in places:
        return places[value]
    if not edges or value == "" or not isinstance(value, str | int | float):
        return -1
    number = float(value)  # a ValueError is the reader's to tell
    if not edges[0] <= number <= edges[-1]:
        return -1
    return min(int(np.searchsorted(edges, number, side="right")) - 1, len(edges) - 2)


def unlikely_family(network: Network, codes: Sequence[Codes], level: float) -> int | None:
    """The first variable whose synthetic records cannot have been drawn from its family.

    Args:
        network: what they are said to be drawn from.
        codes: (n,) of each variable.
        level: how often, at most, any variable of records that were drawn from it is named.

    Returns:
        Its position; None: there is none.
    """
    limit = math.log(level / len(network.families))
    n_states = network.schema.n_states
    for family in network.families:
        divergence, freedom = _divergence(family, codes, n_states)
        if divergence > freedom and freedom * math.log(math.e * divergence / freedom) - divergence < limit:
            return family.child
    return None


def _divergence(family: Family, codes: Sequence[Codes], n_states: Sequence[int]) -> tuple[float, int]:
    """G and D of the module's text; an impossible category that occurs makes G infinite."""
    rows = np.zeros(len(codes[family.child]), dtype=np.int64)
    for parent in family.parents:
        rows = rows * n_states[parent] + codes[parent]
    width = n_states[family.child]
    counts = np.bincount(rows * width + codes[family.child], minlength=family.probability.size)
    counts = counts.reshape(-1, width)
    totals = counts.sum(axis=1, keepdims=True)
    occurs = counts > 0
    if (family.probability[occurs] == 0).any():
        return math.inf, 1
    ratio = (counts / np.maximum(totals, 1))[occurs] / family.probability[occurs]
    possible = np.count_nonzero(family.probability, axis=1)[totals[:, 0] > 0]
    return float((counts[occurs] * np.log(ratio)).sum()), max(int((possible - 1).sum()), 1)


def _invalid(path: Path, problem: str) -> GateFailed:
    return GateFailed("RELEASE_INVALID", f"{path.name}: {problem}", hint="deny the study, and ask the miner's operator")
