"""Serving pages to the people of a node: HTTP on loopback for whoever has the address that the terminal printed, or over TLS for
whoever has a client certificate (`login`).

The server (uvicorn) runs in the event loop of whoever starts it, a command or a daemon. Pages are Starlette's routes; a route
that reads a state is an ordinary function, and runs in a thread.

What keeps others out:

- It listens on a loopback address and on no other (`verticil.shared.documents.config`), unless a certificate is the login.
- The first part of every path is a random token, made when the server starts and printed once. Another user of this machine can
  connect, and without the token gets nothing; a web page in somebody's browser cannot guess it, and no cookie carries it along.
  A client certificate opens the pages without it; a browser sends that for other web pages, too, which no rule below lets in.
- The ``Host`` header must be this very address, or a name in the server's own certificate: a name on the Internet that was
  pointed at 127.0.0.1 (DNS rebinding) is refused.
- A form is taken only with the token that this server put into it for the same person, which grows old, and only from a page of
  this server.
- The browser is told to load nothing from elsewhere, and to keep, frame and pass on nothing.

Requests are not logged: their path is the token. Nothing here starts a browser, because every user can read the arguments of a
command.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import inspect
import logging
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from http import HTTPStatus
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl

import uvicorn
from cryptography import x509
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.documents.config import cannot_listen
from verticil.shared.pages.login import Login

_log = logging.getLogger(__name__)

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Server": "verticil",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Robots-Tag": "noindex",
}
_ASSETS: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "vendor/htmx.min.js": "text/javascript",
    "vendor/htmx-ext-sse.min.js": "text/javascript",
}
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_FORM_BYTES: Final = 1 << 16
FORM_HOURS: Final = 12
"""A form that is older is refused."""
_LOOK_SECONDS: Final = 1.0
_ALIVE_SECONDS: Final = 15.0
REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"
"""For the report of a release, which has its style inside: it may load and run nothing."""
_STREAMS: Final = 100
_CONNECTIONS: Final = 400
_IDLE_SECONDS: Final = 10
_GRACE_SECONDS: Final = 2
_CERTIFICATE: Final = "certificate"


class Forms:
    """Tokens of forms (RFC 2104): when a form was made, and a keyed digest of that, under a key of this server's.

    Args:
        seconds: a clock that never goes back.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._seconds = seconds

    def token(self, who: str = "") -> str:
        """Return a token for a form that is made now, for one person."""
        made = f"{int(self._seconds())}"
        return f"{made}.{self._digest(made, who)}"

    def problem(self, token: str, who: str = "") -> str:
        """Return why a form with this token is refused from this person; empty when it is not."""
        made, _, digest = token.partition(".")
        if not hmac.compare_digest(digest.encode("utf-8", "replace"), self._digest(made, who).encode()):
            return "the form does not come from this page: open the page in this browser, and decide there"
        if self._seconds() - int(made) > FORM_HOURS * 3600:
            return f"this form is older than {FORM_HOURS} hours: load the page again, read it, and decide anew"
        return ""

    def _digest(self, made: str, who: str) -> str:
        return hmac.new(self._key, f"{made}.{who}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class _Watch:
    """Finds out for all open pages at once that what they show has changed, and only while one is open."""

    def __init__(self, fingerprint: Callable[[], object]) -> None:
        self._fingerprint = fingerprint
        self._condition = asyncio.Condition()
        self.generation = 0
        self.listeners = 0
        self.closed = False

    async def run(self) -> None:
        """Look once a second until it is cancelled."""
        last: object = None
        while True:
            if self.listeners:
                try:
                    now = await asyncio.to_thread(self._fingerprint)
                    if inspect.isawaitable(now):
                        now = await now
                except Exception as error:  # noqa: BLE001 (the page itself says what is wrong)
                    now = type(error).__name__
                if last is not None and now != last:
                    await self._notify()
                last = now
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        """End the streams of all open pages."""
        self.closed = True
        await self._notify()

    async def _notify(self) -> None:
        async with self._condition:
            self.generation += 1
            self._condition.notify_all()

    async def stream(self, known: str) -> AsyncGenerator[bytes]:
        """Yield server-sent events: ``changed``, and a comment now and then that keeps the line open.

        Args:
            known: ``Last-Event-ID`` of a browser that comes back; empty at first.
        """
        self.listeners += 1
        try:
            generation = int(known) if known.isascii() and known.isdigit() else self.generation
            yield b"retry: 2000\n\n"
            while not self.closed:
                if generation != self.generation:
                    generation = self.generation
                    yield f"id: {generation}\nevent: changed\ndata: {generation}\n\n".encode()
                if not await self._changed_since(generation):
                    yield b": nothing new\n\n"
        finally:
            self.listeners -= 1

    async def _changed_since(self, generation: int) -> bool:
        """Wait until something has changed, or for so long that the line should be shown to live."""
        try:
            async with asyncio.timeout(_ALIVE_SECONDS), self._condition:
                await self._condition.wait_for(lambda: self.generation != generation)
        except TimeoutError:
            return False
        return True


class _Server(uvicorn.Server):
    """Uvicorn, which leaves signals to whoever runs the loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Protocol(H11Protocol):
    """HTTP of one connection, whose requests know the client certificate that TLS has verified."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (line := transport.get_extra_info("ssl_object")) is not None:
            self.app_state = {**self.app_state, _CERTIFICATE: line.getpeercert(binary_form=True)}


class PageServer:
    """Pages at one address. `serve` serves them; use as a context manager, which frees the port.

    Args:
        routes: what is below the token, as in ``/ledger``.
        address: host and port, of `verticil.shared.documents.config`; port 0 takes a free one.
        fingerprint: returns something that is equal as long as the pages show the same; asked once a second, in a thread, or
            awaited if it is a coroutine function.
        decides: forms are taken.
        form_bytes, form_fields: that a form may have.
        login: TLS, with client certificates in place of the token; None: plain HTTP, with the token.
        elsewhere: how to serve them at another port, for the hint of an error.
        seconds: a clock that never goes back, for the age of forms.

    Attributes:
        url: with the token, where it opens the pages; whoever has it can use them.
        login_url: without; empty: no certificate opens the pages.
        place: host and port, as in ``Host``.
        port: the port that was taken.

    Raises:
        Misuse: CONFIG_INVALID, the address cannot be listened on, or TLS cannot use the server's certificate.
    """

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        address: tuple[str, int],
        *,
        fingerprint: Callable[[], object],
        decides: bool = False,
        form_bytes: int = _FORM_BYTES,
        form_fields: int = 100,
        login: Login | None = None,
        elsewhere: str = "another one: --listen 127.0.0.1:0",
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        host, port = address
        self._login = login
        self._tls = None if login is None else login.context()
        hosts = [] if login is None else login.hosts()
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
            self._socket.listen(128)
        except OSError:
            self._socket.close()
            taken = f"is it open already? {elsewhere}"
            raise cannot_listen("ui.listen", host, port, taken=taken) from None
        self.port = int(self._socket.getsockname()[1])
        self.place = f"{_bracketed(host)}:{self.port}"
        self._token = secrets.token_urlsafe(32)
        scheme = "http" if login is None else "https"
        self.url = f"{scheme}://{self.place}/{self._token}/"
        self.login_url = "" if login is None else f"https://{self.place}/"
        self._places = {self.place, *(f"{_bracketed(name)}:{self.port}" for name in ("localhost", *hosts))}
        self._origins = {*(f"{scheme}://{place}" for place in self._places), "null"}
        self._forms = Forms(seconds)
        self._form_bytes = form_bytes
        self._form_fields = form_fields
        self._methods = ("GET", "HEAD", "POST") if decides else ("GET", "HEAD")
        self._watch = _Watch(fingerprint)
        self._routers = {"": self._router(routes)}

    def _router(self, routes: Sequence[BaseRoute]) -> Router:
        own = [Route("/events", self._events), Route("/assets/{name:path}", _asset)]
        return Router([*routes, *own], default=_no_such_page, redirect_slashes=False)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, or this is cancelled."""
        config = uvicorn.Config(
            self,
            lifespan="off",
            interface="asgi3",
            http=_Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        config.load()
        config.ssl = self._tls
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        beside = [asyncio.create_task(stop.wait()), asyncio.create_task(self._watch.run())]
        try:
            await asyncio.wait([serving, beside[0]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in beside:
                task.cancel()
            await self._watch.close()
            server.should_exit = True
            await serving

    def close(self) -> None:
        """Free the port that it listens on."""
        self._socket.close()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: refuse what is not for these pages before any route is looked at."""
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                present = {name for name, _ in message["headers"]}
                own = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, **_HEADERS}
                message["headers"] += [
                    (name.lower().encode(), value.encode())
                    for name, value in own.items()
                    if name.lower().encode() not in present
                ]
            await send(message)

        try:
            answer = await self._admitted(scope, receive)
            await answer(scope, receive, send_with_headers)
        except Exception as error:  # noqa: BLE001 (one request must not stop the others; the text may hold anything)
            _log.warning("a request was not answered: %s", type(error).__name__)
            if not begun:
                why = "something went wrong here; the same in a terminal says more"
                await _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, why)(scope, receive, send_with_headers)

    async def _admitted(self, scope: Scope, receive: Receive) -> ASGIApp:
        """Return what answers: the routes, or a refusal."""
        headers = Request(scope).headers
        if headers.getlist("host") not in [[place] for place in self._places]:
            return _refusal(HTTPStatus.MISDIRECTED_REQUEST, "this page is not known under that name")
        if scope["method"] not in self._methods:
            why = "this page can only be read" if "POST" not in self._methods else "this page knows no such method"
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, why, Allow=", ".join(self._methods))
        state = scope.setdefault("state", {})
        certificate = state.pop(_CERTIFICATE, None)
        try:
            router, who = self._person(scope, certificate)
        except VerticilError as error:
            if certificate is not None:
                _log.warning("a certificate opened no page: %s", error.code)
            return _refusal(HTTPStatus.FORBIDDEN, error.message)
        state["form_token"] = self._forms.token(who)
        if scope["method"] == "POST":
            form, refused = await self._form(headers, receive, who)
            if refused is not None:
                return refused
            state["form"] = form
        return router

    def _person(self, scope: Scope, certificate: bytes | None) -> tuple[Router, str]:
        """Return the pages of whoever asks, and who that is: nobody by name, or the digest of a certificate.

        Raises:
            VerticilError: neither the token nor a certificate opens a page.
        """
        token, separator, rest = scope["path"].removeprefix("/").partition("/")
        is_token = hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()) and bool(separator)
        if is_token and (self._login is None or self._login.token_too):
            scope["path"] = f"/{rest}"
            return self._routers[""], ""
        if self._login is None or certificate is None:
            why = (
                "open the whole address that the command printed; one that an earlier run printed is not valid any more"
            )
            more = "; or give the browser the certificate that opens this page" if self._login else ""
            raise Misuse("USAGE", why + more)
        name, routes_of = self._login.admit(x509.load_der_x509_certificate(certificate)), self._login.routes_of
        name = name if routes_of else ""
        if routes_of and name not in self._routers:
            self._routers[name] = self._router(routes_of(name))
        return self._routers[name], hashlib.sha256(certificate).hexdigest()

    async def _form(
        self, headers: Mapping[str, str], receive: Receive, who: str
    ) -> tuple[dict[str, str], ASGIApp | None]:
        """Read what a form says, once it is certain that it is a form of these pages; else return a refusal."""
        nothing = "; nothing was decided"
        other_site = headers.get("sec-fetch-site", "same-origin") != "same-origin"
        if other_site or headers.get("origin", "null") not in self._origins:
            return {}, _refusal(HTTPStatus.FORBIDDEN, f"the form comes from another web page{nothing}")
        if headers.get("content-type", "").partition(";")[0].strip() != _FORM_TYPE:
            return {}, _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a form{nothing}")
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return {}, _refusal(HTTPStatus.BAD_REQUEST, f"the line broke before the form had come{nothing}")
            body, more = body + message.get("body", b""), message.get("more_body", False)
            if len(body) > self._form_bytes:
                why = f"the form has more than {self._form_bytes:,} bytes{nothing}"
                return {}, _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
        try:
            form = dict(
                parse_qsl(
                    body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=self._form_fields
                )
            )
        except ValueError:
            return {}, _refusal(HTTPStatus.BAD_REQUEST, f"the form cannot be read{nothing}")
        problem = self._forms.problem(form.get("form_token", ""), who)
        return form, _refusal(HTTPStatus.FORBIDDEN, problem + nothing) if problem else None

    async def _events(self, request: Request) -> Response:
        if self._watch.listeners >= _STREAMS:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{_STREAMS} pages follow this node already: load again")
        known = request.headers.get("last-event-id", "")
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._watch.stream(known), media_type="text/event-stream", headers=headers)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def form_of(request: Request) -> dict[str, str]:
    """Return what the form of a POST says, by the names of its fields."""
    return dict(request.state.form)


def _refusal(status: HTTPStatus, why: str, **headers: str) -> Response:
    return PlainTextResponse(f"{status.phrase}: {why}\n", status, headers={"Connection": "close", **headers})


async def _no_such_page(scope: Scope, receive: Receive, send: Send) -> None:
    why = "there is no such page; the first one is the address that the command printed"
    await _refusal(HTTPStatus.NOT_FOUND, why)(scope, receive, send)


def _asset(request: Request) -> Response:
    kind = _ASSETS.get(name := request.path_params["name"])
    if kind is None:
        return _refusal(HTTPStatus.NOT_FOUND, "there is no such file")
    return Response((files("verticil.shared.pages") / "assets" / name).read_bytes(), media_type=kind)
