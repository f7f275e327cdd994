"""The one-way shares that a network itself has: exact where that is possible, else from a sample."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.elimination import network_marginals
from verticil.shared.model.network import Network
from verticil.shared.release.synthesis import sample_codes

__all__ = ["model_shares"]

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
