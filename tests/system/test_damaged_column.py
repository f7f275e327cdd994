"""A column that the miner's disk damages is asked for again, of real daemons: the same bytes, and nothing is charged for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from verticil.shared.config import load_federation
from verticil.shared.release.verification import verify_release
from verticil.simulation.provision import set_endpoint
from verticil.wire.v1 import common_pb2

RATE = 300  # bytes per second of the insurer towards the miner: its confirmation and its columns take seconds


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def test_a_column_damaged_at_the_miner_is_sent_again_free_of_charge_and_the_study_is_published(
    make_nodes: Callable[..., Any], slow_proxy: type
) -> None:
    nodes = make_nodes("damaged")
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
