"""How messages and pages list many names, and refuse a name that is none of a few."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from verticil.shared.core.errors import Misuse


def shortened(names: Sequence[str], most: int = 8) -> str:
    """Join names, of many only the first ones with a count.

    >>> shortened(["a", "b"]), shortened("abcdefghij", 3)
    ('a, b', 'a, b, c and 7 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def either(names: Sequence[str]) -> str:
    """Join names of which one is expected.

    >>> either(["a", "b", "c"]), either(["a"])
    ('a, b or c', 'a')
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def check_choice(where: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a name that is none of the choices.

    Args:
        where: the argument, for the message.
        value: the name.
        choices: what it may be.

    Raises:
        Misuse: USAGE; the nearest choice is named.
    """
    if value not in choices:
        near = difflib.get_close_matches(value, choices, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"write '{choices[0]}'"
        raise Misuse("USAGE", f"{where}: got '{value}', expected {either(choices)}", hint=hint)
