"""What a step of a study works with, in every protocol: the approval that still binds, the people's data, the common people.

Promises
- Before a step that sends something the approval is checked again: study, own declaration, policy, expiry (`agreement`); before
  the first pseudonym, before randomization and before learning the data, too (`DatasetCache.approved`).
- A second common list for a study is refused (`StudyContext.require_same_common`), and nothing about the common people leaves
  before they were compared with those of earlier studies (`StudyContext.accept_people`).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.log import Event, What
from verticil.party.dataset.local_dataset import Holding, columns_of
from verticil.party.policy import approval, policy
from verticil.party.protocol.central.intersection_check import accept_common_people
from verticil.party.protocol.node import Node
from verticil.party.protocol.planning import AskedAgainError
from verticil.party.site import Site
from verticil.party.storage.studies import WAITS_AGAIN, StudyRecord
from verticil.shared.alignment.statements import common_body
from verticil.shared.audit import DAEMON
from verticil.shared.errors import PeerFault, Refusal
from verticil.shared.study.approval import Approval, parse_approval
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2

Rows = NDArray[np.int64]

_log = logging.getLogger(__name__)


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


def agreement(site: Site, record: StudyRecord, today: dt.date) -> Agreed:
    """The approval, if it still binds and the effective study is what was approved.

    Args:
        site: this party.
        record: a study that every party has approved.
        today: UTC.

    Raises:
        Refusal: APPROVAL_VOID, STUDY_EXPIRED, POLICY_REFUSED and the other objections of the present policy, to the study as
            approved or, without the parties that were left out, as it is carried out.
        PeerFault: STUDY_MISMATCH.
    """
    given = parse_approval(record.approval or b"")
    approved = site.check_binding(record, today)
    task = record.task
    effective = approval.check_effective(approved, task.effective, task.effective_digest, site.config.name)
    if effective.left_out:  # fewer parties are another study for the policy
        columns = columns_of(site.config, effective)
        found = policy.objections(site.config.policy, effective, site.config.name, columns, today=today)
        policy.refuse(found, effective.id)
    return Agreed(approval=given, study=approved, effective=effective)


def ask_again(node: Node, record: StudyRecord, why: str) -> None:
    """Forget an approval that nobody else has, or has any more, and that does not hold here: the people are asked anew. Blocks.

    Args:
        node: this party.
        record: the study.
        why: what does not hold, in words.
    """
    event = Event(what=What.APPROVAL_VOID, who=DAEMON, study=record.digest, study_id=record.study_id, detail=why)
    with node.site.database.transaction():
        node.site.audit.record(event, node.clock())
        node.site.state.disapprove(record.digest, votes=True)
        node.site.state.show(record.digest, f"{WAITS_AGAIN}: {why}", at=node.clock())
    _log.warning("study '%s' waits for a new approval: %s", record.study_id, why)


class DatasetCache:
    """The people's data of one study: read once, checked against the approval each time, dropped when nothing needs them.

    Args:
        node: this party.

    Attributes:
        rows: the records of the common people, in the common order; None before they are found.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._holding: Holding | None = None
        self.rows: Rows | None = None

    def drop(self) -> None:
        """Forget them."""
        self._holding = self.rows = None

    async def read(self, record: StudyRecord) -> Holding:
        """The data as they are; raises as `Site.read`."""
        if self._holding is None:
            self._holding = await self._node.heavily(lambda: self._node.site.read(record))
        return self._holding

    async def approved(self, record: StudyRecord, agreed: Agreed) -> Holding:
        """The data, if they are those that were approved.

        The new approval stays here. What others have of the old one are the declarations, which the new one repeats
        (`Site.approve`); the seals of the data, which differ, only this site can compare. A list of people that was sent stays
        the list: the common people are compared with it again before anything is randomized.

        Raises:
            AskedAgainError: they are others, and nothing was drawn from the former ones: the approval is forgotten.
            Refusal: APPROVAL_VOID, they are others, and noise was drawn for the former ones: one study is not about both.
            DataFault, Misuse: as `Site.read`.
        """
        holding = await self.read(record)

        def check() -> None:
            site = self._node.site
            try:
                site.check_data(record, agreed.approval, agreed.study, holding)
            except Refusal as changed:
                if changed.code != "APPROVAL_VOID" or site.ledger.has_drawn(record.digest):
                    raise
                ask_again(self._node, record, changed.message)
                raise AskedAgainError from None

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

    node: Node
    record: StudyRecord
    agreed: Agreed
    data: DatasetCache

    @property
    def me(self) -> str:
        """This party's name."""
        return self.node.me

    @property
    def digest(self) -> bytes:
        """SHA-256 of the proposal."""
        return self.record.digest

    @property
    def study(self) -> Study:
        """The effective study."""
        return self.agreed.effective

    @property
    def effective_digest(self) -> bytes:
        """Names it on the wire."""
        return self.record.task.effective_digest

    @property
    def mode(self) -> str:
        """Of linkage."""
        return self.study.linkage.mode

    @property
    def minimum(self) -> int:
        """Fewest common people."""
        return self.agreed.minimum(self.node.site)

    @property
    def common(self) -> tuple[int, bytes]:
        """Size and SHA-256 of the common list; after it was accepted."""
        if self.record.n_common is None or self.record.common_sha256 is None:
            raise ValueError("the common list is not known yet")
        return self.record.n_common, self.record.common_sha256

    async def approved(self) -> Holding:
        """The data, if they are those that were approved; raises as `DatasetCache.approved`."""
        return await self.data.approved(self.record, self.agreed)

    def common_statement(self, party: str, n_common: int, common_sha256: bytes) -> bytes:
        """The body with which `party` signs the common list."""
        return common_body(
            mode=self.mode, study=self.digest, party=party, n_common=n_common, common_sha256=common_sha256
        )

    def commitment(
        self, n_common: int, common_sha256: bytes, nodes: Sequence[bytes] | None = None
    ) -> common_pb2.Commitment:
        """This party's signed commitment to the common list, or to the order of its rows.

        Args:
            n_common: people in it.
            common_sha256: names it.
            nodes: what others compare it by; None: they have the list, and only the statement is told.
        """
        statement = self.node.signing_key.sign(self.common_statement(self.me, n_common, common_sha256))
        return common_pb2.Commitment(statement=statement, nodes=nodes, n_records=0 if nodes is None else n_common)

    def row_order(self, holding: Holding) -> common_pb2.Commitment:
        """This party's commitment to the order of its table's rows."""
        tree = holding.row_order
        return self.commitment(tree.n_records, tree.root, tree.nodes)

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

    def accept_people(self, tags: NDArray[np.uint8], common_sha256: bytes) -> None:
        """Compare the common people with those of earlier studies and remember them; blocks, raises as `accept_common_people`."""
        node = self.node
        accept_common_people(node.site, self.record, tags, common_sha256=common_sha256, at=node.clock())
