"""A command typed as another user than the node's: it names both, and nobody is sent to a backup or to a new key."""

from __future__ import annotations

import errno
import os
import pwd
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from verticil.cli.machine_checks import check_private_files
from verticil.cli.main import _last_resort
from verticil.cli.output import Format, report
from verticil.miner.config import MinerConfig
from verticil.miner.page.task import page_address
from verticil.party.dataset.keyfile import read_key
from verticil.party.storage.secret import read_secret
from verticil.shared.core.errors import DataFault, PeerFault
from verticil.shared.core.health import judge
from verticil.shared.core.permissions import REFUSED, not_permitted
from verticil.shared.documents.config import toml_text
from verticil.shared.federation.identity.pki import read_private_file
from verticil.shared.storage.database import translate_sqlite_errors
from verticil.shared.storage.disk import read_only_fault

OWNER, OTHER = pwd.getpwuid(os.getuid()).pw_name, 54_321
WHOSE = f"it belongs to {OWNER}, and this command runs as user {OTHER}"


def sqlite_cannot_open(path: Path) -> None:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    with translate_sqlite_errors(path):
        raise error


def miner_of(state: Path) -> MinerConfig:
    return cast("MinerConfig", SimpleNamespace(state_directory=state, page=None))


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the site secret": ("site.secret", lambda path: read_secret(path.parent)),
    "the linkage key": ("linkage.key", read_key),
    "a private key": ("clinic.key", lambda path: read_private_file(path, what="private key")),
    "a configuration": ("party.toml", toml_text),
    "what the daemon says": ("health", lambda path: judge(path.parent)),
    "the page's address": ("page.url", lambda path: page_address(miner_of(path.parent))),
    "the database": ("party.sqlite", sqlite_cannot_open),
}


@pytest.fixture
def as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may read no file, and runs as another user than the one whom all files belong to."""

    def refuse(*_: object, **__: object) -> None:
        raise REFUSED

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.usefixtures("as_another")
def test_a_file_of_another_user_is_neither_lost_nor_damaged(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    path = tmp_path / file
    path.touch()
    with pytest.raises(DataFault) as caught:
        read(path)
    assert caught.value.code == "STATE_READ_ONLY"
    assert f"{path}: cannot be read (Permission denied): {WHOSE}" in caught.value.message
    assert caught.value.hint == f"run the command as {OWNER}; nothing is lost or damaged"


@pytest.mark.usefixtures("as_another")
def test_the_doctor_and_a_refusal_that_nobody_foresaw_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "clinic.key").touch(mode=0o600)
    (finding,) = check_private_files({"private key": path})
    tell = partial(report, form=Format.text)
    assert _last_resort(PermissionError(errno.EACCES, "Permission denied", str(path)), tell) == 1
    assert finding.code == "STATE_READ_ONLY"
    for said in (finding.detail, capsys.readouterr().err):
        assert WHOSE in said


def test_the_address_of_a_killed_daemon_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "page.url").write_text("http://127.0.0.1:8898/\n")
    assert page_address(miner_of(tmp_path)) == "http://127.0.0.1:8898/"
    (tmp_path / "health").write_text("verticil-health 1 another-boot 1 1 0 OK\nlistening\n\n")
    with pytest.raises(PeerFault, match="serves no page"):
        page_address(miner_of(tmp_path))


def test_what_this_user_may_read_or_would_make_is_another_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not_permitted(REFUSED, tmp_path / "new") is None
    assert "mounted for writing" in read_only_fault(tmp_path).hint
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert not_permitted(OSError(errno.EIO, "Input/output error"), tmp_path) is None
