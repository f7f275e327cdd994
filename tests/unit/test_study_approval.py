"""Approvals, the effective study, and a party's check of its own part."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path

import pytest
import rfc8785

from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.study import canonical
from verticil.shared.study.approval import (
    Approval,
    check_approval,
    check_own_part,
    declared_units,
    effective_study,
    parse_approval,
)
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import Unit

PROPOSAL = read_study(Path(__file__).parents[1] / "vectors" / "study_example.toml")
NOW = dt.datetime(2026, 11, 21, 11, 0, 0, 999, tzinfo=dt.timezone(dt.timedelta(hours=1)))
STRONGER = dataclasses.replace(PROPOSAL.units[2], transition=quantize(symmetric(5, epsilon=1.5)))
WEAKER = dataclasses.replace(PROPOSAL.units[2], transition=quantize(symmetric(5, epsilon=2.5)))


def body(party: str, own: dict[int, Unit] | None = None, proposal: Study = PROPOSAL) -> bytes:
    study = proposal.with_declaration(own or {})
    indices = proposal.units_of(party)
    return encode(
        Approval(
            proposal_digest=canonical.digest(proposal),
            party=party,
            units=declared_units(
                {index: study.units[index] for index in indices}, {index: f"{index:064x}" for index in indices}
            ),
            minimum_common_records=1000,
            approver=f"officer@{party}",
            approved_at=NOW,
            expires=PROPOSAL.expires,
        )
    )


def approval(party: str, own: dict[int, Unit] | None = None) -> Approval:
    return parse_approval(body(party, own))


def test_an_approval_comes_back_as_it_was_written():
    got = approval("census_bureau", {2: STRONGER})
    assert got.proposal_digest == canonical.digest(PROPOSAL)
    assert got.approved_at == dt.datetime(2026, 11, 21, 10, 0, 0, tzinfo=dt.UTC)
    assert json.loads(body("census_bureau"))["approved_at"] == "2026-11-21T10:00:00Z"
    assert got.declarations()[2] == STRONGER
    assert [declared.fingerprint for declared in got.units] == [f"{index:064x}" for index in range(6)]
    assert got.expires == dt.date(2099, 12, 31)


def test_an_approval_body_needs_a_fingerprint_for_each_unit_and_a_zone():
    form = {
        "proposal_digest": bytes(32),
        "party": "a",
        "minimum_common_records": 1,
        "approver": "me",
        "expires": PROPOSAL.expires,
    }
    with pytest.raises(ValueError, match="same indices"):
        declared_units({0: STRONGER}, {})
    with pytest.raises(ValueError, match="has a time zone"):
        encode(Approval(units=(), approved_at=NOW.replace(tzinfo=None), **form))


def changed(**fields: object) -> bytes:
    return rfc8785.dumps(json.loads(body("employer")) | fields)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "form: missing"),
        (body("employer") + b"\n", "not in canonical form"),
        (changed(form="verticil/approval/v2"), "form: got"),
        (changed(proposal_sha256="ab"), "lower-case hexadecimal"),
        (changed(proposal_sha256="A" * 64), "lower-case hexadecimal"),
        (changed(approved_at="2026-11-21 10:00"), "approved_at: expected a UTC time"),
        (changed(approved_at="2026-11-1T10:00:00Z"), "not in canonical form"),
        (changed(minimum_common_records=0), "expected 1 to"),
        (changed(approver=""), "approver: expected"),
        (changed(approver="a\u001b[2Jb"), "approver: expected"),
        (changed(units="x"), "units: got a string"),
        (changed(note="hi"), "note: unknown key"),
    ],
)
def test_foreign_approvals_are_refused_cleanly(data: bytes, words: str):
    with pytest.raises(PeerFault) as caught:
        parse_approval(data)
    assert caught.value.code == "MESSAGE_INVALID"
    assert words in caught.value.message


def test_the_effective_study_has_every_declaration():
    approvals = [approval("tax_office"), approval("census_bureau", {2: STRONGER}), approval("employer")]
    effective = effective_study(PROPOSAL, approvals)
    assert effective == PROPOSAL.with_declaration({2: STRONGER})
    assert effective_study(PROPOSAL, reversed(approvals)) == effective
    assert canonical.from_bytes(canonical.to_bytes(effective)) == effective


def test_the_effective_study_needs_one_approval_of_each_party():
    some = [approval("tax_office"), approval("employer")]
    for approvals in (some, [*some, approval("employer"), approval("census_bureau")], []):
        with pytest.raises(PeerFault) as caught:
            effective_study(PROPOSAL, approvals)
        assert caught.value.code == "STUDY_MISMATCH"


def test_an_approval_binds_to_one_proposal():
    later = dataclasses.replace(PROPOSAL, purpose="something else")
    with pytest.raises(PeerFault, match="it is for the proposal") as caught:
        check_approval(approval("employer"), later, "employer")
    assert caught.value.code == "STUDY_MISMATCH"


def test_nobody_approves_for_another():
    with pytest.raises(PeerFault) as caught:
        check_approval(approval("employer"), PROPOSAL, "tax_office")
    assert caught.value.code == "IDENTITY_REFUSED"


def test_weaker_noise_cannot_be_declared():
    with pytest.raises(Refusal) as caught:
        check_approval(approval("census_bureau", {2: WEAKER}), PROPOSAL, "census_bureau")
    assert caught.value.code == "DECLARATION_WEAKER"


def test_an_approval_has_exactly_the_partys_units():
    whole = approval("employer")
    none = dataclasses.replace(whole, units=whole.units[1:])
    foreign = dataclasses.replace(whole, units=(dataclasses.replace(whole.units[0], index=0), *whole.units[1:]))
    twisted = dataclasses.replace(whole, units=(dataclasses.replace(whole.units[0], unit=STRONGER), *whole.units[1:]))
    small = dataclasses.replace(whole.units[0].unit, transition=quantize(symmetric(2, epsilon=1)))
    misfit = dataclasses.replace(whole, units=(dataclasses.replace(whole.units[0], unit=small), *whole.units[1:]))
    for bad in (none, foreign, twisted, misfit):
        with pytest.raises(PeerFault) as caught:
            check_approval(bad, PROPOSAL, "employer")
        assert caught.value.code == "STUDY_MISMATCH"


def test_a_party_accepts_stronger_noise_of_others():
    effective = PROPOSAL.with_declaration({2: STRONGER})
    check_own_part(PROPOSAL, effective, "employer")
    check_own_part(effective, effective, "census_bureau")


def test_a_party_refuses_whatever_else_differs():
    approved = PROPOSAL.with_declaration({2: STRONGER})
    none = dataclasses.replace(PROPOSAL.units[6], scheme="none", transition=quantize(identity(9)))
    renamed = dataclasses.replace(PROPOSAL.schema[7], name="job")
    schema = dataclasses.replace(
        PROPOSAL.schema, variables=(*PROPOSAL.schema.variables[:7], renamed, *PROPOSAL.schema.variables[8:])
    )
    told = [
        PROPOSAL,  # its own declaration is not in it
        PROPOSAL.with_declaration({2: WEAKER}),
        approved.with_declaration({6: none}),  # another party's noise taken away
        dataclasses.replace(approved, units=approved.units[:-1]),
        dataclasses.replace(approved, units=(approved.units[1], approved.units[0], *approved.units[2:])),
        dataclasses.replace(approved, schema=schema),
        dataclasses.replace(approved, expires=dt.date(2100, 1, 1)),
        dataclasses.replace(approved, linkage=dataclasses.replace(approved.linkage, minimum_common_records=10)),
        dataclasses.replace(approved, release=dataclasses.replace(approved.release, synthetic_records=5)),
    ]
    for effective in told:
        with pytest.raises(PeerFault) as caught:
            check_own_part(approved, effective, "census_bureau")
        assert caught.value.code == "STUDY_MISMATCH"
