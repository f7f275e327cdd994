"""The reasoner: is a combination possible, by which rules not, what do the rules leave; and ``verticil knowledge``."""

from __future__ import annotations

import itertools
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from verticil.analyst.lint import lint
from verticil.cli.main import main
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge.reasoning import ask, reach
from verticil.shared.numerics.knowledge.support import function_codes
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

NETWORK = """\
schema = 1
id = "traffic"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "probe"
[[party]]
name = "firewall"
[[variable]]
party = "probe"
name = "protocol"
categories = ["TCP", "UDP", "ICMP", "SCTP"]
[[variable]]
party = "firewall"
name = "port"
categories = ["web", "dns", "none"]
[[variable]]
party = "firewall"
name = "encrypted"
categories = ["yes", "no"]
[[variable]]
party = "probe"
name = "first"
bins = [0, 10, 20]
[[variable]]
party = "firewall"
name = "last"
bins = [0, 10, 20]
missing = { category = "open", spellings = [""] }
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[[knowledge.rule]]
kind = "property"
name = "services"
column = "port"
values = [["web", "80", 3], ["web", "443"], ["dns", "53"]]
[[knowledge.rule]]
kind = "implication"
name = "tcp is web"
if = { protocol = "TCP" }
then = { port = "web" }
[[knowledge.rule]]
kind = "forbidden"
name = "no ports"
all = { protocol = "ICMP", port = ["web", "dns"] }
[[knowledge.rule]]
kind = "forbidden"
name = "unused"
all = { protocol = "SCTP" }
[[knowledge.rule]]
kind = "function"
name = "ciphers"
column = "encrypted"
of = ["port"]
values = [["web", "yes"]]
otherwise = "no"
[[knowledge.rule]]
kind = "order"
name = "times"
lower = "first"
upper = "last"
strict = true
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "study.toml"
    file.write_text(NETWORK, encoding="utf-8")
    return file


@pytest.fixture
def study(path: Path) -> Study:
    return read_study(path)


def test_every_combination_is_answered_as_enumeration_has_it_and_the_named_rules_make_it_impossible(study):
    assert study.knowledge is not None
    names = ["protocol", "port", "encrypted", "first", "last"]
    variables = {variable.name: variable for variable in (*study.schema.variables, *study.knowledge.variables)}
    function = study.knowledge.functions[0]
    image = function_codes(function, [variables["port"]])
    support = study.support()
    for labels in itertools.product(*(variables[name].labels for name in names)):
        given = dict(zip(names, labels, strict=True))
        codes = {name: variables[name].labels.index(label) for name, label in given.items()}
        held = support.holds([np.array([codes[name]]) for name in study.schema.names])[0]
        expected = held and image[codes["port"]] == codes["encrypted"]
        answer = ask(study.knowledge, study.schema, given)
        assert answer.possible == expected, given
        assert bool(answer.rules) != expected
        for name in given:  # what is left out can only make more possible
            fewer = {other: label for other, label in given.items() if other != name}
            assert ask(study.knowledge, study.schema, fewer).possible or not expected


def test_finer_values_numbers_and_functions_are_understood(study):
    def asked(**given: str) -> tuple[bool, tuple[str, ...]]:
        answer = ask(study.knowledge, study.schema, given)
        return answer.possible, answer.rules

    assert asked(protocol="TCP", port="53") == (False, ("tcp is web",))
    assert asked(protocol="TCP", port="443") == (True, ())
    assert asked(protocol="TCP", encrypted="no") == (False, ("tcp is web", "ciphers"))
    assert asked(port="dns", encrypted="yes") == (False, ("ciphers",))
    assert asked(first="15", last="3") == (False, ("times",))
    assert asked(first="3", last="2") == (False, ("times",))  # in one bin; the numbers themselves are out of order
    assert asked(first="3", last="3") == (False, ("times",))
    assert asked(first="3", last="open") == (True, ())
    for number, label in (("-4", "[0,10)"), ("9.5", "[0,10)"), ("10", "[10,20)"), ("99", "[10,20)")):
        assert ask(None, study.schema, {"first": number}).given == (("first", label),)
    assert ask(None, study.schema, {"protocol": "TCP"}).possible
    for given, words, hint in (
        ({"protocl": "TCP"}, "'protocl' is not a variable", "protocol"),
        ({"port": "54"}, "port: '54' is no value of it, expected one of its categories", "'53'"),
        ({"first": "soon"}, "expected a number or one of its categories", "first="),
        ({"first": "nan"}, "expected a number", "first="),
    ):
        with pytest.raises(Misuse) as caught:
            ask(study.knowledge, study.schema, given)
        assert words in caught.value.message
        assert hint in caught.value.hint


def test_what_the_rules_leave_is_counted(study):
    found = reach(study.knowledge, study.schema)
    shares = {rule.rule: (rule.variables, rule.combinations, rule.forbidden) for rule in found.rules}
    assert shares == {
        "no ports": (("protocol", "port"), 12, pytest.approx(2 / 12)),
        "tcp is web": (("protocol", "port"), 12, pytest.approx(2 / 12)),
        "unused": (("protocol",), 4, pytest.approx(1 / 4)),
        "times": (("first", "last"), 6, pytest.approx(1 / 6)),
    }
    assert [(item.variable, item.category, item.rules) for item in found.dead] == [("protocol", "SCTP", ("unused",))]
    assert found.possible == pytest.approx(5 / 12 * 5 / 6)  # TCP web, ICMP none, three of UDP; five of six orders
    assert [remark.code for remark in found.remarks] == ["category-impossible"]
    told = [finding for finding in lint(study) if finding.where.startswith("knowledge")]
    assert [(finding.severity, finding.message) for finding in told] == [
        ("warning", "no record can have 'SCTP', by 'unused'")
    ]


def test_a_rule_that_says_nothing_a_value_that_never_comes_and_too_little_left_are_warned_of(path):
    text = NETWORK.replace('otherwise = "no"', 'otherwise = "yes"').replace(
        'then = { port = "web" }', 'then = { port = ["web", "dns", "none"] }'
    )
    first = NETWORK.index("[[variable]]\nparty")
    wide = "".join(f'[[variable]]\nparty = "probe"\nname = "v{n}"\ncategories = ["a", "b", "c"]\n' for n in range(8))
    chain = "".join(
        f'[[knowledge.rule]]\nkind = "implication"\nif = {{ v{n} = ["a", "b"] }}\nthen = {{ v{n + 1} = "a" }}\n'
        f'[[knowledge.rule]]\nkind = "forbidden"\nall = {{ v{n} = "c" }}\n'
        for n in range(7)
    )
    path.write_text(text[:first] + wide + text[first:] + chain, encoding="utf-8")
    remarks = reach((study := read_study(path)).knowledge, study.schema).remarks
    said = {(remark.code, remark.where) for remark in remarks}
    assert ("rule-says-nothing", "knowledge: rule 'tcp is web'") in said
    assert ("category-impossible", "knowledge: rule 'ciphers'") in said
    assert ("little-left", "knowledge") in said


def test_sentences_say_what_is_stated(study):
    assert describe_knowledge(study.knowledge, study.schema) == (
        "no ports: never together: protocol is 'ICMP' and port is one of 'web', 'dns'.",
        "tcp is web: where protocol is 'TCP', port is 'web'.",
        "unused: never protocol is 'SCTP'.",
        "times: first is less than last, where both are numbers.",
        "ciphers: encrypted follows from port and is sent by nobody: 'web' gives 'yes'; else 'no'.",
        "services: port is a property of finer values, drawn by published weights: "
        "'web' becomes '443' (1) or '80' (3); 'dns' becomes '53' (1).",
    )


def test_the_commands_answer_with_their_codes(path, capsys):
    def run(*arguments: str) -> tuple[int, dict]:
        code = main(["knowledge", *arguments, "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    assert run("ask", str(path), "protocol=TCP", "port=web")[0] == 0
    code, answer = run("ask", str(path), "protocol=TCP", "port=dns")
    assert code == 6
    assert answer["rules"] == ["tcp is web"]
    assert answer["words"] == ["tcp is web: where protocol is 'TCP', port is 'web'."]
    assert run("check", str(path))[0] == 0
    code, answer = run("check", str(path), "--strict")
    assert (code, len(answer["rules"]), answer["dead"][0]["category"]) == (6, 4, "SCTP")
    code, answer = run("show", str(path))
    assert (code, len(answer["words"])) == (0, 6)
    for arguments, words in (
        (("ask", str(path), "protocol"), "expected NAME=VALUE"),
        (("ask", str(path), "port=web", "port=dns"), "'port' is given twice"),
    ):
        code, answer = run(*arguments)
        assert code == 2
        assert words in answer["error"]["message"]
    assert main(["knowledge", "ask", str(path), "protocol=TCP", "port=dns"]) == 6
    assert "impossible: protocol = TCP, port = dns" in capsys.readouterr().out
    assert main(["knowledge", "check", str(path)]) == 0
    assert "no record can have 'SCTP'" in capsys.readouterr().out
    assert main(["knowledge", "show", str(path)]) == 0
    assert "tcp is web: where protocol is 'TCP'" in capsys.readouterr().out
    path.write_text(NETWORK.split("[[knowledge.rule]]", maxsplit=1)[0], encoding="utf-8")
    assert "knowledge" not in tomllib.loads(path.read_text(encoding="utf-8"))
    code, answer = run("check", str(path))
    assert (code, "states nothing" in answer["error"]["message"]) == (2, True)
