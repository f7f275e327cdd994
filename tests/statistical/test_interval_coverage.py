"""Coverage of 95 % intervals for theta on the paper's Fig. 2 network, randomized as its Table 1 says, 20,000 records.

Released count tables are drawn from their exact distribution, the records anew in every replicate, because standard errors are of
the total form. Null: every interval of a stable cell holds the true parameter in 95 % of the replicates. With 4,000 replicates a
cell's share has the standard deviation .0034, so .925 to .975 is 7 of them to either side; the mean over the cells of eleven
families that are drawn independently has at most .0034 / sqrt(11), and .94 to .96 is 9 of them. With 1,000 replicates the same
false-alarm rate of 1e-6 over 34 cells is .912 to .988 for a cell (5.5 of .0069), and .94 to .96 for the mean (4.8 of .0021).
What is left in the margins is the error of the normal approximation. Planted fault: intervals 30 % too narrow cover 83 %.
"""

import numpy as np
import pytest

from verticil.experiments.published import FIGURE_2, table_1_design
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import clip_projection
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.estimation.parameters import family_parameters

N = 20_000
NAMES = [node.name for node in FIGURE_2.nodes]


def family_shares(child):
    """The family's part of the joint distribution, axes as printed: all eleven variables multiplied out, the others summed."""
    operands = []
    for name in NAMES:
        operands += [
            FIGURE_2.theta(name).reshape(FIGURE_2.shape(name)),
            [NAMES.index(v) for v in FIGURE_2.family(name)],
        ]
    return np.einsum(*operands, [NAMES.index(v) for v in FIGURE_2.family(child)], optimize=True)


def coverage(replicates, seed):
    """For intervals as they are and for ones scaled by .7: the share of replicates that cover, for each stable cell."""
    generator = np.random.default_rng(seed)
    design = table_1_design()
    covered = {1.0: [], 0.7: []}
    for child in NAMES:
        family = FIGURE_2.family(child)
        channels = [design.get(v, quantize(identity(FIGURE_2.node(v).n_states))) for v in family]
        released = apply_axes(family_shares(child), [axis.forward for axis in as_design(channels).axes])
        theta = FIGURE_2.theta(child)
        hits = {scale: np.zeros(theta.shape) for scale in covered}
        unstable = np.zeros(theta.shape)
        for table in generator.multinomial(N, released.ravel() / released.sum(), size=replicates):
            found = family_parameters(
                table.reshape(released.shape), channels, len(family) - 1, range(len(family) - 1),
                prior_count=0.5, level=0.95, estimator=clip_projection,
            )  # fmt: skip
            unstable += found.unstable
            for scale in covered:
                middle, half = found.estimate, scale * 1.959963984540054 * found.standard_error
                low, high = (
                    (found.interval_low, found.interval_high) if scale == 1.0 else (middle - half, middle + half)
                )
                hits[scale] += (low <= theta) & (theta <= high)
        stable = (unstable == 0)[
            :, :-1
        ]  # the last category's interval is that of the others mirrored where there are two
        for scale, shares in covered.items():
            shares.extend((hits[scale][:, :-1] / replicates)[stable])
    return {scale: np.array(shares) for scale, shares in covered.items()}


def accepted(shares, low, high):
    return 0.94 <= shares.mean() <= 0.96 and low <= shares.min() and shares.max() <= high


@pytest.mark.whole
@pytest.mark.parametrize(
    ("replicates", "low", "high"),
    [(1000, 0.912, 0.988), pytest.param(4000, 0.925, 0.975, marks=pytest.mark.slow)],
)
def test_intervals_cover_what_they_say(replicates, low, high):
    shares = coverage(replicates, seed=20_261_121)
    assert len(shares[1.0]) >= 25  # of 34 cells
    assert accepted(shares[1.0], low, high), (shares[1.0].mean(), shares[1.0].min(), shares[1.0].max())
    assert not accepted(shares[0.7], low, high)
