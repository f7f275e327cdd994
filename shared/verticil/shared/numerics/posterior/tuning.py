"""Tuned numbers of sampling graphs and of their posterior, in one place.

Each field says what it does and which bench chose it. Code reads `TUNING`; a test that needs other numbers puts another value in
the place of a module's `TUNING`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers of posteriors that were tuned, with their defaults."""

    most_graphs: int = 543
    """Graphs that are annealed, at most: all of four variables. Of four columns of three categories that depend on one another
    chains over graphs and true counts stayed apart. Chosen by tests/bench/posterior_exact.py."""
    least_annealed_cells: int = 25
    """Cells of the joint table from which on graphs are annealed: of smaller ones chains over graphs and true counts
    (`released`) are right and take fewer seconds. Chosen by tests/bench/posterior_exact.py."""
    most_annealed_cells: int = 128
    """Cells of the joint table up to which graphs are annealed: three variables of five categories. Chosen by
    tests/bench/posterior_exact.py."""
    levels: tuple[tuple[int, int], ...] = ((3, 2), (8, 8), (25, 16), (50, 32), (100, 64))
    """Particles of each chain, and sweeps of a stage, level by level. More sweeps of fewer particles are nearer to the
    truth at the same cost: of the collider of three columns of five categories, 2,000 people, epsilon 1.5, BDeu, estimates of
    four chains were 21.8 nats too small (25 particles, 1 sweep), 14.2 (10, 2), 10.0 (5, 5), 13.5 (100, 1) and 4.7 (20, 5).
    Chosen by tests/bench/posterior_exact.py."""
    margin_nats: float = 7.0
    """Nats below the best graph from which on a graph is left out. Chosen by tests/bench/posterior_exact.py."""
    settled: float = 0.02
    """Change of a probability since the level before up to which it has settled. Chosen by
    tests/bench/posterior_exact.py."""
    least_worth: float = 0.6
    """Share of its worth that a graph's particles keep for another one of its class, at least, or that is annealed on its own. By
    judgement."""
    most_spread: float = 0.1
    """Spread of chains' probabilities of a class of graphs up to which they have settled: R-hat of the graphs that they draw is
    about 1.005 then. By judgement."""
    step_work: float = 80_000.0
    """Cells that moves may look at for each step of a study, those of the first level apart: 20,000 steps are at most about
    half a minute. Chosen by tests/bench/posterior_exact.py."""
    graph_work: float = 300.0
    """Cells that the first level looks at for a graph, over the square of the cells of the joint table: 200 and 270 in two cells
    of four columns of three categories. Chosen by tests/bench/posterior_exact.py."""
    move_cells: int = 33
    """Cells that a move's other work is worth. Chosen by tests/bench/posterior_exact.py."""
    annealed_draws: int = 1000
    """Times that true counts are kept by all chains of annealing together. By judgement."""
    most_drawn_cells: int = 2**23
    """Cells of probabilities that annealing keeps to draw true counts by, at most. By judgement."""
    stage_worth: float = 0.9
    """Share of the particles that the weights of a stage are worth. Chosen by tests/bench/posterior_exact.py."""
    least_family_moves: int = 20
    """Moves of a family in a sweep, at least. Chosen by tests/bench/posterior_exact.py."""
    line_steps: int = 3
    """Steps on each line: a line costs about as much as a step. Chosen by tests/bench/posterior_exact.py."""
    narrowest_step: float = 0.02
    """Scale of the smallest steps on a line, in its logit. By judgement."""
    resampled_share: float = 0.6
    """Share of a chain's particles below whose worth they are drawn anew. Chosen by tests/bench/posterior_exact.py."""
    together: int = 3
    """Variables that a step draws anew, where a study states no number of them. By judgement;
    tests/bench/posterior_sampler.py measures it."""
    most_together: int = 4
    """Variables that a step draws anew, at most. By judgement; tests/bench/posterior_sampler.py measures it."""
    chains: int = 4
    """Chains of a study that states no number of them. By judgement."""
    steps: int = 20_000
    """Steps of a chain, where a study states no number of them. By judgement; tests/bench/posterior_sampler.py measures
    it."""
    burn_in_part: int = 5
    """One step in so many is burn-in, where a study states no number of them. By judgement."""
    kept_graphs: int = 4000
    """Graphs that a chain keeps, at most. By judgement."""
    block_sets: int = 2**27
    """Sets that all chains look at between two states, at most: some tenths of a second. By judgement."""
    linked_share: float = 0.75
    """Share of the choices beside a variable that go by what the data link. By judgement; tests/bench/posterior_sampler.py
    measures it."""
    link_nats: float = 3.0
    """Nats by which a link becomes less likely by the factor e as company of a variable. By judgement;
    tests/bench/posterior_sampler.py measures it."""
    burn_in_stages: int = 25
    """Stages of the burn-in, each at a power of its own, the last ones at 1. By judgement; tests/bench/posterior_sampler.py
    measures it."""
    stages_at_one: int = 5
    """Last stages of the burn-in, which are at the power 1. By judgement; tests/bench/posterior_sampler.py measures it."""
    first_power: float = 2.0**-10
    """Power of the weights in the first stage of the burn-in. By judgement; tests/bench/posterior_sampler.py measures it."""
    most_r_hat: float = 1.01
    """R-hat up to which chains agree. By the paper (Vehtari et al. 2021)."""
    most_difference: float = 0.05
    """Difference of a link's probability between chains below which they agree. By judgement;
    tests/bench/posterior_sampler.py measures it."""
    most_runs: int = 4
    """Runs that the draws of a statistic are cut into, at most; R-hat compares their halves. By judgement."""
    most_exact_variables: int = 5
    """Variables of the exact posterior, at most: 29,281 graphs. By judgement."""
    round_looks: int = 2**13
    """Looks at a cell that a round's counts cost, for each of its steps between two kept graphs. By judgement."""
    longest_round: int = 16
    """A round has the steps from one kept graph to the next once for every `round_looks` looks that its counts cost, at most
    so often. By judgement."""
    cell_sweeps: int = 4
    """Sweeps over the missing cells in a round. By judgement."""
    completed_draws: int = 1000
    """Times that the drawn cells are kept, in all chains together; fewer where they are many. By judgement."""
    most_completed_bytes: int = 2**26
    """Bytes of drawn cells that are kept, at most. By judgement."""
    most_incomplete_cells: int = 2**25
    """Values of the records with a missing one, and cells of all their tables, at most. By judgement."""
    block_looks: int = 2**26
    """Looks at a cell between two states: some tenths of a second. By judgement."""
    negligible_bits: float = 128.0
    """Sets are left out that weigh less than 2 to the power of minus this, beside the best. By judgement."""
    most_sets: int = 2**21
    """Sets of parents of all variables together, at most. By judgement."""
    predictive_level: float = 0.98
    """Level of the intervals of predictive draws. By the paper (Martins, Gonçalves & Galletti, section 3)."""
    mixed_share: float = 1e-6
    """Share of even probabilities that is mixed into each row of estimated shares. By judgement."""
    augmentation_burn_in: float = 3.0
    """Steps of the augmentation, in multiples of 1 / f: what is left of a step's dependence on the one before it is about 1
    - f. By judgement."""
    most_augmentation_steps: int = 60
    """Steps of the augmentation, at most. They begin at shares drawn from Dirichlet(a + f N^), which are about as uncertain
    as they will be. By judgement."""
    most_family_work: float = 2e7
    """Multinomial cells that may be drawn to get one draw of a family; a second. By judgement."""
    cells_together: int = 2**20
    """Cells of the draws that are made at a time. By judgement."""
    most_unblinded_cells: int = 2**10
    """Cells of the joint table up to which true counts are drawn with the graphs. Chosen by
    tests/bench/posterior_exact.py."""
    most_unblinded_variables: int = 5
    """Variables up to which true counts are drawn with the graphs. Chosen by tests/bench/posterior_exact.py."""
    count_rounds: float = 0.3
    """Rounds of a step, over what the two noisiest columns leave of a record: a round moves true counts by about that share.
    With .1, .3 and 1.0, 2,000 steps of three cells of ``tests/bench/posterior_exact.py`` (three columns, 5,000 people) had
    the effective sizes 57, 91, 445 (collider, two categories, epsilon 1.5), 374, 427, 1,206 (chain, two, 1.0), 44, 207, 486
    (full, three, 1.5), in .1 to .7, .3 to 2.3 and .6 to 3.4 CPU seconds: about as many a second. R-hat was 1.01 to 1.06 with
    .1 and .3 and below 1.004 with 1.0. In a fourth (dependent, three, 2.0) 2,000 steps are too few with each; 20,000 agree
    with the exact posterior. Chosen by tests/bench/posterior_exact.py."""
    most_count_work: int = 500
    """Cells that the rounds of a step draw: 4 chains of 20,000 steps take about a minute where this is the bound. Of the
    same four cells 2,000 was the same as 500 in all, and 100 bound one: full, effective size 123 in place of 207. Chosen by
    tests/bench/posterior_exact.py."""
    count_em_steps: int = 60
    """Steps of the EM from whose table the true counts begin. By judgement."""
    count_draws: int = 1000
    """Times that true counts are kept, in all chains together; fewer of each of many chains. By judgement."""
    block_cells: int = 2**23
    """Cells that all chains draw between two states: some tenths of a second. By judgement."""
    batches: int = 20
    """Batches of a chain, whose means give the standard error of a probability. By judgement."""
    traced_links: int = 20
    """Links whose traces are looked at, the least certain ones. By judgement."""
    newton_steps: int = 50
    """Steps of Newton's method, at most. By judgement."""
    newton_tolerance: float = 1e-9
    """Change of a coefficient below which Newton's method ends. By judgement."""
    largest_logit: float = 30.0
    """Logit beyond which categories are separated. By judgement."""
    proposal_scales: tuple[float, ...] = (1.0, 0.5, 0.15)
    """Scales of the surrogate counts in the proposals; the wide ones bound how much likelier a place is than it is proposed.
    Chosen by tests/bench/posterior_exact.py."""
    proposal_shares: tuple[float, ...] = (0.5, 0.3, 0.2)
    """Share of the proposals that each scale makes. Chosen by tests/bench/posterior_exact.py."""
    single_successes: float = 10.0
    """Expected successes up to which they are counted one by one. By judgement."""


TUNING: Final = Tuning()
