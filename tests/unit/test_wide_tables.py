"""Wide tables: what was quadratic or deep in the number of variables, on sizes where that shows."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from support.documents import study_toml
from support.tuning import tune
from verticil.miner.learning import held_out
from verticil.miner.learning.held_out import HeldOut
from verticil.miner.learning.learn import learn
from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.miner.learning.search.tree import maximum_branching
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.independence import independence_p_value, independence_p_values
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.reading import read_study
from verticil.shared.study.vocabulary import MAX_VARIABLES


def chain(d: int, n: int) -> list[np.ndarray]:
    """Binary columns, each equal to the one before with probability .9."""
    generator = np.random.default_rng(7)
    columns = [generator.integers(0, 2, n).astype(np.uint8)]
    for _ in range(d - 1):
        columns.append(columns[-1] ^ (generator.random(n) < 0.1))
    return [column.astype(np.uint8) for column in columns]


@pytest.mark.parametrize(("method", "missed"), [("tree", 0), ("order", 6)])
def test_structure_of_a_chain_of_120_variables_is_found(tmp_path: Path, method: str, missed: int) -> None:
    # A pair of neighbours tells .37 nats, any other at most .19; with 2,000 records no estimate is off by .09 (a dozen errors).
    path = tmp_path / "study.toml"
    text = study_toml(*(f"p{v % 2}.v{v}: a b" for v in range(120)), minimum=1)
    text += '[randomization_default]\nscheme = "none"\n'
    text += f'[structure]\nmethod = "{method}"\nmax_parents = 1\n[release]\nsample_from = "network"\n'
    path.write_text(text)
    found = learn(chain(120, 2000), read_study(path))
    edges = {frozenset(edge) for edge in found.network.dag.edges()}
    assert len(edges ^ {frozenset(pair) for pair in itertools.pairwise(range(120))}) <= 2 * missed


def test_spanning_tree_is_found_where_every_step_contracts_a_cycle_of_two() -> None:
    # Of a path with weights that rise each edge is both its ends' heaviest, once the next one is contracted: d - 1 cycles.
    d = MAX_VARIABLES
    weights = np.zeros((d, d))
    for v in range(d - 1):
        weights[v, v + 1] = weights[v + 1, v] = v + 1
    parent = maximum_branching(weights)
    assert (parent == -1).sum() == 1
    assert {frozenset((v, int(p))) for v, p in enumerate(parent) if p >= 0} == {
        frozenset(pair) for pair in itertools.pairwise(range(d))
    }


def test_order_of_a_graph_takes_the_smallest_variable_that_is_ready() -> None:
    d = MAX_VARIABLES
    dag = Dag(parents=(*(((v + 1),) for v in range(d - 1)), ()))
    assert dag.topological_order() == tuple(range(d - 1, -1, -1))


def test_p_values_of_all_pairs_are_those_of_each() -> None:
    generator = np.random.default_rng(3)
    states = [1, 2, 2, 3, 5, 9]
    shared = generator.integers(0, 3, 700)
    columns = []
    for k in states:  # the first categories are rare
        own = generator.choice(k, 700, p=(shares := np.arange(1, k + 1) ** 3) / shares.sum())
        columns.append(np.where(generator.random(700) < 0.4, shared % k, own).astype(np.uint8))
    margins = [np.bincount(column, minlength=k) for column, k in zip(columns, states, strict=True)]
    tables = all_pair_tables(columns, states)
    together = list(independence_p_values(tables.counts, margins))
    apart = [[independence_p_value(tables.table(a, b)) for b in range(a + 1, 6)] for a in range(6)]
    assert [p.tolist() for p in together] == apart
    assert min(itertools.chain(*apart)) < 1e-6 < 1e-3 < max(itertools.chain(*apart[1:]))


def test_held_out_pairs_of_a_wide_table_are_every_few_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    d, columns = 20, chain(20, 400)
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(2))) for v in range(d)]
    tune(monkeypatch, held_out, most_pairs=50)
    looked_at = list(itertools.combinations(range(d), 2))[::4]  # 190 pairs are 3.8 times 50
    sample = [column.copy() for column in columns]
    for b in {b for _, b in looked_at} & {b for a, b in looked_at if b == a + 1}:
        sample[b] = 1 - sample[b]
    apart = HeldOut(columns, units, [2] * d).likelihoods(sample).mean()
    found = HeldOut(columns, units, [2] * d).likelihoods(columns).mean()
    shares = [all_pair_tables([columns[a], columns[b]], (2, 2)).table(0, 1) / 400 for a, b in looked_at]
    expected = np.mean([(share * np.log(np.where(share > 0, share, 1))).sum() for share in shares])
    assert found == pytest.approx(expected, abs=2e-3)  # the model is mixed with a thousandth of independence
    assert apart < found - 0.01


def test_greedy_search_of_a_wide_table_is_refused_before_any_work(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        study_toml(*(f"p{v % 2}.v{v}: a b" for v in range(1008)), minimum=1, epsilon=1.0)
        + '[structure]\nmethod = "greedy"\nmax_parents = 2\n'
    )
    with pytest.raises(Misuse, match=r"170190720 families of 1008 variables") as refused:  # 1008 C(1007, 2) / 3
        read_study(path)
    assert refused.value.code == "STUDY_INVALID"
    assert "order" in (refused.value.hint or "")
