"""A site's opened state: configuration, database, secrets. What the daemon and the commands of the site's people work on.

An approval or a denial is written here, in the site's own database, by whoever may run the command on this machine; the daemon
notices and acts. Nothing here talks to anybody else.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from verticil.party.config import PartyConfig
from verticil.party.control import approval
from verticil.party.control.approval import Review
from verticil.party.control.database import Database, disk_fault
from verticil.party.control.holdings import Holding, read_holding, releases_of
from verticil.party.control.ledger import Ledger, Release
from verticil.party.control.secret import FILE_NAME as SECRET_FILE
from verticil.party.control.secret import create_secret, read_secret
from verticil.party.control.state import PartyState, StudyRecord
from verticil.party.evidence.audit import DAEMON, Audit, AuditLog, Event, What
from verticil.party.evidence.common_sets import CommonSets
from verticil.party.evidence.revocation import Revocation, Revocations
from verticil.party.records.keyfile import read_key
from verticil.shared.errors import Misuse, Refusal, VerticilError
from verticil.shared.study.approval import Approval
from verticil.shared.study.document import Study
from verticil.shared.study.states import State, is_final

__all__ = ["AUTOMATIC", "Site", "Verdict", "init_state"]

AUTOMATIC: Final = "automatic approval (demonstration)"
"""The approver that the daemon names under a marked authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a yes.

    Attributes:
        review: what was approved.
        approvers: who said yes to exactly this so far.
        complete: these are enough, and the daemon goes on.
    """

    review: Review
    approvers: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """One party's opened state. Use as a context manager.

    Attributes:
        config: party.toml.
        database, state, ledger: the state directory.
        audit, common_sets, revocations: what the site writes down of its acts.
        site_secret, linkage_key: never shown.
    """

    config: PartyConfig
    database: Database
    state: PartyState
    ledger: Ledger
    audit: Audit
    common_sets: CommonSets
    revocations: Revocations
    site_secret: bytes = field(repr=False)
    linkage_key: bytes = field(repr=False)

    @classmethod
    def open(cls, config: PartyConfig) -> Site:
        """Open the state directory of a party that was set up.

        Raises:
            DataFault: SECRET_MISSING, STATE_CORRUPT, DISK_FULL.
            Misuse: CONFIG_INVALID, the linkage key's file.
        """
        secret, key = read_secret(config.state_directory), read_key(config.linkage_key)
        database = Database(config.state_directory)
        audit = AuditLog(database, config.state_directory)
        return cls(
            config=config,
            database=database,
            state=PartyState(database),
            ledger=Ledger(database),
            audit=audit,
            common_sets=CommonSets(database, config.state_directory, site_secret=secret),
            revocations=Revocations(database, audit, party=config.name),
            site_secret=secret,
            linkage_key=key,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.database.close()

    def read(self, record: StudyRecord) -> Holding:
        """Read this party's tables for a study; raises as `read_holding`."""
        return read_holding(
            self.config,
            approval.parsed(record.task.proposal),
            proposal_digest=record.digest,
            site_secret=self.site_secret,
            linkage_key=self.linkage_key,
        )

    def releases(self, study: Study, holding: Holding) -> dict[int, Release]:
        """What releasing each of this party's units of `study` means; raises as `origins`."""
        return releases_of(self.config, study, holding, site_secret=self.site_secret)

    def check_data(self, record: StudyRecord, given: Approval, approved: Study, holding: Holding) -> None:
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
        found = approval.seals(self.releases(approved, holding), record.digest, site_secret=self.site_secret)
        approval.check_data(approved, given, found)

    def review(self, record: StudyRecord, at: datetime, *, holding: Holding | None = None) -> Review:
        """Everything that is looked at before anybody says yes; raises as `verticil.party.control.approval.review`."""
        return approval.review(
            self.config,
            self.ledger,
            record.task.proposal,
            site_secret=self.site_secret,
            linkage_key=self.linkage_key,
            today=at.date(),
            holding=holding,
        )

    def approve(self, record: StudyRecord, approver: str, at: datetime, *, holding: Holding | None = None) -> Verdict:
        """Say yes to a study as it stands; on the disk when it returns. Saying it twice is saying it once.

        Args:
            record: the study.
            approver: who says so.
            at: now, UTC.
            holding: the data, when they have been read already.

        Raises:
            Refusal: whatever speaks against the study (exit 3), or STUDY_DENIED, STUDY_EXPIRED, STUDY_WITHDRAWN, APPROVAL_VOID.
            DataFault, Misuse: whatever is wrong with the tables or party.toml.
        """
        if approver == AUTOMATIC and self.config.policy.approval != "auto":
            raise Misuse("USAGE", f"the approver '{AUTOMATIC}' is reserved")
        self._may_decide(record, approver)
        found = self.review(record, at, holding=holding)
        body = approval.body_of(found, self.config.name, approver, at)
        content = approval.content_of(body)
        with self.database.transaction():
            record = self.state.study(record.digest)
            self._may_decide(record, approver)
            if record.approval is not None:
                if approval.content_of(record.approval) == content:
                    return Verdict(review=found, approvers=(approver,), complete=True)
                if record.task.approved:
                    raise Refusal(
                        "APPROVAL_VOID",
                        f"study '{record.study_id}': others have the approval, and data, declaration or minimum changed since",
                        hint="the study must be submitted, or loaded, again under a new id",
                    )
                self.state.disapprove(record.digest)
            votes = self.state.vote(record.digest, approver, content, at)
            names = self.config.policy.approvers  # who was an approver when the vote was given may not be one now
            approvers = tuple(name for name in votes if not names or name in names or name == AUTOMATIC)
            complete = approver == AUTOMATIC or len(approvers) >= self.config.policy.approvers_needed
            self._write_down(What.VOTE, record, approver, at, detail=content.hex())
            if complete:
                self._write_down(What.APPROVAL, record, ", ".join(approvers), at, detail=content.hex())
                body = approval.body_of(found, self.config.name, ", ".join(approvers), at)
                self.state.approve(record.digest, body, at)
        return Verdict(review=found, approvers=approvers, complete=complete)

    def deny(self, record: StudyRecord, approver: str, reason: str, at: datetime) -> None:
        """Say no to a study, for good.

        Raises:
            Misuse: USAGE, without a reason.
            Refusal: POLICY_REFUSED, the person is not an approver; STUDY_WITHDRAWN and others, the study has ended.
        """
        reason = reason.strip()
        if not reason or not reason.isprintable() or len(reason) > 500:
            raise Misuse(
                "USAGE",
                "the reason of a denial: expected 1 to 500 printable letters",
                hint="the analyst, or every other party, reads it",
            )
        self._may_decide(record, approver, denied_is_fine=True)
        with self.database.transaction():
            self._write_down(What.DENIAL, record, approver, at, detail=reason)
            self.state.deny(record.digest, approver, reason, at)

    def revoke(self, record: StudyRecord, approver: str, reason: str, at: datetime) -> Revocation:
        """Take an approval back, for good; raises as `Revocations.revoke`, and POLICY_REFUSED as `deny`."""
        self._check_approver(approver)
        self.note_configuration(at, who=approver)
        return self.revocations.revoke(record, approver, reason, at)

    def note_configuration(self, at: datetime, *, who: str = DAEMON) -> None:
        """Write down that party.toml is another than before, if it is."""
        with suppress(OSError):  # a configuration that was read a moment ago
            self.audit.note(What.CONFIGURATION, sha256(self.config.path.read_bytes()).digest(), at, who=who)

    def _write_down(self, what: What, record: StudyRecord, who: str, at: datetime, *, detail: str) -> None:
        self.note_configuration(at, who=who)
        event = Event(what=what, who=who, study=record.digest, study_id=record.study_id, detail=detail)
        self.audit.record(event, at)

    def _check_approver(self, approver: str) -> None:
        names = self.config.policy.approvers
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
    return Refusal(codes.get(state, "STUDY_WITHDRAWN"), message, hint="nothing can be decided any more")


def init_state(directory: Path, *, site_secret: bytes | None = None) -> None:
    """Make a state directory: site secret and an empty database. Repeating it changes nothing that is there.

    Args:
        directory: made (0700) when absent.
        site_secret: 32 bytes; None draws them from the operating system (anything else is for the simulation's ``--seed``).

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_fault(error, directory) from None
    if not (directory / SECRET_FILE).exists():
        create_secret(directory, secret=site_secret)
    Database(directory, create=True).close()
