"""Which texts of a column stand for a missing value, by what the column and the whole table show."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ALWAYS: Final = frozenset(
    {"", "?", "??", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "<NA>", "NaT", ".", "\\N", "null", "NULL", "Null"}
    | {"(null)", "(NULL)", "<null>", "<NULL>", "[null]", "[NULL]"}
    | {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!"}
)
"""What is never a value."""
_WORDS: Final = frozenset(
    {"NA", "na", "None", "none", "NONE", "-", "--", "\u2013", "*", "missing", "Missing", "n.a.", "k.A.", "k. A."}
)
"""What is a missing value in one table and a category in another: North America, no allergy, a negative test."""
_ALL: Final = ALWAYS | _WORDS
_CODE: Final = re.compile(r"[A-Z]{1,3}")
_SIGN: Final = re.compile(r"[+\-\u2013\u00b1/ 0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTexts:
    """Texts that stand for a missing value.

    Attributes:
        texts: as the table has them.
        reasons: what was taken for what, and why, in sentences without the column's name.
    """

    texts: tuple[str, ...]
    reasons: tuple[str, ...] = ()


def is_word(text: str) -> bool:
    """Return whether a text may stand for a missing value."""
    return text.strip() in _ALL


def words_of(texts: Collection[str]) -> list[str]:
    """Return which texts may stand for a missing value, also with blanks around them."""
    joined = "".join(texts)
    if joined.split(None, 1) != [joined]:  # a text has blanks
        return [text for text in texts if text.strip() in _ALL]
    words = _ALL.intersection(texts)
    return [text for text in texts if text in words] if words else []


def words_among_numbers(columns: Iterable[Collection[str]]) -> frozenset[str]:
    """Return the words that stand for missing values in columns of numbers, where they can be nothing else.

    Args:
        columns: of each column whose other texts are numbers or dates, what `words_of` returns.
    """
    return frozenset(text.strip() for words in columns for text in words if text.strip() in _WORDS)


def missing_texts(
    counts: Mapping[str, int], candidates: Sequence[str], *, has_numbers: bool, elsewhere: Collection[str]
) -> MissingTexts:
    """Return which texts of a column are missing values.

    Args:
        counts: rows of each text.
        candidates: what `words_of` returns of them.
        has_numbers: its other texts are numbers or dates.
        elsewhere: the words that stand for missing values in columns of numbers of the same table.

    >>> missing_texts({"AS": 9, "EU": 8, "NA": 7}, ["NA"], has_numbers=False, elsewhere=()).texts
    ()
    """
    certain = [text for text in candidates if text.strip() in ALWAYS]
    words = [text for text in candidates if text.strip() in _WORDS]
    if has_numbers or not words:
        return MissingTexts(texts=(*certain, *words))
    others = [text.strip() for text in counts if text.strip() not in _ALL]
    has_empty = any(not text.strip() for text in certain)
    total = sum(counts.values())
    missing, reasons = [*certain], list[str]()
    for text in words:
        word = text.strip()
        share = f"'{word}' in {counts[text]:,} rows ({counts[text] / total:.0%})"
        if _SIGN.fullmatch(word) and others and all(_SIGN.fullmatch(other) for other in others):
            reasons.append(f"{share} is a category, as the other signs are; it is not taken for missing")
        elif word in elsewhere:
            missing.append(text)
            reasons.append(
                f"{share} is taken for missing, as in columns of numbers; give it another name if it is a category"
            )
        elif has_empty and word.casefold() == "none":
            reasons.append(
                f"{share} is taken for a category, since missing values are empty; it is not taken for missing"
            )
        elif _CODE.fullmatch(word) and _are_codes(others):
            reasons.append(f"{share} is taken for a category, a code as the others are; it is not taken for missing")
        elif word.casefold() == "none" and others and not elsewhere:
            reasons.append(f"{share} is taken for a category; it is not taken for missing")
        else:
            missing.append(text)
            reasons.append(f"{share} is taken for missing; give it another name if it is a category")
    return MissingTexts(texts=tuple(missing), reasons=tuple(reasons))


def _are_codes(texts: Sequence[str]) -> bool:
    """Return whether texts are codes of up to three capitals, such as countries or elements; F and M alone are none."""
    are_short = all(_CODE.fullmatch(text) for text in texts)
    return bool(texts) and are_short and sum(len(text) > 1 for text in texts) >= len(texts) / 2
