"""Linkage ``dh-psi`` with the miner as the post office: every party's list is blinded by every party, in the study's order.

Order rules. A party blinds and puts its own list (hop 0). For h = 1, 2, .. it takes the list of the party h places before it as
that list left hop h - 1, blinds it, and puts it as hop h. After the last hop the miner compares; each owner gets its own list
back, fully blinded, and a bitmap that marks the common tokens. Tokens keep the owner's order on the whole way; the common order
is the ascending one of the fully blinded tokens.

Promises
- A list is worked on only when the party before signed it, and when it has the size that it had, points only, none twice, and
  none that is in another list that this party received or made: returned points would make people common whom nobody else has.
- The key is on the disk before the first token leaves and gone when the people are found; a kill anywhere leads to the same
  tokens.
- The own list, by which marks become rows, is compared each time with the SHA-256 that was noted before it left, or with what the
  miner has: one that was lost and made again with another key, or lost together with the key, ends the study by name.
- Rows are given for randomization only when every party has signed the same common list and each of its tokens is in this party's
  own list as the last party signed it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.blinding import TOKEN_BYTES, BlindingState, TokenInvalidError, tokens_of
from verticil.party.dataset.pseudonyms import check_common_size, marked_positions
from verticil.party.protocol.central.alignment import Accepted, CentralContext
from verticil.party.protocol.context import Rows
from verticil.party.protocol.with_miner.upload import Alignment, Progress, send_all
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.alignment.statements import blinded_body, sender
from verticil.shared.federation.transport.chunks import make_chunks
from verticil.shared.federation.transport.fetch import fetch_file
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

_LARGEST_LIST: Final = 2**32
"""Bytes of a list: 134 million people."""
_OWN: Final = "own.list"
_SENT: Final = "own.sent"
"""SHA-256 of the own list, as it is sent."""
_FULL: Final = "full.list"
_ARRIVED: Final = "full.in"


class Ring:
    """Linker of studies with linkage ``dh-psi``."""

    async def link(self, context: CentralContext) -> None:
        """Blind the own list and those of the others, each when its context has come.

        Raises:
            PeerFault: NOT_READY, another party's context; MESSAGE_INVALID, a list is not what it should be, naming who sent it.
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        parties = context.study.parties
        me = parties.index(context.me)
        for hop in range(len(parties)):

            async def progress(percent: int, hop: int = hop) -> None:
                await context.progress((100 * hop + percent) // len(parties))

            owner = (me - hop) % len(parties)
            if hop == 0:
                data = (await self._own(context, progress))[0]
                await asyncio.to_thread(_note_sent, context, data)
            else:
                data = await self._others(context, owner, hop, progress)
            await self._put(context, owner, hop, data)

    async def confirm(self, context: CentralContext) -> Accepted:
        """Check the common list against the own, fully blinded list, and sign it."""
        alignment, _ = await self._find_rows(context)
        statement = context.commitment(alignment.n_common, alignment.common_sha256)
        report = coordinator_pb2.ReportRequest(study_digest=context.digest, commitment=statement)
        return Accepted(n_common=alignment.n_common, common_sha256=alignment.common_sha256, rows=None, report=report)

    async def rows(self, context: CentralContext) -> Rows:
        """Return the common records by ascending fully blinded token; every party has signed the list."""
        alignment, rows = await self._find_rows(context)
        context.signed_by_all(alignment)
        await asyncio.to_thread(_blinding_state(context).forget_key)
        return rows

    # ---- own list

    async def _own(self, context: CentralContext, progress: Progress) -> tuple[bytes, NDArray[np.int64]]:
        """Return the own list as it is sent, ascending, and the record of each of its tokens."""
        blinding_state, holding = _blinding_state(context), context.holding
        await blinding_state.blind_into(
            _OWN, holding.seeds.tobytes(), own=True, heavily=context.node.heavily, progress=progress
        )

        def ascending() -> tuple[bytes, NDArray[np.int64]]:
            data = blinding_state.take(_OWN) or b""
            if len(data) != TOKEN_BYTES * holding.n_records:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    f"study '{context.record.study_id}': this party's blinded list is not of as many records as its table",
                    hint="the table or the state directory changed; nothing was randomized, submit the study again",
                )
            tokens = tokens_of(data)
            order = np.argsort(tokens)
            return tokens[order].tobytes(), order

        return await context.node.heavily(ascending)

    async def _as_sent(self, context: CentralContext) -> NDArray[np.int64]:
        """Return the record of each token of the own list, if the list is the one that was put at the miner.

        What the miner marks are places in that list. Made again with another key, or from another table, it has other places,
        and the marks would be taken for other people.
        """
        blinding_state = _blinding_state(context)
        if not blinding_state.has_key and await asyncio.to_thread(blinding_state.take, _OWN) is None:
            raise _make_lost_fault(context, "is lost, and so is the key with which it was made")
        data, rows = await self._own(context, context.progress)
        note = await asyncio.to_thread(blinding_state.take, _SENT)
        if note is not None:
            if note != hashlib.sha256(data).digest():
                raise _make_lost_fault(context, "is not the one that it sent to the miner")
            return rows
        owner = context.study.parties.index(context.me)
        try:
            reply = await context.coordinator.put_blinded([_head(context, owner, 0, data)])
        except VerticilError as error:
            if error.code != "ARTIFACT_INVALID":
                raise
            raise _make_lost_fault(context, "is not the one that it sent to the miner") from None
        if not reply.complete:
            raise _make_lost_fault(context, "is not at the miner, which tells of common people in it")
        return rows

    # ---- others' lists

    async def _others(self, context: CentralContext, owner: int, hop: int, progress: Progress) -> bytes:
        """Another party's list, blinded by this one."""
        blinding_state, name = _blinding_state(context), f"{owner:02d}-{hop:02d}.list"
        blinded_list = await asyncio.to_thread(blinding_state.take, name)
        if blinded_list is not None:
            return blinded_list
        arriving = f"{owner:02d}-{hop - 1:02d}.in"
        data = await self._fetch(context, owner, hop - 1, arriving)
        try:
            await blinding_state.blind_into(name, data, own=False, heavily=context.node.heavily, progress=progress)
        except TokenInvalidError as error:
            raise context.wrong_list(owner, hop - 1, f"token {error.position} is not a point of P-256") from None
        return await asyncio.to_thread(blinding_state.take, name) or b""

    async def _fetch(self, context: CentralContext, owner: int, hop: int, name: str) -> bytes:
        """Fetch a list as the party before sent it, and check it."""
        target = await asyncio.to_thread(_blinding_state(context).path, name)
        statements: list[common_pb2.Signed] = []

        async def parts(offset: int) -> AsyncGenerator[peer_pb2.Part]:
            request = coordinator_pb2.GetBlindedRequest(
                study_digest=context.digest, owner=owner, hop=hop, offset=offset
            )
            async with aclosing(context.coordinator.get_blinded(request)) as stream:
                async for item in stream:
                    statements[:] = [item.statement]
                    yield item.part

        parties = context.study.parties
        before = sender(parties, owner, hop)
        what = f"blinded list of party '{parties[owner]}', hop {hop}, sent by party '{before}'"
        try:
            sha256 = await fetch_file(parts, target, limit_bytes=_LARGEST_LIST, what=what)
        except VerticilError as error:
            if error.code == "NOT_READY":
                waiting = f"waiting for '{before}' to blind a list"
                await asyncio.to_thread(context.node.site.state.show, context.digest, waiting, at=context.node.clock())
            raise

        def check_list() -> bytes:
            data = target.read_bytes()
            body = blinded_body(
                study=context.digest, owner=parties[owner], hop=hop, party=before, size=len(data), sha256=sha256
            )
            context.node.check_statement(statements[0], body, party=before, what=what)
            if len(data) % TOKEN_BYTES:
                raise context.wrong_list(owner, hop, f"{len(data)} bytes, expected a multiple of {TOKEN_BYTES}")
            if len(data) < context.minimum * TOKEN_BYTES:
                raise context.wrong_list(
                    owner, hop, f"fewer tokens than the {context.minimum} that are expected in common"
                )
            tokens = tokens_of(data)
            if n_repeated := len(tokens) - len(np.unique(tokens)):
                raise context.wrong_list(owner, hop, f"{n_repeated} tokens are there twice")
            for other in _other_lists(context, name, owner):
                if np.intersect1d(tokens, tokens_of(other), assume_unique=True).size:
                    raise context.wrong_list(
                        owner, hop, "it has points that are also in a list that others have blinded"
                    )
            return data

        return await context.node.heavily(check_list)

    async def _put(self, context: CentralContext, owner: int, hop: int, data: bytes) -> None:
        """Send a list from where the miner stands."""
        head = _head(context, owner, hop, data)

        def stream(offset: int) -> Iterator[coordinator_pb2.PutBlindedRequest]:
            yield head
            chunk_bytes = context.node.site.config.federation.chunk_bytes
            for chunk in make_chunks(data, offset=offset, chunk_bytes=chunk_bytes):
                yield coordinator_pb2.PutBlindedRequest(chunk=chunk)

        await send_all(context.coordinator.put_blinded, head, stream, size=len(data), what="blinded list")

    # ---- the common people

    async def _find_rows(self, context: CentralContext) -> tuple[Alignment, Rows]:
        """Return what the miner sends, and the rows that it marks, if they are the list that it names."""
        alignment = await context.alignment(n_records=context.holding.n_records)
        parties = context.study.parties
        data = await asyncio.to_thread(_blinding_state(context).take, _FULL)
        if data is None:
            data = await self._fetch(context, parties.index(context.me), len(parties) - 1, _ARRIVED)
            await asyncio.to_thread(_blinding_state(context).accept, _ARRIVED, _FULL)
        full = tokens_of(data)
        rows = await self._as_sent(context)

        def find() -> Rows:
            if len(full) != len(rows):
                raise context.wrong_list(
                    parties.index(context.me), len(parties) - 1, f"{len(full)} tokens, expected {len(rows)}"
                )
            positions = marked_positions(alignment.bitmap, n_records=len(rows), n_common=alignment.n_common)
            common = full[positions]
            order = np.argsort(common)
            if hashlib.sha256(common[order].tobytes()).digest() != alignment.common_sha256:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    "alignment: the marked tokens are not the common list that the miner announced",
                    hint="nothing was randomized; if it happens again, the miner and this party do not have the same list",
                )
            check_common_size(alignment.n_common, context.minimum)
            common_rows = rows[positions[order]]
            common_rows.setflags(write=False)
            return common_rows

        return alignment, await context.node.heavily(find)


def _blinding_state(context: CentralContext) -> BlindingState:
    return BlindingState(context.node.site.config.state_directory, context.digest)


def _other_lists(context: CentralContext, arriving: str, owner: int) -> Iterator[bytes]:
    """Yield the other lists that this party received or made, one in memory at a time.

    Args:
        context: of the study.
        arriving: file of the list that has come.
        owner: whose it is. The own one that all parties have blinded has the common people of another one that they all have.
    """
    blinding_state, parties = _blinding_state(context), context.study.parties
    me = parties.index(context.me)
    names = [_OWN]
    for hop in range(1, len(parties)):
        other = (me - hop) % len(parties)
        has_all = hop == len(parties) - 1
        names += [f"{other:02d}-{hop - 1:02d}.in", *[f"{other:02d}-{hop:02d}.list"] * (not has_all or owner != me)]
    for name in names:
        if name != arriving and (data := blinding_state.take(name)) is not None:
            yield data[: len(data) // TOKEN_BYTES * TOKEN_BYTES]  # of one that is still arriving what is there


def _note_sent(context: CentralContext, data: bytes) -> None:
    """Remember the digest of the own list before its first byte leaves; another list never does."""
    blinding_state, sha256 = _blinding_state(context), hashlib.sha256(data).digest()
    note = blinding_state.take(_SENT)
    if note is None:
        blinding_state.note(_SENT, sha256)
    elif note != sha256:
        raise _make_lost_fault(context, "is not the one that it sent to the miner")


def _head(context: CentralContext, owner: int, hop: int, data: bytes) -> coordinator_pb2.PutBlindedRequest:
    """Return what a list is announced with: its size, its SHA-256, and this party's signature of them."""
    step = context.blinded_step(owner, hop, data)
    return coordinator_pb2.PutBlindedRequest(
        study_digest=context.digest, owner=owner, hop=hop, size=step.size, sha256=step.sha256, statement=step.statement
    )


def _make_lost_fault(context: CentralContext, problem: str) -> PeerFault:
    return PeerFault(
        "ALIGNMENT_MISMATCH",
        f"study '{context.record.study_id}': the blinded list of this party, '{context.me}', {problem}",
        hint="is the state directory an older backup? nothing was randomized, submit the study again under a new id",
    )
