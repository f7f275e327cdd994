"""Constraints: masks, blocks, custom networks, and declarations that contradict each other."""

import itertools

import numpy as np
import pytest

from support.searches import GivenNetwork, GivenSearch
from verticil.miner.learning.search.protocol import SearchProblem, run_search, violations
from verticil.shared.core.errors import InternalFault, Misuse
from verticil.shared.numerics.model.constraints import Constraints, CustomNetwork, declared_constraints
from verticil.shared.numerics.model.graph import Dag, is_separated

NAMES = ("age", "income", "relationship", "sex", "work")


def declared(**declarations) -> Constraints:
    given = {"max_parents": 3, "max_family_cells": 1000} | declarations
    return declared_constraints(NAMES, (5, 2, 6, 2, 7), **given)


def edges(constraints: Constraints) -> set[tuple[str, str]]:
    return {(NAMES[p], NAMES[c]) for p, c in np.argwhere(constraints.allowed).tolist()}


def all_edges() -> set[tuple[str, str]]:
    return set(itertools.permutations(NAMES, 2))


def test_without_declarations_every_edge_is_allowed():
    constraints = declared()
    assert edges(constraints) == all_edges()
    assert constraints.only_forbids
    assert constraints.blocks == ((0, 1, 2, 3, 4),)
    assert not constraints.before.any()


def test_forbidden_edges_tiers_and_required_edges():
    constraints = declared(
        forbidden=[("age", "sex")], tiers=[["age", "sex"], ["work"]], required=[("income", "relationship")]
    )
    assert all_edges() - edges(constraints) == {("age", "sex"), ("work", "age"), ("work", "sex")}
    assert constraints.parents_required(2) == (1,)
    assert not constraints.only_forbids


def test_full_tiers_are_blocks_and_orders_keep_them():
    constraints = declared(tiers=[["sex", "age"], ["work", "income"], ["relationship"]])
    assert constraints.blocks == ((0, 3), (1, 4), (2,))
    rank = {0: 0, 3: 0, 1: 1, 4: 1, 2: 2}
    for a, b in itertools.product(range(5), repeat=2):
        assert constraints.before[a, b] == (rank[a] < rank[b])


def test_before_holds_required_edges_through_others():
    constraints = declared(required=[("age", "sex"), ("sex", "work")])
    assert {(0, 3), (3, 4), (0, 4)} == set(map(tuple, np.argwhere(constraints.before).tolist()))


def test_a_custom_network_is_that_of_the_paper():
    """Hittmeir et al. (2022), section IV, figure 2: target first, sensitive second with it as its only parent, no other child."""
    constraints = declared(target="income", sensitive=["relationship"])
    assert {p for p, c in edges(constraints) if c == "income"} == set()
    assert {p for p, c in edges(constraints) if c == "relationship"} == {"income"}
    assert {c for p, c in edges(constraints) if p == "relationship"} == set()
    assert {p for p, c in edges(constraints) if c == "age"} == {"income", "sex", "work"}
    assert constraints.blocks[0] == (1,)
    assert constraints.custom == CustomNetwork(target=1, sensitive=(2,), hidden_from=(0, 3, 4))


@pytest.mark.parametrize("sensitive", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("chosen", [False, True])
def test_no_network_under_the_mask_leaks(sensitive, chosen):
    """Every network is a subgraph of a full one in some order, and fewer edges separate more: the full ones are checked, all."""
    d = 6
    others = [v for v in range(1, d) if v not in sensitive]
    hidden = (others[0],) if chosen else tuple(others)
    custom = CustomNetwork(target=0, sensitive=sensitive, hidden_from=hidden)
    mask = custom.mask(d)
    for order in itertools.permutations(range(d)):
        parents = [tuple(sorted(p for p in order[: order.index(c)] if mask[p, c])) for c in range(d)]
        assert custom.leaks(Dag(parents=tuple(parents))) == ()
        assert is_separated(Dag(parents=tuple(parents)), sensitive, hidden, (0,))


def test_with_a_choice_the_others_may_depend_on_the_sensitive():
    constraints = declared(target="income", sensitive=["relationship"], hide_from=["age"])
    assert ("relationship", "work") in edges(constraints)
    assert ("work", "relationship") not in edges(constraints)
    assert ("work", "age") not in edges(constraints)
    assert ("age", "work") in edges(constraints)


def test_a_network_that_leaks_is_rejected():
    """Also where the mask was not kept, and where the way leads round: age -> work -> relationship."""
    constraints = declared(target="income", sensitive=["relationship"], hide_from=["age"])
    leaking = Dag(parents=((), (), (1, 4), (), (0,)))
    assert "'relationship' is not separated from 'age' by the target 'income'" in constraints.violations(leaking)
    problem = SearchProblem(
        weights=np.zeros((5, 5)), n_states=(2,) * 5, max_parents=3, max_family_cells=99, constraints=constraints
    )
    with pytest.raises(ValueError, match="not separated from 'age'"):
        run_search(GivenSearch(dag=leaking), problem, seed=0)
    kept = Dag(parents=((1,), (), (1,), (), (0, 2)))
    assert run_search(GivenSearch(dag=kept), problem, seed=0).dag == kept


class Leaking(GivenSearch):
    """A search that checks nothing."""

    def start(self, problem: SearchProblem, seed: int) -> GivenNetwork:
        return GivenNetwork(problem=problem, seed=seed)


def test_a_search_that_breaks_a_constraint_hands_nothing_over():
    constraints = declared(target="income", sensitive=["relationship"])
    problem = SearchProblem(
        weights=np.zeros((5, 5)), n_states=(2,) * 5, max_parents=3, max_family_cells=99, constraints=constraints
    )
    with pytest.raises(InternalFault, match="not separated from 'age'"):
        run_search(Leaking(dag=Dag(parents=((), (), (0,), (), ()))), problem, seed=0)


def test_the_promise_names_all_parts():
    constraints = declared(target="income", sensitive=["relationship"], hide_from=["age", "sex"])
    assert constraints.custom is not None
    text = constraints.custom.promise(NAMES)
    assert "'relationship' and 'age', 'sex' are independent given 'income'" in text
    assert "'work' may learn more" in text


def conflict(**declarations) -> str:
    with pytest.raises(Misuse) as caught:
        declared(**declarations)
    assert caught.value.code == "STUDY_INVALID"
    return caught.value.message


def test_a_required_edge_that_is_forbidden_is_shown_with_everything_that_forbids_it():
    message = conflict(
        required=[("work", "age"), ("relationship", "sex"), ("age", "sex")],
        forbidden=[("work", "age")],
        tiers=[["age"], ["work"]],
        target="income",
        sensitive=["relationship"],
    )
    assert "'work' -> 'age': structure.forbidden has it" in message
    assert "'work' stands in tier 2, 'age' in the earlier tier 1" in message
    assert "'relationship' -> 'sex': the custom network forbids it" in message
    assert "'relationship' is sensitive, 'sex' is hidden from" in message
    assert "'age' -> 'sex'" not in message


def test_a_cycle_of_required_edges_is_shown_without_the_edges_beside_it():
    message = conflict(required=[("age", "sex"), ("sex", "work"), ("work", "age"), ("work", "income")])
    assert "'age' -> 'sex'" in message
    assert "'sex' -> 'work'" in message
    assert "'work' -> 'age'" in message
    assert "income" not in message


def test_required_parents_beyond_the_limits_are_shown():
    required = [("age", "sex"), ("work", "sex")]
    assert "'sex' with its required parents 'age', 'work': 2 parents, structure.max_parents is 1" in conflict(
        required=required, max_parents=1
    )
    assert "70 cells, structure.max_family_cells is 69" in conflict(required=required, max_family_cells=69)


@pytest.mark.parametrize(
    ("declarations", "part"),
    [
        ({"required": [("age", "agee")]}, "'agee' is not a variable"),
        ({"forbidden": [("age", "age")]}, "joins a variable to itself"),
        ({"tiers": [["age"], ["age"]]}, "'age' more than once"),
        ({"target": "income"}, "without 'sensitive'"),
        ({"sensitive": ["age"]}, "without 'target'"),
        ({"target": "income", "sensitive": ["income"]}, "'income' is the target too"),
        ({"target": "income", "sensitive": ["age", "age"]}, "more than once"),
        ({"target": "income", "sensitive": ["age"], "hide_from": ["age"]}, "are sensitive too"),
        ({"target": "income", "sensitive": ["age"], "hide_from": ["income"]}, "'income' is the target too"),
        ({"target": "income", "sensitive": ["age"], "hide_from": []}, "no variable to hide"),
        ({"target": "income", "sensitive": ["age", "sex", "work", "relationship"]}, "no variable to hide"),
    ],
)
def test_declarations_that_say_nothing_sensible_are_refused(declarations, part):
    assert part in conflict(**declarations)


def test_a_problem_refuses_constraints_that_its_own_limits_do_not_admit():
    constraints = declared(required=[("age", "sex"), ("work", "sex")])
    with pytest.raises(ValueError, match="2 required parents"):
        SearchProblem(
            weights=np.zeros((5, 5)), n_states=(2,) * 5, max_parents=1, max_family_cells=99, constraints=constraints
        )


def test_violations_name_every_limit():
    constraints = declared(required=[("age", "sex")], forbidden=[("sex", "income")])
    problem = SearchProblem(
        weights=np.zeros((5, 5)), n_states=(5, 2, 6, 2, 7), max_parents=1, max_family_cells=30, constraints=constraints
    )
    found = violations(problem, Dag(parents=((), (3,), (0, 1), (), ())))
    assert len(found) == 3
    assert "'relationship' has 2 parents and 60 cells" in found[0]
    assert "'sex' -> 'income' is not allowed" in found[1]
    assert "'age' -> 'sex' is not there" in found[2]
