"""The miner's part in the rounds of masked tables (model-three.md): one open round for each study that is aligned and not over.

The protocol itself is `verticil.shared.masked.round`; here is its place in the life of a study. A round begins after alignment,
which is recorded before anything of it leaves (`Catalogue.begin_round`). Messages of the parties arrive as files, whole files
are taken in, and whatever follows from them is done by `advance`, one call at a time for each study, in a worker thread. When
the tables are opened they are written as the study's noisy tables, and then that is recorded: learning begins, and nothing of
the round is needed for it. A message that comes before the round can tell whether it is what it must be waits as a file. When
every party has acknowledged them, or the study ends, the round's folder is deleted; the catalogue is the line that stays, and
of each party two short signatures, which show it what it had charged (`verticil.shared.masked.round.proof`). A
round whose folder is gone before its tables are opened, as on a disk that was restored, is over and ends its study.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from verticil.miner.learning.exact_tables import tables_with, with_coarse
from verticil.miner.rules.message_rounds import MessageRounds, RoundUnderWay
from verticil.miner.rules.session import Session
from verticil.miner.storage.noisy_table_files import binding_of_tables, read_tables, write_tables
from verticil.miner.storage.records import StudyRecord
from verticil.miner.storage.store import append_durably, remove_durably, replace_durably, write_durably
from verticil.shared.core.arrays import Counts
from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.proof import is_missing_in
from verticil.shared.masked.round.round import Round, RoundProgress
from verticil.shared.masked.round.schedule import Kind, Message, messages_of
from verticil.shared.masked.round.sealed_messages import Credentials
from verticil.shared.masked.round.secrets import random_of
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State
from verticil.shared.study.tables import tables_of, tables_sigma
from verticil.wire.v1 import common_pb2, peer_pb2

OPEN: Final = (
    State.PREPARING,
    State.UPLOADING,
    State.ESTIMATING,
    State.LEARNING,
    State.REVIEW,
    State.PUBLISHED,
)
"""In which a round may be under way: after the opening parties still fetch the tables, and say that they have them."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """What the miner seals and opens messages with.

    Attributes:
        key: its own.
        pinned: public keys of the parties, by name.
    """

    key: X25519PrivateKey
    pinned: Mapping[str, bytes]


@dataclass(slots=True, kw_only=True)
class OpenRound:
    """A round under way.

    Attributes:
        study: digest of the proposal.
        folder: the round's.
        plan: what is public about it.
        messages: all of them, in order.
        round: the protocol; what changes it is for `Rounds.advance` alone.
        progress: how far it was when `Rounds.advance` looked last.
        leaving: how many messages might leave then.
        whole: SHA-256 of the messages that have arrived since the miner started, by index.
        closed: nothing more is taken in.
        twice: whose messages of one place came with two contents; the next `Rounds.advance` ends the round.
        writing: held by who changes files of arriving messages.
    """

    study: bytes
    folder: Path
    plan: Plan
    messages: tuple[Message, ...]
    round: Round
    progress: RoundProgress
    leaving: int = 0
    whole: dict[int, bytes] = field(default_factory=dict)
    closed: bool = False
    twice: PeerFault | None = None
    writing: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """A message on its way to the disk; see `Rounds.begin`."""

    opened: OpenRound
    index: int
    size: int
    sha256: bytes
    committed: int
    name: str

    @property
    def _path(self) -> Path:
        return self.opened.folder / "arriving" / f"{self.index}-{self.sha256.hex()}"

    def append(self, offset: int, data: bytes) -> int:
        """Write bytes; returns the committed offset.

        Raises:
            PeerFault: OFFSET_MISMATCH; MESSAGE_INVALID, more bytes than announced; NOT_READY, the round is over.
            DataFault: DISK_FULL.
        """
        end = offset + len(data)
        if end > self.size:
            raise PeerFault("MESSAGE_INVALID", f"{self.name}: {end} bytes, expected at most the announced {self.size}")
        with self.opened.writing:
            self._check_open()
            if (current_size := _size(self._path)) != offset:
                raise PeerFault(
                    "OFFSET_MISMATCH",
                    f"{self.name}: data for offset {offset}, expected offset {current_size}",
                    hint="ask for the committed offset and go on from there",
                )
            append_durably(self._path, offset, data)
        return end

    def complete(self) -> None:
        """Check the bytes of a message that has arrived, and leave it for `Rounds.advance`. Repeating it is harmless.

        Another one in the place of one that is here already is not kept: the round takes nothing more in, and ends.

        Raises:
            PeerFault: ARTIFACT_INVALID, it has another SHA-256 (it is forgotten and may be sent again); NOT_READY.
        """
        with self.opened.writing:
            self._check_open()
            if self.opened.whole.get(self.index) == self.sha256:
                return
            with self._path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if digest != self.sha256:
                remove_durably(self._path)
                raise PeerFault("ARTIFACT_INVALID", f"{self.name}: the bytes do not have the announced SHA-256")
            folder = _folder(self.opened.folder, "arrived")
            others = {path.name for path in folder.glob(f"{self.index}-*")} - {self._path.name}
            if self.index in self.opened.whole or others:
                remove_durably(self._path)
                self.opened.twice = self.opened.round.came_twice(self.index)
                self.opened.closed = True
                return
            replace_durably(self._path, folder / self._path.name)
            self.opened.whole[self.index] = self.sha256

    def _check_open(self) -> None:
        _check_open(self.opened, self.name)


class Rounds(MessageRounds):
    """The miner's open rounds; `session` asks it who they wait for.

    Args:
        session: the rules.
        signer: the miner's signing key.
        sealing: None: this miner carries out no masked study.
        seed_derived: a trial: what is drawn follows from a seed, where there is one.
    """

    def __init__(
        self, session: Session, signer: SigningKey, sealing: Sealing | None, *, seed_derived: bool = False
    ) -> None:
        self._seed_derived = seed_derived
        self._session = session
        self._signer = signer
        self._sealing = sealing
        self._open: dict[bytes, OpenRound] = {}
        self._advancing: defaultdict[bytes, threading.Lock] = defaultdict(threading.Lock)
        session.waited_for = self.waited_for

    # -- what may be asked at any time ---------------------------------------------------------------------------------------

    def check_keys(self, study: Study) -> None:
        """Check that the miner can seal messages to every party of a masked study, and open theirs.

        Raises:
            Misuse: STUDY_UNSUPPORTED, naming whose key is missing.
        """
        sealing = self._sealing
        missing = [f"of party '{name}'" for name in study.parties if sealing is None or name not in sealing.pinned]
        if sealing is None:
            missing.insert(0, "of the miner")
        if missing and opens_tables(study):
            raise Misuse(
                "STUDY_UNSUPPORTED",
                f"study '{study.id}': its tables are masked, and this miner's federation.toml pins no sealing key "
                + ", ".join(missing),
                hint="verticil pki seal NAME.crt at each of them; the key stands in [sealing], the miner's as sealing_key in "
                "[miner], and the same federation.toml at every site",
            )

    def under_way(self, digest: bytes) -> RoundUnderWay | None:
        """Return the round that is under way; see `MessageRounds.under_way`."""
        open_round = self._open.get(digest)
        if open_round is None:
            return None
        return RoundUnderWay(words=str(open_round.progress), slot_seconds=open_round.plan.slot_milliseconds / 1000)

    def find(self, digest: bytes) -> OpenRound | None:
        """Return the round of a study; None: it has not begun, or is over."""
        return self._open.get(digest)

    def is_open(self, record: StudyRecord) -> bool:
        """Return whether a study has a round that is under way, or has to begin."""
        session = self._session
        if session.state(record) not in OPEN or not opens_tables(session.effective(record)):
            return False
        return record.learning is None or session.store.study(record.digest).masked.exists()

    def waited_for(self, digest: bytes) -> tuple[str, ...]:
        """Return those whose messages a round waits for; nobody where there is none."""
        open_round = self._open.get(digest)
        return () if open_round is None else open_round.progress.waiting_for

    def progress(self) -> tuple[RoundProgress, ...]:
        """Return how far all open rounds are."""
        return tuple(open_round.progress for open_round in tuple(self._open.values()))

    def late(self) -> int:
        """Return how many messages of open rounds were not ready for their slot, since the miner started."""
        return sum(open_round.round.late for open_round in tuple(self._open.values()))

    # -- messages ------------------------------------------------------------------------------------------------------------

    def begin(self, open_round: OpenRound, party: str, index: int, *, size: int, sha256: bytes) -> Arriving | None:
        """Begin a message that a party sends, and say how much of it is here; None: all of it. Blocks.

        Raises:
            PeerFault: NOT_OWNER, it is not the party's to send to the miner; MESSAGE_INVALID; RESOURCE_EXHAUSTED.
        """
        name = f"message {index} of the round of masked tables"
        message = open_round.messages[index] if index < len(open_round.messages) else None
        if message is None or (message.sender, message.recipient) != (party, open_round.plan.miner):
            raise PeerFault("NOT_OWNER", f"{name}: is not one that '{party}' sends to the miner")
        most = open_round.round.limit(index)
        if not 0 < size <= most or len(sha256) != 32:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"{name}: has {size} bytes, expected 1 to {most}; its digest has {len(sha256)} bytes, expected 32",
            )
        if open_round.whole.get(index) == sha256:
            return None
        with open_round.writing:
            _check_open(open_round, name)
            arriving = _folder(open_round.folder, "arriving")
            for other in arriving.glob(f"{index}-*"):
                if other.name != f"{index}-{sha256.hex()}" or _size(other) > size:
                    remove_durably(other)
            offset = _size(arriving / f"{index}-{sha256.hex()}")
        used_bytes = sum(
            _size(Path(folder) / file) for folder, _, files in os.walk(open_round.folder) for file in files
        )
        promised_bytes = self._session.catalogue.uploads.outstanding_bytes()
        self._session.store.ensure_room(
            name, needed_bytes=size - offset, used_bytes=used_bytes, promised_bytes=promised_bytes
        )
        return Arriving(opened=open_round, index=index, size=size, sha256=sha256, committed=offset, name=name)

    # -- work ----------------------------------------------------------------------------------------------------------------

    def advance(self, digest: bytes) -> bool:
        """Take in the messages that have arrived and do what follows; whether something is new. Blocks.

        Raises:
            VerticilError: the round ends, and the study with it.
        """
        with self._advancing[digest]:
            record = self._session.record(digest)
            if not self.is_open(record):
                if (open_round := self._open.get(digest)) is not None:
                    self._close(open_round)
                return False
            open_round = self._open_round(record)
            if open_round.twice is not None:
                raise open_round.twice
            new = self._take_in(open_round) | open_round.round.step()
            if open_round.round.held_seconds:  # until its slot nobody sees that something is made, by whatever sign
                return new
            if record.learning is None and (counts := open_round.round.read_tables()) is not None:
                self._keep(record, counts)
                self._session.catalogue.set_learning(digest, "estimating")
                new = True
            new |= self._may_leave(open_round)
            open_round.progress = open_round.round.progress
            if open_round.round.is_finished:
                self._close(open_round)
                _log.info("study %s: every party has the opened tables; its round is deleted", digest.hex())
            return new

    def _open_round(self, record: StudyRecord) -> OpenRound:
        if (open_round := self._open.get(record.digest)) is not None:
            return open_round
        folder = self._session.store.study(record.digest).masked
        if record.uploading and not folder.exists():
            raise DataFault(
                "STATE_CORRUPT",
                f"study '{record.study_id}': the miner's part of its round of masked tables is gone",
                hint="a round does not outlive a restored disk: what was drawn for it exists once; submit the study anew",
            )
        study = self._session.effective(record)
        self.check_keys(study)
        plan = self._plan(record)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        round_ = Round(
            folder,
            plan,
            plan.miner,
            credentials=self._credentials(plan),
            keep=functools.partial(self._keep_proof, record.digest),
            clock=self._session.clock,
            random=random_of(self._session.store.root, plan.effective, trial=self._seed_derived),
        )
        round_.begin()
        self._session.catalogue.begin_round(record.digest)
        open_round = OpenRound(
            study=record.digest,
            folder=folder,
            plan=plan,
            messages=messages_of(plan),
            round=round_,
            progress=round_.progress,
        )
        self._open[record.digest] = open_round
        return open_round

    def _plan(self, record: StudyRecord) -> Plan:
        return plan_of(self._session.effective(record), record.n_common or 0, proposal=record.digest)

    def _credentials(self, plan: Plan) -> Credentials:
        if self._sealing is None:
            raise ValueError("a miner without a sealing key has no rounds")
        session = self._session

        def verify(signed: common_pb2.Signed, name: str) -> None:
            own = name == plan.miner
            verify_signed(
                signed,
                session.authority,
                role=Role.MINER if own else Role.PARTY,
                name=session.identity.name if own else name,
                at=session.clock(),
                deny_list=session.revocations.since(),
            )

        pinned_keys = {name: self._sealing.pinned[name] for name in plan.parties}
        pinned_keys[plan.miner] = self._sealing.key.public_key().public_bytes_raw()
        return Credentials(signing=self._signer, sealing=self._sealing.key, pinned=pinned_keys, verify=verify)

    def _take_in(self, open_round: OpenRound) -> bool:
        is_new = False
        for path in sorted((open_round.folder / "arrived").glob("*-*")):
            try:
                open_round.round.receive(int(path.name.partition("-")[0]), path)
            except PeerFault as error:
                if error.code != "NOT_READY":
                    raise
            else:
                is_new = True
        return is_new

    def _may_leave(self, open_round: OpenRound) -> bool:
        """Return whether a message may leave that might not before: it was made, or its slot has come."""
        before = open_round.leaving
        open_round.leaving = sum(len(open_round.round.outgoing(party)) for party in open_round.plan.parties)
        return open_round.leaving > before

    def _close(self, open_round: OpenRound) -> None:
        with open_round.writing:
            open_round.closed = True
        self._open.pop(open_round.study, None)
        self._session.store.study(open_round.study).remove_masked()

    def end(self, digest: bytes) -> None:
        """Delete what there is of the round of a study that is over. Blocks; repeatable."""
        with self._advancing[digest]:
            if (open_round := self._open.get(digest)) is not None:
                self._close(open_round)
            self._session.store.study(digest).remove_masked()

    # -- what stays of a round -------------------------------------------------------------------------------------------------

    def proof(self, digest: bytes, party: str) -> tuple[common_pb2.Signed, ...]:
        """Return a party's own signatures under messages of a round that the miner keeps. Blocks."""
        try:
            data = self._session.store.study(digest).proof(party).read_bytes()
        except FileNotFoundError:
            return ()
        return tuple(peer_pb2.Held.FromString(data).messages)

    def _keep_proof(self, digest: bytes, party: str, kind: Kind, signed: common_pb2.Signed) -> None:
        """Keep a signature of a party, durably, if it proves what those that are here do not; raises DataFault: DISK_FULL."""
        proofs, path = self.proof(digest, party), self._session.store.study(digest).proof(party)
        if is_missing_in(proofs, kind):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(path, peer_pb2.Held(messages=[*proofs, signed]).SerializeToString())

    # -- the opened tables ---------------------------------------------------------------------------------------------------

    def _keep(self, record: StudyRecord, counts: tuple[Counts, ...]) -> None:
        files, study, n_common = (
            self._session.store.study(record.digest),
            self._session.effective(record),
            record.n_common or 0,
        )
        files.prepare_tables()
        n_fine = len(tables_of(study))
        tables = tables_with(study, counts[:n_fine], n_common)
        tables = with_coarse(study, tables, counts[n_fine:]) if len(counts) > n_fine else tables
        write_tables(files.noisy_tables, tables, self.binding(record))

    def binding(self, record: StudyRecord) -> bytes:
        """Return what binds the file of opened tables to a study: the effective study, the plan, and the number of people."""
        study, n_common = self._session.effective(record), record.n_common or 0
        return binding_of_tables(study, [self._plan(record).digest], n_common, tables_sigma(study))

    def tables(self, record: StudyRecord) -> Path:
        """Return the file of a study's opened tables, whole. Blocks.

        Raises:
            DataFault: STATE_CORRUPT, it is damaged, and the round, from which it could be written again, is deleted.
        """
        files, study, n_common = (
            self._session.store.study(record.digest),
            self._session.effective(record),
            record.n_common or 0,
        )
        try:
            read_tables(files.noisy_tables, study, n_common, self.binding(record), noisy=True)
        except (FileNotFoundError, DataFault):
            with self._advancing[record.digest]:
                counts = self._open_round(record).round.read_tables() if self.is_open(record) else None
                if counts is None:
                    raise DataFault(
                        "STATE_CORRUPT",
                        f"study '{record.study_id}': its opened tables are damaged, and its round is deleted",
                        hint="restore them from a backup of the miner's state, else submit the study anew",
                    ) from None
                self._keep(record, counts)
        return files.noisy_tables


def _folder(round_: Path, name: str) -> Path:
    path = round_ / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _check_open(open_round: OpenRound, name: str) -> None:
    if open_round.closed:
        raise PeerFault("NOT_READY", f"{name}: the round is over", hint="poll for the state")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it is not there, or was taken away beside this look
        return 0
