"""Count the lines of the tests, and how many of them are helpers.

A helper is a function or class that is no test and stands in none: fixtures, builders, fakes. Its lines are counted with its
decorators and its docstring. The benches are not counted as helpers.

Run ``python tests/support/count_helpers.py`` for both figures, and ``--files`` for the helpers' lines of each file.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent.parent


def helpers(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the outermost functions and classes that are no tests."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("test_"):
                yield child
        elif isinstance(child, ast.ClassDef) and not child.name.startswith("Test"):
            yield child
        else:
            yield from helpers(child)


def count_helper_lines(source: str) -> int:
    """Return how many lines of a file belong to helpers."""
    count = 0
    for helper in helpers(ast.parse(source)):
        first = min(node.lineno for node in (helper, *helper.decorator_list))
        count += (helper.end_lineno or first) - first + 1
    return count


def main() -> None:
    """Print the lines of all tests and those of the helpers."""
    sources = {path.relative_to(TESTS): path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    counts = {path: count_helper_lines(text) for path, text in sources.items() if path.parts[0] != "bench"}
    if "--files" in sys.argv[1:]:
        for path, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:6} {path}")
    print(f"lines of tests: {sum(len(text.splitlines()) for text in sources.values())}")
    print(f"lines of helpers: {sum(counts.values())}")


if __name__ == "__main__":
    main()
