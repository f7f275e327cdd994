"""What a release says of its tables, made without files: people drawn from a population, counted with noise or randomized."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from verticil.analysis.design import Design
from verticil.curator.study import owners_study
from verticil.miner.learning.exact_tables import counted_tables
from verticil.miner.learning.model_tables import observed_of
from verticil.shared.numerics.estimation import parameters
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.model.network import PairEstimate
from verticil.shared.study.document import Study
from verticil.shared.study.tables import tables_sigma


def all_pairs(study: Study, names: Sequence[str]) -> Study:
    """The study with the tables of all pairs of these columns published."""
    release = dataclasses.replace(study.release, pairs=tuple(itertools.combinations(names, 2)))
    return dataclasses.replace(study, release=release)


def owner_study(study: Study, epsilon: float) -> Study:
    """The study of an owner alone with noise on tables."""
    return owners_study(study, method="joint", epsilon=epsilon, delta=1e-9)


def noisy_tables(columns: Sequence[np.ndarray], study: Study, seed: int) -> NoisyTables:
    """The tables of these people as the owner counts them, with the noise of a seed."""
    key = hashlib.sha256(f"regression {seed}".encode()).digest()
    return noised(counted_tables(columns, study), tables_sigma(study), key)


def release_of(columns: Sequence[np.ndarray], study: Study, seed: int, *, with_model: bool = True) -> SimpleNamespace:
    """The models of a release of these people, as `ReleaseModels` has them; without the joint model shares alone."""
    generator = np.random.default_rng([seed, 43])
    released = []
    for unit, column in zip(study.units, columns, strict=True):
        if unit.transition.is_identity:
            released.append(column)
            continue
        cumulative = np.cumsum(unit.transition.probabilities, axis=1)[column]
        codes = (generator.random(len(column))[:, None] > cumulative).sum(axis=1)
        released.append(np.minimum(codes, unit.transition.n_states - 1).astype(column.dtype))
    tables = counted_tables(released, study) if study.tables is None else noisy_tables(released, study, seed)
    joint = estimate(tables, seed=1).model if with_model else None

    def of(axes: tuple[int, ...]) -> tuple:
        table, counts, design = observed_of(tables, axes)
        return counts, design, table.sigma**2

    marginals, pairs = [], []
    for variable in range(len(study.schema)):
        counts, design, variance = of((variable,))
        marginals.append(
            parameters.marginal_parameters(
                counts,
                design,
                variable=variable,
                model=np.full(study.schema[variable].n_states, np.nan),
                level=0.95,
                noise_variance=variance,
                people=tables.people,
            )
        )
    for first, second in study.release.pairs:
        axes = study.schema.index(first), study.schema.index(second)
        counts, design, variance = of(axes)
        share, low, high = parameters.joint_shares(
            counts, design, level=0.95, noise_variance=variance, people=tables.people
        )
        pairs.append(PairEstimate(first=axes[0], second=axes[1], estimate=share, low=low, high=high, exact=False))
    return SimpleNamespace(
        document=json.dumps({"n_common": len(columns[0])}).encode(),
        folder="release",
        schema=study.schema,
        study=study,
        support=None,
        joint=joint,
        network=None,
        marginals=tuple(marginals),
        pairs=tuple(pairs),
        sampled=(),
    )


def least_squares(columns: Sequence[np.ndarray], design: Design) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of these people themselves, and the variances that an ordinary regression gives them."""
    x = np.column_stack([np.ones(len(columns[0])), *(p.features[columns[p.variable]] for p in design.predictors)])
    y = design.values[columns[design.outcome]]
    inverse = np.linalg.pinv(x.T @ x)
    coefficients = inverse @ (x.T @ y)
    residual = y - x @ coefficients
    return coefficients, np.diag(inverse) * (residual @ residual) / (len(y) - x.shape[1])
