"""What stated knowledge is worth: ``python tests/bench/knowledge.py [--only adult|ma2019|bound|draw] [--how each] [--level 3]``.

Records that are learned and drawn with rules, beside records of the same columns without; distances are those of `joint_data`,
over all columns, those that follow from others too. A bound is met when the mean over the seeds + 1 standard error is at most it.

What a column that is not sent would have cost can be spent on the others: so there are three lines for each level, ``each`` with
the same epsilon for each column that is sent, ``in all`` with the same epsilon for all columns together, in equal parts, and
``total`` where the study states that total, without knowledge and with, and ``[allocate]`` divides it (`equal_contrast`).

Adult: its 13 columns and ``education``, of which ``education-num`` is the number (adult.names of the data set); the rules that
its people break three times. ``draw``: 10 million records by these rules, a million at a time: none may break one, memory must
stay what it was after the first two, and a million take at most 3 CPU seconds. ma2019: the people of tests/data, whose columns
four parties hold, each column randomized at epsilon 2; what is known of ages, and two columns that follow from others and are
not sent. ``bound``: what the rules about ages could be worth at most. Ends with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import joint_data
import numpy as np
from joint import Clock, channels_of, error, released, study_of, upper
from joint_data import Columns, Data, Truth

from verticil.curator.learning import records_of
from verticil.experiments.hittmeir import datasets
from verticil.experiments.hittmeir.synthesizer import warm_up
from verticil.miner.learning.learn import learn
from verticil.shared.mechanisms.allocation import equal_contrast
from verticil.shared.mechanisms.transition import Transition
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.rules import Condition, Function, Knowledge, Rule
from verticil.shared.numerics.knowledge.support import function_codes, support
from verticil.shared.numerics.model.elimination import condition_with_probability
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import ParameterRule, ReleaseRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.synthesis import sample_chunks, sample_codes

Given = Mapping[str, Sequence[str]]
Epsilons = Sequence[float | None]
"""Of every column; None: as it is."""
Make = Callable[[Epsilons, int, Knowledge | None], tuple[Columns, str]]
"""Of epsilons, seed and what is known: the columns of records, and what is told of them."""

EDUCATION = (
    "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college", "Assoc-voc",
    "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
)  # fmt: skip
ADULT: Sequence[tuple[Given, Given]] = (
    ({"relationship": ["Husband"]}, {"sex": ["Male"]}),
    ({"relationship": ["Wife"]}, {"sex": ["Female"]}),
    ({"relationship": ["Husband", "Wife"]}, {"marital-status": ["Married-AF-spouse", "Married-civ-spouse"]}),
    ({"workclass": ["?", "Never-worked"]}, {"occupation": ["?"]}),
    ({"occupation": ["Armed-Forces"]}, {"workclass": ["Federal-gov"]}),
)
BINS = {
    "AGEP": (0, 3, 5, 15, 32, 44, 56, 68, 95),
    "INDP": (0, 4670, 6870, 7270, 7860, 8561, 10000),
    "INDP_CAT": (0, 6, 9, 10, 11, 14, 19),
}
"""In place of the study's: ages where something is known of them, industries within their sectors."""
EXACTLY_BELOW = {"MSP": 15, "PINCP": 15, "PINCP_DECILE": 15, "DREM": 5, "DPHY": 5, "EDU": 3}
BELOW = ("INDP", "DVET")  # N below 15, and above, too
BETTER = 0.9
SECONDS = 3.0
MEBIBYTES = 64.0
"""By which memory may grow over 8 million records more: a hundredth of what these are."""


@dataclass(kw_only=True)
class Line:
    """Two distances of each seed, with and without knowledge, and what is held against the bound."""

    name: str
    ways: int | None = None
    without: list[tuple[float, float]] = field(default_factory=list)
    known: list[tuple[float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def parts(self, ways: int) -> list[float]:
        """With in parts of without."""
        return [b[ways - 2] / a[ways - 2] for a, b in zip(self.without, self.known, strict=True)]

    def met(self) -> bool:
        """Whether the bound is met, where there is one."""
        return self.ways is None or upper(self.parts(self.ways)) <= BETTER

    def text(self) -> str:
        """The line."""
        shown = []
        for ways in (2, 3):
            means = [statistics.fmean(d[ways - 2] for d in part) for part in (self.without, self.known)]
            parts = self.parts(ways)
            verdict = f" (<= {BETTER}: {'met' if self.met() else 'MISSED'})" if ways == self.ways else ""
            shown.append(
                f"{ways}-way {means[0]:.4f} without, {means[1]:.4f} with: "
                f"{statistics.fmean(parts):.3f} +- {error(parts):.3f}{verdict}"
            )
        return f"{self.name:32} {'; '.join(shown)}; {'; '.join(dict.fromkeys(self.notes))}"


def conditions(schema: Schema, given: Given) -> tuple[Condition, ...]:
    """Conditions with their categories in order."""
    return tuple(
        Condition(variable=name, values=tuple(label for label in schema[schema.index(name)].labels if label in values))
        for name, values in given.items()
    )


def rules(schema: Schema, stated: Sequence[tuple[Given, Given]]) -> tuple[Rule, ...]:
    """Implications."""
    return tuple(
        Rule(name=f"rule {number}", when=conditions(schema, when), then=conditions(schema, then))
        for number, (when, then) in enumerate(stated, 1)
    )


def function(data: Data, name: str, of: str) -> Function:
    """That a column follows from another; what has no person follows the first category."""
    first, own = (data.schema.index(each) for each in (of, name))
    variables = data.schema.variables
    pairs = sorted(set(zip(data.columns[first].tolist(), data.columns[own].tolist(), strict=True)))
    if len({code for code, _ in pairs}) < len(pairs):
        raise ValueError(f"{name} is no function of {of}")
    values = tuple((variables[first].labels[a], variables[own].labels[b]) for a, b in pairs)
    return Function(
        name=f"{name} by {of}", variable=variables[own], position=own, of=(of,), values=values,
        otherwise=variables[own].labels[0],
    )  # fmt: skip


def adult() -> tuple[Data, Knowledge]:
    """Adult with its education in words, from which the number follows."""
    data, texts = joint_data.adult(), datasets.adult().train["education-num"]
    place = data.schema.index("education-num")
    variables, columns = list(data.schema.variables), list(data.columns)
    variables.insert(place, Variable(name="education", owner="all", labels=EDUCATION))
    columns.insert(place, (texts.astype(np.float64) - 1).astype(np.uint16))
    data = Data(name="adult", schema=Schema(variables=tuple(variables)), columns=columns)
    stated = Knowledge(rules=rules(data.schema, ADULT), functions=(function(data, "education-num", "education"),))
    return data, stated


def ma2019() -> tuple[Data, Study, Knowledge]:
    """The people of four parties, by their drafted study but for `BINS`."""
    study = read_study(Path(__file__).parent / "ma2019_drafted.toml")

    def with_bins(variable: Variable, edges: Sequence[int]) -> Variable:
        labels = [f"[{low},{high})" for low, high in itertools.pairwise(edges)]
        return dataclasses.replace(
            variable,
            bins=tuple(map(float, edges)),
            means=None,
            labels=(*labels, *variable.labels[variable.n_bins :]),
        )

    variables = tuple(with_bins(v, BINS[v.name]) if v.name in BINS else v for v in study.schema.variables)
    study = dataclasses.replace(study, schema=Schema(variables=variables))
    data = joint_data.study_data(study, joint_data.read_texts(joint_data.TESTS / "data" / "ma2019.csv.gz"))
    ages = data.schema[data.schema.index("AGEP")].labels
    stated: list[tuple[Given, Given]] = []
    for name, age in EXACTLY_BELOW.items():
        young, none = {"AGEP": ages[: BINS["AGEP"].index(age)]}, {name: ["N", "unknown"]}
        stated += [(young, none), (none, young)]
    stated += [({"AGEP": ages[: BINS["AGEP"].index(15)]}, {name: ["N", "unknown"]}) for name in BELOW]
    functions = tuple(function(data, *names) for names in (("DENSITY", "PUMA"), ("INDP_CAT", "INDP")))
    return data, study, Knowledge(rules=rules(data.schema, stated), functions=functions)


def sent(data: Data, stated: Knowledge | None) -> Data:
    """The columns that do not follow from others."""
    kept = [v.name for v in data.schema.variables if stated is None or stated.function(v.name) is None]
    places = [data.schema.index(name) for name in kept]
    schema = Schema(variables=tuple(data.schema[place] for place in places))
    return Data(name=data.name, schema=schema, columns=[data.columns[place] for place in places])


def randomized(data: Data, epsilons: Epsilons, seed: int, stated: Knowledge | None) -> tuple[Data, list[Transition]]:
    """The columns that are sent, randomized, and how; by the same draws whatever is known and so not sent."""
    each = [channels_of([k], level)[0] for k, level in zip(data.schema.n_states, epsilons, strict=True)]
    own = sent(dataclasses.replace(data, columns=released(data.columns, each, seed)), stated)
    return own, [each[data.schema.index(name)] for name in own.schema.names]


def epsilons_of(data: Data, stated: Knowledge | None, level: float | None, how: str) -> list[float | None]:
    """Of every column, by one of three ways to divide: see the module. Who is not sent has one, too, which nobody spends."""
    names, own = data.schema.names, sent(data, stated).schema
    if level is None or how == "each":
        return [level] * len(names)
    if how == "in all":
        return [level * len(names) / len(own)] * len(names)
    divided = dict(zip(own.names, equal_contrast(own.n_states, level * len(names), [None] * len(own)), strict=True))
    return [divided.get(name, level) for name in names]


def completed(codes: Sequence[np.ndarray], data: Data, stated: Knowledge) -> Columns:
    """The records with the columns that follow from others."""
    names = sent(data, stated).schema.names
    found = {name: np.asarray(column, np.uint16) for name, column in zip(names, codes, strict=True)}
    for item in stated.functions:
        table = function_codes(item, [data.schema[data.schema.index(name)] for name in item.of])
        found[item.variable.name] = table[tuple(found[name] for name in item.of)]
    return [found[name] for name in data.schema.names]


def of_network(
    data: Data, epsilons: Epsilons, seed: int, stated: Knowledge | None, prior: float | None = None
) -> tuple[Columns, str]:
    """Ten times as many records as people, of the network of randomized columns, by its rules; `prior`: records in every cell."""
    own, channels = randomized(data, epsilons, seed, stated)
    study = dataclasses.replace(study_of(own, channels), knowledge=stated, parameters=ParameterRule(prior_count=prior))
    network = learned_network(study, own.columns)
    found = None if stated is None else support(stated, own.schema)
    by = rake(network, found)
    codes = sample_codes(network, 10 * data.n, generator=np.random.default_rng([seed, 0x5]), support=by)
    if found is None or stated is None:
        return list(codes), ""
    share = condition_with_probability(network, {}, found.limits)[1]
    return completed(codes, data, stated), f"of the network's own records {share:.2%} meet the rules"


def learned_network(study: Study, columns: Columns) -> Network:
    """The network of released columns."""
    fitting = [column.astype(v.code_dtype) for column, v in zip(columns, study.schema.variables, strict=True)]
    return learn(fitting, study).network


def of_study(data: Data, like: Study, epsilons: Epsilons, seed: int, stated: Knowledge | None) -> tuple[Columns, str]:
    """The records of a release: of the joint model, of the network, or of both, by the study's rules."""
    own, channels = randomized(data, epsilons, seed, stated)
    units = tuple(
        Unit(variables=(v.name,), owner=v.owner, scheme="matrix", transition=channel)
        for v, channel in zip(own.schema.variables, channels, strict=True)
    )
    study = dataclasses.replace(
        like,
        schema=own.schema,
        units=units,
        knowledge=stated,
        parameters=ParameterRule(),
        release=ReleaseRule(seed=seed),
    )
    found = learn([c.astype(v.code_dtype) for c, v in zip(own.columns, own.schema.variables, strict=True)], study)
    codes, _ = records_of(found, study)
    told = "" if found.joint is None else f"joint {found.joint.alpha:.2f}"
    if stated is None:
        return [np.asarray(column, np.uint16) for column in codes], told
    broken = int((~support(stated, own.schema).holds(codes)).sum())
    return completed(codes, data, stated), f"{told}, {broken} records break a rule"


def compared(
    name: str, data: Data, make: Callable[[int, bool], tuple[Columns, str]], ways: int | None, seeds: Sequence[int]
) -> Line:
    """With knowledge and without, of each seed."""
    truth, line = Truth(data.schema.n_states, data.columns), Line(name=name, ways=ways)
    for seed in seeds:
        for known, into in ((False, line.without), (True, line.known)):
            codes, told = make(seed, known)
            into.append(truth.to_records(codes))
            line.notes += [told] if told else []
    return line


def at_most(seed: int = 1) -> str:
    """What rules about ages could be worth if they told everybody's group, on ma2019 with the same epsilon for each column.

    The two-way tables of the records with knowledge, fitted (Deming & Stephan, 1940) until of each of these columns its group,
    given the other column, has the people's shares: all that the rules could tell of two columns, without any noise.
    """
    data, like, stated = ma2019()
    levels = [2.0] * len(data.schema)
    truth, names = Truth(data.schema.n_states, data.columns), data.schema.names
    without, known = (truth.of(of_study(data, like, levels, seed, each)[0]) for each in (None, stated))
    ages = sorted(set(EXACTLY_BELOW.values()))
    groups: dict[int, np.ndarray] = {
        names.index(name): np.array([label in ("N", "unknown") for label in data.schema[names.index(name)].labels])
        for name in EXACTLY_BELOW
    }
    age = names.index("AGEP")
    cuts = [BINS["AGEP"].index(each) for each in ages]
    groups[age] = np.array([sum(code >= cut for cut in cuts) for code in range(data.schema.n_states[age])])
    far: list[tuple[float, float, float]] = []
    for pair in itertools.combinations(range(len(names)), 2):
        shape = [data.schema.n_states[v] for v in pair]
        people, before, now = (tables[pair].reshape(shape) for tables in (truth.tables, without, known))
        fitted = now.copy()
        for axis in [0, 1] * 30:
            if pair[axis] not in groups:
                continue
            of = np.eye(int(groups[pair[axis]].max()) + 1)[groups[pair[axis]].astype(int)]
            real, got, own = (each if axis == 0 else each.T for each in (people, fitted, now))
            share = np.divide(
                of.T @ real, real.sum(axis=0), out=np.zeros((of.shape[1], real.shape[1])), where=real.sum(axis=0) > 0
            )
            wanted = share * own.sum(axis=0)
            got *= of @ np.divide(wanted, of.T @ got, out=np.ones_like(wanted), where=of.T @ got > 0)
        far.append(tuple(0.5 * float(np.abs(people - each).sum()) for each in (before, now, fitted)))
    means = np.mean(far, axis=0)
    return f"2-way {means[0]:.4f} without, {means[1]:.4f} with, {means[2]:.4f} if groups were known: {means[2] / means[0]:.3f}"


def draw(n: int = 10_000_000) -> Iterator[tuple[str, bool]]:
    """Ten million records of Adult by its rules."""
    data, stated = adult()
    own = sent(data, stated)
    study = study_of(own, channels_of(own.schema.n_states, None))
    network, found = learned_network(study, own.columns), support(stated, own.schema)
    generator, clock = np.random.default_rng(1), Clock()
    broken, done, seconds, memory = 0, 0, list[float](), list[float]()
    clock()
    for codes in sample_chunks(network, n, generator=generator, support=rake(network, found)):
        seconds.append(clock())
        broken += int((~found.holds(codes)).sum())
        done += len(codes[0])
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        clock()
    yield f"{done} records, of which {broken} break a rule (0: {'met' if not broken else 'MISSED'})", not broken
    slowest = max(seconds)
    yield (
        f"CPU s for a million: at most {slowest:.2f} (<= {SECONDS:g}: {_said(slowest <= SECONDS)})",
        slowest <= SECONDS,
    )
    grown = memory[-1] - memory[1]
    yield (
        f"memory grew by {grown:.0f} MiB after two million (<= {MEBIBYTES:g}: {_said(grown <= MEBIBYTES)})",
        grown <= MEBIBYTES,
    )


def _said(met: bool) -> str:
    return "met" if met else "MISSED"


def main() -> int:
    """Print the figures; 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--how", choices=("each", "in all", "total"), default="")
    parser.add_argument("--level", type=float, help="of Adult: this epsilon a column alone; 0: nothing randomized")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    warm_up()
    missed, written, seeds = 0, list[dict[str, object]](), range(1, options.seeds + 1)
    if options.only in ("", "draw"):
        for text, met in draw():
            print(f"Adult: {text}", flush=True)
            missed += not met
    lines: list[Callable[[], Line]] = []

    def add(name: str, data: Data, stated: Knowledge, level: float | None, make: Make, ways: int | None) -> None:
        """A line for each way to divide epsilon."""
        for how in ("each", "in all", "total") if level is not None else ("each",):

            def made(seed: int, known: bool, how: str = how) -> tuple[Columns, str]:
                knowledge = stated if known else None
                return make(epsilons_of(data, knowledge, level, how), seed, knowledge)

            words = name if level is None else f"{name} {how}"
            if options.how in ("", how):
                lines.append(partial(compared, words, data, made, ways, seeds))

    if options.only == "bound":
        print(f"ma2019, age groups known: {at_most()}", flush=True)
    if options.only in ("", "adult"):
        data, stated = adult()
        for level, ways in ((None, 3), (3.0, 3), (2.0, 3), (1.0, 3)):
            if options.level not in (None, level or 0.0):
                continue
            name = "Adult, network, " + ("exact" if level is None else f"local {level:g}")
            add(name, data, stated, level, partial(of_network, data), ways)
        if not options.level:
            add("Adult, network, exact, prior 1", data, stated, None, partial(of_network, data, prior=1.0), None)
    if options.only in ("", "ma2019"):
        people, like, known_of_people = ma2019()
        add("ma2019 of four, local 2", people, known_of_people, 2.0, partial(of_study, people, like), 2)
    for make in lines:
        line = make()
        print(line.text(), flush=True)
        missed += not line.met()
        written.append(vars(line))
    if options.json is not None:
        options.json.write_text(json.dumps(written, indent=1), encoding="utf-8")
    print(f"{missed} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
