"""Decisions in a site's page against the real miner in memory: from the approval to the published release."""

from __future__ import annotations

import asyncio
import dataclasses
import re

import pytest

from support import party_session as session
from support.pages import Visitor, every_page, served
from support.publishing import ALL, GIVEN, WAITS, Publishing
from support.site_folder import NOW
from verticil.party.operator import commands
from verticil.party.operator.page.pages import Officer, site_server
from verticil.shared.release.signatures import read_countersignature
from verticil.shared.study.states import State

pki = session.pki


@pytest.fixture
async def publishing(tmp_path, pki):
    made = Publishing(tmp_path, pki, approval="manual")
    await made.start_miner()
    yield made
    await made.stop()
    await made.stop_miner()


async def test_a_release_that_is_countersigned_in_a_page_is_published_as_one_by_a_command(publishing) -> None:
    digest = await publishing.submit(GIVEN + ALL)
    publishing.start()
    for name in publishing.wires:
        await publishing.until_stage(name, "waiting for approval")
    config = publishing.config("north")
    officer = Officer(name="officer@north", key=None)
    with served(site_server(config.path, ("127.0.0.1", 0), officer=officer)) as server:
        visitor = Visitor(server)
        status, page = await asyncio.to_thread(visitor.decide, digest.hex(), "approve")
        assert status == 303, page.text
        await asyncio.to_thread(commands.approve, publishing.config("south"), "trial", "officer")
        await publishing.until(digest, State.REVIEW)
        for name in publishing.wires:
            await publishing.until_stage(name, WAITS)
        shown = await asyncio.to_thread(visitor.page, f"study/{digest.hex()}/")
        assert "the release is not published, the study ends for everybody" in shown.text
        assert "Nothing leaves and nothing is charged" not in shown.text
        first = await asyncio.to_thread(visitor.page)
        assert "its columns are sent and charged" in first.text
        assert "after it, of" not in first.text  # what it cost was charged before
        place = f"{visitor.root}study/{digest.hex()}/release"
        status, headers, text = await asyncio.to_thread(visitor.ask, place)
        assert (status, "sandbox" in headers["Content-Security-Policy"]) == (200, True)
        assert "Release report" in text
        status, page = await asyncio.to_thread(visitor.decide, digest.hex(), "countersign", typed="tria")
        assert (status, "typed otherwise" in page.text) == (422, True)
        status, page = await asyncio.to_thread(visitor.decide, digest.hex(), "countersign", typed="trial")
        assert status == 303, page.text
        await publishing.countersign("south")
        await publishing.until(digest, State.PUBLISHED)
        further = (f"study/{digest.hex()}/preview", f"study/{digest.hex()}/release")
        texts = await asyncio.to_thread(every_page, visitor, *further)
        assert {"ledger", "audit", "health", *further} <= set(texts)
        secret = (config.state_directory / "site.secret").read_bytes()
        for (
            path,
            text,
        ) in texts.items():  # the canary: no id of the table, and no secret, on any page at the end of the way
            assert re.search(r"person-\d{4}|north-\d", text) is None, path
            assert secret.hex() not in text, path
    said = {
        name: dataclasses.replace(read_countersignature(signed.body), signed_at=NOW, party="", approver="")
        for name, signed in publishing.node.session.record(digest).countersignatures.items()
    }
    assert set(said) == {"north", "south"}
    assert said["north"] == said["south"]  # but for who says it, and when
