"""A protocol that the product does not have, added from outside: approved, charged, interrupted, published, backed up.

`support.blank_protocol` registers it through the functions that the product's own lines call; no file of the product knows of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from support.blank_protocol.register import register_all
from support.blank_protocol.rounds import FOLDER
from support.blank_protocol.study import EPSILON, KIND, NAME, BlankRounds
from verticil.party.config import load_party
from verticil.party.operator.backup import backup, restore
from verticil.party.protocol.node.registry import PROTOCOLS as PARTY_PROTOCOLS
from verticil.party.site import Site as PartySite
from verticil.shared.core.errors import GateFailed, Misuse, PeerFault
from verticil.shared.federation.transport.interface import Peer
from verticil.shared.privacy import events
from verticil.shared.release.manifest import MANIFEST
from verticil.shared.release.protocols import RELEASES
from verticil.shared.release.verification import verify_release
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.reading import read_study
from verticil.simulation.in_memory_peers import run_peers
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision

PARTIES = ("clinic", "insurer", "tax_office")
N_COMMON = 1921
"""People in all three tables of 2,000."""
TESTS = Path(__file__).resolve().parents[1]
PASSPHRASE = "a few words that nobody said before"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blank protocol, for this test alone."""
    for registry in (PROTOCOLS, RELEASES, PARTY_PROTOCOLS):
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))
    register_all()


@pytest.fixture
def study_text(peer_study_text: str) -> str:
    head, rest = peer_study_text.split("[structure.parents]")
    head = head.replace('model = "peer"', f'model = "{NAME}"')
    return f"{head}[structure.parents]\n[release]{rest.split('[release]')[1]}"


@pytest.fixture
def study(tmp_path: Path, study_text: str) -> Path:
    (path := tmp_path / "study.toml").write_text(study_text)
    return path


@pytest.fixture
def lay_out(tmp_path: Path, write_tables_of_peers: Callable[..., dict[str, Path]]) -> Callable[[str], Provisioned]:
    """A federation of three parties, always with the same secrets."""

    def made(name: str) -> Provisioned:
        tables = write_tables_of_peers(tmp_path / name / "tables", 2000)
        return provision(
            tmp_path / name / "federation",
            federation="trial",
            sites=[csv_site(party, path) for party, path in tables.items()],
            limits=OPEN_LIMITS,
            endpoint=None,
            listen="127.0.0.1:0",
            hosts=("localhost",),
            seed=5,
            peers={name: f"localhost:{port}" for port, name in enumerate(PARTIES, 2)},
        )

    return made


def carry_out(made: Provisioned, study: Path, release: Path, **how: Any) -> int:
    return asyncio.run(run_peers(made, read_study(study), release, is_seeded=True, **how))


def ledger_of(node: Path) -> list[Any]:
    with PartySite.open(load_party(node / "party.toml")) as site:
        return list(site.ledger.rows())


def rounds_of(node: Path, digest: str) -> list[str]:
    """The messages of a study that lie at a party."""
    return sorted(path.name for path in (node / "state" / FOLDER / digest).glob("*"))


def answer_of(*arguments: object) -> Any:
    """What a command with the blank protocol answers, in a process of its own."""
    command = [sys.executable, "-m", "support.blank_protocol", *map(str, arguments), "--format", "json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.whole
def test_a_study_of_it_runs_between_real_processes(
    make_peers: Callable[..., Any], study_text: str, tmp_path: Path
) -> None:
    """Approval by a person, charge, two rounds, release, ledger, backup, and a restore that ends what was under way."""
    peers = make_peers("blank", n=2000, seed=5, study=study_text)
    peers.program = ("-m", "support.blank_protocol")
    peers.environment["PYTHONPATH"] = str(TESTS)
    clinic = peers.made.parties["clinic"]
    config = clinic / "party.toml"
    config.write_text(config.read_text().replace('approval = "auto"', 'approval = "manual"'))
    digest = peers.load()
    peers.start()
    peers.until(lambda found: found.stages["insurer"].startswith("waiting for 'clinic' to approve"))
    assert not any(ledger_of(node) for node in peers.made.parties.values())
    asked = answer_of("party", "show", "hearts-peers", "--config", config)
    assert [event["words"] for event in asked["further_events"]] == ["empty messages were exchanged: epsilon 0.5"]
    key = clinic / "secrets" / "approver.key"
    answer_of("party", "approve", "hearts-peers", "--as", "demo@clinic", "--key", key, "--config", config)
    folders = peers.releases(tmp_path / "releases")
    assert set(peers.stop().values()) == {0}

    verified = verify_release(folders["clinic"], ca_certificate=peers.made.ca_certificate.read_bytes())
    assert (verified.common_records, verified.statements, verified.receipts) == (N_COMMON, 3, 0)
    assert verified.epsilon_per_person == 0.0  # no column was sent
    for node in peers.made.parties.values():
        (row,) = ledger_of(node)
        assert (row.event, row.charged, row.recipient) == (BlankRounds(epsilon=EPSILON), EPSILON, "everyone")
        assert rounds_of(node, digest) == []  # the study has ended
    assert KIND.name in json.dumps(answer_of("party", "ledger", "--config", config))

    own = config.parent / "state" / FOLDER / digest
    own.mkdir(parents=True, exist_ok=True)
    (own / "1.clinic").write_text("left by a kill")
    made = backup(load_party(config), tmp_path / "clinic.backup", PASSPHRASE)
    restored = restore(tmp_path / "clinic.backup", tmp_path / "restored", PASSPHRASE)
    assert (made.ledger_rows, restored.ledger_rows, restored.problem) == (1, 1, "")
    assert not (tmp_path / "restored" / "state" / FOLDER).exists()
    assert answer_of("party", "purge", "hearts-peers", "--config", config)["bytes"] > 0
    assert rounds_of(clinic, digest) == []


class Interrupted(Exception):
    """The machine goes off."""


class Cut:
    """A line to a peer on which one question has no answer."""

    def __init__(self, inner: Peer, method: str) -> None:
        self._inner, self._method = inner, method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name) if name != self._method else getattr(self, f"_{name}")

    async def _get_parameters(self, request: object) -> AsyncGenerator[None]:
        raise PeerFault("UNREACHABLE", "the line is cut")
        yield

    _get_pseudonyms = _get_masked = _get_parameters

    async def _get_signature(self, request: object) -> None:
        raise PeerFault("UNREACHABLE", "the line is cut")


@pytest.mark.whole
@pytest.mark.parametrize("method", ["get_pseudonyms", "get_masked", "get_parameters", "get_signature"])
def test_what_was_interrupted_goes_on_and_is_charged_once(
    lay_out: Callable[[str], Provisioned], study: Path, tmp_path: Path, method: str
) -> None:
    def stop(line: str) -> None:
        if "cannot reach" in line:
            raise Interrupted

    made = lay_out("interrupted")
    with pytest.raises(Interrupted):
        carry_out(made, study, tmp_path / "never", step=stop, wrap_peer=lambda _from, _to, peer: Cut(peer, method))
    before = {party: ledger_of(made.parties[party]) for party in PARTIES}
    carry_out(made, study, tmp_path / "release")
    after = {party: ledger_of(made.parties[party]) for party in PARTIES}

    assert any(before.values()) == (method != "get_pseudonyms")
    assert all(len(rows) == 1 for rows in after.values())
    assert all(before[party] in ([], after[party]) for party in PARTIES)


def test_a_restore_ends_a_study_whose_rounds_may_have_begun(
    lay_out: Callable[[str], Provisioned], study: Path, tmp_path: Path
) -> None:
    def stop(line: str) -> None:
        if "cannot reach" in line:
            raise Interrupted

    def cut(asker: str, _asked: str, peer: Peer) -> Any:
        """Only the clinic misses an answer, so it has written its own message when a line is reported."""
        return Cut(peer, "get_masked") if asker == "clinic" else peer

    made = lay_out("restored")
    with pytest.raises(Interrupted):
        carry_out(made, study, tmp_path / "never", step=stop, wrap_peer=cut)
    clinic = made.parties["clinic"]
    backup(load_party(clinic / "party.toml"), tmp_path / "clinic.backup", PASSPHRASE)
    restore(tmp_path / "clinic.backup", tmp_path / "clinic", PASSPHRASE)
    with PartySite.open(load_party(tmp_path / "clinic" / "party.toml")) as site:
        (record,) = site.state.studies()
    assert record.failure is not None
    assert "restored from a backup" in record.failure.message
    assert any(rounds_of(clinic, record.digest.hex()))
    assert rounds_of(tmp_path / "clinic", record.digest.hex()) == []  # no backup holds a message of a round


def test_its_rules_are_asked_for(study: Path) -> None:
    text = study.read_text()
    study.write_text(text.replace("[structure.parents]", '[structure.parents]\nplan = ["claims"]'))
    with pytest.raises(Misuse, match="learns nothing"):
        read_study(study)
    study.write_text(text.replace('mode = "keyed-hash"', 'mode = "dh-psi"'))
    with pytest.raises(Misuse, match="'dh-psi' does not go with the model 'blank'"):
        read_study(study)


def test_a_release_with_another_number_is_refused(
    lay_out: Callable[[str], Provisioned], study: Path, tmp_path: Path
) -> None:
    made = lay_out("trial")
    carry_out(made, study, release := tmp_path / "release")
    manifest = json.loads((release / MANIFEST).read_bytes())
    manifest["taken"].reverse()
    (release / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(GateFailed) as refused:
        verify_release(release, ca_certificate=made.ca_certificate.read_bytes())
    assert refused.value.code == "RELEASE_INVALID"


def test_a_whole_protocol_takes_six_hundred_lines() -> None:
    """What the next protocol costs at the least; the page for newcomers says this number."""
    lines = sum(len(path.read_text().splitlines()) for path in (TESTS / "support" / "blank_protocol").glob("*.py"))
    assert 500 < lines <= 600
