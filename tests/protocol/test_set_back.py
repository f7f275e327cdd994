"""A site that is set back forgets nothing that was drawn, whatever the protocol: others prove it, and the ledger is mended.

Each cell is a real study of a real federation: the site's database is older than its log, both are older, or it comes from a
backup; the same with everybody away, then back; and with clocks that were hours ahead while the study was carried out.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
from dataclasses import dataclass

import pytest

import verticil.party.protocol.shipped.registrations  # noqa: F401  (the registry's entries)
from support.set_back import LOSSES, SetBack, charges, rows
from verticil.party.config import load_party
from verticil.party.operator.purging import purge
from verticil.party.protocol.node.registry import PROTOCOLS
from verticil.shared.core.errors import Refusal

TABLES = "[tables]\nepsilon = 3.0\ndelta = 1e-6\n"
GIVEN = '[structure]\nmethod = "given"\nparents = { insurer_x = ["clinic_x"] }\n'
SHARE = GIVEN + "[share]\nepsilon = 2.0\ndelta = 1e-6\n"
AHEAD = dt.timedelta(hours=6)
WAITS = "say what they have of this party"


@dataclass(frozen=True)
class Cell:
    """A study, and the kinds of events that its ledger holds."""

    model: str
    kinds: frozenset[str]
    more: str = ""
    ahead: dt.timedelta = dt.timedelta()
    numbers: bool = False


CELLS = {
    "central": Cell("central", frozenset({"randomized-column"})),
    "central with noisy tables": Cell("central", frozenset({"randomized-column", "noisy-tables"}), TABLES, AHEAD),
    "central with measured bins": Cell(
        "central", frozenset({"randomized-column", "layered-counts"}), TABLES, numbers=True
    ),
    "peer": Cell("peer", frozenset({"randomized-column", "exact-statistics"}), GIVEN),
    "peer with noise": Cell(
        "peer",
        frozenset({"randomized-column", "discrete-gaussian-counts"}),
        SHARE + 'noise = "discrete-gaussian"\n',
        AHEAD,
    ),
    "masked": Cell("masked", frozenset({"randomized-column", "masked-tables", "linkage"}), TABLES),
    "masked, clocks set back": Cell(
        "masked", frozenset({"randomized-column", "masked-tables", "linkage"}), TABLES, AHEAD
    ),
    "masked with measured bins": Cell(
        "masked", frozenset({"randomized-column", "masked-layers", "linkage"}), TABLES, numbers=True
    ),
}
QUICK = ("central", "peer", "masked")
MARKS = {"central": (), "peer": (), "masked": pytest.mark.whole}


@pytest.fixture(scope="module")
def federation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SetBack:
    cell = CELLS[request.param]
    made = SetBack(tmp_path_factory.mktemp("federation"), cell.model, cell.more, numbers=cell.numbers, ahead=cell.ahead)
    made.carry_out()
    assert {json.loads(row.drawn)["kind"] for row in made.before} == cell.kinds
    return made


each_cell = pytest.mark.parametrize(
    "federation", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in CELLS], indirect=True
)
of_masked = pytest.param("masked", marks=pytest.mark.whole)
between = pytest.mark.parametrize("federation", ["peer", of_masked], indirect=True)
masked = pytest.mark.parametrize("federation", ["masked"], indirect=True)


def test_each_kind_that_a_protocol_says_to_reconcile_has_a_cell() -> None:
    for name in PROTOCOLS.names:
        kinds = {kind for cell in CELLS.values() if cell.model == name for kind in cell.kinds}
        assert kinds == PROTOCOLS.named(name)().reconciler.evidence.keys(), name


@each_cell
@pytest.mark.parametrize("loss", LOSSES)
async def test_what_was_drawn_is_charged_again_in_full_and_once(federation: SetBack, loss: str) -> None:
    folder = federation.lose(loss)
    with pytest.raises(Refusal, match="LEDGER_OLDER"):
        async with federation.running(folder, accept_older=False) as running:
            await running.until(lambda: False)
    assert loss == "database" or rows(folder) == ()
    for _ in range(2):
        async with federation.running(folder, accept_older=True) as running:
            await running.until(lambda: charges(running.rows()) == charges(federation.before))
    async with federation.running(folder, accept_older=False) as running:  # and nothing more is missing
        await running.until(lambda: running.heard)
    assert len(rows(folder)) == len(federation.before)


@between
async def test_with_everybody_away_a_site_says_so_once_and_is_mended_when_they_are_back(
    federation: SetBack, caplog: pytest.LogCaptureFixture
) -> None:
    folder = federation.lose("restore")

    def lines() -> int:
        return sum(WAITS in record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.WARNING, logger="verticil"):
        async with federation.running(folder, accept_older=True, miner=False, peers=()) as running:
            await running.until(lambda: lines() and running.attempts >= 6)
            assert running.rows() == ()
            for name in federation.parties[1:]:
                running.start(name)
            await running.until(lambda: charges(running.rows()) == charges(federation.before))
    assert lines() == 1


@masked
@pytest.mark.parametrize("holder", ["miner", "insurer"])
async def test_one_holder_is_enough(federation: SetBack, holder: str) -> None:
    folder, peers = federation.lose("database and log"), [] if holder == "miner" else [holder]
    with pytest.raises(Refusal, match="LEDGER_OLDER"):
        async with federation.running(folder, accept_older=False, miner=holder == "miner", peers=peers) as running:
            await running.until(lambda: False)
    async with federation.running(folder, accept_older=True, miner=holder == "miner", peers=peers) as running:
        await running.until(lambda: charges(running.rows()) == charges(federation.before))


@masked
async def test_nothing_is_drawn_for_a_study_while_a_peer_of_it_has_not_said_what_it_has(federation: SetBack) -> None:
    folder = federation.lose("restore")
    async with federation.running(folder, accept_older=True, peers=["insurer"]) as running:
        await running.submit(federation.study("waits", 2.5))
        running.start_late("bank")
        await running.until(lambda: WAITS in running.stage("waits"))
        assert charges(running.rows()) <= charges(federation.before)
        running.let("bank")
        await running.until(lambda: any(row.study_id == "waits" for row in running.rows()))
        assert {row.study_id for row in running.rows()} == {"hearts", "waits"}


@masked
async def test_a_purge_keeps_what_peers_ask_for(federation: SetBack) -> None:
    for name in federation.parties[1:]:
        config = load_party(federation.made.parties[name] / "party.toml")
        for _ in range(2):
            purged = purge(config, study="hearts", older_than_days=None)
        assert purged.studies == ()
    folder = federation.lose("restore")
    async with federation.running(folder, accept_older=True, miner=False) as running:
        await running.until(lambda: charges(running.rows()) == charges(federation.before))


@pytest.mark.slow
@pytest.mark.parametrize("federation", QUICK, indirect=True)
async def test_a_site_that_is_set_back_twice_knows_both_studies(federation: SetBack) -> None:
    first = charges(federation.before)
    folder = federation.lose("database and log")
    async with federation.running(folder, accept_older=True) as running:
        await running.until(lambda: charges(running.rows()) == first)
    await asyncio.to_thread(federation.carry_out, "lungs", 2.0)
    both = charges(federation.before)
    assert both > first
    folder = federation.lose("database and log")
    async with federation.running(folder, accept_older=True) as running:
        await running.until(lambda: charges(running.rows()) == both)
