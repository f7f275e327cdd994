"""The KIPPS generator on Adult: seconds of a training, and what its loss of rules does at equal epsilon and steps.

    OPENBLAS_NUM_THREADS=1 python tests/bench/kipps.py [--steps 1500] [--seeds 3] [--epsilon 3] [--delta 1e-5]

Needs the extra ``gan``. 26,048 of the training rows, columns in the bins below; rules: Husband => Male, Wife => Female, both =>
married, workclass unknown or Never-worked => occupation unknown, Armed-Forces => Federal-gov, and education => education-num (16
combinations). education-num is generated here, so that there is something to violate; a study of the product makes it by lookup.
Shares of violations are of records as they are drawn, before any is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from verticil.evaluate.measures.fidelity import distances
from verticil.experiments.hittmeir import datasets
from verticil.gan.accounting import training_for
from verticil.gan.settings import Settings
from verticil.gan.streams import Stream
from verticil.gan.training import Trained, train
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.rules import Condition, Function, Knowledge, Rule
from verticil.shared.numerics.model.schema import Schema, Variable

N = 26_048
RECORDS = 50_000
CUTS = {
    "age": (22, 27, 32, 37, 45, 55, 65),
    "hours-per-week": (20, 35, 40, 50),
    "capital-gain": (1, 5000, 10_000),
    "capital-loss": (1, 1800, 2000),
}
MARRIED = ("Married-civ-spouse", "Married-AF-spouse")


def adult() -> tuple[Schema, list[Codes], Knowledge]:
    """The rows, their columns and what is stated of them."""
    rows = dict(datasets.adult().train)
    # The shipped file leaves education out, of which education-num numbers the categories, one to one.
    rows["education"] = np.array([f"level {value}" for value in rows["education-num"]])
    order = np.random.default_rng(0).permutation(len(rows["age"]))[:N]
    variables, codes = [], []
    for name, values in rows.items():
        if name in CUTS:
            column = np.searchsorted(CUTS[name], values.astype(np.int64), side="right")
            labels = tuple(map(str, range(len(CUTS[name]) + 1)))
        else:
            found = ["?" if "?" in str(value) or not str(value).strip() else str(value).strip() for value in values]
            names, column = np.unique(found, return_inverse=True)
            labels = tuple(map(str, names))
        variables.append(Variable(name=name, owner="owner", labels=labels))
        codes.append(column[order].astype(np.uint8))
    schema = Schema(variables=tuple(variables))
    return schema, codes, _knowledge(schema, codes)


def _knowledge(schema: Schema, codes: list[Codes]) -> Knowledge:
    def rule(name: str, when: tuple[str, ...], then: tuple[str, ...]) -> Rule:
        (variable, *values), (other, *others) = when, then

        def declared(name: str, wanted: list[str]) -> tuple[str, ...]:
            return tuple(label for label in schema[schema.index(name)].labels if label in wanted)

        return Rule(
            name=name,
            when=(Condition(variable=variable, values=declared(variable, values)),),
            then=(Condition(variable=other, values=declared(other, others)),),
        )

    education, number = (schema.index(name) for name in ("education", "education-num"))
    pairs = sorted(set(zip(codes[education].tolist(), codes[number].tolist(), strict=True)))
    return Knowledge(
        rules=(
            rule("husband", ("relationship", "Husband"), ("sex", "Male")),
            rule("wife", ("relationship", "Wife"), ("sex", "Female")),
            rule("spouse", ("relationship", "Husband", "Wife"), ("marital-status", *MARRIED)),
            rule("no work", ("workclass", "?", "Never-worked"), ("occupation", "?")),
            rule("army", ("occupation", "Armed-Forces"), ("workclass", "Federal-gov")),
        ),
        functions=(
            Function(
                name="years of education",
                variable=schema[number],
                position=number,
                of=("education",),
                values=tuple((schema[education].labels[a], schema[number].labels[b]) for a, b in pairs),
            ),
        ),
    )


def drawn(trained: Trained, seed: int) -> list[Codes]:
    """Records as the generator gives them."""
    stream = Stream(seed.to_bytes(32, "big"), b"bench")
    logits = trained.logits(stream, RECORDS)
    noisy = np.split(logits + stream.gumbel(*logits.shape), np.cumsum(trained.schema.n_states)[:-1], axis=1)
    return [part.argmax(axis=1).astype(np.uint8) for part in noisy]


def violations(trained: Trained, codes: list[Codes]) -> tuple[float, float]:
    """Shares of records that break a rule, and that have another education-num than their education's."""
    broken = {flag: np.zeros(len(codes[0]), dtype=np.bool_) for flag in (True, False)}
    for term in trained.rules:
        broken[term.flagged] |= term.violated(codes)
    return float(broken[True].mean()), float(broken[False].mean())


def main() -> None:
    """Print a line for each training, and the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--rule-weight", type=float, default=Settings().rule_weight)
    parser.add_argument("--rates", type=float, nargs=2, default=Settings().rates)
    asked = parser.parse_args()
    schema, codes, knowledge = adult()
    event = training_for(asked.epsilon, asked.delta, steps=asked.steps, rate=Settings().rate(N), tables=len(schema))
    print(f"{N} rows, {sum(schema.n_states)} categories; {event}", flush=True)
    independent = [distances(codes, None, schema.n_states, ways=ways).mean for ways in (2, 3)]
    print(f"independent exact columns: 2-way {independent[0]:.4f}, 3-way {independent[1]:.4f}", flush=True)
    shares: dict[float, list[tuple[float, float]]] = {}
    for seed in range(1, asked.seeds + 1):
        for weight in (0.0, asked.rule_weight):
            settings = Settings(steps=asked.steps, rule_weight=weight, rates=tuple(asked.rates))
            start = time.process_time()
            key = hashlib.sha256(b"bench/%d" % seed).digest()
            trained = train(codes, schema, knowledge, event, key=key, settings=settings)
            seconds = time.process_time() - start
            records = drawn(trained, seed)
            shares.setdefault(weight, []).append(violations(trained, records))
            found = [distances(codes, records, schema.n_states, ways=ways).mean for ways in (1, 2, 3)]
            print(
                f"seed {seed}, weight of rules {weight:g}: {seconds:.1f} CPU s; violations: rules {shares[weight][-1][0]:.4f}, "
                f"education-num {shares[weight][-1][1]:.4f}; distances {', '.join(f'{d:.4f}' for d in found)}",
                flush=True,
            )
    for place, what in enumerate(("rules", "education-num")):
        gains = [one[place] - other[place] for one, other in zip(shares[0.0], shares[asked.rule_weight], strict=True)]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
        print(f"{what}: fewer violations with the loss by {statistics.mean(gains):.4f}, standard error {error:.4f}")


if __name__ == "__main__":
    main()
