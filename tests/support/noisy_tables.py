"""A study of five columns, the tables of its pairs without a count, and a distribution of pairwise interactions."""

from __future__ import annotations

import dataclasses

import numpy as np

from support.studies import numbered, study_of
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.joint.replicates import recounted, with_noise_of
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.study.document import ParameterRule, ReleaseRule, StructureRule, Study

N_STATES = (2, 3, 2, 4, 3)
PEOPLE = 5_000
SIGMA = 12.0


def study(**structure: object) -> Study:
    rule = StructureRule(method="hill-climb", score="bic", seed=7)
    return study_of(
        numbered(N_STATES),
        structure=dataclasses.replace(rule, **structure),  # type: ignore[arg-type]  # fields of the rule
        parameters=ParameterRule(),
        release=ReleaseRule(sample_from="joint"),
    )


def truth() -> Mixture:
    """A distribution of pairwise interactions (a log-linear model): no dependence of third order, of which pairs say nothing."""
    generator = np.random.default_rng(5)
    logits = np.zeros(N_STATES)
    for a in range(len(N_STATES)):
        logits += 0.7 * along(generator.standard_normal(N_STATES[a]), (a,))
        for b in range(a + 1, len(N_STATES)):
            logits += 0.5 * along(generator.standard_normal((N_STATES[a], N_STATES[b])), (a, b))
    weights = np.exp(logits).ravel()
    cells = np.array(list(np.ndindex(*N_STATES)))
    return Mixture(
        weights=weights / weights.sum(), probability=tuple(np.eye(k)[c] for k, c in zip(N_STATES, cells.T, strict=True))
    )


def along(table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return table.reshape([table.shape[axes.index(place)] if place in axes else 1 for place in range(len(N_STATES))])


def empty(of: Study, sigma: float = SIGMA) -> NoisyTables:
    """The tables of all pairs, nothing counted."""
    units = tuple(of.column_unit(index) for index in range(len(of.units)))
    pairs = [(a, b) for a in range(len(units)) for b in range(a + 1, len(units))]
    tables = tuple(
        MeasuredTable(units=pair, counts=np.zeros([N_STATES[v] for v in pair]), sigma=sigma) for pair in pairs
    )
    return NoisyTables(n_states=N_STATES, units=units, tables=tables, n_records=PEOPLE)


def redrawn(tables: NoisyTables, model: JointModel, generator: np.random.Generator) -> NoisyTables:
    """The same tables of other people from a model, with noise as these have."""
    return with_noise_of(tables, recounted(tables, model, generator), generator)
