"""Tuned numbers of learning from columns and from noisy tables, in one place.

Each field says what it does and which bench chose it. Code reads `TUNING`; a test that needs other numbers puts another value in
the place of a module's `TUNING`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers of learning that were tuned, with their defaults."""

    replicates: int = 20
    """Replicates of the bootstrap. The standard error of a standard deviation from twenty is 16 % of it. By judgement."""
    replicate_fits: int = 1
    """Mixtures that a replicate fits: fewer than an estimate fits, so a replicate scatters a little more. By judgement."""
    error_factor: float = 1.5
    """Factor by which an implied error is wider than the replicates scatter. Replicates come from a model, which is smoother
    than what it was estimated from, so they are too close to it. In simulated log-linear distributions with dependence
    between pairs (5 to 8 variables, 5,000 to 30,000 people), intervals of 95 % without the factor held the truth in .81 to
    .94 of the cells, and with it in .92 to .99. Under dependence of third order, about which tables of pairs say nothing,
    neither is enough (mixtures of six products: .62 to .74, and .78 to .93): three-way tables by name are the remedy. By
    judgement, from these simulations."""
    worth_replicates: int = 4
    """Replicates that say how far noise moves records: more do not change a mean over all pairs. By judgement."""
    worth_draws: int = 100
    """Draws of noise on a column's shares, for its mean distance. By judgement."""
    strength_kept: float = 0.8
    """Part of a column's dependence below which a release says that it is weakened. By judgement."""
    no_dependence: float = 1e-12
    """Sum of squares below which a model has no dependence at all: the rounding of floating point. By judgement."""
    least_people: int = 50
    """People below whom noisy tables are refused: noise leaves nothing of so few. By judgement."""
    blocks: int = 20
    """Blocks of held-out records, whose means give a candidate's standard error. Chosen by tests/bench/ma2019.py."""
    most_pairs: int = 2**15
    """Pairs that are compared: of more than 256 units every second, third, .. one, so that the counts of a wide table stay
    in memory. By judgement."""
    independent_share: float = 1e-3
    """Share of independence that is mixed into a pair, so that no cell is impossible. By judgement."""
    least_prior_count: float = 1e-6
    """Prior count of a cell at least, so that an empty row has probabilities. By judgement."""
    sampled_records: int = 100_000
    """Records that stand for a network whose pairs are too many to compute. By judgement."""
    pairs_together: int = 4
    """Pairs that one increment counts where all pairs are counted. By judgement."""
    missing_share: float = 0.25
    """A pair is missing where the network has less than this share of its information. Chosen by tests/bench/ma2019.py."""
    strong_nats: float = 0.5
    """A pair is strong from so many nats of information. Chosen by tests/bench/ma2019.py."""
    strong_share: float = 0.5
    """A pair is strong from this share of the smaller entropy, too: a function of a rare category has few nats. Chosen by
    tests/bench/ma2019.py."""
    held_out: int = 5
    """One record in so many is held out to choose a search. By judgement."""
    least_contrast: float = 0.25
    """Median over the pairs of the product of their contrast factors, from which on hill climbing finds the best structure.
    By judgement; tests/bench/bench_structures.py measures it."""
    least_effective_records: float = 0.1
    """Effective records that a cell must have; parents go while it has fewer. Chosen by tests/bench/prior.py."""
    candidate_parents: int = 10
    """Candidates of a variable in hill climbing: those with the largest significant information. The number of families
    grows with d and not with its square. If both columns are not randomized, these only come first: the others follow. A
    score makes more of a noisy pair than there is, and nothing but the test holds it: a relation that only shows in the
    presence of a third variable is not found there. By judgement; tests/bench/bench_structures.py measures it."""
    all_pairs_variables: int = 200
    """Variables up to which hill climbing looks at every pair of columns that are not randomized. The families grow with the
    square of their number; of more variables it looks at the candidates alone, as of randomized columns. Chosen by
    tests/bench/wide_structure.py."""


TUNING: Final = Tuning()
