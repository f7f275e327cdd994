"""The exact posterior of the graphs of three binary columns given what was released: the reference of tempered scores.

    p(Y | G) = integral of p(Y | theta, G) p(theta | G),    Y the released counts, multinomial,

by importance sampling in logits: a t distribution about the mode, as wide as the curvature there says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln, logsumexp

from verticil.shared.arrays import Floats

D = 3
CELLS = np.array(list(itertools.product(range(2), repeat=D)))
Parents = tuple[tuple[int, ...], ...]


def graphs() -> list[Parents]:
    """The 25 graphs."""
    found: list[Parents] = []
    sets = [
        [tuple(p for p in range(D) if p != v and m >> p & 1) for m in range(2**D) if not m >> v & 1] for v in range(D)
    ]
    for parents in itertools.product(*sets):
        placed: set[int] = set()
        for _ in range(D):
            placed |= {v for v in range(D) if placed.issuperset(parents[v])}
        if len(placed) == D:
            found.append(parents)
    return found


def log_evidence(released: Floats, channels: Sequence[Floats], parents: Parents, *, pseudo: float, seed: int) -> float:
    """log p(Y | G) up to a constant of Y.

    Args:
        released: (2, 2, 2).
        channels: rows true, columns released, of each variable.
        parents: the graph.
        pseudo: of a cell of the prior; 0: BDeu(1).
        seed: of the proposals.
    """
    rows, start = [], 0
    prior: list[float] = []
    for v in range(D):
        index = np.zeros(len(CELLS), dtype=int)
        for p in parents[v]:
            index = 2 * index + CELLS[:, p]
        n_rows = 2 ** len(parents[v])
        rows.append(start + index)
        start += n_rows
        prior += [pseudo or 1 / (2 * n_rows)] * n_rows
    a = np.array(prior)

    def target(u: Floats) -> Floats:
        theta = np.atleast_2d(expit(u))
        shares = np.ones((len(theta), len(CELLS)))
        for v in range(D):
            each = theta[:, rows[v]]
            shares *= np.where(CELLS[:, v] == 1, each, 1 - each)
        table = shares.reshape(-1, 2, 2, 2)
        table = np.einsum("nabc,ax,by,cz->nxyz", table, *channels).reshape(len(theta), -1)
        points = np.atleast_2d(u)
        density = a * (points - 2 * np.logaddexp(0.0, points)) - betaln(a, a)
        value: Floats = np.log(table) @ released.ravel() + density.sum(axis=1)
        return value

    rng = np.random.default_rng(seed)
    best = minimize(lambda u: -float(target(u)[0]), rng.normal(0, 1, start))
    step = 1e-3
    eye = step * np.eye(start)
    mode = best.x
    curvature = np.empty((start, start))
    for i, j in itertools.product(range(start), repeat=2):
        corners = [mode + s * eye[i] + t * eye[j] for s, t in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
        values = target(np.array(corners))
        curvature[i, j] = -(values[0] - values[1] - values[2] + values[3]) / (4 * step**2)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    root = vectors * (1.4 / np.sqrt(np.maximum(values, 1e-2)))
    df, n = 5, 8_000
    normal = rng.standard_normal((n, start))
    scale = np.sqrt(df / rng.chisquare(df, n))
    points = mode + (normal * scale[:, None]) @ root.T
    square = (normal**2).sum(axis=1) * scale**2
    log_q = (
        gammaln((df + start) / 2)
        - gammaln(df / 2)
        - start / 2 * np.log(df * np.pi)
        - np.linalg.slogdet(root)[1]
        - (df + start) / 2 * np.log1p(square / df)
    )
    return float(logsumexp(target(points) - log_q) - np.log(n))
