"""SIGKILL during the upload, of the miner and of a party: the study finishes, and what is stored is what would have been.

What would have been is what a run of the same file in one process stores; it gives what an undisturbed federation gives, by
``verticil study run --on prod``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.sameness import differences, essence
from verticil.cli.main import main
from verticil.wire.v1 import common_pb2

N = 20_000
RATE = 10_000  # bytes per second towards the miner: the columns of a party take a second or more


def stored_columns(nodes: Any) -> dict[int, tuple[bytes, bytes]]:
    """Digests of artifact and stored column, by unit, from the miner's catalogue."""
    with closing(
        sqlite3.connect(f"file:{nodes.made.miner / 'state' / 'catalogue.sqlite'}?mode=ro", uri=True)
    ) as catalogue:
        rows = catalogue.execute("SELECT unit, artifact_sha256, column_sha256 FROM stored_column").fetchall()
    return {unit: (artifact, column) for unit, artifact, column in rows}


@pytest.fixture(scope="module")
def people(
    tmp_path_factory: pytest.TempPathFactory, write_federation_tables: Callable[..., dict[str, Path]]
) -> dict[str, Path]:
    return write_federation_tables(tmp_path_factory.mktemp("people"), N)


@pytest.fixture(scope="module")
def published(make_module_nodes: Callable[..., Any], people: dict[str, Path], open_study_text: str) -> Any:
    """A federation of processes after a whole run of its study; the release is in the analyst's folder."""
    nodes = make_module_nodes("undisturbed", seed=5, tables=people, study=open_study_text)
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    place = nodes.made.analyst
    files = ["--federation", str(place / "federation.toml"), "--certificate", str(place / "pki" / "analyst.crt")]
    assert main(["study", "run", str(place / "study.toml"), "--on", "prod", *files, "--out", str(place / "run")]) == 0
    assert set(nodes.stop().values()) == {0}
    return nodes


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, people: dict[str, Path], open_study_text: str) -> Path:
    """The release of a run in one process, with the secrets of the same seed."""
    (study := tmp_path_factory.mktemp("local") / "study.toml").write_text(open_study_text, encoding="utf-8")
    data = [word for party, path in people.items() for word in ("--data", f"{party}={path}")]
    words = [str(study), "--on", "local", *data, "--seed", "5", "--out", str(study.parent / "run")]
    assert main(["study", "run", *words]) == 0
    return study.parent / "run" / "release"


@pytest.mark.whole
def test_feature_31_one_study_file_gives_one_release_in_a_process_and_in_the_federation(
    published: Any, local: Path
) -> None:
    """With the secrets of one seed: the randomized columns, the network, the synthetic records, byte for byte."""
    one, other = published.made.analyst / "run" / "release", local
    models = [json.loads((folder / "model.json").read_bytes()) for folder in (one, other)]
    assert [model.pop("simulation") for model in models] == [False, True]  # each says what it was
    assert models[0] == models[1]
    assert differences(essence(one), essence(other)) == ["model.json"]
    assert {f"column {unit}" for unit in range(5)} < essence(one).keys()


@pytest.mark.whole
@pytest.mark.parametrize("victim", ["miner", "clinic"])
def test_a_kill_during_upload_changes_nothing(
    victim: str,
    make_nodes: Callable[..., Any],
    slow_proxy: type,
    people: dict[str, Path],
    open_study_text: str,
    local: Path,
) -> None:
    nodes = make_nodes(f"killed-{victim}", seed=5, tables=people, study=open_study_text)
    port = nodes.start_miner()
    with slow_proxy(port) as proxy:
        nodes.point_to(proxy.port)
        for party in nodes.made.parties:
            nodes.start_party(party)
        digest = nodes.submit()
        nodes.wait(digest, lambda study: all(party.pseudonyms_complete for party in study.parties))
        proxy.held = lambda: bool(stored_columns(nodes))  # once there is one, no other arrives until the kill
        proxy.bytes_per_second = RATE  # the common list is still to be computed, confirmed and randomized
        found = nodes.wait(digest, lambda study: sum(party.units_received for party in study.parties) >= 1)
        nodes.kill(victim)
        at_kill = stored_columns(nodes)
        assert found.state == common_pb2.STUDY_STATE_UPLOADING
        assert 1 <= len(at_kill) < 5, "the kill came too late to disturb anything"
        proxy.held = lambda: False
        if victim == "miner":
            assert nodes.start_miner() == port
        else:
            nodes.start_party(victim)
        nodes.publish(digest)
    assert set(nodes.stop().values()) == {0}
    stored = stored_columns(nodes)
    assert at_kill.items() <= stored.items()
    undisturbed = {name: digest for name, digest in essence(local).items() if name.startswith("column ")}
    assert {f"column {unit}": artifact.hex() for unit, (artifact, _) in stored.items()} == undisturbed
    assert len(undisturbed) == 5
