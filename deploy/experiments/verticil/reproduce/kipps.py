"""``verticil reproduce kipps``: Kotal & Joshi's table and figures with right definitions, their comparators, and networks beside.

What was measured of a way on a table of people is kept in a folder beside the one that is made, until that one is there whole: a
run with ``--out`` that was interrupted goes on where it was, if it is asked for the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from verticil.cli.output import put, say
from verticil.experiments.kipps import claims, datasets, figures, page, paper, tables
from verticil.experiments.kipps import experiment as kipps
from verticil.experiments.kipps.claims import Verdict
from verticil.experiments.kipps.datasets import DataSet
from verticil.experiments.kipps.experiment import DELTA, EPSILON, OTHERS, PARTS, REAL, RecordSource, Row, Scale, Step
from verticil.reproduce.experiment import (
    Experiment,
    Options,
    Workplace,
    image_files,
    print_sentences,
    read_texts,
    results_table,
)
from verticil.reproduce.kipps_methods import WAYS
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.record import decode, encode
from verticil.shared.release.protocol import own_template
from verticil.shared.storage.disk import replace_file

_KEPT: Final = 2**20
"""Bytes of a kept row, at most."""
_UNSW_LEAST: Final = 4 * kipps.FULL.people
"""People of UNSW-NB15: those whose membership is attacked, and as many for the attacker."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the asked experiments gave.

    Attributes:
        rows: what was measured, a row for each table of people and way to records.
        simulated: names of the tables whose people were made up.
    """

    rows: tuple[Row, ...]
    simulated: tuple[str, ...]


def experiment(options: Options) -> Experiment[Measured]:
    """Choose the experiments.

    Raises:
        Misuse: USAGE, no such table or figure.
        DataFault: the file of UNSW-NB15 cannot be read or is not such a table.
    """
    parts, quick, seed = options.parts("kipps", PARTS), options.quick, options.seed
    scale = kipps.QUICK if quick else kipps.FULL

    def run(place: Workplace) -> Measured:
        data = _tables(options.unsw)
        assert place.folder is not None
        kept = place.until_written.enter_context(_kept(place.folder, _asked(data, parts, scale, seed)))
        rows = tuple(_rows(data, parts, scale, seed=seed, tell=place.tell, kept=kept))
        return Measured(rows=rows, simulated=tuple(one.name for one in data if one.simulated))

    def facts(found: Measured) -> dict[str, object]:
        return {
            "epsilon": EPSILON,
            "delta": DELTA,
            "relation": "replacement of one person",
            "quick": quick,
            "scale": dataclasses.asdict(scale),
            "simulated": list(found.simulated),
            "ways": {
                way.name: {"words": way.words, "epsilon": EPSILON if way.private else None, "rules": way.known}
                for way in (REAL, OTHERS, *WAYS)
            },
            "rows": [dataclasses.asdict(row) for row in found.rows],
            "theirs": {
                "table_1": {name: dataclasses.asdict(row) for name, row in paper.TABLE_1.items()},
                "figure_2": paper.FIGURE_2,
                "figure_3": paper.FIGURE_3,
                "figure_4": paper.FIGURE_4,
            },
            "claims": [
                {**dataclasses.asdict(one), "text": one.text} for one in claims.verdicts(found.rows, parts, quick=quick)
            ],
            "notes": list(paper.NOTES),
            "errata": list(paper.ERRATA),
        }

    def pictures(found: Measured) -> dict[str, bytes]:
        drawn = {part: figures.draw(part, found.rows, _title(part, scale)) for part in parts}
        html = page.render(
            found.rows, (REAL, OTHERS, *WAYS), scale, simulated=found.simulated, quick=quick, seed=seed,
            pictures={part: of["svg"] for part, of in drawn.items()}, look=own_template("report.css"),
        )  # fmt: skip
        return {"index.html": html.encode("utf-8"), **image_files(drawn)}

    return Experiment(
        title="kipps",
        run=run,
        tables=facts,
        figures=pictures,
        printed=lambda found: _print(parts, found.rows, quick=quick),
        warning="A quick run: few records and steps; its numbers say little." * quick,
    )


def _tables(unsw: Path | None) -> list[DataSet]:
    found = [] if unsw is None else [_read_unsw(unsw)]
    return [datasets.adult(), datasets.diabetes(), datasets.traffic(), *found]


def _read_unsw(path: Path) -> DataSet:
    table = read_texts(path)
    found = datasets.unsw(table)
    if len(table) < _UNSW_LEAST:
        raise DataFault("DATA_EMPTY", f"'{path}': {len(table)} rows, expected at least {_UNSW_LEAST:,}")
    found.coded(found.frame)  # values outside the bins are named before hours are spent
    return found


def _rows(
    data: Sequence[DataSet],
    parts: Sequence[str],
    scale: Scale,
    *,
    seed: int,
    tell: Step,
    kept: Callable[[str, Callable[[], Row]], Row],
) -> Iterator[Row]:
    for one in data:
        for way in (REAL, OTHERS, *WAYS):
            if kipps.parts_of(way, parts):
                yield kept(f"{one.name}/{way.name}", _measuring(one, way, parts, scale, seed, tell))


def _measuring(
    data: DataSet, way: RecordSource, parts: Sequence[str], scale: Scale, seed: int, tell: Step
) -> Callable[[], Row]:
    return lambda: kipps.measured(data, way, parts, scale, seed=seed, tell=tell, clock=time.process_time)


def _asked(data: Sequence[DataSet], parts: Sequence[str], scale: Scale, seed: int) -> bytes:
    """What kept rows are of: 32 bytes."""
    tables_of = [hashlib.sha256(one.frame.to_csv().encode()).hexdigest() for one in data]
    program = [version(name) for name in ("verticil", "numpy", "torch", "scikit-learn")]
    return hashlib.sha256(
        repr((program, tables_of, tuple(parts), scale, seed, [way.name for way in WAYS])).encode()
    ).digest()


@contextmanager
def _kept(folder: Path, asked: bytes) -> Generator[Callable[[str, Callable[[], Row]], Row]]:
    """Rows that an interrupted run left beside the folder, and a place for more; it goes when all is done."""
    place = folder.absolute().with_name(f".{folder.name}.partial")
    place.mkdir(mode=0o700, exist_ok=True)

    def row(name: str, make: Callable[[], Row]) -> Row:
        path = place / f"{hashlib.sha256(asked + name.encode()).hexdigest()[:32]}.json"
        if path.exists():
            with suppress(Misuse):  # what the disk has damaged is measured again
                return decode(Row, path.read_bytes(), source=path.name, limit=_KEPT)
        found = make()
        replace_file(path, encode(found), part=path.with_suffix(".part"))
        return found

    try:
        yield row
    except BaseException:
        if not any(place.iterdir()):
            place.rmdir()
        raise
    shutil.rmtree(place)


def _title(part: str, scale: Scale) -> str:
    n_people = scale.people if part == "figure 3" else scale.members
    return f"{tables.TITLES[part]}; ε = {EPSILON:g}, of at most {n_people:,} people"


def _print(parts: Sequence[str], rows: Sequence[Row], *, quick: bool = False) -> None:
    for part in parts:
        put(f"\n[bold]{tables.TITLES[part]}[/]")
        for shown in tables.of_part(part, rows):
            made = results_table(f"\n{shown.title}", *shown.headings)
            for row in shown.rows:
                made.add_row(*row)
            put(made)
    _print_claims(claims.verdicts(rows, parts, quick=quick))
    print_sentences("What was done otherwise, and what it means", paper.NOTES)
    print_sentences("Errata of the paper", paper.ERRATA)


def _print_claims(found: Sequence[Verdict]) -> None:
    """Print of each claim theirs, ours, and whether it is found."""
    put(f"\n[bold]{claims.TITLE}[/]")
    for one in found:
        say(f"  {one.claim}")
        say(f"    theirs: {one.theirs}")
        say(f"    ours:   {one.ours}")
        say(f"    {one.text}")
