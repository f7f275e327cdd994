"""The release of one organisation alone: it signs it, and states what noise it drew, of how many people, and when.

What cannot be checked from a release: that the noise was drawn, and that nothing but the noisy tables was looked at.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Final

from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.documents.record import decode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy import events
from verticil.shared.privacy.events import PrivacyEvent, plan_events
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section, own_template
from verticil.shared.release.signatures import Trust, signed_document, signed_statement
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

_LIMIT: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What the owner of the table signs.

    Attributes:
        party: its name.
        effective_sha256: digest of the study.
        n_records: people in the table.
        event: what was drawn, as the ledger has it.
        charged_at: when the ledger was charged for it, UTC.
    """

    party: str
    effective_sha256: Annotated[bytes, 32]
    n_records: int
    event: str
    charged_at: dt.datetime


def drawn_event(study: Study) -> PrivacyEvent:
    """Return the one event of a study that an owner carries out alone."""
    (item,) = (item for item in plan_events(study, study.parties[0]) if item.unit is None)
    return item.event


class CuratorRelease(ReleaseProtocol):
    """The owner's statement of what it drew."""

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """Return the signed statement of measurement."""
        return {"measurement": signed_document(content.statements[0])}

    def check(
        self, manifest: JsonNode, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """Check that it is of this study, of these people, and of what the study says is drawn."""
        node = manifest["measurement"]
        signed = signed_statement(node)
        try:
            measurement = decode(Measurement, signed.body, source="measurement", limit=_LIMIT)
        except PeerFault as error:
            node.fail(error.message)
        target = Measurement(
            party=publisher,
            effective_sha256=canonical.digest(study),
            n_records=manifest["n_common"].integer(),
            event=events.to_json(drawn_event(study)),
            charged_at=published,
        )
        if measurement != target:
            node.fail("not of this study, its number of people, its noise and its time of publication")
        trust.signer(signed, role=Role.PARTY, name=publisher, at=published, where=node.where)
        return Checked(statements=1)

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> Section:
        """Return the noise on the tables, or that there is none."""
        noisy = content.study.tables is not None
        return Section(
            figures=(),
            share="that the noisy tables give" if noisy else "among the people",
            noisy=noisy,
            no_pairs="No pair is compared here.",
            evidence="what noise the organisation says that it drew"
            if noisy
            else "that the organisation drew no noise",
        )

    def template(self) -> str:
        """Return the template for one organisation with one table."""
        return own_template("curator.html.j2")
