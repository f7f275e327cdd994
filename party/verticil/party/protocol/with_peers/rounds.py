"""What a protocol whose parties exchange messages in rounds hands to the service that answers peers.

Between parties nothing is pushed: what one has made for another lies here until it is fetched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from datetime import datetime
from pathlib import Path

from verticil.party.site import Site


class MessageRounds(ABC):
    """The rounds of one protocol that are open at this party."""

    @abstractmethod
    def has(self, effective_digest: bytes) -> bool:
        """Return whether a study's round is open here."""

    @abstractmethod
    def messages_for(self, effective_digest: bytes, caller: str, have: Set[int]) -> tuple[int, ...]:
        """Return the numbers of the messages that are here for a peer, but those that it has."""

    @abstractmethod
    def message(self, effective_digest: bytes, caller: str, index: int) -> tuple[Path, bytes]:
        """Return the file of a message and its SHA-256.

        Raises:
            PeerFault: NOT_READY, it is not there yet; NOT_OWNER, it is for another node.
        """

    @abstractmethod
    def late(self) -> int:
        """Return how many messages of open rounds were not ready for their slot since this process began."""

    @abstractmethod
    def end_over(self, site: Site, at: datetime, worked_on: Callable[[bytes], bool]) -> None:
        """End the rounds of studies that are over at this site while it has no line to the miner; blocks.

        Args:
            site: of the party.
            at: UTC now.
            worked_on: whether a study is being worked on, by its digest: then its own steps end the round.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
