"""A notebook (nbformat 4.5) executed cell by cell in one namespace, without a kernel: what its cells print and show.

``PYTHONPATH=tests python -m support.notebook deploy/docs/analyst/tutorial.ipynb`` executes one in a fresh folder, and writes its
outputs into it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def executed(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, in a folder of its own."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found: list[list[dict[str, Any]]] = []
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                found.append(_run("".join(cell["source"]), namespace, number=len(found) + 1))
    return found


def _run(source: str, namespace: dict[str, Any], *, number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        exec(compile(tree, f"<cell {number}>", "exec"), namespace)
        value = (
            None
            if last is None
            else eval(compile(ast.Expression(vars(last)["value"]), f"<cell {number}>", "eval"), namespace)
        )
    outputs: list[dict[str, Any]] = []
    if stream.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": stream.getvalue().splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def masked(outputs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The outputs without the times that stand in them."""
    text = TIMES.sub("TIME", json.dumps(outputs))
    found: list[list[dict[str, Any]]] = json.loads(text)
    return found


def written(notebook: dict[str, Any], outputs: list[list[dict[str, Any]]]) -> str:
    """The notebook's file with these outputs."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, output) in enumerate(zip(cells, outputs, strict=True), 1):
        cell.update(execution_count=number, outputs=output)
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1]).absolute()
    content = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as place:
        path.write_text(written(content, executed(content, Path(place))), encoding="utf-8")
