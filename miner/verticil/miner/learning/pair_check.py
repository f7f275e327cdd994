"""A network against the tables of all pairs: what it gets wrong beyond noise, and which links it leaves out.

Searches add up scores, and a network can be good on the whole and say of one pair, even of a function, that it is independent. So
the pairs of a sample of the network are compared with what the released tables of the significant pairs say (`PairScores.links`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.counting import all_pair_tables
from verticil.miner.learning.scores import PairScores
from verticil.shared.estimation.axes import plogp
from verticil.shared.estimation.information import Link, plug_in_information
from verticil.shared.model.network import Network
from verticil.shared.release.synthesis import sample_codes

Sample = Sequence[NDArray[np.unsignedinteger]]

_SAMPLED: Final = 100_000
_LEFT: Final = 0.25
"""A pair is missing where the network has less than this part of its information."""
_STRONG: Final = 0.5
_MOST: Final = 0.5
"""A pair is strong from so many nats, or from this part of the smaller entropy: a function of a rare category has few nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCheck:
    """What the tables of the pairs say of a network.

    Attributes:
        pairs: how many are significant and were looked at.
        worst: the pair whose table is the farthest from the estimated one beyond what noise explains; None without pairs.
        distance: total variation distance of its two tables.
        noise: what noise alone gives on average.
        missing: significant pairs that the network leaves nearly independent, and their information, nats; the largest first.
        strong: the sum of the information of those that are strong, nats.
    """

    pairs: int
    worst: tuple[int, int] | None
    distance: float
    noise: float
    missing: tuple[tuple[int, int, float], ...]
    strong: float


def sample_of(network: Network, *, seed: int) -> Sample:
    """Records of a network: codes of each variable."""
    return sample_codes(network, _SAMPLED, generator=np.random.Generator(np.random.Philox(seed)))


def check_pairs(sample: Sample, n_states: Sequence[int], pairs: PairScores) -> PairCheck:
    """Compare a sample of a network with the tables of all significant pairs."""
    worst: tuple[int, int] | None = None
    distance = noise = strong = 0.0
    missing: list[tuple[int, int, float]] = []
    tables = all_pair_tables(sample, n_states) if pairs.links else None
    for (a, b), link in pairs.links.items():
        assert tables is not None
        of_network = tables.table(a, b)
        apart = 0.5 * float(np.abs(of_network / max(of_network.sum(), 1) - link.table).sum())
        if worst is None or apart - link.noise > distance - noise:
            worst, distance, noise = (a, b), apart, link.noise
        if plug_in_information(of_network) < _LEFT * link.information:
            missing.append((a, b, link.information))
            strong += link.information if _is_strong(link) else 0.0
    return PairCheck(
        pairs=len(pairs.links),
        worst=worst,
        distance=distance,
        noise=noise,
        missing=tuple(sorted(missing, key=lambda pair: -pair[2])),
        strong=strong,
    )


def _is_strong(link: Link) -> bool:
    return link.information >= min(_STRONG, _MOST * min(-plogp(link.table.sum(axis=side)) for side in range(2)))
