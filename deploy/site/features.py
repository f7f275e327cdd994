"""The page of features: what is promised, and the tests that hold it, from the first words of each file of tests."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = {
    "unit": "One part",
    "property": "Properties, on drawn examples",
    "statistical": "Statistics, with a stated rate of false alarms",
    "protocol": "Nodes that talk to each other",
    "system": "Whole processes",
    "vectors": "Bytes that never change",
    "faults": "Processes, networks and disks disturbed",
    "mutation": "Planted faults",
}
_BEFORE: Final = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL)
"""Kinds of tokens that may stand before a docstring."""


def features() -> dict[str, list[tuple[str, str]]]:
    """Return what tests hold: folder -> (what a file says that it holds, its path)."""
    return {
        folder: [
            (_first_paragraph(path), path.relative_to(ROOT).as_posix())
            for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
        ]
        for folder in _FOLDERS
    }


def _first_paragraph(path: Path) -> str:
    with tokenize.open(path) as file:  # the first words alone: to parse whole files takes seconds
        first = next(token for token in tokenize.generate_tokens(file.readline) if token.type not in _BEFORE)
    text = ast.literal_eval(first.string) if first.type == tokenize.STRING else ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def features_page() -> str:
    """Return the page in Markdown."""
    lines = ["# Features, and the tests that hold them\n"]
    lines += [
        "Each file of tests begins with the promise that it holds. A test's name is a sentence: the promise in one case.\n"
    ]
    for folder, promises in features().items():
        lines += [f"\n## {_FOLDERS[folder]}\n", "| promise | tests |", "|---|---|"]
        lines += [f"| {words} | `{path}` |" for words, path in promises]
    return "\n".join(lines) + "\n"
