"""A miner that tells nonsense, and every way on which bytes leave: what a party's daemon does on the wire and in its ledger."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import sqlite3

import pytest

from support import PATIENCE_SECONDS, daemons
from support import party_session as session
from verticil.party import daemon
from verticil.party.operator import commands
from verticil.party.site import Site
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2

# Two parties, a miner and the wire between them, as in the tests of the session.
pki, federation, manual = session.pki, session.federation, session.manual
STUDY = session.STUDY


def rows_of(federation, name: str) -> set[tuple[str, str]]:
    """(variables, artifact) of every row, read from outside through the file: what a power cut would leave."""
    with contextlib.closing(sqlite3.connect(federation.root / name / "state" / "party.sqlite")) as connection:
        return {(v, bytes(a).hex()) for v, a in connection.execute("SELECT variables, artifact_sha256 FROM ledger")}


# ---- the ledger before the first byte


async def test_every_byte_of_a_unit_has_its_row_before_it_on_every_way(federation):
    """First upload, broken streams, a daemon that dies between randomizing and sending, a second study: always the row first."""
    begun: dict[str, str] = {}  # upload id -> artifact
    seen: list[str] = []
    broken: set[str] = set()
    dead = asyncio.Event()

    def interfere(name: str, wire) -> None:
        if name != "north":
            return
        inner = wire._inner
        begin, put = inner.begin_upload, inner.put_chunks

        async def begin_upload(request):
            assert request.sha256.hex() in {artifact for _, artifact in rows_of(federation, "north")}
            seen.append("begin")
            reply = await begin(request)
            begun[reply.upload_id] = request.sha256.hex()
            return reply

        async def put_chunks(chunks):
            async def looking():
                async for chunk in chunks:
                    assert begun[chunk.upload_id] in {artifact for _, artifact in rows_of(federation, "north")}
                    seen.append("chunk")
                    yield chunk

            return await put(looking())

        inner.begin_upload, inner.put_chunks = begin_upload, put_chunks

        async def break_once(call: str) -> None:
            if call in {"begin_upload", "put_chunks.message", "finish_upload"} and call not in broken:
                broken.add(call)
                dead.set()
                await asyncio.Event().wait()

        wire.before = break_once

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    finish = asyncio.create_task(federation.until(digest, State.ESTIMATING))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not finish.done():
            waiting = asyncio.create_task(dead.wait())
            await asyncio.wait({finish, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if dead.is_set():
                dead.clear()
                await federation.kill("north")
                federation.start("north")
    assert broken == {"begin_upload", "put_chunks.message", "finish_upload"}
    await session.finished(federation, digest)
    again = await federation.submit(STUDY.replace('"trial"', '"again"', 1))
    before = len(federation.ledger("north"))
    federation.start()
    await session.finished(federation, again)
    rows = federation.ledger("north")
    assert [row.charged for row in rows[before:]] == [0.0, 0.0]
    assert sum(row.charged for row in rows) == pytest.approx(4.0)
    assert {"begin", "chunk"} <= set(seen)


async def test_a_miner_that_goes_back_to_an_ended_study_gets_nothing(federation, caplog):
    """It says that the study was withdrawn, then that it is not: what has ended here has ended, and the log says it once."""
    shown: list[int] = []

    def falsify(reply) -> None:
        for task in reply.tasks:
            if task.state in {State.PREPARING, State.UPLOADING} and not shown:  # the other party may be ahead
                shown.append(task.state)
                task.state = State.WITHDRAWN
                task.version = 1

    federation.interfere = session.lies("poll", falsify)
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert shown
    assert (summary.failure.code, "has ended here" in summary.failure.message) == ("STUDY_MISMATCH", True)
    await federation.stop()
    assert federation.ledger("north") == ()
    assert "begin_upload" not in federation.calls("north")
    said = "has ended here (withdrawn), the miner says"  # of the others, the engine may repeat what the miner passes on
    assert sum(said in line.getMessage() and line.name.endswith("party_node") for line in caplog.records) == 1


# ---- other common people


async def test_two_studies_with_other_common_people_show_the_same_values(federation):
    """Differencing: north's values of those who are in both studies are the same, so the difference tells nothing of them."""
    first = await federation.submit()
    federation.start()
    await session.finished(federation, first)
    for name in federation.wires:  # the default refuses such a study
        federation.set_up(name, approval="auto", policy='on_small_difference = "warn"')
    path = federation.root / "south" / "people.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(row for row in rows if not row.startswith("person-0007,"))]) + "\n")
    text = STUDY.replace('"trial"', '"second"', 1).replace("epsilon = 2.0", "epsilon = 2.0\n[[randomization]]\n"
        'variables = ["income", "region"]\nscheme = "symmetric"\nepsilon = 1.5')  # fmt: skip
    second = await federation.submit(text)
    federation.start()
    await session.finished(federation, second)
    before = dict(zip(session.order_of(first), federation.released(first, 0).tolist(), strict=True))
    kept = [person for person in session.order_of(second) if person != "person-0007"]
    after = dict(zip(kept, federation.released(second, 0).tolist(), strict=True))
    assert len(after) == session.N_COMMON - 1
    assert all(before[person] == value for person, value in after.items())
    assert [row.charged for row in federation.ledger("north")][2:] == [0.0, 0.0]


# ---- what leaves when something is wrong


async def test_no_name_of_another_column_leaves_with_a_failure(federation):
    """The study asks for a column that is nearly one of the table's; who asked learns that it is not there, and no more."""
    path = federation.root / "north" / "people.csv"
    path.write_text(path.read_text().replace("smoker", "smokers", 1))
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "DATA_COLUMN_MISSING"
    await federation.stop()
    for told in (f"{summary.failure.message} {summary.failure.hint}".encode(), federation.sent("north")):
        assert b"smokers" not in told
        assert b"people.csv" not in told
    facts = await asyncio.to_thread(commands.status, federation.config("north"))
    assert "'smokers' for 'smoker'?" in facts.studies[0].failure.hint  # at home it is all there


# ---- expiry while waiting


async def test_a_study_that_expires_while_it_waits_sends_nothing_more(federation):
    now = {"shift": dt.timedelta()}

    def interfere(name: str, wire) -> None:
        async def look(call: str) -> None:
            if name == "north" and wire.reported and wire.reported[-1] == "confirmed_common_sha256":
                now["shift"] = dt.timedelta(days=2)

        wire.before = look

    federation.interfere = interfere
    today = utc_now().date() + dt.timedelta(days=1)  # the miner's clock is right: there the study goes on
    digest = await federation.submit(STUDY.replace("2099-12-31", today.isoformat()))
    federation.start("south")
    federation.stops["north"] = asyncio.Event()
    federation.tasks["north"] = daemons.started(
        daemon.run_party(
            federation.config("north"),
            lambda: federation.wire("north"),
            stop=federation.stops["north"],
            clock=lambda: utc_now() + now["shift"],
        )
    )
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "STUDY_EXPIRED"
    assert not {"begin_upload", "put_chunks"} & set(federation.calls("north"))
    assert federation.ledger("north") == ()


# ---- nonsense from the miner


def _unknown_state(task) -> None:
    task.state = 77


def _huge_version(task) -> None:
    task.version = 2**64 - 1


def _half_a_letter(task) -> None:
    task.proposal = task.proposal.replace(b'"spellings":[""]', b'"spellings":["\\ud800"]')
    task.study_digest = hashlib.sha256(task.proposal).digest()


@pytest.mark.parametrize("change", [_unknown_state, _huge_version, _half_a_letter])
async def test_a_task_that_makes_no_sense_stops_neither_the_daemon_nor_the_next_study(federation, change):
    told: list[bytes] = []

    def falsify(reply) -> None:
        for task in reply.tasks:
            if not told or task.study_digest == told[0]:
                told.append(bytes(task.study_digest))
                change(task)

    federation.interfere = session.lies("poll", falsify)
    first = await federation.submit()
    federation.start()
    if change is _half_a_letter:  # the miner knows no study of that digest: its own stays where it was
        await federation.until_stage("south", "waiting for the other parties' approval")
    else:
        assert (await federation.until(first, State.FAILED)).failure.code == "MESSAGE_INVALID"
    assert not federation.tasks["north"].done()
    federation.interfere = lambda name, wire: None
    federation.wires["north"][-1].falsify = lambda _, reply: reply
    again = await federation.submit(STUDY.replace('"trial"', '"second"', 1))
    await session.finished(federation, again)


async def test_a_study_that_is_taken_in_after_a_newer_one_holds_neither_up(federation):
    """The lie ends while a poll is under way: its reply brings the second study, and the next reply the first one."""
    told: list[bytes] = []

    def falsify(reply) -> None:
        for task in reply.tasks:
            if not told or task.study_digest == told[0]:
                told.append(bytes(task.study_digest))
                _huge_version(task)

    federation.interfere = session.lies("poll", falsify)
    first = await federation.submit()
    service, held, go_on = federation.node.coordinator, asyncio.Event(), asyncio.Event()
    answer = service.Poll

    async def poll(identity, request):
        if any(study.version == 2**64 - 1 for study in request.known):
            held.set()
            await go_on.wait()
        return await answer(identity, request)

    service.Poll = poll
    federation.start()
    assert (await federation.until(first, State.FAILED)).failure.code == "MESSAGE_INVALID"
    await held.wait()
    federation.wires["north"][-1].falsify = lambda _, reply: reply
    again = await federation.submit(STUDY.replace('"trial"', '"second"', 1))
    go_on.set()
    await federation.until_stage("north", "failed: MESSAGE_INVALID", digest=first)
    await session.finished(federation, again)
    with Site.open(federation.config("north")) as site:
        assert [study.digest for study in site.state.studies()] == [again, first]


async def test_a_foreign_failure_code_reaches_no_terminal_as_it_is(manual):
    def falsify(reply) -> None:
        for task in reply.tasks:
            task.state = State.FAILED
            task.failure.CopyFrom(common_pb2.ErrorDetail(code="\x1b[2J\x1b]0;approved\x07", message="x"))

    manual.interfere = session.lies("poll", falsify)
    await manual.submit()
    manual.start("north")
    await manual.until_stage("north", "failed: MESSAGE_INVALID")
    with Site.open(manual.config("north")) as site:
        assert site.state.studies()[0].task.failure == "MESSAGE_INVALID"
