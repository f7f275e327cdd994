"""The noise on what a party shares of its own raw data between peers (Model I, `share`): the discrete Gaussian.

The stated (epsilon, delta) is proved for the whole numbers that are drawn (`verticil.shared.mechanisms.discrete_gaussian`).

Sticky: the noise of a table is a function of a key and of the table's label, so that asking again gives nothing new. The key
depends on the site's secret, the study, the structure, the common list and the data (`share_key`): any change is a new draw, to
be charged again. The statement is computational in AES and HKDF, as that of `verticil.party.dataset.perturb` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.gaussian import derived_key

DISCRETE: Final = "discrete-gaussian"
"""The name that a study has for it."""
NOISE_WORDS: Final = "discrete Gaussian noise"
"""For people, as in "there is .. on every count"."""
MAX_CELLS: Final = 2**30
"""Cells that one key's noise is drawn for at most."""

_PURPOSE: Final = b"verticil/share/discrete-gaussian/v1"


def share_key(
    site_secret: bytes,
    *,
    effective_digest: bytes,
    structure_sha256: bytes,
    common_sha256: bytes,
    data_fingerprint: bytes,
) -> bytes:
    """Derive the key of a party's share noise in one study: 32 bytes.

        HKDF-SHA-256(site secret, info = `_PURPOSE` ‖ L(effective) ‖ L(structure) ‖ L(common) ‖ L(data))

    without salt; L(x) = length of x as uint32 big-endian ‖ x.

    Args:
        site_secret: 32 bytes, made at ``party init``; never leaves.
        effective_digest: of the effective study.
        structure_sha256: of the structure; empty while pairs are scored.
        common_sha256: of the common list.
        data_fingerprint: of the party's own values of the common people, so that no two versions of the data share their noise.

    Raises:
        ValueError: the secret is not 32 bytes, or what names study, list or data is empty.
    """
    if len(site_secret) != 32:
        raise ValueError(f"site secret: {len(site_secret)} bytes, expected 32")
    if not (effective_digest and common_sha256 and data_fingerprint):
        raise ValueError("the study, the common list and the data must be named")
    return derived_key(site_secret, _PURPOSE, effective_digest, structure_sha256, common_sha256, data_fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareNoise:
    """The noise of one party in one study.

    Attributes:
        key: 32 bytes, see `share_key`. Whoever has it can take the noise out.
        epsilon, delta: of everything that the party shares, together.
        n_tables: T, the number of tables that noise is added to.
        sigma: of the noise on each count: the discrete Gaussian's parameter.

    Raises:
        ValueError: there is no sigma for these numbers, or the key is not 32 bytes.
    """

    key: bytes
    epsilon: float
    delta: float
    n_tables: int

    def __post_init__(self) -> None:
        if len(self.key) != 32:
            raise ValueError(f"key: {len(self.key)} bytes, expected 32")
        discrete_gaussian.discrete_sigma(self.epsilon, self.delta, self.n_tables)

    def __repr__(self) -> str:
        return f"ShareNoise(epsilon={self.epsilon}, delta={self.delta}, n_tables={self.n_tables})"

    @property
    def sigma(self) -> float:
        """Parameter of the noise on each count."""
        return discrete_gaussian.discrete_sigma(self.epsilon, self.delta, self.n_tables)

    @property
    def variance(self) -> float:
        """Of the drawn noise."""
        return discrete_gaussian.variance(self.sigma)

    def add(self, label: bytes, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a table with its noise.

        Args:
            label: names the table; no two tables of a study may have the same.
            counts: whole numbers.

        Returns:
            Of the same shape, float64: whole numbers, which can be negative.

        Raises:
            ValueError: the counts are no whole numbers, or the table is larger than `MAX_CELLS` over `n_tables`.
        """
        if counts.size > MAX_CELLS // self.n_tables:
            raise ValueError(
                f"noise for a table of {counts.size} cells, one of {self.n_tables}: the table is too large"
            )
        if not np.array_equal(np.rint(counts), counts):
            raise ValueError("the counts are no whole numbers")
        noise = discrete_gaussian.draw(self.key, label, counts.shape, self.sigma)
        return (counts.astype(np.int64) + noise).astype(np.float64)
