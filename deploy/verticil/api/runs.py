"""What makes a release here, and what judges one: `simulate`, `synthesize`, `evaluate`."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from verticil.api.arguments import check_arguments
from verticil.api.release import Anchors, Release, open_release, temporary_folder
from verticil.api.study import Study, read, resolve_study
from verticil.shared.core.errors import Misuse

if TYPE_CHECKING:
    import pandas as pd

    from verticil.evaluate import Evaluation
    from verticil.shared.study import document


Table: TypeAlias = "Path | str | pd.DataFrame"
AnyStudy: TypeAlias = "Study | document.Study | Path | str"
Progress = Callable[[str, float | None], None]
"""Told what is done, and which part of everything is; None: nobody knows."""


@check_arguments()
def simulate(
    study: AnyStudy,
    tables: Mapping[str, Table] | Table,
    *,
    out: Path | str | None = None,
    id_column: str | None = None,
    seed: int | None = None,
    compare: bool = False,
    unreviewed: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Return what a federation of these parties would publish: a whole study in this process, by the code of the real nodes.

    Whoever simulates holds all the tables, so it protects nobody; the release says that it was simulated. `synthesize` is what
    one owner of the whole table would publish.

    Args:
        study: a study, or the path of its file.
        tables: for each party its table (a CSV or Parquet file, or a frame), or one table with all columns, whose rows are people
            where it has no id column.
        out: folder to make, with ``release`` and ``ca.crt``; None: a folder that goes when the release is no longer used.
        id_column: name of the id column; None: that of the study's draft, else ``id``.
        seed: derive the sites' secrets from it, for a repeatable run; None: ``[simulation] seed`` of the study, else random.
        compare: measure the distances to the real joint data: ``run.comparison`` of the result.
        unreviewed: run a draft that its author has not reviewed, too (`Study.mark_reviewed`).
        progress: told each step.

    Raises:
        Misuse: UNREVIEWED; USAGE, the study has one party.
        VerticilError: whatever a node would refuse or fail with in a federation.

    >>> import pandas as pd
    >>> import verticil.api as vt
    >>> tables = {"clinic": pd.DataFrame({"id": range(60), "smoker": ["yes", "no", "no"] * 20})}
    >>> tables["insurer"] = tables["clinic"].rename(columns={"smoker": "claims"})
    >>> study = vt.study.draft(tables)
    >>> vt.simulate(study, tables | {"bank": tables["clinic"]}, seed=1, unreviewed=True)
    Traceback (most recent call last):
        ...
    verticil.shared.core.errors.Misuse: USAGE: table of 'bank': no such party (hint: the parties are clinic, insurer)
    """
    from verticil.api.frames import as_files
    from verticil.pki.files import new_folder, removed_if_empty
    from verticil.simulation import simulate as simulated

    document = resolve_study(study)
    if seed is None:
        seed = _seed_of(study)
    with ExitStack() as stack:
        temporary = stack.enter_context(temporary_folder()) if out is None else None
        folder = new_folder(Path(out)) if out is not None else Path(str(temporary))
        stack.enter_context(removed_if_empty(folder if temporary is None else None))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verticil-tables-")))
        files = as_files(tables if isinstance(tables, Mapping) else {"table": tables}, place)
        run = simulated(
            document,
            files if isinstance(tables, Mapping) else files["table"],
            out=folder / "release",
            id_column=id_column,
            seed=seed,
            compare=compare,
            unreviewed=unreviewed,
            step=steps(progress),
        )
        return open_release(folder / "release", Anchors(ca=folder / "ca.crt"), run=run, temporary=temporary)


@check_arguments(tables="a mapping from names of related tables to files or frames")
def synthesize(
    table: Table,
    study: AnyStudy,
    *,
    tables: Mapping[str, Table] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    method: Literal["joint", "network", "privbayes", "posterior"] = "joint",
    seed: int | None = None,
    out: Path | str | None = None,
    state: Path | str | None = None,
    dataset: str | None = None,
    id_column: str | None = None,
    budget: float = math.inf,
    compare: bool = False,
    accept_noise: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Return what one owner of the whole table would publish: synthetic records, with one bound for everything together.

    The cost is charged to the owner's ledger before a count is taken, and ``run.spending`` of the result says it; the same table,
    study and seed again give the same release and cost nothing. `simulate` is what a federation of several parties would publish.

    Args:
        table: a CSV or Parquet file, or a frame; each row is a person.
        study: a study of the table's columns, or the path of its file.
        tables: the related tables of the study by name, with several rows a person: files or frames. ``tables()`` of the result
            returns theirs.
        epsilon, delta: of everything that is published, for each person; None: the study's, else 1 and 1e-9.
        method: what records are drawn from.
        seed: another one is another measurement, and charged; None: the study's.
        out: folder to make, with ``release`` and ``ca.crt``; None: a folder that goes when the release is no longer used.
        state: folder of secret, ledger and keys; None: ``verticil-curator`` beside the table, of a frame in the working folder.
        dataset: the name by which epsilon is added up; None: the file's name without its ending, of a frame ``table``.
        id_column: names the person: no two rows may have the same; None: each row is a person.
        budget: most epsilon that all releases of the data set may cost together.
        compare: ``run.comparison`` of the result has the distances of each method to the table, for the owner's eyes only.
        accept_noise: go on although the noise hides the shares of single columns.
        progress: told each step.

    Raises:
        Misuse, DataFault, Refusal: as ``verticil synthesize``.
    """
    from verticil.curator import synthesize as synthesized
    from verticil.curator.synthesis import free_place, is_table
    from verticil.shared.privacy.accounts import Cost

    if out is not None and is_table(Path(out)):
        raise Misuse(
            "USAGE", f"out: got '{out}', expected a folder", hint="release.table() has the records: save those"
        )
    document = resolve_study(study, by_owner=True)
    with ExitStack() as stack:
        temporary = stack.enter_context(temporary_folder()) if out is None else None
        folder = free_place(Path(out)) if out is not None else Path(str(temporary)) / "made"
        run = synthesized(
            table,
            document,
            tables=tables,
            epsilon=epsilon,
            delta=delta,
            method=method,
            seed=seed,
            out=folder,
            state=state,
            dataset=dataset,
            id_column=id_column,
            budget=Cost(epsilon=budget, delta=math.inf),
            compare=compare,
            accept_noise=accept_noise,
            step=steps(progress),
        )
        return open_release(folder / "release", Anchors(ca=folder / "ca.crt"), run=run, temporary=temporary)


@check_arguments(related="a mapping from names of related tables to files")
def evaluate(
    real: Table,
    synthetic: Table | Release | Mapping[str, Table | Release],
    *,
    holdout: Table | None = None,
    study: AnyStudy | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    seed: int = 0,
    target: str | None = None,
    related: Mapping[str, Path | str] | None = None,
    id_column: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Hold synthetic tables of anybody, or releases, against the real one, as ``verticil evaluate`` does.

    It reads real data, and what it finds is a function of them without noise: it is for those who hold them, and for nobody else.

    Args:
        real: the records that the synthetic ones were made from: a CSV or Parquet file, or a frame.
        synthetic: a table or release, or several by name.
        holdout: further real records of the same population that no synthetic one was made from; attacks need them.
        study: whose codebook and rules are used; None: those of the releases, and without one the real table's values.
        only: metrics, or families of them, a list or one name; none: all.
        full: without limits on the number of records.
        seed: the same one gives the same result.
        target: column that classifiers predict and attacks ask for; None: the one that the others tell best.
        related: files of the related tables of the releases' study by name, with several rows a person.
        id_column: names the person in `real`, a file then, and in all of `related`.
        progress: told each metric.

    Returns:
        What was found: `headline` and `metrics` as frames, `to_dict` as the document, `write` as a page, which a notebook shows.

    Raises:
        Misuse, DataFault: as ``verticil evaluate``.
    """
    from verticil.evaluate import evaluate as evaluated

    if seed < 0:
        raise Misuse(
            "USAGE", f"seed: got {seed}, expected 0 or more", hint="leave it out, or write another whole number"
        )
    full_study = None if study is None else resolve_study(study, by_owner=True)
    if isinstance(synthetic, Release):
        synthetic = {synthetic.id: synthetic}
    tables = {name: _records(item) for name, item in synthetic.items()} if isinstance(synthetic, Mapping) else synthetic
    return evaluated(
        real,
        tables,
        holdout=holdout,
        study=full_study,
        only=only,
        full=full,
        seed=seed,
        target=target,
        related=related,
        id_column=id_column,
        progress=progress,
    )


def _records(item: Table | Release) -> Table:
    """Return a table, or the folder of a release whose records are those that were verified."""
    return item.file("synthetic.parquet").parent if isinstance(item, Release) else item


def steps(progress: Progress | None) -> Callable[[str], None]:
    """Return what is told each line of a run whose length nobody knows."""

    def report(line: str) -> None:
        if progress is not None:
            progress(line, None)

    return report


def _seed_of(study: AnyStudy) -> int | None:
    """Return the seed that the study's file has for simulations."""
    from verticil.shared.documents.config import toml_table
    from verticil.shared.study.reading import simulation_seed_from

    if isinstance(study, Path | str):
        study = read(study)
    if not isinstance(study, Study):
        return None
    return simulation_seed_from(toml_table(study.text, source="study.toml"), "simulation")
