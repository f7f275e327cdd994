"""How often intervals of ``release.regress`` and ``release.tabulate`` hold: ``python tests/bench/release_regression.py``.

The people of a table are the population. In each seed as many people are drawn from it, with replacement, counted with new noise
(or randomized column by column). The release's tables are asked for the coefficients, and each nominal 95 % interval is held
against the population's own coefficient. A row has the number of coefficients, the share of all intervals that hold, the least
share of a coefficient, that of an ordinary regression on as many synthetic records, how many seeds were refused, and the median
width over that of an ordinary regression on the people. The bench ends with 1 where the share of all is outside .93 to .97, or
that of a coefficient below .85.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from joint_data import Data, four_parties, shipped

from support.release_tables import all_pairs, least_squares, owner_study, release_of
from verticil.analysis.design import design_of
from verticil.analysis.formula import parse
from verticil.analysis.moments import regress_tables
from verticil.analysis.tables import Measured
from verticil.shared.core.errors import GateFailed
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


ORDINARY = 20
"""Seeds in which synthetic records are drawn, too."""


def tables(name: str) -> tuple[Data, Study]:
    return shipped() if name == "adult" else four_parties("ma2019_drafted.toml")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--table", choices=sorted(FORMULAS), action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument(
        "--columns", action="store_true", help="randomized columns, as the study says, in place of noise"
    )
    options = parser.parse_args()
    ok = True
    print(
        "table    noise    formula                                            coefs   all   least  ordinary refused width CPU s"
    )
    for name in options.table or sorted(FORMULAS):
        data, document = tables(name)
        for epsilon in [None] if options.columns else options.epsilon or [0.5, 1.0, 4.0]:
            ok &= row(name, data, document, epsilon, options.seeds)
    return 0 if ok else 1


def row(name: str, data: Data, document: Study, epsilon: float | None, seeds: int) -> bool:
    formulas = [parse(text) for text in FORMULAS[name]]
    names = sorted({n for f in formulas for n in (f.outcome, *(t.column for t in f.terms))})
    study = all_pairs(document if epsilon is None else owner_study(document, epsilon), names)
    started = time.process_time()
    hits: list[dict[str, list[bool]]] = [{} for _ in formulas]
    ordinary: list[list[bool]] = [[] for _ in formulas]
    widths: list[list[float]] = [[] for _ in formulas]
    refused = [0] * len(formulas)
    for seed in range(seeds):
        generator = np.random.default_rng([seed, 5])
        chosen = generator.integers(0, data.n, data.n)
        people = [column[chosen] for column in data.columns]
        release = release_of(people, study, seed)
        records = sample_codes(release.joint, data.n, generator=generator) if seed < ORDINARY else None
        for place, formula in enumerate(formulas):
            try:
                design = design_of(release, formula)
                design, result = regress_tables(Measured(release), design, 0.95)
            except GateFailed as error:
                refused[place] += 1
                if refused[place] == 1 and seeds < 20:
                    print(error)
                continue
            truth, variance = least_squares(data.columns, design)
            for label, holds in zip(design.labels, (result.low <= truth) & (truth <= result.high), strict=True):
                hits[place].setdefault(label, []).append(bool(holds))
            widths[place] += ((result.high - result.low) / (3.92 * np.sqrt(variance))).tolist()
            if records is None:
                continue
            own, own_variance = least_squares(records, design)
            ordinary[place] += (np.abs(own - truth) <= 1.96 * np.sqrt(own_variance)).tolist()
    ok = True
    for place, text in enumerate(FORMULAS[name]):
        every = [hit for some in hits[place].values() for hit in some]
        often = {label: some for label, some in hits[place].items() if len(some) >= seeds / 2}
        share, least = np.mean(every or [np.nan]), min((np.mean(some) for some in often.values()), default=np.nan)
        good = bool(0.93 <= share <= 0.97 and least >= 0.85)
        ok &= good
        print(
            f"{name:8} {'columns' if epsilon is None else f'{epsilon:g}':8} {text:50} {len(often):5}  {share:.3f}  {least:.2f}   "
            f"{np.mean(ordinary[place] or [np.nan]):.3f}   {refused[place]:4}  {np.median(widths[place] or [np.nan]):6.1f} "
            f"{time.process_time() - started:6.0f} {'' if good else 'MISSED'}",
            flush=True,
        )
        if not good:
            print({label: round(float(np.mean(some)), 2) for label, some in often.items()})
    return ok


if __name__ == "__main__":
    sys.exit(main())
