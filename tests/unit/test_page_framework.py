"""What all pages share: vendored files, forms, server-sent events, texts of others."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from support import PATIENCE_SECONDS
from support.pages import Visitor, served
from verticil.shared.pages.rendering import isolated
from verticil.shared.pages.server import Forms, PageServer

ROOT = Path(__file__).resolve().parents[2]
VENDORED = (ROOT / "shared/verticil/shared/pages/assets/vendor", ROOT / "tests/data/axe")


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: folder.name)
def test_what_is_vendored_is_what_its_list_says(folder: Path) -> None:
    listed = json.loads((folder / "VENDOR.json").read_text())
    names = {"VENDOR.json"}
    for entry in listed:
        assert set(entry) == {"name", "version", "license", "source", "file", "sha256", "notice"}
        assert hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]
        assert entry["license"] in {"0BSD", "MPL-2.0"}
        assert len((folder / entry["notice"]).read_text()) > 500
        names |= {entry["file"], *(path.name for path in folder.glob(f"{Path(entry['notice']).stem}.LICENSE*"))}
    assert {path.name for path in folder.iterdir()} == names


def test_no_file_of_the_pages_names_another_place() -> None:
    places = re.compile(rb"https?://|//[a-z]+\.[a-z]{2,}/")
    pages = [*(ROOT / "shared/verticil/shared/pages").rglob("*"), *(ROOT / "party").rglob("*/page/templates/*")]
    own = [path for path in pages if path.suffix in {".j2", ".css", ".js"} and "vendor" not in path.parts]
    assert len(own) > 8
    assert [str(path) for path in own if places.search(path.read_bytes())] == []
    for path in VENDORED[0].glob("*.js"):  # it may speak of the XML name of SVG, which nobody loads
        assert set(places.findall(path.read_bytes().replace(b"http://www.w3.org/", b""))) <= set(), path


def test_a_form_s_token_is_of_one_server_and_one_day() -> None:
    now = [1000.0]
    forms, others = Forms(lambda: now[0]), Forms(lambda: now[0])
    token = forms.token()
    assert forms.problem(token) == ""
    assert "does not come from this page" in others.problem(token)
    for wrong in ("", ".", "1000.", token[:-1], f"9{token}", "é.é", token.replace(".", "x.")):
        assert "does not come from this page" in forms.problem(wrong), wrong
    now[0] += 12 * 3600
    assert forms.problem(token) == ""
    now[0] += 1
    assert "older than 12 hours" in forms.problem(token)


def test_marks_for_the_direction_of_writing_stay_inside_of_their_text() -> None:
    assert str(isolated("\u202efdp.exe<b>")) == "<bdi>\u202efdp.exe&lt;b&gt;</bdi>"


class Changing:
    """A page whose content is a number."""

    def __init__(self) -> None:
        self.number = 0
        self.asked = threading.Event()
        routes = [Route("/", self.page), Route("/broken", self.broken)]
        self.server = PageServer(routes, ("127.0.0.1", 0), fingerprint=self.fingerprint)

    def fingerprint(self) -> int:
        number = self.number
        self.asked.set()
        return number

    def page(self, request: Request) -> Response:
        return PlainTextResponse(str(self.number))

    def broken(self, request: Request) -> Response:
        raise ValueError("a value of the table")


def events(visitor: Visitor, **headers: str) -> tuple[socket.socket, bytes]:
    """Open a stream and return the line, with what has come."""
    host, port = visitor.server.place.rsplit(":", 1)
    line = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    line.sendall(f"GET {visitor.root}events HTTP/1.1\r\nHost: {visitor.server.place}\r\n{more}\r\n".encode())
    return line, until(line, b"retry: 2000\n\n")


def until(line: socket.socket, words: bytes, seen: bytes = b"") -> bytes:
    """Return what has come, `seen` before it, as soon as the words are in it: one read may bring several events."""
    while words not in seen:
        more = line.recv(4096)
        assert more, seen
        seen += more
    return seen


def test_an_open_page_is_told_of_a_change_and_one_that_comes_back_of_what_it_missed() -> None:
    changing = Changing()
    with served(changing.server) as server:
        visitor = Visitor(server)
        line, head = events(visitor)
        assert b"text/event-stream" in head
        assert b"no-store" in head
        changing.asked.wait(PATIENCE_SECONDS)
        changing.number = 1
        told = until(line, b"data: 1", head)
        number = re.findall(rb"id: (\d+)", told)[0].decode()
        line.close()
        again, head = events(visitor, Last_Event_ID="0")
        assert b"id: 1" in until(again, b"data: 1", head)
        again.close()
        assert number == "1"
        held, _ = events(visitor)  # an open stream does not hold the end up
    held.close()


def test_a_fault_in_a_page_is_told_without_its_text() -> None:
    with served(Changing().server) as server:
        visitor = Visitor(server)
        status, headers, text = visitor.ask(f"{visitor.root}broken")
        assert (status, "value of the table" in text) == (500, False)
        assert headers["Cache-Control"] == "no-store"
        assert visitor.ask(visitor.root)[0] == 200
        assert visitor.ask(f"{visitor.root}assets/../server.py")[0] == 404
        assert visitor.ask(f"{visitor.root}assets/vendor/VENDOR.json")[0] == 404
        assert visitor.ask(f"{visitor.root}assets/page.js")[1]["Content-Type"].startswith("text/javascript")
