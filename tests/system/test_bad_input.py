"""What bad input gets: a stable code, a message that says what, where, expected and got, a hint, the documented exit code.

Every case runs through the command line, or through gRPC between real processes. After each, nothing durable has changed, no
value or id of a table was said, and with mended input the same command works. The exit codes are those of the README: 1 data
and machine, 2 documents and command line, 3 policy, 4 expired, 5 network and identity, 6 a check that did not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import logging
import shutil
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.daemon import dial, run_party
from verticil.shared.config import load_federation
from verticil.shared.errors import CODES, VerticilError
from verticil.shared.transport.authority import create_authority, issue
from verticil.shared.transport.client import Connection
from verticil.shared.transport.identity import Role
from verticil.shared.transport.pki import Credentials, load_credentials
from verticil.shared.transport.remote import GrpcControl, GrpcCoordinator
from verticil.simulation.provision import OPEN_LIMITS, Site, provision, set_endpoint
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

CANARY_VALUE, CANARY_ID = "kanarienvogel-77", "canary-4711-id"
DATA = ("simulate", "party check")  # the commands that read tables; the others read documents only


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """How to break a desk (see `Desk`), with which commands to meet it, and what must come of it."""

    spoil: Callable[[Desk], None]
    code: str
    exit_code: int
    says: tuple[str, ...]
    hint: str
    commands: tuple[str, ...] = DATA


def edit(name: str, old: str, new: str, count: int = 1) -> Callable[[Desk], None]:
    """Change a document or a table of the desk."""

    def change(desk: Desk) -> None:
        text = desk.file(name).read_text()
        assert old in text
        desk.file(name).write_text(text.replace(old, new, count))

    return change


def append(name: str, line: str) -> Callable[[Desk], None]:
    return lambda desk: desk.file(name).write_text(desk.file(name).read_text() + line)


def shorten(name: str, lines: int) -> Callable[[Desk], None]:
    return lambda desk: desk.file(name).write_text(
        "\n".join(desk.file(name).read_text().splitlines()[:lines]) + "\n"
    )


def matrix(rows: str) -> Callable[[Desk], None]:
    table = f'[[randomization]]\nvariables = ["smoker"]\nscheme = "matrix"\nrows = {rows}\n\n[structure]'
    return edit("study.toml", "[structure]", table)


DOCUMENTS = ("simulate", "party check", "study check", "study submit")
CASES: dict[str, Case] = {
    "missing file: the table": Case(
        spoil=lambda desk: desk.file("clinic.csv").unlink(),
        code="DATA_FILE_MISSING", exit_code=1, says=("clinic.csv: no such file",), hint="path",
    ),
    "missing file: the study": Case(
        spoil=lambda desk: desk.file("study.toml").unlink(), commands=DOCUMENTS,
        code="FILE_MISSING", exit_code=2, says=("study.toml: no such file",), hint="existing TOML file",
    ),
    "missing file: the certificate": Case(
        spoil=lambda desk: (desk.clinic / "pki" / "clinic.crt").unlink(), commands=("party check",),
        code="FILE_MISSING", exit_code=2, says=("clinic.crt: cannot be read (No such file",), hint="certificate",
    ),
    "missing file: the linkage key": Case(
        spoil=lambda desk: (desk.clinic / "secrets" / "linkage.key").unlink(), commands=("party check",),
        code="SECRET_MISSING", exit_code=1, says=("linkage key", "linkage.key: no such file"), hint="never to the miner",
    ),
    "wrong delimiter": Case(
        spoil=edit("clinic.csv", ",", ";", -1),
        code="DATA_UNREADABLE", exit_code=1, hint='set delimiter = ";"',
        says=("clinic.csv: wrong delimiter", "with a comma none of 4 expected columns is found, with a semicolon 4"),
    ),
    "wrong delimiter: some rows": Case(
        spoil=append("clinic.csv", f"{CANARY_ID};no;40;{CANARY_VALUE};x\n"),
        code="DATA_UNREADABLE", exit_code=1, hint="quote fields",
        says=("clinic.csv: 1 rows have too many or too few fields", "row 591"),
    ),
    "absent column": Case(
        spoil=edit("clinic.csv", "smoker", "smokes"),
        code="DATA_COLUMN_MISSING", exit_code=1, hint="'smokes' for 'smoker'?",
        says=("clinic.csv: no column 'smoker'", "the table has 5 columns"),
    ),
    "absent column: the id": Case(
        spoil=edit("clinic.csv", "id,", "person,"),
        code="DATA_COLUMN_MISSING", exit_code=1, says=("clinic.csv: no column 'id'",), hint="source",
    ),
    "unseen category": Case(
        spoil=edit("clinic.csv", ",no,", f",{CANARY_VALUE},"),
        code="DATA_CATEGORY_UNSEEN", exit_code=1, hint="declare the category or `other`",
        says=("clinic.csv: of 589 rows", "without a declared category", "column 'smoker' 1"),
    ),
    "unseen category: outside the bins": Case(
        spoil=append("clinic.csv", f"{CANARY_ID},no,130,north,{CANARY_VALUE}\n"),
        code="DATA_VALUE_OUTSIDE", exit_code=1, hint='outside = "clamp"',
        says=("clinic.csv: of 590 rows, values outside the bins: column 'age' 1",),
    ),
    "duplicate ids": Case(
        spoil=append("clinic.csv", f"{CANARY_ID},no,40,north,x\n {CANARY_ID} ,no,40,north,x\n"),
        code="DATA_ID_DUPLICATE", exit_code=1, hint="one row for each person",
        says=("clinic.csv: column 'id': 1 of 591 rows repeat an id",),
    ),
    "too small an intersection: a short table": Case(
        spoil=shorten("clinic.csv", 50),
        code="LINKAGE_TOO_SMALL", exit_code=3, hint="nothing was sent",
        says=("study 'hearts'", "49 records, expected at least 100 in common"),
    ),
    "too small an intersection: other people": Case(
        spoil=edit("clinic.csv", "\np", "\nq", -1), commands=("simulate",),
        code="LINKAGE_TOO_SMALL", exit_code=3, hint="same linkage key",
        says=("fewer records in common than the required minimum of 100",),
    ),
    "singular matrix": Case(
        spoil=matrix("[[0.5, 0.5], [0.5, 0.5]]"), commands=DOCUMENTS,
        code="MATRIX_SINGULAR", exit_code=2, hint="keep more of the true value",
        says=("study.toml: randomization[1]: column 'smoker'", "condition number inf, expected below 1e+06"),
    ),
    "singular matrix: almost": Case(
        spoil=matrix("[[0.5, 0.5], [0.4999999, 0.5000001]]"), commands=DOCUMENTS,
        code="MATRIX_SINGULAR", exit_code=2, says=("column 'smoker'", "condition number 1e+07"), hint="keep more",
    ),
    "not a matrix of probabilities": Case(
        spoil=matrix("[[0.9, 0.2], [0.1, 0.9]]"), commands=DOCUMENTS,
        code="MATRIX_INVALID", exit_code=2, hint="a row holds the probabilities",
        says=("column 'smoker': matrix row 1 sums to 1.1, expected 1 within 1e-09",),
    ),
    "expired study": Case(
        spoil=edit("study.toml", "2099-12-31", "2020-12-31"), commands=("simulate", "party check", "study submit"),
        code="STUDY_EXPIRED", exit_code=4, says=("study 'hearts'", "2020-12-31"), hint="later day",
    ),
    "unknown party: a column of nobody": Case(
        spoil=edit("study.toml", 'party = "insurer"', 'party = "hospital"'), commands=DOCUMENTS,
        code="STUDY_INVALID", exit_code=2, hint="[[party]]",
        says=("study.toml: variable 'claims'", "'hospital' is not a [[party]]", "expected one of clinic, insurer"),
    ),
    "unknown party: not in the study": Case(
        spoil=edit("study.toml", '"clinic"', '"hospital"', -1), commands=("party check",),
        code="PARTY_UNKNOWN", exit_code=5, says=("'clinic'", "hospital, insurer"), hint="name",
    ),
    "unknown party: a table of nobody": Case(
        spoil=lambda desk: desk.tables.update(hospital=desk.tables["clinic"]), commands=("simulate",),
        code="USAGE", exit_code=2, says=("'hospital': no such party",), hint="clinic, insurer",
    ),
    "a party claims another's column": Case(
        spoil=lambda desk: append("clinic/party.toml", "")(desk) or desk.declare("claims"), commands=("party check",),
        code="CONFIG_INVALID", exit_code=2, says=("party.toml: randomization[1]", "'claims'"), hint="own",
    ),
    "expired certificate": Case(
        spoil=lambda desk: desk.certify("clinic", since=3), commands=("party check", "release fetch"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("clinic.crt: expired at",), hint="new certificate",
    ),
    "expired certificate: the analyst's": Case(
        spoil=lambda desk: desk.certify("analyst", since=3), commands=("study submit", "study list"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("analyst.crt: expired at",), hint="new certificate",
    ),
    "expired certificate: the miner's": Case(
        spoil=lambda desk: desk.certify("miner", since=3), commands=("miner run", "healthcheck"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("miner.crt: expired at",), hint="new certificate",
    ),
    "wrong CA: a certificate of another authority": Case(
        spoil=lambda desk: desk.certify("clinic", authority="other"), commands=("party check", "release fetch"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("clinic.crt: not issued by the federation's authority",),
        hint="same federation",
    ),
    "wrong CA: another authority's certificate": Case(
        spoil=lambda desk: shutil.copy(desk.root / "other" / "ca.crt", desk.clinic / "ca.crt") and None,
        commands=("party check", "release fetch"),
        code="CERTIFICATE_INVALID", exit_code=5, says=("ca.crt: SHA-256 is", "expected"), hint="fingerprint by telephone",
    ),
    "wrong CA: a whole other federation": Case(
        spoil=lambda desk: desk.move("clinic", authority="other"), commands=("release fetch",),
        code="TLS_REFUSED", exit_code=5, says=("127.0.0.1:", "its certificate does not hold"), hint="another authority",
    ),
    "another party's certificate": Case(
        spoil=lambda desk: desk.certify("clinic", name="insurer"), commands=("party check",),
        code="IDENTITY_REFUSED", exit_code=5, says=("name is 'insurer', expected 'clinic'",), hint="",
    ),
    "miner unreachable: nobody listens": Case(
        spoil=lambda desk: desk.point_to(free_port()), commands=("study submit", "study list", "release fetch"),
        code="UNREACHABLE", exit_code=5, says=("127.0.0.1:", "connection refused"), hint="is the miner running",
    ),
    "miner unreachable: something else listens": Case(
        spoil=lambda desk: desk.point_to(desk.other_port), commands=("study list", "release fetch"),
        code="TLS_REFUSED", exit_code=5, says=("127.0.0.1:", "the TLS handshake failed"), hint="is this the miner's port",
    ),
    "unknown study": Case(
        spoil=lambda desk: desk.names.update(study="harts"), commands=("study status", "release fetch"),
        code="STUDY_UNKNOWN", exit_code=2, says=("no study",), hint="",
    ),
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
