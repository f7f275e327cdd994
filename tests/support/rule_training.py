"""Records of three columns with a rule that holds in them, and what a training of a generator on them is."""

from __future__ import annotations

import numpy as np

from verticil.gan.accounting import GeneratorTraining, training_for
from verticil.gan.settings import AnySettings
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.model.schema import Schema, Variable

N = 3000
SCHEMA = Schema(
    variables=tuple(
        Variable(name=name, owner="a", labels=tuple(map(str, range(size))))
        for name, size in (("a", 3), ("b", 3), ("c", 2))
    )
)
ZERO = Condition(variable="a", values=("0",))
KNOWN = Knowledge(rules=(Rule(name="a 0 has b 0", when=(ZERO,), then=(Condition(variable="b", values=("0",)),)),))
KEY = bytes(range(32))


def people() -> list[np.ndarray]:
    """Return records of which half have a = 0, and then b = 0; else b is a coin of three."""
    draw = np.random.default_rng(8)
    a = np.where(draw.random(N) < 0.5, 0, draw.integers(1, 3, N))
    return [
        column.astype(np.uint8) for column in (a, np.where(a == 0, 0, draw.integers(0, 3, N)), draw.integers(0, 2, N))
    ]


def event_of(settings: AnySettings, *, steps: int | None = None) -> GeneratorTraining:
    """Return the event of a training on these records."""
    steps = settings.steps if steps is None else steps
    return training_for(5.0, 1e-6, steps=steps, rate=settings.rate(N), tables=3)
