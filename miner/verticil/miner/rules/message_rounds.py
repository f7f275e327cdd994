"""What a protocol whose parties and miner exchange messages in rounds hands to the rest of the miner."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from verticil.miner.storage.records import StudyRecord
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2


class RoundProgress(Protocol):
    """How far a round is; nothing in it depends on a value of anybody's table. Its text is for people."""

    @property
    def done(self) -> int:
        """How many messages were made and got."""
        ...

    @property
    def expected(self) -> int:
        """How many messages there are in all."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the messages that are there."""
        ...

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Who has to send something now."""
        ...

    @property
    def since(self) -> dt.datetime:
        """When the last message came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundUnderWay:
    """An open round, as the scheduler sees it.

    Attributes:
        words: how far it is, for people.
        slot_seconds: time between two moments at which messages leave.
    """

    words: str
    slot_seconds: float


class MessageRounds(ABC):
    """The rounds of the studies that have some; of all other studies nothing is under way here."""

    @abstractmethod
    def check_keys(self, study: Study) -> None:
        """Check that the miner can take part in the rounds of a study, if it has some.

        Raises:
            Misuse: STUDY_UNSUPPORTED, naming what is missing.
        """

    @abstractmethod
    def under_way(self, digest: bytes) -> RoundUnderWay | None:
        """Return the round of a study; None: it has not begun, or is over."""

    @abstractmethod
    def is_open(self, record: StudyRecord) -> bool:
        """Return whether a study has a round that is under way, or has to begin."""

    @abstractmethod
    def progress(self) -> tuple[RoundProgress, ...]:
        """Return how far all open rounds are."""

    @abstractmethod
    def late(self) -> int:
        """Return how many messages of open rounds were not ready for their slot, since the miner started."""

    @abstractmethod
    def advance(self, digest: bytes) -> bool:
        """Take in the messages that have arrived and do what follows; return whether something is new. Blocks.

        Raises:
            VerticilError: the round ends, and the study with it.
        """

    @abstractmethod
    def end(self, digest: bytes) -> None:
        """Delete what there is of the round of a study that is over. Blocks; repeatable."""

    @abstractmethod
    def proof(self, digest: bytes, party: str) -> tuple[common_pb2.Signed, ...]:
        """Return a party's own signatures under messages of a round that the miner keeps. Blocks."""

    @abstractmethod
    def binding(self, record: StudyRecord) -> bytes:
        """Return what binds the file of a study's opened tables to the study, the plan and the number of people."""

    @abstractmethod
    def tables(self, record: StudyRecord) -> Path:
        """Return the file of a study's opened tables, whole. Blocks.

        Raises:
            DataFault: STATE_CORRUPT, it is damaged, and the round, from which it could be written again, is deleted.
        """
