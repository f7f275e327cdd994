"""Peers that falsify and sites that lose files: what leaves a party between peers, in errors as in parameters."""

from __future__ import annotations

import shutil

import pytest

from support import peer_session as session
from verticil.party.operator import commands
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.numerics.model import artifact
from verticil.shared.study.canonical import from_bytes
from verticil.shared.study.states import State
from verticil.shared.study.structure_document import structure_body
from verticil.wire.v1 import peer_pb2

# Three parties and the wires between them, as in the tests of the session.
pki, make, exchanging = session.pki, session.make, session.exchanging
NAMES, N_COMMON, Wire = session.NAMES, session.N_COMMON, session.Wire
N_NORTH = N_COMMON + 11
NOISE = '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.5\ndelta = 1e-6\n'


# ---- what peers are told of a failure


async def test_a_common_list_that_is_too_long_tells_nobody_how_many_people_a_party_has(make):
    """The last party announces a list longer than any; what the others answer must not say how long theirs are."""
    federation = make()
    federation.load()
    federation.open()
    federation.falsified["west", "get_pseudonyms"] = lambda data: b"".join(
        number.to_bytes(16, "big") for number in range(10 * N_NORTH)
    )
    await federation.run()
    north = federation.record("north").failure
    assert north is not None
    assert north.code == "ALIGNMENT_MISMATCH"
    for name in ("south", "west"):
        told = federation.record(name).failure
        assert told is not None
        for count in (N_NORTH, N_COMMON):
            assert str(count) not in told.message
            assert str(16 * count) not in told.message


async def _told(call) -> VerticilError:
    with pytest.raises(VerticilError) as caught:
        await call
    return caught.value


async def _read(parts) -> list[peer_pb2.Part]:
    return [part async for part in parts]


async def test_a_fault_of_this_machine_is_told_without_its_folders(exchanging):
    effective = exchanging.record("north").task.effective_digest
    folder = exchanging.root / "north" / "state" / "peer" / exchanging.digest.hex()
    shutil.rmtree(folder)
    folder.write_text("no folder any more")
    request = peer_pb2.GetPseudonymsRequest(effective_digest=effective, list=peer_pb2.PSEUDONYM_LIST_RUNNING)
    told = await _told(_read(Wire(exchanging, "south", "north").get_pseudonyms(request)))
    assert told.code == "STATE_CORRUPT"
    assert str(exchanging.root) not in told.message + told.hint
    assert exchanging.digest.hex() not in told.message + told.hint


async def test_what_this_party_waits_for_is_not_told_to_peers(exchanging):
    """Where the study stands is shown to this site's people, with paths and addresses; a peer learns only that it must wait."""
    record = exchanging.record("north")
    exchanging.parties["north"].site.state.show(
        exchanging.digest, "trying again: DISK_FULL: /srv/clinic/register: no space left", at=session.NOW
    )
    exchanging.parties["north"].store.forget(exchanging.digest, Kind.RUNNING)
    request = peer_pb2.GetPseudonymsRequest(
        effective_digest=record.task.effective_digest, list=peer_pb2.PSEUDONYM_LIST_RUNNING
    )
    told = await _told(_read(Wire(exchanging, "south", "north").get_pseudonyms(request)))
    assert told.code == "NOT_READY"
    assert "clinic" not in told.message + told.hint


async def test_a_mistake_in_party_toml_is_told_without_its_tables(make):
    """The approval is checked before it is told; what is wrong with local tables then is this party's own business."""
    federation = make(approval="manual")
    federation.load()
    federation.open("north")
    commands.approve(federation.config("north"), "peers", "officer", at=session.NOW)
    document = federation.root / "north" / "party.toml"
    document.write_text(
        document.read_text().replace(
            "[policy]", '[dataset.secret-register]\npath = "secret-register.csv"\nid = "id"\n[policy]'
        )
    )
    federation.reopen()
    request = peer_pb2.GetStudyDigestRequest(study_id="peers", study_digest=federation.digest, software="")
    told = await _told(Wire(federation, "south", "north").get_study_digest(request))
    assert "secret" not in told.message + told.hint
    assert "party.toml" not in told.message


async def test_invented_people_do_not_make_a_list_long_enough(make):
    """The minimum counts this party's own people: one of them among many that nobody has is one."""
    federation = make()
    federation.load()
    federation.open()

    def one_and_inventions(data: bytes) -> bytes:
        common = {number: data[number * 16 : (number + 1) * 16] for number in range(len(data) // 16)}
        known = [value for value in common.values() if value in south][:1]
        return b"".join(sorted([*known, *(number.to_bytes(16, "big") for number in range(1, N_NORTH))]))

    site = federation.parties["south"].site
    pseudonyms = site.read(site.state.study(federation.digest)).pseudonyms
    south = {row.tobytes() for row in pseudonyms}
    federation.falsified["north", "get_pseudonyms"] = one_and_inventions
    await federation.run()
    failure = federation.record("south").failure
    assert failure is not None
    assert failure.code == "LINKAGE_TOO_SMALL"
    assert "have 1 records in common" in failure.message
    told = federation.record("north").failure
    assert told is not None
    assert "1 records" not in told.message
    assert not any(caller == "west" and rpc == "get_column" for caller, _, rpc, _ in federation.calls)


# ---- one approval, one answer


def _forget_parameters(federation, name: str) -> None:
    federation.parties[name].store.forget(federation.digest, Kind.STATEMENT, name)


@pytest.mark.parametrize(("policy", "study"), [(session.EXACT, session.STUDY), ("", session.STUDY + NOISE)])
async def test_another_column_gets_no_second_parameters(make, policy, study):
    """A site that lost its files asks a peer again, which now sends another column: one approval is not for two answers."""
    federation = make(policy=policy, study=study)
    federation.load()
    federation.open()

    def hold(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_parameters":
            raise PeerFault("NOT_READY", "held back")

    federation.before = hold
    await federation.run()
    south = federation.parties["south"]
    first = south.store.item(federation.digest, Kind.STATEMENT, "south")
    # Lost and computed again from the same column: the same answer, and no charge.
    before = sum(row.charged for row in federation.ledger("south") if row.charged != float("inf"))
    _forget_parameters(federation, "south")
    await federation.run()
    assert south.store.item(federation.digest, Kind.STATEMENT, "south") == first
    # Lost together with the column, which the peer now replaces by one that marks people of its choice.
    _forget_parameters(federation, "south")
    south.store.forget(federation.digest, Kind.COLUMN, "0")
    federation.falsified["north", "get_column"] = lambda data: artifact.pack(1 - artifact.unpack(data, 2, N_COMMON), 2)
    await federation.run()
    assert (Kind.STATEMENT, "south") not in south.store.items(federation.digest)
    failure = federation.record("south").failure
    assert failure is not None
    assert failure.code == "APPROVAL_VOID"
    assert federation.record("south").task.state == State.FAILED
    assert sum(row.charged for row in federation.ledger("south") if row.charged != float("inf")) == before


async def test_another_structure_gets_no_second_parameters(make):
    """The same columns under another structure are other tables with other noise."""
    federation = make(policy="", study=session.LEARNED + NOISE, miner=True)
    federation.load()
    federation.open()
    await federation.run()
    assert "waiting for a miner" in federation.stage("north")
    record = federation.record("north")
    study, digest = from_bytes(record.task.effective), record.task.effective_digest
    signing = SigningKey.load(federation.pki / "miner.sign", federation.pki / "miner.crt")
    none = [[] for _ in study.schema.names]

    def tell(parents) -> None:
        body = structure_body(digest, parents, {"method": "genetic"})
        signed = signing.sign(body).SerializeToString(deterministic=True)
        federation.parties["north"].store.put(federation.digest, Kind.STRUCTURE, signed)

    def hold(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_parameters":
            raise PeerFault("NOT_READY", "held back")

    federation.before = hold
    tell(none)
    await federation.run()
    assert (Kind.STATEMENT, "north") in federation.parties["north"].store.items(federation.digest)
    _forget_parameters(federation, "north")
    tell([[], [0], *none[2:]])  # a local edge: the same columns are read
    await federation.run()
    assert (Kind.STATEMENT, "north") not in federation.parties["north"].store.items(federation.digest)
    assert federation.record("north").failure.code == "APPROVAL_VOID"
