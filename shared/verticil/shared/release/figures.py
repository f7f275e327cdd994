"""The figures of a release that follow from its own models and records, held against them.

Beside what was estimated of people, a release prints the share of each category in the network, and for pairs of columns the
shares in the network, in the joint model and among the synthetic records, with a verdict. Who has the models and the records can
compute these again; what was estimated only the publisher had, and its own ends must fit it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes
from verticil.shared.core.errors import GateFailed
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network, PairAccuracy, PairEstimate
from verticil.shared.release.formats import model_json
from verticil.shared.study.document import Study
from verticil.shared.synthesis.marginals import WITHIN, model_shares, pair_accuracy
from verticil.shared.synthesis.record_checks import TABLES, read_records

_CLOSE: Final = 1e-9
"""Another machine may have computed a share; it differs by less."""
_SAMPLED: Final = 0.005
"""Where a share is read from a million records, on whatever machine: ten standard deviations, of half of all people."""


def check_figures(
    directory: Path, document: bytes, study: Study, models: tuple[Network, JointModel | None], n_common: int
) -> None:
    """See that the shares of categories and pairs in model.json are those of the models and records beside them.

    Args:
        directory: the release.
        document: model.json; its network is read.
        study: of study.json.
        models: the release's network, and its joint model, where it has one.
        n_common: people behind the estimates.

    Raises:
        GateFailed: RELEASE_INVALID, one is another one.
        DataFault: LEARNING_FAILED, no record of the network meets the study's rules; as `read_records`.
    """
    network = models[0]
    marginals = model_json.read_marginals(document, study.schema)
    if marginals:
        shares, exact = model_shares(network, study.support())
        for item in marginals:
            what = f"the marginal of '{study.schema.names[item.variable]}'"
            _expect(item.model, shares[item.variable], f"{what}: model", within=_CLOSE if exact else _SAMPLED)
            _expect_ends(item.estimate, item.interval_low, item.interval_high, what)
    pairs = model_json.read_pairs(document, study.schema)
    if pairs:
        n_records = study.release.synthetic_records or n_common
        codes = read_records(
            directory / TABLES[1], study.schema, n_records, study.knowledge, identifier=study.identifier
        )
        _check_pairs(pairs, codes, study, models)


def _check_pairs(
    pairs: tuple[PairAccuracy, ...],
    codes: Sequence[AnyCodes],
    study: Study,
    models: tuple[Network, JointModel | None],
) -> None:
    rounded_pairs = [
        PairEstimate(
            first=item.first, second=item.second, estimate=item.estimate, low=item.low, high=item.high, exact=False
        )
        for item in pairs
    ]
    names = study.schema.names
    computed_pairs = pair_accuracy(models[0], rounded_pairs, codes, 1, models[1], support=study.support())
    for pair, again in zip(pairs, computed_pairs, strict=True):
        what = f"the pair of '{names[pair.first]}' and '{names[pair.second]}'"
        _expect(pair.network, again.network, f"{what}: network", within=_SAMPLED)
        _expect(pair.synthetic, again.synthetic, f"{what}: synthetic", within=_CLOSE)
        if (pair.joint is None) != (again.joint is None):
            raise _wrong(f"{what}: joint", "is there, or is not, other than the joint model")
        if pair.joint is not None and again.joint is not None:
            _expect(pair.joint, again.joint, f"{what}: joint", within=_CLOSE)
        _expect_ends(pair.estimate, pair.low, pair.high, what)
        if pair.verdict == WITHIN and _is_outside(pair):
            raise _wrong(f"{what}: verdict", f"got '{pair.verdict}', and a share is outside of its interval")


def _is_outside(pair: PairAccuracy) -> bool:
    """Return whether a share of the model is clearly outside of the interval that is shown."""
    model = pair.network if pair.joint is None else pair.joint
    slack = _CLOSE if pair.joint is not None else _SAMPLED
    return bool(np.nanmax(np.maximum(pair.low - model, model - pair.high), initial=-math.inf) > slack)


def _expect(got: NDArray[np.float64], expected: NDArray[np.float64], what: str, *, within: float) -> None:
    if not bool((np.abs(got - expected) <= within).all()):  # NaN is no share of a model
        raise _wrong(what, "these are not the shares that follow from the models and the records of this release")


def _expect_ends(estimate: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], what: str) -> None:
    is_known = ~np.isnan(low) & ~np.isnan(estimate)
    inside = np.clip(estimate, np.minimum(0.0, low), np.maximum(1.0, high))[is_known]
    if not bool(((low[is_known] - _CLOSE <= inside) & (inside <= high[is_known] + _CLOSE)).all()):
        raise _wrong(f"{what}: interval", "an estimate is outside of its own interval")


def _wrong(what: str, problem: str) -> GateFailed:
    return GateFailed("RELEASE_INVALID", f"model.json: {what}: {problem}", hint="do not use this release")
