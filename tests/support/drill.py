"""The drill: the demonstration twice, with the same keys and secrets, once undisturbed and once not.

In the disturbed run every party reaches the miner (between peers: is reached) over a slow line of ours. While columns are
under way one party's line is cut; then the miner and another party are killed outright and started again; then the line is
restored. With its line cut a party cannot finish, so that what follows meets a study in the middle of its upload, on any
machine and with any number of rows. The two releases are compared, and what the two runs cost each party by its ledger;
every party's audit log is verified.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.line import Line
from support.sameness import charged, differences, essence
from verticil.shared.core.errors import GateFailed, InternalFault, VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.study.canonical import digest as study_digest
from verticil.shared.study.protocols import PROTOCOLS, protocol_of
from verticil.shared.study.reading import read_study
from verticil.simulation.analyst import CarriedOut, carry_out, connect_to_miner
from verticil.simulation.children import Children
from verticil.simulation.peers import standing
from verticil.simulation.processes import (
    DemoResult,
    Step,
    demo_result,
    provision_nodes,
    run_central,
    run_peers,
    workplace,
)
from verticil.simulation.provision import Provisioned, copy_federation, seed_noise, set_endpoint
from verticil.wire.v1 import common_pb2, control_pb2

SLOW_SECONDS: Final = 0.05
SLOWER_SECONDS: Final = 0.3
"""How long each piece takes on the lines, before and while columns are sent: every call then takes longer than it takes to
notice that it is time to disturb."""
LOOK_SECONDS: Final = 0.1
DARK_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 90.0
_SENDING: Final = ("exchanging columns", "waiting for column", "learning", "collecting", "waiting for the parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was done to the federation.

    Attributes:
        after_seconds: since the study was submitted.
        what: a word for programs: ``cut``, ``kill``, ``restart`` or ``restore``.
        node: to whom.
        text: the same for people, with how far the study was.
    """

    after_seconds: float
    what: str
    node: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """What the drill showed.

    Attributes:
        demo: the disturbed run.
        events: what was done, in order.
        digests: the release's files and received columns -> SHA-256; the same in both runs.
        epsilon_charged: of each party's ledger; the same in both runs.
    """

    demo: DemoResult
    events: tuple[Event, ...]
    digests: Mapping[str, str]
    epsilon_charged: Mapping[str, float]


def keep_port(miner: Path, port: int) -> None:
    """Let a miner that is started again listen where it listened before."""
    config = miner / "miner.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('listen = "127.0.0.1:0"', f'listen = "127.0.0.1:{port}"'), encoding="utf-8")


class _Drill:
    """The disturbed run."""

    def __init__(self, made: Provisioned, children: Children, *, seed_derived: bool, step: Step) -> None:
        self.made, self.children = made, children
        self.events: list[Event] = []
        self._step = step
        self._extra = ["--seed-derived"] if seed_derived else []
        self._federation = load_federation(made.analyst / "federation.toml").name
        self._begun = time.monotonic()
        self._lines: dict[str, Line] = {}
        first, second, *_ = made.parties
        self._cut_off, self._killed = second, first

    def _tell(self, what: str, node: str, text: str) -> None:
        self.events.append(Event(after_seconds=time.monotonic() - self._begun, what=what, node=node, text=text))
        self._step(f"CHAOS  {text}")

    def _slow(self, seconds: float) -> None:
        for line in self._lines.values():
            line.onward.delay_seconds = seconds

    async def _kill(self, node: str, where: str) -> None:
        self.children.measure()
        await self.children.kill(node)
        self._tell("kill", node, f"{node} killed (SIGKILL) {where}")

    async def _restart_party(self, party: str) -> None:
        await self.children.start_party(party, self.made.parties[party])
        self._tell("restart", party, f"{party} started again")

    async def _together(self, run: Awaitable[CarriedOut], disturb: Awaitable[None]) -> CarriedOut:
        """Run and disturb; the first failure of the two ends both, and is raised as it is."""
        running, disturbing = asyncio.ensure_future(run), asyncio.ensure_future(disturb)
        try:
            done, _ = await asyncio.wait((running, disturbing), return_when=asyncio.FIRST_COMPLETED)
            for task in (disturbing, running):
                if task in done:
                    task.result()
            if not disturbing.done():
                raise InternalFault("INTERNAL", "the study was published before anything could be disturbed")
            return await running
        finally:
            for task in (running, disturbing):
                task.cancel()
            await asyncio.gather(running, disturbing, return_exceptions=True)

    async def central(self, release: Path) -> CarriedOut:
        """With a miner: each party's line leads to it; the analyst has a line of its own, which is left in peace."""
        made = self.made
        port = await self.children.start_miner(made.miner, *self._extra)
        keep_port(made.miner, port)
        async with AsyncExitStack() as stack:
            for party in made.parties:
                self._lines[party] = await stack.enter_async_context(Line(port))
            for node in (*made.parties.values(), made.analyst):
                here = port if node == made.analyst else self._lines[node.name].port
                set_endpoint(
                    node,
                    self._federation,
                    f"127.0.0.1:{here}",
                    ca_sha256=made.ca_sha256,
                    peers=made.peers,
                    sealing=made.sealing,
                    miner_sealing=made.miner_sealing,
                )
            self._slow(SLOW_SECONDS)
            for party, node in made.parties.items():
                await self.children.start_party(party, node)
            self._step(f"miner and {len(made.parties)} parties started, slow lines between them")
            self._begun = time.monotonic()
            follow = carry_out(
                made.analyst,
                release,
                step=self._step,
                check=self.children.check,
                patience_seconds=PATIENCE_SECONDS,
            )
            return await self._together(follow, self._disturb_central())

    async def _disturb_central(self) -> None:
        digest = study_digest(read_study(self.made.analyst / "study.toml"))
        request = control_pb2.GetStudyRequest(study_digest=digest)
        async with AsyncExitStack() as stack:
            control = connect_to_miner(self.made.analyst)
            stack.push_async_callback(control.close)

            async def until(done: Callable[[control_pb2.StudySummary], bool]) -> control_pb2.StudySummary:
                while True:
                    with suppress(
                        VerticilError
                    ):  # not submitted yet, or no miner; who follows the study gives up, not we
                        if done(study := (await control.get_study(request)).study):
                            return study
                    await asyncio.sleep(LOOK_SECONDS)

            if protocol_of(
                read_study(self.made.analyst / "study.toml")
            ).opens_tables:  # else nothing is at the miner yet
                study = await until(lambda study: study.state >= common_pb2.STUDY_STATE_UPLOADING)
                self._slow(SLOWER_SECONDS)
            else:
                await until(lambda study: all(party.pseudonyms_complete for party in study.parties))
                self._slow(SLOWER_SECONDS)
                study = await until(lambda study: _stored(study)[0] >= 1)
            await self._lines[self._cut_off].cut()
            self._tell("cut", self._cut_off, f"{self._cut_off}: line cut, {_progress(study)}")
            await self._kill("miner", _progress(study))
            await self.children.start_miner(self.made.miner, *self._extra)
            self._tell("restart", "miner", "miner started again")
            study = await until(lambda _: True)
            await self._kill(self._killed, _progress(study))
            await self._restart_party(self._killed)
            await asyncio.sleep(DARK_SECONDS)
            study = await until(lambda _: True)
            self._slow(0.0)
            self._lines[self._cut_off].restore()
            self._tell("restore", self._cut_off, f"{self._cut_off}: line restored, {_progress(study)}")

    async def peers(self, place: Path) -> CarriedOut:
        """Between peers: a line leads to each party."""
        made = self.made
        addresses = load_federation(made.analyst / "federation.toml").peers
        async with AsyncExitStack() as stack:
            for party, address in addresses.items():
                line = self._lines[party] = Line(int(address.rpartition(":")[2]))
                await stack.enter_async_context(line)
                config = made.parties[party] / "party.toml"
                advertised = config.read_text(encoding="utf-8").replace(
                    f'advertise = "{address}"', f'advertise = "127.0.0.1:{line.port}"'
                )
                config.write_text(advertised, encoding="utf-8")
            lines = {party: f"127.0.0.1:{line.port}" for party, line in self._lines.items()}
            for node in (*made.parties.values(), made.analyst):
                set_endpoint(node, self._federation, None, ca_sha256=made.ca_sha256, peers=lines)
            self._slow(SLOW_SECONDS)
            self._begun = time.monotonic()
            follow = run_peers(made, place, step=self._step, children=self.children)
            return await self._together(follow, self._disturb_peers())

    async def _disturb_peers(self) -> None:
        digest = study_digest(read_study(self.made.analyst / "study.toml")).hex()

        def stages() -> set[str]:
            try:
                return set(standing(self.made.parties, digest).stages.values())
            except (
                VerticilError,
                StopIteration,
            ):  # not loaded everywhere yet; who follows the study sees what is wrong
                return set()

        async def until(*words: str) -> str:
            while True:
                found = sorted(await asyncio.to_thread(stages))
                if any(stage.startswith(words) for stage in found):
                    return "while parties are: " + "; ".join(found)
                await asyncio.sleep(LOOK_SECONDS)

        await until("linking", "waiting for the list of pseudonyms", "waiting for the common list")
        self._slow(SLOWER_SECONDS)
        where = await until(*_SENDING)
        await self._lines[self._cut_off].cut()
        self._tell("cut", self._cut_off, f"{self._cut_off}: line cut, {where}")
        await self._kill(self._killed, where)
        await self._restart_party(self._killed)
        await asyncio.sleep(DARK_SECONDS)
        self._slow(0.0)
        self._lines[self._cut_off].restore()
        self._tell("restore", self._cut_off, f"{self._cut_off}: line restored")


def _stored(study: control_pb2.StudySummary) -> tuple[int, int]:
    return sum(party.units_received for party in study.parties), sum(party.units_expected for party in study.parties)


def _progress(study: control_pb2.StudySummary) -> str:
    stored, expected = _stored(study)
    return study.stage_detail or f"with {stored} of {expected} columns at the miner"


async def run_drill(
    out: Path,
    *,
    model: str = "central",
    rows: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    step: Step,
) -> DrillResult:
    """Run the demonstration undisturbed and disturbed. SIGINT and SIGTERM cancel it: everything is stopped and removed.

    Args:
        out, model, rows, seed, keep, step: as for `processes.run_demo`; what is left in `out` is the disturbed run's.

    Raises:
        GateFailed: RELEASE_INVALID, the releases or the ledgers differ; AUDIT_BROKEN.
        VerticilError: a node or the study failed, with its code.
    """
    started = time.monotonic()
    kept = out / "federation" if keep else None
    masks = PROTOCOLS.named(model).opens_tables
    seed_derived = seed is not None or masks
    async with workplace(kept) as children:
        children.environment = {"NUMBA_CACHE_DIR": str(children.folder / "compiled")}  # compiled once for both runs
        disturbed = await provision_nodes(children.folder, model=model, rows=rows, seed=seed, step=step)
        if masks and seed is None:  # both runs draw the same noise
            for node in (disturbed.miner, *disturbed.parties.values()):
                seed_noise(node, secrets.token_bytes(32))
        calm = await asyncio.to_thread(copy_federation, disturbed, children.folder / "undisturbed")
        place = children.folder / "releases"
        place.mkdir()
        step("the undisturbed run")
        coordinated = PROTOCOLS.named(model).coordinated
        if coordinated:
            before = await run_central(
                calm, place / "release", seed_derived=seed_derived, step=_silent, children=children
            )
        else:
            before = await run_peers(calm, place, step=_silent, children=children)
        await children.stop()
        expected = essence(next(iter(before.releases.values())))
        step(f"published: {len(expected)} digests to compare with; now the same with disturbances")
        drill = _Drill(disturbed, children, seed_derived=seed_derived, step=step)
        after = await (drill.central(out / "release") if coordinated else drill.peers(out / "parties"))
        await children.stop()
        _compare(expected, essence(next(iter(after.releases.values()))), what="release")
        costs = [await asyncio.to_thread(charged, made.parties) for made in (calm, disturbed)]
        _compare(*({party: f"{cost:.9g}" for party, cost in found.items()} for found in costs), what="ledger")
        shutil.copyfile(disturbed.ca_certificate, out / "ca.crt")
    return DrillResult(
        demo=demo_result(after, destination=kept, start_time=started, children=children),
        events=tuple(drill.events),
        digests=expected,
        epsilon_charged=costs[0],
    )


def _silent(_line: str) -> None:
    """For the undisturbed run, whose steps are not shown."""


def _compare(undisturbed: Mapping[str, str], disturbed: Mapping[str, str], *, what: str) -> None:
    if different := differences(undisturbed, disturbed):
        raise GateFailed(
            "RELEASE_INVALID",
            f"{what}: the disturbed run differs from the undisturbed one in {', '.join(different)}",
            hint="it is a fault of verticil: report it with the folders that --keep keeps",
        )
