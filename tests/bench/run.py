"""Run the benchmarks and print each figure when it is there: ``python tests/bench/run.py [--only PART] [--json]``.

Every ``bench_PART.py`` beside this file has a function ``figures() -> Iterable[Figure]``, which yields each as it is measured. At
the end one table has them all. Exit code 0 when every bound is met, 1 when one is missed or a part broke off. What cannot be
measured here is named, counted as not run, and never as passed.

The comparison with DataSynthesizer needs an environment of its own: ``--datasynthesizer`` makes one on first use (``python -m
venv`` and ``pip install``, in the user's cache), ``--datasynthesizer-python`` takes one that is there; dp-accounting
is had in the same way, by ``--dp-accounting`` and ``--dp-accounting-python``.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import importlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from figure import Figure

PACKAGES = ("verticil", "numpy", "numba", "scipy", "pandas", "pyarrow", "scikit-learn", "pyagrum")


def parts() -> list[str]:
    """Names of all parts, sorted."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def surroundings() -> dict[str, str | int | None]:
    """The machine and the versions that the figures hold for."""
    found: dict[str, str | int | None] = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def number(value: float | None, *, at_least: bool = False) -> str:
    """Three significant digits; a dash when there is no value."""
    if value is None:
        return "-"
    return (">= " if at_least else "") + (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}")


def table(figures: list[Figure]) -> str:
    """The figures as aligned text."""
    head = ("figure", "ours", "reference", "ratio", "unit", "bound", "")
    rows = [
        (
            f.name,
            number(f.ours),
            number(f.reference, at_least=f.at_least),
            number(f.ratio, at_least=f.at_least),
            f.unit,
            f.target,
            f.status,
        )
        for f in figures
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def report(figures: list[Figure]) -> str:
    """What has a bound, then what is told besides, then the notes, then the count."""
    bounded = [figure for figure in figures if figure.is_bounded]
    others = [figure for figure in figures if not figure.is_bounded]
    counts = [f"{sum(f.status == status for f in bounded)} {status}" for status in ("pass", "MISSED", "not run")]
    pieces = [table(bounded)] if bounded else []
    if others:
        pieces += ["Besides, without a bound:", table(others)]
    pieces += ["\n".join(f"{figure.name}: {figure.note}" for figure in figures if figure.note)]
    return "\n\n".join([*pieces, f"{len(bounded)} figures with a bound: {', '.join(counts)}"])


def measured(part: str) -> Iterator[Figure]:
    """The figures of one part; one that breaks off ends with a missed figure of its own. Each is told to who waits."""
    print(f"running {part} ...", file=sys.stderr, flush=True)
    try:
        for figure in importlib.import_module(f"bench_{part}").figures():
            told = f"  {figure.name}: {number(figure.ours)} {figure.unit}"
            bound = f", bound {figure.target}: {figure.status}" if figure.is_bounded else ""
            print(told + bound, file=sys.stderr, flush=True)
            yield figure
    except Exception as error:  # noqa: BLE001  # one broken part must not hide the others' figures
        traceback.print_exc()
        note = f"broke off: {type(error).__name__}"
        yield Figure(name=f"part {part}", ours=0, target="runs", unit="", met=False, note=note)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Verticil's benchmarks; CPU seconds, best of a few runs, references in the same run."
    )
    parser.add_argument("--only", action="append", choices=parts(), help="run this part only; may be repeated")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    parser.add_argument("--datasynthesizer", action="store_true", help="make an environment for DataSynthesizer")
    parser.add_argument("--datasynthesizer-python", metavar="PATH", help="the interpreter of one that is there")
    parser.add_argument(
        "--datasynthesizer-cap", metavar="SECONDS", type=float, help="most CPU seconds of its description (300)"
    )
    parser.add_argument("--dp-accounting", action="store_true", help="make an environment for dp-accounting")
    parser.add_argument("--dp-accounting-python", metavar="PATH", help="the interpreter of one that is there")
    options = parser.parse_args()
    for variable, value in (
        ("VERTICIL_DATASYNTHESIZER", options.datasynthesizer_python or ("make" if options.datasynthesizer else None)),
        ("VERTICIL_DATASYNTHESIZER_CAP", options.datasynthesizer_cap),
        ("VERTICIL_DP_ACCOUNTING", options.dp_accounting_python or ("make" if options.dp_accounting else None)),
    ):
        if value is not None:
            os.environ[variable] = str(value)
    found = surroundings()
    figures = [figure for part in options.only or parts() for figure in measured(part)]
    if options.format == "json":
        lines = [{**dataclasses.asdict(figure), "status": figure.status} for figure in figures]
        print(json.dumps({**found, "figures": lines}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in found.items() if value is not None), end="\n\n")
        print(report(figures))
    return 0 if all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
