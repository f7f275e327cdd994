"""Who may submit how many studies, and how the miner's operator closes one.

Rules of `session`, and as those they read durable facts and add at most one; all functions block. An id belongs to the analyst
who submitted it: no other analyst can take it. What an analyst has open and has submitted is counted from the catalogue,
so neither a restart nor another connection gives more room. The same proposal again is the same study, and costs nothing.
"""

from __future__ import annotations

import datetime as dt
import threading
from typing import Final

from verticil.miner.config import ServiceLimits
from verticil.miner.rules.message_rounds import MessageRounds
from verticil.miner.rules.session import Session, timestamp
from verticil.miner.storage.records import StudyRecord
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import is_final

MAX_PROPOSAL_BYTES: Final = 1_048_576
_DAY: Final = dt.timedelta(days=1)
_MAX_REASON: Final = 500


class Submissions:
    """Takes studies in.

    Args:
        session: the rules and facts.
        limits: of each analyst.
        rounds: of the studies that have some.
    """

    def __init__(self, session: Session, limits: ServiceLimits, rounds: MessageRounds) -> None:
        self._session = session
        self._limits = limits
        self._rounds = rounds
        self._submitting = threading.Lock()  # what is counted must not change before it is added

    def submit(self, analyst: str, proposal: bytes) -> bytes:
        """Record a proposal; the same bytes again are the same study.

        Returns:
            The study's digest.

        Raises:
            PeerFault: MESSAGE_INVALID, not a study in canonical form; RESOURCE_EXHAUSTED, the analyst has too many.
            Refusal: STUDY_EXPIRED.
            Misuse: STUDY_EXISTS, another study of this analyst with this id is under way; STUDY_UNSUPPORTED, a study between
                peers, or a masked one without the keys for it; STUDY_OVER, the very study was ended when its facts were lost.
        """
        if len(proposal) > MAX_PROPOSAL_BYTES:
            raise PeerFault("MESSAGE_INVALID", f"study: {len(proposal)} bytes, expected at most {MAX_PROPOSAL_BYTES}")
        study = canonical.from_bytes(proposal)
        if not protocol_of(study).coordinated:
            raise Misuse(
                "STUDY_UNSUPPORTED",
                f"study '{study.id}': has model '{study.model}': no miner carries it out",
                hint="the operators load the study at their parties: verticil party load STUDY.toml",
            )
        self._rounds.check_keys(study)
        digest = canonical.digest(study)
        with self._submitting:
            if self._session.catalogue.study(digest) is None:
                self._check_remembered(study, digest)
                self._check(study, analyst)
                self._session.catalogue.add_study(
                    digest,
                    study_id=study.id,
                    proposal=proposal,
                    submitter=analyst,
                    at=timestamp(self._session.clock()),
                )
        return digest

    def _check_remembered(self, study: Study, digest: bytes) -> None:
        if self._session.catalogue.forgotten.among([digest]):
            raise Misuse(
                "STUDY_OVER",
                f"study '{study.id}': the miner had lost its facts, and its operator ended it",
                hint="change something in it, such as the title, and submit it as a new study",
            )

    def _check(self, study: Study, analyst: str) -> None:
        now = self._session.clock().astimezone(dt.UTC)
        if study.is_expired(now.date()):
            raise Refusal(
                "STUDY_EXPIRED",
                f"study '{study.id}': its last valid day was {study.expires.isoformat()}",
                hint="give 'expires' a later day and submit again",
            )
        open_ones = self._open_of(analyst)
        same = next((record for record in open_ones if record.study_id == study.id), None)
        if same is not None:
            raise Misuse(
                "STUDY_EXISTS",
                f"study '{study.id}': another study of yours with this id is under way (digest {same.digest.hex()})",
                hint="cancel it first, or choose another id",
            )
        most = self._limits.max_open_studies_per_analyst
        if len(open_ones) >= most:
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"analyst '{analyst}': {len(open_ones)} studies are open, expected at most {most}",
                hint="withdraw one that you do not need: verticil study cancel STUDY; or ask the miner's operator for more",
            )
        most = self._limits.max_daily_studies_per_analyst
        n_submitted = self._session.catalogue.submissions.since(analyst, timestamp(now - _DAY))
        if n_submitted >= most:
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"analyst '{analyst}': {n_submitted} studies were submitted within 24 hours, expected at most {most}",
                hint="submit it tomorrow, or ask the miner's operator for more",
            )

    def _open_of(self, analyst: str) -> list[StudyRecord]:
        session = self._session
        records = [session.record(digest) for digest in session.catalogue.submissions.not_ended(analyst)]
        return [record for record in records if not is_final(session.state(record))]

    def close(self, digest: bytes, reason: str) -> StudyRecord:
        """Close a study for the miner's operator: for everybody it ends as one that its analyst withdraws.

        Args:
            digest: of the proposal.
            reason: for everybody to read.

        Raises:
            Misuse: STUDY_UNKNOWN; STUDY_OVER, it has ended already; USAGE, without a reason.
        """
        reason = reason.strip()
        if not reason or not reason.isprintable() or len(reason) > _MAX_REASON:
            raise Misuse(
                "USAGE",
                f"the reason: expected 1 to {_MAX_REASON} printable letters",
                hint="the analyst and the parties read it",
            )
        session = self._session
        record = session.record(digest)
        state = session.state(record)
        if is_final(state) or not session.catalogue.submissions.close(digest, reason, timestamp(session.clock())):
            raise Misuse(
                "STUDY_OVER",
                f"study '{record.study_id}': it is over already ({session.state(session.record(digest)).words}), expected one"
                " that is under way",
                hint="there is nothing left to close; a published release cannot be recalled",
            )
        return session.record(digest)
