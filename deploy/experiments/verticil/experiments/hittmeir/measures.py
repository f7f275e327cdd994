"""What classifiers, attackers and correlations show of synthetic records.

Tables V to VII, XI and XII: classifiers trained on original and on synthetic records, tested on others. Beside the paper's
rows: the share of the test part's most common class, and synthetic records from randomized columns.

Tables IX and X: what an attacker who knows some attributes of a person learns about the sensitive one. The attackers are GCAP
by majority vote and the five classifiers, trained on original records, on those of an ordinary and on those of a custom
network. Beside the paper's rows: the share of the most common value (B), GCAP as the mean share, and the same attack on people
whose records were not used; what is attributed rightly of members beyond the others is disclosure, the rest is inference.

Figure 1: Pearson correlations of Adult's columns, original, from an ordinary and from a custom network. As in the program that
the authors published: categories are numbered in alphabetical order, whatever they mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.evaluate.measures.disclosure import AttackedRecords, Disclosure, disclosure, majority_share
from verticil.evaluate.measures.utility import Labelled, Utility, utility
from verticil.experiments.hittmeir.datasets import DataSet, Split, View, drawn, splits, view
from verticil.experiments.hittmeir.scale import Scale, Step, generations_for
from verticil.experiments.hittmeir.synthesizer import Custom, Method, Recipe, describe, generate, randomized
from verticil.shared.core.arrays import Floats

ACCURACY_K: Final = 3
"""The k of the randomized columns, and of the row with all predictors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One row of a table, in per cent, means over the splits.

    Attributes:
        trained_on: ``original``, ``synthetic`` or ``custom``.
        method, k: of the search; None for original records.
        epsilon: of every column; None where nothing is randomized.
        without: predictors that the classifiers did not get.
        accuracy, deviation: of each classifier; in `card_scores` the F2 score and nothing.
        average: mean over the classifiers.
        majority: share of the test part's most common class.
        confusion: for each classifier true by predicted class, added up over the splits.
    """

    trained_on: str
    method: Method | None = None
    k: int | None = None
    epsilon: float | None = None
    without: tuple[str, ...] = ()
    accuracy: Mapping[str, float]
    deviation: Mapping[str, float]
    average: float
    majority: float
    confusion: Mapping[str, list[list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    trained_on: str
    recipe: Recipe | None = None
    without: tuple[str, ...] = ()


def accuracies(
    data: DataSet, *, scale: Scale, seed: int, step: Step, without: tuple[str, ...] = ()
) -> tuple[Score, ...]:
    """Tables V and VI: original records, then every search and k.

    Args:
        data: what.
        scale: how much of it.
        seed: of the splits and everything random.
        step: called with what is being done, in words.
        without: predictors that the classifiers do not get; then two more rows with all of them, of the original records and of
            the genetic search with `ACCURACY_K`.
    """
    generations = generations_for(data, scale)
    rows = [
        _Row(trained_on="original", without=without),
        *(
            _Row(trained_on="synthetic", recipe=Recipe(method=method, k=k, generations=generations), without=without)
            for k in scale.degrees
            for method in (Method.greedy, Method.genetic)
        ),
    ]
    if without:
        rows.append(_Row(trained_on="original"))
        rows.extend(
            _Row(trained_on="synthetic", recipe=Recipe(k=k, generations=generations))
            for k in scale.degrees
            if k == ACCURACY_K
        )
    return _scores(data, rows, scale=scale, seed=seed, step=step)


def custom_accuracies(
    data: DataSet,
    custom: Custom,
    *,
    scale: Scale,
    seed: int,
    step: Step,
    without: tuple[str, ...] = (),
    known: Sequence[Score] = (),
) -> tuple[Score, ...]:
    """Tables XI and XII: the ordinary and the custom network.

    Args:
        data, scale, seed, step: see `accuracies`.
        custom: what the custom network hides.
        without: predictors that the classifiers do not get; then two more rows with all of them.
        known: rows of `accuracies` with the same scale and seed; the ordinary network's is taken from them, as the paper does.
    """
    generations = generations_for(data, scale)
    k = scale.custom_degree
    plain = Recipe(k=k, generations=generations)
    hiding = Recipe(k=k, generations=generations, custom=custom)
    rows = [
        row
        for features in ([without, ()] if without else [()])
        for row in (
            _Row(trained_on="synthetic", recipe=plain, without=features),
            _Row(trained_on="custom", recipe=hiding, without=features),
        )
    ]
    repeated = [row for row in known if (row.method, row.k, row.without) == (Method.genetic, k, without)]
    return (*repeated, *_scores(data, rows[len(repeated) :], scale=scale, seed=seed, step=step))


def randomized_accuracies(
    data: DataSet, *, scale: Scale, seed: int, step: Step, without: tuple[str, ...] = ()
) -> tuple[Score, ...]:
    """Not in the paper: original records, and networks from randomized columns, all in the coarse codebook."""
    generations = generations_for(data, scale)
    rows = [
        _Row(trained_on="original", without=without),
        *(
            _Row(
                trained_on="synthetic",
                recipe=Recipe(k=ACCURACY_K, generations=generations, epsilon=epsilon),
                without=without,
            )
            for epsilon in scale.epsilons
        ),
    ]
    return _scores(data, rows, scale=scale, seed=seed, step=step, coarse=True)


def card_scores(data: DataSet, *, scale: Scale, seed: int, step: Step) -> tuple[Score, ...]:
    """Table VII: F2 scores of finding frauds, one random split; no k = 4, as in the paper."""
    generations = generations_for(data, scale)
    rows = [
        _Row(trained_on="original"),
        *(
            _Row(trained_on="synthetic", recipe=Recipe(method=method, k=k, generations=generations))
            for k in scale.degrees
            if k <= 3
            for method in (Method.greedy, Method.genetic)
        ),
    ]
    return _scores(data, rows, scale=scale, seed=seed, step=step, frauds=True)


def _scores(
    data: DataSet,
    rows: Sequence[_Row],
    *,
    scale: Scale,
    seed: int,
    step: Step,
    coarse: bool = False,
    frauds: bool = False,
) -> tuple[Score, ...]:
    schema = data.coarse if coarse else data.fine
    limit = None if data.simulated else scale.rows
    number = scale.repeats or (1 if data.test is not None or frauds else scale.splits)
    found: list[list[Utility]] = [[] for _ in rows]
    for place, split in enumerate(splits(data, schema, number=number, seed=seed, rows=limit)):
        for row, results in zip(rows, found, strict=True):
            step(f"{data.name}, run {place + 1} of {number}: classifiers on {_named(row)}")
            results.append(_tested(data, split, row, scale=scale, seed=seed + place))
    return tuple(_score(row, results, frauds=frauds) for row, results in zip(rows, found, strict=True))


def _tested(data: DataSet, split: Split, row: _Row, *, scale: Scale, seed: int) -> Utility:
    training = _published(split.train, row.recipe, seed=seed)
    (result,) = utility(
        training.labelled(data.target, without=row.without),
        [split.test.labelled(data.target, without=row.without)],
        seed=seed,
        classifiers=scale.classifiers,
        n_classes=split.test.schema[split.test.schema.index(data.target)].n_states,
    )
    return result


def _score(row: _Row, results: Sequence[Utility], *, frauds: bool) -> Score:
    names = list(results[0].confusion)
    each = {
        name: np.array(
            [100 * (f_score(one.confusion[name]) if frauds else one.accuracy[name]) for one in results],
            dtype=np.float64,
        )
        for name in names
    }
    recipe = row.recipe
    return Score(
        trained_on=row.trained_on,
        method=recipe.method if recipe is not None else None,
        k=recipe.k if recipe is not None else None,
        epsilon=recipe.epsilon if recipe is not None else None,
        without=row.without,
        accuracy={name: float(values.mean()) for name, values in each.items()},
        deviation={name: float(values.std(ddof=1)) if len(values) > 1 else 0.0 for name, values in each.items()},
        average=float(np.mean([values.mean() for values in each.values()])),
        majority=100 * float(np.mean([one.majority for one in results])),
        confusion={name: np.sum([one.confusion[name] for one in results], axis=0).tolist() for name in names},
    )


def _named(row: _Row) -> str:
    if row.recipe is None:
        return "original records"
    randomized_at = "" if row.recipe.epsilon is None else f", epsilon = {row.recipe.epsilon:g}"
    return f"{row.trained_on} records, {row.recipe.method.value}, k = {row.recipe.k}{randomized_at}"


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


def _known(records: View, key: Sequence[str], scenario: Scenario, data: DataSet) -> AttackedRecords:
    """What the attacker sees of some records: places of categories, and numbers as they are or by their coarse ranges."""
    columns: list[NDArray[np.int64]] = []
    for name in key:
        values = records.column(name)
        bins = data.coarse[data.coarse.index(name)].bins
        if scenario.coarse and bins is not None:
            columns.append(np.searchsorted(np.asarray(bins), values, side="right").astype(np.int64))
        else:
            columns.append(values.astype(np.int64))
    return AttackedRecords(keys=tuple(columns), sensitive=_sensitive(records, scenario))


def _sensitive(records: View, scenario: Scenario) -> NDArray[np.int64]:
    return records.codes[records.schema.index(scenario.sensitive)].astype(np.int64)


def _labelled(known: AttackedRecords) -> Labelled:
    return Labelled(features=np.column_stack(known.keys).astype(np.float64), target=known.sensitive.astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """Three matrices over the same columns.

    Attributes:
        names: of the columns.
        sensitive, target: of the custom network.
        original, ordinary, custom: (d, d), rows of correlation coefficients; 0 for a constant column.
    """

    names: tuple[str, ...]
    sensitive: str
    target: str
    original: list[list[float]]
    ordinary: list[list[float]]
    custom: list[list[float]]

    def with_sensitive(self, matrix: list[list[float]]) -> float:
        """Mean absolute correlation of the sensitive column with all but the target."""
        row = matrix[self.names.index(self.sensitive)]
        others = [abs(r) for name, r in zip(self.names, row, strict=True) if name not in {self.sensitive, self.target}]
        return float(np.mean(others))

    def with_target(self, matrix: list[list[float]]) -> float:
        """Correlation of the sensitive column with the target."""
        return matrix[self.names.index(self.sensitive)][self.names.index(self.target)]


def correlations(data: DataSet, *, scale: Scale, seed: int, step: Step) -> Correlations:
    """Synthesize the training part twice and correlate."""
    step(f"{data.name}: correlations")
    original = next(splits(data, data.fine, number=1, seed=seed, rows=scale.rows)).train
    scenario = SCENARIOS["table 10"]
    custom = Custom(target=scenario.target, sensitive=scenario.sensitive)

    def synthetic(hidden: Custom | None) -> View:
        recipe = Recipe(k=scale.custom_degree, generations=generations_for(data, scale), custom=hidden)
        return _published(original, recipe, seed=seed)

    return Correlations(
        names=data.fine.names,
        sensitive=scenario.sensitive,
        target=scenario.target,
        original=_matrix(original),
        ordinary=_matrix(synthetic(None)),
        custom=_matrix(synthetic(custom)),
    )


def _matrix(records: View) -> list[list[float]]:
    return [[float(r) for r in row] for row in correlation_coefficients(records.values)]


def f_score(confusion: NDArray[np.int64], *, beta: float = 2.0) -> float:
    """The F score of class 1 of two: the harmonic mean of precision and recall, recall weighted beta times as much.

    >>> round(f_score(np.array([[55626, 1224], [26, 86]])), 4)
    0.2446
    """
    (_, false_positive), (false_negative, true_positive) = confusion.tolist()
    weight = beta * beta
    divisor = (1 + weight) * true_positive + weight * false_negative + false_positive
    return (1 + weight) * true_positive / divisor if divisor else 0.0


def correlation_coefficients(values: Floats) -> Floats:
    """The correlation coefficients of the columns of (n, d) values: (d, d); 0 for a constant column."""
    centred = values - values.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    scaled: Floats = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    return scaled.T @ scaled
