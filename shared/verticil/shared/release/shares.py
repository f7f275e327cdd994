"""The shares of variables and of pairs that a network itself has: exact where that is possible, else from a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.elimination import network_marginals, network_pair
from verticil.shared.model.network import Network
from verticil.shared.release.synthesis import sample_codes

_SAMPLE: Final = 1_000_000
"""Records that the shares are read from where exact elimination is too large."""
_DECIMALS: Final = 12


def model_shares(network: Network) -> tuple[list[NDArray[np.float64]], bool]:
    """The share of every category under the network.

    Rounded to 1e-12, because the last bits of a sum depend on the processor and everybody shall get the same bytes.

    Returns:
        For each variable (K,), in schema order; and whether they are exact. Else they are read from a sample of a million
        records, always the same one.
    """
    try:
        return [np.round(share, _DECIMALS) for share in network_marginals(network)], True
    except ValueError:
        codes = sample_codes(network, _SAMPLE, generator=np.random.default_rng(0))
        counts = [np.bincount(column, minlength=k) for column, k in zip(codes, network.schema.n_states, strict=True)]
        return [count / _SAMPLE for count in counts], False


def model_pairs(network: Network, pairs: Sequence[tuple[int, int]]) -> tuple[list[NDArray[np.float64]], float]:
    """The share of every combination of each pair's categories under the network, as `model_shares` has them.

    Returns:
        For each pair (K_first, K_second); and 0 where they are exact, else what a share's standard error is in relation to
        the square root of share times (1 - share).
    """
    try:
        return [np.round(network_pair(network, *pair), _DECIMALS) for pair in pairs], 0.0
    except ValueError:
        codes = sample_codes(network, _SAMPLE, generator=np.random.default_rng(0))
        n_states = network.schema.n_states
        tables = [
            np.bincount(codes[a].astype(np.int64) * n_states[b] + codes[b], minlength=n_states[a] * n_states[b])
            for a, b in pairs
        ]
        shaped = [t.reshape(n_states[a], n_states[b]) / _SAMPLE for t, (a, b) in zip(tables, pairs, strict=True)]
        return shaped, 1 / math.sqrt(_SAMPLE)
