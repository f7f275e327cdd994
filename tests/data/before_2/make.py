"""Make what this folder holds, with the program that is to be remembered: `PYTHONPATH=tests python -m data.before_2.make FOLDER`.

As `data/before/make.py`, one version later, and with what came since: a total that is divided among the columns, means of bins,
a pair without an arrow, noise on the parameters between peers. The federation between peers is stopped when a party has charged
its parameters. What `party ledger` says of every stopped state is written down, too.
"""

# pyright: basic
from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from data.before import make as first

from verticil.cli.main import main
from verticil.simulation.peers import load_everywhere, standing, take_home

SCHEMA = 5
first.CENTRAL = (
    first.CENTRAL.replace(
        "[randomization_default]\nscheme",
        '[allocate]\nrule = "equal-contrast"\ntotal_epsilon = 14.0\nmax_epsilon = 3.0\n\n[unused]\nscheme',
        1,
    )
    .replace('[unused]\nscheme = "symmetric"\nepsilon = 3.0\n\n', "", 1)
    .replace("bins = [0, 30, 45, 60, 75, 90]\n", "bins = [0, 30, 45, 60, 75, 90]\nmeans = [16, 37.5, 52, 67, 81]\n")
    .replace("[release]\n", '[release]\npairs = [["smoker", "ward"]]\n')
)
first.PEER = first.PEER.replace(
    "[share]\nminimum_count = 5\n", '[share]\nnoise = "gaussian"\nepsilon = 2.0\ndelta = 1e-6\n'
)


def shown(packed: Path, parties: list[str]) -> dict[str, Any]:
    """What `party ledger` says of each party in a packed federation."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(packed) as archive:
            archive.extractall(temporary, filter="data")
        for party in parties:
            for secret in (Path(temporary) / party).rglob("*"):
                if secret.is_file():
                    secret.chmod(0o600)
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                config = str(Path(temporary) / party / "party.toml")
                assert main(["party", "ledger", "--config", config, "--format", "json"]) == 0
            found[party] = json.loads(text.getvalue())
    return found


def peer(place: Path, out: Path) -> dict[str, Any]:
    """Stopped as soon as a party has charged its parameters; then carried on."""
    nodes = first.Nodes(made := first.layout(place / "peer", peers=True))
    digest = load_everywhere(made.parties, made.analyst / "study.toml")
    nodes.start()
    nodes.approve()

    def parameters() -> list[Any]:
        found = []
        for node in made.parties.values():
            with first.rows(node / "state" / "party.sqlite", "SELECT unit FROM ledger WHERE unit < 0") as told:
                found += told
        return found

    first.until(parameters)
    nodes.end(signal.SIGKILL)
    stopped = {"ledger": first.charged(made)}
    assert not standing(made.parties, digest).published, "stopped too late: run it again"
    first.pack(made.root, out / "peer.tar.xz", "tables", "analyst", *made.parties)
    nodes.start()
    first.until(lambda: standing(made.parties, digest).published)
    nodes.end(signal.SIGTERM)
    take_home(made.parties, digest, place / "releases", ca_certificate=made.ca_certificate.read_bytes())
    artifacts = {unit: sha256 for node in made.parties.values() for unit, sha256 in first.sent(node).items()}
    return {
        "digest": digest,
        "stopped": stopped,
        "artifacts": artifacts,
        "ledger": first.charged(made),
        "ca_sha256": made.ca_sha256,
        "addresses": dict(made.peers),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["NUMBA_CACHE_DIR"] = f"{temporary}/cache"
        recorded = {"schema": SCHEMA, "central": first.central(Path(temporary), target)}
        recorded["peer"] = peer(Path(temporary), target)
        for model in ("central", "peer"):
            recorded[model]["shown"] = shown(target / f"{model}.tar.xz", ["clinic", "insurer"])
        shutil.rmtree(f"{temporary}/cache", ignore_errors=True)
    (target / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
