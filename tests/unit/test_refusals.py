"""Feature 7: refused calls are written down, whoever makes however many of them. Feature 29: and so are certificates."""

from __future__ import annotations

import asyncio
import datetime as dt
import resource
from pathlib import Path

import pytest

from verticil.miner.storage.audit import ANCHOR_NAME, LOG_NAME, MinerAudit
from verticil.party.audit.log import AuditLog, What
from verticil.party.storage.database import Database
from verticil.shared.core.errors import DataFault, GateFailed
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import Credentials
from verticil.shared.federation.refusals import MOST_KINDS, PERIOD_SECONDS, Refusals, RefusedLine, Tally, expiry_notice
from verticil.shared.federation.transport.authorization import RefusedCall

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)


def call(
    number: int = 0, *, code: str = "IDENTITY_REFUSED", method: str = "/verticil.wire.v1.Control/GetStudy"
) -> RefusedCall:
    return RefusedCall(
        caller=f"verticil://fed/party/p{number}", serial=f"{number:x}", method=method, code=code, message="m" * 5000
    )


def test_feature_07_a_flood_of_refusals_takes_a_bounded_number_of_lines() -> None:
    tally = Tally()
    written = 0
    for period in range(1, 4):
        for number in range(10_000):
            tally.add(call(number % 1000, code=("IDENTITY_REFUSED", "NOT_OWNER")[number % 2]))
            written += len(tally.due())
        assert written == period * MOST_KINDS + (period - 1) * (MOST_KINDS + 1)
        lines = tally.close()
        written += len(lines)
        assert len(lines) == MOST_KINDS + 1
        assert lines[0] == RefusedLine(who="verticil://fed/party/p0", detail="IDENTITY_REFUSED, serial 0: 9 more calls")
        assert lines[-1].detail.startswith(f"{10_000 - MOST_KINDS * 10} calls refused of more than {MOST_KINDS} kinds")
        assert all(len(line.detail) < 400 for line in lines)
    assert tally.close() == []


def test_feature_07_who_is_refused_once_is_never_hidden_by_one_who_floods() -> None:
    tally = Tally()
    for _ in range(100_000):
        tally.add(call(1))
    tally.add(call(2))
    assert [line.who[-2:] for line in tally.due()] == ["p1", "p2"]


async def test_feature_07_the_first_is_written_at_once_the_rest_when_the_period_or_the_node_ends() -> None:
    clock = [0.0]
    refusals = Refusals(monotonic=lambda: clock[0])
    lines: list[str] = []
    loop, heard = asyncio.get_running_loop(), asyncio.Event()

    def write(line: RefusedLine, at: dt.datetime) -> None:
        assert at == NOW
        lines.append(line.detail.partition(":")[2].strip()[:12])
        if lines[-1].startswith("mmm"):
            raise DataFault("DISK_FULL", "no room")  # is a warning: refusing goes on
        loop.call_soon_threadsafe(heard.set)

    task = asyncio.create_task(refusals.run(write, lambda: NOW))
    for _ in range(3):
        refusals(call())
    while not lines:
        await asyncio.sleep(0)
    assert lines == ["m" * 12]
    clock[0] = PERIOD_SECONDS
    refusals(call())
    await heard.wait()
    assert lines[1:] == ["3 more calls"]
    refusals(call())
    refusals(call())
    refusals.stop()
    await task
    assert lines[2:] == ["m" * 12, "1 more calls"]


def test_feature_07_the_miners_log_names_the_line_that_was_changed_and_misses_no_end(tmp_path: Path) -> None:
    log = MinerAudit(tmp_path)
    assert log.verify().n_lines == 0
    for number in range(4):
        log.record("refused", NOW, who=f"verticil://fed/party/p{number}", detail="IDENTITY_REFUSED")
    assert MinerAudit(tmp_path).verify().n_lines == 4
    path, whole = tmp_path / LOG_NAME, (tmp_path / LOG_NAME).read_bytes()
    assert (path.stat().st_mode & 0o777, (tmp_path / ANCHOR_NAME).stat().st_mode & 0o777) == (0o600, 0o600)
    for changed, words in (
        (whole.replace(b"party/p2", b"party/p7"), "line 3: it was changed"),
        (whole[: whole.rindex(b"\n", 0, -1) + 1], "line 4: it is missing; 4 lines had been written"),
    ):
        path.write_bytes(changed)
        with pytest.raises(GateFailed, match=words):
            MinerAudit(tmp_path).verify()
    path.write_bytes(whole + b'{"torn')
    log.record("refused", NOW, who="verticil://fed/party/p5", detail="NOT_OWNER")
    assert (log.verify().n_lines, log.verify().torn) == (6, (5,))
    (tmp_path / ANCHOR_NAME).write_bytes(b"{}")
    with pytest.raises(DataFault, match="not the head of an audit log"):
        MinerAudit(tmp_path).verify()


# --- feature 29: certificates ---


def credentials(name: str) -> Credentials:
    return Credentials(
        identity=Identity(federation="fed", role=Role.PARTY, name="clinic"),
        ca_pem=b"",
        chain_pem=name.encode(),
        key_pem=b"",
        not_after=NOW,
        is_demo=False,
        certificate=Path(f"{name}.crt"),
        key=Path("clinic.key"),
    )


def test_a_process_without_free_file_handles_calls_the_miners_log_undamaged(tmp_path: Path) -> None:
    log = MinerAudit(tmp_path)
    log.record("start", NOW, who="daemon", detail="")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(DataFault) as caught:
            log.record("refusal", NOW, who="north", detail="NOT_OWNER")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.code == "FILES_EXHAUSTED"
    log.record("refusal", NOW, who="north", detail="NOT_OWNER")
    assert [entry.text("event") for entry in log.entries()] == ["start", "refusal"]


def test_feature_29_each_warning_about_a_certificate_is_written_once(tmp_path: Path) -> None:
    """At a site and at the miner; a restart writes nothing anew, another certificate does."""
    miner = MinerAudit(tmp_path)
    with Database(tmp_path, create=True) as database:
        site = AuditLog(database, tmp_path / "site")
        site.path.parent.mkdir()
        for name in ("first", "second"):
            for hours in range(40 * 24, -2, -1):
                at = NOW - dt.timedelta(hours=hours)
                if (notice := expiry_notice(credentials(name), at)) is None:
                    continue
                site.note(What.CERTIFICATE_ENDS, notice.sha256, at, detail=notice.detail)
                miner = miner if hours % 100 else MinerAudit(tmp_path)  # started anew
                miner.note("certificate-ends", notice.sha256, at, detail=notice.detail)
        told = [str(entry["detail"]).partition(" (")[0] for entry in site.entries()]
        assert told == [line.text("detail").partition(" (")[0] for line in MinerAudit(tmp_path).entries()]
    ends = ["ends in 30 days", "ends in 7 days", "ends in 24 hours", "has expired"]
    assert told == [f"{name}.crt {words}" for name in ("first", "second") for words in ends]
