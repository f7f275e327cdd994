"""The tests here have the marker `experiments`: the usual run has one quick test of each paper, `test_each_paper.py`."""

from __future__ import annotations

import os
from pathlib import Path

# As for the other tests: one thread for products of matrices, and what numba compiles lies beside the sources.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_CACHE_DIR", "")

import pytest

HERE = Path(__file__).parent
USUAL = "test_each_paper.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, but for those of the usual run."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.name != USUAL:
            item.add_marker(pytest.mark.experiments)
