"""What becomes of a study at its deadline while it waits for parties: a sub-model without them, or a named failure.

`verticil.shared.study.sub_model` says which absences can be left out, and why no others. Here stands when: at the deadline and
not before, even where everybody else has long been there, because until then the analyst can still cancel and ask anew; a denial
that the quorum bears is an absence like any other. The parties that remain have the declared time once more, from the decision.
There is one decision at most; a party that is missing after it ends the study.

The decision is one transaction (`verticil.miner.storage.catalogue_tables`), made from facts alone: a miner that dies before it
decides again from the facts that it then finds, one that dies after it goes on with the sub-model. The pseudonyms that a party
had sent before it was left out are deleted at the decision. All functions block.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import cast

from verticil.miner.rules import blocking_parties
from verticil.miner.rules.blocking_parties import left_out
from verticil.miner.rules.session import Session
from verticil.miner.storage.records import StudyRecord
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.record import encode
from verticil.shared.study import approval, canonical
from verticil.shared.study.document import Absence, LeftOut, Study
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State
from verticil.shared.study.sub_model import SubModel, obstacle


def discard_left_out(session: Session, record: StudyRecord) -> None:
    """Delete what came of the lists of parties that the study went on without; also what came while it was decided."""
    for item in left_out(record):
        if item.party in record.lists:
            session.intake.discard_list(session.intake.pseudonyms(record, session.proposal(record), item.party))


def at_deadline(session: Session, record: StudyRecord) -> bool:
    """Go on without the parties that are missing when the deadline has passed, or fail; whether a fact was added."""
    now = session.clock()  # before what is known is read: what was accepted until then is there
    record = session.latest(record)
    study, stage = session.current(record), session.state(record)
    absent = blocking_parties.overdue(study, record, stage, now, session.waited_for(record.digest))
    if not absent:
        return False
    why = _obstacle(study, record, stage, absent)
    if why is None:
        try:
            return _decide(session, record, absent)
        except Misuse as error:
            why = error.message
    end = blocking_parties.deadline(study, record)
    return session.catalogue.fail(record.digest, blocking_parties.deadline_passed(end, stage, absent, no_sub_model=why))


def _obstacle(study: Study, record: StudyRecord, stage: State, absent: Mapping[str, str]) -> str | None:
    """Say why there is no sub-model without these; None: there is one; empty: the study does not ask for any."""
    if study.quorum is None or study.quorum.minimum is None:
        return ""
    if record.sub_model is not None:
        return "it is one already, and nobody is left out twice"
    if stage not in {State.AWAITING_APPROVAL, State.ALIGNING} or record.n_common is not None:
        return "the common list is fixed, and a second one would tell who is missing from the first"
    if stage is State.ALIGNING and opens_tables(study):
        return "its parties link among themselves, and a second linkage would tell who is missing from the first"
    if stage is State.ALIGNING and study.linkage.mode == "dh-psi":
        return "linkage 'dh-psi' has begun, and needs the keys of all who began it"
    return obstacle(study, set(absent))


def _decide(session: Session, record: StudyRecord, absent: Mapping[str, str]) -> bool:
    proposal = session.proposal(record)
    left_out = tuple(
        LeftOut(party=party, missing=cast("Absence", absent[party])) for party in proposal.parties if party in absent
    )
    approvals = [
        approval.parse_approval(record.approvals[party].body) for party in proposal.parties if party not in absent
    ]
    effective = approval.effective_study(proposal, approvals, left_out)
    now = session.clock().astimezone(dt.UTC).replace(microsecond=0)
    statement = SubModel(
        proposal_digest=record.digest,
        effective_digest=canonical.digest(effective),
        left_out=left_out,
        decided_at=now,
    )
    return session.catalogue.absences.decide(
        record.digest,
        version=record.version,
        effective=canonical.to_bytes(effective),
        digest=statement.effective_digest,
        statement=session.sign(encode(statement)),
        at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
