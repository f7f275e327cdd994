"""`evaluate`: any synthetic table held against the real one, with what chance and what a useless table would show beside it.

It reads real data, and what it says is a function of them without noise: for the holder of the data alone. The same tables and
seed give the same bytes.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.evaluate.coding import Coding, coding
from verticil.evaluate.differences import explain_differences
from verticil.evaluate.fidelity import LOGISTIC_RECORDS, TREE_RECORDS
from verticil.evaluate.figures import Figure, Summary, figure, summaries, worst_first
from verticil.evaluate.following_columns import following
from verticil.evaluate.metrics import Measured, Metric, Row, Setting
from verticil.evaluate.plots import PARTS, Part, document
from verticil.evaluate.reading import release_folder, study_of_release, table_of
from verticil.evaluate.related import RelatedFigure, compare_related
from verticil.evaluate.related import documents as related_documents
from verticil.evaluate.resampling import (
    ATTACKED,
    LEAST_ATTACKED,
    PUBLISHED,
    SEEDS,
    TESTED,
    TRAINING,
    Play,
    Round,
    rounds,
    size_of,
)
from verticil.evaluate.shapes import Shapes, shapes_of
from verticil.evaluate.suite import select_metrics, target_of
from verticil.evaluate.utility import LEARNED
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_command
from verticil.shared.documents.json_document import Json
from verticil.shared.release.plot import Plot
from verticil.shared.storage.disk import check_place, write_fault
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import people_study
from verticil.tables.texts import TextTable

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[str, float], None]
"""Told what is done, and which part of everything is."""

INTERNAL: Final = (
    "This reads real data, and every number in it is a function of them without noise. It is for those who hold the data, and "
    "for nobody else."
)
HTML, JSON = "evaluation.html", "evaluation.json"
_DIGITS: Final = 10
_PACKAGES: Final[Mapping[str, str]] = {"scikit-learn": "sklearn", "scipy": "scipy"}
_NO_HOLDOUT: Final = "is skipped: it needs real records that the synthetic ones were not made from (--holdout)"
_FEW: Final = (
    f"is skipped: it needs {SEEDS * LEAST_ATTACKED} records of the real table and of the holdout, to attack other people in "
    "each seed"
)
_NO_RULES: Final = "needs a study whose knowledge states rules (--study)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """What was found.

    Attributes:
        figures: the headline figures of all candidates, not sorted.
        summaries: of each candidate, the most useful first.
        measured: metric -> rows: of each table (candidates, ``floor``, ``baseline``) and seed the values.
        details: metric -> rows of each candidate in more detail, of the first seed.
        facts: what was compared and how: records, columns, limits, versions.
        notes: what the reader has to know of the tables.
        left_out: metric -> why it was not computed.
        differences: of each candidate that is judged by a study's codebook, why it is further from the real table by value, a
            sentence for each column.
        shapes: of each candidate what can be looked at: shares, distances and associations of pairs, the worst pairs.
        related: figures of related tables, with several rows a person, of releases that have them.
        across: what nobody in a federation can compute, and what stands in; None: this is no party's own evaluation.
    """

    figures: tuple[Figure, ...]
    summaries: tuple[Summary, ...]
    measured: Mapping[str, Sequence[Row]]
    details: Mapping[str, Sequence[Row]]
    facts: Mapping[str, Json]
    notes: tuple[str, ...]
    left_out: Mapping[str, str]
    differences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shapes: Mapping[str, Shapes] = field(default_factory=dict)
    related: tuple[RelatedFigure, ...] = ()
    across: Mapping[str, Json] | None = None

    @property
    def headline(self) -> pd.DataFrame:
        """The headline figures, the worst first: a row for each figure and candidate."""
        import pandas as pd

        return pd.DataFrame([_row(item) for _, row in worst_first(self.figures) for item in row])

    @property
    def metrics(self) -> dict[str, pd.DataFrame]:
        """Metric -> its values of each table and seed; ``NAME.details`` -> rows in more detail."""
        import pandas as pd

        return {
            **{name: pd.DataFrame(list(rows)) for name, rows in self.measured.items()},
            **{f"{name}.details": pd.DataFrame(list(rows)) for name, rows in self.details.items()},
        }

    def to_dict(self) -> dict[str, Json]:
        """Return the document of evaluation.json: null where nothing could be computed."""
        return {
            "schema": 1,
            "internal": INTERNAL,
            "facts": dict(self.facts),
            "notes": list(self.notes),
            "candidates": [
                {
                    "name": item.candidate,
                    "flags": list(item.flags),
                    "distance": _number(item.distance),
                    "useless": list(item.useless),
                    "of_use": item.of_use,
                    "discloses": list(item.discloses),
                    "of_disclosure": item.of_disclosure,
                }
                for item in self.summaries
            ],
            "headline": [_document(_row(item)) for _, row in worst_first(self.figures) for item in row],
            "left_out": dict(self.left_out),
            "differences": {name: list(lines) for name, lines in self.differences.items()},
            "plots": {name: item.to_dict() for name, item in self.shapes.items()},
            "metrics": {name: [_document(row) for row in rows] for name, rows in self.measured.items()},
            "details": {name: [_document(row) for row in rows] for name, rows in self.details.items()},
            **({"related": related_documents(self.related)} if self.related else {}),
            **({} if self.across is None else {"across": dict(self.across)}),
        }

    def plot(self, part: Part | None = None, *, candidate: str | None = None) -> Plot:
        """Draw a candidate beside the real table.

        Args:
            part: ``columns`` (shares of each), ``pairs`` (a heat map of distances) or ``correlations``; None: all three.
            candidate: its name; None: the most useful one.

        Raises:
            Misuse: USAGE, there is no such part or candidate.
        """
        name = self.summaries[0].candidate if candidate is None else candidate
        for asked, names in ((part, PARTS), (name, tuple(self.shapes))):
            if asked is not None and asked not in names:
                raise Misuse("USAGE", f"no plot of '{asked}'", hint=f"expected one of {', '.join(names)}")
        title = f"{name}: {part or 'all plots'}, real and synthetic"
        return Plot(svg=document(self.shapes[name], PARTS if part is None else (part,), title))

    def write(self, folder: Path | str) -> Path:
        """Make a folder with the page and the document.

        Raises:
            Misuse: FILE_EXISTS; FILE_MISSING, there is no folder that it could be made in, or nothing can be written there.
            DataFault: DISK_FULL, FILES_EXHAUSTED.
        """
        place = free_place(folder)
        try:
            place.mkdir()
            (place / HTML).write_text(self._repr_html_(), encoding="utf-8")
            text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)
            (place / JSON).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise write_fault(error, place) from None
        return place

    def _repr_html_(self) -> str:
        from verticil.evaluate.page import render

        return render(self)

    def __repr__(self) -> str:
        lines = [f"{item.candidate}: {item.words}" for item in self.summaries]
        return "\n".join([f"Evaluation of {len(self.summaries)} tables by {len(self.measured)} metrics", *lines[:2]])


def free_place(folder: Path | str) -> Path:
    """Return the place of a folder that `Evaluation.write` can make; a caller asks before the work.

    Raises:
        Misuse, DataFault: as `Evaluation.write`.
    """
    place = Path(folder)
    if place.exists():
        raise Misuse("FILE_EXISTS", f"{place}: exists already", hint="name another one: nothing is overwritten")
    check_place(place)
    return place


def evaluate(
    real: Path | str | pd.DataFrame,
    synthetic: Path | str | pd.DataFrame | Mapping[str, Path | str | pd.DataFrame],
    *,
    holdout: Path | str | pd.DataFrame | None = None,
    study: Path | str | Study | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    seed: int = 0,
    target: str | None = None,
    related: Mapping[str, Path | str] | None = None,
    id_column: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Hold synthetic tables against a real one.

    Of releases with related tables the people are held against `real`, and each related table against its file.

    Args:
        real: the records that the synthetic ones were made from: a CSV or Parquet file, or a frame.
        synthetic: a table or the folder of a release, or several by name.
        holdout: further real records of the same population that no synthetic one was made from; attacks need them.
        study: whose codebook and rules are used; None: those of the releases, and without one the real table's values.
        only: metrics, or families of them; none: all.
        full: without the limits of `TRAINING` and `TESTED` records.
        seed: the same one gives the same result.
        target: column that classifiers predict and attacks ask for; None: the one that the others tell best.
        related: files of related tables of the releases' study, by name, with several rows a person.
        id_column: names the person in `real` and in all of `related`.
        progress: told each metric before it is computed.

    Raises:
        Misuse: USAGE, an unknown metric or target, or a package of the extra is missing; FILE_MISSING, also a release without
            its study; STUDY_INVALID.
        DataFault: a table cannot be used, see `reading.table_of` and `coding.coding`.
    """
    from verticil.shared.study.reading import read_study

    agreed_study = study if study is None or isinstance(study, Study) else read_study(Path(study), by_owner=True)
    tables = dict(synthetic) if isinstance(synthetic, Mapping) else {_table_name(synthetic): synthetic}
    releases = {name: folder for name, table in tables.items() if (folder := release_folder(table)) is not None}
    notes: list[str] = []
    if agreed_study is None and releases:
        studies = [study_of_release(folder) for folder in releases.values()]
        if all(other == studies[0] for other in studies[1:]):
            agreed_study = studies[0]
        else:
            notes.append(
                "the releases are of different studies, so they are judged by value alone (--study names a codebook)"
            )
    notes += [
        f"{name} is a file of a release: give the release's folder, and it is judged by its study's codebook"
        for name, table in tables.items()
        if agreed_study is None and isinstance(table, str | Path) and (Path(table).parent / "study.json").is_file()
    ]
    record_file = "synthetic.parquet"
    full_study, figures = agreed_study, list[RelatedFigure]()
    if full_study is not None and full_study.related:
        agreed_study, record_file = people_study(full_study), "people.parquet"
        if releases and not related:
            notes.append("the rows of related tables are not compared: give each by --table NAME=FILE, and --id")
    tables |= {name: folder / record_file for name, folder in releases.items()}
    if not tables:
        raise Misuse("USAGE", "no synthetic table is given, expected at least one")
    select_metrics(only)
    if progress is not None:
        progress("reading", 0.0)
    if related:
        if full_study is None or not full_study.related or not releases or not isinstance(real, Path | str):
            raise Misuse(
                "USAGE",
                "--table goes with the folders of releases of one study with related tables, and with a file of real people",
                hint="give the folder of a release, as in --synthetic people-synthetic",
            )
        figures, own_notes = compare_related(
            Path(real),
            {name: Path(path) for name, path in related.items()},
            releases,
            full_study,
            id_column=id_column or "",
            seed=seed,
        )
        notes += own_notes
    evaluation = evaluate_texts(
        table_of(real, name="the real table"),
        {name: table_of(table, name=name) for name, table in tables.items()},
        None if holdout is None else table_of(holdout, name="the holdout"),
        study=agreed_study,
        only=only,
        full=full,
        seed=seed,
        target=target,
        progress=progress,
    )
    return dataclasses.replace(evaluation, notes=(*notes, *evaluation.notes), related=tuple(figures))


def evaluate_texts(
    real: TextTable,
    synthetic: Mapping[str, TextTable],
    holdout: TextTable | None = None,
    *,
    study: Study | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    seed: int = 0,
    target: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """`evaluate` of tables that are read; arguments and errors as there."""
    metrics = select_metrics(only)
    if absent := [name for name, module in _PACKAGES.items() if find_spec(module) is None]:
        raise Misuse(
            "USAGE",
            f"evaluation needs {' and '.join(absent)}, not installed here",
            hint=install_command("evaluate"),
        )
    tables = coding(real, synthetic, holdout, study=study)
    follow, names = {} if study is None else following(study), tables.real.names
    compared = tables.by_codebook or tables
    if target is None:
        target_place, explained = target_of(compared.real, tables.binned, follow)
    else:
        target_place, explained = _place_of(target, real, tables), math.nan
    telling = tuple(place for place, name in enumerate(names) if names[target_place] in follow.get(name, ()))
    setting = Setting(
        labels=tables.labels,
        target=target_place,
        telling=telling if len(telling) < len(names) - 1 else (),
        support=tables.support,
        functions=tables.functions,
        full=full,
        parties=() if study is None else _parties(names, study),
    )
    from sklearn import config_context
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    # Linear algebra on several cores costs more seconds of them than it saves, and tables are checked already.
    with threadpool_limits(1), config_context(assume_finite=True, skip_parameter_validation=True):
        evaluation = _evaluate_metrics(tables, setting, metrics, seed=seed, progress=progress or _ignore_progress)
    return dataclasses.replace(evaluation, facts={**evaluation.facts, "target_told": _number(explained)})


def _place_of(target: str, real: TextTable, tables: Coding) -> int:
    """Return the position of the column that is asked for.

    Raises:
        Misuse: USAGE, there is no such column, it was left out, or it has one value.
    """
    names = tables.real.names
    if target not in names:
        near = difflib.get_close_matches(target, names, 1)
        column = real.columns.get(target)
        problem = "is left out of the comparison (see the notes)" if column is not None else "is not in the tables"
        if column is not None and len(column.texts) < 2:
            problem = f"has one value in all {real.n_rows:,} rows of the real table, expected at least two"
        raise Misuse(
            "USAGE",
            f"column '{target}' cannot be predicted: it {problem}",
            hint=f"is it '{near[0]}'?" if near else f"some of {', '.join(names)}; without --target the best is chosen",
        )
    place = tables.real.column(target)
    if np.count_nonzero(np.bincount(tables.real.codes[place])) < 2:
        raise Misuse(
            "USAGE",
            f"column '{target}' cannot be predicted: it has one value in all {tables.real.n:,} rows of the real table, expected "
            "at least two",
            hint="leave --target out: the column that the others tell best is chosen",
        )
    return place


def _parties(names: Sequence[str], study: Study) -> tuple[str, ...]:
    """Return the party that holds each column; empty: nobody holds it."""
    functions = () if study.knowledge is None else study.knowledge.functions
    owners = {item.name: item.owner for item in (*study.schema.variables, *(item.variable for item in functions))}
    return tuple(owners.get(name, "") for name in names)


def _ignore_progress(_what: str, _part: float) -> None:
    """Report the progress to nobody."""


def _evaluate_metrics(
    tables: Coding, setting: Setting, metrics: Sequence[Metric], *, seed: int, progress: Progress
) -> Evaluation:
    size = size_of(tables.real, min(table.n for table in tables.synthetic.values()), full=setting.full)

    def draw(coded: Coding) -> list[Round]:
        return list(rounds(coded.real, coded.holdout, size=size, seed=seed, full=setting.full))

    compared = tables.by_codebook or tables
    all_rounds = draw(tables)
    code_rounds = all_rounds if compared is tables else draw(compared)
    value_rounds = [] if tables.by_value is None else draw(tables.by_value)
    measured_rows: dict[str, list[Row]] = {}
    details: dict[str, list[Row]] = {}
    left_out: dict[str, str] = {}
    figures: list[Figure] = []
    for number, metric in enumerate(metrics):
        reason = _reason(metric, tables, all_rounds[0])
        if reason:
            left_out[metric.name] = reason
            figures += [
                figure(definition, name, [], [], [], reason=reason)
                for definition in metric.figures
                for name in tables.synthetic
            ]
            continue
        progress(metric.title, number / len(metrics))
        # Attackers have the numbers beside the codes, and rules are about codes of either.
        with_numbers = metric.family in {"disclosure", "knowledge"}
        measurements = _measure_metric(
            metric, all_rounds if with_numbers else code_rounds, tables if with_numbers else compared, setting
        )
        measured_rows[metric.name] = _rows_of(measurements, all_rounds)
        if rows := [{"table": name, **row} for name in tables.synthetic for row in measurements[name][0].rows]:
            details[metric.name] = rows
        values: dict[str, list[Measured]] = {}
        if metric.by_value and tables.by_value is not None:
            value_setting = dataclasses.replace(setting, labels=tables.by_value.labels)
            values = _measure_metric(metric, value_rounds, tables.by_value, value_setting)
            measured_rows[f"{metric.name}_by_value"] = _rows_of(values, value_rounds)
        for definition in metric.figures:
            floor, baseline = (_of(measurements[name], definition.key) for name in ("floor", "baseline"))
            for name in tables.synthetic:
                own = figure(
                    definition,
                    name,
                    _of(measurements[name], definition.key),
                    floor,
                    baseline,
                    independent=metric.other_people,
                )
                if values:
                    means = [float(np.mean(_of(values[of], definition.key))) for of in (name, "floor")]
                    own = dataclasses.replace(own, by_value=means[0], by_value_floor=means[1])
                figures.append(own)
    progress("done", 1.0)
    return Evaluation(
        figures=tuple(figures),
        summaries=summaries(figures),
        measured=measured_rows,
        details=details,
        facts=_facts(tables, setting, all_rounds, size=size, seed=seed),
        notes=(*tables.notes, *_smaller(tables, size, full=setting.full)),
        left_out=left_out,
        shapes={name: shapes_of(compared.real, table, compared.labels) for name, table in compared.synthetic.items()},
        differences={name: explain_differences(tables, name) for name in tables.synthetic} if tables.by_value else {},
    )


def _rows_of(measurements: Mapping[str, Sequence[Measured]], all_rounds: Sequence[Round]) -> list[Row]:
    return [
        {"table": name, "seed": one.seed, **{key: _round_digits(value) for key, value in item.values.items()}}
        for name, items in measurements.items()
        for one, item in zip(all_rounds, items, strict=True)
    ]


def _reason(metric: Metric, tables: Coding, first: Round) -> str:
    """Say why a metric is not computed; empty: it is."""
    if metric.attacks and not first.others.n:
        return _NO_HOLDOUT if tables.holdout is None else _FEW
    rules = tables.functions or (tables.support is not None and tables.support.names)
    return _NO_RULES if metric.needs_rules and not rules else ""


def _measure_metric(
    metric: Metric, all_rounds: Sequence[Round], tables: Coding, setting: Setting
) -> dict[str, list[Measured]]:
    """Measure each candidate, the floor and the baseline, for each seed."""
    measurements: dict[str, list[Measured]] = {}
    most = None if setting.full else PUBLISHED
    for one in all_rounds:
        floor, baseline = one.references(is_attack=metric.attacks)
        plays: list[Play] = [
            *(one.candidate(name, table, most=most) for name, table in tables.synthetic.items()),
            floor,
            baseline,
        ]
        for play in plays:
            measurements.setdefault(play.name, []).append(metric.measure(one, play, setting))
    return measurements


def _of(items: Sequence[Measured], key: str) -> list[float]:
    return [float(item.values.get(key, math.nan)) for item in items]


def _smaller(tables: Coding, size: int, *, full: bool) -> list[str]:
    small = [name for name, table in tables.synthetic.items() if table.n == size]
    if full or size == TRAINING or not small:
        return []
    return [
        f"{small[0]} has only {size:,} records: so many of every table are compared, and chance is the larger for it"
    ]


def _facts(tables: Coding, setting: Setting, all_rounds: Sequence[Round], *, size: int, seed: int) -> dict[str, Json]:
    n_tested = all_rounds[0].tested.n
    return {
        "real_records": tables.real.n,
        "holdout_records": None if tables.holdout is None else tables.holdout.n,
        "synthetic_records": {name: table.n for name, table in tables.synthetic.items()},
        "columns": list(tables.real.names),
        "numeric": [
            name for name, values in zip(tables.real.names, tables.real.values, strict=True) if values is not None
        ],
        "target": tables.real.names[setting.target],
        "judged_by": "values" if tables.by_value is None else "codebook",
        "outside_the_study": {name: _round_digits(share) for name, share in tables.outside.items()},
        "compared_records": size,
        "tested_records": n_tested,
        "attacked_records": all_rounds[0].members.n,
        "limits": None
        if setting.full
        else {
            "training": TRAINING,
            "tested": TESTED,
            "attacked": ATTACKED,
            "tree": TREE_RECORDS,
            "logistic": LOGISTIC_RECORDS,
            "learned": LEARNED,
            "published": PUBLISHED,
        },
        "seeds": [one.seed for one in all_rounds],
        "rules": [*(() if setting.support is None else setting.support.names), *setting.functions],
        "versions": {name: version(name) for name in ("verticil", "numpy", "scipy", "scikit-learn")},
        "seed": seed,
    }


def _table_name(table: Path | str | pd.DataFrame) -> str:
    return Path(table).stem if isinstance(table, str | Path) else "synthetic"


def _row(item: Figure) -> Row:
    return {
        "figure": item.asked.key,
        "title": item.asked.title,
        "family": item.asked.family,
        "better": item.asked.better,
        "candidate": item.candidate,
        "value": item.value,
        "deviation": item.deviation,
        "floor": item.floor,
        "floor_deviation": item.floor_deviation,
        "baseline": item.baseline,
        "by_value": item.by_value,
        "by_value_floor": item.by_value_floor,
        "position": item.position,
        "verdict": item.verdict,
        "seeds": item.seeds,
        "reason": item.reason,
    }


def _document(row: Row) -> Json:
    return {key: _number(value) if isinstance(value, float) else value for key, value in row.items()}


def _number(value: float) -> float | None:
    return _round_digits(value) if math.isfinite(value) else None


def _round_digits(value: float) -> float:
    """Round to so many digits as no order of additions changes."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else math.nan
