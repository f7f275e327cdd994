"""What a site keeps: a backup and its way back, a ledger that is older than what was sent, and what may be thrown away.

Two parties and a miner in one process, on their real folders and databases; learning idles.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from support import PATIENCE_SECONDS
from verticil.cli.main import main
from verticil.miner.config import load_miner
from verticil.miner.service.node import MinerNode
from verticil.party.config import load_party
from verticil.party.daemon import run_party
from verticil.party.dataset.blinding import BlindingState
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.operator import commands, reports
from verticil.party.operator.backup import backup, restore
from verticil.party.operator.purging import purge
from verticil.party.operator.sealed_file import seal, unseal
from verticil.party.protocol.reconciliation.columns import proven
from verticil.party.site import Site
from verticil.shared.core.errors import GateFailed, Misuse, Refusal
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import GaussianCounts
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.simulation.provision import DEMO_LIMITS, Provisioned, csv_site, provision
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

WORDS = "nine people in a garden"
CHEAP = 2**10
STUDY = """schema = 1
id = "trial"
title = "A trial"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[linkage]
minimum_common_records = 100
[[variable]]
party = "north"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "south"
name = "region"
categories = ["a", "b", "c"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "genetic"
seed = 1
"""


class IdleLearning:
    async def run(self, job: Any, progress: Any) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


class Federation:
    """A miner that runs, and parties that run while a study is wanted from them."""

    def __init__(self, made: Provisioned, node: MinerNode) -> None:
        self.made, self.node = made, node

    def control(self) -> InMemoryControl:
        return InMemoryControl(self.node.control, Identity(federation="trial", role=Role.ANALYST, name="lee"))

    async def submit(self, study_id: str) -> bytes:
        path = self.made.analyst / f"{study_id}.toml"
        path.write_text(STUDY.replace('"trial"', f'"{study_id}"'))
        return (
            await self.control().submit_study(control_pb2.SubmitStudyRequest(proposal=to_bytes(read_study(path))))
        ).study_digest

    async def run(self, folder: Path, stop: asyncio.Event, **options: bool) -> None:
        config = load_party(folder / "party.toml")
        identity = Identity(federation="trial", role=Role.PARTY, name=config.name)
        await run_party(config, lambda: InMemoryCoordinator(self.node.coordinator, identity), stop=stop, **options)

    async def carry_out(self, study_id: str, *, north: Path) -> bytes:
        """All columns of a study to the miner."""
        digest = await self.submit(study_id)
        stop = asyncio.Event()
        running = [asyncio.create_task(self.run(folder, stop)) for folder in (north, self.made.parties["south"])]
        await self.in_state(digest, State.ESTIMATING)
        stop.set()
        await asyncio.gather(*running)
        return digest

    async def in_state(self, digest: bytes, state: State) -> None:
        version = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=5)
                study = (await self.control().get_study(request)).study
                if study.state == state:
                    return
                version = study.version


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "north.csv").write_text("id,sex\n" + "".join(f"person-{n},{'fm'[n % 2]}\n" for n in range(300)))
    (tables / "south.csv").write_text("id,region\n" + "".join(f"person-{n},{'abc'[n % 3]}\n" for n in range(300)))
    made = provision(
        tmp_path / "nodes",
        federation="trial",
        sites=[csv_site(name, tables / f"{name}.csv") for name in ("north", "south")],
        limits=DEMO_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
    )
    miner = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(miner.certificate, miner.key, miner.federation)
    node = MinerNode(
        miner.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(miner.signing_key, miner.certificate),
        executor=IdleLearning(),
        limits=miner.limits,
        randomized_days=miner.randomized_days,
    )
    async with node:
        yield Federation(made, node)


def rows(folder: Path) -> list[Any]:
    """Of columns."""
    facts: Any = reports.ledger(load_party(folder / "party.toml")).rows
    return [row for row in facts if row.noise is None]


@pytest.mark.whole
async def test_a_restored_site_goes_on_and_an_old_backup_never_makes_the_ledger_forget(
    federation: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    north = federation.made.parties["north"]
    first = await federation.carry_out("first", north=north)
    with Site.open(load_party(north / "party.toml")) as site:
        charge_delta(site, first)
    words = tmp_path / "words"
    words.write_text(WORDS + "\n")
    command = ["--out", str(tmp_path / "old"), "--passphrase-file", str(words), "--config", str(north / "party.toml")]
    assert main(["party", "backup", *command, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ledger_rows"] == 2  # and the one of a delta
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600
    raw = (tmp_path / "old").read_bytes()
    for secret in ("state/site.secret", "secrets/linkage.key"):
        assert (north / secret).read_bytes().strip() not in raw

    again = north.with_name("north-again")
    assert main(["party", "restore", str(tmp_path / "old"), "--dir", str(again), "--passphrase-file", str(words)]) == 0
    for name in (
        "state/site.secret",
        "secrets/linkage.key",
        "pki/north.key",
        "party.toml",
        "federation.toml",
        "ca.crt",
    ):
        assert (again / name).read_bytes() == (north / name).read_bytes()
        assert stat.S_IMODE((again / name).stat().st_mode) == 0o600
    assert rows(again) == rows(north)
    assert delta_spent(again) == 1e-6
    assert (
        reports.verify_audit(load_party(again / "party.toml")).lines
        == reports.verify_audit(load_party(north / "party.toml")).lines + 1
    )

    # A backup that knows everything that was sent goes on where it was, with the same bytes for the same people at no cost.
    second = await federation.carry_out("second", north=again)
    assert [(row.study, row.charged) for row in rows(again)] == [("first", pytest.approx(2.0)), ("second", 0.0)]

    # The same backup again, now too old: it does not know that the second study was sent.
    older = north.with_name("north-older")
    restore(tmp_path / "old", older, WORDS)
    with pytest.raises(Refusal) as refused:
        await federation.run(older, asyncio.Event())
    assert refused.value.code == "LEDGER_OLDER"
    assert refused.value.exit_code == 3
    assert "'second'" in refused.value.message
    assert [row.study for row in rows(older)] == ["first"]
    stop = asyncio.Event()
    running = asyncio.create_task(federation.run(older, stop, accept_older=True))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(rows(older)) < 2:
            await asyncio.sleep(0.01)
    stop.set()
    await running
    assert [(row.study, row.charged) for row in rows(older)] == [
        ("first", pytest.approx(2.0)),
        ("second", pytest.approx(2.0)),
    ]
    mended = [
        line.said
        for line in reports.audit_entries(load_party(older / "party.toml")).entries
        if line.text("event") == "ledger-mended"
    ]
    assert [(entry["study"], entry["columns"]) for entry in mended] == [(second.hex(), ["sex"])]
    await federation_goes_on(federation, older)
    assert first != second


def charge_delta(site: Site, study: bytes) -> None:
    """A row of statistics, at a delta and nothing else."""
    noisy = ColumnDraw(
        variables=("sex",), dataset="people", sources=("sex",), codebook_digest=b"x", transition_digest=b"", secret_id=b"",
        fingerprint=b"", event=GaussianCounts(epsilon=0.0, delta=1e-6),
    )  # fmt: skip
    site.ledger.write_row(
        noisy, version_tag=b"", charge=Cost(epsilon=0.0, delta=1e-6), study_digest=study, study_id="first", unit=None,
        recipient="everyone", artifact_sha256=b"", size=0, at=utc_now(),
    )  # fmt: skip


def delta_spent(folder: Path) -> Any:
    datasets: Any = reports.ledger(load_party(folder / "party.toml")).datasets
    return datasets[0].delta_spent


async def federation_goes_on(federation: Federation, folder: Path) -> None:
    """It is said once: the daemon starts without the option now, and charges nothing twice."""
    stop = asyncio.Event()
    running = asyncio.create_task(federation.run(folder, stop))
    digest = await federation.submit("third")
    await noticed(folder, digest)
    stop.set()
    await running
    assert len(rows(folder)) == 2


class Liar(InMemoryCoordinator):
    """The miner, except for what it tells of one study."""

    lie: Callable[[coordinator_pb2.StudyTask], None]
    digest: bytes

    async def poll(self, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        reply = await super().poll(request)
        for task in reply.tasks:
            if task.study_digest == self.digest:
                self.lie(task)
        return reply


def lying(federation: Federation, digest: bytes, lie: Callable[[coordinator_pb2.StudyTask], None]) -> Any:
    def dial() -> Liar:
        liar = Liar(federation.node.coordinator, Identity(federation="trial", role=Role.PARTY, name="north"))
        liar.digest, liar.lie = digest, lie
        return liar

    return dial


async def lives_and_charges_nothing_for(
    federation: Federation,
    folder: Path,
    digest: bytes,
    lie: Callable[[coordinator_pb2.StudyTask], None],
    other: bytes,
    *,
    accept_older: bool,
) -> str:
    """Run a daemon that is lied to about one study until another one is carried out; what people read of the first."""
    stop, config = asyncio.Event(), load_party(folder / "party.toml")
    running = [
        asyncio.create_task(
            run_party(config, lying(federation, digest, lie), stop=stop, accept_older=accept_older)
            if place == folder
            else federation.run(place, stop)
        )
        for place in (folder, federation.made.parties["south"])
    ]
    await federation.in_state(other, State.ESTIMATING)

    def shown() -> str:
        studies: Any = commands.status(config).studies
        (stage,) = (study.stage for study in studies if study.digest == digest.hex())
        return str(stage)

    async with asyncio.timeout(PATIENCE_SECONDS):
        while "shows no approval and receipt" not in await asyncio.to_thread(shown):
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.gather(*running)
    assert {row.digest for row in rows(folder) if row.recipient == "miner"} & {digest.hex()} == set()
    return shown()


@pytest.mark.parametrize("accept_older", [False, True])
async def test_a_miner_that_claims_columns_of_a_study_that_nobody_approved_ends_and_charges_nothing(
    federation: Federation, capsys: pytest.CaptureFixture[str], accept_older: bool
) -> None:
    north = federation.made.parties["north"]
    toml = north / "party.toml"
    toml.write_text(toml.read_text().replace('approval = "auto"', 'approval = "manual"'))
    unasked, wanted = await federation.submit("unasked"), await federation.submit("wanted")
    await noticed_by(federation, north, wanted)
    key = ["--key", str(north / "secrets" / "approver.key")]
    assert main(["party", "approve", "wanted", "--as", "demo@north", *key, "--config", str(toml)]) == 0
    shown = receipt_of(federation, unasked)

    def lie(task: coordinator_pb2.StudyTask) -> None:
        task.state = common_pb2.STUDY_STATE_UPLOADING
        task.effective, task.effective_digest = task.proposal, task.study_digest
        task.approved = task.pseudonyms_complete = task.alignment_confirmed = True
        task.units_received[:] = [0]
        task.receipts.append(shown)

    stage = await lives_and_charges_nothing_for(federation, north, unasked, lie, wanted, accept_older=accept_older)
    assert stage.startswith("the miner claims to have columns of this party (sex) and shows no approval and receipt")
    capsys.readouterr()
    assert main(["party", "status", "--config", str(toml)]) == 0
    assert "the miner claims to have columns" in capsys.readouterr().out.replace("\n", " ")


def receipt_of(federation: Federation, digest: bytes, **other: Any) -> common_pb2.Signed:
    """A receipt that the miner signs, of a column that never came."""
    body = {
        "artifact_sha256": "0" * 64,
        "size": 100,
        "n_records": 300,
        "party": "north",
        "unit": 0,
        "variables": ["sex"],
        "effective_digest": digest.hex(),
        "proposal_digest": digest.hex(),
        "miner": "miner",
        "received_at": f"{utc_now():%Y-%m-%dT%H:%M:%SZ}",
    }
    config = load_miner(federation.made.miner / "miner.toml")
    return SigningKey.load(config.signing_key, config.certificate).sign(rfc8785.dumps({**body, **other}))


async def test_a_send_counts_only_with_the_partys_own_approval_and_the_miners_receipt_of_it(
    federation: Federation,
) -> None:
    north, south = federation.made.parties["north"], federation.made.parties["south"]
    await federation.carry_out("first", north=north)
    await federation.carry_out("second", north=north)
    task, other = await told(federation, "north")
    (foreign, _) = await told(federation, "south")
    config = load_party(north / "party.toml")
    authority = config.federation.ca_certificate.read_bytes()
    keys = {name: load_party(folder / "party.toml") for name, folder in (("north", north), ("south", south))}
    signer = {name: SigningKey.load(its.signing_key, its.certificate) for name, its in keys.items()}

    def shown(deleted: tuple[int, ...] = (), **lies: Any) -> frozenset[int]:
        said = coordinator_pb2.StudyTask.FromString(task.SerializeToString())
        for name, value in lies.items():
            said.ClearField(name)  # type: ignore[arg-type]
            if value is not None:
                getattr(said, name).extend(value) if name == "receipts" else getattr(said, name).CopyFrom(value)
        return proven(site, said, deleted_units=deleted, authority=authority, deny_list={})

    with Site.open(config) as site:
        assert shown() == {0}
        assert shown(deleted=(0,), receipts=[]) == {0}  # signed to be deleted is signed to have been there
        body = rfc8785.dumps({**json.loads(task.approval.body), "approver": "somebody"})
        (true,) = task.receipts
        for approval in (
            None,
            foreign.approval,
            other.approval,
            signer["south"].sign(task.approval.body),
            common_pb2.Signed(body=body, signature=task.approval.signature, certificate=task.approval.certificate),
        ):
            assert shown(approval=approval) == frozenset()
        changes: tuple[dict[str, Any], ...] = (
            {"proposal_digest": other.study_digest.hex()},
            {"effective_digest": other.effective_digest.hex()},
            {"party": "south"},
            {"unit": 1},
            {"unit": -1},
            {"variables": ["region"]},
            {"artifact_sha256": None},
            {"received_at": "yesterday"},
            {"received_at": "1999-01-01T00:00:00Z"},
        )
        said = json.loads(true.body)
        assert shown(receipts=[receipt_of(federation, b"", **said)]) == {0}
        for change in changes:
            assert shown(receipts=[receipt_of(federation, b"", **{**said, **change})]) == frozenset(), change
        assert shown(receipts=[signer["north"].sign(true.body)]) == frozenset()
        assert shown(receipts=list(other.receipts)) == frozenset()
        assert shown(receipts=[common_pb2.Signed(body=b"[]")]) == frozenset()


async def told(federation: Federation, party: str) -> list[coordinator_pb2.StudyTask]:
    miner = InMemoryCoordinator(federation.node.coordinator, Identity(federation="trial", role=Role.PARTY, name=party))
    return list((await miner.poll(coordinator_pb2.PollRequest())).tasks)


@pytest.mark.whole
async def test_what_a_miner_of_the_program_before_tells_of_a_forgotten_send_makes_only_that_study_wait(
    federation: Federation, tmp_path: Path
) -> None:
    north = federation.made.parties["north"]
    first = await federation.carry_out("first", north=north)
    older = north.with_name("north-older")
    backup(load_party(north / "party.toml"), tmp_path / "old", WORDS)
    second = await federation.carry_out("second", north=north)
    restore(tmp_path / "old", older, WORDS)
    third = await federation.submit("third")

    def says_less(task: coordinator_pb2.StudyTask) -> None:
        task.ClearField("approval")
        task.ClearField("receipts")

    stage = await lives_and_charges_nothing_for(federation, older, second, says_less, third, accept_older=False)
    assert "shows no approval and receipt" in stage
    assert {row.digest for row in rows(older)} == {first.hex(), third.hex()}


async def noticed_by(federation: Federation, folder: Path, digest: bytes) -> None:
    """A daemon runs until it has heard of a study."""
    stop = asyncio.Event()
    running = asyncio.create_task(federation.run(folder, stop))
    await noticed(folder, digest)
    stop.set()
    await running


async def noticed(folder: Path, digest: bytes) -> None:
    with Site.open(load_party(folder / "party.toml")) as site:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not site.state.knows(digest):
                await asyncio.sleep(0.01)


async def test_purge_takes_what_ended_studies_left_and_nothing_that_accounts_for_them(federation: Federation) -> None:
    north = federation.made.parties["north"]
    digest = await federation.carry_out("first", north=north)
    config = load_party(north / "party.toml")
    with pytest.raises(Refusal, match="it has not ended"):
        purge(config, "first", older_than_days=None)
    with pytest.raises(Misuse, match="expected STUDY or --older-than"):
        purge(config, None, older_than_days=None)
    with Site.open(config) as site:
        site.state.move(digest, State.PUBLISHED)
        charge_delta(site, digest)
    before = rows(north)
    spooled = list((config.state_directory / "spool").iterdir())
    assert len(spooled) == 1
    assert purge(config, None, older_than_days=1).bytes == 0  # not old enough
    later = utc_now() + dt.timedelta(days=2)
    listed = purge(config, None, older_than_days=1, dry_run=True, at=later)
    assert listed.bytes == spooled[0].stat().st_size
    assert purge(config, "first", older_than_days=None).bytes == listed.bytes
    assert not list((config.state_directory / "spool").iterdir())
    assert rows(north) == before
    assert delta_spent(north) == 1e-6
    assert reports.verify_audit(config).ok
    assert purge(config, "first", older_than_days=None).bytes == 0


def test_a_backup_is_whole_or_nothing(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000  # more than two frames
    file = tmp_path / "file"

    def opened(raw: bytes, words: str = WORDS) -> bytes:
        file.write_bytes(raw)
        with file.open("rb") as stream:
            return b"".join(unseal(stream, words, "file"))

    sealed = b"".join(seal([data[:70_000], data[70_000:]], WORDS, {"party": "north"}, cost=CHEAP))
    assert opened(sealed) == data
    assert opened(b"".join(seal([], WORDS, {}, cost=CHEAP))) == b""
    with pytest.raises(GateFailed, match="does not open with this passphrase"):
        opened(sealed, WORDS + "s")
    head = sealed.index(b"}") + 1
    frame = (1 << 20) + 16
    broken = {
        "a byte of the head": sealed.replace(b'"north"', b'"south"'),
        "a byte of a frame": sealed[:-1] + bytes([sealed[-1] ^ 1]),
        "the last frame is missing": sealed[: head + 2 * frame],
        "two frames are exchanged": sealed[:head]
        + sealed[head + frame : head + 2 * frame]
        + sealed[head : head + frame]
        + sealed[head + 2 * frame :],
    }
    for raw in broken.values():
        assert raw != sealed
        with pytest.raises(GateFailed):
            opened(raw)
    for raw in (b"", b"PK\x03\x04"):
        with pytest.raises(Misuse, match="is not a backup"):
            opened(raw)
    for raw in (b"verticil backup 1\n\x00\x02{}", sealed.replace(b'"n":1024', b'"n":262144000')):
        with pytest.raises(GateFailed, match="was changed in its head"):
            opened(raw)
    with pytest.raises(Misuse, match="at least 12"):
        b"".join(seal([], "short", {}))


def test_nothing_is_overwritten_and_a_cut_off_backup_leaves_no_folder(tmp_path: Path, make_site: Any) -> None:
    folder = make_site(tmp_path)
    config = load_party(folder / "party.toml")
    backup(config, tmp_path / "made", WORDS)
    with pytest.raises(Misuse, match="exists already"):
        backup(config, tmp_path / "made", WORDS)
    with pytest.raises(Misuse, match="is not empty"):
        restore(tmp_path / "made", folder, WORDS)
    (tmp_path / "half").write_bytes((tmp_path / "made").read_bytes()[:-9])
    with pytest.raises(GateFailed, match="BACKUP_INVALID"):
        restore(tmp_path / "half", tmp_path / "restored", WORDS)
    assert not (tmp_path / "restored").exists()
    assert not list(tmp_path.glob(".restored*"))
    with pytest.raises(Misuse, match="no such file"):
        restore(tmp_path / "nothing", tmp_path / "restored", WORDS)


def test_what_lies_elsewhere_is_kept_and_named(tmp_path: Path, make_site: Any) -> None:
    folder = make_site(tmp_path)
    shared = folder.parent / "shared"
    shared.mkdir()
    for name in ("federation.toml", "ca.crt"):
        shutil.move(folder / name, shared / name)
    text = (
        (folder / "party.toml")
        .read_text()
        .replace('federation = "federation.toml"', 'federation = "../shared/federation.toml"')
    )
    (folder / "party.toml").write_text(text)
    config = load_party(folder / "party.toml")
    blinding_state = BlindingState(config.state_directory, bytes(32))
    blinding_state.key()
    blinding_state.path("own.list").write_bytes(b"tokens")
    backup(config, tmp_path / "made", WORDS)
    away = tmp_path / "other-machine" / "deep" / "north"
    facts: Any = restore(tmp_path / "made", away, WORDS)
    assert set(facts.elsewhere) == {str(shared / "federation.toml"), str(shared / "ca.crt")}
    assert "federation.toml" in facts.problem
    for origin, path in facts.elsewhere.items():
        assert (away / path).read_bytes() == Path(origin).read_bytes()
    assert {path.name for path in away.rglob("linkage/*/*")} == {"own.list"}, "no scalar blinds a second time"


@pytest.fixture
def make_site() -> Any:
    def make(folder: Path) -> Path:
        (folder / "north.csv").write_text("id,sex\n1,f\n")
        made = provision(
            folder / "nodes",
            federation="trial",
            sites=[csv_site("north", folder / "north.csv")],
            limits=DEMO_LIMITS,
            endpoint="localhost:1",
            listen="127.0.0.1:0",
            hosts=("localhost",),
        )
        return made.parties["north"]

    return make
