"""Serving the page: HTTP on loopback, to read only, to whoever has the address that the terminal printed.

What keeps others out:

- It listens on a loopback address and on no other (`verticil.shared.documents.config`).
- The first part of every path is a random token, made when the server starts and printed once. Another user of this machine can
  connect, and without the token gets nothing; a web page in somebody's browser cannot guess it, and no cookie carries it along.
- The ``Host`` header must be this very address: a name on the Internet that was pointed at 127.0.0.1 (DNS rebinding) is refused.
- Only GET and HEAD are answered. No request writes: the database is opened so that SQLite refuses it.
- The browser is told to load, send, keep, frame and pass on nothing.

The state is opened anew for every request, so what is shown is what is there; a daemon may run beside it or not. Requests are not
logged: their path is the token. It starts no browser, because every user can read the arguments of a command.
"""

from __future__ import annotations

import datetime as dt
import hmac
import logging
import re
import secrets
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, cast

from verticil.party.config import load_party
from verticil.party.operator.page import page_model as view
from verticil.party.operator.page.page_model import CONTENT_SECURITY_POLICY, render
from verticil.party.site import Site
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.federation.identity.pki import utc_now

_log = logging.getLogger(__name__)

_STUDY: Final = re.compile(r"study/([0-9a-f]{64})")
_IDLE_SECONDS: Final = 10
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Robots-Tag": "noindex",
}


class PageServer(ThreadingHTTPServer):
    """The page of one site. `serve_forever` serves it; `shutdown` from another thread ends that.

    Args:
        party_toml: read anew for every request.
        address: host and port, of `verticil.shared.documents.config`; port 0 takes a free one.
        clock: UTC now.

    Attributes:
        url: with the token; whoever has it can read the page.

    Raises:
        Misuse: CONFIG_INVALID, the address cannot be listened on.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, party_toml: Path, address: tuple[str, int], *, clock: Callable[[], dt.datetime] = utc_now
    ) -> None:
        host, port = address
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__(address, _Handler)
        except OSError:
            hint = "is it open already? another one: --listen 127.0.0.1:0"
            raise Misuse("CONFIG_INVALID", f"ui.listen: cannot listen on {host}:{port}", hint=hint) from None
        self._party_toml = party_toml
        self._clock = clock
        self._token = secrets.token_urlsafe(32)
        self.place = f"[{host}]:{self.server_port}" if ":" in host else f"{host}:{self.server_port}"
        self.url = f"http://{self.place}/{self._token}/"

    def server_bind(self) -> None:
        """Bind, and ask no name service what this host is called, as the base class would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a connection that broke, or a fault of ours, by its kind alone and never by what was asked for."""
        _log.warning("a request was not answered: %s", getattr(sys.exc_info()[0], "__name__", "unknown"))

    def is_named(self, hosts: list[str]) -> bool:
        """Return whether the ``Host`` headers of a request are one, and that of this address."""
        return hosts in ([self.place], [f"localhost:{self.server_port}"])

    def rest_of(self, target: str) -> str | None:
        """Return the path behind the token; None: it is not this server's."""
        token, separator, rest = target.removeprefix("/").partition("/")
        is_ours = hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode())
        return rest if is_ours and separator else None

    def page(self, path: str) -> tuple[HTTPStatus, str]:
        """Return the answer for a path behind the token."""
        now = self._clock()
        match = _STUDY.fullmatch(path)
        root = "../" if match else "./"
        model: view.Overview | view.StudyPage | view.LedgerPage | view.AuditPage
        template = "study" if match else path or "overview"
        if match is None and path not in ("", "ledger", "audit"):
            return HTTPStatus.NOT_FOUND, _problem("There is no such page.", root=root, now=now)
        try:
            with Site.look(load_party(self._party_toml)) as site, site.database.transaction():
                if match is not None:
                    model = view.study(site, site.state.study(bytes.fromhex(match[1])), now)
                elif path == "ledger":
                    model = view.ledger(site)
                elif path == "audit":
                    model = view.audit(site)
                else:
                    model = view.overview(site, now)
        except VerticilError as error:
            status = HTTPStatus.NOT_FOUND if error.code == "STUDY_UNKNOWN" else HTTPStatus.SERVICE_UNAVAILABLE
            message = f"{error.code}: {error.message}" + (f" Hint: {error.hint}." if error.hint else "")
            return status, _problem(message, root=root, now=now)
        return HTTPStatus.OK, render(template, model, root=root, shown_at=_quote_part(now))


class _Handler(BaseHTTPRequestHandler):
    """A handler of one connection."""

    server_version = "verticil"
    sys_version = ""
    timeout = _IDLE_SECONDS

    @property
    def _site(self) -> PageServer:
        return cast("PageServer", self.server)

    def parse_request(self) -> bool:
        """Refuse what is not for this page before any method is looked at."""
        if not super().parse_request():
            return False
        if not self._site.is_named(self.headers.get_all("Host", [])):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this page is not known under that name")
        elif self.command not in ("GET", "HEAD"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        elif self._site.rest_of(self.path) is None:
            self._refuse(HTTPStatus.FORBIDDEN, "open the whole address that `verticil party ui` printed")
        else:
            return True
        return False

    def do_GET(self) -> None:
        """Answer with the page."""
        status, html = self._site.page(self._site.rest_of(self.path) or "")
        self._answer(status, html, "text/html; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815 (the base class's name)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send what the base class finds wrong with a request, without repeating any of it."""
        self._refuse(HTTPStatus(code), "the request cannot be read")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Log nothing: the path holds the token."""

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._answer(status, f"{status.phrase}: {why}\n", "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _problem(message: str, *, root: str, now: dt.datetime) -> str:
    return render("problem", view.Problem(said=message), root=root, shown_at=_quote_part(now))


def _quote_part(now: dt.datetime) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S} UTC"
