"""Noise on a party's counts: draws of the exact discrete Gaussian for each CPU second."""

from __future__ import annotations

import numpy as np
from figure import Figure, cpu_seconds

from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma, draw
from verticil.shared.mechanisms.gaussian import analytic_sigma

N = 4_000_000
SIGMAS = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
TARGET = 2.0
KEY = bytes(range(32))


def figures() -> list[Figure]:
    """The tables of weights are made before, once for each sigma; how long that takes for the largest one is told besides."""
    found = []
    for sigma in SIGMAS:
        draw(KEY, b"", (1,), sigma)
        ours = N / 1e6 / cpu_seconds(lambda sigma=sigma: draw(KEY, b"x", (N,), sigma))
        found.append(
            Figure(
                name=f"discrete Gaussian noise, sigma {sigma:g}",
                ours=ours,
                target=f">= {TARGET:g}",
                unit="M draws / CPU s",
                met=ours >= TARGET,
            )
        )
    largest = iter(np.nextafter(SIGMAS[-1], 2 * SIGMAS[-1]) * np.array([1.0, 1.001, 1.002]))
    found.append(
        Figure(
            name=f"the weights of sigma {SIGMAS[-1]:g}",
            ours=cpu_seconds(lambda: draw(KEY, b"", (1,), float(next(largest)))),
        )
    )
    settings = iter([(1.0, 1e-9, 15), (2.0, 1e-9, 7), (0.5, 1e-6, 40)])
    found.append(Figure(name="calibration for T tables", ours=cpu_seconds(lambda: discrete_sigma(*next(settings)))))
    worst = max(
        discrete_sigma(epsilon, delta, n_tables)
        / analytic_sigma(epsilon, delta, sensitivity=float(np.sqrt(2 * n_tables)))
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0)
        for delta in (1e-6, 1e-9, 1e-12)
        for n_tables in (1, 4, 15, 100)
    )
    found.append(
        Figure(
            name="largest sigma over the continuous Gaussian's, epsilon .1 to 4, 1 to 100 tables",
            ours=worst,
            target="<= 1.02",
            unit="ratio",
            met=worst <= 1.02,
        )
    )
    return found
