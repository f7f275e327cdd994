"""Which declared category stands in for a value that has none: drawn for the record, and never drawn again.

A text that is no declared category of a variable without `other`, and a combination of values that the study declares impossible,
still get a code, so that neither keeps a study from being answered: who writes the categories would otherwise read from the
answer whether somebody has such a value. The substitute is a uniform draw over the declared categories (over the possible
combinations of a compound), made from the record's tag:

    substitute = floor(u K / 2^64)       u: first 8 bytes of AES-256(substitute key, tag ‖ 0), little-endian

so it differs from the uniform distribution by less than K 2^-64 in each category. The key has a label of its own, so the draw is
independent of the noise; it depends on site secret, data set, source columns and codebook, and so stays the same for a record
from study to study until the encoding changes. For who analyses a release: such a record is one whose value in this column is
replaced by one drawn uniformly from the declared categories, independently of everything else about the person; the randomization
comes after it. The share of such records is known to the site alone; declare `other` and `missing` to keep them apart.

All records of a column are drawn for, whether they need it or not: the work depends on the number of rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from verticil.party.dataset.perturb import column_key, record_blocks
from verticil.shared.core.arrays import Codes

_CHUNK: Final = 16_384
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)


def substitute_key(site_secret: bytes, *, dataset: str, source_columns: Sequence[str], codebook_digest: bytes) -> bytes:
    """AES-256 key of a column's, or a compound's, substitutes: 32 bytes; see `perturb.column_key`.

    Raises:
        ValueError: the secret or the digest is not 32 bytes, or there is no column.
    """
    return column_key(
        site_secret,
        b"verticil/substitute/v1",
        dataset=dataset,
        source_columns=source_columns,
        context=codebook_digest,
    )


def draw(key: bytes, tags: NDArray[np.uint8], n_states: int) -> Codes:
    """Draw a code for each record.

    Args:
        key: see `substitute_key`.
        tags: (n, 14), uint8; see `perturb.record_tags`.
        n_states: K, at most 65536.

    Returns:
        (n,), uint8 up to 256 categories, else uint16, each less than K. Code i depends on the key and tag i alone.
    """
    random_codes: Codes = np.empty(len(tags), np.uint8) if n_states <= 256 else np.empty(len(tags), np.uint16)
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305  a pseudo-random function of distinct blocks
    for start in range(0, len(tags), _CHUNK):
        part = tags[start : start + _CHUNK]
        blocks = record_blocks(part, np.zeros(len(part), dtype=np.uint8))
        u = np.frombuffer(encryptor.update(blocks.data), dtype="<u8")[::2].astype(np.uint64)
        # The high word of u * K, which has up to 80 bits, by halves of u.
        low = ((u & _LOW) * np.uint64(n_states)) >> _HALF
        random_codes[start : start + _CHUNK] = ((u >> _HALF) * np.uint64(n_states) + low) >> _HALF
    return random_codes
