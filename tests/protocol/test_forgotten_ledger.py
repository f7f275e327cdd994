"""What the ledger charged is not forgotten with the state database: the audit log beside it tells, and nothing goes on before.

A study of each model is carried out on real folders and databases; then a party's database is lost in every way that a disk, a
person or a restore can lose it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import os
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.operator.backup import backup, is_just_restored
from verticil.party.operator.commands import init_party
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.protocol.randomization import enter_in_ledger
from verticil.party.site import Site
from verticil.party.storage.database import Database
from verticil.party.storage.studies import Artifact
from verticil.shared.core.errors import Refusal
from verticil.shared.privacy.events import ExactStatistics, RandomizedColumn
from verticil.shared.storage import durable
from verticil.shared.study.reading import read_study
from verticil.simulation.in_memory_peers import run_peers
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision

NOW = dt.datetime(2026, 11, 22, 10, 0, tzinfo=dt.UTC)
STUDY = """schema = 1
id = "{id}"
title = "Hearts"
purpose = "test"
model = "{model}"
expires = 2099-12-31
party = [{{ name = "clinic" }}, {{ name = "insurer" }}]
linkage = {{ minimum_common_records = 10 }}
variable = [
  {{ party = "clinic", name = "smoker", categories = ["no", "yes"] }},
  {{ party = "clinic", name = "sex", categories = ["f", "m"] }},
  {{ party = "insurer", name = "claims", categories = ["0", "1-2", "3+"] }},
]
randomization_default = {{ scheme = "symmetric", epsilon = 3.0 }}
structure = {{ method = "given", parents = {{ claims = ["smoker", "sex"] }} }}
release = {{ synthetic_records = 50, seed = 7 }}
"""


class Spent:
    """A federation in which a study was carried out."""

    def __init__(self, root: Path, model: str) -> None:
        tables = root / "tables"
        tables.mkdir(parents=True)
        clinic = "".join(f"p{i},{('no', 'yes')[i % 2]},{'fm'[i % 3 == 0]}\n" for i in range(60))
        (tables / "clinic.csv").write_text("id,smoker,sex\n" + clinic)
        (tables / "insurer.csv").write_text(
            "id,claims\n" + "".join(f"p{i},{('0', '1-2', '3+')[i % 3]}\n" for i in range(60))
        )
        self.model, self.root = model, root
        self.made: Provisioned = provision(
            root / "nodes",
            federation="trial",
            sites=[csv_site(name, tables / f"{name}.csv") for name in ("clinic", "insurer")],
            limits=OPEN_LIMITS,
            endpoint="localhost:1" if model == "central" else None,
            listen="127.0.0.1:0",
            hosts=("localhost",),
            seed=1,
            peers={"clinic": "localhost:2", "insurer": "localhost:3"} if model == "peer" else None,
        )
        self.state = self.made.parties["clinic"] / "state"
        self.toml = str(self.made.parties["clinic"] / "party.toml")
        self.kept = root / "kept"

    def carry_out(self, study_id: str) -> None:
        path = self.root / f"{study_id}.toml"
        path.write_text(STUDY.format(id=study_id, model=self.model))
        run: Any = run_peers if self.model == "peer" else run_federation
        asyncio.run(run(self.made, read_study(path), self.root / f"release-{study_id}", is_seeded=True))

    def rows(self) -> tuple[LedgerRow, ...]:
        with Site.open(load_party(Path(self.toml))) as site:
            return site.ledger.rows()

    def spent(self) -> float:
        return float(sum(row.charged for row in self.rows() if row.charged < float("inf")))

    def accept(self) -> None:
        Site.open(load_party(Path(self.toml)), accept_older=True).database.close()

    def again(self) -> None:
        """Everything as it was after the study."""
        shutil.rmtree(self.state)
        shutil.copytree(self.kept, self.state)


@pytest.fixture(scope="module", params=["central", "peer"])
def carried_out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spent:
    made = Spent(tmp_path_factory.mktemp(request.param), request.param)
    shutil.copytree(made.state, made.root / "new")
    made.carry_out("hearts")
    shutil.copytree(made.state, made.kept)
    return made


@pytest.fixture
def spent(carried_out: Spent) -> Spent:
    carried_out.again()
    return carried_out


def without_database(state: Path) -> None:
    for path in state.glob("party.sqlite*"):
        path.unlink()


def missing(spent: Spent) -> None:
    without_database(spent.state)


def of_zero_length(spent: Spent) -> None:
    without_database(spent.state)
    (spent.state / "party.sqlite").touch()


def new(spent: Spent) -> None:
    without_database(spent.state)
    Database(spent.state, create=True).close()


def of_before(spent: Spent) -> None:
    without_database(spent.state)
    shutil.copyfile(spent.root / "new" / "party.sqlite", spent.state / "party.sqlite")


def without_its_last_pages(spent: Spent) -> None:
    """As an older copy, or without a write-ahead log: rows and all that came after are gone."""
    with Database(spent.state) as database:
        database.write("DROP TRIGGER ledger_stays")
        database.write("DELETE FROM ledger WHERE number > 1")
        log = (spent.state / "audit.jsonl").read_bytes().splitlines(keepends=True)
        (first, *_) = (i for i, line in enumerate(log) if json.loads(line)["event"] in {"send", "shared"})
        head = (first + 1, bytes.fromhex(json.loads(log[first])["hash"]), sum(map(len, log[: first + 1])))
        database.write("UPDATE audit_anchor SET number = ?, hash = ?, size = ?", head)


LOSSES: list[Callable[[Spent], None]] = [missing, of_zero_length, new, of_before, without_its_last_pages]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_database_that_forgot_what_the_audit_log_tells_is_older_for_every_command(
    spent: Spent, lose: Callable[[Spent], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = spent.spent()
    assert before >= 6.0 if spent.model == "central" else spent.rows()
    lose(spent)
    commands = (
        ["party", "ledger"],
        ["party", "status"],
        ["party", "run"],
        ["party", "approve", "hearts", "--as", "clinic-approver"],
        ["party", "audit", "verify"],
        ["party", "inbox"],
        ["healthcheck"],
    )
    for command in commands if lose is missing else commands[:2]:
        assert main([*command, "--config", spent.toml, "--format", "json"]) == 3, command
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["code"] == "LEDGER_OLDER", command
    assert main(["doctor", spent.toml, "--format", "json"]) == 3
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["level"] for check in checks if check["check"] == "state"] == ["fail"]
    with pytest.raises(Refusal, match="LEDGER_OLDER") as refused:
        Site.look(load_party(Path(spent.toml)))
    hint = refused.value.hint
    assert hint.index("backup") < hint.index("--accept-older")


@pytest.mark.parametrize("lose", LOSSES)
def test_accept_older_charges_what_the_audit_log_tells_once_and_the_same_values_stay_free(
    spent: Spent, lose: Callable[[Spent], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = spent.rows()
    lose(spent)
    spent.accept()
    spent.accept()  # once more changes nothing

    def told(rows: tuple[LedgerRow, ...]) -> set[tuple[Any, ...]]:
        return {
            (
                row.study_digest,
                row.variables,
                row.dataset,
                row.epsilon,
                row.charged,
                row.recipient,
                row.artifact_sha256,
                row.at,
            )
            for row in rows
        }

    assert told(spent.rows()) == told(before)
    assert main(["party", "audit", "verify", "--config", spent.toml]) == 0
    assert [line["event"] for line in lines(spent)].count("ledger-mended") == 1
    capsys.readouterr()


def lines(spent: Spent) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (spent.state / "audit.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "carried_out", ["central"], indirect=True
)  # between peers another study's parameters are other values
def test_what_was_read_back_costs_nothing_when_it_is_sent_again(spent: Spent) -> None:
    total = spent.spent()
    missing(spent)
    spent.accept()
    spent.carry_out("again")
    assert spent.spent() == total > 0


def forked(work: Callable[[], object], *, dies_at: int) -> bool:
    """Do the work in a process that dies at its nth durable step; whether it lived."""
    child = os.fork()
    if child == 0:
        left = [dies_at]

        def die(step: durable.DurableStep) -> None:
            left[0] -= 1
            if left[0] == 0:
                os._exit(86)

        try:
            with durable.watch_steps(die):
                work()
        except BaseException:  # noqa: BLE001 (whatever it is, this process ends here)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, 86}
    return status == 0


@pytest.mark.parametrize("lose", [missing, without_its_last_pages])
def test_accept_older_that_is_killed_at_any_durable_step_charges_all_of_it_once(
    spent: Spent, lose: Callable[[Spent], None]
) -> None:
    before, deaths = len(spent.rows()), 0
    while True:
        spent.again()
        lose(spent)
        lived = forked(spent.accept, dies_at=deaths + 1)
        if not lived:
            with contextlib.suppress(Refusal):  # older still, or whole
                assert len(spent.rows()) == before
        spent.accept()
        assert len(spent.rows()) == before
        if lived:
            break
        deaths += 1
    assert deaths >= 3


def send(spent: Spent, sha256: bytes = bytes(32)) -> float:
    """A column that was never sent before, up to the moment before its bytes leave; what it is charged."""
    with Site.open(load_party(Path(spent.toml))) as site:
        (record,) = site.state.studies()
        release = ColumnDraw(
            variables=("smoker",),
            dataset="people",
            sources=("smoker",),
            codebook_digest=sha256,
            transition_digest=bytes(32),
            secret_id=bytes(16),
            fingerprint=bytes(31) + b"f",
            event=RandomizedColumn(epsilon=1.5),
        )
        item = Artifact(
            unit=0,
            effective_digest=record.task.effective_digest,
            sha256=sha256,
            size=60,
            facts=release.to_json(),
            version_tag=b"",
        )
        before = site.ledger.sum_charges("people").epsilon
        enter_in_ledger(site, record, item, "analyst", NOW)
        return site.ledger.sum_charges("people").epsilon - before


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40] ^= 1  # in the first page: all that follows is void
    path.write_bytes(data)


@pytest.mark.parametrize(
    "harm",
    [
        lambda state: (state / "party.sqlite-wal").unlink(),
        lambda state: flipped(state / "party.sqlite-wal"),
        lambda state: (state / "party.sqlite").unlink(),  # its log stays
    ],
)
def test_a_lost_or_flipped_write_ahead_log_is_an_older_state(spent: Spent, harm: Callable[[Path], None]) -> None:
    total = spent.spent()

    def sends_and_dies() -> None:
        held = Database(spent.state)  # so that nobody writes the log back into the database
        for number in range(2):
            send(spent, bytes([number]) * 32)
        held.changed()
        os._exit(0)

    assert forked(sends_and_dies, dies_at=0)
    assert (spent.state / "party.sqlite-wal").stat().st_size > 0
    harm(spent.state)
    with pytest.raises(Refusal, match="LEDGER_OLDER"):
        spent.rows()
    spent.accept()
    assert spent.spent() == total + 3.0


def test_a_process_killed_between_the_line_and_the_row_is_no_older_state_and_its_row_is_written(spent: Spent) -> None:
    before, total, died, written = len(spent.rows()), spent.spent(), 0, list[int]()
    while not forked(lambda: send(spent), dies_at=died + 1):
        died += 1
        if len(spent.rows()) > before:  # opened, and nobody is asked
            written.append(died)
        assert spent.spent() == total + 1.5 * (died in written)
        with Site.open(load_party(Path(spent.toml))) as site:
            assert site.audit.verify().n_lines == len(lines(spent))
        spent.again()
    assert 0 < len(written) <= died
    spent.again()
    for number in range(1, 4):  # one after the other, each in its own transaction
        assert not forked(lambda number=number: send(spent, bytes([number]) * 32), dies_at=written[0])
        assert spent.spent() == total + 1.5 * number
    spent.again()
    assert not forked(lambda: send(spent), dies_at=written[0])
    assert send(spent) == 0.0  # what the killed process had charged is not charged again
    assert spent.spent() == total + 1.5


def test_a_damaged_log_still_gives_every_charge_that_can_be_read(
    spent: Spent, capsys: pytest.CaptureFixture[str]
) -> None:
    log = spent.state / "audit.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"n":2', b'"n":7', 1))
    before = {(row.variables, row.charged) for row in spent.rows()}
    missing(spent)
    spent.accept()
    assert {(row.variables, row.charged) for row in spent.rows()} == before
    (mended,) = [line for line in lines(spent) if line["event"] == "ledger-mended"]
    assert "does not hold: audit.jsonl: line 2: it was changed" in mended["detail"]
    assert main(["party", "audit", "verify", "--config", spent.toml]) == 6
    capsys.readouterr()


@pytest.mark.whole
def test_an_old_backup_and_the_log_of_the_lost_state_give_the_whole_ledger(
    carried_out: Spent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spent, words = carried_out, "nine people in a garden"
    clinic = spent.made.parties["clinic"]
    spent.again()
    before = spent.rows()
    shutil.rmtree(spent.state)
    shutil.copytree(spent.root / "new", spent.state)
    backup(load_party(clinic / "party.toml"), tmp_path / "old", words)
    spent.again()
    missing(spent)
    (tmp_path / "words").write_text(words)
    command = ["party", "restore", str(tmp_path / "old"), "--passphrase-file", str(tmp_path / "words")]
    log = spent.state / "audit.jsonl"
    again = clinic.with_name("clinic-again")
    assert main([*command, "--dir", str(again), "--audit-log", str(log)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("which charges what they prove" in said) == (spent.model == "peer")
    with Site.open(load_party(again / "party.toml")) as site:
        assert [dataclasses.replace(row, number=0) for row in site.ledger.rows()] == [
            dataclasses.replace(row, number=0) for row in before
        ]
        site.audit.verify()
        assert is_just_restored(site.config, site.database)
    log.write_bytes(log.read_bytes()[5:])
    backup(load_party(again / "party.toml"), tmp_path / "newer", words)
    command[2] = str(tmp_path / "newer")
    assert main([*command, "--dir", str(tmp_path / "none"), "--audit-log", str(log)]) == 6
    assert "does not begin with the lines" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    shutil.rmtree(again)


def test_lines_whose_row_cannot_be_read_are_charged_to_every_data_set_that_they_can_be_of(spent: Spent) -> None:
    charged = spent.spent()
    rows = spent.rows()
    made, previous = b"", "0" * 64
    for line in lines(spent):
        line.pop("ledger", None)
        del line["hash"]
        line["previous"] = previous
        previous = hashlib.sha256(rfc8785.dumps(line)).hexdigest()
        made += rfc8785.dumps({**line, "hash": previous}) + b"\n"
    (spent.state / "audit.jsonl").write_bytes(made)
    missing(spent)
    config = load_party(Path(spent.toml))
    config = dataclasses.replace(config, datasets={**config.datasets, "other": config.datasets["people"]})
    with Site.open(config, accept_older=True) as site:
        assert site.ledger.sum_charges("people").epsilon == site.ledger.sum_charges("other").epsilon == charged
        (digest,) = {bytes.fromhex(row.study_digest) for row in rows}
        columns = {row.variables for row in rows} - {("smoker", "sex")}
        assert site.ledger.columns_sent(digest) == columns  # what the miner tells to have of them is known
        assert site.audit.verify().n_lines == len(lines(spent))
        is_shared = any(line["event"] == "shared" for line in lines(spent))
        assert any(isinstance(row.event, ExactStatistics) for row in site.ledger.rows()) is is_shared


@pytest.mark.whole
def test_init_makes_no_database_beside_traces_of_one_and_finishes_one_that_was_broken_off(
    spent: Spent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def init(folder: Path) -> tuple[int, str]:
        code = main(["party", "init", "--name", "clinic", "--dir", str(folder), "--format", "json"])
        said = json.loads(capsys.readouterr().out)
        return code, said.get("error", {}).get("code", "")

    clinic = spent.made.parties["clinic"]
    assert init(clinic) == (2, "FILE_EXISTS")
    for lose in (missing, of_zero_length):
        spent.again()
        lose(spent)
        found = {path.name for path in spent.state.iterdir()}
        assert init(clinic) == (3, "LEDGER_OLDER")
        assert {path.name for path in spent.state.iterdir()} == found
    missing(spent)
    (spent.state / "audit.jsonl").unlink()  # nothing tells any more, and still it is no new site
    assert init(clinic) == (1, "STATE_CORRUPT")
    assert not (spent.state / "party.sqlite").exists()
    spent.again()
    (spent.state / "site.secret").unlink()
    assert init(clinic)[1] == "SECRET_MISSING"

    deaths, secrets = 0, set[bytes]()
    while True:
        folder = tmp_path / f"new-{deaths}"
        lived = forked(lambda folder=folder: init_party(folder, name="clinic"), dies_at=deaths + 1)
        secret = folder / "state" / "site.secret"
        held = secret.read_bytes() if secret.exists() else b""
        if lived:
            break
        code = init(folder)
        assert code in {(0, ""), (2, "FILE_EXISTS")}
        assert not held or secret.read_bytes() == held
        secrets.add(secret.read_bytes())
        assert (folder / "party.toml").exists()
        Database(folder / "state").close()
        deaths += 1
    assert deaths >= 3
    (
        tmp_path / "new-0" / "state" / "party.sqlite"
    ).unlink()  # a secret alone: broken off, whatever else was written by hand
    assert init(tmp_path / "new-0") == (0, "")
    Database(tmp_path / "new-0" / "state").close()
