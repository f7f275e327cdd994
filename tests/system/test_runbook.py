"""The runbook's commands do what it says (feature 40): each block is executed in a fresh folder, and every incident has one.

A block of ``<!-- run -->`` is executed in order with the others of its kind. One of ``<!-- run: SITUATION, SITUATION -->`` is
executed for itself, once in each situation: in a federation that has joined as the runbook says and in which that has happened.
A line that ends with ``&`` starts a daemon, a comment ``# exit N: CODE`` says how a command ends, and ``# until WORD`` that a
status is asked for until it is so.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.cli.main import main
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.schema import CATALOGUE
from verticil.party.config import load_party
from verticil.party.operator.commands import approve
from verticil.party.protocol.with_miner.countersigning import folder_of
from verticil.party.site import Site
from verticil.party.storage.studies import Task
from verticil.shared.core.errors import Refusal
from verticil.shared.federation.identity.authority import certify, chain_pem, issue, open_authority
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import identity_of, read_certificates, utc_now
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State

DOCS = Path(__file__).resolve().parents[2] / "deploy" / "docs"
RUNBOOK = (DOCS / "operator" / "runbook.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- run(?:: ([^\n]*))? -->\n```sh\n(.*?)```", re.DOTALL)
ENDS = re.compile(r"  # exit (\d): ([A-Z_]+)$")
UNTIL = re.compile(r"  # until ([A-Za-z_]+)$")
INCIDENTS = RUNBOOK[RUNBOOK.index("## Incident") :]
NAMED = [
    (heading, situation, block)
    for heading, situations, block in re.findall(
        r"^### ([^\n]*)\n\n(?:(?![#<])[^\n]*\n)+<!-- run: ([^\n]*) -->\n```sh\n(.*?)```",
        INCIDENTS,
        re.DOTALL | re.MULTILINE,
    )
    for situation in situations.split(", ")
]
"""Heading, situation and block of each incident: between heading and block stands what happens, and what to do."""
LONG = {
    "A certificate has expired",
    "A node was revoked by mistake",
    "CATALOGUE_OLDER at the miner",
}
"""Daemons are started for them."""
STUDY = """schema = 1
id = "hearts"
title = "Smoking"
purpose = "test"
model = "central"
expires = 2099-12-31
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[linkage]
minimum_common_records = 2
[[variable]]
name = "smoker"
party = "clinic"
categories = ["no", "yes"]
[[variable]]
name = "claims"
party = "insurer"
categories = ["0", "1"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "tree"
"""


def in_order() -> list[str]:
    return [line for situation, block in BLOCK.findall(RUNBOOK) if not situation for line in block.splitlines()]


class Operator:
    """Types the runbook's lines in one folder. Daemons that a line started end with the block."""

    def __init__(self, capsys: pytest.CaptureFixture[str], port: int = 8443) -> None:
        self.capsys, self.port = capsys, port
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.told = ""

    def type(self, line: str) -> None:
        words = shlex.split(line.removesuffix("&").replace("8443", str(self.port)), comments=True)
        if "FINGERPRINT" in words:  # read over the telephone
            document = Path(words[words.index("--federation") + 1]).read_text()
            found = re.search(r'^ca_sha256 = "(.*)"', document, re.MULTILINE)
            assert found is not None
            words[words.index("FINGERPRINT")] = found[1]
        ends = ENDS.search(line)
        expected, code = (int(ends[1]), ends[2]) if ends else (0, "")
        if line.endswith("&"):
            self.start(words[1:])
        elif until := UNTIL.search(line):
            self.wait(words[-1], until[1])
        elif words[0] != "verticil":
            assert words[0] == "cp"
            subprocess.run(words, check=True)
        elif words[2] == "run":
            done = subprocess.run(
                _command(words[1:]), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
            )
            assert (done.returncode, code in done.stdout) == (expected, True), f"{line}: {done.stdout}{done.stderr}"
        else:
            self.capsys.readouterr()
            got = main(words[1:])
            told = self.capsys.readouterr()
            self.told = told.out + told.err
            assert (got, code in self.told) == (expected, True), f"{line}: {self.told}"

    def start(self, words: list[str]) -> None:
        child = subprocess.Popen(
            [*_command(words), "--with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.daemons.append(child)
        assert child.stdout is not None
        if words[0] == "miner":
            assert child.stdout.readline()
            return
        self.wait(words[-1], "running")

    def wait(self, config: str, wanted: str) -> None:
        """Until the daemon is `wanted`, or has that code for a problem."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := self.status(config)).get(wanted) and found["problem"] != wanted:
            assert self.daemons[-1].poll() is None
            assert time.monotonic() < end, found

    def status(self, config: str) -> dict[str, object]:
        self.capsys.readouterr()
        assert main(["party", "status", "--config", config, "--format", "json"]) == 0
        daemon: dict[str, object] = json.loads(self.capsys.readouterr().out)["daemon"]
        return daemon

    def stop(self) -> None:
        for child in self.daemons:
            child.terminate()
        for child in self.daemons:
            child.communicate(timeout=PATIENCE_SECONDS)


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "verticil.cli", *words, "--format", "json"]


def lay_out(folder: Path) -> None:
    (folder / "clinic.csv").write_text("id,smoker\n1,no\n2,yes\n3,no\n")
    (folder / "passphrase").write_text("a line of words nobody has said\n")
    (folder / "study.toml").write_text(STUDY)


# ---- what has happened


def expired() -> None:
    issuer = open_authority(Path("ca"))
    path = Path("clinic/pki/clinic.crt")
    tls, signing = (certificate.public_key() for certificate in read_certificates(path))
    old = utc_now() - dt.timedelta(days=2)
    path.write_bytes(chain_pem(certify(issuer, identity_of(read_certificates(path)[0]), tls, signing, days=1, at=old)))  # type: ignore[arg-type]


def lost_keys() -> None:
    for suffix in ("key", "sign"):
        Path(f"clinic/pki/clinic.{suffix}").unlink()


def lost_machine() -> None:
    words = ("--out", "clinic.backup", "--passphrase-file", "passphrase", "--config", "clinic/party.toml")
    assert main(["party", "backup", *words]) == 0
    shutil.rmtree("clinic")


def lost_database() -> None:
    words = ("--out", "clinic.backup", "--passphrase-file", "passphrase", "--config", "clinic/party.toml")
    assert main(["party", "backup", *words]) == 0
    approved()  # what the backup does not know
    for path in Path("clinic/state").glob("party.sqlite*"):
        path.unlink()


def lost_catalogue() -> None:
    state = Path("miner/state")
    state.mkdir(exist_ok=True)
    proposal = to_bytes(read_study(Path("study.toml")))
    digest = hashlib.sha256(proposal).digest()
    catalogue = Catalogue(state / CATALOGUE)
    catalogue.add_study(digest, study_id="hearts", proposal=proposal, submitter="lee", at="2026-11-22T00:00:00Z")
    catalogue.close()
    (state / "studies" / digest.hex()).mkdir(parents=True)
    shutil.copytree(state, "miner-state.backup")
    (state / CATALOGUE).unlink()


def heard(state: State = State.AWAITING_APPROVAL, failure: Refusal | None = None) -> None:
    """The miner told of the study, as the daemon writes it down."""
    proposal = to_bytes(read_study(Path("study.toml")))
    config = Path("clinic/party.toml")
    config.write_text(config.read_text().replace("minimum_common_records = 1000", "minimum_common_records = 2"))
    task = Task(
        digest=hashlib.sha256(proposal).digest(), version=1, state=int(state), proposal=proposal, effective=b"",
        effective_digest=b"", approved=False, pseudonyms_complete=False, alignment_confirmed=False, units_received=(),
        failure="" if failure is None else failure.code,
    )  # fmt: skip
    with Site.open(load_party(config)) as site:
        site.state.remember(task, "hearts", utc_now())
        if failure is not None:
            site.state.fail(task.digest, failure, utc_now())


def approved() -> None:
    heard()
    assert approve(load_party(Path("clinic/party.toml")), "hearts", "officer").approved


def one_open_study() -> None:
    config = Path("miner/miner.toml")
    config.write_text(re.sub(r"(max_open_studies_per_analyst =) \d+", r"\1 1", config.read_text()))
    Path("another.toml").write_text(STUDY.replace('"hearts"', '"another"'))


def altered_release() -> None:
    """One that the daemon has fetched for review, and whose manifest is none."""
    Path("study.toml").write_text(STUDY + '[publish]\ncountersign = "all"\n')
    heard(State.REVIEW)
    with Site.open(load_party(Path("clinic/party.toml"))) as site:
        record = site.state.find("hearts")
        site.decisions.ask_for_review(record.digest, b"m" * 32)
        site.decisions.mark_fetched(record.digest, here=True)
        folder = folder_of(site, record.digest)
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")


def altered_log() -> None:
    log = Path("clinic/state/audit.jsonl")
    approved()
    log.write_bytes(log.read_bytes().replace(b'"officer"', b'"someone"', 1))


SITUATIONS: dict[str, Callable[[], None]] = {
    "joined": lambda: None,
    "an expired certificate": expired,
    "lost keys": lost_keys,
    "a lost machine": lost_machine,
    "a lost database": lost_database,
    "a lost catalogue": lost_catalogue,
    "an open study": heard,
    "an approved study": approved,
    "an altered audit log": altered_log,
    "a study without this site": lambda: heard(State.FAILED, Refusal("PARTY_LEFT_OUT", "study 'hearts': it went on")),
    "an analyst with one open study at most": one_open_study,
    "a study beyond the lifetime limit": lambda: heard(
        State.FAILED, Refusal("BUDGET_EXCEEDED", "data set 'people': epsilon 2 is kept for studies under way")
    ),
    "an altered release": altered_release,
    "no place for a set": lambda: heard(State.FAILED, Refusal("COMMON_SETS_FULL", "64 of 64 places are taken")),
    "a sub-model that the policy refuses": lambda: heard(State.FAILED, Refusal("POLICY_REFUSED", "minimum_parties")),
    "one person fewer": lambda: Path("clinic.csv").write_text("id,smoker\n1,no\n2,yes\n") and None,
}


# ---- tests


def test_every_block_is_executed() -> None:
    assert len(re.findall(r"^```\w+$", RUNBOOK, re.MULTILINE)) == len(BLOCK.findall(RUNBOOK))
    assert all(line.startswith("verticil ") for line in in_order())
    assert {name for situations, _ in BLOCK.findall(RUNBOOK) for name in situations.split(", ")} == {"", *SITUATIONS}


def test_every_incident_has_words_and_a_block() -> None:
    headings = re.findall(r"^### (.*)$", INCIDENTS, re.MULTILINE)
    assert len(headings) > 15
    assert headings == list(dict.fromkeys(name for name, _, _ in NAMED))
    assert len(headings) == len(re.findall("<!-- run: ", RUNBOOK))
    assert {name for name, _, _ in NAMED} > LONG


def test_feature_40_the_runbook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    operator = Operator(capsys)
    for line in in_order():
        operator.type(line)
    assert (tmp_path / "clinic-restored" / "state" / "site.secret").read_bytes() == (
        tmp_path / "clinic" / "state" / "site.secret"
    ).read_bytes()
    assert "revoked" in operator.told


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all has been done that "Join" says, and there is an analyst. Port 8443 stands for the miner's."""
    return tmp_path_factory.mktemp("joined")


@pytest.fixture
def operator(
    joined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    made = Operator(capsys, free_port())
    if not (joined / "lee").exists():
        monkeypatch.chdir(joined)
        lay_out(joined)
        first = Operator(capsys)
        for line in "".join(BLOCK.findall(RUNBOOK[: RUNBOOK.index("## Every day")])[n][1] for n in (0, 1)).splitlines():
            first.type(line)
        issue(joined / "ca", "lee", Role.ANALYST, joined / "lee")
    shutil.copytree(joined, tmp_path / "here")
    for path in (tmp_path / "here").rglob("*.toml"):
        path.write_text(path.read_text().replace("8443", str(made.port)))
    monkeypatch.chdir(tmp_path / "here")
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("situation", "block"),
    [
        pytest.param(situation, block, id=f"{name}: {situation}", marks=pytest.mark.whole if name in LONG else ())
        for name, situation, block in NAMED
    ],
)
def test_what_the_runbook_says_of_an_incident_is_typed(operator: Operator, situation: str, block: str) -> None:
    SITUATIONS[situation]()
    keys = {path.read_bytes() for path in Path().rglob("clinic*") if path.suffix in {".key", ".sign", ".seal"}}
    for line in block.splitlines():
        operator.type(line)
    after = {path.read_bytes() for path in Path().rglob("clinic*") if path.suffix in {".key", ".sign", ".seal"}}
    assert keys <= after, "no command of an incident deletes a key"


def test_the_commands_that_are_only_named_exist() -> None:
    """What stands in backquotes and is not executed, because it needs a running node or a person."""
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    named = {tuple(found.split()[1:3]) for found in re.findall(r"`(verticil [a-z][^`]*)`", text)}
    assert len(named) > 8
    for words in sorted(named):
        known = words if words[0] in {"party", "miner", "pki", "study", "release", "linkage"} else words[:1]
        assert main([*known, "--help"]) == 0, known
