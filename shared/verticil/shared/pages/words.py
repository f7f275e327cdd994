"""How pages write numbers, times and sentences."""

from __future__ import annotations

import math
import re

from verticil.shared.release import wording


def epsilon_text(value: float | None) -> str:
    """Write an epsilon, rounded up to two digits.

    >>> epsilon_text(2.001), epsilon_text(None), epsilon_text(math.inf)
    ('2.01', 'no limit', 'no limit')
    """
    return wording.epsilon(math.inf if value is None else float(value))


def pair_text(epsilon: float | None, delta: float | None) -> str:
    """Write an epsilon with its delta, where there is one.

    >>> pair_text(2.001, 1e-6), pair_text(2.0, 0.0), pair_text(2.0, None)
    ('2.01, δ 1e-06', '2.00', '2.00')
    """
    return epsilon_text(epsilon) + (f", δ {delta:g}" if delta and math.isfinite(delta) else "")


def points_text(width: float) -> str:
    """Write half of the interval of a share, in percentage points; no share is off by more than 100.

    >>> points_text(0.3384), points_text(2.7279)
    ('33.8 points', 'over 100 points')
    """
    return f"{100 * width:.1f} points" if width <= 1 else "over 100 points"


def greek(words: str) -> str:
    """Words with the letters that the page has for both numbers.

    >>> greek("epsilon 1.00, delta 1e-06")
    'ε 1.00, δ 1e-06'

    >>> greek("add max_public_epsilon and another")  # a key of party.toml stays what has to be written there
    'add max_public_epsilon and another'
    """
    return re.sub(r"\bdelta ", "δ ", re.sub(r"\bepsilon ", "ε ", words))


def sentence(words: str) -> str:
    """Words as a sentence, in which no line ends before a percent sign.

    >>> sentence("a true 'yes' is kept 85 % of the time")
    "A true 'yes' is kept 85\\xa0% of the time."

    >>> sentence("is it open?")
    'Is it open?'
    """
    end = "" if words.endswith((".", "?", "!")) else "."
    return f"{words[:1].upper()}{words[1:]}{end}".replace(" %", "\N{NO-BREAK SPACE}%")


def size_text(n_bytes: int) -> str:
    """Write a number of bytes.

    >>> size_text(516), size_text(3_000_000)
    ('516 bytes', '2.9 MiB')
    """
    if n_bytes < 10_240:
        return f"{n_bytes:,} bytes"
    return f"{n_bytes / 1024:,.1f} KiB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):,.1f} MiB"


def when_text(stamp: str) -> str:
    """Write a stamp of the state, for people; always UTC.

    >>> when_text("2026-11-21T17:31:06Z")
    '2026-11-21 17:31:06'
    """
    return stamp[:19].replace("T", " ")
