"""A column that the miner's disk damages is asked for again, of real daemons: the same bytes, and nothing is charged for them."""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import PATIENCE_SECONDS
from verticil.shared.documents.config import load_federation
from verticil.shared.release.verification import verify_release
from verticil.simulation.provision import set_endpoint
from verticil.wire.v1 import common_pb2

MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
RATE = 3000  # bytes per second of the insurer towards the miner, until its first column is there


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def page(log: Path) -> str:
    (port,) = re.findall(r"metrics on 127\.0\.0\.1, port (\d+)", log.read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


@dataclass(frozen=True)
class Run:
    """What was there before the damage, and after the publication."""

    nodes: Any
    before: dict[str, list[tuple[Any, ...]]]
    after: dict[str, list[tuple[Any, ...]]]
    pages: dict[str, str]


@pytest.fixture(scope="module")
def run(make_module_nodes: Callable[..., Any], slow_proxy: type) -> Run:
    """A study in which a byte of a stored column is flipped while the last columns are still on their way."""
    nodes = make_module_nodes("damaged")
    made = nodes.made
    for config in (made.miner / "miner.toml", *(home / "party.toml" for home in made.parties.values())):
        text = re.sub(r"(max_epsilon_lifetime) = .*", r"\1 = 100.0", config.read_text())  # one that a page can tell
        config.write_text(text + '\n[metrics]\nlisten = "127.0.0.1:0"\n')
    state, ledger = made.miner / "state", made.parties["clinic"] / "state" / "party.sqlite"

    def facts() -> dict[str, list[tuple[Any, ...]]]:
        stored = "SELECT unit, column_sha256, body FROM stored_column WHERE unit < 3"
        return {"ledger": rows(ledger, "SELECT * FROM ledger"), "stored": rows(state / "catalogue.sqlite", stored)}

    port = nodes.start_miner()
    with slow_proxy(port) as proxy:
        nodes.point_to(port)
        name = load_federation(made.analyst / "federation.toml").name
        set_endpoint(made.parties["insurer"], name, f"127.0.0.1:{proxy.port}", ca_sha256=made.ca_sha256)
        for party in made.parties:
            nodes.start_party(party)
        digest = nodes.submit()
        nodes.wait(digest, lambda study: all(party.pseudonyms_complete for party in study.parties))
        proxy.held = lambda: bool(rows(state / "catalogue.sqlite", "SELECT unit FROM stored_column WHERE unit >= 3"))
        proxy.bytes_per_second = RATE
        found = nodes.wait(digest, lambda study: study.parties[0].units_received == 3)
        assert found.state == common_pb2.STUDY_STATE_UPLOADING, "the insurer was too fast"
        before = facts()
        (column,) = state.rglob("columns/000.*")
        column.write_bytes(bytes([column.read_bytes()[0] ^ 1]) + column.read_bytes()[1:])
        proxy.held = lambda: False
        proxy.bytes_per_second = 0
        nodes.publish(digest)
    pages = {name: page(made.root / f"{name}.log") for name in ("miner", *made.parties)}
    return Run(nodes=nodes, before=before, after=facts(), pages=pages)


@pytest.mark.whole
def test_a_column_damaged_at_the_miner_is_sent_again_free_of_charge_and_the_study_is_published(run: Run) -> None:
    made = run.nodes.made
    authority = made.ca_certificate.read_bytes()
    releases = [verify_release(path, ca_certificate=authority) for path in (made.miner / "state").rglob("release")]
    assert [release.receipts for release in releases] == [5]
    assert run.after == run.before  # the same bytes and receipts, and no row in the ledger
    again = "SELECT unit, times FROM repeated_send JOIN ledger USING (number)"
    assert rows(made.parties["clinic"] / "state" / "party.sqlite", again) == [(0, 1)]
    assert "column 'smoker' was damaged on this disk, 'clinic' is asked again" in run.nodes.log("miner")
    assert "the miner asks again for columns that its disk has damaged" in run.nodes.log("clinic")
    assert 'verticil_sends{kind="again"} 1.0' in run.pages["clinic"]
    assert "verticil_learning_retries 1.0" in run.pages["miner"]


@pytest.mark.whole
def test_the_dashboard_and_the_alert_rules_read_what_nodes_export_and_all_of_it(run: Run) -> None:
    board = json.loads((MONITORING / "verticil-dashboard.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    read = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    read += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    used = {
        re.sub(r"_(bucket|count|sum)$", "", name) for text in read for name in re.findall(r"verticil_[a-z_]+", text)
    }
    pages = "".join(run.pages.values())
    exported = {
        name for name in re.findall(r"^# TYPE (verticil_\w+)", pages, re.MULTILINE) if not name.endswith("_created")
    }
    assert used == exported
    samples = dict(re.findall(r"^(verticil_\w+)\{(.*)\}", pages, re.MULTILINE))
    for name, matched in (found for text in read for found in re.findall(r"(verticil_[a-z_]+)\{(.*?)\}", text)):
        assert set(re.findall(r"(\w+)=", matched)) <= set(re.findall(r'(\w+)="', samples[name]))
