"""The generated pages of the reference are those of the program, and no command, key or metric is without words."""

from __future__ import annotations

import contextlib
import difflib
import re
import runpy
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from support.party_example import EXAMPLE, FEDERATION
from verticil.miner.config import load_miner
from verticil.party.config import load_party
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.documents.toml_table import Table
from verticil.shared.numerics.knowledge.reading import KINDS
from verticil.shared.study.reading import read_study

ROOT: Final = Path(__file__).resolve().parents[2]
STUDY: Final = """schema = 1
id = "hearts"
title = "Hearts"
purpose = "test"
model = "{model}"
expires = 2099-12-31
simulation = {{ seed = 1 }}
quorum = {{ deadline = "72h" }}
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[[party]]
name = "registry"
[[variable]]
name = "smoker"
party = "clinic"
categories = ["no", "yes"]
missing = {{ category = "no", spellings = ["?"] }}
[[variable]]
name = "claims"
party = "insurer"
categories = ["0", "1"]
[[variable]]
name = "region"
party = "registry"
categories = ["north", "south"]
[linkage]
[parameters]
[release]
[breach]
prior = 0.1
posterior = 0.9
[identifier]
name = "number"
[structure]
{structure}
{more}
"""
MATRICES: Final = """
[[randomization]]
variables = ["smoker"]
scheme = "symmetric"
epsilon = 1.0
[randomization_default]
scheme = "symmetric"
epsilon = 1.0
"""
VISITS: Final = """
[[table]]
name = "visits"
party = "clinic"
max_rows = 2
[[variable]]
party = "clinic"
table = "visits"
name = "ward"
categories = ["a", "b"]
"""
STUDIES: Final = [
    ("central", 'method = "genetic"\ngenetic = {}', MATRICES + "[publish]\n[draft]\nreviewed = true"),
    ("central", 'method = "order"\norder = {}', MATRICES + "[tables]\nepsilon = 1.0\ndelta = 1e-9"),
    ("central", 'method = "hill-climb"\nhill_climb = {}', '[allocate]\nrule = "equal-contrast"\ntotal_epsilon = 5.0'),
    ("central", 'method = "given"\nparents = {}', MATRICES),
    ("central", 'method = "posterior"', MATRICES + "[posterior]"),
    ("central", 'method = "privbayes"', MATRICES + "[privbayes]"),
    ("peer", 'method = "tree"', MATRICES + "[share]"),
    ("masked", 'method = "tree"', MATRICES + "[masked]"),
    ("central", 'method = "tree"', MATRICES + VISITS),
    *[("central", 'method = "tree"', MATRICES + f'[[knowledge.rule]]\nkind = "{kind}"') for kind in KINDS],
]
MINER: Final = """schema = 1
name = "miner"
federation = "federation.toml"
listen = "127.0.0.1:8443"
[identity]
certificate = "miner.crt"
key = "miner.key"
[metrics]
listen = "127.0.0.1:9464"
"""
PARTY: Final = f"""{EXAMPLE}
[metrics]
listen = "127.0.0.1:9464"
[ui]
listen = "127.0.0.1:8899"
[review]
max_megabytes = 10
[policy.breach]
prior = 0.1
posterior = 0.9
[[approver]]
name = "officer@census_bureau"
public_key = "{"A" * 43}="
[[policy.rule]]
name = "again"
columns = ["age"]
max_epsilon = 2.0
[codebook]
[[codebook.column]]
source = "age"
categories = ["young", "old"]
[[codebook.column]]
source = "sex"
categories = ["f", "m"]
[[codebook.jointly]]
sources = ["age", "sex"]
impossible = [["young", "f"]]
""".replace('approval = "manual"', 'approval = "rules"')
SERVER: Final = EXAMPLE.replace(
    'path = "census_bureau.csv"\nformat = "csv"', 'url = "postgresql://reader@db/clinic"\ntable = "people"'
)
EMPTY: Final = {
    "study.allocate.caps",
    "study.structure.parents",
    "party.policy.same_people",
    "party.policy.confirmed_keys",
}
"""Tables whose keys are names that somebody chose."""


@pytest.fixture(scope="module")
def reference() -> Any:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "deploy" / "site" / "reference.py")))


def place(where: str) -> str:
    """The name of a table without numbers and chosen names."""
    where = re.sub(r"\[\d+\]", "", where)
    return re.sub(r"^dataset\.[^.]+(\.columns)?.*", r"dataset\1", where)


@pytest.fixture
def known_keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], Mapping[str, set[str]]]:
    """Read documents, and say of each table which keys its reader knows."""
    found: dict[str, set[str]] = defaultdict(set)
    usual = Table._refuse_unknown
    document = ""

    def listen(table: Table, known: set[str]) -> None:
        name = "federation" if table.source == "federation.toml" else document
        found[f"{name}.{place(table.where)}"].update(known)
        usual(table, known)

    monkeypatch.setattr(Table, "_refuse_unknown", listen)

    def read(name: str, reader: Callable[[], object]) -> Mapping[str, set[str]]:
        nonlocal document
        document = name
        with contextlib.suppress(VerticilError):  # whatever is wrong with an example, its keys were read
            reader()
        return found

    return read


def test_each_page_is_what_the_program_would_write(reference: Any) -> None:
    for name, text in reference.pages().items():
        written = (reference.PAGES / name).read_text(encoding="utf-8")
        changes = list(difflib.unified_diff(written.splitlines(), text.splitlines(), lineterm="", n=0))[:10]
        assert changes == [], f"{name}: run python deploy/site/reference.py"


def test_every_key_that_a_reader_knows_has_words_and_every_key_with_words_is_known(
    reference: Any, known_keys: Callable[[str, Callable[[], object]], Mapping[str, set[str]]], tmp_path: Path
) -> None:
    (tmp_path / "federation.toml").write_text(FEDERATION, encoding="utf-8")
    (tmp_path / "party.toml").write_text(PARTY, encoding="utf-8")
    (tmp_path / "miner.toml").write_text(MINER, encoding="utf-8")
    for number, (model, structure, more) in enumerate(STUDIES):
        path = tmp_path / f"{number}.toml"
        path.write_text(STUDY.format(model=model, structure=structure, more=more), encoding="utf-8")
        known_keys("study", lambda path=path: read_study(path))
    known_keys("federation", lambda: load_federation(tmp_path / "federation.toml"))
    known_keys("miner", lambda: load_miner(tmp_path / "miner.toml"))
    known_keys("party", lambda: load_party(tmp_path / "party.toml"))
    (tmp_path / "server.toml").write_text(SERVER, encoding="utf-8")
    known = known_keys("party", lambda: load_party(tmp_path / "server.toml"))
    described = {
        f"{document}.{table}": set(keys) - {"about"}
        for document, tables in reference.KEYS.items()
        for table, keys in tables.items()
    }
    described["party.codebook.column"] |= described["study.variable"] - {
        "name",
        "party",
        "from",
        "table",
        "bounds",
    }  # as its words say
    real = {name: keys for name, keys in known.items() if keys}
    differing = {
        name: sorted(real.get(name, set()) ^ keys) for name, keys in described.items() if real.get(name) != keys
    }
    unnamed = set(real) - set(described) - EMPTY
    assert (differing, unnamed) == ({}, set())


def test_every_command_and_metric_has_words(reference: Any) -> None:
    without = [
        " ".join(path)
        for path, command in reference.commands()
        if not command.help
        or any(not getattr(item, "help", "") for item in command.params if item.name != "help" and not item.hidden)
    ]
    assert without == []
    metrics = reference.metrics()
    assert len(metrics) > 20
    assert [name for name, (_, words, _) in metrics.items() if len(words.split()) < 3 or "{" in words + name] == []


def test_every_test_file_states_a_promise() -> None:
    features = runpy.run_path(str(ROOT / "deploy" / "site" / "features.py"))["features"]
    rows = [row for rows in features().values() for row in rows]
    assert len(rows) > 200
    assert [path for words, path in rows if len(words.split()) < 4] == []


LINE: Final = re.compile(
    r"^\s*(?:\$ )?(?:\.venv/bin/)?verticil ([a-z][\w-]*(?: [a-z][\w-]*)?)|`verticil ([a-z][\w-]*(?: [a-z][\w-]*)?)",
    re.MULTILINE,
)


def unknown_commands(text: str, names: Collection[str]) -> list[str]:
    """Commands on a page that the program does not have."""
    known = {" ".join(name.split()[:n_words]) for name in names for n_words in (1, 2)}
    groups = {name.split()[0] for name in names if " " in name}
    found = [first or second for first, second in LINE.findall(text)]
    return [
        words for words in found if words not in known and (words.split()[0] in groups or words.split()[0] not in known)
    ]


def test_every_command_on_a_page_is_one(reference: Any) -> None:
    names = [" ".join(path) for path, _ in reference.commands()]
    pages = [ROOT / "README.md", *sorted((ROOT / "deploy" / "docs").rglob("*.md"))]
    found = {page.name: unknown_commands(page.read_text(encoding="utf-8"), names) for page in pages}
    assert {page: words for page, words in found.items() if words} == {}
    planted = "`verticil party aprove STUDY`, `verticil demo there` and\nverticil studdy check"
    assert unknown_commands(planted, names) == ["party aprove", "studdy check"]
