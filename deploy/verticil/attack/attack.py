"""An attack on a mechanism: how it is drawn from, what it promises, and what was found.

Two halves of the draws: from the first the event is chosen (`events`), in the second it is counted. All tests of a run share the
error probability evenly, so with the run's confidence *no* lower bound of the run is above the true epsilon: a bound above the
claim breaks the claim, unless one of the runs in 1 / (1 - confidence) that may be wrong has been met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.attack.bounds import epsilon_at_least
from verticil.attack.events import Counts, Event, best_event
from verticil.shared.core.arrays import Floats
from verticil.shared.privacy.accounts import Cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attack:
    """A way to draw from one mechanism, and its claims.

    Attributes:
        mechanism: its name.
        over: what is fresh in each draw.
        inputs: in words, one for each row of the counts.
        claims: (epsilon, delta), of finite epsilon, each of which holds for every two inputs.
        draw: (generator, n) -> (H, M) counts of n draws under each input.
        words: an event's outcomes in words.
        documented: (H, M), probabilities of the outcomes as they are documented; None: events come from draws alone.
        weight: draws of this attack for each of the run's; it is small where a draw takes long.
        at_once: draws in one call of `draw`.
    """

    mechanism: str
    over: str
    inputs: tuple[str, ...]
    claims: tuple[Cost, ...]
    draw: Callable[[np.random.Generator, int], Counts]
    words: Callable[[NDArray[np.bool_]], str]
    documented: Floats | None = None
    weight: float = 1.0
    at_once: int = 50_000

    @property
    def tests(self) -> int:
        """How many events are tested at the most."""
        return len(self.claims) * (1 if self.documented is None else 2)

    def draws(self, n_draws: int) -> int:
        """Return the number of draws under each input, in each half, in a run of `n_draws` draws."""
        return max(round(n_draws * self.weight), 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an attack found of one claim.

    Attributes:
        mechanism, over: see `Attack`.
        epsilon, delta: what is claimed.
        at_least: the largest lower bound of epsilon at that delta.
        event: at which event, in words.
        happened: how often, under the first and under the second of its inputs.
        draws: under each input; as many again went into the choice of the event.
        holds: whether the bound is not above the claim.
    """

    mechanism: str
    over: str
    epsilon: float
    delta: float
    at_least: float
    event: str
    happened: tuple[int, int]
    draws: int
    holds: bool


def count_draws(
    attack: Attack, generator: np.random.Generator, draws: int, progress: Callable[[int], None] = lambda done: None
) -> Counts:
    """Return counts of fresh draws, (H, M).

    Args:
        attack: what is drawn from.
        generator: of the secrets.
        draws: under each input.
        progress: told how many draws have been made.
    """
    total: Counts | None = None
    n_done = 0
    while n_done < draws:
        here = min(attack.at_once, draws - n_done)
        counts = attack.draw(generator, here)
        total = counts if total is None else total + counts
        n_done += here
        progress(n_done)
    assert total is not None
    return total


def measure(
    attack: Attack,
    seed: np.random.SeedSequence,
    draws: int,
    error: float,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Measured]:
    """Measure what an attack finds of each claim.

    Args:
        attack: to be made.
        seed: of both halves.
        draws: under each input, in each half.
        error: of each test.
        progress: told how many draws have been made, of twice `draws`.
    """
    before, after = (np.random.default_rng(part) for part in seed.spawn(2))
    training_shares = count_draws(attack, before, draws, progress) / draws
    claim_events = [
        [
            event
            for shares in (training_shares, attack.documented)
            if shares is not None and (event := best_event(shares, draws, delta=claim.delta, error=error)) is not None
        ]
        for claim in attack.claims
    ]
    counts = count_draws(attack, after, draws, lambda done: progress(draws + done))
    return [
        _of_claim(attack, claim, events, counts, draws=draws, error=error)
        for claim, events in zip(attack.claims, claim_events, strict=True)
    ]


def _of_claim(
    attack: Attack, claim: Cost, events: Sequence[Event], counts: Counts, *, draws: int, error: float
) -> Measured:
    at_least, event_words, hits = 0.0, "none that would tell two inputs apart", (0, 0)
    for event in events:
        event_counts = event.count(counts)
        epsilon_bound = epsilon_at_least(*event_counts, draws, delta=claim.delta, error=error)
        if epsilon_bound >= at_least:
            pair = f"{attack.inputs[event.first]} against {attack.inputs[event.second]}"
            at_least, event_words, hits = epsilon_bound, f"{pair}: {attack.words(event.outcomes)}", event_counts
    return Measured(
        mechanism=attack.mechanism,
        over=attack.over,
        epsilon=claim.epsilon,
        delta=claim.delta,
        at_least=at_least,
        event=event_words,
        happened=hits,
        draws=draws,
        holds=at_least <= claim.epsilon,
    )
