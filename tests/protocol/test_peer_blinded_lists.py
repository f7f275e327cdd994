"""Linkage dh-psi between peers: lists go round the ring, and everybody finds its own people among the common ones.

Three parties in one event loop, as in test_peer_session.py. Some people are at two parties only, so the common list is nobody's
own. A party that lies signs what it says, as one would that has another program.
"""

# ruff: noqa: N802 (a service's methods have the names of the wire contract)

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sys
from collections.abc import Callable
from contextlib import aclosing

import pytest

from support import linking
from support import peer_session as session
from verticil.party.dataset import blinding
from verticil.party.dataset.blinding import TOKEN_BYTES, BlindingKey, tokens_of
from verticil.party.operator import reports
from verticil.party.protocol.with_peers import artifact_store, blinded_lists, pseudonym_lists, ring
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.pseudonym_lists import accepted_rows
from verticil.party.protocol.with_peers.publication import release_folder
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.alignment.statements import blinded_body
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport import fetch
from verticil.shared.federation.transport.fetch import fetch_bytes, send_parts
from verticil.shared.storage import durable
from verticil.shared.study.canonical import from_bytes
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.states import State
from verticil.wire.v1 import peer_pb2

pki, make = session.pki, session.make
NAMES = session.NAMES
NORTH, SOUTH, WEST = NAMES
N_COMMON = 60
KEYED = session.STUDY.replace("minimum_common_records = 100", "minimum_common_records = 55")
STUDY = KEYED.replace("[linkage]\n", '[linkage]\nmode = "dh-psi"\n')
BLINDED, STEPS = peer_pb2.PSEUDONYM_LIST_BLINDED, peer_pb2.PSEUDONYM_LIST_STEPS
POSITIONS, COMMITMENT = peer_pb2.PSEUDONYM_LIST_POSITIONS, peer_pb2.PSEUDONYM_LIST_COMMITMENT
OF_TWO = {"north-south": (NORTH, SOUTH), "south-west": (SOUTH, WEST), "north-west": (NORTH, WEST)}
SLOW = pytest.mark.slow
MADE_FOR_IT = {Kind.TAKEN, Kind.STEPS, Kind.BLINDED, Kind.FULL, Kind.TOKENS, Kind.SHUFFLE}


def ids_of(name: str) -> list[str]:
    shared = [f"{pair}-{n}" for pair, names in OF_TWO.items() if name in names for n in range(4)]
    return [f"person-{n:04d}" for n in range(N_COMMON)] + shared + [f"{name}-{n}" for n in range(3)]


def small(federation):
    """Tables of 71 people, of whom some are at two parties only."""
    for name in NAMES:
        ids, columns = ids_of(name), session.values(name)
        rows = [",".join([one, *(column[n] for column in columns.values())]) for n, one in enumerate(ids)]
        lines = [",".join(["id", *columns]), *(rows[::-1] if name == SOUTH else rows)]
        (federation.root / name / "people.csv").write_text("\n".join(lines) + "\n")
    return federation


@pytest.fixture
def federation(make):
    federation = small(make(study=STUDY))
    federation.load()
    federation.open()
    return federation


@pytest.fixture(scope="module")
def published(tmp_path_factory, pki):
    """A study that was carried out without disturbance; and the same with keyed-hash. Tests only look at them."""
    folder, made = tmp_path_factory.mktemp("published"), {}
    for mode, study in (("dh-psi", STUDY), ("keyed-hash", KEYED)):
        made[mode] = small(session.Federation(folder / mode, pki, study=study))
        made[mode].load()
        made[mode].open()
        made[mode].left = {}
    told: list[bytes] = []
    made["dh-psi"].told, made["dh-psi"].kept = told, {}
    listen(made["dh-psi"], told)
    found: dict[str, dict[str, list[str]]] = {mode: {} for mode in made}

    def look(mode: str) -> None:
        federation = made[mode]
        for name, party in federation.parties.items():
            if name not in found[mode] and (Kind.COMMON, "") in party.store.items(federation.digest):
                found[mode][name] = people_of(party, mode, federation.digest)
                federation.left[name] = {kind for kind, _ in party.store.items(federation.digest)}

    def watch(step: durable.DurableStep) -> None:
        if step.moment == "after" and made["dh-psi"].root in step.path.parents and step.path.is_file():
            made["dh-psi"].kept.setdefault(step.path.read_bytes(), (step.path, step.path.stat().st_mode & 0o777))

    with durable.watch_steps(watch):
        for mode, federation in made.items():
            asyncio.run(federation.run(after_step=lambda mode=mode: look(mode)))
            federation.rows = found[mode]
    for path in made["dh-psi"].root.glob("*/state/**/*"):
        if path.is_file():
            made["dh-psi"].kept.setdefault(path.read_bytes(), (path, path.stat().st_mode & 0o777))
    yield made
    for federation in made.values():
        federation.close()


def people_of(party, mode: str, digest: bytes) -> list[str]:
    """Whom a party takes for the common people."""
    holding, common = party.site.read(party.record), party.store.read(digest, Kind.COMMON)
    if mode == "dh-psi":
        records = blinded_lists.common_rows(holding.n_records, common)
    else:
        records = accepted_rows(holding.pseudonyms, common, teller=WEST, running=None, minimum=N_COMMON)
    ids = ids_of(party.site.config.name)
    where = linking.records_of(holding.tags, party.site.secret.tag_key, ids)
    return [dict(zip(where, ids, strict=True))[record] for record in records.tolist()]


class Between:
    """What stands before a party's service: hears all that is told, and may tell something else."""

    def __init__(self, service, tell: Callable[[str, peer_pb2.GetPseudonymsRequest, bytes], bytes]) -> None:
        self._service, self._tell = service, tell

    def __getattr__(self, name: str):
        return getattr(self._service, name)

    async def GetPseudonyms(self, identity, request):
        whole = await everything(self._service, identity, request)
        parts = send_parts(self._tell(identity.name, request, whole), offset=request.offset, what="list")
        async with aclosing(parts):
            async for part in parts:
                yield part


async def everything(service, identity, request) -> bytes:
    def again(offset: int):
        from_start = peer_pb2.GetPseudonymsRequest()
        from_start.CopyFrom(request)
        from_start.offset = offset
        return service.GetPseudonyms(identity, from_start)

    return await fetch_bytes(again, limit_bytes=10**7, what="list")


def listen(federation, told: list[bytes], *only: int) -> None:
    def keep(_caller: str, request: peer_pb2.GetPseudonymsRequest, whole: bytes) -> bytes:
        if not only or request.list in only:
            told.append(whole)
        return whole

    federation.services.update({name: Between(service, keep) for name, service in federation.services.items()})


class Liar:
    """A party that tells of one owner's list something else than it made, and signs that.

    Args:
        owner: whose list, by name.
        lie: the list -> what is told instead.
        to: who is told the lie; None: everybody.
    """

    def __init__(self, federation, name: str, owner: str, lie: Callable[[bytes], bytes], to: str | None = None) -> None:
        self._party, self._owner, self._lie, self._to = federation.parties[name], NAMES.index(owner), lie, to
        self._hop = (NAMES.index(name) - self._owner) % len(NAMES)
        self._name, self._digest = name, federation.digest
        federation.services[name] = Between(federation.services[name], self.tell)

    def tell(self, caller: str, request: peer_pb2.GetPseudonymsRequest, whole: bytes) -> bytes:
        if request.list not in {BLINDED, STEPS} or request.owner != self._owner or self._to not in {None, caller}:
            return whole
        told = self._lie(self._party.store.read(self._digest, Kind.BLINDED, str(self._owner)))
        if request.list == BLINDED:
            return told
        steps = peer_pb2.BlindedSteps.FromString(whole)
        size, sha256 = len(told), hashlib.sha256(told).digest()
        body = blinded_body(
            study=self._digest, owner=NAMES[self._owner], hop=self._hop, party=self._name, size=size, sha256=sha256
        )
        statement = self._party.work.node.signing_key.sign(body)
        steps.steps[-1].CopyFrom(peer_pb2.BlindedStep(size=size, sha256=sha256, statement=statement))
        return steps.SerializeToString()


async def refused(federation) -> VerticilError:
    """Run it to its end: the first failure. Nobody has randomized anything."""
    await federation.run()
    for name in NAMES:
        assert State(federation.record(name).task.state) in {State.FAILED, State.WITHDRAWN}, name
        assert not federation.ledger(name)
        assert not list((federation.root / name / "state" / "linkage").glob("*")), "removed with the study"
        assert "person-" not in f"{federation.record(name).failure}"
    failures = [federation.record(name).failure for name in NAMES]
    return next(error for error in failures if error is not None and "WITHDRAWN" not in error.code)


def not_a_point() -> bytes:
    for x in itertools.count(5):
        try:
            blinding.blind_tokens(BlindingKey.draw(), x.to_bytes(32, "big"))
        except blinding.TokenInvalidError:
            return x.to_bytes(32, "big")
    raise AssertionError


NO_POINT = not_a_point()
A_POINT = blinding.blind_seeds(BlindingKey.draw(), bytes(32))
"""A token that is in no list."""


def ordered(data: bytes) -> bytes:
    return b"".join(sorted(data[i : i + TOKEN_BYTES] for i in range(0, len(data), TOKEN_BYTES)))


# ---- the same people


@pytest.mark.whole
def test_feature_14_dh_psi_between_peers_finds_the_people_of_keyed_hash(published):
    for name in NAMES:
        record = published["dh-psi"].record(name)
        assert (record.task.state, record.n_common) == (State.PUBLISHED, N_COMMON)
    people = {mode: federation.rows for mode, federation in published.items()}
    assert all(len(people[mode]) == 3 for mode in people)
    for name in NAMES:
        assert sorted(people["dh-psi"][name]) == sorted(people["keyed-hash"][name])
    orders = {mode: {tuple(people[mode][name]) for name in NAMES} for mode in people}
    assert [len(orders[mode]) for mode in ("dh-psi", "keyed-hash")] == [1, 1], "all have the same people in one order"
    assert orders["dh-psi"] != orders["keyed-hash"]


@pytest.mark.whole
def test_feature_14_dh_psi_between_peers_publishes_what_keyed_hash_does(published):
    """What randomization and order do not touch is the same in every byte; each party's release is the others'."""
    folders = {mode: release_folder(item.parties[NORTH].site, item.digest) for mode, item in published.items()}
    assert len(set(published["dh-psi"].manifests().values())) == 1
    models = {mode: json.loads((folder / "model.json").read_bytes()) for mode, folder in folders.items()}
    psi, hashed = models["dh-psi"], models["keyed-hash"]
    assert psi.keys() == hashed.keys()
    for name in ("synthetic.csv", "network.bif", "network.bifxml"):
        assert (folders["dh-psi"] / name).read_bytes() == (folders["keyed-hash"] / name).read_bytes(), name
    told = psi["privacy"]["alignment"]
    assert told == PROTOCOLS.named("peer").linkage["dh-psi"].document()
    assert "miner" not in told
    different = {key for key in psi if psi[key] != hashed[key]}
    assert different <= {"study_digest", "study", "privacy", "ledger"}, different


# ---- what is on the way and on the disk


def test_feature_14_dh_psi_between_peers_no_id_and_no_unblinded_hash_is_told_or_kept(published):
    federation = published["dh-psi"]
    assert len(federation.told) > 20
    needles = []
    for name in NAMES:
        ids = ids_of(name)
        seeds, _ = linking.seeds(session.LINKAGE_KEY, federation.digest, ids)
        points = [blinding._point(seed.tobytes()).public_numbers().x.to_bytes(32, "big") for seed in seeds[:20]]
        needles += [one.encode() for one in ids[:5] + ids[-20:]] + [seed.tobytes() for seed in seeds[:20]] + points
    seen = b"\n".join([*federation.told, *federation.kept])
    assert [needle for needle in needles if needle in seen] == []
    keys = [data for data, (path, _) in federation.kept.items() if "blinding.key" in path.name]
    assert len(set(keys)) == 3, "each party's scalar was there for a while"
    assert not any(key in told for key in keys for told in federation.told)


def test_feature_14_dh_psi_between_peers_scalar_and_lists_are_private_and_do_not_stay(published):
    federation = published["dh-psi"]
    made = [(path.name, mode) for path, mode in federation.kept.values() if {"linkage", "peer"} & set(path.parts)]
    names = {name.removeprefix(".").split(".")[0] for name, _ in made}
    assert names >= {"blinding", "blinded", "shuffle", "positions", "tokens"}
    assert {mode for _, mode in made} == {0o600}
    for name in NAMES:
        state = federation.root / name / "state"
        assert not list((state / "linkage").glob("*"))
        assert Kind.COMMON in federation.left[name]
        assert not federation.left[name] & MADE_FOR_IT, "gone when the people are found, not when the study ends"


@pytest.mark.slow
async def test_feature_14_dh_psi_between_peers_two_studies_have_two_scalars(make):
    lists = []
    for number in range(2):
        study = STUDY.replace('id = "peers"', f'id = "peers-{number}"')
        federation = small(make(f"study-{number}", study=study))
        federation.load()
        federation.open()
        told: list[bytes] = []
        listen(federation, told, BLINDED)
        await federation.run()
        lists.append({data[i : i + 32] for data in told for i in range(0, len(data), 32)})
    assert lists[0]
    assert lists[1]
    assert not lists[0] & lists[1]


# ---- what is refused, by name


@pytest.mark.parametrize(
    ("liar", "owner", "lie", "problem"),
    [
        (SOUTH, NORTH, lambda data: ordered(NO_POINT + data[32:]), "is not a point of P-256"),
        (NORTH, NORTH, lambda data: bytes(32) + data[32:], "the point at infinity"),
        (SOUTH, NORTH, lambda data: data[32:], "tokens, expected the"),
        (NORTH, NORTH, lambda data: data[:32] + data, "tokens are there twice"),
        pytest.param(NORTH, NORTH, lambda data: ordered(NO_POINT + data[32:]), "not a point", marks=SLOW),
        pytest.param(WEST, NORTH, lambda data: bytes(32) + data[32:], "the point at infinity", marks=SLOW),
        pytest.param(WEST, NORTH, lambda data: ordered(data + A_POINT), "tokens, expected the", marks=SLOW),
        pytest.param(SOUTH, NORTH, lambda data: data[:32] + data[:-32], "tokens are there twice", marks=SLOW),
        pytest.param(SOUTH, NORTH, lambda data: data[32:] + data[:32], "not in ascending order", marks=SLOW),
        pytest.param(SOUTH, SOUTH, lambda data: data[:-1], "bytes, expected a multiple of 32", marks=SLOW),
    ],
)
async def test_feature_14_dh_psi_between_peers_refuses_a_wrong_list(federation, liar, owner, lie, problem):
    Liar(federation, liar, owner, lie)
    error = await refused(federation)
    assert (error.code, problem in error.message) == ("MESSAGE_INVALID", True), error
    assert f"blinded list of party '{owner}'" in error.message
    assert f"sent by party '{liar}'" in error.message


@pytest.mark.parametrize(
    ("liar", "owner", "returned"),
    [
        (WEST, NORTH, (SOUTH, NORTH)),  # what it was to blind comes back as it was
        pytest.param(SOUTH, NORTH, (SOUTH, SOUTH), marks=SLOW),  # its own point in place of another's
        pytest.param(WEST, NORTH, (WEST, WEST), marks=SLOW),
    ],
)
async def test_feature_14_dh_psi_between_peers_refuses_points_that_are_returned(federation, liar, owner, returned):
    """One is enough."""
    by, whose = returned

    def points(data: bytes) -> bytes:
        other = federation.parties[by].store.read(federation.digest, Kind.BLINDED, str(NAMES.index(whose)))
        return ordered(other[:32] + data[32:])

    Liar(federation, liar, owner, points)
    error = await refused(federation)
    assert error.code == "MESSAGE_INVALID"
    assert f"sent by party '{liar}': it has points that are also in a list" in error.message


async def test_feature_14_dh_psi_between_peers_refuses_what_the_owner_did_not_sign(federation):
    def tell(_caller, request, whole: bytes) -> bytes:
        if request.list != STEPS or request.owner != 0:
            return whole
        steps = peer_pb2.BlindedSteps.FromString(whole)
        steps.steps[0].statement.body += b" "
        return steps.SerializeToString()

    federation.services[SOUTH] = Between(federation.services[SOUTH], tell)
    error = await refused(federation)
    assert (error.code, "not signed by party 'north'" in error.message) == ("MESSAGE_INVALID", True), error


async def test_feature_14_dh_psi_between_peers_refuses_a_list_other_than_the_signed_one(federation):
    def tell(_caller, request, whole: bytes) -> bytes:
        return ordered(A_POINT + whole[32:]) if request.list == BLINDED else whole

    federation.services[NORTH] = Between(federation.services[NORTH], tell)
    error = await refused(federation)
    assert error.code == "ALIGNMENT_MISMATCH"
    assert "party 'north' tells another list than before" in error.message


async def test_feature_14_dh_psi_between_peers_refuses_a_list_that_changes_between_two_asks(federation):
    """South has lost what it took of north, and asks again; north has another list now, and signs it, too."""
    lost: list[str] = []

    def lose() -> None:
        store = federation.parties[SOUTH].store
        if lost or (Kind.TAKEN, "0") not in store.items(federation.digest):
            return
        lost.append("now")
        store.forget(federation.digest, Kind.BLINDED, "0")
        (federation.root / SOUTH / "state" / "linkage" / federation.digest.hex() / "0.in").unlink()
        Liar(federation, NORTH, NORTH, lambda data: ordered(A_POINT + data[32:]))

    stop_before_key_is_gone(federation, SOUTH, lose)
    await federation.run(after_step=lambda: None)
    assert lost
    error = federation.record(SOUTH).failure
    assert error is not None
    assert error.code == "ALIGNMENT_MISMATCH"
    assert "party 'north' tells another list than before" in error.message


def stop_before_key_is_gone(federation, name: str, then: Callable[[], None]) -> None:
    """South's second list of the ring is not there yet when it asks for it: between the two, something happens."""
    before = federation.before

    def watch(caller: str, told: str, rpc: str) -> None:
        before(caller, told, rpc)
        if caller == name and rpc == "get_pseudonyms":
            then()

    federation.before = watch


async def test_feature_14_dh_psi_between_peers_notices_who_tells_two_lists(federation):
    """West tells south another list, blinded by all, than it tells north: they do not sign the same common list."""

    def without_one(data: bytes) -> bytes:
        common = federation.parties[WEST].store.read(federation.digest, Kind.TOKENS)[:32]
        return ordered(data.replace(common, A_POINT))

    def before(asks: str, name: str, rpc: str) -> None:  # west knows the common list before south gets north's of it
        has_blinded_all = (Kind.STEPS, "2") in items(federation, SOUTH)
        asks_west = (asks, name, rpc) == (SOUTH, WEST, "get_pseudonyms")
        if asks_west and has_blinded_all and (Kind.TOKENS, "") not in items(federation, WEST):
            raise PeerFault("UNREACHABLE", "not yet")

    Liar(federation, WEST, NORTH, without_one, to=SOUTH)
    federation.before = before
    error = await refused(federation)
    assert error.code == "ALIGNMENT_MISMATCH"
    assert "found another common list than" in error.message


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (lambda data: data[:4] + data[:4] + data[8:], "a place is given twice"),
        pytest.param(lambda data: b"\xff" * 4 + data[4:], "a place is behind the end of the list", marks=SLOW),
        pytest.param(lambda data: data[4:], "236 bytes, expected 4 for each of the common people", marks=SLOW),
    ],
)
async def test_feature_14_dh_psi_between_peers_refuses_wrong_places(federation, lie, problem):
    def tell(_caller, request, whole: bytes) -> bytes:
        return lie(whole) if request.list == POSITIONS and request.owner == 0 else whole

    federation.services[SOUTH] = Between(federation.services[SOUTH], tell)
    error = await refused(federation)
    assert error.code == "MESSAGE_INVALID"
    assert f"places in the list of party 'north', sent by party 'south': {problem}" in error.message


async def test_feature_14_dh_psi_between_peers_keeps_the_minimum(make):
    federation = small(make(study=STUDY.replace("minimum_common_records = 55", "minimum_common_records = 65")))
    federation.load()
    federation.open()
    error = await refused(federation)
    assert error.code == "LINKAGE_TOO_SMALL"
    assert "60 records in common, expected at least 65" in error.message


@pytest.mark.slow
async def test_feature_14_dh_psi_between_peers_blinds_no_list_that_is_too_short(federation):
    Liar(federation, NORTH, NORTH, lambda data: data[: 32 * 54])
    error = await refused(federation)
    assert error.code == "LINKAGE_TOO_SMALL"
    assert "list of party 'north', hop 0: fewer people than the 55" in error.message


# ---- who is told what


async def test_feature_14_dh_psi_between_peers_lists_are_for_the_next_and_places_for_the_one_before(federation):
    refusals = []

    async def ask() -> None:
        effective = federation.record(NORTH).task.effective_digest
        for told, caller, which, owner in itertools.product(NAMES, NAMES, (BLINDED, STEPS, POSITIONS), range(3)):
            if told != caller:
                request = peer_pb2.GetPseudonymsRequest(effective_digest=effective, list=which, owner=owner)
                who = Identity(federation="trial", role=Role.PARTY, name=caller)
                try:
                    await everything(federation.services[told], who, request)
                except VerticilError as error:
                    refusals.append((told, caller, which, owner, error.code))

    def around(name: str, steps: int) -> str:
        return NAMES[(NAMES.index(name) + steps) % 3]

    while any((Kind.POSITIONS, str((NAMES.index(name) - 1) % 3)) not in items(federation, name) for name in NAMES):
        for name in NAMES:
            await federation.parties[name].step()
    await ask()
    for told, caller, which, owner in itertools.product(NAMES, NAMES, (BLINDED, STEPS, POSITIONS), range(3)):
        if told == caller:
            continue
        hop = (NAMES.index(told) - owner) % 3
        allowed = {around(told, 1)} if hop < 2 else set(NAMES)
        if which == POSITIONS:
            allowed = {around(told, -1)} if hop else set()
        codes = {code for *key, code in refusals if key == [told, caller, which, owner]}
        assert ("IDENTITY_REFUSED" in codes) == (caller not in allowed), (told, caller, which, owner, codes)


def items(federation, name: str):
    return federation.parties[name].store.items(federation.digest)


@pytest.mark.parametrize("mode", ["keyed-hash", "order-commitment", "dh-psi"])
async def test_feature_14_dh_psi_between_peers_no_list_of_another_mode(make, mode):
    federation = make(study=session.STUDY.replace("[linkage]\n", f'[linkage]\nmode = "{mode}"\n'))
    federation.load()
    federation.open()
    while not federation.record(NORTH).task.effective_digest:
        for name in NAMES:
            await federation.parties[name].step()
    who = Identity(federation="trial", role=Role.PARTY, name=SOUTH)
    expected = {"keyed-hash": {1, 2}, "order-commitment": {3}, "dh-psi": {3, 4, 5, 6}}[mode]
    for which in range(8):
        request = peer_pb2.GetPseudonymsRequest(
            effective_digest=federation.record(NORTH).task.effective_digest, list=which, owner=0
        )
        with pytest.raises(VerticilError) as caught:
            await everything(federation.services[NORTH], who, request)
        assert (caught.value.code == "MESSAGE_INVALID") == (which not in expected), (which, caught.value)


# ---- what survives


@pytest.mark.whole
async def test_feature_11_dh_psi_between_peers_killed_after_each_step(federation):
    def kill() -> None:
        if any(federation.record(name).n_common is None for name in NAMES):
            federation.reopen()

    await federation.run(after_step=kill)
    assert {(federation.record(name).task.state, federation.record(name).n_common) for name in NAMES} == {
        (State.PUBLISHED, N_COMMON)
    }


class Killed(BaseException):
    """A process that ends here."""


WRITERS = {module.__name__ for module in (artifact_store, blinded_lists, blinding, fetch, pseudonym_lists, ring)}
"""Names of the modules that write what an alignment keeps."""


@pytest.mark.slow
async def test_feature_11_dh_psi_between_peers_killed_at_everything_that_becomes_durable(make, published):
    """All die at each kind of step of the alignment once, right before or right after it, and begin anew from the disk."""
    federation = small(make(study=STUDY))
    federation.load()
    federation.open()
    died: set[tuple[str, str, str]] = set()

    def watch(step: durable.DurableStep) -> None:
        frame, where = sys._getframe(1), ""
        while frame is not None:
            module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
            if module in WRITERS:
                where = f"{where} {name}"
            frame = frame.f_back
        own = "linkage" in step.path.parts
        kind = f"{step.kind} {step.path.suffix if own else step.path.name.removeprefix('.').split('.')[0]}"
        if where and (key := (step.moment, kind, where)) not in died:
            died.add(key)
            raise Killed

    with durable.watch_steps(watch):
        for _ in range(500):
            try:
                await federation.run()
            except Killed:
                federation.reopen()
            else:
                break
    assert len(died) >= 60
    kinds = " ".join(where for _, where, _ in died)
    assert all(str(kind) in kinds for kind in (*MADE_FOR_IT, Kind.POSITIONS, Kind.COMMITMENT, Kind.COMMON))
    assert {(federation.record(name).task.state, federation.record(name).n_common) for name in NAMES} == {
        (State.PUBLISHED, N_COMMON)
    }
    folders = [release_folder(item.parties[NORTH].site, item.digest) for item in (federation, published["dh-psi"])]
    assert len({(folder / "synthetic.csv").read_bytes() for folder in folders}) == 1
    assert len(set(federation.manifests().values())) == 1


async def test_feature_14_dh_psi_between_peers_a_list_without_its_scalar_is_not_made_anew(federation):
    """The scalar is deleted and a list is lost: another scalar would give the peers a second list of the same people."""
    before: dict[str, bool] = {}

    def lose() -> None:
        if before or (Kind.COMMITMENT, "") in items(federation, NORTH):
            return
        if len([kind for kind, _ in items(federation, NORTH) if kind is Kind.STEPS]) == 3:
            before["lost"] = True
            federation.parties[NORTH].store.forget(federation.digest, Kind.BLINDED, "0")

    await federation.run(after_step=lose)
    assert before
    error = federation.record(NORTH).failure
    assert error is not None
    assert error.code == "ALIGNMENT_MISMATCH"
    assert "a list that it blinded is lost, and the scalar is deleted" in error.message


async def test_feature_14_dh_psi_between_peers_a_revocation_stops_it(federation):
    """A party that takes its approval back while it blinds does not finish first."""
    party = federation.parties[WEST]
    while not federation.record(WEST).task.effective_digest:
        for name in NAMES:
            await federation.parties[name].step()
    reports.revoke(party.config, "peers", "officer", "no", at=federation.now)
    await federation.run()
    assert State(federation.record(WEST).task.state) is State.WITHDRAWN
    assert not list((federation.root / WEST / "state" / "linkage").glob("*"))


# ---- the whole computation, without a wire


@pytest.mark.parametrize("n_parties", [1, 2, 3, 4])
def test_feature_14_dh_psi_between_peers_every_owner_finds_its_own(n_parties):
    lists = [
        [f"all-{n}" for n in range(5)] + [f"{k % 2}-{n}" for n in range(3)] + [f"own-{k}"] for k in range(n_parties)
    ]
    keys = [BlindingKey.draw() for _ in lists]
    seeds = [linking.seeds(bytes(32), bytes(32), ids) for ids in lists]
    full, orders = [], []
    for owner, (values, _) in enumerate(seeds):
        told, order = blinded_lists.sort_for_sending(blinding.blind_seeds(keys[owner], values.tobytes()))
        orders.append([order.tobytes()])
        for hop in range(1, n_parties):
            assert blinded_lists.list_problem(told) == ""
            told, order = blinded_lists.sort_for_sending(blinding.blind_tokens(keys[(owner + hop) % n_parties], told))
            orders[owner].append(order.tobytes())
        full.append(tokens_of(told))
    common = full[0]
    for other in full[1:]:
        common = blinded_lists.in_both(common, other)
    found = []
    for owner, ids in enumerate(lists):
        positions = blinded_lists.places(full[owner], common).tobytes()
        for order in reversed(orders[owner]):
            positions = blinded_lists.trace_positions(positions, order)
        rows = blinded_lists.common_rows(len(ids), positions)
        found.append([ids[row] for row in seeds[owner][1][rows]])
    expected = set.intersection(*map(set, lists))
    assert all(set(one) == expected and one == found[0] for one in found)


def test_feature_14_dh_psi_between_peers_the_study_is_accepted(published):
    study = from_bytes(published["dh-psi"].record(NORTH).task.effective)
    assert (study.linkage.mode, study.model) == ("dh-psi", "peer")
