"""Voting: who may say yes or no to a study at this site, and what comes of it, from the command to the stored approval.

An approval or a denial is written here, in the site's own database; the daemon notices and acts. Nothing here talks to anybody
else. Who may say yes:

- where party.toml names approvers, these, each by a vote signed with their own key. A name without a key cannot vote.
- where it names nobody, whoever may run the command on this machine, once, for the site: the name that is given is that person's
  word, and the only signature is that of the party's signing key when the approval is sent. Two approvals cannot be asked for
  so, because one person could give both.
- a rule of the site's (``approval = "rules"``), and under a marked authority the daemon by itself.

A denial needs no key: it only ever keeps something from leaving.

A running daemon follows in party.toml who may approve, and nothing else: an approver who is added counts at once, and one who is
removed counts no more from the next step on, also for studies under way. Everything else in the file is read when the daemon
starts. A file that cannot be read (an editor has saved half of it) leaves the former approvers in force and is a warning, once
for each state of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Final

from verticil.party.audit.log import AuditLog, Event, What, note_configuration
from verticil.party.config import PartyConfig, load_party
from verticil.party.limits.rules import RULE_PREFIX, approver_name
from verticil.party.local_dataset import LocalDataset, releases_of
from verticil.party.policy import approval
from verticil.party.policy.approval import Review, void
from verticil.party.policy.comparison import changes, data_changes
from verticil.party.policy.decision_store import ApproverKey, DecisionStore, Vote, check_vote, vote_body
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.revocation import Revocation, Revocations, checked_reason
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret
from verticil.party.storage.studies import PartyState, StudyRecord
from verticil.shared.disk import FollowedFiles
from verticil.shared.errors import Misuse, PeerFault, Refusal, VerticilError
from verticil.shared.study.approval import Approval, parse_approval
from verticil.shared.study.document import Study
from verticil.shared.study.states import State, is_final

AUTOMATIC: Final = "automatic approval (demonstration)"
"""The approver that the daemon names under a marked authority."""
_NEW_ID: Final = "the study must be submitted, or loaded, again under a new id"

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,80}", re.ASCII)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvers:
    """Who may approve.

    Attributes:
        names: the approvers; empty where nobody is named.
        keys: public key of each that has one.
        needed: how many different ones a study needs.
    """

    names: tuple[str, ...]
    keys: Mapping[str, bytes]
    needed: int


def _approvers(config: PartyConfig) -> Approvers:
    return Approvers(names=config.policy.approvers, keys=config.approver_keys, needed=config.policy.approvers_needed)


class FollowedApprovers:
    """The approvers of one party.toml. Safe in several threads.

    Args:
        config: as it was read.
    """

    def __init__(self, config: PartyConfig) -> None:
        self._path = config.path
        self._name = config.name
        self._now = _approvers(config)
        self._files = FollowedFiles((config.path,), every_seconds=0.0)

    def now(self) -> Approvers:
        """As party.toml has them now."""
        if self._files.changed():
            try:
                config = load_party(self._path)
            except VerticilError as error:
                _log.warning("the approvers cannot be read anew, the former ones stay: %s", error)
                return self._now
            approvers = _approvers(config)
            if config.name == self._name and approvers != self._now:
                self._now = approvers
                _log.info("approvers: %s; %d needed", ", ".join(approvers.names) or "nobody is named", approvers.needed)
        return self._now


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a yes.

    Attributes:
        review: what was approved.
        approvers: who said yes to exactly this so far.
        complete: these are enough, and the daemon goes on.
        void: whose earlier votes were for something else and do not count any more.
        changed: what changed since, in words.
    """

    review: Review
    approvers: tuple[str, ...]
    complete: bool
    void: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Voting:
    """The votes of one site, over its opened state.

    Attributes:
        config: party.toml.
        approvers: who may approve, as party.toml says now.
        database, state, decisions, ledger: the state directory.
        audit, revocations: what the site writes down of its acts.
        secret, linkage_key: never shown.
    """

    config: PartyConfig
    approvers: FollowedApprovers
    database: Database
    state: PartyState
    decisions: DecisionStore
    ledger: Ledger
    audit: AuditLog
    revocations: Revocations
    secret: SiteSecret = field(repr=False)
    linkage_key: bytes = field(repr=False)

    def check_data(self, record: StudyRecord, given: Approval, approved: Study, holding: LocalDataset) -> None:
        """Check that the data are those that were approved.

        Args:
            record: the study.
            given: this party's approval.
            approved: the proposal with the approved declaration.
            holding: the data as they are now.

        Raises:
            Refusal: APPROVAL_VOID.
            DataFault, Misuse: as `origins`.
        """
        releases = releases_of(self.config, approved, holding, site_secret=self.secret.value)
        approval.check_data(
            approved,
            given,
            approval.seals(releases, record.digest, site_secret=self.secret.value),
            then=self.decisions.noted(record.digest, approval.content_of(record.approval or b""))
            if record.approval
            else None,
            now=approval.origins_of(releases, holding.n_records),
        )

    def check_binding(self, record: StudyRecord, today: date) -> Study:
        """Check that the recorded approval still means this study, and that it was given by those who may give it.

        Returns:
            What was approved: the proposal with the approved units of this party.

        Raises:
            Refusal: APPROVAL_VOID, STUDY_EXPIRED, POLICY_REFUSED and the other objections of the present policy.
        """
        given = parse_approval(record.approval or b"")
        study = approval.parsed(record.task.proposal)
        approved = approval.check_binding(self.config, study, given, record.digest, today)
        self._check_voters(record, given, study)
        return approved

    def _check_voters(self, record: StudyRecord, given: Approval, study: Study) -> None:
        policy = self.config.policy
        if given.approver == AUTOMATIC:
            if policy.approval != "auto":
                raise void(study, "it was automatic, and the policy does not say so any more")
        elif given.approver.startswith(RULE_PREFIX):
            if policy.approval != "rules" or given.approver not in [
                approver_name(policy.rules, r) for r in policy.rules
            ]:
                raise void(study, f"it was given {given.approver}, which is not a rule of the policy any more")
        elif (approvers := self.approvers.now()).names:
            found = self._voters(record, approval.content_of(record.approval or b""))
            if len(found) < approvers.needed:
                raise void(study, f"{len(found)} of {approvers.needed} approvers have signed it with a present key")

    def _voters(self, record: StudyRecord, content: bytes) -> tuple[str, ...]:
        """Who said yes to `content`: of named approvers, those whose signature holds by the key in party.toml."""
        approvers = self.approvers.now()
        found: list[str] = []
        for vote in self.decisions.votes(record.digest):
            if vote.content != content:
                continue
            if approvers.names:
                body = self._vote_body(record, vote.approver, content, vote.at)
                public = approvers.keys.get(vote.approver)
                if (
                    vote.approver not in approvers.names
                    or public is None
                    or not check_vote(body, vote.signature, public)
                ):
                    continue
            found.append(vote.approver)
        return tuple(found)

    def _vote_body(self, record: StudyRecord, approver: str, content: bytes, at: datetime) -> bytes:
        return vote_body(party=self.config.name, study_id=record.study_id, content=content, approver=approver, at=at)

    def changes(self, record: StudyRecord) -> tuple[StudyRecord | None, tuple[str, ...]]:
        """What is different from the same analyst's study of this id that was approved here last, or else was offered here last.

        Returns:
            The earlier study and the differences in words; None and nothing where there is none.
        """
        others = [
            other
            for other in self.state.studies(record.study_id)
            if other.task.submitter == record.task.submitter and other.number < record.number
        ]
        earlier = ([other for other in others if other.approval is not None] or others)[-1:]
        if not earlier:
            return None, ()
        before, after = (approval.parsed(item.task.proposal) for item in (earlier[0], record))
        return earlier[0], changes(before, after)

    def review(self, record: StudyRecord, at: datetime, *, holding: LocalDataset | None = None) -> Review:
        """Everything that is looked at before anybody says yes; raises as `verticil.party.policy.approval.review`."""
        return approval.review(
            self.config,
            self.ledger,
            record.task.proposal,
            site_secret=self.secret,
            linkage_key=self.linkage_key,
            today=at.date(),
            holding=holding,
        )

    def approve(
        self,
        record: StudyRecord,
        approver: str,
        at: datetime,
        *,
        key: ApproverKey | None = None,
        holding: LocalDataset | None = None,
    ) -> Verdict:
        """Say yes to a study as it stands; on the disk when it returns. Saying it twice is saying it once.

        Args:
            record: the study.
            approver: who says so.
            at: now, UTC.
            key: of the approver; needed where party.toml names approvers.
            holding: the data, when they have been read already.

        Raises:
            Refusal: whatever speaks against the study (exit 3), or NOT_APPROVED, not the approver's key; STUDY_DENIED,
                STUDY_EXPIRED, STUDY_WITHDRAWN, APPROVAL_VOID.
            DataFault, Misuse: whatever is wrong with the tables or party.toml.
        """
        if approver == AUTOMATIC and self.config.policy.approval == "auto":
            self._may_decide(record, approver)
        else:
            self.require_approver(record, approver, key)
        return self._approve(record, approver, at, self.review(record, at, holding=holding), key=key)

    def require_approver(self, record: StudyRecord, approver: str, key: ApproverKey | None) -> None:
        """Check that a person may decide about a study here, as for `approve`.

        Raises:
            Refusal: POLICY_REFUSED, NOT_APPROVED, STUDY_DENIED and others, the study has ended.
            Misuse: USAGE.
        """
        if approver.startswith(RULE_PREFIX) or approver == AUTOMATIC:
            raise Misuse("USAGE", f"the approver '{approver[:100]}' is reserved")
        self._may_decide(record, approver)
        self._may_vote(approver, key)

    def approve_unasked(self, record: StudyRecord, approver: str, at: datetime, found: Review) -> Verdict:
        """Say yes without a person, in the name of a rule; raises as `approve`."""
        self._may_decide(record, AUTOMATIC)
        return self._approve(record, approver, at, found)

    def _approve(
        self, record: StudyRecord, approver: str, at: datetime, found: Review, *, key: ApproverKey | None = None
    ) -> Verdict:
        body = approval.body_of(found, self.config.name, approver, at)
        content = approval.content_of(body)
        origins = approval.origins_of(found.releases, found.holding.n_records)
        at = at.replace(microsecond=0)
        by_itself = approver == AUTOMATIC or approver.startswith(RULE_PREFIX)
        with self.database.transaction():
            record = self.state.study(record.digest)
            self._may_decide(record, AUTOMATIC if by_itself else approver)
            held = record.approval
            if held is not None and approval.content_of(held) == content and self._still_given(record):
                return Verdict(review=found, approvers=(approver,), complete=True)
            then = self.decisions.noted(record.digest)
            changed = data_changes(then, origins) if then is not None else ()
            if record.task.approved:
                self._check_told(record, found.study, changed)
            if held is not None:
                self.state.disapprove(record.digest)
            signature = b"" if key is None else key.sign(self._vote_body(record, approver, content, at))
            vote = Vote(approver=approver, content=content, at=at, signature=signature)
            gone = self.decisions.vote(record.digest, vote)
            self.decisions.note(record.digest, content, origins, at)
            approvers = (approver,) if by_itself else self._voters(record, content)
            complete = by_itself or len(approvers) >= self.approvers.now().needed
            self._write_down(What.VOTE, record, approver, at, detail=content.hex())
            if complete:
                self._write_down(What.APPROVAL, record, ", ".join(approvers), at, detail=content.hex())
                body = approval.body_of(found, self.config.name, ", ".join(approvers), at)
                self.state.approve(record.digest, body, at)
        return Verdict(review=found, approvers=approvers, complete=complete, void=gone, changed=changed)

    def _check_told(self, record: StudyRecord, study: Study, changed: Sequence[str]) -> None:
        """Refuse what others' approval has no room for: another declaration, or other data than those that noise was drawn for.

        Else the data may be others: of their seals nobody but this site can tell anything.
        """
        task, held = record.task, record.approval
        if held is not None and self.ledger.has_drawn(record.digest):
            what = "; ".join(changed) or "data, minimum or approvers changed since"
            message = f"study '{record.study_id}': it is under way with what was approved before: {what}"
            raise Refusal("APPROVAL_VOID", message, hint=_NEW_ID)
        own = {index: study.units[index] for index in study.units_of(self.config.name)}
        same = held is None or parse_approval(held).declarations() == own
        if same and task.effective:
            try:
                approval.check_effective(study, task.effective, task.effective_digest, self.config.name)
            except PeerFault:
                same = False
        if not same:
            raise Refusal(
                "APPROVAL_VOID",
                f"study '{record.study_id}': others have the approval, and the declaration in {self.config.path.name} is another",
                hint=f"declare again what was approved; else {_NEW_ID}",
            )

    def _still_given(self, record: StudyRecord) -> bool:
        try:
            given = parse_approval(record.approval or b"")
            self._check_voters(record, given, approval.parsed(record.task.proposal))
        except Refusal:
            return False
        return True

    def deny(self, record: StudyRecord, approver: str, reason: str, at: datetime) -> None:
        """Say no to a study, for good.

        Raises:
            Misuse: USAGE, without a reason.
            Refusal: POLICY_REFUSED, the person is not an approver; STUDY_WITHDRAWN and others, the study has ended.
        """
        reason = checked_reason(reason, of="a denial")
        self._may_decide(record, approver, denied_is_fine=True)
        with self.database.transaction():
            self._write_down(What.DENIAL, record, approver, at, detail=reason)
            self.state.deny(record.digest, approver, reason, at)

    def revoke(self, record: StudyRecord, approver: str, reason: str, at: datetime) -> Revocation:
        """Take an approval back, for good; raises as `Revocations.revoke`, and POLICY_REFUSED as `deny`."""
        self._check_approver(approver)
        note_configuration(self.audit, self.config.path, at, who=approver)
        return self.revocations.revoke(record, approver, reason, at)

    def _write_down(self, what: What, record: StudyRecord, who: str, at: datetime, *, detail: str) -> None:
        note_configuration(self.audit, self.config.path, at, who=who)
        event = Event(what=what, who=who, study=record.digest, study_id=record.study_id, detail=detail)
        self.audit.record(event, at)

    def _may_vote(self, approver: str, key: ApproverKey | None) -> None:
        """Check the key of a named approver; where nobody is named, that one person's word is enough."""
        where, approvers = self.config.path.name, self.approvers.now()
        if not approvers.names:
            if approvers.needed > 1:
                raise Refusal(
                    "NOT_APPROVED",
                    f"{approvers.needed} approvals are needed and {where} names no approvers: one person could give all",
                    hint="name them, each with a key: verticil party approver add NAME --key FILE",
                )
            return
        public = approvers.keys.get(approver)
        if public is None:
            raise Refusal(
                "NOT_APPROVED",
                f"'{approver}' has no key in {where}, and an approval is signed with the approver's own key",
                hint=f"make it once: verticil party approver add {approver} --key FILE",
            )
        if key is None or key.public != public:
            got = "none was given" if key is None else "the given one is another"
            raise Refusal(
                "NOT_APPROVED",
                f"the approval of '{approver}' is signed with the key that {where} lists for them: {got}",
                hint="give the approver's file with --key FILE",
            )

    def _check_approver(self, approver: str) -> None:
        names = self.approvers.now().names
        if names and approver not in names and approver != AUTOMATIC:
            raise Refusal(
                "POLICY_REFUSED",
                f"'{approver}' is not one of policy.approvers ({', '.join(names)})",
                hint="give one of them with --as",
            )
        if not approver or not approver.isprintable() or len(approver) > 100:
            raise Misuse("USAGE", "the approver: expected a name of 1 to 100 printable letters")

    def _may_decide(self, record: StudyRecord, approver: str, *, denied_is_fine: bool = False) -> None:
        self._check_approver(approver)
        if record.revocation_sent is not None:
            raise Refusal(
                "STUDY_WITHDRAWN", f"study '{record.study_id}': it was revoked here", hint="a revocation is for good"
            )
        if record.denial_sent is not None and not denied_is_fine:
            raise Refusal("STUDY_DENIED", f"study '{record.study_id}': it was denied here", hint="a denial is for good")
        if record.failure is not None:
            raise Refusal("APPROVAL_VOID", f"study '{record.study_id}': it failed here with {record.failure.code}")
        state = State(record.task.state)
        if is_final(state):
            raise _ended(record, state)


def _ended(record: StudyRecord, state: State) -> VerticilError:
    codes = {State.DENIED: "STUDY_DENIED", State.EXPIRED: "STUDY_EXPIRED"}
    message = f"study '{record.study_id}': it ended, {state.name.lower()}"
    if state is State.EXPIRED:
        message += f"; its last day was {approval.parsed(record.task.proposal).expires.isoformat()}"
    return Refusal(codes.get(state, "STUDY_WITHDRAWN"), message, hint="nothing can be decided any more")


def approver_key(config: PartyConfig, approver: str, path: Path | None) -> ApproverKey | None:
    """The key of an approver; None where nobody is named, or no file is given and none lies at the usual place.

    Raises:
        DataFault, Misuse: as `ApproverKey.load`.
    """
    if not config.policy.approvers:
        return None
    found = path if path is not None else key_place(config.path, approver)
    if found is None or (path is None and not found.exists()):
        return None
    return ApproverKey.load(found)


def key_place(party_toml: Path, name: str) -> Path | None:
    """Where the key of an approver usually lies; None: no file can be named after them."""
    return party_toml.parent / "approvers" / f"{name}.key" if _FILE_NAME.fullmatch(name) else None
