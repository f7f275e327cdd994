"""Linkage ``order-commitment``: a keyed tree over the ids in the order of the table.

The parties have aligned their tables beforehand; the tree proves it without showing an id. The key comes from the linkage key,
which the miner does not have, and from the study, so that trees of two studies cannot be compared:

    k_align = HKDF-SHA-256(linkage key, info = "verticil/order/v1" ‖ SHA-256 of the proposal)
    leaf b  = HMAC-SHA-256(k_align, 0x00 ‖ b ‖ rows in the block ‖ length of id ‖ id ‖ length of id ‖ id ..)

with b as uint64, the others as uint32, big-endian, ids as UTF-8 after normalisation. Lengths before ids keep two lists from
giving one text; the block's number and count keep a block from standing for another. Inner nodes and root:
`verticil.shared.federation.alignment.merkle`.

Does not: read ids, or compare trees.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.shared.federation.alignment.merkle import BLOCK_RECORDS, Tree


def order_key(linkage_key: bytes, proposal_digest: bytes) -> bytes:
    """Derive the study's key for trees: 32 bytes.

    Raises:
        ValueError: key or digest are not 32 bytes.
    """
    if len(linkage_key) != 32 or len(proposal_digest) != 32:
        raise ValueError(
            f"linkage key of {len(linkage_key)} and digest of {len(proposal_digest)} bytes, expected 32 each"
        )
    info = b"verticil/order/v1" + proposal_digest
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(linkage_key)


def order_tree(key: bytes, ids: Iterable[str]) -> Tree:
    """Build the tree over ids in their order.

    Args:
        key: see `order_key`.
        ids: normalised, distinct, at least one.

    Raises:
        ValueError: no ids.
    """
    leaves: list[bytes] = []
    n_records = 0
    remaining_ids = iter(ids)
    while part := [record_id.encode("utf-8") for record_id in islice(remaining_ids, BLOCK_RECORDS)]:
        mac = hmac.HMAC(key, hashes.SHA256())
        mac.update(b"\x00" + struct.pack(">QI", len(leaves), len(part)))
        mac.update(b"".join([struct.pack(">I", len(id_bytes)) + id_bytes for id_bytes in part]))
        leaves.append(mac.finalize())
        n_records += len(part)
    return Tree.of_leaves(n_records, leaves)
