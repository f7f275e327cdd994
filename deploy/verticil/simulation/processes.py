"""The demonstration: three parties and a miner, or three peers, dialled or relayed: processes, mutual TLS, up to the release.

Nothing stays behind but the release (and, when asked, the federation's folder): children are stopped on success, on failure
and on Ctrl-C; should this process be killed, they notice that their standard input has ended and stop by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.shared.config import RELAY, load_federation
from verticil.shared.release.verification import VerifiedRelease
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.reading import read_study
from verticil.simulation import adult
from verticil.simulation.analyst import CarriedOut, carry_out
from verticil.simulation.children import Children
from verticil.simulation.peers import free_addresses, load_everywhere, standing, take_home
from verticil.simulation.provision import Provisioned, provision_demo, set_endpoint

LOOK_SECONDS: Final = 0.3

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demonstration reached.

    Attributes:
        releases: the verified release's folder; between peers every party's own, which are equal.
        federation: the nodes' folders, when they were kept.
        study: the effective study is in the release; this is the proposal.
        verified: what verification found.
        n_common: people at all three parties.
        wall_seconds: from the first step to the last.
        peak_memory_mib: of each process, where the system tells.
    """

    releases: Mapping[str, Path]
    federation: Path | None
    study: Study
    verified: VerifiedRelease
    n_common: int
    wall_seconds: float
    peak_memory_mib: Mapping[str, float]


async def run_central(
    made: Provisioned, release: Path, *, seed_derived: bool, step: Step, children: Children
) -> CarriedOut:
    """A miner and its parties, and the analyst here.

    Args:
        made: the federation.
        release: folder for the release.
        seed_derived: the release says that the sites' secrets come from a seed.
        step: told of every step.
        children: where the nodes are started.

    Raises:
        VerticilError: a node or the study failed, with its code.
    """
    port = await _start_miner(made, children, *(["--seed-derived"] if seed_derived else []))
    step(f"miner listens on 127.0.0.1:{port}, mutual TLS")
    for party, node in made.parties.items():
        await children.start_party(party, node)
    step(f"{len(made.parties)} parties started, each in a process of its own")

    def check() -> None:
        children.check()
        children.measure()

    return await carry_out(made.analyst, release, step=step, check=check)


async def _start_miner(made: Provisioned, children: Children, *extra: str) -> int:
    """Start the miner and tell every node its port, which is returned."""
    port = await children.start_miner(made.miner, *extra)
    federation = load_federation(made.analyst / "federation.toml").name
    for node in (*made.parties.values(), made.analyst):
        set_endpoint(
            node,
            federation,
            f"127.0.0.1:{port}",
            ca_sha256=made.ca_sha256,
            peers=made.peers,
            sealing=made.sealing,
        )
    return port


async def run_peers(made: Provisioned, place: Path, *, step: Step, children: Children) -> CarriedOut:
    """The parties alone, or behind a relay: each operator loads the study, and each party ends with the same release.

    Args:
        made: the federation.
        place: folder for one release a party.
        step: told of every step.
        children: where the parties are started.

    Raises:
        VerticilError: a node or the study failed, with its code.
    """
    relayed = RELAY in made.peers.values()
    if relayed:
        port = await _start_miner(made, children)
        step(f"a miner as a blind relay listens on 127.0.0.1:{port}; it has no study, no column and none of the keys")
    digest = await asyncio.to_thread(load_everywhere, made.parties, made.analyst / "study.toml")
    step(f"the same study loaded at {len(made.parties)} parties, digest {digest[:12]}")
    for party, node in made.parties.items():
        await children.start_party(party, node)
    where = "none of them listens anywhere" if relayed else "there is no miner"
    step(f"{len(made.parties)} parties started, each in a process of its own; {where}")
    told: Mapping[str, str] = {}
    while True:
        children.check()
        children.measure()
        found = await asyncio.to_thread(standing, made.parties, digest)
        for party, stage in found.stages.items():
            if told.get(party) != stage:
                step(f"{party}: {stage}")
        told = found.stages
        if found.published:
            break
        await asyncio.sleep(LOOK_SECONDS)
    authority = made.ca_certificate.read_bytes()
    folders, verified = await asyncio.to_thread(take_home, made.parties, digest, place, ca_certificate=authority)
    step(f"{len(folders)} releases taken, verified, and equal")
    return CarriedOut(
        study=read_study(made.analyst / "study.toml"), n_common=verified.n_common, verified=verified, releases=folders
    )


def _addresses(*, relay: bool) -> dict[str, str]:
    return dict.fromkeys(adult.PARTIES, RELAY) if relay else free_addresses(adult.PARTIES)


@contextlib.asynccontextmanager
async def workplace(kept: Path | None) -> AsyncGenerator[Children]:
    """A temporary folder with ``federation`` in it, and the children that run there; all is gone at the end.

    Args:
        kept: where the federation's folder goes at the end, with the logs in it; None: nowhere.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    folder = Path(tempfile.mkdtemp(prefix="verticil-demo-"))
    root = folder / "federation"
    children = Children(folder=folder)
    try:
        yield children
    finally:
        await children.stop()
        for log in folder.glob("*.log"):
            root.mkdir(exist_ok=True)
            os.replace(log, root / log.name)
        if kept is not None:
            await asyncio.to_thread(shutil.move, root, kept)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def provisioned(
    folder: Path, *, model: str, rows: int | None, seed: int | None, step: Step, relay: bool = False
) -> Provisioned:
    """Lay out the demonstration's federation in ``folder/federation``."""
    coordinated = PROTOCOLS.named(model).coordinated
    made = await asyncio.to_thread(
        provision_demo,
        folder / "federation",
        endpoint="127.0.0.1:1" if coordinated or relay else None,
        listen="127.0.0.1:0",
        hosts=("127.0.0.1", "localhost"),
        seed=seed,
        rows=rows,
        model=model,
        peers=None if coordinated else _addresses(relay=relay),
    )
    step("certificates (ephemeral, marked), keys and three sites' tables laid out")
    return made


async def _demo(
    out: Path, *, model: str, relay: bool, rows: int | None, seed: int | None, keep: bool, step: Step
) -> DemoResult:
    started = time.monotonic()
    kept = out / "federation" if keep else None
    async with workplace(kept) as children:
        made = await provisioned(children.folder, model=model, rows=rows, seed=seed, step=step, relay=relay)
        if PROTOCOLS.named(model).coordinated:
            done = await run_central(made, out / "release", seed_derived=seed is not None, step=step, children=children)
        else:
            done = await run_peers(made, out / "parties", step=step, children=children)
        shutil.copyfile(made.ca_certificate, out / "ca.crt")
    return demo_result(done, kept=kept, started=started, children=children)


def demo_result(done: CarriedOut, *, kept: Path | None, started: float, children: Children) -> DemoResult:
    """What was reached, when all has ended."""
    return DemoResult(
        releases=done.releases,
        federation=kept,
        study=done.study,
        verified=done.verified,
        n_common=done.n_common,
        wall_seconds=time.monotonic() - started,
        peak_memory_mib=dict(children.peak_memory_mib),
    )


def run_demo(
    out: Path,
    *,
    model: str = "central",
    relay: bool = False,
    rows: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    step: Step,
) -> DemoResult:
    """Run the demonstration.

    Args:
        out: an existing, empty folder; gets ``release`` (or, between peers, ``parties/NAME/release``), the authority's ``ca.crt``
            and, with `keep`, ``federation``.
        model: with a miner in the middle, or between peers.
        relay: between peers, none of whom can be dialled: what they tell each other passes through a miner, sealed.
        rows: how many common people; None: all.
        seed: derive the sites' secrets from it (the manifest says so); None: random.
        keep: keep the nodes' folders: configurations, keys, state, logs.
        step: told of every step.

    Raises:
        VerticilError: a node or the study failed, with its code.
        KeyboardInterrupt: SIGINT or SIGTERM; everything has been stopped and removed.
    """
    try:
        return asyncio.run(_demo(out, model=model, relay=relay, rows=rows, seed=seed, keep=keep, step=step))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
