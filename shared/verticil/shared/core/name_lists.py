"""How messages and pages list many names."""

from __future__ import annotations

from collections.abc import Sequence


def shortened(names: Sequence[str], most: int = 8) -> str:
    """Join names, of many only the first ones with a count.

    >>> shortened(["a", "b"]), shortened("abcdefghij", 3)
    ('a, b', 'a, b, c and 7 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
