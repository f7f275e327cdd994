"""The tutorial of the library: every cell is executed, and shows what stands below it; and the page's blocks, behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.notebook import masked
from support.requirements import installed_with

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "deploy" / "docs" / "analyst" / "tutorial.ipynb"
PAGE = ROOT / "deploy" / "docs" / "analyst" / "python.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE)
PROGRAM = """
import json, sys
from pathlib import Path
from support.notebook import executed
from support.requirements import hide_others
hide_others(*json.loads(sys.argv[4]))
notebook, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
outputs = executed({"cells": [*code, *({"cell_type": "code", "source": [text]} for text in json.loads(sys.argv[3]))]}, folder)
(folder / "outputs.json").write_text(json.dumps(outputs))
"""


@pytest.mark.whole
def test_each_cell_shows_what_stands_below_it_and_the_page_can_be_typed(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    blocks = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    assert {language for language, _ in blocks} == {"python"}
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", PROGRAM, NOTEBOOK, tmp_path, json.dumps([b for _, b in blocks]),
         json.dumps(extras_of(notebook))],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    for cell, found in zip(cells, masked(outputs[: len(cells)]), strict=True):
        expected = masked([cell["outputs"]])[0]
        if "noise" in cell["metadata"].get(
            "tags", ()
        ):  # of a secret that is drawn anew: as many lines, of the same kinds
            assert shape_of(found) == shape_of(expected)
        else:
            assert found == expected
    assert len(outputs) == len(cells) + len(blocks)


def extras_of(notebook: dict[str, Any]) -> list[str]:
    """The extras that the first cell names: an environment with them has all that the others need."""
    (named,) = re.findall(r"`pip install '\.\[([\w,]+)\]' notebook`", "".join(notebook["cells"][0]["source"]))
    return named.split(",")


def test_the_environment_that_the_tutorial_names_has_what_its_cells_import() -> None:
    names = installed_with(*extras_of(json.loads(NOTEBOOK.read_text(encoding="utf-8"))))
    assert {"networkx", "numba", "pandas", "scikit-learn", "scipy"} <= names
    assert not {"pgmpy", "pyagrum", "pytest", "rdflib"} & names
    assert "networkx" in installed_with("analyst")


def shape_of(outputs: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(kind, len(lines)) for output in outputs for kind, lines in output["data"].items() if kind == "text/plain"]


def test_the_notebook_is_one() -> None:
    """What nbformat 4.5 asks of cells; that package is not installed here."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) > 20
    keys = {"markdown": {"cell_type", "id", "metadata", "source"}}
    keys["code"] = {*keys["markdown"], "execution_count", "outputs"}
    for cell in notebook["cells"]:
        assert set(cell) == keys[cell["cell_type"]]
    assert NOTEBOOK.stat().st_size < 100_000
