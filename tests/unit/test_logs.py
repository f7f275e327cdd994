"""Log lines: their form, their fields, and that they quote no data."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from verticil.shared.core.errors import PeerFault
from verticil.shared.core.logs import configure, fields

CANARY = "canary-7f3a"
log = logging.getLogger("verticil.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("verticil")
    before = root.handlers[:], root.level, ours.level
    yield (out := io.StringIO())
    root.handlers[:], _, _ = before
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.captureWarnings(capture=False)
    out.close()


def lines(stream: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_logger_message_and_the_fields_around_it(stream: io.StringIO) -> None:
    configure(as_json=True, stream=stream)
    with fields(study="adult-income", party="employer"):
        with fields(request="r1"):
            log.info("unit %d sent", 3)
        log.info("done")
    log.warning("outside")
    first, second, third = lines(stream)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "verticil.test",
        "study": "adult-income",
        "party": "employer",
        "request": "r1",
        "message": "unit 3 sent",
    }
    assert "request" not in second
    assert "study" not in third


async def test_fields_follow_tasks_and_threads(stream: io.StringIO) -> None:
    configure(as_json=True, stream=stream)

    async def work(party: str) -> None:
        with fields(party=party):
            await asyncio.to_thread(log.info, "in a thread")

    await asyncio.gather(work("a"), work("b"))
    assert sorted(line["party"] for line in lines(stream)) == ["a", "b"]


@pytest.mark.parametrize("as_json", [True, False])
def test_exceptions_that_are_not_ours_are_never_quoted(stream: io.StringIO, as_json: bool) -> None:
    configure(as_json=as_json, stream=stream)
    try:
        float(CANARY)  # "could not convert string to float: 'canary-7f3a'"
    except ValueError:
        log.exception("reading failed")
    text = stream.getvalue()
    assert CANARY not in text
    assert "ValueError at test_logs.py:" in text
    assert len(text.splitlines()) == 1


def test_our_own_errors_are_shown(stream: io.StringIO) -> None:
    configure(stream=stream)
    log.error("poll failed", exc_info=PeerFault("UNREACHABLE", "miner:1: connection refused"))
    assert "UNREACHABLE: miner:1: connection refused" in stream.getvalue()


def test_other_libraries_show_their_template_only(stream: io.StringIO) -> None:
    configure(stream=stream)
    other = logging.getLogger("asyncio")
    other.error("Task exception was never retrieved\nfuture: <Task exception=ValueError('%s')>", CANARY)
    other.error("cannot read %s", CANARY)
    other.info("not shown at all")
    text = stream.getvalue()
    assert CANARY not in text
    assert "Task exception was never retrieved" in text
    assert "cannot read %s" in text
    assert len(text.splitlines()) == 2


def test_a_line_stays_one_line_and_configure_replaces(stream: io.StringIO) -> None:
    configure(stream=stream)
    configure(stream=stream)
    log.info("a\nb\x1b[31m")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
