"""How a column is encoded: categories or bins, other, missing; read from a study or from a site's own codebook, and checked.

In a study's canonical form a column has the keys of `Variable`, as they are described here.
"""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections import Counter
from dataclasses import replace
from typing import Final, Literal

from verticil.shared.documents.record import OPTIONAL, Key, describe
from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.written_values.on_scale import value_text
from verticil.shared.documents.written_values.reading import KINDS
from verticil.shared.numerics.model.schema import MAX_STATES, Missing, Variable
from verticil.shared.study.endings import Endings
from verticil.shared.study.typed_variables import (
    TYPED_KEYS,
    bin_labels,
    check_keys,
    even_bins,
    has_values,
    problem_of,
    read_bounds,
    read_endings,
    read_groups,
    read_values,
    step_of,
)
from verticil.shared.study.vocabulary import MAX_TEXT, ORIGINS, fail, starts_a_formula

_LONGEST_UNIT: Final = 40
_FARTHEST: Final = 1e15
_NARROWEST: Final = 1e-15
"""Bins must be such that numbers inside can be written."""
_BIDI_CONTROLS: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
_INVISIBLE: Final = frozenset(
    map(chr, (0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0x10000)))
) - {"\ufffc", "\ufffd"} | frozenset(map(chr, range(0xE0000, 0xE0080)))
"""Letters that are not seen: with them two categories, or two studies' names, could look the same to the person who approves.
The joiners U+200C and U+200D are not among them: Persian and the languages of India are written with them."""
describe(
    Variable,
    owner=Key(name="party"),
    representatives=OPTIONAL,
    means=OPTIONAL,
    origin=Key(name="from", optional=True, choices=ORIGINS),
    kind=Key(name="type", optional=True, choices=KINDS),
    **dict.fromkeys((*TYPED_KEYS[1:], "bounds", "profile", "ordered"), OPTIONAL),
)
CODEBOOK_KEYS: Final = (
    "categories", "bins", "integer", "representatives", "means", "outside", "other", "missing", *TYPED_KEYS,
    "bounds", "ordered",
)  # fmt: skip


def variable_from(table: Table) -> Variable:
    """Return the variable that a ``[[variable]]`` table of a study declares; of a related table (``table``) as a row has it.

    Raises:
        Misuse: the table's code, or STUDY_INVALID.
    """
    table.only("party", "name", "table", "from", *CODEBOOK_KEYS)
    variable = codebook_from(table, name=table.value(str, "name"), owner=table.value(str, "party"))
    if table.has("from"):
        variable = replace(variable, origin=table.choice("from", ORIGINS))
    for key, texts in (("name", (variable.name,)), ("categories", variable.labels)):
        if formula := next(filter(starts_a_formula, texts), ""):
            hint = (
                "spreadsheets take it for a formula; declare another text, and recode the local one to it in party.toml"
            )
            table.fail(key, f"'{formula}' begins with '{formula[0]}' and is no number", hint=hint)
    return variable


def codebook_from(table: Table, *, name: str, owner: str) -> Variable:
    """Return what the `CODEBOOK_KEYS` of a table say of a column.

    Args:
        table: of a study, or of a site's own codebook.
        name: of the variable, or of the local column.
        owner: of the variable.

    Raises:
        Misuse: the table's code, or STUDY_INVALID.
    """
    kind = table.choice("type", KINDS) if table.has("type") else None
    if kind is None:
        for key in TYPED_KEYS:
            if table.has(key):
                table.fail(key, f"'{name}' has no type; this key goes with one", hint=f'add type = "{_hint(key)}"')
    else:
        check_keys(table, kind, name)
    if not has_values(kind) and table.has("categories") == table.has("bins"):
        table.fail(
            "categories",
            f"'{name}' has {'both' if table.has('bins') else 'neither'}, expected either categories or bins",
        )
    other = table.value(str, "other") if table.has("other") else None
    missing = _missing(table.table("missing")) if table.has("missing") else None
    representatives, means = (
        tuple(number + 0.0 for number in table.numbers(key)) if table.has(key) else None  # -0.0 is 0
        for key in ("representatives", "means")
    )
    decimals = table.value(int, "decimals", 2 if kind == "number" else 0) if kind == "number" else None
    bounds, bins, points = _edges_from(table, kind, step_of(decimals))
    if bins is not None or points is not None or has_values(kind):
        extra_categories = [
            category for category in (other, missing.category if missing else None) if category is not None
        ]
        own_labels = (*bin_labels(bins or (), kind), *(value_text(kind, point) for point in points or ()))
        labels = own_labels + tuple(dict.fromkeys(extra_categories))
    else:
        labels = table.strings("categories")
        keys = (
            "integer",
            "representatives",
            "means",
            "outside",
            "bounds",
            *(("ordered",) if kind != "ordered" else ()),
        )
        for key in keys:
            if table.has(key):
                table.fail(key, f"'{name}' has categories; this key goes with bins")
        for key, category in (("other", other), ("missing.category", missing.category if missing else None)):
            if category is not None and category not in labels:
                table.fail(
                    key, f"'{category}' is not among the categories of '{name}'", hint="declare it in categories"
                )
    return make_variable(
        name=name,
        owner=owner,
        labels=labels,
        bins=bins,
        integer=has_values(kind) and kind != "number" if kind is not None else table.value(bool, "integer", False),
        representatives=representatives,
        means=means,
        outside=_outside(table, "outside") if bins is not None else "error",
        other=other,
        missing=missing,
        where=f"{table.source}: {table.where} '{name}'",
        kind=kind,
        points=points or (),
        unit=table.value(str, "unit") if table.has("unit") else None,
        decimals=decimals,
        format=table.value(str, "format") if table.has("format") else None,
        timezone=table.value(str, "timezone") if table.has("timezone") else None,
        endings=read_endings(table),
        groups=read_groups(table),
        group_by=table.value(str, "group_by") if table.has("group_by") else None,
        bounds=bounds,
        ordered=table.value(bool, "ordered", True),
    )


def _edges_from(
    table: Table, kind: str | None, step: float
) -> tuple[tuple[float, float] | None, tuple[float, ...] | None, tuple[float, ...] | None]:
    """Return bounds, bins and points of a column; None: there are none."""
    bounds = read_bounds(table, kind)
    bins, points = (
        tuple(value + 0.0 for value in read_values(table, key, kind or "number")) if table.has(key) else None
        for key in ("bounds" if bounds else "bins", "points")
    )
    if bounds is not None:
        bins = even_bins(bounds, step, kind, table.value(str, "format") if table.has("format") else None)
    return bounds, bins, points


def _hint(key: str) -> str:
    """Return a type that a key goes with."""
    return {"format": "date", "timezone": "datetime", "groups": "category", "group_by": "category"}.get(key, "number")


def _missing(table: Table) -> Missing:
    table.only("category", "spellings")
    return Missing(category=table.value(str, "category"), spellings=table.strings("spellings"))


def _outside(table: Table, key: str) -> Literal["clamp"]:
    """Return what a number outside the bins is in a new study, at `key`; an absent key is the same.

    Raises:
        Misuse: the table's code, for what older studies could say.
    """
    if table.choice(key, ("error", "clamp"), "clamp") == "error":
        problem = "got 'error': a study that fails for one value would tell that somebody has it"
        table.fail(key, problem, hint="leave the key out: a number outside the bins goes into the nearest one")
    return "clamp"


def make_variable(
    *,
    name: str,
    owner: str,
    labels: tuple[str, ...],
    bins: tuple[float, ...] | None,
    integer: bool,
    outside: Literal["error", "clamp"],
    other: str | None,
    missing: Missing | None,
    representatives: tuple[float, ...] | None = None,
    means: tuple[float, ...] | None = None,
    origin: str | None = None,
    kind: str | None = None,
    points: tuple[float, ...] = (),
    unit: str | None = None,
    decimals: int | None = None,
    format: str | None = None,  # noqa: A002 - the key of the study
    timezone: str | None = None,
    endings: Endings = (),
    groups: tuple[tuple[str, tuple[str, ...]], ...] = (),
    group_by: str | None = None,
    bounds: tuple[float, float] | None = None,
    profile: tuple[int, ...] = (),
    ordered: bool = True,
    where: str,
) -> Variable:
    """Make a `Variable`, after checking what it needs: distinct categories of readable text and usable bin edges.

    Raises:
        Misuse: STUDY_INVALID; the message starts with `where`.
    """
    if bins is not None:
        _check_bins(bins, integer=integer, where=where)
    if representatives is not None:
        _check_inside(representatives, bins or (), where=f"{where}: representatives")
        if integer and (fractions := [value for value in representatives if not value.is_integer()]):
            problem = f"number {representatives.index(fractions[0]) + 1} is {fractions[0]:g}"
            fail(f"{where}: representatives", f"{problem}, expected a whole number with integer = true")
    if means is not None:
        if representatives is not None:
            fail(f"{where}: means", "stands beside 'representatives', expected one of the two")
        _check_inside(means, bins or (), last=1.0 if integer else 0.0, where=f"{where}: means")
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        fail(where, f"category '{twice[0][:MAX_TEXT]}' is declared twice")
    if not 2 <= len(labels) <= MAX_STATES:
        hint = 'let one stand for several: groups, group_by = "prefix:3", or other' if len(labels) > MAX_STATES else ""
        fail(where, f"{len(labels)} categories, expected 2 to {MAX_STATES}", hint=hint)
    check_text(where, name)
    check_text(f"{where}: its party", owner)
    for number, label in enumerate(labels, 1):
        check_text(f"{where}: category {number}", label)
    if unit is not None:
        check_text(f"{where}: unit", unit, limit=_LONGEST_UNIT)
    variable = Variable(
        name=name,
        owner=owner,
        labels=labels,
        bins=bins,
        integer=integer,
        representatives=representatives,
        means=means,
        outside=outside,
        other=other,
        missing=missing,
        origin=origin,
        kind=kind,
        points=points,
        unit=unit,
        decimals=decimals,
        format=format,
        timezone=timezone,
        endings=endings,
        groups=groups,
        group_by=group_by,
        bounds=bounds,
        profile=profile,
        ordered=ordered,
    )
    if bounds is None and profile:
        fail(f"{where}: profile", "there are no bounds, whose profile it would be")
    if kind is not None and (problem := problem_of(variable)):
        fail(where, problem)
    return variable


def _check_inside(numbers: tuple[float, ...], bins: tuple[float, ...], *, last: float = 0.0, where: str) -> None:
    """Check for one number in each bin; `last`: how far below its upper edge the bin's largest value lies."""
    n_bins = max(len(bins) - 1, 0)
    if len(numbers) != n_bins:
        fail(where, f"{len(numbers)} numbers, expected one for each of the {n_bins} bins")
    for number, (value, (low, high)) in enumerate(zip(numbers, itertools.pairwise(bins), strict=True), 1):
        if not low <= value < high:
            fail(where, f"number {number} is {value:g}, expected one from {low:g} to below {high:g}, its bin")
        if value > high - last:
            fail(
                where, f"number {number} is {value:g}, expected at most {high - last:g}, the bin's largest whole number"
            )


def _check_bins(bins: tuple[float, ...], *, integer: bool, where: str) -> None:
    if len(bins) < 2:
        fail(where, f"{len(bins)} bin edges, expected at least 2")
    if not all(math.isfinite(edge) for edge in bins):
        fail(where, "a bin edge is not finite", hint="what lies beyond the edges goes into the nearest bin")
    for number, (low, high) in enumerate(itertools.pairwise(bins), 1):
        if not low < high:
            fail(where, f"bin edges {number} and {number + 1} are {low:g} and {high:g}, expected increasing edges")
        if high - low < _NARROWEST:
            fail(
                where,
                f"bin {number} is {high - low:g} wide, expected at least {_NARROWEST:g}",
                hint="use a larger unit",
            )
    if max(map(abs, bins)) > _FARTHEST:
        fail(where, f"a bin edge is beyond {_FARTHEST:g}", hint="use a smaller unit, or fewer bins")
    if integer and not all(edge.is_integer() for edge in bins):
        fail(where, "a bin edge is not a whole number, expected whole edges with integer = true")


def check_text(where: str, text: str, *, limit: int = MAX_TEXT, lines: bool = False) -> None:
    """Check a text that is shown to the person who approves: nothing invisible, nothing that reorders text.

    Raises:
        Misuse: STUDY_INVALID.
    """
    if not text or text != text.strip():
        fail(where, f"got '{text[:MAX_TEXT]}', expected a text without blanks at its ends")
    if len(text) > limit:
        fail(where, f"{len(text)} letters, expected at most {limit}")
    check_letters(where, text, also="\n\t" if lines else "")


def check_letters(where: str, text: str, *, also: str = "") -> None:
    """Check the letters of a text, as `check_text`; those in `also` are fine."""
    for position, letter in enumerate(text, 1):
        if letter in also:
            continue
        if (
            unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"}
            or unicodedata.bidirectional(letter) in _BIDI_CONTROLS
            or letter in _INVISIBLE
        ):
            fail(where, f"letter {position} is U+{ord(letter):04X}, expected printed text without control characters")
