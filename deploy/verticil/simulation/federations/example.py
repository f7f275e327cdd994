"""Three small tables of people who do not exist, as messy as real ones: for the first hour with the program.

A hospital, an insurer and a registry each know most of the same people. Each table is written as another program would write it:
dates as ``3.11.1961``, decimal commas in a file with semicolons, codes with leading zeros, two words for a missing value. A fixed
seed makes the same bytes everywhere.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from collections.abc import Iterable, Sequence
from typing import Final

PEOPLE: Final = 4_000
"""Of whom each organisation knows about 97 in a hundred."""
_SEED: Final = 7
_KNOWN_SHARE: Final = 0.97
_MISSING_SHARE: Final = 0.03
_FIRST_DAY: Final = dt.date(1936, 1, 1)
_LAST_DAY: Final = dt.date(2005, 12, 31)
_HEADS: Final = {
    "hospital": ("id", "born", "smoker", "ward"),
    "insurer": ("id", "plan", "claims_eur"),
    "registry": ("id", "town", "household", "work"),
}


def tables() -> dict[str, bytes]:
    """Return the content of each organisation's CSV file, by its name."""
    draw = random.Random(_SEED)  # noqa: S311 (made up, and the same for everybody)
    rows: dict[str, list[Sequence[str]]] = {name: [head] for name, head in _HEADS.items()}
    for number in range(PEOPLE):
        person = f"{10_000 + number * 7 % 90_000:06d}"
        for name, values in _person(draw).items():
            if draw.random() < _KNOWN_SHARE:
                rows[name].append((person, *values))
    for own in rows.values():
        _shuffle(own, draw)
    return {name: _csv(own, ";" if name == "insurer" else ",") for name, own in rows.items()}


def _person(draw: random.Random) -> dict[str, tuple[str, ...]]:
    """Draw what each organisation knows of one person; the columns go together across the organisations."""
    born = _FIRST_DAY + dt.timedelta(days=int(draw.random() * (_LAST_DAY - _FIRST_DAY).days))
    age = 2026 - born.year
    town = _pick(draw, {"01067": 5, "04109": 4, "08056": 2, "09111": 3})
    smokes = draw.random() < (0.45 if town == "08056" else 0.3) - 0.15 * (age > 60)
    work = _pick(draw, {"employed": 8, "self-employed": 2, "seeking": 1})
    work = "retired" if age > 66 else "student" if age < 25 and draw.random() < 0.6 else work
    household = 1 + (draw.random() < 0.7) + (25 < age < 60) * int(draw.random() * 3)
    plan = _pick(draw, {"basic": 5, "plus": 2 + 3 * (work == "self-employed"), "full": 1 + 3 * (age > 60)})
    ward = _pick(draw, {"01": 4, "02": 1 + 3 * smokes, "07": 1 + 5 * (age > 60)})
    claims = draw.gammavariate(1.5, 200 + 12 * max(age - 30, 0) + 600 * smokes)
    return {
        "hospital": (f"{born.day}.{born.month}.{born.year}", _or_missing(draw, "yes" if smokes else "no"), ward),
        "insurer": (plan, f"{claims:.2f}".replace(".", ",")),
        "registry": (town, str(household), _or_missing(draw, work)),
    }


def _pick(draw: random.Random, weights: dict[str, int]) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]


def _or_missing(draw: random.Random, value: str) -> str:
    """Return the value, or now and then nothing, or the words of a clerk."""
    if draw.random() >= _MISSING_SHARE:
        return value
    return _pick(draw, {"": 1, "n/a": 1})


def _shuffle(rows: list[Sequence[str]], draw: random.Random) -> None:
    """Bring the rows below the head into another order, as no two organisations keep the same one."""
    below = rows[1:]
    draw.shuffle(below)
    rows[1:] = below


def _csv(rows: Iterable[Sequence[str]], delimiter: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")
