"""What is compiled before a study waits for it: with the types that studies have, and into an empty cache only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import caching

from verticil.miner.learning.compiling import compile_kernels
from verticil.miner.learning.scoring import kernels as counting_kernels
from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.miner.learning.search.compiled import genetic_kernels, order_kernels
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.order import OrderSearch
from verticil.miner.learning.search.protocol import SearchProblem, run_search
from verticil.miner.scheduler import learning
from verticil.miner.scheduler.learning import SpawnedLearning
from verticil.shared.core.compiled import compiled, compiled_for
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import kernels as joint_kernels
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.synthesis import dealing_kernels as ranking

KERNELS: tuple[Any, ...] = (
    order_kernels.anneal, order_kernels.descend, order_kernels.perturb,
    genetic_kernels.first_generation, genetic_kernels.next_generation, counting_kernels.count_groups,
    ranking.assign_by_rank, ranking.group_sizes, joint_kernels.compare_pair, joint_kernels.add_weights,
    joint_kernels.normalize, joint_kernels.through_softmax,
)  # fmt: skip


@pytest.mark.whole
def test_studies_need_no_other_types() -> None:
    """Searches and counts of another size compile nothing more: a kernel that was called with other types would have two."""
    compile_kernels()
    made = [list(kernel.signatures) for kernel in KERNELS]
    assert all(made)
    d = 9
    rng = np.random.default_rng(1)
    problem = SearchProblem(
        weights=rng.random((d, d)) * (1 - np.eye(d)), n_states=(4,) * d, max_parents=3, max_family_cells=1024
    )
    run_search(GeneticSearch(population=20, selected=4, generations=3), problem, seed=1)
    run_search(OrderSearch(chains=2, moves=100, rounds=2), problem, seed=1)
    all_pair_tables([rng.integers(0, 4, 1000, dtype=np.uint8) for _ in range(d)], (4,) * d, method="kernel")
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(symmetric(4, epsilon=2.0))) for v in range(d)]
    tables = from_columns([rng.integers(0, 4, 1000, dtype=np.uint8) for _ in range(d)], units, (4,) * d)
    estimate(tables, seed=1, records=lambda n, generator: [generator.integers(0, 4, n) for _ in range(d)])
    assert [list(kernel.signatures) for kernel in KERNELS] == made


@pytest.mark.parametrize(
    ("named", "there", "starts"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_an_empty_cache_of_ones_own_is_filled(
    named: bool, there: bool, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, seen = tmp_path / "cache", tmp_path / "seen"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "noting.py").write_text(
        f"import os; open({str(seen)!r}, 'w').write(os.environ['NUMBA_CACHE_DIR'])\n", encoding="utf-8"
    )
    monkeypatch.setattr(learning, "_COMPILING", "noting")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    if named:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    if there:
        cache.mkdir()
        (cache / "kernels.nbi").touch()
    asyncio.run(SpawnedLearning(cache).compile_first())
    assert seen.exists() == starts
    if starts:
        assert seen.read_text(encoding="utf-8") == str(cache)


def test_a_miner_goes_on_where_nothing_can_be_compiled_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(learning, "_COMPILING", "verticil.no_such_module")
    asyncio.run(SpawnedLearning(tmp_path / "cache").compile_first())
    assert "compiled code is made when a study needs it" in caplog.text


def test_without_a_folder_to_write_to_loops_are_compiled_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation without a home: numba has no place for what it compiled."""
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])

    def doubled(number: int) -> int:
        return 2 * number

    with pytest.raises(RuntimeError, match="no locator"):
        numba.njit(cache=True)(doubled)
    assert compiled(doubled)(21) == 42
    assert compiled_for(numba.types.int64(numba.types.int64))(doubled)(21) == 42
