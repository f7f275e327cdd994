"""``verticil party export`` and ``verticil party import``: a site's side of files that are carried.

No daemon runs at such a site. An export does what a daemon does on a connection, as far as the miner's last bundle allows, and
puts what it would send into one file; an import takes in what a poll would tell. Approval, policy, ledger, audit log and the
order of steps are the daemon's (`verticil.party.protocol.engine`). A study with masked tables, whose parties and miner answer
each other many times, is not carried: it can be denied so, and nothing else.

Promises
- An export says everything that this site has to say since the bundle that it answers: one that is lost is made good by the
  next. Whatever a column leaves for is in the ledger and the audit log before the file appears, and so is the file itself.
- An import believes nothing before the whole file is verified, and counts from the moment that the journal names it. A kill
  before leaves a bundle that can be imported again; importing again after changes nothing.
- Neither runs beside a daemon or beside each other (STATE_LOCKED).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Set
from enum import StrEnum
from pathlib import Path
from typing import Final

import verticil.party.protocol.shipped.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  # the registry's entries
from verticil.party.airgap.coordinator import OfflineCoordinator
from verticil.party.audit.log import Event, What, note_configuration
from verticil.party.config import PartyConfig, require_marked_authority
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.engine import Meaning, Outcome, meaning_of
from verticil.party.protocol.node.registry import study_of_miner
from verticil.party.protocol.node.task_ingest import read_proposal, remember
from verticil.party.protocol.outgoing_errors import redact_error
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.retry import TRIED_AGAIN
from verticil.party.protocol.with_miner.plan import Step
from verticil.party.protocol.with_miner.study import CoordinatedStudy
from verticil.party.site import Site
from verticil.party.storage.database import DaemonLock
from verticil.shared.core.errors import DataFault, Misuse, PeerFault, VerticilError
from verticil.shared.federation.airgap.bundle import (
    BundleEncryption,
    BundleEntries,
    Reference,
    Statement,
    VerifiedBundle,
    bundle_encryption,
    digest_of,
    pack,
    unpack,
    verify_bundle,
)
from verticil.shared.federation.airgap.exchange import (
    CARRIED_FOLDER,
    Exported,
    Held,
    Imported,
    Journal,
    Refused,
    StudyStage,
    check_arrival,
    load_journal,
    store_journal,
)
from verticil.shared.federation.audit import DAEMON
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList
from verticil.shared.federation.transport.errors_on_wire import from_detail, to_detail
from verticil.shared.federation.transport.interface import AnsweredLater
from verticil.shared.release.download import fetch_release
from verticil.shared.storage.durable import remove_tree, rename, sync_directory
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import carried_pb2, coordinator_pb2

_HEARD: Final = frozenset({Step.CLEAR, Step.FETCH_REVIEW})
"""Steps that send nothing: an import does them, so that people find what waits for them."""
_NOT_CARRIED: Final = frozenset({Step.CLEAR, Step.TELL_DENIAL, Step.TELL_REVOCATION})
"""What is done of a study with masked tables."""
NOT_CARRIED: Final = "its tables are masked, and a round is not carried in files: deny it, or connect to the miner"
"""What status shows of such a study."""
_FORGOTTEN: Final = frozenset({"STUDY_MISMATCH", "CERTIFICATE_INVALID"})
"""Codes with which a countersignature is refused for good: people are asked again."""


async def export_bundle(config: PartyConfig, out: Path, *, plain: bool = False) -> Exported:
    """Do what can be done, and write what it has to say to the miner into a new file.

    Args:
        config: party.toml.
        out: the file.
        plain: do not seal it.

    Raises:
        Misuse: FILE_EXISTS; CONFIG_INVALID, it cannot be sealed.
        PeerFault: NOT_READY, nothing was imported yet.
        DataFault: STATE_LOCKED, DISK_FULL and others of this machine.
    """
    if out.exists():
        raise Misuse("FILE_EXISTS", f"{out}: exists already and is not overwritten", hint="name another file")
    encryption = _encryption(config, plain=plain)
    async with _open_journal(config) as (node, folder):
        journal = load_journal(folder)
        answers = _answers(folder, journal)
        outgoing = BundleEntries.anew(folder / "outgoing")
        coordinator = OfflineCoordinator(answers, outgoing)
        for item in answers:
            if item.what == "task":
                await _work(node, coordinator, item.entry.task)
        federation, sealed = config.federation.name, encryption is not None
        statement = journal.statement(federation, "to-miner", config.name, made_at=utc_now(), sealed=sealed)

        def before(body: bytes) -> None:
            sha256 = digest_of(body)
            detail = f"bundle {statement.number}, {len(outgoing)} entries, {'sealed' if encryption else 'plain'}"
            event = Event(what=What.CARRIED_OUT, who=DAEMON, sha256=sha256, recipient="miner", detail=detail)
            node.site.audit.record(event, utc_now())
            reference = Reference(number=statement.number, sha256=sha256)
            store_journal(folder, journal.with_made(reference, tuple(coordinator.told)))

        bundle = pack(outgoing, out, statement, sign=node.signing_key.sign, encryption=encryption, before=before)
        export = _make_export(out, bundle, outgoing, _stages(node))
        remove_tree(outgoing.folder, ignore_errors=True)
        return export


async def import_bundle(config: PartyConfig, file: Path, *, accept_older: bool = False) -> Imported:
    """Take in what the miner tells in a file.

    Args:
        config: party.toml.
        file: the bundle.
        accept_older: the state comes from a backup: go on from what the audit log and the miner have, and charge it.

    Raises:
        Misuse: FILE_MISSING, CONFIG_INVALID.
        GateFailed: BUNDLE_INVALID, BUNDLE_OUT_OF_ORDER.
        PeerFault: CERTIFICATE_INVALID, IDENTITY_REFUSED and others of who made it.
        Refusal: LEDGER_OLDER.
        DataFault: STATE_LOCKED, DISK_FULL and others of this machine.
    """
    async with _open_journal(config, accept_older=accept_older) as (node, folder):
        arrival = verify_bundle(
            file,
            federation=config.federation.name,
            direction="to-party",
            party=config.name,
            authority=node.authority,
            revocations=node.revocations,
            at=utc_now(),
        )
        journal = check_arrival(load_journal(folder), arrival.statement, arrival.sha256, accept_older=accept_older)
        number, sha256 = arrival.statement.number, arrival.sha256.hex()
        if journal is None:
            return Imported(bundle=number, sha256=sha256, repeated=True, refused=(), studies=_stages(node))
        entries = _unpack(file, folder, arrival, _encryption(config, plain=not arrival.statement.sealed))
        refusals = await _apply(node, entries, journal, arrival, accept_older=accept_older)
        event = Event(
            what=What.CARRIED_IN,
            who=arrival.maker.name,
            peer_event=arrival.sha256,
            detail=f"bundle {arrival.statement.number}, {len(entries)} entries",
        )
        node.site.audit.record(event, utc_now())
        store_journal(folder, journal.with_taken(arrival.reference))
        for other in folder.glob("answers-*"):
            if other != entries.folder:
                remove_tree(other, ignore_errors=True)
        return Imported(bundle=number, sha256=sha256, repeated=False, refused=refusals, studies=_stages(node))


async def take_releases(config: PartyConfig, folder: Path) -> tuple[Path, ...]:
    """Write the published releases that the miner's last bundle holds, each into a new folder with its study's digest.

    Raises:
        Misuse: FILE_EXISTS.
        PeerFault: NOT_READY, there is none in it.
    """
    async with _open_journal(config) as (_, place):
        answers = _answers(place, load_journal(place))
        requests = [item.entry.file.request for item in answers if item.what == "file"]
        digests = dict.fromkeys(request.study_digest for request in requests if not request.review)
        if not digests:
            raise PeerFault(
                "NOT_READY",
                "the miner's last bundle holds no published release",
                hint="at the miner, when the study is published: verticil miner export PARTY --release STUDY --out FILE",
            )
        coordinator = OfflineCoordinator(answers, None)
        paths: list[Path] = []
        for digest in digests:
            paths.append(await fetch_release(coordinator, digest, folder / digest.hex()[:16]))
        return tuple(paths)


# ---- pieces


@contextlib.asynccontextmanager
async def _open_journal(
    config: PartyConfig, *, accept_older: bool = False
) -> AsyncGenerator[tuple[PartyContext, Path]]:
    credentials = load_credentials(
        config.certificate, config.key, config.federation, role=Role.PARTY, name=config.name, at=utc_now()
    )
    require_marked_authority(config, is_demo=credentials.is_demo)
    with (
        Site.open(config, accept_older=accept_older) as site,
        contextlib.closing(DaemonLock(config.state_directory)),
    ):
        folder = config.state_directory / CARRIED_FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        note_configuration(site.audit, site.config.path, utc_now())
        node = PartyContext(
            site=site,
            spool=Spool(config.state_directory / "spool"),
            signing_key=SigningKey.load(config.signing_key, config.certificate),
            revocations=DenyList(
                credentials.ca_pem,
                [config.federation.ca_certificate.with_name(FILE_NAME)],
                path=config.state_directory / FILE_NAME,
            ),
            authority=credentials.ca_pem,
            clock=utc_now,
        )
        yield node, folder


def _encryption(config: PartyConfig, *, plain: bool) -> BundleEncryption | None:
    return None if plain else bundle_encryption(config.federation, config.sealing_key, config.name, at_miner=False)


def _answers(folder: Path, journal: Journal) -> BundleEntries:
    last = journal.last_taken
    if last is None:
        raise PeerFault(
            "NOT_READY",
            "nothing of the miner's was imported here yet",
            hint="at the miner: verticil miner export PARTY --out FILE; here: verticil party import FILE",
        )
    entries = BundleEntries.read(folder / f"answers-{last.sha256.hex()[:16]}")
    if entries is None:
        raise DataFault(
            "STATE_CORRUPT", f"{folder}: the miner's bundle {last.number} is gone", hint="import a newer one"
        )
    return entries


def _unpack(file: Path, folder: Path, arrival: VerifiedBundle, encryption: BundleEncryption | None) -> BundleEntries:
    arriving, target = folder / "arriving", folder / f"answers-{arrival.sha256.hex()[:16]}"
    for stale in (arriving, target):
        remove_tree(stale, ignore_errors=True)
    try:
        unpack(file, arriving, encryption=encryption)
        rename(arriving, target)
        sync_directory(folder)
    except BaseException:
        remove_tree(arriving, ignore_errors=True)
        raise
    entries = BundleEntries.read(target)
    assert entries is not None  # it was just written
    return entries


async def _work(node: PartyContext, coordinator: OfflineCoordinator, task: coordinator_pb2.StudyTask) -> None:
    """Take the steps of one study, as far as they go without an answer."""
    try:
        study = read_proposal(node, task)
        # What was sent since the miner told this may be lost: it is sent again.
        is_stored = remember(node, task, study, fresh=True)
    except PeerFault as error:
        report = coordinator_pb2.ReportRequest(study_digest=task.study_digest, failure=to_detail(redact_error(error)))
        with contextlib.suppress(AnsweredLater):
            await coordinator.report(report)
        return
    if is_stored:
        masked = protocol_of(study).opens_tables
        await _steps(_study(node, coordinator, task.study_digest), only=_NOT_CARRIED if masked else None)
        if masked and not is_final(State(task.state)):
            node.site.state.show(task.study_digest, NOT_CARRIED, at=node.clock())


def _study(node: PartyContext, coordinator: OfflineCoordinator, digest: bytes) -> CoordinatedStudy:
    study = study_of_miner(node, None, digest)
    study.coordinator = coordinator
    return study


async def _steps(study: CoordinatedStudy, *, only: Set[StrEnum] | None = None) -> None:
    while True:
        try:
            while await study.step(only=only) is Outcome.DONE:
                pass
            return
        except VerticilError as error:
            has_failed = study.site.state.study(study.digest).failure is not None
            match meaning_of(error, waited_out=study.waited_out, has_failed=has_failed):
                case Meaning.OTHERS_TURN:  # it comes with the next bundle, or the request is on its way
                    return
                case Meaning.FAILS:
                    study.node.fail(study.digest, error)
                case _:
                    raise


async def _apply(
    node: PartyContext, entries: BundleEntries, journal: Journal, arrival: VerifiedBundle, *, accept_older: bool
) -> tuple[Refused, ...]:
    coordinator = OfflineCoordinator(entries, None)
    refusals = [item.entry.refusal for item in entries if item.what == "refusal"]
    _mark_arrived(node, journal, arrival)
    for item in entries:
        if item.what == "deny_list":
            node.revocations.offer(item.entry.deny_list)
        elif item.what == "task":
            task = item.entry.task
            with contextlib.suppress(PeerFault):  # the next export tells the miner that it cannot be served
                study = read_proposal(node, task)
                remember(node, task, study, fresh=True, accept_older=accept_older)
    for refusal in refusals:
        _take_refusal(node, refusal)
    for item in entries:
        if item.what == "receipt":
            upload = item.entry.receipt.upload
            record = node.site.state.find_effective(upload.effective_digest)
            if record is not None:
                await _study(node, coordinator, record.digest).take_receipt(upload.unit, item.entry.receipt.receipt)
    for record in node.site.state.studies():
        if not protocol_of(record.task.proposal_study).coordinated:
            continue
        waiting = _study(node, coordinator, record.digest)
        with contextlib.suppress(PeerFault):  # another release waits by now; the next bundle tells which
            while await waiting.step(only=_HEARD) is Outcome.DONE:
                pass
    return Refused.told(refusals, "the miner")


def _mark_arrived(node: PartyContext, journal: Journal, arrival: VerifiedBundle) -> None:
    """Mark what the miner has as reported to it."""
    answers = arrival.statement.answers
    site = node.site
    tell: dict[str, Callable[[bytes], None]] = {
        "denial": site.decisions.denial_told,
        "failure": site.state.failure_told,
        "withdrawal": site.revocations.mark_reported,
        "countersign": site.decisions.countersignature_told,
    }
    for what, digest in journal.told.get(str(answers.number), ()) if answers is not None else ():
        tell[what](digest)


def _take_refusal(node: PartyContext, refusal: carried_pb2.CarriedRefusal) -> None:
    """Take a refusal of the miner: the same as where a call ends with an error."""
    error, state = from_detail(refusal.error, teller="the miner"), node.site.state
    record = state.find_effective(refusal.digest)
    digest = record.digest if record is not None else refusal.digest
    if error.code == "NOT_READY" or error.code in TRIED_AGAIN or not state.knows(digest):
        return  # it is sent again, if it is still to be sent
    if refusal.what == "countersign":
        if error.code in _FORGOTTEN:
            node.site.decisions.forget_countersignature(digest)
    elif state.study(digest).failure is None and refusal.what not in {"denial", "withdrawal", "failure"}:
        node.fail(digest, error)


def _make_export(out: Path, bundle: Statement, entries: BundleEntries, studies: tuple[StudyStage, ...]) -> Exported:
    kinds: dict[str, list[int]] = {}
    for item in entries:
        what = item.entry.report.WhichOneof("what") if item.what == "report" else item.what
        kinds.setdefault(what or "nothing", []).append(item.entry.payload_size)
    return Exported(
        file=str(out),
        bundle=bundle.number,
        answers=None if bundle.answers is None else bundle.answers.number,
        sealed=bundle.sealed,
        bytes=out.stat().st_size,
        holds={what: Held(number=len(sizes), bytes=sum(sizes)) for what, sizes in kinds.items()},
        studies=studies,
    )


def _stages(node: PartyContext) -> tuple[StudyStage, ...]:
    return tuple(
        StudyStage(
            study=record.study_id,
            digest=record.digest.hex(),
            state=State(record.task.state).name.lower(),
            stage=record.stage,
        )
        for record in node.site.state.studies()
    )
