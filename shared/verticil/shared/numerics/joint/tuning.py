"""Tuned numbers of the joint model and of its prediction, in one place.

Each field says what it does and which bench chose it. Code reads `TUNING`; a test that needs other numbers puts another value in
the place of a module's `TUNING`. What is a limit of memory, of a format or of floating point stands where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a mixture is, and how it is fitted.

    Attributes:
        fits: mixtures that are fitted and averaged.
        components: of each.
        rate: of a step.
        steps: at most.
    """

    fits: int
    components: int
    rate: float = 0.05
    steps: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers of the joint model that were tuned, with their defaults."""

    sizes: tuple[Size, ...] = (
        Size(fits=8, components=25),
        Size(fits=8, components=50),
        Size(fits=4, components=200, rate=0.15, steps=1000),
        Size(fits=8, components=200, rate=0.15, steps=1000),
    )
    """Sizes that are tried, from small to large; the second is the usual one. Chosen by tests/bench/joint.py."""
    large: int = 500
    """Released categories above which a step takes seconds: half as many mixtures are fitted, and with noise no larger sizes.
    Chosen by tests/bench/wide_joint.py."""
    nearly_all: float = 0.9
    """Part of its steps: a fit that was best so late wanted more, so a larger size is tried. Chosen by tests/bench/joint.py."""
    twins: int = 4
    """One fit in so many has a twin, whose tables are moved a little, to measure degrees of freedom. By judgement."""
    spread: float = 0.3
    """Standard deviation of the logits at the start, by which fits differ. By judgement."""
    moved: float = 0.3
    """Standard deviations of the noise by which a twin's cells are moved: small beside it. By judgement."""
    penalty: float = 3.0
    """A fit makes X + so many df least. From 2.5 to 3 it is as good (regret 1.013 to 1.016 in the mean of six tables at epsilon
    .25 to 4), at 2 and at 3.5 worse (1.024, 1.018). Chosen by tests/bench/joint_stop.py."""
    beyond: tuple[float, float] = (1.25, 10.0)
    """So many times the best step, and so many more, a fit goes on to see that none is better. Chosen by
    tests/bench/joint_stop.py."""
    exact_variance: float = 0.3
    """Variance that a model may leave of columns that are as they are, in units of a cell's expected count: people who were not
    counted are met no better by a closer fit. Chosen by tests/bench/joint_stop.py."""
    guard_draws: int = 4
    """Times that noisy tables are split in two, to hold a model of one part against the other. By judgement."""
    guard_part: float = 0.5
    """Standard deviations of the noise by which what is fitted is moved from what is held out. By judgement."""
    least_alpha: float = 0.5
    """Share of the model below which its records are not weighed: a mixture holds the product of margins as it is. By
    judgement."""
    exact_goal: float = 0.1
    """Discrepancy at which weighing for exact counts stops. Chosen by tests/bench/joint.py."""
    sweeps: int = 20
    """Sweeps of weighing over all tables, at most. Chosen by tests/bench/joint.py."""
    longest_step: float = 10.0
    """Power of a step of weighing, at most; stronger ones overshoot where columns are blurred most. Records of people and of
    networks are as near without longer steps (ratio .998 and .993). They stay because `sweeps` do not suffice without them at
    epsilon 1: 4 of 6 estimates, in place of 1, then try larger sizes, which takes three times the CPU seconds. Chosen by
    tests/bench/joint_ablation.py."""
    left_alone: float = 0.8
    """Discrepancy below which a table of randomized columns is left alone: at 1 CHILD, INSURANCE, ALARM and Adult are some 1 %
    farther, at .7 not nearer. Chosen by tests/bench/joint_ablation.py."""
    evenness: float = 0.4
    """Power of the number of categories that the square roots of typical shares sum to: a mean of eight tables. By judgement."""
    strength: float = 0.038
    """Typical distance of a pair to independence, over the square root of H_a H_c - 1: the geometric mean of 23 tables, 15 of
    them KEEL's. Chosen by tests/bench/dependence.py."""
    scatter_factor: float = 2.0
    """Factor of the scatter of randomization in what pairs miss. By judgement: a fit to distances of eight data sets."""
    noise_factor: float = 0.8
    """Factor of the noise on tables in what pairs miss. Chosen by tests/bench/dependence.py."""
    positive_cells: float = 1.5
    """Factor by which records know margins better than the sums of pairs do. Chosen by tests/bench/dependence.py."""
    exact_miss: float = 0.042
    """Variance that weighing leaves of exact columns, in units of a cell's expected count. By judgement, as the last."""
    crowding: float = 0.64
    """Power of cells for each person by which that grows. By judgement, likewise."""
    hidden_triples: float = 0.093
    """What pairs do not show of triples, in records that were weighed. By judgement, likewise."""
    hidden_triples_of_mixtures: float = 0.14
    """The same in records of a mixture, which noise on tables asks for. By judgement, likewise."""

    @property
    def usual(self) -> Size:
        """Return the size beyond which another is tried only if it did not come to its end."""
        return self.sizes[1]

    @property
    def of_parts(self) -> Size:
        """Return the size that is fitted to the parts of the guard: a little worse than what is published, so alpha is rather too
        small than too large.
        """
        return replace(self.usual, fits=2, steps=self.usual.steps // 2)

    @property
    def of_shrinkage(self) -> Size:
        """Return the size that tells whether tables should be shrunk."""
        return replace(self.sizes[0], fits=1, steps=self.usual.steps // 2)


TUNING: Final = Tuning()
