"""The rounds of masked tables that are open at this party, and what each is made of: keys, people, folder.

A round's folder lies in the state directory, one for each study, and is in no backup. `verticil.shared.masked.round` says what is
in it, and what the rules are; here is what a round gets from the site.

The order of the common people is told as a digest: with ``keyed-hash`` HMAC-SHA-256, under a key that is derived from the
linkage key (label ``hello``, and the study), of the common pseudonyms, ascending, so that a miner who has it cannot test guesses;
with the other modes of linkage it is what their commitments name (model-three.md section 3, "Common order").
"""

from __future__ import annotations

import functools
import hmac
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.reconciliation.forgotten import end_study
from verticil.party.protocol.with_peers.rounds import MessageRounds
from verticil.party.site import Site
from verticil.party.storage.studies import Artifact
from verticil.shared.core.arrays import AnyCodes
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.transport.sealing import load_sealing_key
from verticil.shared.masked.arithmetic.streams import key_of
from verticil.shared.masked.round.round import Round, end_round
from verticil.shared.masked.round.sealed_messages import Credentials, check_pinned
from verticil.shared.numerics.model import artifact
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import MINER
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import common_pb2

T = TypeVar("T")

FOLDER: Final = "masked"
"""In the state directory."""
_ENDED: Final = "ended"
"""The only file of a folder whose round has ended (`verticil.shared.masked.round.round_store`)."""


class OpenRound:
    """A round while it is open in this process: whatever changes it is done alone.

    Args:
        round: this party's part.
        folder: of it.

    Attributes:
        round, folder: as given.
        at_miner: messages that the miner has taken in.
        here: messages that came since the round was opened.
    """

    def __init__(self, round: Round, folder: Path) -> None:  # noqa: A002 (the page's word)
        self.round = round
        self.folder = folder
        self.at_miner: set[int] = set()
        self.here: set[int] = set()
        self._lock = threading.Lock()

    def alone(self, work: Callable[[Round], T]) -> T:
        """Do something to the round that nothing else may be done beside; blocks."""
        with self._lock:
            return work(self.round)

    def arriving(self, index: int) -> Path:
        """Return the file in which an arriving message is put together."""
        return self.folder / f"arriving.{index}"

    def receive(self, index: int) -> None:
        """Take in a message that has come whole; blocks, and raises as `Round.receive`."""
        self.alone(lambda of: of.receive(index, self.arriving(index)))
        self.here.add(index)


class Rounds(MessageRounds):
    """The open rounds, by effective digest. Each is opened, or ended, by one thread at a time."""

    def __init__(self) -> None:
        self._open: dict[bytes, OpenRound] = {}
        self._changing: defaultdict[bytes, threading.Lock] = defaultdict(threading.Lock)

    def open(self, effective_digest: bytes, begin: Callable[[], OpenRound]) -> OpenRound:
        """Open a round, and begin it when it is new; from now on peers may ask for its messages. Blocks, and raises as
        `begin`.

        A thread goes on when the connection is lost for which it began a round; the next one then gets what that one has made.
        """
        with self._changing[effective_digest]:
            if effective_digest not in self._open:
                self._open[effective_digest] = begin()
            return self._open[effective_digest]

    def end(self, effective_digest: bytes, folder: Path, at: datetime) -> None:
        """End a round, open or not: peers get nothing of it any more, everything but its line is deleted; blocks.

        Raises:
            DataFault: DISK_FULL.
        """
        with self._changing[effective_digest]:
            open_round = self._open.pop(effective_digest, None)
            if open_round is None:
                end(folder, at)
            else:
                open_round.alone(lambda _: end(folder, at))

    def has(self, effective_digest: bytes) -> bool:
        """Return whether a round is here; see `MessageRounds.has`."""
        return effective_digest in self._open

    def messages_for(self, effective_digest: bytes, caller: str, have: Set[int]) -> tuple[int, ...]:
        """List the messages for a node; see `MessageRounds.messages_for`."""
        return tuple(self.get(effective_digest).outgoing(caller, frozenset(have)))

    def message(self, effective_digest: bytes, caller: str, index: int) -> tuple[Path, bytes]:
        """Return a message; see `MessageRounds.message`."""
        here = self.get(effective_digest)
        if here.recipient(index) not in {caller, ""}:
            raise PeerFault("NOT_OWNER", f"message {index} of the round is not for '{caller}'")
        item = here.sealed(index)
        return item.path, item.sha256

    def late(self) -> int:
        """Return the rounds that are late; see `MessageRounds.late`."""
        return sum(open_round.round.late for open_round in tuple(self._open.values()))

    def get(self, effective_digest: bytes) -> Round:
        """Return the round.

        Raises:
            PeerFault: NOT_READY, it is not open.
        """
        open_round = self._open.get(effective_digest)
        if open_round is None:
            raise PeerFault("NOT_READY", "the round of masked tables has not begun here")
        return open_round.round

    def end_over(self, site: Site, at: datetime, worked_on: Callable[[bytes], bool]) -> None:
        """See `MessageRounds.end_over`.

        A study is over that was revoked, denied or has failed here, that has ended otherwise than published, or whose last day
        has passed.
        """
        stopped_studies = site.revocations.list_stopped()
        for folder in (site.config.state_directory / FOLDER).glob("*"):
            if worked_on(bytes.fromhex(folder.name)) or not is_open(folder):
                continue
            record = site.state.study(bytes.fromhex(folder.name))
            state = State(record.task.state)
            last = record.task.latest.expires
            over = record.digest in stopped_studies or record.denial_sent is not None or record.failure is not None
            past = state is not State.PUBLISHED and (is_final(state) or at.date() > last)
            if over or past:
                self.end(record.task.effective_digest, folder, at)


class SpooledPeople:
    """The randomized columns of the common people, as they lie in the spool; see
    `verticil.shared.masked.round.pair_products.People`.

    Args:
        order: digest of the common order.
        spool: where the columns are.
        items: the own units, ascending.
        study: the effective study.
        n_people: how many there are.
    """

    def __init__(self, order: bytes, spool: Spool, items: Sequence[Artifact], study: Study, n_people: int) -> None:
        self._order, self._spool, self._items, self._study, self._n = order, spool, items, study, n_people

    @property
    def order(self) -> bytes:
        """Digest of the common order, 32 bytes."""
        return self._order

    def codes(self, rows: slice) -> AnyCodes:
        """Codes of some people, (rows, own units)."""
        return self._all[rows]

    @functools.cached_property
    def _all(self) -> AnyCodes:
        columns = [
            artifact.unpack(
                self._spool.path(item.sha256).read_bytes(), self._study.units[item.unit].transition.n_states, self._n
            )
            for item in self._items
        ]
        return np.stack(columns, axis=1)


def credentials_of(node: PartyContext, study: Study) -> Credentials:
    """Return the keys with which this party takes part in a round.

    Raises:
        Misuse: CONFIG_INVALID, federation.toml lacks the sealing key of a party of the study, or the miner's.
        DataFault: SECRET_MISSING, this party has none.
    """
    config = node.site.config
    federation, me = config.federation, config.name
    key_pins = dict(federation.sealing)
    if federation.miner_sealing is not None:
        key_pins[MINER] = federation.miner_sealing
    contributors = (*study.parties, MINER)
    check_pinned(key_pins, contributors)

    def verify(signed: common_pb2.Signed, name: str) -> None:
        if name == MINER:
            node.verify(signed, role=Role.MINER)
        else:
            node.verify(signed, role=Role.PARTY, name=name)

    return Credentials(
        signing=node.signing_key,
        sealing=load_sealing_key(config.sealing_key, key_pins[me]),
        pinned={name: key_pins[name] for name in contributors},
        verify=verify,
    )


def keyed_order(linkage_key: bytes, study: bytes, pseudonyms: bytes) -> bytes:
    """Return the digest of the common order with linkage ``keyed-hash``; see the module.

    Args:
        linkage_key: 32 bytes.
        study: SHA-256 of the proposal.
        pseudonyms: of the common people, in their order.
    """
    return hmac.digest(key_of(linkage_key, "hello", study), pseudonyms, "sha256")


def folder_of(state_directory: Path, digest: bytes) -> Path:
    """Return the folder of a study's round."""
    return state_directory / FOLDER / digest.hex()


def is_open(folder: Path) -> bool:
    """Return whether there is more of a round than the line that stays."""
    return folder.is_dir() and any(item.name != _ENDED for item in folder.iterdir())


def end(folder: Path, at: datetime) -> None:
    """End a round that may be there: of one that is, everything but its line is deleted; blocks.

    Raises:
        DataFault: DISK_FULL.
    """
    if is_open(folder):
        end_round(folder, at)


def files_of(state_directory: Path, digest: bytes) -> tuple[Path, ...]:
    """Return the files of a study's round that the end of the study has to delete."""
    folder = folder_of(state_directory, digest)
    return tuple(path for path in folder.rglob("*") if path.is_file()) if is_open(folder) else ()


def discard(state_directory: Path, digest: bytes, at: datetime) -> None:
    """End the round of a study, as `end` does."""
    end(folder_of(state_directory, digest), at)


def end_restored(site: Site, at: datetime) -> None:
    """End all studies with masked tables here: this state comes from a backup, and nobody knows what it had sent. Blocks.

    A round that began after the backup was made must not begin anew under the same approval, nor with other data.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    with site.database.transaction():
        for record in site.state.studies():
            if record.approval is not None and protocol_of(record.task.proposal_study).opens_tables:
                end_study(site, record.digest, "this site was restored from a backup", at)
