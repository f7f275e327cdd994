"""The shares of variables and of pairs that a network itself has: exact where that is possible, else from a sample.

And how far the model is from what is known of pairs: of each edge, and of each pair that the study names (Model II).

Beside the unbiased estimate of every combination's share, with intervals that hold together for the whole table, stand the
network's share and that of the synthetic records, and a verdict: the network is within all intervals, or it differs by more than
chance and noise explain. A wrong verdict of the second kind has at most the probability that the study's level leaves, for each
pair. The verdict is about the network, or about the joint model where records come from one; synthetic records differ from it by
how they were drawn.

All of it is made from what the miner has anyway. Of two columns that are both sent as they are the table is exact: there, what
fewer than `FEW` people have in common is not shown. In Model I no party has the tables: a party's statement holds conditional
probabilities of its own columns, from which the pair's shares do not follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.elimination import TooWideError, network_marginals, network_pair
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network, PairAccuracy, PairEstimate
from verticil.shared.synthesis.synthesis import RulesTooWideError, sample_codes
from verticil.shared.synthesis.table_columns import cell_counts

_SAMPLE: Final = 1_000_000
"""Records that the shares are read from where exact elimination is too large."""
_DECIMALS: Final = 12


def model_shares(network: Network, support: Support | None = None) -> tuple[list[NDArray[np.float64]], bool]:
    """Compute the share of every category under the network.

    Rounded to 1e-12, because the last bits of a sum depend on the processor and everybody shall get the same bytes.

    Args:
        network: the model.
        support: what every record meets: the shares are of the network given that; None: nothing.

    Returns:
        For each variable (K,), in schema order; and whether they are exact. Else they are read from a sample of a million
        records, always the same one.

    Raises:
        DataFault: LEARNING_FAILED, no record of the network meets it, or too few for what can be computed.
    """
    support = rake(network, support)
    rules = () if support is None else support.limits
    try:
        return [np.round(share, _DECIMALS) for share in network_marginals(network, rules)], True
    except TooWideError:
        codes = _sample_for_marginals(network, support)
    except ValueError as error:
        raise no_records(error) from None
    counts = [np.bincount(column, minlength=k) for column, k in zip(codes, network.schema.n_states, strict=True)]
    return [count / _SAMPLE for count in counts], False


def _sample_for_marginals(network: Network, support: Support | None) -> list[Codes]:
    try:
        return sample_codes(network, _SAMPLE, generator=np.random.default_rng(0), support=support)
    except RulesTooWideError as error:
        raise no_records(error) from None


def no_records(error: ValueError) -> DataFault:
    """Say that records of a network cannot be drawn by rules."""
    return DataFault(
        "LEARNING_FAILED",
        f"records of the network that meet what the study states: {error}",
        hint="compare the rules with what the parties know of their tables; allow fewer parents, or rules over fewer variables",
    )


def model_pairs(
    network: Network, pairs: Sequence[tuple[int, int]], support: Support | None = None
) -> tuple[list[NDArray[np.float64]], float]:
    """Compute the share of every combination of each pair's categories under the network, as `model_shares` has them.

    Returns:
        For each pair (K_first, K_second); and 0 where they are exact, else what a share's standard error is in relation to
        the square root of share times (1 - share).
    """
    support = rake(network, support)
    rules = () if support is None else support.limits
    try:
        return [np.round(network_pair(network, *pair, rules), _DECIMALS) for pair in pairs], 0.0
    except TooWideError:
        codes = _sample_for_marginals(network, support)
        n_states = network.schema.n_states
        tables = [
            np.bincount(codes[a].astype(np.int64) * n_states[b] + codes[b], minlength=n_states[a] * n_states[b])
            for a, b in pairs
        ]
        tables_of_pairs = [
            t.reshape(n_states[a], n_states[b]) / _SAMPLE for t, (a, b) in zip(tables, pairs, strict=True)
        ]
        return tables_of_pairs, 1 / math.sqrt(_SAMPLE)


FEW: Final = 10
WITHIN: Final = "within the intervals"
DIFFERS: Final = "differs by more than noise explains"
_SAMPLING: Final = 5.0  # standard deviations that a share read from a sample of the network may be off


def pair_accuracy(
    network: Network,
    pairs: Sequence[PairEstimate],
    codes: Sequence[AnyCodes],
    n_common: int,
    joint: JointModel | None = None,
    *,
    support: Support | None = None,
) -> tuple[PairAccuracy, ...]:
    """Compare.

    Args:
        network: the model.
        pairs: what is known.
        codes: the synthetic records, one array for each variable.
        n_common: people behind the estimates.
        joint: what the records come from; None: from the network.
        support: see `model_shares`.
    """
    if not pairs:
        return ()
    shares, error = model_pairs(network, [(pair.first, pair.second) for pair in pairs], support)
    accuracies: list[PairAccuracy] = []
    for pair, network_share in zip(pairs, shares, strict=True):
        joint_share = None if joint is None else np.round(joint.shares((pair.first, pair.second)), _DECIMALS)
        model = network_share if joint_share is None else joint_share
        slack = 1e-9 + (_SAMPLING * error * np.sqrt(model * (1 - model)) if joint_share is None else 0.0)
        outside = np.maximum(pair.low - slack - model, model - pair.high - slack)
        width = np.maximum(pair.high - pair.low, 1 / n_common)
        row, column = np.unravel_index(int(np.argmax(outside / width)), outside.shape)
        few = pair.exact & (pair.estimate * n_common < FEW - 0.5)
        counts = cell_counts([codes[pair.first], codes[pair.second]], model.shape).reshape(model.shape)
        accuracies.append(
            PairAccuracy(
                first=pair.first,
                second=pair.second,
                estimate=np.where(few, np.nan, pair.estimate),
                low=np.where(few, np.nan, pair.low),
                high=np.where(few, np.nan, pair.high),
                network=network_share,
                joint=joint_share,
                synthetic=counts / max(1, len(codes[pair.first])),
                verdict=DIFFERS if outside.max() > 0 else WITHIN,
                worst=(int(row), int(column)),
            )
        )
    return tuple(accuracies)
