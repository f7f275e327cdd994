"""The examples in docstrings are executed; only the modules that have some are imported for it."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINGS = ("shared", "party", "miner", "deploy", "deploy/experiments")
MODULES = sorted(
    ".".join(path.relative_to(ROOT / wing).with_suffix("").parts).removesuffix(".__init__")
    for wing in WINGS
    for path in (ROOT / wing / "verticil").rglob("*.py")
    if "    >>> " in path.read_text(encoding="utf-8")
)


def test_modules_of_every_wing_have_examples() -> None:
    assert len(MODULES) > 100
    assert {name.split(".")[1] for name in MODULES} > {"shared", "party", "miner", "evaluate", "experiments"}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_show_what_comes_out(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert (result.attempted > 0, result.failed) == (True, 0)


def test_an_example_that_shows_something_else_is_found() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(wrong, out=lambda _: None).failed == 1
