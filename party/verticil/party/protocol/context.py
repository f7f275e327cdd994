"""What all studies at this party share, and what a step of a study works with, in every protocol: the approval that still binds,
the people's data, the common people.

Promises
- Before each act (a draw, a charge, a list, a column, a message of a round, a signature, a countersignature) the approval is
  checked again (`agreement`): that nobody here has stopped the study; study, own declaration, policy, expiry, and who gave it;
  until the first charge the accounts' limits; the number of common people and, once columns are drawn, the site secret.
- Before the first pseudonym, before randomization and before learning the data are checked, too (`DatasetCache.read_approved`).
- A second common list for a study is refused (`StudyContext.require_same_common`), and nothing about the common people leaves
  before they were compared with those of earlier studies (`StudyContext.accept_people`).

Accepting a common list: who is in it is compared with who was in earlier studies, and remembered.

What is remembered, and why, stands in `verticil.party.audit.common_sets`. The site's people read of a small difference in
the log, in `verticil party status` and in the audit log; where the policy says so the study ends instead. Others receive no
more than that, not which study it was.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.log import Event, What
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.dataset.pseudonyms import check_own_size
from verticil.party.limits.limits import find_objections, refuse
from verticil.party.local_dataset import LocalDataset, columns_of
from verticil.party.policy import approval_checks
from verticil.party.protocol.planning import AskedAgainError, StoppedError
from verticil.party.protocol.randomization import Spool, fill_spool
from verticil.party.site import Site
from verticil.party.storage.secret import secret_id
from verticil.party.storage.studies import WAITS_AGAIN, StudyRecord
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.core.health import Waiting
from verticil.shared.documents.progress import Meter
from verticil.shared.federation.alignment.statements import blinded_body, check_statement, common_body, sender
from verticil.shared.federation.audit import DAEMON
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.study.approval import Approval, held_approval
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2, peer_pb2

T = TypeVar("T")
Rows = NDArray[np.int64]

_log = logging.getLogger(__name__)


def without_stop(work: Callable[[], T]) -> T:
    """Do work in a thread whose result is awaited: a `StopIteration` out of it would leave who awaits waiting for ever."""
    try:
        return work()
    except StopIteration as error:
        raise RuntimeError("work ended with StopIteration") from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartyContext:
    """What all studies at this party share.

    Attributes:
        site: opened state.
        spool: released bytes.
        signing_key: signs approvals.
        revocations: the deny-list.
        authority: certificate of the federation's CA, PEM.
        clock: UTC now.
        heavy: held during CPU work, so that studies take turns.
        waiting: what waits for room on this disk.
        approved_there: studies of which the miner has shown this party's own signed approval, since this process began.
    """

    site: Site
    spool: Spool
    signing_key: SigningKey
    revocations: Revocations = EMPTY_DENY_LIST
    authority: bytes
    clock: Callable[[], dt.datetime]
    heavy: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: Waiting = field(default_factory=Waiting)
    approved_there: set[bytes] = field(default_factory=set)

    @property
    def me(self) -> str:
        """The name of this party."""
        return self.site.config.name

    def has_approved(self, digest: bytes) -> bool:
        """Return whether this party's approval of a study is known: here, or as the miner has shown it. Blocks."""
        state = self.site.state
        return digest in self.approved_there or (state.knows(digest) and state.study(digest).approval is not None)

    async def heavily(self, work: Callable[[], T]) -> T:
        """Do CPU work in a thread; studies take turns."""
        async with self.heavy:
            return await asyncio.to_thread(lambda: without_stop(work))

    def verify(self, signed: common_pb2.Signed, *, role: Role, name: str | None = None) -> None:
        """Check that a node of this federation signed, with a certificate that counts now; raises as `verify_signed`."""
        verify_signed(signed, self.authority, role=role, name=name, at=self.clock(), deny_list=self.revocations.since())

    def check_statement(self, signed: common_pb2.Signed, body: bytes, *, party: str, what: str) -> None:
        """Check that `party` signed exactly `body`; raises as
        `verticil.shared.federation.alignment.statements.check_statement`."""
        at, revocations = self.clock(), self.revocations.since()
        check_statement(signed, body, authority=self.authority, party=party, at=at, what=what, deny_list=revocations)

    def fail(self, digest: bytes, error: VerticilError) -> None:
        """Record that this party cannot go on with a study; the first failure stays. Blocks."""
        record, at = self.site.state.study(digest), self.clock()
        with self.site.database.transaction():
            if record.failure is None:
                detail = f"{error.code}, as {error.teller} says" if error.teller else error.code
                event = Event(what=What.FAILURE, who=DAEMON, study=digest, study_id=record.study_id, detail=detail)
                self.site.audit.record(event, at)
            self.site.state.fail(digest, error, at)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreed:
    """An approval that still binds, and what was approved.

    Attributes:
        approval: this party's.
        study: the proposal with this party's declaration.
        effective: with everybody's.
    """

    approval: Approval
    study: Study
    effective: Study

    def minimum(self, site: Site) -> int:
        """Fewest common people: the largest of what the study, the approval and the policy ask for."""
        return max(
            self.study.linkage.minimum_common_records,
            self.approval.minimum_common_records,
            site.config.policy.minimum_common_records,
        )


def agreement(site: Site, record: StudyRecord, today: dt.date, *, giver: bool = True) -> Agreed:
    """Return the approval, if it still binds and the effective study is what was approved.

    Args:
        site: this party.
        record: a study that every party has approved.
        today: UTC.
        giver: whether it matters who gave the approval; not where a present approver decides about the act itself.

    Raises:
        StoppedError: the study was revoked or denied here since `record` was read.
        Refusal: APPROVAL_VOID, STUDY_EXPIRED, POLICY_REFUSED and the other objections of the present policy, to the study as
            approved or, without the parties that were left out, as it is carried out; BUDGET_EXCEEDED; LINKAGE_TOO_SMALL.
        PeerFault: STUDY_MISMATCH.
    """
    if record.digest in site.revocations.list_stopped():
        raise StoppedError
    own_approval = held_approval(record.approval or b"")
    study = site.voting.check_binding(record, today, giver=giver)
    task = record.task
    effective = approval_checks.check_effective(study, task.effective, task.effective_digest, site.config.name)
    if effective.left_out:  # fewer parties are another study for the policy
        columns = columns_of(site.config, effective)
        objections = find_objections(site.config.policy, effective, site.config.name, columns, today=today)
        refuse(objections, effective.id)
    agreed_study = Agreed(approval=own_approval, study=study, effective=effective)
    site.ledger.check_reserved(record.digest, site.config.policy)
    _check_common(record, agreed_study.minimum(site))
    _check_secret(site, record, study)
    return agreed_study


def _check_common(record: StudyRecord, minimum: int) -> None:
    """Check that there are enough common people; a minimum can be raised after they were found."""
    if record.n_common is not None and record.n_common < minimum:
        raise Refusal(
            "LINKAGE_TOO_SMALL",
            f"study '{record.study_id}': the parties have {record.n_common} records in common, expected at least {minimum}",
            hint="the limit is policy.minimum_common_records in party.toml",
        )


def _check_secret(site: Site, record: StudyRecord, study: Study) -> None:
    """Check that the columns that were drawn for the study were drawn with the present site secret."""
    artifacts = site.state.artifacts(record.digest, record.task.effective_digest).values()
    if {ColumnDraw.from_json(item.facts).secret_id for item in artifacts} - {secret_id(site.site_secret)}:
        raise approval_checks.void(study, "its columns were drawn with another site secret")


def ask_again(node: PartyContext, record: StudyRecord, why: str) -> None:
    """Forget an approval that nobody else has, or has any more, and that does not hold here: the people are asked anew. Blocks.

    Args:
        node: this party.
        record: the study.
        why: what does not hold, in words.
    """
    event = Event(what=What.APPROVAL_VOID, who=DAEMON, study=record.digest, study_id=record.study_id, detail=why)
    with node.site.database.transaction():
        node.site.audit.record(event, node.clock())
        node.site.decisions.disapprove(record.digest, votes=True)
        node.site.state.show(record.digest, f"{WAITS_AGAIN}: {why}", at=node.clock())
    _log.warning("study '%s' waits for a new approval: %s", record.study_id, why)


class DatasetCache:
    """The people's data of one study: read once, checked against the approval each time, dropped when nothing needs them.

    Args:
        node: this party.

    Attributes:
        rows: the records of the common people, in the common order; None before they are found.
    """

    def __init__(self, node: PartyContext) -> None:
        self._node = node
        self._holding: LocalDataset | None = None
        self._is_sketched = False
        self.rows: Rows | None = None

    def drop(self) -> None:
        """Remove all data from the cache."""
        self._holding = self.rows = None
        self._is_sketched = False

    async def read(self, record: StudyRecord) -> LocalDataset:
        """Return the data as they are; raises as `Site.read`."""
        if self._holding is None:
            step = f"study '{record.study_id}': reading rows"
            meter = Meter(step, None, lambda told: _log.info("%s", told.text), every_seconds=10)
            self._holding = await self._node.heavily(lambda: self._node.site.read(record, meter.at))
        return self._holding

    async def read_approved(self, record: StudyRecord, agreed_study: Agreed) -> LocalDataset:
        """Return the data, if they are those that were approved.

        The new approval stays here. What others have of the old one are the declarations, which the new one repeats
        (`approval.stands`); the seals of the data, which differ, only this site can compare. A list of people that was sent stays
        the list: the common people are compared with it again before anything is randomized.

        Raises:
            AskedAgainError: they are others, and nothing was drawn from the former ones: the approval is forgotten.
            Refusal: APPROVAL_VOID, they are others, and noise was drawn for the former ones: one study is not about both;
                POLICY_REFUSED, they have fewer rows than the present policy asks for; LINKAGE_TOO_SMALL, fewer records than
                have to be common.
            DataFault, Misuse: as `Site.read`.
        """
        holding = await self.read(record)

        def check() -> None:
            site = self._node.site
            approval_checks.check_rows(site.config.policy, record.study_id, holding.n_rows)
            try:
                site.voting.check_data(record, agreed_study.approval, agreed_study.study, holding)
                if not self._is_sketched:
                    site.sketches.take(holding.tables, for_study=True)
                    self._is_sketched = True
            except Refusal as changed:
                if changed.code != "APPROVAL_VOID" or site.ledger.has_drawn(record.digest):
                    raise
                ask_again(self._node, record, changed.message)
                raise AskedAgainError from None
            check_own_size(holding.n_records, agreed_study.minimum(site))

        await self._node.heavily(check)
        return holding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StudyContext:
    """A study that every party has approved, as it stands when a step begins.

    Attributes:
        node: this party.
        record: what this party remembers of the study.
        agreed: the approval, which still binds.
        data: the people's data.
    """

    node: PartyContext
    record: StudyRecord
    agreed: Agreed
    data: DatasetCache

    @property
    def me(self) -> str:
        """The name of this party."""
        return self.node.me

    @property
    def digest(self) -> bytes:
        """SHA-256 of the proposal."""
        return self.record.digest

    @property
    def study(self) -> Study:
        """The effective study of the context."""
        return self.agreed.effective

    @property
    def effective_digest(self) -> bytes:
        """Names it on the wire."""
        return self.record.task.effective_digest

    @property
    def mode(self) -> str:
        """The kind of linkage."""
        return self.study.linkage.mode

    @property
    def minimum(self) -> int:
        """The fewest common people."""
        return self.agreed.minimum(self.node.site)

    @property
    def common(self) -> tuple[int, bytes]:
        """Size and SHA-256 of the common list; after it was accepted."""
        if self.record.n_common is None or self.record.common_sha256 is None:
            raise ValueError("the common list is not known yet")
        return self.record.n_common, self.record.common_sha256

    async def read_approved(self) -> LocalDataset:
        """Return the data, if they are those that were approved; raises as `DatasetCache.read_approved`."""
        return await self.data.read_approved(self.record, self.agreed)

    async def randomize(self, holding: LocalDataset, rows: Rows, units: Collection[int]) -> None:
        """Put own units into the spool; raises as `fill_spool`."""
        node, record, study = self.node, self.record, self.study
        await node.heavily(
            lambda: fill_spool(
                node.site, node.spool, record, effective=study, holding=holding, rows=rows, units=units, at=node.clock()
            )
        )

    def common_statement(self, party: str, n_common: int, common_sha256: bytes) -> bytes:
        """Return the body with which `party` signs the common list."""
        return common_body(
            mode=self.mode, study=self.digest, party=party, n_common=n_common, common_sha256=common_sha256
        )

    def commitment(
        self, n_common: int, common_sha256: bytes, nodes: Sequence[bytes] | None = None
    ) -> common_pb2.Commitment:
        """Return this party's signed commitment to the common list, or to the order of its rows.

        Args:
            n_common: people in it.
            common_sha256: names it.
            nodes: what others compare it by; None: they have the list, and only the statement is sent.
        """
        statement = self.node.signing_key.sign(self.common_statement(self.me, n_common, common_sha256))
        return common_pb2.Commitment(statement=statement, nodes=nodes, n_records=0 if nodes is None else n_common)

    def row_order(self, holding: LocalDataset) -> common_pb2.Commitment:
        """Return this party's commitment to the order of its table's rows."""
        tree = holding.row_order
        return self.commitment(tree.n_records, tree.root, tree.nodes)

    def blinded_step(self, owner: int, hop: int, data: bytes) -> peer_pb2.BlindedStep:
        """Return what this party signs of the list of `owner` as it blinded it at its `hop`: size, SHA-256 and statement."""
        size, sha256 = len(data), hashlib.sha256(data).digest()
        body = blinded_body(
            study=self.digest, owner=self.study.parties[owner], hop=hop, party=self.me, size=size, sha256=sha256
        )
        return peer_pb2.BlindedStep(size=size, sha256=sha256, statement=self.node.signing_key.sign(body))

    def wrong_list(self, owner: int, hop: int, problem: str) -> PeerFault:
        """Return a fault of the blinded list of `owner`, naming the party that sent it."""
        parties = self.study.parties
        return PeerFault(
            "MESSAGE_INVALID",
            f"blinded list of party '{parties[owner]}', hop {hop}, sent by party '{sender(parties, owner, hop)}': {problem}",
            hint="nothing was randomized; that party's operator should look at its log",
        )

    def require_same_common(self, common_sha256: bytes, problem: str, *, hint: str) -> None:
        """Refuse a second common list for a study.

        Args:
            common_sha256: of the list that is there now.
            problem: what it means that another one was accepted before.
            hint: for people.

        Raises:
            PeerFault: ALIGNMENT_MISMATCH.
        """
        if self.record.common_sha256 not in {None, common_sha256}:
            raise PeerFault("ALIGNMENT_MISMATCH", f"study '{self.record.study_id}': {problem}", hint=hint)

    def accept_people(self, holding: LocalDataset, rows: Rows, common_sha256: bytes) -> None:
        """Write down that this party accepts a common list, and compare its people with those of earlier studies; blocks.

        Accepting the same people again, as after an answer that crossed the confirmation, compares them again and writes nothing.

        Args:
            holding: all people.
            rows: the common ones.
            common_sha256: of the common list, as all parties know it.

        Raises:
            Refusal: COMMON_SET_TOO_SIMILAR, COMMON_SETS_FULL, where the policy refuses that; nothing was stored.
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        site, record = self.node.site, self.record
        policy, sets = site.config.policy, site.common_sets
        people = sets.people(holding.keys, rows)
        similar = sets.similar(record.digest, people, minimum=policy.minimum_difference)
        is_known = sets.keeps(record.digest, people, similar)
        has_room = not policy.minimum_difference or sets.has_room(people, policy.max_common_sets)
        refuses = policy.on_small_difference == "refuse"
        if similar and (not is_known or refuses):
            others = ", ".join(" with ".join(map(_quote_names, item.digests, item.study_ids)) for item in similar)
            what = "are left of" if any(len(item.digests) > 1 for item in similar) else "are in only one of"
            text = f"fewer than {policy.minimum_difference} people {what} this study and {others}"
            hint = "releases about nearly the same people tell their difference; see policy.minimum_difference"
            self._object("COMMON_SET_TOO_SIMILAR", What.SIMILAR_PEOPLE, text, common_sha256, hint=hint)
        if not has_room and (record.common_sha256 != common_sha256 or refuses):
            text = f"all {policy.max_common_sets} places for sets of people are taken"
            hint = "the people of a further set would not be remembered; a larger policy.max_common_sets makes room"
            self._object("COMMON_SETS_FULL", What.COMMON_SETS_FULL, text, common_sha256, hint=hint)
        if is_known or not has_room:
            return
        sets.remember(record.digest, people, similar)
        self._note(What.ALIGNMENT, f"{len(rows)} people in common", common_sha256)

    def _object(self, code: str, what: What, text: str, common_sha256: bytes, *, hint: str) -> None:
        """Write down what speaks against these people, and refuse them where the policy says so."""
        rule = self.node.site.config.policy.on_small_difference
        self._note(what, f"{rule}: {text}", common_sha256)
        if rule == "refuse":
            raise Refusal(code, f"study '{self.record.study_id}': {text}", hint=hint)
        _log.warning("study '%s': %s; %s", self.record.study_id, text, hint)

    def _note(self, what: What, detail: str, common_sha256: bytes) -> None:
        record, node = self.record, self.node
        event = Event(
            what=what, who=DAEMON, study=record.digest, study_id=record.study_id, sha256=common_sha256, detail=detail
        )
        node.site.audit.record(event, node.clock())


def _quote_names(digest: bytes, study_id: str) -> str:
    return f"{study_id} ({digest.hex()[:12]})"
