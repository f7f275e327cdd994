"""Randomized columns between peers: own ones made ready for those who read them, peers' ones pulled and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from verticil.party.protocol.peer.artifact_store import Item, Kind
from verticil.party.protocol.peer.context import PeerStudyContext
from verticil.party.protocol.peer.network import all_of
from verticil.party.protocol.planning import PeerFailedError
from verticil.party.protocol.randomization import fill_spool
from verticil.shared.arrays import Codes
from verticil.shared.errors import PeerFault
from verticil.shared.formats import artifact
from verticil.shared.model.graph import Dag
from verticil.shared.study.document import Study
from verticil.shared.study.peer import readers, reads
from verticil.shared.study.structure_document import Structure
from verticil.shared.transport.parts import fetch_file
from verticil.wire.v1 import peer_pb2

_COUNT: Final = slice(8, 16)  # of an artifact's header
_SLACK: Final = 4  # times the expected size: so that a longer column, too, is told by its number of records


def needed_units(study: Study, party: str, structure: Structure | None) -> frozenset[int]:
    """Own units that somebody reads: for scores where the structure is learned, and with the structure for parameters."""
    stages = _stages(study, structure)
    return frozenset(index for index in study.units_of(party) for dag in stages if readers(study, index, dag))


def wanted_units(study: Study, party: str, structure: Structure | None) -> frozenset[int]:
    """Units of peers that this party reads, as far as that is known."""
    return frozenset(index for dag in _stages(study, structure) for index in reads(study, party, dag))


def _stages(study: Study, structure: Structure | None) -> tuple[Dag | None, ...]:
    scored: tuple[Dag | None, ...] = (None,) if study.structure.parents is None else ()
    return scored if structure is None else (*scored, structure.dag)


async def randomize_columns(context: PeerStudyContext, units: Collection[int]) -> None:
    """Put own units into the spool; raises as `fill_spool`, and APPROVAL_VOID."""
    holding, rows = await context.common_people()
    node = context.node
    await context.node.heavily(
        lambda: fill_spool(
            node.site,
            node.spool,
            context.record,
            effective=context.study,
            holding=holding,
            rows=rows,
            units=units,
            at=node.clock(),
        )
    )


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
    expected = artifact.packed_size(n_common, unit.transition.n_states, codes_per_record=width)
    what = f"column '{', '.join(unit.variables)}'"
    target = await asyncio.to_thread(context.shelf.target, context.digest, Kind.COLUMN, str(index))
    request = peer_pb2.GetColumnRequest(
        effective_digest=context.effective_digest,
        unit=index,
        common_sha256=common_sha256,
        structure_sha256=_known_as(context, index),
    )

    def at(offset: int) -> peer_pb2.GetColumnRequest:
        resumed = peer_pb2.GetColumnRequest()
        resumed.CopyFrom(request)
        resumed.offset = offset
        return resumed

    sha256 = await context.peers.ask(
        owner,
        lambda peer: fetch_file(
            lambda offset: peer.get_column(at(offset)), target, limit_bytes=_SLACK * expected, what=what
        ),
        what=what,
    )

    def keep() -> None:
        try:
            _checked(target, context.study, index, n_common, what)
        except PeerFault as error:
            target.unlink(missing_ok=True)
            raise PeerFailedError(context.named(error, owner)) from None
        context.shelf.enter(context.digest, Kind.COLUMN, str(index), Item(sha256=sha256, size=target.stat().st_size))

    await context.node.heavily(keep)


def _known_as(context: PeerStudyContext, index: int) -> bytes:
    """What the request says of the structure: nothing of a column that is read for scores."""
    scored = context.study.structure.parents is None and index in reads(context.study, context.me, None)
    known = context.known_structure
    return b"" if scored or known is None else known.sha256


def _checked(path: Path, study: Study, index: int, n_common: int, what: str) -> Codes:
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
    """Peers' columns from the shelf: index of the unit -> released codes.

    Raises:
        LostError: one is not there any more.
    """
    n_common, _ = context.common
    found: dict[int, Codes] = {}
    for index in sorted(units):
        transition = context.study.units[index].transition
        data = context.shelf.read(context.digest, Kind.COLUMN, str(index))
        found[index] = artifact.unpack(
            data, transition.n_states, n_common, codes_per_record=transition.codes_per_record
        )
    return found
