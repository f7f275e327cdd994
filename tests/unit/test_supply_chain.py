"""What images and CI install: every file by its hash, nothing that no lock names, no more than a role needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.requirements import required
from verticil.party.config import PeerRule
from verticil.party.protocol.with_peers import context
from verticil.shared.core.installation import install_command

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "deploy" / "requirements"
ROLES = ("party", "peer", "miner")
_PACKAGE = re.compile(r"([a-z0-9][a-z0-9.-]*)==([^ ;]+)(?: ; [^\\]+)? \\")
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def packages(text: str) -> dict[str, str]:
    """Version of each package of a lock; raises ValueError for a line that is neither a package nor a hash."""
    found: dict[str, str] = {}
    hashed = True
    for line in text.splitlines():
        if match := _PACKAGE.fullmatch(line):
            if not hashed:
                raise ValueError(f"no hash before: {line}")
            found[match[1]] = match[2]
            hashed = False
        elif _HASH.fullmatch(line):
            hashed = True
        else:
            raise ValueError(line)
    if not hashed:
        raise ValueError("no hash at the end")
    return found


def locked(name: str) -> dict[str, str]:
    return packages((LOCKS / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("party", ()),
        ("peer", ("peer",)),
        ("miner", ("miner",)),
        ("databases", ("duckdb", "postgresql", "sqlalchemy")),
        ("ci", ("dev",)),
    ],
)
def test_a_lock_holds_what_the_project_asks_for(name: str, extras: tuple[str, ...]) -> None:
    found = locked(name)
    wrong = [
        str(requirement)
        for requirement in required(*extras)
        if not requirement.specifier.contains(found.get(canonicalize_name(requirement.name), "0"))
    ]
    assert wrong == []


def test_the_lock_of_the_ci_holds_what_the_experiments_need() -> None:
    text = (ROOT / "deploy" / "experiments" / "pyproject.toml").read_text(encoding="utf-8")
    asked = [Requirement(one) for one in tomllib.loads(text)["project"]["dependencies"]]
    found = locked("ci")
    others = [one for one in asked if one.name != "verticil"]
    assert {one.name for one in others} == {"matplotlib", "scikit-learn"}
    assert [str(one) for one in others if not one.specifier.contains(found.get(canonicalize_name(one.name), "0"))] == []


def test_a_line_without_a_hash_or_with_a_host_is_found() -> None:
    whole = (LOCKS / "build.txt").read_text(encoding="utf-8")
    packages(whole)
    for planted in ("--index-url https://example.org/simple\n", "six==1.0\n", "six==1.0 \\\n"):
        with pytest.raises(ValueError, match=re.escape(planted.strip()) + r"|no hash"):
            packages(planted + whole)


def test_a_party_carries_only_what_it_needs() -> None:
    heavy = {"numba", "llvmlite", "pandas", "scipy"}
    assert heavy & set(locked("party")) == set()
    assert heavy & set(locked("peer")) == {"pandas", "scipy"}
    assert heavy <= set(locked("miner"))


@pytest.mark.parametrize("role", ["party", "peer"])
def test_what_databases_need_goes_beside_what_a_role_has(role: str) -> None:
    """The image installs one lock after the other, so both name the same version of what is in both."""
    one, other = locked(role), locked("databases")
    assert {name: one[name] for name in one.keys() & other.keys()} == {
        name: other[name] for name in one.keys() & other.keys()
    }
    assert len(one.keys() & other.keys()) > 10


def test_the_image_installs_nothing_without_its_hash() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    installs = [line for line in text.splitlines() if "pip" in line and "install" in line and not line.startswith("#")]
    installs += [line for line in text.splitlines() if "$install -" in line.replace("\\", "")]
    assert len(installs) == 5  # the builder's, the words that the others begin with, packages, databases, our own wheel
    guarded = [line for line in installs if "--require-hashes" in line or "--no-index --no-deps /wheel/" in line]
    assert len(guarded) == 4
    assert "ARG BASE=" in text
    assert "FROM python" not in text  # each stage begins with what ARG BASE says


def test_a_party_daemon_runs_without_what_only_others_need() -> None:
    blocked = "import sys\nfor name in ('numba', 'pandas', 'scipy'): sys.modules[name] = None\n"
    modules = (
        "verticil.party.daemon, verticil.cli.main, verticil.party.operator.commands, verticil.party.operator.page.pages"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}import {modules}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    planted = subprocess.run(
        [sys.executable, "-c", f"{blocked}import verticil.shared.synthesis.dealing_kernels"],
        capture_output=True,
        check=False,
    )
    assert planted.returncode == 1


def test_a_party_between_peers_says_which_package_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    with_peer = SimpleNamespace(path=Path("party.toml"), peer=PeerRule(listen="127.0.0.1:1", advertise="127.0.0.1:1"))
    assert context.lacking_packages(with_peer) is None
    monkeypatch.setattr(context, "find_spec", lambda name: None)
    assert context.lacking_packages(SimpleNamespace(path=Path("party.toml"), peer=None)) is None
    lacking = context.lacking_packages(with_peer)
    assert lacking is not None
    assert "pandas and scipy not installed" in lacking.message
    assert (lacking.code, install_command("peer") in lacking.hint) == ("CONFIG_INVALID", True)


@pytest.mark.whole
def test_the_list_of_everything_names_each_package_with_its_hashes(tmp_path: Path) -> None:
    out = tmp_path / "sbom.json"
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", str(LOCKS / "party.txt"), "--output-reproducible"]
    subprocess.run([*command, "--pyproject", str(ROOT / "pyproject.toml"), "-o", str(out)], check=True)
    listed = json.loads(out.read_text(encoding="utf-8"))
    assert listed["metadata"]["component"]["name"] == "verticil"
    assert {part["name"]: part["version"] for part in listed["components"]} == locked("party")
    hashes = [reference["hashes"] for part in listed["components"] for reference in part["externalReferences"]]
    assert len(hashes) >= len(locked("party"))
    assert all(hash_["alg"] == "SHA-256" for found in hashes for hash_ in found)
