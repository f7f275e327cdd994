"""Tables IX and X: what an attacker who knows some attributes of a person learns about the sensitive one.

The attackers are GCAP by majority vote and the five classifiers, trained on original records, on those of an ordinary and on
those of a custom network. Beside the paper's rows: the share of the most common value (B), GCAP as the mean share, and the same
attack on people whose records were not used; what is attributed rightly of members beyond the others is disclosure, the rest is
inference.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.hittmeir.datasets import DataSet, View, drawn, splits, view
from verticil.experiments.hittmeir.scale import Scale, Step, generations_for
from verticil.experiments.hittmeir.synthesizer import Custom, Recipe, describe, generate, randomized
from verticil.shared.evaluation.disclosure import Disclosure, Known, disclosure, majority_share
from verticil.shared.evaluation.utility import Labelled, utility


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Table VIII.

    Attributes:
        known: what the attacker may know.
        length: how many of them at once.
        sensitive: what they want to know.
        target: of the custom network.
        coarse: known numbers are taken in the ranges of the coarse codebook.
    """

    known: tuple[str, ...]
    length: int
    sensitive: str
    target: str
    coarse: bool

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """All sets of `length` known attributes."""
        return list(itertools.combinations(self.known, self.length))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "table 9": Scenario(
        known=("wife_age", "wife_education", "children_ever_born", "wife_religion", "wife_now_working"),
        length=4,
        sensitive="husband_education",
        target="contraceptive_method",
        coarse=False,
    ),
    "table 10": Scenario(
        known=("age", "workclass", "occupation", "race", "sex"),
        length=5,
        sensitive="relationship",
        target="income",
        coarse=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One row, in per cent; means over the keys.

    Attributes:
        published: ``original``, ``ordinary`` or ``custom``.
        epsilon: of every column; None where nothing is randomized.
        accuracy, deviation: of GCAP's vote and of each classifier; deviations are over the keys.
        average: mean over the attackers.
        baseline: share of the most common value, B.
        gcap: mean GCAP.
        members, others: mean GCAP on records that were used, and on others that were not; both of one split.
        others_baseline: B of those others.
    """

    published: str
    epsilon: float | None = None
    accuracy: Mapping[str, float]
    deviation: Mapping[str, float]
    average: float
    baseline: float
    gcap: float
    members: float
    others: float
    others_baseline: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Publication:
    """What an attacker has, and whom they attack with it.

    Attributes:
        name: of the row.
        records: what is published.
        attacked: the original records behind it.
        of_members: published records made from `members` alone.
        members, others: of one split.
        epsilon: of every column.
    """

    name: str
    records: View
    attacked: View
    of_members: View
    members: View
    others: View
    epsilon: float | None = None


def attacks(data: DataSet, scenario: Scenario, *, scale: Scale, seed: int, step: Step) -> tuple[Attack, ...]:
    """The original records, the ordinary and the custom network, then ordinary networks from randomized columns.

    O is the whole table, or the published training part. Members and others are the two parts of one split.
    """
    return tuple(
        _attack(publication, data, scenario, scale, seed)
        for publication in _publications(data, scenario, scale=scale, seed=seed, step=step)
    )


def _publications(data: DataSet, scenario: Scenario, *, scale: Scale, seed: int, step: Step) -> Iterator[_Publication]:
    generations = generations_for(data, scale)
    custom = Custom(target=scenario.target, sensitive=scenario.sensitive)
    rows: list[tuple[str, Recipe | None]] = [
        ("original", None),
        ("ordinary", Recipe(k=scale.custom_degree, generations=generations)),
        ("custom", Recipe(k=scale.custom_degree, generations=generations, custom=custom)),
        *(("ordinary", Recipe(k=3, generations=generations, epsilon=epsilon)) for epsilon in scale.epsilons),
    ]
    for name, recipe in rows:
        epsilon = None if recipe is None else recipe.epsilon
        step(f"{data.name}: attacks on {name} records" + ("" if epsilon is None else f" at epsilon = {epsilon:g}"))
        schema = data.fine if epsilon is None else data.coarse
        split = next(splits(data, schema, number=1, seed=seed, rows=scale.rows))
        whole = split.train if data.test is not None or scale.rows is not None else view(schema, data.train)
        records = _published(whole, recipe, seed=seed)
        yield _Publication(
            name=name,
            records=records,
            attacked=whole,
            of_members=records if whole is split.train else _published(split.train, recipe, seed=seed),
            members=split.train,
            others=split.test,
            epsilon=epsilon,
        )


def _published(original: View, recipe: Recipe | None, *, seed: int) -> View:
    if recipe is None:
        return original
    columns = original.codes
    if recipe.epsilon is not None:
        columns = randomized(columns, original.schema, recipe.epsilon, seed=seed)
    network = describe(columns, original.schema, recipe, seed=seed).network
    return drawn(original.schema, generate(network, len(columns[0]), seed=seed)[0], seed=seed)


def _attack(publication: _Publication, data: DataSet, scenario: Scenario, scale: Scale, seed: int) -> Attack:
    each: dict[str, list[float]] = {name: [] for name in ("GCAP", *scale.classifiers)}
    shares: list[Disclosure] = []
    of_split: list[Disclosure] = []
    for key in scenario.keys[: scale.keys]:
        attacked, published, of_members, members, others = (
            _known(records, key, scenario, data)
            for records in (
                publication.attacked,
                publication.records,
                publication.of_members,
                publication.members,
                publication.others,
            )
        )
        shares.append(disclosure(attacked, others, published))
        of_split.append(disclosure(members, others, of_members))
        each["GCAP"].append(100 * shares[-1].vote)
        (result,) = utility(_labelled(published), [_labelled(attacked)], seed=seed, classifiers=scale.classifiers)
        for name, accuracy in result.accuracy.items():
            each[name].append(100 * accuracy)

    def mean(values: Sequence[float]) -> float:
        return 100 * float(np.mean(values))

    return Attack(
        published=publication.name,
        epsilon=publication.epsilon,
        accuracy={name: float(np.mean(values)) for name, values in each.items()},
        deviation={name: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for name, values in each.items()},
        average=float(np.mean([np.mean(values) for values in each.values()])),
        baseline=100 * majority_share(_sensitive(publication.attacked, scenario)),
        gcap=mean([one.gcap for one in shares]),
        members=mean([one.gcap for one in of_split]),
        others=mean([one.others_gcap for one in of_split]),
        others_baseline=100 * majority_share(_sensitive(publication.others, scenario)),
    )


def _known(records: View, key: Sequence[str], scenario: Scenario, data: DataSet) -> Known:
    """What the attacker sees of some records: places of categories, and numbers as they are or by their coarse ranges."""
    columns: list[NDArray[np.int64]] = []
    for name in key:
        values = records.column(name)
        bins = data.coarse[data.coarse.index(name)].bins
        if scenario.coarse and bins is not None:
            columns.append(np.searchsorted(np.asarray(bins), values, side="right").astype(np.int64))
        else:
            columns.append(values.astype(np.int64))
    return Known(keys=tuple(columns), sensitive=_sensitive(records, scenario))


def _sensitive(records: View, scenario: Scenario) -> NDArray[np.int64]:
    return records.codes[records.schema.index(scenario.sensitive)].astype(np.int64)


def _labelled(known: Known) -> Labelled:
    return Labelled(features=np.column_stack(known.keys).astype(np.float64), target=known.sensitive.astype(np.int64))
