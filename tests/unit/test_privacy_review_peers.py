"""Model I, seen by somebody who wants more than was agreed: limits of a site's policy, its ledger, a miner's structure."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math

import numpy as np
import pytest

from support import party_example as example
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import Column, ColumnDraw
from verticil.party.limits.limits import Policy, find_objections
from verticil.party.policy.ledger import Ledger
from verticil.party.protocol.peer.parameters import learn_families, share_noise
from verticil.party.storage.database import Database
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.parameters import family_parameters, marginal_parameters
from verticil.shared.privacy.events import ExactStatistics, GaussianCounts
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.peer_assembly import assemble
from verticil.shared.release.report.page import render
from verticil.shared.release.statement import statement_body
from verticil.shared.study import canonical
from verticil.shared.study.document import ShareRule
from verticil.shared.study.peer import peer_statement
from verticil.shared.study.protocols import sent_units
from verticil.shared.study.structure_document import parse_structure, structure_body
from verticil.simulation.summary import parameters_text
from verticil.wire.v1 import common_pb2

AT = dt.datetime(2026, 11, 21, 10, 2, tzinfo=dt.UTC)
POLICY = Policy(
    approval="manual",
    approvers=(),
    approvers_needed=1,
    max_epsilon_per_column=3.0,
    max_epsilon_per_study=8.0,
    max_epsilon_lifetime=1000.0,
    allow_infinite=(),
    minimum_common_records=1,
    minimum_parties=2,
    max_categories=50,
    deny_columns=(),
    recipients=(),
    on_data_change="refuse",
)


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path, create=True) as opened:
        yield opened


def _objected(study, **limits) -> list[tuple[str, str]]:
    party = study.parties[0]
    policy = dataclasses.replace(POLICY, recipients=(*study.parties, "miner"), **limits)
    columns = {
        study.schema[position].name: Column(dataset="people", source=study.schema[position].name)
        for position in study.schema.owned_by(party)
    }
    return [(found.code, found.message) for found in find_objections(policy, study, party, columns)]


# ---- limits


def test_noise_so_small_that_it_hides_nothing_is_over_the_limit_of_a_study(peer_study):
    """The limit of a study is about everything of one person: with epsilon 20 the noisy counts are nearly the counts."""
    study = peer_study(share=ShareRule(epsilon=20.0, delta=1e-6, noise="discrete-gaussian"))
    assert share_noise(bytes(32), study, study.parties[0]).sigma < 1.0
    ((code, message),) = _objected(study)
    assert code == "BUDGET_EXCEEDED"
    assert "columns and shared parameters sums to" in message


def test_columns_and_parameters_count_together(peer_study):
    study = peer_study(share=ShareRule(epsilon=2.0, delta=1e-9, noise="discrete-gaussian"))
    party = study.parties[0]
    columns = sum(
        math.log(float(study.units[i].transition.probabilities.max() / study.units[i].transition.probabilities.min()))
        for i in study.units_of(party)
        if i in sent_units(study)
    )
    assert columns > 0
    assert _objected(study, max_epsilon_per_study=columns + 2.0) == []
    assert [code for code, _ in _objected(study, max_epsilon_per_study=columns + 1.9)] == ["BUDGET_EXCEEDED"]


def test_delta_has_a_limit_of_its_own(peer_study):
    """delta = 0.01 lets one person in a hundred down; no ledger sums it."""
    study = peer_study(share=ShareRule(epsilon=1.0, delta=1e-2, noise="discrete-gaussian"))
    ((code, message),) = _objected(study)
    assert (code, "delta 0.01 of the noise" in message) == ("BUDGET_EXCEEDED", True)
    assert _objected(study, max_share_delta=1e-2) == []
    assert _objected(peer_study(share=ShareRule(epsilon=1.0, delta=1e-6, noise="discrete-gaussian"))) == []


def test_limits_that_party_toml_does_not_state_are_there_all_the_same(tmp_path):
    (tmp_path / "federation.toml").write_text(example.FEDERATION)
    (tmp_path / "party.toml").write_text(example.EXAMPLE)
    policy = load_party(tmp_path / "party.toml").policy
    assert (policy.max_share_epsilon, policy.max_share_delta) == (policy.max_epsilon_per_column, 1e-6)
    assert math.isfinite(policy.max_share_epsilon)
    stated = example.EXAMPLE.replace("[policy]\n", "[policy]\nmax_share_epsilon = 0.5\nmax_share_delta = 1e-9\n")
    (tmp_path / "party.toml").write_text(stated)
    policy = load_party(tmp_path / "party.toml").policy
    assert (policy.max_share_epsilon, policy.max_share_delta) == (0.5, 1e-9)


# ---- one approval, one answer


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_a_study_gets_parameters_once(database, epsilon):
    """Two exact answers about columns that differ in one person, subtracted, are that person's values."""
    ledger = Ledger(database)
    policy = dataclasses.replace(POLICY, allow_exact_parameters=True)

    def record(basis: bytes, study: bytes = b"d" * 32, recipient: str = "everyone") -> float:
        return ledger.record_shared(
            ColumnDraw(
                variables=("age",),
                dataset="people",
                sources=("age",),
                codebook_digest=basis,
                transition_digest=b"t" * 32,
                secret_id=b"s" * 16,
                fingerprint=b"f" * 32,
                event=ExactStatistics() if math.isinf(epsilon) else GaussianCounts(epsilon=epsilon, delta=1e-9),
            ),
            policy=policy,
            study_digest=study,
            study_id="peers",
            recipient=recipient,
            artifact_sha256=b"a" * 32,
            size=1,
            at=AT,
        ).epsilon

    assert record(b"1" * 32) == epsilon
    assert record(b"1" * 32) == 0.0
    with pytest.raises(Refusal) as caught:
        record(b"2" * 32)
    assert caught.value.code == "APPROVAL_VOID"
    assert len(ledger.rows()) == 2
    assert record(b"2" * 32, study=b"e" * 32) == epsilon  # approved anew, charged anew


# ---- what the miner may ask for


def test_a_structure_with_larger_tables_than_the_study_allows_is_refused(peer_study):
    """A miner that returned it would see finer tables of the parties' raw data than anybody approved."""
    study = peer_study(share=ShareRule())
    widest = max(study.schema.n_states)
    rule = dataclasses.replace(study.structure, method="genetic", parents=None, max_parents=2, max_family_cells=widest)
    study = dataclasses.replace(study, structure=rule)
    digest = canonical.digest(study)
    d = len(study.schema)
    assert parse_structure(structure_body(digest, [[]] * d, {"method": "genetic"}), study, digest)
    with pytest.raises(PeerFault, match=f"more than {widest} cells"):
        parse_structure(structure_body(digest, [*[[]] * (d - 1), [0, 1]], {"method": "genetic"}), study, digest)


# ---- what is said


def test_the_statement_says_that_columns_come_on_top(peer_study):
    study = peer_study(share=ShareRule(epsilon=2.0, delta=1e-6, noise="discrete-gaussian"))
    dag = parse_structure(
        structure_body(canonical.digest(study), _parents(study), {"method": "given"}), study, canonical.digest(study)
    ).dag
    assert "The randomized columns that a party sent are not part of this" in peer_statement(study, dag).statement


def _content(peer_case, study):
    case = peer_case(study)
    bodies = [statement_body(case.statement(party), study) for party in study.parties]
    signed = [common_pb2.Signed(body=body) for body in bodies]
    return assemble(study, b"p" * 32, case.structure, signed, simulation=False, seed_derived=False)


def test_the_report_says_what_its_figures_leave_out(peer_case, peer_study):
    noisy = render(_content(peer_case, peer_study(share=ShareRule(epsilon=2.0, delta=1e-6, noise="discrete-gaussian"))))
    assert "The randomized columns below are not in these figures" in noisy
    exact = render(_content(peer_case, peer_study(share=ShareRule(minimum_count=60))))
    assert "what was replaced can often be worked out" in exact


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (ShareRule(), "no bound: they are exact functions of raw data"),
        (
            ShareRule(epsilon=2.0, delta=1e-6, noise="discrete-gaussian"),
            "epsilon 2, delta 1e-06 of one person at each party, besides the columns",
        ),
    ],
)
def test_the_epsilon_of_columns_is_not_shown_alone(peer_case, peer_study, tmp_path, share, text):
    """Where no column leaves its party the sum over columns is 0, and everybody may have exact parameters all the same."""
    content = _content(peer_case, peer_study(share=share))
    write_release(tmp_path / "release", content)
    assert parameters_text(tmp_path / "release", content.study) == text


def _parents(study) -> list[list[int]]:
    return [[study.schema.index(name) for name in names] for _, names in study.structure.parents]


def test_a_minimum_count_is_no_protection_against_subtraction():
    """What trust.md warns of: without noise, the one group that was left out is the column's share less all other groups."""
    n, few = 1000, np.array([3, 4])
    table = np.array([[400, 193], [200, 200], few])
    identities = [quantize(identity(3)), quantize(identity(2))]
    family = family_parameters(
        table.astype(np.float64), identities, 1, [0], prior_count=0.0, level=0.95, minimum_count=10
    )
    share = marginal_parameters(
        table.sum(axis=0).astype(np.float64),
        identities[1],
        variable=1,
        model=np.full(2, np.nan),
        level=0.95,
        minimum_count=10,
    )
    assert np.isnan(family.estimate[2]).all()
    p, error = family.estimate[:2], family.standard_error[:2]
    sizes = (
        p[:, :1] * (1 - p[:, :1]) / error[:, :1] ** 2
    )  # a binomial standard error tells how many people are behind it
    left = share.estimate * n - (sizes * p).sum(axis=0)
    np.testing.assert_allclose(left, few, atol=1e-6)


def test_without_noise_a_peer_can_mark_a_person(peer_case, peer_study):
    """What trust.md warns of: a parent column is what the peer sends; here it is 1 for one person, and sent as it is."""
    study = peer_study(share=ShareRule())
    smoker = study.schema.index("smoker")
    unit = dataclasses.replace(study.units[smoker], scheme="none", transition=quantize(identity(2)))
    units = tuple(unit if index == smoker else other for index, other in enumerate(study.units))
    parents = tuple((name, ("smoker",) if name == "claims" else ()) for name in study.schema.names)
    rule = dataclasses.replace(study.structure, parents=parents)
    case = peer_case(dataclasses.replace(study, units=units, structure=rule))
    dag = case.structure.dag
    raw, remote = case.columns("insurer", dag)
    claims = study.schema.index("claims")
    for person in (0, 1, 2):
        remote[smoker] = (np.arange(case.n_common) == person).astype(np.uint8)
        families, _ = learn_families(raw, remote, case.study, "insurer", dag, noise=None)
        (family,) = [family for family in families if family.child == claims]
        assert family.estimate[1].tolist() == (np.arange(3) == raw[claims][person]).tolist()
