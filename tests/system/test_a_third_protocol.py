"""A protocol that the product does not have, added from outside: approved, charged, interrupted, resumed, published, reported.

`support.counting` registers it through the functions that the product's own lines call; no file of the product knows of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support import counting
from verticil.cli.main import app
from verticil.party.config import load_party
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
from verticil.simulation import simulate
from verticil.simulation.in_process import run_peers
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision

PARTIES = ("clinic", "insurer", "tax_office")
N_COMMON = 1961
"""People in all three tables of 2,000."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third protocol, for this test alone."""
    for registry in (PROTOCOLS, RELEASES, PARTY_PROTOCOLS):
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))
    counting.register_all()


@pytest.fixture
def study(tmp_path: Path, peer_study_text: str) -> Path:
    head, rest = peer_study_text.split("[structure.parents]")
    head = head.replace('model = "peer"', f'model = "{counting.NAME}"')
    (path := tmp_path / "study.toml").write_text(f"{head}[structure.parents]\n[release]{rest.split('[release]')[1]}")
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
    return asyncio.run(run_peers(made, read_study(study), release, seeded=True, **how))


def ledger_of(made: Provisioned, party: str) -> list[Any]:
    with PartySite.open(load_party(made.parties[party] / "party.toml")) as site:
        return list(site.ledger.rows())


def numbers(release: Path) -> list[int]:
    manifest = json.loads((release / MANIFEST).read_bytes())
    return [json.loads(count["body"])["number"] for count in manifest["counts"]]


def said(*arguments: object) -> Any:
    """What a command answers."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_study_of_it_is_approved_charged_published_and_reported(
    lay_out: Callable[[str], Provisioned], study: Path, tmp_path: Path
) -> None:
    made = lay_out("trial")
    clinic = made.parties["clinic"] / "party.toml"
    words = "noise was added to the number of common people: epsilon 1, delta 1e-06"
    assert said("party", "check", "--study", study, "--config", clinic)["ok"]
    said("party", "load", study, "--config", clinic)
    asked = said("party", "show", "hearts-peers", "--config", clinic)
    assert [(event["words"], event["recipients"]) for event in asked["further_events"]] == [(words, list(PARTIES[1:]))]
    assert [cost["epsilon"] for cost in asked["cost"]] == [1.0]
    assert said("study", "check", study)["epsilon_per_person"] == 0.0
    carry_out(made, study, tmp_path / "release")

    with PartySite.open(load_party(clinic)) as site:
        (record,) = site.state.studies()
        assert record.approval is not None
    found = numbers(tmp_path / "release")
    assert all(abs(number - N_COMMON) < 8 * counting.SIGMA for number in found)
    assert set(found) != {N_COMMON}  # none of the three without noise, but by one chance in 10^4
    assert len(set(found)) > 1  # each party draws its own noise: the same number thrice by one chance in 500
    verified = verify_release(tmp_path / "release", ca_certificate=made.ca_certificate.read_bytes())
    assert verified.n_common == round(sum(found) / 3)
    assert (verified.statements, verified.receipts, verified.exact_parameters) == (3, 0, False)
    assert [signer.rsplit("/", 1)[-1] for signer in verified.signers] == list(PARTIES)
    assert verified.epsilon_per_person == 0.0  # no column was sent
    model = json.loads((tmp_path / "release" / "model.json").read_bytes())
    assert model["counting"]["epsilon"] == counting.EPSILON
    assert all(column["read_by"] == [] for column in model["privacy"]["columns"])
    report = (tmp_path / "release" / "report.html").read_text(encoding="utf-8")
    assert f"clinic counted {found[0]} people in common" in report
    for party in PARTIES:
        (row,) = ledger_of(made, party)
        assert row.event == counting.NoisyCount(epsilon=1.0, delta=1e-6, sensitivity=1.0)
        assert (row.charged, row.charged_delta, row.recipient) == (1.0, 1e-6, "everyone")
    assert words in json.dumps(said("party", "ledger", "--config", clinic))


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

    _get_pseudonyms = _get_parameters

    async def _get_signature(self, request: object) -> None:
        raise PeerFault("UNREACHABLE", "the line is cut")


@pytest.mark.parametrize("method", ["get_pseudonyms", "get_parameters", "get_signature"])
def test_what_was_interrupted_goes_on_with_the_same_noise_and_is_charged_once(
    lay_out: Callable[[str], Provisioned], study: Path, tmp_path: Path, method: str
) -> None:
    def stop(line: str) -> None:
        if "cannot reach" in line:
            raise Interrupted

    made = lay_out("interrupted")
    with pytest.raises(Interrupted):
        carry_out(made, study, tmp_path / "never", step=stop, wrap_peer=lambda _from, _to, peer: Cut(peer, method))
    before = {party: ledger_of(made, party) for party in PARTIES}
    carry_out(made, study, tmp_path / "release")
    after = {party: ledger_of(made, party) for party in PARTIES}

    assert any(before.values()) == (method != "get_pseudonyms")
    assert all(len(rows) == 1 for rows in after.values())
    assert all(before[party] in ([], after[party]) for party in PARTIES)
    carry_out(lay_out("undisturbed"), study, tmp_path / "undisturbed release")
    assert numbers(tmp_path / "release") == numbers(tmp_path / "undisturbed release")


def test_the_simulation_carries_it_out(
    study: Path, tmp_path: Path, write_tables_of_peers: Callable[..., dict[str, Path]]
) -> None:
    tables = write_tables_of_peers(tmp_path / "tables", 2000)
    first = simulate(study, tables, out=tmp_path / "first" / "release", seed=9)
    second = simulate(study, tables, out=tmp_path / "second" / "release", seed=9)
    assert first.n_common == second.n_common  # the same secrets, the same noise
    assert numbers(tmp_path / "first" / "release") == numbers(tmp_path / "second" / "release")
    assert (first.epsilon_per_person, first.network.dag.edges()) == (0.0, ())
    assert first.parameters == "epsilon 1, delta 1e-06 of each party's number"


def test_its_rules_are_asked_for(study: Path) -> None:
    text = study.read_text(encoding="utf-8")
    study.write_text(text.replace("[structure.parents]", '[structure.parents]\nplan = ["claims"]'), encoding="utf-8")
    with pytest.raises(Misuse, match="learns nothing"):
        read_study(study)
    study.write_text(text.replace('mode = "keyed-hash"', 'mode = "dh-psi"'), encoding="utf-8")
    with pytest.raises(Misuse, match="'dh-psi' does not go with the model 'counting'"):
        read_study(study)


def test_a_release_with_another_number_is_refused(
    lay_out: Callable[[str], Provisioned], study: Path, tmp_path: Path
) -> None:
    made = lay_out("trial")
    carry_out(made, study, release := tmp_path / "release")
    manifest = json.loads((release / MANIFEST).read_bytes())
    manifest["counts"].reverse()
    (release / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(GateFailed) as refused:
        verify_release(release, ca_certificate=made.ca_certificate.read_bytes())
    assert refused.value.code == "RELEASE_INVALID"
