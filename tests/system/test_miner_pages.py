"""The pages of the miner, in the real daemon's loop and over a real line: what they show, and what their reader may do there."""

from __future__ import annotations

import asyncio
import dataclasses
import html
import json
import re
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

from support import PATIENCE_SECONDS
from support import miner_daemon as daemon
from support import miner_service as service
from support.miner_service import make_study
from support.pages import Address, Page, Visitor, served
from verticil.analyst.miner_line import LineSource
from verticil.cli.main import main
from verticil.miner.airgap.exchange import Exchange
from verticil.miner.config import load_miner
from verticil.miner.page.pages import miner_server
from verticil.miner.page.source import NodeSource
from verticil.miner.page.task import page_address
from verticil.miner.storage.audit import MinerAudit
from verticil.pki.register import revoke
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.authority import issue, open_authority
from verticil.shared.federation.identity.identity import Role
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.states import State

folder, keys = daemon.folder, service.keys

STUDY_TOML = """schema = 1
id = "trial"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[linkage]
minimum_common_records = 10
[[variable]]
party = "north"
name = "a"
categories = ["0", "1"]
[[variable]]
party = "south"
name = "b"
categories = ["0", "1"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
"""


async def ask(visitor: Visitor, path: str = "", status: int = 200) -> Page:
    return await asyncio.to_thread(visitor.page, path, status)


@pytest.fixture
def own_folder(folder: Path, tmp_path: Path) -> Path:
    """A miner with pages, whose federation names its port once it serves."""
    shutil.copytree(folder, tmp_path / "f")
    path = tmp_path / "f" / "miner.toml"
    path.write_text(path.read_text() + '[ui]\nlisten = "127.0.0.1:0"\n')
    return tmp_path / "f"


async def until_served(folder: Path) -> str:
    place = folder / "state" / "page.url"
    async with asyncio.timeout(60):
        while not place.exists():
            await asyncio.sleep(0.01)
    assert place.stat().st_mode & 0o777 == 0o600
    return place.read_text().strip()


async def test_the_daemon_serves_the_operator_s_page_and_the_analyst_has_one_of_their_own(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_miner(own_folder / "miner.toml")
    with pytest.raises(PeerFault, match="serves no page"):
        page_address(config)
    async with daemon.Daemon(config) as port:
        url = await until_served(own_folder)
        assert await asyncio.to_thread(main, ["miner", "ui", "--config", str(own_folder / "miner.toml")]) == 0
        assert url in "".join(capsys.readouterr().out.split())
        operator = Visitor(Address(url))
        assert "No study was submitted yet." in (await ask(operator)).text
        federation = own_folder / "federation.toml"
        federation.write_text(federation.read_text().replace("localhost:1", f"localhost:{port}"))
        source = LineSource(federation, own_folder / "pki" / "anna.crt")
        with served(miner_server(source, ("127.0.0.1", 0))) as server:
            anna = Visitor(server)
            token = (await ask(anna, "submit")).fields
            status, page = await asyncio.to_thread(anna.send, "submit", {**token, "study": "schema = 1"})
            assert (status, "Nothing was submitted" in page.text) == (422, True)
            assert "sse:changed" not in page.html  # the next event must not take the words away
            status, page = await asyncio.to_thread(
                anna.send, "submit", {**token, "study": STUDY_TOML.replace("\n", "\r\n")}
            )
            assert (status, "north: waiting for approval" in (await ask(anna)).text) == (303, True), page.text
            digest = (await source.studies())[0].study_digest
            shown = await ask(operator, f"study/{digest.hex()}/")
            assert "submitted by anna" in shown.text
            assert "north offline, not heard of since the miner started" in shown.text
            assert "a north 2 2.00 56.6 %" in shown.text
            assert "To whoever reads columns: the miner, or the peers ε 4.00" in shown.text
            mine = await ask(anna, f"study/{digest.hex()}/")
            status, page = await asyncio.to_thread(
                anna.send, f"study/{digest.hex()}/end", {**mine.fields, "typed": "tria"}
            )
            assert (status, "expected 'trial'" in page.text) == (422, True)
            status, page = await asyncio.to_thread(
                anna.send, f"study/{digest.hex()}/end", {**mine.fields, "typed": "trial"}
            )
            assert (status, "withdrawn" in page.text, "form" in page.tags) == (303, True, False)
        wrong = await asyncio.to_thread(operator.ask, operator.root + "submit")
        assert wrong[0] == 404  # a study has an analyst
    assert not (own_folder / "state" / "page.url").exists()


async def test_an_analyst_s_certificate_opens_their_own_pages_at_the_daemon(own_folder: Path) -> None:
    toml = own_folder / "miner.toml"
    toml.write_text(toml.read_text() + "certificates = true\n")
    config, pki = load_miner(toml), own_folder / "pki"
    for name, role in (("bert", Role.ANALYST), ("old", Role.ANALYST), ("audra", Role.AUDITOR)):
        issue(own_folder / "ca", name, role, pki)
    revoke(open_authority(own_folder / "ca"), "old")
    async with daemon.Daemon(config):
        operator = await until_served(own_folder)
        root = operator.rsplit("/", 2)[0] + "/"

        def ask(name: str, path: str, form: dict[str, str] | None = None) -> tuple[int, Page]:
            context = ssl.create_default_context(cafile=own_folder / "ca" / "ca.crt")
            if name:
                context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
            opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
            body = None if form is None else urlencode(form).encode()
            try:
                with opener.open(root.replace("127.0.0.1", "localhost") + path, body, PATIENCE_SECONDS) as answer:
                    return answer.status, Page(answer.read().decode())
            except urllib.error.HTTPError as error:
                return error.code, Page(error.read().decode())

        async def visit(name: str, path: str = "", form: dict[str, str] | None = None) -> tuple[int, Page]:
            return await asyncio.to_thread(ask, name, path, form)

        token = operator.removeprefix(root)
        assert (await visit("", token))[0] == 200  # the operator's, as ever
        for name, words in (
            ("", "give the browser the certificate"),
            ("audra", "expected role analyst"),
            ("north", "expected role analyst"),
            ("old", "was revoked by the authority"),
        ):
            status, page = await visit(name)
            assert (status, words in page.text) == (403, True), page.text
        fields = (await visit("anna", "submit"))[1].fields
        assert (await visit("bert", "submit", {**fields, "study": STUDY_TOML}))[0] == 403  # a form of another's
        status, page = await visit("anna", "submit", {**fields, "study": STUDY_TOML})
        assert (status, "a north 2 2.00 56.6 %" in page.text) == (200, True), page.text  # their own: what it asks
        place = (await visit("bert"))[1].links
        (study,) = (link for link in place if link.startswith("study/"))
        status, page = await visit("bert", study)
        assert (status, "form" in page.tags, "a north 2 2.00" in page.text) == (200, False, False)
        bert = (await visit("bert", "submit"))[1].fields
        status, page = await visit("bert", f"{study}end", {**bert, "typed": "trial"})
        assert (status, "IDENTITY_REFUSED" in page.text) == (422, True), page.text
        status, page = await visit("anna", f"{study}end", {**(await visit("anna", study))[1].fields, "typed": "trial"})
        assert (status, "withdrawn" in page.text) == (200, True)
        assert (await visit("anna", "log"))[0] == 404


async def test_what_the_operator_ends_in_the_page_is_what_a_command_ends(tmp_path: Path, keys: service.Keys) -> None:
    ended: list[object] = []
    for way in ("page", "typed"):
        federation = service.Federation(tmp_path / way, keys)
        async with federation.node:
            digest = await federation.submit(make_study())
            audit = MinerAudit(federation.directory)
            exchange = Exchange(_config(tmp_path / way), federation.node, audit=audit)
            if way == "typed":
                await exchange.close("trial", "not agreed with us")
            else:
                source = NodeSource("miner", federation.node, audit, exchange)
                async with in_loop(source) as visitor:
                    fields = (await ask(visitor, f"study/{digest.hex()}/")).fields
                    words = {"typed": "trial", "reason": "not agreed with us"}
                    status, page = await asyncio.to_thread(
                        visitor.send, f"study/{digest.hex()}/end", {**fields, **words}
                    )
                    assert (status, "withdrawn" in page.text) == (303, True), page.text
                    again = await asyncio.to_thread(visitor.send, f"study/{digest.hex()}/end", {**fields, **words})
                    assert (again[0], "STUDY_OVER" in again[1].text) == (422, True)
                    assert "not agreed with us" in (await ask(visitor, "log")).text
            record = federation.node.session.record(digest)
            lines = [{k: v for k, v in line.said.items() if k not in {"hash", "previous"}} for line in audit.entries()]
            ended.append((record.closure, record.withdrawn, lines))
    assert ended[0] == ended[1]


async def test_a_published_study_has_its_files_with_digests_and_its_report(tmp_path: Path, keys: service.Keys) -> None:
    federation = service.Federation(tmp_path, keys)
    async with federation.node:
        digest = await federation.publish(make_study())
        await federation.settled(digest, "published_at")
        audit = MinerAudit(federation.directory)
        source = NodeSource("miner", federation.node, audit, Exchange(_config(tmp_path), federation.node, audit=audit))
        async with in_loop(source) as visitor:
            page = await ask(visitor, f"study/{digest.hex()}/")
            files = await source.files(digest)
            assert {"manifest.json", "report.html"} <= {file.path for file in files}
            assert all(file.sha256.hex() in page.text for file in files)
            assert "published" in page.text
            assert "form" not in page.tags
            root = f"{visitor.root}study/{digest.hex()}/files/"
            status, headers, text = await asyncio.to_thread(visitor.ask, f"{root}report.html")
            assert (status, "sandbox" in headers["Content-Security-Policy"], "<html" in text) == (200, True, True)
            status, headers, text = await asyncio.to_thread(visitor.ask, f"{root}manifest.json")
            assert (status, headers["Content-Disposition"]) == (200, 'attachment; filename="manifest.json"')
            assert json.loads(text)
            for path in ("../../catalogue.sqlite", "nothing"):
                assert (await asyncio.to_thread(visitor.ask, root + path))[0] == 404
            assert (await ask(visitor, "study/" + "0" * 64 + "/", 404)).text
            assert State(federation.node.session.state(federation.node.session.record(digest))) is State.PUBLISHED


async def test_texts_of_others_stay_texts_on_the_miner_s_pages(tmp_path: Path, keys: service.Keys) -> None:
    markup = "<script>alert(1)</script>\u05d0\u05d7\u05e8 & {{ 7 * 7 }}"
    federation = service.Federation(tmp_path, keys)
    study = make_study()
    variables = (dataclasses.replace(study.schema.variables[0], labels=(markup, "b", "c")), *study.schema.variables[1:])
    study = dataclasses.replace(study, title=markup, purpose=markup, schema=Schema(variables=variables))
    async with federation.node:
        digest = (await federation.submit(study)).hex()
        audit = MinerAudit(federation.directory)
        source = NodeSource("miner", federation.node, audit, Exchange(_config(tmp_path), federation.node, audit=audit))
        async with in_loop(source) as visitor:
            pages = [await ask(visitor), await ask(visitor, f"study/{digest}/")]
            assert [markup in page.text for page in pages] == [True, True]
            assert all("script src" not in page.text and page.handlers == [] for page in pages)
            assert all("<script>alert" not in page.html for page in pages)
            assert all(f"<bdi>{html.escape(markup)}</bdi>" in page.html for page in pages)
            shown = pages[1]
            status, page = await asyncio.to_thread(
                visitor.send, f"study/{digest}/end", {**shown.fields, "typed": "trial", "reason": markup}
            )
            assert (status, "<script>alert" in page.html) == (303, False)


async def test_a_miner_that_stops_while_an_analyst_decides_loses_nothing_of_what_was_typed(own_folder: Path) -> None:
    config = load_miner(own_folder / "miner.toml")
    federation = own_folder / "federation.toml"
    async with daemon.Daemon(config) as port:
        federation.write_text(federation.read_text().replace("localhost:1", f"localhost:{port}"))
        source = LineSource(federation, own_folder / "pki" / "anna.crt")
        digest = (await source.submit(read_study_text(STUDY_TOML, own_folder))).hex()
    with served(miner_server(source, ("127.0.0.1", 0))) as server:
        anna = Visitor(server)
        fields = (await ask(anna, "submit")).fields
        other = STUDY_TOML.replace('id = "trial"', 'id = "second"')
        status, page = await asyncio.to_thread(anna.send, "submit", {**fields, "study": other})
        assert (status, "The miner did not answer" in page.text, 'id = "second"' in page.text) == (422, True, True)
        status, page = await asyncio.to_thread(anna.send, f"study/{digest}/end", {**fields, "typed": "trial"})
        assert (status, "The miner did not answer" in page.text) == (422, True), page.text
        assert "UNREACHABLE" in (await ask(anna, "", 503)).text
        async with daemon.Daemon(config) as port:
            text = federation.read_text()
            federation.write_text(re.sub(r"localhost:\d+", f"localhost:{port}", text))
            for _ in range(2):  # the same forms again, and once more: nothing is done twice
                status, page = await asyncio.to_thread(anna.send, f"study/{digest}/end", {**fields, "typed": "trial"})
                assert (status, "withdrawn" in page.text) == (303, True), page.text
                assert (await asyncio.to_thread(anna.send, "submit", {**fields, "study": other}))[0] == 303
            assert [study.study_id for study in await source.studies()] == ["trial", "second"]


def _config(directory: Path) -> object:
    class Config:
        state_directory = directory
        name = "miner"

    return Config()


class in_loop:  # noqa: N801 (used as a context manager)
    """Serve pages in the loop of the test, as the daemon does."""

    def __init__(self, source: NodeSource) -> None:
        self._source = source

    async def __aenter__(self) -> Visitor:
        self._server = miner_server(self._source, ("127.0.0.1", 0))
        self._task = asyncio.create_task(self._server.serve(asyncio.Event()))
        return Visitor(self._server)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._server.close()
