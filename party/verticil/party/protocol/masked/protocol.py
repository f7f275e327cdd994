"""What Model III hands to the party's registry."""

from __future__ import annotations

from typing import Final

from verticil.party.protocol.masked.reconciler import RECONCILER
from verticil.party.protocol.masked.review import check_release
from verticil.party.protocol.masked.rounds import FOLDER, Rounds, discard, end_restored, files_of
from verticil.party.protocol.masked.study import MaskedStudy
from verticil.party.protocol.node.registry import PartyProtocol, ProtocolFolder

PROTOCOL: Final = PartyProtocol(
    told_by_miner=MaskedStudy,
    reconciler=RECONCILER,
    serves={"GetPseudonyms", "ListMasked", "GetMasked", "GetDeletion"},
    compare=check_release,
    rounds=Rounds,
    folder=ProtocolFolder(name=FOLDER, files=files_of, discard=discard, after_restore=end_restored),
)
