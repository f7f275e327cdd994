"""Setting a relayed party up: its key is made at the site, told with the request, pinned in federation.toml, checked at start."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.protocol.relay.network import RelayNetwork, open_seals
from verticil.pki.files import write_federation
from verticil.pki.request import create_request, parse_request
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError
from verticil.shared.documents.config import RELAY, load_federation
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.membership.installation import public_sealing_key
from verticil.simulation.provision import DEMO_LIMITS, Provisioned, csv_site, provision

A, B, C = (digit * 64 for digit in "abc")


def fails(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(VerticilError) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


# --- federation.toml ---


def written(
    folder: Path,
    *,
    endpoint: str | None = "m:1",
    peers: dict[str, str] | None = None,
    sealing: dict[str, str] | None = None,
) -> Path:
    path = folder / "federation.toml"
    path.unlink(missing_ok=True)
    return write_federation(
        path,
        name="fed",
        ca_certificate="ca.crt",
        ca_sha256="0" * 64,
        endpoint=endpoint,
        peers=peers or {"north": RELAY, "south": "h:2", "west": RELAY},
        sealing=sealing,
    )


def test_feature_12_federation_toml_says_who_is_relayed_and_pins_keys(tmp_path: Path) -> None:
    federation = load_federation(written(tmp_path, sealing={"north": A, "south": B}))
    assert dict(federation.peers) == {"north": RELAY, "south": "h:2", "west": RELAY}
    assert dict(federation.sealing) == {"north": bytes.fromhex(A), "south": bytes.fromhex(B)}
    assert federation.relays
    assert not load_federation(written(tmp_path, peers={"north": "h:1", "south": "h:2"})).relays


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"endpoint": None}, "miner: missing"),
        ({"sealing": {"north": A[:-1]}}, "sealing.north: expected 64 hexadecimal digits"),
        ({"sealing": {"north": "g" * 64}}, "sealing.north: expected 64 hexadecimal digits"),
        ({"sealing": {"north": A, "south": A}}, "sealing.south: is the key of 'north' already"),
        ({"peers": {"north": "relayed"}}, "peers.north: got 'relayed', expected host:port"),
    ],
)
def test_what_is_wrong_in_it_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = written(tmp_path, **change)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=re.escape(message)):
        load_federation(path)


# --- party.toml ---


@pytest.fixture
def made(tmp_path: Path) -> Provisioned:
    (table := tmp_path / "table.csv").write_text("id,x\n1,a\n")
    return provision(
        tmp_path / "fed",
        federation="trial",
        sites=[csv_site(name, table) for name in ("north", "south")],
        limits=DEMO_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
        peers={"north": RELAY, "south": "127.0.0.1:2"},
    )


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_feature_12_a_relayed_party_listens_nowhere(made: Provisioned) -> None:
    config = load_party(made.parties["north"] / "party.toml")
    assert config.peer is not None
    assert (config.peer.relay, config.peer.listen, config.peer.advertise) == (True, "", "")
    assert config.sealing_key == made.parties["north"] / "pki" / "north.seal"
    assert config.sealing_key.stat().st_mode & 0o777 == 0o600
    assert made.sealing == {
        name: public_sealing_key(node / "pki" / f"{name}.seal") for name, node in made.parties.items()
    }
    other = load_party(made.parties["south"] / "party.toml")
    assert other.peer is not None
    assert (other.peer.relay, other.peer.listen) == (False, "127.0.0.1:2")
    assert not list(made.miner.rglob("*.seal")), "the miner has none of the keys"


@pytest.mark.parametrize(
    ("party", "old", "new", "message"),
    [
        ("north", "relay = true", 'relay = true\nlisten = "h:1"', "peer.listen: not with relay = true"),
        (
            "north",
            "relay = true",
            'listen = "h:1"\nadvertise = "h:1"',
            "says 'relay' of 'north' in [peers], expected relay",
        ),
        ("north", "relay = true", "relay = 1", "peer.relay: got a whole number"),
        (
            "south",
            'listen = "127.0.0.1:2"\nadvertise = "127.0.0.1:2"',
            "relay = true",
            "expected listen and advertise here",
        ),
    ],
)
def test_a_party_and_its_federation_say_the_same(
    made: Provisioned, party: str, old: str, new: str, message: str
) -> None:
    edit(made.parties[party] / "party.toml", old, new)
    with pytest.raises(Misuse, match=re.escape(message)):
        load_party(made.parties[party] / "party.toml")


def test_feature_13_a_party_starts_with_the_pinned_key_only(made: Provisioned) -> None:
    node = made.parties["north"]
    assert open_seals(load_party(node / "party.toml")).peers == ("south",)
    shutil.copy(made.parties["south"] / "pki" / "south.seal", node / "pki" / "north.seal")
    assert "not the key that federation.toml pins" in fails(
        "CONFIG_INVALID", lambda: open_seals(load_party(node / "party.toml"))
    )
    (node / "pki" / "north.seal").unlink()
    assert "verticil pki seal" in fails("SECRET_MISSING", lambda: open_seals(load_party(node / "party.toml")))
    edit(node / "federation.toml", f'north = "{made.sealing["north"]}"', f'west = "{C}"')
    text = fails("CONFIG_INVALID", lambda: open_seals(load_party(node / "party.toml")))
    assert "sealing.north: missing" in text


async def test_a_peer_without_a_pinned_key_is_named_when_it_is_asked(made: Provisioned) -> None:
    from verticil.wire.v1 import common_pb2

    node = made.parties["south"]
    edit(node / "federation.toml", f'north = "{made.sealing["north"]}"\n', "")
    network = RelayNetwork(load_party(node / "party.toml"), NoDirect(), lambda: None)
    with pytest.raises(Misuse, match=re.escape("sealing.north: no sealing key of that party")):
        await network.dial("north").hello(common_pb2.HelloRequest())
    with pytest.raises(PeerFault, match="dialled directly"):
        network.dial("south")


class NoDirect:
    """A direct network that nobody should use for a relayed peer."""

    def dial(self, name: str) -> object:
        raise PeerFault("UNREACHABLE", f"'{name}' is dialled directly")


# --- the request, and the command ---


def test_feature_13_the_request_tells_the_sealing_key_and_the_telephone_covers_it(tmp_path: Path) -> None:
    clinic = Identity.parse("verticil://fed/party/clinic")
    path, made = create_request(tmp_path, clinic)
    assert made.sealing.hex() == public_sealing_key(tmp_path / "clinic.seal")
    assert (tmp_path / "clinic.seal").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in path.read_bytes()
    document = json.loads(path.read_bytes())
    before = parse_request(json.dumps(document).encode()).key_hash
    other = json.loads(create_request(tmp_path / "other", clinic)[0].read_bytes())
    for planted, code in (
        (other["sealing"], "CERTIFICATE_INVALID"),
        ({**document["sealing"], "key": C}, "CERTIFICATE_INVALID"),
        ({"key": "00"}, "MESSAGE_INVALID"),
        (C, "MESSAGE_INVALID"),
    ):
        changed = json.dumps({**document, "sealing": planted}).encode()
        assert "sealing" in fails(code, lambda changed=changed: parse_request(changed))  # type: ignore[misc]
    del document["sealing"]
    older = parse_request(json.dumps(document).encode())
    assert older.sealing == b""
    assert older.key_hash != before, "whoever takes it out is found out on the telephone"
    assert create_request(tmp_path / "m", Identity.parse("verticil://fed/miner/m"))[1].sealing == b""


def test_feature_13_the_commands_show_what_is_to_be_pinned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object, code: int = 0) -> dict[str, str]:
        assert main([*map(str, arguments), "--format", "json"]) == code
        found: dict[str, str] = json.loads(capsys.readouterr().out)
        return found

    ca = tmp_path / "ca"
    fingerprint = run("pki", "init", "--federation", "fed", "--endpoint", "m:1", "--peer", "clinic=relay", "--out", ca)[
        "ca_sha256"
    ]
    folder = ["--dir", tmp_path / "pki", "--federation", ca / "federation.toml"]
    asked = run("pki", "request", "clinic", "--role", "party", *folder)
    signed = run("pki", "sign", asked["request"], "--ca", ca, "--yes")
    run("pki", "install", signed["signed"], "--fingerprint", fingerprint, *folder)
    certificate = tmp_path / "pki" / "clinic.crt"
    shown = run("pki", "seal", certificate)
    assert asked["sealing_key"] == signed["sealing_key"] == shown["sealing_key"]
    assert (shown["identity"], shown["new"]) == ("verticil://fed/party/clinic", False)
    renewed = run("pki", "seal", certificate, "--new")
    assert renewed["new"]
    assert renewed["sealing_key"] != shown["sealing_key"] == public_sealing_key(tmp_path / "pki" / "clinic.seal")
    (tmp_path / "pki" / "clinic.seal").unlink()
    (tmp_path / "pki" / "clinic.next.seal").unlink()
    assert run("pki", "seal", certificate)["new"], "a site of an earlier version makes its key"
    assert main(["pki", "seal", str(certificate)]) == 0
    assert f'clinic = "{public_sealing_key(tmp_path / "pki" / "clinic.seal")}"' in capsys.readouterr().out


def test_the_demonstration_relays_between_peers_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--relay", "--out", str(tmp_path / "out")]) == 2
    assert "--model peer" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_doctor_checks_the_pins(made: Provisioned, capsys: pytest.CaptureFixture[str]) -> None:
    def examined() -> dict[str, tuple[str, str]]:
        main(["doctor", str(made.parties["north"] / "party.toml"), "--format", "json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return {check["check"]: (check["level"], check["detail"]) for check in checks}

    assert examined()["sealing key"] == ("ok", "is the pinned one; those of 1 other parties are known")
    toml = made.parties["north"] / "federation.toml"
    edit(toml, f'south = "{made.sealing["south"]}"\n', "")
    assert examined()["sealing key"] == ("warn", "[sealing] has no key of south")
    edit(toml, made.sealing["north"], C)
    assert examined()["sealing key"][0] == "fail"
