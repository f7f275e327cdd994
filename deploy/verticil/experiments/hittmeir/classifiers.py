"""Tables V to VII, XI and XII: classifiers trained on original and on synthetic records, tested on others.

Beside the paper's rows: the share of the test part's most common class, and synthetic records from randomized columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.experiments.hittmeir.datasets import DataSet, Split, drawn, splits
from verticil.experiments.hittmeir.scale import Scale, Step, generations_for
from verticil.experiments.hittmeir.synthesizer import Custom, Method, Recipe, describe, generate, randomized
from verticil.shared.evaluation.utility import Utility, f_score, utility

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
        step: is told what is being done.
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
    training = split.train
    if row.recipe is not None:
        schema, columns = training.schema, training.codes
        if row.recipe.epsilon is not None:
            columns = randomized(columns, schema, row.recipe.epsilon, seed=seed)
        made = describe(columns, schema, row.recipe, seed=seed)
        training = drawn(schema, generate(made.network, len(columns[0]), seed=seed)[0], seed=seed)
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
