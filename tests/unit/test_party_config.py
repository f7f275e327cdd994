"""party.toml: the worked example, what is refused and how it is said, and `party init`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from support.party_example import EXAMPLE, FEDERATION
from verticil.cli.main import main
from verticil.party.config import load_party, place_toml, require_marked_authority
from verticil.party.dataset.column_draws import Column
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import ColumnRule, DatasetRule
from verticil.party.limits.rules import Combinations, RequestFacts
from verticil.party.operator import commands
from verticil.party.storage.secret import read_secret
from verticil.shared.core.errors import DataFault, Misuse

# The worked example of the contract.


RULE = '[[policy.rule]]\nname = "r"\ncolumns = ["age"]\nmax_epsilon = 2.0\n'
KEY = "A" * 43 + "="


@pytest.fixture
def write(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)

    def written(text: str = EXAMPLE) -> Path:
        path = tmp_path / "party.toml"
        path.write_text(text)
        return path

    return written


def test_the_worked_example_is_read(write, tmp_path):
    config = load_party(write())
    assert config.name == "census_bureau"
    assert config.federation.name == "adult-demo"
    assert config.state_directory == tmp_path / "state"
    assert config.signing_key == tmp_path / "pki" / "census_bureau.sign"
    assert config.linkage_key == tmp_path / "secrets" / "linkage.key"
    people = config.datasets["people"]
    assert (people.path, people.id) == (tmp_path / "census_bureau.csv", "id")
    assert people.column("sex") == ColumnRule(source="SEX", recode={"M": "Male", "F": "Female"})
    assert people.column("age") == ColumnRule(source="age")
    assert len(config.declarations) == 1
    assert config.policy.approvers == ("officer@census_bureau",)
    assert config.policy.on_data_change == "refuse"
    assert config.peer is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("approvers_needed = 1", "approver_needed = 1", "policy.approver_needed: unknown key"),
        ('approval = "manual"', 'approval = "off"', "policy.approval: got 'off', expected one of manual, rules, auto"),
        ("approvers_needed = 1", "approvers_needed = 2", "expected at most the 1 approvers"),
        ("approvers_needed = 1", "approvers_needed = 0", "got 0, expected at least 1"),
        ("max_epsilon_lifetime = 40.0\n", "", "policy.max_epsilon_lifetime: missing"),
        ("max_epsilon_lifetime = 40.0", "max_epsilon_lifetime = -1", "got -1.0, expected a number of at least 0"),
        ("max_epsilon_lifetime = 40.0", "max_epsilon_lifetime = nan", "expected a number of at least 0"),
        ("minimum_common_records = 1000", "minimum_common_records = true", "got true/false, expected a whole number"),
        ('format = "csv"', 'format = "xml"', "dataset.people.format: got 'xml', expected one of csv, parquet"),
        ('delimiter = ","', 'delimiter = ";;"', "delimiter"),
        ('encoding = "utf-8"', 'encoding = "utf-99"', "utf-99"),
        ('recode = { "M" = "Male", "F" = "Female" }', 'recode = { "M" = 1 }', "columns.sex.recode: expected texts"),
        ('source = "SEX"', 'source = "SEX"\nrecoding = {}', "dataset.people.columns.sex.recoding: unknown key"),
        ('name = "census_bureau"', 'name = "census bureau"', "name: got 'census bureau'"),
        ('listen = "0.0.0.0:8444"', 'listen = "8444"', "peer.listen: got '8444', expected host:port"),
        ("[linkage]", "[link]", "linkage: missing"),
        ("schema = 1", "schema = 2", "schema: got 2, expected 1"),
        ('recipients = ["miner"]', 'recipients = "miner"', "policy.recipients: got a string, expected a list"),
        ('recipients = ["miner"]', 'on_data_change = "ignore"', "policy.on_data_change: got 'ignore'"),
        ("[peer]", f"{RULE}[peer]", 'policy.rule: stands beside approval = "manual"'),
        (
            "[peer]",
            f'[[approver]]\nname = "x"\npublic_key = "{KEY}"\n[peer]',
            "'x' has a key in [[approver]] and is not among",
        ),
        (
            "[peer]",
            '[[approver]]\nname = "x"\npublic_key = "AAAA"\n[peer]',
            "approver[1].public_key: expected the 44 letters",
        ),
        ("[peer]", f'[[approver]]\nname = "a,b"\npublic_key = "{KEY}"\n[peer]', "without commas"),
        ("minimum_parties = 2", "min_rows = 3", "policy.min_rows: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(write, old, new, message):
    assert old in EXAMPLE
    with pytest.raises(Misuse) as caught:
        load_party(write(EXAMPLE.replace(old, new, 1)))
    assert (caught.value.code, caught.value.exit_code) == ("CONFIG_INVALID", 2)
    assert message in caught.value.message


FILE = 'path = "census_bureau.csv"\nformat = "csv"\ndelimiter = ","\nencoding = "utf-8"'
URL = 'url = "postgresql://reader@db/clinic"'
SECRET = "4711word"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (URL, "dataset.people.table: got neither, expected either table or query"),
        (f'{URL}\ntable = "t"\nquery = "SELECT 1"', "table: got table and query, expected either table or query"),
        (f'{URL}\ntable = "t"\npath = "t.csv"', "url: stands beside path, expected one place"),
        (f'{URL}\ntable = "t"\nurl_env = "URL"', "url_env: stands beside url, expected one place"),
        (f'{URL}\ntable = "t"\nformat = "csv"', "format: stands beside url, expected it beside path only"),
        (f'{URL}\ntable = "t"\npassword_env = "A"\npassword_file = "b"', "password_file: stands beside password_env"),
        ('url_env = "URL"\ntable = "t"\npassword_env = "A"', "password_env: stands beside url_env"),
        (f'{URL}\ntable = "a.b.c.d"', "table: expected NAME or SCHEMA.NAME"),
        (f'{URL}\nquery = "DELETE FROM t"', "query: expected a query that only reads"),
        (f'{URL}\nquery = "SELECT 1; SELECT 2"', "query: has several statements, expected one"),
        (
            f'url = "postgresql://reader:{SECRET}@db/clinic"\ntable = "t"',
            "url: has a password, expected none in this file",
        ),
        (f'url = "postgresql://db/clinic?password={SECRET}"\ntable = "t"', "url: has a password"),
        (f'url = "mssql+pyodbc://?odbc_connect=PWD={SECRET}"\ntable = "t"', "url: has a password"),
        (f'url = "postgresql://reader:{SECRET}/x@db/clinic"\ntable = "t"', "url: "),
        (f'url = "host=db password={SECRET}"\ntable = "t"', "url: expected a URL such as postgresql://"),
        ('url = "sqlite:///clinic.sqlite"\ntable = "t"', 'is of a file, expected path = FILE beside format = "sqlite"'),
        ('path = "t.duckdb"', "table: got neither, expected either table or query"),
        ('path = "t.csv"\ntable = "t"', 'table: stands beside format = "csv", expected it of a database only'),
    ],
)
def test_a_place_that_no_table_can_be_at_is_named_and_no_password_quoted(write, place, message):
    assert FILE in EXAMPLE
    with pytest.raises(Misuse) as caught:
        load_party(write(EXAMPLE.replace(FILE, place)))
    assert caught.value.code == "CONFIG_INVALID"
    assert message in caught.value.message
    assert SECRET not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (
            'path = "t.duckdb"\ntable = "main.t"',
            DatasetRule(path=Path("t.duckdb"), format="duckdb", id="id", table="main.t"),
        ),
        ('path = "t.db"\nformat = "sqlite"\nquery = "SELECT 1;"', None),
        ('path = "lake"\nformat = "parquet"', None),
        ('path = "a\\u007f \\"b\\" *.arrows"', None),
        (f'{URL}\ntable = "t"\npassword_file = "../word"', None),
        (f'{URL}\ntable = "t"\npassword_env = "WORD"', None),
        ('url_env = "URL"\nquery = "SELECT \'é\'"', None),
        ('url_file = "url"\ntable = "t"', None),
    ],
)
def test_a_place_is_read_and_written(write, tmp_path, place, expected):
    """What is written of a table is what was read of it."""
    rule = load_party(write(EXAMPLE.replace(FILE, place))).datasets["people"]
    plain = dataclasses.replace(rule, columns={})
    if expected is not None:
        assert plain == dataclasses.replace(expected, path=tmp_path / expected.path)
    again = load_party(write(EXAMPLE.replace(FILE, place_toml(rule, tmp_path)))).datasets["people"]
    resolved = [
        dataclasses.replace(one, path=one.path.resolve(), server=_resolved(one.server)) for one in (rule, again)
    ]
    assert resolved[0] == resolved[1]


def test_the_example_on_the_page_of_tables_is_read(write, tmp_path):
    page = Path(__file__).parents[2] / "deploy" / "docs" / "operator" / "tables.md"
    block, several_rows = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    place = block.removeprefix("[dataset.people]\n").replace('id = "nhs_no"\n', "")
    rule = load_party(write(EXAMPLE.replace(FILE, place))).datasets["people"]
    assert (rule.format, rule.table, rule.query) == ("server", "research.people", "")
    assert rule.server is not None
    assert rule.server.url.startswith("postgresql://reader@db.example.org/clinic?sslmode=verify-full")
    assert rule.server.password_file == tmp_path / "secrets" / "database.password"
    place, rest = several_rows.removeprefix("[dataset.people]\n").replace('id = "id"\n', "", 1).split("\n\n", 1)
    text = EXAMPLE.replace(FILE, f"{place}\n")
    datasets = load_party(write(f"{text}\n{rest}")).datasets
    assert datasets["people"].columns["n_visits"].source == "count of visits where ward = 'surgery' and days >= 2"
    assert (datasets["stays"].one_row, datasets["stays"].order) == ("last", ("admitted", "stay_no"))


def _resolved(server):
    if server is None:
        return None
    files = {key: path.resolve() for key in ("url_file", "password_file") if (path := getattr(server, key)) is not None}
    return dataclasses.replace(server, **files)


def test_two_names_for_one_table_are_refused_and_two_tables_of_one_database_are_not(write):
    other = f'\n[dataset.other]\n{URL}\ntable = "t"\nid = "id"\n'
    one = EXAMPLE.replace(FILE, f'{URL}\ntable = "t"')
    with pytest.raises(Misuse, match=r"dataset.other.url: is the table of \[dataset.people\]"):
        load_party(write(one + other))
    assert set(load_party(write(one + other.replace('"t"', '"u"'))).datasets) == {"people", "other"}


def test_a_url_and_a_password_come_from_where_the_file_says(write, tmp_path, monkeypatch):
    def at(place):
        return load_party(write(EXAMPLE.replace(FILE, f'{place}\ntable = "t"'))).datasets["people"].server

    monkeypatch.setenv("WORD", "a b/c@d")
    assert at(f'{URL}\npassword_env = "WORD"').address() == "postgresql://reader:a%20b%2Fc%40d@db/clinic"
    assert at(f'{URL}\npassword_file = "word"').files == (tmp_path / "word",)
    (tmp_path / "url").write_text("postgresql://u:w@h/d\n")
    (tmp_path / "url").chmod(0o600)
    assert at('url_file = "url"').address() == "postgresql://u:w@h/d"
    assert at('url_file = "url"').scheme() == "postgresql"
    monkeypatch.setenv("URL", f"postgres {SECRET}")
    with pytest.raises(Misuse) as caught:
        at('url_env = "URL"').address()
    assert SECRET not in str(caught.value)
    monkeypatch.delenv("URL")
    with pytest.raises(DataFault, match="environment variable URL: not set"):
        at('url_env = "URL"').address()
    (tmp_path / "url").write_text("two\nlines\n")
    with pytest.raises(Misuse, match="url: expected one line with the url"):
        at('url_file = "url"').address()


@pytest.mark.parametrize(
    ("url", "is_checked"),
    [
        ("postgresql://db.example.org/d", False),
        ("postgresql://db.example.org/d?sslmode=require", False),
        ("postgresql://127.0.0.1/d?host=db.example.org", False),
        ("postgresql://db.example.org/d?sslmode=verify-full", True),
        ("postgresql://reader@127.0.0.1:5433/d", True),
        ("postgresql:///d?host=/run/postgresql", True),
        ("mysql+pymysql://db/d", True),
    ],
)
def test_a_line_to_a_database_that_nobody_checks_is_known(url, is_checked):
    assert Server(url=url).is_checked() is is_checked


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Misuse) as caught:
        load_party(tmp_path / "party.toml")
    assert caught.value.code == "FILE_MISSING"


@pytest.mark.parametrize("name", ["party" * 60 + ".toml", "."])
def test_a_name_that_no_file_can_have_is_named_too(tmp_path, name):
    with pytest.raises(Misuse) as caught:
        load_party(tmp_path / name)
    assert caught.value.code == "FILE_MISSING"


def test_automatic_approval_is_for_the_marked_authority_only(write):
    config = load_party(write(EXAMPLE.replace('"manual"', '"auto"')))
    require_marked_authority(config, is_demo=True)
    with pytest.raises(Misuse) as caught:
        require_marked_authority(config, is_demo=False)
    assert caught.value.code == "CONFIG_INVALID"


def test_party_init_writes_a_closed_configuration_and_a_secret_once(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    path = commands.init_party(tmp_path, name="st-anna", table='tables/"odd".csv', id_column="nhs_no")
    config = load_party(path)
    assert config.name == "st-anna"
    assert config.certificate == tmp_path / "pki" / "st-anna.crt"
    assert config.datasets["people"].path == tmp_path / 'tables/"odd".csv'
    assert config.policy.approval == "manual"
    assert config.policy.deny_columns == ("nhs_no",)
    secret = read_secret(config.state_directory)
    with pytest.raises(Misuse) as caught:
        commands.init_party(tmp_path, name="st-anna")
    assert caught.value.code == "FILE_EXISTS"
    assert read_secret(config.state_directory) == secret
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    with pytest.raises(Misuse, match="expected 1 to 63"):
        commands.init_party(tmp_path / "other", name="st anna")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "people.arrows"], 'path = "../people.arrows"\nformat = "arrow"\nid = '),
        (
            ["--table", "t.duckdb", "--query", "SELECT 1"],
            'path = "../t.duckdb"\nformat = "duckdb"\nquery = "SELECT 1"\nid = ',
        ),
        (
            ["--url", "postgresql://r@db/c", "--table", "s.people", "--password-file", "word"],
            'url = "postgresql://r@db/c"\npassword_file = "../word"\ntable = "s.people"\nid = ',
        ),
        (
            ["--url", "mysql+pymysql://r@db/c", "--query", "SELECT 1", "--password-env", "WORD"],
            'url = "mysql+pymysql://r@db/c"\npassword_env = "WORD"\nquery = "SELECT 1"\nid = ',
        ),
    ],
)
def test_party_init_names_a_table_wherever_it_is(tmp_path, monkeypatch, arguments, said):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    monkeypatch.chdir(tmp_path)
    assert main(["party", "init", "--name", "clinic", "--dir", "clinic", *arguments]) == 0
    assert f"[dataset.people]\n{said}" in (tmp_path / "clinic" / "party.toml").read_text()
    assert load_party(tmp_path / "clinic" / "party.toml").datasets["people"].id == "id"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "postgresql://r@db/c"],
        ["--url", "postgresql://r@db/c", "--table", "t", "--query", "SELECT 1"],
        ["--password-env", "WORD"],
        ["--url", f"postgresql://r:{SECRET}@db/c", "--table", "t"],
        ["--url", "postgresql://r@db/c", "--query", "DROP TABLE t"],
        ["--table", "t.sqlite"],
    ],
)
def test_party_init_makes_nothing_of_a_place_that_no_table_can_be_at(tmp_path, monkeypatch, capsys, arguments):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    monkeypatch.chdir(tmp_path)
    assert main(["party", "init", "--name", "clinic", "--dir", "clinic", *arguments]) == 2
    assert list((tmp_path / "clinic").rglob("*") if (tmp_path / "clinic").exists() else ()) == []
    assert SECRET not in "".join(capsys.readouterr())


AB = 'categories = ["a", "b"]\n'
COLUMN = f'[[codebook.column]]\nsource = "x"\n{AB}'
JOINTLY = '[[codebook.jointly]]\nsources = ["x", "y"]\nimpossible = '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[codebook]\nnormalize = []", "codebook.normalize: unknown key"),
        ('[codebook]\nnormalise = [["lower"]]', "codebook.normalise: list 1 has 'lower', which is no step"),
        ('[codebook]\nnormalise = ["trim"]', "codebook.normalise: got a list, expected a list of lists"),
        (f"[[codebook.column]]\n{AB}", "codebook.column[1].source: missing"),
        ('[[codebook.column]]\nsource = "x"', "codebook.column[1].categories: 'x' has neither, expected either"),
        (
            COLUMN.replace(AB, "bins = [3, 1]"),
            "codebook.column[1] 'x': bin edges 1 and 2 are 3 and 1, expected increasing",
        ),
        (COLUMN.replace("categories", "category"), "codebook.column[1].category: unknown key"),
        (COLUMN + 'other = "c"', "codebook.column[1].other: 'c' is not among the categories"),
        (COLUMN.replace('"x"', '"id"'), "codebook.column[1].source: 'id' names the person"),
        (COLUMN + 'dataset = "y"', "codebook.column[1].dataset: got 'y', expected one of people"),
        (COLUMN + COLUMN, "codebook.column[2].source: stands there twice"),
        (JOINTLY.replace(', "y"', "") + '[["a"]]', "codebook.jointly[1].sources: 1 columns, expected two or more"),
        (JOINTLY + "[]", "codebook.jointly[1].impossible: no combination"),
        (JOINTLY + '[["a"]]', "combination 1: expected 2 labels, one of each of the sources"),
        (COLUMN + JOINTLY + '[["A", "c"]]', "combination 1: 'A' is no category of column 'x'"),
    ],
)
def test_a_codebook_that_no_study_could_fit_is_named_with_file_and_key(write, text, message):
    with pytest.raises(Misuse) as caught:
        load_party(write(f"{EXAMPLE}\n{text}\n"))
    assert (caught.value.code, caught.value.exit_code) == ("CONFIG_INVALID", 2)
    assert caught.value.message.startswith("party.toml: codebook")
    assert message in caught.value.message


def test_the_commented_codebook_of_init_is_one_that_can_be_read(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    path = commands.init_party(tmp_path / "site", name="clinic", federation="../federation.toml")
    lines = path.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("# [codebook]"))
    end = start + lines[start:].index("")
    path.write_text("\n".join([*lines[:start], *(line[2:] for line in lines[start:end])]) + "\n")
    known = load_party(path).codebook
    assert (len(known.columns), len(known.combinations), known.normalise) == (2, 1, {("nfkc", "trim")})


def test_a_codebook_says_what_a_study_may_ask_without_a_person(write):
    text = """
[codebook]
normalise = [["nfkc", "trim"], []]
[[codebook.column]]
source = "age"
bins = [0, 18, 65]
integer = true
missing = { category = "unknown", spellings = ["", "?"] }
[[codebook.column]]
source = "age"
bins = [0, 50, 100]
[[codebook.column]]
source = "SEX"
categories = ["Male", "Female"]
other = "Male"
[[codebook.jointly]]
sources = ["age", "SEX"]
impossible = [["unknown", "Female"]]
"""
    known = load_party(write(EXAMPLE + text)).codebook
    age, sex = Column(dataset="people", source="age"), Column(dataset="people", source="SEX")
    assert known.normalise == {("nfkc", "trim"), ()}
    assert {book.labels for book in known.columns if book.column == age} == {
        ("[0,18)", "[18,65)", "unknown"),
        ("[0,50)", "[50,100)"),
    }
    assert [(book.labels, book.other) for book in known.columns if book.column == sex] == [(("Male", "Female"), "Male")]
    assert known.combinations == {Combinations(columns=(sex, age), impossible=frozenset({("Female", "unknown")}))}
    assert load_party(write()).codebook == RequestFacts()
