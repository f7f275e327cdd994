"""What answers the parties' calls for messages of a round; a protocol that has rounds hands it to the service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

TakeIn = Callable[[AsyncIterator[common_pb2.Chunk]], Awaitable[coordinator_pb2.PutMaskedReply]]
"""Takes in (a part of) a message, from the committed offset; leaves it for the round when it is whole."""


class RoundMessages(ABC):
    """Messages of rounds, to and from the parties."""

    @abstractmethod
    async def list(
        self, party: str, request: peer_pb2.ListMaskedRequest, *, most_seconds: int
    ) -> peer_pb2.ListMaskedReply:
        """Tell which messages may leave for the party, but for those that it has; wait for one if there is none."""

    @abstractmethod
    def get(self, party: str, request: peer_pb2.GetMaskedRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """Give a party a message that is sealed for it.

        Raises:
            PeerFault: NOT_READY, there is none; MESSAGE_INVALID, an offset behind its end.
            VerticilError: how the study ended, also when it ends between two parts.
        """

    @abstractmethod
    def begin(self, party: str, first: coordinator_pb2.PutMaskedRequest) -> TakeIn | None:
        """Return what takes in a message that a party sends; None: all of it is here. Blocks.

        Raises:
            VerticilError: how the study ended; PeerFault: NOT_READY, the round has not begun.
        """
