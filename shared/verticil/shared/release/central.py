"""The release of Model II: the miner signs it, and it carries the miner's receipt for every randomized column."""

from __future__ import annotations

import datetime as dt

from verticil.shared.documents.json_document import Json, JsonNode, parse
from verticil.shared.federation.identity.identity import Role
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release import wording
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section, own_template
from verticil.shared.release.signatures import Trust, signed_document, signed_statement, utc_time
from verticil.shared.study.document import Study


class CentralRelease(ReleaseProtocol):
    """Receipts of the miner."""

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """Return the miner's receipts."""
        return {"receipts": [signed_document(receipt) for receipt in content.receipts]}

    def check(
        self, manifest: JsonNode, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """Check the receipts of the release."""
        return Checked(receipts=_check_receipts(manifest, study, trust, publisher=publisher, published=published))

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> Section:
        """Return the section on all columns together."""
        note = f"all {wording.count(statement.n_sent, 'column')} together; see section 2"
        return Section(
            figures=(("Total for one person (ε)", wording.epsilon(statement.epsilon_per_person), note),),
            share="estimated from the randomized values, with the noise taken out on average",
            noisy=True,
            no_pairs="No pair was compared: the network has no arrow, and the study names no pair.",
            evidence="the receipts for what each organisation sent",
        )

    def template(self) -> str:
        """Everything is computed from randomized columns."""
        return own_template("central.html.j2")


def _check_receipts(manifest: JsonNode, study: Study, trust: Trust, *, publisher: str, published: dt.datetime) -> int:
    """Check for one receipt of the publisher for each unit of the study; a simulation may have none."""
    receipts = manifest["receipts"].items()
    if not receipts and manifest["simulation"].boolean():
        return 0
    units: set[int] = set()
    for receipt in receipts:
        signed = signed_statement(receipt)
        body = parse(signed.body, source=f"{receipt.where}: body")
        received_at = utc_time(body["received_at"])
        trust.signer(signed, role=Role.MINER, name=publisher, at=received_at, where=receipt.where)
        index = body["unit"].integer()
        if index >= len(study.units) or index in units:
            body["unit"].fail(f"unit {index} has a receipt already, or the study has none of that number")
        units.add(index)
        unit = study.units[index]
        if study.tables is not None and body.get("artifact_sha256") is not None:
            body["artifact_sha256"].fail(
                "a function of one column, and all that is published was to follow from noisy tables"
            )
        target_fields: tuple[tuple[str, object], ...] = (
            ("effective_digest", manifest["effective_digest"].text()),
            ("proposal_digest", manifest["study_digest"].text()),
            ("miner", publisher),
            ("party", unit.owner),
            ("variables", list(unit.variables)),
            ("n_records", manifest["n_common"].integer()),
        )
        for key, value in target_fields:
            if body[key].value != value:
                body[key].fail(f"got {body[key].value!r}, expected {value!r}")
        if received_at > published:
            body["received_at"].fail("later than the publication")
    if len(units) != len(study.units):
        manifest["receipts"].fail(f"receipts for {len(units)} of {len(study.units)} randomized columns")
    return len(receipts)
