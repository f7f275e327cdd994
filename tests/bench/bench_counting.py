"""All pairwise tables: 15 columns in memory, and 31 columns on disk up to ten million records.

References: scikit-learn's mutual information, numpy's bincount and our own plain counting, pair by pair. The tables on disk are
counted in processes of their own, compiled before, so that their peak memory is known.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from figure import Figure, cpu_seconds

from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.miner.learning.scoring.scores import pair_scores
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit

N_RECORDS = 1_000_000
N_STATES = (8, 2, 5, 4, 7, 6, 9, 15, 7, 4, 4, 2, 16, 3, 5)  # as in Adult, two more
N_REFERENCE_PAIRS = 10
TARGET = 50  # times faster than scikit-learn, which also computes the information
COUNT_TARGET = 5  # times faster than numpy, which only counts

ON_DISK = tuple(2 + 18 * (v * 7 % 31) // 30 for v in range(31))  # 2 to 20 categories
WIDEST = (20,) * 31
LINE = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
SECONDS, GIB, RESIDUAL = 1.5, 1.5, 10.0
N_LARGE_REFERENCE_PAIRS = 3
DRAWN_AT_ONCE = 2**21


def reference_seconds(columns: Sequence[Codes], n_states: Sequence[int], n_pairs: int) -> tuple[float, float, str]:
    """CPU seconds of both references for all pairs, scaled from some; and what was done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, on import
        from sklearn.metrics import mutual_info_score
    pairs = list(combinations(range(len(n_states)), 2))
    chosen = pairs[:: len(pairs) // n_pairs][:n_pairs]

    def bincount(a: int, b: int) -> object:
        index = columns[a].astype(np.int64) * n_states[b] + columns[b]
        return np.bincount(index, minlength=n_states[a] * n_states[b])

    scale = len(pairs) / len(chosen)
    information = cpu_seconds(lambda: [mutual_info_score(columns[a], columns[b]) for a, b in chosen], repeats=1)
    counts = cpu_seconds(lambda: [bincount(a, b) for a, b in chosen], repeats=1)
    note = f"{len(chosen)} of the {len(pairs)} pairs timed in this run and scaled to all"
    return information * scale, counts * scale, note


def in_memory() -> list[Figure]:
    """15 columns: tables alone, and tables with the debiased information and the tests."""
    generator = np.random.default_rng(1)
    columns = [generator.choice(k, N_RECORDS, p=generator.dirichlet(np.ones(k))).astype(np.uint8) for k in N_STATES]
    transitions = [quantize(symmetric(k, epsilon=3.0)) for k in N_STATES]
    all_pair_tables(columns, N_STATES, method="kernel")  # compiles
    units = [ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(transitions)]
    pair_scores(columns, units, N_STATES)  # imports scipy
    tables = cpu_seconds(lambda: all_pair_tables(columns, N_STATES))
    scored = cpu_seconds(lambda: pair_scores(columns, units, N_STATES))
    plain = cpu_seconds(lambda: all_pair_tables(columns, N_STATES, method="plain"), repeats=1)
    information, counts, note = reference_seconds(columns, N_STATES, N_REFERENCE_PAIRS)
    return [
        Figure(
            name=name,
            ours=ours,
            reference=reference,
            ratio=reference / ours,
            target="-" if least is None else f">= {least} times",
            unit="CPU s",
            met=None if least is None else reference / ours >= least,
            note=f"reference: {what}",
        )
        for name, ours, reference, what, least in (
            (
                "all pair tables, d=15, 1M records",
                tables,
                information,
                f"sklearn.metrics.mutual_info_score, {note}",
                TARGET,
            ),
            (
                "the same with information and tests",
                scored,
                information,
                f"sklearn.metrics.mutual_info_score, {note}",
                TARGET,
            ),
            ("all pair tables, d=15, 1M records", tables, counts, f"numpy.bincount of each pair, {note}", COUNT_TARGET),
            ("the same with information and tests", scored, counts, f"numpy.bincount of each pair, {note}", None),
            ("the kernel against our plain counting", tables, plain, "method='plain', all pairs", None),
        )
    ]


def on_disk(n_states: Sequence[int], name: str) -> list[Figure]:
    """31 columns on disk: the largest, its peak memory, the references, and the line."""
    with tempfile.TemporaryDirectory() as folder:
        generator = np.random.default_rng(2)
        for v, k in enumerate(n_states):
            shares = np.cumsum(generator.dirichlet(np.ones(k)))
            category = np.searchsorted(shares[:-1], (np.arange(2**16) + 0.5) / 2**16).astype(np.uint8)
            with (Path(folder) / f"{v}.u8").open("wb") as file:
                for start in range(0, LINE[-1], DRAWN_AT_ONCE):
                    words = generator.integers(0, 2**16, min(DRAWN_AT_ONCE, LINE[-1] - start), dtype=np.uint16)
                    category[words].tofile(file)
        line = {n: _measured(folder, n_states, n) for n in LINE}
        columns = _mapped(folder, len(n_states), LINE[-1])
        information, counts, note = reference_seconds(columns, n_states, N_LARGE_REFERENCE_PAIRS)
    largest = line[LINE[-1]]
    figures = [
        Figure(
            name=f"all pair tables, d=31, 10M records, {name}",
            ours=largest["cpu"],
            reference=reference,
            ratio=reference / largest["cpu"],
            target=f"< {SECONDS:g}" if judged else "-",
            met=largest["cpu"] < SECONDS if judged else None,
            note=f"columns on disk, one thread; on two {largest['two']:.2f} CPU s, {largest['wall']:.2f} s wall; "
            f"reference: {what}, {note}",
        )
        for reference, what, judged in (
            (information, "sklearn.metrics.mutual_info_score", True),
            (counts, "numpy.bincount of each pair", False),
        )
    ]
    peak = {n: measured["peak"] for n, measured in line.items()}
    slope, start, residuals = fitted({n / 1e6: measured["cpu"] for n, measured in line.items()})
    farthest = max(map(abs, residuals)) / largest["cpu"]
    return [
        *figures,
        Figure(
            name=f"peak memory, 10M records, {name}",
            ours=peak[LINE[-1]],
            target=f"< {GIB:g}",
            unit="GiB",
            met=peak[LINE[-1]] < GIB,
            note="of the whole process; " + ", ".join(f"{n // 10**6}M: {value:.3f} GiB" for n, value in peak.items()),
        ),
        Figure(
            name=f"linear in rows: largest residual, {name}",
            ours=100 * farthest,
            target=f"<= {RESIDUAL:g}",
            unit="% of the CPU s at 10M",
            met=100 * farthest <= RESIDUAL,
            note=f"CPU s = {start:.3f} + {slope:.4f} a million records, least squares; "
            + ", ".join(
                f"{n // 10**6}M: {measured['cpu']:.3f} ({residual:+.3f})"
                for (n, measured), residual in zip(line.items(), residuals, strict=True)
            ),
        ),
    ]


def fitted(seconds: Mapping[float, float]) -> tuple[float, float, list[float]]:
    """Slope, start and residuals of the least squares line."""
    at, took = np.array(list(seconds)), np.array(list(seconds.values()))
    slope, start = np.polyfit(at, took, 1)
    return float(slope), float(start), (took - (start + slope * at)).tolist()


def figures() -> Iterator[Figure]:
    """Every figure."""
    yield from in_memory()
    yield from on_disk(ON_DISK, "2 to 20 categories")
    yield from on_disk(WIDEST, "all 20 categories")


def _mapped(folder: str, d: int, n: int) -> list[Codes]:
    return [np.memmap(Path(folder) / f"{v}.u8", dtype=np.uint8, mode="r", shape=(n,)) for v in range(d)]


def _measured(folder: str, n_states: Sequence[int], n: int) -> dict[str, float]:
    """What a process measures that counts n records: see `_measure`."""
    command = [sys.executable, __file__, folder, json.dumps(list(n_states)), str(n)]
    measured: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return measured


def _measure(folder: str, n_states: Sequence[int], n: int) -> None:
    """CPU seconds on one thread and on two, wall seconds on two, and the peak memory in GiB; compiled before."""
    columns = _mapped(folder, len(n_states), n)
    all_pair_tables([column[:1] for column in columns], n_states, method="kernel")
    cpu = cpu_seconds(lambda: all_pair_tables(columns, n_states, threads=1), repeats=5)
    started = time.perf_counter()
    two = cpu_seconds(lambda: all_pair_tables(columns, n_states, threads=2))
    wall = (time.perf_counter() - started) / 3
    # Of this program alone: what getrusage tells includes the process that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"cpu": cpu, "two": two, "wall": wall, "peak": peak / 2**20}))


if __name__ == "__main__":
    _measure(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
