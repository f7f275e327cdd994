"""Sources as trees: to parse the whole product takes seconds, so each text is parsed once in a process."""

from __future__ import annotations

import ast
import functools


@functools.cache
def parsed(source: str) -> ast.Module:
    """Parse a source, or give the tree of the first time; whoever reads it changes nothing in it."""
    return ast.parse(source)
