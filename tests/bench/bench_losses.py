"""Composition of privacy losses: speed, and 100 random compositions against dp-accounting 0.6.0.

dp-accounting runs in an environment of its own: ``run.py --dp-accounting`` makes one in the user's cache by ``python -m venv``
and ``pip install dp-accounting==0.6.0``, ``--dp-accounting-python`` names one; without either those figures are not run.

The compositions are drawn with a fixed seed: 1 to 10,000 events of 1 to 4 kinds (randomized response, Gaussian and discrete
Gaussian noise), the sum's standard deviation 0.3 to 3, delta 1e-5, 1e-7 or 1e-9. Theirs says two numbers of each: an optimistic
epsilon, never above the truth, and a pessimistic one, never below it (by their connecting of the dots where they have it, so for
noise). Their step is as fine as keeps the two near each other: 0.3 % of epsilon over the number of events, but no more than four
million cells. Ours must never be below the optimistic one, and at most 1 % above. Where ours is below their pessimistic one it is
the closer of two upper bounds; how often that is so is told.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, cpu_seconds, not_run
from other_environment import interpreter

from verticil.shared.mechanisms import loss
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, GaussianLoss, Loss, PureLoss, epsilon_at

VERSION = "0.6.0"
N_COMPOSITIONS = 100
CELLS = 2**22
BOUNDS = "dp-accounting: above its optimistic epsilon, at the least", ">= 0"
CLOSE = "dp-accounting: above its optimistic epsilon, at the most", "<= 1"
TIME = "dp-accounting: CPU seconds of all of them together", "-"

# Runs in the other environment: compositions in, their two numbers and CPU seconds out, a line each.
THEIRS = """
import json, math, sys, time
from dp_accounting.pld import privacy_loss_distribution as pld

def one(kind, value, step, pessimistic):
    if kind == "PureLoss":
        return pld.from_randomized_response(
            2 / (1 + math.exp(value)), 2, pessimistic_estimate=pessimistic, value_discretization_interval=step)
    make = pld.from_gaussian_mechanism if kind == "GaussianLoss" else pld.from_discrete_gaussian_mechanism
    return make(1 / value if kind == "GaussianLoss" else value, pessimistic_estimate=pessimistic,
                value_discretization_interval=step, use_connect_dots=pessimistic)

for line in sys.stdin:
    kinds, step, delta = json.loads(line)
    found = []
    for pessimistic in (False, True):
        start = time.process_time()
        whole = None
        for kind, value, times in kinds:
            part = one(kind, value, step, pessimistic)
            part = part.self_compose(times) if times > 1 else part
            whole = part if whole is None else whole.compose(part)
        found += [whole.get_epsilon_for_delta(delta), time.process_time() - start]
    print(json.dumps(found), flush=True)
"""


def compositions() -> Iterator[tuple[Counter[Loss], float]]:
    """The losses and delta of each."""
    draw = random.Random(13)
    for _ in range(N_COMPOSITIONS):
        n = round(10 ** draw.uniform(0, 4))
        deviation = math.exp(draw.uniform(math.log(0.3), math.log(3)))
        shares = [draw.random() + 0.01 for _ in range(min(n, draw.randint(1, 4)))]
        losses: Counter[Loss] = Counter()
        for share in shares:
            times = max(1, n // len(shares))
            each = deviation * math.sqrt(share / sum(shares) / times)
            kind = draw.choice(("pure", "gaussian", "discrete"))
            if kind == "pure":
                losses[PureLoss(epsilon=each)] += times
            elif kind == "gaussian":
                losses[GaussianLoss(mu=each)] += times
            else:
                losses[DiscreteGaussianLoss(sigma=max(1 / each, 0.5))] += times
        yield losses, draw.choice((1e-5, 1e-7, 1e-9))


def environment(asked: str) -> Path:
    """The interpreter of the other environment; ``make`` makes it where it is not there."""
    return interpreter("dp-accounting", f"dp-accounting=={VERSION}") if asked == "make" else Path(asked)


def fresh(losses: Counter[Loss], delta: float) -> float:
    """Without what is remembered of the call before."""
    loss._epsilon_at.cache_clear()
    return epsilon_at(losses, delta)


def speed() -> Iterator[Figure]:
    """Compositions of the sizes that a ledger can hold."""
    draw = random.Random(1)
    cases: dict[str, Counter[Loss]] = {
        "10,000 equal events, discrete Gaussian": Counter({DiscreteGaussianLoss(sigma=100): 10_000}),
        "10,000 events of four kinds": Counter(
            {
                PureLoss(epsilon=0.01): 4000,
                PureLoss(epsilon=0.02): 1000,
                DiscreteGaussianLoss(sigma=100): 4000,
                GaussianLoss(mu=0.01): 1000,
            }
        ),
        "300 events, all different": Counter(
            [PureLoss(epsilon=draw.uniform(0.01, 0.5)) for _ in range(150)]
            + [DiscreteGaussianLoss(sigma=draw.uniform(3, 300)) for _ in range(150)]
        ),
    }
    for name, losses in cases.items():
        seconds = cpu_seconds(lambda losses=losses: fresh(losses, 1e-9), repeats=3)
        yield Figure(name=f"compose {name}", ours=seconds, target="< 2", met=seconds < 2)


def figures() -> Iterator[Figure]:
    """Speed, then the comparison."""
    yield from speed()
    asked = os.environ.get("VERTICIL_DP_ACCOUNTING")
    if asked is None:
        why = "needs an environment with dp-accounting: --dp-accounting or --dp-accounting-python PATH"
        yield not_run(BOUNDS[0], target=BOUNDS[1], unit="%", why=why)
        yield not_run(CLOSE[0], target=CLOSE[1], unit="%", why=why)
        return
    given = list(compositions())
    lines: list[str] = []
    ours: list[float] = []
    start = time.process_time()
    for losses, delta in given:
        ours.append(fresh(losses, delta))
    seconds = time.process_time() - start
    for (losses, delta), epsilon in zip(given, ours, strict=True):
        kinds = [(type(one).__name__, _number(one), times) for one, times in losses.items()]
        deviation = math.sqrt(sum(times * _deviation(one) ** 2 for one, times in losses.items()))
        step = max(0.003 * epsilon / losses.total(), 20 * deviation / CELLS)
        lines.append(json.dumps([kinds, step, delta]))
    run = subprocess.run(
        [str(environment(asked)), "-W", "ignore", "-c", THEIRS],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    theirs = [json.loads(line) for line in run.stdout.splitlines()]
    over = [epsilon / low for epsilon, (low, _, _, _) in zip(ours, theirs, strict=True)]
    below = [epsilon / high for epsilon, (_, _, high, _) in zip(ours, theirs, strict=True)]
    least, most = (100 * (found - 1) for found in (min(over), max(over)))
    yield Figure(name=BOUNDS[0], ours=least, target=BOUNDS[1], unit="%", met=least >= -1e-7)
    told = f"{len(over)} compositions; over their pessimistic one {min(below):.6f} to {max(below):.6f} times, "
    told += f"below it in {sum(found < 1 - 1e-9 for found in below)}"
    yield Figure(name=CLOSE[0], ours=most, target=CLOSE[1], unit="%", met=most <= 1, note=told)
    spent = sum(line[3] for line in theirs)
    note = f"dp-accounting {VERSION}, its pessimistic estimate alone, at the step that the comparison needs"
    yield Figure(name=TIME[0], ours=seconds, reference=spent, ratio=spent / seconds, target=TIME[1], note=note)


def _number(one: Loss) -> float:
    return (
        one.sigma if isinstance(one, DiscreteGaussianLoss) else one.mu if isinstance(one, GaussianLoss) else one.epsilon
    )


def _deviation(one: Loss) -> float:
    return 1 / one.sigma if isinstance(one, DiscreteGaussianLoss) else _number(one)
