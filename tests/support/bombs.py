"""Small files that would fill the memory, one of each format, and what reads them: see tests/unit/test_bombs.py.

`serve` reads one name and one path a line, and has a child of its own read the file: so the peak of memory is its own, over what
a process with the project's modules has already.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import json
import lzma
import os
import resource
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import ipc, parquet

from verticil.cli.main import main
from verticil.party.dataset.sources import opening
from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.operator.backup import LONGEST_LINE_BYTES, _Reader
from verticil.party.operator.limits import LIMITS_BYTES, read_limits
from verticil.pki.request import REQUEST_BYTES, read_request
from verticil.shared.core.errors import VerticilError, from_code
from verticil.shared.documents.config import load_federation, read_toml
from verticil.shared.documents.foreign_files import limits
from verticil.shared.federation.airgap.bundle import STATEMENT_BYTES, read_statement
from verticil.shared.federation.identity.pki import read_certificates
from verticil.shared.numerics.knowledge import turtle
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.formats.posterior import read_networks
from verticil.shared.release.verification import verify_release_with
from verticil.shared.synthesis.record_checks import read_records
from verticil.tables.texts import MAX_CELLS, MAX_ROWS

MIB: Final = 1 << 20
HUGE: Final = 1 << 30
"""Far above every limit, and what a machine survives where a limit is taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A reader and its bomb.

    Attributes:
        limit: what the reader takes, in words with its number.
        make: writes the file into a folder.
        read: reads it; raises what the reader raises.
        code: of the error; empty: the file is read, with little memory.
        says: words of the message.
        most_mib: most MiB that reading takes.
    """

    limit: str
    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    code: str
    says: str = ""
    most_mib: int = 64


def sparse(path: Path, size: int = HUGE, head: bytes = b"", tail: bytes = b"") -> Path:
    """Write a file with a hole, so that it has a size and takes no disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
        file.seek(0, 2)
        file.write(tail)
    return path


def many_values(folder: Path) -> Path:
    """Write a document of 51 MB whose values would take 1.3 GB."""
    path = folder / "model.json"
    path.write_bytes(b'{"a":[' + b"[]," * ((1 << 24) + 1) + b"[]]}")
    return path


def gzip_of_rows(name: str, size: int) -> Callable[[Path], Path]:
    """A gzip file of rows that inflates to so many bytes."""

    def make(folder: Path) -> Path:
        row = b"1," + b"x" * 4000 + b"\n"
        path = folder / name
        with gzip.open(path, "wb", compresslevel=9) as file:
            file.write(b"a,b\n")
            for _ in range(size // (256 * len(row))):
                file.write(row * 256)
        return path

    return make


def packed_rows(kind: str) -> Callable[[Path], Path]:
    """A file of rows that another packer inflates to 96 MiB."""

    def make(folder: Path) -> Path:
        text = b"a,b\n" + (b"1," + b"x" * 4000 + b"\n") * (96 * MIB // 4003)
        path = folder / f"bomb.csv.{kind}"
        if kind == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("t.csv", text)
        elif kind == "zst":
            with pa.CompressedOutputStream(str(path), "zstd") as stream:
                stream.write(text)
        else:
            path.write_bytes(bz2.compress(text, 1) if kind == "bz2" else lzma.compress(text, preset=0))
        return path

    return make


# ---- workbooks


def workbook(folder: Path) -> Path:
    """Write an honest workbook by hand: a header and one row, the texts in the list of shared ones."""
    rows = "".join(
        f'<row r="{row}"><c r="A{row}" t="s"><v>0</v></c><c r="B{row}" t="s"><v>1</v></c></row>' for row in (1, 2)
    )
    main, office = "http://schemas.openxmlformats.org/spreadsheetml/2006/main", "http://schemas.openxmlformats.org"
    relations = f"{office}/package/2006/relationships"
    kinds = f"{office}/officeDocument/2006/relationships"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{office}/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{kinds}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{kinds}"><sheets><sheet name="people" sheetId="1" r:id="r1"/>'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{kinds}/worksheet" '
        f'Target="worksheets/sheet1.xml"/><Relationship Id="r2" Type="{kinds}/sharedStrings" Target="sharedStrings.xml"/>'
        "</Relationships>",
        "xl/sharedStrings.xml": f'<sst xmlns="{main}"><si><t>a</t></si><si><t>b</t></si></sst>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>',
    }
    path = folder / "bomb.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


def with_part(path: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """Change one part of a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {item.filename: archive.read(item) for item in archive.infolist()}
    parts[name] = change(parts[name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, content in parts.items():
            archive.writestr(one, content)
    return path


def lying_workbook(folder: Path) -> Path:
    """A sheet that inflates to 600 MiB in an archive that says one byte."""
    name, path = "xl/worksheets/sheet1.xml", workbook(folder)
    with zipfile.ZipFile(path) as archive:
        parts = {item.filename: archive.read(item) for item in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for one, content in parts.items():
            with archive.open(one, "w") as file:
                start, end, _ = content.partition(b"</sheetData>")
                file.write(start)
                for _ in range(600 if one == name else 0):
                    file.write(b" " * MIB)
                file.write(end + b"</worksheet>" * (one == name))
    archived = bytearray(path.read_bytes())
    true = zipfile.ZipFile(path).getinfo(name).file_size.to_bytes(4, "little")
    while (place := archived.find(true)) >= 0:
        archived[place : place + 4] = (1).to_bytes(4, "little")
    path.write_bytes(archived)
    return path


def shared_text(folder: Path) -> Path:
    """One text of 100 kB in 100,000 cells."""
    path = with_part(
        workbook(folder),
        "xl/sharedStrings.xml",
        lambda texts: texts.replace(b"<t>b</t>", b"<t>" + b"b" * 100_000 + b"</t>"),
    )
    cells = b"".join(b'<row r="%d"><c r="A%d" t="s"><v>1</v></c></row>' % (row, row) for row in range(3, 100_000))
    return with_part(
        path, "xl/worksheets/sheet1.xml", lambda sheet: sheet.replace(b"</sheetData>", cells + b"</sheetData>")
    )


def repeated_cells(rows: int, columns: int, text: str = "x") -> Callable[[Path], Path]:
    """A spreadsheet of OpenDocument with one row that is repeated, of one cell that is."""

    def make(folder: Path) -> Path:
        spaces = " ".join(
            f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
        )
        one = '<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
        head = f"<table:table-row>{one}</table:table-row>"
        cell = f'office:value-type="string"><text:p>{text}</text:p></table:table-cell>'
        body = (
            f'<table:table-row table:number-rows-repeated="{rows}"><table:table-cell '
            f'table:number-columns-repeated="{columns}" {cell}</table:table-row>'
        )
        path = folder / "bomb.ods"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
            archive.writestr(
                "content.xml",
                f"<office:document-content {spaces}><office:body><office:spreadsheet>"
                f'<table:table table:name="people">{head}{body}</table:table></office:spreadsheet></office:body>'
                "</office:document-content>",
            )
            manifest = '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
            archive.writestr("META-INF/manifest.xml", manifest)
        return path

    return make


def hole(name: str, size: int = HUGE, head: bytes = b"", tail: bytes = b"") -> Callable[[Path], Path]:
    """Make such a file of a name."""
    return lambda folder: sparse(folder / name, size, head, tail)


def command(*words: str) -> Callable[[Path], object]:
    """Run a command; ``{}`` is the file, ``{folder}`` where it is."""

    def run(path: Path) -> None:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            status = main([*(word.format(path, folder=path.parent) for word in words), "--format", "json"])
        if status:
            answer = json.loads(told.getvalue())
            error = answer.get("error") or next(one for one in answer["checks"] if one["code"])
            raise from_code(error["code"], json.dumps(error))

    return run


def table(kind: str, *, of_sqlalchemy: bool = False) -> Callable[[Path], object]:
    """Read a table as a node does."""

    def read(path: Path) -> None:
        url = Server(url=f"sqlite+pysqlite:///{path}") if of_sqlalchemy else None
        where = path if url is None else Path()
        name = "people" if kind in {"duckdb", "sqlite", "server"} else ""
        rule = DatasetRule(path=where, format=kind, id="a", table=name, server=url)  # type: ignore[arg-type]
        for part in read_parts(rule, header(rule)):
            assert part.n_rows

    return read


# ---- tables


def equal_rows(folder: Path) -> Path:
    path = folder / "bomb.parquet"
    parquet.write_table(pa.table({"a": pa.nulls(21_000_000)}), path)
    return path


def inflating_page(folder: Path) -> Path:
    """One page of 136 MiB of zeros in some kilobytes; the footer says that the column has one byte."""
    path = folder / "bomb.parquet"
    column = pa.array(["0" * (136 * MIB)])
    parquet.write_table(pa.table({"a": column}), path, use_dictionary=False, compression="zstd", write_statistics=False)
    said: int = parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    true, lie = _varint(2 * said), bytes([0x82, *[0x80] * (len(_varint(2 * said)) - 2), 0])
    content = path.read_bytes()
    place = content.index(true, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
    path.write_bytes(content[:place] + lie + content[place + len(lie) :])
    assert parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 1
    return path


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def repeated_value(size: int, rows: int) -> Callable[[Path], Path]:
    """One value in a dictionary, in many rows."""

    def make(folder: Path) -> Path:
        path = folder / "bomb.parquet"
        one = pa.DictionaryArray.from_arrays(_zeros(rows), ["9" * size])
        parquet.write_table(pa.table({"a": one}), path, compression="zstd", store_schema=False, write_statistics=False)
        return path

    return make


def _zeros(rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])


def shared_beginnings(folder: Path) -> Path:
    """Values of 64 KiB that share all but their ends, in some kilobytes."""
    path = folder / "bomb.parquet"
    with parquet.ParquetWriter(
        path,
        pa.schema([("a", pa.string())]),
        use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY"},
        compression="zstd",
        write_statistics=False,
        data_page_size=1 << 30,
    ) as writer:
        writer.write_table(pa.table({"a": [f"{'9' * (1 << 16)}{i}" for i in range(3000)]}))
    return path


def inflating_batch(folder: Path) -> Path:
    path = folder / "bomb.arrow"
    batch = pa.record_batch({"a": pa.Array.from_buffers(pa.int64(), 34 * MIB, [None, pa.py_buffer(bytes(272 * MIB))])})
    with ipc.new_file(str(path), batch.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return path


def sqlite_values(size: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "bomb.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE people (a TEXT, b BLOB)")
            connection.execute("INSERT INTO people VALUES ('x', zeroblob(?))", [size])
            connection.commit()
        return path

    return make


def duckdb_values(folder: Path) -> Path:
    import duckdb

    path = folder / "bomb.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE VIEW people AS SELECT 'x' AS a, repeat('9', 40000000) AS b FROM range(3)")
    return path


# ---- documents

STUDY: Final = """schema = 1
id = "a"
purpose = "p"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
variable = [
  { party = "clinic", name = "smoker", categories = ["no", "yes"] },
  { party = "insurer", name = "claims", categories = ["0", "1"] },
]
knowledge = { file = "rules.ttl" }
"""
FEDERATION: Final = f"""schema = 1
name = "f"
ca_certificate = "ca.crt"
ca_sha256 = "{"0" * 64}"
[miner]
endpoint = "localhost:8443"
"""


def with_study(folder: Path) -> Path:
    (folder / "study.toml").write_text(STUDY)
    return sparse(folder / "rules.ttl")


def with_federation(folder: Path) -> Path:
    (folder / "federation.toml").write_text(FEDERATION)
    return sparse(folder / "ca.crt")


def with_passphrase(folder: Path) -> Path:
    (folder / "words").write_text("words\n")
    return sparse(folder / "b.backup", head=b"verticil backup 1\n")


def records(path: Path) -> object:
    """Read the table of a release."""
    schema = Schema(variables=(Variable(name="a", owner="p", labels=("9", "8")),))
    return read_records(path, schema, 1)


VALUE: Final = f"a value of {limits.VALUE_BYTES >> 20} MiB"
PAGE: Final = f"a page of {limits.PAGE_BYTES >> 20} MiB inflated"
WORKBOOK: Final = f"{limits.WORKBOOK_BYTES >> 20} MiB"
DOCUMENT: Final = f"{limits.DOCUMENT_BYTES >> 20} MiB"
TOML: Final = f"{limits.TOML_BYTES >> 20} MiB"
CASES: Final[dict[str, Case]] = {
    "evaluate, rows of Parquet": Case(
        limit=f"{MAX_ROWS:,} rows, {MAX_CELLS:,} cells",
        make=equal_rows,
        read=command("evaluate", "--real", "{}", "--synthetic", "{}", "--out", "{folder}/out"),
        code="DATA_UNREADABLE",
        says="rows",
    ),
    "draft, rows of Parquet": Case(
        limit=f"{MAX_ROWS:,} rows, {MAX_CELLS:,} cells",
        make=equal_rows,
        read=command("study", "draft", "owner={}"),
        code="DATA_UNREADABLE",
        says="rows",
    ),
    "draft, a page of Parquet": Case(
        limit=PAGE,
        make=inflating_page,
        read=command("study", "draft", "owner={}"),
        code="DATA_UNREADABLE",
        says="a page inflates to 136 MiB",
    ),
    "node, a page of Parquet": Case(
        limit=PAGE,
        make=inflating_page,
        read=table("parquet"),
        code="DATA_UNREADABLE",
        says="a page inflates to 136 MiB",
    ),
    "node, footer of Parquet": Case(
        limit=f"{limits.FOOTER_BYTES >> 20} MiB of footer",
        make=hole("bomb.parquet", 3 << 29, b"PAR1", (1 << 30).to_bytes(4, "little") + b"PAR1"),
        read=table("parquet"),
        code="DATA_UNREADABLE",
        says="its footer has more than",
    ),
    "node, a value of Parquet in a million rows": Case(
        limit=VALUE,
        make=repeated_value(10 * MIB, 1_000_000),
        read=table("parquet"),
        code="DATA_UNREADABLE",
        says="column 'a': the value in row 1 has more",
        most_mib=128,
    ),
    "node, a smaller value of Parquet in a million rows": Case(
        limit=VALUE, make=repeated_value(MIB, 1_000_000), read=table("parquet"), code="", most_mib=128
    ),
    "node, values of Parquet that share beginnings": Case(
        limit=f"parts of {limits.PART_BYTES >> 20} MiB",
        make=shared_beginnings,
        read=table("parquet"),
        code="",
        most_mib=512,  # 340, or 390 beside other work; without parts 1,400
    ),
    "node, a batch of Arrow": Case(
        limit=f"a batch of {limits.BATCH_BYTES >> 20} MiB, or {limits.INFLATION} times what is stored",
        make=inflating_batch,
        read=table("arrow"),
        code="DATA_UNREADABLE",
        says="inflates to 272 MiB",
    ),
    "node, a value of CSV": Case(
        limit=VALUE,
        make=hole("bomb.csv", 300 * MIB, b"a,b\n1,2\n3,"),
        read=table("csv"),
        code="DATA_UNREADABLE",
        says="column 'b': the value in row 3 has more",
        most_mib=256,  # Arrow reads up to three blocks of 64 MiB ahead, and something beside them; the file has 300
    ),
    "draft, a value of CSV": Case(
        limit=VALUE,
        make=hole("bomb.csv", 100 * MIB, b"a,b\n" + b"1,2\n" * 3000 + b"3,"),
        read=command("study", "draft", "owner={}"),
        code="DATA_UNREADABLE",
        says="column 'b': the value in row 3002 has more",
        most_mib=192,
    ),
    "node, header of CSV": Case(
        limit=f"a header of {opening.LONGEST_LINE_BYTES >> 20} MiB",
        make=hole("bomb.csv", 300 * MIB, b"a,b"),
        read=table("csv"),
        code="DATA_UNREADABLE",
    ),
    "node, CSV in gzip": Case(
        limit=f"{limits.INFLATED} times the size of the file, above 64 MiB",
        make=gzip_of_rows("bomb.csv", 160 * MIB),
        read=table("csv"),
        code="DATA_UNREADABLE",
        says="inflates to more than 200 times its size",
    ),
    **{
        f"node, CSV in {kind}": Case(
            limit=f"{limits.INFLATED} times the size of the file, above 64 MiB",
            make=packed_rows(kind),
            read=table("csv"),
            code="DATA_UNREADABLE",
            says="inflates to more than 200 times its size",
            most_mib=128,
        )
        for kind in ("bz2", "xz", "zst", "zip")
    },
    "node, a workbook that says too little of itself": Case(
        limit=WORKBOOK,
        make=lying_workbook,
        read=table("xlsx"),
        code="DATA_UNREADABLE",
        says="inflates to more than 512 MiB",
    ),
    "node, a text in many cells of a workbook": Case(
        limit=f"{WORKBOOK} of texts",
        make=shared_text,
        read=table("xlsx"),
        code="DATA_UNREADABLE",
        says="the texts of all cells have more than 512 MiB",
    ),
    "node, a cell that .ods repeats": Case(
        limit=f"{limits.SPARSE_CELLS:,} cells, or {limits.SPARSENESS} times those that there are",
        make=repeated_cells(9_000, 9_000),
        read=table("ods"),
        code="DATA_UNREADABLE",
        says="few cells that stand very far apart",
    ),
    "node, a long text that .ods repeats": Case(
        limit=f"{WORKBOOK} of texts",
        make=repeated_cells(3_000, 1_000, "x" * 10_000),
        read=table("ods"),
        code="DATA_UNREADABLE",
        says="the texts of all cells have more than 512 MiB",
    ),
    "node, a value of SQLite": Case(
        limit=VALUE,
        make=sqlite_values(40 * MIB),
        read=table("sqlite"),
        code="DATA_UNREADABLE",
        says="column 'b'",
        most_mib=128,
    ),
    "node, a larger value of SQLite": Case(
        limit=f"{limits.STORED_VALUE_BYTES >> 20} MiB stored",
        make=sqlite_values(100 * MIB),
        read=table("sqlite"),
        code="DATA_UNREADABLE",
        says="column 'b': the value in row 1 has more",
    ),
    "node, a value of DuckDB": Case(
        limit=VALUE, make=duckdb_values, read=table("duckdb"), code="DATA_UNREADABLE", says="column 'b'", most_mib=384
    ),
    "node, a value through SQLAlchemy": Case(
        limit=VALUE,
        make=sqlite_values(40 * MIB),
        read=table("server", of_sqlalchemy=True),
        code="DATA_UNREADABLE",
        says="column 'b'",
        most_mib=192,
    ),
    "release, a page of synthetic.parquet": Case(
        limit=f"what the study's records can have; {PAGE}", make=inflating_page, read=records, code="RELEASE_INVALID"
    ),
    "release, a row of synthetic.csv": Case(
        limit=VALUE, make=hole("synthetic.csv", head=b"a\n"), read=records, code="RELEASE_INVALID"
    ),
    "release, manifest.json": Case(
        limit=DOCUMENT,
        make=hole("manifest.json"),
        read=command("release", "verify", "{folder}"),
        code="RELEASE_INVALID",
    ),
    "release, model.json": Case(
        limit=DOCUMENT,
        make=hole("model.json"),
        read=command("release", "query", "{folder}", "smoker"),
        code="RELEASE_INVALID",
    ),
    "release, many values of model.json": Case(
        limit=f"{limits.DOCUMENT_VALUES:,} values",
        make=many_values,
        read=command("release", "query", "{folder}", "smoker"),
        code="RELEASE_INVALID",
        most_mib=256,
    ),
    "release, posterior.json": Case(
        limit=DOCUMENT,
        make=hole("model.json"),
        read=lambda path: read_networks(path.parent),
        code="RELEASE_INVALID",
    ),
    "release, certificate of the authority": Case(
        limit=f"{limits.CERTIFICATE_BYTES >> 20} MiB",
        make=hole("ca.crt"),
        read=lambda path: verify_release_with(path.parent, ca=path),
        code="CONFIG_INVALID",
    ),
    "release, deny-list": Case(
        limit=f"{limits.DENY_LIST_BYTES >> 20} MiB",
        make=hole("revoked.crl"),
        read=lambda path: verify_release_with(path.parent, revoked=path),
        code="CONFIG_INVALID",
    ),
    "study": Case(limit=TOML, make=hole("study.toml"), read=command("study", "check", "{}"), code="STUDY_INVALID"),
    "knowledge": Case(
        limit=f"{turtle.MAX_BYTES >> 20} MiB",
        make=with_study,
        read=command("knowledge", "show", "{folder}/study.toml"),
        code="STUDY_INVALID",
    ),
    "configuration": Case(limit=TOML, make=hole("party.toml"), read=read_toml, code="CONFIG_INVALID"),
    "configuration, doctor": Case(
        limit=TOML, make=hole("party.toml"), read=command("doctor", "{}"), code="CONFIG_INVALID"
    ),
    "federation, certificate of the authority": Case(
        limit=f"{limits.CERTIFICATE_BYTES >> 20} MiB",
        make=with_federation,
        read=lambda path: load_federation(path.with_name("federation.toml")).authority(),
        code="CONFIG_INVALID",
    ),
    "certificates": Case(
        limit=f"{limits.CERTIFICATE_BYTES >> 20} MiB",
        make=hole("party.crt"),
        read=read_certificates,
        code="CERTIFICATE_INVALID",
    ),
    "request for a certificate": Case(
        limit=f"{REQUEST_BYTES >> 10} KiB", make=hole("party.request"), read=read_request, code="MESSAGE_INVALID"
    ),
    "limits of a party": Case(
        limit=f"{LIMITS_BYTES >> 20} MiB",
        make=hole("limits.json"),
        read=lambda path: _limits(path),
        code="CONFIG_INVALID",
    ),
    "backup": Case(
        limit=f"lines of {LONGEST_LINE_BYTES >> 10} KiB, as sealed as they are read",
        make=with_passphrase,
        read=command("party", "restore", "{}", "--dir", "{folder}/new", "--passphrase-file", "{folder}/words"),
        code="BACKUP_INVALID",
        most_mib=192,
    ),
    "backup, a line": Case(
        limit=f"lines of {LONGEST_LINE_BYTES >> 10} KiB",
        make=lambda folder: folder,
        read=lambda _: _Reader(itertools.repeat(bytes(1 << 16), 20_000)).line(),
        code="BACKUP_INVALID",
    ),
    "bundle that is carried": Case(
        limit=f"a statement of {STATEMENT_BYTES >> 20} MiB",
        make=hole("b.carried", head=b"VERTICIL-CARRIED-1\n" + b"\x7f" * 8),
        read=read_statement,
        code="BUNDLE_INVALID",
    ),
}


def _limits(path: Path) -> object:
    import datetime as dt

    return read_limits(path, b"", at=dt.datetime.now(dt.UTC))


# ---- the process that reads


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(name: str, path: Path) -> dict[str, object]:
    before, code, message = _peak_kib(), "", ""
    try:
        CASES[name].read(path)
    except VerticilError as error:
        code, message = error.code, error.message
    except BaseException as error:  # noqa: BLE001  what the test reports
        code, message = type(error).__name__, str(error)[:500]
    return {"code": code, "message": message, "mib": (_peak_kib() - before) / 1024}


def serve() -> None:
    """Answer each line of the standard input with one of the standard output."""
    for line in sys.stdin:
        name, path = json.loads(line)
        sys.stdout.flush()
        child = os.fork()
        if not child:
            answer = _read(name, Path(path))
            print(json.dumps(answer), file=sys.__stdout__, flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"code": f"status {status}", "message": "", "mib": 0.0}), flush=True)


if __name__ == "__main__":
    serve()
