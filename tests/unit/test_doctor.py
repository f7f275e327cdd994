"""`verticil doctor`: every check with its fault planted, one by one, on a miner and a party of this process's own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.cli.doctor_findings import Finding
from verticil.cli.machine_checks import check_certificate, check_disk, check_proxy, expiry
from verticil.cli.main import main
from verticil.cli.node_checks import check_node
from verticil.miner.storage.audit import MinerAudit
from verticil.miner.storage.catalogue import Catalogue
from verticil.party.audit.log import Event, What
from verticil.party.config import load_party
from verticil.party.site import Site as OpenedSite
from verticil.party.storage.database import FILE_NAME as DATABASE
from verticil.party.storage.database import SCHEMA, Database
from verticil.party.storage.secret import read_secret, secret_id
from verticil.party.storage.studies import Heartbeat, PartyState
from verticil.pki.files import write_federation
from verticil.shared.core.errors import PeerFault
from verticil.shared.core.health import FILE_NAME as HEALTH
from verticil.shared.core.health import living
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.membership.revocation import FILE_NAME
from verticil.shared.federation.transport.interface import Binding
from verticil.shared.federation.transport.server import RpcServer
from verticil.wire.v1 import control_pb2

CANARY = "canary-51d2"
Plant: TypeAlias = "Callable[[Site], object]"
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
CONTROL = control_pb2.DESCRIPTOR.services_by_name["Control"]


class Miner:
    """A real server of this process, in a thread with a loop of its own: `doctor` runs its own loop."""

    def __init__(self, home: Path) -> None:
        self._home, self._ready = home, threading.Event()
        self.skew = dt.timedelta()
        self.port = 0

    def __enter__(self) -> Miner:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)

    async def _serve(self) -> None:
        from verticil.shared.documents.config import load_federation

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        federation = load_federation(self._home / "pki" / "federation.toml")
        node = self._home / "miner" / "pki" / "miner"
        credentials = load_credentials(node.with_suffix(".crt"), node.with_suffix(".key"), federation)
        nothing = Binding(descriptor=CONTROL, service=object(), omitted=frozenset(m.name for m in CONTROL.methods))
        server = RpcServer("127.0.0.1:0", credentials, [nothing], clock=lambda: utc_now() + self.skew)
        self.port = await server.start()
        self._ready.set()
        await self._stop.wait()
        await server.stop(grace_seconds=0)


class Site:
    """A federation of a miner and a clinic, laid out by the commands themselves."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clinic, self.federation = home / "clinic", home / "pki" / "federation.toml"
        long_ago = utc_now() - dt.timedelta(days=200)
        sha256 = create_authority(home / "pki", "fed", at=long_ago, days=3650)
        write_federation(self.federation, name="fed", ca_certificate="ca.crt", ca_sha256=sha256, endpoint="127.0.0.1:1")
        issue(home / "pki", "miner", Role.MINER, home / "miner" / "pki", hosts=["127.0.0.1"])
        issue(home / "pki", "clinic", Role.PARTY, self.clinic / "pki")
        self.run("linkage", "new-key", self.clinic / "secrets" / "linkage.key")
        (home / "clinic.csv").write_text(f"id,smoker\n{CANARY},yes\n")
        self.run("miner", "init", "--dir", home / "miner", "--federation", self.federation, "--listen", "127.0.0.1:0")
        place = ["--dir", self.clinic, "--federation", self.federation, "--table", home / "clinic.csv"]
        self.run("party", "init", "--name", "clinic", *place)

    @property
    def catalogue(self) -> Path:
        return self.home / "miner" / "state" / "catalogue.sqlite"

    def change_log(self) -> None:
        log = self.catalogue.with_name("audit.jsonl")
        log.write_bytes(log.read_bytes().replace(b'"first"', b'"thirst"'))

    @staticmethod
    def run(*arguments: object) -> None:
        assert main([*map(str, arguments), "--format", "json"]) == 0

    def point_to(self, address: str) -> None:
        text = self.federation.read_text()
        old = next(line for line in text.splitlines() if line.startswith("endpoint"))
        self.federation.write_text(text.replace(old, f'endpoint = "{address}"'))


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Miner]]:
    site = Site(tmp_path_factory.mktemp("doctor"))
    with Miner(site.home) as miner:
        site.point_to(f"127.0.0.1:{miner.port}")
        yield site, miner


@pytest.fixture
def site(laid_out: tuple[Site, Miner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A copy to plant faults in; the miner goes on."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    shutil.copytree(laid_out[0].home, tmp_path / "home")
    copy = Site.__new__(Site)
    copy.home, copy.clinic = tmp_path / "home", tmp_path / "home" / "clinic"
    copy.federation = copy.home / "pki" / "federation.toml"
    laid_out[1].skew = dt.timedelta()
    return copy


def examine(config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, str]]]:
    capsys.readouterr()
    code = main(["doctor", str(config), "--format", "json"])
    text = capsys.readouterr().out
    assert CANARY not in text
    return code, json.loads(text)["checks"]


def test_nothing_is_wrong(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = examine(site.clinic / "party.toml", capsys)
    assert (code, {check["level"] for check in checks}) == (0, {"ok"}), checks
    assert [check["check"] for check in checks] == [
        "configuration", "certificate", "signing certificate", *["private files"] * 4, "database", "audit log", "site secret",
        "state", "data set 'people'", "disk", "deny-list", "proxy", "name resolution", "TCP", "TLS", "accepted",
        "protocol version", "clock",
    ]  # fmt: skip
    code, checks = examine(site.home / "miner" / "miner.toml", capsys)
    assert (code, {check["level"] for check in checks}) == (0, {"ok", "warn"}), checks
    assert main(["doctor", str(site.clinic / "party.toml")]) == 0
    assert "21 ok, 0 warnings, 0 failed" in capsys.readouterr().out


def swap_identity(site: Site) -> None:
    issue(site.home / "pki", "insurer", Role.PARTY, site.home / "other")
    for suffix in (".crt", ".key", ".sign"):
        shutil.copy(site.home / "other" / f"insurer{suffix}", site.clinic / "pki" / f"clinic{suffix}")


def wrong_role(site: Site) -> None:
    issue(site.home / "pki", "clinic", Role.ANALYST, site.home / "other")
    for suffix in (".crt", ".key", ".sign"):
        shutil.copy(site.home / "other" / f"clinic{suffix}", site.clinic / "pki" / f"clinic{suffix}")


def ended(days_ago: int, lived: int) -> Plant:
    def plant(site: Site) -> None:
        issue(
            site.home / "pki",
            "clinic",
            Role.PARTY,
            site.home / "other",
            at=utc_now() - dt.timedelta(days=days_ago),
            days=lived,
        )
        for suffix in (".crt", ".key", ".sign"):
            shutil.copy(site.home / "other" / f"clinic{suffix}", site.clinic / "pki" / f"clinic{suffix}")

    return plant


def another_miner(site: Site) -> None:
    """The endpoint's certificate is another federation's authority's."""
    create_authority(site.home / "twin", "fed")
    sha256 = json_of_authority(site.home / "twin")
    issue(site.home / "twin", "clinic", Role.PARTY, site.home / "other")
    for suffix in (".crt", ".key", ".sign"):
        shutil.copy(site.home / "other" / f"clinic{suffix}", site.clinic / "pki" / f"clinic{suffix}")
    shutil.copy(site.home / "twin" / "ca.crt", site.home / "pki" / "ca.crt")
    text = site.federation.read_text()
    old = next(line for line in text.splitlines() if line.startswith("ca_sha256"))
    site.federation.write_text(text.replace(old, f'ca_sha256 = "{sha256}"'))


def json_of_authority(folder: Path) -> str:
    from verticil.shared.federation.identity.pki import certificate_sha256, read_certificates

    return certificate_sha256(read_certificates(folder / "ca.crt")[0])


def by_name(site: Site) -> None:
    """`localhost` leads to the same port, but is no name in the miner's certificate."""
    port = site.federation.read_text().partition("127.0.0.1:")[2].partition('"')[0]
    site.point_to(f"localhost:{port}")


def closed_port(site: Site) -> None:
    site.point_to(f"127.0.0.1:{free_port()}")


def replaced(name: str, old: str, new: str) -> Plant:
    def plant(site: Site) -> None:
        path = site.home / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return plant


def database(*, mode: int) -> Plant:
    """The table is in a PostgreSQL that nobody serves, its password in a file."""

    def plant(site: Site) -> None:
        path = site.clinic / "party.toml"
        before, _, rest = path.read_text().partition('path = "../clinic.csv"')
        url = f"postgresql://reader@127.0.0.1:{free_port()}/clinic"
        place = f'url = "{url}"\npassword_file = "word"\ntable = "clinic.people"\nid ={rest.partition("id =")[2]}'
        path.write_text(before + place)
        (site.clinic / "word").write_text(CANARY)
        (site.clinic / "word").chmod(mode)

    return plant


def beat(problem: str) -> Plant:
    """What the daemon wrote down when it last lived: a moment ago, in good order or with a problem."""

    def plant(site: Site) -> None:
        with Database(site.clinic / "state") as database:
            at = f"{utc_now():%Y-%m-%dT%H:%M:%SZ}"
            pid = 0 if problem == "LEDGER_OLDER" else 1  # that one ends it
            PartyState(database).beat(Heartbeat(pid=pid, at=at, connected=not problem, problem=problem))

    return plant


def alive(site: Site) -> None:
    """What its daemon says of itself while it serves."""
    state = site.clinic / "state"

    async def serve() -> bytes:
        async with living(state, asyncio.Event()) as vitals:
            vitals.serving(lambda: "connected to the miner")
            while not (state / HEALTH).exists() or b" OK\n" not in (state / HEALTH).read_bytes():
                await asyncio.sleep(0.01)
            return (state / HEALTH).read_bytes()

    (state / HEALTH).write_bytes(asyncio.run(serve()))


def revoked(site: Site) -> None:
    site.run("pki", "revoke", "clinic", "--ca", site.home / "pki", "--yes")


@pytest.mark.parametrize(
    ("plants", "code", "exit_code", "says", "command"),
    [
        ([beat("LEDGER_OLDER")], "LEDGER_OLDER", 3, "older than what was sent", "restore the newest backup"),
        ([beat(""), revoked], "CERTIFICATE_REVOKED", 5, "was revoked on", "verticil pki request clinic"),
        ([beat("CERTIFICATE_REVOKED")], "CERTIFICATE_REVOKED", 5, "was revoked", "verticil pki request clinic"),
        ([beat(""), ended(100, 90)], "CERTIFICATE_INVALID", 5, "has expired", "verticil pki renew"),
    ],
    ids=["an older ledger", "revoked", "revoked, told by a refusal only", "expired"],
)
def test_the_probe_names_what_no_restart_mends_and_the_command_that_does(
    site: Site,
    capsys: pytest.CaptureFixture[str],
    plants: list[Plant],
    code: str,
    exit_code: int,
    says: str,
    command: str,
) -> None:
    arguments = ["healthcheck", "--config", str(site.clinic / "party.toml"), "--format", "json"]
    beat("")(site)
    alive(site)
    assert main(arguments) == 0
    for plant in plants:
        plant(site)
    capsys.readouterr()
    assert main(arguments) == exit_code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert says in error["message"]
    assert command in error["hint"]


def damage(path: Path) -> None:
    """Overwrite what is after the first page."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


def executed(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as opened:
        for statement in statements:
            opened.execute(statement)
        opened.commit()


def without_table(path: Path) -> None:
    executed(path, "DROP TABLE reserved")


def of_program_before(path: Path) -> None:
    executed(path, "PRAGMA user_version = 8", "PRAGMA application_id = 0")


def of_version(path: Path, version: int) -> None:
    executed(path, f"PRAGMA user_version = {version}")


def noted(site: Site) -> None:
    """Two lines in the audit log."""
    with OpenedSite.open(load_party(site.clinic / "party.toml")) as opened:
        for detail in ("first", "second"):
            opened.audit.record(Event(what=What.CHECK, who="officer", detail=detail), NOW)


def changed_line(site: Site) -> None:
    noted(site)
    path = site.clinic / "state" / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"first"', b'"thirst"'))


def another_secret(site: Site) -> None:
    """The ledger has a row that was made with the old one."""
    columns = (
        "at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id,"
        " fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size"
    )
    own = secret_id(read_secret(site.clinic / "state").value).hex()
    row = f"'2026-11-21', x'00', 'a', 0, '[]', 'people', '[]', x'00', x'00', x'{own}', x'00', x'', '{{}}', 1, 0, 1, 0,"
    row += " 'miner', x'00', 1"
    executed(site.clinic / "state" / DATABASE, f"INSERT INTO ledger ({columns}) VALUES ({row})")
    with OpenedSite.look(load_party(site.clinic / "party.toml")) as opened:
        opened.ledger.check_secret(read_secret(site.clinic / "state").value)
    (site.clinic / "state" / "site.secret").write_text(f"{'ab' * 32}\nformat = 2\n")


FAULTS: list[tuple[str, Plant, str, str, int, str]] = [
    # planted, how, failing check, code, exit code, what the hint says
    ("no file", lambda s: (s.clinic / "party.toml").unlink(), "configuration", "FILE_MISSING", 2, "party.toml or miner.toml"),
    ("a misspelt key", replaced("clinic/party.toml", "state_directory", "state_dir"), "configuration", "CONFIG_INVALID", 2, ""),
    ("no certificate", lambda s: (s.clinic / "pki" / "clinic.crt").unlink(), "certificate", "FILE_MISSING", 2, ""),
    ("another party's", swap_identity, "certificate", "IDENTITY_REFUSED", 5, "issued to this node"),
    ("another role", wrong_role, "certificate", "IDENTITY_REFUSED", 5, "issued to this node"),
    ("expired", ended(100, 90), "certificate", "CERTIFICATE_INVALID", 5, "verticil pki renew"),
    ("another key", lambda s: shutil.copy(s.home / "miner/pki/miner.key", s.clinic / "pki/clinic.key"), "certificate",
     "CERTIFICATE_INVALID", 5, ""),
    ("another signing key", lambda s: shutil.copy(s.home / "miner/pki/miner.sign", s.clinic / "pki/clinic.sign"),
     "signing certificate", "CERTIFICATE_INVALID", 5, ""),
    ("a key that others can read", lambda s: (s.clinic / "pki/clinic.key").chmod(0o640), "private files", "CONFIG_INVALID", 2,
     "chmod 600"),
    ("a secret that others can read", lambda s: (s.clinic / "state/site.secret").chmod(0o604), "private files",
     "CONFIG_INVALID", 2, "chmod 600"),
    ("no linkage key", lambda s: (s.clinic / "secrets/linkage.key").unlink(), "private files", "SECRET_MISSING", 1, ""),
    ("no table", lambda s: (s.home / "clinic.csv").unlink(), "data set 'people'", "DATA_FILE_MISSING", 1, ""),
    ("no id column", lambda s: (s.home / "clinic.csv").write_text(f"nr,smoker\n{CANARY},yes\n"), "data set 'people'",
     "DATA_COLUMN_MISSING", 1, "id"),
    ("a password that others can read", database(mode=0o640), "private files", "CONFIG_INVALID", 2, "chmod 600"),
    ("no database for the table", database(mode=0o600), "data set 'people'", "DATA_INTERRUPTED", 1, "url in [dataset.NAME]"),
    ("no such host", lambda s: s.point_to("no-such-host.invalid:1"), "name resolution", "UNREACHABLE", 5, "name service"),
    ("nobody listens", closed_port, "TCP", "UNREACHABLE", 5, "is the miner running"),
    ("another authority", another_miner, "TLS", "TLS_REFUSED", 5, "another authority"),
    ("a name that is not in the certificate", by_name, "TLS", "TLS_REFUSED", 5, "subject alternative name"),
    ("revoked", lambda s: s.run("pki", "revoke", "clinic", "--ca", s.home / "pki", "--yes"), "deny-list",
     "CERTIFICATE_REVOKED", 5, "pki request"),
    ("a deny-list that cannot be read", lambda s: (s.home / "pki/revoked.crl").mkdir(), "deny-list", "FILE_MISSING", 2,
     "let the account that runs the node read this file"),
    ("a deny-list that is none", lambda s: (s.home / "pki/revoked.crl").write_text("x"), "deny-list", "CERTIFICATE_INVALID", 5,
     "ask the coordinator"),
    ("the miner's was revoked", lambda s: s.run("pki", "revoke", "miner", "--ca", s.home / "pki", "--yes"), "TLS",
     "CERTIFICATE_REVOKED", 5, "pki request"),
    ("a damaged database", lambda s: damage(s.clinic / "state" / DATABASE), "database", "STATE_CORRUPT", 1, "restore your"),
    ("a database without a table", lambda s: without_table(s.clinic / "state" / DATABASE), "database", "STATE_CORRUPT", 1,
     "restore your backup"),
    ("a database of before 1.0.0", lambda s: of_program_before(s.clinic / "state" / DATABASE), "database", "STATE_UNSUPPORTED", 1,
     "begin anew"),
    ("a database of a newer version", lambda s: of_version(s.clinic / "state" / DATABASE, 99), "database", "STATE_CORRUPT", 1,
     "needs the version that wrote it"),
    ("no database", lambda s: (s.clinic / "state" / DATABASE).unlink(), "database", "STATE_CORRUPT", 1, "restore your backup"),
    ("a changed audit log", lambda s: changed_line(s), "audit log", "AUDIT_BROKEN", 6, ""),
    ("another site secret", lambda s: another_secret(s), "site secret", "SECRET_MISSING", 1, "restore it from your backup"),
    ("no hexadecimal site secret", lambda s: (s.clinic / "state/site.secret").write_text("x\n"), "site secret", "SECRET_MISSING",
     1, "restore it from your backup"),
    ("an older ledger, as the miner showed", beat("LEDGER_OLDER"), "state", "LEDGER_OLDER", 3, "restore the newest backup"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plant", "check", "code", "exit_code", "hint"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_a_planted_fault_is_found(
    site: Site,
    capsys: pytest.CaptureFixture[str],
    plant: Plant,
    check: str,
    code: str,
    exit_code: int,
    hint: str,
) -> None:
    plant(site)
    found, checks = examine(site.clinic / "party.toml", capsys)
    failures = [one for one in checks if one["level"] == "fail"]
    assert (found, failures[0]["check"], failures[0]["code"]) == (exit_code, check, code), checks
    assert hint in failures[0]["hint"]


@pytest.mark.parametrize(
    ("plant", "check", "hint"),
    [
        (ended(70, 90), "certificate", "pki renew"),
        (lambda site: site.point_to("clinic.invalid:1"), "proxy", "no_proxy"),
    ],
)
def test_what_will_not_work_for_long_is_a_warning(
    site: Site,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    plant: Plant,
    check: str,
    hint: str,
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    plant(site)
    warnings = [one for one in examine(site.clinic / "party.toml", capsys)[1] if one["level"] == "warn"]
    assert [one["check"] for one in warnings] == [check]
    assert hint in warnings[0]["hint"]


def test_a_clock_that_is_wrong_is_a_warning(
    site: Site, laid_out: tuple[Site, Miner], capsys: pytest.CaptureFixture[str]
) -> None:
    laid_out[1].skew = dt.timedelta(seconds=200)
    code, checks = examine(site.clinic / "party.toml", capsys)
    assert (code, [(one["check"], "NTP" in one["hint"]) for one in checks if one["level"] == "warn"]) == (
        0,
        [("clock", True)],
    )


def test_another_protocol_version_is_found(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticil.shared.federation.transport.channel._METADATA", (("verticil-protocol", "9"),))
    code, checks = examine(site.clinic / "party.toml", capsys)
    assert (code, checks[-1]["check"], checks[-1]["code"]) == (5, "protocol version", "VERSION_UNSUPPORTED")
    assert "upgrade verticil at" in checks[-1]["hint"]


@pytest.mark.parametrize(
    ("plant", "check", "exit_code"),
    [
        (lambda site: site.point_to("miner.example.org:8443"), "endpoint", 5),
        (lambda site: (site.home / "miner/pki/miner.sign").chmod(0o644), "private files", 2),
        (lambda site: (with_catalogue(site), damage(site.catalogue)), "catalogue", 1),
        (lambda site: (with_catalogue(site), executed(site.catalogue, "DROP TABLE denial")), "catalogue", 1),
        (lambda site: (with_catalogue(site), of_version(site.catalogue, 99)), "catalogue", 1),
        (lambda site: (with_catalogue(site), of_program_before(site.catalogue)), "catalogue", 1),
        (lambda site: (with_catalogue(site), site.catalogue.unlink()), "catalogue", 1),
        (lambda site: (with_catalogue(site), site.change_log()), "audit log", 6),
        (lambda site: (site.home / "pki" / FILE_NAME).write_text("x"), "deny-list", 5),
    ],
)
def test_a_miners_faults(
    site: Site, capsys: pytest.CaptureFixture[str], plant: Plant, check: str, exit_code: int
) -> None:
    plant(site)
    code, checks = examine(site.home / "miner" / "miner.toml", capsys)
    assert (code, [one["check"] for one in checks if one["level"] == "fail"]) == (exit_code, [check] if check else [])


def with_catalogue(site: Site) -> None:
    """As a miner leaves it that has run."""
    with contextlib.closing(Catalogue(site.catalogue)):
        pass
    audit = MinerAudit(site.catalogue.parent)
    for name in ("first", "second"):
        audit.record("refused", NOW, who=name, detail="")


def everything(folder: Path) -> dict[str, tuple[float, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_what_is_examined_stays_as_it_was(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    noted(site)
    with_catalogue(site)
    for config in (site.clinic / "party.toml", site.home / "miner" / "miner.toml"):
        before = everything(site.home)
        code, checks = examine(config, capsys)
        assert code == 0, checks
        assert "2 lines hold" in next(check["detail"] for check in checks if check["check"] == "audit log")
        assert "whole, of version" in next(
            check["detail"] for check in checks if check["check"] in {"database", "catalogue"}
        )
        assert everything(site.home) == before


def test_a_state_of_an_earlier_version_is_a_warning_and_is_left_to_the_daemon(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = dataclasses.replace(SCHEMA, steps=(*SCHEMA.steps, "CREATE TABLE planted (x INTEGER);"))
    monkeypatch.setattr("verticil.party.storage.database.SCHEMA", planted)
    monkeypatch.setattr("verticil.party.storage.database.SCHEMA_VERSION", planted.version)
    before = everything(site.clinic)
    code, checks = examine(site.clinic / "party.toml", capsys)
    (found,) = [check for check in checks if check["check"] == "database"]
    assert (code, found["level"]) == (0, "warn")
    assert "of version 1: the next command or daemon brings it to 2" in found["detail"]
    assert everything(site.clinic) == before


def test_feature_12_a_miner_that_relays_nothing_for_those_who_need_it_is_a_warning(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.federation.open("a") as file:
        file.write('\n[peers]\nclinic = "relay"\ninsurer = "insurer.invalid:1"\n')
    config = site.home / "miner" / "miner.toml"
    found = [one for one in examine(config, capsys)[1] if one["check"] == "relay"]
    assert [(one["level"], "268,435,456 bytes" in one["detail"]) for one in found] == [("ok", True)]
    text = config.read_text()
    assert "max_relay_bytes = 268435456" in text
    config.write_text(text.replace("max_relay_bytes = 268435456", "max_relay_bytes = 0"))
    found = [one for one in examine(config, capsys)[1] if one["check"] == "relay"]
    assert [(one["level"], one["hint"]) for one in found] == [("warn", "set [limits] max_relay_bytes")]
    assert "clinic cannot be dialled" in found[0]["detail"]


async def test_a_party_is_no_miner(site: Site, laid_out: tuple[Site, Miner]) -> None:
    """Somebody answers at the miner's address with a certificate of the federation that is not the miner's."""
    from verticil.shared.documents.config import load_federation

    federation = load_federation(site.federation)
    issue(site.home / "pki", "peer", Role.PARTY, site.home / "peer", hosts=["127.0.0.1"])
    peer = load_credentials(site.home / "peer/peer.crt", site.home / "peer/peer.key", federation)
    server = RpcServer("127.0.0.1:0", peer, [])
    port = await server.start()
    found = [finding async for finding in check_node(f"127.0.0.1:{port}", peer, clock=utc_now)]
    reached = [
        finding async for finding in check_node(f"127.0.0.1:{port}", peer, clock=utc_now, peer_identity=peer.identity)
    ]
    await server.stop(grace_seconds=0)
    assert (found[-1].check, found[-1].code) == ("TLS", "IDENTITY_REFUSED")
    assert {finding.level for finding in reached} == {"ok"}
    assert all("(party 'peer')" in finding.check for finding in reached)


def test_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def level(free: int, reserve: int) -> str:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        return check_disk(tmp_path, reserve_bytes=reserve).level

    assert [level(free << 30, 1 << 30) for free in (0, 1, 2, 9)] == ["fail", "warn", "ok", "ok"]
    assert level((1 << 30) - 1, 64 << 20) == "warn"
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=60, f_favail=0, f_bavail=9, f_frsize=4096))
    without_inodes = check_disk(tmp_path, reserve_bytes=1)
    assert (without_inodes.code, "36,864 bytes are free" in without_inodes.detail) == ("DISK_FULL", True)
    missing = check_disk(tmp_path / "none", reserve_bytes=1)
    assert (missing.code, "state_directory" in missing.hint) == ("FILE_MISSING", True)


@pytest.mark.parametrize(
    ("environment", "endpoint", "level"),
    [
        ({}, "miner.org:1", "ok"),
        ({"HTTPS_PROXY": "http://p:1"}, "miner.org:1", "warn"),
        ({"https_proxy": ""}, "miner.org:1", "ok"),
        ({"https_proxy": "http://p:1", "no_proxy": "localhost, .org"}, "miner.org:1", "ok"),
        ({"https_proxy": "http://p:1", "no_proxy": "iner.org"}, "miner.org:1", "warn"),
        ({"https_proxy": "http://p:1"}, "127.0.0.1:1", "ok"),
        ({"https_proxy": "http://p:1"}, "nonsense", "fail"),
    ],
)
def test_proxy_variables(environment: dict[str, str], endpoint: str, level: str) -> None:
    assert check_proxy(endpoint, environment).level == level


def test_ends_of_certificates() -> None:
    levels = [expiry("c", "who", NOW + dt.timedelta(days=days), at=NOW).level for days in (31, 30, 1, -1)]
    assert levels == ["ok", "warn", "warn", "warn"]

    def broken() -> None:
        raise PeerFault("CERTIFICATE_INVALID", "expired")

    finding, nothing = check_certificate(broken, at=NOW)
    assert (finding, nothing) == (
        Finding(check="certificate", level="fail", detail="expired", code="CERTIFICATE_INVALID"),
        None,
    )
