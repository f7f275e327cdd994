"""Every code of an error has its words once, from which the page of reference is written (`test_reference_pages.py`)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from verticil.shared.core.errors import CODES

ROOT = Path(__file__).resolve().parents[2]
WORDS = ROOT / "deploy" / "site" / "errors.toml"


def differences(text: str) -> list[str]:
    words = [
        (code, cells)
        for section in tomllib.loads(text).values()
        for codes, cells in section.items()
        for code in codes.split(", ")
    ]
    names = [code for code, _ in words]
    return [
        *(f"{code} has no words" for code in CODES if code not in names),
        *(f"{code} has words and does not exist" for code in names if code not in CODES),
        *(f"{code} twice" for code in CODES if names.count(code) > 1),
        *(f"{code}: too short" for code, cells in words if len(cells) != 2 or min(map(len, cells)) <= 3),
    ]


def test_every_code_has_its_words_once() -> None:
    assert differences(WORDS.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        ("NOT_APPROVED =", "STUDY_OVER =", ["NOT_APPROVED has no words", "STUDY_OVER twice"]),
        ("DISK_FULL =", "DISK_FILLED =", ["DISK_FULL has no words", "DISK_FILLED has words and does not exist"]),
        ('"is it the right file?"', '""', ["DATA_EMPTY: too short"]),
    ],
)
def test_a_planted_difference_is_found(there: str, instead: str, said: list[str]) -> None:
    text = WORDS.read_text(encoding="utf-8")
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
