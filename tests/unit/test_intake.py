"""Intake: what is acknowledged is on the disk, whatever happens; a crash at any point and a repetition give the same result.

A crash is simulated by an exception out of the operating system's own calls (fsync, replace, unlink) at each of them in turn,
after which everything is closed and opened again; and once for real, with SIGKILL.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support import PATIENCE_SECONDS
from support.intake import ARTIFACTS, CODES, DIGEST, PSEUDONYMS, STUDY, N, Opened
from verticil.miner.storage import linkage
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.linkage import find_common, read_list
from verticil.miner.storage.records import StoredColumn
from verticil.miner.storage.store import Store, StudyFiles, write_durably
from verticil.shared.core.errors import DataFault, PeerFault, Refusal
from verticil.shared.storage import sorting
from verticil.shared.storage import unlinked_files as nameless


def run(opened: Opened) -> dict[int, StoredColumn]:
    opened.send_list()
    opened.align()
    return {unit: opened.send(unit) for unit in CODES}


def files_of(folder: Path) -> dict[str, bytes]:
    study = folder / "studies" / DIGEST.hex()
    return {str(path.relative_to(study)): path.read_bytes() for path in sorted(study.rglob("*")) if path.is_file()}


EXPECTED_FILES = {
    "pseudonyms/00.list": PSEUDONYMS,
    "columns/000.u8": CODES[0].tobytes(),
    "columns/001.u16": CODES[1].astype("<u2").tobytes(),
}


class Killed(BaseException):
    """The process is gone."""


def die_at(monkeypatch: pytest.MonkeyPatch, position: int) -> list[int]:
    """Make the operating system's calls of our modules end everything at the `position`-th of them.

    A process that dies loses nothing of what the operating system holds, so nothing is really synced here: that takes time.
    """
    count, real_fsync = [0], os.fsync

    def wrap(function):
        def call(*args, **options):
            count[0] += 1
            if count[0] == position:
                raise Killed
            return None if function is real_fsync else function(*args, **options)

        return call

    for name in ("fsync", "replace", "unlink", "ftruncate", "write"):
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return count


def test_a_crash_at_every_point_and_a_repetition_give_the_same_files_and_receipts(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        count = die_at(patch, -1)
        with Opened(tmp_path / "undisturbed", sync=False) as opened:
            expected = run(opened)
    assert files_of(tmp_path / "undisturbed") == EXPECTED_FILES
    assert count[0] > 30
    for position in range(1, count[0] + 1):
        folder = tmp_path / str(position)
        with monkeypatch.context() as patch:
            die_at(patch, position)
            with pytest.raises(Killed), Opened(folder, sync=False) as opened:
                run(opened)
        with monkeypatch.context() as patch:
            die_at(patch, -1)
            with Opened(folder, sync=False) as again:
                again.intake.remove_abandoned(DIGEST)
                assert run(again) == expected, position
                again.intake.remove_abandoned(DIGEST)
        assert files_of(folder) == EXPECTED_FILES, position


PROGRAM = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {tests!r})
from pathlib import Path
from support import intake as module
opened = module.Opened(Path({folder!r}))
opened.align()
begun = opened.begin(1)
data = module.ARTIFACTS[1]
offset = begun.committed
while offset < len(data):
    offset = opened.intake.append_upload(begun.upload_id, offset=offset, data=data[offset:offset + 7])
    print(offset, flush=True)
"""


def test_acknowledged_bytes_survive_sigkill(tmp_path):
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path / "state"))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(20)][-1]
    process.send_signal(signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    with Opened(tmp_path / "state") as opened:
        begun = opened.begin(1)
        assert begun.committed >= acknowledged
        staged = opened.store.study(DIGEST).staging(1).read_bytes()
        assert staged[: begun.committed] == ARTIFACTS[1][: begun.committed]
        assert opened.send(1).column_sha256 == hashlib.sha256(EXPECTED_FILES["columns/001.u16"]).digest()


def test_the_receipt_says_what_was_stored_and_stays_the_same(tmp_path):
    with Opened(tmp_path) as opened:
        opened.align()
        first = opened.send(0)
        assert opened.finish(first.upload_id, at="2027-01-01T00:00:00Z") == first
        assert opened.send(0, at="2027-01-01T00:00:00Z") == first
    assert json.loads(first.receipt.body) == {
        "artifact_sha256": hashlib.sha256(ARTIFACTS[0]).hexdigest(),
        "effective_digest": (b"e" * 32).hex(),
        "miner": "miner",
        "n_records": N,
        "party": "north",
        "proposal_digest": DIGEST.hex(),
        "received_at": "2026-11-21T10:00:00Z",
        "size": len(ARTIFACTS[0]),
        "unit": 0,
        "variables": ["v0"],
    }
    assert first.column_sha256 == hashlib.sha256(CODES[0].tobytes()).digest()


def test_offsets_and_sizes_are_kept(tmp_path):
    with Opened(tmp_path) as opened:
        opened.align()
        upload = opened.begin(0)
        opened.intake.append_upload(upload.upload_id, offset=0, data=ARTIFACTS[0][:100])
        for offset in (0, 99, 101):
            with pytest.raises(PeerFault, match=f"offset {offset}, expected offset 100") as caught:
                opened.intake.append_upload(upload.upload_id, offset=offset, data=b"x")
            assert caught.value.code == "OFFSET_MISMATCH"
        with pytest.raises(PeerFault, match="expected at most the announced") as caught:
            opened.intake.append_upload(upload.upload_id, offset=100, data=bytes(len(ARTIFACTS[0])))
        assert caught.value.code == "MESSAGE_INVALID"
        assert opened.begin(0).committed == 100
        # somebody deletes the staging file by hand: the upload starts over instead of never ending
        opened.store.study(DIGEST).staging(0).unlink()
        with pytest.raises(PeerFault, match="expected offset 0"):
            opened.intake.append_upload(upload.upload_id, offset=100, data=b"x")
        assert opened.send(0).n_records == N


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"VTC2" + data[4:],
        lambda data: data[:4] + bytes([data[4] + 1]) + data[5:],
        lambda data: data[:8] + (N - 1).to_bytes(8, "little") + data[16:],
        lambda data: data[:16] + b"\xff" * (len(data) - 16),
    ],
)
def test_an_artifact_that_is_not_one_is_forgotten(tmp_path, spoil):
    with Opened(tmp_path) as opened:
        opened.align()
        with pytest.raises(PeerFault) as caught:
            opened.send(0, spoil(ARTIFACTS[0]))
        assert caught.value.code == "ARTIFACT_INVALID"
        assert not opened.record.columns
        assert files_of(tmp_path) == {}
        assert opened.send(0).n_records == N


def test_a_changed_byte_is_found_by_the_digest(tmp_path):
    data = bytearray(ARTIFACTS[0])
    data[20] ^= 1
    with Opened(tmp_path) as opened:
        opened.align()
        upload = opened.begin(0)
        opened.intake.append_upload(upload.upload_id, offset=0, data=bytes(data))
        with pytest.raises(PeerFault, match="announced SHA-256"):
            opened.finish(upload.upload_id)
        with pytest.raises(PeerFault, match="no such upload"):
            opened.finish(upload.upload_id)


def test_another_list_replaces_one_in_transit_but_not_one_that_counts(tmp_path):
    other = PSEUDONYMS[16:]
    with Opened(tmp_path) as opened:
        opened.begin_list(other)
        sha256 = hashlib.sha256(other).digest()
        opened.intake.append_list(opened.arriving, sha256=sha256, offset=0, data=other[:4096])
        assert opened.begin_list(other).committed == 4096
        assert opened.begin_list().committed == 0
        with pytest.raises(PeerFault, match="offset"):  # a stream of the list that was replaced is still running
            opened.intake.append_list(opened.arriving, sha256=sha256, offset=0, data=other[:4096])
        opened.send_list()
        opened.intake.complete_list(opened.arriving)
        with pytest.raises(PeerFault, match="another list is stored already"):
            opened.begin_list(other)
        assert files_of(tmp_path) == {"pseudonyms/00.list": PSEUDONYMS}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "MESSAGE_INVALID"),
        (PSEUDONYMS[:-1], "MESSAGE_INVALID"),
        (PSEUDONYMS[: 16 * 9], "LINKAGE_TOO_SMALL"),
        (PSEUDONYMS[:16] * 10, "ARTIFACT_INVALID"),
        (PSEUDONYMS[1600:] + PSEUDONYMS[:1600], "ARTIFACT_INVALID"),
    ],
)
def test_lists_that_are_none_are_refused(tmp_path, data, code):
    with Opened(tmp_path) as opened:
        with pytest.raises((PeerFault, Refusal)) as caught:
            opened.send_list(data)
        assert caught.value.code == code
        assert files_of(tmp_path) == {}
        opened.send_list()


def test_quota_counts_promises_and_the_reserve_is_not_touched(tmp_path):
    column = N
    both = len(PSEUDONYMS) + len(ARTIFACTS[0]) + column + len(ARTIFACTS[1]) + 2 * column
    with Opened(tmp_path / "a", quota=both - 1) as opened:
        opened.send_list()
        opened.align()
        opened.begin(0)
        with pytest.raises(PeerFault, match=f"would take {both} bytes at the miner, expected at most {both - 1}"):
            opened.begin(1)
        opened.send(0)  # the artifact is gone, its column stays: now there is room
        opened.begin(1)
        opened.begin(1)
    with Opened(tmp_path / "b", reserve=10_000, free=10_000 + len(PSEUDONYMS) - 1) as opened:
        with pytest.raises(PeerFault) as caught:
            opened.send_list()
        assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert files_of(tmp_path / "b") == {}


def test_a_full_disk_is_told_and_harms_nothing(tmp_path, monkeypatch):
    with Opened(tmp_path) as opened:
        opened.align()
        upload = opened.begin(0)
        opened.intake.append_upload(upload.upload_id, offset=0, data=ARTIFACTS[0][:100])

        def no_space(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", no_space)
            with pytest.raises(DataFault) as caught:
                opened.intake.append_upload(upload.upload_id, offset=100, data=ARTIFACTS[0][100:])
        assert caught.value.code == "DISK_FULL"
        assert opened.begin(0).committed == 100
        assert opened.send(0).n_records == N


def test_a_whole_file_is_replaced_or_left_alone(tmp_path, monkeypatch):
    target = tmp_path / "file"
    write_durably(target, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(DataFault, match="file: no space left"):
            write_durably(target, b"new")
    assert target.read_bytes() == b"old"
    write_durably(target, b"new")
    assert target.read_bytes() == b"new"


def test_one_process_holds_a_state_directory(tmp_path):
    one = Store(tmp_path, max_bytes_per_study=1, disk_reserve_bytes=0)
    two = Store(tmp_path, max_bytes_per_study=1, disk_reserve_bytes=0)
    one.lock()
    with pytest.raises(DataFault) as caught:
        two.lock()
    assert caught.value.code == "STATE_LOCKED"
    one.unlock()
    two.lock()
    two.unlock()
    with pytest.raises(ValueError, match="32 bytes"):
        one.study(b"../../etc")


def test_nothing_is_taken_in_after_the_end_and_the_end_waits_for_what_is_being_written(tmp_path):
    """Files that are deleted at a study's end must not come back by a call that was let in before it."""
    with Opened(tmp_path) as opened:
        held = opened.begin_list()
        started, go_on = threading.Event(), threading.Event()

        class Slow(bytes):
            """Data that make the writer wait."""

            def __len__(self) -> int:
                started.set()
                assert go_on.wait(PATIENCE_SECONDS)
                return super().__len__()

        with ThreadPoolExecutor(2) as pool:
            append = functools.partial(opened.intake.append_list, opened.arriving, sha256=held.sha256)
            writing = pool.submit(append, offset=0, data=Slow(PSEUDONYMS[:4096]))
            assert started.wait(PATIENCE_SECONDS)
            ending = pool.submit(opened.intake.end, DIGEST)
            assert not writing.done()
            go_on.set()
            ending.result(PATIENCE_SECONDS)
            assert writing.done()
        opened.store.study(DIGEST).remove_linkage()
        for late in (
            lambda: append(offset=4096, data=PSEUDONYMS[4096:]),
            lambda: opened.intake.complete_list(opened.arriving),
            opened.begin_list,
        ):
            with pytest.raises(PeerFault, match="has ended"):
                late()
        assert files_of(tmp_path) == {}


def test_cleaning_up_at_the_start_leaves_an_upload_that_has_just_begun(tmp_path):
    with Opened(tmp_path) as opened:
        opened.align()
        begun = opened.begin(0)
        opened.intake.append_upload(begun.upload_id, offset=0, data=ARTIFACTS[0][:100])
        abandoned = opened.store.study(DIGEST).staging(1)
        abandoned.write_bytes(b"of an upload that was forgotten")
        opened.intake.remove_abandoned(DIGEST)
        assert not abandoned.exists()
        opened.intake.append_upload(begun.upload_id, offset=100, data=ARTIFACTS[0][100:])
        assert opened.finish(begun.upload_id).artifact_sha256 == hashlib.sha256(ARTIFACTS[0]).digest()


def test_a_full_disk_keeps_no_half_written_file(tmp_path):
    """A real disk fault: the limit on a file's size, which comes as an OSError in the middle of the writing."""
    script = (
        "import resource, signal, sys; from pathlib import Path; from verticil.miner.storage.store import write_durably\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    write_durably(Path(sys.argv[1]), bytes(5000))\n"
        "except Exception as error:\n    print(error.code)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "000.u8")], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "DISK_FULL"
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_the_miner_lost_are_not_the_partys_fault(tmp_path):
    """OFFSET_MISMATCH is tried again by a party; ARTIFACT_INVALID would end its study."""
    with Opened(tmp_path) as opened:
        opened.align()
        begun = opened.begin(0)
        opened.intake.append_upload(begun.upload_id, offset=0, data=ARTIFACTS[0])
        opened.store.study(DIGEST).staging(0).unlink()
        with pytest.raises(PeerFault) as caught:
            opened.finish(begun.upload_id)
        assert caught.value.code == "OFFSET_MISMATCH"
        assert opened.send(0).artifact_sha256 == hashlib.sha256(ARTIFACTS[0]).digest()


def test_an_alignment_is_recorded_once_and_only_when_it_is_large_enough(tmp_path):
    study = replace(STUDY, parties=("a", "b"))
    catalogue = Catalogue(tmp_path / "catalogue.sqlite")
    catalogue.add_study(DIGEST, study_id="s", proposal=b"{}", submitter="a", at="2026-11-21T10:00:00Z")
    files = StudyFiles(tmp_path / "study")
    files.prepare()
    names = [{b"%16d" % i for i in range(start, start + 20)} for start in (10, 15)]
    for position, items in enumerate(names):
        files.pseudonyms(position, complete=True).write_bytes(b"".join(sorted(items)))
    assert len(read_list(files.pseudonyms(0, complete=True))) == 20
    record = catalogue.study(DIGEST)
    assert record is not None
    find = functools.partial(find_common, files, catalogue, record, study, positions={"a": 0, "b": 1})
    assert find(minimum=16) == 15
    record = catalogue.study(DIGEST)
    assert record is not None
    assert record.n_common is None
    assert not files.bitmap(0).exists()
    for _ in range(2):
        assert find(minimum=15) == 15
        record = catalogue.study(DIGEST)
        assert record is not None
        assert (record.n_common, record.version) == (15, 2)
        size, sha256 = record.bitmaps["b"]
        assert (size, sha256) == (3, hashlib.sha256(files.bitmap(1).read_bytes()).digest())
    catalogue.close()


@pytest.mark.parametrize("noticed", ["before", "while it writes"])
@pytest.mark.machine
def test_tokens_for_which_the_disk_has_no_room(noticed, small_disk, monkeypatch):
    """The miner sorts them outside memory: with too little room it says so and records nothing; with room it goes on."""
    study = replace(STUDY, parties=("a", "b"), linkage=replace(STUDY.linkage, mode="dh-psi"))
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 256, (9000, 32), dtype=np.uint8)
    files = StudyFiles(small_disk.path / "study")
    files.prepare()
    for owner, some in enumerate((tokens[:6000], tokens[2000:])):
        path = files.blinded(owner, 1, complete=True)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(generator.permutation(some).tobytes())
    catalogue = Catalogue(small_disk.path / "catalogue.sqlite")
    catalogue.add_study(DIGEST, study_id="s", proposal=b"{}", submitter="a", at="2026-11-21T10:00:00Z")
    record = catalogue.study(DIGEST)
    find = functools.partial(find_common, files, catalogue, record, study, positions={"a": 0, "b": 1}, minimum=100)
    monkeypatch.setattr(linkage, "_TOKENS_IN_MEMORY", 500)
    monkeypatch.setattr(nameless, "RESERVE", 1 << 20)
    if noticed == "while it writes":
        monkeypatch.setattr(sorting, "check_room", lambda folder, n_bytes: None)
    before = {path for path in small_disk.path.rglob("*") if path.is_file()}
    for pages in (0, 70):  # 40 bytes a token, of two lists
        small_disk.fill(leave=pages * 4096 + (nameless.RESERVE if noticed == "before" else 0))
        with pytest.raises(DataFault) as caught:
            find()
        assert (caught.value.code, "sorted tokens" in caught.value.message) == ("DISK_FULL", True)
        assert caught.value.hint
        small_disk.free()
        assert {path for path in small_disk.path.rglob("*") if path.is_file()} == before
        assert catalogue.study(DIGEST).n_common is None
    assert find() == 4000
    found = catalogue.study(DIGEST)
    common = sorted(token.tobytes() for token in tokens[2000:6000])
    assert (found.n_common, found.common_sha256) == (4000, hashlib.sha256(b"".join(common)).digest())
    catalogue.close()
