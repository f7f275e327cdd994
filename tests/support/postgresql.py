"""A PostgreSQL of Debian's packages on a port of this machine, with a folder and a password of its own, for tests `machine`."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

from support.ports import free_port

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "16MB",
    "lc_messages": "C",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSQL:
    """A running server; its superuser is `owner`."""

    port: int
    password: str

    def url(self, *, user: str = "owner", password: str | None = None) -> str:
        """The address of its only database."""
        word = "" if password == "" else f":{password or self.password}"
        return f"postgresql://{user}{word}@127.0.0.1:{self.port}/postgres"

    def run(self, *statements: str) -> list[tuple[object, ...]]:
        """The rows of the last statement, if it is a query; everything is committed."""
        with dbapi.connect(self.url(), autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def load(self, schema: str, table: str, rows: pa.Table) -> None:
        """Append rows to a table; every value as a text that the server reads."""
        columns = ", ".join(f'"{name}"' for name in rows.column_names)
        values = [
            "(" + ", ".join("NULL" if cell is None else f"'{cell}'" for cell in row) + ")"
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)
        ]
        self.run(f'INSERT INTO "{schema}"."{table}" ({columns}) VALUES {", ".join(values)}')


def _user() -> pwd.struct_passwd:
    """Whom the server runs as: it refuses to be root."""
    return pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())


@contextlib.contextmanager
def started() -> Iterator[PostgreSQL]:
    """Start a server, and stop it at the end."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        pytest.fail("PostgreSQL is not installed, see .ci/packages; .ci/run --core does without")
    folder = Path(tempfile.mkdtemp(prefix="verticil-postgresql-", dir="/tmp"))  # which another user may enter
    made = PostgreSQL(port=free_port(), password=secrets.token_hex(8))
    word = folder / "word"
    word.write_text(made.password)
    for path in (folder, word):
        os.chown(path, _user().pw_uid, -1)
    try:
        initdb = [found[-1] / "initdb", "-D", folder / "data", "-A", "scram-sha-256", "-U", "owner", f"--pwfile={word}"]
        more = ["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C"]
        other: dict[str, Any] = {"cwd": "/"}
        if os.getuid() == 0:
            other |= {"user": _user().pw_uid, "group": _user().pw_gid, "extra_groups": []}
        subprocess.run([*map(str, initdb), *more], check=True, capture_output=True, **other)
        settings = [text for key, value in _SETTINGS.items() for text in ("-c", f"{key}={value}")]
        command = [str(found[-1] / "postgres"), "-D", str(folder / "data"), "-p", str(made.port), *settings]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log, **other) as server:
            try:
                _await(made, server, folder / "log")
                yield made
            finally:
                server.send_signal(signal.SIGINT)  # it ends what clients do
                server.wait()
    finally:
        shutil.rmtree(folder)


def _await(made: PostgreSQL, server: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        try:
            made.run("SELECT 1")
        except dbapi.Error:
            assert server.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            return
