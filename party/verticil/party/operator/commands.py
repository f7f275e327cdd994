"""What the people of a site do, behind ``verticil party``: set it up, see how it is, approve, deny, countersign.

Every function opens the site's state, does one thing and closes it; a daemon may run beside it. What they return holds names,
counts, epsilons, codes. No value of a table, no id, no key. Refusing a release that waits is a denial (`deny`) and ends the study
for everybody; the analyst reads the reason.
"""

from __future__ import annotations

import datetime as dt
import math
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import verticil.party.protocol.shipped.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  # the registry's entries
from verticil.party.config import PartyConfig, columns_toml, dataset_rule, place_toml
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import ENDINGS, DatasetRule
from verticil.party.limits.limits import find_objections
from verticil.party.local_dataset import columns_of
from verticil.party.operator.reports import confirmations
from verticil.party.operator.view_model import (
    ColumnView,
    Confirmation,
    Crossing,
    DaemonView,
    PlacesView,
    Proposal,
    ShareView,
    Spent,
    StudyName,
    StudyStatus,
    columns,
    figure_words,
    name_keys,
    notice_of,
    number,
    places_of,
    share,
    spending_of_each,
    total,
    widen,
)
from verticil.party.policy import approval_checks
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.policy.ledger_recovery import OLDER_HINT
from verticil.party.policy.voting import Verdict, approver_key
from verticil.party.protocol.node.registry import party_protocol
from verticil.party.protocol.with_miner import countersigning
from verticil.party.site import Site, init_state
from verticil.party.storage.database import holds_nothing
from verticil.party.storage.studies import Heartbeat, StudyRecord, stamp
from verticil.shared.core.errors import Misuse, PeerFault, Refusal, VerticilError
from verticil.shared.core.health import has_ended, judge
from verticil.shared.documents.config import path_in, read_toml
from verticil.shared.documents.toml_table import Table, is_name, quoted
from verticil.shared.documents.view_models import left_out
from verticil.shared.federation.airgap.exchange import CARRIED_FOLDER, last_crossing
from verticil.shared.federation.identity.pki import read_certificates, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.current import CertificateState, certificate_state
from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.privacy.figures import finite_epsilon, sent_epsilons, total_epsilon
from verticil.shared.storage.disk import create_file
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.protocols import disclosure
from verticil.shared.study.states import State

_STALE_SECONDS: Final = 90
_REVOKED: Final = "CERTIFICATE_REVOKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCertificate(CertificateState):
    """How this node's certificate is, and the command that has a new one signed."""

    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRelease(StudyName):
    """A release that waits for this party, verified offline; `approver` has just countersigned it."""

    release: str
    report: str
    manifest_sha256: str
    publisher: str
    common_records: int
    synthetic_records: int
    countersigned: bool
    approver: str | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved(StudyName):
    """What came of an approval.

    Attributes:
        approved: there are enough votes.
        approvers, approvers_needed: who has voted for this, and how many have to.
        signed_with: which key, in words.
        void: approvers whose votes were for something else.
        changed: since the last vote.
        records: of the table.
        epsilon, epsilon_charged_now: of one person.
        alignment: what finding the common people shows, to whom.
        four_figures: of a masked study, in words.
        stated: what the study states of all records, a sentence each; None: nothing.
    """

    stated: tuple[str, ...] | None = left_out()
    four_figures: tuple[str, ...] | None = left_out()
    approved: bool
    approvers: tuple[str, ...]
    approvers_needed: int
    signed_with: str
    void: tuple[str, ...]
    changed: tuple[str, ...]
    records: int
    minimum_common_records: int
    columns: tuple[ColumnView, ...]
    epsilon: float | None
    epsilon_charged_now: float
    expires: str
    alignment: Mapping[str, str]
    share: ShareView | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied(StudyName):
    """A study that was denied, and why."""

    denied: bool = True
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a site is, and where each study stands.

    Attributes:
        carried: None: no bundle was ever carried here.
        certificate: None: none can be read.
        ledger: of each data set.
        common_sets: places for the sets of people that studies were about.
        warnings: in words.
    """

    party: str
    daemon: DaemonView
    carried: Crossing | None
    certificate: OwnCertificate | None
    disk_free_bytes: int
    studies: tuple[StudyStatus, ...]
    ledger: tuple[Spent, ...]
    attempted_sends: int
    common_sets: PlacesView
    warnings: tuple[str, ...]


def init_party(
    directory: Path,
    *,
    name: str,
    federation: str = "federation.toml",
    table: str = "table.csv",
    server: Server | None = None,
    query: str = "",
    id_column: str = "id",
    reading: DatasetRule | None = None,
) -> Path:
    """Set a party up: party.toml with a policy that permits little, the state directory and the site secret.

    One that was broken off before the state was whole is finished; a party.toml that is there by then stays as it is.

    Args:
        directory: made when absent.
        name: the party's name, as in its certificate.
        federation: path of federation.toml, relative to `directory`.
        table: path of the table, relative to `directory`; with `server` its name there.
        server: the database that has it; None: it is in a file.
        query: what yields the table in a database, in place of its name.
        id_column: its id column.
        reading: how the file is read and its columns are written, where that was looked at; None: as is usual.

    Returns:
        The path of party.toml.

    Raises:
        Misuse: FILE_EXISTS, CONFIG_INVALID.
        Refusal: LEDGER_OLDER, there was a state here.
        DataFault: DISK_FULL, STATE_CORRUPT, SECRET_MISSING.
    """
    if not is_name(name):
        raise Misuse("CONFIG_INVALID", f"name: got '{name[:80]}', expected 1 to 63 of A-Z a-z 0-9 _ -")
    kind = "server" if server is not None else ENDINGS.get(Path(table).suffix.lower(), "csv")
    rule = DatasetRule(
        path=Path() if server is not None else directory / table,
        format=kind,
        server=server,
        table=table if server is not None and not query else "",
        query=query,
        id=id_column,
    )
    if reading is not None:
        rule = replace(reading, path=rule.path, id=id_column)
    place = place_toml(rule, directory)
    _check_place(place, directory)
    path = directory / "party.toml"
    was_whole = not holds_nothing(directory / "state")
    init_state(directory / "state")
    if path.exists() and not was_whole:
        return path
    text = _TEMPLATE
    for key, value in {"NAME": name, "FEDERATION": federation, "ID": id_column}.items():
        text = text.replace(f'"{key}"', quoted(value))
    text = text.replace("NAME.", f"{name}.").replace("PLACE\n", place).replace("COLUMNS\n", columns_toml(rule))
    create_file(path, text.encode("utf-8"), mode=0o644, exists_hint="edit it, or name another folder")
    return path


def _check_place(place: str, directory: Path) -> None:
    """Say what is wrong with the lines before anything is made."""
    values = tomllib.loads(f'{place}id = "id"\n')
    dataset_rule(Table(values, where="dataset.people", source="party.toml"), directory)


def approve(
    config: PartyConfig,
    study: str,
    approver: str,
    *,
    key: Path | ApproverKey | None = None,
    at: dt.datetime | None = None,
) -> Approved:
    """Approve a study by id or digest; the daemon sends the approval when there are enough.

    Args:
        config: party.toml.
        study: id or digest.
        approver: who says so.
        key: the approver's private key, or its file; None: ``approvers/NAME.key`` beside party.toml, if it is there.
        at: now.

    Raises:
        Misuse: STUDY_UNKNOWN, CONFIG_INVALID; UNREVIEWED, its title or purpose is that of a draft.
        Refusal: whatever speaks against it; NOT_APPROVED without the approver's key.
        DataFault: whatever is wrong with the tables or the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        require_reviewed(record.task.proposal_study)
        own = approver_key(config, approver, key)
        verdict = site.voting.approve(record, approver, at if at is not None else utc_now(), key=own)
        return _approve(config, site, record, verdict)


def asked_study(config: PartyConfig, study: str) -> Study:
    """Return a study that is asked of this party, by id or digest, as it was submitted.

    Raises:
        Misuse: STUDY_UNKNOWN.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        return site.state.find(study).task.proposal_study


def deny(config: PartyConfig, study: str, approver: str, reason: str, *, at: dt.datetime | None = None) -> Denied:
    """Deny a study by id or digest, for good; the daemon tells the reason to the analyst or, between peers, to the others.

    Raises:
        Misuse: STUDY_UNKNOWN, USAGE.
        Refusal: the person is not an approver, or the study has ended.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        site.voting.deny(record, approver, reason, at if at is not None else utc_now())
        return Denied(**name_keys(record), reason=reason)


def look(config: PartyConfig, study: str) -> PendingRelease:
    """Verify the release that waits, offline, and say where its report is. Signs nothing.

    Raises:
        Misuse: STUDY_UNKNOWN.
        PeerFault: NOT_READY, none waits here.
        GateFailed: RELEASE_INVALID, RELEASE_UNTRUSTED.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        folder, manifest_sha256, release = countersigning.check(site, record, _compare(record))
        review_record = site.decisions.review(record.digest)
    return PendingRelease(
        **name_keys(record),
        release=str(folder),
        report=str(folder / "report.html"),
        manifest_sha256=manifest_sha256.hex(),
        publisher=release.publisher,
        common_records=release.common_records,
        synthetic_records=release.synthetic_records,
        countersigned=review_record is not None and review_record.countersignature is not None,
    )


def _compare(record: StudyRecord) -> countersigning.ReleaseCheck:
    """Return what a study's protocol compares a release with."""
    return party_protocol(record.task.latest).compare


def countersign(
    config: PartyConfig, study: str, approver: str, *, key: Path | ApproverKey | None = None
) -> PendingRelease:
    """Verify the release that waits and countersign it; the daemon tells the miner.

    Args:
        config: party.toml.
        study: id or digest.
        approver: who has looked at it; one person is enough.
        key: the approver's key; see `approve`.

    Raises:
        Misuse, PeerFault, GateFailed, DataFault: as `look`.
        Refusal: the person may not decide here, or the study has ended.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        site.voting.require_approver(record, approver, approver_key(config, approver, key))
        signing_key = SigningKey.load(config.signing_key, config.certificate)
        countersigning.countersign(site, record, signing_key, approver, utc_now(), compare=_compare(record))
    return replace(look(config, study), approver=approver)


def status(config: PartyConfig, *, at: dt.datetime | None = None) -> Status:
    """Return what is asked of this party, where each study stands, and what was spent. Reads no table.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        return status_of(site, at if at is not None else utc_now())


def status_of(site: Site, now: dt.datetime, *, in_full: bool = True) -> Status:
    """Return what `status` says, of an opened state; without its studies unless `in_full`."""
    config = site.config
    beat = site.state.heartbeat()
    alive = 0 <= _seconds_since(beat, now) <= _STALE_SECONDS and not has_ended(config.state_directory)
    return Status(
        party=config.name,
        daemon=DaemonView(
            running=alive,
            last_seen=None if beat is None else beat.at,
            connected=beat is not None and beat.connected and alive,
            link=linked_to(config),
            problem="" if beat is None else beat.problem,
        ),
        carried=_last_crossing(config),
        certificate=own_certificate(config, beat, now),
        disk_free_bytes=shutil.disk_usage(config.state_directory).free,
        studies=tuple(
            study_status(config, record, confirmations=_confirmations(site, record.digest))
            for record in (site.state.studies() if in_full else ())
        ),
        ledger=spending_of_each(site),
        attempted_sends=site.ledger.attempts(),
        common_sets=places_of(site),
        warnings=(*_similar(config, site), *places_of(site).warnings),
    )


def probe(config: PartyConfig) -> str:
    """Return whether the daemon of this configuration lives and works.

    Returns:
        A line for people.

    Raises:
        VerticilError: what keeps it from its work, or ended it (`verticil.shared.core.health.judge`), and as `condition`.
        Refusal: LEDGER_OLDER.
        DataFault: STATE_CORRUPT, STATE_READ_ONLY.
    """
    with Site.look(config) as site:
        beat = site.state.heartbeat()
    if (older := told_older(config, beat)) is not None:
        raise older
    condition(config, beat, utc_now())
    return judge(config.state_directory)


def condition(config: PartyConfig, beat: Heartbeat | None, now: dt.datetime) -> str:
    """Describe in words how a daemon that lives is.

    Args:
        config: party.toml.
        beat: what it wrote into its database last.
        now: UTC.

    Raises:
        PeerFault: CERTIFICATE_REVOKED, CERTIFICATE_INVALID (it has expired): no node lets it in.
    """
    certificate = own_certificate(config, beat, now)
    if certificate is not None and certificate.warning == 0:  # no node lets it in, whether it runs or not
        code = "CERTIFICATE_REVOKED" if "revoked" in certificate.words else "CERTIFICATE_INVALID"
        message = f"party '{config.name}': its certificate {certificate.words}"
        raise PeerFault(code, message, hint=f"have a new one signed: {certificate.command}")
    problem = "starting" if beat is None else beat.problem or "starting"
    return linked_to(config) if beat is not None and beat.connected else f"not connected ({problem})"


def told_older(config: PartyConfig, beat: Heartbeat | None) -> Refusal | None:
    """Why the daemon ended, if the miner showed it that this state is older than what was sent; else None."""
    if beat is None or beat.problem != "LEDGER_OLDER":
        return None
    return Refusal(
        "LEDGER_OLDER",
        f"party '{config.name}': the daemon ended: this state is older than what was sent ({beat.at})",
        hint=f"{OLDER_HINT} charges what is missing in full",
    )


def linked_to(config: PartyConfig) -> str:
    """Describe in words what a daemon that works is connected to."""
    return "connected to the miner" if config.federation.endpoint is not None else "serving its peers"


# ---- pieces


def own_certificate(config: PartyConfig, beat: Heartbeat | None, at: dt.datetime) -> OwnCertificate | None:
    """Return the state of this node's certificate; None when there is none that can be read.

    A node that is revoked may hear of it by a refusal only (`beat`), for whoever refuses it tells it nothing else.
    """
    state = certificate_state(config.certificate, at)
    if state is None:
        return None
    since = _revoked_since(config)
    is_revoked = beat is not None and beat.problem == _REVOKED and _put_there(config.certificate) <= beat.at
    if since is None and not is_revoked:
        return widen(state, OwnCertificate, command=f"verticil pki renew {_quote(config.certificate)}")
    command = (
        f"verticil pki request {config.name} --role party --new-keys --dir {_quote(config.certificate.parent)}"
        f" --federation {_quote(path_in(read_toml(config.path), 'federation', config.path.parent))}"
    )
    words = "was revoked" + ("" if since is None else f" on {since:%Y-%m-%d}")
    return widen(replace(state, words=words, warning=0), OwnCertificate, command=command)


def _revoked_since(config: PartyConfig) -> dt.datetime | None:
    beside = config.federation.ca_certificate
    try:
        serial = read_certificates(config.certificate)[0].serial_number
        deny_list = DenyList(
            config.federation.authority(), [beside.with_name(FILE_NAME), config.state_directory / FILE_NAME]
        )
    except (OSError, ValueError, VerticilError):
        return None
    return deny_list.since().get(serial)


def _put_there(certificate: Path) -> str:
    """Return when the present certificate was installed: a refusal before that was of an earlier one."""
    return stamp(dt.datetime.fromtimestamp(certificate.stat().st_mtime, dt.UTC))


def _quote(path: Path) -> str:
    return shlex.quote(str(path))


def _last_crossing(config: PartyConfig) -> Crossing | None:
    """Return the last bundles in both directions, of a site whose files are carried; None: nothing was ever carried here."""
    at, journal = last_crossing(config.state_directory / CARRIED_FOLDER)
    if at is None:
        return None
    last_made, last_taken = journal.made, journal.last_taken
    return Crossing(
        exported=last_made[-1].number if last_made else None,
        imported=None if last_taken is None else last_taken.number,
        at=stamp(at),
    )


def _similar(config: PartyConfig, site: Site) -> tuple[str, ...]:
    """Studies about nearly the same people as earlier ones; see `verticil.party.audit.common_sets`."""
    names = {record.digest: record.study_id for record in site.state.studies()}
    return tuple(
        f"study '{names[digest]}': fewer than {config.policy.minimum_difference} people are in only one of it and"
        f" {', '.join(others)}: releases about nearly the same people tell their difference"
        for digest, others in site.common_sets.warnings().items()
        if digest in names
    )


def _confirmations(site: Site, digest: bytes) -> tuple[Confirmation, ...] | None:
    """Return who has confirmed the deletion of a study between peers that was revoked here."""
    revocation = site.revocations.awaited_of(digest)
    return None if revocation is None else confirmations(revocation)


def _seconds_since(beat: Heartbeat | None, now: dt.datetime) -> float:
    if beat is None or beat.pid == 0:
        return math.inf
    return (now - dt.datetime.fromisoformat(beat.at)).total_seconds()


def _approve(config: PartyConfig, site: Site, record: StudyRecord, verdict: Verdict) -> Approved:
    review = verdict.review
    charges = {index: assessment.charge.epsilon for index, assessment in review.assessments.items()}
    return Approved(
        **name_keys(record),
        stated=describe_knowledge(review.study.knowledge, review.study.schema) or None,
        four_figures=figure_words(site, verdict.review.study),
        approved=verdict.complete,
        approvers=tuple(verdict.approvers),
        approvers_needed=config.policy.approvers_needed,
        signed_with="the approver's key" if config.policy.approvers else "the site's key",
        void=tuple(verdict.void),
        changed=tuple(verdict.changed),
        records=review.holding.n_records,
        minimum_common_records=review.bound.minimum_common_records,
        columns=columns(config, review.study, charges),
        epsilon=number(total(review)),
        epsilon_charged_now=finite_epsilon(charges.values()),
        expires=review.study.expires.isoformat(),
        alignment=disclosure(review.study).document(),
        share=share(review.study),
    )


def study_status(
    config: PartyConfig, record: StudyRecord, *, confirmations: tuple[Confirmation, ...] | None = None
) -> StudyStatus:
    """Return what `status` says of one study.

    Args:
        config: party.toml.
        record: of the study.
        confirmations: after a revocation between peers, who has confirmed the deletion.
    """
    proposal: Proposal | None = None
    shared: ShareView | None = None
    try:
        study = approval_checks.with_own_randomization(config, record.task.proposal_study)
        local = columns_of(config, study)
        proposal = Proposal(
            title=study.title,
            purpose=study.purpose,
            parties=tuple(study.parties),
            expires=study.expires.isoformat(),
            columns=columns(config, study, {}),
            epsilon=number(total_epsilon(sent_epsilons(study, config.name))),
        )
        objections = tuple(objection.message for objection in find_objections(config.policy, study, config.name, local))
        shared = share(study)
    except VerticilError as error:  # a broken table or declaration must not hide the other studies
        proposal, objections = None, (f"{error.code}: {error.message}",)
    return StudyStatus(
        **name_keys(record),
        state=State(record.task.state).name.lower(),
        stage=record.stage,
        percent=record.percent,
        since=record.stage_at or None,
        seen_at=record.seen_at,
        approved=record.approval is not None,
        denied=record.denial_sent is not None,
        revoked=record.revocation_sent is not None,
        approvals=record.n_votes,
        approvers_needed=config.policy.approvers_needed,
        common_records=record.n_common,
        miner_forgot=record.forgotten or None,
        failure=None if record.failure is None else notice_of(record.failure),
        ended_words_of_miner=record.task.ended_words or None,
        proposal=proposal,
        objections=objections,
        share=shared,
        confirmations=confirmations,
    )


_TEMPLATE: Final = """schema = 1
name = "NAME"
federation = "FEDERATION"                # paths are relative to this file
state_directory = "state"                # database, spool, site secret (0600); never shared, always backed up

[identity]
certificate = "pki/NAME.crt"
key = "pki/NAME.key"

[linkage]
key = "secrets/linkage.key"              # shared by the parties, never given to the miner

[dataset.people]
PLACE
id = "ID"                                # always read as text

# [dataset.people.columns.sex]           # only where the local table differs from the study
# source = "SEX"
# recode = { "M" = "Male", "F" = "Female" }
COLUMNS

# [[randomization]]                      # your own declaration; at least as strong as the study's
# variables = ["race"]
# scheme = "symmetric"
# epsilon = 1.5

# [peer]                                 # for studies between peers: where this party serves them; or: relay = true
# listen = "0.0.0.0:8444"
# advertise = "NAME.example.org:8444"    # as in [peers] of federation.toml

# [review]                               # a release that waits for this site's countersignature
# max_megabytes = 256                    # a larger one is not fetched

# [ui]                                   # the page of `verticil party ui`, for a browser on this machine
# listen = "127.0.0.1:8899"

[policy]                                 # enforced here, whatever the miner says
approval = "manual"                      # each study waits for `verticil party approve`; rules: see [[policy.rule]]
approvers_needed = 1                     # who may approve: [[approver]] below; nobody there: whoever may run the command here
max_epsilon_per_column = 3.0
max_epsilon_per_study = 20.0             # all columns of one person, and what is shared besides
max_epsilon_lifetime = 40.0              # of this data set, over everything it ever releases
allow_infinite = []                      # variables that may be sent with scheme "none", "blocks" or a zero cell
allow_exact_parameters = false           # between peers: may parameters be shared that are exact functions of this table
# max_share_epsilon = 3.0                # between peers: of the noise on what is shared besides columns; if absent as per column
# max_share_delta = 1e-6                 # and its delta
max_delta_lifetime = 1e-5                # between peers: of this data set, over everything that is ever shared
allow_masked = false                     # may tables be computed with others of columns that nobody reads
max_masked_epsilon = 1.0                 # what all tables of one such study may tell everybody
max_masked_delta = 1e-9
max_floor_epsilon_per_column = 6.0       # of a column there: a dealer of masks with the partner it dealt to could read it
max_floor_epsilon_per_study = 80.0       # and of all columns of one person, with what the tables tell such two
max_floor_delta_per_study = 1e-6
max_floor_epsilon_lifetime = 160.0       # of this data set, over everything
max_floor_delta_lifetime = 1e-5
allow_unchecked_partners = false         # may the rows of others go unchecked
allow_raw_under_masks = []               # variables that may be masked without a bound
max_linkages = 20                        # masked studies in which the people of this data set are linked
# allowed_dealers = ["insurer"]          # who may deal masks of this party; if absent whoever is in confirmed_keys
# noise_from = ["insurer"]               # whose noise may be counted; if absent whoever is in confirmed_keys
# confirmed_keys = { insurer = "words" } # of pinned keys, compared by telephone: verticil party confirm-key insurer WORDS
# max_public_epsilon = 20.0              # what a study tells everybody, its columns count; if absent nothing is drawn for them
# max_public_epsilon_lifetime = 40.0     # and all studies of this data set
# max_public_delta = 1e-6                # the delta of one study; if absent 0
# max_public_delta_lifetime = 1e-5       # and of all studies of this data set
# same_people = { clinicdb = "people" }  # [dataset.clinicdb] are those who were people: one account; or "apart", or "gone"
minimum_common_records = 1000
# A study is refused that leaves fewer people than this, but somebody, when its people are compared with those of one or two
# earlier studies: A - B, A + B - C. Sums of more than three releases are not looked at: exact parameters can tell them, noise is
# in the budget. Nothing that a study says moves this; max_common_sets different sets of people are remembered, none is dropped.
minimum_difference = 100
on_small_difference = "refuse"           # refuse | warn; the same where no place is left for a further set
# max_common_sets = 64                   # 8 MB each for a million people
# max_open_studies = 100                 # undecided studies of the miner that are kept; what it tells beyond is not stored
minimum_rows = 1                         # of this table
minimum_parties = 2
max_categories = 50
# max_days = 400                         # a study that is valid for longer is refused
# breach = { prior = 0.1, posterior = 0.5 }   # refuse a column by which a belief of 0.1 can become 0.5, also if in allow_infinite
deny_columns = ["ID"]                    # never leave, whatever a study calls them
recipients = ["miner"]                   # and the names of other parties, for studies between peers
on_data_change = "refuse"                # refuse | sticky | fresh: a second release of changed data
# max_rule_approvals_per_day = 10        # with approval = "rules": within any 24 hours; what is beyond waits for people

# [[policy.rule]]                        # with approval = "rules": what is approved without a person when all of this holds
# name = "repeats"
# columns = ["age", "sex"]               # of this table; no other may leave
# max_epsilon = 6.0                      # of all columns of one person
# only_repeats = true                    # nothing that was not sent before, by codebook, local column and matrix
# parties = ["insurer"]                  # optional, as are recipients = [..] and max_days = N

# [codebook]                             # with approval = "rules": what a study may ask, besides what a person approved before
# normalise = [["nfkc", "trim"]]         # steps applied to ids, each list in its order
# [[codebook.column]]                    # each as under [[variable]] in a study; a column may have several
# source = "age"                         # of this table
# bins = [17, 25, 35, 45, 55, 100]
# [[codebook.column]]
# source = "sex"
# categories = ["Female", "Male", "unknown"]
# missing = { category = "unknown", spellings = ["", "?"] }
# [[codebook.jointly]]                   # columns that are randomized in one draw
# sources = ["age", "sex"]
# impossible = [["[17,25)", "unknown"]]  # exactly these combinations, or none

# [[approver]]                           # made by: verticil party approver add officer@clinic
# name = "officer@clinic"
# public_key = "44 letters"
"""
