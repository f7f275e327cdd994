"""Every command answers --help with an example that it would accept, and takes --format json."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from verticil.cli.commands import ENTRIES, load
from verticil.cli.main import app, main
from verticil.cli.manual import manual_pages


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, sub in command.commands.items():
            yield from leaves(sub, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_the_commands_are_the_agreed_ones() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "demo", "example", "simulate", "synthesize", "table", "evaluate", "reproduce", "healthcheck", "docs", "man",
        "study check", "study ui", "study draft", "study submit", "study status", "study list", "study cancel", "study run",
        "party init", "party run", "party check", "party status", "party approve", "party deny",
        "party inbox", "party show", "party preview", "party countersign",
        "party approver keygen", "party approver add", "party approver remove", "party approver list",
        "party load", "party release", "party evaluate", "party limits",
        "party ledger", "party keys", "party confirm-key", "party ui", "party audit show", "party audit verify", "party revoke",
        "party backup", "party restore", "party purge", "party install-service", "miner install-service",
        "miner init", "miner run", "miner close", "miner purge", "miner ui", "miner audit show", "miner audit verify",
        "party export", "party import", "miner export", "miner import",
        "release fetch", "release verify", "release sample", "release query",
        "release regress", "release tabulate",
        "pki init", "pki issue", "pki request", "pki sign", "pki install", "pki renew", "pki revoke", "pki list", "pki seal",
        "doctor",
        "knowledge ask", "knowledge check", "knowledge show",
        "linkage new-key", "linkage check", "attack epsilon",
    }  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_the_command_accepts(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example: verticil" in " ".join(shown.split())
    assert "--format" in shown
    command = COMMANDS[path]
    example = shlex.split(command.epilog.removeprefix("Example: "))
    assert tuple(example[: len(path) + 1]) == ("verticil", *path)
    context = command.make_context(path[-1], list(example[len(path) + 1 :]), resilient_parsing=False)
    context.close()


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.function])
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    assert " ".join(load(name).help.split("\n\n")[0].split()) == ENTRIES[name].help


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = "import sys; from verticil.cli.main import main; main(['--help']); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = shown.splitlines()[-1].split()
    assert [module for module in modules if module.startswith("verticil.cli.")] == [
        f"verticil.cli.{name}" for name in ("commands", "output", "main")
    ]
    assert not {"numpy", "pandas", "grpc", "cryptography", "asyncio"} & set(modules)


def test_help_keeps_the_names_of_tables_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    for command, table in (("party ui", "[ui]"), ("simulate", "[simulation]"), ("study run", "[simulation]")):
        assert main([*command.split(), "--help"]) == 0
        assert table in capsys.readouterr().out


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_wrong_option_is_one_json_error_and_exit_2(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--nonsense", "--format", "json"]) == 2
    streams = capsys.readouterr()
    error = json.loads(streams.out)["error"]
    assert error["code"] == "USAGE"
    assert "--nonsense" in error["message"]
    assert set(error) == {"code", "message", "hint"}
    assert error["hint"].startswith(f"verticil {' '.join(path)} --help")


def test_a_command_without_its_group_names_the_whole_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "release", "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "there is no command 'verticil verify'"
    assert error["hint"] == "did you mean `verticil release verify`?"
    assert main(["frobnicate"]) == 2
    assert "No such command 'frobnicate'" in capsys.readouterr().err


def test_a_path_that_can_be_none_is_no_fault_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "x" * 5000, "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "FILE_MISSING"
    assert error["message"] == f"{'x' * 200}..: no file can have a name of this length"


@pytest.mark.parametrize(
    "command", ["party init --name a --dir", "man", "pki init --federation f --endpoint h:1 --out"]
)
def test_a_file_where_a_folder_is_wanted_is_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("mine")
    assert main([*command.split(), str(tmp_path / "taken"), "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["message"]) == (
        "FILE_MISSING",
        f"{tmp_path / 'taken'}: a file stands where a folder is wanted",
    )
    assert (tmp_path / "taken").read_text() == "mine"


def test_an_option_that_is_missing_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synthesize", "people.csv", "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "Missing option '--study'."
    assert error["hint"].startswith("study.toml: columns with their categories")
    assert error["hint"].endswith("verticil synthesize --help says what can be given, with an example")


def test_a_value_that_is_none_of_the_choices_is_named_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "check", "study.toml", "--format", "yaml"]) == 2
    assert "Invalid value for '--format': 'yaml' is not one of 'text', 'json'" in capsys.readouterr().err


def test_text_errors_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "check", "no-such-study.toml"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "FILE_MISSING" in streams.err
    assert "no-such-study.toml" in streams.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("verticil ")


def test_a_shell_completes_commands_and_their_parts() -> None:
    def completed(words: str, place: int) -> set[str]:
        environment = {
            **os.environ,
            "_VERTICIL_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        }
        done = subprocess.run([sys.executable, "-m", "verticil.cli"], env=environment, capture_output=True, text=True)
        return set(done.stdout.split())

    assert completed("verticil par", 1) == {"party"}
    assert completed("verticil party appr", 2) == {"approve", "approver"}


def _unescape(page: str) -> str:
    return re.sub(r"\\f[BR]|\\&", "", page).replace("\\-", "-").replace("\\e", "\\")


def test_every_command_has_a_manual_page_with_all_that_it_takes() -> None:
    pages = manual_pages()
    assert set(pages) == {"verticil.1", *("-".join(("verticil", *path)) + ".1" for path in COMMANDS)}
    for path, command in COMMANDS.items():
        page = pages["-".join(("verticil", *path)) + ".1"]
        assert "--" not in page, "a hyphen that roff may draw as a dash"
        text = _unescape(page)
        shown = [item for item in command.params if not getattr(item, "hidden", False)]
        names = {name for item in shown for name in (*item.opts, *item.secondary_opts) if name.startswith("-")}
        assert {name for name in names if name not in text} == set(), path
        assert " ".join(command.epilog.removeprefix("Example: ").split()) in text
        assert f".B {' '.join(path)}\n" in _unescape(pages["verticil.1"])
    requests = {line.split()[0] for page in pages.values() for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".PP", ".TP", ".B"}


def test_a_manual_page_replaces_an_older_one_and_no_file_of_others(tmp_path: Path) -> None:
    (tmp_path / "verticil.1").write_text("older")
    (tmp_path / "other.1").write_text("other")
    assert main(["man", str(tmp_path)]) == 0
    assert (tmp_path / "verticil.1").read_text().startswith(".TH VERTICIL 1 ")
    assert (tmp_path / "other.1").read_text() == "other"
    assert main(["man", str(tmp_path / "other.1")]) == 2
