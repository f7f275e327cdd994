"""What `verticil doctor` says of masked studies: pinned keys, confirmed keys, and whether any could be approved here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verticil.cli.doctor_checks import _masked, _miner_sealing
from verticil.cli.doctor_findings import Finding
from verticil.miner.config import load_miner
from verticil.party.config import load_party
from verticil.shared.federation.identity.key_words import key_words
from verticil.shared.federation.membership.installation import make_sealing_key
from verticil.simulation.provision import DEMO_LIMITS, Provisioned, csv_site, provision

NAMES = ("north", "south", "west")


@pytest.fixture
def made(tmp_path: Path) -> Provisioned:
    (table := tmp_path / "table.csv").write_text("id,x\n1,a\n")
    return provision(
        tmp_path / "fed",
        federation="trial",
        sites=[csv_site(name, table) for name in NAMES],
        limits=DEMO_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
        peers={name: f"127.0.0.1:{port}" for port, name in enumerate(NAMES, 2)},
        masked=True,
    )


def of_north(made: Provisioned) -> list[Finding]:
    return list(_masked(load_party(made.parties["north"] / "party.toml")))


def edit(made: Provisioned, file: str, pattern: str, new: str, node: str = "north") -> None:
    path = (made.miner if node == "miner" else made.parties[node]) / file
    text, times = re.subn(pattern, new, path.read_text(), flags=re.MULTILINE)
    assert times == 1, (pattern, path.read_text())
    path.write_text(text)


def test_what_is_provisioned_is_whole_and_tells_who_may_deal(made: Provisioned) -> None:
    found = of_north(made)
    assert [item.level for item in found] == ["ok"] * 3, found
    assert key_words("north", bytes.fromhex(made.sealing["north"])) in found[1].detail
    assert found[2].detail == (
        "masks may be dealt by south, west, miner; noise is counted of south, west, miner and this party"
    )
    (miner,) = _miner_sealing(load_miner(made.miner / "miner.toml"))
    assert (miner.level, miner.detail.partition(";")[0]) == ("ok", "is the pinned one")


def test_nothing_is_said_where_none_is_permitted(made: Provisioned) -> None:
    edit(made, "party.toml", "^allow_masked = true$", "allow_masked = false")
    assert of_north(made) == []


@pytest.mark.parametrize(
    ("file", "pattern", "new", "level", "says"),
    [
        (
            "federation.toml",
            '^south = "[0-9a-f]{64}"$',
            'south = "' + "ab" * 32 + '"',
            "fail",
            "south: federation.toml pins",
        ),
        ("federation.toml", '^south = "[0-9a-f]{64}"$', "", "warn", "a key in federation.toml of south"),
        ("federation.toml", "^sealing_key = .*$", "", "warn", "a key in federation.toml of miner"),
        ("party.toml", r"(?s)^max_masked_epsilon.*max_masked_delta[^\n]*$", "", "warn", "policy.max_masked_epsilon"),
        (
            "party.toml",
            r"(?s)^max_floor_epsilon_per_study.*max_floor_delta_lifetime[^\n]*$",
            "",
            "warn",
            "floor_epsilon",
        ),
        ("party.toml", "^recipients = .*$", 'recipients = ["miner", "west"]', "warn", "south in policy.recipients"),
        ("party.toml", r"(?s)^\[peer\].*\Z", "", "warn", r"missing is [peer]"),
        ("party.toml", "^confirmed_keys = .*$", "", "warn", "no other party is counted for noise"),
        (
            "party.toml",
            "^allow_masked = true$",
            "allow_masked = true\nallowed_dealers = []",
            "warn",
            "no other party deals masks",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(
    made: Provisioned, file: str, pattern: str, new: str, level: str, says: str
) -> None:
    edit(made, file, pattern, new)
    found = [item for item in of_north(made) if item.level == level]
    assert any(says in item.detail for item in found), of_north(made)
    assert all(item.hint for item in found)


def test_a_sealing_key_of_the_miner_that_is_not_the_pinned_one_fails(made: Provisioned) -> None:
    (key := made.miner / "pki" / "miner.seal").unlink()
    make_sealing_key(key)
    (found,) = _miner_sealing(load_miner(made.miner / "miner.toml"))
    assert (found.level, found.code) == ("fail", "CONFIG_INVALID")


def test_a_party_whose_key_the_miner_does_not_know_is_named(made: Provisioned) -> None:
    edit(made, "federation.toml", '^south = "[0-9a-f]{64}"$', "", node="miner")
    found = list(_miner_sealing(load_miner(made.miner / "miner.toml")))
    assert [(item.level, "south" in item.detail) for item in found] == [("ok", False), ("warn", True)]
