"""Pages of a node, served from a thread as a command serves them, and a visitor who asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

from support import PATIENCE_SECONDS
from verticil.party.site import Site
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.pages.server import PageServer

FORM = "application/x-www-form-urlencoded"


@contextlib.contextmanager
def served(server: PageServer) -> Iterator[PageServer]:
    """Serve pages in an event loop of their own until the block ends."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(server.serve(stop))
            loop.run_until_complete(loop.shutdown_default_executor())

    thread = threading.Thread(target=run)
    with server:
        thread.start()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


class Page(HTMLParser):
    """What is on a page: its text, its elements, where its links lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.fields: dict[str, str] = {}
        self._words: list[str] = []
        self.feed(html)
        self.html = html
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        self.handlers += [name for name, _ in attrs if name.startswith(("on", "hx-on")) or name == "style"]
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "action", "srcset", "hx-get", "sse-connect")
        ]
        if tag == "input" and values.get("type") == "hidden":
            self.fields[values["name"] or ""] = values["value"] or ""

    def handle_data(self, data: str) -> None:
        self._words.append(data)


class Visitor:
    """Asks pages as a browser does; the token is that of `server` unless the path is given whole."""

    def __init__(self, server: PageServer | Address) -> None:
        self.server = server
        self.root = server.url.removeprefix(f"http://{server.place}")

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        host, port = self.server.place.rsplit(":", 1)
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            return answer.status, {name.title(): value for name, value in answer.getheaders()}, answer.read().decode()

    def page(self, path: str = "", status: int = 200) -> Page:
        found, _, html = self.ask(self.root + path)
        assert found == status, html
        return Page(html)

    def send(self, path: str, fields: dict[str, str], **headers: str) -> tuple[int, Page]:
        """Send a form, as the page that holds it does, and follow where the answer leads."""
        status, answer, text = self.ask(
            self.root + path, "POST", urlencode(fields), **{"Content_Type": FORM, **headers}
        )
        if status == 303:
            place = "".join(path.rpartition("/")[:2]) + answer["Location"].removeprefix("./")
            return status, self.page(place)
        return status, Page(text)

    def decide(self, digest: str, act: str, seen: Page | None = None, **fields: str) -> tuple[int, Page]:
        """Decide about a study as somebody does who has the page `seen` open; None: who opens it now."""
        shown = self.page(f"study/{digest}/") if seen is None else seen
        return self.send(f"study/{digest}/{act}", {**shown.fields, **fields})


class Address:
    """What a visitor needs of a server that another part of the program has started."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.place = url.split("/")[2]


def every_page(visitor: Visitor, *further: str) -> dict[str, str]:
    """Return the text of each page that can be reached from the first one, and of `further` ones, by its path.

    Files of a release are left out but for its report: tests read them where they lie.
    """
    texts: dict[str, str] = {}
    waiting = ["", *further]
    while waiting:
        path = waiting.pop()
        if path in texts or ("/files/" in path and not path.endswith("report.html")):
            continue
        _, headers, texts[path] = visitor.ask(visitor.root + path)
        if headers["Content-Type"].startswith("text/html"):
            ways = (urljoin(f"/{path}", link) for link in Page(texts[path]).links if not link.startswith("data:"))
            waiting += [way.partition("#")[0].lstrip("/") for way in ways if "events" not in way]
    return texts


@contextlib.contextmanager
def command_page(party_toml: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``verticil party ui`` until the block ends; the process, and the address that it printed."""
    place = ("--listen", "127.0.0.1:0", "--config", str(party_toml), "--format", "json")
    command = [sys.executable, "-m", "verticil.cli", "party", "ui", *place, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def followed(
    party_toml: Path, site: Site, digest: bytes, *, n_streams: int, seconds: float, first_seconds: float = 10.0
) -> tuple[float, int]:
    """Keep streams of ``verticil party ui`` open while a study's progress changes once a second.

    Returns: the MiB that the command has grown since the first seconds, and the least number of changes that a stream brought.
    """
    with command_page(party_toml) as (process, url), contextlib.ExitStack() as open_lines:
        place = urlsplit(url)
        lines, changes = [], [0] * n_streams
        for _ in range(n_streams):
            line = open_lines.enter_context(socket.create_connection((place.hostname or "", place.port or 0)))
            line.sendall(f"GET {place.path}events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
            line.setblocking(False)
            lines.append(line)
        begun, number, first = time.monotonic(), 0, 0.0
        while time.monotonic() - begun < seconds:
            number += 1
            site.state.show(digest, "uploading", number % 100, at=utc_now())
            time.sleep(1)
            for index, line in enumerate(lines):
                with contextlib.suppress(BlockingIOError):
                    content = line.recv(1 << 16)
                    assert content, "the server has ended a stream"
                    changes[index] += content.count(b"event: changed")
            if not first and time.monotonic() - begun > first_seconds:
                first = _resident(process.pid)
        return _resident(process.pid) - first, min(changes)


def _resident(pid: int) -> float:
    """Return how many MiB of a process are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
