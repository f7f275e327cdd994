"""What a column of texts could be mended into: the hint beside the reason why it is left out, or why many are in `other`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.study.vocabulary import MAX_TEXT, starts_a_formula
from verticil.tables.ranges import FEWEST_ROWS
from verticil.tables.writing import sample

_NEARLY_ALL: Final = 0.9  # of the texts have one form
_SOME: Final = 0.05  # of the texts have one unit, or one way of writing
_MANY_IN_OTHER: Final = 0.2  # of the people, from where on groups of codes are proposed
_MOST_PEOPLE: Final = 0.95  # of the people that the groups must hold
_MOST_GROUPS: Final = 100
_LETTERS: Final = (1, 2, 3, 4)  # of a prefix
_NUMBER: Final = r"[+-]?[0-9]+(?:[.,][0-9]+)?"
_PAIR: Final = re.compile(rf"{_NUMBER}\s*(?P<sign>[/:;,x\u00d7]|\s-\s)\s*{_NUMBER}")
_LENGTH: Final = re.compile(r"[0-9]+:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?|(?:[0-9]+\s*[A-Za-z]{1,7}\s*){2,3}")
_WITH_UNIT: Final = re.compile(rf"(?P<before>[^0-9\s+.,-]*)\s*{_NUMBER}\s*(?P<behind>[^0-9\s]{{0,12}})")
_MOST_NAMED: Final = 4


def mending_hint(counts: Mapping[str, int], other_share: float) -> str:
    """Return what would make numbers or fewer categories of texts, with a semicolon before; empty: nothing is seen.

    Args:
        counts: rows of each text.
        other_share: of the people that no category is for.
    """
    if other_share < _MANY_IN_OTHER:
        return ""
    hint = _numbers_hint(counts) or _prefixes(counts)
    return f"; {hint}" if hint else ""


def identifying_hint(counts: Mapping[str, int]) -> str:
    """Return what would make numbers of texts that look identifying, with a semicolon before; empty: nothing is seen."""
    hint = _numbers_hint(counts)
    return f"; {hint}" if hint else ""


def _numbers_hint(counts: Mapping[str, int]) -> str:
    texts = [text.strip() for text in sample(list(counts))]
    return _lengths(texts) or _pairs(texts) or _units(texts) or _two_ways(texts)


def _lengths(texts: Sequence[str]) -> str:
    if sum(_LENGTH.fullmatch(text) is not None for text in texts) < _NEARLY_ALL * len(texts):
        return ""
    return (
        "its values are numbers with their units, as lengths of time are: write each as one number of the smallest unit"
    )


def _pairs(texts: Sequence[str]) -> str:
    signs = Counter(match["sign"].strip() for text in texts if (match := _PAIR.fullmatch(text)))
    if signs.total() < _NEARLY_ALL * len(texts):
        return ""
    sign = signs.most_common(1)[0][0]
    is_length = "write lengths of time as a number of minutes or seconds, or " if sign == ":" else ""
    return f"its values are two numbers with '{sign}' between: {is_length}give each a column of its own"


def _units(texts: Sequence[str]) -> str:
    matches = [match for text in texts if (match := _WITH_UNIT.fullmatch(text)) is not None]
    behind = Counter(match["behind"] for match in matches if not match["before"])
    units = sorted(unit for unit, count in behind.items() if unit and count >= _SOME * len(texts))
    if sum(behind[unit] for unit in (*units, "")) < _NEARLY_ALL * len(texts) or len(units) < 2:
        return ""
    named = ", ".join(units[:_MOST_NAMED])
    return f"its numbers have several units or marks behind them ({named}): bring them to one, or take the marks off"


def _two_ways(texts: Sequence[str]) -> str:
    with_mark = [text for text in texts if re.search("[.,]", text)]
    read = {
        way: [text for text in with_mark if value_reader("number", way)(text) is not None]
        for way in ("1234.5", "1234,5")
    }
    n_read = sum(map(len, read.values()))
    if n_read < _NEARLY_ALL * len(texts) or min(map(len, read.values())) < _SOME * len(texts):
        return ""
    return "its numbers have a decimal point in some rows and a decimal comma in others: write them in one way"


def _prefixes(counts: Mapping[str, int]) -> str:
    """Return how first letters make fewer categories of codes; empty: they do not."""
    total = sum(counts.values())
    if any(" " in text for text in counts):
        return ""
    best, most = 0, 1
    for n_letters in _LETTERS:
        groups: dict[str, int] = {}
        for text, count in counts.items():
            groups[text[:n_letters]] = groups.get(text[:n_letters], 0) + count
        large = [count for count in groups.values() if count >= FEWEST_ROWS]
        if most < len(large) <= _MOST_GROUPS and sum(large) >= _MOST_PEOPLE * total:
            best, most = n_letters, len(large)
    if not best:
        return ""
    letters = f"first {best} letters make" if best > 1 else "first letter makes"
    return f'their {letters} {most} categories of them: group_by = "prefix:{best}"'


def unreadable_words(texts: Collection[str]) -> str:
    """Return what keeps texts from being categories, of the first one that is none; see `profile.is_readable`."""
    text = next(iter(texts), "").strip()
    if len(text) > MAX_TEXT:
        return f"has more than {MAX_TEXT} letters"
    if starts_a_formula(text):
        return "begins with a sign of a formula (=, +, - or @), which a spreadsheet would compute"
    return "has a line break" if "\n" in text or "\r" in text else "has letters that are not printed"
