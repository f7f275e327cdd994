"""Run the benchmarks and print one table: ``python tests/bench/run.py [--only PART] [--format json]``.

Every ``bench_PART.py`` beside this file has a function ``figures() -> list[Figure]``. Exit code 0 when all
targets are met, else 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
from pathlib import Path

from figure import Figure


def parts() -> list[str]:
    """Names of all parts, sorted."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def number(value: float | None) -> str:
    """Three significant digits; a dash when there is no value."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(figures: list[Figure]) -> str:
    """The figures as aligned text."""
    head = ("figure", "ours", "reference", "ratio", "unit", "target", "met")
    met = {True: "yes", False: "NO", None: "-"}
    rows = [
        (f.name, number(f.ours), number(f.reference), number(f.ratio), f.unit, f.target, met[f.met]) for f in figures
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    lines.insert(1, "-" * len(lines[0]))
    notes = [f"{figure.name}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*lines, "", *notes])


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Verticil's benchmarks; CPU seconds, best of a few runs, references in the same run."
    )
    parser.add_argument("--only", action="append", choices=parts(), help="run this part only; may be repeated")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    figures: list[Figure] = []
    for part in options.only or parts():
        print(f"running {part} ...", file=sys.stderr, flush=True)
        figures.extend(importlib.import_module(f"bench_{part}").figures())
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    if options.format == "json":
        print(json.dumps({**machine, "figures": [dataclasses.asdict(figure) for figure in figures]}, indent=2))
    else:
        print(f"Python {machine['python']}, {machine['machine']}, {machine['cores']} cores\n")
        print(table(figures))
    return 0 if all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
