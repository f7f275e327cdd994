"""Numbers as tables write them: decimal comma, separators between thousands, units, typographic signs.

A style is an example: the number 1234.5 as the table writes it, with its unit where it has one. ``1.234,5 EUR`` reads
``-1.299,99 EUR`` and ``12,5`` as -1299.99 and 12.5. Beside it every style reads what bookkeepers and laboratories write:
``(12,5)`` and ``12,5-`` are negative, ``12,-`` has no cents, ``< 0,6`` and ``90+`` are the number that they lie beyond.

A style with ``(k)`` behind its number, ``£1234.5(k)``, reads ``£4.8k``, ``£1.2M`` and ``£950`` as 4800, 1200000 and 950. A text
that is no number in the style is None; nothing is repaired.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_COMMA: Final = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)[ \t]*")
OLD_STYLES: Final = ("plain", "decimal-comma")
"""Names of version 1.0.0: they read what they read then."""
EXAMPLES: Final = ("1234.5", "1234,5", "1,234.5", "1.234,5", "1 234.5", "1 234,5", "1'234.5")
"""Every style without a unit."""
_SEPARATORS: Final = {
    "1234.5": ("", "."),
    "1234,5": ("", ","),
    "1,234.5": (",", "."),
    "1.234,5": (".", ","),
    "1 234.5": (" ", "."),
    "1 234,5": (" ", ","),
    "1'234.5": ("'", "."),
}
_MINUS: Final = (
    "\u2212\u2012\u2013\u2014\ufe63\uff0d-"  # minus sign, dashes, small and full-width hyphen, hyphen: the last one
)
_BLANKS: Final = " \t\u00a0\u2007\u2009\u202f"  # as they stand between thousands, and around units
_APOSTROPHES: Final = "'\u2019"
_LIMIT: Final = "[<>\u2264\u2265\u2a7d\u2a7e]=?"
_STYLE: Final = re.compile(
    rf"(?P<before>[^0-9]*?)(?P<example>{'|'.join(map(re.escape, sorted(EXAMPLES, key=len, reverse=True)))})(?P<behind>[^0-9]*)"
)
MAGNIFIED: Final = "(k)"
"""Stands behind the number of a style whose numbers have letters for thousands and more."""
MAGNITUDES: Final = {
    **dict.fromkeys(("k", "K", "tsd", "Tsd", "Tsd."), 3),
    **dict.fromkeys(("m", "M", "mn", "MM", "mio", "Mio", "Mio.", "mln", "млн"), 6),
    **dict.fromkeys(("bn", "b", "B", "Mrd", "Mrd.", "mrd", "млрд"), 9),
}
"""Letters behind a number, and the power of ten that they stand for."""
MAX_STYLE: Final = 40
"""Most letters of a style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStyle:
    """How a column writes its numbers.

    Attributes:
        thousands, decimal: separators; no thousands: they are not separated.
        unit: text that may stand before or behind a number; empty: none.
        is_magnified: whether numbers may have `MAGNITUDES`.
    """

    thousands: str
    decimal: str
    unit: str = ""
    is_magnified: bool = False

    @classmethod
    def of(cls, text: str) -> NumberStyle:
        """Return the style that an example shows.

        Raises:
            ValueError: the text is no example of 1234.5.

        >>> NumberStyle.of("1.234,5 EUR")
        NumberStyle(thousands='.', decimal=',', unit='EUR', is_magnified=False)
        """
        is_magnified = f".5{MAGNIFIED}" in text or f",5{MAGNIFIED}" in text
        match = (
            _STYLE.fullmatch(text.replace(MAGNIFIED, "") if is_magnified else text) if len(text) <= MAX_STYLE else None
        )
        if match is None or (match["before"].strip() and match["behind"].strip()):
            raise ValueError(
                f"got '{text[:MAX_STYLE]}', expected 1234.5 as the table writes it, such as {EXAMPLES[3]} or {EXAMPLES[0]}%"
            )
        thousands, decimal = _SEPARATORS[match["example"]]
        unit = match["before"].strip() or match["behind"].strip()
        return cls(thousands=thousands, decimal=decimal, unit=unit, is_magnified=is_magnified)

    def read(self, text: str) -> float | None:
        """Return the number of a text; of one beyond a limit, as in ``< 0,6`` and ``90+``, the limit; None: it is none.

        >>> style = NumberStyle.of("1,234.5%")
        >>> NumberStyle.of("£1234.5(k)").read("£4.8k")
        4800.0
        >>> style.read("12.5 %"), style.read("\u22121,299"), style.read("< 0.6"), style.read("12,34"), style.read("n/a")
        (12.5, -1299.0, 0.6, None, None)
        """
        match = _pattern(self).fullmatch(text)
        if match is None:
            return None
        digits = match["whole"] or "0"
        if self.thousands:
            digits = re.sub(r"[^0-9]", "", digits)
        sign = "-" if match["sign"] and match["sign"] in _MINUS else ""
        if match["open"] or (match["after"] and match["after"] in _MINUS):
            sign = "-"
        part = match["part"] if match["part"] and match["part"].isdigit() else "0"
        power = MAGNITUDES[match["magnitude"]] if match["magnitude"] else 0
        return float(f"{sign}{digits}.{part}e{power + int((match['power'] or 'e0')[1:])}")

    def is_limit(self, text: str) -> bool:
        """Return whether a text is a number beyond a limit, as in ``< 0.6`` and ``90+``."""
        match = _pattern(self).fullmatch(text)
        return match is not None and (bool(match["limit"]) or match["after"] == "+")


@functools.lru_cache(maxsize=256)
def _pattern(style: NumberStyle) -> re.Pattern[str]:
    """Compile the texts that are numbers in a style."""
    blanks = f"[{_BLANKS}]*"
    unit = f"(?:{blanks}{re.escape(style.unit)})?" if style.unit else ""
    unit_before = f"(?:{re.escape(style.unit)}{blanks})?" if style.unit else ""
    groups = {
        "": "[0-9]+",
        " ": f"[0-9]{{1,3}}(?:[{_BLANKS}][0-9]{{3}})+|[0-9]+",
        "'": f"[0-9]{{1,3}}(?:[{_APOSTROPHES}][0-9]{{3}})+|[0-9]+",
        ",": "[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}|[0-9]+",  # 12,34,567: India
    }
    whole = groups.get(style.thousands) or f"[0-9]{{1,3}}(?:{re.escape(style.thousands)}[0-9]{{3}})+|[0-9]+"
    decimal = re.escape(style.decimal)
    letters = "|".join(map(re.escape, MAGNITUDES)) if style.is_magnified else "(?!)"
    magnitude = rf"(?:[{_BLANKS}]?(?P<magnitude>{letters}))?"
    number = rf"(?P<whole>{whole})?(?:{decimal}(?P<part>[{_MINUS}]{{1,2}}|[0-9]*))?"  # 12,-: no cents
    return re.compile(
        rf"{blanks}(?P<limit>{_LIMIT})?{blanks}(?P<open>\()?{unit_before}(?P<sign>[+{_MINUS}])?{blanks}{unit_before}"
        rf"(?=[0-9]|{decimal}[0-9]){number}(?P<power>[eE][+-]?[0-9]{{1,4}})?{magnitude}(?P<after>(?(sign)(?!)|[+{_MINUS}]))?"
        rf"{unit}(?(open)\)){blanks}"
    )


def read_plain(text: str) -> float | None:
    """Return the number of a text as programs write it; None: it is none."""
    return float(text) if _PLAIN.fullmatch(text) else None


def read_number(text: str, style: str = "plain") -> float | None:
    """Return the number of a text that is written in a style: an example, or one of `OLD_STYLES`; None: it is no number.

    Raises:
        ValueError: there is no such style.

    >>> read_number("1.5e3"), read_number("1,5", "decimal-comma"), read_number("1 299,5 kg", "1 234,5 kg"), read_number("inf")
    (1500.0, 1.5, 1299.5, None)
    """
    if style == "plain":
        return read_plain(text)
    if style == "decimal-comma":
        return float(text.replace(",", ".")) if _COMMA.fullmatch(text) else None
    return NumberStyle.of(style).read(text)
