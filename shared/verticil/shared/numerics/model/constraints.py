"""What a network must and must not have: required and forbidden edges, tiers, a custom network.

All of them become one mask of allowed parents and one set of required edges, which every search keeps. `declared_constraints`
makes them from names and refuses declarations that contradict each other, showing the whole set that does.

Custom networks: Hittmeir, Mayer and Ekelhart (2022), section IV, extended to several sensitive variables and to chosen ones
that they are hidden from. The promise: the sensitive variables are independent of the hidden-from ones given the target, in
the published network. By the data processing inequality I(S; Q) <= min(I(S; T), I(T; Q)): who knows only Q learns about S no more
than T tells. It is a property of the network's structure, not differential privacy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.graph import Dag, is_separated

Edge = tuple[str, str]

_WAY_OUT: Final = "remove one declaration of every line, or raise the limit that it names"


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomNetwork:
    """A network that detaches sensitive variables from others, except through a target.

    The target has no parents. Sensitive variables have parents among the target and each other, the variables they are hidden
    from among the target and each other. All remaining ones (there are none unless `hidden_from` is a choice) may have any
    parents and are parents of each other only: then every path between the two groups passes the target, or meets head to
    head at a variable that is not given.

    Attributes:
        target: T.
        sensitive: S, ascending, not empty.
        hidden_from: Q, ascending, not empty.
    """

    target: int
    sensitive: tuple[int, ...]
    hidden_from: tuple[int, ...]

    def mask(self, d: int) -> NDArray[np.bool_]:
        """(d, d), bool: ``[parent, child]`` that the custom network permits."""
        kind = np.full(d, 3)
        kind[[self.target]], kind[list(self.sensitive)], kind[list(self.hidden_from)] = 0, 1, 2
        parent, child = kind[:, None], kind[None, :]
        mask: NDArray[np.bool_] = (child != 0) & ((parent == 0) | (parent == child) | (child == 3))
        return mask

    def leaks(self, dag: Dag) -> tuple[tuple[int, int], ...]:
        """Pairs (sensitive, hidden from) that d-separation by the target does not keep independent; none in a custom network."""
        return tuple(
            (s, q)
            for s in self.sensitive
            for q in self.hidden_from
            if not is_separated(dag, (s,), (q,), (self.target,))
        )

    def promise(self, names: Sequence[str]) -> str:
        """Say, for people, what the network promises and what it does not."""
        target, quasi = names[self.target], _join_names(names[v] for v in self.hidden_from)
        others = set(range(len(names))) - {self.target, *self.sensitive, *self.hidden_from}
        text = (
            f"In this network {_join_names(names[v] for v in self.sensitive)} and {quasi} are independent given '{target}'. "
            f"Who knows {quasi} but not '{target}' learns no more about the sensitive variables than '{target}' tells; "
            f"count '{target}' among the quasi-identifiers."
        )
        if others:
            more_names = _join_names(names[v] for v in sorted(others))
            text += f" Who also knows {more_names} may learn more: nothing is promised about these."
        return text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraints:
    """What every network must meet. Its arrays are read-only.

    Attributes:
        names: (d,) names of the variables, for messages.
        allowed: (d, d), bool, ``[parent, child]``: the edge may be there.
        required: (d, d), bool, ``[parent, child]``: the edge must be there; allowed, and without a cycle.
        tiers: variables in the order of their tiers; a variable in a later tier is no parent of one in an earlier tier. A
            variable that stands in none may be anywhere.
        custom: the custom network; None without.
        blocks: the variables, grouped so that every edge that is allowed stays within a group or goes to a later one. An order of
            the variables may keep the groups one after the other without giving up any network.
        before: (d, d), bool, ``[a, b]``: orders put a before b, for a required edge (also through others) or by the groups.
    """

    names: tuple[str, ...]
    allowed: NDArray[np.bool_]
    required: NDArray[np.bool_]
    tiers: tuple[tuple[int, ...], ...] = ()
    custom: CustomNetwork | None = None
    blocks: tuple[tuple[int, ...], ...] = field(init=False)
    before: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        d = len(self.names)
        allow, require = np.array(self.allowed, dtype=np.bool_), np.array(self.required, dtype=np.bool_)
        if allow.shape != (d, d) or require.shape != (d, d):
            raise ValueError(f"masks of shapes {allow.shape} and {require.shape}, expected ({d}, {d})")
        ancestors = _closure(require)
        if allow.diagonal().any() or ancestors.diagonal().any() or (require & ~allow).any():
            raise ValueError("required edges must be allowed and without a cycle; no variable is its own parent")
        reach = _closure(allow) | np.eye(d, dtype=np.bool_)
        # Who is reached by fewer comes first: reaching is a partial order of the groups, and this count respects it.
        earlier = reach.sum(axis=0)
        groups, in_group = list[tuple[int, ...]](), np.zeros(d, dtype=np.bool_)
        for v in range(d):
            if not in_group[v]:
                groups.append(tuple(np.flatnonzero(reach[v] & reach[:, v]).tolist()))
                in_group[list(groups[-1])] = True
        blocks = tuple(sorted(groups, key=lambda group: (int(earlier[group[0]]), group)))
        rank = np.empty(d, dtype=np.int64)
        for number, block in enumerate(blocks):
            rank[list(block)] = number
        before = ancestors | (rank[:, None] < rank[None, :])
        for name, value in (("allowed", allow), ("required", require), ("before", before)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "blocks", blocks)

    @property
    def only_forbids(self) -> bool:
        """There are forbidden edges at most: no required one, no tiers, no custom network."""
        return not (self.tiers or self.custom is not None or self.required.any())

    def parents_required(self, child: int) -> tuple[int, ...]:
        """Required parents of `child`, ascending."""
        return tuple(np.flatnonzero(self.required[:, child]).tolist())

    def violations(self, dag: Dag) -> tuple[str, ...]:
        """Describe what `dag` violates, one sentence each, with names; empty when it meets everything.

        A custom network's promise is checked by d-separation on the network itself, whatever mask was searched with.
        """
        sentences = [f"the edge {self._edge(p, c)} is not allowed" for p, c in dag.edges() if not self.allowed[p, c]]
        sentences += [
            f"the required edge {self._edge(p, c)} is not there"
            for p, c in np.argwhere(self.required).tolist()
            if p not in dag.parents[c]
        ]
        if self.custom is not None:
            target = self.names[self.custom.target]
            sentences += [
                f"'{self.names[s]}' is not separated from '{self.names[q]}' by the target '{target}'"
                for s, q in self.custom.leaks(dag)
            ]
        return tuple(sentences)

    def _edge(self, parent: int, child: int) -> str:
        return _arrow(self.names[parent], self.names[child])


def declared_constraints(
    names: Sequence[str],
    n_states: Sequence[int],
    *,
    max_parents: int,
    max_family_cells: int,
    required: Sequence[Edge] = (),
    forbidden: Sequence[Edge] = (),
    tiers: Sequence[Sequence[str]] = (),
    target: str | None = None,
    sensitive: Sequence[str] = (),
    hide_from: Sequence[str] | None = None,
    where: str = "structure",
) -> Constraints:
    """Make the constraints of a study from names.

    Args:
        names: the variables, in schema order.
        n_states: number of categories of each.
        max_parents: most parents of a variable.
        max_family_cells: most cells of a family's table.
        required, forbidden: edges (parent, child).
        tiers: groups of variables, earliest first; each variable in one at most.
        target, sensitive: of the custom network; both or neither.
        hide_from: what the sensitive variables are hidden from; None for all others but the target.
        where: what the messages call the table of the declarations.

    Raises:
        Misuse: STUDY_INVALID, an unknown or repeated name, a custom network that contradicts itself, or required edges that
            cannot be kept; the message shows every declaration that takes part.
    """
    index = {name: number for number, name in enumerate(names)}
    custom = declared_custom_network(names, target=target, sensitive=sensitive, hide_from=hide_from, where=where)
    d = len(names)

    def edges(key: str, pairs: Sequence[Edge]) -> NDArray[np.bool_]:
        mask = np.zeros((d, d), dtype=np.bool_)
        for parent, child in pairs:
            if parent == child:
                raise _invalid(f"{where}.{key}", f"{_arrow(parent, child)} joins a variable to itself")
            mask[tuple(_numbers(index, (parent, child), f"{where}.{key}"))] = True
        return mask

    is_forbidden, is_required = edges("forbidden", forbidden), edges("required", required)
    stages = tuple(tuple(_numbers(index, tier, f"{where}.tiers")) for tier in tiers)
    _distinct([name for tier in tiers for name in tier], f"{where}.tiers")
    tier_of = {v: number for number, tier in enumerate(stages) for v in tier}
    late = np.zeros((d, d), dtype=np.bool_)
    for a, earlier in tier_of.items():
        for b, later in tier_of.items():
            late[b, a] = later > earlier
    is_outside = (
        ~custom.mask(d) & ~np.eye(d, dtype=np.bool_) if custom is not None else np.zeros((d, d), dtype=np.bool_)
    )

    conflicts: list[str] = []
    for p, c in np.argwhere(is_required & (is_forbidden | late | is_outside)).tolist():
        reasons = [f"{where}.forbidden has it"] if is_forbidden[p, c] else []
        if late[p, c]:
            reasons.append(
                f"'{names[p]}' stands in tier {tier_of[p] + 1}, '{names[c]}' in the earlier tier {tier_of[c] + 1}"
            )
        if is_outside[p, c] and custom is not None:
            roles = {custom.target: "the target"} | dict.fromkeys(custom.sensitive, "sensitive")
            roles |= dict.fromkeys(custom.hidden_from, "hidden from")
            parent, child = (f"'{names[v]}' is {roles.get(v, 'another')}" for v in (p, c))
            reasons.append(f"the custom network forbids it ({parent}, {child})")
        conflicts.append(f"the required edge {_arrow(names[p], names[c])}: {', and '.join(reasons)}")
    conflicts += _cycle(names, is_required)
    conflicts += _too_large(names, n_states, is_required, max_parents, max_family_cells, where)
    if conflicts:
        raise _invalid(
            f"{where}.required", f"declarations that contradict each other: {'; '.join(conflicts)}", _WAY_OUT
        )
    allow = ~(is_forbidden | late | is_outside | np.eye(d, dtype=np.bool_))
    return Constraints(names=tuple(names), allowed=allow, required=is_required, tiers=stages, custom=custom)


def declared_custom_network(
    names: Sequence[str],
    *,
    target: str | None,
    sensitive: Sequence[str],
    hide_from: Sequence[str] | None,
    where: str = "structure",
) -> CustomNetwork | None:
    """Make a custom network from names; None where nothing of it is declared. For the arguments see `declared_constraints`.

    Raises:
        Misuse: STUDY_INVALID, an unknown or repeated name, or a declaration that contradicts itself.
    """
    index = {name: number for number, name in enumerate(names)}
    if target is None:
        if sensitive or hide_from is not None:
            raise _invalid(
                where,
                "'sensitive' or 'hide_from' without 'target'",
                "name the variable that the sensitive ones may depend on",
            )
        return None
    if not sensitive:
        raise _invalid(
            f"{where}.target", f"'{target}' without 'sensitive'", "name the variables to hide, or remove 'target'"
        )
    (t,) = _numbers(index, (target,), f"{where}.target")
    hidden_names = (
        [name for name in index if name != target and name not in sensitive] if hide_from is None else list(hide_from)
    )
    roles = {"sensitive": list(sensitive), "hide_from": hidden_names}
    for key, members in roles.items():
        _distinct(members, f"{where}.{key}")
        if target in members:
            raise _invalid(
                f"{where}.{key}",
                f"'{target}' is the target too",
                "the target is what may tell about the sensitive ones",
            )
    if both := [name for name in hidden_names if name in sensitive]:
        raise _invalid(f"{where}.hide_from", f"{_join_names(both)} are sensitive too, expected other variables")
    if not hidden_names:
        raise _invalid(f"{where}.hide_from", "there is no variable to hide the sensitive ones from")
    s, q = (tuple(sorted(_numbers(index, members, f"{where}.{key}"))) for key, members in roles.items())
    return CustomNetwork(target=t, sensitive=s, hidden_from=q)


def _cycle(names: Sequence[str], require: NDArray[np.bool_]) -> list[str]:
    """Return the required edges of one cycle, if there is any: every variable left has a required parent that is left."""
    waiting = np.ones(len(names), dtype=np.bool_)
    while (free := waiting & ~require[waiting].any(axis=0)).any():
        waiting &= ~free
    remaining = set(np.flatnonzero(waiting).tolist())
    if not remaining:
        return []
    path = [min(remaining)]
    while path[-1] not in path[:-1]:
        path.append(min(p for p in remaining if require[p, path[-1]]))
    cycle = path[path.index(path[-1]) :]
    edges = [_arrow(names[p], names[c]) for c, p in itertools.pairwise(cycle)]
    return [f"the required edges {', '.join(reversed(edges))} make a cycle"]


def _too_large(  # noqa: PLR0917  # the limits and their names, once
    names: Sequence[str],
    n_states: Sequence[int],
    require: NDArray[np.bool_],
    max_parents: int,
    max_family_cells: int,
    where: str,
) -> list[str]:
    problems: list[str] = []
    for child in range(len(names)):
        parents = np.flatnonzero(require[:, child]).tolist()
        if not parents:
            continue
        family = f"'{names[child]}' with its required parents {_join_names(names[p] for p in parents)}"
        if len(parents) > max_parents:
            problems.append(f"{family}: {len(parents)} parents, {where}.max_parents is {max_parents}")
        cells = math.prod(n_states[v] for v in (*parents, child))
        if cells > max_family_cells:
            problems.append(f"{family}: {cells} cells, {where}.max_family_cells is {max_family_cells}")
    return problems


def _closure(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Warshall's algorithm: ``[a, b]``, a path of at least one edge leads from a to b."""
    d = len(edges)
    rows = np.packbits(edges, axis=1)  # eight variables a byte: a thousand variables take a sixteenth of a second
    for via in range(d):
        rows[(rows[:, via >> 3] >> (7 - (via & 7))) & 1 == 1] |= rows[via]
    return np.unpackbits(rows, axis=1, count=d).astype(np.bool_)


def _numbers(index: Mapping[str, int], variables: Sequence[str], where: str) -> list[int]:
    for name in variables:
        if name not in index:
            raise _invalid(where, f"'{name}' is not a variable of the study")
    return [index[name] for name in variables]


def _distinct(variables: Sequence[str], where: str) -> None:
    if duplicates := sorted({name for name in variables if variables.count(name) > 1}):
        raise _invalid(where, f"{_join_names(duplicates)} more than once")


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _arrow(parent: str, child: str) -> str:
    return f"'{parent}' -> '{child}'"


def _invalid(where: str, problem: str, hint: str = "") -> Misuse:
    return Misuse("STUDY_INVALID", f"{where}: {problem}", hint=hint)
