"""``verticil miner import``, ``export`` and ``close``: files that are carried, and what else the operator has the daemon do.

Promises
- What a bundle asks for is done by the service that answers calls (`MinerNode.carried`), under the identity of the certificate
  that signed the bundle. Nothing of it is done before the whole file is verified.
- A bundle counts as taken in when the journal names it; a kill or a full disk before leaves what was committed, and importing the
  same file again goes on from there. Importing it once more after changes nothing.
- One bundle at a time.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from pathlib import Path

from verticil.miner.airgap.answers import fill
from verticil.miner.airgap.requests import replay
from verticil.miner.config import MinerConfig
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.airgap.bundle import pack, unpack
from verticil.shared.airgap.bundle_encryption import Cover
from verticil.shared.airgap.bundle_entries import Pouch
from verticil.shared.airgap.bundle_verification import receive
from verticil.shared.airgap.journal import check_arrival, load_journal, store_journal
from verticil.shared.airgap.outcome import Closed, Exported, Imported, Refused, StudyStage
from verticil.shared.airgap.statement import Reference, Statement, digest_of
from verticil.shared.disk import write_fault
from verticil.shared.durable import remove_tree
from verticil.shared.errors import Misuse
from verticil.shared.identity.identity import Identity, Role, is_name
from verticil.shared.identity.signing import SigningKey
from verticil.shared.study.names import chosen
from verticil.shared.study.states import State
from verticil.shared.transport.authorization import Revocations
from verticil.shared.transport.errors_on_wire import from_detail
from verticil.shared.transport.in_memory import InMemoryCoordinator
from verticil.shared.transport.sealing import load_sealing_key
from verticil.shared.transport.version import PROTOCOL_VERSION
from verticil.wire.v1 import carried_pb2


class CarriedDesk:
    """Takes bundles in and makes them, on an opened node.

    Args:
        config: miner.toml.
        node: the miner, serving or not.
        authority: certificate of the federation's authority, PEM.
        signer: signs statements.
        revocations: the deny-list.
        clock: UTC now.
        audit: where what the operator does is written down.
    """

    def __init__(
        self,
        config: MinerConfig,
        node: MinerNode,
        *,
        authority: bytes,
        signer: SigningKey,
        revocations: Revocations,
        clock: Callable[[], dt.datetime],
        audit: MinerAudit,
    ) -> None:
        self._config = config
        self._node = node
        self._authority = authority
        self._signer = signer
        self._revocations = revocations
        self._clock = clock
        self._audit = audit
        self._one = asyncio.Lock()

    async def take_in(self, file: Path, *, accept_older: bool = False) -> Imported:
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
                receive,
                file,
                federation=self._config.federation.name,
                direction="to-miner",
                party=None,
                authority=self._authority,
                revocations=self._revocations,
                at=self._clock(),
            )
            self._node.certificates.see(arrival.maker, arrival.certificate, carried=True)
            await asyncio.to_thread(self._node.certificates.keep)
            party, number = arrival.maker.name, arrival.statement.number
            folder = self._folder(party)
            journal = check_arrival(load_journal(folder), arrival.statement, arrival.sha256, accept_older=accept_older)
            sha256 = arrival.sha256.hex()
            if journal is None:
                return Imported(
                    party=party,
                    bundle=number,
                    sha256=sha256,
                    repeated=True,
                    skipped=(),
                    refused=(),
                    studies=self._stages(party),
                )
            arriving = folder / "arriving"
            remove_tree(arriving, ignore_errors=True)
            try:
                cover = self._cover(party, plain=not arrival.statement.sealed)
                pouch = await asyncio.to_thread(unpack, file, arriving, cover=cover)
                refusals = await replay(self._as(arrival.maker), pouch)
            finally:
                remove_tree(arriving, ignore_errors=True)
            last = journal.last_taken
            store_journal(
                folder, journal.with_taken(arrival.reference, tuple(item.SerializeToString() for item in refusals))
            )
            return Imported(
                party=party,
                bundle=number,
                sha256=sha256,
                repeated=False,
                skipped=tuple(range(1 if last is None else last.number + 1, number)),
                refused=tuple(
                    Refused(what=refusal.what, code=error.code, message=error.message, hint=error.hint)
                    for refusal in refusals
                    for error in (from_detail(refusal.error, teller=f"party '{party}'"),)
                ),
                studies=self._stages(party),
            )

    async def hand_out(self, party: str, out: Path, *, releases: tuple[str, ...] = (), plain: bool = False) -> Exported:
        """Write what a party is to be told into a new file.

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
            cover = self._cover(party, plain=plain)
            folder = self._folder(party)
            journal = load_journal(folder)
            pouch = Pouch(self._fresh(folder / "outgoing"))
            identity = Identity(federation=self._config.federation.name, role=Role.PARTY, name=party)
            try:
                for refusal in journal.refused:
                    pouch.add(carried_pb2.CarriedEntry(refusal=carried_pb2.CarriedRefusal.FromString(refusal)))
                await fill(
                    pouch,
                    self._as(identity),
                    self._node.session,
                    party,
                    deny_list=self._revocations.newer_than(0),
                    releases=frozenset(self._digest(name) for name in releases),
                )
                statement = Statement(
                    federation=self._config.federation.name,
                    direction="to-party",
                    party=party,
                    number=journal.next_number,
                    answers=journal.last_taken,
                    made_at=self._clock(),
                    protocol=PROTOCOL_VERSION,
                    sealed=cover is not None,
                    size=0,
                    pieces=(),
                )

                def before(body: bytes) -> None:
                    made = Reference(number=statement.number, sha256=digest_of(body))
                    store_journal(folder, journal.with_made(made))

                said = await asyncio.to_thread(
                    pack, pouch, out, statement, sign=self._signer.sign, cover=cover, before=before
                )
            except OSError as error:
                raise write_fault(error, folder) from None
            finally:
                remove_tree(pouch.folder, ignore_errors=True)
            return Exported(
                party=party,
                file=str(out),
                bundle=said.number,
                answers=None if said.answers is None else said.answers.number,
                sealed=said.sealed,
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

        closed = await asyncio.to_thread(close)
        self._node.changes.notify()
        return closed

    # ---- pieces

    def _as(self, identity: Identity) -> InMemoryCoordinator:
        return InMemoryCoordinator(self._node.carried, identity, federation=self._config.federation.name)

    def _folder(self, party: str) -> Path:
        folder = self._config.state_directory / "carried" / party
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _fresh(self, folder: Path) -> Path:
        remove_tree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        return folder

    def _digest(self, name: str) -> bytes:
        found = chosen(name, self._node.catalogue.submissions.names())
        if found is None:
            raise Misuse("STUDY_UNKNOWN", f"study '{name[:80]}': is not here", hint="verticil study list")
        return found.digest

    def _stages(self, party: str) -> tuple[StudyStage, ...]:
        session = self._node.session
        found = [
            session.record(digest) for digest in self._node.catalogue.versions() if session.concerns(digest, party)
        ]
        return tuple(
            StudyStage(
                study=record.study_id, digest=record.digest.hex(), state=State(session.state(record)).name.lower()
            )
            for record in found
        )

    def _cover(self, party: str, *, plain: bool) -> Cover | None:
        federation = self._config.federation
        own, other = federation.miner_sealing, federation.sealing.get(party)
        if plain:
            return None
        if own is None or other is None:
            missing = "miner.sealing_key" if own is None else f"sealing.{party}"
            raise Misuse(
                "CONFIG_INVALID",
                f"federation.toml: {missing}: missing, so a bundle cannot be sealed",
                hint="verticil pki seal NAME.crt shows a node's key; or --plain, and whoever finds the file can read it",
            )
        key = load_sealing_key(self._config.sealing_key, own)
        return Cover(own=key, other=other, federation=federation.name, party=party)
