"""Model I at one party: from its own raw columns and the released columns of its peers to the parameters of its own variables.

Steps 3 to 5 of Ma & Sivakumar, section 4. A party learns the families of its own variables, and nobody else does. Its own
columns are counted as they are; a parent at another party is counted by what that party released, and only that axis is
inverted. A local variable, whose parents are all its own, is counted and nothing is inverted: its parameters are exact
functions of raw data (`share` noise covers them, or the release says so).

With share noise every table is made noisy as it was counted, before any inverse: whatever follows is post-processing. The
inverse sees the noise as so much more variance. The noise is sticky for a table and the received columns in it. A variable's
share comes from its own noisy table, never from a count of its own. The noise is in
`verticil.shared.mechanisms.shared_statistics_noise`, its neighbouring relation in `verticil.shared.mechanisms.gaussian`.

Pure numerics: no files, no clock, no network. What is returned is meant for everybody.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.mechanisms.shared_statistics_noise import ShareNoise
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation import parameters
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.information import pair_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, FamilyDesign, family_design
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Marginal
from verticil.shared.study.document import Study
from verticil.shared.study.peer import scored_pairs, shared_tables
from verticil.shared.study.prior import estimator_of, negative_counts

MAX_TABLE_CELLS: Final = 2**24
"""Of one table of released codes: 128 MiB of counts."""
NANONATS: Final = 10**9
"""Scores are whole numbers of 1e-9 nats."""
_ALPHA: Final = 0.05


def share_noise(key: bytes, study: Study, party: str) -> ShareNoise | None:
    """Return the noise that the study's `share` asks of a party; None where it asks for none.

    Args:
        key: see `verticil.shared.mechanisms.shared_statistics_noise.share_key`.
        study: the effective study.
        party: who learns.

    Raises:
        Misuse: STUDY_UNSUPPORTED, the noise would be larger than can be drawn.
    """
    rule = study.share
    if rule is None or rule.epsilon is None or rule.delta is None:
        return None
    try:
        return ShareNoise(
            key=key,
            epsilon=rule.epsilon,
            delta=rule.delta,
            n_tables=shared_tables(study, party),
        )
    except ValueError as error:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{study.id}': share: {error}",
            hint="give a larger share.epsilon or share.delta",
        ) from None


def learn_families(
    raw: Mapping[int, Codes],
    remote: Mapping[int, Codes],
    study: Study,
    party: str,
    dag: Dag,
    *,
    noise: ShareNoise | None,
) -> tuple[tuple[Family, ...], tuple[Marginal, ...]]:
    """Learn the parameters of a party's own variables.

    Args:
        raw: the party's own columns as they are: position of the variable -> (n,) codes, in the common order.
        remote: released columns of other parties: index of the unit -> (n,) codes, or (n * w,) of subset selection.
        study: the effective study.
        party: who learns.
        dag: the structure.
        noise: see `share_noise`.

    Returns:
        A family and a share of each own variable, in schema order. The shares' `model` is NaN: it takes the whole network.

    Raises:
        DataFault: LEARNING_FAILED, there is no common record, a table is too large to be counted in memory, or the study's
            estimator gives no probabilities.
        ValueError: a column is missing, or does not fit the study.
    """
    columns = _columns(raw, remote, study, party)
    families: list[Family] = []
    marginals: list[Marginal] = []
    level = study.parameters.interval_level
    minimum = 0 if study.share is None else study.share.minimum_count
    for child in study.schema.owned_by(party):
        axes = (*dag.parents[child], child)
        table = _observe(columns, study, axes, b"family" + child.to_bytes(4, "big"), noise)
        families.append(_family(table, study, child, dag.parents[child], minimum))
        # Inverses keep sums, so the share needs no inverse: the child's own axis was counted as it is.
        axis = table.design.units.index(columns.own[child])
        others = tuple(other for other in range(table.counts.ndim) if other != axis)
        share = table.counts.sum(axis=others)
        marginals.append(
            parameters.marginal_parameters(
                share,
                columns.units[columns.own[child]].channel,
                variable=child,
                model=np.full(share.shape, np.nan),
                level=level,
                noise_variance=table.noise_variance * (table.counts.size / share.size),
                # Between peers shares are of the noisy sum, as they always were; with few people it can be none.
                people=len(raw[child]) if share.sum() <= 0 else None,
                minimum_count=minimum,
            )
        )
    return tuple(families), tuple(marginals)


def learn_scores(
    raw: Mapping[int, Codes],
    remote: Mapping[int, Codes],
    study: Study,
    party: str,
    *,
    noise: ShareNoise | None,
) -> list[int]:
    """Estimate how much the pairs that a party scores tell about each other.

    Args:
        raw, remote, study, party, noise: as for `learn_families`.

    Returns:
        Mutual information in whole 1e-9 nats, of the pairs of `scored_pairs`, in their order; 0 where it is not significant
        at the level .05 over all pairs of the study together.

    Raises:
        DataFault: LEARNING_FAILED.
        ValueError: a column is missing, or does not fit the study.
    """
    columns = _columns(raw, remote, study, party)
    d = len(study.schema)
    level = _ALPHA / max(d * (d - 1) // 2, 1)
    scores: list[int] = []
    for a, b in scored_pairs(study, party):
        table = _observe(columns, study, (a, b), b"pair" + a.to_bytes(4, "big") + b.to_bytes(4, "big"), noise)
        information = pair_information(table.counts, table.design, level=level, noise_variance=table.noise_variance)
        scores.append(round(information * NANONATS))
    return scores


def _family(table: _Table, study: Study, child: int, parents: tuple[int, ...], minimum: int) -> Family:
    rule = study.parameters
    try:
        return parameters.family_parameters(
            table.counts,
            table.design.under(study.support().zeros((*parents, child))),
            child,
            parents,
            prior_count=rule.prior_count,
            level=rule.interval_level,
            estimator=estimator_of(rule, study.schema[child].name),
            noise_variance=table.noise_variance,
            minimum_count=minimum,
        )
    except ValueError:
        if rule.estimator != "inverse":
            raise
        raise negative_counts(study, study.schema[child].name) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Everything that a party can count: its own columns as they are, and behind them what its peers released.

    `own` says which unit each own variable is.
    """

    units: tuple[ColumnUnit, ...]
    codes: tuple[Codes, ...]
    own: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A counted table, noisy where the study asks for noise."""

    counts: Floats
    design: FamilyDesign
    noise_variance: float


def _columns(raw: Mapping[int, Codes], remote: Mapping[int, Codes], study: Study, party: str) -> _Columns:
    schema = study.schema
    own_variables = schema.owned_by(party)
    if set(raw) != set(own_variables):
        raise ValueError(f"own columns {sorted(raw)}, expected those of '{party}', {sorted(own_variables)}")
    if foreign := [index for index in remote if study.units[index].owner == party]:
        raise ValueError(f"units {foreign} are '{party}''s own, expected units of its peers")
    n = len(next(iter(raw.values()))) if raw else 0
    if n == 0:
        raise DataFault("LEARNING_FAILED", f"study '{study.id}': no common record, expected at least one")
    units = [
        ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(schema[v].n_states)))
        for v in sorted(own_variables)
    ]
    units += [study.column_unit(index) for index in sorted(remote)]
    codes = [raw[v] for v in sorted(own_variables)] + [remote[index] for index in sorted(remote)]
    for unit, column in zip(units, codes, strict=True):
        if column.shape != (expected_shape := (n * unit.channel.codes_per_record,)):
            raise ValueError(f"column of {unit.variables}: shape {column.shape}, expected {expected_shape}")
    return _Columns(
        units=tuple(units), codes=tuple(codes), own={v: index for index, v in enumerate(sorted(own_variables))}
    )


def _observe(columns: _Columns, study: Study, axes: Sequence[int], label: bytes, noise: ShareNoise | None) -> _Table:
    """Count the released codes behind some variables, and add the share noise."""
    design = family_design(columns.units, study.schema.n_states, axes)
    cells = math.prod(design.released_shape)
    if cells > MAX_TABLE_CELLS:
        names = ", ".join(study.schema[v].name for v in axes)
        raise DataFault(
            "LEARNING_FAILED",
            f"study '{study.id}': the table of {names} has {cells} cells, expected at most {MAX_TABLE_CELLS}",
            hint="fewer parents, categories or jointly randomized columns",
        )
    counts = family_counts(dict(enumerate(columns.codes)), design)
    if noise is None:
        return _Table(counts=counts, design=design, noise_variance=0.0)
    # A peer that sends another column asks another question: answered with the same noise, two answers would tell the difference.
    remote = [columns.codes[index].tobytes() for index in design.units if index >= len(columns.own)]
    label += b"".join(hashlib.sha256(codes).digest() for codes in remote)
    return _Table(counts=noise.add(label, counts), design=design, noise_variance=noise.variance)
