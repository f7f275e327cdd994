"""A client certificate in place of the token: who gets in, and whose forms count."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from cryptography import x509
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from support import PATIENCE_SECONDS
from support.pages import FORM, command_page, served
from support.site_folder import make_site
from verticil.cli.main import main
from verticil.shared.core.errors import Misuse
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import read_certificates
from verticil.shared.pages.login import Login, ServerFiles, login_of
from verticil.shared.pages.server import PageServer


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate, two people's, and one of another authority."""
    root = tmp_path_factory.mktemp("pki")
    for authority, names in (("own", ("lena", "noor")), ("other", ("eve",))):
        create_authority(root / authority, authority)
        for name in names:
            issue(root / authority, name, Role.ANALYST, root)
    issue(root / "own", "page", Role.MINER, root, hosts=("127.0.0.1", "pages.hospital.example"))
    return root


def page(request: Request) -> Response:
    return PlainTextResponse(request.state.form_token)


def decide(request: Request) -> Response:
    return PlainTextResponse("decided")


def server_of(login: Login) -> PageServer:
    routes = [Route("/", page), Route("/decide", decide, methods=["POST"])]
    return PageServer(routes, ("127.0.0.1", 0), fingerprint=lambda: 0, decides=True, login=login)


@pytest.fixture
def server(pki: Path) -> Iterator[PageServer]:
    people = [read_certificates(pki / f"{name}.crt")[0] for name in ("lena", "noor")]
    files = ServerFiles(certificate=pki / "page.crt", key=pki / "page.key")
    with served(server_of(login_of(people, files))) as running:
        yield running


def ask(
    server: PageServer, pki: Path, name: str, path: str = "/", form: dict[str, str] | None = None, **headers: str
) -> tuple[int, str]:
    """Ask as the browser of somebody who has this certificate; "": who has none."""
    context = ssl.create_default_context(cafile=pki / "own" / "ca.crt")
    if name:
        context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    line = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=PATIENCE_SECONDS)
    with contextlib.closing(line):
        kind = {} if form is None else {"Content-Type": FORM}
        method = "GET" if form is None else "POST"
        line.request(method, path, None if form is None else urlencode(form), {**kind, **headers})
        answer = line.getresponse()
        return answer.status, answer.read().decode()


def test_only_a_browser_with_one_of_the_certificates_gets_in(server: PageServer, pki: Path) -> None:
    assert server.login_url == f"https://127.0.0.1:{server.port}/"
    for name in ("lena", "noor"):
        assert ask(server, pki, name)[0] == 200
    for name in ("", "eve"):  # TLS itself turns them away
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(server, pki, name)
    token = server.url.removeprefix(server.login_url)
    assert ask(server, pki, "lena", f"/{token}")[0] == 404  # it opens nothing here


def test_a_certificate_that_an_admitted_one_has_signed_is_not_admitted(pki: Path) -> None:
    """Those that open a page are named one by one: whoever may sign others' certificates with theirs lets nobody in."""
    authority = read_certificates(pki / "own" / "ca.crt")[0]
    files = ServerFiles(certificate=pki / "page.crt", key=pki / "page.key")
    with served(server_of(login_of([authority], files))) as running:
        status, text = ask(running, pki, "lena")
        assert (status, "none of those that open this page" in text) == (403, True)


def test_forms_count_for_the_person_who_got_them_and_from_this_page_only(server: PageServer, pki: Path) -> None:
    lenas, noors = ask(server, pki, "lena")[1], ask(server, pki, "noor")[1]
    assert ask(server, pki, "lena", "/decide", {"form_token": lenas}) == (200, "decided")
    for form, headers in (
        ({"form_token": noors}, {}),
        ({}, {}),
        ({"form_token": lenas}, {"Origin": "https://evil.example"}),
        ({"form_token": lenas}, {"Origin": f"http://127.0.0.1:{server.port}"}),
        ({"form_token": lenas}, {"Sec-Fetch-Site": "cross-site"}),
        ({}, {"Origin": "null", "Sec-Fetch-Site": "cross-site"}),
    ):
        status, text = ask(server, pki, "lena", "/decide", form, **headers)
        assert (status, "nothing was decided" in text) == (403, True), (form, headers)
    own = {"Origin": f"https://127.0.0.1:{server.port}", "Sec-Fetch-Site": "same-origin"}
    assert ask(server, pki, "lena", "/decide", {"form_token": lenas}, **own)[0] == 200


def test_a_host_is_an_address_of_the_page_or_a_name_in_its_certificate(server: PageServer, pki: Path) -> None:
    for host, status in (
        (f"pages.hospital.example:{server.port}", 200),
        (f"localhost:{server.port}", 200),
        ("evil.example", 421),
        (f"evil.example:{server.port}", 421),
    ):
        assert ask(server, pki, "lena", Host=host)[0] == status, host


def test_each_name_has_pages_of_its_own_and_what_counts_is_asked_for_every_request(pki: Path) -> None:
    revoked: set[str] = set()

    def admit(certificate: x509.Certificate) -> str:
        name = certificate.subject.rfc4514_string()
        if name in revoked:
            raise Misuse("USAGE", "revoked")
        return name

    login = Login(
        server=lambda: ServerFiles(certificate=pki / "page.crt", key=pki / "page.key"),
        trusted=(pki / "own" / "ca.crt").read_text(),
        admit=admit,
        routes_of=lambda name: [Route("/", lambda _request: PlainTextResponse(name))],
        token_too=True,
    )
    with served(server_of(login)) as running:
        (_, lena), (_, noor) = (ask(running, pki, name) for name in ("lena", "noor"))
        assert lena != noor
        revoked.add(lena)
        assert ask(running, pki, "lena")[0] == 403
        assert ask(running, pki, "noor") == (200, noor)
        token = running.url.removeprefix(running.login_url)
        assert ask(running, pki, "", f"/{token}")[0] == 200
        status, text = ask(running, pki, "")
        assert (status, "the certificate that opens this page" in text) == (403, True)


def test_a_renewed_certificate_is_shown_from_the_next_connection_on(pki: Path, tmp_path: Path) -> None:
    for name in ("page.crt", "page.key"):
        shutil.copy(pki / name, tmp_path / name)
    people = [read_certificates(pki / "lena.crt")[0]]
    login = login_of(people, ServerFiles(certificate=tmp_path / "page.crt", key=tmp_path / "page.key"))
    with served(server_of(login)) as running:

        def shown() -> int:
            context = ssl.create_default_context(cafile=pki / "own" / "ca.crt")
            context.load_cert_chain(pki / "lena.crt", pki / "lena.key")
            line = http.client.HTTPSConnection("127.0.0.1", running.port, context=context, timeout=PATIENCE_SECONDS)
            with contextlib.closing(line):
                line.connect()
                der = line.sock.getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(der).serial_number

        first = shown()
        issue(pki / "own", "page", Role.MINER, tmp_path / "new", hosts=("127.0.0.1",))
        for name in ("page.key", "page.crt"):
            shutil.copy(tmp_path / "new" / name, tmp_path / name)
        assert shown() == read_certificates(tmp_path / "new" / "page.crt")[0].serial_number != first
        (tmp_path / "page.key").write_text("half a key")
        (tmp_path / "page.crt").touch()
        assert shown() != first  # what fits together no more leaves the one before


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("lena", "lena", "no browser takes it as the certificate of a server"),
        ("page", "lena", "TLS cannot use it"),
        ("nowhere", "page", "TLS cannot use it"),
    ],
)
def test_a_server_that_cannot_show_its_certificate_says_so_before_it_listens(
    pki: Path, certificate: str, key: str, words: str
) -> None:
    files = ServerFiles(certificate=pki / f"{certificate}.crt", key=pki / f"{key}.key")
    with pytest.raises(Misuse, match=words) as caught:
        server_of(login_of([read_certificates(pki / "lena.crt")[0]], files))
    assert caught.value.code == "CONFIG_INVALID"
    assert caught.value.hint


def test_a_certificate_that_has_expired_opens_nothing(pki: Path, tmp_path: Path) -> None:
    create_authority(tmp_path / "own", "old", at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    issue(tmp_path / "own", "old", Role.ANALYST, tmp_path, days=1, at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    old = read_certificates(tmp_path / "old.crt")[0]
    with pytest.raises(Exception, match="none of those"):
        login_of([old], ServerFiles(certificate=pki / "page.crt", key=pki / "page.key")).admit(old)


def test_options_that_belong_together_are_named(pki: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_site(tmp_path)
    place = ["--config", str(tmp_path / "party.toml"), "--format", "json"]
    for options, words in (
        (["--tls", str(pki / "page.crt")], "--tls: expected with --login"),
        (["--login", str(pki / "lena.crt"), "--tls", str(pki / "lena.crt")], "no browser takes it"),
        (["--login", str(tmp_path / "nobody.crt")], "cannot be read"),
        (["--listen", "0.0.0.0:0"], "expected a loopback address"),
    ):
        assert main(["party", "ui", *options, *place]) == 2
        assert words in capsys.readouterr().out, options


@pytest.mark.whole
def test_the_command_prints_an_address_without_a_token(pki: Path, tmp_path: Path) -> None:
    make_site(tmp_path)
    options = ("--login", str(pki / "lena.crt"), "--login", str(pki / "noor.crt"), "--tls", str(pki / "page.crt"))
    with command_page(tmp_path / "party.toml", *options) as (_process, url):
        context = ssl.create_default_context(cafile=pki / "own" / "ca.crt")
        context.load_cert_chain(pki / "noor.crt", pki / "noor.key")
        assert urlsplit(url).path == "/"
        with urllib.request.urlopen(url, context=context, timeout=PATIENCE_SECONDS) as answer:
            assert "Nothing waits for a decision here." in answer.read().decode()
