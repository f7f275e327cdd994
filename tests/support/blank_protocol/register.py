"""The blank protocol in the product's registries: the same calls as the product's own lines."""

from __future__ import annotations

from support.blank_protocol.release import BlankRelease
from support.blank_protocol.rounds import FOLDER, OpenRounds, after_restore, discard, files_of
from support.blank_protocol.run import BlankStudy
from support.blank_protocol.study import KIND, NAME, Blank
from verticil.party.protocol.node.registry import PartyProtocol, ProtocolFolder
from verticil.party.protocol.node.registry import register as register_party
from verticil.party.protocol.reconciliation.reconciler import Reconciler
from verticil.shared.privacy import events
from verticil.shared.release.protocols import register_release
from verticil.shared.study.protocols import register


def register_all() -> None:
    """Add the protocol and its event."""
    register(Blank())
    register_release(NAME, BlankRelease())
    events.register(KIND)
    register_party(
        NAME,
        lambda: PartyProtocol(
            between_parties=BlankStudy,
            reconciler=Reconciler(evidence={KIND.name: "nobody keeps a proof of it"}),
            serves={"GetPseudonyms", "ListMasked", "GetMasked", "GetParameters", "GetSignature"},
            rounds=OpenRounds,
            folder=ProtocolFolder(name=FOLDER, files=files_of, discard=discard, after_restore=after_restore),
        ),
    )
