"""What the report says of a joint model that the synthetic records come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Floats
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.numerics.model.network import PairAccuracy
from verticil.shared.release import wording
from verticil.shared.release.content import ReleaseContent
from verticil.shared.synthesis.table_columns import cell_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class JointView:
    """A joint model in words.

    Attributes:
        made_of: what it is.
        missed: what follows where it did not reach the measured tables; empty: it did, or the columns are exact, whose
            tables have no noise that it could be held against.
        fit: what is to be said of its fit; empty: nothing.
        sampling: people that the records count in another combination than the model, as a mean over all pairs.
        known: the same against the estimates of the pairs that the release shows: the joint model's, the records' and the
            network's; empty: it shows none.
    """

    made_of: str
    missed: str
    fit: str
    sampling: str
    known: tuple[str, ...]


def joint_view(content: ReleaseContent) -> JointView | None:
    """Return the view of the joint model; None: records come from the network."""
    model = content.joint
    if model is None:
        return None
    n = len(model.weights)
    made_of = (
        f"a mixture of {n:,} products of independent columns"
        if isinstance(model, Mixture)
        else f"{n:,} weighted records"
    )
    missed, fit = "", []
    study = content.study
    is_exact = study.tables is None and all(unit.transition.is_identity for unit in study.units)
    if content.joint_facts.get("reached") is False and not is_exact:
        missed = "The synthetic records show less of how columns go together than was measured."
        if isinstance(nearer := content.joint_facts.get("tables_nearer"), float):
            missed += f" The noisy tables themselves are estimated to be {nearer:.1f} times nearer to the people."
    alpha = content.joint_facts.get("share_of_the_model")
    if isinstance(alpha, float) and alpha < 1:
        left_out = "as far as tables that the fit had not seen confirm it"
        fit.append(f"The dependence that was found is kept to {wording.percent(alpha, 0)}, {left_out}.")
    names: tuple[str, ...] = ()
    if pairs := content.accuracy:
        sides = ([_joint(pair) for pair in pairs], [pair.synthetic for pair in pairs], [pair.network for pair in pairs])
        names = tuple(
            _mean(_moved(side, pair.estimate) for side, pair in zip(shares, pairs, strict=True)) for shares in sides
        )
    return JointView(
        made_of=made_of, missed=missed, fit=" ".join(fit), sampling=_sampling(model, content.codes), known=names
    )


def _joint(pair: PairAccuracy) -> Floats:
    assert pair.joint is not None
    return pair.joint


def _sampling(model: JointModel, codes: Sequence[AnyCodes]) -> str:
    distances: list[float] = []
    for a, b in itertools.combinations(range(len(codes)), 2):
        shares = model.shares((a, b))
        counts = cell_counts([codes[a], codes[b]], shares.shape).reshape(shares.shape)
        distances.append(_moved(counts / max(1, len(codes[a])), shares))
    return _mean(distances)


def _moved(shares: Floats, expected: Floats) -> float:
    """Half the sum of the differences, of the combinations that are shown."""
    return float(np.nansum(np.abs(shares - expected))) / 2


def _mean(distances: Iterable[float]) -> str:
    values = list(distances)
    return wording.percent(sum(values) / max(1, len(values)))
