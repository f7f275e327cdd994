"""What large tables cost, phase by phase: CPU seconds and growth of memory, each phase in a process of its own.

``python tests/bench/party_pass.py [--rows 1000000] [--parties 3] [--phase NAME] [--data-mib N]``

- ``pass``: all that a party does with its table before its first byte leaves: reading, encoding, tags, pseudonyms, their order,
  the fingerprints of all units. For each party of the study, six columns each.
- ``read``: of that, reading the file into texts alone.
- ``randomize``: the six columns of all people, in the common order, and packed.
- ``intersect``: the miner's intersection of all parties' lists, with the bitmaps.
- ``release``: as many synthetic records of 18 columns drawn and written, CSV and Parquet.

A phase starts with everything imported and compiled, in the environment that a daemon has; memory is how much the process grew
beyond that (VmHWM, so mapped files that the kernel could drop at any time count too), of that what it could not drop (RssAnon,
sampled), and the process in all.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import figure  # noqa: F401  # tests/support can be imported then
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from support.documents import FEDERATION, PEOPLE, party_toml, study_toml
from verticil.party.dataset.macs import load_kernel
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

COLUMNS, STATES = 6, 5
KEY, SECRET = bytes(range(32)), b"s" * 32
SPREAD = 1.25
"""Of 1.25 n people each party has n."""


def tables(folder: Path, rows: int, parties: int) -> None:
    """A table of each party: an id of 13 characters and six columns of five categories."""
    for party in range(parties):
        if (folder / f"{party}.csv").exists():
            continue
        generator = np.random.default_rng(party)
        people = generator.permutation(int(rows * SPREAD))[:rows]
        labels = pa.array([f"category {k}" for k in range(STATES)])
        with contextlib.ExitStack() as stack:
            writer = None
            for start in range(0, rows, 1_000_000):
                numbers = pa.array(people[start : start + 1_000_000] + 10**10).cast(pa.string())
                columns = {"id": pc.binary_join_element_wise("DE-", pc.utf8_slice_codeunits(numbers, 1), "")}
                for j in range(COLUMNS):
                    columns[f"v{party}{j}"] = labels.take(pa.array(generator.integers(0, STATES, len(numbers))))
                table = pa.table(columns)
                if writer is None:
                    options = csv.WriteOptions(quoting_style="needed")
                    writer = stack.enter_context(
                        csv.CSVWriter(folder / f"{party}.csv", table.schema, write_options=options)
                    )
                writer.write(table)


def study_of(folder: Path, parties: int) -> Study:
    """Every party's six columns, randomized symmetrically."""
    labels = ", ".join(f'"category {k}"' for k in range(STATES))
    columns = [f"p{p}.v{p}{j}: categories = [{labels}]" for p in range(parties) for j in range(COLUMNS)]
    path = folder / "study.toml"
    path.write_text(study_toml(*columns, epsilon=2.0, minimum=100))
    return read_study(path)


def config_of(folder: Path, party: int):
    """The party's configuration."""
    from verticil.party.config import load_party

    home = folder / f"p{party}"
    home.mkdir(exist_ok=True)
    (home / "federation.toml").write_text(FEDERATION)
    datasets = PEOPLE.replace("people.csv", str(folder / f"{party}.csv"))
    text = party_toml(datasets=datasets).replace('name = "clinic"', f'name = "p{party}"')
    (home / "party.toml").write_text(text)
    (home / "state").mkdir(exist_ok=True)
    return load_party(home / "party.toml")


def holding_of(folder: Path, party: int, parties: int, rows: int):
    """The pass."""
    from verticil.party.local_dataset import read_holding
    from verticil.party.storage.secret import SiteSecret

    return read_holding(
        config_of(folder, party),
        study_of(folder, parties),
        proposal_digest=b"p" * 32,
        site_secret=SiteSecret(value=SECRET),
        linkage_key=KEY,
    )


def whole_pass(folder: Path, rows: int, parties: int) -> Callable[[], object]:
    """The first party's pass."""
    small = folder / "small"
    small.mkdir(exist_ok=True)
    tables(small, 2_000, parties)
    holding_of(small, 0, parties, 2_000)
    load_kernel()
    return lambda: holding_of(folder, 0, parties, rows)


def reading(folder: Path, rows: int, parties: int) -> Callable[[], object]:
    """The file into texts."""
    from verticil.party.dataset.sources.open_source import header, read_parts

    ((_, rule),) = config_of(folder, 0).datasets.items()
    return lambda: sum(part.n_rows for part in read_parts(rule, header(rule)))


def randomizing(folder: Path, rows: int, parties: int) -> Callable[[], object]:
    """All columns of all people."""
    from verticil.party.local_dataset import column_draws_of
    from verticil.party.protocol.randomization import randomize
    from verticil.shared.numerics.model import artifact

    holding, config, study = holding_of(folder, 0, parties, rows), config_of(folder, 0), study_of(folder, parties)
    releases = column_draws_of(config, study, holding, site_secret=SECRET)

    def work(common: np.ndarray) -> None:
        for index, release in releases.items():
            codes = randomize(holding, common, study, index, column_draw=release, version_tag=b"", site_secret=SECRET)
            hashlib.sha256(artifact.pack(codes, STATES)).digest()

    work(holding.everyone[:70_000])
    return lambda: work(holding.everyone)


def intersecting(folder: Path, rows: int, parties: int) -> Callable[[], object]:
    """Lists as the miner has them on its disk."""
    from verticil.miner.storage.linkage import intersect, read_list

    paths = [folder / f"{party}.list" for party in range(parties)]
    for party, path in enumerate(paths):
        if not path.exists():
            people = np.random.default_rng(party).permutation(int(rows * SPREAD))[:rows].astype(np.uint64)
            words = np.empty((rows, 2), dtype=">u8")
            for side, factor in enumerate((0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)):
                words[:, side] = (people + np.uint64(1)) * np.uint64(factor)
            np.sort(words.view("S16").reshape(-1)).tofile(path)
    return lambda: intersect([read_list(path) for path in paths])


def releasing(folder: Path, rows: int, parties: int) -> Callable[[], object]:
    """Records from a network, each column with up to two parents, drawn and written."""
    from support.releases import content_of, random_network, release_study_of_two
    from verticil.shared.numerics.model.schema import Variable
    from verticil.shared.release.formats.table_files import write_csv, write_parquet
    from verticil.shared.release.records import draw_release_records

    content = content_of(release_study_of_two())
    labels = tuple(f"category {k}" for k in range(STATES))
    variables = tuple(Variable(name=f"v{j}", owner="a", labels=labels) for j in range(COLUMNS * parties - 3))
    numbers = tuple(
        Variable(name=f"n{j}", owner="a", labels=("low", "middle", "high"), bins=(0.0, 10.0, 40.0, 90.0), integer=True)
        for j in range(3)
    )
    parents = tuple(tuple(range(max(0, j - 2), j)) for j in range(COLUMNS * parties))
    network = random_network((*variables, *numbers), parents, seed=1)
    study = dataclasses.replace(content.study, schema=network.schema, knowledge=None)

    def work(n: int) -> None:
        _, table = draw_release_records(network, study, n, folder=folder)
        write_csv(table, folder / "synthetic.csv")
        write_parquet(table, folder / "synthetic.parquet")

    work(300_000)
    return lambda: work(rows)


PHASES = {
    "release": releasing,
    "read": reading,
    "pass": whole_pass,
    "randomize": randomizing,
    "intersect": intersecting,
}


def status(name: str) -> int:
    """A line of /proc/self/status, bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def measured(phase: str, folder: Path, rows: int, parties: int, data_mib: int | None) -> dict[str, float]:
    """One phase, in this process, with so much memory of its own and no more (RLIMIT_DATA; None: as much as there is)."""
    if data_mib is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (data_mib << 20,) * 2)
    work = PHASES[phase](folder, rows, parties)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before, anonymous = status("VmHWM"), [status("RssAnon")]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            anonymous.append(status("RssAnon"))

    watcher = threading.Thread(target=watch, daemon=True)  # one that is out of memory must end
    watcher.start()
    started = time.process_time()
    result = work()
    seconds = time.process_time() - started
    done.set()
    watcher.join()
    del result
    return {
        "cpu_seconds": seconds,
        "grew_mb": (status("VmHWM") - before) / 1e6,
        "grew_anonymous_mb": (max(anonymous) - anonymous[0]) / 1e6,
        "process_mb": status("VmHWM") / 1e6,
    }


def main() -> None:
    """Run every phase in a process of its own."""
    parser = argparse.ArgumentParser(description="CPU seconds and memory of large tables, by phase.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--phase", action="append", choices=sorted(PHASES))
    parser.add_argument("--folder", type=Path, help="where tables are kept; a temporary one else")
    parser.add_argument("--data-mib", type=int, help="memory that a phase's process may have of its own")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(measured(asked.phase[0], asked.folder, asked.rows, asked.parties, asked.data_mib)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if {"read", "pass", "randomize"} & set(asked.phase or PHASES):
            tables(folder, asked.rows, asked.parties)
        for phase in asked.phase or PHASES:
            command = [sys.executable, __file__, "--here", "--phase", phase, "--folder", str(folder)]
            command += ["--rows", str(asked.rows), "--parties", str(asked.parties)]
            command += [] if asked.data_mib is None else ["--data-mib", str(asked.data_mib)]
            environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
            found = json.loads(done.stdout)
            print(
                f"{phase:10} {asked.rows:>11,} rows: {found['cpu_seconds']:6.2f} CPU s, grew {found['grew_mb']:7.1f} MB,"
                f" of it {found['grew_anonymous_mb']:7.1f} MB anonymous; {found['process_mb']:7.1f} MB in all",
                flush=True,
            )


if __name__ == "__main__":
    main()
