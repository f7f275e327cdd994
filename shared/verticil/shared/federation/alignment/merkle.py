"""The tree over ordered ids that ``order-commitment`` compares: its inner nodes, its root, and where two trees first differ.

A leaf stands for a block of `BLOCK_RECORDS` rows and is a MAC that only holders of the linkage key can make (see
`verticil.party.dataset.pseudonyms`). Everything here works on digests and needs no key:

    node  = SHA-256(0x01 ‖ left ‖ right); a node without a right neighbour moves up as it is (RFC 9162, section 2.1.1)
    root  = SHA-256(0x02 ‖ "verticil/order/v1" ‖ number of rows, uint64 big-endian ‖ top node)

A party sends one level of its tree: the leaves, or with more than `MAX_NODES` of them the lowest level that has no more. Two
parties' levels are folded to the higher one before they are compared. The comparing side learns the numbers of rows and which
blocks are equal, and nothing about an id: equal blocks have equal digests, and that is all a digest tells without the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import PeerFault

BLOCK_RECORDS: Final = 1024
"""Rows that one leaf stands for."""
MAX_NODES: Final = 4096
"""Nodes that a party sends at most: 128 KiB."""
NODE_BYTES: Final = 32


def fold(nodes: Sequence[bytes]) -> tuple[bytes, ...]:
    """Compute the next level of the tree.

    >>> [len(fold([b"x" * 32] * n)) for n in (1, 2, 3, 4)]
    [1, 1, 2, 2]
    """
    pairs = [
        hashlib.sha256(b"\x01" + nodes[i] + nodes[i + 1]).digest() for i in range(0, len(nodes) - len(nodes) % 2, 2)
    ]
    return (*pairs, nodes[-1]) if len(nodes) % 2 else tuple(pairs)


def level_of(n_records: int) -> int:
    """Return the level that is sent for so many rows; 0 are the leaves.

    >>> level_of(1), level_of(4096 * 1024), level_of(4096 * 1024 + 1)
    (0, 0, 1)
    """
    level = 0
    while _count(n_records, level) > MAX_NODES:
        level += 1
    return level


def _count(n_records: int, level: int) -> int:
    return -(-n_records // (BLOCK_RECORDS << level))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What a party sends of its tree.

    Attributes:
        n_records: rows of its table.
        nodes: of `level_of` that many rows, 32 bytes each.

    Raises:
        ValueError: no rows, or nodes of another number or size than the rows need.
    """

    n_records: int
    nodes: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.n_records <= 2**40:
            raise ValueError(f"{self.n_records} rows, expected 1 to 2^40")
        n_nodes = _count(self.n_records, level_of(self.n_records))
        if len(self.nodes) != n_nodes or any(len(node) != NODE_BYTES for node in self.nodes):
            raise ValueError(f"{len(self.nodes)} nodes, expected {n_nodes} of {NODE_BYTES} bytes")

    @classmethod
    def of_leaves(cls, n_records: int, leaves: Sequence[bytes]) -> Tree:
        """Build the tree over one leaf for each block of rows."""
        nodes = tuple(leaves)
        for _ in range(level_of(n_records)):
            nodes = fold(nodes)
        return cls(n_records=n_records, nodes=nodes)

    @property
    def root(self) -> bytes:
        """Names the row order: 32 bytes."""
        nodes = list(self.nodes)
        while len(nodes) > 1:
            nodes = list(fold(nodes))
        return hashlib.sha256(b"\x02verticil/order/v1" + self.n_records.to_bytes(8, "big") + nodes[0]).digest()

    def at_level(self, level: int) -> tuple[bytes, ...]:
        """Return the nodes of a level that is not below the one that was sent."""
        nodes = self.nodes
        for _ in range(level - level_of(self.n_records)):
            nodes = fold(nodes)
        return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where trees first differ.

    Attributes:
        first_row, last_row: of the block; the first row behind the header is row 1.
        groups: the parties, those together whose block is the same; in the order in which they were given.
        same_size: whether all have the same number of rows.
    """

    first_row: int
    last_row: int
    groups: tuple[tuple[str, ...], ...]
    same_size: bool

    @property
    def text(self) -> str:
        """For people; names rows and parties, no id and no number of rows of one party."""
        sides = " | ".join(", ".join(f"'{name}'" for name in group) for group in self.groups)
        size = "" if self.same_size else "; the tables do not have the same number of rows"
        return f"the first rows that differ are among {self.first_row} to {self.last_row} ({sides}){size}"


def first_difference(trees: Mapping[str, Tree]) -> Difference | None:
    """Return the first block in which not all parties' rows are the same; None when all trees are equal.

    Args:
        trees: party -> what it sent.
    """
    if len({tree.root for tree in trees.values()}) <= 1:
        return None
    sizes = {tree.n_records for tree in trees.values()}
    level = max(level_of(size) for size in sizes)
    levels = {name: tree.at_level(level) for name, tree in trees.items()}
    longest = max(len(nodes) for nodes in levels.values())
    block = BLOCK_RECORDS << level
    at = longest - 1  # all nodes equal and the roots not: the numbers of rows are not what the leaves were made of
    for position in range(longest):
        if len({nodes[position : position + 1] for nodes in levels.values()}) > 1:
            at = position
            break
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, nodes in levels.items():
        behind = () if longest - 1 > at else (trees[name].n_records,)
        groups.setdefault((nodes[at : at + 1], *behind), []).append(name)
    return Difference(
        first_row=at * block + 1,
        last_row=min((at + 1) * block, max(sizes)),
        groups=tuple(tuple(names) for names in groups.values()),
        same_size=len(sizes) == 1,
    )


def common_tree(study_id: str, trees: Mapping[str, Tree]) -> Tree:
    """Return the tree that all parties have.

    Args:
        study_id: for messages.
        trees: party -> what it sent, in the study's order.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, naming the first block that differs and who has which.
    """
    difference = first_difference(trees)
    if difference is not None:
        raise PeerFault(
            "ALIGNMENT_MISMATCH",
            f"study '{study_id}': the tables are not in one order: {difference.text}",
            hint="nothing was randomized; align the tables by the study's id and submit the study again under a new id; if the"
            " first rows differ already, compare the linkage keys' check words",
        )
    return next(iter(trees.values()))
