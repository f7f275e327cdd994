"""The owner's table as codes of the declared categories, one row a person.

The party's own reader and codebook: a value without a declared category gets `other`, or `missing` where it is empty, else
one that is drawn for the row, as is a possible combination in place of one that the study declares impossible, so that nothing
depends on whether there are such values. What the owner may want to mend is
said.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verticil.curator.related import read_slots
from verticil.curator.study import LEAST_RECORDS
from verticil.party.dataset import perturb
from verticil.party.dataset import undeclared_values as substitutes
from verticil.party.dataset.encoding import style_of
from verticil.party.dataset.related_rows import people_by_id
from verticil.party.dataset.source import Records, check_records, read_records
from verticil.party.dataset.sources.open_source import read_parts
from verticil.party.dataset.sources.source_table import DatasetRule, with_properties
from verticil.party.local_dataset import compounds_of, flag_meaning, flag_of, stated_of, with_flags
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault, VerticilError
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.curator import counts_people
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import people_study
from verticil.shared.study.vocabulary import PUBLIC
from verticil.tables.frames import write_frame
from verticil.tables.settings import rule_for

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The encoded table. Secret.

    Attributes:
        codes: one column (n,) for each variable, in schema order.
        codebooks: SHA-256 of what decides the codes, one for each variable.
        sources: the table's columns.
        fingerprint: of the codes of every person, 32 bytes.
        remarks: what the owner may want to mend; counts, no values.
    """

    codes: tuple[Codes, ...] = field(repr=False)
    codebooks: tuple[bytes, ...]
    sources: tuple[str, ...]
    fingerprint: bytes = field(repr=False)
    remarks: tuple[str, ...]

    @property
    def n_records(self) -> int:
        """Number of people in the table."""
        return len(self.codes[0])


@contextlib.contextmanager
def as_file(table: Path | str | pd.DataFrame, words: str = "the table") -> Generator[Path]:
    """Yield the table as a file; a frame is written to one of its own for the time being.

    Args:
        table: the file or the frame.
        words: what messages call a frame.

    Raises:
        VerticilError: as `write_frame`, and as the block, with the words in place of the file's name.
    """
    if isinstance(table, str | Path):
        yield Path(table)
        return
    with tempfile.TemporaryDirectory(prefix="verticil-curator-") as folder:
        path = Path(folder) / f"{re.sub(r'[^a-z]', '-', words)}.parquet"
        write_frame(table, path, "owner")
        try:
            yield path
        except VerticilError as error:
            raise type(error)(error.code, error.message.replace(path.name, words), hint=error.hint) from error


def read_table(
    path: Path,
    study: Study,
    *,
    dataset: str,
    id_column: str | None,
    secret: SiteSecret,
    related: Mapping[str, Path] | None = None,
) -> Table:
    """Read and encode.

    Args:
        path: CSV or Parquet, by its ending.
        study: the owner's study; its variables are columns of the table.
        dataset: name of the data set; what is drawn for undeclared values depends on it.
        id_column: column that names the person: every row must have another one; None: each row is a person.
        secret: of the owner.
        related: the file of each related table of the study.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_COLUMN_MISSING; DATA_ID_DUPLICATE, DATA_ID_MISSING, a person has
            several rows or none of a name; DATA_EMPTY, fewer rows than `LEAST_RECORDS`.
    """
    own_study = people_study(study)
    rule, guesses = rule_for(own_study, study.parties[0], path, id_column or "", guesses=False)
    rule = with_properties(rule, study.knowledge, study.schema.names)
    variables = [variable for variable in own_study.schema.variables if flag_of(study, variable.name) is None]
    together = compounds_of(study, study.parties[0])
    records = read_records(rule, variables, study.linkage.normalise)
    statements = stated_of(study, [variable.name for variable in variables])
    report = check_records(rule, variables, study.linkage.normalise, list(together.values()), statements)
    for count, code, what in (
        (report.n_repeated_ids, "DATA_ID_DUPLICATE", "have the id of another one"),
        (report.n_empty_ids, "DATA_ID_MISSING", "have an empty id"),
    ):
        if count:
            raise DataFault(
                code,
                f"{path.name}: column '{id_column}': {count} of {report.n_rows} rows {what}, expected one row for each person",
                hint="the noise protects one row: bring each person's data into one",
            )
    least = 1 if counts_people(study) else LEAST_RECORDS  # else whether anything is published would tell of one person
    if report.n_records < least:
        raise DataFault(
            "DATA_EMPTY",
            f"{path.name}: {report.n_records} rows, expected at least {least}",
            hint="noise that protects people leaves nothing of so few",
        )
    tags = perturb.record_tags(secret.tag_key, records.ids or map(str, range(report.n_records)))
    own, codebooks, sources = dict[str, Codes](), dict[str, bytes](), dict[str, str]()
    for variable in variables:
        column, column_codes = rule.column(variable.name), records.codes[variable.name]
        codebook = perturb.codebook_digest(variable, column.recode, column.written)
        if variable.other is None:
            key = substitutes.substitute_key(
                secret.value, dataset=dataset, source_columns=[column.source], codebook_digest=codebook
            )
            column_codes = np.where(
                records.undeclared[variable.name], substitutes.draw(key, tags, variable.n_states), column_codes
            )
        own[variable.name], codebooks[variable.name], sources[variable.name] = column_codes, codebook, column.source
    slots = read_slots(
        study,
        related or {},
        people_by_id(records.ids, tags, study.linkage.normalise),
        dataset=dataset,
        id_column=id_column or "",
        secret=secret,
    )
    own, codebooks, sources = own | slots.codes, codebooks | slots.codebooks, sources | slots.sources
    own = with_flags(study, own)
    local = {name: rule.column(name) for name in sources if name in own_study.schema}
    for flag in () if study.knowledge is None else study.knowledge.flags:
        columns = {name: (column.source, column.recode, column.written) for name, column in local.items()}
        sources[flag.variable], meaning = flag_meaning(study, flag, columns)
        codebooks[flag.variable] = perturb.codebook_digest(study.schema[study.schema.index(flag.variable)], {}, meaning)
    for compound in together.values():
        key = substitutes.substitute_key(
            secret.value,
            dataset=dataset,
            source_columns=[sources[name] for name in compound.variables],
            codebook_digest=perturb.compound_digest(
                [codebooks[name] for name in compound.variables], compound.impossible
            ),
        )
        own |= compound.possible(own, substitutes.draw(key, tags, compound.n_domain))
    names = study.schema.names
    codes = [own[name] for name in names]
    return Table(
        codes=tuple(codes),
        codebooks=tuple(codebooks[name] for name in names),
        sources=tuple(sources[name] for name in names),
        fingerprint=hashlib.sha256(b"".join(perturb.fingerprint(tags, code) for code in codes)).digest(),
        remarks=(
            *guesses,
            *(remark.message for remark in report.remarks),
            *slots.remarks,
            *_constant(study.schema.variables, codes),
            *_of_the_table(rule, variables, records),
        ),
    )


def _constant(variables: Sequence[Variable], codes: Sequence[Codes]) -> list[str]:
    names = [v.name for v, column in zip(variables, codes, strict=True) if (column == column[0]).all()]
    return [f"all rows have one and the same category in {', '.join(names)}: noise is spent on it all the same"] * bool(
        names
    )


def _of_the_table(rule: DatasetRule, variables: Sequence[Variable], records: Records) -> Iterator[str]:
    """Yield a remark on columns whose categories or outer ends are exactly the table's, unless the study says they are public."""
    not_public = [variable for variable in variables if variable.origin != PUBLIC]
    same = [v.name for v in not_public if v.bins is None and _has_all_and_no_other(v, records)]
    extremes = _extremes(rule, [v for v in not_public if v.bins is not None])
    ends = [v.name for v in not_public if v.bins is not None and _meets_an_end(v, v.bins, extremes[v.name])]
    which = [
        f"the {what} of {', '.join(names)}" for what, names in (("categories", same), ("outer ends", ends)) if names
    ]
    if which:
        yield (
            f"{' and '.join(which)} are exactly those of the table: where they were taken from it, no epsilon covers what they "
            "tell; replace them by public knowledge, and say in the study that they are (from = 'public')"
        )


def _has_all_and_no_other(variable: Variable, records: Records) -> bool:
    """Return whether the table has each declared category, and no other value but missing ones."""
    is_undeclared = records.undeclared.get(variable.name)
    if is_undeclared is not None and is_undeclared.any():
        return False
    present = {variable.labels[code] for code in np.unique(records.codes[variable.name])}
    missing = None if variable.missing is None else variable.missing.category
    return variable.other not in present and present | {missing, variable.other} >= set(variable.labels)


def _meets_an_end(variable: Variable, bins: tuple[float, ...], extremes: tuple[float, float]) -> bool:
    """Return whether an outer end of the bins is the least or the largest number; above whole numbers the end is one more."""
    return bins[0] == extremes[0] or bins[-1] == extremes[1] or (variable.integer and bins[-1] - 1 == extremes[1])


def _extremes(rule: DatasetRule, variables: Sequence[Variable]) -> dict[str, tuple[float, float]]:
    """Return the least and the largest number of each column, from one more reading of these columns."""
    ranges = dict.fromkeys((variable.name for variable in variables), (math.inf, -math.inf))
    sources = list(dict.fromkeys(rule.column(name).source for name in ranges))
    for part in read_parts(rule, sources) if sources else ():
        for variable in variables:
            column = rule.column(variable.name)
            read = value_reader(variable.kind, style_of(variable, column.written))
            missing = () if variable.missing is None else variable.missing.spellings
            numbers = [
                number
                for text in part.columns[column.source].distinct
                if text not in missing and (number := read(text)) is not None and number not in variable.points
            ]
            low, high = ranges[variable.name]
            ranges[variable.name] = min([low, *numbers]), max([high, *numbers])
    return ranges
