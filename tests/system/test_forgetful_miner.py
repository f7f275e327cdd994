"""A miner that has lost facts says so: it does not start, the doctor and the parties know, and there is a way back.

The miner was killed in the middle of a study, some of its facts still in ``catalogue.sqlite-wal``.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from verticil.cli.main import main
from verticil.miner.storage.audit import CatalogueSize, MinerAudit
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.forgotten_catalogue import check_memory
from verticil.party.config import load_party
from verticil.party.operator.commands import status
from verticil.party.operator.pending_studies import inbox
from verticil.party.site import Site
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.study.states import State
from verticil.simulation.provision import Provisioned, set_endpoint
from verticil.wire.v1 import common_pb2


@pytest.fixture(scope="module")
def stopped(make_module_nodes: Callable[..., Any], slow_proxy: type) -> Provisioned:
    """A federation whose nodes were killed when the miner had the clinic's columns, and none of the insurer's."""
    nodes = make_module_nodes("stopped")
    made = nodes.made
    port = nodes.start_miner()
    with slow_proxy(port) as proxy:
        nodes.point_to(port)
        name = load_federation(made.analyst / "federation.toml").name
        set_endpoint(made.parties["insurer"], name, f"127.0.0.1:{proxy.port}", ca_sha256=made.ca_sha256)
        for party in made.parties:
            nodes.start_party(party)
        digest = nodes.submit()
        nodes.wait(digest, lambda study: all(party.pseudonyms_complete for party in study.parties))
        proxy.held = lambda: bool(units_from(made.miner, 3))
        proxy.bytes_per_second = RATE  # the common list is still to be computed, confirmed and randomized
        found = nodes.wait(digest, lambda study: study.parties[0].units_received == 3)
        for name in ("miner", *made.parties):
            nodes.kill(name)
    assert found.state == common_pb2.STUDY_STATE_UPLOADING, "the insurer was too fast"
    return made


def units_from(miner: Path, first: int) -> list[tuple[int]]:
    """The units, from `first` on, whose columns the miner has."""
    uri = f"file:{miner / 'state' / 'catalogue.sqlite'}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as catalogue:
        return catalogue.execute("SELECT unit FROM stored_column WHERE unit >= ?", (first,)).fetchall()


@pytest.fixture
def made(stopped: Provisioned, tmp_path: Path) -> Provisioned:
    root = tmp_path / "federation"
    shutil.copytree(stopped.root, root)
    config = root / "miner" / "miner.toml"
    config.write_text(re.sub(r'"127\.0\.0\.1:\d+"', '"127.0.0.1:0"', config.read_text()))
    return dataclasses.replace(
        stopped,
        root=root,
        miner=root / "miner",
        parties={party: root / party for party in stopped.parties},
        analyst=root / "analyst",
        ca_certificate=root / stopped.ca_certificate.relative_to(stopped.root),
    )


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 20] ^= 1
    path.write_bytes(data)


def lose_catalogue(state: Path) -> None:
    for path in state.glob("catalogue.sqlite*"):
        path.unlink()


RATE = 3000
"""Bytes per second from the insurer to the miner, until its first column is there."""

LOSSES: dict[str, Callable[[Path], None]] = {
    "a lost log": lambda state: (state / "catalogue.sqlite-wal").unlink(),
    "a flipped byte in the log": lambda state: flip(state / "catalogue.sqlite-wal"),
    "a lost catalogue": lose_catalogue,
    "an empty catalogue": lambda state: (lose_catalogue(state), (state / "catalogue.sqlite").touch())[0],
    "a lost state folder": shutil.rmtree,
}


@pytest.mark.whole
@pytest.mark.parametrize("loss", LOSSES)
def test_a_miner_that_has_lost_facts_does_not_start(
    loss: str, made: Provisioned, capsys: pytest.CaptureFixture[str]
) -> None:
    state, config = made.miner / "state", str(made.miner / "miner.toml")
    LOSSES[loss](state)
    before = {path: path.stat().st_size for path in state.rglob("*.u8")}
    for _ in range(2):  # having looked once does not make it forget that something is missing
        assert main(["miner", "run", "--config", config]) == 1
        said = capsys.readouterr().err
        assert "CATALOGUE_OLDER" in said
        assert "restore" in said[said.index("hint") :]
    if state.exists():
        assert main(["doctor", config, "--format", "json"]) == 1
        assert "CATALOGUE_OLDER" in capsys.readouterr().out
        if (state / "catalogue.sqlite").exists():
            assert main(["miner", "purge", "--config", config]) == 1
    assert {path: path.stat().st_size for path in state.rglob("*.u8")} == before


def test_an_older_copy_of_the_catalogue_is_noticed_by_the_audit_log(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "catalogue.sqlite")
    catalogue.add_study(bytes(32), study_id="one", proposal=b"{}", submitter="anna", at="2026-01-01T00:00:00Z")
    catalogue.checkpoint()
    shutil.copyfile(tmp_path / "catalogue.sqlite", tmp_path / "older")
    catalogue.add_denial(bytes(32), "clinic", "no")
    audit = MinerAudit(tmp_path)
    audit.anchor(catalogue.known(), utc_now())
    assert audit.last_anchor() == CatalogueSize(studies=1, versions=2)
    check_memory(tmp_path)
    catalogue.close()
    shutil.copyfile(tmp_path / "older", tmp_path / "catalogue.sqlite")
    with pytest.raises(DataFault, match="1 study with 1 change, and the audit log counts 1 study with 2"):
        check_memory(tmp_path)
    assert audit.verify().n_lines == 1


def test_a_lost_log_loses_no_published_study(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "catalogue.sqlite")
    catalogue.add_study(bytes(32), study_id="one", proposal=b"{}", submitter="anna", at="2026-01-01T00:00:00Z")
    assert catalogue.publish(bytes(32), [], at="2026-01-02T00:00:00Z")
    shutil.copyfile(tmp_path / "catalogue.sqlite", tmp_path / "alone.sqlite")
    with closing(sqlite3.connect(tmp_path / "alone.sqlite")) as alone:
        assert alone.execute("SELECT published_at FROM study").fetchall() == [("2026-01-02T00:00:00Z",)]
    catalogue.close()


@pytest.mark.whole
def test_the_inbox_offers_no_study_that_the_miner_does_not_know(made: Provisioned) -> None:
    config = load_party(made.parties["clinic"] / "party.toml")
    with Site.open(config) as site:
        for table in ("approval", "vote"):
            site.database.write(f"DELETE FROM {table}")
        site.state.move(site.state.studies()[0].digest, State.AWAITING_APPROVAL)
    assert len(inbox(config).waiting) == 1
    with Site.open(config) as site:
        site.state.miss(())
    assert inbox(config).waiting == ()


def until(config: Path, done: Callable[[Any], bool]) -> Any:
    """The party's only study, as soon as `done`."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not done(found := status(load_party(config)).studies[0]):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


@pytest.mark.whole
def test_a_party_knows_that_the_miner_forgot_and_the_operator_ends_it_for_all(
    made: Provisioned, take_over: Callable[[Provisioned], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """First with a new state folder, in which nothing says that there was another one; then without the catalogue alone."""
    config, state = made.parties["clinic"] / "party.toml", made.miner / "state"
    state.rename(made.root / "kept")
    state.mkdir()
    nodes = take_over(made)
    nodes.point_to(nodes.start_miner())
    nodes.start_party("clinic")
    assert until(config, lambda study: study.miner_forgot).state != "withdrawn"
    assert main(["party", "status", "--config", str(config)]) == 0
    assert "the miner does not know the study any more" in capsys.readouterr().out
    nodes.stop()
    shutil.rmtree(state)
    (made.root / "kept").rename(state)
    lose_catalogue(state)
    columns = state / "studies" / until(config, bool).digest / "columns"
    assert list(columns.iterdir())
    nodes.start_miner("--accept-older")
    nodes.start_party("clinic")
    assert until(config, lambda study: study.state == "withdrawn").miner_forgot == "study"
    end = time.monotonic() + PATIENCE_SECONDS
    while columns.exists():  # what the miner has of it is deleted behind the end
        assert time.monotonic() < end
        time.sleep(0.05)
    assert set(nodes.stop().values()) == {0}
    assert main(["miner", "audit", "verify", "--config", str(made.miner / "miner.toml")]) == 0
    assert main(["doctor", str(made.miner / "miner.toml")]) == 0
    assert main(["party", "audit", "show", "--config", str(config), "--format", "json"]) == 0
    assert "says that it has ended" in capsys.readouterr().out


@pytest.mark.whole
def test_a_miner_from_an_older_copy_is_told_of_a_revocation_again(
    made: Provisioned, take_over: Callable[[Provisioned], Any]
) -> None:
    config, state = made.parties["clinic"] / "party.toml", made.miner / "state"
    shutil.copytree(state, made.root / "older")
    nodes = take_over(made)
    nodes.point_to(nodes.start_miner())
    words = ["hearts", "--reason", "test", "--as", "demo@clinic", "--config", str(config)]
    assert main(["party", "revoke", *words]) == 0
    nodes.start_party("clinic")
    digest = bytes.fromhex(until(config, lambda study: study.state == "withdrawn").digest)
    nodes.kill("miner")
    shutil.rmtree(state)
    (made.root / "older").rename(state)
    nodes.start_miner()

    def withdrawn(study: Any) -> bool:
        return bool(study.state == common_pb2.STUDY_STATE_WITHDRAWN)

    told = nodes.wait(digest, withdrawn)
    assert told.state == common_pb2.STUDY_STATE_WITHDRAWN
    assert until(config, lambda study: study.state == "withdrawn").miner_forgot == "revocation"
    assert set(nodes.stop().values()) == {0}
