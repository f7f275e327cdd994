"""What stands in knowledge.md works: each piece of a study is read, the graph says what a table says, the commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

PAGE = (Path(__file__).resolve().parents[2] / "deploy" / "docs" / "analyst" / "knowledge.md").read_text(
    encoding="utf-8"
)
HEAD = """
schema = 1
id = "page"
purpose = "test"
expires = 2099-12-31

[randomization_default]
scheme = "symmetric"
epsilon = 1.0

[[party]]
name = "insurer"

[[party]]
name = "provider"
"""
BINS = {"age": [0, 15, 65, 120], "first-job": [0, 15, 65, 120]}
CATEGORIES = {
    "relationship": ["Husband", "Wife", "Other"],
    "sex": ["Male", "Female"],
    "education": ["none", "primary", "more"],
    "workclass": ["none", "some"],
    "protocol": ["TCP", "UDP"],
    "port": ["53", "80"],
}
COUPLES = """
[[knowledge.rule]]
kind = "implication"
name = "husbands are men"
if = { relationship = "Husband" }
then = { sex = "Male" }
"""
NAMES = """
[[knowledge.rule]]
kind = "implication"
name = "names go over UDP"
if = { port = "53" }
then = { protocol = "UDP" }
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)


def variable(name: str, **bins: list[int]) -> str:
    values = {**BINS, **bins}.get(name)
    kind = f"bins = {values}\ninteger = true" if values else f"categories = {CATEGORIES[name]}".replace("'", '"')
    return f'\n[[variable]]\nparty = "insurer"\nname = "{name}"\n{kind}\n'


def study(folder: Path, names: list[str], *pieces: str, **bins: list[int]) -> Study:
    path = folder / "study.toml"
    mine = '\n[[variable]]\nparty = "provider"\nname = "claims"\ncategories = ["0", "1+"]\n'
    path.write_text("\n".join([HEAD, *(variable(name, **bins) for name in names), mine, *pieces]))
    return read_study(path)


def test_the_rules_of_the_page_are_read(tmp_path: Path) -> None:
    rules, follows, _, service, addresses, groups, told = blocks("toml")
    known = study(
        tmp_path, [name for name in [*CATEGORIES, *BINS] if name not in {"protocol", "port"}], rules
    ).knowledge
    assert known is not None
    assert [len(each) for each in (known.rules, known.orders, known.soft)] == [2, 1, 1]
    known = study(tmp_path, ["age"], follows, age=[0, 60, 75, 120]).knowledge
    assert known is not None
    assert [item.variable.name for item in known.functions] == ["senior"]
    known = study(tmp_path, ["age"], service, groups).knowledge
    assert known is not None
    assert (len(known.refinements), len(known.groups)) == (1, 1)
    source = '[[variable]]\nparty = "provider"\nname = "sourceIP"\ncategories = ["home", "gateway"]\n'
    known = study(tmp_path, ["age"], source, addresses).knowledge
    assert known is not None
    assert [len(item.values) for item in known.refinements] == [33]
    others = '[[variable]]\nparty = "provider"\nname = "{}"\ncategories = ["{}", "{}"]\n'
    more = [others.format("direction", "in", "out"), others.format("answer", "no", "yes")]
    known = study(tmp_path, ["age"], service, *more, told).knowledge
    assert known is not None
    assert (len(known.flags), len(known.soft)) == (1, 1)


VISITS = """
[[table]]
name = "visits"
party = "insurer"
max_rows = 2
order = "admitted"
[[variable]]
party = "insurer"
name = "death"
type = "date"
bins = [2020-01-01, 2022-01-01, 2024-01-01]
missing = { category = "alive", spellings = [""] }
[[variable]]
party = "insurer"
table = "visits"
name = "admitted"
type = "date"
bins = [2020-01-01, 2022-01-01, 2024-01-01]
"""
OF_A_VISIT = '[[variable]]\nparty = "insurer"\ntable = "visits"\nname = "{}"\ncategories = ["{}", "{}"]\n'


def test_the_rules_over_rows_of_the_page_are_read(tmp_path: Path) -> None:
    columns = [OF_A_VISIT.format("ward", "birth", "other"), OF_A_VISIT.format("outcome", "died", "home")]
    sex = '[[variable]]\nparty = "insurer"\nname = "sex"\ncategories = ["m", "f"]\n'
    known = study(tmp_path, ["age"], VISITS, *columns, sex, blocks("toml")[2]).knowledge
    assert known is not None
    assert len(known.orders) == 2  # a rule for each slot
    assert len(known.rules) >= 3


def test_the_graph_of_the_page_says_what_a_table_says(tmp_path: Path) -> None:
    (turtle,) = blocks("turtle")
    (tmp_path / "rules.ttl").write_text(turtle)
    by_file = study(tmp_path, ["relationship", "sex"], '[knowledge]\nfile = "rules.ttl"\n')
    assert by_file == study(tmp_path, ["relationship", "sex"], COUPLES)


def test_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, ["protocol", "port"], NAMES)
    monkeypatch.chdir(tmp_path)
    lines = [shlex.split(line, comments=True) for line in blocks("sh")[0].splitlines()]
    assert [line[:3] for line in lines] == [["verticil", "knowledge", word] for word in ("ask", "check", "show")]
    assert [main(line[1:]) for line in lines] == [6, 0, 0]
    assert capsys.readouterr().out.count("names go over UDP") == 3
