"""federation.toml: the miner, the peers, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.pki.files import write_federation
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.config import Federation, load_federation
from verticil.shared.federation.identity.pki import check_serves, load_credentials

HEAD = 'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{}"\n'.format("0" * 64)
MINER = '[miner]\nendpoint = "localhost:8443"\n'


def load(folder: Path, text: str) -> Federation:
    path = folder / "federation.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return load_federation(path)


def test_a_federation_has_a_miner_or_peers_or_both(tmp_path: Path) -> None:
    peers = '[peers]\nnorth = "north.example.org:8444"\nsouth = "[::1]:8444"\n'
    central, both, peer = load(tmp_path, MINER), load(tmp_path, MINER + peers), load(tmp_path, peers)
    assert (central.endpoint, dict(central.peers)) == ("localhost:8443", {})
    assert both.endpoint == both.miner_endpoint == "localhost:8443"
    assert peer.endpoint is None
    assert dict(both.peers) == dict(peer.peers) == {"north": "north.example.org:8444", "south": "[::1]:8444"}
    with pytest.raises(Misuse, match="federation 'trial' has no miner") as caught:
        _ = peer.miner_endpoint
    assert caught.value.code == "CONFIG_INVALID"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"miner: missing \(hint: name the miner"),
        ("[peers]\n", "miner: missing"),
        ("[miner]\n", "miner.endpoint: missing"),
        ('[peers]\na = "a:1"\n[miner]\n', "miner.endpoint: missing"),
        ('[miner]\nendpoint = "localhost"\n', "miner.endpoint: got 'localhost', expected host:port"),
        ('[miner]\nendpoint = ":8443"\n', "expected host:port"),
        ('[miner]\nendpoint = "localhost:65536"\n', "expected host:port"),
        ('[miner]\nendpoint = "::1:8443"\n', "expected host:port"),
        ('[peers]\n"a b" = "a:1"\n', "peers.a b: not a party's name"),
        ("[peers]\na = 1\n", "peers.a: got a whole number, expected a string"),
        ('[peers]\na = "https://a:1"\n', "peers.a: got 'https://a:1', expected host:port"),
        ('[peers]\na = "a:0"\n', "peers.a: got 'a:0', expected host:port"),
        ('[peers]\na = "h:1"\nb = "H:1"\n', "peers.b: 'H:1' is the address of 'a' already"),
        ('[peers]\na = "a:1"\n[pears]\nb = "b:1"\n', "pears: unknown key"),
    ],
)
def test_a_wrong_federation_is_told_what(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Misuse, match=told) as caught:
        load(tmp_path, text)
    assert caught.value.code == "CONFIG_INVALID"


@pytest.mark.parametrize("endpoint", [None, "localhost:8443"])
@pytest.mark.parametrize("peers", [{}, {"north": "a:1", "south": "b:2"}])
def test_what_is_written_is_read_back(tmp_path: Path, endpoint: str | None, peers: dict[str, str]) -> None:
    path = write_federation(
        tmp_path / "federation.toml",
        name="trial",
        ca_certificate="ca.crt",
        ca_sha256="0" * 64,
        endpoint=endpoint,
        peers=peers,
    )
    if endpoint is None and not peers:
        with pytest.raises(Misuse, match="miner: missing"):
            load_federation(path)
        return
    read = load_federation(path)
    assert (read.endpoint, dict(read.peers)) == (endpoint, peers)


def test_pki_makes_a_federation_of_peers_whose_parties_can_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pki"
    peers = ["--peer", "north=north.example.org:8444", "--peer", "south=127.0.0.1:8445"]
    assert main(["pki", "init", "--federation", "trial", "--out", str(folder), *peers]) == 0
    federation = load_federation(folder / "federation.toml")
    assert federation.endpoint is None
    assert dict(federation.peers) == {"north": "north.example.org:8444", "south": "127.0.0.1:8445"}
    issue = ["pki", "issue", "--role", "party", "--ca", str(folder)]
    assert main([*issue, "north", "--host", "north.example.org"]) == 0
    assert main([*issue, "south"]) == 0
    north, south = (load_credentials(folder / f"{n}.crt", folder / f"{n}.key", federation) for n in ("north", "south"))
    check_serves(north)
    with pytest.raises(PeerFault, match="can serve its peers"):
        check_serves(south)
    capsys.readouterr()


@pytest.mark.parametrize(
    "options", [["--peer", "north"], ["--peer", "a b=h:1"], ["--peer", "a=h"], ["--peer", "a=h:1", "--peer", "b=h:1"],
                ["--peer", "a=h:1", "--peer", "a=h:2"], ["--endpoint", "nowhere"]],
)  # fmt: skip
def test_pki_with_a_wrong_address_leaves_nothing(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pki"
    assert main(["pki", "init", "--federation", "trial", "--out", str(folder), *options]) == 2
    assert options[1].partition("=")[2] in capsys.readouterr().err
    assert not folder.exists() or list(folder.iterdir()) == []
