"""Columns of texts: which of their values become categories, and why, or why they are left out."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

from verticil.shared.documents.written_values.reading import Kind, value_reader
from verticil.shared.study.vocabulary import MAX_TEXT, starts_a_formula
from verticil.tables.columns import (
    MANY_VALUES,
    MOST_DECIMALS,
    Choice,
    ColumnProfile,
    leave_out,
    rows_in_words,
    with_changes,
)
from verticil.tables.hints import identifying_hint, mending_hint, unreadable_words
from verticil.tables.ranges import FEWEST_ROWS
from verticil.tables.source_types import SourceType

IDENTIFYING: Final = 0.5
"""Texts with more distinct values than this part of the rows are left out."""
MOST_CATEGORIES: Final = 100
_LONG: Final = 40  # letters of a free text
_FREE: Final = 0.2  # of the rows hold free text, or the column holds categories
_WORTH: Final = 10.0  # records that a category of a randomized column should be worth
_LEADING_ZERO: Final = re.compile(r"[^0-9]*0[0-9]")
_SUM: Final = re.compile(r"[0-9]+")
_FINE: Final = re.compile(r"[.,][0-9]{13}|e-")
_BOOLEANS: Final = frozenset({"true", "false"})


def has_leading_zero(texts: Sequence[str]) -> bool:
    """Return whether whole numbers, perhaps behind a letter, have leading zeros, which only codes have."""
    if not any(map(_LEADING_ZERO.match, texts)):
        return False
    bare_texts = [re.sub(r"^[^0-9]*|[^0-9]*$", "", text) for text in texts]
    codes = [text for text in bare_texts if len(text) > 1 and text[0] == "0" and _SUM.fullmatch(text)]
    return bool(codes) and all(_SUM.fullmatch(text) for text in bare_texts)


def is_readable(text: str) -> bool:
    """Return whether a text can be a category: plain, at most 200 letters, and nothing that a spreadsheet computes."""
    return (
        bool(text)
        and not starts_a_formula(text)
        and text == text.strip()
        and len(text) <= MAX_TEXT
        and not any(unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for letter in text)
    )


def of_categories(
    base: ColumnProfile, counts: Mapping[str, int], source: SourceType | None, choice: Choice, *, is_code: bool
) -> ColumnProfile:
    """Decide which texts of a column become categories.

    Args:
        base: what is known of the column so far.
        counts: rows of each text that is not missing.
        source: the type that the file gives it.
        choice: what the profile is made for.
        is_code: its texts are numbers that were taken for codes.
    """
    n = sum(counts.values())
    if len(counts) > max(IDENTIFYING * base.n_rows, MANY_VALUES):
        reason = f"{len(counts):,} distinct texts in {base.n_rows:,} rows look identifying"
        return leave_out(base, reason + identifying_hint(counts))
    n_free = sum(count for text, count in counts.items() if len(text) > _LONG and " " in text.strip())
    if n_free > _FREE * n and source is None and len(counts) > MANY_VALUES:
        return leave_out(base, f"it holds free text of more than {_LONG} letters in {n_free:,} rows")
    is_boolean = {text.strip().casefold() for text in counts} <= _BOOLEANS
    recode = _spellings(counts, is_boolean=is_boolean)
    merged: dict[str, int] = {}
    for text, count in counts.items():
        category = recode.get(text, text)
        merged[category] = merged.get(category, 0) + count
    ranked = sorted(
        (text for text in merged if is_readable(text) and merged[text] >= FEWEST_ROWS),
        key=lambda text: (-merged[text], text),
    )
    unreadable = {text: count for text, count in merged.items() if not is_readable(text)}
    if len(merged) - len(unreadable) < 2:
        return leave_out(base, f"{_unreadable(base, unreadable)}: a category is a plain text")
    categories = ranked[: _most_categories(n, choice)]
    if len(categories) == len(merged) - 1 and len(ranked) == len(merged):
        categories = ranked  # one value alone is no `other`
    kept = set(categories)
    n_other = sum(count for text, count in merged.items() if text not in kept)
    if len(categories) + (n_other >= FEWEST_ROWS) < 2:
        return leave_out(base, f"fewer than 2 categories have {FEWEST_ROWS} rows" + mending_hint(counts, 1.0))
    order = () if source is None else source.categories
    kind: Kind = "boolean" if is_boolean else "ordered" if order else "category"
    return with_changes(
        base,
        _code_reason(merged, is_code=is_code),
        _blanks_reason(counts),
        _spelling_reason(counts, merged, is_boolean=is_boolean),
        f"{_unreadable(base, unreadable)}: it is no category of its own" if unreadable else "",
        _other_reason(base, merged, n_other, len(merged) - len(kept)),
        kind=kind,
        categories=tuple(sorted(categories, key=order.index) if order else _in_order(categories)),
        recode={text: category for text, category in recode.items() if category in kept},
        n_other=n_other,
        n_other_values=len(merged) - len(kept),
        written="",
        unit="",
        numbers=None,
    )


def _spellings(counts: Mapping[str, int], *, is_boolean: bool) -> dict[str, str]:
    """Return the category of each text that is another: without blanks around, and the most usual spelling of a truth value."""
    usual: dict[str, str] = {}
    for text in sorted(counts, key=lambda text: -counts[text]) if is_boolean else ():
        usual.setdefault(text.strip().casefold(), text.strip())
    categories = {text: usual.get(text.strip().casefold(), text.strip()) for text in counts}
    return {text: category for text, category in categories.items() if text != category}


def _unreadable(base: ColumnProfile, counts: Mapping[str, int]) -> str:
    return f"a value in {rows_in_words(sum(counts.values()), base.n_rows)} {unreadable_words(counts)}"


def _code_reason(counts: Mapping[str, int], *, is_code: bool) -> str:
    if is_code and any(_FINE.search(text) for text in counts):
        return f"its {len(counts)} numbers have more than {MOST_DECIMALS} decimals, so they are taken for categories"
    if is_code:
        return f"its {len(counts)} numbers are taken for codes: few, with many rows each, and gaps between them"
    return "its values have leading zeros, as codes have: they are categories" if has_leading_zero(list(counts)) else ""


def _blanks_reason(counts: Mapping[str, int]) -> str:
    n_rows = sum(count for text, count in counts.items() if text.strip() != text)
    rows = "1 row" if n_rows == 1 else f"{n_rows:,} rows"
    return f"blanks stand around its values in {rows}; they are taken off" if n_rows else ""


def _spelling_reason(counts: Mapping[str, int], merged: Mapping[str, int], *, is_boolean: bool) -> str:
    if is_boolean and len({text.strip() for text in counts}) > len(merged):
        return f"its truth values have several spellings: they become {' and '.join(sorted(merged))}"
    alike = _alike_but_for_case(merged)
    return f"{alike} differ in capitals alone: if they are one, say so in party.toml by `recode`" if alike else ""


def _other_reason(base: ColumnProfile, merged: Mapping[str, int], n_other: int, n_values: int) -> str:
    if n_other >= FEWEST_ROWS:
        hint = mending_hint(merged, n_other / sum(merged.values()))
        return f"{n_other / base.n_rows:.0%} of the people are in 'other', which is for {n_values:,} values{hint}"
    if not n_other:
        return ""
    rows = f"{n_other} row{'s' * (n_other != 1)}"
    return f"{rows} with a value that fewer than {FEWEST_ROWS} rows have: a category is drawn for each"


def _alike_but_for_case(counts: Mapping[str, int]) -> str:
    """Return the first few categories that differ in capitals alone; empty: none does."""
    groups: dict[str, list[str]] = {}
    for text, count in counts.items():
        if count >= FEWEST_ROWS and is_readable(text):
            groups.setdefault(text.casefold(), []).append(text)
    return ", ".join(f"'{text}'" for group in groups.values() if len(group) > 1 for text in sorted(group)[:4])[:200]


def _in_order(categories: Sequence[str]) -> list[str]:
    """Return categories in the order of their numbers: 5-9 before 10-14."""
    read = value_reader("number", "plain")

    def place(text: str) -> tuple[float, list[tuple[int, str]], str]:
        number = read(text)
        parts = [
            (int(part) if part.isdigit() and part.isascii() else -1, part) for part in re.split("([0-9]{1,15})", text)
        ]
        return (math.inf if number is None else number), parts, text

    return sorted(categories, key=place)


def _most_categories(n: int, choice: Choice) -> int:
    """Return how many categories so many people can have: all that have enough, or of a randomized column what its noise leaves.

    Of K categories at epsilon a column of n records is worth n a^2, a = (e^epsilon - 1) / (e^epsilon + K - 1).
    """
    if choice.epsilon is None:
        return MOST_CATEGORIES
    odds = math.exp(choice.epsilon)
    worth = [n * ((odds - 1) / (odds + k - 1)) ** 2 / k for k in range(1, MOST_CATEGORIES + 1)]
    return max(8, sum(share >= _WORTH for share in worth))
