"""The pages for people who change the product say what is there: tests that are named exist, rooms that are drawn are the real ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "deploy" / "docs"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def names_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def not_there(text: str) -> list[str]:
    """Files and tests that a page names and that do not exist."""
    found = []
    for file, name in NAMED.findall(text):
        path = ROOT / file
        if not path.is_file() or (name and name not in names_in(path)):
            found.append(f"{file}::{name}")
    return found


def test_every_test_that_a_page_names_exists() -> None:
    pages = sorted(DOCS.glob("*.md"))
    assert {page.name: not_there(page.read_text(encoding="utf-8")) for page in pages} == {
        page.name: [] for page in pages
    }
    features = (DOCS / "features.md").read_text(encoding="utf-8")
    assert len(NAMED.findall(features)) > 60
    promises = [line for line in features.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert [line for line in promises if not NAMED.search(line)] == []


def test_a_test_that_is_not_there_is_found() -> None:
    assert not_there("`tests/unit/test_pages.py::test_none` `tests/unit/test_no_pages.py`") == [
        "tests/unit/test_pages.py::test_none",
        "tests/unit/test_no_pages.py::",
    ]
    assert (
        not_there("`tests/unit/test_pages.py::test_a_test_that_is_not_there_is_found` `tests/unit/test_pages.py`") == []
    )
