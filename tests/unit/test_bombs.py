"""A small file of anybody that would fill the memory is refused by name, and before it does: one of each format.

`pytest -s tests/unit/test_bombs.py` prints every reader, its limit and what its bomb took.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import pytest

from support.bombs import CASES

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reader() -> Iterator[tuple[IO[str], IO[str]]]:
    """A process that has the project's modules, and has a child of its own read each file."""
    folder = str(ROOT / "tests")
    program = f"import sys; sys.path.insert(0, {folder!r}); from support.bombs import serve; serve()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdin, process.stdout
        process.stdin.close()


@pytest.mark.parametrize("name", CASES)
def test_a_bomb_is_refused_before_it_fills_the_memory(
    name: str, reader: tuple[IO[str], IO[str]], tmp_path: Path
) -> None:
    case = CASES[name]
    questions, answers = reader
    print(json.dumps([name, str(case.make(tmp_path))]), file=questions, flush=True)
    answer = json.loads(answers.readline())
    print(f"{name:52} {case.limit:60} {answer['mib']:6.0f} MiB of {case.most_mib:4}  {answer['code']}")
    assert (answer["code"], case.says in answer["message"]) == (case.code, True), answer
    assert answer["mib"] < case.most_mib, answer


# ---- no reader is missing

READS: Final = frozenset(
    {
        *("read_bytes", "read_text", "read_csv", "read_parquet", "read_table", "ParquetFile", "read_metadata"),
        *("open_csv", "open_file", "open_stream", "decompress"),
    }
)
"""What reads a whole file, or inflates one, whatever its size."""
LIMITED: Final = {
    "party.dataset.sources.files.rows_in_footer": "node, footer of Parquet",
    "party.dataset.sources.files._Opened": "node, a page of Parquet",
    "tables.source_types._categories": "node, a page of Parquet",
    "party.dataset.sources.files._open": "node, a batch of Arrow",
    "party.dataset.sources.csv_files._csv_reader": "node, a value of CSV",
    "party.dataset.sources.workbook_limits._inflated_size": "node, a workbook that says too little of itself",
    "shared.release.signatures.read_document": "release, manifest.json",
    "shared.synthesis.record_checks._csv": "release, a row of synthetic.csv",
    "shared.synthesis.record_checks._parquet": "release, a page of synthetic.parquet",
    "shared.synthesis.record_checks.check_parquet": "release, a page of synthetic.parquet",
    "shared.synthesis.record_checks.first_misplaced": "release, a row of synthetic.csv",
    "shared.release.related._frames": "release, a page of synthetic.parquet",
    "api.release.Release": "release, a page of synthetic.parquet",
}
"""What reads so, and looks at a limit before: the bomb that shows it."""
_FETCHED: Final = (
    "of a release that was fetched: its files were held against the study (tests/unit/test_fetch_hostile_manifest.py)"
)
OWN: Final = {
    "shared.federation.airgap.bundle.BundleEntries": (
        "files that were unpacked here, after their sizes were held against a signed statement"
    ),
    "shared.federation.airgap.exchange": "the node's own journal",
    "shared.federation.audit.ChainedLog": "the node's own log, whose size an operator sees",
    "shared.masked.round": "the node's own folder",
    "shared.release.manifest._read_manifest": "a manifest that was written here a moment ago",
    "shared.release.protocol": "templates of the package",
    "shared.federation.transport.chunks._inflate": "inflates no more than a chunk has (tests/unit/test_chunks.py)",
    "shared.release.download.fetch_release": _FETCHED,
    "cli.service_unit": "a template of the package",
    "shared.core.installation": "what pip wrote of this installation",
    "shared.core.health": "the node's own state, and the kernel's",
    "party.audit": "the site's own configuration, which was read with a limit",
    "party.operator.backup": "the site's own log",
    "party.dataset.blinding": "the site's own key",
    "party.operator.approvers": "the site's own configuration",
    "party.operator.preview": "the site's own folder",
    "party.operator.keys": "the site's own configuration",
    "shared.pages": "templates and files of the package",
    "party.operator.page": "the report of a release that was verified a moment ago",
    "party.policy.ledger_recovery": "the site's own releases, each held against its SHA-256",
    "party.protocol.central": _FETCHED,
    "party.protocol.masked": "the site's own folder",
    "party.protocol.peer": "files whose size was held against the study when they came",
    "party.protocol.with_peers": "files whose size was held against the study when they came",
    "party.protocol.with_miner": _FETCHED,
    "party.storage": "the site's own secret",
    "miner.airgap": "the miner's own folder",
    "miner.page": "the miner's own folder, and releases that it made",
    "miner.rules": "the miner's own folder",
    "miner.scheduler": "the miner's own folder",
    "miner.storage": "the miner's own folder",
    "reproduce.experiment": "a data set whose SHA-256 is known",
    "gan.generate": "what was made a moment ago",
    "reproduce.kipps": "rows that the command wrote before",
    "cli.study._on_tables": "a release that was made a moment ago",
    "curator": "the owner's own folder, and what was made a moment ago",
    "evaluate.page": "templates of the package, or of its user",
    "experiments": "data of the package",
    "pki.register": "the authority's own folder",
    "simulation": "federations that were made a moment ago",
}
"""What reads so, and reads nothing that others wrote, or nothing whose size was not looked at before."""


def readers_in(source: str, module: str) -> set[str]:
    """Return the functions and classes of a module that call one of `READS`."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
        if any(isinstance(function, ast.Attribute) and function.attr in READS for function in calls):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef), (
                f"{module} reads when it is imported"
            )
            found.add(f"{module}.{node.name}")
    return found


def readers() -> set[str]:
    """Return all of them."""
    found: set[str] = set()
    for wing in ("shared", "party", "miner", "deploy", "deploy/experiments"):
        for path in (ROOT / wing / "verticil").rglob("*.py"):
            module = ".".join(path.relative_to(ROOT / wing / "verticil").with_suffix("").parts)
            source = path.read_text(encoding="utf-8")
            if not module.startswith("wire") and any(name in source for name in READS):
                found |= readers_in(source, module)
    return found


def without_a_limit(found: set[str]) -> set[str]:
    """Return those that no line of `LIMITED` or `OWN` covers."""
    return {name for name in found if not any(f"{name}.".startswith(f"{covered}.") for covered in (*LIMITED, *OWN))}


def test_no_reader_is_without_a_limit() -> None:
    found = readers()
    assert not without_a_limit(found), (
        "read it with verticil.shared.documents.foreign_files, and give it a bomb in tests/support/bombs.py"
    )
    assert set(LIMITED.values()) <= CASES.keys()
    unused = {
        covered for covered in (*LIMITED, *OWN) if not any(f"{name}.".startswith(f"{covered}.") for name in found)
    }
    assert not unused, "nothing reads so any more"


@pytest.mark.parametrize(
    "planted",
    [
        "def read_model(path):\n    return json.loads(path.read_bytes())\n",
        "class Table:\n    def rows(self):\n        return parquet.ParquetFile(self.path).read()\n",
        "async def unpacked(data):\n    return zlib.decompress(data)\n",
    ],
)
def test_a_planted_reader_is_found(planted: str) -> None:
    assert len(without_a_limit(readers_in(planted, "shared.release.formats.planted"))) == 1


def test_the_page_of_limits_states_every_limit() -> None:
    page = (ROOT / "deploy/docs/reference/limits.md").read_text(encoding="utf-8")
    numbers = {number for case in CASES.values() for number in re.findall(r"\d[\d,]*(?: [KM]iB)?", case.limit)}
    assert len(numbers) > 10
    assert {number for number in numbers if number not in page} == set()
