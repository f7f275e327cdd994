"""Who holds a study up: what is missing of each party, and which parties it went on without, from durable facts alone.

A closed list of words, so that what the analyst reads depends on no party's data. Pure functions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from typing import Final

from verticil.miner.storage.linkage import linked_parties
from verticil.miner.storage.records import Failure, StudyRecord
from verticil.shared.core.errors import Refusal
from verticil.shared.study.document import LeftOut, Study
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State
from verticil.shared.study.sub_model import left_out_words, obstacle, parse_sub_model

APPROVAL: Final = "approval"
DENIAL: Final = "denial"
LINKAGE: Final = "linkage"
CONFIRMATION: Final = "confirmation"
COLUMNS: Final = "columns"
MESSAGES: Final = "messages"


def missing(study: Study, record: StudyRecord, stage: State, waited_for: Collection[str] = ()) -> Mapping[str, str]:
    """Return what the study waits for at each party that it waits for, in the study's order.

    Args:
        study: as it is carried out.
        record: its facts.
        stage: the state; of a study that has ended, the last stage that it reached.
        waited_for: of masked tables: those whose messages the miner's part of the round waits for.

    Returns:
        Party -> approval, denial (it denied, and a quorum bears it), linkage (its part of it), confirmation (of the common list),
        columns, or messages (of a round).
    """
    waiting_for: dict[str, str] = {}
    linked_names, masked = linked_parties(record, study), opens_tables(study)
    for party in study.parties:
        if stage is State.AWAITING_APPROVAL and party in record.declined:
            waiting_for[party] = DENIAL
        elif stage is State.AWAITING_APPROVAL and party not in record.approvals:
            waiting_for[party] = APPROVAL
        elif stage is State.ALIGNING and party not in linked_names:
            waiting_for[party] = LINKAGE
        elif stage is State.ALIGNING and record.n_common is not None and party not in record.confirmed:
            waiting_for[party] = CONFIRMATION
        elif masked:
            if stage in {State.PREPARING, State.UPLOADING} and party in waited_for:
                waiting_for[party] = MESSAGES
        elif stage in {State.PREPARING, State.UPLOADING} and not record.columns.keys() >= set(study.units_of(party)):
            waiting_for[party] = COLUMNS
    return waiting_for


def deadline(study: Study, record: StudyRecord) -> dt.datetime | None:
    """Say until when every party must have given its part; None: the study declares none.

    A sub-model has the declared time once more, from the decision: its parties have waited until then for those left out.
    """
    if study.quorum is None:
        return None
    return dt.datetime.fromisoformat(record.decided_at or record.submitted_at) + dt.timedelta(
        seconds=study.quorum.deadline_seconds
    )


def overdue(
    study: Study, record: StudyRecord, stage: State, now: dt.datetime, waited_for: Collection[str] = ()
) -> Mapping[str, str]:
    """Return what was missing, as `missing` says it, when the deadline passed; nothing: it has not passed, or nothing was.

    Columns that had come and were damaged at the miner since are not the party's delay.
    """
    end = deadline(study, record)
    if end is None or now < end:
        return {}
    had_come = record.columns.keys() | record.damaged.keys()
    return {
        party: what
        for party, what in missing(study, record, stage, waited_for).items()
        if what != COLUMNS or not had_come >= set(study.units_of(party))
    }


def deadline_passed(
    end: dt.datetime | None, stage: State, absent: Mapping[str, str], *, no_sub_model: str = ""
) -> Failure:
    """Return how a study ends that waited for these parties.

    Args:
        end: the deadline.
        stage: in which it waited.
        absent: what was missing of whom.
        no_sub_model: why it cannot go on without them; empty: it does not ask to.
    """
    party_list = ", ".join(f"party '{party}' ({what})" for party, what in absent.items())
    moment = "the deadline" if end is None else f"{end:%Y-%m-%dT%H:%M:%SZ}"
    without = f"; there is no sub-model without them: {no_sub_model}" if no_sub_model else ""
    return Failure(
        code="DEADLINE_PASSED",
        message=f"at {moment}, in the stage {stage.words}, there was missing: {party_list}{without}",
        hint="find out what holds the party up, and submit the study again under a new id, with a later [quorum] deadline"
        + (", or without the party's columns" if no_sub_model else ""),
    )


def report_text(party: str, text: str) -> str:
    """Write the message of a failure that a party reported."""
    return f"party '{party}': {text}"


def reporting_party(study: Study, failure: Failure) -> str | None:
    """Return the party that reported a failure; None: it is the miner's own."""
    return next((party for party in study.parties if failure.message.startswith(report_text(party, ""))), None)


def left_out(record: StudyRecord) -> tuple[LeftOut, ...]:
    """Return the parties that the study went on without."""
    return () if record.sub_model is None else parse_sub_model(record.sub_model.body).left_out


def refuse_left_out(record: StudyRecord, party: str) -> Refusal | None:
    """Return the answer to a party that the study went on without; None: it is in it."""
    for item in left_out(record):
        if item.party == party:
            return Refusal(
                "PARTY_LEFT_OUT",
                f"study '{record.study_id}': it went on at {record.decided_at} without {left_out_words(item)}",
                hint="nothing more is taken from this party for it; to take part, have the study submitted under a new id",
            )
    return None


def bears(study: Study, record: StudyRecord, party: str) -> bool:
    """Return whether a study that waits for approvals can still go on when this party denies it too."""
    return not record.effective_digest and obstacle(study, {*record.declined, party}) is None
