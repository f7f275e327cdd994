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
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from verticil.shared.documents.config import RELAY, load_federation
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.reading import read_study
from verticil.simulation.analyst import CarriedOut, carry_out
from verticil.simulation.children import LOOK_SECONDS, Children
from verticil.simulation.federations import adult
from verticil.simulation.peers import free_addresses, load_everywhere, take_home, until_published
from verticil.simulation.provision import Provisioned, provision_demo, set_endpoint

Step = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demonstration reached.

    Attributes:
        published: the study and its release; between peers every party has a release of its own, and they are equal.
        federation: the nodes' folders, when they were kept.
        wall_seconds: from the first step to the last.
        peak_memory_mib: of each process, where the system tells.
    """

    published: CarriedOut
    federation: Path | None
    wall_seconds: float
    peak_memory_mib: Mapping[str, float]


async def run_central(
    nodes: Provisioned, release: Path, *, seed_derived: bool, step: Step, children: Children
) -> CarriedOut:
    """Run a miner and its parties, and the analyst here.

    Args:
        nodes: the federation.
        release: folder for the release.
        seed_derived: the release says that the sites' secrets come from a seed.
        step: called with every step, in words.
        children: where the nodes are started.

    Raises:
        VerticilError: a node or the study failed, with its code.
    """
    port = await _start_miner(nodes, children, *(["--seed-derived"] if seed_derived else []))
    step(f"miner listens on 127.0.0.1:{port}, mutual TLS")
    for party, node in nodes.parties.items():
        await children.start_party(party, node)
    step(f"{len(nodes.parties)} parties started, each in a process of its own")
    return await carry_out(nodes.analyst, release, step=step, check=children.check)


async def _start_miner(nodes: Provisioned, children: Children, *extra: str) -> int:
    """Start the miner and tell every node its port, which is returned."""
    port = await children.start_miner(nodes.miner, *extra)
    federation = load_federation(nodes.analyst / "federation.toml").name
    for node in (*nodes.parties.values(), nodes.analyst):
        set_endpoint(
            node,
            federation,
            f"127.0.0.1:{port}",
            ca_sha256=nodes.ca_sha256,
            peers=nodes.peers,
            sealing=nodes.sealing,
            miner_sealing=nodes.miner_sealing,
        )
    return port


async def run_peers(nodes: Provisioned, place: Path, *, step: Step, children: Children) -> CarriedOut:
    """Run the parties alone, or behind a relay: each operator loads the study, and each party ends with the same release.

    Args:
        nodes: the federation.
        place: folder for one release a party.
        step: called with every step, in words.
        children: where the parties are started.

    Raises:
        VerticilError: a node or the study failed, with its code.
    """
    has_relay = RELAY in nodes.peers.values()
    if has_relay:
        port = await _start_miner(nodes, children)
        step(f"a miner as a blind relay listens on 127.0.0.1:{port}; it has no study, no column and none of the keys")
    digest = await asyncio.to_thread(load_everywhere, nodes.parties, nodes.analyst / "study.toml")
    step(f"the same study loaded at {len(nodes.parties)} parties, digest {digest[:12]}")
    for party, node in nodes.parties.items():
        await children.start_party(party, node)
    where = "none of them listens anywhere" if has_relay else "there is no miner"
    step(f"{len(nodes.parties)} parties started, each in a process of its own; {where}")
    await until_published(nodes.parties, digest, step=step, check=children.check, look_seconds=LOOK_SECONDS)
    authority = nodes.ca_certificate.read_bytes()
    folders, verification = await asyncio.to_thread(take_home, nodes.parties, digest, place, ca_certificate=authority)
    step(f"{len(folders)} releases taken, verified, and equal")
    return CarriedOut(study=read_study(nodes.analyst / "study.toml"), verified=verification, releases=folders)


def _addresses(*, relay: bool) -> dict[str, str]:
    return dict.fromkeys(adult.PARTIES, RELAY) if relay else free_addresses(adult.PARTIES)


@contextlib.asynccontextmanager
async def workplace(destination: Path | None) -> AsyncGenerator[Children]:
    """Yield children that run in a temporary folder with ``federation`` in it; all is gone at the end.

    Args:
        destination: where the federation's folder goes at the end, with the logs in it; None: nowhere.
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
        if destination is not None:
            await asyncio.to_thread(shutil.move, root, destination)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def provision_nodes(
    folder: Path, *, model: str, rows: int | None, seed: int | None, step: Step, relay: bool = False
) -> Provisioned:
    """Lay out the demonstration's federation in ``folder/federation``."""
    protocol = PROTOCOLS.named(model)
    nodes = await asyncio.to_thread(
        provision_demo,
        folder / "federation",
        endpoint="127.0.0.1:1" if protocol.coordinated or relay else None,
        listen="127.0.0.1:0",
        hosts=("127.0.0.1", "localhost"),
        seed=seed,
        rows=rows,
        model=model,
        peers=_addresses(relay=relay) if protocol.opens_tables or not protocol.coordinated else None,
    )
    step("certificates (ephemeral, marked), keys and three sites' tables laid out")
    return nodes


async def run_demo(
    out: Path,
    *,
    model: str = "central",
    relay: bool = False,
    rows: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    step: Step,
) -> DemoResult:
    """Run the demonstration. SIGINT and SIGTERM cancel it: everything is stopped and removed.

    Args:
        out: an existing, empty folder; gets ``release`` (or, between peers, ``parties/NAME/release``), the authority's ``ca.crt``
            and, with `keep`, ``federation``.
        model: with a miner in the middle, between peers, or with masked tables, between peers and a miner.
        relay: no party can be dialled: what they tell each other passes through a miner, sealed.
        rows: how many common people; None: all.
        seed: derive the sites' secrets from it (the manifest says so); None: random.
        keep: keep the nodes' folders: configurations, keys, state, logs.
        step: called with every step, in words.

    Raises:
        VerticilError: a node or the study failed, with its code.
    """
    start_time = time.monotonic()
    destination = out / "federation" if keep else None
    async with workplace(destination) as children:
        nodes = await provision_nodes(children.folder, model=model, rows=rows, seed=seed, step=step, relay=relay)
        if PROTOCOLS.named(model).coordinated:
            outcome = await run_central(
                nodes, out / "release", seed_derived=seed is not None, step=step, children=children
            )
        else:
            outcome = await run_peers(nodes, out / "parties", step=step, children=children)
        shutil.copyfile(nodes.ca_certificate, out / "ca.crt")
    return demo_result(outcome, destination=destination, start_time=start_time, children=children)


def demo_result(outcome: CarriedOut, *, destination: Path | None, start_time: float, children: Children) -> DemoResult:
    """Return what was reached, when all has ended."""
    return DemoResult(
        published=outcome,
        federation=destination,
        wall_seconds=time.monotonic() - start_time,
        peak_memory_mib=dict(children.peak_memory_mib),
    )


def run_to_end(work: Coroutine[object, object, Result]) -> Result:
    """Run `run_demo` or the like in an event loop of its own.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM has cancelled it.
    """
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
