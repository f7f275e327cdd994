"""A run: every attack on some mechanisms, and what came of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from verticil.attack import columns, layers, noise, rows
from verticil.attack.attack import Attack, Measured, measure
from verticil.shared.core.errors import Misuse

DEFAULT_DRAWS = 300_000
DEFAULT_CONFIDENCE = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResults:
    """What a run found, as it is written to its file.

    Attributes:
        seed: of all draws; the same seed, version and options find the same.
        draws: that were asked for; each claim has its own number.
        confidence: that no lower bound of the run is above the true epsilon.
        tests: among which the rest of it was divided.
        claims: all that were attacked.
        broken: mechanisms with a claim that does not hold.
    """

    seed: int
    draws: int
    confidence: float
    tests: int
    claims: tuple[Measured, ...]
    broken: tuple[str, ...]


def attacks(mechanisms: Sequence[str] = ()) -> tuple[Attack, ...]:
    """Return every attack on the named mechanisms, or on all.

    Raises:
        Misuse: USAGE, there is no mechanism of a name.
    """
    every = tuple(itertools.chain(columns.attacks(), noise.attacks(), rows.attacks(), layers.attacks()))
    names = list(dict.fromkeys(attack.mechanism for attack in every))
    for name in mechanisms:
        if name not in names:
            raise Misuse("USAGE", f"no mechanism '{name}'", hint=f"known are {', '.join(names)}")
    return tuple(attack for attack in every if not mechanisms or attack.mechanism in mechanisms)


def attack_epsilon(
    attack_list: Sequence[Attack],
    *,
    draws: int = DEFAULT_DRAWS,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int,
    progress: Callable[[str, float], None] = lambda what, part: None,
) -> AttackResults:
    """Make attacks.

    Args:
        attack_list: the attacks.
        draws: under each input, in each half, where a draw is quick.
        confidence: that no lower bound of the run is above the true epsilon; above 0, below 1.
        seed: at least 0.
        progress: told the attack, and which part of the whole run has been done.
    """
    tests = sum(attack.tests for attack in attack_list)
    error = (1 - confidence) / tests
    results: list[Measured] = []
    for number, (attack, own) in enumerate(
        zip(attack_list, np.random.SeedSequence(seed).spawn(len(attack_list)), strict=True)
    ):
        here = attack.draws(draws)
        what = f"{attack.mechanism}, over {attack.over}"

        def report(n_done: int, what: str = what, number: int = number, of: int = 2 * here) -> None:
            progress(what, (number + n_done / of) / len(attack_list))

        report(0)
        results += measure(attack, own, here, error, report)
    return AttackResults(
        seed=seed,
        draws=draws,
        confidence=confidence,
        tests=tests,
        claims=tuple(results),
        broken=tuple(dict.fromkeys(claim.mechanism for claim in results if not claim.holds)),
    )
