"""A third protocol, as a plug-in would add it: the parties tell each other how many people they have in common, with noise.

Nothing else leaves a party: no column is sent, nothing is learned, and the network of the release says of every variable that
each of its categories is as likely as any other. Each party draws its noise once, from its site's secret, and signs the number;
the release has everybody's, and takes their mean for the number of common people. `register_all` is the whole registration.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

import numpy as np

from verticil.party.protocol.peer.artifact_store import Kind
from verticil.party.protocol.peer.context import PeerStudyContext
from verticil.party.protocol.peer.learning import data_fingerprint, statistics, store_shared
from verticil.party.protocol.peer.network import all_of
from verticil.party.protocol.peer.plan import Facts, Step, until_common
from verticil.party.protocol.peer.publication import write_and_sign
from verticil.party.protocol.peer.study import PeerStudy
from verticil.party.protocol.planning import PeerFailedError, Plan
from verticil.party.protocol.reconciliation.reconciler import Reconciler
from verticil.party.protocol.registry import PartyProtocol
from verticil.party.protocol.registry import register as register_party
from verticil.party.protocol.statistics import EVERYONE
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.json_document import Json, Node
from verticil.shared.documents.record import decode, encode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.transport.fetch import fetch_bytes
from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma
from verticil.shared.mechanisms.share_noise import DISCRETE, ShareNoise, share_key
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Marginal, Network
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import EventKind, PlannedEvent, PrivacyEvent
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release.content import ReleaseContent, SignedStatement
from verticil.shared.release.evidence import Trust, signed_document, signed_statement
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section
from verticil.shared.release.protocols import register_release
from verticil.shared.release.records import released_records
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.peer import Peer
from verticil.shared.study.protocol import Protocol, Statement
from verticil.shared.study.protocols import register
from verticil.shared.study.states import State
from verticil.shared.study.vocabulary import fail
from verticil.wire.v1 import common_pb2, peer_pb2

NAME = "counting"
EPSILON, DELTA = 1.0, 1e-6
"""Of one party's number, for the replacement of one person: it may change by one."""
SIGMA = discrete_sigma(EPSILON, DELTA, 1)
_LIMIT = 65_536


# ---- what a study of it is


@dataclass(frozen=True, slots=True)
class CountStatement(Statement):
    """The noise, for the documents of a release."""

    key = "counting"

    @property
    def exact(self) -> bool:
        return False

    @property
    def parameters(self) -> str:
        return f"epsilon {EPSILON:g}, delta {DELTA:g} of each party's number"

    def document(self) -> Json:
        return {"noise": DISCRETE, "epsilon": EPSILON, "delta": DELTA, "sigma": SIGMA, "of": "each party's number"}


class Counting(Protocol):
    """Parties tell each other a noisy number."""

    name: ClassVar[str] = NAME
    summary = "the organisations tell each other how many people they have in common, with noise, and nothing else"
    linkage: ClassVar = {mode: disclosed for mode, disclosed in Peer.linkage.items() if mode != "dh-psi"}
    coordinated = False
    shares = False
    counts_families = False
    sources = "nothing but the number of the people whom all parties have in common"
    privacy_note = " No column was sent. The number of common people has noise of its own, see counting."

    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
        return ()

    def learner(self, study: Study, child: int) -> str:
        return study.schema.variables[child].owner

    def searches_scores(self, study: Study) -> bool:
        return False

    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        if strangers := [name for name in study.parties if name != party and name not in recipients]:
            yield f"model '{NAME}': {', '.join(strangers)} not in policy.recipients"

    def check(self, study: Study, *, source: str) -> None:
        super().check(study, source=source)
        if study.given_dag is None or study.given_dag.edges():
            fail(f"{source}: structure", f"the model '{NAME}' learns nothing", hint='method = "given", without parents')

    def statement(self, study: Study, dag: Dag) -> CountStatement:
        return CountStatement()


# ---- what it costs


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCount(PrivacyEvent):
    """Gaussian noise, rounded, was added to the number of common people."""

    epsilon: float
    delta: float


def caused(study: Study, party: str) -> Iterable[PlannedEvent]:
    if study.model == NAME:
        yield PlannedEvent(
            event=NoisyCount(epsilon=EPSILON, delta=DELTA, sensitivity=1.0),
            variables=tuple(study.schema[position].name for position in study.schema.owned_by(party)),
            readers=tuple(name for name in study.parties if name != party),
        )


KIND = EventKind(
    name="noisy-count",
    event=NoisyCount,
    cost=lambda event: Cost(epsilon=event.epsilon, delta=event.delta),
    words=lambda event: (
        f"noise was added to the number of common people: epsilon {event.epsilon:g}, delta {event.delta:g}"
    ),
    of_study=caused,
)


# ---- what a party states, and the release that is made of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What a party signs.

    Attributes:
        number: of common people, with its noise; it can be negative.
    """

    party: str
    effective_sha256: Annotated[bytes, 32]
    number: int
    computed_at: dt.datetime


def count_of(body: bytes, study: Study, party: str) -> Count:
    """A party's statement of a study.

    Raises:
        PeerFault: MESSAGE_INVALID, STUDY_MISMATCH.
    """
    count = decode(Count, body, source="count", limit=_LIMIT)
    if (count.party, count.effective_sha256) != (party, canonical.digest(study)):
        raise PeerFault("STUDY_MISMATCH", f"count of '{count.party}': of another party or study than that of '{party}'")
    return count


def people(counts: Sequence[Count]) -> int:
    return max(1, round(sum(count.number for count in counts) / len(counts)))


def nothing_learned(study: Study) -> tuple[Network, tuple[Marginal, ...]]:
    """Every category is as likely as any other, and nothing is estimated."""
    families: list[Family] = []
    marginals: list[Marginal] = []
    for position, variable in enumerate(study.schema.variables):
        even, unknown = (
            np.full((1, variable.n_states), 1 / variable.n_states),
            np.full((1, variable.n_states), math.nan),
        )
        families.append(
            Family(
                child=position,
                parents=(),
                probability=even,
                estimate=unknown,
                standard_error=unknown,
                interval_low=unknown,
                interval_high=unknown,
                unstable=np.ones((1, variable.n_states), dtype=np.bool_),
            )
        )
        marginals.append(
            Marginal(
                variable=position,
                estimate=unknown[0],
                standard_error=unknown[0],
                interval_low=unknown[0],
                interval_high=unknown[0],
                model=even[0],
            )
        )
    dag = Dag(parents=((),) * len(study.schema))
    return Network(schema=study.schema, dag=dag, families=tuple(families)), tuple(marginals)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSection(Section):
    """The numbers, for the report."""

    counts: tuple[tuple[str, int], ...]
    sigma: str


class CountingRelease(ReleaseProtocol):
    """Every party's signed number."""

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        return {"counts": [signed_document(statement) for statement in content.statements]}

    def check(
        self, manifest: Node, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        counts: list[Count] = []
        nodes = manifest["counts"].items()
        if len(nodes) != len(study.parties):
            manifest["counts"].fail(f"{len(nodes)} counts, expected one of each of {', '.join(study.parties)}")
        for node, party in zip(nodes, study.parties, strict=True):
            signed = signed_statement(node)
            try:
                count = count_of(signed.body, study, party)
            except PeerFault as error:
                node.fail(error.message)
            at = count.computed_at
            trust.signer(signed, role=Role.PARTY, name=party, at=at, where=node.where)
            counts.append(count)
        if (got := manifest["n_common"].integer()) != people(counts):
            manifest["n_common"].fail(f"got {got}, the parties' numbers give {people(counts)}")
        return Checked(statements=len(counts))

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> CountSection:
        counts = [
            count_of(signed.body, content.study, party)
            for signed, party in zip(content.statements, content.study.parties, strict=True)
        ]
        return CountSection(
            figures=(("The number of people (ε, δ)", f"{EPSILON:g}, {DELTA:g}", "of each organisation"),),
            share="not estimated",
            noisy=True,
            no_pairs="Nothing is known of pairs.",
            evidence="each organisation's number as it signed it",
            counts=tuple((count.party, count.number) for count in counts),
            sigma=f"{SIGMA:.2f}",
        )

    def template(self) -> str:
        return (
            '<section aria-labelledby="what"><h2 id="what">1. What this is</h2><ul>{% for party, number in section.counts %}'
            "<li>{{ party }} counted {{ number }} people in common, with noise of standard deviation {{ section.sigma }}.</li>"
            '{% endfor %}</ul></section><section aria-labelledby="privacy"><h2 id="privacy">2. What anybody can learn</h2>'
            "<p>No column was sent.</p></section>"
        )


# ---- what a party does


def next_step(facts: Facts) -> Plan:
    if (found := until_common(facts)) is not None:
        return found
    if facts.party not in facts.statements:
        return Plan(step=Step.LEARN, state=State.LEARNING, stage="counting")
    if facts.statements < set(facts.parties):
        return Plan(step=Step.COLLECT, state=State.LEARNING, stage="collecting numbers")
    if not facts.assembled:
        return Plan(step=Step.ASSEMBLE, state=State.REVIEW, stage="assembling the release")
    return Plan(step=Step.SIGN, state=State.REVIEW, stage="comparing releases")


class CountingStudy(PeerStudy):
    """The work on one study."""

    def next_step(self, facts: Facts) -> Plan:
        return next_step(facts)

    async def carry_on(self, step: StrEnum, context: PeerStudyContext) -> str | None:
        if step is Step.LEARN:
            return await state_number(context)
        if step is Step.COLLECT:
            return await all_of(collect(context, name) for name in context.others if name not in self.facts.statements)
        if step is Step.ASSEMBLE:
            await context.node.heavily(lambda: assemble(context))
            return None
        return await super().carry_on(step, context)


async def state_number(context: PeerStudyContext) -> None:
    """Count, add the noise, sign, and keep it together with its rows in the ledger."""
    holding, _ = await context.common_people()
    n_common, common_sha256 = context.common
    (planned,) = caused(context.study, context.me)

    def state() -> None:
        key = share_key(
            context.node.site.site_secret,
            effective_digest=context.effective_digest,
            structure_sha256=b"",
            common_sha256=common_sha256,
            data_fingerprint=data_fingerprint(holding),
        )
        noise = ShareNoise(key=key, epsilon=EPSILON, delta=DELTA, n_tables=1)
        count = Count(
            party=context.me,
            effective_sha256=context.effective_digest,
            number=int(noise.add(b"common people", np.array([float(n_common)]))[0]),
            computed_at=context.node.clock().replace(microsecond=0),
        )
        signed = context.node.signing_key.sign(encode(count)).SerializeToString(deterministic=True)
        basis = hashlib.sha256(context.effective_digest + common_sha256).digest()
        drawn = statistics(context, holding, planned.event, basis=basis, noise=hashlib.sha256(NAME.encode()).digest())
        store_shared(context, drawn, kind=Kind.STATEMENT, name=context.me, content=signed, recipient=EVERYONE)

    await context.node.heavily(state)


async def collect(context: PeerStudyContext, name: str) -> None:
    """Get the number of a peer, and keep it when it is one of this study."""

    def call(offset: int) -> peer_pb2.GetParametersRequest:
        return peer_pb2.GetParametersRequest(effective_digest=context.effective_digest, offset=offset)

    body = await context.peers.ask(
        name,
        lambda peer: fetch_bytes(lambda at: peer.get_parameters(call(at)), limit_bytes=_LIMIT, what="the number"),
        what="the number",
    )
    try:
        signed = common_pb2.Signed.FromString(body)
        context.node.verify(signed, role=Role.PARTY, name=name)
        count_of(signed.body, context.study, name)
    except VerticilError as error:
        raise PeerFailedError(context.named(error, name)) from None
    await asyncio.to_thread(context.store.put, context.digest, Kind.STATEMENT, body, name)


def assemble(context: PeerStudyContext) -> None:
    """Write the release of everybody's numbers, and sign it."""
    study = context.study
    signed: list[SignedStatement] = [
        common_pb2.Signed.FromString(context.store.read(context.digest, Kind.STATEMENT, name)) for name in study.parties
    ]
    counts = [count_of(item.body, study, party) for item, party in zip(signed, study.parties, strict=True)]
    network, marginals = nothing_learned(study)
    codes, synthetic = released_records(network, study, people(counts))
    content = ReleaseContent(
        study=study,
        study_digest=context.digest.hex(),
        effective_digest=context.effective_digest.hex(),
        network=network,
        marginals=marginals,
        synthetic=synthetic,
        codes=codes,
        n_common=people(counts),
        receipts=(),
        statements=tuple(signed),
        provenance={"software": context.between.software},
        search=context.structure.search,
        simulation=context.between.simulation,
        seed_derived=context.between.seed_derived,
        published_at=max(count.computed_at for count in counts),
    )
    write_and_sign(context, content)


def register_all() -> None:
    """Add the protocol and its event: the same calls as the product's own lines."""
    register(Counting())
    register_release(NAME, CountingRelease())
    events.register(KIND)
    register_party(
        NAME,
        lambda: PartyProtocol(
            between_parties=CountingStudy,
            reconciler=Reconciler(evidence={KIND.name: "nobody keeps a proof of it"}),
            serves={"GetPseudonyms", "GetParameters", "GetSignature"},
        ),
    )
