"""The systemd units: what they confine, that the shipped ones are what the command writes, and what systemd says of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from verticil.cli import service_unit
from verticil.cli.main import main
from verticil.cli.service_unit import unit_text
from verticil.shared.core.errors import CODES, Misuse

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROGRAM = "/opt/verticil/bin/verticil"


def settings(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def shipped() -> dict[str, str]:
    party, miner = "/etc/verticil/%i/party.toml", "/etc/verticil/miner/miner.toml"
    made = {
        "verticil-party@.service": unit_text(
            what="party INSTANCE",
            command=(PROGRAM, "party", "run", "--config", party, "--log-json"),
            user="verticil",
            state="/var/lib/verticil/%i",
            compiles=True,
        ),
        "verticil-miner.service": unit_text(
            what="miner",
            command=(PROGRAM, "miner", "run", "--config", miner, "--log-json"),
            user="verticil",
            state="/var/lib/verticil/miner",
            compiles=True,
        ),
    }
    return {name: text.replace("%%i", "%i").replace("INSTANCE", "%i") for name, text in made.items()}


@pytest.mark.parametrize("name", shipped())
def test_the_shipped_units_are_what_the_command_writes(name: str) -> None:
    assert (SHIPPED / name).read_text(encoding="utf-8") == shipped()[name]


def test_only_what_may_pass_by_itself_is_started_again() -> None:
    (codes,) = settings(shipped()["verticil-miner.service"])["RestartPreventExitStatus"]
    mended_by_people = {str(exit_code) for _, exit_code in CODES.values()} - {"1"}
    assert set(codes.split()) == mended_by_people
    assert settings(shipped()["verticil-miner.service"])["RestartForceExitStatus"] == ["SIGHUP"]


def test_a_party_without_numba_may_not_write_code() -> None:
    def value(*, compiles: bool) -> list[str]:
        text = unit_text(what="x", command=("/x",), user="u", state="/s", compiles=compiles)
        return settings(text)["MemoryDenyWriteExecute"]

    assert value(compiles=False) == ["yes"]
    assert value(compiles=True) == ["no"]


def test_homes_are_hidden_unless_something_lies_there() -> None:
    def value(path: str) -> list[str]:
        return settings(unit_text(what="x", command=("/x",), user="u", state="/s", reads=(path,), compiles=True))[
            "ProtectHome"
        ]

    assert value("/srv/table.csv") == ["yes"]
    assert value("/home/anna/table.csv") == ["read-only"]
    assert value("/homes/anna/table.csv") == ["yes"]
    with pytest.raises(Misuse, match="cannot hold this path"):
        unit_text(what="x", command=("/x",), user="u", state="/s\nExecStart=/bin/sh", compiles=True)


@pytest.mark.parametrize(("path", "is_refused"), [("/tmp/t", True), ("/var/tmp/a/t", True), ("/tmpfs/t", False)])
def test_nothing_may_lie_where_the_unit_has_a_folder_of_its_own(path: str, is_refused: bool) -> None:
    for given in ({"state": path}, {"reads": (path,)}, {"command": ("/x", "--config", path)}):
        arguments = {"what": "x", "command": ("/x",), "user": "u", "state": "/s", "compiles": True, **given}
        if is_refused:
            with pytest.raises(Misuse, match="does not see this path"):
                unit_text(**arguments)
        else:
            assert settings(unit_text(**arguments))["PrivateTmp"] == ["yes"]


NEEDED = ["ca/federation.toml", "ca/ca.crt", "{0}/pki/{0}.sign", "{0}/pki/{0}.seal", "{0}/state", "python"]


@pytest.mark.parametrize("role", ["party", "miner"])
@pytest.mark.parametrize("needed", [*NEEDED, ""])
def test_whatever_leads_to_a_home_makes_homes_readable(
    role: str, needed: str, own_site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_site.parent
    federation = str(folder / "ca" / "federation.toml")
    assert main(["miner", "init", "--dir", str(folder / "miner"), "--federation", federation]) == 0
    (home := folder / "home").mkdir()
    monkeypatch.setattr(service_unit, "_HOMES", (str(home),))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    if needed:
        link = folder / needed.format("clinic" if role == "party" else "miner")
        link.parent.mkdir(exist_ok=True)
        if link.exists():
            link.rename(home / "file")
        link.symlink_to(home / "file")
    config = folder / ("clinic/party.toml" if role == "party" else "miner/miner.toml")
    capsys.readouterr()
    assert main([role, "install-service", "--print", "--config", str(config)]) == 0
    assert settings(capsys.readouterr().out)["ProtectHome"] == ["read-only" if needed else "yes"]


def test_a_site_writes_its_own_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str], own_site: Path) -> None:
    config = ["--config", str(own_site / "party.toml")]
    capsys.readouterr()
    assert main(["party", "install-service", "--print", *config]) == 0
    text = capsys.readouterr().out
    found = settings(text)
    assert found["ReadWritePaths"] == [str(own_site / "state")]
    (command,) = found["ExecStart"]
    assert command.startswith("/")
    assert f"--config {own_site}/party.toml" in command
    units = tmp_path / "units"
    assert main(["party", "install-service", "--to", str(units), *config, "--format", "json"]) == 0
    path = Path(json.loads(capsys.readouterr().out)["path"])
    assert path.read_text() == text
    assert main(["party", "install-service", "--to", str(units), *config]) == 2  # one that is there is not overwritten


@pytest.fixture
def own_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(service_unit, "_TEMPORARY", ())  # where tests have their folders
    assert (
        main(["pki", "init", "--federation", "hearts", "--endpoint", "localhost:1", "--out", str(tmp_path / "ca")]) == 0
    )
    site, federation = tmp_path / "clinic", str(tmp_path / "ca" / "federation.toml")
    assert (
        main(["party", "init", "--name", "clinic", "--dir", str(site), "--federation", federation, "--table", "t.csv"])
        == 0
    )
    return site


@pytest.mark.machine
def test_systemd_understands_them_and_calls_them_safe(tmp_path: Path, program: Callable[[str], str]) -> None:
    analyze = program("systemd-analyze")
    for name, text in shipped().items():
        here = text.replace(PROGRAM, sys.executable).replace("User=verticil", "User=daemon")
        path = tmp_path / name.replace("@", "@clinic")
        path.write_text(here)
        verified = subprocess.run([analyze, "verify", str(path)], capture_output=True, text=True, check=False)
        assert path.name not in verified.stderr, verified.stderr
        judged = subprocess.run(
            [analyze, "security", "--offline=true", "--threshold=25", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert judged.returncode == 0, judged.stdout[-600:]
