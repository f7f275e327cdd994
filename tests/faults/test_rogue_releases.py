"""A rogue miner's releases, uploads and receipts: what is no release of the study is not fetched, and what lies is not signed.

The rogue is that of `test_rogue_nodes`; where the whole release lies, its miner signs it like an honest one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support import publishing as deciding
from support import rogue_miner as nodes
from verticil.miner.learning import publication
from verticil.miner.scheduler import scheduler
from verticil.party.protocol.with_miner import upload
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.record import canonical_json
from verticil.shared.federation.transport.chunks import make_chunks, plain_data
from verticil.shared.release import download
from verticil.shared.release.folder import writing
from verticil.shared.study.states import State
from verticil.shared.synthesis import synthesis
from verticil.wire.v1 import common_pb2, coordinator_pb2

pki, Lie, rows = nodes.pki, nodes.Lie, nodes.rows
PUBLISHED = deciding.GIVEN + deciding.ALL


# ---- while it is fetched


def manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Any, Any], Any]:
    """Another manifest, with its own size and SHA-256."""

    def lie(_rogue: Any, part: Any) -> Any:
        if b'"files"' not in (data := plain_data(part.chunk)):
            return None
        document = json.loads(data)
        change(document["files"])
        whole = json.dumps(document).encode()
        (chunk,) = make_chunks(whole)
        return common_pb2.ReleasePart(size=len(whole), sha256=hashlib.sha256(whole).digest(), chunk=chunk)

    return lie


def bomb(_rogue: Any, part: Any) -> Any:
    part.chunk.data = zlib.compress(bytes(2**26))
    part.chunk.encoding = common_pb2.ENCODING_ZLIB
    return part


def one_byte(_rogue: Any, part: Any) -> Any:
    data = plain_data(part.chunk)[:1]
    part.chunk.CopyFrom(common_pb2.Chunk(offset=part.chunk.offset, data=data, crc32=zlib.crc32(data)))
    return part


def listed(n_files: int, **entry: Any) -> Callable[[dict[str, Any]], object]:
    return lambda files: files.update(
        {f"more-{n}.csv": {"bytes": 1, "sha256": "00" * 32, **entry} for n in range(n_files)}
    )


FETCHED = {
    "a file of half a gigabyte": Lie(
        rpc="GetRelease", says="bytes, expected at most", default=True,
        change=manifest(lambda files: files["synthetic.csv"].update(bytes=2**29))),
    "a file of minus one byte": Lie(
        rpc="GetRelease", says="bytes, expected at most", change=manifest(lambda files: files["model.json"].update(bytes=-1))),
    "three thousand files": Lie(rpc="GetRelease", says="no file of a release", change=manifest(listed(3000))),
    "a file that no release has": Lie(rpc="GetRelease", says="no file of a release", change=manifest(listed(1))),
    "64 MiB in a chunk": Lie(rpc="GetRelease", says="more than 524288 bytes", change=bomb),
    "a byte a stream": Lie(rpc="GetRelease", says="less than 65536 bytes in", change=one_byte),
}  # fmt: skip


@pytest.mark.parametrize("name", rows(FETCHED))
async def test_what_is_no_release_of_the_study_is_not_fetched(
    name: str, tmp_path: Path, pki: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = FETCHED[name]
    if lie.change is one_byte:
        monkeypatch.setattr(download, "STREAM_SECONDS", 0.2)
    async with nodes.rogue_miner(tmp_path, pki, federation=deciding.Publishing) as rogue:
        federation, north = rogue.federation, rogue.federation.tasks["north"]
        rogue.lie = lie
        digest = await federation.submit(PUBLISHED)

        def said() -> bool:
            with Site.open(federation.config("north")) as site:
                known = [record for record in site.state.studies() if record.digest == digest]
                texts = [f"{record.stage} {record.failure}" for record in known]
            return any(lie.says in text for text in [caplog.text, *texts])

        await nodes.until(lambda: rogue.told > 0 and said(), north)
        with Site.open(federation.config("north")) as site:
            review = site.decisions.review(digest)
            assert review is None or review.countersignature is None
        assert not list((tmp_path / "north" / "state" / "review").glob("[0-9a-f]*"))
        monkeypatch.undo()
        rogue.lie = None
        honest = await federation.submit(PUBLISHED.replace('"trial"', '"honest"', 1))
        await federation.until(honest, State.PUBLISHED)
        assert not north.done()


# ---- when it is whole


def _records(change: Callable[[Any, list[Any]], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Other synthetic records than the network's, in every file of them."""
    honest = vars(publication)["draw_release_records"]

    def lie(network: Any, study: Any, n_common: int, *more: Any, **keys: Any) -> Any:
        codes, _ = honest(network, study, n_common, *more, **keys)
        changed = change(network, list(codes))
        return changed, synthesis.decode(network.schema, changed, np.random.default_rng(1))

    return lambda monkeypatch: monkeypatch.setattr(publication, "draw_release_records", lie)


def _of_another_network(network: Any, codes: list[Any]) -> Any:
    own = network.schema.owned_by("north")[0]
    codes[own] = np.roll(codes[own], 1) * 0
    return tuple(codes)


def _longer_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = vars(writing)["write_parquet"]
    monkeypatch.setattr(
        writing, "write_parquet", lambda frames, path, **rest: honest(pd.concat([*frames] * 2), path, **rest)
    )


WRITTEN = {
    "200 equal records": (
        _records(lambda _, codes: tuple(np.repeat(column[:1], 200) for column in codes)), "has 200 records, expected 800"),
    "records of another network": (_records(_of_another_network), "the synthetic records were not drawn from the"),
    "a Parquet table of twice the records": (_longer_parquet, "has 1600 records, expected 800"),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("name", WRITTEN)
async def test_what_the_network_did_not_draw_is_countersigned_by_no_rule(
    name: str, tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns turned round, with everything that follows from it, stand in `test_deciding_session`."""
    lie, says = WRITTEN[name]
    lie(monkeypatch)
    monkeypatch.setattr(scheduler, "verify_release", lambda *_, **__: None)  # who lies does not look
    made = deciding.Publishing(tmp_path, pki)
    await made.start_miner()
    digest = await made.submit(PUBLISHED)
    made.start()
    try:
        assert (await made.until(digest, State.FAILED)).failure.code == "RELEASE_INVALID"
    finally:
        await made.stop()
        await made.stop_miner()
    said = []
    for party in made.wires:
        with Site.open(made.config(party)) as site:
            record, review = site.state.study(digest), site.decisions.review(digest)
            said.append(record.failure.message if record.failure is not None else "")
            assert review is None or review.countersignature is None
    assert any(says in message for message in said)


# ---- statements that prove nothing


def claims(make: Callable[[Any, bytes], Any]) -> Callable[[Any, Any], Any]:
    """Before anybody has approved: the miner says that it has a column, and shows this receipt."""

    def lie(rogue: Any, message: Any) -> Any:
        early = [item for item in message.tasks if item.state in nodes.EARLY]
        for item in early:
            shown = {
                "proposal_digest": item.study_digest.hex(), "effective_digest": item.study_digest.hex(), "party": "north",
                "unit": 0, "variables": ["sex"], "artifact_sha256": "00" * 32, "size": 100, "n_records": 800,
                "miner": "miner", "received_at": "2026-11-21T00:00:00Z",
            }  # fmt: skip
            item.receipts.append(make(rogue, shown))
            item.state, item.units_received[:] = State.UPLOADING, [0]
            item.effective, item.effective_digest, item.approved = item.proposal, item.study_digest, True
            item.approval.CopyFrom(nodes.signed_by("south", b"{}")(rogue))
        return message if early else None

    return lie


def signed(by: str, **other: Any) -> Callable[[Any, dict[str, Any]], Any]:
    return lambda rogue, shown: nodes.signed_by(by, canonical_json({**shown, **other}))(rogue)


SHOWN = {
    f"a receipt {name}": Lie(rpc="Poll", change=claims(make), says="shows no approval and receipt")
    for name, make in {
        "that nobody signed": lambda _, shown: common_pb2.Signed(body=canonical_json(shown)),
        "of what nobody approved": signed("miner"),
        "that south signed": signed("south"),
        "of another unit": signed("miner", unit=1),
        "of another study": signed("miner", proposal_digest="07" * 32),
    }.items()
}


@pytest.mark.faults
@pytest.mark.parametrize("name", SHOWN)
async def test_a_receipt_that_proves_nothing_charges_nothing(
    name: str, tmp_path: Path, pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await nodes.ends_well(SHOWN[name], tmp_path, pki, caplog)


# ---- an upload without end


class Stingy:
    """A miner that commits a byte of each stream."""

    n_streams = 0

    async def begin_upload(self, request: Any) -> Any:
        del request
        return coordinator_pb2.BeginUploadReply(upload_id="x", committed_offset=0)

    async def put_chunks(self, chunks: Any) -> Any:
        self.n_streams += 1
        return common_pb2.ChunkAck(committed_offset=next(iter(chunks)).offset + 1)

    async def put_pseudonyms(self, messages: Any) -> Any:
        self.n_streams += 1
        offsets = [message.chunk.offset for message in messages if message.HasField("chunk")]
        return coordinator_pb2.PutPseudonymsReply(committed_offset=offsets[0] + 1 if offsets else 0)


async def _nothing(percent: int) -> None:
    del percent


@pytest.mark.parametrize("what", ["an artifact", "pseudonyms"])
async def test_an_upload_of_which_a_byte_a_stream_is_kept_is_left_for_later(what: str, tmp_path: Path) -> None:
    miner, size = Stingy(), 2**18
    path = tmp_path / "artifact"
    path.write_bytes(bytes(size))
    if what == "an artifact":
        sending = upload.send_artifact(
            miner, effective_digest=bytes(32), unit=0, path=path, sha256=bytes(32), chunk_bytes=2**16, progress=_nothing
        )
    else:
        sending = upload.send_pseudonyms(miner, bytes(32), bytes(size), chunk_bytes=2**16, progress=_nothing)
    with pytest.raises(PeerFault, match="near byte 3") as caught:
        await sending
    assert caught.value.code == "OFFSET_MISMATCH"
    assert miner.n_streams <= 4
