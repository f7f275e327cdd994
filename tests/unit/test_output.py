"""A terminal shows what commands print, and obeys none of it: whoever wrote it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.cli.output import Format, emit, plain_table, put, report, say
from verticil.shared.core.errors import printable

HOSTILE = "\x1b[2J\x1b[32mok\x07\x9b\u202e\u2066\ud800 [green]verified[/]\nok: verified"


def is_tame(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize(("more", "code"), [((), "FILE_MISSING"), (("--no-such-option",), "USAGE")])
def test_a_daemon_that_logs_json_ends_with_a_line_of_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], code: str
) -> None:
    assert main(["party", "run", "--config", str(tmp_path / "party.toml"), "--log-json", *more]) == 2
    written = capsys.readouterr()
    lines = [json.loads(line) for line in written.err.splitlines()]
    assert (written.out, lines[-1]["level"], lines[-1]["code"]) == ("", "error", code)
    assert lines[-1]["message"]
    assert main(["party", "run", "--config", str(tmp_path / "party.toml"), "--log-json", "--format", "json"]) == 2
    written = capsys.readouterr()
    assert (json.loads(written.out)["error"]["code"], written.err) == ("FILE_MISSING", "")


def test_an_error_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("STUDY_INVALID", HOSTILE, HOSTILE, 2, form=Format.text) == 2
    written = capsys.readouterr().err
    assert is_tame(written)
    assert "\\x1b[2J" in written
    assert "[green]verified[/]" in written
    assert not any(line.startswith("ok: verified") for line in written.splitlines())


def test_a_hint_that_is_a_help_text_has_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path / "study.toml"), "--seed", "-3"]) == 2
    assert "default: [simulation] seed" in capsys.readouterr().err


def test_lines_and_tables_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    shown = plain_table("category", right=("share",))
    shown.add_row(HOSTILE, "1")
    put(shown)
    put(f"[bold]{HOSTILE}[/]")
    written = capsys.readouterr().out
    assert is_tame(written)
    assert written.count("\\u202e") == 3
    assert written.count("[green]verified[/]") == 2
    assert sum(line.startswith("ok: verified") for line in written.splitlines()) == 1  # what `put` is given is our own


def test_json_is_shown_and_not_obeyed_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert emit({"got": HOSTILE, "name": "Müller \U000e0041"}, form=Format.json)
    written = capsys.readouterr().out
    assert is_tame(written)
    assert json.loads(written) == {"got": HOSTILE, "name": "Müller \U000e0041"}
    assert "Müller" in written


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_hostile_name_in_a_release_does_not_reach_the_screen(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": HOSTILE, HOSTILE: 1}))
    (tmp_path / "manifest.sig").write_text("{}")
    assert main(["release", "verify", str(tmp_path), "--format", form]) == 6
    streams = capsys.readouterr()
    assert is_tame(streams.out + streams.err)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_hostile_study_does_not_reach_the_screen(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.toml"
    path.write_text('schema = 1\nid = "a\\u001B[2J\\u202E"\n"\\u001B[2J" = 1\n')
    assert main(["study", "check", str(path), "--format", form]) == 2
    streams = capsys.readouterr()
    assert is_tame(streams.out + streams.err)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_terminal_without_the_letters_gets_their_numbers(tmp_path: Path, form: str) -> None:
    path = tmp_path / "ε-\U0001f600-ü.toml"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-X", "utf8=0", "-m", "verticil.cli", "study", "check", str(path), "--format", form]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 2
    written = (done.stdout + done.stderr).decode("ascii")
    assert "FILE_MISSING" in written
    assert "Traceback" not in written
    if form == "json":
        assert "ü.toml" in json.loads(done.stdout)["error"]["message"]


def test_a_draft_is_printed_on_a_terminal_without_its_letters(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("größe\n" + "groß\nklein\n" * 20, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "verticil.cli", "study", "draft", f"owner={tmp_path / 'people.csv'}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "INTERNAL" in done.stderr) == (0, False)
    assert "gr\\xf6\\xdfe" in done.stdout


@pytest.mark.parametrize(
    ("command", "code", "in_stderr"),
    [
        ("party status --format json --config nope > /dev/full", 2, "FILE_MISSING"),
        ("party status --format json --config nope >&-", 2, ""),
        ("party ledger --config nope 2>&-", 2, ""),
        ("party ledger --config nope 2> /dev/full", 2, ""),
        ("party status --format json --config nope | true; exit ${PIPESTATUS[0]}", 2, ""),
        ("--version >&- <&-", 0, ""),
        ("--version > /dev/full", 1, "DISK_FULL"),
    ],
)
def test_a_stream_that_cannot_be_written_keeps_the_exit_code_and_the_quiet(
    command: str, code: int, in_stderr: str
) -> None:
    line = f"{sys.executable} -m verticil.cli {command}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, in_stderr in done.stderr, bool(in_stderr)) == (code, True, bool(done.stderr))
    assert not any(word in done.stderr for word in ("Traceback", "INTERNAL", "Exception ignored"))


def test_what_prints_stays_as_it_is() -> None:
    assert printable("Müller, 東京, ε ≤ 1") == "Müller, 東京, ε ≤ 1"
    assert printable("a\tb\nc", also="\n") == "a\\tb\nc"
    assert io.StringIO(printable("\ud800")).read() == "\\ud800"
