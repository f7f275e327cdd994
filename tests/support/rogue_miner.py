"""A miner that answers as the real one does, but for one lie."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS, daemons
from support import party_session as session
from verticil.party import daemon
from verticil.party.limits.limits import MAX_OPEN_STUDIES
from verticil.party.site import Site
from verticil.shared.core.errors import from_code
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.interface import Coordinator, bind
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.study.states import State

pki = session.pki


ESCAPES = "\x1b[2J\x1b]0;approved\x07\u202e"


CONTROL = "\x1b\x07\u202e"


class RogueMiner:
    """Answers as the real miner does, but for the lie, which is told to north."""

    def __init__(self, federation: Any) -> None:
        self.federation = federation
        self.lie: Lie | None = None
        self.told = 0
        self.seen: dict[str, Any] = {}

    def __getattr__(self, rpc: str) -> Any:
        real = lambda: getattr(self.federation.node.coordinator, rpc)  # noqa: E731 (looked up at each call)
        if rpc in {"GetAlignment", "GetBlinded", "GetRelease"}:

            async def many(identity: Any, request: Any) -> AsyncIterator[Any]:
                async for part in real()(identity, request):
                    for changed in self._parts(rpc, part):
                        yield changed

            return many

        async def one(identity: Any, request: Any) -> Any:
            if self.lie is not None and self.lie.rpc == rpc and isinstance(self.lie.change, str):
                self.told += 1
                raise from_code(
                    self.lie.change, f"{ESCAPES}lies of the miner", hint="verticil party run --accept-older"
                )
            reply = await real()(identity, request)
            return next(iter(self._parts(rpc, reply)))

        return one

    def _parts(self, rpc: str, reply: Any) -> Iterator[Any]:
        if self.lie is None or self.lie.rpc != rpc or isinstance(self.lie.change, str):
            return iter([reply])
        changed = self.lie.change(self, reply)
        if changed is None:
            return iter([reply])
        self.told += 1
        return iter([changed] if not isinstance(changed, list) else changed)


@dataclass(frozen=True, kw_only=True)
class Lie:
    """One lie of the miner.

    Attributes:
        rpc: in the answer to this call.
        change: makes the lie of the true answer (None: it stays true), or a code with which the call fails.
        says: words of the log in which it ends; empty: the study goes on to its end.
        spent: what the ledger says when it has ended.
        default: it is told without the marker, too.
    """

    rpc: str
    change: Callable[[RogueMiner, Any], Any] | str
    says: str
    spent: float = 0.0
    default: bool = False


def fields(**values: Any) -> Callable[[Any], None]:
    """Set fields of a message."""

    def change(message: Any) -> None:
        for name, value in values.items():
            if isinstance(value, list):
                del getattr(message, name)[:]
                getattr(message, name).extend(value)
            elif hasattr(value, "DESCRIPTOR"):
                getattr(message, name).CopyFrom(value)
            else:
                setattr(message, name, value)

    return change


def reply(**values: Any) -> Callable[[RogueMiner, Any], Any]:
    """Set fields of a whole reply."""

    def lie(_rogue: RogueMiner, message: Any) -> Any:
        fields(**values)(message)
        return message

    return lie


def signed_by(name: str, body: bytes) -> Callable[[RogueMiner], Any]:
    def sign(rogue: RogueMiner) -> Any:
        pki_folder = rogue.federation.pki
        return SigningKey.load(pki_folder / f"{name}.sign", pki_folder / f"{name}.crt").sign(body)

    return sign


EARLY = (State.SUBMITTED, State.AWAITING_APPROVAL)


def rows(table: dict[str, Any]) -> list[Any]:
    return [pytest.param(name, marks=() if lie.default else pytest.mark.faults) for name, lie in table.items()]


@contextlib.asynccontextmanager
async def rogue_miner(root: Path, folder: Path, **options: Any) -> AsyncIterator[RogueMiner]:
    """Two parties; south is served by the miner, north by the rogue in front of it, over gRPC."""
    federation = options.pop("federation", session.Federation)(root, folder, approval=options.pop("approval", "auto"))
    rogue = RogueMiner(federation)
    for name, policy in options.items():
        federation.set_up(name, approval="manual", policy=policy)
    await federation.start_miner()
    miner = root / "rogue"
    miner.mkdir()
    (miner / "federation.toml").write_text((root / "north" / "federation.toml").read_text())
    (miner / "ca.crt").write_bytes((folder / "ca" / "ca.crt").read_bytes())
    own = load_credentials(folder / "miner.crt", folder / "miner.key", load_federation(miner / "federation.toml"))
    server = RpcServer("127.0.0.1:0", own, [bind(Coordinator, rogue)])
    port = await server.start()
    path = root / "north" / "federation.toml"
    path.write_text(path.read_text().replace("localhost:1", f"localhost:{port}"))
    stop = asyncio.Event()
    federation.stops["north"] = stop
    try:
        federation.start("south")
        federation.tasks["north"] = daemons.started(daemon.run_party(federation.config("north"), stop=stop))
        yield rogue
    finally:
        await federation.stop()
        federation.node.changes.close()
        await server.stop(grace_seconds=0)
        await federation.stop_miner()


async def until(true: Callable[[], bool], north: asyncio.Task[None]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            if north.done():
                north.result()
            await asyncio.sleep(0.02)


def spent(rogue: RogueMiner) -> float:
    return sum(row.charged for row in rogue.federation.ledger("north"))


async def ends_well(lie: Lie, root: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tell the lie, see it end as its row says, and carry an honest study out."""
    async with rogue_miner(root, folder) as rogue:
        federation, north = rogue.federation, rogue.federation.tasks["north"]
        rogue.lie = lie
        first = await federation.submit()
        if lie.says:
            await until(lambda: rogue.told > 0 and lie.says in caplog.text, north)
            assert spent(rogue) <= lie.spent
        else:
            await until(lambda: rogue.told > 0, north)
            await federation.until(first, State.ESTIMATING)
        rogue.lie = None
        honest = await federation.submit(session.STUDY.replace('"trial"', '"honest"', 1))
        await federation.until(honest, State.ESTIMATING)
        assert not north.done()
        await federation.stop()
        assert spent(rogue) == pytest.approx(4.0)  # the two columns, once
        with Site.open(federation.config("north")) as site:
            lines = site.audit.verify().n_lines
            texts = [json.dumps(entry) for entry in site.audit.entries()]
            shown = [f"{record.stage} {record.failure}" for record in site.state.studies()]
        assert lines < 100 + MAX_OPEN_STUDIES
        assert not any("accept-older" in text for text in texts)
        assert not any(letter in text for text in shown for letter in CONTROL)
    written = [
        record.getMessage()
        for record in caplog.records
        if not record.name.endswith(("transport.authorization", "transport.server"))
    ]  # that is the rogue's own
    assert not any("unexpected error" in text for text in written)
    assert not any(letter in text for text in written for letter in CONTROL)
    assert all("the miner says: verticil party run" in text for text in written if "accept-older" in text)
