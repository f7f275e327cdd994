"""How often intervals of ``release.regress`` and ``release.tabulate`` hold: ``python tests/bench/release_regression.py``.

The people of a table are the population. In each seed as many people are drawn from it, with replacement, counted with new noise
(or randomized column by column, ``--columns``). The release's tables are asked for the coefficients, and each nominal 95 %
interval is held against the population's own coefficient. A row has the number of coefficients (or of cells of a table), the
share of all intervals that hold, the least share of one of them, that of an ordinary regression on as many synthetic records, how
many seeds were refused, and the median width over that of an ordinary regression on the people. ``--sets M`` says why the
product answers nothing by records of M sampled networks: a logistic and a linear regression, and a table of three columns, by
the rule for fully synthetic sets. The bench ends with 1 where the share of all intervals of a table and its noise is outside
.93 to .97, or that of one coefficient below .85.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from joint_data import Data, four_parties, shipped

from support.release_tables import all_pairs, least_squares, noisy_tables, owner_study, release_of
from verticil.analysis.design import Design, design_of
from verticil.analysis.formula import parse
from verticil.analysis.moments import regress_tables
from verticil.analysis.published_shares import Measured
from verticil.analysis.tabulation import tabulate
from verticil.curator.study import owners_study
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.shared.core.errors import GateFailed
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.numerics.posterior.combining import of_full
from verticil.shared.numerics.posterior.statistics import fit_logistic
from verticil.shared.study.document import Study
from verticil.shared.synthesis.synthesis import sample_codes

FORMULAS = {
    "adult": (
        "`hours-per-week` ~ age + sex + education + race",
        "income == '>50K' ~ age + `hours-per-week` + sex + education + race",
    ),
    "ma2019": (
        "AGEP ~ SEX + OWN_RENT + DPHY + PINCP",
        "OWN_RENT == '1' ~ AGEP + SEX + PINCP + HOUSING_TYPE",
    ),
}
TABLES = {"adult": ("sex", "education"), "ma2019": ("SEX", "PINCP")}
ORDINARY = 20
"""Seeds in which synthetic records are drawn, too."""
OF_SETS = ("age", "sex", "marital-status", "hours-per-week", "income")
OF_SETS_FORMULA = "income == '>50K' ~ age + sex + `hours-per-week` + `marital-status`"


class Row:
    """One line: which intervals held."""

    def __init__(self, name: str, noise: str, text: str) -> None:
        self.head = f"{name:8} {noise:8} {text[:66]:66}"
        self.hits: dict[str, list[bool]] = {}
        self.ordinary: list[bool] = []
        self.widths: list[float] = []
        self.refused = 0
        self.started = time.process_time()

    def add(self, labels: Sequence[str], low: np.ndarray, truth: np.ndarray, high: np.ndarray) -> None:
        for label, holds in zip(labels, (low <= truth) & (truth <= high), strict=True):
            self.hits.setdefault(label, []).append(bool(holds))

    def often(self, seeds: int) -> dict[str, float]:
        """The share of intervals that hold, of each coefficient that half of the seeds have."""
        return {label: float(np.mean(some)) for label, some in self.hits.items() if len(some) >= seeds / 2}

    def show(self, seeds: int) -> None:
        """Print the line."""
        often = self.often(seeds)
        share, least = np.mean(every_hit([self]) or [np.nan]), min(often.values(), default=np.nan)
        ordinary, width = np.mean(self.ordinary or [np.nan]), np.median(self.widths or [np.nan])
        print(
            f"{self.head} {len(often):5}  {share:.3f}  {least:.2f}     {ordinary:.3f}  {self.refused:4}   {width:5.1f} "
            f"{time.process_time() - self.started:6.0f}",
            flush=True,
        )


def every_hit(rows: Sequence[Row]) -> list[bool]:
    """Whether each interval of some rows holds."""
    return [hit for row in rows for some in row.hits.values() for hit in some]


def judged(rows: Sequence[Row], seeds: int) -> bool:
    """Print the rows, and whether their intervals meet the bounds together."""
    for row in rows:
        row.show(seeds)
    least = min((held for row in rows for held in row.often(seeds).values()), default=np.nan)
    share = np.mean(every_hit(rows) or [np.nan])
    good = bool(0.93 <= share <= 0.97 and least >= 0.85)
    print(f"    all {share:.3f}, least {least:.2f}{'' if good else ' MISSED'}", flush=True)
    if not good:
        print({label: round(held, 2) for row in rows for label, held in row.often(seeds).items()}, flush=True)
    return good


def drawn(data: Data, seed: int) -> list[np.ndarray]:
    chosen = np.random.default_rng([seed, 5]).integers(0, data.n, data.n)
    return [column[chosen] for column in data.columns]


def of_tables(name: str, data: Data, document: Study, epsilon: float | None, seeds: int, *, tabulated: bool) -> bool:
    formulas = [] if tabulated else [parse(text) for text in FORMULAS[name]]
    names = sorted({n for f in formulas for n in (f.outcome, *(t.column for t in f.terms))} | set(TABLES[name]))
    study = all_pairs(document if epsilon is None else owner_study(document, epsilon), names)
    noise = "columns" if epsilon is None else f"{epsilon:g}"
    rows = [Row(name, noise, text) for text in FORMULAS[name][: len(formulas)]]
    cells = Row(name, noise, f"table of {', '.join(TABLES[name])}")
    for seed in range(seeds):
        release = release_of(drawn(data, seed), study, seed, with_model=not tabulated or epsilon is None)
        if tabulated:
            table = tabulate(release, TABLES[name], level=0.95)
            truth = shares(data.columns, table.variables, study)
            cells.add([str(cell) for cell in range(truth.size)], table.low.ravel(), truth, table.high.ravel())
        records = (
            sample_codes(release.joint, data.n, generator=np.random.default_rng(seed))
            if formulas and seed < ORDINARY
            else None
        )
        for formula, row in zip(formulas, rows, strict=True):
            try:
                design, result = regress_tables(Measured(release), design_of(release, formula), 0.95)
            except GateFailed as error:
                row.refused += 1
                if row.refused == 1:
                    print(error, flush=True)
                continue
            truth, variance = least_squares(data.columns, design)
            row.add(design.labels, result.low, truth, result.high)
            row.widths += ((result.high - result.low) / (3.92 * np.sqrt(variance))).tolist()
            if records is not None:
                own, own_variance = least_squares(records, design)
                row.ordinary += (np.abs(own - truth) <= 1.96 * np.sqrt(own_variance)).tolist()
    return judged([cells] if tabulated else rows, seeds)


def shares(columns: Sequence[np.ndarray], variables: Sequence[int], study: Study) -> np.ndarray:
    """The population's own share of each combination, flat."""
    sizes = [study.schema.n_states[v] for v in variables]
    codes = np.ravel_multi_index([columns[v].astype(int) for v in variables], sizes)
    return np.bincount(codes, minlength=int(np.prod(sizes))) / len(codes)


def of_sets(epsilon: float, seeds: int, n_sets: int) -> bool:
    data, document = shipped()
    places = [data.schema.index(name) for name in OF_SETS]
    columns = [data.columns[place] for place in places]
    small = dataclasses.replace(data, columns=columns)
    document = dataclasses.replace(
        document,
        schema=Schema(variables=tuple(data.schema.variables[place] for place in places)),
        units=tuple(unit for name in OF_SETS for unit in document.units if unit.variables == (name,)),
        posterior=dataclasses.replace(document.posterior, steps=5000, data_sets=n_sets),
    )
    study = owners_study(document, method="posterior", epsilon=epsilon, delta=1e-9)
    logistic, linear, cells = (
        Row("adult", f"{epsilon:g}", f"{n_sets} sets, {what}")
        for what in (
            f"logistic, {OF_SETS_FORMULA}",
            "linear, the same",
            f"table of {', '.join(OF_SETS[1:4:2] + OF_SETS[4:])}",
        )
    )
    for seed in range(seeds):
        result = learn_from_tables(noisy_tables(drawn(small, seed), study, seed), study)
        release = SimpleNamespace(schema=study.schema, marginals=result.marginals)
        design = design_of(release, parse(OF_SETS_FORMULA))
        generator = np.random.default_rng(seed)
        size = min(10 * small.n, 200_000)
        sets = [sample_codes(network, size, generator=generator) for network in result.posterior.networks]

        def add(row: Row, labels: Sequence[str], fits: list, truth: np.ndarray, factor: float = size / small.n) -> None:
            estimates, variances = (np.array(part).T for part in zip(*fits, strict=True))
            ends = [of_full(q.tolist(), u.tolist(), factor=factor) for q, u in zip(estimates, variances, strict=True)]
            row.add(labels, np.array([end.low for end in ends]), truth, np.array([end.high for end in ends]))

        add(logistic, design.labels, [fit_set(one, design) for one in sets], population_logistic(columns, design))
        add(linear, design.labels, [least_squares(one, design) for one in sets], least_squares(columns, design)[0])
        truth, each = shares(columns, (1, 3, 4), study), [shares(one, (1, 3, 4), study) for one in sets]
        add(cells, [str(cell) for cell in range(truth.size)], [(q, q * (1 - q) / size) for q in each], truth)
    outcomes = [judged([row], seeds) for row in (logistic, linear, cells)]
    return all(outcomes)


def fit_set(records: Sequence[np.ndarray], design: Design) -> tuple[np.ndarray, np.ndarray]:
    """The logistic coefficients of one set of records, and the variances that it gives them."""
    shape = [len(design.values), *(len(predictor.features) for predictor in design.predictors)]
    cells = np.ravel_multi_index([records[v].astype(int) for v in design.variables], shape)
    rows, weights = np.unique(cells, return_counts=True)
    codes = np.unravel_index(rows, shape)
    features = (predictor.features[own] for predictor, own in zip(design.predictors, codes[1:], strict=True))
    x = np.column_stack([np.ones(len(rows)), *features])
    estimate = fit_logistic(x, design.values[codes[0]], weights.astype(float))
    share = 1 / (1 + np.exp(-x @ estimate))
    return estimate, np.diag(np.linalg.inv(x.T * (weights * share * (1 - share)) @ x))


def population_logistic(columns: Sequence[np.ndarray], design: Design) -> np.ndarray:
    x = np.column_stack([np.ones(len(columns[0])), *(p.features[columns[p.variable]] for p in design.predictors)])
    return fit_logistic(x, design.values[columns[design.outcome]], np.ones(len(x)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--table", choices=sorted(FORMULAS), action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument(
        "--columns", action="store_true", help="randomized columns, as the study says, in place of noise"
    )
    parser.add_argument("--tabulate", action="store_true", help="tables of two columns alone")
    parser.add_argument("--sets", type=int, metavar="M", help="releases of M sampled networks, at epsilon 1")
    options = parser.parse_args()
    print(f"{'table    noise    what':84} count   all   least  ordinary refused width CPU s")
    if options.sets:
        return 0 if of_sets(1.0, options.seeds, options.sets) else 1
    ok = True
    for name in options.table or sorted(FORMULAS):
        data, document = shipped() if name == "adult" else four_parties("ma2019_drafted.toml")
        for epsilon in [None] if options.columns else options.epsilon or [0.5, 1.0, 4.0]:
            ok &= of_tables(name, data, document, epsilon, options.seeds, tabulated=options.tabulate)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
