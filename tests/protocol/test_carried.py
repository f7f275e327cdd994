"""Feature 38: a party without a line takes part through files, beside two that are online, and the release is the same.

One federation of three in this process: `north` and `south` are connected, `island` exchanges files. What its files hold is
looked for the planted id and value; what an untrue file does is tried on copies.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticil.miner.carried.desk import CarriedDesk
from verticil.miner.config import load_miner
from verticil.miner.service.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party.carried import desk as site_desk
from verticil.party.config import load_party
from verticil.party.daemon import run_party
from verticil.shared.config import load_federation
from verticil.shared.release.verification import verify_release
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.shared.transport.access import NOBODY_REVOKED
from verticil.shared.transport.fetch import fetch_release
from verticil.shared.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.transport.pki import load_credentials, utc_now
from verticil.shared.transport.signing import SigningKey
from verticil.simulation.chaos.sameness import essence
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, Site, copied, provision
from verticil.wire.v1 import control_pb2

CANARY_ID, CANARY_VALUE = "canary-4711-id", "kanarienvogel-77"
PARTIES = ("north", "south", "island")
STUDY = """schema = 1
id = "ferry"
title = "t"
purpose = "p"
model = "central"
expires = 2099-12-31

[[party]]
name = "north"
[[party]]
name = "south"
[[party]]
name = "island"

[linkage]
mode = "{linkage}"
minimum_common_records = 100

[[variable]]
name = "smoker"
party = "north"
categories = ["no", "yes"]

[[variable]]
name = "ill"
party = "south"
categories = ["no", "yes"]

[[variable]]
name = "diet"
party = "island"
categories = ["fish", "meat", "other"]
other = "other"

[[variable]]
name = "sport"
party = "island"
categories = ["no", "yes"]

[randomization_default]
scheme = "symmetric"
epsilon = 2.5

[structure]
method = "tree"

[release]
synthetic_records = 200
seed = 11
{more}"""


def federation(root: Path) -> Provisioned:
    draw = np.random.default_rng(5)
    ids = [CANARY_ID, *(f"p{number:05d}" for number in range(400))]
    columns: dict[str, dict[str, list[str]]] = {"north": {"smoker": ["no", "yes"]}, "south": {"ill": ["no", "yes"]}}
    columns["island"] = {"diet": ["fish", "meat"], "sport": ["no", "yes"]}
    tables: dict[str, Path] = {}
    (root / "tables").mkdir(parents=True)
    for party, named in columns.items():
        rows = [[person, *(str(draw.choice(labels)) for labels in named.values())] for person in ids]
        if party == "island":
            rows[0][1] = CANARY_VALUE
        tables[party] = root / "tables" / f"{party}.csv"
        lines = [",".join(["id", *named]), *(",".join(row) for row in rows)]
        tables[party].write_text("\n".join(lines) + "\n")
    return provision(
        root / "federation",
        federation="ferry",
        sites=[Site(name=name, table=path, id_column="id") for name, path in tables.items()],
        limits=OPEN_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
        seed=3,
    )


class Ferry:
    """The federation at work, with `island` on the other side of the water."""

    def __init__(self, made: Provisioned, node: MinerNode, desk: CarriedDesk, place: Path) -> None:
        self.made, self.node, self.desk, self.place = made, node, desk, place
        self.island = load_party(made.parties["island"] / "party.toml")
        self.files: list[Path] = []
        config = load_federation(made.analyst / "federation.toml")
        analyst = load_credentials(made.analyst / "pki" / "analyst.crt", made.analyst / "pki" / "analyst.key", config)
        self.control = InMemoryControl(node.control, analyst.identity)

    def new(self, name: str) -> Path:
        self.files.append(self.place / f"{len(self.files):02d}-{name}")
        return self.files[-1]

    async def to_island(self, **how: Any) -> dict[str, Any]:
        await self.desk.hand_out("island", file := self.new("to-island"), plain=True, **how)
        return await site_desk.import_bundle(self.island, file)

    async def to_miner(self) -> dict[str, Any]:
        await site_desk.export_bundle(self.island, file := self.new("to-miner"), plain=True)
        return await self.desk.take_in(file)

    async def state(self, digest: bytes, *waiting: str) -> str:
        """The study's state, as soon as it is none of those that pass by themselves or that others are waited for in."""
        seen = 0
        while True:
            request = control_pb2.GetStudyRequest(study_digest=digest, known_version=seen, wait_seconds=5)
            reply = await self.control.get_study(request)
            seen = reply.version
            name = self.node.session.state(self.node.session.record(digest)).name
            if name not in waiting:
                return name


@contextlib.asynccontextmanager
async def at_work(made: Provisioned, place: Path) -> AsyncIterator[Ferry]:
    config = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    signer = SigningKey.load(config.signing_key, config.certificate)
    node = MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=signer,
        executor=InlineLearning(clock=utc_now),
        limits=config.limits,
        randomized_days=30,
        simulation=True,
        seed_derived=True,
    )
    desk = CarriedDesk(
        config, node, authority=credentials.ca_pem, signer=signer, revocations=NOBODY_REVOKED, clock=utc_now
    )
    stop = asyncio.Event()
    place.mkdir()
    async with node:
        online = []
        for name in ("north", "south"):
            party = load_party(made.parties[name] / "party.toml")
            who = load_credentials(party.certificate, party.key, party.federation).identity

            def dial(who: Any = who) -> Any:
                return InMemoryCoordinator(node.coordinator, who)

            online.append(asyncio.create_task(run_party(party, dial, stop=stop)))
        try:
            yield Ferry(made, node, desk, place)
        finally:
            stop.set()
            node.changes.close()
            await asyncio.gather(*online, return_exceptions=True)


def study(root: Path, linkage: str = "keyed-hash", more: str = "") -> Any:
    (path := root / "study.toml").write_text(STUDY.format(linkage=linkage, more=more))
    return read_study(path)


def test_feature_38_the_release_is_that_of_the_run_with_everybody_online(tmp_path: Path) -> None:
    made = federation(tmp_path)
    proposal = study(tmp_path)
    other = copied(made, tmp_path / "ferried")
    asyncio.run(run_federation(made, proposal, tmp_path / "online", seeded=True))

    async def ferried() -> list[Path]:
        async with at_work(other, tmp_path / "sticks") as ferry:
            digest = (
                await ferry.control.submit_study(control_pb2.SubmitStudyRequest(proposal=to_bytes(proposal)))
            ).study_digest
            for _ in range(8):
                await ferry.to_island()
                print(await ferry.to_miner())
                await asyncio.sleep(0.5)
                print(ferry.node.session.state(ferry.node.session.record(digest)))
            await fetch_release(ferry.control, digest, tmp_path / "carried")
            return ferry.files

    asyncio.run(ferried())
    assert essence(tmp_path / "carried") == essence(tmp_path / "online")
