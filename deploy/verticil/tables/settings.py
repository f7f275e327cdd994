"""How the tables of a study are read: by what its draft says in ``[draft.table.PARTY]``, and what the file shows.

A look at all values decides what a file shows, so one person's value could decide how those of all others are read. Noise that
hides one person hides no such thing. Where tables with noise are published, nothing is guessed (`rule_for`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verticil.party.dataset.encoding import style_of
from verticil.party.dataset.sources.column_rules import read_column_rule
from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.source_table import ColumnRule, DatasetRule
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.toml_table import Table, quoted
from verticil.shared.documents.written_values.dates import DatePattern
from verticil.shared.documents.written_values.reading import MOMENTS, OLD_WAYS, Kind, number_of, value_reader
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.tables.columns import TableProfile
from verticil.tables.missing import is_word
from verticil.tables.reading import guess_reading
from verticil.tables.writing import ENOUGH, guess_dates, guess_numbers

_USUAL_FORM: Final[Mapping[str, str | int]] = {"encoding": "utf-8", "delimiter": ",", "skip": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one party's table is read.

    Attributes:
        id_column: names the person; empty: it is not said.
        sheet: of a workbook; empty: the first one with rows.
        form: encoding, delimiter and lines to skip of a CSV file, where they are said.
        columns: variable -> rule.
        are_said: whether the study says how the table is read; a column without a rule is plain then.
    """

    id_column: str = ""
    sheet: str = ""
    form: Mapping[str, str | int] = field(default_factory=dict)
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    are_said: bool = False


def settings_of(study: Study, party: str) -> Settings:
    """Return what the study's draft says of a party's table; of the owner of a whole table what it says of all parties.

    Raises:
        Misuse: STUDY_INVALID, a key of ``[draft.table.PARTY]`` is none, or has another form.
    """
    is_alone = len(study.parties) == 1
    tables = {name: table for name, table in study.drafted.items() if name == party or is_alone}
    result = Settings()
    for name, raw in sorted(tables.items(), key=lambda item: item[0] == party):
        table = Table(dict(raw), source="study.toml", code="STUDY_INVALID", where=f"draft.table.{name}", file=True)
        table.only("id", "sheet", "encoding", "delimiter", "skip", "columns")
        columns = table.table("columns", optional=True)
        rules = {variable: read_column_rule(columns.table(variable), variable) for variable in columns.names()}
        form: dict[str, str | int] = {
            key: table.value(int, key) if isinstance(usual, int) else table.value(str, key)
            for key, usual in _USUAL_FORM.items()
            if table.has(key)
            and (name == party or len(tables) == 1)  # several say it of other files than the whole table
        }
        result = Settings(
            id_column=table.value(str, "id", result.id_column),
            sheet=table.value(str, "sheet", result.sheet),
            form={**result.form, **form},
            columns={**result.columns, **rules},
            are_said=True,
        )
    return result


def rule_for(
    study: Study, party: str, path: Path, id_column: str | None = None, *, guesses: bool = True, place: str = ""
) -> tuple[DatasetRule, tuple[str, ...]]:
    """Return how a party's table is read for a study, and what was guessed of the file, in sentences.

    Args:
        study, party: whose columns are read.
        path: the table's file.
        id_column: names the person; None: the one of the draft, if it names one.
        guesses: whether the table may be read otherwise than the study says, as its values look; where they protect people,
            they decide nothing.
        place: what ``[draft.table]`` calls the table; empty: as the party.

    Raises:
        Misuse: see `settings_of`.
        DataFault: the file cannot be read; DATA_UNREADABLE, it looks otherwise than the study says, and nothing is guessed.
    """
    settings = settings_of(study, party)
    reading = guess_reading(path, sheet=settings.sheet)
    name = drafted_id(reading.rule, settings) if id_column is None else id_column
    where = f"draft.table.{_key(place or party)}"
    rule = dataclasses.replace(reading.rule, id=name, has_ids=bool(name), place=where)
    if not guesses:
        _check_form(rule, settings, where)
    rule = with_columns(study, party, rule, settings, looks=guesses or not settings.are_said)
    for variable, own_rule in rule.columns.items():
        if not guesses and variable not in settings.columns and own_rule.written != "plain":
            written = quoted(own_rule.written)
            raise DataFault(
                "DATA_UNREADABLE",
                f"{path.name}: column '{own_rule.source}' seems to be written as {written}, and the study does not say so",
                hint=f"write into the study: [draft] with reviewed = true, and [{where}.columns.{_key(variable)}] with "
                f"written = {written}",
            )
    return rule, reading.remarks


def _check_form(rule: DatasetRule, settings: Settings, where: str) -> None:
    """Refuse a CSV file that looks otherwise than the study says; what it does not say is usual.

    Raises:
        DataFault: DATA_UNREADABLE.
    """
    if rule.format != "csv" or not rule.path.stat().st_size:
        return
    for key, usual in _USUAL_FORM.items():
        said, found = settings.form.get(key, usual), getattr(rule, key)
        if found != said:
            words = "the study says" if key in settings.form else "the study does not say it, expected"
            raise DataFault(
                "DATA_UNREADABLE",
                f"{rule.name}: {key}: {words} {json.dumps(said)}, the file looks like {json.dumps(found)}",
                hint=f"if that is right, write into the study: [draft] with reviewed = true, and [{where}] with {key} = "
                f"{json.dumps(found)}; else write the table as before",
            )


def _key(name: str) -> str:
    """Return a name as a part of a key of TOML."""
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else quoted(name)


def drafted_id(rule: DatasetRule, settings: Settings) -> str:
    """Return the id column that a draft names, if the table has it; empty: each row is a person."""
    return settings.id_column if settings.id_column in header(rule) else ""


def with_columns(
    study: Study, party: str, rule: DatasetRule, settings: Settings | None = None, *, looks: bool = True
) -> DatasetRule:
    """Return the rule with where each of a party's columns comes from and how it is written: by the draft, else by its texts.

    Columns that are not there are for the party to name. Unless it `looks` at texts, a column that the draft does not name is
    plain.
    """
    settings = settings or settings_of(study, party)
    names = set(header(rule))
    own = [study.schema[position] for position in study.schema.owned_by(party)]
    open_variables = [variable for variable in own if variable.name not in settings.columns]
    sources = {v.name: _source(v.name, party, names) for v in open_variables}
    numbers = [v for v in open_variables if looks and v.n_valued and sources[v.name] in names]
    texts: dict[str, set[str]] = {sources[variable.name]: set() for variable in numbers}
    for part in read_parts(rule, list(texts)) if texts else ():
        for source, column in part.columns.items():
            texts[source].update(column.distinct)
    written = {variable.name: way_of(variable, texts[sources[variable.name]]) for variable in numbers}
    rules = {
        name: ColumnRule(source=source, written=written.get(name, "plain"))
        for name, source in sources.items()
        if source in names
    }
    guessed = {name: item for name, item in rules.items() if item != ColumnRule(source=name)}
    return dataclasses.replace(rule, columns={**settings.columns, **guessed})


def _source(name: str, party: str, names: set[str]) -> str:
    """Return the local column of a variable, to which a draft of two parties gave the party's name."""
    if name in names:
        return name
    return next((other for other in names if other.strip() == name), name.removeprefix(f"{party} "))


def way_of(variable: Variable, texts: Iterable[str]) -> str:
    """Return how texts write the numbers or dates of a variable, as a study's records do where all are written so.

    A variable without a type has one of the first version's ways.
    """
    if not variable.n_valued:
        return "plain"
    values = sorted({text for text in texts if not is_word(text)})
    if variable.kind in MOMENTS:
        read = value_reader(variable.kind, style_of(variable, "plain"))
        if all(read(text) is not None for text in values):
            return "plain"
    if variable.kind is None:
        return numbers_of(texts)[0]
    if variable.kind in MOMENTS:
        dates = guess_dates(values)
        return "plain" if dates is None else dates.written
    return guess_numbers(values).written


def kind_and_writing(texts: Iterable[str]) -> tuple[Kind, str] | None:
    """Return what texts are, numbers, moments or times, and how they are written; None: most of them are none of these.

    Days are moments, so that a table of days can be compared with one that has times of the same days.
    """
    values = sorted({text for text in texts if not is_word(text)})
    if (dates := guess_dates(values)) is not None:
        return ("datetime" if DatePattern.of(dates.written).has_date else "time"), dates.written
    numbers = guess_numbers(values)
    return ("number", numbers.written) if numbers.share >= ENOUGH else None


def numbers_of(texts: Iterable[str]) -> tuple[str, Mapping[str, float]]:
    """Return the way of version 1.0.0 in which most of the texts are numbers, and these numbers; of two alike the first.

    >>> numbers_of(["3", "1,5", "N"])
    ('decimal-comma', {'3': 3.0, '1,5': 1.5})
    """
    texts = list(texts)
    ways = {way: {text: number for text in texts if (number := number_of(text, way)) is not None} for way in OLD_WAYS}
    best = max(ways, key=lambda written: len(ways[written]))
    return best, ways[best]


def rule_of(profile: TableProfile) -> DatasetRule | None:
    """Return how a table that was looked at is read: its file, and each column that is not as is usual; None: it has no file."""
    columns = {
        item.name: ColumnRule(source=item.source, recode=dict(item.recode), written=item.written or "plain")
        for item in profile.columns
        if not item.left_out
    }
    unusual = {name: rule for name, rule in columns.items() if rule != ColumnRule(source=name)}
    rule = profile.texts.rule
    return None if rule is None else dataclasses.replace(rule, columns=unusual)
