"""Every command runs, on one small real federation: made by the commands themselves, with real files, keys and daemons.

`LINES` is typed from above to below in one folder. A line ends with 0 unless a comment ``# exit N: CODE`` says otherwise, and
never with INTERNAL. A line that ends with ``&`` starts a process, which ends with 0 when it is told to stop. The first test fails
for a command without a line, so none is forgotten.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.cli import service_unit
from verticil.cli.main import app, main
from verticil.shared.federation.identity.key_words import key_words

STUDY: Final = """schema = 1
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
minimum_common_records = 1000
[[variable]]
name = "smoker"
party = "clinic"
categories = ["no", "yes"]
[[variable]]
name = "age"
party = "clinic"
categories = ["young", "old"]
[[variable]]
name = "claims"
party = "insurer"
categories = ["0", "1"]
[randomization_default]
scheme = "symmetric"
epsilon = 1.0
[structure]
method = "tree"
[release]
synthetic_records = 200
seed = 7
[[knowledge.rule]]
kind = "soft"
if = { smoker = "yes" }
then = { claims = "1" }
probability = 0.8
"""

LINES: Final = """
example people
example people  # exit 2: FILE_EXISTS
docs runbook --no-browser
docs no-such-page  # exit 2: USAGE
man manual/man1
man manual/man1/verticil.1  # exit 2: FILE_MISSING
pki init --federation hearts --endpoint localhost:PORT --out ca
pki request miner --role miner --host localhost --dir miner/pki --federation ca/federation.toml
pki sign miner/pki/miner.req --ca ca --role miner --yes --out miner.signed
pki install miner.signed --dir miner/pki --federation ca/federation.toml --fingerprint FINGERPRINT
pki issue clinic --role party --ca ca --out clinic/pki
pki issue insurer --role party --ca ca --out insurer/pki
pki issue lee --role analyst --ca ca --out lee
pki seal clinic/pki/clinic.crt
pki seal miner/pki/miner.crt
pin the sealing keys
miner init --dir miner --federation ca/federation.toml --listen localhost:PORT
miner install-service --print --config miner/miner.toml
party init --name clinic --dir clinic --federation ca/federation.toml --table clinic.csv
party init --name insurer --dir insurer --federation ca/federation.toml --table insurer.csv
linkage new-key clinic/secrets/linkage.key
linkage check clinic/secrets/linkage.key
share the linkage key
party approver keygen --key lena.key
party approver add lena --key lena.key --config clinic/party.toml
party approver add omar --config clinic/party.toml
party approver remove omar --config clinic/party.toml
party approver list --config clinic/party.toml
party approver add noor --config insurer/party.toml
party keys --config clinic/party.toml
party confirm-key miner WORDS --config clinic/party.toml
party limits --publish clinic-limits.json --config clinic/party.toml
party install-service --print --config clinic/party.toml
party check --config clinic/party.toml
doctor clinic/party.toml  # exit 5: refused
pki renew clinic/pki/clinic.crt
study draft clinic=clinic.csv insurer=insurer.csv --out drafted.toml
study check study.toml --limits clinic-limits.json --federation ca/federation.toml
knowledge check study.toml
knowledge show study.toml
knowledge ask study.toml smoker=no claims=0
open a key to all
party run --config clinic/party.toml  # exit 2: CONFIG_INVALID
miner run --config miner/miner.toml  # exit 2: CONFIG_INVALID
close the key again
miner run --config miner/miner.toml --with-parent &
party run --config clinic/party.toml --with-parent &
party run --config insurer/party.toml --with-parent &
healthcheck --config miner/miner.toml
study submit study.toml --federation ca/federation.toml --certificate lee/lee.crt
study run study.toml --on miner --out run --federation ca/federation.toml --certificate lee/lee.crt  # exit 2: USAGE
study list --federation ca/federation.toml --certificate lee/lee.crt
wait until both are asked
party inbox --config clinic/party.toml
party show hearts --config clinic/party.toml
party preview hearts --out preview --config clinic/party.toml
party approve hearts --as lena --key lena.key --config clinic/party.toml
party approve hearts --as noor --config insurer/party.toml
wait for the review
party countersign hearts --as lena --key lena.key --config clinic/party.toml
party countersign hearts --as noor --config insurer/party.toml
wait for the release
study status hearts --federation ca/federation.toml --certificate lee/lee.crt
release fetch hearts --out hearts --federation ca/federation.toml --certificate lee/lee.crt
release verify hearts --ca ca/ca.crt
release sample hearts -n 50 --out more.csv
release query hearts smoker --given claims=1
release tabulate hearts smoker
release regress hearts "claims == '1' ~ smoker"  # exit 2: USAGE
party status --config clinic/party.toml
party ledger --config clinic/party.toml
party audit show --config clinic/party.toml
party audit verify --config clinic/party.toml
party deny hearts --reason "too late" --as lena --config clinic/party.toml  # exit 4: STUDY_WITHDRAWN
party revoke hearts --reason "asked for it" --as lena --config clinic/party.toml
party release hearts --out here --config clinic/party.toml  # exit 5: NOT_READY
party load study.toml --config clinic/party.toml  # exit 2: STUDY_UNSUPPORTED
party evaluate hearts --only distances --out held --config clinic/party.toml
party ui --listen 127.0.0.1:0 --config clinic/party.toml &
study ui study.toml --listen 127.0.0.1:0 &
study submit another.toml --federation ca/federation.toml --certificate lee/lee.crt
study cancel another --federation ca/federation.toml --certificate lee/lee.crt
miner ui --config miner/miner.toml  # exit 5: NOT_READY
miner close hearts --reason "not agreed with us" --config miner/miner.toml  # exit 2: STUDY_OVER
miner export clinic --release hearts --out to-clinic.carried --config miner/miner.toml
stop all
party import to-clinic.carried --releases carried --config clinic/party.toml
party export --out from-clinic.carried --config clinic/party.toml
miner import from-clinic.carried --config miner/miner.toml
miner export clinic --out again.carried --plain --config miner/miner.toml
miner purge --dry-run --config miner/miner.toml
miner audit show --config miner/miner.toml
miner audit verify --config miner/miner.toml
party purge --older-than 90 --dry-run --config clinic/party.toml
party backup --out clinic.backup --passphrase-file passphrase --config clinic/party.toml
party restore clinic.backup --dir clinic-restored --passphrase-file passphrase
pki list --ca ca
pki revoke clinic --ca ca --yes
"""

SLOW: Final = """
simulate study.toml --data clinic=clinic.csv --data insurer=insurer.csv --out simulated --seed 1
synthesize both.csv --study alone.toml --epsilon 1 --out alone
table clinic.csv
evaluate --real both.csv --synthetic simulated/release/synthetic.csv --only distances --out held-alone
attack epsilon --mechanism symmetric-2 --draws 1000 --seed 1
demo --rows 500 --seed 1 --out trial
reproduce ma-sivakumar --table 2 --runs 2
"""

ENDS: Final = re.compile(r"  # exit (\d): (\w+)$")


def leaves(command: Any, path: str = "") -> Iterator[str]:
    """Yield the name of each command below one."""
    if not hasattr(command, "commands"):
        yield path
        return
    for name, below in command.commands.items():
        yield from leaves(below, f"{path} {name}".strip())


COMMANDS: Final = sorted(leaves(typer.main.get_command(app)))


def command_of(line: str) -> str:
    """Return the command that a line runs, empty where a sentence stands in its place."""
    return next((name for name in COMMANDS if f"{line} ".startswith(f"{name} ")), "")


class Federation:
    """The one folder in which all lines are typed, and the processes that they start."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.port = folder, capsys, free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.wrong: list[str] = []
        people = range(1200)
        clinic = [f"p{n},{('no', 'yes')[n % 3 == 0]},{('young', 'old')[n % 5 == 0]}" for n in people]
        tables = {
            "clinic": ["id,smoker,age", *clinic],
            "insurer": ["id,claims", *(f"p{n},{n % 2}" for n in people)],
            "both": ["id,smoker,age,claims", *(f"{line},{n % 2}" for n, line in enumerate(clinic))],
        }
        for name, lines in tables.items():
            (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        (folder / "study.toml").write_text(STUDY + '[publish]\ncountersign = "all"\n')
        (folder / "another.toml").write_text(STUDY.replace('"hearts"', '"another"'))
        (folder / "alone.toml").write_text(STUDY)
        (folder / "passphrase").write_text("a line of words nobody has said\n")

    def type(self, line: str) -> None:
        """Carry out one line, and hold its end against what stands behind it."""
        if not command_of(line):
            self.sentences[line](self)
            return
        ends = ENDS.search(line)
        expected, code = (int(ends[1]), ends[2]) if ends else (0, "")
        words = shlex.split(line.removesuffix("&").replace("PORT", str(self.port)), comments=True)
        if "FINGERPRINT" in words:
            words[words.index("FINGERPRINT")] = self.document()["ca_sha256"]
        if "WORDS" in words:
            words[words.index("WORDS")] = key_words("miner", bytes.fromhex(self.keys["miner"]))
        if line.endswith("&"):
            self.processes[line] = subprocess.Popen(
                [sys.executable, "-m", "verticil.cli", *words, "--format", "json"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            if command_of(line) == "party run":
                self.wait('"connected": true', Path(words[3]).parent.name)
            else:
                assert self.processes[line].stdout.readline(), line
            return
        ended, written = self.run(*words)
        if (ended, code in written, "INTERNAL" in written) != (expected, True, False):
            self.wrong.append(f"{line}: exit {ended}: {written}")

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command in this process; its exit code and all that it wrote."""
        self.capsys.readouterr()
        ended = main(words)
        streams = self.capsys.readouterr()
        return ended, streams.out + streams.err

    def document(self) -> dict[str, str]:
        return dict(re.findall(r'^(\w+) = "(.*)"', (self.folder / "ca/federation.toml").read_text(), re.MULTILINE))

    def pin(self) -> None:
        """Pin the sealing keys as the page of the air gap says."""
        self.keys = {}
        for name in ("clinic", "miner"):
            ended, written = self.run("pki", "seal", f"{name}/pki/{name}.crt", "--format", "json")
            assert ended == 0
            self.keys[name] = json.loads(written)["sealing_key"]
        path = self.folder / "ca/federation.toml"
        text = path.read_text().replace("[miner]", f'[miner]\nsealing_key = "{self.keys["miner"]}"', 1)
        path.write_text(text + f'\n[sealing]\nclinic = "{self.keys["clinic"]}"\n')

    def share(self) -> None:
        key = self.folder / "insurer/secrets/linkage.key"
        key.parent.mkdir(exist_ok=True)
        key.write_bytes((self.folder / "clinic/secrets/linkage.key").read_bytes())
        key.chmod(0o600)

    def protect(self, mode: int) -> None:
        for name in ("clinic/pki/clinic.key", "miner/pki/miner.sign"):
            (self.folder / name).chmod(mode)

    def wait(self, wanted: str, *parties: str, command: str = "status") -> None:
        """Ask both parties, or these, until what is `wanted` stands in what the command says."""
        assert not self.wrong, "".join(self.wrong)
        end = time.monotonic() + PATIENCE_SECONDS
        for party in parties or ("clinic", "insurer"):
            while True:
                written = self.run("party", command, "--config", f"{party}/party.toml", "--format", "json")[1]
                if wanted in written:
                    break
                assert time.monotonic() < end, written
                time.sleep(0.5)

    def stop(self) -> None:
        """Tell all processes to stop: each ends with 0."""
        for process in self.processes.values():
            process.terminate()
        ended = {}
        for line, process in self.processes.items():
            process.communicate(timeout=PATIENCE_SECONDS)
            ended[line] = process.returncode
        self.processes.clear()
        assert set(ended.values()) <= {0}, ended

    sentences: Final[dict[str, Callable[[Federation], None]]] = {
        "pin the sealing keys": pin,
        "share the linkage key": share,
        "open a key to all": lambda self: self.protect(0o644),
        "close the key again": lambda self: self.protect(0o600),
        "wait until both are asked": lambda self: self.wait('"hearts"'),
        "wait for the review": lambda self: self.wait('"countersignature"', command="inbox"),
        "wait for the release": lambda self: self.wait('"published"'),
        "stop all": stop,
    }


@pytest.fixture
def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Federation]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service_unit, "_TEMPORARY", ())  # where tests have their folders
    made = Federation(tmp_path, capsys)
    yield made
    made.stop()


def test_every_command_has_a_line() -> None:
    assert sorted({command_of(line) for line in (LINES + SLOW).splitlines()} - {""}) == COMMANDS


def test_every_command_ends_with_an_exit_code_of_its_own(federation: Federation) -> None:
    for line in filter(None, LINES.splitlines()):
        federation.type(line)
    assert not federation.wrong, "".join(federation.wrong)
    assert (federation.folder / "to-clinic.carried").stat().st_size > 0


@pytest.mark.slow
def test_the_commands_that_compute_longer_end_with_an_exit_code_of_their_own(federation: Federation) -> None:
    for line in filter(None, SLOW.splitlines()):
        federation.type(line)
    assert not federation.wrong, "".join(federation.wrong)
