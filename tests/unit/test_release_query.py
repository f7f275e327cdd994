"""Asking a release: probabilities against the whole joint table, intervals against closed forms and how often they hold."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.releases import random_mixture, random_network, random_records
from verticil.cli.main import main
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.numerics.model.elimination import derivatives
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.drawing import ReleaseModels, open_models
from verticil.shared.release.formats import model_json
from verticil.shared.release.query import QueryAnswer, query

PARENTS = ((), (0,), (0, 1), (), (2, 3))
STATES = (2, 3, 2, 2, 3)
VARIABLES = tuple(
    Variable(name=f"v{place}", owner="a", labels=tuple(f"c{code}" for code in range(k)))
    for place, k in enumerate(STATES)
)


def whole_table(network: Network) -> np.ndarray[Any, Any]:
    table = np.zeros(network.schema.n_states)
    for codes in itertools.product(*map(range, network.schema.n_states)):
        probability = 1.0
        for child, family in enumerate(network.families):
            sizes = [network.schema.n_states[p] for p in family.parents]
            row = np.ravel_multi_index([codes[p] for p in family.parents], sizes) if sizes else 0
            probability *= family.probability[row, codes[child]]
        table[codes] = probability
    return table


def at(table: np.ndarray[Any, Any], target: int, evidence: dict[int, int]) -> np.ndarray[Any, Any]:
    """P(target = k, evidence) of the whole table."""
    for variable, code in evidence.items():
        mask = np.zeros(table.shape[variable])
        mask[code] = 1
        table = table * mask.reshape([-1 if v == variable else 1 for v in range(table.ndim)])
    return np.asarray(table.sum(axis=tuple(v for v in range(table.ndim) if v != target)))


def models_of(network: Network, content: ReleaseContent, joint: JointModel | None = None) -> ReleaseModels:
    """Models without published shares of categories."""
    context = model_json.ModelContext(
        study=content.study, study_digest="ab" * 32, effective_digest=content.effective_digest, n_common=400,
        search=content.search, simulation=True,
    )  # fmt: skip
    document = model_json.write(network, (), context)
    return ReleaseModels(folder=Path("none"), document=document, network=network, joint=joint, study=None)


def labelled(evidence: dict[int, int]) -> dict[str, object]:
    return {f"v{variable}": f"c{code}" for variable, code in evidence.items()}


def probabilities(answer: QueryAnswer) -> list[float]:
    return [share.probability for share in answer.shares]


@pytest.mark.parametrize(
    ("target", "evidence"),
    [(0, {}), (4, {}), (0, {4: 1}), (1, {4: 2, 3: 0}), (4, {0: 1, 1: 2}), (2, {0: 0, 1: 1}), (3, {0: 1, 4: 0, 2: 1})],
)
def test_probabilities_and_derivatives_are_those_of_the_whole_table(
    release_content: ReleaseContent, target: int, evidence: dict[int, int]
) -> None:
    network = random_network(VARIABLES, PARENTS, rounded=False)
    together = at(whole_table(network), target, evidence)
    answer = query(models_of(network, release_content), f"v{target}", labelled(evidence))
    assert probabilities(answer) == pytest.approx(list(together / together.sum()), abs=1e-12)
    assert answer.given_probability == pytest.approx(together.sum(), abs=1e-12)
    assert answer.source == "network"
    found, slopes = derivatives(network, target, evidence)
    assert found == pytest.approx(together, abs=1e-12)
    for child, slope in slopes.items():  # a network without one parameter: the table is linear in it
        for row, state in itertools.product(*map(range, slope.shape[1:])):
            sizes = [STATES[p] for p in PARENTS[child]]
            place = (*np.unravel_index(row, sizes), state) if sizes else (state,)
            indicator = np.zeros(STATES)
            index: list[Any] = [slice(None)] * len(STATES)
            for variable, code in zip((*PARENTS[child], child), place, strict=True):
                index[variable] = code
            indicator[tuple(index)] = 1
            expected = (
                at(whole_table(network) * indicator, target, evidence) / network.families[child].probability[row, state]
            )
            assert slope[:, row, state] == pytest.approx(expected, abs=1e-9)


def test_a_joint_model_answers_where_records_come_from_one(release_content: ReleaseContent) -> None:
    network, joint = random_network(VARIABLES, PARENTS, rounded=False), random_mixture(STATES)
    models = models_of(network, release_content, joint)
    expected = at(joint.shares(range(len(STATES))), 1, {4: 2, 0: 1})
    answer = query(models, "v1", {"v4": "c2", "v0": "c1"})
    assert answer.source == "joint"
    assert probabilities(answer) == pytest.approx(list(expected / expected.sum()), abs=1e-9)
    network_answer = query(models, "v1", {"v4": "c2", "v0": "c1"}, source="network")
    assert probabilities(network_answer) == [share.network for share in answer.shares]
    assert [share.interval for share in answer.shares] == [share.interval for share in network_answer.shares]


def test_a_probability_outside_of_its_interval_has_a_reason(release_content: ReleaseContent) -> None:
    network, joint = random_network(VARIABLES, PARENTS), random_mixture(STATES)
    answers = [
        query(models_of(network, release_content, model), v, {}) for model in (joint, None) for v in ("v0", "v1", "v4")
    ]
    reasons = set()
    for answer in answers:
        outside = [
            share.category
            for share in answer.shares
            if share.interval and not share.interval[0] <= share.probability <= share.interval[1]
        ]
        assert ("outside" in answer.to_dict()) == bool(outside)
        if outside:
            assert answer.outside is not None
            names, _, reason = answer.outside.partition(": ")
            assert names == ", ".join(outside)
            assert ("joint model" in reason) == (answer.source == "joint")
            reasons.add(answer.source)
    assert "joint" in reasons


def test_rules_are_known_of_everybody(release_content: ReleaseContent, monkeypatch: pytest.MonkeyPatch) -> None:
    """P given that v0 = c0 means v3 = c1, by the whole table; without raking, which the page of knowledge describes."""
    network = random_network(VARIABLES, PARENTS, rounded=False)
    when, then = (Condition(variable="v0", values=("c0",)),), (Condition(variable="v3", values=("c1",)),)
    rule = Rule(name="never", when=when, then=then)
    by = support(Knowledge(rules=(rule,)), network.schema)
    models = models_of(network, release_content)
    object.__setattr__(models, "support", by)
    monkeypatch.setattr("verticil.shared.release.query.rake", lambda _network, by: by)
    table = whole_table(network)
    allowed = np.ones(STATES)
    allowed[0, :, :, 0] = 0
    expected = at(table * allowed, 3, {1: 0})
    answer = query(models, "v3", {"v1": "c0"})
    assert probabilities(answer) == pytest.approx(list(expected / expected.sum()), abs=1e-12)
    assert answer.given_probability == pytest.approx(expected.sum() / (table * allowed).sum(), abs=1e-12)
    with pytest.raises(Misuse, match="given: evidence and rules have probability 0 under the network"):
        query(models, "v1", {"v0": "c0", "v3": "c0"})


def two(errors: tuple[float, float, float], level: tuple[float, float, float]) -> Network:
    """v0 -> v1, both with two categories: P(v0 = c1), P(v1 = c1 | c0), P(v1 = c1 | c1)."""
    a, low, high = level
    tables = ([[1 - a, a]], [[1 - low, low], [1 - high, high]])
    spread = ([[errors[0]] * 2], [[errors[1]] * 2, [errors[2]] * 2])
    families = [
        family_of(child, (0,) * child, np.array(table), np.array(error))
        for child, (table, error) in enumerate(zip(tables, spread, strict=True))
    ]
    return Network(
        schema=Schema(variables=(VARIABLES[0], VARIABLES[2])), dag=Dag(parents=((), (0,))), families=tuple(families)
    )


def family_of(child: int, parents: tuple[int, ...], table: Any, error: Any) -> Family:
    return Family(
        child=child, parents=parents, probability=table, estimate=table, standard_error=error,
        interval_low=table - error, interval_high=table + error, unstable=np.zeros(table.shape, dtype=bool),
    )  # fmt: skip


def test_intervals_are_the_closed_form_of_two_variables(release_content: ReleaseContent) -> None:
    """q = P(v1 = c1) = (1 - a) l + a h; and Bayes' rule r = P(v0 = c1 | v1 = c1) = a h / q, differentiated by hand."""
    (a, low, high), errors = (0.3, 0.2, 0.7), (0.02, 0.03, 0.05)
    models = models_of(two(errors, (a, low, high)), release_content)
    q = (1 - a) * low + a * high
    slopes = {
        ("v2", ()): (high - low, 1 - a, a),
        ("v0", (("v2", "c1"),)): ((high * low) / q**2, -a * high * (1 - a) / q**2, a * low * (1 - a) / q**2),
    }
    for (target, given), slope in slopes.items():
        answer = query(models, target, dict(given))
        assert answer.interval == "delta"
        half = 1.959963984540054 * math.sqrt(sum((s * e) ** 2 for s, e in zip(slope, errors, strict=True)))
        share = answer.shares[1]
        assert share.interval == pytest.approx((share.probability - half, share.probability + half), abs=1e-12)


def test_what_the_release_publishes_is_what_is_told(release_content: ReleaseContent, tmp_path: Path) -> None:
    context = model_json.ModelContext(
        study=release_content.study, study_digest="ab" * 32, effective_digest=release_content.effective_digest,
        n_common=400, search=release_content.search, simulation=True,
    )  # fmt: skip
    (tmp_path / "model.json").write_bytes(model_json.write(release_content.network, release_content.marginals, context))
    document = json.loads((tmp_path / "model.json").read_bytes())
    models = open_models(tmp_path)
    for marginal in document["marginals"]:
        answer = query(models, marginal["variable"], {})
        assert answer.interval == "published"
        assert [list(share.interval or ()) for share in answer.shares] == marginal["interval"]
    family = next(family for family in document["families"] if family["child"] == "income")
    age, smoker = (item["labels"] for item in document["variables"][:2])
    for row, (one, other) in enumerate(itertools.product(age, smoker)):
        answer = query(models, "income", {"age": one, "smoker": other})
        assert answer.interval == "published"
        got = [None if share.interval is None else list(share.interval) for share in answer.shares]
        assert got == family["interval"][row]
        assert probabilities(answer) == pytest.approx(family["probability"][row], abs=1e-12)


def test_a_row_of_which_nothing_is_known_may_be_any(release_content: ReleaseContent) -> None:
    """Its variance is the largest that a distribution with its mean has; and of a row that does not matter none is added."""
    network = two((0.0, math.nan, 0.0), (0.3, 0.2, 0.7))
    models = models_of(network, release_content)
    half = 1.959963984540054 * 0.7 * math.sqrt(0.2 * 0.8)
    answer = query(models, "v2", {})
    assert answer.shares[1].interval == pytest.approx((max(0, 0.35 - half), 0.35 + half))
    sure = query(models_of(two((0.0, 0.01, math.nan), (0.0, 0.2, 0.7)), release_content), "v2", {})
    assert sure.shares[1].interval == pytest.approx((0.2 - 1.959963984540054 * 0.01, 0.2 + 1.959963984540054 * 0.01))


def of_samples(network: Network, generator: np.random.Generator, n: int) -> Network:
    """The network with parameters estimated from n records, by counting, with the standard errors of shares."""
    table = whole_table(network)
    counts = generator.multinomial(n, table.ravel()).reshape(table.shape)
    families = []
    for child, family in enumerate(network.families):
        scope = (*family.parents, child)
        own = counts.sum(axis=tuple(v for v in range(counts.ndim) if v not in scope)).transpose(
            np.argsort(np.argsort(scope))
        )
        rows = own.reshape(-1, STATES[child]).astype(float)
        totals = rows.sum(axis=1, keepdims=True)
        shares = np.where(totals > 0, rows / np.maximum(totals, 1), 1 / STATES[child])
        error = np.sqrt(shares * (1 - shares) / np.maximum(totals, 1))
        families.append(family_of(child, family.parents, shares, np.where(totals > 0, error, np.nan)))
    return dataclasses.replace(network, families=tuple(families))


@pytest.mark.whole
def test_intervals_hold_as_often_as_they_say(release_content: ReleaseContent) -> None:
    """Of 300 samples of 1,500 people, 95 % intervals hold between 91 % and 98.5 % of the time.

    A binomial share of 300 with 95 % leaves that range with a chance of 0.4 %; intervals of half the width are refused (67 %
    expected), and of twice the width as well (99.99 %). Seeds are fixed.
    """
    truth = random_network(VARIABLES, PARENTS, seed=5, rounded=False)
    truth = dataclasses.replace(
        truth,
        families=tuple(
            family_of(f.child, f.parents, (f.probability + 0.2) / (1 + 0.2 * f.probability.shape[1]), f.standard_error)
            for f in truth.families
        ),
    )
    target, evidence = 0, {4: 1, 3: 0}
    together = at(whole_table(truth), target, evidence)
    expected = (together / together.sum())[1]
    generator = np.random.default_rng(1)
    held = {0.5: 0, 1.0: 0, 2.0: 0}
    for _ in range(300):
        models = models_of(of_samples(truth, generator, 1500), release_content)
        share = query(models, f"v{target}", labelled(evidence)).shares[1]
        assert share.interval is not None
        half = (share.interval[1] - share.interval[0]) / 2
        for factor in held:
            held[factor] += abs(share.network - expected) <= factor * half
    assert 273 <= held[1.0] <= 295, held
    assert held[0.5] < 273
    assert held[2.0] > 295


@pytest.fixture
def folder(tmp_path: Path, release_content: ReleaseContent) -> Path:
    context = model_json.ModelContext(
        study=release_content.study, study_digest="ab" * 32, effective_digest=release_content.effective_digest,
        n_common=400, search=release_content.search, simulation=True,
    )  # fmt: skip
    (tmp_path / "model.json").write_bytes(model_json.write(release_content.network, release_content.marginals, context))
    return tmp_path


def test_the_command_says_what_the_function_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["release", "query", str(folder), "smoker", "--given", "age=40", "--given", "income=>50K"]
    assert main([*arguments, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == query(open_models(folder), "smoker", {"age": 40, "income": ">50K"}).to_dict() | {
        "given": said["given"]
    }
    assert said["given"] == {"age": "[18,65)", "income": ">50K"}
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "age = [18,65), income = >50K" in shown
    assert f"{said['shares'][0]['probability']:.4f}" in shown


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["smokr"], "VARIABLE: 'smokr': no such variable", "did you mean 'smoker'?"),
        (["smoker", "--given", "incme=>50K"], "--given: 'incme': no such variable", "did you mean 'income'?"),
        (["smoker", "--given", "income=>50"], "--given: '>50' is not a category of 'income'", "did you mean '>50K'?"),
        (["smoker", "--given", "age=130"], "--given: '130' is not a category of 'age'", "a number from 0 to below 120"),
        (["smoker", "--given", "age=nan"], "--given: 'nan' is not a category of 'age'", "a number from 0 to below 120"),
        (["smoker", "--given", "age=[17,60)"], "is not a category of 'age'", "did you mean '[0,18)'?"),
        (["smoker", "--given", "age=1e9"], "is not a category of 'age'", "a number from 0 to below 120"),
        (["smoker", "--given", "income"], "--given: 'income', expected VARIABLE=CATEGORY", ""),
        (["smoker", "--given", "smoker=no"], "--given: 'smoker' is asked for", "leave it out"),
        (["smoker", "--given", "age=4", "--given", "age=5"], "--given: 'age' is given twice", ""),
        (["smoker", "--from", "joint"], "--from joint: ", "the network is there"),
        (["smoker", "--from", "posterior"], "--from posterior: a query is of one model", "consensus"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused_with_what_is_near(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, hint: str
) -> None:
    assert main(["release", "query", str(folder), *arguments, "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "USAGE"
    assert message in error["message"]
    assert hint in error["hint"]


def test_impossible_evidence_and_too_wide_a_network_are_refused(
    release_content: ReleaseContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = models_of(two((0.1, 0.1, 0.1), (0.0, 0.2, 0.7)), release_content)
    with pytest.raises(Misuse, match="given: the evidence has probability 0 under the network"):
        query(models, "v2", {"v0": "c1"})
    monkeypatch.setattr("verticil.shared.numerics.model.elimination.MAX_CLIQUE_CELLS", 8)
    network = random_network(VARIABLES, PARENTS)
    for joint, hint in ((None, "ask for less"), (random_mixture(STATES), "--from joint")):
        with pytest.raises(
            Misuse, match=r"given: eliminating variable \d needs a table of \d+ cells, expected at most 8"
        ) as caught:
            query(models_of(network, release_content, joint), "v0", {"v4": "c1"}, source="network")
        assert hint in caught.value.hint


def test_without_room_for_derivatives_there_is_no_interval(
    release_content: ReleaseContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = random_network(VARIABLES, PARENTS, rounded=False)
    models = models_of(network, release_content)
    before = query(models, "v0", {"v4": "c1"})
    assert (before.interval, before.too_wide) == ("delta", None)
    assert "too_wide" not in before.to_dict()
    monkeypatch.setattr("verticil.shared.numerics.model.elimination.MAX_CLIQUE_CELLS", 12)
    answer = query(models, "v0", {"v4": "c1"})
    assert probabilities(answer) == probabilities(before)
    assert answer.interval == "none"
    assert answer.too_wide is not None
    assert "expected at most 12" in answer.too_wide
    assert all(share.interval is None for share in answer.shares)
    for child in range(len(STATES)):  # what is published stays
        assert query(models, f"v{child}", labelled(dict.fromkeys(PARENTS[child], 0))).interval == (
            "published" if PARENTS[child] else "delta"
        )


def above(*variables: int) -> set[int]:
    """The variables, and what is above them in the network."""
    return set(variables).union(*(above(*PARENTS[variable]) for variable in variables))


@pytest.mark.parametrize("kind", ["mixture", "records"])
def test_a_joint_model_answers_alone_where_the_network_is_too_wide(
    release_content: ReleaseContent, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Every target and every evidence on up to two variables, by the whole table, whose cells are summed one by one."""
    network = random_network(VARIABLES, PARENTS, rounded=False)
    joint = random_mixture(STATES) if kind == "mixture" else random_records(STATES, 6)
    table = np.zeros(STATES)
    for codes in itertools.product(*map(range, STATES)):
        if isinstance(joint, Mixture):
            of_each = [p[:, code] for p, code in zip(joint.probability, codes, strict=True)]
            table[codes] = sum(w * math.prod(p) for w, *p in zip(joint.weights, *of_each, strict=True))
        else:
            table[codes] = joint.weights[(joint.codes == codes).all(axis=1)].sum()
    assert table.sum() == pytest.approx(1)
    models = models_of(network, release_content, joint)
    monkeypatch.setattr("verticil.shared.numerics.model.elimination.MAX_CLIQUE_CELLS", 1)
    asked = refused = 0
    for target, size in itertools.product(range(len(STATES)), range(3)):
        others = [v for v in range(len(STATES)) if v != target]
        for known in itertools.combinations(others, size):
            for codes in itertools.product(*(range(STATES[v]) for v in known)):
                evidence = dict(zip(known, codes, strict=True))
                expected = at(table, target, evidence)
                if not expected.sum() > 0:
                    with pytest.raises(Misuse, match="given: the evidence is impossible"):
                        query(models, f"v{target}", labelled(evidence))
                    refused += 1
                    continue
                answer = query(models, f"v{target}", labelled(evidence))
                assert answer.source == "joint"
                assert probabilities(answer) == pytest.approx(list(expected / expected.sum()), abs=1e-12)
                if above(target, *known) <= {target, *known}:  # the network has nothing to sum over
                    continue
                assert answer.given_probability == pytest.approx(expected.sum(), abs=1e-12)
                assert all(share.network is None for share in answer.shares)
                assert answer.too_wide is not None
                published = size > 0 and set(known) == set(PARENTS[target])
                assert answer.interval == ("published" if published else "none")
                asked += 1
    assert asked > 60
    assert (refused > 0) == (kind == "records")


@pytest.mark.whole
def test_a_network_that_is_too_wide_by_itself(
    release_content: ReleaseContent,
) -> None:
    """24 columns of 8 categories, three parents each among the twelve before it: tables of millions of cells."""
    generator = np.random.default_rng(4)
    variables = tuple(
        Variable(name=f"v{place}", owner="a", labels=tuple(f"c{code}" for code in range(8))) for place in range(24)
    )
    parents = tuple(
        tuple(sorted(int(place - back) for back in generator.permutation(np.arange(1, min(place, 12) + 1))[:3]))
        for place in range(24)
    )
    network, joint = random_network(variables, parents), random_mixture((8,) * 24, m=30)
    evidence = {22: 2, 11: 7, 17: 0}
    models = models_of(network, release_content, joint)
    weights = [
        w * math.prod(joint.probability[v][c, code] for v, code in evidence.items())
        for c, w in enumerate(joint.weights)
    ]
    expected = [
        sum(w * joint.probability[23][c, code] for c, w in enumerate(weights)) / sum(weights) for code in range(8)
    ]
    answer = query(models, "v23", labelled(evidence))
    assert probabilities(answer) == pytest.approx(expected, abs=1e-12)
    assert answer.too_wide is not None
    with pytest.raises(Misuse, match="needs a table of"):
        query(models, "v23", labelled(evidence), source="network")


def test_the_command_says_which_model_answered(
    release_content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = model_json.ModelContext(
        study=release_content.study, study_digest="ab" * 32, effective_digest=release_content.effective_digest,
        n_common=400, search=release_content.search, simulation=True, joint=random_mixture(release_content.study.schema.n_states),
    )  # fmt: skip
    (tmp_path / "model.json").write_bytes(model_json.write(release_content.network, release_content.marginals, context))
    monkeypatch.setattr("verticil.shared.numerics.model.elimination.MAX_CLIQUE_CELLS", 1)
    arguments = ["release", "query", str(tmp_path), "smoker", "--given", "income=>50K"]
    assert main([*arguments, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], said["interval"], said["shares"][0]["network"]) == ("joint", "none", None)
    assert "needs a table of" in said["too_wide"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "probability: of the joint model; interval: none" in shown
    assert "the joint model answers alone: the network is too wide: " in shown
    assert main([*arguments, "--from", "network"]) == 2
    assert "--from joint" in capsys.readouterr().err
