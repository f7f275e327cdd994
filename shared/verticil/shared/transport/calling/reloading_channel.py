"""The channel below a connection: who may be at its other end, and a new channel when certificates change.

gRPC reads certificates once, when a channel is made, and does not tell a client whose certificate the server showed. So:

- Before a call the node's credentials and deny-list are looked at. When either is another than the channel was made with, the
  next call goes over a new channel; calls under way end on the old one, which is then closed.
- As soon as the deny-list names anybody, the server's certificate is fetched and verified first, its serial is looked up, and
  the channel trusts that one certificate instead of the authority (a leaf may be a root: gRPC verifies with partial chains, as
  the tests show). What was checked is then what is spoken to. When the server gets a new certificate, such a channel cannot
  connect again; `forget` makes the next call look anew. Calls to a server that was revoked meanwhile are cut off.

Calls are made with a `Line` in place of a channel: it only remembers their methods until they are called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.shared.errors import PeerFault
from verticil.shared.identity.pki import Credentials, CredentialSource
from verticil.shared.transport.access import Revocations
from verticil.shared.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION

_METADATA: Final = ((PROTOCOL_KEY, str(PROTOCOL_VERSION)),)


class _Call(Protocol):
    """What is used of a call of any kind."""

    def add_done_callback(self, callback: Callable[[object], None]) -> None: ...


class _Callable(Protocol):
    """What is used of a channel's method of any kind."""

    def __call__(self, *arguments: object, **options: object) -> _Call: ...


class _Channel:
    """One gRPC channel, what it was made with, and its calls under way."""

    def __init__(self, channel: grpc.aio.Channel, *, credentials: Credentials, number: int, pinned: bool) -> None:
        self.channel = channel
        self.credentials = credentials
        self.number = number
        self.pinned = pinned
        self._calls = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    def begun(self, call: _Call) -> None:
        self._calls += 1
        call.add_done_callback(self._ended)

    def _ended(self, _call: object) -> None:
        self._calls -= 1
        self._close_if_idle()

    def retire(self) -> None:
        """Close it when its last call has ended."""
        self._retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and self._calls == 0 and self._closing is None:
            self._closing = asyncio.ensure_future(self.channel.close())

    async def close(self) -> None:
        await self.channel.close()
        if self._closing is not None:
            await self._closing


class _Method:
    """A method of a service; its call goes over the channel that is in use by then."""

    def __init__(self, line: Line, kind: str, path: str, options: dict[str, object]) -> None:
        self._line = line
        self._kind = kind
        self._path = path
        self._options = options

    def __call__(self, *arguments: object, metadata: tuple[tuple[str, str], ...] = (), **options: object) -> _Call:
        channel = self._line.present()
        make = cast("Callable[..., _Callable]", getattr(channel.channel, self._kind))
        call = make(self._path, **self._options)(*arguments, metadata=(*_METADATA, *metadata), **options)
        channel.begun(call)
        return call


class Line:
    """Stands in for a channel; see the module. It belongs to one event loop.

    Args:
        source: our credentials.
        revocations: the deny-list.
        make: makes a channel with credentials that trusts the given certificates (PEM).
        server_certificate: fetches and verifies the certificate of whoever answers; blocks.
    """

    def __init__(
        self,
        source: CredentialSource,
        revocations: Revocations,
        *,
        make: Callable[[Credentials, bytes], grpc.aio.Channel],
        server_certificate: Callable[[Credentials], x509.Certificate],
    ) -> None:
        self._source = source
        self._revocations = revocations
        self._make = make
        self._server_certificate = server_certificate
        self._present: _Channel | None = None
        self._former: list[_Channel] = []
        self._lock = asyncio.Lock()
        self._closed = False

    def unary_unary(self, path: str, **options: object) -> _Method:
        """As a channel's."""
        return _Method(self, "unary_unary", path, options)

    def unary_stream(self, path: str, **options: object) -> _Method:
        """As a channel's."""
        return _Method(self, "unary_stream", path, options)

    def stream_unary(self, path: str, **options: object) -> _Method:
        """As a channel's."""
        return _Method(self, "stream_unary", path, options)

    def as_channel(self) -> grpc.aio.Channel:
        """For callers, whose types want a channel; they use nothing else of it."""
        return cast("grpc.aio.Channel", self)

    def present(self) -> _Channel:
        """The channel in use.

        Raises:
            grpc.aio.UsageError: the line is closed.
        """
        if self._closed:
            raise grpc.aio.UsageError("closed")
        if self._present is None:
            self._use(self._source.current(), number=self._revocations.number(), pinned=None)
        assert self._present is not None
        return self._present

    async def refresh(self) -> None:
        """Have a channel for what credentials and deny-list are now.

        Raises:
            PeerFault: CERTIFICATE_REVOKED, the server's certificate counts no more; TLS_REFUSED or UNREACHABLE, it cannot be
                seen.
        """
        async with self._lock:
            credentials, number = self._source.current(), self._revocations.number()
            present, denied = self._present, self._revocations.serials()
            known = present is not None and (present.pinned or not denied)
            if known and present is not None and present.credentials is credentials and present.number == number:
                return
            if self._closed:
                return
            pinned = None
            if denied:
                pinned = await asyncio.to_thread(self._server_certificate, credentials)
                if pinned.serial_number in denied:
                    await self._cut()
                    raise PeerFault(
                        "CERTIFICATE_REVOKED",
                        f"the certificate that the server shows, serial {pinned.serial_number:x}, was revoked by the authority",
                        hint="tell its operator: verticil pki request NAME --role ROLE --new-keys, and have it signed",
                    )
            if not self._closed:
                self._use(credentials, number=number, pinned=pinned)

    def forget(self) -> None:
        """Let the next call make a new channel."""
        if self._present is not None:
            self._former = [channel for channel in self._former if not channel.is_closed]
            self._former.append(self._present)
            self._present.retire()
            self._present = None

    def forget_pinned(self) -> None:
        """The same, where the channel trusts one certificate that the server may not have any more."""
        if self._present is not None and self._present.pinned:
            self.forget()

    async def _cut(self) -> None:
        self.forget()
        former, self._former = self._former, []
        for channel in former:
            await channel.close()

    def _use(self, credentials: Credentials, *, number: int, pinned: x509.Certificate | None) -> None:
        self.forget()
        trusted = credentials.ca_pem if pinned is None else pinned.public_bytes(Encoding.PEM)
        channel = self._make(credentials, trusted)
        self._present = _Channel(channel, credentials=credentials, number=number, pinned=pinned is not None)

    async def close(self) -> None:
        """Close all channels; calls under way end with an error. Repeatable."""
        self._closed = True
        await self._cut()
