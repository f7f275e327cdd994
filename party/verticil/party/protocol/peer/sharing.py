"""From columns to shared statistics: randomized columns are made ready for those who read them, peers' ones pulled and checked;
then the scores for the miner, the own parameters, and those of all others.

Whatever is shared is computed once, stored with its row in the ledger in one transaction, and sent from there: asked again, or
after a kill, the same bytes are sent.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path
from typing import Final, cast

from google.protobuf.message import DecodeError

from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.peer.parameters import learn_families, learn_scores, share_noise
from verticil.party.protocol.planning import PeerFailedError, WaitedForError
from verticil.party.protocol.reconciliation.columns import RECIPIENT
from verticil.party.protocol.statistics import EVERYONE
from verticil.party.protocol.with_peers.artifact_store import Item, Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.party.protocol.with_peers.network import MINER, all_of
from verticil.party.protocol.with_peers.shared_statistics import data_fingerprint, statistics, store_shared
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import PeerFault, VerticilError, from_code
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.padding import pad
from verticil.shared.federation.transport.errors_on_wire import from_detail
from verticil.shared.federation.transport.fetch import fetch_bytes
from verticil.shared.federation.transport.interface import Peer
from verticil.shared.mechanisms.shared_statistics_noise import ShareNoise, share_key
from verticil.shared.numerics.model import artifact
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.privacy.events import share_event
from verticil.shared.release.peer_assembly import expected_reads
from verticil.shared.release.statement import (
    MAX_STATEMENT_BYTES,
    PartyStatement,
    Received,
    parse_statement,
    statement_body,
)
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.peer import readers, reads, scored_pairs
from verticil.shared.study.structure_document import Structure, parse_structure
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

_LARGEST: Final = MAX_STATEMENT_BYTES + 65_536  # signature and certificate are around a statement
_COUNT: Final = slice(8, 16)  # of an artifact's header
_SLACK: Final = 4  # times the expected size: so that a longer column, too, is refused by its number of records


def needed_units(study: Study, party: str, structure: Structure | None) -> frozenset[int]:
    """Own units that somebody reads: for scores where the structure is learned, and with the structure for parameters."""
    stages = _stages(study, structure)
    return frozenset(index for index in study.units_of(party) for dag in stages if readers(study, index, dag))


def wanted_units(study: Study, party: str, structure: Structure | None) -> frozenset[int]:
    """Units of peers that this party reads, as far as that is known."""
    return frozenset(index for dag in _stages(study, structure) for index in reads(study, party, dag))


def _stages(study: Study, structure: Structure | None) -> tuple[Dag | None, ...]:
    structures: tuple[Dag | None, ...] = (None,) if study.structure.parents is None else ()
    return structures if structure is None else (*structures, structure.dag)


async def randomize_columns(context: PeerStudyContext, units: Collection[int]) -> None:
    """Put own units into the spool; raises as `fill_spool`, and APPROVAL_VOID."""
    holding, rows = await context.common_people()
    await context.randomize(holding, rows, units)


async def pull_columns(context: PeerStudyContext, units: Collection[int]) -> str | None:
    """Get units of peers, from several owners at the same time.

    Returns:
        None when all are here; else who is waited for.

    Raises:
        PeerFailedError: a column is not what was agreed, or will never come.
    """
    by_owner: dict[str, list[int]] = {}
    for index in sorted(units):
        by_owner.setdefault(context.study.units[index].owner, []).append(index)
    return await all_of(_pull_from(context, owner, indices) for owner, indices in by_owner.items())


async def _pull_from(context: PeerStudyContext, owner: str, units: Sequence[int]) -> None:
    for index in units:
        await _pull(context, owner, index)


async def _pull(context: PeerStudyContext, owner: str, index: int) -> None:
    unit = context.study.units[index]
    n_common, common_sha256 = context.common
    width = unit.transition.codes_per_record
    expected_size = artifact.packed_size(n_common, unit.transition.n_states, codes_per_record=width)
    what = f"column '{', '.join(unit.variables)}'"
    target = await asyncio.to_thread(context.store.target, context.digest, Kind.COLUMN, str(index))

    def column(peer: Peer, offset: int) -> AsyncGenerator[peer_pb2.Part]:
        return peer.get_column(
            peer_pb2.GetColumnRequest(
                effective_digest=context.effective_digest,
                unit=index,
                common_sha256=common_sha256,
                structure_sha256=_known_as(context, index),
                offset=offset,
            )
        )

    sha256 = await context.fetched_into(target, owner, column, limit=_SLACK * expected_size, what=what)

    def keep() -> None:
        try:
            _read_checked(target, context.study, index, n_common, what)
        except PeerFault as error:
            target.unlink(missing_ok=True)
            raise PeerFailedError(context.make_fault(error, owner)) from None
        context.store.enter(context.digest, Kind.COLUMN, str(index), Item(sha256=sha256, size=target.stat().st_size))

    await context.node.heavily(keep)


def _known_as(context: PeerStudyContext, index: int) -> bytes:
    """Return what the request says of the structure: nothing for a column that is read for scores."""
    reads_for_scores = context.study.structure.parents is None and index in reads(context.study, context.me, None)
    structure = context.known_structure
    return b"" if reads_for_scores or structure is None else structure.sha256


def _read_checked(path: Path, study: Study, index: int, n_common: int, what: str) -> Codes:
    transition = study.units[index].transition
    data = path.read_bytes()
    if data[: len(artifact.MAGIC)] == artifact.MAGIC and len(data) >= artifact.HEADER_BYTES:
        n_codes, width = int.from_bytes(data[_COUNT], "little"), transition.codes_per_record
        if n_codes != n_common * width:
            raise PeerFault(
                "ARTIFACT_INVALID",
                f"{what}: {n_codes // width} records, expected {n_common}, as in the common list",
                hint="that party's operator should look at its log; nothing is computed from this column",
            )
    try:
        return artifact.unpack(data, transition.n_states, n_common, codes_per_record=transition.codes_per_record)
    except PeerFault as error:
        raise PeerFault(error.code, f"{what}: {error.message}", hint=error.hint) from None


def remote_codes(context: PeerStudyContext, units: Collection[int]) -> dict[int, Codes]:
    """Peers' columns from the artifact store: index of the unit -> released codes.

    Raises:
        LostError: one is not there any more.
    """
    n_common, _ = context.common
    codes: dict[int, Codes] = {}
    for index in sorted(units):
        transition = context.study.units[index].transition
        data = context.store.read(context.digest, Kind.COLUMN, str(index))
        codes[index] = artifact.unpack(
            data, transition.n_states, n_common, codes_per_record=transition.codes_per_record
        )
    return codes


async def find_structure(context: PeerStudyContext) -> None:
    """Score the pairs that are this party's to score, send the scores to the miner, and get the structure from it.

    Raises:
        WaitedForError: the miner, or the scores of others, are not there yet.
        PeerFailedError: the search failed, or what the miner sends is not a structure of this study.
        Refusal: APPROVAL_VOID, EPSILON_INFINITE, BUDGET_EXCEEDED.
    """
    dial = context.between.coordinator
    if dial is None:
        raise WaitedForError("waiting for a miner: federation.toml has no [miner] endpoint to search the structure")
    scores = await _scores(context)
    request = coordinator_pb2.PutScoresRequest(
        effective=to_bytes(context.study), information=scores, wait_seconds=context.between.search_wait_seconds
    )
    coordinator = dial()
    try:
        put = coordinator.put_scores(request)
        reply = await context.peers.receive_reply(MINER, put, what="the structure", at_fault=MINER)
    finally:
        await coordinator.close()
    if reply.HasField("failure"):
        failure = from_detail(reply.failure, teller=MINER)
        raise PeerFailedError(from_code(failure.code, f"no structure was found: {failure.message}", hint=failure.hint))
    if not reply.HasField("structure"):
        names = ", ".join(f"'{name}'" for name in sorted(reply.waiting_for) if name in context.study.parties)
        raise WaitedForError(
            f"waiting for the scores of {names} at the miner" if names else "waiting for the miner's search"
        )
    try:
        context.node.verify(reply.structure, role=Role.MINER)
        parse_structure(reply.structure.body, context.study, context.effective_digest)
    except PeerFault as error:
        raise PeerFailedError(PeerFault(error.code, f"the miner's structure: {error.message}")) from None
    await asyncio.to_thread(context.store.put, context.digest, Kind.STRUCTURE, reply.structure)


async def _scores(context: PeerStudyContext) -> Sequence[int]:
    if (Kind.SCORES, "") not in await asyncio.to_thread(context.store.items, context.digest):
        holding, _ = await context.common_people()
        raw = await context.raw()

        def score() -> bytes:
            remote = remote_codes(context, wanted_units(context.study, context.me, None))
            noise = _noise(context, holding, b"")
            return json.dumps(learn_scores(raw, remote, context.study, context.me, noise=noise)).encode("ascii")

        scores = await context.node.heavily(score)
        await asyncio.to_thread(
            _store_shared, context, holding, kind=Kind.SCORES, name="", content=scores, recipient=RECIPIENT
        )
    return cast("list[int]", json.loads(await asyncio.to_thread(context.store.read, context.digest, Kind.SCORES)))


async def learn_parameters(context: PeerStudyContext) -> None:
    """Learn the own variables' parameters, sign and store them.

    What a peer received before is not computed anew, because its time is part of it: a party that lost its statement, or was
    restored from a backup, takes it over from there.

    Raises:
        WaitedForError: a peer cannot be asked whether it has them.
        PeerFailedError: what it has is not a statement of this party for this study.
        Refusal: APPROVAL_VOID, EPSILON_INFINITE, BUDGET_EXCEEDED.
        DataFault: LEARNING_FAILED.
    """
    structure = context.structure
    holding, _ = await context.common_people()
    raw = await context.raw()
    n_common, common_sha256 = context.common
    study = context.study
    earlier_statement = await _told_before(context)

    def learn() -> bytes:
        units = expected_reads(study, context.me, structure.dag)
        remote = remote_codes(context, units)
        noise = _noise(context, holding, structure.sha256)
        families, marginals = learn_families(raw, remote, study, context.me, structure.dag, noise=noise)
        items = context.store.items(context.digest)
        statement = PartyStatement(
            party=context.me,
            effective_digest=context.effective_digest,
            n_common=n_common,
            common_sha256=common_sha256,
            structure_sha256=structure.sha256,
            computed_at=context.node.clock().replace(microsecond=0),
            software=context.between.software,
            received=tuple(
                Received(
                    unit=index,
                    owner=study.units[index].owner,
                    artifact_sha256=items[Kind.COLUMN, str(index)].sha256,
                    n_records=n_common,
                )
                for index in units
            ),
            families=families,
            marginals=marginals,
            exact=noise is None,
        )
        own = context.node.signing_key.sign(statement_body(statement, study))
        return pad(own, limit_bytes=MAX_STATEMENT_BYTES).SerializeToString(deterministic=True)

    signed = earlier_statement or await context.node.heavily(learn)
    await asyncio.to_thread(
        _store_shared, context, holding, kind=Kind.STATEMENT, name=context.me, content=signed, recipient=EVERYONE
    )


async def _told_before(context: PeerStudyContext) -> bytes:
    """Return this party's own statement, as a peer has it; empty: no peer received any."""
    statements: dict[str, bytes] = {}

    def call(offset: int) -> peer_pb2.GetParametersRequest:
        return peer_pb2.GetParametersRequest(effective_digest=context.effective_digest, offset=offset, yours=True)

    async def fetch_statement(peer: Peer) -> bytes:
        try:
            return await fetch_bytes(
                lambda offset: peer.get_parameters(call(offset)), limit_bytes=_LARGEST, what="own parameters"
            )
        except PeerFault as error:
            if error.code != "NOT_READY":
                raise
            return b""

    async def ask(name: str) -> None:
        statements[name] = await context.peers.ask(name, fetch_statement, what="whether it has this party's parameters")

    waiting = await all_of(ask(name) for name in context.others)
    if waiting is not None:
        raise WaitedForError(waiting)
    for name in context.others:
        if statements[name]:
            try:
                await context.node.heavily(functools.partial(_check, context, context.me, statements[name]))
            except VerticilError as error:
                raise PeerFailedError(context.make_fault(error, name)) from None
            return statements[name]
    return b""


def _noise(context: PeerStudyContext, holding: LocalDataset, structure_sha256: bytes) -> ShareNoise | None:
    rule = context.study.share
    if rule is None or rule.noise is None:
        return None
    key = share_key(
        context.node.site.site_secret,
        effective_digest=context.effective_digest,
        structure_sha256=structure_sha256,
        common_sha256=context.common[1],
        data_fingerprint=data_fingerprint(holding),
    )
    return share_noise(key, context.study, context.me)


def _basis(context: PeerStudyContext, units: Collection[int], structure_sha256: bytes = b"") -> bytes:
    """Names what statistics are computed from besides the own data: study, common list, structure, columns of peers."""
    items = context.store.items(context.digest)
    read = b"".join(index.to_bytes(4, "big") + items[Kind.COLUMN, str(index)].sha256 for index in sorted(units))
    return hashlib.sha256(
        context.effective_digest + context.common[1] + structure_sha256.ljust(32, b"\0") + read
    ).digest()


def _store_shared(
    context: PeerStudyContext, holding: LocalDataset, *, kind: Kind, name: str, content: bytes, recipient: str
) -> None:
    study, rule = context.study, context.study.share
    scored_units = _basis(context, wanted_units(study, context.me, None))
    learned_pairs = scored_pairs(study, context.me) if study.structure.parents is None else ()
    if kind is Kind.SCORES:
        basis, along_with, empty = scored_units, None, not learned_pairs
    else:
        structure = context.structure
        basis, empty = _basis(context, wanted_units(study, context.me, structure), structure.sha256), False
        along_with = scored_units if learned_pairs else None
    sharing_words = [
        "share",
        *((None, None) if rule is None or not rule.noise else (rule.epsilon, rule.delta, rule.noise)),
    ]
    noise, event = hashlib.sha256(json.dumps(sharing_words).encode()).digest(), share_event(study, context.me)
    releases = [] if empty else statistics(context, holding, event, basis=basis, noise=noise)
    store_shared(context, releases, kind=kind, name=name, content=content, recipient=recipient, along_with=along_with)


async def collect_statements(context: PeerStudyContext, missing: Sequence[str]) -> str | None:
    """Get the parameters of peers.

    Returns:
        None when all are here; else who is waited for.

    Raises:
        PeerFailedError: they are not what was agreed, or will never come.
    """
    return await all_of(_collect(context, name) for name in missing)


async def _collect(context: PeerStudyContext, name: str) -> None:
    def parameters(peer: Peer, offset: int) -> AsyncGenerator[peer_pb2.Part]:
        request = peer_pb2.GetParametersRequest(effective_digest=context.effective_digest, offset=offset)
        return peer.get_parameters(request)

    body = await context.fetch(name, parameters, limit=_LARGEST, what="the parameters")

    def keep() -> None:
        try:
            _check(context, name, body)
        except VerticilError as error:
            raise PeerFailedError(context.make_fault(error, name)) from None
        context.store.put(context.digest, Kind.STATEMENT, body, name)

    await context.node.heavily(keep)


def _check(context: PeerStudyContext, name: str, body: bytes) -> None:
    """Check whose statement it is, and that it rests on the same study, people, structure and columns."""
    try:
        signed = common_pb2.Signed.FromString(body)
    except DecodeError:
        raise PeerFault("MESSAGE_INVALID", "its parameters are not a signed statement") from None
    context.node.verify(signed, role=Role.PARTY, name=name)
    statement = parse_statement(signed.body, context.study)
    structure = context.structure
    n_common, common_sha256 = context.common
    families = {family.child: family.parents for family in statement.families}
    mine = context.node.site.state.artifacts(context.digest, context.effective_digest)
    for what, actual, target in (
        ("party", statement.party, name),
        ("effective study", statement.effective_digest.hex(), context.effective_digest.hex()),
        ("number of common people", statement.n_common, n_common),
        ("common list", statement.common_sha256.hex(), common_sha256.hex()),
        ("structure", statement.structure_sha256.hex(), structure.sha256.hex()),
        ("families", families, {child: structure.dag.parents[child] for child in context.study.schema.owned_by(name)}),
        ("columns read", tuple(r.unit for r in statement.received), expected_reads(context.study, name, structure.dag)),
    ):
        if actual != target:
            raise PeerFault("STUDY_MISMATCH", f"its parameters: {what}: got {actual}, expected {target}")
    for column in statement.received:
        item = mine.get(column.unit)
        if item is not None and column.artifact_sha256 != item.sha256:
            raise PeerFault(
                "STUDY_MISMATCH",
                f"its parameters: unit {column.unit}: read {column.artifact_sha256.hex()}, sent {item.sha256.hex()}",
            )
