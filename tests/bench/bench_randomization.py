"""Sticky randomization and the artifact, in million values per CPU second.

The reference is what a reader would write first: ``rng.choice(K, size, p=row)`` for each true category, in the same run. Tags
are made once a person and used for every column, and are therefore a figure of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from figure import Figure, cpu_seconds

from verticil.party.dataset.perturb import perturb_numba, perturb_numpy, record_tags
from verticil.party.dataset.subsets import select
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.artifact import pack, unpack

N_RECORDS = 4_000_000
UNIT = "M values / CPU s"
_N_SETS = 400_000
_SETS = "M sets / CPU s"


def figures() -> Iterator[Figure]:
    """Randomization at K = 2, 5, 16, 100; sets by subset selection; tags; packing."""
    generator = np.random.default_rng(0)
    key = bytes(range(32))
    tags = generator.integers(0, 256, (N_RECORDS, 14), dtype=np.uint8)
    for n_states in (5, 2, 16, 100):
        codes = generator.integers(0, n_states, N_RECORDS).astype(np.uint8)
        transition = quantize(symmetric(n_states, epsilon=2.0))
        probabilities = transition.probabilities

        def choose(codes: np.ndarray = codes, probabilities: np.ndarray = probabilities) -> np.ndarray:
            released = np.empty_like(codes)
            for true, row in enumerate(probabilities):
                rows = np.flatnonzero(codes == true)
                released[rows] = generator.choice(len(row), rows.size, p=row)
            return released

        perturb_numba(key, tags[:10], codes[:10], transition)  # compile, or load from numba's cache
        reference = N_RECORDS / 1e6 / cpu_seconds(choose, repeats=5)
        for name, path in (("numba", perturb_numba), ("plain numpy", perturb_numpy)):
            rate = (
                N_RECORDS / 1e6 / cpu_seconds(lambda path=path, c=codes, t=transition: path(key, tags, c, t), repeats=5)
            )
            target, met = "-", None
            if n_states == 5:
                target = ">= 100, >= 3 times" if name == "numba" else ">= 35"
                met = rate >= 100 and rate >= 3 * reference if name == "numba" else rate >= 35
            yield (
                Figure(
                    name=f"randomize, K={n_states}, {name}",
                    ours=rate,
                    reference=reference,
                    ratio=rate / reference,
                    target=target,
                    unit=UNIT,
                    met=met,
                    note="reference: numpy rng.choice per category" if met is not None else "",
                )
            )
    for n_states in (8, 16, 64):
        subset = subset_selection(n_states, epsilon=1.0)
        codes = generator.integers(0, n_states, _N_SETS).astype(np.uint8)
        name = f"select sets, K={n_states}, w={subset.size}, numpy"
        yield _plain(name, _N_SETS, lambda c=codes, s=subset: select(key, tags[:_N_SETS], c, s), unit=_SETS)
    yield _plain("record tags (HMAC-SHA-256 of each id, once a person)", 200_000, _tags)
    codes = generator.integers(0, 5, N_RECORDS).astype(np.uint8)
    artifact = pack(codes, 5)
    yield _plain("pack an artifact, K=5", N_RECORDS, lambda: pack(codes, 5))
    yield _plain("unpack and check an artifact, K=5", N_RECORDS, lambda: unpack(artifact, 5, N_RECORDS))


_IDS = [f"{i:012x}" for i in range(200_000)]


def _tags() -> object:
    return record_tags(bytes(32), _IDS)


def _plain(name: str, n: int, work: Callable[[], object], *, unit: str = UNIT) -> Figure:
    rate = n / 1e6 / cpu_seconds(work)
    return Figure(name=name, ours=rate, unit=unit)
