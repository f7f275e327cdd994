"""Linkage order-commitment between peers: each compares everybody's commitment by itself, and no list passes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support import peer_session as session
from verticil.party.storage.studies import PartyState
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2

pki, make = session.pki, session.make
NAMES, N_COMMON = session.NAMES, session.N_COMMON
STUDY = session.STUDY.replace("[linkage]\n", '[linkage]\nmode = "order-commitment"\n')


def write(federation, name: str, numbers: list[int]) -> None:
    """The common people in this order."""
    columns = session.values(name)
    rows = [",".join([f"person-{n:04d}", *(column[n] for column in columns.values())]) for n in numbers]
    (federation.root / name / "people.csv").write_text("\n".join([",".join(["id", *columns]), *rows]) + "\n")


@pytest.fixture
def ordered(make):
    federation = make(study=STUDY)
    order = np.random.default_rng(5).permutation(N_COMMON).tolist()
    for name in NAMES:
        write(federation, name, order)
    federation.order = order
    return federation


async def test_tables_in_one_order_are_published_and_no_list_passes(ordered):
    ordered.load()
    ordered.open()
    await ordered.run()
    for name in NAMES:
        assert (ordered.record(name).task.state, ordered.record(name).n_common) == (State.PUBLISHED, N_COMMON)
    assert len(set(ordered.manifests().values())) == 1
    asked = {(caller, name) for caller, name, rpc, _ in ordered.calls if rpc == "get_pseudonyms"}
    assert asked == set(itertools.permutations(NAMES, 2))


@pytest.mark.whole
async def test_stopped_after_each_step_of_aligning_the_parties_accept_the_same_order(ordered):
    ordered.load()
    ordered.open()

    def kill() -> None:
        if any(ordered.record(name).n_common is None for name in NAMES):
            ordered.reopen()

    await ordered.run(after_step=kill)
    assert {ordered.record(name).task.state for name in NAMES} == {State.PUBLISHED}


@pytest.mark.parametrize("change", ["swapped", "missing"])
async def test_feature_14_between_peers_a_changed_order_ends_before_any_randomization(ordered, change):
    rows = list(ordered.order)
    if change == "swapped":
        rows[8], rows[9] = rows[9], rows[8]
    else:
        del rows[8]
    write(ordered, "south", rows)
    ordered.load()
    ordered.open()
    await ordered.run()
    failures = [ordered.record(name).failure for name in NAMES]
    first = next(failure for failure in failures if failure is not None and failure.code == "ALIGNMENT_MISMATCH")
    assert f"among 1 to {N_COMMON} ('north', 'west' | 'south')" in first.message
    for name in NAMES:
        assert State(ordered.record(name).task.state) is State.FAILED
        assert not ordered.ledger(name)
        assert "person" not in f"{ordered.record(name).failure}"


async def test_a_commitment_that_its_party_did_not_sign_ends_the_study(ordered):
    def falsified(data: bytes) -> bytes:
        commitment = common_pb2.Commitment.FromString(data)
        commitment.n_records += 1
        return commitment.SerializeToString()

    ordered.falsified["west", "get_pseudonyms"] = falsified
    ordered.load()
    ordered.open()
    await ordered.run()
    failures = [ordered.record(name).failure for name in NAMES]
    found = next(failure for failure in failures if failure is not None and failure.code == "MESSAGE_INVALID")
    assert "row order of party 'west'" in found.message


async def test_a_table_that_is_reordered_after_the_commitment_is_noticed(ordered):
    ordered.load()
    ordered.open()

    def reorder() -> None:
        state: PartyState = ordered.parties["south"].site.state
        if state.study(ordered.digest).n_common is not None and not reordered:
            reordered.append(1)
            write(ordered, "south", ordered.order[::-1])
            ordered.reopen()

    reordered: list[int] = []
    await ordered.run(after_step=reorder)
    assert reordered
    failure = ordered.record("south").failure
    assert failure is not None
    assert failure.code == "ALIGNMENT_MISMATCH"
    assert not ordered.ledger("south")
