"""Every code of an error stands in the reference once, with the exit code that the program uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verticil.shared.core.errors import CODES

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "deploy" / "docs" / "reference" / "errors.md"


def listed(text: str) -> list[tuple[str, int, tuple[str, ...]]]:
    """Code, exit code and cells of each row; where the table has no column for the exit code its heading says it."""
    found: list[tuple[str, int, tuple[str, ...]]] = []
    heading = 0
    for line in text.splitlines():
        if line.startswith("## "):
            numbers = re.findall(r"exit (\d)", line)
            heading = int(numbers[0]) if numbers else 0
        if match := re.fullmatch(r"\| ([A-Z_, ]+) \| (?:(\d) \| )?(.+) \| (.+) \|", line):
            codes, own, *cells = match.groups()
            found += [(code, int(own) if own else heading, tuple(cells)) for code in codes.split(", ")]
    return found


def differences(text: str) -> list[str]:
    rows = listed(text)
    exits = {code: number for code, number, _ in rows}
    return [
        *(f"{code} is not listed" for code in CODES if code not in exits),
        *(f"{code} is listed and does not exist" for code in exits if code not in CODES),
        *(f"{code} twice" for code in exits if [row[0] for row in rows].count(code) > 1),
        *(f"{code}: exit {exits[code]}" for code, (_, number) in CODES.items() if exits.get(code, number) != number),
    ]


def test_the_reference_has_every_code_with_its_exit_code() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert differences(text) == []
    assert all(len(cell.strip()) > 3 for _, _, cells in listed(text) for cell in cells)


@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        ("| NOT_APPROVED | 4 |", "| NOT_APPROVED | 3 |", ["NOT_APPROVED: exit 3"]),
        ("| DISK_FULL |", "| DISK_FILLED |", ["DISK_FULL is not listed", "DISK_FILLED is listed and does not exist"]),
    ],
)
def test_a_planted_difference_is_found(there: str, instead: str, said: list[str]) -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert there in text
    assert differences(text.replace(there, instead)) == said


def test_every_code_is_used_somewhere() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for side in ("party", "miner", "shared", "deploy")
        for path in (ROOT / side).rglob("*.py")
        if path.name != "errors.py"
    ]
    assert [code for code in CODES if not any(f'"{code}"' in text for text in sources)] == []
