"""One paper's experiments as a value, and how every one of them is run, written to a folder and printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from verticil.cli.output import Format, emit, errors_console, plain_table, progress, put, say
from verticil.pki.files import free_folder, new_folder, removed_if_empty
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.view_models import jsonable
from verticil.shared.storage.disk import create_files

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from rich.table import Table

    from verticil.experiments.claims import Claim
    from verticil.experiments.figures import Form
    from verticil.experiments.randomization import Model

F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of ``verticil reproduce``; None: not given. Which paper has which, the command knows.

    Attributes:
        table, figure: only this one.
        quick: run few records and repetitions.
        seed: of the data sets, the keys and the searches.
        runs, model, credit_card, unsw, colorado, pnad, burn_in, thinning, draws, sets, repeats: see the command's help.
    """

    table: int | None = None
    figure: int | None = None
    runs: int | None = None
    model: Model | None = None
    credit_card: Path | None = None
    unsw: Path | None = None
    colorado: Path | None = None
    pnad: Path | None = None
    burn_in: int | None = None
    thinning: int | None = None
    draws: int | None = None
    sets: int | None = None
    quick: bool = False
    repeats: int | None = None
    seed: int = 1

    def parts(self, paper: str, there: Sequence[str]) -> tuple[str, ...]:
        """Return the parts that are asked for, ``table N`` and ``figure N``; all of them where none is named.

        Raises:
            Misuse: USAGE, the paper has no such part.
        """
        asked = [f"table {self.table}"] * (self.table is not None) + [f"figure {self.figure}"] * (
            self.figure is not None
        )
        if unknown := [part for part in asked if part not in there]:
            raise Misuse("USAGE", f"{paper}: no {' and no '.join(unknown)}; there are {', '.join(there)}")
        return tuple(part for part in there if part in asked) or tuple(there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What a run is given.

    Attributes:
        folder: that results are written to; None: nothing is.
        tell: called with what is being done.
        until_written: closed when all is written, or at an error.
    """

    folder: Path | None
    tell: Callable[[str], None]
    until_written: ExitStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(Generic[F]):
    """The experiments of a paper that are asked for.

    Attributes:
        title: the paper's name on the command line; a new folder gets it.
        run: runs them.
        tables: the numbers of a result, for programs.
        figures: pictures and pages of a result, name of the file -> content.
        printed: prints a result for people.
        draws: whether there are figures: then a folder is made, though none is named.
        timed: whether the time that it took is told.
        warning: printed before a result; empty: nothing is.
    """

    title: str
    run: Callable[[Workplace], F]
    tables: Callable[[F], Mapping[str, object]]
    figures: Callable[[F], Mapping[str, bytes]]
    printed: Callable[[F], None]
    draws: bool = True
    timed: bool = True
    warning: str = ""


def carry_out(experiment: Experiment[F], *, seed: int, out: Path | None, form: Format) -> None:
    """Run experiments, write numbers and pictures, and print the result.

    Args:
        experiment: what is run.
        seed: that it was made with.
        out: folder to make; None: a new one here, where there are figures.
        form: of the answer.

    Raises:
        Misuse: FILE_EXISTS; and as `experiment.run`.
        DataFault: DISK_FULL; and as `experiment.run`.
    """
    folder = new_folder(out or free_folder(experiment.title)) if out or experiment.draws else None
    begun, used = time.monotonic(), time.process_time()
    with removed_if_empty(folder), ExitStack() as until_written:
        with progress(errors_console()) as tell:
            result = experiment.run(Workplace(folder=folder, tell=tell, until_written=until_written))
        spent = {"cpu_seconds": time.process_time() - used, "wall_seconds": time.monotonic() - begun}
        payload: dict[str, object] = {"paper": experiment.title, "seed": seed}
        payload |= {"spent": spent} if experiment.timed else {}
        payload |= experiment.tables(result)
        files = write_results(folder, payload, experiment.figures(result)) if folder else []
    payload["files"] = [str(path) for path in files]
    if emit(payload, form=form):
        return
    if experiment.warning:
        put(f"[bold]{experiment.warning}[/]\n")
    experiment.printed(result)
    if experiment.timed:
        say(f"\n{spent['cpu_seconds']:,.0f} CPU seconds, {spent['wall_seconds']:,.0f} seconds by the clock")
    if files:
        say(f"{'' if experiment.timed else chr(10)}written: {', '.join(map(str, files))}")


def write_results(folder: Path, payload: Mapping[str, object], images: Mapping[str, bytes]) -> list[Path]:
    """Write numbers.json and the images, all or nothing.

    Raises:
        Misuse: FILE_EXISTS.
        DataFault: DISK_FULL.
    """
    numbers = json.dumps(jsonable(payload), ensure_ascii=False, indent=1) + "\n"
    contents = {"numbers.json": numbers.encode("utf-8"), **images}
    files = {folder / name: (content, 0o644) for name, content in contents.items()}
    create_files(files, exists_hint="name another folder with --out")
    return list(files)


def image_files(drawn: Mapping[str, Mapping[Form, bytes]]) -> dict[str, bytes]:
    """Name the files of pictures.

    Args:
        drawn: part, as ``figure 1`` -> form, as ``svg`` -> content.

    >>> image_files({"figure 1": {"svg": b"a"}})
    {'figure-1.svg': b'a'}
    """
    return {f"{part.replace(' ', '-')}.{form}": image for part, forms in drawn.items() for form, image in forms.items()}


def read_texts(path: Path) -> pd.DataFrame:
    """A CSV file that the user has, as texts.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE.
    """
    import pandas as pd

    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise DataFault("DATA_FILE_MISSING", f"'{path}': no such file") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataFault("DATA_UNREADABLE", f"'{path}': cannot be read as CSV: {type(error).__name__}") from None


def read_columns(path: Path) -> dict[str, NDArray[np.object_]]:
    """Return the columns of a CSV file that the user has, as texts: (n,) of each; raises as `read_texts`."""
    table = read_texts(path)
    return {str(name): table[name].to_numpy(dtype=object) for name in table.columns}


def results_table(title: str, *headings: str, left: int = 1) -> Table:
    """A plain table; the first `left` columns are text."""
    return plain_table(*headings[:left], right=headings[left:], title=title, no_wrap=True)


def print_claims(claims: Sequence[Claim]) -> None:
    """Print what a paper says of its results, what stands here, and whether it was found."""
    print_sentences(
        "What the paper says of its results, and what this run gave",
        [line for claim in claims for line in claim.lines()],
    )
    counts = {
        verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("found", "not found", "not asked")
    }
    say(f"  {', '.join(f'{number} {verdict}' for verdict, number in counts.items() if number)}")


def print_sentences(heading: str, sentences: Sequence[str], *, aside: str = "") -> None:
    """Print sentences below a heading.

    Args:
        heading: in bold; empty: an empty line alone.
        sentences: a line each.
        aside: after the heading.
    """
    put(f"\n[bold]{heading}[/]{aside}" if heading else "")
    for sentence in sentences:
        say(f"  {sentence}")
