"""A first draft of a study document from tables at hand: variables with proposed categories and bins, to be reviewed.

The draft saves typing and decides nothing. Categories must be public knowledge: what it proposes was seen in the data, so
every proposal is marked for review (``from = "table"``), and the study is refused wherever it would be acted on until its author
says that it was reviewed (`verticil.shared.study.draft_review`). Tables that are declared public need no review. No category, bin
and point has fewer than `FEWEST_ROWS` rows, and outer ends of bins are rounded outward. It runs where the tables are; it sends
nothing, and its errors name files, columns and counts only.

What each column is, `verticil.tables.profile` decides. Each of its reasons is a line that starts with `NOTE`. How the tables are
read stands in ``[draft.table.PARTY]``, so that ``simulate`` and ``synthesize`` read them alike; a node's party.toml says the same
in ``[dataset.NAME]``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.name_lists import shortened
from verticil.shared.documents.toml_table import near_hint, quoted
from verticil.shared.documents.written_values.reading import MOMENTS, NUMBERS
from verticil.shared.numerics.estimation.profiles import n_histograms
from verticil.shared.study.rules import is_party_name
from verticil.shared.study.typed_variables import PRIVATE
from verticil.shared.study.vocabulary import MAX_VARIABLES, PLACEHOLDERS, PUBLIC, TABLE
from verticil.tables.columns import Choice, ColumnProfile, TableProfile
from verticil.tables.profile import ID_NAMES, ONE_ROW, profile_table
from verticil.tables.ranges import FEWEST_ROWS, ends_a_scale, means, rounded_bounds
from verticil.tables.reading import check_sheet
from verticil.tables.texts import TextColumn
from verticil.tables.words import column_reasons, has_own_end, value_text

NOTE: Final = "# note: "
_UNREVIEWED: Final = "reviewed = false                         # review: true, when you have gone through every column"
REVIEW: Final = "# review: categories must be public knowledge"
_MEANS: Final = "# review: of the numbers in each bin, which tells something about these rows; left out: spread evenly"
_BOUNDS: Final = "# review: the lowest and the highest value that can be, by public knowledge"
_ENDINGS: Final = "  # review: the digits that most numbers end in, and the share of each"
_EVEN: Final = "  # review: so are all of them in the table"
_EPSILON: Final = 3.0
_EPSILON_OF_A_PARTY: Final = 20.0
"""Of one column, and of all columns of one party: the limits that ``verticil party init`` writes."""
_USUAL_COMMON: Final = 1_000  # people
_FEW: Final = 20  # the mean of a bin with fewer rows is not told
_WHOLE: Final = 0.95
"""Of the people with rows, so many have a slot for each; a draft has `_MOST_SLOTS` at most."""
_MOST_SLOTS: Final = 8
_LINKED: Final = 'within_bins = "linked"                  # numbers that go together do so inside their bins, too\n'
"""Of several parties; an owner alone has it by itself."""
_FOR_REGRESSIONS: Final = "tables that the release publishes, at no cost: `release regress` and `tabulate` need them"
_MOST_CELLS: Final = 50_000  # of all pairs of columns
_PER_VALUE: Final = 3  # rows; with fewer for each value, that one column is a function of another says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """What the author of a draft says of it at once.

    Attributes:
        title, purpose: of the study; what stands there is refused until it is replaced.
        public: the tables are public: categories need no review.
        public_columns: columns whose categories and bins may be taken from the table as they are.
        bins: the bins of numbers are taken from the table; else those of an owner alone are left to be measured with noise.
        means: the exact means of the numbers in each bin stand in the draft, too, and so do the bins.
        id_column: names the person in every table; empty: the column that is in all of them and unique in each.
        columns: the only columns to draft; empty: all.
        sheet: of a workbook.
    """

    title: str = PLACEHOLDERS["title"]
    purpose: str = PLACEHOLDERS["purpose"]
    public: bool = False
    public_columns: tuple[str, ...] = ()
    bins: bool = False
    means: bool = False
    id_column: str = ""
    columns: tuple[str, ...] = ()
    sheet: str = ""

    def is_public(self, name: str) -> bool:
        """Return whether what was seen of a column is public."""
        return self.public or name in self.public_columns

    def declares_bins(self, name: str) -> bool:
        """Return whether the bins of an owner's column are declared, and not left to be measured."""
        return self.bins or self.means or self.is_public(name)

    def origin_of(self, name: str) -> str:
        """Return the line that says where a column's categories come from."""
        return f"from = {quoted(PUBLIC if self.is_public(name) else TABLE)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A drafted study.

    Attributes:
        text: TOML that `read_study` accepts.
        notes: what is left out, lost or in doubt, a sentence each that names the column and its party; for the terminal.
    """

    text: str
    notes: tuple[str, ...]


def draft(tables: Mapping[str, Path], *, wording: Wording | None = None, today: dt.date | None = None) -> str:
    """Write a draft study: the text of `draft_study`."""
    return draft_study(tables, wording=wording, today=today).text


def draft_study(tables: Mapping[str, Path], *, wording: Wording | None = None, today: dt.date | None = None) -> Draft:
    """Write a draft study.

    Args:
        tables: party -> its table, a file of any format that is read; ``PARTY.TABLE`` -> rows of these people, several each.
        wording: what its author says of it; None: nothing yet.
        today: the day (UTC) that the expiry is counted from, a year ahead; default: now.

    Raises:
        Misuse: USAGE, no table, a party without a table of people, a party's name that cannot stand in a certificate, or a sheet
            where no table is a workbook.
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY; DATA_COLUMN_MISSING; DATA_ID_MISSING, no column is in all
            tables and unique in each; DATA_ID_DUPLICATE, the id that was named is not unique.
    """
    if not tables:
        raise Misuse(
            "USAGE", "no table given, expected PARTY=FILE", hint="verticil study draft hospital=people.csv ..."
        )
    related = {name: path for name, path in tables.items() if name.partition(".")[0] in tables and "." in name}
    tables = {name: path for name, path in tables.items() if name not in related}
    for party in tables:
        owner, dot, _ = party.partition(".")
        if dot and is_party_name(owner):
            problem = f"party '{owner}' has no table of people, expected one beside '{party}'"
            raise Misuse("USAGE", problem, hint=f"give it as {owner}=FILE")
        if not is_party_name(party):
            raise Misuse(
                "USAGE", f"got the party name '{party}', expected 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit first"
            )
    wording = wording or Wording()
    epsilon = _EPSILON if len(tables) > 1 else None
    only = (wording.id_column, *wording.columns) if wording.columns and wording.id_column else wording.columns
    choice = Choice(epsilon=epsilon, columns=only, sheet=wording.sheet)
    check_sheet([*tables.values(), *related.values()], wording.sheet)
    read = {party: profile_table(party, path, choice) for party, path in tables.items()}
    id_column = _id_column(read, tables, wording)
    rows = [_rows_of(name, path, id_column, choice, wording) for name, path in related.items()]
    names = [
        *(item.name for table in read.values() for item in table.columns),
        *(name for own in rows for name in own.names),
    ]
    if absent := [name for name in wording.public_columns if name not in names]:
        problem = f"--public-column: no column '{absent[0]}' is in the tables or among --columns"
        raise DataFault("DATA_COLUMN_MISSING", problem, hint=near_hint(absent[0], names) or "leave it out")
    return _write(read, tables, wording, id_column, today or dt.datetime.now(dt.UTC).date(), related=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A drafted related table: its columns, its blocks, how it is read, notes, and how many columns it is in all slots."""

    names: Sequence[str]
    blocks: Sequence[str]
    settings: Sequence[str]
    notes: Sequence[str]
    n_columns: int


def _rows_of(name: str, path: Path, id_column: str, choice: Choice, wording: Wording) -> _Rows:
    """Draft a related table, ``PARTY.TABLE``.

    Raises:
        DataFault: DATA_ID_MISSING, DATA_COLUMN_MISSING, its people are not named; DATA_EMPTY, no column can be proposed.
    """
    party, _, own_name = name.partition(".")
    table = profile_table(party, path, choice)
    if not id_column or id_column not in table.texts.columns:
        problem = f"no column '{id_column}'" if id_column else "no column names the person whose rows these are"
        raise DataFault(
            "DATA_COLUMN_MISSING" if id_column else "DATA_ID_MISSING",
            f"{path.name}: {problem}, expected the id of the people's table",
            hint="name the id of all tables: --id, in Python id_column=",
        )
    own = [item for item in table.columns if item.source != id_column]
    variables = [item for item in own if not item.left_out]
    if not variables:
        raise DataFault("DATA_EMPTY", f"{path.name}: no column can be proposed as a variable")
    ids = table.texts.columns[id_column]
    per_person = sorted(ids.counts)
    most = min(max(per_person[math.ceil(_WHOLE * len(per_person)) - 1], 1), _MOST_SLOTS)
    order = next((item.name for item in variables if item.kind in {"date", "datetime"}), None)
    beyond = sum(count > most for count in per_person)
    seen = f"{_WHOLE:.0%} of those in the table have no more; " * (not wording.public)
    notes = [
        f"{path.name}: '{id_column}' repeats in {len(ids.index) - len(ids.texts):,} of {len(ids.index):,} rows: its rows are the "
        f"related table '{own_name}', {most} slots a person; {beyond:,} of {len(per_person):,} people have more. Else {ONE_ROW}"
    ]
    notes += [f"{quoted(item.name)} of {name} is left out: {item.left_out}" for item in own if item.left_out]
    keys = [
        f"name = {quoted(own_name)}",
        f"party = {quoted(party)}",
        f"max_rows = {most}  # review: {seen}more slots keep more rows, and get more noise",
    ]
    keys += [] if order is None else [f"order = {quoted(order)}"]
    blocks = ["\n".join([*map(NOTE.__add__, notes), "[[table]]", *keys])]
    for item in variables:
        first, *rest = _variable(item, item.name, party, wording, alone=False)
        blocks.append("\n".join([first, f"table = {quoted(own_name)}", *rest]))
    named = dataclasses.replace(table, party=name)
    settings = list(_settings(named, id_column, {item.source: item.name for item in own}, wording))
    names = [item.name for item in table.columns]
    return _Rows(names=names, blocks=blocks, settings=settings, notes=notes, n_columns=1 + most * len(variables))


def _write(
    read: Mapping[str, TableProfile],
    tables: Mapping[str, Path],
    wording: Wording,
    id_column: str,
    today: dt.date,
    *,
    related: Sequence[_Rows] = (),
) -> Draft:
    name_counts = Counter(item.name for table in read.values() for item in table.columns if item.source != id_column)
    blocks, settings, all_notes, most, n_numbers = list[str](), list[str](), list[str](), 0, 0
    drafted = dict[str, ColumnProfile]()
    for party, table in read.items():
        notes = [f"{tables[party].name}: {note}" for note in table.notes] if len(read) > 1 else list(table.notes)
        own = [item for item in table.columns if item.source != id_column]
        blocks_of_party, variables = list[str](), list[ColumnProfile]()
        names = {item.source: f"{party} {item.name}" if name_counts[item.name] > 1 else item.name for item in own}
        for item in own:
            is_declared = len(read) > 1 or wording.declares_bins(item.name)
            reasons = column_reasons(item, are_declared=is_declared)
            column_notes = [f"{quoted(item.name)} of {party}: {reason}" for reason in reasons]
            if item.left_out:
                column_notes = [f"{quoted(item.name)} of {party} is left out: {item.left_out}", *column_notes]
            notes += column_notes
            lines = [] if item.left_out else _variable(item, names[item.source], party, wording, alone=len(read) == 1)
            blocks_of_party.append("\n".join([*lines, *map(NOTE.__add__, column_notes)]))
            variables += [item] * bool(lines)
            n_numbers += bool(lines) and bool(item.bins)
            drafted |= {names[item.source]: item} if lines else {}
        if not variables:
            needs = ", and a study with related tables needs one column of the person" * bool(related)
            raise DataFault(
                "DATA_EMPTY",
                f"{tables[party].name}: no column can be proposed as a variable: "
                + (
                    "; ".join(f"{quoted(item.name)}: {item.left_out}" for item in own[:5])
                    or f"it has only the id{needs}"
                ),
            )
        most = max(most, len(variables))
        declared = [item for item in variables if len(read) > 1 or wording.declares_bins(item.name)]
        ends = ", ".join(quoted(item.name) for item in declared if has_own_end(item))
        functions = [f"an outer end of {ends} is that of the table, one person's number: widen it"] * bool(ends)
        functions += list(_functions([table.texts.columns[item.source] for item in variables]))
        notes += functions
        head = f"# ---- {party}: {tables[party].name}" + (f", id column '{id_column}'" if id_column else "")
        blocks += [
            "\n".join([head, *(NOTE + note for note in table.notes)]),
            *filter(None, blocks_of_party),
            *filter(None, ["\n".join(map(NOTE.__add__, functions))]),
        ]
        settings += _settings(table, id_column, names, wording)
        all_notes += notes
    for rows in related:
        blocks += rows.blocks
        settings += rows.settings
        all_notes += rows.notes
        most += rows.n_columns
    n_rows = min(table.texts.n_rows for table in read.values())
    text = (
        _head(tables, today, n_rows, wording, settings)
        + "\n\n".join(blocks)
        + _tail(sum(block.startswith("[[variable]]") for block in blocks), most, link=len(read) > 1 and n_numbers > 1)
        + _pairs(drafted if len(read) == 1 and not related else {})
    )
    guessed = [_note_of_id(id_column, len(read))] if id_column and not wording.id_column else []
    return Draft(text=text, notes=(*guessed, *all_notes))


def _note_of_id(id_column: str, n_tables: int) -> str:
    """Return a note on the column that was taken for the one that names the person."""
    where = "" if n_tables == 1 else " in every table"
    return (
        f"{quoted(id_column)} is taken for the column that names the person{where}, since no value of it repeats: it stays out "
        "of the records; --id, in Python id_column=, names another one"
    )


_OF_DATA: Final = """\
# Draft of a study, proposed from tables. Everything marked "review" was seen in the data: replace it by what is public
# knowledge before you show this file to anyone. Bins tell something about the rows they were drafted from: draft from public
# data or last year's where there are some. Each column says where its categories come from: "table", or "public" once you have
# replaced them. Nothing but "study check" and "simulate --unreviewed" takes the study before you have set reviewed = true."""
_OF_PUBLIC: Final = """\
# Draft of a study, proposed from tables that were declared public (--public): categories and bins need no review."""


def _head(tables: Mapping[str, Path], today: dt.date, n_rows: int, wording: Wording, settings: Sequence[str]) -> str:
    parties = "\n".join(f"[[party]]\nname = {quoted(party)}" for party in tables)
    title, purpose = (
        f"{key} = {quoted(text)}".ljust(40) + f" {review}" if text == PLACEHOLDERS[key] else f"{key} = {quoted(text)}"
        for key, text, review in (
            ("title", wording.title, "# review"),
            ("purpose", wording.purpose, "# review: what the parties read before they approve"),
        )
    )
    return f"""\
{_OF_PUBLIC if wording.public else _OF_DATA}
schema = 1
id = "draft"                             # review: a-z 0-9 -
{title}
{purpose}
expires = {(today + dt.timedelta(days=365)).isoformat()}

[draft]
{"reviewed = true                          # its tables are public" if wording.public else _UNREVIEWED}
{"".join(f"{chr(10)}{line}" for line in settings)}
{parties}

[linkage]
minimum_common_records = {_common_records(n_rows, wording)}

"""


def _common_records(n_rows: int, wording: Wording) -> str:
    """Return the fewest common people of a draft from tables of which the shortest has so many rows."""
    if n_rows >= 2 * _USUAL_COMMON:
        return str(_USUAL_COMMON)
    return f"{max(1, n_rows // 2)}" + "  # review: half of the rows of the shortest table" * (not wording.public)


def _tail(n_variables: int, most: int, *, link: bool) -> str:
    """Return the text that follows the variables, of which a party has `most`; `link`: numbers inside bins."""
    epsilon = min(_EPSILON, math.floor(100 * _EPSILON_OF_A_PARTY / most) / 100)
    return f"""

[randomization_default]                  # review: check what it means with: verticil study check FILE --n RECORDS
scheme = "symmetric"
epsilon = {epsilon:<30}# at most {_EPSILON:g} a column and {_EPSILON_OF_A_PARTY:g} a party, the limits that sites begin with

[structure]
method = "auto"                         # the best of some on records held out; or greedy, order, genetic, tree, hill-climb
max_parents = {min(2, n_variables - 1)}
seed = 1

[release]
synthetic_records = "common"
seed = 1
{_LINKED * link}"""


def _pairs(drafted: Mapping[str, ColumnProfile]) -> str:
    """Return the pairs of columns whose tables an owner's release publishes, so that regressions can be asked of it.

    All or none: so many cells make a large release.
    """
    sizes = {
        name: len(item.categories) + len(item.points) + max(len(item.bins) - 1, 0) for name, item in drafted.items()
    }
    pairs = list(itertools.combinations(sizes, 2))
    if not pairs:
        return ""
    if len(pairs) > MAX_VARIABLES or sum(sizes[one] * sizes[other] for one, other in pairs) > _MOST_CELLS:
        return f'# pairs = [["one", "other"]]  # {_FOR_REGRESSIONS}\n'
    lines = [
        f"    {', '.join(f'[{quoted(one)}, {quoted(other)}]' for one, other in own)},"
        for _, own in itertools.groupby(pairs, key=lambda pair: pair[0])
    ]
    return "\n".join([f"pairs = [  # {_FOR_REGRESSIONS}", *lines, "]\n"])


def _settings(table: TableProfile, id_column: str, names: Mapping[str, str], wording: Wording) -> Iterator[str]:
    """Yield ``[draft.table.PARTY]``: how `simulate` and `synthesize` read the table; party.toml says the same of a node's.

    It is there even if nothing is unusual, because then a column without a rule is plain, whatever its values look like later.
    """
    rule, columns = table.texts.rule, list[str]()
    sheet = wording.sheet or ("" if rule is None else rule.sheet)
    lines = [f"id = {quoted(id_column)}"] * bool(id_column) + [f"sheet = {quoted(sheet)}"] * bool(sheet)
    if rule is not None and rule.format == "csv":
        lines += [f"encoding = {quoted(rule.encoding)}", f"delimiter = {quoted(rule.delimiter)}"]
        lines += [f"skip = {rule.skip}"] * bool(rule.skip)
    for item in table.columns:
        if item.left_out or item.source not in names:
            continue
        keys = {
            "source": quoted(item.source) if item.source != names[item.source] else "",
            "written": quoted(item.written) if item.written else "",
            "recode": "{ " + ", ".join(f"{quoted(one)} = {quoted(other)}" for one, other in item.recode.items()) + " }"
            if item.recode
            else "",
        }
        if any(keys.values()):
            columns.append(f"[draft.table.{quoted(table.party)}.columns.{quoted(names[item.source])}]")
            columns += [f"{key} = {text}" for key, text in keys.items() if text]
    yield f"[draft.table.{quoted(table.party)}]  # how its table is read; in party.toml: [dataset.NAME]"
    yield from (*lines, *columns, "")


def _id_column(read: Mapping[str, TableProfile], tables: Mapping[str, Path], wording: Wording) -> str:
    """Return the column that names the person: the one that was asked for, or one in every table and unique in each.

    A single table may have none.
    """
    columns = {party: table.texts.columns for party, table in read.items()}
    if name := wording.id_column:
        for party, own in columns.items():
            if name not in own:
                raise DataFault(
                    "DATA_COLUMN_MISSING", f"{tables[party].name}: no column '{name}', which --id or id_column= names"
                )
            if not own[name].is_unique:
                raise _repeated_id(tables[party].name, own[name])
        return name
    first = next(iter(columns.values()))
    common = [name for name in first if all(name in own for own in columns.values())]
    unique = [name for name in common if all(own[name].is_unique for own in columns.values())]
    with_id_name = [name for name in unique if name.strip().lower() in ID_NAMES]
    if with_id_name or (unique and len(read) > 1):
        return (with_id_name or unique)[0]
    if len(read) == 1:
        return ""
    nearly = [name for name in common if any(own[name].is_unique for own in columns.values())]
    for party, own in columns.items():
        if nearly and not own[nearly[0]].is_unique:
            raise _repeated_id(tables[party].name, own[nearly[0]])
    unique_somewhere = "; ".join(
        f"unique in {tables[party].name}: {shortened([name for name, column in own.items() if column.is_unique]) or 'none'}"
        for party, own in columns.items()
    )
    raise DataFault(
        "DATA_ID_MISSING",
        f"{', '.join(path.name for path in tables.values())}: no column is in all tables and unique in each",
        hint=f"give the column that names the person one name in all tables; {unique_somewhere}",
    )


def _repeated_id(file: str, column: TextColumn) -> DataFault:
    n_repeated = len(column.index) - len(column.texts)
    return DataFault(
        "DATA_ID_DUPLICATE",
        f"{file}: column '{column.source}' repeats in {n_repeated:,} of {len(column.index):,} rows, expected one row "
        "for each person",
        hint="draft the rows as a related table beside a table of the people: PARTY=PEOPLE PARTY.TABLE=ROWS --id COLUMN; "
        f"{ONE_ROW}; or name another column: --id, in Python id_column=",
    )


def _functions(columns: Sequence[TextColumn]) -> Iterator[str]:
    """Yield a note for every column that is known where another one of the party is known."""
    pairs = [
        pair for pair in itertools.permutations(columns, 2) if _PER_VALUE * len(pair[0].texts) <= len(pair[0].index)
    ]
    functions = [
        (one.source, other.source)
        for one, other in pairs
        if len(other.texts) <= len(one.texts)
        and len(np.unique(one.index * len(other.texts) + other.index)) == len(one.texts)
    ]
    for one, other in functions:
        yield (
            f"{quoted(other)} is a function of {quoted(one)} in all rows: randomize them jointly, or leave one out, "
            "so that nothing is paid for twice"
        )


# ---- one variable


def _variable(item: ColumnProfile, name: str, party: str, wording: Wording, *, alone: bool) -> list[str]:
    """Return the lines of a variable; of a party that is `alone` bins are left to be measured, where they are not public."""
    review = "" if wording.is_public(item.name) else f"  {REVIEW}"
    lines = ["[[variable]]", f"party = {quoted(party)}", f"name = {quoted(name)}", f"type = {quoted(item.kind)}"]
    if name not in {item.source, item.name}:
        lines[2] += f"  # another party has the name too; in party.toml: source = {quoted(item.source)}"
    if item.kind in NUMBERS | MOMENTS:
        lines += _range_lines(item, review, wording, measured=alone and not wording.declares_bins(item.name))
    else:
        lines += _category_lines(item, review)
    return [*lines, wording.origin_of(item.name)]


def _category_lines(item: ColumnProfile, review: str) -> Iterator[str]:
    labels, rest = list(item.categories), list[str]()
    taken = {*item.categories, *item.missing}
    n_rest = item.n_other + (item.n_missing if item.n_missing < FEWEST_ROWS else 0)
    if n_rest >= FEWEST_ROWS:
        labels.append(other := _free("other", taken))
        rest.append(f"other = {quoted(other)}  # review: stands for {item.n_other_values} further values")
    if item.n_missing >= FEWEST_ROWS:
        labels.append(unknown := _free("unknown", taken))
        rest.append(_missing_line(unknown, item.missing))
    yield f"categories = [{', '.join(map(quoted, labels))}]{review}"
    yield from rest


def _range_lines(item: ColumnProfile, review: str, wording: Wording, *, measured: bool) -> Iterator[str]:
    points, endings = item.points, item.endings
    if item.bins and measured:
        keeps_high = item.kind in NUMBERS and ends_a_scale(*item.binned_numbers)
        low, high = rounded_bounds(item.bins, item.kind, keeps_high=keeps_high)
        yield f'bins = "{PRIVATE}"  # measured with noise, within its epsilon'
        yield f"bounds = [{_toml_value(item, low)}, {_toml_value(item, high)}]  {_BOUNDS}"
        if item.kind == "integer" and n_histograms((low, high), 1.0) == 1:  # each whole number is counted
            points, endings = tuple(point for point in points if not low <= point < high), ()
    elif item.bins:
        yield f"bins = [{', '.join(_toml_value(item, edge) for edge in item.bins)}]{review}"
    if points:
        yield f"points = [{', '.join(_toml_value(item, point) for point in points)}]{'' if item.bins else review}"
    if endings:
        shares = ", ".join(f"{quoted(text)} = {share:g}" for text, share in endings)
        yield f"endings = {{ {shares} }}{'' if wording.is_public(item.name) else _ENDINGS}"
    if item.unit:
        yield f"unit = {quoted(item.unit)}"
    if item.kind == "number" and item.decimals is not None:
        yield f"decimals = {item.decimals}"
    if item.format:
        is_seen = item.whole_format and not wording.is_public(item.name)
        yield f"format = {quoted(item.format)}{_EVEN if is_seen else ''}"
    if item.timezone:
        yield f"timezone = {quoted(item.timezone)}"
    if wording.means and item.bins and item.numbers is not None and item.kind in NUMBERS:
        yield _means_line(item, item.numbers, wording)
    if item.n_missing >= FEWEST_ROWS:
        yield 'other = "unknown"'
        if spellings := [*item.missing, *item.strange]:
            yield _missing_line("unknown", spellings)


def _means_line(item: ColumnProfile, numbers: tuple[Floats, Ints], wording: Wording) -> str:
    values, weights = numbers
    rest = ~np.isin(values, item.points)
    bin_means = means(item.bins, values[rest], weights[rest], whole=item.kind == "integer", few=_FEW)
    line = f"means = [{', '.join(value_text(item, mean) for mean in bin_means)}]"
    return line if wording.is_public(item.name) else f"{line}  {_MEANS}"


def _toml_value(item: ColumnProfile, value: float) -> str:
    return f'"{value_text(item, value)}"' if item.kind == "time" else value_text(item, value)


def _missing_line(category: str, spellings: Iterable[str]) -> str:
    spelling_list = ", ".join(quoted(value) for value in sorted(set(spellings)))
    return f"missing = {{ category = {quoted(category)}, spellings = [{spelling_list}] }}"


def _free(word: str, taken: set[str]) -> str:
    """Return the word, or the first numbered one, that is no value itself."""
    return next(
        label for label in itertools.chain([word], (f"{word} {i}" for i in itertools.count(2))) if label not in taken
    )
