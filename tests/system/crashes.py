"""A program that lets a whole federation die, again and again, at the steps by which anything becomes durable.

It runs an in-process federation (`verticil.simulation`), with the clock standing still and one state on the disk, in forked
processes. A watcher of `verticil.shared.storage.durable` ends the process at a step with ``os._exit``: no ``finally``, no
rollback, no closing of files; every node dies at once. The next process opens everything from the disk with new objects and goes
on.

In a *chain* it dies once at every *site* (a kind of step, called from one place of the code) that is reached, right before and
right after it, one death after the other within one study, until nothing new is left to die at. With ``--each N``, every N-th
single step of an undisturbed run has a study of its own that dies once, there.

With ``--spilled`` hardly anything fits into memory (`SPILLED`): people, tokens and records wait in files without a name, and the
chain's sites are what is done with those (`OUTSIDE`), where the process ends by SIGKILL. Ledgers, and which files are left, are
printed, too.

With ``--lossy`` the disk forgets at each death whatever was not flushed by then: the bytes of files, new names, renamings,
removals. (SQLite flushes its own files; they are left alone.)

Prints one JSON object: the sites, the deaths, the digests of every release. Run by test_crash_everywhere.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime as dt
import functools
import hashlib
import importlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

# Every life is a fork of this process; what is imported here need not be imported five hundred times. What the undisturbed life
# needed besides is imported by `Federation.import_ahead`.
import pandas as pd  # noqa: F401
import pyarrow.parquet as pq  # noqa: F401

import verticil.miner.service.node
import verticil.miner.storage.linkage
import verticil.party.daemon
import verticil.party.local_dataset
import verticil.shared.federation.transport.fetch
import verticil.shared.federation.transport.in_memory
import verticil.shared.release.report.page
import verticil.simulation.analyst
from verticil.party.audit import common_sets
from verticil.party.dataset import related_rows
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.protocol.central import alignment
from verticil.party.protocol.with_peers.artifact_store import kept_after
from verticil.shared.related import laying
from verticil.shared.release import records, related
from verticil.shared.storage import durable, sorting
from verticil.shared.storage import unlinked_files as nameless
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.shared.synthesis import record_checks, synthesis
from verticil.shared.synthesis import table_columns as written
from verticil.simulation import peers
from verticil.simulation.in_memory_peers import run_peers
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, Site, csv_site, provision

STANDING = peers.standing
DEAD = 86
"""Exit status of a process that died as planned."""
KILLED = -signal.SIGKILL
MOST_DEATHS = 500
FEW = 16
SPILLED: tuple[tuple[Any, str, int], ...] = (
    (verticil.party.local_dataset, "MEMORY_ROWS", FEW),
    (related_rows, "MEMORY_ROWS", FEW),
    (alignment, "MEMORY_ROWS", FEW),
    (common_sets, "MEMORY_PEOPLE", FEW),
    (verticil.miner.storage.linkage, "_TOKENS_IN_MEMORY", FEW),
    (records, "PIECE", FEW),
    (written, "PIECE", FEW),
    (records, "CHUNK", FEW),
    (synthesis, "CHUNK", FEW),
    (records, "IN_ONE_PIECE", 0),
    (record_checks, "IN_MEMORY", FEW),
)
"""What is made small, so that of `N` people and records most are outside memory."""
OUTSIDE: tuple[tuple[Any, str], ...] = (
    (sorting, "nameless_file"),
    (sorting.Sorter, "_write_run"),
    (sorting.Sorter, "blocks"),
    (nameless, "nameless_file"),
    (nameless.KeptRows, "write"),
    (nameless.KeptRows, "arrays"),
    (written, "frame"),
    (laying.Laying, "take"),
    (related, "write_csv"),
    (related, "write_parquet"),
)
"""What is done with files without a name, and with what is read from them; the laying of rows, and the tables of a release."""
N = 60

STUDY = """schema = 1
id = "crash"
title = "Crash"
purpose = "test"
model = "{model}"
expires = 2099-12-31
party = [{{ name = "clinic" }}, {{ name = "insurer" }}{party}]
linkage = {{ mode = "{mode}", minimum_common_records = 10 }}
variable = [
  {{ party = "clinic", name = "smoker", categories = ["no", "yes"] }},
  {{ party = "insurer", name = "claims", categories = ["0", "1-2", "3+"] }},
{variable}
]
randomization_default = {{ scheme = "symmetric", epsilon = 3.0 }}
structure = {structure}
release = {{ synthetic_records = 50, seed = 7 }}
{quorum}
"""
ABSENT = {
    "party": ', { name = "bank" }',
    "variable": '  { party = "bank", name = "credit", categories = ["no", "yes"] },',
    "quorum": 'quorum = { deadline = "2h", min = 2 }',
}
"""A third party that never comes; the study goes on without it."""
STRUCTURES = {
    "central": '{ method = "given", parents = { claims = ["smoker"] } }',
    "sub-model": '{ method = "tree" }',
    "central-blinded": '{ method = "given", parents = { claims = ["smoker"] } }',
    "peer": '{ method = "given", parents = { claims = ["smoker"] } }',
    "peer-learned": '{ method = "tree", score = "mutual-information" }',
    "peer-blinded": '{ method = "given", parents = { claims = ["smoker"] } }',
    "masked": '{ method = "auto" }',
    "central-measured": '{ method = "auto" }',
    "masked-measured": '{ method = "auto" }',
    "related": '{ method = "auto" }',
}
RELATED = {
    "party": "",
    "variable": """  { party = "clinic", table = "visits", name = "day", type = "integer", bins = [0, 10, 20, 40] },
  { party = "clinic", table = "visits", name = "ward", categories = ["a", "b"] },
  { party = "insurer", table = "bills", name = "kind", categories = ["drug", "stay"] },
""",
    "quorum": """table = [
  { name = "visits", party = "clinic", max_rows = 2, order = "day" },
  { name = "bills", party = "insurer", max_rows = 2, keep = "random" },
]
""",
}
"""Two related tables of two parties; a release has three tables."""
ROWS = {
    "clinic": ("visits", "id,day,ward\n", lambda i, k: f"p{i},{(7 * i + 11 * k) % 40},{'ab'[(i + k) % 2]}\n"),
    "insurer": ("bills", "id,kind\n", lambda i, k: f"p{i},{('drug', 'stay')[(i * k) % 2]}\n"),
}
TABLES = "tables = { epsilon = 1.0, delta = 1e-6 }"
MEASURED = '  { party = "clinic", name = "age", type = "integer", bins = "private", bounds = [0, 20] },'
"""A number whose bins the clinic measures: noisy counts leave with its approval."""
OF_THE_ORDER = frozenset({"manifest.json", "manifest.sig"})
"""Files of a release in which the digest of the common list is."""
TIMED = frozenset({*OF_THE_ORDER, "report.html", "datapackage.json"})
"""Files with times in them: a round of masked tables needs a clock that goes."""
GENERAL = frozenset(
    {
        *(
            "transaction",
            "write",
            "_transaction",
            "_change",
            "_grow",
            "replace_file",
            "write_atomically",
            "_write_bytes",
        ),
        *("write_durably", "append_durably", "replace_durably", "remove_durably", "remove_linkage"),
        *("<lambda>", "<genexpr>"),
    }
)
"""Functions through which steps of many kinds pass; they do not say where one is."""


def frames(frame: FrameType | None) -> Iterator[str]:
    """Where the program is: functions of the project, innermost first."""
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith("verticil.") and module != durable.__name__ and name not in GENERAL:
            yield f"{module.rsplit('.', 1)[-1]}.{name}"
        frame = frame.f_back


@dataclasses.dataclass
class Death:
    """A step at which a process is to die."""

    site: str
    number: int  # of the site's steps in one process, from 1
    moment: str

    @property
    def key(self) -> str:
        return f"{self.moment} {self.site} #{self.number}"


class Disk:
    """What a disk may forget: everything that was not flushed when the power went."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sizes = {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
        self.names = set(root.rglob("*"))
        self.touched: set[Path] = set()
        self.renamed: list[tuple[Path, Path, Path | None]] = []
        self.removed: list[tuple[Path, Path]] = []
        self.number = 0

    def _keep(self, path: Path) -> Path | None:
        if not path.exists():
            return None
        self.number += 1
        place = self.root / f".kept-{os.getpid()}-{self.number}"
        if path.is_dir():
            shutil.copytree(path, place)
        else:
            shutil.copy2(path, place)
        return place

    def see(self, step: durable.DurableStep) -> None:
        path, before = step.path, step.moment == "before"
        if not path.is_relative_to(self.root):
            return  # temporary files of the system, as tables of a release that are compared: no life looks for them
        if step.kind == "sync-file":
            self.touched.add(path)
            if not before:
                self.sizes[path] = path.stat().st_size
        elif step.kind == "rename" and step.source is not None:
            if before:
                self.renamed.append((step.source, path, self._keep(path)))
            else:
                self.touched.add(path)
                self.sizes[path] = self.sizes.get(step.source, 0)
        elif step.kind == "remove" and before:
            if (kept := self._keep(path)) is not None:
                self.removed.append((path, kept))
        elif step.kind == "sync-directory" and not before:
            self.names |= {path, *path.iterdir()}
            self.renamed = [item for item in self.renamed if item[1].parent != path]
            self.removed = [item for item in self.removed if item[0].parent != path]

    def forget(self) -> None:
        for source, target, kept in reversed(self.renamed):
            if target.exists() and not source.exists():
                target.rename(source)
                self.touched.discard(target)
            if kept is not None and not target.exists():
                kept.rename(target)
        for path, kept in self.removed:
            if not path.exists():
                kept.rename(path)
        for path in self.touched:
            if not path.is_file():
                continue
            if path not in self.names:
                path.unlink()
            elif path.stat().st_size > self.sizes.get(path, 0):
                os.truncate(path, self.sizes.get(path, 0))


class Watcher:
    """Names every step, and dies at the one that `dies` picks."""

    def __init__(self, made: Provisioned, dies: Callable[[Death], bool], report: int, *, lossy: bool) -> None:
        self.made, self.dies, self.report = made, dies, report
        self.seen: Counter[tuple[str, str]] = Counter()
        self.lock = threading.Lock()
        self.disk = Disk(made.root) if lossy else None

    def node(self, path: Path) -> str:
        if path.is_relative_to(self.made.miner):
            return "miner"
        parties = self.made.parties.values()
        return "party" if any(path.is_relative_to(folder) for folder in parties) else "analyst"

    def __call__(self, step: durable.DurableStep) -> None:
        where = list(frames(sys._getframe(1)))[:2]
        site = f"{self.node(step.path)} {step.kind} {' < '.join(where)}"
        with self.lock:
            self.seen[site, step.moment] += 1
            if self.disk is not None:
                self.disk.see(step)
            death = Death(site, self.seen[site, step.moment], step.moment)
            os.write(self.report, f"{death.key}\n".encode())
            if self.dies(death):
                if self.disk is not None:
                    self.disk.forget()
                os._exit(DEAD)

    def outside(self, name: str, moment: str) -> None:
        """A step of `OUTSIDE`."""
        site = f"outside {name} {' < '.join(list(frames(sys._getframe(1)))[:3])}"
        with self.lock:
            self.seen[site, moment] += 1
            death = Death(site, self.seen[site, moment], moment)
            os.write(self.report, f"{death.key}\n".encode())
            if self.dies(death):
                os.kill(os.getpid(), signal.SIGKILL)


def told(watcher: Watcher, work: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Tells the watcher before and after a step of `OUTSIDE`."""

    def step(*arguments: Any, **keys: Any) -> Any:
        watcher.outside(name, "before")
        result = work(*arguments, **keys)
        watcher.outside(name, "after")
        return result

    return step


class Federation:
    """A provisioned federation, copied for every life that it shall live."""

    def __init__(self, folder: Path, kind: str, *, spilled: bool = False) -> None:
        self.spilled = spilled
        self.folder, self.absent = folder, kind == "sub-model"
        self.related = kind == "related"
        self.model = "central" if self.absent or self.related else kind.split("-", maxsplit=1)[0]
        self.learned, self.masked = kind == "peer-learned", self.model == "masked"
        measured = kind.endswith("-measured")
        self.mode = "dh-psi" if kind.endswith("-blinded") else "keyed-hash"
        tables = folder / "template" / "tables"
        tables.mkdir(parents=True)
        (tables / "clinic.csv").write_text(
            f"id,smoker{',age' * measured}\n"
            + "".join(f"p{i},{'yes' if i % 3 else 'no'}{f',{i % 12}' * measured}\n" for i in range(N))
        )
        (tables / "insurer.csv").write_text(
            "id,claims\n" + "".join(f"p{i},{('0', '1-2', '3+')[i % 3]}\n" for i in range(5, N))
        )
        (folder / "study.toml").write_text(
            STUDY.format(
                model=self.model,
                mode=self.mode,
                structure=STRUCTURES[kind],
                **(
                    ABSENT
                    if self.absent
                    else RELATED
                    if self.related
                    else dict.fromkeys(ABSENT, "")
                    | {"variable": MEASURED * measured, "quorum": TABLES * (self.masked or measured)}
                ),
            )
        )
        self.study = read_study(folder / "study.toml")
        self.template = provision(
            folder / "template" / "federation",
            federation="crash",
            sites=[self._site(tables, name) for name in ("clinic", "insurer")],
            limits=OPEN_LIMITS,
            endpoint="localhost:1" if self.model != "peer" or self.learned else None,
            listen="127.0.0.1:0",
            hosts=("localhost",),
            seed=1,
            peers={"clinic": "localhost:2", "insurer": "localhost:3"} if self.model != "central" else None,
            masked=self.masked,
        )
        self.now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self.imported = folder / "imported.txt"

    def _site(self, tables: Path, name: str) -> Site:
        """Return a party's tables; people have 0 to 3 rows, and slots for two."""
        site = csv_site(name, tables / f"{name}.csv")
        if not self.related:
            return site
        table, head, row = ROWS[name]
        rows = "".join(row(i, k) for i in range(N) for k in range(i % 4))
        (tables / f"{table}.csv").write_text(head + rows)
        rule = DatasetRule(path=tables / f"{table}.csv", format="csv", id="id")
        return dataclasses.replace(site, table=dataclasses.replace(site.table, tables={table: rule}))

    def import_ahead(self) -> None:
        """Import here what a life imported only when it needed it: numba and scipy alone take longer than a life does."""
        for name in self.imported.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ImportError):  # some packages put a name there that nobody can import
                importlib.import_module(name)

    def copy(self, name: str) -> Provisioned:
        shutil.copytree(self.folder / "template", self.folder / name)
        root, old = self.folder / name / "federation", self.template
        return dataclasses.replace(
            old,
            root=root,
            miner=root / old.miner.relative_to(old.root),
            parties={party: root / place.relative_to(old.root) for party, place in old.parties.items()},
            analyst=root / old.analyst.relative_to(old.root),
            ca_certificate=root / old.ca_certificate.relative_to(old.root),
        )

    def live(self, made: Provisioned, dies: Callable[[Death], bool], *, lossy: bool) -> tuple[bool, list[str]]:
        """Run a process until it dies or the study is published: whether it lived, and the steps that it took."""
        for taken_home in ("release", "taken"):  # what people fetch, they fetch again
            shutil.rmtree(made.root.parent / taken_home, ignore_errors=True)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                self._be(made, Watcher(made, dies, writing, lossy=lossy))
                self.imported.write_text("\n".join(sys.modules), encoding="utf-8")
                os._exit(0)
            except BaseException:  # noqa: BLE001 (whatever it is, this process ends here)
                traceback.print_exc()
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as steps:
            taken = steps.read().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in {0, DEAD, KILLED}:
            raise SystemExit(f"a process ended with status {status} after: {taken[-1:]}")
        return status == 0, taken

    def _be(self, made: Provisioned, watcher: Watcher) -> None:
        run: Any = run_peers if self.model == "peer" else run_federation
        clock = functools.partial(self._time, made)
        with contextlib.ExitStack() as patches:
            patches.enter_context(durable.watch_steps(watcher))
            patches.enter_context(mock.patch.object(peers, "standing", self._standing))
            for owner, name, small in SPILLED * self.spilled:
                patches.enter_context(mock.patch.object(owner, name, small))
            for owner, name in OUTSIDE * self.spilled:
                patches.enter_context(mock.patch.object(owner, name, told(watcher, getattr(owner, name), name)))
            asyncio.run(run(made, self.study, made.root.parent / "release", is_seeded=True, clock=clock))

    def _standing(self, parties: Mapping[str, Path], digest: str) -> peers.StudyProgress:
        """Where each party stands; published only when each has dropped what it no longer needs, which has its steps, too."""
        found = STANDING(parties, digest)
        return dataclasses.replace(
            found, published=found.published and not any(self._leftovers(place) for place in parties.values())
        )

    @staticmethod
    def _leftovers(place: Path) -> bool:
        kept = kept_after(State.PUBLISHED)
        with contextlib.closing(
            sqlite3.connect(f"file:{place / 'state' / 'party.sqlite'}?mode=ro", uri=True)
        ) as database:
            kinds = {kind for (kind,) in database.execute("SELECT DISTINCT kind FROM peer_item")}
        return not kinds <= {str(kind) for kind in kept}

    def _time(self, made: Provisioned) -> dt.datetime:
        """It stands still but in a round; where a party is absent, it passes the deadline when the others have approved."""
        if self.masked:
            return dt.datetime.now(dt.UTC)
        catalogue = made.miner / "state" / "catalogue.sqlite"
        if not self.absent or not catalogue.exists():
            return self.now
        with (
            contextlib.suppress(sqlite3.OperationalError),  # it is being made
            contextlib.closing(sqlite3.connect(f"file:{catalogue}?mode=ro", uri=True)) as database,
        ):
            if database.execute("SELECT count(*) FROM approval").fetchone()[0] == 2:
                return self.now + dt.timedelta(hours=2)
        return self.now

    def left(self, made: Provisioned) -> dict[str, Any]:
        """Every node's files, and what each ledger says."""
        files = sorted(
            str(path.relative_to(made.root))
            for path in made.root.rglob("*")
            if path.is_file() and "cache" not in path.parts and not path.name.endswith(("-wal", "-shm"))
        )
        ledgers = {}
        for party, place in made.parties.items():
            with contextlib.closing(sqlite3.connect(place / "state" / "party.sqlite")) as database:
                rows = database.execute("SELECT unit, recipient, charged FROM ledger ORDER BY unit, recipient")
                ledgers[party] = rows.fetchall()
        return {"files": files, "ledgers": ledgers}

    def digests(self, made: Provisioned) -> dict[str, str]:
        folder = made.root.parent / "release"
        names = {path.name for path in folder.iterdir()}
        if (
            self.mode == "dh-psi"
        ):  # scalars are never from a seed: the common order, which is signed, is another in each run
            names -= OF_THE_ORDER
        if self.masked:
            names -= TIMED
        return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(names)}


def chain(federation: Federation, *, lossy: bool, moments: frozenset[str]) -> dict[str, Any]:
    """Die at every site once at each of the moments, in one study."""
    made, died = federation.copy("chain"), set[tuple[str, str]]()
    deaths: list[str] = []

    def dies(death: Death) -> bool:
        here = not federation.spilled or death.site.startswith("outside ")
        return here and death.moment in moments and (death.site, death.moment) not in died

    while True:
        lived, taken = federation.live(made, dies, lossy=lossy)
        if lived:
            return {"deaths": deaths, "digests": federation.digests(made), **federation.left(made)}
        moment, rest = taken[-1].split(" ", maxsplit=1)
        died.add((rest.rsplit(" #", maxsplit=1)[0], moment))
        deaths.append(taken[-1])
        if len(deaths) > MOST_DEATHS:
            raise SystemExit(f"{len(deaths)} deaths and no end, the last at {deaths[-3:]}")


def each(federation: Federation, steps: list[str], *, lossy: bool, every: int) -> dict[str, Any]:
    """For every single step (or every so many) one study that dies there."""
    different: dict[str, dict[str, str]] = {}
    missed: list[str] = []
    releases: set[str] = set()
    for number, key in enumerate(steps[::every]):
        made = federation.copy(f"each-{number}")
        lived, _ = federation.live(made, lambda death, key=key: death.key == key, lossy=lossy)  # type: ignore[misc]
        if lived:  # the parties' turns differ from run to run, so some steps are taken a little more or less often
            missed.append(key)
        else:
            federation.live(made, lambda _death: False, lossy=False)
        digests = federation.digests(made)
        releases.add(json.dumps(digests))
        different[key] = digests
        shutil.rmtree(made.root.parent)
    return {"deaths": len(different) - len(missed), "missed": missed, "releases": [json.loads(one) for one in releases]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=sorted(STRUCTURES), required=True)
    parser.add_argument("--lossy", action="store_true")
    parser.add_argument("--spilled", action="store_true")
    parser.add_argument("--moments", nargs="+", choices=("before", "after"), default=("before", "after"))
    parser.add_argument("--each", type=int, default=0, help="one study for every so many steps; 0: none")
    options = parser.parse_args()
    federation = Federation(options.folder, options.kind, spilled=options.spilled)
    calm = federation.copy("undisturbed")
    _, steps = federation.live(calm, lambda _death: False, lossy=False)
    federation.import_ahead()
    result: dict[str, Any] = {
        "undisturbed": federation.digests(calm),
        **federation.left(calm),
        "steps": len(steps),
        "sites": sorted({key.split(" ", maxsplit=1)[1].rsplit(" #", maxsplit=1)[0] for key in steps}),
    }
    if options.each:
        result["each"] = each(federation, steps, lossy=options.lossy, every=options.each)
    else:
        result["chain"] = chain(federation, lossy=options.lossy, moments=frozenset(options.moments))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
