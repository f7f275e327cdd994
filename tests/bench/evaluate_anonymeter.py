"""Linkability, inference, singling out and risks of `verticil evaluate` beside anonymeter's, on people with mixed columns.

``python tests/bench/evaluate_anonymeter.py`` prints a row for each: ours, theirs, the difference, and why where there is one. It
ends with 1 where one is larger than 1e-9 and not explained, and writes evaluate_anonymeter.json beside this file, with date and
versions.

anonymeter 1.1.0 needs numpy 1, so the script makes an environment of its own for it in the user's cache (``python -m venv`` and
``pip install``), or takes ``--python PATH``, an interpreter.

Both programs get the same places on a scale of 2,048 steps for numbers, so that both sum the same distances without rounding:
ours places a number among the published ones, anonymeter between the least and the largest. Ties are where the two differ: of
equally near records ours takes all, anonymeter one, so that tables without ties must agree in every person, and those of Adult's
codes are shown with their ties.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from other_environment import interpreter

from verticil.evaluate.coding import coding
from verticil.evaluate.disclosure import guessed_rightly
from verticil.evaluate.measures import singling_out
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.neighbours import UNITS, Points, find_links, guesses
from verticil.evaluate.measures.risks import rate, risk
from verticil.evaluate.reading import table_of
from verticil.experiments.hittmeir import datasets

N, PUBLISHED = 800, 1_500
CATEGORIES, NUMBERS = (3, 5, 2, 4), 4
LEFT = (0, 1, 4, 5)
WRITTEN = Path(__file__).with_suffix(".json")
ANONYMETER = "1.1.0"

Row = tuple[str, float, float, str]  # metric, ours, theirs, why they differ

# Runs in the other environment: tables and conditions in, counts out.
THEIRS = """
import json, sys
from functools import reduce
from importlib.metadata import version
import numpy as np
import pandas as pd
import polars as pl
from anonymeter.evaluators.inference_evaluator import InferenceEvaluator
from anonymeter.evaluators.linkability_evaluator import LinkabilityEvaluator
from anonymeter.evaluators import singling_out_evaluator as single
from anonymeter.stats.confidence import EvaluationResults

folder = sys.argv[1]
asked = json.load(open(f"{folder}/asked.json"))
found = {"tables": {}, "risks": [], "conditions": []}
for name, given in asked["tables"].items():
    tables = {}
    for which in ("people", "published"):
        table = pd.read_csv(f"{folder}/{name}_{which}.csv")
        for column in given["categories"]:
            table[column] = table[column].astype(str)
        tables[which] = table
    ori, syn = tables["people"], tables["published"]
    sides = (given["left"], [column for column in ori if column not in given["left"]])
    link = LinkabilityEvaluator(ori=ori, syn=syn, aux_cols=sides, n_attacks=len(ori)).evaluate(n_jobs=1).results()
    guessed = {}
    for secret in ori:
        aux = [column for column in ori if column != secret]
        number = secret not in given["categories"]
        made = InferenceEvaluator(ori=ori, syn=syn, aux_cols=aux, secret=secret, n_attacks=len(ori), regression=number)
        guessed[secret] = int(made.evaluate(n_jobs=1).results().n_success)
    found["tables"][name] = {"linked": int(link.n_success), "inferred": guessed}
for attacks, success, control in asked["risks"]:
    made = EvaluationResults(n_attacks=attacks, n_success=success, n_baseline=0, n_control=control).risk()
    found["risks"].append([float(made.value), [float(end) for end in made.ci]])
frames = [pl.read_csv(f"{folder}/single_{which}.csv") for which in ("published", "people")]
queries = [
    reduce(lambda a, b: a & b, [(pl.col(column) >= low) & (pl.col(column) <= high) for column, low, high in condition])
    for condition in asked["conditions"]
]
found["conditions"] = [[int(x) for x in single._evaluate_queries(df=frame, queries=queries)] for frame in frames]
one = single.univariate_singling_out_queries(frames[0].unique(), 10**6, np.random.default_rng(0))
found["univariate"] = [len(one), int(sum(x == 1 for x in single._evaluate_queries(df=frames[1], queries=one)))]
print(json.dumps([found, {name: version(name) for name in ("anonymeter", "numpy", "pandas", "polars", "numba")}]))
"""


def environment(asked: str | None) -> Path:
    """The interpreter of the other environment, which is made where it is not there."""
    return interpreter("anonymeter", f"anonymeter=={ANONYMETER}") if asked is None else Path(asked)


def mixed(seed: int, n: int, *, like: Points | None = None) -> Points:
    """Made-up people, some of them much `like` others, so that some are linked; the ends of the scale are in the first two."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=n)
    codes = [
        np.digitize(hidden + generator.normal(size=n), np.linspace(-1, 1, size - 1)).astype(np.uint8)
        for size in CATEGORIES
    ]
    share = [1 / (1 + np.exp(-(hidden + generator.normal(size=n)))) for _ in range(NUMBERS)]
    places = [np.rint(UNITS * one).astype(np.int16) for one in share]
    for place, column in enumerate([*codes, *places]):
        if like is not None:
            numbers = like.places[place]
            other = (like.table.codes[place] if numbers is None else numbers)[: like.n // 2]
            moved = other + (0 if numbers is None else generator.integers(-9, 10, len(other)))
            column[: len(other)] = np.clip(moved, 0, UNITS)
    for column in places:
        column[:2] = 0, UNITS
    table = CodedTable(
        names=tuple(f"c{place}" for place in range(len(CATEGORIES) + NUMBERS)),
        codes=(*codes, *((column // 205).astype(np.uint8) for column in places)),
        n_states=(*CATEGORIES, *(10 for _ in places)),
        values=(*(None for _ in codes), *(column.astype(np.float64) for column in places)),
    )
    return Points(
        table=table, places=(*(None for _ in codes), *places), missing=(False,) * len(table.names), units=UNITS
    )


def categories() -> tuple[Points, Points]:
    """Adult in codes: people and published records."""
    frame = pd.DataFrame({name: list(column) for name, column in datasets.adult().train.items()})
    rows = frame.sample(N + PUBLISHED, random_state=1).reset_index(drop=True)
    coded = coding(table_of(rows[:N], name="people"), {"published": table_of(rows[N:], name="published")})
    made = []
    for table in (coded.real, coded.synthetic["published"]):
        plain = CodedTable(
            names=table.names, codes=table.codes, n_states=table.n_states, values=(None,) * len(table.names)
        )
        nothing = (None,) * len(table.names)
        made.append(Points(table=plain, places=nothing, missing=(False,) * len(table.names), units=UNITS))
    return made[0], made[1]


def frame_of(table: CodedTable) -> pd.DataFrame:
    """Numbers, or codes."""
    columns = [codes if values is None else values for codes, values in zip(table.codes, table.values, strict=True)]
    return pd.DataFrame(dict(zip(table.names, columns, strict=True)))


def counts(people: Points, published: Points) -> tuple[int, dict[str, int], dict[str, int]]:
    """Ours: people who are linked, who are guessed of each column, and for how many several records are nearest."""
    inferred, tied = {}, {}
    for guess in guesses(people, published, [None] * len(people.table.names)):
        name = people.table.names[guess.column]
        inferred[name] = int(guessed_rightly(guess, people.table, published.table).sum())
        tied[name] = int((guess.counts.sum(axis=1) > 1).sum())
    return int(find_links(people, published, LEFT).sum()), inferred, tied


def main() -> int:
    """Run both, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", metavar="PATH", help="the interpreter of an environment that has anonymeter")
    python = environment(parser.parse_args().python)
    people_of = mixed(1, N)
    tables = {"mixed": (people_of, mixed(2, PUBLISHED, like=people_of)), "adult": categories()}
    risks = [(500, 40, 20), (500, 20, 40), (500, 500, 0), (1000, 1000, 1000), (300, 0, 0), (20, 19, 3)]
    people, published = mixed(3, N).table, mixed(4, PUBLISHED).table
    generator = np.random.default_rng(1)
    several = singling_out.of_several(published, 200, generator=generator)
    one = singling_out.of_one_column(published, 10**6, generator=generator)
    asked: dict[str, Any] = {
        "tables": {
            name: {
                "left": [pair[0].table.names[place] for place in LEFT],
                "categories": [n for n, v in zip(pair[0].table.names, pair[0].table.values, strict=True) if v is None],
            }
            for name, pair in tables.items()
        },
        "risks": risks,
        "conditions": [
            [
                (published.names[several.columns[at, k]], float(several.low[at, k]), float(several.high[at, k]))
                for k in range(several.columns.shape[1])
            ]
            for at in range(len(several))
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        for name, pair in tables.items():
            for which, points in zip(("people", "published"), pair, strict=True):
                frame_of(points.table).to_csv(f"{folder}/{name}_{which}.csv", index=False)
        for which, table in (("people", people), ("published", published)):
            frame_of(table).to_csv(f"{folder}/single_{which}.csv", index=False)
        command = [str(python), "-W", "ignore", "-c", THEIRS, folder]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    theirs, versions = json.loads(run.stdout.splitlines()[-1])

    def rows() -> Iterator[Row]:
        for name, pair in tables.items():
            links, inferred, tied = counts(*pair)
            other = theirs["tables"][name]
            why = "" if name == "mixed" else "of equally near records ours takes all, anonymeter one"
            yield f"linked, {name}", links, other["linked"], why
            for column, count in inferred.items():
                apart = abs(count - other["inferred"][column])
                why = f"{tied[column]} of {N} have several nearest records" if 0 < apart <= tied[column] else ""
                yield f"inferred, {name}, {column}", count, other["inferred"][column], why
        for (attacks, success, control), (value, ends) in zip(risks, theirs["risks"], strict=True):
            ours = risk(rate(success, attacks), rate(control, attacks))
            what = f"risk of {success} and {control} of {attacks}"
            for word, mine, their in (
                ("", ours.value, value),
                (", low", ours.low, ends[0]),
                (", high", ours.high, ends[1]),
            ):
                yield what + word, min(max(mine, 0.0), 1.0), their, ""
        held = [several.holding(table) for table in (published, people)]
        for word, mine, their in zip(("published", "people"), held, theirs["conditions"], strict=True):
            yield f"conditions on 3 columns, agreeing counts, {word}", int((mine == their).sum()), len(several), ""
        yield "conditions on one column", len(one), theirs["univariate"][0], ""
        yield (
            "conditions on one column, of one person",
            int((one.holding(people) == 1).sum()),
            theirs["univariate"][1],
            "",
        )

    found = [
        {"metric": what, "ours": ours, "anonymeter": other, "difference": abs(ours - other), "why": why}
        for what, ours, other, why in rows()
    ]
    unexplained = [row for row in found if row["difference"] > 1e-9 and not row["why"]]  # type: ignore[operator]
    for row in found:
        print(
            f"{row['metric']:55} {row['ours']:<12.8g} {row['anonymeter']:<12.8g} {row['difference']:<9.2g} {row['why']}"
        )
    packages = {name: version(name) for name in ("numpy", "pandas")}
    document = {
        "data": f"made-up mixed columns and Adult in codes, {N} people and {PUBLISHED:,} published records",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": packages,
        "versions of the other environment": versions,
        "rows": found,
    }
    WRITTEN.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} rows, {len(unexplained)} different and not explained: {WRITTEN.name}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
