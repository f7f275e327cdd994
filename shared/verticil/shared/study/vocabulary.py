"""What a study may name, how large it may be, and how a rule that it breaks is said.

What the contract knows and this version does not do is refused by name (`check_supported`), so that a study is never carried
out as something else than what it says.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from verticil.shared.errors import Misuse

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MAX_VARIABLES: Final = 1000
MAX_CELLS: Final = 700_000
"""Cells of all matrices together. Written out in decimal they then stay below 16 MiB."""
MAX_COMBINATIONS: Final = 100_000
"""Combinations of a compound's categories, the impossible ones among them: what is enumerated to make its domain."""
MAX_TEXT: Final = 200
"""Letters in a name or label."""
MAX_PURPOSE: Final = 4000
MAX_SAFE: Final = 2**53 - 1
"""The largest whole number that RFC 8785 can write."""

# What a study may name -> whether this version does it.
LINKAGE_MODES: Final = {"keyed-hash": True, "order-commitment": True, "dh-psi": True}
SCHEMES: Final = {
    "symmetric": True,
    "binary": True,
    "blocks": True,
    "matrix": True,
    "none": True,
    "two-level": True,
    "subset": True,
}
METHODS: Final = {
    "genetic": True,
    "greedy": True,
    "order": True,
    "tree": True,
    "hill-climb": True,
    "given": True,
    "auto": True,
}
SCORES: Final = {"mutual-information": True, "bic": True, "bic-noise": True, "bdeu": True, "auto": True}
METHOD_SCORES: Final = {
    "genetic": ("mutual-information",),
    "greedy": ("mutual-information",),
    "order": ("mutual-information",),
    "tree": ("mutual-information",),
    "hill-climb": ("bic", "bic-noise", "bdeu"),
    "given": ("mutual-information",),
    "auto": ("auto",),
}
"""What a method can make large; the first is its default."""
PREFERENCES: Final = ("synthesis", "structure")
PAIR_METHODS: Final = ("genetic", "order", "tree", "auto")
"""Methods that need nothing but the scores of pairs; between peers nobody has more."""
MAX_EXACT: Final = 15
"""Most variables that may stand in any order, for the exact search over orders."""
ESTIMATORS: Final = ("em", "inverse", "clip", "simplex")
SAMPLING: Final = ("systematic", "independent", "without-replacement")
NORMALISE_STEPS: Final = ("nfkc", "trim", "casefold", "digits-only")


def check_supported(table: dict[str, bool], value: str, *, where: str) -> None:
    """Refuse a `value` that the contract knows and this version does not do yet.

    Raises:
        Misuse: STUDY_UNSUPPORTED.
    """
    if not table.get(value, True):
        able = ", ".join(name for name, can in table.items() if can)
        raise Misuse(
            "STUDY_UNSUPPORTED", f"{where}: '{value}' is not yet supported", hint=f"this version supports: {able}"
        )


def starts_a_formula(text: str) -> bool:
    """Whether a spreadsheet that opens a CSV file with this text in it would compute something, and not show the text.

    >>> [starts_a_formula(text) for text in ("=1+1", "@SUM(A1)", "-", "-3.5", "+2e3", "a=b")]
    [True, True, True, False, False, False]
    """
    return text[:1] in {"=", "+", "-", "@", "\t"} and _NUMBER.fullmatch(text) is None


def fail(where: str, problem: str, *, hint: str = "") -> NoReturn:
    """Raise `Misuse` STUDY_INVALID."""
    raise Misuse("STUDY_INVALID", f"{where}: {problem}", hint=hint)
