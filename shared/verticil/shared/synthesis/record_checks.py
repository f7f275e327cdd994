"""The synthetic records of a release, read back and held against the model that they are said to be drawn from.

`read_records` turns synthetic.csv and synthetic.parquet into codes, piece by piece; their writer may mean harm.
`unlikely_family` is the test. Every record is drawn family by family, so given the counts of a family's parent configurations
n_j the counts n_jk of its child are draws from the published rows p_j. With p^_jk = n_jk / n_j, of K_j possible categories,

    G = sum_j n_j KL(p^_j || p_j),      P(G >= t) <= exp(-t) (e t / D)^D   for t > D = sum_j (K_j - 1),

because the moments of each term are at most those of a gamma variable of shape K_j - 1 (Agrawal 2020, for any n_j and p_j; no
approximation for many records). The bound is for independent draws; the other ways of drawing scatter less. Where a study states
rules, every record has to meet them, and the rows are those that records are drawn by given the rules (`elimination.condition`);
where these tables are too large, the rules are all that records are held against.

`unlikely_variables` does the same with a joint model: the counts of every pair of variables are draws from the model's table of
the pair, of as many categories as it has combinations. Weighted records have besides no record that is none of them.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Codes, Floats, Ints, combination_numbers, give_back, typed
from verticil.shared.core.errors import GateFailed
from verticil.shared.documents.foreign_files.parquet_pages import LargePagesError, check_footer, page_sizes
from verticil.shared.numerics.knowledge.columns import Columns, columns
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.knowledge.support import Support, support
from verticil.shared.numerics.model.elimination import TooWideError, condition
from verticil.shared.numerics.model.joint import JointModel, WeightedRecords
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.unlinked_files import KeptRows
from verticil.shared.study.document import IdentifierRule
from verticil.shared.synthesis.identifier import has_keys, key_bytes
from verticil.shared.synthesis.ordered_numbers import broken_order
from verticil.shared.synthesis.synthesis import decimals_of
from verticil.shared.synthesis.table_columns import PIECE, cell_counts
from verticil.shared.synthesis.typed_columns import codes_of, numbers_of_values
from verticil.shared.synthesis.within_bins import Tilts

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


TABLES: Final = ("synthetic.csv", "synthetic.parquet")
IN_MEMORY: Final = 1 << 26
"""Most bytes of codes of a table that are held in memory when it is read."""
_BATCH: Final = 65_536  # records
_BLOCK_BYTES: Final = 2**20
_NUMBER: Final = 25  # bytes of a written one
_MOMENT: Final = 160  # bytes of a date that is written in a format

FALSE_ALARMS: Final = 5e-7
"""Of releases whose records were drawn from their model, so many are refused at most for their records."""


def table_bytes(schema: Schema, n_records: int, identifier: IdentifierRule | None = None) -> int:
    """Most bytes of a written table of so many records, with their key, compressed or not."""
    widths = [
        max(_MOMENT if item.format else _NUMBER, *(2 * len(label.encode()) + 3 for label in item.labels))
        for item in schema.variables
    ]
    labels = sum(8 * len(label.encode()) + 64 for item in schema.variables for label in (item.name, *item.labels))
    if identifier is not None:
        widths.append(2 * key_bytes(identifier) + 16)  # in Parquet a key stands in a dictionary, and as its place there
    return _BLOCK_BYTES + labels + n_records * sum(widths)


def read_records(
    path: Path,
    schema: Schema,
    n_records: int,
    knowledge: Knowledge | None = None,
    *,
    identifier: IdentifierRule | None = None,
) -> list[Codes]:
    """Read a table of synthetic records, and check that they keep what the study states of all records.

    Args:
        path: synthetic.csv or synthetic.parquet.
        schema: the study's variables, in their order.
        n_records: how many there must be; of more not even the first is kept.
        knowledge: what the study states; the table has the columns of `knowledge.columns`. None: nothing.
        identifier: the key that stands in front; None: there is none.

    Returns:
        (n_records,) codes of each variable, read-only. Above `IN_MEMORY` bytes they are in a file without a name in the folder
        of the table or, where that cannot be written to, in the system's for temporary files.

    Raises:
        GateFailed: RELEASE_INVALID, it is not such a table.
        DataFault: DISK_FULL, STATE_CORRUPT, that folder.
    """
    widths = {variable.name: np.dtype(variable.code_dtype).itemsize for variable in schema.variables}
    place = path.parent if os.access(path.parent, os.W_OK) else Path(tempfile.gettempdir())
    with disk_faults(place):
        rows = KeptRows(place if n_records * sum(widths.values()) > IN_MEMORY else None, n_records, widths)
        for start, part in _parts(path, schema, n_records, knowledge, identifier):
            for variable, column in zip(schema.variables, part, strict=True):
                rows.write(variable.name, start, column.astype(variable.code_dtype, copy=False))
        arrays = rows.arrays()
    return [typed(arrays[name].reshape(-1), width) for name, width in widths.items()]


def read_both(
    folder: Path,
    schema: Schema,
    n_records: int,
    knowledge: Knowledge | None = None,
    *,
    identifier: IdentifierRule | None = None,
) -> tuple[list[Codes], str]:
    """Read both tables of a release, of which one is kept.

    Args:
        folder: the release.
        schema, n_records, knowledge, identifier: see `read_records`.

    Returns:
        The codes of `read_records`, and what differs between the tables; empty: they hold the same records.

    Raises:
        GateFailed, DataFault: as `read_records`.
    """
    text, binary = (folder / name for name in TABLES)
    codes = read_records(text, schema, n_records, knowledge, identifier=identifier)
    for start, part in _parts(binary, schema, n_records, knowledge, identifier):
        for name, one, other in zip(schema.names, codes, part, strict=True):
            some = one[start : start + len(other)]
            if not np.array_equal(some, other):
                return codes, f"column '{name}': {text.name} and {binary.name} hold different records"
            give_back(some)
    return codes, ""


def _parts(
    path: Path, schema: Schema, n_records: int, knowledge: Knowledge | None, identifier: IdentifierRule | None
) -> Iterator[tuple[int, list[Codes]]]:
    """Read the codes of some records after the other, and the number of the first one; raises as `read_records`."""
    import pyarrow as pa

    release_columns, rules = columns(knowledge, schema), support(knowledge, schema)
    schema_written, orders = release_columns.published, () if knowledge is None else knowledge.orders
    names_in_orders = {name for order in orders for name in order.variables}
    n_read, n_keys = 0, int(identifier is not None)
    try:
        for batch in (_csv if path.suffix == ".csv" else _parquet)(path, schema_written, n_records, identifier):
            if n_read + batch.num_rows > n_records:
                raise _invalid(path, f"has more than the {n_records} records of the study")
            if identifier is not None and not has_keys(identifier, n_read, batch.column(0)):
                raise _invalid(path, f"column '{identifier.name}' does not count the records as the study has it")
            own = [
                _codes(path, variable, column)
                for variable, column in zip(schema_written.variables, batch.columns[n_keys:], strict=True)
            ]
            numbers = {
                name: _numbers(schema_written[place], batch.column(n_keys + place))
                for name in names_in_orders
                for place in (schema_written.index(name),)
            }
            if (order := broken_order(orders, numbers, schema_written)) is not None:
                raise _invalid(path, f"a synthetic record does not meet the rule '{order.name}'")
            yield n_read, _read_stated(path, release_columns, rules, own)
            n_read += batch.num_rows
    except LargePagesError as error:
        raise _invalid(path, str(error)) from None
    except (pa.ArrowException, OSError, ValueError):
        raise _invalid(path, "is not a table of the study's columns") from None
    if n_read != n_records:
        raise _invalid(path, f"has {n_read} records, expected {n_records}")


def _read_stated(path: Path, release_columns: Columns, rules: Support, codes: Sequence[Codes]) -> list[Codes]:
    """Read the codes of the study's variables, of records that have what follows from others, and meet the rules."""
    try:
        own_codes = release_columns.read(codes)
    except ValueError as error:
        raise _invalid(path, str(error)) from None
    if broken_rule := rules.find_broken_rule(own_codes):
        raise _invalid(path, f"a synthetic record does not meet the rule '{broken_rule}'")
    return own_codes


def _numbers(variable: Variable, column: pa.Array) -> Floats:
    """Read the numbers of a column; NaN where there is none, or a category's label."""
    import pyarrow as pa

    dictionary = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = dictionary.dictionary.to_pylist()
    numbers = map(_number, values) if variable.kind is None else numbers_of_values(variable, values)
    meaning = np.array([*numbers, np.nan], dtype=np.float64)
    if not len(column):
        return np.empty(0)
    index = dictionary.indices.cast(pa.int64()).fill_null(len(meaning) - 1)
    return np.asarray(meaning[np.from_dlpack(index).view(np.int64)])


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, str | int | float) else np.nan
    except ValueError:
        return np.nan


def _csv(path: Path, schema: Schema, n_records: int, identifier: IdentifierRule | None) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import csv

    del n_records
    reader = csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(_names(schema, identifier), pa.string()), strings_can_be_null=False
        ),
    )
    with reader:
        _check_names(path, reader.schema.names, _names(schema, identifier))
        yield from reader


def _parquet(path: Path, schema: Schema, n_records: int, identifier: IdentifierRule | None) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    batch_rows, texts = check_parquet(path, schema, n_records, identifier=identifier)
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        yield from file.iter_batches(batch_size=batch_rows, use_threads=False)


def check_parquet(
    path: Path, schema: Schema, n_records: int, *, identifier: IdentifierRule | None = None
) -> tuple[int, list[str]]:
    """Check what a Parquet file says of itself, in its footer and in front of each page, before any page is read.

    Args:
        path: the file.
        schema: the columns that are written.
        n_records: how many there must be.
        identifier: the key that stands in front; None: there is none.

    Returns:
        How many rows can be read at once; the columns to read as dictionaries, in which a long text stands once.

    Raises:
        GateFailed: RELEASE_INVALID, it has other columns, or other or more records than the study.
        LargePagesError: its footer or its pages are too large.
        ValueError, OSError: it is no such file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    check_footer(path)
    with parquet.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names, _names(schema, identifier))
        if file.metadata.num_rows != n_records:
            raise _invalid(path, f"says that it has {file.metadata.num_rows} records, expected {n_records}")
        sizes = page_sizes(path)
        texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
    if any(sizes.dense):
        raise _invalid(path, "is not encoded as the tables of releases are")
    if sizes.total > table_bytes(schema, n_records, identifier):
        raise _invalid(path, f"is larger than {n_records} records of the study can be")
    return sizes.batch_rows(_BATCH), texts


def _names(schema: Schema, identifier: IdentifierRule | None) -> tuple[str, ...]:
    return schema.names if identifier is None else (identifier.name, *schema.names)


def _check_names(path: Path, names: Sequence[str], expected: tuple[str, ...]) -> None:
    if tuple(names) != expected:
        raise _invalid(path, "has other columns than the study")


def _codes(path: Path, variable: Variable, column: pa.Array) -> Codes:
    """Read the codes behind what `synthesis.decode` wrote."""
    import pyarrow as pa

    column.validate(
        full=True
    )  # an index of a foreign dictionary may point nowhere; a ValueError is the reader's to tell
    dictionary = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if variable.kind is not None:
        return _typed_codes(path, variable, dictionary)
    places = {label: code for code, label in enumerate(variable.labels) if code >= variable.n_bins}
    edges = () if variable.bins is None else variable.bins
    if edges and len(places) == 1:
        places[""] = variable.n_bins  # the number that is none
    values = [*dictionary.dictionary.to_pylist(), ""]  # the last one is null's
    meaning = _meaning(values, places, edges)
    if not len(column):
        return np.empty(0, dtype=np.uint16)
    index = dictionary.indices.cast(pa.int64()).fill_null(len(values) - 1)
    index = np.from_dlpack(index).view(np.int64)  # to_numpy would import pandas
    codes = meaning[index]
    if (codes < 0).any():
        raise _invalid(path, f"column '{variable.name}' has an entry that is none of its categories or bins")
    return np.asarray(codes, dtype=np.uint16)


def _typed_codes(path: Path, variable: Variable, dictionary: pa.DictionaryArray) -> Codes:
    """Read the codes behind the values of a typed column."""
    import pyarrow as pa

    if not len(dictionary):
        return np.empty(0, dtype=np.uint16)
    meaning = codes_of(variable, [*dictionary.dictionary.to_pylist(), None])
    index = dictionary.indices.cast(pa.int64()).fill_null(len(meaning) - 1)
    codes = meaning[np.from_dlpack(index).view(np.int64)]
    if (codes < 0).any():
        raise _invalid(path, f"column '{variable.name}' has an entry that is none of its values")
    return np.asarray(codes, dtype=np.uint16)


def _meaning(values: Sequence[object], places: dict[str, int], edges: Sequence[float]) -> Ints:
    """Return the code of each of the written values; -1: none."""
    codes = np.full(len(values), -1)
    numbers = np.full(len(values), np.nan)
    for place, value in enumerate(values):
        if isinstance(value, str) and value in places:
            codes[place] = places[value]
        elif edges and value != "" and isinstance(value, str | int | float):
            numbers[place] = float(value)  # a ValueError is the reader's to tell
    if edges:
        inside = (numbers >= edges[0]) & (numbers <= edges[-1])
        bins = np.searchsorted(np.array(edges), numbers[inside], side="right") - 1
        codes[inside] = np.minimum(bins, len(edges) - 2)
    return codes


def unlikely_family(
    network: Network, codes: Sequence[Codes], level: float, support: Support | None = None
) -> int | None:
    """Return the first variable whose synthetic records cannot have been drawn from its family.

    Args:
        network: what they are said to be drawn from.
        codes: (n,) of each variable.
        level: how often, at most, any variable of records that were drawn from it is named.
        support: what all records meet; None: nothing.

    Returns:
        Its position; None: there is none.
    """
    limit = math.log(level / len(network.families))
    n_states = network.schema.n_states
    rules = () if support is None else support.limits
    try:
        families = condition(network, {}, rules) if rules else network.families
    except TooWideError:
        return None
    for family in families:
        counts = _counts(codes, (*family.parents, family.child), n_states)
        if _unlikely(counts.reshape(-1, n_states[family.child]), family.probability, limit):
            return family.child
    return None


def unlikely_variables(model: JointModel, codes: Sequence[Codes], level: float) -> tuple[int, ...]:
    """Variables whose synthetic records cannot have been drawn from a joint model.

    Args:
        model: what they are said to be drawn from.
        codes: (n,) of each variable.
        level: how often, at most, any variables of records that were drawn from it are named.

    Returns:
        The first such pair; all variables, where a record is none of the weighted ones; none: there are none.
    """
    pairs = tuple(itertools.combinations(range(len(codes)), min(2, len(codes))))
    for pair in pairs:
        if _unlikely(
            _counts(codes, pair, model.n_states)[None, :],
            model.shares(pair).reshape(1, -1),
            math.log(level / len(pairs)),
        ):
            return pair
    if isinstance(model, WeightedRecords):
        own_records = model.codes[model.weights > 0]
        for start in range(0, len(codes[0]), PIECE):
            parts = [column[start : start + PIECE] for column in codes]
            if not _all_among(parts, own_records):
                return tuple(range(len(codes)))
            for part in parts:
                give_back(part)
    return ()


def _all_among(columns: Sequence[AnyCodes], records: AnyCodes) -> bool:
    """Return whether all records, (n,) codes of each column, are among some (m, d)."""
    numbers = combination_numbers([np.concatenate(both) for both in zip(records.T, columns, strict=True)])
    return bool(np.isin(numbers[len(records) :], numbers[: len(records)]).all())


def record_fault(
    folder: Path,
    schema: Schema,
    model: Network | JointModel,
    n_records: int,
    level: float,
    *,
    knowledge: Knowledge | None = None,
    identifier: IdentifierRule | None = None,
) -> str:
    """Say what is wrong with the synthetic records of a release; empty: nothing.

    Args:
        folder: the release.
        schema: of the study.
        model: what the records are said to be drawn from.
        n_records: how many there must be.
        level: see `unlikely_family`.
        knowledge: what the study states of all records; None: nothing.
        identifier: the key that stands in front; None: there is none.

    Raises:
        GateFailed, DataFault: as `read_records`.
    """
    text, problem = read_both(folder, schema, n_records, knowledge, identifier=identifier)
    if problem:
        return problem
    if isinstance(model, Network):
        by = rake(model, support(knowledge, schema))
        if (variable_number := unlikely_family(model, text, level, by)) is not None:
            return f"column '{schema.names[variable_number]}': the synthetic records were not drawn from the network"
    elif pair := unlikely_variables(model, text, level):
        names = ", ".join(f"'{schema.names[variable]}'" for variable in pair)
        return f"columns {names}: the synthetic records were not drawn from the joint model"
    return ""


def _counts(codes: Sequence[Codes], variables: Sequence[int], n_states: Sequence[int]) -> Ints:
    """Count how many records have each combination, the last variable fastest."""
    return cell_counts([codes[variable] for variable in variables], [n_states[variable] for variable in variables])


def _unlikely(counts: Ints, probability: Floats, limit: float) -> bool:
    """Return whether the bound on the chance of such counts, (J, K), is below e^limit; an impossible category that
    occurs has none.
    """
    totals = counts.sum(axis=1, keepdims=True)
    occurs = counts > 0
    if (probability[occurs] == 0).any():
        return True
    ratio = (counts / np.maximum(totals, 1))[occurs] / probability[occurs]
    divergence = float((counts[occurs] * np.log(ratio)).sum())
    possible = np.count_nonzero(probability, axis=1)[totals[:, 0] > 0]
    freedom = max(int((possible - 1).sum()), 1)
    return divergence > freedom and freedom * math.log(math.e * divergence / freedom) - divergence < limit


def _invalid(path: Path, problem: str) -> GateFailed:
    return GateFailed("RELEASE_INVALID", f"{path.name}: {problem}", hint="deny the study, and ask the miner's operator")


def first_misplaced(path: Path, schema: Schema, tilts_of_columns: Tilts, level: float) -> int | None:
    """Return the first column of a table of records whose numbers do not lie inside their bins as they should; None:
    all do.

    Of each network by the mean of the distribution function at its numbers, from one step of the column's to the next: 1/2.

    Args:
        path: a CSV file of records of these columns, which has been read already.
        schema: the columns.
        tilts_of_columns: the tilts of the networks that the records are from.
        level: the chance at most with which records that were drawn so are refused.
    """
    import pandas as pd

    if not tilts_of_columns:
        return None
    networks = len(next(iter(tilts_of_columns.values())))
    limit = NormalDist().inv_cdf(1 - level / (2 * len(tilts_of_columns) * networks))
    sums, numbers = np.zeros((len(tilts_of_columns), networks)), np.zeros((len(tilts_of_columns), networks))
    names = [schema.names[v] for v in tilts_of_columns]
    with pd.read_csv(path, usecols=names, dtype=str, keep_default_na=False, chunksize=16 * _BATCH) as tables:
        for table in tables:
            of = table.index.to_numpy() % networks
            for place, (v, tilt) in enumerate(tilts_of_columns.items()):
                share = _below(table[schema.names[v]], schema[v], tilt, of)
                there = ~np.isnan(share)
                sums[place] += np.bincount(of[there], weights=share[there], minlength=networks)
                numbers[place] += np.bincount(of[there], minlength=networks)
    wrong = np.abs(sums) > limit * np.sqrt(numbers / 12)
    return next((v for v, row in zip(tilts_of_columns, wrong, strict=True) if row.any()), None)


def _below(texts: pd.Series[str], variable: Variable, tilt: Floats, of: Ints) -> Floats:
    """Return the distribution function of its bin at each number, less 1/2; NaN where there is none.

    Args:
        texts: (n,) as they are written.
        variable: of the column, which has bins.
        tilt: of each network, in each bin.
        of: (n,) the network of each record.
    """
    import pandas as pd

    edges = np.array(variable.bins)
    if variable.kind is None:
        texts = texts.mask(texts.isin(variable.labels), "")
        numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    else:
        places, distinct = pd.factorize(texts)
        numbers = np.asarray(numbers_of_values(variable, distinct.tolist()), dtype=np.float64)[places]
        numbers[np.isin(numbers, variable.points)] = np.nan
    bins = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    decimals = decimals_of(edges) if variable.decimals is None else variable.decimals
    step = 1.0 if variable.integer else 10.0**-decimals
    low, high = edges[bins], edges[bins + 1]
    r = tilt[of, bins]
    first, last = (np.clip((end - low) / (high - low), 0.0, 1.0) for end in (numbers, numbers + step))
    return np.asarray((r * (first**2 + last**2) + (1 - r) * (first + last)) / 2 - 0.5)
