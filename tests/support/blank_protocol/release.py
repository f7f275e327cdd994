"""The release of the blank protocol: every party's signed statement, and a network in which nothing was learned."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from support.blank_protocol.study import ROUNDS
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.party.protocol.with_peers.publication import write_and_sign
from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.documents.record import decode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Marginal, Network
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section
from verticil.shared.release.records import draw_release_records
from verticil.shared.release.signatures import Trust, signed_document, signed_statement
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

STATEMENT_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a party signs before the rounds: that it takes part.

    Attributes:
        party: its name.
        effective_sha256: of the effective study.
        n_common: how many people all parties have in common.
        signed_at: when.
    """

    party: str
    effective_sha256: Annotated[bytes, 32]
    n_common: int
    signed_at: dt.datetime


def read_statement(body: bytes, study: Study, party: str) -> Taken:
    """Read a party's statement of a study.

    Raises:
        PeerFault: MESSAGE_INVALID, STUDY_MISMATCH.
    """
    statement = decode(Taken, body, source="statement", limit=STATEMENT_BYTES)
    if (statement.party, statement.effective_sha256) != (party, canonical.digest(study)):
        raise PeerFault("STUDY_MISMATCH", f"statement of '{statement.party}': not one of '{party}' and this study")
    return statement


def uniform_network(study: Study) -> tuple[Network, tuple[Marginal, ...]]:
    """Return a network without arrows in which every category is as likely as any other, and nothing is estimated."""
    families: list[Family] = []
    marginals: list[Marginal] = []
    for position, variable in enumerate(study.schema.variables):
        even = np.full((1, variable.n_states), 1 / variable.n_states)
        unknown = np.full((1, variable.n_states), math.nan)
        unsure = {"estimate": unknown, "standard_error": unknown, "interval_low": unknown, "interval_high": unknown}
        unstable = np.ones((1, variable.n_states), dtype=np.bool_)
        families.append(Family(child=position, parents=(), probability=even, unstable=unstable, **unsure))
        rows = {name: values[0] for name, values in unsure.items()}
        marginals.append(Marginal(variable=position, model=even[0], **rows))
    dag = Dag(parents=((),) * len(study.schema))
    return Network(schema=study.schema, dag=dag, families=tuple(families)), tuple(marginals)


def assemble(context: PeerStudyContext) -> None:
    """Write the release of everybody's statements, and sign it; blocks."""
    study = context.study
    signed = [context.store.signed(context.digest, Kind.STATEMENT, name) for name in study.parties]
    statements = [read_statement(item.body, study, name) for item, name in zip(signed, study.parties, strict=True)]
    network, marginals = uniform_network(study)
    codes, synthetic = draw_release_records(network, study, statements[0].n_common)
    content = ReleaseContent(
        study=study,
        study_digest=context.digest.hex(),
        effective_digest=context.effective_digest.hex(),
        network=network,
        marginals=marginals,
        synthetic=synthetic,
        codes=codes,
        n_common=statements[0].n_common,
        receipts=(),
        statements=tuple(signed),
        provenance={"software": context.between.software},
        search=context.structure.search,
        simulation=context.between.simulation,
        seed_derived=context.between.seed_derived,
        published_at=max(statement.signed_at for statement in statements),
    )
    write_and_sign(context, content)


class BlankRelease(ReleaseProtocol):
    """Every party's signed statement."""

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """See `ReleaseProtocol.evidence`."""
        return {"taken": [signed_document(statement) for statement in content.statements]}

    def check(
        self, manifest: JsonNode, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """See `ReleaseProtocol.check`: each party has signed the same number of people."""
        nodes = manifest["taken"].items()
        if len(nodes) != len(study.parties):
            manifest["taken"].fail(f"{len(nodes)} statements, expected one of each of {', '.join(study.parties)}")
        for node, party in zip(nodes, study.parties, strict=True):
            signed = signed_statement(node)
            try:
                statement = read_statement(signed.body, study, party)
            except PeerFault as error:
                node.fail(error.message)
            trust.signer(signed, role=Role.PARTY, name=party, at=statement.signed_at, where=node.where)
            if (got := manifest["n_common"].integer()) != statement.n_common:
                manifest["n_common"].fail(f"got {got}, '{party}' signed {statement.n_common}")
        return Checked(statements=len(nodes))

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> Section:
        """See `ReleaseProtocol.section`."""
        return Section(
            figures=(("Rounds", str(ROUNDS), "of empty messages"),),
            share="not estimated",
            noisy=True,
            no_pairs="Nothing is known of pairs.",
            evidence="each organisation's statement as it signed it",
        )

    def template(self) -> str:
        """See `ReleaseProtocol.template`."""
        return (
            '<section aria-labelledby="what"><h2 id="what">1. What this is</h2><p>The organisations exchanged empty messages.'
            '</p></section><section aria-labelledby="privacy"><h2 id="privacy">2. What anybody can learn</h2>'
            "<p>No column was sent.</p></section>"
        )
