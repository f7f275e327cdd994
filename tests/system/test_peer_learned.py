"""Between peers with a learned structure: a miner searches it from scores, and a kill during the search changes nothing.

Real processes with mutual TLS: three parties and a miner that gets no column, no pseudonym and no value of a table.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

# Quick tests run Model I between real processes, too: test_knowledge_nodes.py, test_peer_canary.py.
pytestmark = pytest.mark.slow

CANARY_VALUE = "kanarienvogel-78"
CANARY_ID = "canary-4712-id"
PSEUDONYM_BYTES = 16
N = 2000
PROGRAM = Path(__file__).with_name("held_search.py")


def models(releases: dict[str, Path]) -> set[str]:
    """The manifest has times of the run in it; the model has none."""
    return {hashlib.sha256((folder / "model.json").read_bytes()).hexdigest() for folder in releases.values()}


def scored(miner: Path) -> int:
    """How many parties' scores the miner has, while it has no structure."""
    path = next((miner / "state").glob("*.sqlite"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        if database.execute("SELECT count(*) FROM scored_study WHERE body IS NOT NULL").fetchone() != (0,):
            return 0
        return int(database.execute("SELECT count(*) FROM score").fetchone()[0])


def lay_out(make: Callable[..., Any], name: str, people: dict[str, Path], study: str) -> Any:
    """Nodes at work, whose miner goes on from its search when the file ``go-on`` is there."""
    peers = make(name, seed=5, tables=people, study=study, miner=True)
    peers.environment |= {
        key: str(peers.made.root / file) for key, file in (("GO_ON", "go-on"), ("SEARCHES", "searches"))
    }
    peers.program = (str(PROGRAM),)
    peers.start_miner()
    peers.reach()
    peers.load()
    peers.start()
    return peers


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, write_tables_of_peers: Callable[..., dict[str, Path]]) -> Any:
    folder = tmp_path_factory.mktemp("people")
    return write_tables_of_peers(folder, N, canary_id=CANARY_ID, canary_value=CANARY_VALUE)


@pytest.fixture(scope="module")
def undisturbed(
    make_module_peers: Callable[..., Any],
    people: dict[str, Path],
    learned_study_text: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, dict[str, Path], dict[str, bytes]]:
    """The federation after its end, its releases, and what the parties told each other: kind and name -> bytes."""
    peers = lay_out(make_module_peers, "undisturbed", people, learned_study_text)
    told: dict[str, bytes] = {}

    def look(_: Any) -> bool:
        if scored(peers.made.miner) == len(peers.made.parties):
            shelves = [path for node in peers.made.parties.values() for path in node.glob("state/peer/*/*")]
            told.update({path.name: path.read_bytes() for path in shelves if path.name.startswith(("co", "running"))})
        return bool(told)

    peers.until(look)
    (peers.made.root / "go-on").touch()
    releases = peers.releases(tmp_path_factory.mktemp("releases"))
    assert set(peers.stop().values()) == {0}
    return peers, releases, told


@pytest.mark.whole
def test_every_party_has_the_release_with_the_searched_structure(
    undisturbed: tuple[Any, dict[str, Path], dict[str, bytes]],
) -> None:
    _, releases, _ = undisturbed
    assert len(releases) == 3
    assert len(models(releases)) == 1
    manifest = json.loads((next(iter(releases.values())) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["search"]["method"] == "genetic"
    assert len(json.loads((next(iter(releases.values())) / "manifest.sig").read_text())["signatures"]) == 3


@pytest.mark.whole
def test_the_miner_holds_scores_and_nothing_about_a_person(
    undisturbed: tuple[Any, dict[str, Path], dict[str, bytes]],
) -> None:
    peers, _, told = undisturbed
    files = [path for path in (*peers.made.miner.rglob("*"), peers.made.root / "miner.log") if path.is_file()]
    held = b"\0".join(path.read_bytes() for path in files)
    needles = [text.encode(code) for text in (CANARY_VALUE, CANARY_ID) for code in ("utf-8", "utf-16-le")]
    assert [needle for needle in needles if needle in held] == []
    lists = [data for name, data in told.items() if not name.startswith("column")]
    pseudonyms = {data[at : at + PSEUDONYM_BYTES] for data in lists for at in range(0, len(data), PSEUDONYM_BYTES)}
    assert len(pseudonyms) > N // 2
    assert not any(pseudonym in held for pseudonym in pseudonyms)
    columns = [data for name, data in told.items() if name.startswith("column")]
    assert len(columns) == 3  # claims, plan and income, for the parties before their owner
    assert all(len(data) > 200 for data in columns)
    assert not any(data[at : at + 32] in held for data in columns for at in range(64, len(data) - 32, 32))


@pytest.mark.whole
def test_kills_of_the_miner_and_of_a_party_during_the_search_change_nothing(
    undisturbed: tuple[Any, dict[str, Path], dict[str, bytes]],
    make_peers: Callable[..., Any],
    people: dict[str, Path],
    learned_study_text: str,
    tmp_path: Path,
) -> None:
    peers = lay_out(make_peers, "killed", people, learned_study_text)
    peers.until(lambda _: (peers.made.root / "searches").exists())
    peers.kill("miner")
    peers.kill("insurer")
    assert scored(peers.made.miner) == len(peers.made.parties)  # it was in the middle of the search
    peers.until(lambda found: found.stages["clinic"].startswith("cannot reach the miner since"))
    (peers.made.root / "go-on").touch()
    peers.start_miner()
    peers.start_party("insurer")
    assert models(peers.releases(tmp_path / "releases")) == models(undisturbed[1])
    assert set(peers.stop().values()) == {0}
