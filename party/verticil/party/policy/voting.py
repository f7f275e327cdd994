"""Voting: who may say yes or no to a study at this site, and what comes of it, from the command to the stored approval.

An approval or a denial is written here, in the site's own database; the daemon notices and acts. Nothing here talks to anybody
else. Who may say yes:

- where party.toml names approvers, these, each by a vote signed with their own key. A name without a key cannot vote.
- where it names none, any person who may run the command on this machine, once, for the site: the name that is given is that
  person's word, and the only signature is that of the party's signing key when the approval is sent. Two approvals cannot be
  asked for so, because one person could give both.
- a rule of the site's (``approval = "rules"``), and under a marked authority the daemon by itself.

A denial needs no key: it only ever keeps something from leaving.

A running daemon follows ``[policy]``, the approvers' keys and ``[codebook]`` of party.toml: a limit that is lowered, a column
that is denied, an approver who is added or removed count from the next step on, also for studies under way. All else in the
file, and ``policy.same_people``, is read when the daemon starts. A file that cannot be read (an editor has saved half of it)
leaves what was read before in force and is a warning, once for each state of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Final

from verticil.party.audit.log import AuditLog, Event, What, note_configuration
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import origins_of, seals
from verticil.party.limits.rules import RULE_PREFIX, Rule, approver_name
from verticil.party.local_dataset import LocalDataset, column_draws_of
from verticil.party.people.sketches import Sketches
from verticil.party.policy import approval_checks
from verticil.party.policy.approval_checks import AUTOMATIC, Review
from verticil.party.policy.comparison import changes, data_changes
from verticil.party.policy.decision_store import ApproverKey, Approvers, DecisionStore, Vote
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.revocation import Revocation, Revocations, checked_reason
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret
from verticil.party.storage.studies import PartyState, StudyRecord, stamp
from verticil.shared.core.errors import Misuse, Refusal, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.audit import DAEMON
from verticil.shared.storage.disk import FollowedFiles
from verticil.shared.study.approval import Approval, held_approval
from verticil.shared.study.document import Study

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,80}", re.ASCII)

_log = logging.getLogger(__name__)


class FollowedConfig:
    """One party.toml with its policy as it stands there now. Safe in several threads.

    Args:
        config: as it was read.
    """

    def __init__(self, config: PartyConfig) -> None:
        self._now = config
        self._files = FollowedFiles((config.path,), every_seconds=0.0)

    def now(self) -> PartyConfig:
        """Return the configuration of the start with what party.toml says now of policy, approvers' keys and codebook."""
        if self._files.changed():
            before = self._now
            try:
                read = load_party(before.path)
            except VerticilError as error:
                _log.warning("party.toml cannot be read again; the policy read before stays in force: %s", error)
                return before
            policy = replace(read.policy, same_people=before.policy.same_people)
            after = replace(before, policy=policy, approver_keys=read.approver_keys, codebook=read.codebook)
            if read.name == before.name and after != before:
                self._now = after
                _log.info("party.toml has changed: its policy counts from now on")
        return self._now

    def approvers(self) -> Approvers:
        """Return who may approve, as party.toml says now."""
        config = self.now()
        return Approvers(
            names=config.policy.approvers, keys=config.approver_keys, needed=config.policy.approvers_needed
        )


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
        followed: party.toml.
        database, state, decisions, ledger, sketches: the state directory.
        audit, revocations: what the site writes down of its acts.
        secret, linkage_key: never shown.
    """

    followed: FollowedConfig
    database: Database
    state: PartyState
    decisions: DecisionStore
    ledger: Ledger
    sketches: Sketches
    audit: AuditLog
    revocations: Revocations
    secret: SiteSecret = field(repr=False)
    linkage_key: bytes = field(repr=False)

    @property
    def config(self) -> PartyConfig:
        """party.toml, with its policy as it stands there now."""
        return self.followed.now()

    def check_data(
        self, record: StudyRecord, stored_approval: Approval, approved_study: Study, holding: LocalDataset
    ) -> None:
        """Check that the data are those that were approved.

        Args:
            record: the study.
            stored_approval: this party's approval.
            approved_study: the proposal with the approved declaration.
            holding: the data as they are now.

        Raises:
            Refusal: APPROVAL_VOID.
            DataFault, Misuse: as `origins`.
        """
        column_draws = column_draws_of(self.config, approved_study, holding, site_secret=self.secret.value)
        column_draws = approval_checks.as_drawn(column_draws, self.ledger)
        approval_checks.check_data(
            approved_study,
            stored_approval,
            seals(column_draws, record.digest, site_secret=self.secret.value),
            then=self.decisions.get_origins(record.digest, approval_checks.content_of(record.approval or b""))
            if record.approval
            else None,
            now=origins_of(column_draws, holding.n_records),
        )

    def check_binding(self, record: StudyRecord, today: date, *, giver: bool = True) -> Study:
        """Check that the recorded approval still means this study, and that it was given by those who may give it.

        Args:
            record: the study.
            today: UTC.
            giver: whether it matters who gave it.

        Returns:
            What was approved: the proposal with the approved units of this party.

        Raises:
            Refusal: APPROVAL_VOID, STUDY_EXPIRED, POLICY_REFUSED and the other objections of the present policy.
        """
        stored_approval = held_approval(record.approval or b"")
        study = record.task.proposal_study
        approved_study = approval_checks.check_binding(self.config, study, stored_approval, record.digest, today)
        if giver:
            approvers, content = self.followed.approvers(), approval_checks.content_of(record.approval or b"")
            voters = self.decisions.voters(record, content, approvers, self.config.name)
            approval_checks.check_giver(self.config.policy, study, stored_approval, voters, approvers)
        return approved_study

    def changes(self, record: StudyRecord) -> tuple[StudyRecord | None, tuple[str, ...]]:
        """List the differences from the same analyst's study of this id that was approved here last, or else was offered here
        last.

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
        before, after = (item.task.proposal_study for item in (earlier[0], record))
        return earlier[0], changes(before, after)

    def approve(
        self,
        record: StudyRecord,
        approver: str | Rule,
        at: datetime,
        *,
        key: ApproverKey | None = None,
        holding: LocalDataset | None = None,
    ) -> Verdict:
        """Say yes to a study as it stands; on the disk when it returns. Saying it twice is saying it once.

        The study is reviewed first, which reads the tables and takes its time; what is found is written down in one transaction,
        for the study as it stands by then: somebody else may have decided meanwhile.

        Args:
            record: the study.
            approver: who says so: the name of a person, `AUTOMATIC`, or a rule of the policy.
            at: now, UTC.
            key: of the approver; needed where party.toml names approvers.
            holding: the data, when they have been read already.

        Raises:
            Refusal: whatever speaks against the study (exit 3), the budget again when the vote completes the approval, with which
                room is kept; or NOT_APPROVED, not the approver's key; STUDY_DENIED, STUDY_EXPIRED, STUDY_WITHDRAWN,
                APPROVAL_VOID.
            DataFault, Misuse: whatever is wrong with the tables or party.toml.
        """
        config = self.config
        by_itself = isinstance(approver, Rule) or (approver == AUTOMATIC and config.policy.approval == "auto")
        name = approver_name(config.policy.rules, approver) if isinstance(approver, Rule) else approver
        if not by_itself:
            self.require_approver(record, name, key)
        else:
            approval_checks.check_open(record)
        review = approval_checks.review(
            config,
            self.ledger,
            self.sketches,
            record.task.proposal,
            site_secret=self.secret,
            linkage_key=self.linkage_key,
            today=at.date(),
            holding=holding,
        )
        at = at.replace(microsecond=0)
        with self.database.transaction():
            if not by_itself:
                self._check_approver(name)
            before, record = record, self.state.study(record.digest)
            if record != before:
                approval_checks.check_open(record)
            approvers = self.followed.approvers()
            voters = self.decisions.voters(record, review.content, approvers, config.name)
            then = self.decisions.get_origins(record.digest)
            differences = data_changes(then, review.origins) if then is not None else ()
            of_what = f"a yes to the content with SHA-256 {review.content.hex()}"
            event = Event(what=What.VOTE, who=name, study=record.digest, study_id=record.study_id, detail=of_what)
            again = record.approval is not None or record.task.approved
            if again and approval_checks.stands(
                config, self.ledger, record, review, voters=voters, approvers=approvers, data_changes=differences
            ):
                verdict = Verdict(review=review, approvers=(name,), complete=True)
            else:
                vote = Vote(approver=name, content=review.content, at=stamp(at), signature=b"")
                if key is not None:
                    vote = replace(vote, signature=key.sign(vote.body(config.name, record.study_id)))
                void = self.decisions.vote(record.digest, vote, review.origins)
                voters = (name,) if by_itself else self.decisions.voters(record, vote.content, approvers, config.name)
                complete = by_itself or len(voters) >= approvers.needed
                verdict = Verdict(review=review, approvers=voters, complete=complete, void=void, changed=differences)
                if complete:
                    body = encode(replace(review.bound, approver=", ".join(voters), approved_at=at))
                    self.decisions.approve(record.digest, body, at)
                    self.ledger.reserve(
                        record.digest,
                        review.draws_to_send,
                        config.policy,
                        shared=review.shared,
                        linkages=review.linkages,
                        begins_drawing=False,
                    )
                note_configuration(self.audit, config.path, at, who=name)
                self.audit.record(event, at)
                if complete:
                    self.audit.record(replace(event, what=What.APPROVAL, who=", ".join(voters)), at)
            if isinstance(approver, Rule):
                self.decisions.approve_by_rule(record.digest, at)
                self.audit.record(replace(event, what=What.RULE_REVIEW, who=DAEMON, detail=name), at)
        return verdict

    def require_approver(self, record: StudyRecord, approver: str, key: ApproverKey | None) -> None:
        """Check that a person may decide about a study here, as for `approve`.

        Raises:
            Refusal: POLICY_REFUSED, NOT_APPROVED, STUDY_DENIED and others, the study has ended.
            Misuse: USAGE.
        """
        if approver.startswith(RULE_PREFIX) or approver == AUTOMATIC:
            raise Misuse("USAGE", f"the approver '{approver[:100]}' is reserved")
        self._check_approver(approver)
        approval_checks.check_open(record)
        self._may_vote(approver, key)

    def deny(self, record: StudyRecord, approver: str, reason: str, at: datetime) -> None:
        """Say no to a study, for good.

        Raises:
            Misuse: USAGE, without a reason.
            Refusal: POLICY_REFUSED, the person is not an approver; STUDY_WITHDRAWN and others, the study has ended.
        """
        reason = checked_reason(reason, of="a denial")
        self._check_approver(approver)
        approval_checks.check_open(record, denied_is_fine=True)
        event = Event(what=What.DENIAL, who=approver, study=record.digest, study_id=record.study_id, detail=reason)
        with self.database.transaction():
            note_configuration(self.audit, self.config.path, at, who=approver)
            self.audit.record(event, at)
            self.decisions.deny(record.digest, approver, reason, at)

    def revoke(self, record: StudyRecord, approver: str, reason: str, at: datetime) -> Revocation:
        """Take an approval back, for good; raises as `Revocations.revoke`, and POLICY_REFUSED as `deny`."""
        self._check_approver(approver)
        note_configuration(self.audit, self.config.path, at, who=approver)
        return self.revocations.revoke(record, approver, reason, at)

    def _may_vote(self, approver: str, key: ApproverKey | None) -> None:
        """Check the key of a named approver; where party.toml names none, that one person's word is enough."""
        where, approvers = self.config.path.name, self.followed.approvers()
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
            actual = "none was given" if key is None else "the given one is another"
            raise Refusal(
                "NOT_APPROVED",
                f"the approval of '{approver}' is signed with the key that {where} lists for them: {actual}",
                hint="give the approver's file with --key FILE",
            )

    def _check_approver(self, approver: str) -> None:
        names = self.followed.approvers().names
        if names and approver not in names and approver != AUTOMATIC:
            raise Refusal(
                "POLICY_REFUSED",
                f"'{approver}' is not one of policy.approvers ({', '.join(names)})",
                hint="give one of them with --as",
            )
        if not approver or not approver.isprintable() or len(approver) > 100:
            raise Misuse("USAGE", "the approver: expected a name of 1 to 100 printable letters")


def approver_key(
    config: PartyConfig,
    approver: str,
    path: Path | ApproverKey | None,
    *,
    passphrase: Callable[[Path], str] | None = None,
) -> ApproverKey | None:
    """Return the key of an approver; None where party.toml names none, or no file is given and none lies at the usual place.

    Args:
        config: party.toml.
        approver: whose.
        path: its file, or the key, where it was read before.
        passphrase: see `ApproverKey.load`.

    Raises:
        DataFault, Misuse: as `ApproverKey.load`.
    """
    if not config.policy.approvers:
        return None
    if isinstance(path, ApproverKey):
        return path
    key_path = path if path is not None else key_place(config.path, approver)
    if key_path is None or (path is None and not key_path.exists()):
        return None
    return ApproverKey.load(key_path, passphrase=passphrase)


def key_place(party_toml: Path, name: str) -> Path | None:
    """Return the usual place of an approver's key; None: no file can be named after them."""
    return party_toml.parent / "approvers" / f"{name}.key" if _FILE_NAME.fullmatch(name) else None
