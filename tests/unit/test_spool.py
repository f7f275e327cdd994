"""Released bytes on the party's disk, and the site secret beside them."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from types import SimpleNamespace

import pytest

from verticil.party.protocol.randomization import OtherBytesError, Spool
from verticil.party.storage.secret import create_secret, read_secret, secret_id
from verticil.shared.core.errors import DataFault, Misuse


def test_bytes_are_named_by_their_digest_and_stored_once(tmp_path):
    spool = Spool(tmp_path / "spool")
    sha256 = spool.put([b"released"])
    assert sha256 == hashlib.sha256(b"released").digest()
    assert spool.path(sha256).read_bytes() == b"released"
    assert spool.put([b"rel", b"eased"], sha256=sha256) == sha256
    assert [*(tmp_path / "spool").iterdir()] == [spool.path(sha256)]
    assert spool.path(sha256).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


def test_feature_36_room_is_asked_for_before_anything_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=2**20 + 5000))
    spool = Spool(tmp_path / "spool")
    spool.ensure_room(5000)
    with pytest.raises(DataFault) as caught:
        spool.ensure_room(5001)
    assert caught.value.code == "DISK_FULL"
    assert "5001 bytes are to be sent, the disk has 5000 above the reserve of 1048576" in caught.value.message


def test_other_bytes_than_those_that_are_expected_are_not_stored(tmp_path):
    spool = Spool(tmp_path)
    with pytest.raises(OtherBytesError):
        spool.put([b"released"], sha256=hashlib.sha256(b"sent").digest())
    assert not [*tmp_path.iterdir()]


def test_a_damaged_file_is_noticed_and_written_again(tmp_path):
    spool = Spool(tmp_path)
    sha256 = spool.put([b"released"])
    spool.path(sha256).write_bytes(b"releasee")
    assert not spool.holds(sha256)
    spool.put([b"released"])
    assert spool.holds(sha256)


def test_what_a_killed_process_left_is_removed(tmp_path):
    spool = Spool(tmp_path)
    sha256 = spool.put([b"whole"])
    (tmp_path / ("0" * 64 + ".part")).write_bytes(b"half")
    again = Spool(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [sha256.hex()]
    assert again.holds(sha256)


def test_discarding_twice_is_discarding_once(tmp_path):
    spool = Spool(tmp_path)
    sha256 = spool.put([b"released"])
    spool.discard(sha256)
    spool.discard(sha256)
    assert not spool.holds(sha256)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_spool_as_it_was(tmp_path, monkeypatch, call):
    spool = Spool(tmp_path)
    first = spool.put([b"first"])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(DataFault) as caught:
            spool.put([b"second"])
    assert caught.value.code == "DISK_FULL"
    assert [path.name for path in tmp_path.iterdir()] == [first.hex()]
    assert spool.holds(spool.put([b"second"]))


def test_the_site_secret_is_random_private_and_never_overwritten(tmp_path):
    path = create_secret(tmp_path)
    secret = read_secret(tmp_path)
    assert (len(secret.value), secret.format) == (32, 2)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Misuse) as caught:
        create_secret(tmp_path)
    assert caught.value.code == "FILE_EXISTS"
    assert read_secret(tmp_path) == secret
    other = tmp_path / "other"
    other.mkdir()
    create_secret(other)
    assert read_secret(other) != secret
    assert secret_id(secret.value) != secret_id(read_secret(other).value)
    assert secret_id(secret.value) not in secret.value


def test_a_secret_keeps_the_format_of_its_tags_for_ever(tmp_path):
    """Absent is 1: of such a secret an upgrade changes no byte that is sent. One of a later version is refused, not guessed."""
    path = create_secret(tmp_path)
    digits = path.read_text().split()[0]
    assert path.read_text() == f"{digits}\nformat = 2\n"
    newer = read_secret(tmp_path)
    path.write_text(f"{digits}\n")
    older = read_secret(tmp_path)
    assert (older.format, older.tag_key, older.value) == (1, newer.value, newer.value)
    assert newer.tag_key != newer.value
    for said in ("format = 3", "format = 1\nformat = 2", "2"):
        path.write_text(f"{digits}\n{said}\n")
        with pytest.raises(DataFault, match="second line") as caught:
            read_secret(tmp_path)
        assert (caught.value.code, digits in str(caught.value)) == ("SECRET_MISSING", False)


def test_a_missing_open_or_broken_secret_is_an_error(tmp_path):
    with pytest.raises(DataFault, match="no site secret"):
        read_secret(tmp_path)
    path = create_secret(tmp_path)
    path.chmod(0o640)
    with pytest.raises(DataFault, match="mode 0640, expected 0600"):
        read_secret(tmp_path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(DataFault, match="expected 64 hexadecimal digits") as caught:
        read_secret(tmp_path)
    assert caught.value.code == "SECRET_MISSING"
    assert "short" not in str(caught.value)
