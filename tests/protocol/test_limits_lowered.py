"""A limit of everybody's account that is lowered after the approval: the study is refused before its first byte leaves."""

from __future__ import annotations

import asyncio

import pytest

from support import PATIENCE_SECONDS
from support import party_session as session
from verticil.party.operator import commands
from verticil.party.protocol.central import study as steps
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault
from verticil.shared.study.states import State

pki, manual = session.pki, session.manual
LIMITS = "max_public_epsilon = 6.0\nmax_public_epsilon_lifetime = {}\n"


def lower(manual: session.Federation, limit: float) -> None:
    manual.set_up("north", approval="manual", policy=LIMITS.format(limit))


@pytest.mark.parametrize("randomized", [False, True])
async def test_a_study_that_was_approved_is_refused_before_it_sends_when_its_limit_was_lowered(
    manual, randomized, monkeypatch
):
    lower(manual, 8.0)
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
    await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
    await manual.until_stage("north", "waiting for the other parties' approval")
    if randomized:  # its noise is drawn, and room is kept for it; the line breaks before the ledger has a row
        tried, enter = asyncio.Event(), steps.enter_in_ledger
        loop = asyncio.get_running_loop()

        def broken(site: Site, *rest: object) -> None:
            if site.config.name != "north":
                return enter(site, *rest)
            loop.call_soon_threadsafe(tried.set)
            raise PeerFault("UNREACHABLE", "the connection broke")

        monkeypatch.setattr(steps, "enter_in_ledger", broken)
        await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await tried.wait()
    await manual.stop("north")
    monkeypatch.undo()
    lower(manual, 3.5)
    if not randomized:
        await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
    manual.start("north")
    study = await manual.until(digest, State.FAILED)
    assert study.failure.code == "BUDGET_EXCEEDED"
    assert "data set 'people', account of everybody, by what is published: epsilon" in study.failure.message
    assert "on top of what was charged before, expected at most 3.5" in study.failure.message
    assert "policy.max_public_epsilon_lifetime" in study.failure.hint
    assert manual.ledger("north") == ()
    assert not {"begin_upload", "put_chunks", "finish_upload"} & set(manual.calls("north"))
    with Site.look(manual.config("north")) as site:
        assert site.ledger.sum_charges("people").epsilon == 0
        assert site.ledger.sum_reserved() == {}  # the study has ended here, and what was kept for it is free
        assert bool(site.database.rows("SELECT 1 FROM reserved WHERE drawn")) is randomized
