"""Model I's numerics at one party, against dense computations and plain counts."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from verticil.party.protocol.peer.parameters import MAX_TABLE_CELLS, NANONATS, learn_families, learn_scores, share_noise
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.mechanisms.shared_statistics_noise import DISCRETE
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.document import ShareRule
from verticil.shared.study.peer import scored_pairs, shared_tables
from verticil.shared.study.unit import Unit

KEY = bytes(range(32))


def _learn(case, party, *, noise=None):
    dag = case.study.given_dag
    own, remote = case.columns(party, dag)
    return learn_families(own, remote, case.study, party, dag, noise=noise)


def _cell_counts(columns, n_states):
    return np.array(
        [
            np.logical_and.reduce([column == code for column, code in zip(columns, codes, strict=True)]).sum()
            for codes in itertools.product(*map(range, n_states))
        ],
        dtype=float,
    )


def test_a_local_family_is_a_plain_ratio_of_counts(peer_case, peer_study):
    case = peer_case(peer_study())
    families, marginals = _learn(case, "clinic")
    smoker = families[1]
    counts = _cell_counts([case.raw[0], case.raw[1]], (3, 2)).reshape(3, 2)
    np.testing.assert_allclose(smoker.estimate, counts / counts.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(marginals[1].estimate, counts.sum(axis=0) / 3000, rtol=1e-12)
    theta, n_j = smoker.estimate, counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(smoker.standard_error, np.sqrt(theta * (1 - theta) / n_j), rtol=1e-9)  # binomial
    assert [family.child for family in families] == [0, 1]
    assert np.isnan(marginals[0].model).all()


def test_only_the_remote_axes_of_a_cross_variable_are_inverted(peer_case, peer_study):
    """claims given (smoker, income), all parents remote and claims raw: (P_smoker x P_income x I)^-1, dense."""
    case = peer_case(peer_study())
    (claims, _), _ = _learn(case, "insurer")
    p = np.kron(
        np.kron(case.study.units[1].transition.probabilities, case.study.units[2].transition.probabilities), np.eye(3)
    )
    observed = _cell_counts([case.released[1], case.released[2], case.raw[4]], (2, 2, 3))
    inverse = np.linalg.inv(p)
    counts = observed @ inverse
    theta = counts.reshape(4, 3) / counts.reshape(4, 3).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(claims.estimate, theta, rtol=1e-9)
    # Total covariance in record form (Ma & Sivakumar, section 5; methods 1.2), and the delta method for a ratio.
    covariance = inverse.T @ np.diag(observed) @ inverse
    for j, k in itertools.product(range(4), range(3)):
        gradient = np.zeros(12)
        gradient[3 * j : 3 * j + 3] = ((np.arange(3) == k) - theta[j, k]) / counts.reshape(4, 3)[j].sum()
        assert claims.standard_error[j, k] == pytest.approx(math.sqrt(gradient @ covariance @ gradient), rel=1e-9)
    # A computation that inverts the own axis too is not this one.
    wrong = np.kron(np.kron(*[case.study.units[u].transition.probabilities for u in (1, 2)]),
                    case.study.units[4].transition.probabilities)  # fmt: skip
    other = (observed @ np.linalg.inv(wrong)).reshape(4, 3)
    assert np.abs(other / other.sum(axis=1, keepdims=True) - theta).max() > 0.05


def test_a_remote_compound_is_corrected_over_its_whole_domain(peer_case, peer_study):
    """income and region in one draw, read by the insurer for income alone: case (d) of the paper's section 5, dense."""
    study = peer_study()
    rows = np.random.default_rng(3).dirichlet(np.full(4, 0.5), size=4) * 0.4 + 0.6 * np.eye(4)
    compound = Unit(variables=("income", "region"), owner="registry", scheme="matrix", transition=quantize(rows))
    study = dataclasses.replace(study, units=(*study.units[:2], compound, *study.units[4:]))
    case = peer_case(study)
    (claims, _), _ = _learn(case, "insurer")
    observed = _cell_counts([case.released[1], case.released[2], case.raw[4]], (2, 4, 3))
    p = np.kron(np.kron(study.units[1].transition.probabilities, compound.transition.probabilities), np.eye(3))
    counts = (
        (observed @ np.linalg.inv(p)).reshape(2, 2, 2, 3).sum(axis=2).reshape(4, 3)
    )  # smoker, income, (region), claims
    np.testing.assert_allclose(claims.estimate, counts / counts.sum(axis=1, keepdims=True), rtol=1e-8)


def test_noise_comes_before_the_inverse_and_shares_from_the_noisy_table(peer_case, peer_study):
    study = peer_study(share=ShareRule(noise=DISCRETE, epsilon=2.0, delta=1e-6))
    case = peer_case(study)
    noise = share_noise(KEY, study, "insurer")
    assert noise.n_tables == 2
    (claims, plan), marginals = _learn(case, "insurer", noise=noise)
    observed = _cell_counts([case.released[1], case.released[2], case.raw[4]], (2, 2, 3)).reshape(2, 2, 3)
    received = b"".join(hashlib.sha256(case.released[unit].tobytes()).digest() for unit in (1, 2))
    noisy = noise.add(b"family" + (4).to_bytes(4, "big") + received, observed)
    p = np.kron(np.kron(study.units[1].transition.probabilities, study.units[2].transition.probabilities), np.eye(3))
    counts = (noisy.ravel() @ np.linalg.inv(p)).reshape(4, 3)
    theta = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(claims.estimate[~claims.unstable], theta[~claims.unstable], rtol=1e-8)
    shares = noisy.sum(axis=(0, 1))
    np.testing.assert_allclose(marginals[0].estimate, shares / shares.sum(), rtol=1e-9)
    true = np.bincount(case.raw[4], minlength=3)
    assert np.abs(shares - true).max() > 1e-6
    again, _ = _learn(case, "insurer", noise=noise)
    np.testing.assert_array_equal(again[1].probability, plan.probability)
    exact, exact_marginals = _learn(case, "insurer")
    assert (claims.standard_error[~claims.unstable] > exact[0].standard_error[~claims.unstable]).all()
    assert (marginals[0].standard_error > exact_marginals[0].standard_error).all()


def test_shares_of_few_people_under_much_noise_are_of_the_people_and_no_failure(peer_case, peer_study, monkeypatch):
    """The sum of noisy counts can be 0 or less; with a positive one shares are of that, as they always were."""
    study = peer_study(share=ShareRule(noise=DISCRETE, epsilon=2.0, delta=1e-6))
    case = peer_case(study)
    noise = share_noise(KEY, study, "insurer")
    seen: list[np.ndarray] = []
    honest = type(noise).add

    def unlucky(self, label, counts):
        seen.append(honest(self, label, counts) - 2 * len(case.raw[4]) / counts.size)
        return seen[-1]

    monkeypatch.setattr(type(noise), "add", unlucky)
    families, marginals = _learn(case, "insurer", noise=noise)
    assert seen[0].sum() < 0
    assert all(np.isfinite(family.probability).all() for family in families)
    np.testing.assert_allclose(marginals[0].estimate, seen[0].sum(axis=(0, 1)) / len(case.raw[4]), rtol=1e-9)


def test_a_share_has_the_noise_of_all_cells_that_were_added_up_for_it(peer_case, peer_study):
    """A share is summed over the four parent configurations of its noisy table: four times the noise of one cell."""
    study = peer_study(share=ShareRule(noise=DISCRETE, epsilon=0.3, delta=1e-6))
    noise = share_noise(KEY, study, "insurer")
    (claims, _), (share, _) = _learn(peer_case(study), "insurer", noise=noise)
    assert claims.probability.shape == (4, 3)
    sampling = 3000 * share.estimate * (1 - share.estimate)
    assert noise.variance > 0.5 * sampling.max()
    # The noisy number of records, by which the shares are taken, is within some percent of 3000.
    np.testing.assert_allclose((3000 * share.standard_error) ** 2, sampling + 4 * noise.variance, rtol=0.2)


def test_everything_that_leaves_is_computed_from_noisy_tables(peer_case, peer_study):
    """One record is moved, and noise makes up for it: nothing that is published tells the two data sets apart."""
    study = peer_study(share=ShareRule(noise=DISCRETE, epsilon=2.0, delta=1e-6))
    case = peer_case(study)
    noise = share_noise(KEY, study, "clinic")

    class Shifted(type(noise)):
        def add(self, label, counts):
            noisy = noise.add(label, counts)
            move = np.zeros(counts.shape)
            if label == b"family" + (0).to_bytes(4, "big"):
                move[code] -= 1
                move[(code + 1) % 3] += 1
            else:
                move[code, case.raw[1][0]] -= 1
                move[(code + 1) % 3, case.raw[1][0]] += 1
            return noisy - move

    moved = dataclasses.replace(case, raw={**case.raw, 0: case.raw[0].copy()})
    code = int(moved.raw[0][0])
    moved.raw[0][0] = (code + 1) % 3
    shifted = Shifted(**{field.name: getattr(noise, field.name) for field in dataclasses.fields(noise)})
    first, second = _learn(case, "clinic", noise=noise), _learn(moved, "clinic", noise=shifted)
    for ours, theirs in zip((*first[0], *first[1]), (*second[0], *second[1]), strict=True):
        for name in ("estimate", "standard_error", "interval_low", "interval_high"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for ours, theirs in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(ours.probability, theirs.probability)
        assert ours.projection == theirs.projection


def test_a_peer_that_sends_another_column_gets_other_noise(peer_case, peer_study):
    """All zeros, then all zeros but one: with the same noise the difference of two answers would be one person's value."""
    study = peer_study(share=ShareRule(noise=DISCRETE, epsilon=2.0, delta=1e-6))
    case = peer_case(study)
    noise = share_noise(KEY, study, "insurer")
    dag = study.given_dag
    own, remote = case.columns("insurer", dag)
    asked = []
    for first in (0, 1):
        column = np.zeros_like(remote[1])
        column[0] = first
        asked.append(learn_families(own, {**remote, 1: column}, study, "insurer", dag, noise=noise))
    (_, first_plan), (_, second_plan) = asked[0][0], asked[1][0]
    np.testing.assert_array_equal(first_plan.probability, second_plan.probability)  # local: nothing received is in it
    difference = np.abs(asked[0][1][0].estimate - asked[1][1][0].estimate)
    assert difference.max() > 1 / case.n_common  # shares of claims: another draw, not one moved record


def test_rare_cells_are_replaced(peer_case, peer_study):
    case = peer_case(peer_study(share=ShareRule(minimum_count=400)))
    (age, smoker), marginals = _learn(case, "clinic")
    counts = _cell_counts([case.raw[0], case.raw[1]], (3, 2)).reshape(3, 2)
    rare = counts < 400
    assert rare.any()
    assert not rare.all()
    assert (smoker.replaced >= rare).all()
    assert np.isnan(smoker.estimate[smoker.replaced]).all()
    np.testing.assert_allclose(smoker.probability.sum(axis=1), 1)
    assert age.replaced is not None
    assert np.isnan(marginals[1].estimate[np.bincount(case.raw[1], minlength=2) < 400]).all()


def test_a_subset_column_of_a_peer_is_read_as_sets(peer_case, peer_study):
    """claims given a remote column of nine categories released as sets; unbiased weights of Ye & Barg, dense."""
    from verticil.party.dataset.perturb import record_tags
    from verticil.party.dataset.subsets import select

    study = peer_study()
    labels = tuple(f"{k}" for k in range(9))
    schema = dataclasses.replace(
        study.schema,
        variables=tuple(
            dataclasses.replace(v, labels=labels) if v.name == "income" else v for v in study.schema.variables
        ),
    )
    channel = subset_selection(9, epsilon=1.0)
    units = tuple(
        dataclasses.replace(unit, scheme="subset", transition=channel) if unit.variables == ("income",) else unit
        for unit in study.units
    )
    study = dataclasses.replace(study, schema=schema, units=units)
    generator = np.random.default_rng(8)
    n = 4000
    raw = {v: generator.integers(0, schema[v].n_states, n).astype(np.uint8) for v in range(6)}
    tags = record_tags(bytes(32), map(str, range(n)))
    released = {1: raw[1], 2: select(generator.bytes(32), tags, raw[2], channel)}
    units = tuple(
        dataclasses.replace(u, scheme="none", transition=quantize(np.eye(2))) if u.variables == ("smoker",) else u
        for u in units
    )
    study = dataclasses.replace(study, units=units)
    dag = study.given_dag
    own = {4: raw[4], 5: raw[5]}
    (claims, _), _ = learn_families(own, released, study, "insurer", dag, noise=None)
    members = np.zeros((n, 9))
    members[np.repeat(np.arange(n), channel.size), released[2]] = 1
    weights = (members - channel.other) / (channel.keep - channel.other)
    counts = np.zeros((2, 9, 3))
    for s, k in itertools.product(range(2), range(3)):
        counts[s, :, k] = weights[(raw[1] == s) & (raw[4] == k)].sum(axis=0)
    expected = counts.reshape(18, 3)
    shown = ~claims.unstable
    theta = expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(claims.estimate[shown], theta[shown], rtol=1e-7)
    # With noise there is no such study: the counts of sets are fractions, which whole noise would leave in the open.
    noisy = dataclasses.replace(study, share=ShareRule(noise=DISCRETE, epsilon=1.0, delta=1e-6))
    with pytest.raises(ValueError, match="no whole numbers"):
        learn_families(own, released, noisy, "insurer", dag, noise=share_noise(KEY, noisy, "insurer"))


def test_scores_are_of_the_pairs_that_a_party_scores(peer_case, peer_study):
    study = _learned(peer_study())
    case = peer_case(study, n=6000)
    own, remote = case.columns("registry", None)
    scores = learn_scores(own, remote, study, "registry", noise=None)
    pairs = scored_pairs(study, "registry")
    assert pairs == ((2, 3), (2, 4), (2, 5), (3, 4), (3, 5))
    assert len(scores) == 5
    assert all(type(score) is int and score >= 0 for score in scores)


def _learned(study):
    rule = dataclasses.replace(study.structure, method="genetic", parents=None)
    return dataclasses.replace(study, structure=rule)


def test_a_score_of_two_own_columns_is_the_information_of_their_counts(peer_case, peer_study):
    """Two own columns that hang together: plug-in information less its bias (K_a - 1)(K_b - 1) / 2n, nothing inverted."""
    study = _learned(peer_study())
    case = peer_case(study, n=5000)
    raw = dict(case.raw)
    raw[2] = (np.arange(5000) % 2).astype(np.uint8)
    raw[3] = np.where(np.arange(5000) % 5 < 4, raw[2], 1 - raw[2]).astype(np.uint8)
    case = dataclasses.replace(case, raw=raw)
    own, remote = case.columns("registry", None)
    (score, *_) = learn_scores(own, remote, study, "registry", noise=None)
    joint = _cell_counts([raw[2], raw[3]], (2, 2)).reshape(2, 2) / 5000
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    information = float((joint * np.log(joint / product)).sum()) - 1 / (2 * 5000)
    assert score / NANONATS == pytest.approx(information, rel=1e-3)


def test_a_score_is_0_where_it_is_not_significant_over_all_pairs_of_the_study(peer_case, peer_study):
    """Fifteen pairs at .05 together: a pair at p = .01 scores nothing, one at p = .001 does."""
    study = _learned(peer_study())
    case = peer_case(study, n=4000)
    own, remote = case.columns("registry", None)

    def score(more: int) -> tuple[int, float]:
        """Of two halves that agree in `more` records beyond half of them, and the p-value of their table."""
        first = (np.arange(4000) % 2).astype(np.uint8)
        agree = np.arange(4000) // 2 < 1000 + more // 2
        columns = {2: first, 3: np.where(agree, first, 1 - first).astype(np.uint8)}
        table = _cell_counts([columns[2], columns[3]], (2, 2)).reshape(2, 2)
        chosen = learn_scores({**own, **columns}, remote, study, "registry", noise=None)
        return chosen[0], float(chi2_contingency(table, correction=False).pvalue)

    few, many = score(82), score(106)
    assert 0.05 / 15 < few[1] < 0.05
    assert many[1] < 0.05 / 15
    assert few[0] == 0
    assert many[0] > 0


def test_noisy_scores_are_sticky_and_differ_from_exact_ones(peer_case, peer_study):
    study = dataclasses.replace(_learned(peer_study()), share=ShareRule(noise=DISCRETE, epsilon=4.0, delta=1e-6))
    case = peer_case(study, n=6000)
    raw = {**case.raw, 1: (case.raw[0] > 0).astype(np.uint8)}
    case = dataclasses.replace(case, raw=raw)
    own, remote = case.columns("clinic", None)
    noise = share_noise(KEY, study, "clinic")
    assert noise.n_tables == shared_tables(study, "clinic") == 2 + len(scored_pairs(study, "clinic"))
    first = learn_scores(own, remote, study, "clinic", noise=noise)
    assert first == learn_scores(own, remote, study, "clinic", noise=noise)
    assert first != learn_scores(own, remote, study, "clinic", noise=None)
    assert first[0] > 0


def test_what_does_not_fit_is_refused(peer_case, peer_study):
    study = peer_study()
    case = peer_case(study)
    dag = study.given_dag
    own, remote = case.columns("insurer", dag)
    with pytest.raises(ValueError, match="own columns"):
        learn_families({4: own[4]}, remote, study, "insurer", dag, noise=None)
    with pytest.raises(ValueError, match="shape"):
        learn_families(own, {**remote, 1: remote[1][:-1]}, study, "insurer", dag, noise=None)
    with pytest.raises(ValueError, match="own, expected units of its peers"):
        learn_families(own, {**remote, 4: own[4]}, study, "insurer", dag, noise=None)
    with pytest.raises(ValueError, match=r"."):
        learn_families(own, {}, study, "insurer", dag, noise=None)
    empty = {v: codes[:0] for v, codes in own.items()}
    with pytest.raises(DataFault, match="no common record"):
        learn_families(empty, {}, study, "insurer", dag, noise=None)


def test_a_table_that_no_memory_holds_is_refused(peer_study):
    study = peer_study()
    schema = dataclasses.replace(
        study.schema,
        variables=tuple(
            dataclasses.replace(v, labels=tuple(f"{v.name}{k}" for k in range(300))) for v in study.schema.variables
        ),
    )
    units = (
        tuple(dataclasses.replace(unit, transition=quantize(symmetric(300, epsilon=2.0))) for unit in study.units[:1])
        + study.units[1:]
    )
    study = dataclasses.replace(study, schema=schema, units=units)
    columns = {v: np.zeros(10, dtype=np.uint16) for v in (0, 1)}
    study = dataclasses.replace(
        study,
        schema=dataclasses.replace(
            schema, variables=tuple(dataclasses.replace(v, owner="clinic") for v in schema.variables[:4]) + schema.variables[4:]
        ),
    )  # fmt: skip
    columns = {v: np.zeros(10, dtype=np.uint16) for v in range(4)}
    dag = Dag(parents=((), (), (), (0, 1, 2), (), ()))
    assert MAX_TABLE_CELLS < 300**4
    with pytest.raises(DataFault, match="8100000000 cells"):
        learn_families(columns, {}, study, "clinic", dag, noise=None)


def test_noise_that_is_too_large_is_the_study_s_mistake(peer_study):
    study = peer_study(share=ShareRule(noise=DISCRETE, epsilon=1e-5, delta=1e-9))
    with pytest.raises(Misuse, match="noise of") as caught:
        share_noise(KEY, study, "clinic")
    assert caught.value.code == "STUDY_UNSUPPORTED"
    assert share_noise(KEY, peer_study(), "clinic") is None


def test_an_estimator_that_gives_no_probabilities_is_named(peer_case, peer_study):
    """claims given two remote columns of 40 people: the inverse has negative cells."""
    study = peer_study()
    study = dataclasses.replace(study, parameters=dataclasses.replace(study.parameters, estimator="inverse"))
    case = peer_case(study, n=40, seed=3)
    with pytest.raises(DataFault, match=r"variable 'claims'.*negative") as caught:
        _learn(case, "insurer")
    assert caught.value.code == "LEARNING_FAILED"


def test_a_party_between_peers_adds_the_study_s_dirichlet_prior(peer_case, peer_study):
    """A huge alpha makes the probabilities its own, whatever was counted."""
    study = peer_study()
    rule = dataclasses.replace(study.parameters, estimator="inverse", prior="dirichlet", prior_count=1e6)
    case = peer_case(dataclasses.replace(study, parameters=rule), n=40, seed=3)
    families, _ = _learn(case, "insurer")
    for family in families:
        np.testing.assert_allclose(family.probability, 1 / family.probability.shape[1], atol=1e-3)
