"""``verticil miner import``, ``export`` and ``close``: files that are carried, and what else the operator has the daemon do.

Promises
- What a bundle asks for is done by the service that answers calls (`MinerNode.offline`), under the identity of the certificate
  that signed the bundle; access is checked as for a call (`InMemoryCoordinator`). Nothing is done before the whole file is
  verified. What the service refuses is kept for the party's next answer; it stops nothing else.
- A bundle counts as taken in when the journal names it; a kill or a full disk before leaves what was committed, and importing the
  same file again goes on from there: lists and columns go on from the committed offset. Importing it once more after changes
  nothing.
- What a party would hear if it called is asked of the service under its identity. Everything it could ask for now is in the
  bundle: each of its studies, the common people, the blinded lists whose next station it is, the receipts of what is here, a
  release that waits for its countersignature, and the published ones that are asked for.
- A masked study (Model III) is not carried: what a file says of it is refused, but for a denial and a withdrawal.
- One bundle at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from verticil.miner.config import MinerConfig
from verticil.miner.rules.session import Session
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError
from verticil.shared.documents.toml_table import is_name, near_hint
from verticil.shared.federation.airgap.bundle import (
    BundleEncryption,
    BundleEntries,
    Item,
    Reference,
    bundle_encryption,
    digest_of,
    pack,
    unpack,
    verify_bundle,
)
from verticil.shared.federation.airgap.exchange import (
    Closed,
    Exported,
    Imported,
    Refused,
    StudyStage,
    check_arrival,
    load_journal,
    store_journal,
)
from verticil.shared.federation.alignment.statements import receiver
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport.chunks import make_chunks, plain_data
from verticil.shared.federation.transport.errors_on_wire import to_detail
from verticil.shared.federation.transport.in_memory import InMemoryCoordinator
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.release.download import CHANGED, fetch_release
from verticil.shared.storage.disk import write_fault
from verticil.shared.storage.durable import remove_tree
from verticil.shared.study.names import choose
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import carried_pb2, common_pb2, coordinator_pb2

L = TypeVar("L", coordinator_pb2.PutPseudonymsRequest, coordinator_pb2.PutBlindedRequest)
M = TypeVar("M")

_OF_THIS_MACHINE: Final = frozenset(
    {"DISK_FULL", "FILES_EXHAUSTED", "STATE_LOCKED", "STATE_CORRUPT", "RESOURCE_EXHAUSTED", "INTERNAL", "UNREACHABLE"}
)
"""The bundle is not to blame: it is taken in again when this is mended."""
_WITHOUT_A_LINE: Final = frozenset({"denial", "withdrawal"})
"""What a party may say of a masked study in a file."""
_LINKED: Final = frozenset({State.ALIGNING, State.PREPARING, State.UPLOADING})


class Exchange:
    """Takes bundles in and makes them, on an opened node.

    Args:
        config: miner.toml.
        node: the miner, serving or not.
        audit: where what the operator does is written down.
    """

    def __init__(self, config: MinerConfig, node: MinerNode, *, audit: MinerAudit) -> None:
        self._config = config
        self._node = node
        self._clock = node.session.clock
        self._audit = audit
        self._one = asyncio.Lock()

    async def import_bundle(self, file: Path, *, accept_older: bool = False) -> Imported:
        """Do what a party asks for in a bundle.

        Args:
            file: the bundle.
            accept_older: the miner's state comes from a backup: go on from what the party has.

        Raises:
            Misuse: FILE_MISSING, CONFIG_INVALID.
            GateFailed: BUNDLE_INVALID, BUNDLE_OUT_OF_ORDER.
            PeerFault: CERTIFICATE_INVALID, CERTIFICATE_REVOKED and others of who made it; RESOURCE_EXHAUSTED.
            DataFault: DISK_FULL and others of this machine.
        """
        async with self._one:
            arrival = await asyncio.to_thread(
                verify_bundle,
                file,
                federation=self._config.federation.name,
                direction="to-miner",
                party=None,
                authority=self._node.session.authority,
                revocations=self._node.session.revocations,
                at=self._clock(),
            )
            self._node.certificates.see(arrival.maker, arrival.certificate, is_carried=True)
            await asyncio.to_thread(self._node.certificates.keep)
            party, number = arrival.maker.name, arrival.statement.number
            folder = self._folder(party)
            journal = check_arrival(load_journal(folder), arrival.statement, arrival.sha256, accept_older=accept_older)

            def report_import(
                *, is_repeated: bool, numbers_skipped: tuple[int, ...] = (), refusals: tuple[Refused, ...] = ()
            ) -> Imported:
                return Imported(
                    party=party,
                    bundle=number,
                    sha256=arrival.sha256.hex(),
                    repeated=is_repeated,
                    skipped=numbers_skipped,
                    refused=refusals,
                    studies=self._stages(party),
                )

            if journal is None:
                return report_import(is_repeated=True)
            arriving = folder / "arriving"
            remove_tree(arriving, ignore_errors=True)
            try:
                encryption = self._encryption(party, plain=not arrival.statement.sealed)
                entries = await asyncio.to_thread(unpack, file, arriving, encryption=encryption)
                refusals = await replay(self._as(arrival.maker), entries, self._node.session)
            finally:
                remove_tree(arriving, ignore_errors=True)
            last = journal.last_taken
            store_journal(
                folder, journal.with_taken(arrival.reference, tuple(item.SerializeToString() for item in refusals))
            )
            return report_import(
                is_repeated=False,
                numbers_skipped=tuple(range(1 if last is None else last.number + 1, number)),
                refusals=Refused.told(refusals, f"party '{party}'"),
            )

    async def export_bundle(
        self, party: str, out: Path, *, releases: tuple[str, ...] = (), plain: bool = False
    ) -> Exported:
        """Write the answers for a party into a new file.

        Args:
            party: its name.
            out: the file.
            releases: ids or digests of studies whose published release goes with it.
            plain: do not seal it.

        Raises:
            Misuse: FILE_EXISTS; CONFIG_INVALID, it cannot be sealed; STUDY_UNKNOWN.
            PeerFault: NOT_READY, a release is not published; PARTY_UNKNOWN.
            DataFault: DISK_FULL and others of this machine.
        """
        if not is_name(party):
            raise Misuse("USAGE", f"'{party[:80]}': not a party's name", hint="as in its certificate")
        async with self._one:
            encryption = self._encryption(party, plain=plain)
            self._require_known(party)
            folder = self._folder(party)
            journal = load_journal(folder)
            entries = BundleEntries.anew(folder / "outgoing")
            identity = Identity(federation=self._config.federation.name, role=Role.PARTY, name=party)
            try:
                for refusal in journal.refused:
                    entries.add(carried_pb2.CarriedEntry(refusal=carried_pb2.CarriedRefusal.FromString(refusal)))
                await fill(
                    entries,
                    self._as(identity),
                    self._node.session,
                    party,
                    deny_list=self._node.session.revocations.newer_than(0),
                    releases=frozenset(self._digest(name) for name in releases),
                )
                sealed = encryption is not None
                statement = journal.statement(
                    identity.federation, "to-party", party, made_at=self._clock(), sealed=sealed
                )

                def before(body: bytes) -> None:
                    reference = Reference(number=statement.number, sha256=digest_of(body))
                    store_journal(folder, journal.with_made(reference))

                final_statement = await asyncio.to_thread(
                    pack, entries, out, statement, sign=self._node.signer.sign, encryption=encryption, before=before
                )
            except OSError as error:
                raise write_fault(error, folder) from None
            finally:
                remove_tree(entries.folder, ignore_errors=True)
            return Exported(
                party=party,
                file=str(out),
                bundle=final_statement.number,
                answers=None if final_statement.answers is None else final_statement.answers.number,
                sealed=final_statement.sealed,
                bytes=out.stat().st_size,
                studies=self._stages(party),
            )

    async def close(self, name: str, reason: str) -> Closed:
        """Close a study for the operator; what the miner holds of it is deleted, by the daemon.

        Args:
            name: id, ANALYST/id or digest.
            reason: for everybody to read.

        Raises:
            Misuse: STUDY_UNKNOWN, none or several; STUDY_OVER; USAGE.
            DataFault: DISK_FULL and others of this machine.
        """

        def close() -> Closed:
            at = self._clock()
            record = self._node.submissions.close(self._digest(name), reason)
            detail = f"{record.submitter}/{record.study_id} {record.digest.hex()}: {reason.strip()}"
            self._audit.record("study-closed", at, who="operator", detail=detail)
            return Closed(
                study=record.study_id,
                digest=record.digest.hex(),
                submitter=record.submitter,
                state=State(self._node.session.state(record)).name.lower(),
                reason=reason.strip(),
            )

        closure = await asyncio.to_thread(close)
        self._node.changes.notify()
        return closure

    # ---- pieces

    def _as(self, identity: Identity) -> InMemoryCoordinator:
        return InMemoryCoordinator(self._node.offline, identity, federation=self._config.federation.name)

    def _folder(self, party: str) -> Path:
        folder = self._config.state_directory / "carried" / party
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _require_known(self, party: str) -> None:
        """Check that a study or federation.toml names the party, or that it has sent a bundle."""
        session, federation = self._node.session, self._config.federation
        records = [session.record(digest) for digest in self._node.catalogue.versions()]
        names = {name for record in records for name in session.proposal(record).parties}
        names |= {*federation.peers, *federation.sealing}
        if party not in names and not load_journal(self._config.state_directory / "carried" / party).taken:
            hint = near_hint(party, sorted(names)) or "give the name that stands in the party's certificate"
            raise PeerFault("PARTY_UNKNOWN", f"party '{party}': no study names it", hint=hint)

    def _digest(self, name: str) -> bytes:
        match = choose(name, self._node.catalogue.submissions.names())
        if match is None:
            raise Misuse("STUDY_UNKNOWN", f"study '{name[:80]}': is not here", hint="verticil study list")
        return match.digest

    def _stages(self, party: str) -> tuple[StudyStage, ...]:
        session = self._node.session
        records = [
            session.record(digest) for digest in self._node.catalogue.versions() if session.concerns(digest, party)
        ]
        return tuple(
            StudyStage(
                study=record.study_id, digest=record.digest.hex(), state=State(session.state(record)).name.lower()
            )
            for record in records
        )

    def _encryption(self, party: str, *, plain: bool) -> BundleEncryption | None:
        if plain:
            return None
        return bundle_encryption(self._config.federation, self._config.sealing_key, party, at_miner=True)


async def replay(
    coordinator: Coordinator, entries: BundleEntries, session: Session
) -> list[carried_pb2.CarriedRefusal]:
    """Do everything that a bundle asks for.

    Args:
        coordinator: the service, under the party's identity.
        entries: the bundle's content.
        session: the miner's facts.

    Returns:
        What was refused.

    Raises:
        DataFault: DISK_FULL and others of this machine; it can be repeated.
        PeerFault: RESOURCE_EXHAUSTED, a quota or the disk's reserve.
    """
    refusals: list[carried_pb2.CarriedRefusal] = []
    for item in entries:
        try:
            await asyncio.to_thread(_check_line, session, item)
            await _ask(coordinator, item)
        except VerticilError as error:
            if error.code in _OF_THIS_MACHINE:
                raise
            what, digest = _about(item)
            refusals.append(carried_pb2.CarriedRefusal(what=what, digest=digest, error=to_detail(error)))
    return refusals


def _check_line(session: Session, item: Item) -> None:
    """Refuse a part in a masked study by name: its parties and the miner answer each other many times, over lines."""
    what, digest = _about(item)
    record = session.catalogue.study(digest) if len(digest) == 32 else None
    if record is not None and what not in _WITHOUT_A_LINE and opens_tables(session.proposal(record)):
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{record.study_id}': its tables are masked, and a party whose files are carried cannot take part in that",
            hint="connect the party to the miner, or deny the study; Model II can be carried",
        )


def _about(item: Item) -> tuple[str, bytes]:
    entry = item.entry
    if item.what == "report":
        return entry.report.WhichOneof("what") or "report", entry.report.study_digest
    if item.what == "pseudonyms":
        return item.what, entry.pseudonyms.study_digest
    if item.what == "blinded":
        return item.what, entry.blinded.study_digest
    return item.what, entry.column.effective_digest


async def _ask(coordinator: Coordinator, item: Item) -> None:
    entry = item.entry
    if item.what == "report":
        await coordinator.report(entry.report)
    elif item.what == "pseudonyms":
        await _list(coordinator.put_pseudonyms, entry.pseudonyms, item.payload)
    elif item.what == "blinded":
        await _list(coordinator.put_blinded, entry.blinded, item.payload)
    elif item.what == "column":
        await _column(coordinator, entry.column, item.payload)
    else:
        raise PeerFault("MESSAGE_INVALID", f"a bundle's entry '{item.what}': is none that a party makes")


def _chunks(payload: Path | None, size: int, offset: int, upload_id: str = "") -> Iterator[common_pb2.Chunk]:
    n_bytes = 0 if payload is None else payload.stat().st_size
    if n_bytes != size:
        raise PeerFault("MESSAGE_INVALID", f"a bundle's entry has {n_bytes} bytes, expected {size}")
    return make_chunks(payload if payload is not None else b"", offset=offset, upload_id=upload_id)


async def _list(
    put: Callable[[Iterable[L]], Awaitable[coordinator_pb2.PutPseudonymsReply | coordinator_pb2.PutBlindedReply]],
    head: L,
    payload: Path | None,
) -> None:
    head.ClearField("chunk")

    def stream(offset: int) -> Iterator[L]:
        yield head
        for chunk in _chunks(payload, head.size, offset):
            yield type(head)(chunk=chunk)

    reply = await put([head])
    while not reply.complete:
        before = reply.committed_offset
        reply = await put(stream(before))
        _further(before, reply.committed_offset, is_done=reply.complete)


async def _column(coordinator: Coordinator, begin: coordinator_pb2.BeginUploadRequest, payload: Path | None) -> None:
    reply = await coordinator.begin_upload(begin)
    if reply.HasField("receipt"):
        return
    offset = reply.committed_offset
    while offset < begin.size:
        chunks = _chunks(payload, begin.size, offset, reply.upload_id)
        new_offset = (await coordinator.put_chunks(chunks)).committed_offset
        _further(offset, new_offset, is_done=False)
        offset = new_offset
    await coordinator.finish_upload(coordinator_pb2.FinishUploadRequest(upload_id=reply.upload_id))


def _further(before: int, after: int, *, is_done: bool) -> None:
    if after <= before and not is_done:
        raise PeerFault("OFFSET_MISMATCH", f"a bundle's entry stays at byte {after}")


async def fill(
    entries: BundleEntries,
    coordinator: Coordinator,
    session: Session,
    party: str,
    *,
    deny_list: bytes,
    releases: frozenset[bytes],
) -> None:
    """Put in every answer that the party could ask for.

    Args:
        entries: to be filled.
        coordinator: the service, under the party's identity.
        session: the miner's facts.
        party: its name.
        deny_list: DER; empty: there is none.
        releases: digests of the studies whose published release goes with it.

    Raises:
        PeerFault: NOT_READY, a release that is asked for is not published.
        OSError: the disk.
    """
    if deny_list:
        entries.add(carried_pb2.CarriedEntry(deny_list=deny_list))
    for task in await _tasks(coordinator):
        entries.add(carried_pb2.CarriedEntry(task=task))
        if State(task.state) in _LINKED:
            await _alignment(entries, coordinator, task.study_digest)
            await _blinded_lists(entries, coordinator, session, task.study_digest, party)
        await _receipts(entries, coordinator, session, task)
        if task.review_manifest_sha256 and not is_final(State(task.state)):
            await _review(entries, coordinator, task.study_digest)
    for digest in sorted(releases):
        await _release(entries, coordinator, digest, review=False)


async def _tasks(coordinator: Coordinator) -> list[coordinator_pb2.StudyTask]:
    """Return all studies of the party, each once: one that changes between two replies, as the newer has it."""
    tasks: dict[bytes, coordinator_pb2.StudyTask] = {}
    known_studies: list[coordinator_pb2.KnownStudy] = []
    while news := (await coordinator.poll(coordinator_pb2.PollRequest(known=known_studies))).tasks:
        tasks.update({task.study_digest: task for task in news})
        known_studies = [
            coordinator_pb2.KnownStudy(study_digest=key, version=task.version) for key, task in tasks.items()
        ]
    return list(tasks.values())


async def _alignment(entries: BundleEntries, coordinator: Coordinator, digest: bytes) -> None:
    facts: coordinator_pb2.AlignmentPart | None = None
    path = entries.payload()
    request = coordinator_pb2.GetAlignmentRequest(study_digest=digest)
    with path.open("wb") as file, contextlib.suppress(_NotReadyError):
        async with contextlib.aclosing(_ready(coordinator.get_alignment(request))) as parts:
            async for part in parts:
                if part.HasField("chunk"):
                    file.write(plain_data(part.chunk))
                if facts is None:
                    part.ClearField("chunk")
                    facts = part
    if facts is not None:
        alignment = carried_pb2.CarriedAlignment(study_digest=digest, facts=facts)
        entries.add(carried_pb2.CarriedEntry(alignment=alignment), path)


async def _blinded_lists(
    entries: BundleEntries, coordinator: Coordinator, session: Session, digest: bytes, party: str
) -> None:
    study = session.proposal(session.record(digest))
    if study.linkage.mode != "dh-psi":
        return
    for owner in range(len(study.parties)):
        for hop in range(len(study.parties)):
            if receiver(study.parties, owner, hop) == party:
                request = coordinator_pb2.GetBlindedRequest(study_digest=digest, owner=owner, hop=hop)
                await _one_list(entries, coordinator, request)


async def _one_list(
    entries: BundleEntries, coordinator: Coordinator, request: coordinator_pb2.GetBlindedRequest
) -> None:
    path, facts, size = entries.payload(), coordinator_pb2.BlindedPart(), 1
    with path.open("wb") as file, contextlib.suppress(_NotReadyError):
        while file.tell() < size:
            next_request = coordinator_pb2.GetBlindedRequest.FromString(request.SerializeToString())
            next_request.offset = file.tell()
            async with contextlib.aclosing(_ready(coordinator.get_blinded(next_request))) as parts:
                async for part in parts:
                    if part.part.HasField("chunk"):
                        file.write(plain_data(part.part.chunk))
                        part.part.ClearField("chunk")
                    facts, size = part, part.part.size
    if facts.HasField("part"):
        entries.add(
            carried_pb2.CarriedEntry(blinded_for_you=carried_pb2.CarriedBlinded(request=request, facts=facts)), path
        )


async def _receipts(
    entries: BundleEntries, coordinator: Coordinator, session: Session, task: coordinator_pb2.StudyTask
) -> None:
    columns = session.record(task.study_digest).columns
    for unit in task.units_received:
        stored_column = columns[unit]
        upload = coordinator_pb2.BeginUploadRequest(
            effective_digest=task.effective_digest,
            unit=unit,
            size=stored_column.artifact_size,
            sha256=stored_column.artifact_sha256,
        )
        reply = await coordinator.begin_upload(upload)
        if reply.HasField("receipt"):
            receipt = carried_pb2.CarriedReceipt(upload=upload, receipt=reply.receipt)
            entries.add(carried_pb2.CarriedEntry(receipt=receipt))


async def _release(entries: BundleEntries, coordinator: Coordinator, digest: bytes, *, review: bool) -> None:
    folder = await fetch_release(coordinator, digest, entries.folder / f"release-{digest.hex()[:16]}", review=review)
    for path in sorted(folder.iterdir()):
        request = common_pb2.GetReleaseRequest(study_digest=digest, path=path.name, review=review)
        file = carried_pb2.CarriedFile(request=request, sha256=hashlib.sha256(path.read_bytes()).digest())
        entries.add(carried_pb2.CarriedEntry(file=file), path)


async def _review(entries: BundleEntries, coordinator: Coordinator, digest: bytes) -> None:
    """Add the release that waits for countersignatures, unless the study has gone on since: of that the next bundle tells."""
    try:
        await _release(entries, coordinator, digest, review=True)
    except VerticilError as error:
        if error.code not in CHANGED:
            raise


class _NotReadyError(Exception):
    """The party would be asked to wait."""


async def _ready(replies: AsyncGenerator[M, None]) -> AsyncGenerator[M, None]:
    """Yield what the service answers; raise `_NotReadyError` where it says that it is too early."""
    async with contextlib.aclosing(replies) as answer:
        try:
            async for reply in answer:
                yield reply
        except PeerFault as error:
            if error.code != "NOT_READY":
                raise
            raise _NotReadyError from None
