"""The posterior of graphs from randomized columns, held against the exact one: ``python tests/bench/posterior_exact.py``.

Cells: three and four columns of 2, 3 and (three columns only) 5 categories; seven structures; 2,000, 5,000 and 50,000 people;
epsilon 1, 1.5, 2, 3 of every column, and columns as they are; both scores. Each is what `search_columns` gives for a study.

The reference is the sum over all graphs where columns are as they are, else importance sampling with a tenth of the draws.
Where its halves differ by more than .01 or its weights have a long tail, the next method is asked, if that has settled better:
of two categories all the draws (three columns) or data augmentation (four); then annealing with more work than the product's
(tests/support/released_posterior.py). Where halves still differ by more than .02, or the work of annealing would be too much, the
cell has no reference and is not judged. What halves differ by is added to each bound.

Every cell is a line of ``--file``, posterior_exact.jsonl beside this file; a run goes on where the one before ended. ``--seed``
orders the cells, so that a part of them is a sample of all. Ends with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support
from support import studies
from support.released_posterior import by_annealing, by_augmentation, by_importance, graphs
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.miner.learning.selection import search_columns
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.posterior.local_scores import bdeu_score, dirichlet_score
from verticil.shared.study.document import PosteriorRule, ReleaseRule

MOST, MEAN, LINK, SETTLED, SURE = 0.06, 0.03, 0.05, 0.02, 0.01
EFFECT = 1.0
Method = tuple[str, Callable[[], tuple[Floats, float]]]
"""A method's name, and what gives the reference and how far its halves differ."""
STRUCTURES = ("chain", "fork", "collider", "dependent", "xor", "independent", "full")


def truth(structure: str, d: int, k: int) -> Floats:
    """The joint distribution, (k,) * d: log odds of a child's category move by `EFFECT` times both codes, spread over -1 to 1."""
    fourth: tuple[tuple[int, ...], ...] = ((1,),) if d == 4 else ()
    parents: tuple[tuple[int, ...], ...] = {
        "chain": ((), (0,), (1,), *(((2,),) if d == 4 else ())),
        "fork": ((), (0,), (0,), *(((0,),) if d == 4 else ())),
        "collider": ((), (0, 2), (), *fourth),
        "dependent": ((), (0, 2), (0,), *fourth),
        "xor": ((), (0, 2), (), *(((),) if d == 4 else ())),
        "independent": ((),) * d,
        "full": tuple(tuple(range(v)) for v in range(d)),
    }[structure]
    code, joint = np.linspace(-1, 1, k), np.ones((k,) * d)
    along = [code.reshape([-1 if u == v else 1 for u in range(d)]) for v in range(d)]
    for v, own in enumerate(parents):
        logits = np.zeros((k,) * d)
        if structure == "xor" and own:
            at = np.indices((k,) * d)
            logits = logits + 1.5 * EFFECT * (at[v] == (at[0] + at[2]) % k)
        else:
            for u in own:
                logits = logits + EFFECT * along[u] * along[v]
        share = np.exp(logits)
        joint = joint * share / share.sum(axis=v, keepdims=True)
    return joint / joint.sum()


def measure(cell: dict[str, object], steps: int, draws: int, sweeps: int) -> dict[str, object]:
    """One cell: the distances between the product's posterior and the reference."""
    structure, score = str(cell["structure"]), str(cell["score"])
    d, k, n = (int(str(cell[name])) for name in ("d", "k", "n"))
    epsilon = None if cell["epsilon"] is None else float(str(cell["epsilon"]))
    rng = np.random.default_rng([STRUCTURES.index(structure), d, k, n])
    study = studies.study_of(
        studies.numbered((k,) * d),
        epsilon=epsilon,
        structure={"method": "posterior", "score": score, "max_parents": 3},
        posterior=PosteriorRule(steps=steps),
        release=ReleaseRule(sample_from="posterior"),
    )
    channels = [unit.transition.probabilities for unit in study.units]
    cells = np.repeat(np.arange(k**d), rng.multinomial(n, truth(structure, d, k).ravel()))
    columns = []
    for column, channel in zip(np.unravel_index(cells, (k,) * d), channels, strict=True):
        ends = np.cumsum(channel, axis=1)[:, :-1]
        columns.append((rng.random(n)[:, None] >= ends[column]).sum(axis=1).astype(np.uint8))
    counts = np.zeros((k,) * d)
    np.add.at(counts, tuple(columns), 1)
    begun = time.process_time()
    sample = search_columns(columns, study, progress=lambda *_: None, interruption=UNINTERRUPTED).sampled.sample  # type: ignore[union-attr]
    spent, every = time.process_time() - begun, np.array(graphs(d))
    by_graph = {graph: place for place, graph in enumerate(map(tuple, every.tolist()))}
    ours = (
        np.bincount([by_graph[tuple(graph)] for graph in sample.parents.tolist()], minlength=len(every))
        / sample.n_draws
    )
    if epsilon is None:
        exact, apart, way = plain(counts, score), 0.0, "sum"
    else:
        exact, apart, way = referenced(counts, channels, score, draws if k < 5 else draws // 10, sweeps)
    linked = (every[:, 0] >> 2 | every[:, 2]) & 1 > 0
    collider = (every[:, 1] & 5 == 5) & ~linked
    return {
        **cell,
        "tv": round(float(0.5 * np.abs(ours - exact).sum()), 6),
        "link": round(float(abs(ours[linked].sum() - exact[linked].sum())), 6),
        "collider": round(float(abs(ours[collider].sum() - exact[collider].sum())), 6),
        "apart": round(apart, 6),
        "way": way,
        "agree": sample.diagnostics.agree,
        "cpu": round(spent, 1),
    }


def referenced(
    counts: Floats, channels: Sequence[Floats], score: str, draws: int, sweeps: int
) -> tuple[Floats, float, str]:
    """The reference of randomized columns, how far its halves differ, and its method: of those that were needed the surest."""
    few: Method = (
        "importance",
        lambda: by_importance(counts, channels, score, draws=max(draws // 10, 2000), seed=2, by_tails=True),
    )
    many: Method = "importance", lambda: by_importance(counts, channels, score, draws=draws, seed=1, by_tails=True)
    chains: Method = (
        "augmentation",
        lambda: by_augmentation(counts, channels, score, sweeps=sweeps, seed=1, enough=SURE),
    )
    anneals: Method = "annealing", lambda: by_annealing(counts, channels, score, seed=1, enough=SURE)
    # Of many categories more draws leave tails as long; of three columns of two, chains seldom leave a graph.
    tries = (
        [few, anneals]
        if max(counts.shape) > 2
        else [few, many, anneals]
        if counts.ndim == 3
        else [few, chains, anneals]
    )
    best: tuple[Floats, float, str] | None = None
    for way, attempt in tries:
        if way == "augmentation" and not sweeps:
            continue
        exact, apart = attempt()
        if best is None or apart < best[1]:
            best = exact, apart, way
        if apart <= SURE:
            break
    assert best is not None
    return best


def plain(counts: Floats, score: str) -> Floats:
    """The posterior of columns as they are."""
    own = bdeu_score if score == "bdeu" else dirichlet_score
    d, values = counts.ndim, []
    for graph in graphs(d):
        total = 0.0
        for v, mask in enumerate(graph):
            members = [u for u in range(d) if mask >> u & 1 or u == v]
            table = counts.sum(axis=tuple(u for u in range(d) if u not in members))
            total += own(np.moveaxis(table, members.index(v), -1).reshape(-1, counts.shape[v]))
        values.append(total)
    share = np.exp(np.array(values) - max(values))
    return share / share.sum()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--file", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=None, help="cells of this run")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=40_000, help="of the importance sampling, a graph")
    parser.add_argument("--sweeps", type=int, default=4_000, help="of the data augmentation; 0: it is left out")
    parser.add_argument(
        "--categories", type=int, choices=(2, 3, 5), default=None, help="cells of so many categories alone"
    )
    parser.add_argument("--columns", type=int, choices=(3, 4), default=None, help="cells of so many columns alone")
    told = parser.parse_args()
    shapes = [(3, 2), (3, 3), (3, 5), (4, 2), (4, 3)]
    every: list[dict[str, object]] = [
        {"structure": s, "d": d, "k": k, "n": n, "epsilon": epsilon, "score": score}
        for s, (d, k), n, epsilon, score in itertools.product(
            STRUCTURES, shapes, (2_000, 5_000, 50_000), (1.0, 1.5, 2.0, 3.0, None), ("bdeu", "dirichlet")
        )
    ]
    done = [json.loads(line) for line in told.file.read_text().splitlines()] if told.file.exists() else []
    known = [{name: each[name] for name in every[0]} for each in done]
    left = [every[i] for i in np.random.default_rng(told.seed).permutation(len(every)) if every[i] not in known]
    left = [cell for cell in left if told.columns in {None, cell["d"]}]
    left = [cell for cell in left if told.categories in {None, cell["k"]}]
    for cell in left[: told.most]:
        found = measure(cell, told.steps, told.draws, told.sweeps)
        done.append(found)
        with told.file.open("a") as file:
            file.write(json.dumps(found) + "\n")
    judged = [each for each in done if each["apart"] <= SETTLED]
    bad = 0
    for each in sorted(done, key=lambda one: -one["tv"]):
        room = 2 * each["apart"] / 2  # the error of the whole is about half of what halves differ by
        ok = each["tv"] <= MOST + room and max(each["link"], each["collider"]) <= LINK + room
        said = "no reference" if each["apart"] > SETTLED else "" if ok else "MISS"
        bad += said == "MISS"
        print(
            f"{each['structure']:12}{each['d']} columns of {each['k']}  n {each['n']:6}  epsilon {each['epsilon']!s:5}"
            f"{each['score']:10} tv {each['tv']:.3f}  collider {each['collider']:.3f}  link {each['link']:.3f}  "
            f"{each['way']} (halves {each['apart']:.3f})  agree {each['agree']!s:6}{each['cpu']} CPU s  {said}"
        )
    mean = float(np.mean([each["tv"] for each in judged])) if judged else 0.0
    print(f"{len(done)} cells of {len(every)}, {len(judged)} with a reference: mean tv {mean:.4f}, {bad} missed")
    return 0 if not bad and mean <= MEAN else 1


if __name__ == "__main__":
    sys.exit(main())
