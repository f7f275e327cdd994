"""How the content of a bundle is kept from who finds it: each piece is sealed (HPKE, `verticil.shared.transport.sealing`).

Both sides have a sealing key (``NAME.seal``), whose public halves stand in federation.toml: the party's in ``[sealing]``, the
miner's as ``sealing_key`` in ``[miner]``. Bound into a seal are federation, direction, party, the bundle's number and the
piece's place, so that no piece opens in another bundle or at another place. The recipient's private key opens everything that
was ever sealed for it: guard it as the disk that holds what was received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from verticil.shared.airgap.statement import Direction
from verticil.shared.errors import GateFailed, Misuse
from verticil.shared.transport.sealing import open_sealed, seal

_CONTEXT: Final = "verticil/carried/v1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cover:
    """Seals and opens pieces between the miner and one party.

    Attributes:
        own: this side's private sealing key.
        other: the other side's public one, 32 bytes.
        federation, party: between whom.
    """

    own: X25519PrivateKey
    other: bytes
    federation: str
    party: str

    def seal(self, piece: bytes, *, direction: Direction, number: int, place: int) -> bytes:
        """A piece for the other side.

        Raises:
            Misuse: CONFIG_INVALID, the other side's pinned key is none.
        """
        try:
            return seal(
                piece,
                recipient=X25519PublicKey.from_public_bytes(self.other),
                sender=self.own,
                info=self._info(direction),
                aad=_place(number, place),
            )
        except ValueError:  # a point of small order
            raise Misuse("CONFIG_INVALID", "federation.toml: the other side's sealing key is not usable") from None

    def open(self, sealed: bytes, *, direction: Direction, number: int, place: int) -> bytes:
        """A piece of the other side's.

        Raises:
            GateFailed: BUNDLE_INVALID, it is not sealed by the other side for this one.
        """
        plain = open_sealed(
            sealed,
            recipient=self.own,
            sender=X25519PublicKey.from_public_bytes(self.other),
            info=self._info(direction),
            aad=_place(number, place),
        )
        if plain is None:
            raise GateFailed(
                "BUNDLE_INVALID",
                f"piece {place}: not sealed with the keys that federation.toml pins for the two sides",
                hint="the same federation.toml belongs at both sides; verticil pki seal NAME.crt shows a key",
            )
        return plain

    def _info(self, direction: Direction) -> bytes:
        return "\n".join((_CONTEXT, self.federation, direction, self.party)).encode("utf-8")


def _place(number: int, place: int) -> bytes:
    return number.to_bytes(8, "big") + place.to_bytes(8, "big")
