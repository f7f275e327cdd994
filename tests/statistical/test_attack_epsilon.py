"""The attacks find no claim broken that holds, and find mechanisms that lose 10 % more than is claimed, and planted bugs.

Null: every claim holds. A run's confidence is 1 - 1e-6, so an honest product fails here with a probability of at most 1e-6 for a
random seed; the seeds are fixed. Draws are chosen by a power calculation (`draws_needed`), not by looking at the outcome: a loss
10 % above the claim (of noise: a standard deviation 10 % too small) is found with a probability of at least .999.

An hour of CPU time: pytest -m slow tests/statistical/test_attack_epsilon.py
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from verticil.attack import columns, layers, noise, rows
from verticil.attack.attack import Attack, count_draws
from verticil.attack.events import best_event
from verticil.attack.run import DEFAULT_DRAWS, attack_epsilon, attacks
from verticil.party.dataset import perturb
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts
from verticil.shared.privacy.layered import layered_counts
from verticil.shared.study import tables
from verticil.shared.study.reading import read_study, read_study_text

CONFIDENCE = 1 - 1e-6
SURE = 0.999
LEAK = 1.1
SEED = 20
EVERY = {(attack.mechanism, attack.over): attack for attack in attacks()}
NOISE = {mechanism.name: mechanism for mechanism in (*noise.mechanisms(), rows.mechanism())}
QUICK = [key for key in EVERY if key[1] != "site secrets"]
"""Where draws are quick."""


def leaking(attack: Attack, leak: float = LEAK) -> Attack:
    """The attack on a mechanism that loses more than it claims: draws are what they are, the claim is of less."""
    if attack.mechanism not in NOISE:
        return dataclasses.replace(
            attack, claims=tuple(Cost(epsilon=claim.epsilon / leak, delta=0.0) for claim in attack.claims)
        )
    mechanism = NOISE[attack.mechanism]
    claims = (
        attack.claims[0],
        *(Cost(epsilon=less(mechanism, leak)(claim.delta), delta=claim.delta) for claim in attack.claims[1:]),
    )
    return dataclasses.replace(attack, claims=claims)


def less(mechanism: noise.Mechanism, leak: float) -> Callable[[float], float]:
    """The curve of noise whose standard deviation is larger by a factor."""
    assert isinstance(mechanism.event, DiscreteGaussianCounts)
    return noise.curve_of(dataclasses.replace(mechanism.event, sigma=mechanism.event.sigma * leak))


def power(attack: Attack, draws: int, error: float) -> float:
    """Probability that the best documented event breaks one of the claims, at least, by the normal approximation.

    The bounds are c standard deviations from the two shares, c the normal quantile of half of the error; the logarithm of their
    ratio deviates by what the shares do. A tenth more is asked for than that, for the approximation.
    """
    assert attack.documented is not None
    c = -NormalDist().inv_cdf(error / 2)
    best = 0.0
    for claim in attack.claims:
        event = best_event(attack.documented, draws, delta=claim.delta, error=error)
        if event is None:
            continue
        p = float(attack.documented[event.first][event.outcomes].sum())
        q = float(attack.documented[event.second][event.outcomes].sum())
        of_p, of_q = math.sqrt(p * (1 - p) / draws) / (p - claim.delta), math.sqrt((1 - q) / q / draws)
        excess = math.log((p - claim.delta) / q) - claim.epsilon - 1.1 * c * (of_p + of_q)
        best = max(best, NormalDist().cdf(excess / math.hypot(of_p, of_q)))
    return best


def draws_needed(attack: Attack, error: float) -> int:
    """A power of two times 1,000: the first with enough power."""
    draws = 1_000
    while power(attack, draws, error) < SURE:
        draws *= 2
        assert draws < 10_000_000
    return draws


def against(attack: Attack, leaky: Attack, draws: int) -> tuple[bool, bool]:
    """Whether the claims of an attack hold, and whether one of those that are too small is broken, by the same draws."""
    both = dataclasses.replace(attack, claims=attack.claims + leaky.claims, weight=1.0)
    found = attack_epsilon([both], draws=draws, confidence=CONFIDENCE, seed=SEED).claims
    own, small = found[: len(attack.claims)], found[len(attack.claims) :]
    return all(claim.holds for claim in own), not all(claim.holds for claim in small)


def broken(attack: Attack, draws: int, seed: int = SEED) -> bool:
    """Whether a run of one attack, with so many draws of its own, finds a broken claim."""
    alone = dataclasses.replace(attack, weight=1.0)
    return bool(attack_epsilon([alone], draws=draws, confidence=CONFIDENCE, seed=seed).broken)


def test_no_claim_is_broken() -> None:
    found = attack_epsilon(list(EVERY.values()), draws=20_000, confidence=CONFIDENCE, seed=SEED)
    assert found.broken == ()
    assert len(found.claims) == sum(len(attack.claims) for attack in EVERY.values())
    # Not by finding nothing: every column is known to lose at least half of what is claimed.
    for claim in found.claims:
        if claim.over == "people":
            assert claim.at_least > claim.epsilon / 2, claim


@pytest.mark.whole
@pytest.mark.parametrize("key", QUICK, ids=" over ".join)
def test_a_loss_ten_percent_above_the_claim_is_found(key: tuple[str, str]) -> None:
    """The claim as it is and one that is too small are held against the same draws."""
    attack, leaky = EVERY[key], leaking(EVERY[key])
    draws = draws_needed(leaky, (1 - CONFIDENCE) / (2 * attack.tests))
    assert against(attack, leaky, draws) == (True, True)


def test_what_is_documented_is_what_is_drawn() -> None:
    """Power rests on it. 60 comparisons of at most 1e-9 each."""
    for key in QUICK:
        attack = EVERY[key]
        assert attack.documented is not None
        shares = count_draws(attack, np.random.default_rng(SEED), 20_000) / 20_000
        event = best_event(attack.documented, 20_000, delta=0.0, error=0.01)
        assert event is not None
        for row in (event.first, event.second):
            expected = float(attack.documented[row][event.outcomes].sum())
            deviation = math.sqrt(expected * (1 - expected) / 20_000)
            assert abs(float(shares[row][event.outcomes].sum()) - expected) < 7 * deviation, key


# ---- planted bugs of the code that is attacked: each must be found, by the attack that is there for it


def test_noise_that_two_people_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id is left out: everybody with the same value gets the same released value."""
    honest = vars(columns)["record_tags"]
    monkeypatch.setattr(columns, "record_tags", lambda key, ids: np.repeat(honest(key, ["1"]), len(list(ids)), axis=0))
    assert broken(EVERY["two-people", "site secrets"], 1_000)


def test_noise_that_does_not_come_from_the_site_secret_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tags, key = vars(columns)["record_tags"], perturb.unit_key
    monkeypatch.setattr(columns, "record_tags", lambda _, ids: tags(bytes(32), ids))
    monkeypatch.setattr(perturb, "unit_key", lambda _, **names: key(bytes(32), **names))
    assert broken(EVERY["symmetric-5", "site secrets"], 1_000)


@pytest.mark.whole
def test_noise_that_is_drawn_anew_for_each_study_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    monkeypatch.setattr(perturb, "unit_key", lambda _, **names: generator.bytes(32))
    assert broken(EVERY["asked-twice", "site secrets"], 3_000)


@pytest.mark.whole
def test_noise_that_two_matrices_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    key = perturb.unit_key
    monkeypatch.setattr(
        perturb,
        "unit_key",
        lambda secret, **names: key(secret, **{**names, "transition_digest": bytes(32)}),
    )
    assert broken(EVERY["another-matrix", "site secrets"], 4_000)


def test_noise_that_two_tables_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = vars(noise)["share_noise"]

    class Unlabelled:
        def __init__(self, *arguments: object) -> None:
            self.noise = made(*arguments)

        def add(self, label: bytes, counts: np.ndarray) -> np.ndarray:
            return self.noise.add(b"same", counts)

    monkeypatch.setattr(noise, "share_noise", Unlabelled)
    assert broken(EVERY["share-discrete-1", "site secrets"], 500)


def test_a_bound_for_each_row_in_place_of_each_person_is_found() -> None:
    """Noise and claim are of people with one visit, and the person that is attacked has three."""
    study = read_study(rows.STUDY)
    one_row = read_study_text(
        rows.STUDY.read_text(encoding="utf-8").replace("max_rows = 3", "max_rows = 1"), rows.STUDY
    )
    planted = dataclasses.replace(rows.mechanism(one_row), n_tables=len(rows.moved_tables(study)))
    (over_cells, _) = noise.attacks_on(planted)
    assert broken(over_cells, 5_000)
    (honest, _) = noise.attacks_on(rows.mechanism(study))
    assert not broken(honest, 5_000)


@pytest.mark.slow
def test_a_profile_that_is_not_charged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the budget measures the profiles, and the event names the tables alone: they cost more than it says."""
    monkeypatch.setattr(tables, "PROFILE_PART", 0.9)
    study = read_study(layers.STUDY)
    assert study.tables is not None
    study = dataclasses.replace(study, tables=dataclasses.replace(study.tables, epsilon=12.0))
    honest = layered_counts(study)
    without = dataclasses.replace(honest, profile_sigma=None, profiles=0)
    assert broken(layers.attack_on(study, without), 300)
    assert not broken(layers.attack_on(study, honest), 150)


# ---- the bounds themselves


@pytest.mark.whole
def test_false_alarms_are_as_rare_as_stated() -> None:
    """600 runs against a claim that is exactly true, at a confidence of .9: 60 or fewer false alarms are expected.

    More than 100 would be seen with a probability of 1e-6 were it exactly 60.
    """
    epsilon = 1.0
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    shares = np.array([[keep, 1 - keep], [1 - keep, keep]])
    exact = Attack(
        mechanism="exact",
        over="nothing",
        inputs=("a", "b"),
        claims=(Cost(epsilon=epsilon),),
        draw=lambda generator, draws: np.array([generator.multinomial(draws, row) for row in shares]),
        words=lambda chosen: str(chosen),
        at_once=10_000,
    )
    alarms = sum(bool(attack_epsilon([exact], draws=2_000, confidence=0.9, seed=seed).broken) for seed in range(600))
    assert alarms <= 100
    # Not because such a run sees nothing: a claim that is too small by a sixth is found by each of 20.
    above = dataclasses.replace(exact, claims=(Cost(epsilon=epsilon / 1.2),))
    assert sum(bool(attack_epsilon([above], draws=8_000, confidence=0.9, seed=seed).broken) for seed in range(20)) == 20


# ---- the long form


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("key", EVERY, ids=" over ".join)
def test_an_hour_of_attacks_breaks_no_claim_and_finds_a_smaller_leak(key: tuple[str, str]) -> None:
    """Sixty times the default. Over people and cells a leak of 5 % is found; else one of 10 %, where there is power for it."""
    attack, leaky = EVERY[key], leaking(EVERY[key], 1.05 if key in QUICK else LEAK)
    draws = attack.draws(60 * DEFAULT_DRAWS)
    error = (1 - CONFIDENCE) / (2 * attack.tests)
    enough = attack.documented is None or power(leaky, draws, error) >= SURE
    assert enough or key not in QUICK
    held, found = against(attack, leaky, draws)
    assert held
    assert found or not enough
