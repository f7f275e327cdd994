"""SIGKILL of a party between peers, of the one that serves a column and of the one that reads it: the model is the same."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

N = 20_000
RATE = 10_000  # bytes per second of the clinic's answers once its pseudonyms are through


def models(releases: dict[str, Path]) -> set[str]:
    """The manifest has times of the run in it; the model has none."""
    return {hashlib.sha256((folder / "model.json").read_bytes()).hexdigest() for folder in releases.values()}


def recipients(node: Path) -> set[tuple[str, str]]:
    """Which column went to whom, from a party's ledger."""
    with closing(sqlite3.connect(f"file:{next((node / 'state').glob('*.sqlite'))}?mode=ro", uri=True)) as database:
        return set(database.execute("SELECT variables, recipient FROM ledger").fetchall())


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, write_tables_of_peers: Callable[..., dict[str, Path]]) -> Any:
    return write_tables_of_peers(tmp_path_factory.mktemp("people"), N)


@pytest.fixture(scope="module")
def undisturbed(make_module_peers: Callable[..., Any], people: dict[str, Path], tmp_path_factory: Any) -> set[str]:
    peers = make_module_peers("undisturbed", seed=5, tables=people)
    peers.load()
    peers.start()
    found = models(peers.releases(tmp_path_factory.mktemp("releases")))
    assert set(peers.stop().values()) == {0}
    assert len(found) == 1
    return found


@pytest.mark.slow  # by default the peers of test_peer_learned die
@pytest.mark.parametrize("victim", ["clinic", "insurer"])
def test_a_kill_while_a_column_is_read_changes_nothing(
    victim: str,
    make_peers: Callable[..., Any],
    slow_proxy: type,
    people: dict[str, Path],
    undisturbed: set[str],
    tmp_path: Path,
) -> None:
    peers = make_peers(f"killed-{victim}", seed=5, tables=people)
    with ExitStack() as stack:
        port = int(peers.addresses["clinic"].rpartition(":")[2])
        clinic = peers.made.parties["clinic"]

        def sent() -> bool:
            return any(recipient == "insurer" for _, recipient in recipients(clinic))

        # what is sent of a column is held up until the kill
        proxy = stack.enter_context(slow_proxy(port, bytes_per_second=RATE, back=16 * N + 20_000, held=sent))
        peers.reach(clinic=f"127.0.0.1:{proxy.port}")
        peers.load()
        peers.start()
        peers.until(lambda _: sent())
        peers.kill(victim)
        assert not peers.until(lambda _: True).published
        proxy.held = lambda: False
        peers.start_party(victim)
        assert models(peers.releases(tmp_path / "releases")) == undisturbed
    assert set(peers.stop().values()) == {0}
