"""A study of dates, points and a key between real processes, in each model, from files written as people write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import verticil.api as vt
from support.typed_studies import KEYS, STUDY, check_records, tables

pytestmark = pytest.mark.slow

WRITTEN = {"clinic": {"seen": "DD.MM.YYYY"}, "insurer": {"weight": "1234,5 kg"}}


def write_tables(folder: Path) -> dict[str, Path]:
    """Write a file for each party: weights have a decimal comma and their unit."""
    frames, paths = tables(), {}
    frames["insurer"]["weight"] = [f"{value:.1f} kg".replace(".", ",") for value in frames["insurer"]["weight"]]
    folder.mkdir()
    for party, frame in frames.items():
        frame.to_csv(path := folder / f"{party}.csv", index=False)
        paths[party] = path
    return paths


def say_how_columns_are_written(parties: dict[str, Path]) -> None:
    """Add to each party.toml what `party init --table` would write there."""
    for party, columns in WRITTEN.items():
        with (parties[party] / "party.toml").open("a", encoding="utf-8") as file:
            for column, pattern in columns.items():
                file.write(f'\n[dataset.people.columns.{column}]\nwritten = "{pattern}"\n')


@pytest.mark.parametrize("model", ["central", "masked"])
def test_with_a_miner(model: str, make_nodes: Callable[..., Any], tmp_path: Path) -> None:
    study = STUDY.format(model=model, keys=KEYS[model])
    nodes = make_nodes(model, tables=write_tables(tmp_path / "files"), study=study, masked=model == "masked")
    say_how_columns_are_written(nodes.made.parties)
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    digest = nodes.submit()
    nodes.publish(digest)
    nodes.stop()
    release = vt.load(nodes.made.miner / "state" / "studies" / digest.hex() / "release", ca=nodes.made.ca_certificate)
    release.verify()
    check_records(release)


def test_between_peers(make_peers: Callable[..., Any], tmp_path: Path) -> None:
    study = STUDY.format(model="peer", keys=KEYS["peer"])
    learned = study[study.index("[structure]") : study.index("[identifier]")]
    given = '[structure]\nmethod = "given"\n\n[structure.parents]\nweight = ["seen"]\nmoment = ["weight"]\n\n'
    study = study.replace(learned, given)
    peers = make_peers("peers", tables=write_tables(tmp_path / "files"), study=study)
    say_how_columns_are_written(peers.made.parties)
    peers.load()
    peers.start()
    releases = peers.releases(tmp_path / "releases")
    peers.stop()
    for folder in releases.values():
        release = vt.load(folder, ca=peers.made.ca_certificate)
        release.verify()
        check_records(release)
