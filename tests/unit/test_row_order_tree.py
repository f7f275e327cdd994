"""The tree that order-commitment compares: against a plain recomputation, and where it finds the first difference."""

from __future__ import annotations

import hashlib
import hmac
import struct

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.party.dataset.order_commitment import order_key, order_tree
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.merkle import (
    BLOCK_RECORDS,
    MAX_NODES,
    Tree,
    common_tree,
    first_difference,
    level_of,
)

KEY, STUDY = bytes(range(32)), b"s" * 32
IDS = [f"person {number}" for number in range(2 * BLOCK_RECORDS + 100)]


def tree(ids: list[str], *, key: bytes = KEY, study: bytes = STUDY) -> Tree:
    return order_tree(order_key(key, study), ids)


def test_root_is_the_one_of_the_formula() -> None:
    """Recomputed here with the standard library, from the formulas in the two modules."""
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"verticil/order/v1" + STUDY).derive(KEY)

    def leaf(block: int) -> bytes:
        part = [item.encode() for item in IDS[block * 1024 : (block + 1) * 1024]]
        text = b"".join(struct.pack(">I", len(item)) + item for item in part)
        return hmac.digest(key, struct.pack(">BQI", 0, block, len(part)) + text, "sha256")

    a, b, c = (leaf(block) for block in range(3))
    top = hashlib.sha256(b"\x01" + hashlib.sha256(b"\x01" + a + b).digest() + c).digest()
    expected = hashlib.sha256(b"\x02verticil/order/v1" + struct.pack(">Q", len(IDS)) + top).digest()
    assert tree(IDS).root == expected


def test_key_and_study_enter() -> None:
    roots = {tree(IDS).root, tree(IDS, key=b"k" * 32).root, tree(IDS, study=b"t" * 32).root}
    assert len(roots) == 3
    with pytest.raises(ValueError, match="expected 32"):
        order_key(b"short", STUDY)


def test_lengths_keep_joined_ids_apart() -> None:
    assert tree(["ab", "c"]).root != tree(["a", "bc"]).root
    assert tree(["a"]).root != tree(["a", ""]).root


def changed(what: str, row: int) -> list[str]:
    ids = list(IDS)
    if what == "swapped":
        ids[row], ids[row + 1] = ids[row + 1], ids[row]
    elif what == "missing":
        del ids[row]
    elif what == "doubled":
        ids.insert(row, ids[row])
    else:
        ids[row] = "somebody else"
    return ids


@pytest.mark.parametrize("what", ["swapped", "missing", "doubled", "replaced"])
@pytest.mark.parametrize(("row", "block"), [(0, (1, 1024)), (1100, (1025, 2048)), (2100, (2049, None))])
def test_the_first_block_that_differs_is_named(what: str, row: int, block: tuple[int, int | None]) -> None:
    other = tree(changed(what, row))
    found = first_difference({"a": tree(IDS), "b": other, "c": tree(IDS)})
    assert found is not None
    last = max(len(IDS), other.n_records) if block[1] is None else block[1]
    assert (found.first_row, found.last_row) == (block[0], last)
    assert found.groups == (("a", "c"), ("b",))
    assert found.same_size == (what in {"swapped", "replaced"})
    assert first_difference({"a": other, "b": tree(changed(what, row))}) is None
    with pytest.raises(PeerFault) as caught:
        common_tree("trial", {"a": tree(IDS), "b": other})
    assert caught.value.code == "ALIGNMENT_MISMATCH"
    assert str(len(IDS)) not in caught.value.message or last == len(IDS)
    assert "person" not in str(caught.value)
    assert common_tree("trial", {"a": other, "b": other}) == other


def test_a_swap_across_two_blocks_is_found_in_the_first() -> None:
    found = first_difference({"a": tree(IDS), "b": tree(changed("swapped", 1023))})
    assert found is not None
    assert found.first_row == 1


def test_large_tables_send_a_higher_level_and_are_compared_with_smaller_ones() -> None:
    """Leaves are made up: the tree knows nothing of ids."""
    leaves = [hashlib.sha256(struct.pack(">I", number)).digest() for number in range(MAX_NODES + 1)]
    small = Tree.of_leaves(MAX_NODES * BLOCK_RECORDS, leaves[:-1])
    large = Tree.of_leaves(MAX_NODES * BLOCK_RECORDS + 1, leaves)
    assert (len(small.nodes), len(large.nodes)) == (MAX_NODES, MAX_NODES // 2 + 1)
    assert level_of(large.n_records) == 1
    found = first_difference({"a": small, "b": large})
    assert found is not None
    assert (found.first_row, found.last_row) == (MAX_NODES * BLOCK_RECORDS + 1, MAX_NODES * BLOCK_RECORDS + 1)
    leaves[7] = bytes(32)
    found = first_difference({"a": small, "b": Tree.of_leaves(large.n_records, leaves)})
    assert found is not None
    assert (found.first_row, found.last_row) == (
        6 * BLOCK_RECORDS + 1,
        8 * BLOCK_RECORDS,
    )  # a node stands for two blocks


def test_a_number_of_rows_that_does_not_belong_to_the_leaves_is_a_difference() -> None:
    honest = tree(IDS)
    lying = Tree(n_records=honest.n_records - 1, nodes=honest.nodes)
    found = first_difference({"a": honest, "b": lying})
    assert found is not None
    assert found.groups == (("a",), ("b",))


@pytest.mark.parametrize(
    ("n_records", "nodes"), [(0, ()), (1, ()), (1, (b"x" * 31,)), (1025, (b"x" * 32,)), (2**41, (b"x" * 32,))]
)
def test_what_is_no_tree_is_refused(n_records: int, nodes: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Tree(n_records=n_records, nodes=nodes)
