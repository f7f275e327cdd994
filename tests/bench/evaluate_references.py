"""Every metric of `verticil evaluate` beside an independent implementation, on 3,000 and 3,000 records of Adult.

``python tests/bench/evaluate_references.py`` prints a row for each: ours, theirs, the difference, and why where that is above
1e-9. It ends with 1 where one is larger and not explained, and writes evaluate_references.json beside this file, with date and
versions.

statsmodels, scipy and scikit-learn are in the development environment. sdmetrics 0.32.0 is not (it needs an older pandas, and
copulas, whose licence is BUSL): the script makes an environment of its own for it in the user's cache (``python -m venv`` and
``pip install``), or takes ``--sdmetrics PATH``, an interpreter; ``--without-sdmetrics`` leaves its rows out. The k-marginal score
of SDNist is its formula, written out here: its package installs beside no current numpy.

The other table is the real one's next 3,000 records with every second column permuted, so that all metrics find something.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from other_environment import interpreter

from verticil.evaluate.coding import coding
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.disclosure import AttackedRecords, cap, gcap
from verticil.evaluate.measures.fidelity import conditional_kullback_leibler, distances, k_marginal
from verticil.evaluate.measures.propensity import logistic_propensity, tree_propensity
from verticil.evaluate.measures.regression import agreement, coefficients
from verticil.evaluate.measures.univariate import univariate
from verticil.evaluate.measures.utility import ALL_CLASSIFIERS, utility
from verticil.evaluate.reading import table_of
from verticil.evaluate.utility import label_records
from verticil.experiments.hittmeir import datasets

N, CLOSE = 3_000, 1e-9
LEAST = 300  # records of a category with a coefficient, so many that each is finite; the unit tests have others
WRITTEN = Path(__file__).with_suffix(".json")
SDMETRICS = "0.32.0"

Row = tuple[str, float, float, str, str]  # metric, ours, theirs, by what, why they differ

# Runs in the other environment: two tables of codes and one of numbers in, scores out.
THEIRS = """
import json, sys
from importlib.metadata import version
import pandas as pd
from sdmetrics.column_pairs import ContingencySimilarity
from sdmetrics.single_column import KSComplement, TVComplement
from sdmetrics.single_table import CategoricalCAP, CategoricalGeneralizedCAP

folder = sys.argv[1]
real, other = (pd.read_csv(f"{folder}/{name}.csv", dtype=str) for name in ("real", "other"))
numbers = [pd.read_csv(f"{folder}/{name}_numbers.csv") for name in ("real", "other")]
target, *keys = [real.columns[-1], *real.columns[:4]]
found = {
    "tv": {name: TVComplement.compute(real[name], other[name]) for name in real},
    "ks": {name: KSComplement.compute(numbers[0][name], numbers[1][name]) for name in numbers[0]},
    "pair": ContingencySimilarity.compute(real[keys[:2]], other[keys[:2]]),
}
few = real.head(600), other.head(600)
for kind, metric in (("gcap", CategoricalGeneralizedCAP), ("cap", CategoricalCAP)):
    found[kind] = metric.compute(*few, key_fields=keys, sensitive_fields=[target])
print(json.dumps([found, {name: version(name) for name in ("sdmetrics", "numpy", "pandas", "scipy")}]))
"""


def environment(asked: str | None) -> Path:
    """The interpreter of the other environment, which is made where it is not there."""
    return interpreter("sdmetrics", f"sdmetrics=={SDMETRICS}") if asked is None else Path(asked)


def tables() -> tuple[CodedTable, CodedTable]:
    """The real table and the other one, in one coding."""
    frame = pd.DataFrame({name: list(column) for name, column in datasets.adult().train.items()})
    order = np.random.default_rng(1).permutation(len(frame))
    real, other = (frame.iloc[order[start : start + N]].reset_index(drop=True) for start in (0, N))
    for name in other.columns[::2]:
        other[name] = other[name].to_numpy()[np.random.default_rng(2).permutation(N)]
    coded = coding(table_of(real, name="real"), {"other": table_of(other, name="other")})
    return coded.real, coded.synthetic["other"]


def fidelity(real: CodedTable, other: CodedTable) -> Iterator[Row]:
    """Against statsmodels, scipy and formulas."""
    import statsmodels.api as sm
    from scipy.special import kolmogorov
    from scipy.stats import entropy
    from statsmodels.stats.contingency_tables import Table

    frames = [pd.DataFrame(dict(zip(t.names, t.codes, strict=True))) for t in (real, other)]
    both = pd.concat(frames).astype("category")
    design = sm.add_constant(pd.get_dummies(both, drop_first=True).to_numpy(dtype=float))
    made = np.repeat([0.0, 1.0], [real.n, other.n])
    found = logistic_propensity(real, other)
    theirs = sm.GLM(made, design, family=sm.families.Binomial()).fit(tol=1e-15, maxiter=200)
    yield "pMSE, logistic", found.value, float(np.mean((theirs.fittedvalues - 0.5) ** 2)), "statsmodels GLM", ""
    rank = int(np.linalg.matrix_rank(design))
    yield "pMSE, parameters", found.rank, rank, "numpy matrix_rank", ""
    yield "pMSE, Snoke's null", found.conditional.mean, (rank - 1) * 0.25 * 0.5 / (2 * N), "formula", ""
    yield "pMSE, independent null", found.independent.mean, (rank - 1) * 0.25 / (2 * N), "formula", ""
    yield from _tree(real, other)
    for place, column in enumerate(univariate(real, other)):
        counts = np.stack([np.bincount(t.codes[place], minlength=real.n_states[place]) for t in (real, other)])
        if column.kind == "chi square":
            test = Table(counts[:, counts.sum(axis=0) > 0], shift_zeros=False).test_nominal_association()
            yield f"chi square, {column.name}", column.test.statistic, float(test.statistic), "statsmodels", ""
            yield f"chi square p, {column.name}", column.test.p_value, float(test.pvalue), "statsmodels", ""
            continue
        mine, others = (np.sort(t.values[place][~np.isnan(t.values[place])]) for t in (real, other))
        points = np.concatenate([mine, others])
        steps = [np.searchsorted(own, points, side="right") / len(own) for own in (mine, others)]
        largest = float(np.abs(steps[0] - steps[1]).max())
        yield f"Kolmogorov-Smirnov, {column.name}", column.test.statistic, largest, "distribution functions", ""
        size = np.sqrt(len(mine) * len(others) / (len(mine) + len(others)))
        why = "scipy takes the one-sample distribution of n m / (n + m) records, the reference its limit"
        limit = float(kolmogorov(size * largest))
        yield f"Kolmogorov-Smirnov p, {column.name}", column.test.p_value, limit, "scipy kolmogorov", why
    target = len(real.names) - 1
    ours = coefficients((real, other), target, least=LEAST)
    most = int(np.bincount(real.codes[target]).argmax())
    reference = [_logit(frame, of.names, most) for frame, of in zip(frames, ours, strict=True)]
    for which, own, fitted in zip(("real", "other"), ours, reference, strict=True):
        furthest = float(np.abs(own.values - fitted.params).max())
        yield f"coefficients, {which}, largest difference", 0.0, furthest, "statsmodels Logit", ""
        furthest = float(np.abs(own.errors - fitted.bse).max())
        yield f"standard errors, {which}, largest difference", 0.0, furthest, "statsmodels Logit", ""
    (l1, u1), (l2, u2) = (fitted.conf_int().T for fitted in reference)
    held = agreement(*ours)
    shared = np.minimum(u1, u2) - np.maximum(l1, l2)
    mean = float(np.mean((shared / (u1 - l1) + shared / (u2 - l2)) / 2))
    yield "overlap IO, mean", float(held.overlap.mean()), mean, "statsmodels conf_int", ""
    mean = float(np.mean(2 * np.maximum(shared, 0) / (u1 - l1 + u2 - l2)))
    yield "overlap O_IC, mean", float(held.overlap_or_none.mean()), mean, "statsmodels conf_int", ""
    mean = float(np.mean(np.abs(reference[1].params - reference[0].params) / reference[0].bse))
    yield "standardized difference, mean", float(held.difference.mean()), mean, "statsmodels Logit", ""
    for place in range(target):
        counts = [np.zeros((real.n_states[place], real.n_states[target])) for _ in frames]
        for table, of in zip(counts, (real, other), strict=True):
            np.add.at(table, (of.codes[place], of.codes[target]), 1)
        shares = counts[0].sum(axis=1) / N
        each = [entropy(p, q + 0.5) if p.sum() else 0.0 for p, q in zip(*counts, strict=True)]
        mine = conditional_kullback_leibler(*counts)
        yield f"conditional divergence, {real.names[place]}", mine, float(shares @ each), "scipy entropy", ""
    for ways in (2, 3):
        losses = [
            frames[0]
            .value_counts([*of], normalize=True)
            .sub(frames[1].value_counts([*of], normalize=True), fill_value=0)
            .abs()
            .sum()
            for of in combinations(real.names, ways)
        ]
        ours_of = k_marginal(distances(real.codes, other.codes, real.n_states, ways=ways))
        yield f"k-marginal, {ways} columns", ours_of, float((2 - np.mean(losses)) * 500), "SDNist's formula, pandas", ""


def _tree(real: CodedTable, other: CodedTable) -> Iterator[Row]:
    """Of a tree, by the shares in its leaves."""
    from sklearn.tree import DecisionTreeClassifier

    least = float(np.finfo(np.float32).min)
    features = np.concatenate(
        [
            np.column_stack(
                [c if v is None else np.nan_to_num(v, nan=least) for c, v in zip(t.codes, t.values, strict=True)]
            )
            for t in (real, other)
        ]
    ).astype(np.float32)
    made = np.repeat([0, 1], [real.n, other.n])
    seed = int(np.random.default_rng(5).integers(2**31))
    leaf = DecisionTreeClassifier(min_samples_leaf=20, random_state=seed).fit(features, made).apply(features)
    shares = pd.Series(made).groupby(leaf).transform("mean")
    found, _ = tree_propensity(real, other, generator=np.random.default_rng(5), permutations=0)
    yield "pMSE, tree", found.value, float(((shares - 0.5) ** 2).mean()), "leaves of scikit-learn's tree, pandas", ""


def _logit(frame: pd.DataFrame, names: tuple[tuple[str, int], ...], most: int) -> Any:
    """statsmodels on the same dummies: rare categories of a column are one."""
    import statsmodels.api as sm

    real = pd.DataFrame(dict(zip(REAL.names, REAL.codes, strict=True)))
    columns = [np.ones(len(frame))]
    for name, code in names[1:]:
        counts = real[name].value_counts()
        rare = {c for c in range(REAL.n_states[REAL.column(name)]) if counts.get(c, 0) < LEAST}
        columns.append(frame[name].isin(rare if code in rare else {code}).to_numpy(dtype=float))
    answers = (frame[REAL.names[-1]] == most).to_numpy(dtype=float)
    return sm.Logit(answers, np.column_stack(columns)).fit(disp=0, method="newton", tol=1e-14, maxiter=100)


def learned(real: CodedTable, other: CodedTable) -> Iterator[Row]:
    """Classifiers, against scikit-learn's own pipelines and metrics."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    models = {
        "NB": GaussianNB(),
        "SV": SVC(),
        "KN": KNeighborsClassifier(),
        "RF": RandomForestClassifier(random_state=1),
        "LR": LogisticRegression(),
        "DT": DecisionTreeClassifier(random_state=1),
        "NN": MLPClassifier(random_state=1, early_stopping=True),
    }
    training, tested = (label_records(table, len(real.names) - 1) for table in (other, real))
    (found,) = utility(training, [tested], seed=1, classifiers=ALL_CLASSIFIERS)
    why = {"SV": "equal records are one with a weight: the same optimum up to libsvm's tolerance of 1e-3"}
    for name, model in models.items():
        fitted = make_pipeline(StandardScaler(), model).fit(training.features, training.target)
        predicted = fitted.predict(tested.features)
        scores = (
            fitted.decision_function(tested.features) if name == "SV" else fitted.predict_proba(tested.features)[:, 1]
        )
        yield (
            f"accuracy, {name}",
            found.accuracy[name],
            accuracy_score(tested.target, predicted),
            "scikit-learn",
            why.get(name, ""),
        )
        f1 = f1_score(tested.target, predicted, average="macro")
        yield f"F1, {name}", found.f1[name], f1, "scikit-learn", why.get(name, "")
        yield f"AUC, {name}", found.auc[name], roc_auc_score(tested.target, scores), "scikit-learn", why.get(name, "")


def sdmetrics(real: CodedTable, other: CodedTable, python: Path) -> tuple[list[Row], dict[str, str]]:
    """Rows and versions of the other environment."""
    with tempfile.TemporaryDirectory() as made:
        for name, table in (("real", real), ("other", other)):
            codes = dict(zip(table.names, table.codes, strict=True))
            pd.DataFrame(codes).add_prefix("c ").to_csv(f"{made}/{name}.csv", index=False)
            numbers = {n: v for n, v in zip(table.names, table.values, strict=True) if v is not None}
            pd.DataFrame(numbers).to_csv(f"{made}/{name}_numbers.csv", index=False)
        done = subprocess.run(
            [str(python), "-W", "ignore", "-c", THEIRS, made], check=True, capture_output=True, text=True
        )
    found, versions = json.loads(done.stdout.splitlines()[-1])
    rows: list[Row] = []
    for column in univariate(real, other):
        rows.append(
            (
                f"distance, {column.name}",
                column.distance,
                1 - found["tv"][f"c {column.name}"],
                "sdmetrics TVComplement",
                "",
            )
        )
        if column.kind != "chi square":
            theirs = 1 - found["ks"][column.name]
            rows.append(
                (f"Kolmogorov-Smirnov, {column.name}", column.test.statistic, theirs, "sdmetrics KSComplement", "")
            )
    pair = distances(real.codes, other.codes, real.n_states, ways=2, tables=[(0, 1)]).mean
    rows.append(("distance of two columns", pair, 1 - found["pair"], "sdmetrics ContingencySimilarity", ""))
    few = [
        AttackedRecords(keys=tuple(codes[:600] for codes in table.codes[:4]), sensitive=table.codes[-1][:600])
        for table in (real, other)
    ]
    rows.append(("GCAP", gcap(*few).mean, 1 - found["gcap"], "1 - sdmetrics CategoricalGeneralizedCAP", ""))
    rows.append(("CAP", cap(*few).mean, 1 - found["cap"], "1 - sdmetrics CategoricalCAP", ""))
    return rows, versions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sdmetrics", metavar="PATH", help="the interpreter of an environment that is there")
    parser.add_argument("--without-sdmetrics", action="store_true")
    options = parser.parse_args()
    rows = [*fidelity(REAL, OTHER), *learned(REAL, OTHER)]
    versions = {name: version(name) for name in ("numpy", "pandas", "scipy", "scikit-learn", "statsmodels")}
    theirs: dict[str, str] = {}
    if not options.without_sdmetrics:
        further, theirs = sdmetrics(REAL, OTHER, environment(options.sdmetrics))
        rows += further
    failed = 0
    documents = []
    for metric, ours, reference, by, why in rows:
        difference = abs(ours - reference)
        close = difference <= CLOSE * max(1.0, abs(reference))
        failed += not close and not why
        words = "" if close else why or "NOT EXPLAINED"
        print(f"{metric:<45} {ours:>15.10g} {reference:>15.10g} {difference:>9.1e}  {by}  {words}".rstrip())
        documents.append(
            {
                "metric": metric,
                "ours": ours,
                "reference": float(reference),
                "difference": difference,
                "by": by,
                "why": words,
            }
        )
    print(f"{len(rows)} figures, {failed} differ by more than {CLOSE:g} without a reason")
    document = {
        "data": f"Adult, {N:,} and {N:,} records",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": versions,
        "versions of the other environment": theirs,
        "rows": documents,
    }
    WRITTEN.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if failed else 0


REAL, OTHER = tables()
if __name__ == "__main__":
    sys.exit(main())
