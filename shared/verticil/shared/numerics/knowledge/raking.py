"""Records of a network that meet the rules and keep its shares: weights of categories beside the tables of the rules.

The shares of categories are estimated from people, who all meet what is stated of them. Given the rules, a network has others:
what is lost with impossible records is lost where the network, by its edges and its noise, has most of them, and of a rare group
of which it knows little it may be most. So records are drawn from that distribution Q which, of all that meet the rules and have
the network's own shares of every category, is nearest to the network's P:

    least sum over x of Q(x) log (Q(x) / P(x)),      so  Q(x) = P(x) r(x) prod over v of w_v(x_v) / Z,

r the tables of the rules, w_v a weight for each category of variable v (Csiszár 1975: the projection on given margins; Deming &
Stephan 1940: raking). Where no distribution by the rules has all of the network's shares F_v, as where noise gives other shares
to two columns that say the same, it is one that has the least

    D = sum over v of sum over k of Q_v(k) log (Q_v(k) / F_v(k)).

Each round multiplies every w_v(k) by (F_v(k) / Q_v(k))^a, all v at once, so that none comes last (Darroch & Ratcliff 1972; that
it leads to the least D where D cannot be 0: Byrne 1993). a grows as long as D falls, and is cut where D would grow. Q_v are
exact, by elimination. Variables that are neither in a rule nor above one have no weights: given their parents they are as they
were. Everything is a function of the network's parameters and of the rules: it costs no epsilon, and whoever has a release can do
it again. Weights are rounded (`_PLACES`), so that everybody who does has the same ones.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.elimination import Factor, TooWideError, family_shares
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network

ROUNDS: Final = 50
STEP: Final = 0.3
"""a at the beginning."""
GAIN: Final = 1e-8
"""Nats: a round that brings D down by less is the last one."""
_LONGER, _SHORTER = 1.3, 0.4
_SURE: Final = 1e-9  # a network of which less breaks the rules needs no weights
_PLACES: Final = 2.0**20  # logarithms of weights are multiples of one over this


def rake(source: Network | JointModel, support: Support | None) -> Support | None:
    """Weight what is possible so that records have the network's own shares.

    Args:
        source: a network as it was estimated; or a joint model, whose records meet all as they are.
        support: what every record meets; None: nothing.

    Returns:
        The support with `weights`; the same one where nothing is impossible or no record of the network is possible, where all
        are, or where the tables to be built are too large.
    """
    if support is None or not support.restricts or not isinstance(source, Network):
        return support
    network, limits = source, support.limits
    try:
        own, _ = family_shares(network)
        tables, share = family_shares(network, limits)
    except TooWideError:
        return support
    if not 0 < share < 1 - _SURE:
        return support
    targets: dict[int, Floats] = {}
    for variable, table in tables.items():
        possible = np.where(table.sum(axis=0) > 0, own[variable].sum(axis=0), 0.0)
        targets[variable] = possible / possible.sum()
    weights = {variable: np.zeros(len(shares)) for variable, shares in targets.items()}
    moves, candidate, step, best = weights, weights, STEP, math.inf
    for _ in range(ROUNDS):
        tables, _ = family_shares(network, [*limits, *_factors(candidate)])
        margins = {v: table.sum(axis=0) for v, table in tables.items()}
        ratios = {v: _log_ratio(targets[v], margins[v]) for v in targets}
        distance = -sum(float(margins[v] @ ratios[v]) for v in targets)
        if distance > best:
            step *= _SHORTER
        else:
            weights, moves, gain, best = candidate, ratios, best - distance, distance
            if gain < GAIN:
                break
            step *= _LONGER
        candidate = {v: weights[v] + step * moves[v] for v in targets}
        candidate = {v: logs - logs.max() for v, logs in candidate.items()}
    multiples = {v: np.round(logs * _PLACES) / _PLACES for v, logs in weights.items()}
    return dataclasses.replace(support, weights=_factors(multiples))


def _log_ratio(target: Floats, share: Floats) -> Floats:
    """log(wanted / got), 0 where there is nothing."""
    return np.log(np.divide(target, share, out=np.ones_like(share), where=(target > 0) & (share > 0)))


def _factors(logs: dict[int, Floats]) -> tuple[Factor, ...]:
    return tuple(((variable,), np.exp(values)) for variable, values in logs.items())
