"""What the report says of Model I: who computed what from which columns, who read what, and what protects the parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verticil.shared.channels.privacy import max_posterior
from verticil.shared.formats.peer_statement import PeerStatement, peer_statement
from verticil.shared.formats.privacy_statement import PRIOR, PrivacyStatement
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.report import wording


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
    """One organisation's noise."""

    name: str
    owner_index: int
    tables: str
    sigma: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSection:
    """Everything that the page says of Model I besides what it says of both models.

    Attributes:
        statement: the plain statement about the parameters.
        exact: whether they are exact functions of raw data.
        origins: of each column.
        n_cross: number of cross variables.
        readers: organisations that read columns of others.
        local_only: organisations that sent nothing.
        learned: the structure was searched by a miner, from scores.
        share_epsilon, share_delta, share_factor: of the noise; empty without.
        all_epsilon, all_delta: of all organisations together.
        shares: the noise of each organisation.
        minimum_count: in words; empty without such a rule.
        n_replaced, n_probabilities: how many probabilities were replaced by it, of how many.
    """

    statement: str
    exact: bool
    origins: tuple[OriginRow, ...]
    n_cross: int
    readers: tuple[ReaderRow, ...]
    local_only: tuple[str, ...]
    learned: bool
    share_epsilon: str
    share_delta: str
    share_factor: str
    all_epsilon: str
    all_delta: str
    shares: tuple[ShareRow, ...]
    minimum_count: str
    n_replaced: str
    n_probabilities: str


def peer_section(content: ReleaseContent, privacy: PrivacyStatement) -> PeerSection | None:
    """The section of a release of Model I; None for Model II."""
    study, dag = content.study, content.network.dag
    if study.model == "central":
        return None
    peer = peer_statement(study, dag)
    schema = study.schema
    index = {party: position for position, party in enumerate(study.parties)}
    families = content.network.families
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
    share, replaced = peer.share, [family.replaced for family in families if family.replaced is not None]
    n_parties = len(peer.share.parties) if peer.share is not None else 0
    return PeerSection(
        statement=peer.statement,
        exact=peer.exact,
        origins=origins,
        n_cross=sum(origin.kind == "cross" for origin in origins),
        readers=_readers(peer, privacy, index),
        local_only=tuple(party for party in study.parties if party not in senders),
        learned=study.structure.parents is None,
        share_epsilon="" if share is None else f"{share.epsilon:g}",
        share_delta="" if share is None else wording.tiny(share.delta),
        share_factor="" if share is None else wording.factor(share.epsilon),
        all_epsilon="" if share is None else f"{n_parties * share.epsilon:g}",
        all_delta="" if share is None else wording.tiny(n_parties * share.delta),
        shares=()
        if share is None
        else tuple(
            ShareRow(
                name=party, owner_index=index[party], tables=wording.count(tables, "table"), sigma=f"{sigma:.1f} people"
            )
            for party, (tables, sigma) in share.parties.items()
        ),
        minimum_count=wording.count(peer.minimum_count, "person", "people") if peer.minimum_count else "",
        n_replaced=f"{sum(int(cells.sum()) for cells in replaced):,}",
        n_probabilities=f"{sum(family.probability.size for family in families):,}",
    )


def _readers(peer: PeerStatement, privacy: PrivacyStatement, index: dict[str, int]) -> tuple[ReaderRow, ...]:
    rows: list[ReaderRow] = []
    for party, position in index.items():
        read = [column for column in peer.sent if party in column.readers]
        if not read:
            continue
        epsilon = math.fsum(privacy.columns[column.unit].epsilon for column in read)
        rows.append(
            ReaderRow(
                name=party,
                owner_index=position,
                columns=tuple(name for column in read for name in column.variables),
                factor=wording.factor(epsilon),
                posterior=wording.at_most(max_posterior(PRIOR, epsilon=epsilon)),
                epsilon=wording.epsilon(epsilon),
            )
        )
    return tuple(rows)
