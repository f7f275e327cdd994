"""A column that the miner's disk damages is asked for again, of real daemons: the same bytes, and nothing is charged for them."""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from verticil.shared.config import load_federation
from verticil.shared.release.verification import verify_release
from verticil.simulation.provision import set_endpoint
from verticil.wire.v1 import common_pb2

MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
RATE = 300  # bytes per second of the insurer towards the miner: its confirmation and its columns take seconds


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def page(log: Path) -> str:
    (port,) = re.findall(r"metrics on 127\.0\.0\.1, port (\d+)", log.read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def assert_monitored(pages: str) -> None:
    """What the dashboard and the rules read is what nodes export, and all of that is read."""
    board = json.loads((MONITORING / "verticil-dashboard.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    read = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    read += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    used = {name for text in read for name in re.findall(r"verticil_[a-z_]+", text)}
    exported = set(re.findall(r"^# TYPE (verticil_\w+)", pages, re.MULTILINE))
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}
    assert bare <= exported
    assert {name for name in exported if not name.endswith("_created")} <= bare
    labels = {
        name: set(re.findall(r'(\w+)="', text))
        for name, text in re.findall(r"^(verticil_\w+)\{(.*)\}", pages, re.MULTILINE)
    }
    for text in read:
        for name, matched in re.findall(r"(verticil_[a-z_]+)\{(.*?)\}", text):
            assert set(re.findall(r"(\w+)=", matched)) <= labels[name]


def test_a_column_damaged_at_the_miner_is_sent_again_free_of_charge_and_the_study_is_published(
    make_nodes: Callable[..., Any], slow_proxy: type
) -> None:
    nodes = make_nodes("damaged")
    for config in (nodes.made.miner / "miner.toml", *(home / "party.toml" for home in nodes.made.parties.values())):
        config.write_text(config.read_text() + '\n[metrics]\nlisten = "127.0.0.1:0"\n')
    port, made = nodes.start_miner(), nodes.made
    with slow_proxy(port) as proxy:
        nodes.point_to(port)
        name = load_federation(made.analyst / "federation.toml").name
        set_endpoint(made.parties["insurer"], name, f"127.0.0.1:{proxy.port}", ca_sha256=made.ca_sha256)
        for party in made.parties:
            nodes.start_party(party)
        digest = nodes.submit()
        nodes.wait(digest, lambda study: all(party.pseudonyms_complete for party in study.parties))
        proxy.bytes_per_second = RATE
        found = nodes.wait(digest, lambda study: study.parties[0].units_received == 3)
        state, ledger = made.miner / "state", made.parties["clinic"] / "state" / "party.sqlite"
        assert found.state == common_pb2.STUDY_STATE_UPLOADING, "the insurer was too fast"
        before, charged = rows(ledger, "SELECT * FROM ledger"), rows(ledger, "SELECT SUM(charged) FROM ledger")
        stored = rows(state / "catalogue.sqlite", "SELECT unit, column_sha256, body FROM stored_column WHERE unit < 3")
        (column,) = state.rglob("columns/000.*")
        column.write_bytes(bytes([column.read_bytes()[0] ^ 1]) + column.read_bytes()[1:])
        proxy.bytes_per_second = 0
        nodes.publish(digest)
    pages = {name: page(made.root / f"{name}.log") for name in ("miner", *made.parties)}
    assert 'verticil_sends{kind="again"} 1.0' in pages["clinic"]
    assert "verticil_learning_retries 1.0" in pages["miner"]
    assert_monitored("".join(pages.values()))
    releases = [
        verify_release(path, ca_certificate=made.ca_certificate.read_bytes()) for path in state.rglob("release")
    ]
    assert [release.receipts for release in releases] == [5]
    assert rows(ledger, "SELECT * FROM ledger") == before
    assert rows(ledger, "SELECT SUM(charged) FROM ledger") == charged
    assert rows(ledger, "SELECT unit, times FROM repeated_send JOIN ledger USING (number)") == [(0, 1)]
    assert stored == rows(
        state / "catalogue.sqlite", "SELECT unit, column_sha256, body FROM stored_column WHERE unit < 3"
    )
    assert "column 'smoker' was damaged on this disk, 'clinic' is asked again" in nodes.log("miner")
    assert "the miner asks again for columns that its disk has damaged" in nodes.log("clinic")
