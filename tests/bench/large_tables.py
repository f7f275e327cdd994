"""A study with a miner over large tables, end to end: CPU seconds and memory of every process, by phase, beside their bounds.

``python tests/bench/large_tables.py --people 10_000_000 [--format csv|parquet] [--folder DIR]``

Real processes as an installation has them: three ``verticil party run``, ``verticil miner run`` with its worker, the analyst,
mutual TLS, nothing compiled beforehand. The tables are the shipped Adult ones (13 columns), drawn row by row with replacement,
and `NOISE` of the values of each column from another row; every party has its columns of `people` who are at all parties, and of
`OTHERS` times as many who are only there, in an order of its own. Making the tables counts nowhere.

CPU seconds are those of the process and of what it has started and waited for (``/proc/PID/stat``), in each phase of the study
as the analyst is told; the sum is held against what the kernel tells of all children that have ended (``getrusage``). Memory is
the peak of what the kernel counts as resident (VmHWM, so pages of files that it could drop count, too), by phase what it counts
then, and of that what it could not drop (VmRSS and RssAnon, sampled). Bounds are those of ten million people, of more, too; CPU
seconds in proportion. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import figure  # noqa: F401  # tests/support can be imported then
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from support.ports import free_port
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.simulation.children import Children
from verticil.simulation.federations import adult
from verticil.simulation.provision import DEMO_LIMITS, Site, provision

NOISE, OTHERS = 0.1, 0.02
AT_ONCE, AT_ONCE_BYTES = 1 << 17, 1 << 28
GIB = 1 << 30
PARTY_BYTES, MINER_BYTES = GIB, 2 * GIB
"""Bounds of a party's process, and of the miner's two together."""
SECONDS_PER_MILLION, BOUND_FROM = 25.0, 10_000_000
"""Bound of all processes: 250 CPU seconds for ten million people; of fewer none, as starting and compiling take their part."""
SAMPLE_SECONDS = 0.1
MINER, ANALYST = "miner", "analyst"


# ---- tables


@dataclass(frozen=True)
class Shipped:
    """The people who are in all of the shipped tables: of each party its columns, dictionary-encoded, all in one order."""

    columns: dict[str, dict[str, pa.DictionaryArray]]
    n_rows: int


def shipped() -> Shipped:
    """Read the shipped tables."""
    columns = {}
    with tempfile.TemporaryDirectory() as temporary:
        for party, path in adult.write_tables(Path(temporary)).items():
            names = path.read_text("utf-8").partition("\n")[0].strip().split(",")
            options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
            table = csv.read_csv(path, convert_options=options)
            places = pc.index_in(pa.array(adult.common_ids()), table[adult.ID_COLUMN])
            table = table.take(places)
            columns[party] = {
                name: table[name].combine_chunks().dictionary_encode() for name in names if name != adult.ID_COLUMN
            }
    return Shipped(columns=columns, n_rows=len(places))


def write_table(path: Path, source: Shipped, party: str, people: int, note_bytes: int) -> None:
    """One party's table: CSV or Parquet, as the ending says; with a column of texts of so many bytes that no study asks for."""
    place = adult.PARTIES.index(party)
    drawn = np.random.default_rng(0).integers(0, source.n_rows, people, dtype=np.uint16)
    generator = np.random.default_rng(place + 1)
    others = int(people * OTHERS)
    order = generator.permutation(people + others).astype(np.uint32)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", dtype=np.uint8)
    notes = pa.array([letters[generator.integers(0, len(letters), note_bytes)].tobytes().decode() for _ in range(100)])
    with contextlib.ExitStack() as stack:
        writer, at_once = None, min(AT_ONCE, AT_ONCE_BYTES // max(note_bytes, 1))
        for start in range(0, len(order), at_once):
            some = order[start : start + at_once].astype(np.int64)
            rows = np.where(
                some < people, drawn[np.minimum(some, people - 1)], generator.integers(0, source.n_rows, len(some))
            )
            numbers = np.where(some < people, some, some + place * others) + 10**10
            texts = pc.utf8_slice_codeunits(pa.array(numbers).cast(pa.string()), 1)
            columns = {adult.ID_COLUMN: pc.binary_join_element_wise("DE-", texts, "")}
            for name, values in source.columns[party].items():
                noisy = generator.random(len(some)) < NOISE
                taken = np.where(noisy, generator.integers(0, source.n_rows, len(some)), rows)
                columns[name] = values.take(pa.array(taken))
            if note_bytes:
                columns["note"] = notes.take(pa.array(generator.integers(0, len(notes), len(some))))
            table = pa.table(columns)
            if writer is None:
                if path.suffix == ".csv":
                    options = csv.WriteOptions(quoting_style="needed")
                    writer = stack.enter_context(csv.CSVWriter(path, table.schema, write_options=options))
                else:
                    writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table)


# ---- what processes take


@dataclass
class Watched:
    """One of the processes, or the miner's worker, over its life.

    Attributes:
        peak: bytes.
        anonymous, resident: bytes at most, by phase; the second with pages of files.
        seconds: by phase.
    """

    peak: int = 0
    anonymous: dict[str, int] = field(default_factory=dict)
    resident: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """CPU seconds in all."""
        return sum(self.seconds.values())


TICKS = os.sysconf("SC_CLK_TCK")


Told = tuple[int, float, float, int, int, int]


def of_process(pid: int) -> Told:
    """Parent; CPU seconds of its own, and of children that it has waited for; peak, anonymous and all memory now, bytes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    peak, anonymous, resident = (1024 * int(status.get(name, "0").split()[0]) for name in ("VmHWM", "RssAnon", "VmRSS"))
    own, waited = (sum(map(int, fields[i : i + 2])) / TICKS for i in (11, 13))
    return int(fields[1]), own, waited, peak, anonymous, resident


class Watch:
    """Samples the processes that were started here, and theirs.

    Args:
        pids: name -> pid; may grow.
    """

    def __init__(self, pids: dict[str, int]) -> None:
        self.found: dict[str, Watched] = {}
        self._pids, self._before, self._phase = pids, dict[str, float](), ""
        self._lock, self._done = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def turn(self, phase: str) -> None:
        """A phase begins: what was used up to now belongs to the one before."""
        with self._lock:
            seen, before, self._phase = self._look(), self._phase, phase
            for name, seconds in seen.items():
                here = self.found.setdefault(name, Watched()).seconds
                here[before] = here.get(before, 0.0) + max(0.0, seconds - self._before.get(name, 0.0))
                self._before[name] = seconds

    def end(self) -> None:
        """Stop sampling."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            with self._lock:
                self._look()

    def _look(self) -> dict[str, float]:
        """CPU seconds of each process tree by now; a node's worker apart as long as it lives, of its parent afterwards."""
        told = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                told[int(path.name)] = of_process(int(path.name))
        names = {pid: name for name, pid in self._pids.items()}
        seconds = dict.fromkeys(self._pids, 0.0)
        for pid, (parent, own, waited, peak, anonymous, resident) in told.items():
            name = names.get(pid)
            place = name
            if name is None and (owner := self._owner(parent, told, names)) is not None:
                name, place = owner, f"{owner}'s worker"
            if name is None or place is None:
                continue
            seconds[name] += own + waited
            watched = self.found.setdefault(place, Watched())
            watched.peak = max(watched.peak, peak)
            watched.anonymous[self._phase] = max(watched.anonymous.get(self._phase, 0), anonymous)
            watched.resident[self._phase] = max(watched.resident.get(self._phase, 0), resident)
        return {name: value for name, value in seconds.items() if value}

    @staticmethod
    def _owner(pid: int, told: dict[int, Told], names: dict[int, str]) -> str | None:
        while pid in told and pid not in names:
            pid = told[pid][0]
        return names.get(pid)


def phase_of(line: str) -> str:
    """The phase that begins with a line of the analyst's: the state, and while learning what is done, without numbers."""
    state, _, detail = line.partition(": ")
    if state.startswith("study '"):
        return "reading, approval"
    if state.startswith("release fetched"):
        return "afterwards"
    return state if state != "learning" else f"learning: {detail.partition(' ')[0]}"


# ---- the run


async def carried_out(
    folder: Path, tables: dict[str, Path], *, data_mib: int | None, say: bool
) -> tuple[dict[str, Watched], list[str]]:
    """Run the federation; what each process took, and the phases in their order."""
    sites = [
        Site(name=party, table=DatasetRule(path=path, format=path.suffix[1:], id=adult.ID_COLUMN))
        for party, path in tables.items()
    ]
    address = f"127.0.0.1:{free_port()}"
    made = provision(
        folder / "federation",
        federation="adult-large",
        sites=sites,
        limits=DEMO_LIMITS,
        endpoint=address,
        listen=address,
        hosts=("127.0.0.1",),
        seed=1,
    )
    (made.analyst / "study.toml").write_text(adult.study_text(), encoding="utf-8")
    children = Children(folder=folder)
    pids: dict[str, int] = {}
    watch = Watch(pids)
    phases: list[str] = []

    def turn(phase: str) -> None:
        phases.append(phase)
        watch.turn(phase)

    turn("starting")
    try:
        await children.start_miner(made.miner, "--seed-derived")
        for party, node in made.parties.items():
            await children.start_party(party, node)
        pids |= {name: child.pid for name, child in children.running.items()}
        if data_mib is not None:
            for pid in pids.values():  # and for all that they start
                resource.prlimit(pid, resource.RLIMIT_DATA, (data_mib << 20,) * 2)
        command = [sys.executable, "-m", "verticil.simulation.analyst", "--folder", str(made.analyst)]
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ}  # as nodes have it
        analyst = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
        pids[ANALYST] = analyst.pid
        if data_mib is not None:
            resource.prlimit(analyst.pid, resource.RLIMIT_DATA, (data_mib << 20,) * 2)
        try:
            assert analyst.stdout is not None
            begun = time.monotonic()
            async for raw in analyst.stdout:
                line = raw.decode().strip()
                if say:
                    sys.stderr.write(f"{time.monotonic() - begun:7.1f} s  {line}\n")
                turn(phase_of(line))
                children.check()
            if code := await analyst.wait():
                raise SystemExit(f"the analyst ended with {code}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                analyst.kill()
    finally:
        turn("stopping")
        watch.end()
        await children.stop()
    return watch.found, list(dict.fromkeys(phases))


def lines_of(
    found: dict[str, Watched], phases: list[str], waited: float, bound: float | None
) -> tuple[list[str], bool]:
    """The table for people, and whether all bounds are met; of all CPU seconds there may be none."""

    def rows(title: str, names: list[str], of: Callable[[str, str], float], least: float) -> None:
        lines.extend(["", f"{title:22}" + "".join(f"{name:>16}" for name in names)])
        for phase in phases:
            values = [of(name, phase) for name in names]
            if max(values) >= least:
                lines.append(f"{phase:22}" + "".join(f"{value:16.1f}" for value in values))

    lines: list[str] = []
    timed = [name for name in found if found[name].seconds]
    rows("CPU s", timed, lambda name, phase: found[name].seconds.get(phase, 0.0), 0.05)
    lines.append(f"{'all':22}" + "".join(f"{found[name].total:16.1f}" for name in timed))
    rows("anonymous MiB", [*found], lambda name, phase: found[name].anonymous.get(phase, 0) / 2**20, 1)
    rows("MiB, files included", [*found], lambda name, phase: found[name].resident.get(phase, 0) / 2**20, 1)
    lines.append(f"{'peak, files included':22}" + "".join(f"{item.peak / 2**20:16.1f}" for item in found.values()))
    met = True

    def held(what: str, ours: float, limit: float, unit: str) -> None:
        nonlocal met
        met &= ours <= limit
        lines.append(f"{what:44} {ours:9.1f} {unit}, bound {limit:9.1f}: {'met' if ours <= limit else 'MISSED'}")

    lines.append("")
    for party in adult.PARTIES:
        held(f"{party}: peak memory", found[party].peak / 2**20, PARTY_BYTES / 2**20, "MiB")
    of_miner = sum(watched.peak for name, watched in found.items() if name.startswith(MINER))
    held("miner and its worker: both peaks together", of_miner / 2**20, MINER_BYTES / 2**20, "MiB")
    if bound is not None:
        held("all processes, as getrusage has it", waited, bound, "CPU s")
    else:
        lines.append(f"{'all processes, as getrusage has it':44} {waited:9.1f} CPU s")
    return lines, met


@contextlib.contextmanager
def place(asked: Path | None) -> Iterator[Path]:
    """Where tables and nodes are: the folder that is asked for, which stays, or one that goes."""
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
        yield asked
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> int:
    """Make the tables, run the federation, print what it took."""
    parser = argparse.ArgumentParser(description="A study over large tables, end to end, with real processes.")
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--folder", type=Path, help="where tables are kept for another run; a temporary one else")
    parser.add_argument(
        "--note-bytes", type=int, default=0, help="of a text in each row of one table, which nobody asks for"
    )
    parser.add_argument("--data-mib", type=int, help="memory that each process may have of its own (RLIMIT_DATA)")
    parser.add_argument("--quiet", action="store_true", help="no line for each step on standard error")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    with place(asked.folder) as folder:
        source = shipped()
        noted = {party: asked.note_bytes if party == adult.PARTIES[0] else 0 for party in adult.PARTIES}
        tables = {party: folder / f"{party}-{asked.people}-{noted[party]}.{asked.format}" for party in adult.PARTIES}
        for party, path in tables.items():
            if not path.exists():
                part = path.with_name(f"part-{path.name}")
                write_table(part, source, party, asked.people, noted[party])
                part.rename(path)
        sizes = ", ".join(f"{path.stat().st_size / 1e9:.2f}" for path in tables.values())
        print(f"{asked.people:,} people, tables of {sizes} GB ({asked.format})", flush=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory(dir=folder) as nodes:
            work = carried_out(Path(nodes), tables, data_mib=asked.data_mib, say=not asked.quiet)
            found, phases = asyncio.run(work)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        waited = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    bounded = asked.people >= BOUND_FROM and not asked.note_bytes
    lines, met = lines_of(found, phases, waited, SECONDS_PER_MILLION * asked.people / 1e6 if bounded else None)
    print("\n".join(lines))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
