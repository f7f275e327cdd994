"""Feature 32 between real daemons in one process: two parties of three, the site's veto, and the one that comes too late.

The miner's clock passes the deadline when both approvals are on its disk, so nothing waits for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import sqlite3
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from verticil.cli.main import main
from verticil.miner.config import load_miner
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party.config import load_party
from verticil.party.daemon import run_party
from verticil.party.operator.pending_studies import show
from verticil.party.policy.ledger import Ledger
from verticil.party.site import Site
from verticil.party.storage.database import Database
from verticil.party.storage.studies import PartyState
from verticil.shared.core.errors import VerticilError
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.in_memory import InMemoryCoordinator
from verticil.shared.release.verification import verify_release
from verticil.shared.study.reading import read_study
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision

N = 60
STUDY = """schema = 1
id = "three"
title = "Three"
purpose = "test"
expires = 2099-12-31
party = [{parties}]
linkage = {{ minimum_common_records = 10 }}
variable = [
{variables}
]
randomization_default = {{ scheme = "symmetric", epsilon = 3.0 }}
structure = {{ method = "tree" }}
release = {{ synthetic_records = 50, seed = 7 }}
{quorum}
"""
COLUMNS = {
    "bank": '  { party = "bank", name = "credit", categories = ["no", "yes"] },',
    "clinic": '  { party = "clinic", name = "smoker", categories = ["no", "yes"] },',
    "insurer": '  { party = "insurer", name = "claims", categories = ["0", "1-2", "3+"] },',
}
VALUES = {"bank": ("no", "yes"), "clinic": ("no", "yes"), "insurer": ("0", "1-2", "3+")}
QUORUM = 'quorum = { deadline = "2h", min = 2 }'


def study_of(folder: Path, *parties: str, quorum: str = ""):
    path = folder / f"{'-'.join(parties)}.toml"
    path.write_text(
        STUDY.format(
            parties=", ".join(f'{{ name = "{name}" }}' for name in parties),
            variables="\n".join(COLUMNS[name] for name in parties),
            quorum=quorum,
        )
    )
    return read_study(path)


class Clock:
    """Now, until two approvals are in the miner's catalogue; then past the deadline."""

    def __init__(self, made: Provisioned) -> None:
        self._catalogue = load_miner(made.miner / "miner.toml").state_directory / "catalogue.sqlite"
        self._late = False
        self._start = dt.datetime.now(dt.UTC).replace(microsecond=0)

    def __call__(self) -> dt.datetime:
        if not self._late and self._catalogue.exists():
            with (
                contextlib.suppress(sqlite3.OperationalError),  # it is being made
                contextlib.closing(sqlite3.connect(f"file:{self._catalogue}?mode=ro", uri=True)) as database,
            ):
                self._late = database.execute("SELECT count(*) FROM approval").fetchone()[0] >= 2
        return self._start + dt.timedelta(hours=2) if self._late else self._start


@pytest.fixture
def made(tmp_path: Path) -> Provisioned:
    tables = tmp_path / "tables"
    tables.mkdir()
    for at, (name, values) in enumerate(VALUES.items()):
        column = COLUMNS[name].split('name = "')[1].split('"')[0]
        rows = "".join(f"p{i},{values[i % len(values)]}\n" for i in range(5 * at, N))
        (tables / f"{name}.csv").write_text(f"id,{column}\n{rows}")
    return provision(
        tmp_path / "federation",
        federation="three",
        sites=[csv_site(name, tables / f"{name}.csv") for name in VALUES],
        limits=OPEN_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
        seed=1,
    )


def without_bank(made: Provisioned) -> Provisioned:
    return dataclasses.replace(made, parties={name: made.parties[name] for name in ("clinic", "insurer")})


async def the_bank_comes(made: Provisioned, clock: Clock) -> str:
    """Let the bank's daemon hear of the study from a miner that was started anew; the stage that it shows."""
    config = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    bank = load_party(made.parties["bank"] / "party.toml")
    identity = load_credentials(bank.certificate, bank.key, bank.federation).identity
    node = MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(config.signing_key, config.certificate),
        executor=InlineLearning(clock=clock),
        limits=config.limits,
        randomized_days=30,
        clock=clock,
    )
    stop = asyncio.Event()

    def shown() -> str:
        with Database(bank.state_directory) as database:
            studies = PartyState(database).studies()
        return studies[-1].stage if studies else ""

    async with node, asyncio.timeout(PATIENCE_SECONDS):
        daemon = asyncio.create_task(
            run_party(bank, lambda: InMemoryCoordinator(node.coordinator, identity), stop=stop, clock=clock)
        )
        while not (await asyncio.to_thread(shown)).startswith("failed"):
            if daemon.done():
                daemon.result()
        stop.set()
        node.changes.close()
        await daemon
    return shown()


@pytest.mark.whole
async def test_feature_32_two_of_three_publish_what_a_study_of_two_publishes(
    made: Provisioned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, release = Clock(made), tmp_path / "release"
    proposal = study_of(tmp_path, "bank", "clinic", "insurer", quorum=QUORUM)
    two = without_bank(made)
    n_common = await run_federation(two, proposal, release, is_seeded=True, clock=clock)
    assert n_common == N - 10  # of clinic and insurer; the bank's people do not matter
    authority = made.ca_certificate.read_bytes()
    assert verify_release(release, ca_certificate=authority).parties_left_out == ("bank",)
    assert json.loads((release / "manifest.json").read_bytes())["receipts"]

    assert main(["release", "verify", str(release), "--ca", str(made.ca_certificate)]) == 0
    assert "a sub-model: the study went on without bank" in capsys.readouterr().out

    # The same people, secrets and columns without the bank in the study. Sticky noise: what differs can only be the sub-model.
    again = tmp_path / "of-two"
    await run_federation(two, study_of(tmp_path, "clinic", "insurer"), again, is_seeded=True, clock=clock)
    for name in ("synthetic.csv", "network.bif", "network.bifxml"):
        assert (release / name).read_bytes() == (again / name).read_bytes()

    for name in two.parties:
        config = load_party(two.parties[name] / "party.toml")
        with Site.open(config) as site:
            told = [entry["detail"] for entry in site.audit.entries() if entry["event"] == "sub-model"]
            charged = [row.charged for row in site.ledger.rows()]
        assert told == ["without party 'bank' (at the deadline it had not approved it)"]
        assert charged == [pytest.approx(3.0), 0.0]

    assert await the_bank_comes(made, clock) == "failed: PARTY_LEFT_OUT"
    bank = load_party(made.parties["bank"] / "party.toml")
    with Database(bank.state_directory) as database:
        assert Ledger(database).rows() == ()


async def test_feature_32_the_policy_of_a_site_ends_a_sub_model(made: Provisioned, tmp_path: Path) -> None:
    proposal = study_of(tmp_path, "bank", "clinic", "insurer", quorum=QUORUM)
    file = made.parties["clinic"] / "party.toml"
    text = file.read_text()
    assert "minimum_parties = 2\n" in text
    file.write_text(text.replace("minimum_parties = 2\n", "minimum_parties = 3\n"))
    with pytest.raises(VerticilError) as caught:
        await run_federation(without_bank(made), proposal, tmp_path / "release", is_seeded=True, clock=Clock(made))
    assert caught.value.code == "POLICY_REFUSED"
    assert "2 parties, expected at least 3" in caught.value.message
    clinic = load_party(file)
    with Database(clinic.state_directory) as database:
        assert Ledger(database).rows() == ()
    words = show(clinic, "three").quorum_words
    assert list(words) == [
        "quorum: 2 hours after it was submitted the study goes on without parties that are missing, with at least 2 of its"
        " 3 parties; to approve it is to approve every such sub-model",
        "may be missing, with their columns: 'bank' (credit), 'insurer' (claims); then the people in common are others, and"
        " more; this party's columns, their noise and who gets them stay as above",
        "this site's policy.minimum_parties = 3 ends a sub-model of fewer parties",
    ]
