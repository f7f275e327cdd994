"""Feature 11: whatever is durable is so at once or not at all. A federation that dies at every step publishes the same release.

The steps are found by running: every flush, renaming, removal and commit of every node goes through
`verticil.shared.storage.durable`, so a step that somebody adds is died at without a word here. `crashes.py` says how. The clock
stands still, so that a release that is the same is the same in every byte: manifest, receipts and signature too. With masked
tables it goes, and what has times in it is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("crashes.py")
MEASURED = ("central-measured", "masked-measured")
KINDS = ("central", "sub-model", "peer", "peer-learned", "peer-blinded", "masked", "related", *MEASURED)


def run(folder: Path, *options: str) -> dict[str, Any]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *options], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def check(found: dict[str, Any], *, moments: int, least: float = 0.9) -> None:
    chain = found["chain"]
    print(f"{found['steps']} steps at {len(found['sites'])} sites, {len(chain['deaths'])} deaths in one study")
    print(*chain["deaths"], sep="\n")
    assert len(found["sites"]) >= 30
    died_at = {(moment, site.rsplit(" #")[0]) for moment, site in (death.split(" ", 1) for death in chain["deaths"])}
    assert len(died_at) == len(chain["deaths"])
    # what a few runs take or leave by their timing is no more than that
    assert len({site for _, site in died_at} & set(found["sites"])) >= least * len(found["sites"])
    assert len(chain["deaths"]) >= least * moments * len(found["sites"])
    assert chain["digests"] == found["undisturbed"]


@pytest.mark.whole
@pytest.mark.timeout(900)  # as many processes as there are steps, one after the other
def test_feature_11_a_study_that_dies_after_every_kind_of_step_publishes_the_same(tmp_path: Path) -> None:
    check(run(tmp_path, "--kind", "central", "--moments", "after"), moments=1)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("disk", ["keeps", "forgets"])
@pytest.mark.parametrize("kind", KINDS)
def test_feature_11_before_and_after_and_on_a_disk_that_forgets(kind: str, disk: str, tmp_path: Path) -> None:
    # What a round writes once it does not write again when it dies right after: many of its folders are flushed with other names.
    least = 0.8 if kind.startswith("masked") else 0.9
    check(run(tmp_path, "--kind", kind, *(["--lossy"] if disk == "forgets" else [])), moments=2, least=least)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["central", "central-blinded", "peer", "peer-blinded", "masked", "related"])
def test_what_does_not_fit_into_memory_is_lost_with_the_process_and_made_again(kind: str, tmp_path: Path) -> None:
    """SIGKILL before and after each step with files that have no name: the same release and files, each column paid once."""
    found = run(tmp_path, "--kind", kind, "--spilled")
    chain = found["chain"]
    sites = {site for site in found["sites"] if site.startswith("outside ")}
    print(f"{len(sites)} sites, {len(chain['deaths'])} deaths in one study", *chain["deaths"], sep="\n")
    assert len(sites) >= 10
    assert len(chain["deaths"]) >= 2 * len(sites)
    assert chain["digests"] == found["undisturbed"]
    assert chain["ledgers"] == found["ledgers"]
    assert any(found["ledgers"].values())
    assert chain["files"] == found["files"]


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["central", "peer"])
def test_feature_11_each_step_by_itself(kind: str, tmp_path: Path) -> None:
    found = run(tmp_path, "--kind", kind, "--each", "1")
    each = found["each"]
    print(f"{found['steps']} steps, {each['deaths']} deaths in as many studies, {len(each['missed'])} not reached")
    assert each["deaths"] >= 0.8 * found["steps"]
    assert each["releases"] == [found["undisturbed"]]
