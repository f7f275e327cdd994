"""What versions before left behind opens, goes on and sends the same bytes: states of both models, a backup, a release.

`tests/data/before`, `before_2` and `before_3` were made by three such programs (`make.py` there); `recorded.json` says what each
had sent when it was stopped in the middle of a study, and what it sent when it was let go on. The third is the last that knew no
noise between peers but the rounded Gaussian: a study that was approved with it gets it to its end, drawn by this program.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import archives
from support.kept_answers import stands
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.operator.backup import restore
from verticil.party.site import Site
from verticil.party.storage.database import SCHEMA_VERSION
from verticil.shared.mechanisms.share_noise import ROUNDED, ShareNoise, share_key
from verticil.shared.release.verification import verify_release
from verticil.simulation.provision import Provisioned

DATA = Path(__file__).resolve().parents[1] / "data"
SCHEMA = {"before": 4, "before_2": 5, "before_3": 6}
RECORDED = {version: json.loads((DATA / version / "recorded.json").read_text(encoding="utf-8")) for version in SCHEMA}
every_version = pytest.mark.parametrize("version", SCHEMA)


def one_version(by_default: str) -> pytest.MarkDecorator:
    """Every version; those that are not named with the long tests: each state is opened by a test here anyway."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "version", [pytest.param(name, marks=() if name == by_default else slow) for name in SCHEMA]
    )


PASSPHRASE = "four words of passphrase"


def rows(node: Path, query: str) -> list[Any]:
    database = node / "state" / ("catalogue.sqlite" if node.name == "miner" else "party.sqlite")
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10)) as opened:
        return opened.execute(query).fetchall()


def ledger(made: Provisioned) -> dict[str, list[Any]]:
    query = "SELECT COUNT(*), TOTAL(charged) FROM ledger"
    return {party: list(rows(node, query)[0]) for party, node in made.parties.items()}


def charged(found: dict[str, list[Any]]) -> dict[str, float]:
    """A send that is tried again may have a row more; it costs nothing."""
    return {party: total for party, (_, total) in found.items()}


def sent(made: Provisioned) -> dict[str, str]:
    query = "SELECT unit, artifact_sha256 FROM ledger WHERE unit >= 0"
    return {f"{party} {unit}": sha.hex() for party, node in made.parties.items() for unit, sha in rows(node, query)}


def statistics(made: Provisioned) -> dict[str, str]:
    """SHA-256 of what each party sent of its own statistics."""
    query = "SELECT artifact_sha256 FROM ledger WHERE unit IS NULL"
    return {party: sha.hex() for party, node in made.parties.items() for (sha,) in rows(node, query)}


def deltas(made: Provisioned) -> dict[str, float]:
    return {party: rows(node, "SELECT TOTAL(charged_delta) FROM ledger")[0][0] for party, node in made.parties.items()}


def sums(spent: dict[str, dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Epsilon and delta of each party's data set."""
    return tuple({party: cost[what] for party, cost in spent.items()} for what in ("epsilon", "delta"))  # type: ignore[return-value]


def shown(made: Provisioned, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `party ledger` says at each party."""
    found = {}
    for party, node in made.parties.items():
        capsys.readouterr()
        assert main(["party", "ledger", "--config", str(node / "party.toml"), "--format", "json"]) == 0
        found[party] = json.loads(capsys.readouterr().out)
    return found


def opened(made: Provisioned, version: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Open every party's state with this program: its database becomes one of today, its ledger stays."""
    recorded = RECORDED[version][model]
    for node in made.parties.values():
        assert rows(node, "PRAGMA user_version") == [(SCHEMA[version],)]
        with Site.open(load_party(node / "party.toml")):
            assert rows(node, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
        assert main(["party", "audit", "verify", "--config", str(node / "party.toml")]) == 0
    assert ledger(made) == recorded["stopped"]["ledger"]
    if "spent" in recorded["stopped"]:
        assert (charged(ledger(made)), deltas(made)) == sums(recorded["stopped"]["spent"])
        kept = {party: rows(node, "SELECT COUNT(*) FROM reserved")[0][0] for party, node in made.parties.items()}
        assert kept == {party: told["reserved"] for party, told in recorded["stopped"]["spent"].items()}
    if "shown" in recorded:
        assert stands(recorded["shown"], shown(made, capsys))


@every_version
@pytest.mark.parametrize("model", ["central", "peer"])
def test_a_state_opens_with_the_same_accounts(
    model: str,
    version: str,
    unpack_before: Callable[..., Provisioned],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened(unpack_before(model, tmp_path / model, version), version, model, capsys)


@one_version("before")  # the oldest goes through what is done to the later ones, too
def test_a_study_with_a_miner_goes_on_and_every_column_is_that_of_the_program_before(
    version: str,
    take_over: Callable[[Provisioned], Any],
    unpack_before: Callable[..., Provisioned],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One party goes on from its backup; both have lost their spools, so that this program randomizes."""
    recorded = RECORDED[version]["central"]
    made = unpack_before("central", tmp_path / "central", version)
    opened(made, version, "central", capsys)
    shutil.rmtree(made.parties["clinic"])
    restored = restore(DATA / version / "clinic.backup", made.parties["clinic"], PASSPHRASE)
    assert (restored.problem, restored.ledger_rows) == ("", recorded["stopped"]["ledger"]["clinic"][0])
    assert ledger(made) == recorded["stopped"]["ledger"]
    nodes = take_over(made)
    nodes.point_to(nodes.start_miner())
    for party in made.parties:
        nodes.start_party(party)
    digest = rows(made.miner, "SELECT digest FROM study")[0][0]
    nodes.publish(digest)
    assert set(nodes.stop().values()) == {0}
    columns = rows(made.miner, "SELECT unit, column_sha256 FROM stored_column")
    assert {str(unit): sha.hex() for unit, sha in columns} == recorded["columns"]
    assert sent(made) == recorded["artifacts"]
    assert charged(ledger(made)) == charged(recorded["ledger"])
    release = made.miner / "state" / "studies" / digest.hex() / "release"
    assert verify_release(release, ca_certificate=made.ca_certificate.read_bytes()).n_common == 280


@one_version("before_3")  # the one whose noise is drawn otherwise today
def test_a_study_between_peers_goes_on_and_every_column_is_that_of_the_program_before(
    version: str,
    take_over: Callable[[Provisioned], Any],
    unpack_before: Callable[..., Provisioned],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the later states a party has charged the noise on its parameters; nothing is charged again.

    In the third the other party has not: this program draws what the program before drew, and the release has its model.
    """
    recorded = RECORDED[version]["peer"]
    made = unpack_before("peer", tmp_path / "peer", version)
    opened(made, version, "peer", capsys)
    if "statistics" in recorded:
        assert statistics(made) == recorded["stopped"]["statistics"]
        assert set(statistics(made)) < set(recorded["statistics"])
    peers = take_over(made)
    peers.digest = recorded["digest"]
    peers.start()
    releases = peers.releases(tmp_path / "releases")
    assert set(releases) == set(made.parties)
    assert set(peers.stop().values()) == {0}
    assert sent(made) == recorded["artifacts"]
    assert charged(ledger(made)) == charged(recorded["ledger"])
    if "statistics" in recorded:
        drawn_before = {party: statistics(made)[party] for party in recorded["stopped"]["statistics"]}
        assert drawn_before == recorded["stopped"]["statistics"]
        assert set(statistics(made)) == set(recorded["statistics"])  # with their time: other bytes, the same model
        assert (charged(ledger(made)), deltas(made)) == sums(recorded["spent"])
        archives.unpack(DATA / version / "peer-release.tar.xz", tmp_path / "before")
        before = json.loads((tmp_path / "before" / "release" / "model.json").read_bytes())
        for release in releases.values():
            assert digests(release, ["synthetic.csv"])["synthetic.csv"] == recorded["files"]["synthetic.csv"]
            assert stands(before, json.loads((release / "model.json").read_bytes()))


def digests(release: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: hashlib.sha256((release / name).read_bytes()).hexdigest() for name in names}


@every_version
def test_a_release_of_the_program_before_verifies(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archives.unpack(DATA / version / "release.tar.xz", tmp_path)
    authority = str(DATA / version / "ca.crt")
    assert main(["release", "verify", str(tmp_path / "release"), "--ca", authority, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "hearts"


def test_a_release_between_peers_under_the_rounded_gaussian_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the formula that it names: its own text, its figures, its files."""
    archives.unpack(DATA / "before_3" / "peer-release.tar.xz", tmp_path)
    recorded = RECORDED["before_3"]["peer"]["files"]
    assert digests(tmp_path / "release", recorded) == recorded
    authority = str(DATA / "before_3" / "peer-ca.crt")
    assert main(["release", "verify", str(tmp_path / "release"), "--ca", authority, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "hearts"


@pytest.mark.parametrize(
    "told",
    [told for told in RECORDED["before_3"]["noise"] if told["parts"] == 1],  # with others there never was a study
    ids=lambda told: f"{told['tables']} tables",
)
def test_the_rounded_gaussian_is_drawn_as_by_the_program_before(told: dict[str, Any]) -> None:
    key = share_key(
        bytes(range(100, 132)),
        ROUNDED,
        effective_digest=bytes(range(32)),
        structure_sha256=bytes(32),
        common_sha256=bytes([1]) * 32,
        data_fingerprint=bytes([2]) * 32,
    )
    assert key.hex() == told["key"]
    noise = ShareNoise(noise=ROUNDED, key=key, epsilon=told["epsilon"], delta=told["delta"], n_tables=told["tables"])
    assert noise.add(b"cpt 1", np.zeros((3, 4))).tolist() == told["table"]
