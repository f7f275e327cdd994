"""Tuned numbers of counting and scoring, in one place.

Each field says what it does and which bench chose it. Code reads `TUNING`; a test that needs other numbers puts another value in
the place of a module's `TUNING`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers of counting and scoring that were tuned, with their defaults."""

    block_records: int = 31 * 4096
    """Records of a block, unless columns are many; a multiple of 4096, and below 2 * 65,532: see the kernel. By judgement;
    tests/bench/bench_counting.py measures it."""
    pass_cells: int = 2**23
    """Cells that are counted in one pass: 64 MiB a thread. A larger table has a pass of its own, on one thread. By
    judgement; tests/bench/bench_counting.py measures it."""
    block_bytes: int = 2**26
    """Bytes of a block of records, at most. By judgement."""
    threaded_increments: int = 300_000_000
    """Increments from which on a second thread saves more than 0.1 s. By judgement; tests/bench/bench_counting.py measures
    it."""
    most_table_bytes: int = 2**28
    """Bytes of counted tables that are remembered, at most. By judgement."""
    most_designs: int = 2**12
    """Designs of families that are remembered, at most. By judgement."""
    most_pair_cells: int = 2**26
    """Cells of all pair tables together, at most: 512 MiB of counts. By judgement."""
    most_family_cells: int = 2**26
    """Cells of one family's table, at most: 512 MiB of counts. By judgement."""
    kernel_increments: int = 60_000_000
    """Increments from which on the compiled kernel counts; fewer are counted before numba and the kernel are loaded. By
    judgement; tests/bench/bench_counting.py measures it."""
    next_kernel_increments: int = 200_000
    """The same where numba is loaded already: the kernel takes some 10 ms then, once. By judgement;
    tests/bench/bench_counting.py measures it."""
    cover_records: int = 2**16
    """Records from which on finding groups takes less time than they save. By judgement; tests/bench/bench_counting.py
    measures it."""
    group_cells: int = 2**16
    """Cells of a group of more than two columns, at most: its cells are numbered with 16 bits. By judgement."""
    double_cost_cells: float = 35_000.0
    """Cells at which a record costs twice as much as in a table that stays in the first-level cache. By judgement;
    tests/bench/bench_counting.py measures it."""
    samples: int = 100
    """Samples of the bootstrap behind an edge's strength. By judgement."""
    level: float = 0.05
    """False-alarm rate of the test of edges, over all pairs of variables together. By judgement."""
    cells_together: int = 2**17
    """Cells that are corrected at a time. By judgement."""
    null_steps: int = 300
    """Steps of the EM of the null: after the 60 of a gain, links under strong noise are still too weak. By judgement."""
    decided_deviations: float = 8.0
    """Standard deviations above chance from which on an edge is certain and no sample is drawn: in a hundred samples of a
    normal distribution one is that far away with probability 1e-13. By judgement."""
    single_records: int = 6
    """Records of a cell below which they are drawn one by one, since a binomial draw costs as much as six. By judgement."""
    chance_of_cell: float = 0.6
    """What a cell adds to a gain by chance, at most: the mean deviance of a Poisson count is below 1.2. By judgement."""
    kernel_records: int = 4096
    """Records whose cells are numbered before they are counted. By judgement; tests/bench/bench_counting.py measures it."""
    kernel_cells: int = 4096
    """Cells of which four tables fit into a first-level cache of 32 KiB. By judgement; tests/bench/bench_counting.py
    measures it."""
    false_alarms: float = 0.05
    """False-alarm rate of the test of pairs, over all pairs together. By judgement."""
    em_steps: int = 60
    """Steps of the EM that corrects the table of a family. By judgement."""


TUNING: Final = Tuning()
