"""The rounds of the blank protocol at one party: a folder for each study, with a file for each message.

A message is the same for all others. The folder is in no backup, and a restore ends the studies of which there may be one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

from support.blank_protocol.study import NAME, ROUNDS
from verticil.party.protocol.reconciliation.forgotten import end_study
from verticil.party.protocol.with_peers.rounds import MessageRounds
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault
from verticil.shared.storage.disk import replace_file
from verticil.shared.storage.durable import remove_tree
from verticil.shared.study.states import State, is_final

FOLDER: Final = "blank"
"""In the state directory."""


def content(number: int, party: str) -> bytes:
    """Return the message of a party in a round."""
    return f"round {number} of {ROUNDS}, '{party}'\n".encode()


def files_of(state_directory: Path, digest: bytes) -> tuple[Path, ...]:
    """Return the messages of a study that are here."""
    return tuple(sorted((state_directory / FOLDER / digest.hex()).glob("*")))


def discard(state_directory: Path, digest: bytes, at: dt.datetime) -> None:
    """Delete the messages of a study."""
    del at
    remove_tree(state_directory / FOLDER / digest.hex(), ignore_errors=True)


def after_restore(site: Site, at: dt.datetime) -> None:
    """End the studies whose rounds may have begun after the backup was made."""
    for record in site.state.studies():
        if record.approval is not None and record.task.proposal_study.model == NAME:
            end_study(site, record.digest, "this site was restored from a backup", at)


class StudyMessages:
    """The messages of one study.

    Args:
        folder: where they are; made when absent.
        me: this party.
    """

    def __init__(self, folder: Path, me: str) -> None:
        self._folder, self._me = folder, me
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, number: int, party: str) -> Path:
        """Return where the message of a party in a round is, or will be."""
        return self._folder / f"{number}.{party}"

    def keep(self, number: int, party: str, data: bytes) -> None:
        """Store a message, durably."""
        path = self.path(number, party)
        replace_file(path, data, part=path.with_name(f".{path.name}.part"))

    def own(self) -> dict[int, Path]:
        """Return this party's own messages by their index: 0 is that of the first round."""
        paths = {index: self.path(index + 1, self._me) for index in range(ROUNDS)}
        return {index: path for index, path in paths.items() if path.is_file()}

    def whole_rounds(self, parties: tuple[str, ...]) -> int:
        """Return how many rounds have the messages of all parties here."""
        whole = [all(self.path(index + 1, party).is_file() for party in parties) for index in range(ROUNDS)]
        return [*whole, False].index(False)


class OpenRounds(MessageRounds):
    """The rounds that peers may ask for, by effective digest."""

    def __init__(self) -> None:
        self._open: dict[bytes, StudyMessages] = {}

    def open(self, effective_digest: bytes, messages: StudyMessages) -> None:
        """Let peers ask for the messages of a study."""
        self._open[effective_digest] = messages

    def has(self, effective_digest: bytes) -> bool:
        """See `MessageRounds.has`."""
        return effective_digest in self._open

    def messages_for(self, effective_digest: bytes, caller: str, have: Set[int]) -> tuple[int, ...]:
        """See `MessageRounds.messages_for`."""
        return tuple(index for index in self._open[effective_digest].own() if index not in have)

    def message(self, effective_digest: bytes, caller: str, index: int) -> tuple[Path, bytes]:
        """See `MessageRounds.message`."""
        path = self._open[effective_digest].own().get(index)
        if path is None:
            raise PeerFault("NOT_READY", f"message {index} is not there yet")
        return path, hashlib.sha256(path.read_bytes()).digest()

    def late(self) -> int:
        """See `MessageRounds.late`: there are no slots."""
        return 0

    def end_over(self, site: Site, at: dt.datetime, worked_on: Callable[[bytes], bool]) -> None:
        """See `MessageRounds.end_over`."""
        for folder in (site.config.state_directory / FOLDER).glob("*"):
            digest = bytes.fromhex(folder.name)
            if not worked_on(digest) and is_final(State(site.state.study(digest).task.state)):
                discard(site.config.state_directory, digest, at)
