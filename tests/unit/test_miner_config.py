"""miner.toml: defaults, paths, bounds, and what a wrong file is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from verticil.miner.config import ServiceLimits, Workers, load_miner
from verticil.miner.daemon import init_miner
from verticil.miner.page.task import _serve_pages
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.config import cannot_listen

FEDERATION = """
schema = 1
name = "trial"
ca_certificate = "ca.crt"
ca_sha256 = "{zeros}"
[miner]
endpoint = "localhost:8443"
""".format(zeros="0" * 64)

MINER = """
schema = 1
name = "miner"
federation = "federation.toml"
state_directory = "state"
listen = "0.0.0.0:8443"
[identity]
certificate = "pki/miner.crt"
key = "pki/miner.key"
signing_key = "pki/other.sign"
[limits]
max_bytes_per_study = 4294967296
max_concurrent_uploads = 8
disk_reserve_bytes = 1073741824
[workers]
processes = 2
memory_bytes = 2147483648
[retention]
randomized_days = 30
"""


def load(folder: Path, text: str):
    (folder / "federation.toml").write_text(FEDERATION)
    (folder / "miner.toml").write_text(text)
    return load_miner(folder / "miner.toml")


def test_every_key_is_read_and_paths_are_relative_to_the_file(tmp_path):
    config = load(tmp_path, MINER)
    assert (config.name, config.listen, config.randomized_days) == ("miner", "0.0.0.0:8443", 30)
    assert config.federation.endpoint == "localhost:8443"
    assert config.state_directory == tmp_path / "state"
    assert config.signing_key == tmp_path / "pki" / "other.sign"
    assert config.limits == ServiceLimits()
    assert config.workers == Workers(processes=2)


def test_the_example_of_the_design_has_these_defaults(tmp_path):
    short = MINER[: MINER.index("[limits]")].replace('signing_key = "pki/other.sign"\n', "")
    config = load(tmp_path, short.replace('state_directory = "state"\n', ""))
    assert config.limits == ServiceLimits(
        max_bytes_per_study=4 * 2**30, max_concurrent_uploads=8, disk_reserve_bytes=2**30
    )
    assert (config.workers, config.randomized_days) == (Workers(processes=1, memory_bytes=2 * 2**30), 30)
    assert config.signing_key == tmp_path / "pki" / "miner.sign"
    assert config.state_directory == tmp_path / "state"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("processes = 2", "processes = 0", "workers.processes: got 0, expected 1 to 256"),
        ("processes = 2", "process = 2", "workers.process: unknown key"),
        ("randomized_days = 30", "randomized_days = -1", "retention.randomized_days: got -1, expected 0 to 36500"),
        ("memory_bytes = 2147483648", "memory_bytes = 1", "workers.memory_bytes"),
        ("max_concurrent_uploads = 8", "max_concurrent_uploads = 8.5", "limits.max_concurrent_uploads"),
        ('listen = "0.0.0.0:8443"', 'listen = "8443"', "listen: got '8443', expected host:port"),
        ('listen = "0.0.0.0:8443"', 'listen = "::1:8443"', "listen: got '::1:8443', expected host:port"),
        ('listen = "0.0.0.0:8443"', 'listen = "*:8443"', "listen: got '*:8443', expected host:port"),
        (
            'listen = "0.0.0.0:8443"',
            'listen = "a:99999"',
            "got 'a:99999', expected host:port with a port from 0 to 65535",
        ),
        ('name = "miner"', 'name = "a/b"', "name: got 'a/b'"),
        ('key = "pki/miner.key"\n', "", "identity.key: missing"),
        (
            'key = "pki/miner.key"',
            'key = "pki/miner\\u0000.key"',
            r"identity.key: got 'pki/miner\x00.key', expected a path",
        ),
        ('state_directory = "state"', 'state_directory = ""', "state_directory: got '', expected a path"),
        ("schema = 1", "schema = 2", "schema: got 2, expected 1"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path, old, new, told):
    with pytest.raises(Misuse) as caught:
        load(tmp_path, MINER.replace(old, new, 1))
    assert caught.value.code == "CONFIG_INVALID"
    assert told in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("port", "is_refused"), [(9464, True), (0, False)])
@pytest.mark.parametrize("keys", [("listen", "ui"), ("listen", "metrics"), ("ui", "metrics")])
def test_two_listeners_have_two_addresses(tmp_path, keys, port, is_refused):
    text = MINER.replace("0.0.0.0:8443", f"127.0.0.1:{port}" if "listen" in keys else "0.0.0.0:8443")
    text += "".join(f'[{key}]\nlisten = "127.0.0.1:{port}"\n' for key in keys if key != "listen")
    first = keys[0] if keys[0] == "listen" else f"{keys[0]}.listen"
    told = rf"{keys[1]}\.listen: the same address as '{first}'"
    with pytest.raises(Misuse, match=told) if is_refused else contextlib.nullcontext():
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("host", "port", "hint"),
    [
        ("192.0.2.9", 18499, "is it an address of this machine? 0.0.0.0 takes all"),
        ("nohost.invalid", 18444, "is it an address of this machine? 0.0.0.0 takes all"),
        ("127.0.0.1", None, "is another node running on this port?"),
    ],
)
def test_an_address_that_cannot_be_listened_on_says_why(host, port, hint):
    with socket.create_server(("127.0.0.1", 0)) as other:
        error = cannot_listen("listen", host, port or other.getsockname()[1])
    assert (error.hint, "(" in error.message) == (hint, port is not None)


def test_a_taken_port_of_the_pages_is_no_matter_of_the_command_line(tmp_path, caplog):
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = load(tmp_path, MINER + f'[ui]\nlisten = "127.0.0.1:{other.getsockname()[1]}"\n')
        asyncio.run(_serve_pages(config, MagicMock(), MagicMock()))
    assert "another port in [ui] listen" in caplog.text


def test_a_missing_federation_document_is_named(tmp_path):
    (tmp_path / "miner.toml").write_text(MINER)
    with pytest.raises(Misuse, match=r"federation\.toml: no such file"):
        load_miner(tmp_path / "miner.toml")


def test_init_writes_a_file_that_can_be_read_and_overwrites_none(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    target = init_miner(tmp_path / "here", name="coordinator", federation=tmp_path / "federation.toml")
    config = load_miner(target)
    assert config.certificate.resolve() == (tmp_path / "here" / "pki" / "coordinator.crt").resolve()
    assert config.signing_key.name == "coordinator.sign"
    assert (tmp_path / "here" / "state").stat().st_mode & 0o777 == 0o700
    with pytest.raises(Misuse, match="FILE_EXISTS"):
        init_miner(tmp_path / "here", name="coordinator", federation=tmp_path / "federation.toml")


def test_init_leaves_nothing_when_what_it_was_given_is_wrong(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    for options in ({"listen": "nowhere"}, {"federation": tmp_path / "absent.toml"}, {"name": "a/b"}):
        given = {"name": "miner", "federation": tmp_path / "federation.toml"} | options
        with pytest.raises(Misuse):
            init_miner(tmp_path / "here", **given)
        assert not (tmp_path / "here" / "miner.toml").exists()


@pytest.mark.parametrize(
    ("listen", "hint"),
    [
        ("::1:8443", 'an IPv6 address stands in brackets: "[::1]:8443"'),
        ("*:8443", 'for every address: "0.0.0.0:8443", or "[::]:8443" with those of IPv6'),
        ("8443", 'as in "0.0.0.0:8443"'),
    ],
)
def test_the_hint_of_an_address_says_what_is_usually_meant(tmp_path, listen, hint):
    with pytest.raises(Misuse) as caught:
        load(tmp_path, MINER.replace("0.0.0.0:8443", listen))
    assert caught.value.hint == hint
