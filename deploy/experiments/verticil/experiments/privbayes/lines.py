"""The ways to synthetic records that are compared, each at one total (epsilon, delta) for the replacement of one person.

A curator has the whole table and draws noise on what is measured of it: PrivBayes, with negative counts projected by least
squares (simplex) or clipped as in the paper, and with its three samplers; one joint model of noisy tables of all pairs
(`verticil.shared.numerics.joint`); and the columns on their own, with the whole budget on them. A federation has no such person:
each column is randomized by its party, at equal contrast (`verticil.shared.mechanisms.allocation`), with the whole epsilon for
all columns of a record and no delta, and the product's own learning makes of them what a release has: records of the mean of
joint model and network that the miner chooses. Beside them stand a resample of the
records (what other people of the same kind would score: the floor of any error) and the records' columns put together at random.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.experiments.privbayes.datasets import Table
from verticil.miner.learning.learn import LearnResult, learn
from verticil.party.dataset.perturb import perturb, record_tags
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.allocation import equal_contrast
from verticil.shared.mechanisms.shared_statistics_noise import ShareNoise
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.privbayes.calibration import Relation
from verticil.shared.numerics.privbayes.distributions import Projection
from verticil.shared.numerics.privbayes.fitting import Fitted, fit
from verticil.shared.privacy.privbayes import noise_for
from verticil.shared.study.document import ReleaseRule, Sampling, StructureRule, Study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.synthesis import sample_codes

DELTA: Final = 1e-9

Draw = Callable[[Table, float, int], Sequence[Codes]]
"""(the records, epsilon, a seed of noise and sampling) -> as many synthetic records."""
Publish = Callable[[LearnResult, Study], Sequence[Codes]]
"""(what a miner learned, its study) -> the records of the release, as many as there are people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One way.

    Attributes:
        name: short.
        words: for people.
        draw: makes records.
        private: it has an epsilon; else it is a yardstick.
        shown: it is drawn in the picture.
    """

    name: str
    words: str
    draw: Draw
    private: bool = True
    shown: bool = True


def privbayes(
    table: Table,
    epsilon: float,
    seed: int,
    *,
    relation: Relation = "replace",
    projection: Projection = "simplex",
    consistent: bool = True,
    delta: float = DELTA,
) -> Fitted:
    """Run PrivBayes under a key that is drawn from the seed: nobody is protected here."""
    noise = noise_for(epsilon, delta, relation, len(table.columns))
    return fit(
        table.columns, table.schema.n_states, key=_key(seed), noise=noise, projection=projection, consistent=consistent
    )


def privbayes_records(
    table: Table,
    epsilon: float,
    seed: int,
    *,
    relation: Relation = "replace",
    projection: Projection = "simplex",
    consistent: bool = True,
    sampling: Sampling = "systematic",
) -> list[Codes]:
    """PrivBayes' records, as many as there are real ones."""
    fitted = privbayes(table, epsilon, seed, relation=relation, projection=projection, consistent=consistent)
    return sample_codes(
        fitted.network(table.schema),
        table.n_records,
        generator=np.random.default_rng([seed, 0x5]),
        method=sampling,
        configurations=fitted.configuration_shares(),
    )


def _privbayes(projection: Projection, *, consistent: bool, sampling: Sampling) -> Draw:
    return lambda table, epsilon, seed: privbayes_records(
        table, epsilon, seed, projection=projection, consistent=consistent, sampling=sampling
    )


def _noisy_columns(table: Table, epsilon: float, seed: int) -> Sequence[Codes]:
    """The whole budget on one-way tables: PrivBayes whose scores, all zero, lead to no parents."""
    d = len(table.columns)
    noise = noise_for(epsilon, DELTA, "replace", d, with_scores=False)
    fitted = fit(table.columns, table.schema.n_states, key=_key(seed), noise=noise, scores=np.zeros((d, d)), tau=0.0)
    return _sampled(fitted.network(table.schema), table, seed)


def _joint(table: Table, epsilon: float, seed: int) -> Sequence[Codes]:
    n_states = table.schema.n_states
    units = [
        ColumnUnit(variables=(variable,), domain=None, channel=quantize(identity(k)))
        for variable, k in enumerate(n_states)
    ]
    exact = from_columns(table.columns, units, n_states, parts=1)
    noise = ShareNoise(key=_key(seed), epsilon=epsilon, delta=DELTA, n_tables=len(exact.tables))
    noisy = [
        MeasuredTable(units=one.units, counts=noise.add(b"%d/%d" % one.units, one.counts), sigma=noise.variance**0.5)
        for one in exact.tables
    ]
    found = estimate(dataclasses.replace(exact, tables=tuple(noisy)), seed=seed)
    return joint_codes(found.model, table.n_records, generator=np.random.default_rng([seed, 0x5]))


def _local(publish: Publish, table: Table, epsilon: float, seed: int) -> Sequence[Codes]:
    names, n_states = table.schema.names, table.schema.n_states
    each = equal_contrast(n_states, epsilon, [None] * len(n_states))
    channels = [quantize(symmetric(k, epsilon=one)) for k, one in zip(n_states, each, strict=True)]
    units = [
        Unit(variables=(name,), owner="curator", scheme="symmetric", transition=channel)
        for name, channel in zip(names, channels, strict=True)
    ]
    study = Study(
        id="local", title="local", purpose="comparison", model="central", expires=dt.date(2099, 12, 31),
        parties=("curator",), schema=table.schema, units=tuple(units),
        structure=StructureRule(method="auto", score="auto"), release=ReleaseRule(seed=seed),
    )  # fmt: skip
    generator = np.random.default_rng([seed, 0xE])
    tags = record_tags(generator.bytes(32), map(str, range(table.n_records)))
    released = [
        perturb(generator.bytes(32), tags, column, channel)
        for column, channel in zip(table.columns, channels, strict=True)
    ]
    return publish(learn(released, study), study)


def _resampled(table: Table, _epsilon: float, seed: int) -> Sequence[Codes]:
    rows = np.random.default_rng([seed, 0xB]).integers(0, table.n_records, table.n_records)
    return [column[rows] for column in table.columns]


def _shuffled(table: Table, _epsilon: float, seed: int) -> Sequence[Codes]:
    generator = np.random.default_rng([seed, 0xC])
    return [generator.permutation(column) for column in table.columns]


def _sampled(network: Network, table: Table, seed: int) -> list[Codes]:
    return sample_codes(network, table.n_records, generator=np.random.default_rng([seed, 0x5]))


def _key(seed: int) -> bytes:
    return np.random.default_rng([seed, 0xF]).bytes(32)


PROJECTIONS: Final[tuple[Projection, ...]] = ("simplex", "clip")
_SAMPLERS: Final[tuple[tuple[str, str, bool, Sampling], ...]] = (
    ("inconsistent", "with replacement, tables as they are", False, "independent"),
    ("consistent", "with replacement, consistent tables", True, "independent"),
    ("dealt", "without replacement, consistent tables", True, "without-replacement"),
)


def lines(publish: Publish) -> tuple[Line, ...]:
    """Return all ways, in the order of the table.

    Args:
        publish: draws records as a federation's release has them.
    """
    return (
        Line(name="resample", words="a resample of the real records", draw=_resampled, private=False),
        Line(name="shuffled", words="real columns, put together at random", draw=_shuffled, private=False),
        Line(name="columns", words="curator: columns on their own", draw=_noisy_columns),
        *(
            Line(
                name=f"{projection}-{name}",
                words=f"curator: PrivBayes, {projection}, {words}",
                draw=_privbayes(projection, consistent=consistent, sampling=sampling),
                shown=name == "dealt",
            )
            for projection in PROJECTIONS
            for name, words, consistent, sampling in _SAMPLERS
        ),
        Line(name="joint", words="curator: one joint model of all pairs", draw=_joint),
        Line(
            name="local",
            words="federation: local randomization, records as its release draws them",
            draw=functools.partial(_local, publish),
        ),
    )
