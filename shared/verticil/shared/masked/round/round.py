"""One node's part in one round of masked tables: what is on its disk, and what follows from it.

model-three.md. The plan gives the list of all messages (`verticil.shared.masked.round.schedule`). A message is made when those
are there that it waits for, sealed once, and kept as it left; one that came is verified before it counts. Nothing else is
remembered, so a node that was killed anywhere goes on by looking at its folder. What a node sends, and whether, depends on no
value of its table: a message waits for messages only, and what ends a round is what others sent, or another table than it
began with.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import secrets as operating_system
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from verticil.shared.core.arrays import Ints
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.documents import record
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round import opening as tables_work
from verticil.shared.masked.round.envelope import size_of_file
from verticil.shared.masked.round.message_payloads import Contents, report_change
from verticil.shared.masked.round.pair_products import People
from verticil.shared.masked.round.round_state import RoundState, check_hellos
from verticil.shared.masked.round.round_store import RoundFolder, file_sha256
from verticil.shared.masked.round.schedule import CHARGED, IN_SLOTS, SACRIFICE, About, Kind, Message
from verticil.shared.masked.round.sealed_messages import Credentials
from verticil.shared.masked.round.secrets import Random, draw
from verticil.shared.storage.durable import remove
from verticil.wire.v1 import common_pb2

_log: Final = logging.getLogger(__name__)

_OF_GROUPS: Final = frozenset(
    {
        *SACRIFICE,
        Kind.THERE,
        Kind.PASSED,
        Kind.SEED,
        Kind.PRODUCT,
        Kind.MASKED,
        Kind.PACKET,
        Kind.FITS,
        Kind.CLOSED,
        Kind.OPEN,
        Kind.TOLD,
        Kind.EXPECTED,
        Kind.W_SHARE,
        Kind.F_SHARE,
    }
)
"""Of a pair or a triple, until it is done."""
_DEALT: Final = frozenset({Kind.SEED, Kind.PRODUCT, Kind.STATEMENT})
_EARLY: Final = {
    Kind.HELLO: "hello.json",
    Kind.AGREED: "t0",
    Kind.SEED: "t0",
    Kind.PRODUCT: "t0",
    Kind.STATEMENT: "t0",
    Kind.AGREED_AGAIN: "t1",
}
"""What has to be there before such a message can be verified; behind it all need that every node has one T1."""
_TOLD_TOGETHER: Final = frozenset(SACRIFICE) - {Kind.ALPHA}
"""Of a sacrifice: verified by, or compared with, the own one, which is on the disk when another's comes."""


class Item(NamedTuple):
    """A sealed message as a file."""

    path: Path
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProgress:
    """How far a node is; nothing in it depends on a value of anybody's table.

    Attributes:
        stage: for people.
        done, expected: messages, made and got.
        size: bytes of those that are there.
        pairs_done, pairs: whose checks are over, and all, of the pairs and triples that this node sees: a party those in which
            it is, or deals, by what is said when one is done; the miner all, by the shares of their parties.
        waiting_for: who has to send something now.
        since: when the last message came.
    """

    stage: str
    done: int
    expected: int
    size: int
    pairs_done: int
    pairs: int
    waiting_for: tuple[str, ...]
    since: dt.datetime

    def __str__(self) -> str:
        """Describe the progress for people."""
        names = ", ".join(self.waiting_for)
        return (
            f"{self.stage}: {self.done} of {self.expected} messages, {self.size} bytes, {self.pairs_done} of {self.pairs} pairs"
            + (f", waiting since {self.since:%Y-%m-%d %H:%M} UTC for {names}" if names else "")
        )


class _ByKind:
    """A node's messages of one direction."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._all = tuple(messages)
        self._kinds: dict[Kind, list[Message]] = {}
        self._about: dict[tuple[Kind, About], list[Message]] = {}
        for message in self._all:
            self._kinds.setdefault(message.kind, []).append(message)
            self._about.setdefault((message.kind, message.about), []).append(message)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def of(self, kind: Kind) -> Sequence[Message]:
        """Return the messages of a kind."""
        return self._kinds.get(kind, ())

    def all_in(self, there: Set[int], kind: Kind, group: tuple[int, int] | None) -> bool:
        """Return whether all of a kind are there; of one pair or triple only, or of all."""
        return all(message.index in there for message in self.of(kind) if group in {None, message.group})

    def about(self, message: Message, kind: Kind) -> Sequence[Message]:
        """Return those of a kind about the same run of a check, or of a sacrifice."""
        return self._about.get((kind, message.about), ())


class Round:
    """One node's part. Everything blocks; one call at a time, but for `outgoing`, `sealed`, `limit` and `progress`.

    Args:
        folder: of this study's round, in the node's state; made when absent. In no backup.
        plan: of the round.
        me: this node's name.
        credentials: its keys.
        people: a party's; None at the miner.
        charge: called with T1 before anything leaves that depends on rows; again after a crash, so idempotent by T1.
        keep: called with each party's message that came and was verified: whose it is, of which kind, and its signature; before
            the message counts as received, and again after a crash.
        clock: UTC now.
        random: gives so many random bytes; another one than the operating system's is for trials.

    Attributes:
        late: messages that were not ready for their slot, since this process began.

    Raises:
        Misuse: CONFIG_INVALID, a pinned key is missing.
        Refusal: APPROVAL_VOID, the round was begun with another plan, or it has ended.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        me: str,
        *,
        credentials: Credentials,
        people: People | None = None,
        charge: Callable[[bytes], None] = lambda _: None,
        keep: Callable[[str, Kind, common_pb2.Signed], None] = lambda _sender, _kind, _signed: None,
        clock: Callable[[], dt.datetime],
        random: Random = operating_system.token_bytes,
    ) -> None:
        self._folder = RoundFolder(folder)
        self._plan, self._me, self._charge, self._clock, self._random = plan, me, charge, clock, random
        self._keep = keep
        self._check_open()
        self._s = RoundState(plan=plan, me=me, folder=self._folder, credentials=credentials, given=people)
        credentials.check(self._s.contributors, me)
        self._folder.write_once("plan.json", record.encode(plan), "its plan")
        self._contents = Contents(self._s)
        self._messages = self._s.messages
        self._outgoing = _ByKind(message for message in self._messages if message.sender == me)
        self._incoming = _ByKind(message for message in self._messages if message.recipient == me)
        self._sent, self._got = self._folder.all_sent(), self._folder.all_got()
        self._written: set[str] = set()  # files that are known to be there
        self._pairs = _pairs_of(self._messages, me, is_party=self._s.is_party)
        self._began = 0  # when the step began that is under way, ns since 1970
        self.late = 0
        self._sizes: dict[int, int] = {}  # of messages' files, bytes
        self._slots: dict[int, int] = {}  # when those of messages that are made begin, ns since 1970
        self._is_sealed = False  # whether this process has compared the table with the data seal

    # ---- what callers ask

    def begin(self) -> None:
        """Draw what is secret, and make the hello.

        Raises:
            DataFault: DISK_FULL.
        """
        self._check_open()
        if self._folder.read("hello.json") is not None:
            return
        if self._folder.secrets is None:
            self._s.keep(draw(self._plan, self._me, self._random))
        self._folder.write("hello.json", self._contents.hello())
        self._is_sealed = True

    def _check_open(self) -> None:
        if self._folder.end_line:
            raise Refusal(
                "APPROVAL_VOID",
                "masked tables: this round has ended at this node",
                hint="a round is never taken up again: submit the study under a new id, with a new approval",
            )

    def outgoing(self, name: str, have: Collection[int] = ()) -> tuple[int, ...]:
        """Messages for a node that may leave now, but for those that it has."""
        messages = [message for message in self._outgoing if message.recipient == name and message.index in self._sent]
        return tuple(item.index for item in messages if item.index not in have and self._may_leave(item))

    def _may_leave(self, message: Message) -> bool:
        """Return whether its slot has come (section 4.8)."""
        if message.kind not in IN_SLOTS:
            return True
        try:
            return self._now() >= self._leaves(message)
        except FileNotFoundError:
            return False

    def _leaves(self, message: Message) -> int:
        """Return when the slot of a message that is made begins, in ns since 1970: the next one after the time of its
        file.
        """
        if message.index not in self._slots:
            file_time, slot = self._folder.sent_path(message.index).stat().st_mtime_ns, self._slot
            self._slots[message.index] = (file_time // slot + 1) * slot
        return self._slots[message.index]

    def _stamp(self, message: Message) -> int:
        """Return the time for the file of a message that was made just now and leaves with a slot, in ns since 1970.

        It has a whole slot for its work, counted from the first full slot after the step began. When it leaves says
        then nothing of how long the work took; of work that took longer it does, and the log says so.
        """
        time, slot = self._now(), self._slot
        if time // slot > self._began // slot + 1:
            self.late += 1
            if self.late == 1:
                _log.warning(
                    "masked tables: the work for a message was not done within a slot of %d ms, so it leaves with a later one,"
                    " and that tells how long this machine works; it is too slow, or too busy; further ones are counted",
                    self._plan.slot_milliseconds,
                )
        return max(time, (self._began // slot + 1) * slot)

    @property
    def _slot(self) -> int:
        return self._plan.slot_milliseconds * 1_000_000

    def _now(self) -> int:
        return int(self._clock().timestamp() * 1_000_000_000)

    @property
    def held_seconds(self) -> float:
        """How long until everything that is made may leave; until then a node shows nobody that it is made."""
        messages = [message for message in self._outgoing if message.kind in IN_SLOTS and message.index in self._sent]
        return max(0, max(map(self._leaves, messages), default=0) - self._now()) / 1_000_000_000

    def sealed(self, index: int) -> Item:
        """Return the file of an outgoing message, to be sent as it is.

        Raises:
            PeerFault: NOT_READY, it is not there, or its slot has not come.
        """
        message = self._messages[index] if 0 <= index < len(self._messages) else None
        if message is None or message.sender != self._me or index not in self._sent or not self._may_leave(message):
            raise PeerFault("NOT_READY", f"masked tables: message {index} is not there yet")
        path = self._folder.sent_path(index)
        return Item(path=path, size=path.stat().st_size, sha256=bytes.fromhex(file_sha256(path)))

    def recipient(self, index: int) -> str:
        """Return who a message is for; empty: there is none of this number."""
        return self._messages[index].recipient if 0 <= index < len(self._messages) else ""

    def missing(self, name: str) -> tuple[int, ...]:
        """Return what a node has to send to this one, could be taken in now, and is not there."""
        return tuple(
            message.index
            for message in self._incoming
            if message.sender == name and message.index not in self._got and self._may_come(message)
        )

    def limit(self, index: int) -> int:
        """Most bytes of the file of a message for this node."""
        message = self._messages[index]
        if message.group != (-1, -1) and not self._has("t0"):
            raise PeerFault("NOT_READY", f"{self._s.mail.name(message)}: is not awaited yet")
        return size_of_file(self._contents.frame_sizes(message))

    def receive(self, index: int, path: Path) -> None:
        """Take a message in, from a file on the same disk, which is moved or removed.

        Raises:
            PeerFault: the round ends: MESSAGE_INVALID, it is not what it must be, or another one than came before;
                STUDY_MISMATCH, its sender has other messages or another plan; NOT_READY, it is not awaited yet.
            DataFault: DISK_FULL.
        """
        message = self._messages[index] if 0 <= index < len(self._messages) else None
        if message is None or message.recipient != self._me:
            raise PeerFault("MESSAGE_INVALID", f"masked tables: message {index} is not for '{self._me}'")
        if index in self._got:
            self._compare(message, path)
            return
        if not self._may_come(message):
            raise PeerFault("NOT_READY", f"{self._s.mail.name(message)}: is not awaited yet")
        hellos = {} if message.kind is Kind.HELLO else self._s.hellos
        sizes = self._contents.frame_sizes(message)
        signed = self._s.mail.check_signature(path, message, self._s.transcript(message.kind), hellos, sizes)
        try:
            with self._s.arriving(message, path):
                self._contents.check(message)
        except (VerticilError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 (what nobody foresaw in foreign bytes is their sender's fault, and hangs no node)
            problem = f"{self._s.mail.name(message)}: cannot be read ({type(error).__name__})"
            raise PeerFault("MESSAGE_INVALID", problem, hint="the round ends") from None
        if message.sender in self._plan.parties:
            self._keep(message.sender, message.kind, signed)
        self._folder.take(index, path)
        self._got.add(index)

    def _compare(self, message: Message, path: Path) -> None:
        """Compare a message that came again: the same one is no news, another one ends the round."""
        index = message.index
        digest = self._folder.deleted_digests().get(index) or file_sha256(self._folder.arrival_path(index))
        same = file_sha256(path) == digest
        remove(path)
        if not same:
            raise self.came_twice(index)

    def came_twice(self, index: int) -> PeerFault:
        """Return what ends the round when a message comes twice, and not the same bytes."""
        message = self._messages[index]
        return PeerFault(
            "MESSAGE_INVALID",
            f"{self._s.mail.name(message)}: it came twice, and not the same bytes",
            hint=f"'{message.sender}' was set back to an earlier state, or is at fault; the round ends",
        )

    @property
    def progress(self) -> RoundProgress:
        """How far this node is."""
        own_numbers, arrivals = tuple(self._sent), tuple(self._got)
        departures = [
            index for index in own_numbers if self._may_leave(self._messages[index])
        ]  # when it was made is nobody's to know
        there = {*departures, *arrivals}
        late = {item.sender for item in self._incoming if item.index not in self._got and self._may_come(item)}
        return RoundProgress(
            stage=self._stage,
            done=len(departures) + len(arrivals),
            expected=len(self._outgoing) + len(self._incoming),
            size=sum(map(self._size, (*departures, *arrivals))),
            pairs_done=sum(numbers <= there for numbers in self._pairs),
            pairs=len(self._pairs),
            waiting_for=tuple(name for name in self._s.contributors if name in late),
            since=self._folder.last_came,
        )

    def _size(self, index: int) -> int:
        """Return the size of a message's file, which stays as it is; 0: it is deleted."""
        if index not in self._sizes:
            path = self._folder.sent_path(index) if index in self._sent else self._folder.arrival_path(index)
            self._sizes[index] = path.stat().st_size if path.exists() else 0
        return self._sizes[index]

    @property
    def _stage(self) -> str:
        stages = (
            ("agreeing on the plan", {Kind.HELLO, Kind.AGREED}),
            ("dealing masks", {Kind.SEED, Kind.PRODUCT}),
            ("committing", {Kind.STATEMENT, Kind.AGREED_AGAIN}),
            ("checking what was dealt", {*SACRIFICE, Kind.THERE, Kind.PASSED}),
            ("masking", {Kind.MASKED, Kind.PACKET}),
            ("checking rows", _OF_GROUPS | {Kind.DONE}),
            ("opening", {Kind.SHARE, Kind.OPENED, Kind.RECEIPT}),
        )
        kinds_missing = {item.kind for item in self._outgoing if item.index not in self._sent}
        kinds_missing |= {item.kind for item in self._incoming if item.index not in self._got}
        return next((words for words, kinds in stages if kinds & kinds_missing), "done")

    @property
    def is_finished(self) -> bool:
        """A party has the opened tables and has said so; the miner has heard it of all."""
        if self._s.is_party:
            return self._all_sent(Kind.RECEIPT)
        return self._all_got(Kind.RECEIPT)

    def read_tables(self) -> tuple[Ints, ...] | None:
        """Return the tables with their noise, in the plan's order; None: they are not opened yet."""
        data = self._contents.tables()
        return None if data is None else tables_work.tables_from(self._plan, data)

    def end(self) -> None:
        """End the round, however it went: write the line that stays, and delete everything else."""
        end_round(self._folder.path, self._clock())

    # ---- what may come, and what may be made

    def _all_got(self, kind: Kind, group: tuple[int, int] | None = None) -> bool:
        return self._incoming.all_in(self._got, kind, group)

    def _all_sent(self, kind: Kind, group: tuple[int, int] | None = None) -> bool:
        return self._outgoing.all_in(self._sent, kind, group)

    def _has(self, name: str) -> bool:
        if name not in self._written and self._folder.read(name) is not None:
            self._written.add(name)
        return name in self._written

    def _is_agreed(self) -> bool:
        """Return whether all have one T1, and this node has heard so."""
        return self._has("t1") and self._all_got(Kind.AGREED_AGAIN)

    def _got_of(self, message: Message, kind: Kind, count: int = 1) -> bool:
        """Return whether so many messages of a kind about the same run of a check came."""
        return sum(item.index in self._got for item in self._incoming.about(message, kind)) >= count

    def _sent_of(self, message: Message, kind: Kind) -> bool:
        """Return whether this node's message of a kind about the same run of a check is made."""
        return any(item.index in self._sent for item in self._outgoing.about(message, kind))

    def _all_say(self, message: Message, kind: Kind) -> bool:
        """Return whether all of a kind about the same run of a sacrifice are here: both others', and this node's own
        for both.
        """
        theirs, own = self._incoming.about(message, kind), self._outgoing.about(message, kind)
        return all(item.index in self._got for item in theirs) and all(item.index in self._sent for item in own)

    def _is_dealt_rightly(self, message: Message) -> bool:
        """Return whether rows of a triple may leave: all three have said that both runs of the sacrifice passed."""
        return self._all_got(Kind.PASSED, message.group) and self._all_sent(Kind.PASSED, message.group)

    def _may_come(self, message: Message) -> bool:
        """Return whether this node can tell now whether a message is what it must be."""
        kind = message.kind
        if self._s.is_party and self._all_sent(Kind.RECEIPT):
            return False
        if kind in _EARLY:
            return self._has(_EARLY[kind]) and (kind not in _DEALT or self._all_got(Kind.AGREED))
        if kind in _TOLD_TOGETHER:
            return self._is_agreed() and all(item.index in self._sent for item in self._outgoing.about(message, kind))
        late: dict[Kind, Callable[[], bool]] = {
            Kind.CLOSED: lambda: self._sent_of(message, Kind.CLOSED),
            Kind.OPEN: lambda: self._sent_of(message, Kind.OPEN),
            Kind.EXPECTED: lambda: self._got_of(message, Kind.OPEN),
            Kind.W_SHARE: lambda: self._sent_of(message, Kind.W_SHARE),
            Kind.F_SHARE: lambda: self._sent_of(message, Kind.F_SHARE),
            Kind.OPENED: lambda: self._all_sent(Kind.SHARE),
            Kind.RECEIPT: lambda: self._has("tables"),
        }
        return self._is_agreed() and (kind not in late or late[kind]())

    def _may_be_made(self, message: Message) -> bool:
        """Return whether everything is there that a message of this node waits for (section 2, "may leave when")."""
        if message.kind in SACRIFICE:
            before = SACRIFICE.index(message.kind)
            return self._is_agreed() and (
                self._all_say(message, SACRIFICE[before - 1])
                if before
                else self._all_got(Kind.THERE, message.group) and self._all_sent(Kind.THERE, message.group)
            )
        group = message.group
        rules: dict[Kind, Callable[[], bool]] = {
            Kind.HELLO: lambda: self._has("hello.json"),
            Kind.AGREED: lambda: self._has("t0"),
            Kind.SEED: lambda: self._has("t0") and self._all_got(Kind.AGREED),
            Kind.PRODUCT: lambda: self._has("t0") and self._all_got(Kind.SEED, group),
            Kind.STATEMENT: lambda: self._has("statement.json"),
            Kind.AGREED_AGAIN: lambda: self._has("t1"),
            Kind.THERE: lambda: self._is_agreed() and self._all_got(Kind.PRODUCT, group),
            Kind.PASSED: lambda: self._is_agreed() and self._all_got(SACRIFICE[-1], group),
            Kind.MASKED: lambda: self._is_agreed() and self._is_dealt_rightly(message),
            Kind.PACKET: lambda: self._is_agreed() and self._is_dealt_rightly(message),
            Kind.FITS: lambda: self._got_of(message, Kind.PACKET) and self._all_got(Kind.MASKED, group),
            Kind.CLOSED: lambda: self._got_of(message, Kind.FITS) and self._sent_of(message, Kind.FITS),
            Kind.OPEN: lambda: self._got_of(message, Kind.CLOSED),
            Kind.TOLD: lambda: self._got_of(message, Kind.OPEN),
            Kind.EXPECTED: lambda: self._got_of(message, Kind.TOLD, 2),
            Kind.W_SHARE: lambda: self._got_of(message, Kind.EXPECTED),
            Kind.F_SHARE: lambda: self._got_of(message, Kind.W_SHARE),
            Kind.DONE: lambda: self._is_agreed() and all(self._all_got(kind, group) for kind in _OF_GROUPS),
            Kind.SHARE: lambda: self._is_agreed() and self._is_over_for_shares(),
            Kind.OPENED: lambda: self._has("tables"),
            Kind.RECEIPT: lambda: self._is_agreed() and self._all_got(Kind.OPENED),
        }
        return rules[message.kind]()

    def _is_over_for_shares(self) -> bool:
        """Return whether all rows that this party multiplies are here and checked, and all others have said so."""
        kinds = (Kind.PASSED, Kind.MASKED, Kind.F_SHARE, Kind.DONE)
        groups = [(pair.number, -1) for pair in self._s.own_pairs] + [
            (-1, three.table) for three in self._s.own_triples
        ]
        return all(self._all_got(kind, group) for kind in kinds for group in groups)

    # ---- going on

    def step(self) -> bool:
        """Do everything that what is here allows.

        Returns:
            Whether something new is there.

        Raises:
            PeerFault, Refusal: the round ends.
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        self._check_open()
        self._began = self._now()
        has_moved = False
        while self._once():
            has_moved = True
        return has_moved

    def _once(self) -> bool:
        self._compare_with_seal()
        has_moved = self._write_documents()
        for message in self._outgoing:
            if message.index not in self._sent and self._may_be_made(message):
                self._make(message)
                has_moved = True
        self._forget()
        return has_moved

    def _make(self, message: Message) -> None:
        if message.kind in CHARGED:
            self._charge_once()
        target, sizes = self._folder.sent_path(message.index), self._contents.frame_sizes(message)
        hellos = {} if message.kind is Kind.HELLO else self._s.hellos
        frames = self._contents.make_frames(message)
        transcript = self._s.transcript(message.kind)
        self._s.mail.seal(target, message, frames, count=len(sizes), transcript=transcript, hellos=hellos)
        stamp = self._stamp(message) if message.kind in IN_SLOTS else self._now()
        os.utime(target, ns=(stamp, stamp))
        self._sent.add(message.index)

    def _compare_with_seal(self) -> None:
        """See once that the table and its draws are those that the round began with, as long as something depends on them."""
        if self._is_sealed or not self._s.is_party or self._all_sent(Kind.SHARE) or not self._has("hello.json"):
            return
        seal = json.loads(self._s.own_hello)["data"]
        if self._contents.data_seal().hex() != seal:
            raise report_change()
        self._is_sealed = True

    def _write_documents(self) -> bool:
        """Write what is said once and for all, when what it follows from is there; return whether something was
        written.
        """
        if not self._has("hello.json"):
            return False
        if not self._has("t0"):
            return self._all_got(Kind.HELLO) and self._write_t0()
        dealt = self._all_got(Kind.AGREED) and self._all_got(Kind.PRODUCT)
        if self._s.is_party and not self._has("statement.json"):
            return dealt and self._write("statement.json", self._contents.statement)
        if not self._has("t1"):
            return self._all_got(Kind.STATEMENT) and self._write("t1", self._t1)
        opens = not self._s.is_party and not self._has("tables") and self._is_agreed() and self._all_got(Kind.SHARE)
        if opens:
            self._charge_once()
            self._contents.open_tables(self._incoming.of(Kind.SHARE))
        return opens

    def _write(self, name: str, content: Callable[[], bytes]) -> bool:
        self._folder.write(name, content())
        return True

    def _write_t0(self) -> bool:
        check_hellos(self._s)
        return self._write("t0", lambda: self._s.name.transcript("T0", self._s.hello_bodies))

    def _t1(self) -> bytes:
        return self._s.name.transcript("T1", self._s.statement_bodies, self._s.t0)

    def _charge_once(self) -> None:
        if not self._has("charged"):
            self._charge(self._s.t1)
            self._folder.write("charged", self._s.t1)

    def _forget(self) -> None:
        """Delete what nobody needs any more (section 7, "Deleted when")."""
        secrets = self._s.stored_secrets if self._has("t1") else None
        if secrets is None:
            return
        over = all(map(self._all_got, (*_OF_GROUPS, Kind.DONE))) and self._all_sent(Kind.DONE)
        if self._s.is_party:
            if not self._all_sent(Kind.SHARE):
                return
            if secrets.noise:
                self._s.keep(replace(secrets, noise=b"", padding=b"", data_salt=b""))
            if over or self._all_sent(Kind.RECEIPT):  # the tables are opened, so nobody needs anything more
                self._drop(_OF_GROUPS | {Kind.DONE})
                self._s.forget_secrets()
            return
        if over and secrets.dealing:
            self._drop(_OF_GROUPS | {Kind.DONE})
            self._s.keep(replace(secrets, dealing=b"", tosses={}))
        if over and self._all_sent(Kind.OPENED):
            self._drop({Kind.SHARE})
            self._s.forget_secrets()

    def _drop(self, kinds: Collection[Kind]) -> None:
        self._folder.drop_got({message.index for message in self._incoming if message.kind in kinds})
        self._sizes.clear()
        for path in (self._folder.path / "f").iterdir():
            remove(path)


def end_round(path: Path, at: dt.datetime) -> None:
    """End a round that is on the disk, or keep one from beginning: the line stays, everything else is deleted.

    Args:
        path: its folder.
        at: UTC now.

    Raises:
        DataFault: DISK_FULL.
    """
    folder = RoundFolder(path)
    plan, t0, t1 = folder.read("plan.json"), folder.read("t0") or b"", folder.read("t1") or b""
    values = {} if plan is None else json.loads(plan)
    line = {"study": values.get("study", ""), "round": values.get("round", 0), "t0": t0.hex(), "t1": t1.hex()}
    folder.end(json.dumps({**line, "ended": at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}) + "\n")


def _pairs_of(messages: Iterable[Message], me: str, *, is_party: bool) -> tuple[frozenset[int], ...]:
    """Return of each pair, or triple, that a node sees, what says that its checks are over; see `RoundProgress`."""
    numbers_of: dict[tuple[int, int], set[int]] = {}
    shares = {message.sender: message.index for message in messages if message.kind is Kind.SHARE}
    for message in messages:
        if is_party and message.kind is Kind.DONE and me in {message.sender, message.recipient}:
            numbers_of.setdefault(message.group, set()).add(message.index)
        elif not is_party and message.kind is Kind.MASKED:
            numbers_of.setdefault(message.group, set()).add(shares[message.sender])
    return tuple(map(frozenset, numbers_of.values()))
