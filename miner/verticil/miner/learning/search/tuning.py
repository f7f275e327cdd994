"""Tuned numbers of the searches for a structure, in one place.

Each field says what it does and which bench chose it. Code reads `TUNING`; a test that needs other numbers puts another value in
the place of a module's `TUNING`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers of searches that were tuned, with their defaults."""

    population: int = 200
    """Networks of a generation of the genetic search. By judgement;
    tests/bench/bench_search.py has 200."""
    elite: int = 10
    """Networks that go on into the next generation. By judgement; see tests/bench/bench_search.py."""
    generations: int = 400
    """Generations of the genetic search. By judgement; see tests/bench/bench_search.py."""
    tabu_length: int = 10
    """Moves for which an arc that was changed stays as it is. By judgement; tests/bench/bench_hill_climb.py measures it."""
    patience: int = 15
    """Moves without a gain after which the first climb ends. By judgement; tests/bench/bench_hill_climb.py measures it."""
    short_patience: int = 5
    """Moves without a gain after which a later round ends. By judgement; tests/bench/bench_hill_climb.py measures it."""
    most_rounds: int = 64
    """Rounds of a search that states no number of them; with fewer variables there is one round for each. By judgement;
    tests/bench/bench_hill_climb.py measures it."""
    parts: int = 64
    """Parts of the variables, of which one has its gains computed in a step. Chosen by tests/bench/wide_structure.py."""
    most_sets: int = 4096
    """Sets of parents of one family that are looked at, at most; beyond, the best of those counts. Chosen by
    tests/bench/bench_orders.py."""
    step_moves: int = 5000
    """Moves between two checkpoints of the annealing. By judgement."""
    step_rounds: int = 5
    """Rounds of descents between two checkpoints. By judgement."""
    perturbed_variables: int = 3
    """Variables that are moved at random before a descent. Chosen by tests/bench/bench_orders.py."""
    hot: float = 0.3
    """Temperature at which the annealing of orders begins, in parts of the mean weight. Chosen by
    tests/bench/bench_orders.py."""
    cold: float = 0.005
    """Temperature at which the annealing of orders ends. Chosen by tests/bench/bench_orders.py."""
    least_moves: int = 10_000
    """Moves of a chain over orders, at least. Chosen by tests/bench/bench_orders.py."""
    moves_per_variable: int = 600
    """Moves of a chain over orders for each variable. Chosen by tests/bench/bench_orders.py."""
    most_moves: int = 40_000
    """Moves of a chain over orders, at most. Chosen by tests/bench/bench_orders.py."""
    rounds_times_variables: int = 1500
    """Rounds of descents, times the number of variables. Chosen by tests/bench/bench_orders.py."""
    chains_times_variables: int = 120
    """Chains over orders, times the number of variables; two chains at least. Chosen by tests/bench/bench_orders.py."""
    most_block_variables: int = 15
    """Variables of one block of the exact search, at most: 2^15 subsets. By judgement."""
    step_subsets: int = 2**13
    """Subsets between two checkpoints of the exact search. By judgement."""
    most_families: int = 2**18
    """Families whose scores are remembered; some 100 MiB. A search that looks at more asks again for those that it has not
    met for long. By judgement."""


TUNING: Final = Tuning()
