"""What a miner may make a party remember and do is bounded: invented studies, replies without end, repeated garbage."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from support import PATIENCE_SECONDS
from support import party_session as session
from verticil.party.audit.log import Event, What
from verticil.party.operator import commands
from verticil.party.operator.pending_studies import inbox
from verticil.party.protocol.retry import BURST, RATE, Backoff, Pace
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.transport import fetch
from verticil.shared.federation.transport.fetch import fetch_bytes
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.wire.v1 import coordinator_pb2, peer_pb2

pki, manual = session.pki, session.manual
LIMIT = 5


async def test_of_invented_studies_a_few_are_kept_and_the_first_stay(manual, caplog):
    manual.set_up("north", approval="manual", policy=f"max_open_studies = {LIMIT}")
    genuine = await manual.submit()
    path = manual.root / "invented.toml"
    invented: list[bytes] = []
    for number in range(40):
        path.write_text(session.STUDY.replace('"trial"', f'"invented-{number}"', 1))
        invented.append(canonical.to_bytes(read_study(path)))

    def flood(reply: coordinator_pb2.PollReply) -> None:
        for number, proposal in enumerate(invented):
            digest = canonical.digest(canonical.from_bytes(proposal))
            reply.tasks.add(study_digest=digest, proposal=proposal, version=1, state=2 if number % 2 else 22)

    tells = session.lies("poll", flood)

    async def unanswered(call: str) -> None:
        """It would have to say that it does not know these studies, which ends them."""
        if call == "report":
            await asyncio.Event().wait()

    def interfere(name: str, wire: session.Wire) -> None:
        tells(name, wire)
        wire.before = unanswered

    manual.interfere = interfere
    manual.start("north")

    async def until_polled(times: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while manual.calls("north").count("poll") < times:
                await asyncio.sleep(0.01)

    await until_polled(3)
    with Site.open(manual.config("north")) as site:
        studies = site.state.studies()
        going_on = [item for item in studies if item.task.state == 2]
        assert (len(going_on), len(studies) - len(going_on)) == (LIMIT, LIMIT)
        assert studies[0].digest == genuine  # what was told first stays
        assert len([entry for entry in site.audit.entries() if entry["event"] == "study-seen"]) == 2 * LIMIT
        assert len([entry for entry in site.audit.entries() if entry["event"] == "refused"]) == 1
    assert caplog.text.count("policy.max_open_studies are not kept") <= 40
    waiting = inbox(manual.config("north")).waiting
    assert len(waiting) == LIMIT
    assert not manual.tasks["north"].done()


async def test_a_denied_study_makes_room_for_another(manual):
    manual.set_up("north", approval="manual", policy="max_open_studies = 1")
    first = await manual.submit()
    second = await manual.submit(session.STUDY.replace('"trial"', '"second"', 1))
    manual.start("north")
    await manual.until_stage("north", "waiting for approval")

    def known() -> set[bytes]:
        with Site.open(manual.config("north")) as site:
            return {item.digest for item in site.state.studies()}

    assert await asyncio.to_thread(known) == {first}
    commands.deny(manual.config("north"), first.hex(), "officer", "no")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await asyncio.to_thread(known) != {first, second}:
            await asyncio.sleep(0.02)


async def test_replies_that_tell_nothing_or_never_end_are_waited_out() -> None:
    slept: list[float] = []
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(sleep=sleep, monotonic=lambda: now, backoff=Backoff(uniform=lambda: 1.0))
    for _ in range(10):
        await pace.wait(news=False, seconds=0.0)
    assert slept == sorted(slept)
    assert (slept[0], slept[-1]) == (0.5, 20.0)
    await pace.wait(news=False, seconds=30.0)  # it was waited for
    assert len(slept) == 10

    slept.clear()
    begun, n_replies = now, 1000
    for _ in range(n_replies):
        await pace.wait(news=True, seconds=0.0)
    assert now - begun == pytest.approx((n_replies - BURST) / RATE, abs=1.0)


def test_repeated_garbage_is_counted_and_a_day_has_one_line_of_it(manual, pki):
    del pki
    at = utc_now()
    with Site.open(manual.config("north")) as site:
        event = Event(what=What.REFUSED, who="miner", study=b"x" * 32, detail="study: MESSAGE_INVALID")
        assert [site.audit.refuse(event, at) for _ in range(500)] == [True] + [False] * 499
        tomorrow = at + dt.timedelta(days=1)
        assert site.audit.refuse(event, tomorrow)
        lines = [entry["detail"] for entry in site.audit.entries() if entry["event"] == "refused"]
        assert lines == [
            "study: MESSAGE_INVALID",
            f"study: MESSAGE_INVALID (499 more of this kind on {at:%Y-%m-%d})",
        ]
        assert site.audit.verify().n_lines == 2


async def test_a_stream_that_never_ends_has_a_deadline(monkeypatch):
    monkeypatch.setattr(fetch, "STREAM_SECONDS", 0.05)

    async def trickle(_offset: int):
        yield peer_pb2.Part(size=10**6, sha256=bytes(32))
        await asyncio.Event().wait()

    with pytest.raises(PeerFault) as caught:
        await fetch_bytes(trickle, limit_bytes=10**7, what="a list")
    assert caught.value.code == "DEADLINE"


def test_a_study_about_nearly_the_same_people_is_refused_where_party_toml_says_nothing(manual):
    config = manual.config("north")
    assert "on_small_difference" not in config.path.read_text()
    assert config.policy.on_small_difference == "refuse"
