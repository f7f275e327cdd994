"""Formulas of regressions: ``outcome ~ column + C(column)``, with names that may hold anything in backticks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import Misuse

GRAMMAR: Final = (
    'write it as "outcome ~ column + C(column)" or "outcome == \'category\' ~ column", odd names in backticks'
)
_QUOTED: Final = r"`[^`]*`|\"[^\"]*\"|'[^']*'"
_EVENT: Final = re.compile(rf"^((?:{_QUOTED}|[^=])+?)\s*==\s*(.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One predictor: the name of a column, and whether its numbers count as categories."""

    column: str
    as_categories: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A regression to compute.

    Attributes:
        outcome: name of the column that is explained.
        event: its category that counts 1, all others 0; None: the outcome's numbers.
        terms: the predictors; a constant always stands beside them.
    """

    outcome: str
    event: str | None
    terms: tuple[Term, ...]


def parse(text: str) -> Formula:
    """Read a formula; whether its columns exist is for the reader of the release.

    Raises:
        Misuse: USAGE, the text is no such formula.

    >>> parse("income == '>50K' ~ age + C(`hours-per-week`)").terms[1]
    Term(column='hours-per-week', as_categories=True)
    """
    sides = _split(text, "~")
    if len(sides) != 2 or not all(side.strip() for side in sides):
        raise Misuse("USAGE", "formula: expected one '~' between an outcome and its predictors", hint=GRAMMAR)
    left, right = sides
    event = _EVENT.match(left.strip())
    outcome = _bare(event[1] if event else left)
    terms = tuple(_term(piece) for piece in _split(right, "+") if piece.strip() != "1")
    names = [term.column for term in terms]
    if not names:
        raise Misuse("USAGE", "formula: names no predictor", hint=GRAMMAR)
    if twice := next((name for name in (outcome, *names) if (outcome, *names).count(name) > 1), None):
        raise Misuse("USAGE", f"formula: '{twice}' stands there twice", hint="name each column once")
    return Formula(outcome=outcome, event=_bare(event[2]) if event else None, terms=terms)


def _term(piece: str) -> Term:
    piece = piece.strip()
    categories = re.match(r"^C\((.*)\)$", piece)
    name = _bare(categories[1] if categories else piece)
    if not name or (name == piece and (name in ("0", "-1") or re.search(r"[:*^|()]", name))):
        raise Misuse(
            "USAGE",
            f"formula: '{piece}' is no column: products of columns, functions and a missing constant are not supported",
            hint=GRAMMAR,
        )
    return Term(column=name, as_categories=categories is not None)


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark that stands outside of quotes."""
    parts = re.split(rf"({_QUOTED})|{re.escape(mark)}", text)
    pieces = [parts[0]]
    for quoted, rest in zip(parts[1::2], parts[2::2], strict=True):
        if quoted is None:
            pieces.append(rest)
        else:
            pieces[-1] += quoted + rest
    return pieces


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "`'\"" else text
