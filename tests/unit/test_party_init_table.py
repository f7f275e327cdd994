"""``party init`` with a table at hand writes how the table is read, since its node guesses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.sources.open_source import header

FEDERATION = f"""
schema = 1
name = "trial"
ca_certificate = "ca.crt"
ca_sha256 = "{"0" * 64}"
[miner]
endpoint = "miner.example.org:8443"
"""


def test_party_init_writes_how_the_table_at_hand_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "federation.toml").write_text(FEDERATION)
    rows = [f"{place:05d};{1 + place % 28:02d}.03.2020; nurse;1.{100 + place},50" for place in range(300)]
    (tmp_path / "people.csv").write_text("\n".join(["Export of March", "pid;seen;job;cost", *rows, ""]))
    assert main(["party", "init", "--dir", "clinic", "--name", "clinic", "--table", "people.csv", "--id", "pid"]) == 0
    assert "the header is in line 2" in capsys.readouterr().out
    rule = load_party(tmp_path / "clinic" / "party.toml").datasets["people"]
    assert (rule.delimiter, rule.skip, rule.id) == (";", 1, "pid")
    assert header(rule) == ("pid", "seen", "job", "cost")
    assert (rule.columns["seen"].written, rule.columns["cost"].written) == ("DD.MM.YYYY", "1.234,5")
    assert "job" not in rule.columns  # one value: it is left out of drafts
