"""Make what this folder holds, with the program that is to be remembered: `PYTHONPATH=tests python -m data.before_3.make FOLDER`.

As `data/before_2/make.py`, with the last program whose noise between peers was the rounded Gaussian alone. The federation
between peers is stopped when one party has charged and drawn the noise on its parameters and the other has not: the one sends
what it drew, the other draws with the program that comes after. Of both models there is a release, of that between peers the
digests of files, too.
"""

# pyright: basic
from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np

from verticil.party.config import DatasetRule
from verticil.party.operator import commands
from verticil.party.site import Site
from verticil.shared.mechanisms.gaussian import ShareNoise, share_key
from verticil.simulation.peers import load_everywhere, standing, take_home

office = types.ModuleType("verticil.party.office")  # where it was before, and how it answered
office.status = lambda config: {"studies": commands.status(config).studies}  # type: ignore[attr-defined]
sys.modules["verticil.party.office"] = sys.modules["verticil.party"].office = office  # type: ignore[attr-defined]

from data.before import make as first  # noqa: E402
from data.before_2.make import shown  # noqa: E402

SCHEMA = 6
site = first.provisioning.Site


def as_before(*, name: str, table: Path, id_column: str) -> Any:
    """A site in the words of the program before."""
    return site(name=name, table=DatasetRule(path=table, format="csv", id=id_column))


setattr(first.provisioning, "Site", as_before)  # noqa: B010


def statistics(made: Any) -> dict[str, str]:
    """SHA-256 of what each party has charged of its own statistics."""
    found = {}
    for party, node in made.parties.items():
        query = "SELECT artifact_sha256 FROM ledger WHERE unit IS NULL ORDER BY number"
        with first.rows(node / "state" / "party.sqlite", query) as told:
            for (sha256,) in told:
                found[party] = sha256.hex()
    return found


def spent(made: Any) -> dict[str, Any]:
    """What the ledger of each party says was charged to its data set, and how many reservations stand."""
    found = {}
    for party, node in made.parties.items():
        with Site.open(first.load_party(node / "party.toml")) as site:
            cost = site.ledger.spent("people")
        with first.rows(node / "state" / "party.sqlite", "SELECT COUNT(*) FROM reserved") as told:
            found[party] = {"epsilon": cost.epsilon, "delta": cost.delta, "reserved": told[0][0]}
    return found


def files(release: Path) -> dict[str, str]:
    """SHA-256 of the files of a release that no clock and no signature is in."""
    kept = [release / "model.json", *sorted(release.glob("*.csv*"))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def peer(place: Path, out: Path) -> dict[str, Any]:
    """Stopped when one of the two has charged its parameters; then carried on."""
    place.mkdir(parents=True)
    nodes = first.Nodes(made := first.layout(place / "peer", peers=True))
    digest = load_everywhere(made.parties, made.analyst / "study.toml")
    nodes.start()
    nodes.approve()
    first.until(lambda: statistics(made))
    nodes.end(signal.SIGKILL)
    if set(statistics(made)) != {"clinic"}:
        print("stopped too late", file=sys.stderr)
        return peer(place / "again", out)
    stopped = {"ledger": first.charged(made), "spent": spent(made), "statistics": statistics(made)}
    first.pack(made.root, out / "peer.tar.xz", "tables", "analyst", *made.parties)
    nodes.start()
    first.until(lambda: standing(made.parties, digest).published)
    nodes.end(signal.SIGTERM)
    folders, _ = take_home(
        made.parties, digest, place / "releases", ca_certificate=(authority := made.ca_certificate.read_bytes())
    )
    release = folders["clinic"]
    first.pack(release.parent, out / "peer-release.tar.xz", "release")
    (out / "peer-ca.crt").write_bytes(authority)
    artifacts = {unit: sha256 for node in made.parties.values() for unit, sha256 in first.sent(node).items()}
    return {
        "digest": digest,
        "stopped": stopped,
        "artifacts": artifacts,
        "statistics": statistics(made),
        "files": files(release),
        "ledger": first.charged(made),
        "spent": spent(made),
        "ca_sha256": made.ca_sha256,
        "addresses": dict(made.peers),
    }


def noise() -> list[dict[str, Any]]:
    """The key of a share's noise and noisy tables of zeros, as the program draws them."""
    named = {
        "effective_digest": bytes(range(32)),
        "structure_sha256": bytes(32),
        "common_sha256": bytes([1]) * 32,
        "data_fingerprint": bytes([2]) * 32,
    }
    key = share_key(bytes(range(100, 132)), **named)
    found = []
    for epsilon, delta, tables, parts in ((2.0, 1e-6, 3, 1), (0.5, 1e-9, 40, 1), (8.0, 1e-5, 1, 6)):
        drawn = ShareNoise(key=key, epsilon=epsilon, delta=delta, n_tables=tables).add(
            b"cpt 1", np.zeros((3, 4)), parts
        )
        said = {"epsilon": epsilon, "delta": delta, "tables": tables, "parts": parts, "table": drawn.tolist()}
        found.append({"key": key.hex(), **said})
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["NUMBA_CACHE_DIR"] = f"{temporary}/cache"
        recorded = {"schema": SCHEMA, "noise": noise(), "central": first.central(Path(temporary), target)}
        recorded["peer"] = peer(Path(temporary) / "peers", target)
        for model in ("central", "peer"):
            recorded[model]["shown"] = shown(target / f"{model}.tar.xz", ["clinic", "insurer"])
        shutil.rmtree(f"{temporary}/cache", ignore_errors=True)
    (target / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
