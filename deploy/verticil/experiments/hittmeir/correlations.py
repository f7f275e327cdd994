"""Figure 1: Pearson correlations of Adult's columns, original, from an ordinary and from a custom network.

As in the program that the authors published: categories are numbered in alphabetical order, whatever they mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verticil.experiments.hittmeir.attacks import SCENARIOS
from verticil.experiments.hittmeir.datasets import DataSet, View, drawn, splits
from verticil.experiments.hittmeir.scale import Scale, Step, generations_for
from verticil.experiments.hittmeir.synthesizer import Custom, Recipe, describe, generate


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
        network = describe(original.codes, data.fine, recipe, seed=seed).network
        return drawn(data.fine, generate(network, len(original.codes[0]), seed=seed)[0], seed=seed)

    return Correlations(
        names=data.fine.names,
        sensitive=scenario.sensitive,
        target=scenario.target,
        original=_matrix(original),
        ordinary=_matrix(synthetic(None)),
        custom=_matrix(synthetic(custom)),
    )


def _matrix(records: View) -> list[list[float]]:
    centred = records.values - records.values.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    scaled = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    return [[float(r) for r in row] for row in scaled.T @ scaled]
