"""What pages cost, each beside its bound; an hour of open streams: ``python tests/bench/bench_pages.py --minutes 60``.

The server's work for a study of 300 columns and for a table of 500 studies, what serving adds to a process that has asyncio and
Jinja2 already, and how much a command that serves 50 open streams grows while the state changes once a second. States, tables and
processes are real; the requests go over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from figure import Figure, cpu_seconds

from support import miner_service as service
from support.documents import party_toml
from support.pages import Visitor, followed, served
from support.releases import release_study_of_two
from support.site_folder import make_site, offer, opened
from verticil.miner.airgap.exchange import Exchange
from verticil.miner.page.pages import miner_server
from verticil.miner.page.source import NodeSource
from verticil.miner.storage.audit import MinerAudit
from verticil.party.operator.page.pages import site_server
from verticil.shared.study.reading import read_study_text

COLUMNS, STUDIES, STREAMS = 300, 500, 50
WIDE = party_toml(per_study=1000.0, lifetime=2000.0, per_column=3.0)
MEMORY = """
import asyncio, jinja2, sys
from pathlib import Path
import verticil.party.daemon
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
before = resident()
from verticil.party.operator.page.pages import site_server
async def main():
    with site_server(Path("party.toml"), ("127.0.0.1", 0)) as server:
        serving = asyncio.create_task(server.serve(asyncio.Event()))
        await asyncio.sleep(0.5)
        print(resident() - before)
        serving.cancel()
        await asyncio.wait([serving])
asyncio.run(main())
"""


def wide_study(n_columns: int) -> str:
    """A study of so many columns of the clinic, each of five categories, and one of the registry."""
    head = 'schema = 1\nid = "wide"\ntitle = "Wide"\npurpose = "cost"\nexpires = 2099-12-31\n'
    parties = "".join(f'[[party]]\nname = "{name}"\n' for name in ("clinic", "registry"))
    variable = '[[variable]]\nparty = "{}"\nname = "{}"\ncategories = ["a", "b", "c", "d", "e"]\n'
    own = "".join(variable.format("clinic", f"c{i}") for i in range(n_columns))
    rest = '[linkage]\nminimum_common_records = 100\n[randomization_default]\nscheme = "symmetric"\nepsilon = 2.0\n'
    return head + parties + rest + own + variable.format("registry", "r")


def server_cpu(visitor: Visitor, path: str) -> float:
    """CPU seconds of one page; the visitor, in the same process, only takes the bytes."""
    visitor.page(path)
    return cpu_seconds(lambda: visitor.ask(visitor.root + path), repeats=5)


def wide_page(folder: Path) -> float:
    """CPU seconds of a site's page of a study of many columns."""
    make_site(folder, WIDE)
    (folder / "people.csv").write_text("id," + ",".join(f"c{i}" for i in range(COLUMNS)) + "\n")
    with opened(folder) as state:
        wide = offer(state, read_study_text(wide_study(COLUMNS), folder)).hex()
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        return server_cpu(Visitor(server), f"study/{wide}/")


def site_table(folder: Path) -> float:
    """CPU seconds of a site's table of many studies."""
    make_site(folder, party_toml("max_open_studies = 1000\n"))
    study = release_study_of_two()
    with opened(folder) as state:
        for number in range(STUDIES):
            offer(state, dataclasses.replace(study, id=f"study-{number}"))
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        return server_cpu(Visitor(server), "")


async def miner_table(folder: Path) -> float:
    """CPU seconds of the miner's table of many studies."""
    folder.mkdir()
    federation = service.Federation(folder, service.make_keys(folder / "pki"))
    federation.limits = dataclasses.replace(
        federation.limits, max_open_studies_per_analyst=2 * STUDIES, max_daily_studies_per_analyst=2 * STUDIES
    )
    federation.node.close()
    federation.node = federation.make()
    async with federation.node as node:
        for number in range(STUDIES):
            await federation.submit(service.make_study(study_id=f"study-{number}"))
        audit, config = MinerAudit(folder), SimpleNamespace(state_directory=folder)
        source = NodeSource("miner", node, audit, Exchange(config, node, audit=audit))
        with miner_server(source, ("127.0.0.1", 0)) as server:
            stop = asyncio.Event()
            serving = asyncio.create_task(server.serve(stop))
            cpu = await asyncio.to_thread(server_cpu, Visitor(server), "")
            stop.set()
            await serving
            return cpu


def idle_memory() -> float:
    """MiB that an idle page adds to a party's daemon."""
    return float(subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True).stdout)


def stream_growth(folder: Path, seconds: float) -> tuple[float, int]:
    """MiB that ``verticil party ui`` grows with so many open streams after its first seconds, and the changes that each saw."""
    make_site(folder)
    with opened(folder) as state:
        digest = offer(state, release_study_of_two())
        return followed(folder / "party.toml", state, digest, n_streams=STREAMS, seconds=seconds)


def figures(minutes: float = 1) -> Iterator[Figure]:
    """Work, memory and growth of pages."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for what, cpu, most in (
            (f"a site's page of a study with {COLUMNS} columns", wide_page(root / "wide"), 0.3),
            (f"a site's table of {STUDIES} studies", site_table(root / "site"), 0.2),
            (f"the miner's table of {STUDIES} studies", asyncio.run(miner_table(root / "miner")), 0.2),
        ):
            yield Figure(name=what, ours=cpu, target=f"<= {most:g}", met=cpu <= most)
        added = idle_memory()
        yield Figure(name="an idle page, memory", ours=added, target="<= 15", unit="MiB", met=added <= 15)
        grown, changes = stream_growth(root / "streams", 60 * minutes)
        yield Figure(
            name=f"{STREAMS} open streams for {minutes:g} minutes, growth",
            ours=grown,
            target="<= 5",
            unit="MiB",
            met=grown <= 5,
            note=f"{changes} changes reached each stream; {grown / minutes:.2f} MiB a minute",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1, help="of the open streams")
    for figure in figures(parser.parse_args().minutes):
        print(
            f"{figure.name}: {figure.ours:.3f} {figure.unit} ({figure.target}) {figure.status} {figure.note}",
            flush=True,
        )
