"""Attacks: exact bounds, the choice of an event, and the command."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from verticil.attack import attack as attack_module
from verticil.attack import columns, noise, rows, run
from verticil.attack.attack import Attack, Measured, measure
from verticil.attack.bounds import epsilon_at_least, log_upper_tail, lower_bound, upper_bound, wilson
from verticil.attack.events import best_event
from verticil.cli.main import main
from verticil.party.protocol.peer.parameters import share_noise
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.privacy import epsilon
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts, plan_events
from verticil.shared.study.reading import read_study

CASES = [
    (successes, draws, error)
    for draws in (1, 2, 17, 1_000, 123_456, 30_000_000)
    for successes in sorted({0, 1, draws // 1000, draws // 3, draws // 2, draws - 1, draws})
    for error in (0.3, 0.01, 1e-9)
]


@pytest.mark.parametrize(("successes", "draws", "error"), CASES)
def test_bounds_are_clopper_pearsons_and_never_on_the_wrong_side(successes: int, draws: int, error: float) -> None:
    """scipy's beta quantiles are the oracle, to 1e-9 of themselves; a thousandth of the error is kept for rounding."""
    low, high = lower_bound(successes, draws, error), upper_bound(successes, draws, error)
    exact_low = stats.beta.ppf(error, successes, draws - successes + 1) if successes else 0.0
    exact_high = stats.beta.isf(error, successes + 1, draws - successes) if successes < draws else 1.0
    assert low <= exact_low * (1 + 1e-9)
    assert 1 - high <= (1 - exact_high) * (1 + 1e-9)
    spread = max(exact_high - exact_low, 1e-15)
    assert exact_low - low <= 2e-3 * spread
    assert high - exact_high <= 2e-3 * spread


def test_tails_against_whole_numbers() -> None:
    for draws, successes, share in ((5, 3, 0.4), (40, 30, 0.5), (200, 199, 0.7), (9, 9, 0.1)):
        exact = sum(math.comb(draws, k) * share**k * (1 - share) ** (draws - k) for k in range(successes, draws + 1))
        assert log_upper_tail(successes, draws, share) == pytest.approx(math.log(exact), abs=1e-12)


@pytest.mark.parametrize(
    ("successes", "draws", "error"), [(-1, 5, 0.1), (6, 5, 0.1), (0, 0, 0.1), (1, 5, 0.0), (1, 5, 1.0)]
)
def test_numbers_out_of_range_are_refused(successes: int, draws: int, error: float) -> None:
    with pytest.raises(ValueError, match="draws at an error"):
        lower_bound(successes, draws, error)


def test_epsilon_takes_delta_off_the_first_share_and_half_of_the_error_for_each() -> None:
    p, q = lower_bound(500, 1000, 0.005), upper_bound(100, 1000, 0.005)
    assert epsilon_at_least(500, 100, 1000, delta=0.1, error=0.01) == pytest.approx(math.log((p - 0.1) / q), rel=1e-12)
    assert epsilon_at_least(500, 100, 1000, delta=0.6, error=0.01) == 0
    assert epsilon_at_least(100, 500, 1000, delta=0.0, error=0.01) == 0


def test_wilson_is_the_set_of_shares_that_a_z_test_does_not_reject() -> None:
    shares = np.array([0.01, 0.5, 0.99])
    low, high = wilson(shares, 500, 3.0)
    for bound in (low, high):
        assert np.abs(shares - bound) / np.sqrt(bound * (1 - bound) / 500) == pytest.approx(3.0)
    assert (low < shares).all()
    assert (shares < high).all()
    edges = wilson(np.array([0.0, 1.0]), 500, 3.0)
    assert edges[0] == pytest.approx([0, 500 / 509], abs=1e-12)
    assert edges[1] == pytest.approx([9 / 509, 1], abs=1e-12)


def test_the_best_event_has_every_outcome_of_the_largest_loss() -> None:
    """Input 1 against 2: outcomes 0 and 3 are e times as frequent, nothing tells 0 and 1 apart better."""
    shares = np.array([[0.25, 0.25, 0.25, 0.25], [0.4, 0.1, 0.1, 0.4], [0.1, 0.4, 0.4, 0.1]])
    event = best_event(shares, 10_000, delta=0.0, error=1e-3)
    assert event is not None
    assert {event.first, event.second} == {1, 2}
    expected = [0, 3] if event.first == 1 else [1, 2]
    assert np.flatnonzero(event.outcomes).tolist() == expected
    counts = np.rint(shares * 100).astype(np.int64)
    assert event.count(counts) == (80, 20)


def test_the_best_event_depends_on_delta_and_on_the_draws() -> None:
    """A rare outcome of a large loss is for many draws; a delta as large as its share makes it worthless."""
    shares = np.array([[0.01, 0.6, 0.39], [0.0001, 0.3, 0.6999]])
    few, many = (best_event(shares, draws, delta=0.0, error=1e-3) for draws in (500, 1_000_000))
    with_delta = best_event(shares, 1_000_000, delta=0.02, error=1e-3)
    assert few is not None
    assert many is not None
    assert with_delta is not None
    assert few.outcomes.tolist() == with_delta.outcomes.tolist() == [True, True, False]
    assert many.outcomes.tolist() == [True, False, False]
    assert best_event(np.array([[0.5, 0.5], [0.5, 0.5]]), 1_000, delta=0.0, error=0.01) is None


# ---- what is attacked


def test_every_scheme_of_finite_epsilon_is_attacked_and_claims_are_the_accountants() -> None:
    study = read_study(columns.STUDY)
    own = {study.units[index].scheme for index in study.units_of(columns.PARTY)}
    assert own == {"symmetric", "binary", "matrix", "two-level", "subset"}
    assert any(study.units[index].is_compound for index in study.units_of(columns.PARTY))
    by_name = {attack.mechanism: attack for attack in columns.attacks()}
    for item in plan_events(study, columns.PARTY):
        assert item.unit is not None
        name = item.variables[0] if len(item.variables) == 1 else "compound"
        assert by_name[name].claims == (cost_of(item.event),)
        assert by_name[name].claims[0].epsilon == epsilon(study.units[item.unit].transition)
    assert by_name["asked-twice"].claims == by_name["symmetric-5"].claims
    assert by_name["another-matrix"].claims[0].epsilon == pytest.approx(2.5)


def test_the_documented_distribution_of_a_column_has_its_epsilon() -> None:
    for attack in columns.attacks():
        if attack.documented is None:
            continue
        assert attack.documented.sum(axis=1) == pytest.approx(1.0)
        ratios = attack.documented.max(axis=0) / attack.documented.min(axis=0)
        assert math.log(ratios.max()) == pytest.approx(attack.claims[0].epsilon, abs=1e-9)


def test_noise_is_claimed_at_its_event_and_on_its_curve() -> None:
    for mechanism in (*noise.mechanisms(), rows.mechanism()):
        for attack in noise.attacks_on(mechanism):
            own, *curve = attack.claims
            assert own == cost_of(mechanism.event)
            assert mechanism.curve(own.delta) == pytest.approx(own.epsilon, rel=1e-3)
            assert len(curve) == len(noise.PARTS)
            assert all(own.delta < claim.delta and 0 < claim.epsilon < own.epsilon for claim in curve)
            assert all(claim.epsilon == mechanism.curve(claim.delta) for claim in curve)


def test_a_person_with_all_rows_is_in_every_table_that_is_charged() -> None:
    """What is claimed for a person is for as many tables as two people, laid in slots, are told apart by."""
    study = read_study(rows.STUDY)
    event = rows.mechanism(study).event
    assert isinstance(event, DiscreteGaussianCounts)
    assert len(rows.moved_tables(study)) == event.tables == 32
    without, with_all = (column.tolist() for column in np.stack(list(rows.two_people(study).values())).T)
    assert with_all[study.schema.index("visits.rows")] == 3
    assert all(one != other for one, other in zip(without, with_all, strict=True))


def test_the_noise_that_is_attacked_is_that_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []

    def spied(key: bytes, *arguments: Any) -> Any:
        keys.append(key)
        return share_noise(key, *arguments)

    monkeypatch.setattr(noise, "share_noise", spied)
    over_cells, over_sites = noise.attacks_on(next(noise.mechanisms()))
    generator = np.random.default_rng(1)
    assert over_cells.draw(generator, 10).sum() == 20
    assert len(set(keys)) == len(keys) == 2  # other data, another key
    assert over_sites.draw(generator, 5).sum() == 10
    assert len(set(keys)) == len(keys) == 12


# ---- a run


def fake(name: str = "fake", claim: float = 1.0) -> Attack:
    """An epsilon of ln 1.5 = .405."""
    shares = np.array([[0.6, 0.4], [0.4, 0.6]])
    return Attack(
        mechanism=name,
        over="nothing",
        inputs=("yes", "no"),
        claims=(Cost(epsilon=claim),),
        draw=lambda generator, draws: np.array([generator.multinomial(draws, row) for row in shares]),
        words=lambda chosen: columns.name_outcomes(chosen, ("one", "other")),
        at_once=300,
    )


def test_the_draws_that_choose_the_event_are_not_those_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    honest = vars(attack_module)["best_event"]

    def spied(shares: np.ndarray, *arguments: Any, **named: Any) -> Any:
        seen.append(shares)
        return honest(shares, *arguments, **named)

    monkeypatch.setattr(attack_module, "best_event", spied)
    (found,) = measure(fake(), np.random.SeedSequence(3), 1_000, 0.01)
    assert len(seen) == 1
    before = [(round(1_000 * seen[0][row, k]), round(1_000 * seen[0][1 - row, k])) for row in (0, 1) for k in (0, 1)]
    assert found.happened not in before


def test_all_tests_of_a_run_share_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[float] = []

    def spied(*_: Any, delta: float, error: float) -> float:
        errors.append(error)
        return 0.0

    monkeypatch.setattr(attack_module, "epsilon_at_least", spied)
    documented = np.array([[1.0, 0.0], [0.5, 0.5]])
    made = [fake("one"), dataclasses.replace(fake("two"), documented=documented)]
    found = run.attack_epsilon(made, draws=1_000, confidence=0.97, seed=1)
    assert found.tests == 3
    assert errors == pytest.approx([0.01] * 3)


def test_a_run_can_be_repeated_and_another_seed_draws_anew() -> None:
    made = [fake("one"), fake("two")]
    one, same, other = (run.attack_epsilon(made, draws=1_000, seed=seed) for seed in (5, 5, 6))
    assert one == same
    assert one.claims != other.claims
    assert one.claims[0].happened != one.claims[1].happened


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[float] = []
    run.attack_epsilon([fake(), fake()], draws=1_000, seed=1, progress=lambda what, part: told.append(part))
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 1)


def test_an_unknown_mechanism_is_named_with_those_that_there_are() -> None:
    with pytest.raises(Misuse, match="no mechanism 'none'") as caught:
        run.attacks(["none"])
    assert "symmetric-5" in caught.value.hint


# ---- the command

QUICK = ("attack", "epsilon", "--mechanism", "symmetric-2", "--draws", "5000", "--seed", "1")


def test_the_command_prints_claims_beside_bounds_and_writes_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    assert main([*QUICK, "--json", str(file)]) == 0
    streams = capsys.readouterr()
    assert "symmetric-2" in streams.out
    assert "holds" in streams.out
    assert "symmetric-2, over people" in streams.err
    written = json.loads(file.read_text(encoding="utf-8"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["found.json"]
    assert (written["seed"], written["draws"], written["confidence"], written["broken"]) == (1, 5000, 0.999, [])
    assert [claim["over"] for claim in written["claims"]] == ["people", "site secrets"]
    assert set(written["claims"][0]) == {field.name for field in dataclasses.fields(Measured)}
    assert main([*QUICK, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == written


def test_a_file_that_is_there_is_refused_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "attack_epsilon", lambda *_, **__: pytest.fail("drawn"))
    file = tmp_path / "found.json"
    file.write_text("mine", encoding="utf-8")
    assert main([*QUICK, "--json", str(file)]) == 2
    assert file.read_text(encoding="utf-8") == "mine"
    assert main([*QUICK, "--json", str(tmp_path / "nowhere" / "found.json")]) == 2
    shown = capsys.readouterr().err
    assert "FILE_EXISTS" in shown
    assert "FILE_MISSING" in shown


@pytest.mark.parametrize(
    "wrong",
    [("--mechanism", "none"), ("--confidence", "1"), ("--confidence", "0.2"), ("--draws", "10"), ("--seed", "-1")],
)
def test_wrong_options_are_refused(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "epsilon", *wrong]) == 2
    assert "USAGE" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "attack_epsilon", interrupted)
    assert main([*QUICK, "--json", str(tmp_path / "found.json")]) == 130
    assert os.listdir(tmp_path) == []


def test_a_broken_claim_ends_with_exit_6_and_is_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "attacks", lambda _: (fake("sound", claim=1.0), fake("leaky", claim=0.1)))
    file = tmp_path / "found.json"
    assert main([*QUICK, "--json", str(file)]) == 6
    streams = capsys.readouterr()
    assert "CLAIM_BROKEN" in streams.err
    assert "leaky" in streams.err
    assert "BROKEN" in streams.out
    assert json.loads(file.read_text(encoding="utf-8"))["broken"] == ["leaky"]
    assert main([*QUICK, "--format", "json"]) == 6
    assert json.loads(capsys.readouterr().out)["broken"] == ["leaky"]


def test_what_is_shown_of_a_claim_never_flatters_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is rounded up and a lower bound down."""
    monkeypatch.setattr(run, "attacks", lambda _: (fake(claim=1.001),))
    monkeypatch.setattr(attack_module, "epsilon_at_least", lambda *_, **__: 0.7777)
    assert main(list(QUICK)) == 0
    shown = capsys.readouterr().out
    assert "1.01" in shown
    assert "0.77" in shown
    assert "0.78" not in shown
