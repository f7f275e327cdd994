"""What parties ask of the miner in linkage ``order-commitment`` and ``dh-psi``: row orders, blinded lists, statements.

A statement counts when its party signed it and it says exactly what the miner computes from what came with it; of masked
tables, whose parties link among themselves, it comes alone, and is compared with the others'
(`verticil.miner.storage.linkage`). A blinded list is taken from the party whose turn it is, and given to the next one only:
only the miner sees two lists, and the miner sees only blinded ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from verticil.miner.rules.session import Session
from verticil.miner.storage.intake import ArrivingList
from verticil.miner.storage.records import StoredBlinded, StoredList, StoredSignature, StudyRecord
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.merkle import Tree
from verticil.shared.federation.alignment.statements import (
    blinded_body,
    check_statement,
    common_body,
    parse_common,
    receiver,
    sender,
)
from verticil.shared.federation.transport.fetch import send_parts
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2, coordinator_pb2

Begun = tuple[ArrivingList[Any], StoredList]
"""A list that is on its way, and what is stored of it."""


def between_parties(record: StudyRecord) -> PeerFault:
    """Return the answer to a party that sends the miner of a masked study what belongs to the other parties only."""
    return PeerFault(
        "MESSAGE_INVALID",
        f"study '{record.study_id}': its tables are masked, expected neither lists nor columns at the miner",
        hint="the parties link among themselves; only sealed messages of the round come here",
    )


class Linking:
    """Answers for the modes of linkage other than pseudonyms.

    Args:
        session: the rules.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def commit(self, digest: bytes, party: str, commitment: common_pb2.Commitment) -> None:
        """Record a party's row order, or with dh-psi, or of masked tables, the common list that it accepts; blocks.

        Raises:
            PeerFault: MESSAGE_INVALID, not a tree, or not what the party signed; STUDY_MISMATCH, it stated another row order
                before; ALIGNMENT_MISMATCH, it found another common list; NOT_READY.
        """
        session, record = self._session, self._session.record(digest)
        session.position(record, party)
        study = session.current(record)
        mode, tree, masked = study.linkage.mode, None, opens_tables(study)
        if masked:
            statement = parse_common(commitment.statement.body)
            n_common, common_sha256 = statement.n_common, statement.common_sha256
        elif mode == "order-commitment":
            try:
                tree = Tree(n_records=commitment.n_records, nodes=tuple(commitment.nodes))
            except ValueError as error:
                raise PeerFault("MESSAGE_INVALID", f"row order of party '{party}': {error}") from None
            n_common, common_sha256 = tree.n_records, tree.root
        elif mode == "dh-psi":
            if party not in record.commitments:
                session.require_aligned(record, State.ALIGNING)
            n_common, common_sha256 = record.n_common or 0, record.common_sha256
        else:
            raise PeerFault("MESSAGE_INVALID", f"study '{record.study_id}': linkage '{mode}' has no commitments")
        body = common_body(mode=mode, study=digest, party=party, n_common=n_common, common_sha256=common_sha256)
        what = f"study '{record.study_id}': statement of the common list"
        if mode == "dh-psi" and not masked and commitment.statement.body != body:
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{record.study_id}': party '{party}' found another common list than the miner",
            )
        check_statement(
            commitment.statement,
            body,
            authority=session.authority,
            party=party,
            at=session.clock(),
            what=what,
            deny_list=session.revocations.since(),
        )
        former_statement = record.commitments.get(party)
        if former_statement is None:
            session.require(record, State.ALIGNING)
            is_new = session.catalogue.linkage.add_commitment(
                digest, party, StoredSignature.of(commitment.statement), tree=tree, confirms=masked or mode == "dh-psi"
            )
            former_statement = None if is_new else session.record(digest).commitments[party]
        if former_statement is not None and former_statement.body != body:
            raise PeerFault(
                "STUDY_MISMATCH",
                f"study '{record.study_id}': party '{party}' stated another row order or common list before",
                hint="the table or the linkage key changed after it was sent; the study must be submitted anew",
            )

    def begin(self, party: str, first: coordinator_pb2.PutBlindedRequest) -> Begun:
        """Begin a blinded list that a party sends, and say what is stored of it; blocks.

        Args:
            party: who sends it.
            first: the stream's first message.

        Raises:
            VerticilError: as `Intake.begin_list` says; NOT_OWNER, it is another party's turn.
        """
        session = self._session
        record, study = self._study(party, first.study_digest, first.owner, first.hop)
        turn = sender(study.parties, first.owner, first.hop)
        if party != turn:
            raise PeerFault(
                "NOT_OWNER", f"blinded list {first.owner}, hop {first.hop}: is sent by '{turn}', not by '{party}'"
            )
        present_list = record.blinded.get((first.owner, first.hop))
        if present_list is None or not present_list.complete:  # asking again for what is complete is always answered
            session.require(record, State.ALIGNING)
        body = blinded_body(
            study=record.digest,
            owner=study.parties[first.owner],
            hop=first.hop,
            party=party,
            size=first.size,
            sha256=first.sha256,
        )
        check_statement(
            first.statement,
            body,
            authority=session.authority,
            party=party,
            at=session.clock(),
            what="blinded list",
            deny_list=session.revocations.since(),
        )
        arriving = session.intake.blinded(record, study, first.owner, first.hop)
        new_list = StoredBlinded(size=first.size, sha256=first.sha256, statement=StoredSignature.of(first.statement))
        minimum = session.minimum(record)
        return arriving, session.intake.begin_list(arriving, record, study, new_list, minimum=minimum)

    async def get(
        self, party: str, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncGenerator[coordinator_pb2.BlindedPart, None]:
        """Give a blinded list to the party whose turn is next.

        Raises:
            PeerFault: NOT_READY; NOT_OWNER, it is for another party.
        """

        def look() -> tuple[Path, StoredBlinded]:
            record, study = self._study(party, request.study_digest, request.owner, request.hop)
            name = f"blinded list {request.owner}, hop {request.hop}"
            if receiver(study.parties, request.owner, request.hop) != party:
                raise PeerFault("NOT_OWNER", f"{name}: is not for '{party}'")
            self._session.require(record, State.ALIGNING, State.PREPARING, State.UPLOADING)
            present_list = record.blinded.get((request.owner, request.hop))
            if present_list is None or not present_list.complete:
                raise PeerFault("NOT_READY", f"{name}: is not there yet", hint="poll until it is")
            path = self._session.store.study(record.digest).blinded(request.owner, request.hop, complete=True)
            return path, present_list

        path, present_list = await asyncio.to_thread(look)
        statement = present_list.statement.message
        parts = send_parts(path, offset=request.offset, what="blinded list", sha256=present_list.sha256)
        async with contextlib.aclosing(parts):
            async for part in parts:
                yield coordinator_pb2.BlindedPart(part=part, statement=statement)

    def _study(self, party: str, digest: bytes, owner: int, hop: int) -> tuple[StudyRecord, Study]:
        record = self._session.record(digest)
        self._session.position(record, party)
        study = self._session.current(record)
        n_parties = len(study.parties)
        if opens_tables(study):
            raise between_parties(record)
        if study.linkage.mode != "dh-psi" or owner >= n_parties or hop >= n_parties:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"study '{record.study_id}': linkage '{study.linkage.mode}' of {n_parties} parties has no blinded list"
                f" {owner} behind hop {hop}",
            )
        return record, study
