"""A site's opened state: configuration, database, secrets. What the daemon and the commands of the site's people work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from verticil.party.audit.common_sets import CommonSets
from verticil.party.audit.log import AuditLog
from verticil.party.config import PartyConfig
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.dataset.keyfile import read_key
from verticil.party.local_dataset import LocalDataset, column_draws_of, read_holding
from verticil.party.people.sketches import Sketches
from verticil.party.policy import approval_checks
from verticil.party.policy.approval_checks import Review
from verticil.party.policy.decision_store import DecisionStore
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.ledger_recovery import check_traces, open_database
from verticil.party.policy.revocation import Revocations
from verticil.party.policy.voting import FollowedConfig, Voting
from verticil.party.storage.database import Database
from verticil.party.storage.secret import FILE_NAME as SECRET_FILE
from verticil.party.storage.secret import SiteSecret, create_secret, read_secret
from verticil.party.storage.studies import PartyState, StudyRecord
from verticil.shared.storage.database import disk_faults
from verticil.shared.study.document import Study


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """One party's opened state. Use as a context manager.

    Attributes:
        followed: party.toml.
        database, state, decisions, ledger, sketches: the state directory.
        audit, common_sets, revocations: what the site writes down of its acts.
        secret, linkage_key: never shown.
    """

    followed: FollowedConfig
    database: Database
    state: PartyState
    decisions: DecisionStore
    ledger: Ledger
    sketches: Sketches
    audit: AuditLog
    common_sets: CommonSets
    revocations: Revocations
    secret: SiteSecret = field(repr=False)
    linkage_key: bytes = field(repr=False)

    @classmethod
    def open(cls, config: PartyConfig, *, accept_older: bool = False) -> Site:
        """Open the state directory of a party that was set up.

        Raises:
            Refusal: LEDGER_OLDER, unless `accept_older` has what the audit log tells charged.
            DataFault: SECRET_MISSING, STATE_CORRUPT, DISK_FULL.
            Misuse: CONFIG_INVALID, the linkage key's file.
        """
        secret, key = read_secret(config.state_directory), read_key(config.linkage_key)
        return cls._on(config, open_database(config, accept_older=accept_older), secret, key)

    @classmethod
    def look(cls, config: PartyConfig) -> Site:
        """Open the state directory to read it: the database refuses every write, and the secrets stay unread (they are empty).

        Raises:
            Refusal: LEDGER_OLDER.
            DataFault: STATE_CORRUPT.
        """
        return cls._on(config, open_database(config, read_only=True), SiteSecret(value=b""), b"")

    @classmethod
    def _on(cls, config: PartyConfig, database: Database, secret: SiteSecret, key: bytes) -> Site:
        audit = AuditLog(database, config.state_directory)
        return cls(
            followed=FollowedConfig(config),
            database=database,
            state=PartyState(database),
            decisions=DecisionStore(database),
            ledger=Ledger(database, config.policy.same_people),
            sketches=Sketches(database, config.state_directory),
            audit=audit,
            common_sets=CommonSets(database, config.state_directory),
            revocations=Revocations(database, audit, party=config.name),
            secret=secret,
            linkage_key=key,
        )

    @property
    def config(self) -> PartyConfig:
        """party.toml, with its policy as it stands there now."""
        return self.followed.now()

    @property
    def site_secret(self) -> bytes:
        """The 32 bytes of the site's secret."""
        return self.secret.value

    @property
    def voting(self) -> Voting:
        """Who may say yes or no to a study here, and what comes of it."""
        return Voting(
            followed=self.followed,
            database=self.database,
            state=self.state,
            decisions=self.decisions,
            ledger=self.ledger,
            sketches=self.sketches,
            audit=self.audit,
            revocations=self.revocations,
            secret=self.secret,
            linkage_key=self.linkage_key,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.database.close()

    def read(self, record: StudyRecord, progress: Callable[[int], None] = lambda rows: None) -> LocalDataset:
        """Read this party's tables for a study, and store whom they name; arguments and errors as `read_holding`."""
        holding = read_holding(
            self.config,
            record.task.proposal_study,
            proposal_digest=record.digest,
            site_secret=self.secret,
            linkage_key=self.linkage_key,
            name_of_draws=self.ledger.name_of_draws,
            progress=progress,
        )
        self.sketches.take(holding.tables)
        return holding

    def review(self, record: StudyRecord, at: datetime) -> Review:
        """Everything that is looked at before anybody says yes; raises as `verticil.party.policy.approval_checks.review`."""
        return approval_checks.review(
            self.config,
            self.ledger,
            self.sketches,
            record.task.proposal,
            site_secret=self.secret,
            linkage_key=self.linkage_key,
            today=at.date(),
        )

    def column_draws(self, study: Study, holding: LocalDataset) -> dict[int, ColumnDraw]:
        """Return what releasing each of this party's units of `study` means; raises as `origins`."""
        column_draws = column_draws_of(self.config, study, holding, site_secret=self.site_secret)
        return approval_checks.as_drawn(column_draws, self.ledger)


def init_state(directory: Path, *, site_secret: bytes | None = None) -> None:
    """Make a state directory: site secret and an empty database. Repeating it changes nothing that is there.

    Args:
        directory: made (0700) when absent.
        site_secret: 32 bytes; None draws them from the operating system (anything else is for the simulation's ``--seed``).

    Raises:
        Refusal: LEDGER_OLDER, there was a database here.
        DataFault: DISK_FULL, STATE_CORRUPT, SECRET_MISSING.
    """
    with disk_faults(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_traces(directory)
    if not (directory / SECRET_FILE).exists():
        create_secret(directory, secret=site_secret)
    Database(directory, create=True).close()
