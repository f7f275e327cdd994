"""The worked examples, typed from the page into one shell in a fresh folder, show what stands on the page, within their noise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS

DOCS = Path(__file__).resolve().parents[2] / "deploy" / "docs" / "start"
RUN = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)
SHOWN = re.compile(r"<!-- shows -->\n((?:    .*\n)+)")
NUMBER = re.compile(r"(?<![\w.,[])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
NOISE = 0.35
"""How far a number may be from the page's: in parts of it, or a tenth of this. An owner's secret is drawn anew."""


def pattern(line: str) -> tuple[str, list[float]]:
    """The words of a line, and its numbers."""
    words = " ".join(NUMBER.sub("#", line).split())
    return words, [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def is_shown(line: str, output: str) -> bool:
    """Whether the output has a line of these words, whose numbers are near to the page's."""
    words, numbers = pattern(line)
    for other in output.splitlines():
        others_words, others_numbers = pattern(other)
        if others_words.startswith(words):
            pairs = zip(numbers, others_numbers, strict=False)
            if all(abs(a - b) <= max(NOISE * abs(a), NOISE / 10) for a, b in pairs):
                return True
    return False


@pytest.mark.whole
@pytest.mark.parametrize("name", ["hospital-insurer", "three-registers", "one-organisation"])
def test_an_example_shows_what_stands_on_its_page(name: str, tmp_path: Path) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    shown = [line.strip() for block in SHOWN.findall(page) for line in block.splitlines()]
    assert len(shown) >= 3
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(RUN.findall(page))],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    output = done.stdout + done.stderr
    assert [line for line in shown if not is_shown(line, output)] == []


def test_another_figure_and_other_words_are_found() -> None:
    output = "3,749 common records; epsilon per person 15.00\n"
    assert is_shown("3,700 common records", output)
    assert not is_shown("3,749 common records; epsilon per person 30.00", output)
    assert not is_shown("3,749 common rows", output)
