"""A search, an estimator or a scheme is one module and one line: a toy of each is registered, and a study may name it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.intake import STUDY as UNNAMED
from support.searches import GivenSearch
from verticil.miner.learning.search.protocol import SearchResult
from verticil.miner.learning.structure import SEARCHES, Run, Task, find_structure
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.transition import quantize
from verticil.shared.numerics.estimation.estimators import ESTIMATORS, EstimatorChoice
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study import canonical
from verticil.shared.study.prior import estimator_of
from verticil.shared.study.schemes import SCHEMES, Scheme
from verticil.shared.study.vocabulary import METHODS, Method

STUDY = replace(UNNAMED, title="Trial", purpose="A trial.")


def chain(task: Task, run: Run) -> SearchResult:
    """Every variable's parent is the one before it."""
    d = len(task.problem.n_states)
    return run(GivenSearch(dag=Dag(parents=((), *((child - 1,) for child in range(1, d))))))


def test_every_method_that_a_study_may_name_is_registered() -> None:
    searched = {name for name, method in METHODS.items() if not method.whole_table}
    assert {*SEARCHES, "given", "auto", "posterior"} == searched  # a posterior is sampled, not searched


def test_a_search_is_added_by_its_module_and_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    study = replace(STUDY, structure=replace(STUDY.structure, method="chain", max_family_cells=2000))
    with pytest.raises(Misuse, match="chain"):
        canonical.from_bytes(canonical.to_bytes(study), wire=False)
    monkeypatch.setitem(METHODS, "chain", Method(on_pairs=True))
    monkeypatch.setitem(SEARCHES, "chain", chain)
    read = canonical.from_bytes(canonical.to_bytes(study), wire=False)
    information = np.zeros((2, 2))
    assert find_structure(information, read).dag == Dag(parents=((), (0,)))


def test_an_estimator_is_added_by_its_module_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def uniform(observed, design, *, prior_count=0.0):
        return np.full(observed.shape, observed.sum() / observed.size)

    study = replace(STUDY, parameters=replace(STUDY.parameters, estimator="uniform"))
    with pytest.raises(Misuse, match="uniform"):
        canonical.from_bytes(canonical.to_bytes(study), wire=False)
    monkeypatch.setitem(
        ESTIMATORS, "uniform", EstimatorChoice(estimate=uniform, counts="all alike", words="the same number everywhere")
    )
    read = canonical.from_bytes(canonical.to_bytes(study), wire=False)
    assert estimator_of(read.parameters, "v0") is uniform


def test_a_scheme_is_added_by_its_module_and_a_line_and_its_matrix_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def cyclic(n: int) -> np.ndarray:
        return np.full((n, n), 0.1 / n) + 0.9 * np.roll(np.eye(n), 1, axis=1)

    toy = Scheme(
        keys=(),
        made=lambda table, domain, where: cyclic(domain.n_states),
        is_one=lambda unit, channel, where: bool(np.allclose(channel.probabilities, cyclic(channel.n_states))),
    )
    first, *others = STUDY.units
    shifted = replace(first, scheme="cyclic", transition=quantize(cyclic(first.transition.n_states)))
    study = replace(STUDY, units=(shifted, *others))
    with pytest.raises(Misuse, match="cyclic"):
        canonical.from_bytes(canonical.to_bytes(study), wire=False)
    monkeypatch.setitem(SCHEMES, "cyclic", toy)
    assert canonical.from_bytes(canonical.to_bytes(study), wire=False).units == study.units
    wrong = replace(study, units=(replace(shifted, transition=first.transition), *others))
    with pytest.raises(Misuse, match="the matrix is not one of the scheme 'cyclic'"):
        canonical.from_bytes(canonical.to_bytes(wrong), wire=False)
