"""What a node knows of a round: plan, folder, keys, what all have said, and the messages that it can read."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from verticil.shared.core.errors import PeerFault
from verticil.shared.documents import record
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.derivation import RoundName
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.documents import DOCUMENT_BYTES, Hello, Packets, Statement
from verticil.shared.masked.round.pair_products import PairWork, People, RowsWork
from verticil.shared.masked.round.round_store import RoundFolder
from verticil.shared.masked.round.schedule import (
    About,
    Check,
    Kind,
    Message,
    Pair,
    Triple,
    checks_of,
    groups_of,
    messages_of,
    pairs_of,
    triples_of,
)
from verticil.shared.masked.round.sealed_messages import Credentials, Mail, signing_key_of
from verticil.shared.masked.round.secrets import SETS, PairSecrets, Secrets
from verticil.shared.masked.round.triple_products import TripleWork
from verticil.wire.v1 import common_pb2

_UNBOUND = frozenset({Kind.HELLO})
_BOUND_TO_T0 = frozenset({Kind.AGREED, Kind.SEED, Kind.PRODUCT, Kind.STATEMENT})


@dataclass(kw_only=True, eq=False)
class RoundState:
    """Of one node.

    Attributes:
        plan: of the round.
        me: this node's name.
        folder: its files.
        credentials: its keys.
        given: a party's people; None: it is the miner.
    """

    plan: Plan
    me: str
    folder: RoundFolder
    credentials: Credentials
    given: People | None
    _secrets: Secrets | None = field(default=None, init=False)
    _works: dict[int, PairWork] = field(default_factory=dict, init=False)
    _triple_works: dict[int, TripleWork] = field(default_factory=dict, init=False)
    _arriving: dict[int, Path] = field(default_factory=dict, init=False)

    @cached_property
    def plan_sha256(self) -> bytes:
        """Of the plan's canonical bytes."""
        return hashlib.sha256(record.encode(self.plan)).digest()

    @cached_property
    def name(self) -> RoundName:
        """Name that says which round it is."""
        return RoundName(study=self.plan.study, round=self.plan.round)

    @cached_property
    def mail(self) -> Mail:
        """Seals and opens the round's messages."""
        return Mail(self.plan, self.plan_sha256, self.me, self.credentials)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs of parties of the plan."""
        return pairs_of(self.plan)

    @cached_property
    def own_pairs(self) -> tuple[Pair, ...]:
        """Those that this node is a party of."""
        return tuple(pair for pair in self.pairs if self.me in pair.parties)

    @cached_property
    def triples(self) -> Mapping[int, Triple]:
        """Of the plan, by the index of the table."""
        return {triple.table: triple for triple in triples_of(self.plan)}

    @cached_property
    def own_triples(self) -> tuple[Triple, ...]:
        """Those that this node is a party of."""
        return tuple(triple for triple in self.triples.values() if self.me in triple.parties)

    @cached_property
    def checks(self) -> Mapping[About, Check]:
        """By what they are about."""
        return {check.about: check for check in checks_of(self.plan)}

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Messages of the plan, all of them."""
        return messages_of(self.plan)

    @cached_property
    def contributors(self) -> tuple[str, ...]:
        """All parties, and the miner."""
        return (*self.plan.parties, self.plan.miner)

    @property
    def is_party(self) -> bool:
        """Whether this node holds data."""
        return self.me in self.plan.parties

    @property
    def people(self) -> People:
        """People of this party, by their columns."""
        if self.given is None:
            raise ValueError("a party without its people, expected them where it is made")
        return self.given

    # ---- what was drawn, and what was said

    @property
    def secrets(self) -> Secrets:
        """What this node drew.

        Raises:
            PeerFault: STATE_CORRUPT is the folder's; it was forgotten, or lost: the round cannot go on.
        """
        if self.stored_secrets is None:
            raise PeerFault(
                "STUDY_MISMATCH",
                "masked tables: what this node drew for the round is not there any more",
                hint="a round whose secrets are lost ends; submit the study again under a new id, with a new approval",
            )
        return self.stored_secrets

    @property
    def stored_secrets(self) -> Secrets | None:
        """The same; None: it was forgotten, or not drawn yet."""
        if self._secrets is None:
            self._secrets = self.folder.secrets
        return self._secrets

    def keep(self, secrets: Secrets) -> None:
        """Write the secrets down, in place of those that are there."""
        self.folder.keep(secrets)
        self._secrets = secrets

    def forget_secrets(self) -> None:
        """Delete the secrets of the round."""
        self.folder.forget_secrets()
        self._secrets = None

    @cached_property
    def own_hello(self) -> bytes:
        """The body that this node says to all; after it was made."""
        return self._body("hello.json")

    @cached_property
    def own_statement(self) -> bytes:
        """The body of a party's statement; after it was made."""
        return self._body("statement.json")

    def _body(self, name: str) -> bytes:
        content = self.folder.read(name)
        if content is None:
            raise ValueError(f"{name} is not made yet")
        return content

    @cached_property
    def hello_bodies(self) -> Mapping[str, bytes]:
        """By name, of all contributors; after all came."""
        return {self.me: self.own_hello} | self._bodies_of(Kind.HELLO)

    @cached_property
    def hellos(self) -> Mapping[str, Hello]:
        """Hellos of all nodes, as read."""
        return {name: hello_of(body, name) for name, body in self.hello_bodies.items()}

    @cached_property
    def statement_bodies(self) -> Mapping[str, bytes]:
        """By name, of all parties; after all came."""
        own = {self.me: self.own_statement} if self.is_party else {}
        return own | self._bodies_of(Kind.STATEMENT)

    @cached_property
    def statements(self) -> Mapping[str, Statement]:
        """Statements of all parties, as read."""
        return {
            name: record.decode(Statement, body, source=f"the statement of '{name}'")
            for name, body in self.statement_bodies.items()
        }

    def _bodies_of(self, kind: Kind) -> dict[str, bytes]:
        return {
            message.sender: common_pb2.Signed.FromString(
                *self.read(message, [DOCUMENT_BYTES])
            ).body  # as it was verified
            for message in self.all_incoming(kind)
        }

    @cached_property
    def t0(self) -> bytes:
        """The first transcript; after it was written."""
        return self._body("t0")

    @cached_property
    def t1(self) -> bytes:
        """Second transcript of the round."""
        return self._body("t1")

    def transcript(self, kind: Kind) -> bytes:
        """Return the transcript that messages of a kind are bound to."""
        if kind in _UNBOUND:
            return b""
        return self.t0 if kind in _BOUND_TO_T0 else self.t1

    # ---- messages

    def read(self, message: Message, sizes: Sequence[int]) -> Iterator[bytes]:
        """Read the frames of a message that came, of these sizes at most, bytes."""
        path = self._arriving.get(message.index) or self.folder.arrival_path(message.index)
        return self.mail.open_frames(path, message, self.transcript(message.kind), self.stored_secrets, sizes)

    @contextlib.contextmanager
    def arriving(self, message: Message, path: Path) -> Generator[None]:
        """Within the block a message is read from where it came."""
        self._arriving[message.index] = path
        try:
            yield
        finally:
            del self._arriving[message.index]

    def message(self, kind: Kind, about: About, sender: str = "") -> Message:
        """Return the one message of this kind for this node about this; `sender` where there are several."""
        messages = [
            message
            for message in self._by_kind.get(kind, ())
            if message.about == about and sender in {"", message.sender}
        ]
        if len(messages) != 1:
            raise ValueError(f"{len(messages)} messages '{kind}' of {about}, expected one")
        return messages[0]

    def all_incoming(self, kind: Kind) -> Sequence[Message]:
        """Return every message of a kind for this node."""
        return self._by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> Mapping[Kind, list[Message]]:
        messages_of_kind: dict[Kind, list[Message]] = {}
        for message in self.messages:
            if message.recipient == self.me:
                messages_of_kind.setdefault(message.kind, []).append(message)
        return messages_of_kind

    def pair(self, number: int) -> Pair:
        """Return a pair of the plan."""
        return self.pairs[number]

    def work(self, number: int) -> PairWork:
        """Return the arithmetic of a pair; after T0."""
        if number not in self._works:
            self._works[number] = PairWork(self.plan, self.pair(number), self.t0)
        return self._works[number]

    def triple_work(self, table: int) -> TripleWork:
        """Return the arithmetic of a triple; after T0."""
        if table not in self._triple_works:
            self._triple_works[table] = TripleWork(self.plan, self.triples[table], self.t0)
        return self._triple_works[table]

    # ---- masked rows, of a pair or a triple

    def rows_work(self, of: Message | Check) -> RowsWork:
        """Return the arithmetic of the rows that a message or a check is about."""
        if of.table < 0:
            return self.work(of.pair)
        return self.triple_work(of.table).rows(of.owner, self._reader(of))

    def _reader(self, of: Message | Check) -> str:
        """Return who checks the rows, where it is of some check; else one who gets them."""
        return of.verifier or self.triples[of.table].others(of.owner)[0]

    def rows_secrets(self, of: Message | Check) -> PairSecrets:
        """Return what this node drew for its own rows."""
        if of.table < 0:
            return self.secrets.pairs[str(of.pair)]
        return self.secrets.triples[str(of.table)].against(self._reader(of))

    def rows_people(self, of: Message | Check) -> People:
        """Return what this node's people have in these rows."""
        return self.people if of.table < 0 else self.triple_work(of.table).own_unit(self.me, self.people)

    def rows_committed(self, of: Message) -> bytes:
        """Return the owner's commitment to the masked rows."""
        statement = self.statements[of.owner]
        return statement.masked[str(of.pair)] if of.table < 0 else statement.triples[str(of.table)].masked

    def own_packets(self, about: About) -> tuple[Packets, ...]:
        """Return this party's commitments to the packets of all runs of a check of its rows; none where nobody checks
        them.
        """
        packets = []
        for run in range(RUNS):
            check = self.checks.get(about._replace(run=run))
            if check is not None:
                of, work = self.rows_secrets(check).runs[run], self.rows_work(check)
                to_verifier, to_dealer = (of.verifier_seed, of.verifier_salt), (of.dealer_seed, of.dealer_salt)
                corrections = work.corrections(self.me, of, run)
                packets.append(
                    Packets(
                        verifier=work.packet_commitment(self.me, check.verifier, run, to_verifier),
                        dealer=work.packet_commitment(self.me, check.dealer, run, to_dealer, corrections),
                    )
                )
        return tuple(packets)

    def packets_committed(self, check: Check) -> Packets:
        """Return the owner's commitments to the packets of a check."""
        statement = self.statements[check.owner]
        if check.table < 0:
            return statement.packets[str(check.pair)][check.run]
        return statement.triples[str(check.table)].packets[check.verifier][check.run]


def hello_of(body: bytes, name: str) -> Hello:
    """Decode a hello; raises as `verticil.shared.documents.record.decode`."""
    return record.decode(Hello, body, source=f"the hello of '{name}'")


def check_hellos(standing: RoundState) -> None:
    """See that all hellos say what this node says: one plan, one list, one set of pins.

    Raises:
        PeerFault: STUDY_MISMATCH, ALIGNMENT_MISMATCH or MESSAGE_INVALID, naming who differs; nothing has left.
    """
    plan, mine = standing.plan, standing.hellos[standing.me]
    orders = {name: hello.order for name, hello in standing.hellos.items() if name in plan.parties}
    reference = orders.get(standing.me, next(iter(orders.values())))
    for name, hello in standing.hellos.items():
        for what, theirs, own in (
            ("study", hello.study, plan.study),
            ("round", hello.round, plan.round),
            ("name", hello.name, name),
            ("plan", hello.plan, mine.plan),
        ):
            if theirs != own:
                raise _differs(name, what)
        if name in orders and (hello.order != reference or len(hello.order) != 32 or len(hello.data) != 32):
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"masked tables: '{name}' has the common people in another order than '{standing.me}'",
                hint="nothing has left; its operator should look whether its table or linkage key changed",
            )
        if hello.pins != mine.pins:
            other = next((key for key in mine.pins if hello.pins.get(key) != mine.pins[key]), None)
            raise _differs(name, "list of pinned keys" if other is None else f"pinned sealing key of '{other}'")
        pairs = {str(pair.number) for pair in standing.pairs if name in pair.parties}
        triples = {str(table): SETS for table, triple in standing.triples.items() if name in triple.parties}
        deals = name == plan.miner and any(group.dealer == name for group in groups_of(plan))
        if (
            set(hello.masks) != pairs
            or {table: len(sets) for table, sets in hello.triples.items()} != triples
            or bool(hello.dealing) != deals
            or bool(hello.padding) != (name in plan.parties)
        ):
            raise _differs(name, "commitments or keys of the round")
    _check_keys(standing.hellos)


def _check_keys(hellos: Mapping[str, Hello]) -> None:
    """Check that no two keys are one, and none is a point of small order, with which nothing can be kept secret."""
    probe, owners = X25519PrivateKey.generate(), dict[bytes, str]()
    for name, hello in hellos.items():
        for key in filter(None, (hello.sealing, hello.dealing, hello.padding)):
            if owners.setdefault(key, name) != name or [hello.sealing, hello.dealing, hello.padding].count(key) > 1:
                raise PeerFault(
                    "MESSAGE_INVALID", f"masked tables: a key of the round of '{name}' is '{owners[key]}''s, too"
                )
            if int.from_bytes(key, "little") >= 2**255 - 19:  # the same point has another encoding
                raise PeerFault("MESSAGE_INVALID", f"masked tables: a key of the round of '{name}' is not canonical")
            try:
                probe.exchange(X25519PublicKey.from_public_bytes(key))
            except ValueError:
                raise PeerFault(
                    "MESSAGE_INVALID", f"masked tables: a key of the round of '{name}' is a point of small order"
                ) from None


def _differs(name: str, what: str) -> PeerFault:
    return PeerFault(
        "STUDY_MISMATCH",
        f"masked tables: the hello of '{name}': its {what} is not what it is here",
        hint="nothing has left; the same federation.toml and the same version of verticil belong at every site",
    )


def check_statement(statement: Statement, name: str, standing: RoundState) -> None:
    """See that a statement has what the plan asks for.

    Raises:
        PeerFault: MESSAGE_INVALID or STUDY_MISMATCH.
    """
    pairs = {str(pair.number) for pair in standing.pairs if name in pair.parties}
    runs = {
        pair: sum(check.owner == name and str(check.pair) == pair for check in standing.checks.values())
        for pair in pairs
    }
    n_runs = 0 if name in standing.plan.unchecked else RUNS
    triples = {
        str(table): (
            32 * (name == triple.parties[-1]),
            {verifier: n_runs for verifier in triple.others(name) if n_runs},
        )
        for table, triple in standing.triples.items()
        if name in triple.parties
    }
    counts = {
        table: (len(of.dealt), {verifier: len(packets) for verifier, packets in of.packets.items()})
        for table, of in statement.triples.items()
    }
    if (
        statement.name != name
        or statement.transcript != standing.t0
        or set(statement.masked) != pairs
        or {pair: len(packets) for pair, packets in statement.packets.items()} != runs
        or counts != triples
    ):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"masked tables: the statement of '{name}' is not one of this round",
            hint="the same version of verticil belongs at every site; the round ends",
        )


def signing_key_matches(signed: common_pb2.Signed, hello: Hello) -> bool:
    """Return whether the signer is who the hello says."""
    return signing_key_of(signed.certificate) == hello.signing
