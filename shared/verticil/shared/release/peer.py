"""The release of Model I: every party signs it, and it carries every party's signed parameters and the structure.

No party can be made to say what it did not: each statement carries its party's signature, all of them rest on the same common
list and the same structure, two readers of a column have read the same bytes, and the model is computed again from the
statements and compared number by number. What cannot be checked from a release: that a party computed its parameters from its
true data.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.errors import GateFailed, PeerFault
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy.figures import posterior, share_cost, shares_together, total_epsilon
from verticil.shared.privacy.statement import PRIOR, PrivacyStatement
from verticil.shared.release import wording
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.peer_assembly import check_statements, joint_model
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section, own_template
from verticil.shared.release.signatures import Trust, signed_document, signed_statement
from verticil.shared.release.statement import PartyStatement, parse_statement
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.peer import PeerStatement, peer_statement
from verticil.shared.study.structure_document import Structure, given_structure, parse_structure

_NO_PAIRS = (
    "No organisation has the table of a pair: each states probabilities of its own columns, from which the number of people with "
    "a combination does not follow. So there is no verdict on pairs here, only the interval of each probability below."
)
_TABLES = ("probability", "estimate", "standard_error", "interval_low", "interval_high", "unstable")


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginRow:
    """One column: who computed its probabilities, and from what."""

    name: str
    learned_by: str
    owner_index: int
    kind: str
    raw: tuple[str, ...]
    received: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRow:
    """One organisation as a reader of randomized columns."""

    name: str
    owner_index: int
    columns: tuple[str, ...]
    factor: str
    posterior: str
    epsilon: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRow:
    """A row of one organisation's noise."""

    name: str
    owner_index: int
    tables: str
    sigma: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSection(Section):
    """Everything that the page says of Model I besides what it says of both models.

    Attributes:
        statement: the plain statement about the parameters.
        exact: whether they are exact functions of raw data.
        origins: of each column.
        n_cross: number of cross variables.
        readers: organisations that read columns of others.
        local_only: organisations that sent nothing.
        learned: the structure was searched by a miner, from scores.
        share_noise, share_epsilon, share_delta, share_factor: what noise, and of it; empty without.
        all_epsilon, all_delta: of all organisations together.
        shares: the noise of each organisation.
    """

    statement: str
    exact: bool
    origins: tuple[OriginRow, ...]
    n_cross: int
    readers: tuple[ReaderRow, ...]
    local_only: tuple[str, ...]
    learned: bool
    share_noise: str
    share_epsilon: str
    share_delta: str
    share_factor: str
    all_epsilon: str
    all_delta: str
    shares: tuple[ShareRow, ...]


class PeerRelease(ReleaseProtocol):
    """Statements of the parties, and the structure."""

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """Return the parties' parameters, and a learned structure."""
        return {
            "structure": None if content.structure is None else signed_document(content.structure),
            "statements": [signed_document(statement) for statement in content.statements],
        }

    def check(
        self, manifest: JsonNode, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """Check structure and statements of a manifest, and that `model` is what they make."""
        structure = _structure(manifest, study, trust, published=published)
        nodes = manifest["statements"].items()
        if len(nodes) != len(study.parties):
            manifest["statements"].fail(f"{len(nodes)} statements, expected one of each of {', '.join(study.parties)}")
        statements = [
            _statement(node, study, party, trust, published=published)
            for node, party in zip(nodes, study.parties, strict=True)
        ]
        try:
            check_statements(study, structure, statements)
        except PeerFault as error:
            manifest["statements"].fail(error.message)
        if (n_common := manifest["n_common"].integer()) != statements[0].n_common:
            manifest["n_common"].fail(f"got {n_common}, the parties state {statements[0].n_common}")
        if published != max(statement.computed_at for statement in statements):
            manifest["published_at"].fail("expected the time of the latest statement")
        _compare(model, joint_model(study, structure.dag, statements)[0])
        return Checked(statements=len(statements))

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> PeerSection:
        """Return who computed what from which columns, who read what, and what protects the parameters."""
        study, dag = content.study, content.network.dag
        peer = peer_statement(study, dag)
        schema = study.schema
        index = {party: position for position, party in enumerate(study.parties)}
        origins = tuple(
            OriginRow(
                name=variable.name,
                learned_by=origin.learned_by,
                owner_index=index[origin.learned_by],
                kind=origin.kind,
                raw=(variable.name, *(schema[p].name for p in parents if schema[p].name not in origin.cross_parents)),
                received=origin.cross_parents,
            )
            for variable, origin, parents in zip(schema.variables, peer.origins, dag.parents, strict=True)
        )
        senders = {column.owner for column in peer.sent}
        share = peer.share
        cost = None if share is None else share_cost(study)
        of_all = shares_together(study)
        limit_words = "no limit", "exact functions of raw data; see section 2"
        if cost is not None:
            limit_words = f"{cost.epsilon:g}, {wording.tiny(cost.delta)}", "of each organisation; see section 2"
        return PeerSection(
            statement=peer.statement,
            exact=peer.exact,
            origins=origins,
            n_cross=sum(origin.kind == "cross" for origin in origins),
            readers=_readers(peer, statement, index),
            local_only=tuple(party for party in study.parties if party not in senders),
            learned=study.structure.parents is None,
            share_noise="" if study.share is None else study.share.noise_words,
            share_epsilon="" if cost is None else f"{cost.epsilon:g}",
            share_delta="" if cost is None else wording.tiny(cost.delta),
            share_factor="" if cost is None else wording.factor(cost.epsilon),
            all_epsilon="" if cost is None else f"{float(wording.epsilon(of_all.epsilon)):g}",
            all_delta="" if cost is None else wording.tiny(of_all.delta),
            shares=()
            if share is None
            else tuple(
                ShareRow(
                    name=party,
                    owner_index=index[party],
                    tables=wording.count(tables, "table"),
                    sigma=f"{sigma:.1f} people",
                )
                for party, (tables, sigma) in share.parties.items()
            ),
            figures=(
                (
                    "Randomized columns of one person (ε)",
                    wording.epsilon(statement.epsilon_per_person),
                    f"{wording.count(statement.n_sent, 'column')} sent between organisations; see section 2",
                ),
                ("The probabilities (ε, δ)", limit_words[0], limit_words[1]),
            ),
            share=f"that its organisation counted{'' if share is None else ', with the noise that it added'}",
            noisy=share is not None,
            no_pairs=_NO_PAIRS,
            evidence="each organisation's probabilities as it signed them",
            replaced=_replaced(content, peer),
        )

    def template(self) -> str:
        """Columns go between the organisations."""
        return own_template("peer.html.j2")


def _replaced(content: ReleaseContent, peer: PeerStatement) -> tuple[str, str, str]:
    if not peer.replaces:
        return ("", "", "")
    families = content.network.families
    n_replaced = sum(int(family.replaced.sum()) for family in families if family.replaced is not None)
    n_probabilities = sum(family.probability.size for family in families)
    return f"{n_replaced:,}", f"{n_probabilities:,}", wording.count(peer.minimum_count, "person", "people")


def _readers(peer: PeerStatement, privacy: PrivacyStatement, index: dict[str, int]) -> tuple[ReaderRow, ...]:
    rows: list[ReaderRow] = []
    for party, position in index.items():
        read = [column for column in peer.sent if party in column.readers]
        if not read:
            continue
        epsilon = total_epsilon(privacy.columns[column.unit].epsilon for column in read)
        rows.append(
            ReaderRow(
                name=party,
                owner_index=position,
                columns=tuple(name for column in read for name in column.variables),
                factor=wording.factor(epsilon),
                posterior=wording.at_most(posterior(PRIOR, epsilon=epsilon)),
                epsilon=wording.epsilon(epsilon),
            )
        )
    return tuple(rows)


def _structure(manifest: JsonNode, study: Study, trust: Trust, *, published: dt.datetime) -> Structure:
    effective = canonical.digest(study)
    node = manifest.get("structure")
    structure = given_structure(study, effective)
    if structure is not None:
        if node is not None:
            node.fail("a structure, where study.json gives it")
        return structure
    if node is None:
        manifest.fail("'structure' is missing, expected the one that was learned")
    signed = signed_statement(node)
    trust.signer(signed, role=Role.MINER, at=published, where=node.where)
    try:
        return parse_structure(signed.body, study, effective)
    except PeerFault as error:
        node.fail(error.message)


def _statement(node: JsonNode, study: Study, party: str, trust: Trust, *, published: dt.datetime) -> PartyStatement:
    signed = signed_statement(node)
    try:
        statement = parse_statement(signed.body, study)
    except PeerFault as error:
        node.fail(error.message)
    if statement.party != party:
        node.fail(f"a statement of '{statement.party}', expected that of '{party}'")
    if statement.computed_at > published:
        node.fail("later than the publication")
    trust.signer(signed, role=Role.PARTY, name=party, at=statement.computed_at, where=node.where)
    return statement


def _compare(model: Network, stated: Network) -> None:
    if model.dag != stated.dag:
        raise GateFailed("RELEASE_INVALID", "model.json: its edges are not those of the structure")
    for actual, target_family in zip(model.families, stated.families, strict=True):
        for name in _TABLES:
            ours: NDArray[np.float64] = getattr(actual, name)
            theirs: NDArray[np.float64] = getattr(target_family, name)
            if not np.array_equal(ours, theirs, equal_nan=name != "unstable"):
                raise GateFailed(
                    "RELEASE_INVALID",
                    f"model.json: {name} of variable '{model.schema[actual.child].name}' is not what its party states",
                )
