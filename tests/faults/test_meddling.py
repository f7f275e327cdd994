"""Studies in one process while somebody meddles: random messages at every entry point, and answers of a miner that are changed.

The messages are filled at random from the wire contract's own descriptors, with this study's digest among the bytes, so that they
get past the first check; they come between the real calls, so that they meet the study in every state. What they may get is an
answer or an error that says something (not INTERNAL), and the study must end with the release of an undisturbed one. A miner
that changes its answers may end the study, with an error that says something; it never gets a column beyond what was approved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from support.sameness import charged, differences, essence
from verticil.shared.core.errors import VerticilError
from verticil.shared.study.canonical import digest
from verticil.shared.study.reading import read_study
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import copy_federation
from verticil.wire.v1 import coordinator_pb2

INTEGERS = (0, 0, 1, 2, 7, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "../../x", "x" * 3000, "\0", "é\u202e", "manifest.json", "uploading", "clinic")
HARMFUL = {"denial", "failure", "withdrawal", "approval", "confirmed_common_sha256"}
"""What a party may say about its own study for good; it says so of other studies only."""


def filled(kind: Any, draw: random.Random, known: list[bytes], depth: int = 0) -> Message:
    """A message with fields at random."""
    message: Any = GetMessageClass(kind)()
    for field in kind.fields:
        if draw.random() < 0.3 or depth > 3:
            continue
        times = draw.choice((0, 1, 3)) if field.is_repeated else 1
        for _ in range(times):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                inner = filled(field.message_type, draw, known, depth + 1)
                if field.is_repeated:
                    getattr(message, field.name).append(inner)
                else:
                    getattr(message, field.name).CopyFrom(inner)
                continue
            value: object
            if field.type == FieldDescriptor.TYPE_BYTES:
                value = draw.choice((*known, *known, b"", draw.randbytes(draw.choice((1, 16, 32, 33, 600)))))
            elif field.type == FieldDescriptor.TYPE_STRING:
                value = draw.choice(TEXTS)
            elif field.type == FieldDescriptor.TYPE_BOOL:
                value = draw.random() < 0.5
            elif field.type == FieldDescriptor.TYPE_ENUM:
                value = draw.choice((0, 1, 2, 77))
            else:
                bits = 64 if "64" in field.type.__class__.__name__ or field.cpp_type in {2, 4} else 32
                value = draw.choice(INTEGERS) % 2**bits
                if field.cpp_type in {1, 2}:  # signed
                    value = int(value) % 2 ** (bits - 1)  # type: ignore[call-overload]
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


class Meddler:
    """Stands between a party and the miner, and speaks in the party's name before each of its calls."""

    def __init__(self, line: Any, draw: random.Random, known: list[bytes], tally: dict[str, int]) -> None:
        self._line, self._draw, self._known, self._tally = line, draw, known, tally

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._line, name)
        if name == "close":
            return real
        if name in {"get_alignment", "get_release"}:

            async def many(request: Any) -> AsyncIterator[Any]:
                await self._meddle()
                async with contextlib.aclosing(real(request)) as parts:
                    async for part in parts:
                        yield part

            return many

        async def one(request: Any) -> Any:
            await self._meddle()
            return await real(request)

        return one

    async def _meddle(self) -> None:
        method = self._draw.choice(coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"].methods)
        message: Any = filled(method.input_type, self._draw, self._known)
        self._spare_the_study(message)
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method.name).strip("_")
        code = "OK"
        try:
            call = getattr(self._line, name)
            if method.server_streaming:
                async with contextlib.aclosing(call(message)) as parts:
                    async for _ in parts:
                        break
            else:
                await call([message, message] if method.client_streaming else message)
        except VerticilError as error:
            code = error.code
        self._tally[f"{method.name} {code}"] = self._tally.get(f"{method.name} {code}", 0) + 1
        assert code != "INTERNAL", f"{method.name}: {message}"

    def _spare_the_study(self, message: Any) -> None:
        """Not what ends it by right, and nothing that is waited for."""
        if isinstance(message, coordinator_pb2.ReportRequest) and message.WhichOneof("what") in HARMFUL:
            message.study_digest = self._draw.randbytes(32)
        if isinstance(message, coordinator_pb2.PollRequest):
            message.epoch = 0
        if "wait_seconds" in message.DESCRIPTOR.fields_by_name:
            message.wait_seconds = 0
        if message.DESCRIPTOR.name == "HelloRequest":
            message.session = 0


async def run(template: Any, folder: Path, **options: Any) -> dict[str, str]:
    made = copy_federation(template.template, folder / "federation")
    await run_federation(made, read_study(made.analyst / "study.toml"), folder / "release", is_seeded=True, **options)
    costs = {party: f"{cost:.9g}" for party, cost in charged(made.parties).items()}
    return {**essence(folder / "release"), **costs}


@pytest.fixture(scope="module")
def calm(template: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return asyncio.run(run(template, tmp_path_factory.mktemp("calm")))


SEEDS = [
    pytest.param(0, marks=pytest.mark.whole),
    *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(1, 20)),
]


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_messages_at_every_entry_point(
    seed: int, template: Any, calm: dict[str, str], tmp_path: Path, in_the_table: Callable[..., None]
) -> None:
    draw, tally = random.Random(seed), dict[str, int]()
    known = [digest(read_study(template.template.analyst / "study.toml"))]
    found = await run(template, tmp_path, wrap=lambda _, line: Meddler(line, draw, known, tally))
    detail = ", ".join(f"{name}: {times}" for name, times in sorted(tally.items()))
    assert sum(tally.values()) > 15
    in_the_table(
        "random messages in a party's name", times=sum(tally.values()), lost=differences(calm, found), detail=detail
    )


class Liar(Meddler):
    """A miner that changes some of its answers: each field may be another."""

    def __init__(self, line: Any, draw: random.Random, known: list[bytes], lies: list[str]) -> None:
        super().__init__(line, draw, known, {})
        self._lies = lies

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._line, name)
        if name == "close":
            return real
        if name in {"get_alignment", "get_release"}:

            async def many(request: Any) -> AsyncIterator[Any]:
                async with contextlib.aclosing(real(request)) as parts:
                    async for part in parts:
                        yield self._changed(name, part)

            return many

        async def one(request: Any) -> Any:
            return self._changed(name, await real(request))

        return one

    def _changed(self, name: str, reply: Any) -> Any:
        if len(self._lies) >= 4 or self._draw.random() > 0.3:
            return reply
        part = reply.tasks[0] if name == "poll" and reply.tasks else reply
        other: Any = filled(part.DESCRIPTOR, self._draw, self._known)
        field = self._draw.choice(part.DESCRIPTOR.fields)
        self._lies.append(f"{name}.{field.name}")
        part.ClearField(field.name)
        if field.is_repeated:
            getattr(part, field.name).extend(getattr(other, field.name))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(part, field.name).CopyFrom(getattr(other, field.name))
        else:
            setattr(part, field.name, getattr(other, field.name))
        return reply


LIES = [0, 1, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(2, 60))]


@pytest.mark.parametrize("seed", LIES)
async def test_a_miner_that_lies_gets_nothing_more_and_is_answered_with_reason(
    seed: int, template: Any, calm: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, in_the_table: Any
) -> None:
    draw, lies = random.Random(seed), list[str]()
    known = [digest(read_study(template.template.analyst / "study.toml"))]
    caplog.set_level(logging.INFO)
    ended, found = "published", calm
    try:
        found = await run(template, tmp_path, wrap=lambda _, line: Liar(line, draw, known, lies))
    except VerticilError as error:
        ended = error.code
    assert ended != "INTERNAL", lies
    assert differences(calm, found) == [], lies
    unforeseen = [record.getMessage() for record in caplog.records if "unexpected error" in record.getMessage()]
    assert unforeseen == [], (lies, caplog.text[-3000:])
    for party, cost in charged({name: tmp_path / "federation" / name for name in ("clinic", "insurer")}).items():
        assert cost <= float(calm[party]) + 1e-9
    in_the_table("answers of a miner that lies", times=len(lies), lost=[], detail=f"{', '.join(lies)}: {ended}")
