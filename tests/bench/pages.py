"""What pages cost: ``python tests/bench/pages.py``, CPU seconds of the server and MiB, each beside its limit.

A study of 300 columns at a site, a table of 500 studies at a site and at the miner, what serving adds to a process that has
asyncio and Jinja2 already, and 50 open streams that follow a state that changes (``--seconds``; an hour is 3600). The state, the
tables and the processes are real; the requests go over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import miner_service as service
from support.documents import party_toml
from support.pages import Visitor, served
from support.releases import release_study_of_two
from support.site_folder import make_site, offer, opened
from verticil.miner.airgap.exchange import Exchange
from verticil.miner.page.pages import miner_server
from verticil.miner.page.source import NodeSource
from verticil.miner.storage.audit import MinerAudit
from verticil.party.operator.page.pages import site_server
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.study.reading import read_study_text

WIDE = party_toml(per_study=1000.0, lifetime=2000.0, per_column=3.0)


def wide_study(n_columns: int) -> str:
    """A study of so many columns of the clinic, each of five categories, and one of the registry."""
    head = 'schema = 1\nid = "wide"\ntitle = "Wide"\npurpose = "cost"\nexpires = 2099-12-31\n'
    parties = "".join(f'[[party]]\nname = "{name}"\n' for name in ("clinic", "registry"))
    variable = '[[variable]]\nparty = "{}"\nname = "{}"\ncategories = ["a", "b", "c", "d", "e"]\n'
    own = "".join(variable.format("clinic", f"c{i}") for i in range(n_columns))
    rest = '[linkage]\nminimum_common_records = 100\n[randomization_default]\nscheme = "symmetric"\nepsilon = 2.0\n'
    return head + parties + rest + own + variable.format("registry", "r")


def cpu_of(visitor: Visitor, path: str, times: int = 5) -> float:
    """CPU seconds of this process, server and visitor, for one page; the least of several."""
    visitor.page(path)
    best = float("inf")
    for _ in range(times):
        before = time.process_time()
        visitor.page(path)
        best = min(best, time.process_time() - before)
    return best


def resident() -> float:
    """MiB of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def site(folder: Path) -> None:
    make_site(folder, WIDE)
    (folder / "people.csv").write_text("id," + ",".join(f"c{i}" for i in range(300)) + "\n")
    with opened(folder) as state:
        wide = offer(state, read_study_text(wide_study(300), folder)).hex()
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        print(f"a study of 300 columns: {cpu_of(Visitor(server), f'study/{wide}/'):.3f} CPU s (0.3)")


def many(folder: Path) -> None:
    make_site(folder, party_toml("max_open_studies = 1000\n"))
    study = release_study_of_two()
    with opened(folder) as state:
        for number in range(500):
            offer(state, dataclasses.replace(study, id=f"study-{number}"))
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        print(f"500 studies at a site: {cpu_of(Visitor(server), ''):.3f} CPU s (0.2)")


async def miner(folder: Path) -> None:
    federation = service.Federation(folder, service.make_keys(folder / "pki"))
    federation.limits = dataclasses.replace(
        federation.limits, max_open_studies_per_analyst=1000, max_daily_studies_per_analyst=1000
    )
    federation.node.close()
    federation.node = federation.make()
    async with federation.node as node:
        for number in range(500):
            await federation.submit(service.make_study(study_id=f"study-{number}"))
        audit = MinerAudit(folder)
        config = type("Config", (), {"state_directory": folder})()
        source = NodeSource("miner", node, audit, Exchange(config, node, audit=audit))
        with miner_server(source, ("127.0.0.1", 0)) as server:
            serving = asyncio.create_task(server.serve(asyncio.Event()))
            cpu = await asyncio.to_thread(cpu_of, Visitor(server), "")
            print(f"500 studies at the miner: {cpu:.3f} CPU s (0.2)")
            serving.cancel()
            await asyncio.wait([serving])


def streams(folder: Path, seconds: int) -> None:
    make_site(folder)
    study = release_study_of_two()
    with opened(folder) as state, served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        digest = offer(state, study)
        visitor = Visitor(server)
        host, port = server.place.split(":")
        lines = []
        for _ in range(50):
            line = socket.create_connection((host, int(port)))
            line.sendall(f"GET {visitor.root}events HTTP/1.1\r\nHost: {server.place}\r\n\r\n".encode())
            line.setblocking(False)
            lines.append(line)
        begun, told, first = time.monotonic(), 0, 0.0
        while time.monotonic() - begun < seconds:
            state.state.show(digest, "uploading", told % 100, at=utc_now())
            told += 1
            time.sleep(1)
            for line in lines:
                with contextlib.suppress(BlockingIOError):
                    line.recv(1 << 16)
            if not first and time.monotonic() - begun > min(10, seconds / 3):
                first = resident()
        print(f"50 streams for {seconds} s, {told} changes: {resident() - first:+.1f} MiB after the first seconds (5)")
        for line in lines:
            line.close()


def memory() -> None:
    import subprocess

    code = """
import asyncio, jinja2, sys
from pathlib import Path
import verticil.party.daemon
rss = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
before = rss()
from verticil.party.operator.page.pages import site_server
async def main():
    with site_server(Path(sys.argv[1]), ("127.0.0.1", 0)) as server:
        serving = asyncio.create_task(server.serve(asyncio.Event()))
        await asyncio.sleep(0.5)
        print(f"an idle page adds {rss() - before:.1f} MiB to a party's daemon (15)")
        serving.cancel()
        await asyncio.wait([serving])
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code, "party.toml"], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    memory()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        site(root / "site")
        many(root / "many")
        (root / "miner").mkdir()
        asyncio.run(miner(root / "miner"))
        streams(root / "streams", arguments.seconds)
