"""Attacks on the noise that a party adds to tables that it shares.

The noise is made as for a study between peers, from site secret to noisy table: the key
(`verticil.shared.mechanisms.shared_statistics_noise.share_key`), then what the study's ``share`` asks for
(`verticil.party.protocol.peer.parameters.share_noise`). The two inputs differ in one person, who in each of the study's T tables
is in one cell or in another. The loss of Gaussian noise grows with the sum over all tables of the differences of these two cells,
so that sum is the outcome.

Three more mechanisms are the discrete Gaussian's sampler on one table: alone with little noise, and what 3 and 5 contribute,
added up.

- ``cells``: many people with two cells of each table of their own, under few keys.
- ``site secrets``: small tables under fresh keys, where a person is in other cells of each table. An outcome also tells whether
  two tables seem to have got the same noise, which would give the person away.

A delta as small as a claim's is out of reach of any number of draws that can be made. So the claim is attacked at two more points
of the mechanism's own curve, which the accountant's engine has (`verticil.shared.mechanisms.loss`): at a half and a twentieth of
the total variation distance.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verticil.attack.attack import Attack
from verticil.attack.columns import PARTY, fresh
from verticil.attack.events import Counts
from verticil.party.protocol.peer.parameters import share_noise
from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.discrete_gaussian import draw as discrete_gaussian
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.mechanisms.shared_statistics_noise import share_key
from verticil.shared.privacy.accountant import cost_of, numerically
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts, PrivacyEvent, plan_events
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

STUDY: Final = Path(__file__).with_name("tables.toml")
SHARES: Final = {
    "share-discrete-1": (1.0, 1e-9),
    "share-discrete-8": (8.0, 1e-6),
}
"""Mechanism -> epsilon and delta of the study's ``share``: much noise, and so little that its steps show."""
SAMPLED: Final = {"discrete-gaussian": (1, 1.0), "sum-of-3": (3, 3.0), "sum-of-5": (5, 3.0)}
"""Mechanism -> how many contribute noise to one table, and the parameter of each one's."""
SAMPLED_DELTA: Final = 1e-6
PARTS: Final = (0.5, 0.05)
"""Of the total variation distance: the deltas at which the curve is attacked."""
ONE_SITE: Final = 0.005
"""Draws over site secrets for each draw over cells."""
_BASE: Final = 100
_REACH: Final = 9.0
_INPUTS: Final = ("second cells", "first cells")
"""Where the person is."""

Add: TypeAlias = Callable[[bytes, Floats], Floats]
"""(label of the table, counts) -> noisy counts."""
Noise: TypeAlias = Callable[[bytes, bytes], Add]
"""(site secret, fingerprint of the data) -> what adds the noise of this draw."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mechanism:
    """Noise on each count of some tables.

    Attributes:
        name: of the mechanism.
        event: that is charged for it.
        curve: delta -> the least epsilon that is claimed at that delta.
        noise: that is added.
        n_tables: T.
        sigma: of the noise on a count.
        weights: (2 b + 1,), probabilities of the noise on a count, from -b to b; beyond is next to nothing.
    """

    name: str
    event: PrivacyEvent
    curve: Callable[[float], float]
    noise: Noise
    n_tables: int
    sigma: float
    weights: Floats


def attacks() -> Iterator[Attack]:
    """Yield every attack on noise."""
    for mechanism in mechanisms():
        yield from attacks_on(mechanism)


def mechanisms() -> Iterator[Mechanism]:
    """Yield every kind of noise."""
    study = read_study(STUDY)
    assert study.share is not None
    for name, (epsilon, delta) in SHARES.items():
        rule = dataclasses.replace(study.share, epsilon=epsilon, delta=delta)
        yield _shared(name, dataclasses.replace(study, share=rule))
    for name, (contributors, sigma) in SAMPLED.items():
        yield _sampler_mechanism(name, contributors, sigma)


def _shared(name: str, study: Study) -> Mechanism:
    """Return the noise that a study's ``share`` asks for."""
    (event,) = (item.event for item in plan_events(study, PARTY) if item.unit is None)
    assert isinstance(event, DiscreteGaussianCounts)
    return Mechanism(
        name=name,
        event=event,
        curve=curve_of(event),
        noise=_noise_of(study),
        n_tables=event.tables,
        sigma=event.sigma,
        weights=discrete_weights(event.sigma),
    )


def _sampler_mechanism(name: str, contributors: int, sigma: float) -> Mechanism:
    """Return the sampler itself as a mechanism: the noise that some contributors add to one table."""
    event = DiscreteGaussianCounts(
        sigma=sigma * math.sqrt(contributors),
        tables=1,
        delta=SAMPLED_DELTA,
        sensitivity=math.sqrt(2),
        contributors=contributors,
    )

    def noise(site_secret: bytes, fingerprint: bytes) -> Add:
        keys = [derived_key(site_secret, b"attack", fingerprint, bytes([number])) for number in range(contributors)]

        def add(label: bytes, counts: Floats) -> Floats:
            parts = (discrete_gaussian(key, label, counts.shape, sigma, of_a_sum=contributors > 1) for key in keys)
            return counts + sum(parts, np.zeros(1, dtype=np.int64))

        return add

    weights = np.ones(1)
    for _ in range(contributors):
        weights = np.convolve(weights, discrete_weights(sigma))
    return Mechanism(
        name=name,
        event=event,
        curve=curve_of(event),
        noise=noise,
        n_tables=1,
        sigma=event.sigma,
        weights=weights,
    )


def discrete_weights(sigma: float) -> Floats:
    """Return the weights of a discrete Gaussian."""
    numbers = np.arange(-math.ceil(_REACH * sigma), math.ceil(_REACH * sigma) + 1)
    weights: Floats = np.exp(-(numbers**2) / (2 * sigma**2))
    weights /= weights.sum()
    return weights


def curve_of(event: DiscreteGaussianCounts) -> Callable[[float], float]:
    """Return the curve of an event whose losses the accountant knows."""
    return lambda delta: numerically((event,), delta)


def _noise_of(study: Study) -> Noise:
    effective, structure, common = (hashlib.sha256(part).digest() for part in (b"study", b"structure", b"common"))

    def noise(site_secret: bytes, fingerprint: bytes) -> Add:
        key = share_key(
            site_secret,
            effective_digest=effective,
            structure_sha256=structure,
            common_sha256=common,
            data_fingerprint=fingerprint,
        )
        own_noise = share_noise(key, study, PARTY)
        assert own_noise is not None
        return own_noise.add

    return noise


def attacks_on(mechanism: Mechanism) -> Iterator[Attack]:
    """Yield the attacks on one kind of noise."""
    n_tables, sigma, noise = mechanism.n_tables, mechanism.sigma, mechanism.noise
    reach = math.ceil(n_tables + _REACH * math.sqrt(2 * n_tables) * sigma)
    width = 2 * reach + 1
    documented_shares = np.stack(
        [_sums(mechanism.weights, 2 * n_tables, mean, reach) for mean in (n_tables, -n_tables)]
    )
    distance = float(np.abs(documented_shares[0] - documented_shares[1]).sum()) / 2
    points = (Cost(epsilon=mechanism.curve(part * distance), delta=part * distance) for part in PARTS)
    claims = (cost_of(mechanism.event), *points)
    labels = [b"table" + number.to_bytes(4, "big") for number in range(n_tables)]

    def words(is_member: NDArray[np.bool_]) -> str:
        sums, same = np.flatnonzero(is_member[:width]), int(is_member[width:].sum())
        parts = [f"{len(sums)} sums, {sums[0] - reach} to {sums[-1] - reach}"] if len(sums) else []
        return " or ".join([*parts, *(["equal noise in two tables"] if same else [])])

    def over_cells(generator: np.random.Generator, draws: int) -> Counts:
        counts = np.zeros((2, width), dtype=np.int64)
        secret = fresh(generator).value
        for row, place in enumerate((1, 0)):
            add = noise(secret, bytes([row + 1]))
            table = np.full((draws, 2), float(_BASE))
            table[:, place] += 1
            noisy = sum((add(label, table) for label in labels), np.zeros(1))
            sums = np.rint(noisy[:, 1] - noisy[:, 0]).astype(np.int64)
            counts[row] = np.bincount(np.clip(sums, -reach, reach) + reach, minlength=width)
        return counts

    tables = np.full((2, n_tables, 2 * n_tables), float(_BASE))
    for number in range(n_tables):
        tables[0, number, 2 * number + 1] += 1
        tables[1, number, 2 * number] += 1

    def over_sites(generator: np.random.Generator, draws: int) -> Counts:
        counts = np.zeros((2, 3 * width), dtype=np.int64)
        places = np.arange(n_tables)
        for _ in range(draws):
            secret = fresh(generator).value
            for row in range(2):
                add = noise(secret, bytes([row + 1]))
                noisy = np.stack([add(label, table) for label, table in zip(labels, tables[row], strict=True)])
                total = int(np.rint((noisy[places, 2 * places + 1] - noisy[places, 2 * places]).sum()))
                same = [n_tables > 1 and bool(np.ptp(noisy[:2] - base[:2], axis=0).max() == 0) for base in tables]
                kind = same.index(True) + 1 if sum(same) == 1 else 0
                counts[row, min(max(total, -reach), reach) + reach + kind * width] += 1
        return counts

    for over, draw, shares, weight, at_once in (
        ("cells", over_cells, documented_shares, 1.0, 100_000),
        ("site secrets", over_sites, np.pad(documented_shares, ((0, 0), (0, 2 * width))), ONE_SITE, 500),
    ):
        yield Attack(
            mechanism=mechanism.name,
            over=over,
            inputs=_INPUTS,
            claims=claims,
            draw=draw,
            words=words,
            documented=shares,
            weight=weight,
            at_once=at_once,
        )


def _sums(weights: Floats, times: int, mean: int, reach: int) -> Floats:
    """Return probabilities of a sum of independent symmetric numbers that is moved by `mean` and kept within `reach`."""
    total = np.ones(1)
    for _ in range(times):
        total = np.convolve(total, weights)
    places = np.clip(np.arange(len(total)) - len(total) // 2 + mean, -reach, reach) + reach
    probabilities = np.zeros(2 * reach + 1)
    np.add.at(probabilities, places, total)
    return probabilities
