"""What bad input gets: a stable code, a message that says what, where, expected and got, a hint, the documented exit code.

Every case runs through the command line, or through gRPC between real processes. After each, nothing durable has changed, no
value or id of a table was said, and with mended input the same command works. The exit codes are those of the README: 1 data
and machine, 2 documents and command line, 3 policy, 4 expired, 5 network and identity, 6 a check that did not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import logging
import re
import shutil
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.daemon import dial, run_party
from verticil.shared.core.errors import CODES, VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import Credentials, load_credentials
from verticil.shared.federation.transport.client import Connection, GrpcControl, GrpcCoordinator
from verticil.simulation.provision import set_endpoint
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

CANARY_VALUE, CANARY_ID = "kanarienvogel-77", "canary-4711-id"
DATA = ("simulate", "party check")  # the commands that read tables; the others read documents only


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """How to break a desk (see `Desk`), with which commands to meet it, and what must come of it."""

    spoil: Callable[[Desk], None]
    code: str
    exit_code: int
    says: tuple[str, ...]
    hint: str
    commands: tuple[str, ...] = DATA


def edit(name: str, old: str, new: str, count: int = 1) -> Callable[[Desk], None]:
    """Change a document or a table of the desk."""

    def change(desk: Desk) -> None:
        text = desk.file(name).read_text()
        assert old in text
        desk.file(name).write_text(text.replace(old, new, count))

    return change


def append(name: str, line: str) -> Callable[[Desk], object]:
    return lambda desk: desk.file(name).write_text(desk.file(name).read_text() + line)


def shorten(name: str, lines: int) -> Callable[[Desk], object]:
    return lambda desk: desk.file(name).write_text("\n".join(desk.file(name).read_text().splitlines()[:lines]) + "\n")


def matrix(rows: str) -> Callable[[Desk], None]:
    table = f'[[randomization]]\nvariables = ["smoker"]\nscheme = "matrix"\nrows = {rows}\n\n[structure]'
    return edit("study.toml", "[structure]", table)


DOCUMENTS = ("simulate", "party check", "study check", "study submit")
CASES: dict[str, Case] = {
    "missing file: the table": Case(
        spoil=lambda desk: desk.file("clinic.csv").unlink(),
        code="DATA_FILE_MISSING", exit_code=1, says=("clinic.csv: no such file",), hint="path",
    ),
    "missing file: the study": Case(
        spoil=lambda desk: desk.file("study.toml").unlink(), commands=DOCUMENTS,
        code="FILE_MISSING", exit_code=2, says=("study.toml: no such file",), hint="existing TOML file",
    ),
    "missing file: the certificate": Case(
        spoil=lambda desk: (desk.clinic / "pki" / "clinic.crt").unlink(), commands=("party check",),
        code="FILE_MISSING", exit_code=2, says=("clinic.crt: cannot be read (No such file",), hint="certificate",
    ),
    "missing file: the linkage key": Case(
        spoil=lambda desk: (desk.clinic / "secrets" / "linkage.key").unlink(), commands=("party check",),
        code="SECRET_MISSING", exit_code=1, says=("linkage key", "linkage.key: no such file"), hint="never to the miner",
    ),
    "wrong delimiter": Case(
        spoil=edit("clinic.csv", ",", ";", -1), commands=("party check",),  # a simulation finds the delimiter by itself
        code="DATA_UNREADABLE", exit_code=1, hint='set delimiter = ";"',
        says=("clinic.csv: wrong delimiter", "with a comma none of 4 expected columns is found, with a semicolon 4"),
    ),
    "another kind of file": Case(
        spoil=lambda desk: desk.file("clinic.csv").write_bytes(b"PAR1" + CANARY_VALUE.encode()) and None,
        code="DATA_UNREADABLE", exit_code=1, hint='set format = "parquet"', commands=("party check",),
        says=("clinic.csv: this is a Parquet file, expected csv",),
    ),
    "another kind of file than its name says": Case(
        spoil=lambda desk: desk.file("clinic.csv").write_bytes(b"PAR1" + CANARY_VALUE.encode()) and None,
        code="DATA_UNREADABLE", exit_code=1, hint="call the file by what it is", commands=("simulate",),
        says=("clinic.csv: this is a Parquet file, expected CSV",),
    ),
    "absent column": Case(
        spoil=edit("clinic.csv", "smoker", "smokes"),
        code="DATA_COLUMN_MISSING", exit_code=1, hint="'smokes' for 'smoker'?",
        says=("clinic.csv: no column 'smoker'", "the table has 5 columns"),
    ),
    "absent column: the id": Case(
        spoil=edit("clinic.csv", "id,", "person,"),
        code="DATA_COLUMN_MISSING", exit_code=1, says=("clinic.csv: no column 'id'",), hint="say which one does",
    ),
    "too small an intersection: a short table": Case(
        spoil=shorten("clinic.csv", 50), commands=("simulate",),
        code="LINKAGE_TOO_SMALL", exit_code=3, hint="is the table whole?",
        says=("this party has 49 records to link, expected at least 100 in common",),
    ),
    "too small an intersection: other people": Case(
        spoil=edit("clinic.csv", "\np", "\nq", -1), commands=("simulate",),
        code="LINKAGE_TOO_SMALL", exit_code=3, hint="same linkage key",
        says=("fewer records in common than the required minimum of 100",),
    ),
    "singular matrix": Case(
        spoil=matrix("[[0.5, 0.5], [0.5, 0.5]]"), commands=DOCUMENTS,
        code="MATRIX_SINGULAR", exit_code=2, hint="keep more of the true value",
        says=("study.toml: randomization[1]: column 'smoker'", "condition number inf, expected below 1e+06"),
    ),
    "singular matrix: almost": Case(
        spoil=matrix("[[0.5, 0.5], [0.4999999, 0.5000001]]"), commands=DOCUMENTS,
        code="MATRIX_SINGULAR", exit_code=2, says=("column 'smoker'", "condition number 1e+07"), hint="keep more",
    ),
    "not a matrix of probabilities": Case(
        spoil=matrix("[[0.9, 0.2], [0.1, 0.9]]"), commands=DOCUMENTS,
        code="MATRIX_INVALID", exit_code=2, hint="a row holds the probabilities",
        says=("column 'smoker': matrix row 1 sums to 1.1, expected 1 within 1e-09",),
    ),
    "expired study": Case(
        spoil=edit("study.toml", "2099-12-31", "2020-12-31"), commands=("simulate", "party check", "study submit"),
        code="STUDY_EXPIRED", exit_code=4, says=("study 'hearts'", "2020-12-31"), hint="submit",
    ),
    "unknown party: a column of nobody": Case(
        spoil=edit("study.toml", 'party = "insurer"', 'party = "hospital"'), commands=DOCUMENTS,
        code="STUDY_INVALID", exit_code=2, hint="[[party]]",
        says=("study.toml: variable 'claims'", "'hospital' is not a [[party]]", "expected one of clinic, insurer"),
    ),
    "unknown party: not in the study": Case(
        spoil=edit("study.toml", '"clinic"', '"hospital"', -1), commands=("party check",),
        code="PARTY_UNKNOWN", exit_code=5, says=("'clinic'", "hospital, insurer"), hint="name",
    ),
    "unknown party: a table of nobody": Case(
        spoil=lambda desk: desk.tables.update(hospital=desk.tables["clinic"]), commands=("simulate",),
        code="USAGE", exit_code=2, says=("'hospital': no such party",), hint="clinic, insurer",
    ),
    "a party claims another's column": Case(
        spoil=append("clinic/party.toml", '[[randomization]]\nvariables = ["claims"]\nscheme = "none"\n'),
        commands=("party check",),
        code="CONFIG_INVALID", exit_code=2, says=("party.toml: randomization[1]", "'claims'"), hint="own",
    ),
    "expired certificate": Case(
        spoil=lambda desk: desk.certify("clinic", since=3), commands=("party check", "release fetch"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("clinic.crt: by this machine's clock (",), hint="verticil pki renew",
    ),
    "expired certificate: the analyst's": Case(
        spoil=lambda desk: desk.certify("analyst", since=3), commands=("study submit", "study list"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("analyst.crt: by this machine's clock (",), hint="verticil pki renew",
    ),
    "expired certificate: the miner's": Case(
        spoil=lambda desk: desk.certify("miner", since=3), commands=("miner run", "healthcheck"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("miner.crt: by this machine's clock (",), hint="verticil pki renew",
    ),
    "wrong CA: a certificate of another authority": Case(
        spoil=lambda desk: desk.certify("clinic", authority="other"), commands=("party check", "release fetch"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("clinic.crt: not issued by the federation's authority",),
        hint="same federation",
    ),
    "wrong CA: another authority's certificate": Case(
        spoil=lambda desk: shutil.copy(desk.root / "other" / "ca.crt", desk.clinic / "ca.crt") and None,
        commands=("party check", "release fetch"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("ca.crt: SHA-256 is", "expected"), hint="fingerprint by telephone",
    ),
    "wrong CA: a whole other federation": Case(
        spoil=lambda desk: desk.move("clinic", authority="other"), commands=("release fetch",),
        code="TLS_REFUSED", exit_code=5, says=("127.0.0.1:", "its certificate does not hold"), hint="another authority",
    ),
    "another party's certificate": Case(
        spoil=lambda desk: desk.certify("clinic", name="insurer"), commands=("party check",),
        code="IDENTITY_REFUSED", exit_code=5, says=("name is 'insurer', expected 'clinic'",), hint="issued to this node",
    ),
    "miner unreachable: nobody listens": Case(
        spoil=lambda desk: desk.point_to(free_port()), commands=("study submit", "study list"),
        code="UNREACHABLE", exit_code=5, says=("127.0.0.1:", "connection refused"), hint="is the miner running",
    ),
    "miner unreachable: something else listens": Case(
        spoil=lambda desk: desk.point_to(desk.other_port), commands=("study list",),
        code="TLS_REFUSED", exit_code=5, says=("127.0.0.1:", "the TLS handshake failed"), hint="is this the miner's port",
    ),
    "unknown study": Case(
        spoil=lambda desk: desk.names.update(study="harts"), commands=("study status", "release fetch"),
        code="STUDY_UNKNOWN", exit_code=2, says=("no study",), hint="",
    ),
}  # fmt: skip


# ---- the desk: a federation's folders, copied for each test, and one miner that serves all of them


class Desk:
    """A study, two tables and the folders of miner, clinic, insurer and analyst; the miner's process is shared."""

    def __init__(self, root: Path, template: Path, *, port: int, other_port: int) -> None:
        self.root, self._template, self._port, self.other_port = root, template, port, other_port
        shutil.copytree(template, root, ignore=shutil.ignore_patterns("*.part"))  # the miner is writing
        self.clinic = root / "clinic"
        self._begin()

    def _begin(self) -> None:
        self.tables = {name: self.root / f"{name}.csv" for name in ("clinic", "insurer")}
        self.names = {"study": "hearts"}
        self.point_to(self._port)

    def file(self, name: str) -> Path:
        return self.root / name

    def mend(self) -> None:
        """Put everything back but what the nodes keep: their state is as the failed command left it."""
        for path in self._template.rglob("*"):
            target = self.root / path.relative_to(self._template)
            if path.is_file() and "state" not in path.relative_to(self._template).parts:
                shutil.copy(path, target)
        self._begin()

    def point_to(self, port: int, *, authority: str = "home") -> None:
        sha256 = (self.root / authority / "ca.sha256").read_text()
        for node in ("miner", "clinic", "analyst"):
            set_endpoint(self.root / node, "trial", f"127.0.0.1:{port}", ca_sha256=sha256)

    def certify(self, node: str, *, authority: str = "home", name: str = "", since: int = 0) -> None:
        """A new certificate for a node, from `authority`, of a day's validity that began `since` days ago."""
        pki, issued = self.root / node / "pki", name or node
        role = {"miner": Role.MINER, "analyst": Role.ANALYST}.get(node, Role.PARTY)
        shutil.rmtree(pki)
        at = dt.datetime.now(dt.UTC) - dt.timedelta(days=since)
        hosts = ("127.0.0.1",) if role is Role.MINER else ()
        issue(self.root / authority, issued, role, pki, hosts=hosts, days=1, at=at)
        for path in pki.iterdir():
            path.rename(pki / f"{node}{path.suffix}")

    def move(self, node: str, *, authority: str) -> None:
        """Make a node one of another federation of the same name."""
        self.certify(node, authority=authority)
        shutil.copy(self.root / authority / "ca.crt", self.root / node / "ca.crt")
        self.point_to(self._port, authority=authority)

    def credentials(self, node: str) -> Credentials:
        """As they are: a certificate that has expired is loaded, too."""
        pki = self.root / node / "pki"
        federation = load_federation(self.root / node / "federation.toml")
        at = dt.datetime.now(dt.UTC) - dt.timedelta(days=2.5)
        try:
            return load_credentials(pki / f"{node}.crt", pki / f"{node}.key", federation)
        except VerticilError:
            return load_credentials(pki / f"{node}.crt", pki / f"{node}.key", federation, at=at)

    def arguments(self, command: str) -> list[str]:
        study, party = str(self.root / "study.toml"), str(self.clinic / "party.toml")
        line = {
            node: ["--federation", f"{self.root}/{node}/federation.toml", "--certificate", f"{self.root}/{node}/pki/{node}.crt"]
            for node in ("clinic", "analyst")
        }  # fmt: skip
        data = [word for name, path in self.tables.items() for word in ("--data", f"{name}={path}")]
        rest = {
            "simulate": [study, *data, "--out", str(self.root / "out")],
            "study check": [study],
            "study submit": [study, *line["analyst"]],
            "study list": line["analyst"],
            "study status": [self.names["study"], *line["analyst"]],
            "party check": ["--config", party, "--study", study],
            "release fetch": [self.names["study"], "--out", str(self.root / "out"), *line["clinic"]],
            "miner run": ["--config", str(self.root / "miner" / "miner.toml")],
            "healthcheck": ["--config", str(self.root / "miner" / "miner.toml")],
        }
        return [*command.split(), *rest[command]]


def kept(folder: Path) -> dict[str, int]:
    """CRC of every file that a node keeps; SQLite's side files are part of the database beside them."""
    return {
        str(path.relative_to(folder)): zlib.crc32(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


@pytest.fixture(scope="module")
def other_port() -> Iterator[int]:
    """Something that listens and does not speak TLS."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def serve() -> None:
            while not stopped.is_set():
                with contextlib.suppress(OSError):
                    line, _ = server.accept()
                    with line:
                        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        line.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        stopped.set()
        thread.join()


@pytest.fixture(scope="module")
def template(
    make_module_nodes: Callable[..., Any], write_federation_tables: Callable[..., dict[str, Path]], study_text: str
) -> Any:
    """The folders under an ordinary authority, and the miner that serves them, with the study submitted."""
    nodes = make_module_nodes("desk", n=600)
    root = nodes.made.root
    write_federation_tables(root, 600, canary_id=CANARY_ID, canary_value=CANARY_VALUE)
    for old, new in {
        "= 1000": "= 100",
        "generations = 40": "generations = 5",
        "records = 2000": "records = 100",
    }.items():
        study_text = study_text.replace(old, new)
    (root / "study.toml").write_text(study_text)
    for name in ("home", "other"):
        begun = dt.datetime.now(dt.UTC) - dt.timedelta(days=10)
        (root / name / "ca.sha256").write_text(create_authority(root / name, "trial", at=begun))
    nodes.made = dataclasses.replace(nodes.made, ca_sha256=(root / "home" / "ca.sha256").read_text())
    for node in ("miner", "clinic", "insurer", "analyst"):
        shutil.rmtree(root / node / "pki")
        role = {"miner": Role.MINER, "analyst": Role.ANALYST}.get(node, Role.PARTY)
        issue(root / "home", node, role, root / node / "pki", hosts=("127.0.0.1",) if node == "miner" else ())
        shutil.copy(root / "home" / "ca.crt", root / node / "ca.crt")
        set_endpoint(root / node, "trial", "127.0.0.1:1", ca_sha256=nodes.made.ca_sha256)
        party = root / node / "party.toml"
        if party.exists():
            text = party.read_text().replace('approval = "auto"', 'approval = "manual"')
            party.write_text(text.replace(f"../../desk-tables/{node}.csv", f"../{node}.csv"))
    nodes.point_to(nodes.start_miner())
    config = root / "miner" / "miner.toml"
    config.write_text(config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{nodes.port}"))
    line = ["--federation", f"{root}/analyst/federation.toml", "--certificate", f"{root}/analyst/pki/analyst.crt"]
    assert main(["study", "submit", str(root / "study.toml"), *line, "--format", "json"]) == 0
    return nodes


@pytest.fixture
def desk(tmp_path: Path, template: Any, other_port: int) -> Desk:
    return Desk(tmp_path / "desk", template.made.root, port=template.port, other_port=other_port)


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Daemons set the process's logging up for themselves."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], (root.level, logging.getLogger("verticil").level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    logging.getLogger("verticil").setLevel(levels[1])
    logging.captureWarnings(capture=False)


AFTERWARDS = {"release fetch": "NOT_READY"}
"""What the mended command answers where that is not success: nobody has approved the study."""


def told(said: Any) -> dict[str, Any]:
    """The error in a command's answer; ``party check`` reports all that it finds."""
    error = said["error"] if "error" in said else next(iter(said.get("faults", ())), {"code": ""})
    return dict(error)


@pytest.mark.usefixtures("logging_as_it_was")
def without_clock(text: str) -> str:
    """The words of a text; the time of day may have moved on between two runs of a command."""
    return re.sub(r"T\d\d:\d\d:\d\dZ", "T..Z", " ".join(text.split()))


def listed(nodes: Any) -> list[Any]:
    """All studies at the miner, but for how long ago it heard from whom."""
    reply = nodes.control(lambda control: control.list_studies(control_pb2.ListStudiesRequest()))
    for study in reply.studies:
        for party in study.parties:
            party.ClearField("lease_age_seconds")
            party.ClearField("online")
            party.ClearField("seen")
    return list(reply.studies)


@pytest.mark.parametrize(("name", "command"), [(name, command) for name in CASES for command in CASES[name].commands])
def test_bad_input(name: str, command: str, desk: Desk, template: Any, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    if command not in DATA:
        studies = listed(template)
    case.spoil(desk)
    before = kept(desk.clinic / "state")
    arguments = desk.arguments(command)

    exit_code = main([*arguments, "--format", "json"])
    streams = capsys.readouterr()
    error = told(json.loads(streams.out))
    assert (error["code"], exit_code) == (case.code, case.exit_code), error
    assert CODES[case.code][1] == case.exit_code
    for words in case.says:
        assert words in error["message"]
    assert case.hint in error["hint"]
    assert error["hint"], error
    shown = streams.out + streams.err
    if command == case.commands[-1] != "simulate":  # for people: the same on the terminal
        assert main(arguments) == exit_code
        shown = "".join(capsys.readouterr())
        assert case.code in shown
        assert without_clock(error["message"]) in without_clock(shown)
    for secret in (CANARY_VALUE, CANARY_ID):
        assert secret not in streams.out + streams.err + shown

    assert kept(desk.clinic / "state") == before
    assert not (desk.root / "out").exists()
    if command not in DATA:
        assert listed(template) == studies
    desk.mend()
    if command == case.commands[-1]:
        mended = main([*desk.arguments(command), "--format", "json"])
        answer = told(json.loads(capsys.readouterr().out))
        assert answer["code"] == AFTERWARDS.get(command, ""), answer
        assert mended == (CODES[answer["code"]][1] if answer["code"] else 0)


VALUES: dict[str, tuple[Callable[[Desk], None], str, str, str]] = {
    "a row with too few fields": (
        append("clinic.csv", f"{CANARY_ID};no;40;{CANARY_VALUE};x\n"),
        "DATA_UNREADABLE", "clinic.csv: 1 rows have too many or too few fields and are left out, the first is row 591", "quote",
    ),
    "unseen category": (
        edit("clinic.csv", ",no,", f",{CANARY_VALUE},"),
        "DATA_CATEGORY_UNSEEN", "column 'smoker' 1", "declare the category or `other`",
    ),
    "outside the bins": (
        append("clinic.csv", f"{CANARY_ID}-2,no,130,north,{CANARY_VALUE}\n"),
        "DATA_VALUE_OUTSIDE", "of 590 rows, values outside the bins, put into the nearest one: column 'age' 1", "unit",
    ),
    "duplicate ids": (
        append("clinic.csv", f" {CANARY_ID} ,no,40,north,x\n"),  # once there already
        "DATA_ID_DUPLICATE", "column 'id': 2 of 590 rows are left out: each has the id of another", "one row for each",
    ),
    "an empty id": (
        append("clinic.csv", f" ,no,40,north,{CANARY_VALUE}\n"),
        "DATA_ID_MISSING", "clinic.csv: column 'id': 1 of 590 rows are left out", "linkage.normalise",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_what_is_in_the_rows_is_a_warning_with_a_count(
    name: str, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check ends well, for people and for programs, and says that a denial for such a reason tells others something."""
    spoil, code, message, hint = VALUES[name]
    spoil(desk)
    arguments = desk.arguments("party check")
    assert main([*arguments, "--format", "json"]) == 0
    text = capsys.readouterr().out
    said = json.loads(text)
    assert (said["ok"], said["faults"]) == (True, [])
    (warning,) = said["warnings"]
    assert warning["code"] == code
    assert message in warning["message"]
    assert hint in warning["hint"]
    assert "tell others something" in said["counts_tell"]
    assert main(arguments) == 0
    text += capsys.readouterr().out
    assert main([*arguments, "--no-counts"]) == 0
    uncounted = capsys.readouterr().out
    assert code not in uncounted
    for secret in (CANARY_VALUE, CANARY_ID):
        assert secret not in text + uncounted


def test_study_check_finds_an_expired_study(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    CASES["expired study"].spoil(desk)
    assert main([*desk.arguments("study check"), "--format", "json"]) == 6
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    (found,) = [finding for finding in said["findings"] if finding["severity"] == "error"]
    assert (found["code"], found["where"]) == ("expired", "expires")
    assert "2020-12-31" in found["message"]
    assert found["hint"]


# ---- certificates that a careful client would not show, and parties that are none, shown and named all the same


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stranger:
    """Whom the miner meets, what it is asked, and what it answers; all through gRPC with mutual TLS."""

    prepare: Callable[[Desk], object]
    ask: Callable[[Connection, bytes], Any]
    code: str
    says: tuple[str, ...]


def alignment(line: Connection, digest: bytes) -> Any:
    async def first() -> None:
        async for _ in GrpcCoordinator(line).get_alignment(coordinator_pb2.GetAlignmentRequest(study_digest=digest)):
            return

    return first()


def pseudonyms(line: Connection, digest: bytes) -> Any:
    head = coordinator_pb2.PutPseudonymsRequest(study_digest=digest, size=16 * 500, sha256=bytes(32))
    return GrpcCoordinator(line).put_pseudonyms([head])


def poll(line: Connection, digest: bytes) -> Any:
    del digest
    return GrpcCoordinator(line).poll(coordinator_pb2.PollRequest())


def failure(line: Connection, digest: bytes) -> Any:
    told = common_pb2.ErrorDetail(code="DATA_EMPTY", message="so that the study fails")
    return GrpcCoordinator(line).report(coordinator_pb2.ReportRequest(study_digest=digest, failure=told))


STRANGERS: dict[str, Stranger] = {
    "expired certificate": Stranger(
        prepare=lambda desk: desk.certify("clinic", since=3), ask=poll,
        code="TLS_REFUSED", says=("our certificate clinic.crt expired at",),
    ),
    "wrong CA": Stranger(
        prepare=lambda desk: desk.move("clinic", authority="other"), ask=poll,
        code="TLS_REFUSED", says=("does not accept our certificate (verticil://trial/party/clinic",),
    ),
    "unknown party: asks for the alignment": Stranger(
        prepare=lambda desk: desk.certify("clinic", name="pharmacy"), ask=alignment,
        code="PARTY_UNKNOWN", says=("study 'hearts': party 'pharmacy' is not in it",),
    ),
    "unknown party: sends pseudonyms": Stranger(
        prepare=lambda desk: desk.certify("clinic", name="pharmacy"), ask=pseudonyms,
        code="PARTY_UNKNOWN", says=("study 'hearts': party 'pharmacy' is not in it",),
    ),
    "unknown party: ends the study": Stranger(
        prepare=lambda desk: desk.certify("clinic", name="pharmacy"), ask=failure,
        code="PARTY_UNKNOWN", says=("study 'hearts': party 'pharmacy' is not in it",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGERS)
def test_who_is_not_let_in(name: str, desk: Desk, template: Any) -> None:
    case = STRANGERS[name]
    study = listed(template)[0]
    genuine = desk.credentials("clinic")
    case.prepare(desk)
    shown = dataclasses.replace(desk.credentials("clinic"), ca_pem=genuine.ca_pem)  # it trusts the miner in any case

    async def met(credentials: Credentials, ask: Callable[[Connection, bytes], Any]) -> VerticilError | None:
        line = Connection(f"127.0.0.1:{template.port}", credentials)
        try:
            await ask(line, study.study_digest)
        except VerticilError as error:
            return error
        finally:
            await line.close()
        return None

    error = asyncio.run(met(shown, case.ask))
    assert error is not None
    assert (error.code, error.exit_code) == (case.code, 5)
    assert error.hint
    for words in case.says:
        assert words in error.message
    after = listed(template)[0]
    assert after == study
    assert asyncio.run(met(genuine, poll)) is None


# ---- one real study that meets every fault of an upload, and is published all the same


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done to the chunks of a stream, or another call in its place, and what the miner answers."""

    spoil: Callable[[list[common_pb2.Chunk]], list[common_pb2.Chunk]]
    code: str
    says: str


def changed(**fields: Any) -> Callable[[list[common_pb2.Chunk]], list[common_pb2.Chunk]]:
    """The first chunk with other fields; a callable gets the old value."""

    def change(chunks: list[common_pb2.Chunk]) -> list[common_pb2.Chunk]:
        first = common_pb2.Chunk.FromString(chunks[0].SerializeToString())
        for field, value in fields.items():
            setattr(first, field, value(getattr(first, field)) if callable(value) else value)
        return [first, *chunks[1:]]

    return change


FAULTS: dict[str, Fault] = {
    "a flipped bit": Fault(
        spoil=changed(data=lambda data: data[:-1] + bytes([data[-1] ^ 1]), encoding=0),
        code="CHUNK_CORRUPT", says="chunk at offset 0: CRC-32 is",
    ),
    "a truncated chunk": Fault(
        spoil=changed(data=lambda data: data[:-1], encoding=0), code="CHUNK_CORRUPT", says="CRC-32 is",
    ),
    "a truncated zlib stream": Fault(
        spoil=changed(data=lambda data: zlib.compress(data)[:-3], encoding=1), code="CHUNK_CORRUPT", says="is cut off",
    ),
    "no zlib stream": Fault(
        spoil=changed(data=b"nonsense", encoding=1), code="CHUNK_CORRUPT", says="not a zlib stream",
    ),
    "an empty chunk": Fault(
        spoil=changed(data=b"", crc32=0, encoding=0), code="CHUNK_CORRUPT", says="got no bytes, expected 1 to 524288",
    ),
    "a chunk past the end": Fault(
        spoil=changed(data=bytes(5000), crc32=zlib.crc32(bytes(5000)), encoding=0),
        code="CHUNK_CORRUPT", says="ends at 5000, expected at most",
    ),
    "a gap": Fault(
        spoil=changed(offset=7), code="OFFSET_MISMATCH", says="got a chunk at offset 7, expected 0",
    ),
    "an unknown upload": Fault(
        spoil=changed(upload_id="f" * 32), code="OFFSET_MISMATCH", says="no such upload",
    ),
}  # fmt: skip


@dataclasses.dataclass
class Record:
    """What was answered while the study was disturbed."""

    refused: dict[str, VerticilError] = dataclasses.field(default_factory=dict)
    offsets: dict[str, int] = dataclasses.field(default_factory=dict)
    waited: list[str] = dataclasses.field(default_factory=list)
    published: bool = False
    status: Any = None
    disks: bool = False


class Meddler:
    """Stands between the clinic and the wire: tries every fault on the clinic's first upload, and fills disks."""

    def __init__(self, inner: GrpcCoordinator, record: Record, rival: GrpcCoordinator, disks: dict[str, Any]) -> None:
        self._inner, self._record, self._rival, self._disks = inner, record, rival, disks
        self._begun = coordinator_pb2.BeginUploadRequest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def _refused(self, name: str, call: Any) -> None:
        try:
            await call
        except VerticilError as error:
            self._record.refused[name] = error

    async def report(self, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """The party's disk is full when it first wants to keep what it randomized."""
        if request.progress.stage == "randomizing" and "party" in self._disks:
            if "party" not in self._record.waited:
                self._record.waited.append("party")
                self._disks["party"].fill()
            else:
                self._disks["party"].free()
        return await self._inner.report(request)

    async def begin_upload(self, request: coordinator_pb2.BeginUploadRequest) -> coordinator_pb2.BeginUploadReply:
        self._begun = request
        return await self._inner.begin_upload(request)

    async def put_chunks(self, chunks: Iterable[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        whole = list(chunks)
        if not self._record.refused:
            await self._try_everything(whole)
        elif "miner" in self._disks and "miner" not in self._record.waited:
            self._record.waited.append("miner")
            self._disks["miner"].fill()
            try:
                return await self._inner.put_chunks(whole)  # the party itself meets this one, and tries again
            finally:
                self._disks["miner"].free()
        return await self._inner.put_chunks(whole)

    async def _try_everything(self, whole: list[common_pb2.Chunk]) -> None:
        for name, fault in FAULTS.items():
            await self._refused(name, self._inner.put_chunks(fault.spoil(whole)))
            self._record.offsets[name] = (await self._inner.begin_upload(self._begun)).committed_offset
        finish = coordinator_pb2.FinishUploadRequest(upload_id=whole[0].upload_id)
        await self._refused("a truncated artifact", self._inner.finish_upload(finish))
        await self._refused("another's unit", self._rival.begin_upload(self._begun))
        await self._refused("another's upload", self._rival.put_chunks(whole))
        await self._refused("another's receipt", self._rival.finish_upload(finish))
        if "miner" in self._disks:
            self._disks["miner"].fill()
            await self._refused("the miner's disk is full", self._inner.put_chunks(whole))
            self._disks["miner"].free()
            self._record.offsets["the miner's disk is full"] = (
                await self._inner.begin_upload(self._begun)
            ).committed_offset


async def disturb(nodes: Any, record: Record, disks: dict[str, Any]) -> None:
    """Serve the clinic in this process, disturbed, until the study has ended."""
    config = load_party(nodes.made.parties["clinic"] / "party.toml")
    lines = {}
    for name, folder in {**nodes.made.parties, "analyst": nodes.made.analyst}.items():
        federation, pki = load_federation(folder / "federation.toml"), folder / "pki"
        lines[name] = load_credentials(pki / f"{name}.crt", pki / f"{name}.key", federation)
    control = GrpcControl(Connection(f"127.0.0.1:{nodes.port}", lines["analyst"]))
    rival = GrpcCoordinator(Connection(f"127.0.0.1:{nodes.port}", lines["insurer"]))
    stop = asyncio.Event()
    party = asyncio.create_task(
        run_party(config, lambda: Meddler(dial(config, lines["clinic"]), record, rival, disks), stop=stop)  # type: ignore[arg-type,return-value]
    )
    version = 0
    study = (await control.list_studies(control_pb2.ListStudiesRequest())).studies[0]
    while study.state < common_pb2.STUDY_STATE_PUBLISHED and not party.done():
        request = control_pb2.GetStudyRequest(study_digest=study.study_digest, known_version=version, wait_seconds=5)
        study = (await control.get_study(request)).study
        version = study.version
    stop.set()
    await party
    record.published = study.state == common_pb2.STUDY_STATE_PUBLISHED
    await control.close()
    await rival.close()


@pytest.fixture(scope="module")
def disturbed(make_module_nodes: Callable[..., Any], mounted: Callable[[Path], Any]) -> Iterator[Record]:
    """One study over gRPC: the miner and the insurer as processes, the clinic here; where one may mount, on small disks."""
    nodes, record, disks = make_module_nodes("disturbed", n=2500), Record(), {}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(pytest.fail.Exception):
            disks["miner"] = stack.enter_context(mounted(nodes.made.miner / "state"))
            disks["party"] = stack.enter_context(mounted(nodes.made.parties["clinic"] / "state" / "spool"))
        record.disks = bool(disks)
        config = nodes.made.miner / "miner.toml"
        config.write_text(config.read_text().replace("disk_reserve_bytes = 16777216", "disk_reserve_bytes = 0"))
        nodes.point_to(nodes.start_miner())
        nodes.submit()
        nodes.start_party("insurer")
        asyncio.run(disturb(nodes, record, disks))
        nodes.stop()
        from verticil.party.operator.commands import status

        record.status = status(load_party(nodes.made.parties["clinic"] / "party.toml"))
        yield record


@pytest.mark.whole
@pytest.mark.parametrize("name", FAULTS)
def test_a_spoilt_chunk(name: str, disturbed: Record) -> None:
    error = disturbed.refused[name]
    assert (error.code, error.exit_code) == (FAULTS[name].code, 5)
    assert FAULTS[name].says in error.message
    assert error.hint
    assert disturbed.offsets[name] == 0  # nothing of it was stored


OTHERS = {
    "a truncated artifact": ("OFFSET_MISMATCH", "data for offset"),
    "another's unit": ("NOT_OWNER", "unit 0 (smoker): belongs to another party than 'insurer'"),
    "another's upload": ("NOT_OWNER", "belongs to another party than 'insurer'"),
    "another's receipt": ("NOT_OWNER", "belongs to another party than 'insurer'"),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", OTHERS)
def test_an_upload_that_is_not_one(name: str, disturbed: Record) -> None:
    code, words = OTHERS[name]
    error = disturbed.refused[name]
    assert (error.code, error.exit_code) == (code, 5)
    assert words in error.message
    assert error.hint


@pytest.mark.whole
@pytest.mark.machine
def test_a_full_disk_at_the_miner(disturbed: Record) -> None:
    assert disturbed.disks, "a disk of its own needs the right to mount"
    error = disturbed.refused["the miner's disk is full"]
    assert (error.code, error.exit_code) == ("DISK_FULL", 1)
    assert "no space left on the miner's disk" in error.message
    assert "make room" in error.hint
    assert disturbed.offsets["the miner's disk is full"] == 0
    assert disturbed.waited == ["party", "miner"]  # both were met by the daemon, which waited


@pytest.mark.whole
def test_the_study_is_published_all_the_same(disturbed: Record) -> None:
    assert disturbed.published
    (ledger,) = disturbed.status.ledger
    assert ledger.epsilon_spent == pytest.approx(9)  # three columns, each charged once
