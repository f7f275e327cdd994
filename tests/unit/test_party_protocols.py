"""A protocol is one package and one line in a registry; what the registry and the engine promise of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from enum import StrEnum
from types import SimpleNamespace

import pytest

import verticil.party.protocol.shipped.registrations  # noqa: F401  (the registry's entries)
from support import PATIENCE_SECONDS
from verticil.party.protocol import engine as engines
from verticil.party.protocol.engine import Engine, Meaning, Outcome, StudyRun, meaning_of
from verticil.party.protocol.node.registry import PROTOCOLS, PartyProtocol, register
from verticil.party.protocol.planning import Plan, WaitedForError
from verticil.party.protocol.reconciliation.reconciler import Reconciler
from verticil.party.protocol.retry import TRIED_AGAIN, Backoff
from verticil.shared.core.errors import DataFault, InternalFault, Misuse, PeerFault, Refusal, VerticilError, from_code
from verticil.shared.core.health import Waiting
from verticil.shared.study.protocols import PROTOCOLS as FACTS


def test_the_party_carries_out_every_protocol_that_studies_may_name() -> None:
    between_nodes = [protocol for protocol in FACTS if not protocol.whole_table]  # an owner alone has no node
    assert PROTOCOLS.names == tuple(protocol.name for protocol in between_nodes)
    for protocol in between_nodes:
        found = PROTOCOLS.named(protocol.name)()
        assert (found.told_by_miner is not None) == protocol.coordinated
        assert (found.between_parties is not None) != protocol.coordinated


def test_a_name_is_registered_once_and_an_unknown_one_is_refused() -> None:
    with pytest.raises(ValueError, match="'central' is registered already"):
        register("central", PROTOCOLS.named("peer"))
    with pytest.raises(Misuse, match="'counting'") as refused:
        PROTOCOLS.named("counting")
    assert refused.value.code == "STUDY_UNSUPPORTED"


def test_a_protocol_begins_in_one_way() -> None:
    with pytest.raises(ValueError, match="one of the two"):
        PartyProtocol(reconciler=Reconciler(evidence={}))


@pytest.mark.parametrize(
    ("error", "failed", "meaning"),
    [
        (DataFault("STATE_CORRUPT", "x"), False, Meaning.ENDS_THE_DAEMON),
        (Misuse("CONFIG_INVALID", "x"), False, Meaning.FAILS),
        (PeerFault("NOT_READY", "x"), False, Meaning.OTHERS_TURN),
        (PeerFault("UNREACHABLE", "x"), True, Meaning.TRIED_AGAIN),
        (DataFault("DISK_FULL", "x"), False, Meaning.TRIED_AGAIN),
        (Refusal("APPROVAL_VOID", "x"), False, Meaning.FAILS),
        (Refusal("STUDY_DENIED", "x"), True, Meaning.UNTOLD),
    ],
    ids=lambda value: getattr(value, "code", str(value)),
)
def test_an_error_means_the_same_in_every_protocol(error: VerticilError, failed: bool, meaning: Meaning) -> None:
    assert meaning_of(error, waited_out=TRIED_AGAIN, has_failed=failed) is meaning


def test_no_code_that_another_node_sends_ends_the_daemon() -> None:
    for code in vars(engines)["is_waited_out"].__globals__["ENDS_THE_DAEMON"]:
        error = from_code(code, "x")
        error.teller = "the miner"
        assert meaning_of(error, waited_out=TRIED_AGAIN, has_failed=False) is Meaning.TRIED_AGAIN


class Step(StrEnum):
    """Of the toy."""

    REST = "rest"
    COUNT = "count"


class Toy(StudyRun):
    """Counts to three; what goes wrong on the way is given."""

    def __init__(self, node, digest: bytes, troubles: list[Exception]) -> None:
        super().__init__(node, digest)
        self.troubles, self.counted, self.heard = troubles, 0, 0
        self.ended = asyncio.Event()

    def plan(self):
        record = SimpleNamespace(digest=self.digest, study_id="toy")
        if self.node.failures or self.counted == 3:
            return record, Plan(step=Step.REST, stage="done")
        return record, Plan(step=Step.COUNT, stage=f"counting {self.counted}")

    async def act(self, step, record) -> None:
        del step, record
        if self.troubles:
            raise self.troubles.pop(0)
        self.counted += 1

    async def rest(self, record) -> Outcome:
        del record
        self.ended.set()
        return Outcome.ENDED

    async def listen(self, record) -> None:
        del record
        self.heard += 1


class Site:
    """What the engine asks of a site."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.state = SimpleNamespace(
            show=lambda _digest, stage, _percent=0, *, at: self.shown.append(stage),
            study=lambda digest: SimpleNamespace(digest=digest, failure=None, percent=0),
        )


def party() -> SimpleNamespace:
    failures: list[VerticilError] = []
    return SimpleNamespace(
        site=Site(),
        waiting=Waiting(),
        failures=failures,
        clock=lambda: None,
        fail=lambda _digest, error: failures.append(error),
    )


class _OverError(Exception):
    """Ends the group in which an engine works."""


@contextlib.asynccontextmanager
async def carrying_out(node: SimpleNamespace, *troubles: Exception) -> AsyncGenerator[tuple[Engine[Toy], Toy]]:
    """An engine at work on a toy that has ended."""
    toy = Toy(node, b"d" * 32, list(troubles))
    engine = Engine(node, lambda _digest: toy, backoff=lambda: Backoff(lambda: 0.0))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            engine.wake(toy.digest, group, [])
            await toy.ended.wait()
            yield engine, toy
            raise _OverError
    except* _OverError:
        pass


async def carried_out(node: SimpleNamespace, *troubles: Exception) -> Toy:
    """The toy, when it has ended."""
    async with carrying_out(node, *troubles) as (_, toy):
        return toy


async def test_a_study_that_has_ended_is_looked_at_again_when_people_have_decided_something() -> None:
    """A release that is revoked after it was published shows that at once, and not after the daemon's next start."""
    node = party()
    async with carrying_out(node) as (engine, toy):
        for _ in range(2):
            toy.ended.clear()
            await asyncio.sleep(0.01)
            assert not toy.ended.is_set()  # nothing but a wake has it looked at
            engine.wake_all()
            await toy.ended.wait()
    assert node.site.shown[-3:] == ["done"] * 3


async def test_who_is_waited_for_is_shown_and_heard_and_the_step_is_done_again() -> None:
    node = party()
    toy = await carried_out(node, WaitedForError("waiting for 'south'"), WaitedForError("waiting for 'south'"))
    assert (toy.counted, toy.heard, node.failures) == (3, 2, [])
    assert node.site.shown[:3] == ["counting 0", "waiting for 'south'", "waiting for 'south'"]


async def test_what_time_mends_is_shown_and_tried_again() -> None:
    node = party()
    toy = await carried_out(node, DataFault("DISK_FULL", "/srv: no space left"))
    assert (toy.counted, node.failures) == (3, [])
    assert "trying again: DISK_FULL: /srv: no space left" in node.site.shown


async def test_what_nothing_mends_ends_this_study_and_no_other() -> None:
    node = party()
    toy = await carried_out(node, Refusal("APPROVAL_VOID", "the table changed"))
    assert (toy.counted, [error.code for error in node.failures]) == (0, ["APPROVAL_VOID"])


async def test_an_error_that_nobody_foresaw_ends_the_study_without_its_text() -> None:
    """The text may hold a value of the table."""
    node = party()
    toy = await carried_out(node, ZeroDivisionError("salary 4711"))
    (error,) = node.failures
    assert (toy.counted, type(error)) == (0, InternalFault)
    assert "4711" not in error.message + error.hint
