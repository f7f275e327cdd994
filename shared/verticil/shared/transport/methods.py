"""What an rpc is to a caller: its messages, who may call it and how long it may take, described once and read by every transport.

A service of the wire contract is a class (`verticil.shared.transport.coordinator`, `verticil.shared.transport.peer`) with an
attribute for each rpc. The attribute is two things: on the class the description, from which the role table, the deadlines, the
retries and the answering side are made; on an instance the call itself, with the types of its messages. How a call travels is
decided by the instance's class: over gRPC (`calling.remote`), within one process (`in_memory`), through the relay or in files.
A table that differs from the wire contract does not load.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Iterator
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar, overload

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from verticil.shared.identity.identity import Role

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
Messages: TypeAlias = Iterable[Q] | AsyncIterable[Q]
"""A stream of requests. A plain iterable is read in a worker thread, so it may read a file."""
AnyMethod: TypeAlias = "Method[Any, Any]"
Service: TypeAlias = object
"""What answers: an object with a method for each rpc, of the shape that `verticil.shared.transport.coordinator` describes."""

_CALL_SECONDS: Final = 30.0
_WAIT_MARGIN_SECONDS: Final = 15.0


class Method(Generic[Q, R]):
    """One rpc.

    Args:
        request: the kind of its request, or of each request.
        reply: the kind of its reply, or of each reply.
        roles: who may call it.

    Attributes:
        name: in the wire contract.
        path: its full name.
        request, reply, roles: as given.
    """

    streams: ClassVar[tuple[bool, bool]]
    """Whether requests, and whether replies, are streams."""

    def __init__(self, request: type[Q], reply: type[R], roles: frozenset[Role]) -> None:
        self.name = self.path = ""
        self.request = request
        self.reply = reply
        self.roles = roles

    def __set_name__(self, owner: type[Calls], name: str) -> None:
        self.name = "".join(word.capitalize() for word in name.split("_"))
        self.path = f"/{owner.contract.full_name}/{self.name}"


class Unary(Method[Q, R]):
    """One request, one reply.

    Args:
        seconds: its deadline; a call that waits on purpose (``wait_seconds``) gets at least 15 seconds more than it waits.
    """

    streams = False, False

    def __init__(
        self, request: type[Q], reply: type[R], roles: frozenset[Role], *, seconds: float = _CALL_SECONDS
    ) -> None:
        super().__init__(request, reply, roles)
        self._seconds = seconds
        self._waits = "wait_seconds" in request.DESCRIPTOR.fields_by_name

    def deadline(self, request: Q) -> float:
        """Seconds that this call may take."""
        if not self._waits:
            return self._seconds
        wait: int = getattr(request, "wait_seconds")  # noqa: B009 (the kind of message is known to have it)
        return max(self._seconds, wait + _WAIT_MARGIN_SECONDS)

    @overload
    def __get__(self, calls: None, owner: type[Calls]) -> Self: ...
    @overload
    def __get__(self, calls: Calls, owner: type[Calls]) -> Callable[[Q], Coroutine[Any, Any, R]]: ...
    def __get__(self, calls: Calls | None, owner: type[Calls]) -> Self | Callable[[Q], Coroutine[Any, Any, R]]:
        return self if calls is None else functools.partial(calls.unary, self)


class Upload(Method[Q, R]):
    """A stream of requests, one reply, which may come before the stream's end. It has the connection's idle time."""

    streams = True, False

    @overload
    def __get__(self, calls: None, owner: type[Calls]) -> Self: ...
    @overload
    def __get__(self, calls: Calls, owner: type[Calls]) -> Callable[[Messages[Q]], Coroutine[Any, Any, R]]: ...
    def __get__(
        self, calls: Calls | None, owner: type[Calls]
    ) -> Self | Callable[[Messages[Q]], Coroutine[Any, Any, R]]:
        return self if calls is None else functools.partial(calls.send, self)


class Download(Method[Q, R]):
    """One request, a stream of replies. Close the generator when leaving it early. It has the connection's idle time."""

    streams = False, True

    @overload
    def __get__(self, calls: None, owner: type[Calls]) -> Self: ...
    @overload
    def __get__(self, calls: Calls, owner: type[Calls]) -> Callable[[Q], AsyncGenerator[R, None]]: ...
    def __get__(self, calls: Calls | None, owner: type[Calls]) -> Self | Callable[[Q], AsyncGenerator[R, None]]:
        return self if calls is None else functools.partial(calls.receive, self)


class Calls:
    """A service as its caller sees it. Every call raises `VerticilError` and nothing else, and is safe to repeat.

    A transport is a subclass that says how requests travel: `unary`, `send` and `receive`, for all methods of such a kind.

    Attributes:
        contract: the service in the wire contract.
    """

    contract: ClassVar[ServiceDescriptor]

    def __init_subclass__(cls) -> None:
        if "contract" not in cls.__dict__:
            return
        described = {(m.name, m.streams, m.request.DESCRIPTOR, m.reply.DESCRIPTOR) for m in cls.methods()}
        expected = {
            (m.name, (m.client_streaming, m.server_streaming), m.input_type, m.output_type)
            for m in cls.contract.methods
        }
        if different := {name for name, *_ in described ^ expected}:
            raise TypeError(f"{cls.__name__}: differs from the wire contract in {', '.join(sorted(different))}")

    @classmethod
    def methods(cls) -> Iterator[AnyMethod]:
        """All rpcs of the service."""
        tables = [kind for kind in cls.__mro__ if "contract" in kind.__dict__]
        return (item for kind in tables for item in vars(kind).values() if isinstance(item, Method))

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """Send one request and return the reply."""
        raise NotImplementedError(method.path)

    async def send(self, method: Upload[Q, R], requests: Messages[Q]) -> R:
        """Send a stream of requests and return the reply."""
        raise NotImplementedError(method.path)

    def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Send one request and yield the replies."""
        raise NotImplementedError(method.path)

    async def close(self) -> None:
        """Give up the connection. Repeatable."""
