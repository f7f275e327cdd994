"""Whether all that a program said before is still said."""

from __future__ import annotations

import json
import math
import re

MASKED = re.compile(r": (N|HEAD|TIME)(?=[,}])")
"""What stands in a recorded JSON in place of a value that passes."""
ROUNDING = 1e-12
"""Relative: sums of linear algebra differ in their last digits from processor to processor."""


def stands(before: object, now: object) -> bool:
    """Whether everything of an answer is still in the present one: each key of its JSON, or each line of its text, in order.

    What programs read is kept; what is new to be said is said besides. Numbers that are not whole may differ by `ROUNDING`.
    """
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and stands(item, now[key]) for key, item in before.items())
    if isinstance(before, list):
        return isinstance(now, list) and len(now) == len(before) and all(map(stands, before, now))
    if isinstance(before, str) and isinstance(now, str) and before != now:
        if before.startswith("{"):
            return now.startswith("{") and stands(
                json.loads(MASKED.sub(r': "\1"', before)), json.loads(MASKED.sub(r': "\1"', now))
            )
        lines = iter(now.splitlines())
        return all(line in lines for line in before.splitlines())
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=ROUNDING)
    return before == now
