"""What Model II hands to the party's registry."""

from __future__ import annotations

from typing import Final

from verticil.party.protocol.central.reconciler import RECONCILER
from verticil.party.protocol.central.review import check_release
from verticil.party.protocol.central.study import CentralStudy
from verticil.party.protocol.node.registry import PartyProtocol

PROTOCOL: Final = PartyProtocol(
    told_by_miner=lambda node, digest, _: CentralStudy(node, digest), reconciler=RECONCILER, compare=check_release
)
