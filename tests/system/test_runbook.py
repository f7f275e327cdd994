"""The runbook's commands do what it says (feature 40): each block is executed, in order, in a fresh folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from verticil.cli.main import main

DOCS = Path(__file__).resolve().parents[2] / "deploy" / "docs"
BLOCK = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def commands() -> list[list[str]]:
    text = (DOCS / "runbook.md").read_text(encoding="utf-8")
    return [shlex.split(line) for block in BLOCK.findall(text) for line in block.splitlines()]


def test_every_block_is_executed() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    assert len(re.findall(r"^```\w+$", text, re.MULTILINE)) == len(BLOCK.findall(text))
    assert all(command[0] == "verticil" for command in commands())


def test_feature_40_the_runbook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinic.csv").write_text("id,smoker\n1,no\n2,yes\n")
    (tmp_path / "passphrase").write_text("a line of words nobody has said\n")
    for _, *words in commands():
        federation = tmp_path / "ca" / "federation.toml"
        if "FINGERPRINT" in words:  # read over the telephone
            found = re.search(r'^ca_sha256 = "(.*)"', federation.read_text(), re.MULTILINE)
            assert found is not None
            words[words.index("FINGERPRINT")] = found[1]
        code = main(words)
        told = capsys.readouterr()
        assert code == 0, f"verticil {' '.join(words)}: {told.out}{told.err}"
    assert (tmp_path / "clinic-restored" / "state" / "site.secret").read_bytes() == (
        tmp_path / "clinic" / "state" / "site.secret"
    ).read_bytes()
    assert "revoked" in told.out


def test_the_commands_that_are_only_named_exist() -> None:
    """What stands in backquotes and is not executed, because it needs a running node or a person."""
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    named = {tuple(found.split()[1:3]) for found in re.findall(r"`(verticil [a-z][^`]*)`", text)}
    assert len(named) > 8
    for words in sorted(named):
        known = words if words[0] in {"party", "miner", "pki", "study", "release", "linkage"} else words[:1]
        assert main([*known, "--help"]) == 0, known
