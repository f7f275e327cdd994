"""Feature 19, a tamper-evident audit log: every changed byte is found and its line named, and no kill leaves a log that lies."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import rfc8785

from verticil.party.audit.log import FILE_NAME, AuditLog, Event, What
from verticil.party.storage.database import Database
from verticil.shared.core.errors import DataFault, GateFailed
from verticil.shared.federation.audit import verify

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def event(number: int) -> Event:
    return Event(
        what=What.SEND,
        who="daemon",
        study=bytes([number]) * 32,
        study_id="hearts",
        columns=("smoker", "größe"),
        epsilon=float("inf") if number == 2 else 1.5,
        charged=0.0,
        size=800 + number,
        sha256=bytes(32),
        recipient="miner",
    )


@pytest.fixture
def log(tmp_path):
    with Database(tmp_path, create=True) as database:
        made = AuditLog(database, tmp_path)
        for number in range(4):
            made.record(event(number), NOW)
        yield made


def broken(log: AuditLog) -> str:
    with pytest.raises(GateFailed) as caught:
        log.verify()
    assert (caught.value.code, caught.value.exit_code) == ("AUDIT_BROKEN", 6)
    return caught.value.message


def test_feature_19_tamper_evident_audit(log: AuditLog) -> None:
    """Every single byte of the log, flipped: the line that it is in is named."""
    whole = log.verify()
    data = log.path.read_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x01
        line = data.count(b"\n", 0, position) + 1
        with pytest.raises(GateFailed, match=rf"^AUDIT_BROKEN: {FILE_NAME}: line {line}: "):
            verify(bytes(changed), anchor_number=whole.n_lines, anchor_hash=whole.head, name=FILE_NAME)
    log.path.write_bytes(data.replace(b'"bytes":802', b'"bytes":803'))
    assert broken(log) == f"{FILE_NAME}: line 3: it was changed: its hash is not that of its content"


def test_lines_are_json_that_says_who_what_and_to_whom(log: AuditLog) -> None:
    entries = list(log.entries())
    assert [entry["n"] for entry in entries] == [1, 2, 3, 4]
    assert entries[2] == {
        "n": 3,
        "at": "2026-11-21T10:00:00Z",
        "event": "send",
        "who": "daemon",
        "study": "02" * 32,
        "study_id": "hearts",
        "columns": ["smoker", "größe"],
        "epsilon": "infinite",
        "charged": 0,
        "bytes": 802,
        "sha256": "00" * 32,
        "recipient": "miner",
        "previous": entries[1]["hash"],
        "hash": entries[2]["hash"],
    }
    assert (log.path.stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize(
    ("order", "line"),
    [([0, 2, 3], 2), ([1, 2, 3], 1), ([0, 1, 1, 2, 3], 3), ([0, 2, 1, 3], 2), ([0, 1, 2], 4), ([], 1)],
    ids=["removed", "first removed", "repeated", "swapped", "end cut off", "emptied"],
)
def test_lines_that_are_moved_or_missing_are_found(log: AuditLog, order: list[int], line: int) -> None:
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[index] for index in order))
    assert broken(log).startswith(f"{FILE_NAME}: line {line}: ")


def test_a_history_that_was_written_anew_is_found(log: AuditLog, tmp_path: Path) -> None:
    """The chain has no secret, so anybody can make a whole one; the anchor in the database tells."""
    (tmp_path / "other").mkdir()
    with Database(tmp_path / "other", create=True) as database:
        forged = AuditLog(database, tmp_path / "other")
        for number in (0, 1, 9, 3, 4):
            forged.record(event(number), NOW)
        assert forged.verify().n_lines == 5
        log.path.write_bytes(forged.path.read_bytes())
    assert "line 4: another line had been written here" in broken(log)


@pytest.mark.parametrize("line", [1, 2, 4])
def test_a_previous_that_was_rewritten_with_its_lines_own_hash_is_found(log: AuditLog, line: int) -> None:
    """Every line holds by itself, also those behind it, and the anchor is not asked: only the chain can tell."""
    lines = [json.loads(text) for text in log.path.read_bytes().splitlines()]
    lines[line - 1]["previous"] = "07" * 32
    for number, entry in enumerate(lines[line - 1 :]):
        del entry["hash"]
        if number:
            entry["previous"] = lines[line + number - 2]["hash"]
        entry["hash"] = hashlib.sha256(rfc8785.dumps(entry)).hexdigest()
    data = b"".join(rfc8785.dumps(entry) + b"\n" for entry in lines)
    with pytest.raises(
        GateFailed, match=rf"^AUDIT_BROKEN: {FILE_NAME}: line {line}: it does not follow the line before"
    ):
        verify(data, anchor_number=0, anchor_hash=bytes(32), name=FILE_NAME)


def test_a_torn_last_line_is_cut_off_and_told(log: AuditLog) -> None:
    with log.path.open("ab") as file:
        file.write(b'{"at":"2026-11-2')
    assert (
        log.verify().unfinished_bytes == 16
    )  # as a killed process leaves it; nothing that was acknowledged is missing
    log.record(event(5), NOW)
    *_, torn, last = log.entries()
    assert (torn["event"], torn["bytes"], torn["n"]) == ("torn-line", 16, 5)
    assert (last["event"], last["n"]) == ("send", 6)
    found = log.verify()
    assert (found.torn, found.unfinished_bytes, found.n_lines) == ((5,), 0, 6)


def test_a_line_without_its_anchor_is_kept(log: AuditLog, tmp_path: Path) -> None:
    """Killed between the line and the commit: what was written stays, and the chain goes on from it."""
    with Database(tmp_path) as database:
        with contextlib.suppress(KeyboardInterrupt), database.transaction():
            AuditLog(database, tmp_path).record(event(7), NOW)
            written = log.path.read_bytes()
            raise KeyboardInterrupt
        assert log.verify().n_lines == 4  # a process that lives takes it back
        log.path.write_bytes(written)
        assert log.verify().n_lines == 5
        AuditLog(database, tmp_path).record(event(8), NOW)
    assert [entry["bytes"] for entry in log.entries()] == [800, 801, 802, 803, 807, 808]
    assert log.verify().n_lines == 6


def test_a_log_that_was_cut_goes_on_and_never_verifies_again(log: AuditLog) -> None:
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:2]))
    log.record(event(5), NOW)
    assert "line 3: it says that the log was found broken: 2 lines found; line 4 had been written" in broken(log)


def test_what_cannot_be_written_leaves_nothing(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    before = log.path.read_bytes()
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(DataFault) as caught:
            log.record(event(5), NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "DISK_FULL"
    assert log.path.read_bytes() == before
    assert log.verify().n_lines == 4


def test_a_change_of_certificate_is_written_down_once(log: AuditLog) -> None:
    for digest in (b"a" * 32, b"a" * 32, b"b" * 32):
        log.note(What.CERTIFICATE, digest, NOW)
    details = [entry["detail"] for entry in log.entries() if entry["event"] == "certificate"]
    assert details == ["first seen", f"took the place of {'61' * 32}"]


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from verticil.party.storage.database import Database
from verticil.party.audit.log import AuditLog, Event, What
folder = Path(sys.argv[1])
with Database(folder) as database:
    log = AuditLog(database, folder)
    print("ready", flush=True)
    for number in range(int(sys.argv[2])):
        log.record(Event(what=What.SEND, who=sys.argv[3], size=number), datetime.now(UTC))
        print(number, flush=True)
"""


def test_two_processes_write_one_chain_and_a_kill_loses_no_line(log: AuditLog, tmp_path: Path) -> None:
    def writer(count: int, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(count), name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    office, daemon = writer(15, "office"), writer(10**6, "daemon")
    assert daemon.stdout is not None
    for line in daemon.stdout:
        if line == "15\n":
            break
    os.kill(daemon.pid, signal.SIGKILL)
    told = [int(line) for line in daemon.stdout.read().split()]
    assert office.communicate()[0].split()[-1] == "14"
    daemon.wait()
    daemon.stdout.close()
    log.record(event(9), NOW)
    found = log.verify()
    written = [json.loads(line) for line in log.path.read_text(encoding="utf-8").splitlines()]
    daemons = [entry["bytes"] for entry in written if entry["who"] == "daemon" and entry["event"] == "send"][4:-1]
    assert daemons == list(range(len(daemons)))
    assert len(daemons) > max([15, *told])  # every line that was acknowledged is there
    assert [entry["bytes"] for entry in written if entry["who"] == "office"] == list(range(15))
    assert found.n_lines == len(written)


def test_lines_that_say_the_same_otherwise_or_count_otherwise_are_found(log: AuditLog) -> None:
    """A blank changes no content and no hash; a wrong number stands in a chain that holds; the anchor is not asked."""
    data = log.path.read_bytes()
    blank = data.replace(b"\n{", b"\n{ ", 1)
    with pytest.raises(GateFailed, match="line 2: it was changed: it is not the canonical JSON"):
        verify(blank, anchor_number=0, anchor_hash=bytes(32), name=FILE_NAME)
    lines = [json.loads(text) for text in data.splitlines()]
    lines[3]["n"] = 9
    del lines[3]["hash"]
    lines[3]["hash"] = hashlib.sha256(rfc8785.dumps(lines[3])).hexdigest()
    numbered = b"".join(rfc8785.dumps(entry) + b"\n" for entry in lines)
    with pytest.raises(GateFailed, match="line 4: its number is 9"):
        verify(numbered, anchor_number=0, anchor_hash=bytes(32), name=FILE_NAME)


def test_nothing_is_left_of_a_torn_line_that_is_longer_than_what_follows(log: AuditLog) -> None:
    with log.path.open("ab") as file:
        file.write(b'{"torn":"' + b"x" * 20_000)
    log.record(event(4), NOW)
    found = log.verify()
    assert (found.n_lines, found.torn, found.unfinished_bytes) == (6, (5,), 0)
