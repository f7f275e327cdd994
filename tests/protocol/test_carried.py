"""Feature 38: a party without a line takes part through files, beside two that are online, and the release is the same.

One federation of three in this process: `north` and `south` are connected, `island` exchanges files. What its files hold is
looked for the planted id and value; what an untrue file does is tried on copies.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from support import PATIENCE_SECONDS
from support.sameness import essence
from verticil.cli.main import app
from verticil.miner.airgap import local_control
from verticil.miner.airgap.exchange import Exchange, fill
from verticil.miner.airgap.local_control import ControlRequest, LocalControl, ask_the_daemon, handle_offline
from verticil.miner.config import load_miner
from verticil.miner.rules.rounds import Sealing
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.audit import MinerAudit
from verticil.party.airgap import exchange as site_desk
from verticil.party.config import PartyConfig, load_party
from verticil.party.daemon import run_party
from verticil.party.operator.backup import backup, restore
from verticil.party.operator.commands import approve, deny, status
from verticil.party.operator.reports import revoke, verify_audit
from verticil.party.site import Site as OpenSite
from verticil.shared.core.errors import DataFault, GateFailed, Misuse, PeerFault, VerticilError
from verticil.shared.documents.config import RELAY, load_federation
from verticil.shared.federation.airgap.bundle import BundleEntries
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.installation import make_sealing_key, public_sealing_key
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.federation.transport.sealing import load_sealing_key
from verticil.shared.release.download import fetch_release
from verticil.shared.release.verification import verify_release
from verticil.shared.storage.durable import DurableStep, watch_steps
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, copy_federation, csv_site, provision
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


def federation(root: Path, n: int = 400, *, masked: bool = False) -> Provisioned:
    draw = np.random.default_rng(5)
    ids = [CANARY_ID, *(f"p{number:05d}" for number in range(n))]
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
        sites=[csv_site(name, path) for name, path in tables.items()],
        limits=OPEN_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
        seed=3,
        peers=dict.fromkeys(tables, RELAY) if masked else None,
        masked=masked,
    )


class Ferry:
    """The federation at work, with `island` on the other side of the water."""

    def __init__(self, made: Provisioned, node: MinerNode, desk: Exchange, place: Path) -> None:
        self.made, self.node, self.desk, self.place = made, node, desk, place
        self.island = load_party(made.parties["island"] / "party.toml")
        self.desk_folder = node.store.root / "carried" / "island"
        self.files: list[Path] = []
        self.free = 10**12
        config = load_federation(made.analyst / "federation.toml")
        analyst = load_credentials(made.analyst / "pki" / "analyst.crt", made.analyst / "pki" / "analyst.key", config)
        self.control = InMemoryControl(node.control, analyst.identity)

    def desk_anew(self) -> Exchange:
        """The desk after federation.toml has changed."""
        config = load_miner(self.made.miner / "miner.toml")
        return Exchange(config, self.node, audit=MinerAudit(config.state_directory))

    def facts(self) -> object:
        """Everything that the miner durably knows, and which bundles it has taken in."""
        catalogue = self.node.catalogue
        journal = self.desk_folder / "journal.json"
        return catalogue.versions(), journal.read_bytes() if journal.exists() else b""

    async def submit(self, proposal: Any) -> bytes:
        request = control_pb2.SubmitStudyRequest(proposal=to_bytes(proposal))
        return (await self.control.submit_study(request)).study_digest

    def new(self, name: str) -> Path:
        self.files.append(self.place / f"{len(self.files):02d}-{name}")
        return self.files[-1]

    async def to_island(self, **how: Any) -> Any:
        await self.desk.export_bundle("island", file := self.new("to-island"), plain=True, **how)
        return await site_desk.import_bundle(self.island, file)

    async def out(self, file: Path | None = None, *, plain: bool = True) -> Any:
        return await site_desk.export_bundle(self.island, file or self.new("to-miner"), plain=plain)

    async def exported(self) -> Path:
        await self.out()
        return self.files[-1]

    async def to_miner(self) -> Any:
        return await self.desk.import_bundle(await self.exported())

    async def others_turn(self, digest: bytes) -> None:
        """Wait until nothing has changed for a moment: the others, and the miner, have done what they can."""
        while True:
            generation = self.node.changes.generation
            await self.node.changes.wait(generation, 0.2)
            if self.node.changes.generation == generation:
                state = self.node.session.state(self.node.session.record(digest))
                assert state is not State.FAILED, self.node.session.record(digest).failure
                return

    async def until(self, digest: bytes, reached: Callable[[Any, State], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                generation = self.node.changes.generation
                record = self.node.session.record(digest)
                state = self.node.session.state(record)
                if reached(record, state):
                    return
                assert state not in {State.FAILED, State.DENIED}, record.failure
                await self.node.changes.wait(generation, 1)


@contextlib.asynccontextmanager
async def at_work(made: Provisioned, place: Path) -> AsyncGenerator[Ferry]:
    ferries: list[Ferry] = []
    config = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    signer = SigningKey.load(config.signing_key, config.certificate)
    sealing = None
    if (pinned := config.federation.miner_sealing) is not None:
        sealing = Sealing(key=load_sealing_key(config.sealing_key, pinned), pinned=config.federation.sealing)
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
        free_bytes=lambda _: ferries[0].free if ferries else 10**12,
        sealing=sealing,
    )
    desk = Exchange(config, node, audit=MinerAudit(config.state_directory))
    stop = asyncio.Event()
    place.mkdir(exist_ok=True)
    async with node:
        online = []
        for name in ("north", "south"):
            party = load_party(made.parties[name] / "party.toml")
            who = load_credentials(party.certificate, party.key, party.federation).identity

            def dial(who: Any = who) -> Any:
                return InMemoryCoordinator(node.coordinator, who)

            online.append(asyncio.create_task(run_party(party, dial, stop=stop)))
        try:
            ferries.append(Ferry(made, node, desk, place))
            yield ferries[0]
        finally:
            stop.set()
            node.changes.close()
            await asyncio.gather(*online, return_exceptions=True)


def study(root: Path, linkage: str = "keyed-hash", more: str = "", model: str = "central") -> Any:
    text = STUDY.format(linkage=linkage, more=more).replace('"central"', f'"{model}"')
    (path := root / "study.toml").write_text(text)
    return read_study(path)


def lines(island: PartyConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (island.state_directory / "audit.jsonl").read_text().splitlines()]


def altered(path: Path, at: int) -> Path:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    (copy := path.with_name(f"altered-{at}")).write_bytes(data)
    return copy


async def no_island_file_counts(ferry: Ferry, file: Path) -> None:
    """Copies of a bundle that are not whole are refused, with the place, and nothing of them is taken in."""
    data = file.read_bytes()
    for copy, place in (
        (altered(file, len(data) - 1), r"altered in piece 0, bytes [\d,]+ to [\d,]+"),
        (altered(file, 40), "statement at its beginning|signature"),
        (file.with_name("short"), r"cut off after [\d,]+ bytes, in piece 0"),
        (file.with_name("shorter"), "cut off in the statement"),
        (file.with_name("long"), "bytes after its end"),
        (ferry.files[1], "direction is 'to-party', expected 'to-miner'"),
    ):
        if copy.name in {"short", "shorter", "long"}:
            copy.write_bytes({"short": data[:-9], "shorter": data[:60], "long": data + b"x"}[copy.name])
        before = ferry.facts()
        with pytest.raises(VerticilError, match=place):
            await ferry.desk.import_bundle(copy)
        assert ferry.facts() == before


@pytest.mark.whole
def test_feature_38_the_release_is_that_of_the_run_with_everybody_online(tmp_path: Path) -> None:
    made = federation(tmp_path)
    proposal = study(tmp_path)
    other = copy_federation(made, tmp_path / "ferried")
    asyncio.run(run_federation(made, proposal, tmp_path / "online", is_seeded=True))
    manual = other.parties["island"] / "party.toml"
    manual.write_text(manual.read_text().replace('approval = "auto"', 'approval = "manual"'))

    async def ferried() -> list[Path]:
        async with at_work(other, tmp_path / "sticks") as ferry:
            with pytest.raises(PeerFault, match="nothing of the miner's was imported"):
                await ferry.out()
            digest = await ferry.submit(proposal)
            assert status(ferry.island).carried is None
            assert (await ferry.to_island()).studies[0].state == "awaiting_approval"
            crossed = status(ferry.island).carried
            assert (crossed.imported, crossed.exported) == (1, None)
            text = CliRunner().invoke(app, ["party", "status", "--config", str(ferry.island.path)]).output
            assert "its files are carried, no daemon runs: last imported bundle 1, last exported none, 20" in text
            assert "submitted by 'analyst', by the miner's word" in text

            # Nothing of the table's leaves before somebody approves.
            assert (await ferry.out()).holds == {}
            approve(ferry.island, "ferry", "demo@island", key=other.parties["island"] / "secrets" / "approver.key")
            first = ferry.new("approval, lost for now")
            assert set((await ferry.out(first)).holds) == {"approval"}

            # Lost on the way: the next says it again, and the lost one is refused when it turns up.
            await ferry.until(digest, lambda record, _: len(record.approvals) == 2)
            await no_island_file_counts(ferry, await ferry.exported())
            taken = await ferry.desk.import_bundle(ferry.files[-1])
            assert (taken.bundle, taken.skipped, taken.refused) == (3, (1, 2), ())
            with pytest.raises(GateFailed, match=r"bundle 2 of party 'island'.*has imported bundle 3, which is newer"):
                await ferry.desk.import_bundle(first)
            assert (await ferry.desk.import_bundle(ferry.files[-1])).repeated is True
            await ferry.until(digest, lambda record, state: state is State.ALIGNING)

            # The list goes, the common people come, the confirmation goes.
            await ferry.to_island()
            assert (await site_desk.import_bundle(ferry.island, ferry.files[-1])).repeated is True
            await ferry.to_miner()
            await ferry.until(digest, lambda record, state: record.n_common is not None)
            await ferry.to_island()
            await ferry.to_miner()
            await ferry.until(digest, lambda record, state: len(record.columns) == 2)

            # The columns: in ledger and audit log before the file is there; a full disk at the miner stops it, for now.
            await ferry.to_island()
            columns = await ferry.exported()
            with OpenSite.open(ferry.island) as site:
                assert len(site.ledger.rows()) == 2
            assert verify_audit(ferry.island).ok is True
            assert [line["event"] for line in lines(ferry.island)][-3:] == ["send", "send", "carried-out"]
            ferry.free = 0
            with pytest.raises(VerticilError, match="RESOURCE_EXHAUSTED"):
                await ferry.desk.import_bundle(columns)
            ferry.free = 10**12
            assert (await ferry.desk.import_bundle(columns)).refused == ()
            await ferry.until(digest, lambda record, state: state is State.PUBLISHED)
            assert not ferry.node.leases.online("island")
            assert ferry.node.leases.online("north")

            # The receipts, the published release, and what is left at the site.
            with pytest.raises(PeerFault, match="NOT_READY: the miner's last bundle holds no published release"):
                await site_desk.take_releases(ferry.island, tmp_path / "taken")
            await ferry.to_island(releases=("ferry",))
            (home,) = await site_desk.take_releases(ferry.island, tmp_path / "taken")
            assert [line["event"] for line in lines(ferry.island)].count("receipt") == 2
            assert not list((ferry.island.state_directory / "spool").glob("*"))
            home.rename(tmp_path / "carried")
            return ferry.files

    files = asyncio.run(ferried())
    verify_release(tmp_path / "carried", ca_certificate=made.ca_certificate.read_bytes())
    assert essence(tmp_path / "carried") == essence(tmp_path / "online")
    assert len(files) > 10
    assert (
        max(file.stat().st_size for file in files if file.exists()) > 16 * 401
    )  # the list of pseudonyms is in one of them, plain
    needles = [text.encode() for text in (CANARY_ID, CANARY_VALUE, CANARY_VALUE.upper())]
    assert [file.name for file in files if file.exists() for needle in needles if needle in file.read_bytes()] == []


def pin_sealing_keys(made: Provisioned) -> None:
    """What the operators do once: make the miner's sealing key, and pin both at both sides."""
    pinned = public_sealing_key(made.parties["island"] / "pki" / "island.seal")
    path, _ = make_sealing_key(made.miner / "pki" / "miner.seal")
    for node in (made.miner, made.parties["island"]):
        document = node / "federation.toml"
        text = document.read_text().replace("[miner]\n", f'[miner]\nsealing_key = "{public_sealing_key(path)}"\n')
        document.write_text(text + f'\n[sealing]\nisland = "{pinned}"\n')


class KilledError(BaseException):
    """The process ends here."""


async def killed_everywhere(work: Callable[[], Awaitable[Any]], *places: Path) -> Any:
    """Break `work` off before its first durable step in `places`, then before its second, and so on, until it ends well."""
    for number in itertools.count():
        left = number

        def watch(step: DurableStep) -> None:
            nonlocal left
            ours = step.moment == "before" and any(step.path.is_relative_to(place) for place in places)
            if ours and step.path.suffix != ".sqlite" and (left := left - 1) < 0:
                raise KilledError

        try:
            with watch_steps(watch):
                return await work(), number
        except KilledError:
            continue
    raise AssertionError


@pytest.mark.whole
@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_feature_38_sealed_blinded_countersigned_and_killed_at_every_step(tmp_path: Path, everywhere: bool) -> None:
    """Killed at each step of one crossing, or of all.

    Parts of the people, by which a joint model is guarded, follow their order, which is another one in each run.
    """
    made = federation(tmp_path, 150)
    proposal = study(tmp_path, "dh-psi", 'sample_from = "network"\n[publish]\ncountersign = "all"\n')
    other = copy_federation(made, tmp_path / "ferried")
    asyncio.run(run_federation(made, proposal, tmp_path / "online", is_seeded=True))

    async def ferried() -> int:
        steps = 0
        async with at_work(other, tmp_path / "sticks") as ferry:
            with pytest.raises(Misuse, match=r"miner\.sealing_key: missing, so a bundle cannot be sealed"):
                await ferry.desk.export_bundle("island", ferry.new("nobody"))
            pin_sealing_keys(other)
            ferry.desk = ferry.desk_anew()
            ferry.island = load_party(other.parties["island"] / "party.toml")
            digest = await ferry.submit(proposal)
            all_places = (other.parties["island"], tmp_path / "sticks", ferry.desk_folder)
            for crossing in itertools.count():  # on a slow machine the others are not ready for each
                places = all_places if everywhere or crossing == 3 else ()
                await ferry.desk.export_bundle("island", down := ferry.new("to-island"))
                _, taken = await killed_everywhere(
                    lambda down=down: site_desk.import_bundle(ferry.island, down), *places
                )
                _, made_in = await killed_everywhere(lambda: ferry.out(plain=False), *places)
                _, given = await killed_everywhere(lambda: ferry.desk.import_bundle(ferry.files[-1]), *places)
                steps += taken + made_in + given
                if ferry.node.session.state(ferry.node.session.record(digest)) is State.PUBLISHED:
                    break
                await ferry.others_turn(digest)
            await ferry.until(digest, lambda record, state: state is State.PUBLISHED)
            await fetch_release(ferry.control, digest, tmp_path / "carried")
            assert b"artifact" not in b"".join(file.read_bytes() for file in ferry.files if file.exists())
            return steps

    assert asyncio.run(ferried()) > (100 if everywhere else 15)
    carried, online = essence(tmp_path / "carried"), essence(tmp_path / "online")
    # Blinding keys are drawn for each run, and with them the order of the people in the columns.
    assert {name for name in carried if carried[name] != online[name]} == {f"column {unit}" for unit in range(4)}


def test_feature_38_a_study_that_changes_while_answers_are_written_is_in_the_bundle_once(tmp_path: Path) -> None:
    made = federation(tmp_path)

    async def written() -> list[str]:
        async with at_work(made, tmp_path / "sticks") as ferry:
            digest = await ferry.submit(study(tmp_path))
            await ferry.until(digest, lambda record, _: len(record.approvals) == 2)  # nothing else changes it meanwhile
            service = ferry.node.offline
            answer, asked = service.Poll, []

            async def poll(identity: Any, request: Any) -> Any:
                reply = await answer(identity, request)
                asked.append(request)
                for task in reply.tasks if len(asked) == 1 else ():
                    task.version -= 1  # as it was before a fellow party sent something
                return reply

            service.Poll = poll  # type: ignore[method-assign]
            entries = BundleEntries.anew(tmp_path / "entries")
            island = Identity(federation="ferry", role=Role.PARTY, name="island")
            coordinator = InMemoryCoordinator(service, island, federation="ferry")
            await fill(entries, coordinator, ferry.node.session, "island", deny_list=b"", releases=frozenset())
            assert len(asked) == 3
            return [item.what for item in entries]

    assert asyncio.run(written()) == ["task"]


def test_feature_38_what_is_not_for_this_side_is_refused_and_a_withdrawal_is_carried(tmp_path: Path) -> None:
    made = federation(tmp_path / "one")
    foreign = federation(tmp_path / "two")

    async def ferried() -> None:
        async with at_work(made, tmp_path / "sticks") as ferry:
            digest = await ferry.submit(study(tmp_path))
            await ferry.desk.export_bundle("north", norths := ferry.new("for north"), plain=True)
            with pytest.raises(PeerFault, match="party 'nroth': no study names it") as caught:
                await ferry.desk.export_bundle("nroth", mistyped := ferry.new("for nroth"), plain=True)
            assert (caught.value.code, caught.value.hint) == ("PARTY_UNKNOWN", "did you mean 'north'?")
            assert not mistyped.exists()
            with pytest.raises(GateFailed, match="party is 'north', expected 'island'"):
                await site_desk.import_bundle(ferry.island, norths)
            await ferry.to_island()
            file = await ferry.exported()
            async with at_work(foreign, tmp_path / "other sticks") as abroad:
                with pytest.raises(PeerFault, match="CERTIFICATE_INVALID"):
                    await abroad.desk.import_bundle(file)
            await ferry.desk.import_bundle(file)
            revoke(ferry.island, "ferry", "demo@island", "we made a mistake", at=utc_now())
            told = ferry.new("withdrawal")
            assert set((await ferry.out(told)).holds) == {"withdrawal"}
            assert set((await ferry.out()).holds) == {"withdrawal"}  # nobody has said that the first one arrived
            await ferry.desk.import_bundle(ferry.files[-1])
            await ferry.until(digest, lambda record, state: state is State.WITHDRAWN)
            await ferry.to_island()
            assert (await ferry.out()).holds == {}

    asyncio.run(ferried())


def test_a_study_with_masked_tables_is_denied_in_a_file_and_not_carried_otherwise(tmp_path: Path) -> None:
    made = federation(tmp_path, masked=True)
    proposal = study(tmp_path, more="[tables]\nepsilon = 1.0\ndelta = 1e-9\n", model="masked")

    async def ferried() -> None:
        async with at_work(made, tmp_path / "sticks") as ferry:
            digest = await ferry.submit(proposal)
            (there,) = (await ferry.to_island()).studies
            assert there.state == "awaiting_approval"
            for _ in range(2):  # whatever a rule, or a demonstration, would approve
                said = await ferry.out()
                assert (said.holds, [item.stage for item in said.studies]) == ({}, [site_desk.NOT_CARRIED])
            deny(ferry.island, "ferry", "demo@island", "there is no line to us")
            assert set((await ferry.out()).holds) == {"denial"}
            await ferry.desk.import_bundle(ferry.files[-1])
            record = ferry.node.session.record(digest)
            assert ferry.node.session.state(record) is State.DENIED

    asyncio.run(ferried())


def test_feature_38_a_command_reaches_the_daemon_that_holds_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_control, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    made = federation(tmp_path)

    async def ferried() -> None:
        async with at_work(made, tmp_path / "sticks") as ferry:
            await ferry.submit(study(tmp_path))
            config = load_miner(made.miner / "miner.toml")
            down, up = tmp_path / "down", tmp_path / "up"
            request = ControlRequest(verb="export", file=down, party="island", plain=True)
            with pytest.raises(DataFault, match="STATE_LOCKED"):
                await handle_offline(config, request)
            serving = asyncio.create_task(LocalControl(ferry.desk, config.state_directory).run())
            facts = await asyncio.to_thread(ask_the_daemon, config.state_directory, request)
            assert (facts.file, facts.bundle) == (str(down), 1)
            await site_desk.import_bundle(ferry.island, down)
            await ferry.out(up)
            request = ControlRequest(verb="import", file=up)
            assert (await asyncio.to_thread(ask_the_daemon, config.state_directory, request)).party == "island"
            (short := tmp_path / "short").write_bytes((await ferry.exported()).read_bytes()[:-1])
            request = ControlRequest(verb="import", file=short)
            with pytest.raises(GateFailed, match="short: is cut off after"):
                await asyncio.to_thread(ask_the_daemon, config.state_directory, request)
            serving.cancel()
            await asyncio.wait({serving})
        facts = await handle_offline(
            config, ControlRequest(verb="export", file=tmp_path / "again", party="island", plain=True)
        )
        assert facts.bundle == 2

    asyncio.run(ferried())


@pytest.mark.whole
def test_a_restored_site_opens_what_is_sealed_for_it_and_its_study_goes_on(tmp_path: Path) -> None:
    """A backup holds the sealing key, and one that waits to be pinned; one without any, as earlier ones are, is restored."""
    made = federation(tmp_path, 150)
    pin_sealing_keys(made)
    words = "nine people in a garden"

    async def ferried() -> None:
        async with at_work(made, tmp_path / "sticks") as ferry:
            ferry.desk, home = ferry.desk_anew(), made.parties["island"]
            make_sealing_key(home / "pki" / "island.seal", new=True)
            digest = await ferry.submit(study(tmp_path))
            backup(ferry.island, tmp_path / "backup", words)
            await ferry.desk.export_bundle("island", down := ferry.new("to-island"))
            keys = {path.name: path.read_bytes() for path in (home / "pki").glob("*.seal")}
            assert len(keys) == 2
            for path in (home / "pki").glob("*.seal"):
                path.unlink()
            backup(ferry.island, tmp_path / "earlier", words)
            assert restore(tmp_path / "earlier", tmp_path / "from-earlier", words).problem == ""
            shutil.rmtree(home)
            assert restore(tmp_path / "backup", home, words).problem == ""
            assert {path.name: path.read_bytes() for path in (home / "pki").glob("*.seal")} == keys
            ferry.island = load_party(home / "party.toml")
            await site_desk.import_bundle(ferry.island, down)
            await ferry.out(plain=False)
            taken = await ferry.desk.import_bundle(ferry.files[-1])
            assert (taken.refused, taken.studies[0].digest) == ((), digest.hex())
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not all(map(ferry.node.leases.online, ("north", "south"))):
                    await asyncio.sleep(0.01)
            shown = (await ferry.control.get_study(control_pb2.GetStudyRequest(study_digest=digest))).study
            assert {party.party: (party.standing, party.online) for party in shown.parties} == {
                "north": ("", True), "south": ("", True), "island": ("carried", False)
            }  # fmt: skip

    asyncio.run(ferried())
