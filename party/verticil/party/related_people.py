"""Related tables at a site: where the columns of their slots come from, and the rows of a study's people laid into them.

A slot's column is a column of its own: with a source, a codebook and a sticky draw that no other slot shares. What decides which
row it has is part of its codebook: `RelatedTable.keep`, `order` and `max_rows`, and with an order the codebooks of all columns of
the table, because a value of the order column without a place comes last, and categories decide between equal ones. So another
choice is another draw, which is charged, and whether a column changed tells only whether its table did.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verticil.party.dataset import perturb
from verticil.party.dataset.local_person_keys import KEY_BYTES, PersonMacs
from verticil.party.dataset.macs import Macs
from verticil.party.dataset.related_rows import fill_undeclared_codes, people_by_tag, read_rows, tags_by
from verticil.party.dataset.source import Batch
from verticil.party.dataset.source_fingerprints import SourceFingerprints
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.laying import Tags
from verticil.shared.related.tables import RelatedTable, row_variables

_PURPOSE: Final = b"verticil/party/kept-rows/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotColumn:
    """Where one column of a slot comes from.

    Attributes:
        dataset: whose people have the rows.
        table: the related table.
        source: the local column, with its table and slot; of the count what it counts.
        recode: of the local column.
        written: how it is written, and which rows are laid.
        column: the local column; empty: the count.
    """

    dataset: str
    table: RelatedTable
    source: str
    recode: Mapping[str, str]
    written: str
    column: str


def slot_columns(
    tables: Sequence[RelatedTable], schema: Schema, datasets: Mapping[str, DatasetRule], party: str, *, where: str
) -> dict[str, SlotColumn]:
    """Return where the columns of a party's slots come from, by name.

    Args:
        tables, schema: of the study.
        datasets: of the party.
        party: whose.
        where: what messages call the party's configuration.

    Raises:
        Misuse: CONFIG_INVALID, no data set has the table, or several have.
    """
    found: dict[str, SlotColumn] = {}
    for table in (table for table in tables if table.party == party):
        homes = [name for name, rule in datasets.items() if table.name in rule.tables]
        if len(homes) != 1:
            there = "none has" if not homes else f"{', '.join(homes)} have"
            name = next(iter(datasets), "people") if len(datasets) == 1 else "NAME"
            raise Misuse(
                "CONFIG_INVALID",
                f"{where}: related table '{table.name}': expected one data set that has it, {there}",
                hint=f"write [dataset.{name}.tables.{table.name}] with the place of the table",
            )
        rule = datasets[homes[0]].tables[table.name]
        kept = f"{table.keep} {table.max_rows} by {table.order or 'the order of the table'}"
        in_order = _codebooks(table, schema, rule)
        for number in range(table.max_rows + 1):
            names = zip(table.slot(number), table.columns, strict=True) if number else [(table.count, "")]
            for name, column in names:
                local = rule.column(column) if column else None
                found[name] = SlotColumn(
                    dataset=homes[0],
                    table=table,
                    source=f"rows of {table.name}" if local is None else f"{table.name}[{number}].{local.source}",
                    recode={} if local is None else local.recode,
                    written=f"plain, {kept}" if local is None else f"{local.written}, {kept}{in_order}",
                    column="" if local is None else local.source,
                )
    return found


def _codebooks(table: RelatedTable, schema: Schema, rule: DatasetRule) -> str:
    """Return what decides the order of a person's rows besides the order column: ", by" a digest; empty: there is no order."""
    if table.order is None:
        return ""
    columns = [(variable, rule.column(variable.name)) for variable in row_variables(table, schema)]
    said = [[own.source, perturb.codebook_digest(variable, own.recode, own.written).hex()] for variable, own in columns]
    return f", by {hashlib.sha256(json.dumps(said).encode()).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RelatedColumns:
    """The columns of slots of some people. Secret.

    Attributes:
        codes: name of the column -> (n,).
        fingerprints: name -> SHA-256 of people and codes.
        source_fingerprints: name -> that of the local column.
    """

    codes: dict[str, Codes] = field(default_factory=dict, repr=False)
    fingerprints: dict[str, bytes] = field(default_factory=dict, repr=False)
    source_fingerprints: dict[str, bytes] = field(default_factory=dict, repr=False)


def read_related(
    places: Mapping[str, SlotColumn],
    rules: Mapping[str, DatasetRule],
    schema: Schema,
    tags: Tags,
    *,
    normalise: Sequence[str],
    site_secret: bytes,
    tag_macs: Macs,
    key_of: Callable[[str], bytes],
    folder: Path,
) -> RelatedColumns:
    """Read the related tables of one data set for people of its table.

    Args:
        places: of the columns of their slots.
        rules: of the tables, by name.
        schema: of the study.
        tags: (n, 14) of the people.
        normalise: steps applied to ids.
        site_secret: of this site.
        tag_macs: makes the tags.
        key_of: returns the key by which categories of a column are drawn where none is declared.
        folder: for rows that do not fit into memory.

    Raises:
        DataFault, Misuse: as `source.read_records`.
    """

    people, found = people_by_tag(tags, tags_by(tag_macs, normalise)), RelatedColumns()
    for table in dict.fromkeys(place.table for place in places.values()):
        persons, fingerprints = PersonMacs(site_secret), SourceFingerprints(site_secret)

        def watch(batch: Batch, persons: PersonMacs = persons, fingerprints: SourceFingerprints = fingerprints) -> None:
            pairs, are_people = persons.of(batch.ids)
            fingerprints.take(pairs[batch.index, :KEY_BYTES], batch.texts, are_people[batch.index])

        key = derived_key(site_secret, _PURPOSE, table.name.encode())
        laid = read_rows(rules[table.name], table, schema, people, key=key, folder=folder, watch=watch)
        for name, codes in fill_undeclared_codes(table, schema, laid, people.tags, key_of):
            found.codes[name] = codes
            found.fingerprints[name] = perturb.fingerprint(people.tags, codes)
            column = places[name].column
            found.source_fingerprints[name] = fingerprints.of([column] if column else list(_columns(places, table)))
    return found


def _columns(places: Mapping[str, SlotColumn], table: RelatedTable) -> Iterator[str]:
    """Yield the local columns of a table, each once: how many rows there are is in each of them."""
    yield from dict.fromkeys(place.column for place in places.values() if place.table == table and place.column)
