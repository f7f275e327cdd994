"""The protocols that this program ships: one line each. A protocol is imported when a study needs it.

Import this module before a party runs, or asks the registry (`verticil.party.protocol.node.registry`).
"""

from __future__ import annotations

from verticil.party.protocol.node.registry import PartyProtocol, register


def _central() -> PartyProtocol:
    from verticil.party.protocol.central.protocol import PROTOCOL

    return PROTOCOL


def _peer() -> PartyProtocol:
    from verticil.party.protocol.peer.protocol import PROTOCOL

    return PROTOCOL


def _masked() -> PartyProtocol:
    from verticil.party.protocol.masked.protocol import PROTOCOL

    return PROTOCOL


register("central", _central)
register("peer", _peer)
register("masked", _masked)
