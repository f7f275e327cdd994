"""What Model I hands to the party's registry."""

from __future__ import annotations

from typing import Final

from verticil.party.protocol.node.registry import PartyProtocol
from verticil.party.protocol.peer.reconciler import RECONCILER
from verticil.party.protocol.peer.study import PeerStudy

PROTOCOL: Final = PartyProtocol(
    between_parties=PeerStudy,
    reconciler=RECONCILER,
    serves={"GetPseudonyms", "GetColumn", "GetParameters", "GetSignature"},
)
