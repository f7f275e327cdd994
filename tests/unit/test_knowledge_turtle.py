"""``[knowledge] file``: what a graph in Turtle says is what tables say; what else stands in it is refused; pyshacl agrees."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pyshacl
import pytest
import rdflib

from support.knowledge import FUNCTION, GRAPH, HEAD, PREFIXES
from support.knowledge import study as by_tables
from support.releases import random_network
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_command
from verticil.shared.numerics.knowledge import turtle
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import function_codes
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.synthesis.synthesis import sample_codes

FLAGGED = '[[variable]]\nparty = "register"\nname = "told"\ncategories = ["no", "yes"]\n'
TABLES = (
    'kind = "implication"\nname = "husbands"\nif = { relationship = "Husband" }\nthen = { sex = "Male" }',
    'kind = "forbidden"\nname = "early"\nall = { education = { not = "none" }, age = { below = 5 } }',
    'kind = "implication"\nname = "x"\nif = [{ age = { below = 3 } }, { age = "unknown" }]\n'
    'then = [{ relationship = "Child" }, { sex = "Male", education = "some" }]',
    FUNCTION + 'name = "number"',
    'kind = "order"\nname = "schooling"\nlower = "years"\nupper = "age"\nstrict = true',
    'kind = "groups"\nname = "adults"\ncolumn = "relationship"\ngroups = { young = ["Child"], old = ["Wife", "Husband"] }',
    'kind = "property"\nname = "which"\ncolumn = "education"\nvalues = [["some", "b", 3], ["some", "a"], ["none", "c"]]',
    'kind = "soft"\nname = "mostly"\nif = { age = { from = 30 } }\nthen = { education = "some" }\nprobability = 0.75',
)


def by_file(tmp_path: Path, graph: str | bytes, *, head: str = HEAD) -> Study:
    (tmp_path / "rules.ttl").write_bytes(graph if isinstance(graph, bytes) else graph.encode())
    path = tmp_path / "study.toml"
    path.write_text(head + '[knowledge]\nfile = "rules.ttl"\n', encoding="utf-8")
    return read_study(path)


def test_a_graph_and_tables_that_say_the_same_are_one_knowledge_and_one_digest(tmp_path):
    one, other = by_tables(tmp_path, *TABLES), by_file(tmp_path, GRAPH)
    assert other.knowledge == one.knowledge
    assert canonical.digest(one) == canonical.digest(other)
    plain = re.sub(r'rdfs:label "[^"]*" ;?', "", GRAPH).replace("; .", ".")
    tables = (re.sub(r'name = "(?!\w+ ?= )[a-z]+"\n?', "", rule).strip() for rule in TABLES)
    assert by_file(tmp_path, plain).knowledge == by_tables(tmp_path, *tables).knowledge  # names made from words


def test_a_flag_in_a_graph_is_that_of_a_table(tmp_path):
    head = HEAD.replace("[randomization_default]", FLAGGED + "[randomization_default]")
    attribute = ':told a k:Attribute ; k:column "told" .\n'
    graph = GRAPH.replace('rdfs:label "husbands" ;', 'rdfs:label "husbands" ; k:flag :told ;') + attribute
    one = by_tables(tmp_path, TABLES[0] + '\nflag = "told"', *TABLES[1:], head=head)
    assert by_file(tmp_path, graph, head=head).knowledge == one.knowledge
    assert one.knowledge is not None
    assert [(item.name, item.variable) for item in one.knowledge.flags] == [("husbands, as a column", "told")]
    several = GRAPH.replace('rdfs:label "x" ;', 'rdfs:label "x" ; k:flag :told ;') + attribute
    with pytest.raises(Misuse, match=r"rules.ttl: line \d+: :several: 4 rules in one, expected an implication"):
        by_file(tmp_path, several, head=head)


def test_a_disjunction_without_a_negation_and_what_rules_out_nothing(tmp_path):
    shape = ":s a sh:NodeShape ; sh:targetClass k:Record ; rdfs:label 's' ; "
    either = shape + 'sh:or ( [ sh:path :education ; sh:in ( "some" ) ] [ sh:path :sex ; sh:in ( "Male" ) ] ) .'
    attributes = GRAPH[: GRAPH.index(":course")]
    same = 'kind = "implication"\nname = "s"\nif = { sex = "Female" }\nthen = { education = "some" }'
    assert by_file(tmp_path, attributes + either).knowledge == by_tables(tmp_path, same).knowledge
    twice = (
        'sh:or ( [ sh:not [ sh:path :education ; sh:in ( "none" "some" ) ] ]'
        ' [ sh:not [ sh:path :education ; sh:in ( "some" "Bachelors" ) ] ] ) .'
    )
    never = 'kind = "forbidden"\nname = "s"\nall = { education = "some" }'
    assert by_file(tmp_path, attributes + shape + twice).knowledge == by_tables(tmp_path, never).knowledge
    always = (
        'sh:or ( [ sh:not [ sh:path :sex ; sh:in ( "Male" ) ] ] [ sh:not [ sh:path :sex ; sh:in ( "Female" ) ] ] ) .'
    )
    with pytest.raises(Misuse, match="there is no rule"):
        by_file(tmp_path, attributes + shape + always)


SHAPE = ":s a sh:NodeShape ; sh:targetClass k:Record ; "
MALE = '[ sh:path :sex ; sh:in ( "Male" ) ]'
SEX = ':sex a k:Attribute ; k:column "sex" .\n'


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (SEX + ":s a sh:NodeShape", r"line \d+: not Turtle: "),
        (SEX + "this is no Turtle", r"rules.ttl: line 9: not Turtle: "),
        ("<urn:x> owl:imports <http://example.org/more> .", r"line 8: <urn:x>: owl:imports: nothing is ever fetched"),
        (SEX + SHAPE + "\nsh:minCount 1 .", r"line 10: :s: sh:minCount is not understood here"),
        (SEX + SHAPE + "sh:property " + MALE + " .", r"sh:property is not understood here"),
        (":s a owl:Restriction .", r"line 8: :s: owl:Restriction is not understood here"),
        (':s k:colunm "sex" .', r"k:colunm is not understood here"),
        (SEX + "[] a sh:NodeShape ; sh:targetClass k:Record ; sh:not " + MALE + " .", r"of no sh:NodeShape with an IRI"),
        (SEX + ":s sh:or ( " + MALE + " ) .", r"sh:path of no sh:NodeShape|sh:in of no|sh:or of no"),
        (SEX + ":s a sh:NodeShape ; sh:not " + MALE + " .", r":s: sh:targetClass is nothing, expected k:Record"),
        (SEX + ":s a sh:NodeShape ; sh:targetClass :P ; sh:not " + MALE + " .", r"sh:targetClass is :P, expected k:Record"),
        (SEX + SHAPE + "rdfs:label 'x' .", r"a shape without sh:path, sh:or, sh:and and sh:not"),
        (SEX + SHAPE + 'sh:in ( "Male" ) .', r"sh:in without sh:path"),
        (SEX + SHAPE + "sh:not [ sh:path :sex ] .", r"sh:path without sh:in"),
        (SEX + SHAPE + "sh:not [ sh:path :sec ; sh:in ( 'Male' ) ] .", r"line 9: got :sec, expected a k:Attribute"),
        (SEX + SHAPE + "sh:not [ sh:path :sex ; sh:or ( " + MALE + " ) ] .", r"sh:path within sh:path"),
        (SEX + SHAPE + "sh:not [ sh:path [ sh:or ( ) ] ; sh:in ( 'Male' ) ] .", r"got a node without an IRI, expected"),
        (SEX + SHAPE + 'sh:not [ sh:path :sex ; sh:in ( "Mal" ) ] .', r"rules.ttl: :s.all.sex: 'Mal' is not a category of 'sex'"),
        (SEX + SHAPE + 'sh:not [ sh:path :sex ; sh:in "Male" ] .', r"sh:in is no list"),
        (SEX + SHAPE + "sh:not :s .", r"nested deeper than 50, or in a circle"),
        (SEX + SHAPE + "sh:not " + MALE + " ; sh:not " + MALE + " .", r"sh:not stands there 2 times, expected once"),
        (SEX.replace("sex", "sec") + SHAPE + "sh:not [ sh:path :sec ; sh:in ( 'x' ) ] .", r"'sec' is not a variable"),
        (SEX + ":f a k:FunctionalDependency ; k:dependent :sex .", r":f: k:determinant is missing"),
        (SEX + ":o a k:Order ; k:lower :sex ; k:upper :sex ; k:strict 'no' .", r"k:strict is 'no', expected true or false"),
        (SEX + ":m a k:SoftRule ; k:if " + MALE + " ; k:then " + MALE + " ; k:probability 'x' .", r"k:probability: got 'x'"),
        (SEX + "( 1 2 ) k:replacedBy :sex .", r"k:replacedBy of what is no k:Attribute"),
        (SEX + ":m skos:inScheme :sex ; skos:notation 'Male' ; skos:broader :n . :n skos:notation 'n' .", r"'Female' is in no g"),
        ("(" * 5000, r"nested too deep|not Turtle"),
        (b"\xff\xfe", r"not UTF-8 at byte"),
        ("@prefix d: <{rn:d:> .\nd:s a d:t .", r"line 8: not Turtle: '{' stands in the address '{rn:d:\w', expected none"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_file_and_where_it_can_be_found_the_line(tmp_path, graph, words):
    with pytest.raises(Misuse) as caught:
        by_file(tmp_path, PREFIXES + graph if isinstance(graph, str) else graph)
    assert caught.value.code == "STUDY_INVALID"
    assert caught.value.message.startswith("rules.ttl: ")
    assert re.search(words, caught.value.message), caught.value.message


def test_too_large_a_file_is_refused_before_it_is_parsed_and_too_many_triples_while_it_is(tmp_path, monkeypatch):
    large = tmp_path / "rules.ttl"
    with large.open("wb") as file:
        file.truncate(100 * 1024**2)
    (tmp_path / "study.toml").write_text(HEAD + '[knowledge]\nfile = "rules.ttl"\n', encoding="utf-8")
    monkeypatch.setattr(turtle, "_parse", None)
    with pytest.raises(Misuse, match=r"rules\.ttl: more than 10 MB, expected less"):
        read_study(tmp_path / "study.toml")
    monkeypatch.undo()
    monkeypatch.setattr(turtle, "MAX_TRIPLES", 100)
    with pytest.raises(Misuse, match=r"rules\.ttl: more than 100 triples, expected fewer"):
        by_file(tmp_path, PREFIXES + "".join(f":a{n} :b :c .\n" for n in range(101)))
    by_file(tmp_path, PREFIXES + SEX + SHAPE + f"sh:not {MALE} .\n" + "".join(f":a{n} :b :c .\n" for n in range(80)))


def test_a_missing_file_a_folder_and_a_missing_library_say_what_to_do(tmp_path, monkeypatch):
    for name, words in (("none.ttl", "none.ttl: no such file"), (".", "cannot be read")):
        (tmp_path / "study.toml").write_text(HEAD + f'[knowledge]\nfile = "{name}"\n', encoding="utf-8")
        with pytest.raises(Misuse, match=words) as caught:
            read_study(tmp_path / "study.toml")
        assert caught.value.code == "FILE_MISSING"
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(Misuse, match=r"rules\.ttl: reading Turtle needs rdflib, which is not installed") as caught:
        by_file(tmp_path, GRAPH)
    assert install_command("knowledge") in caught.value.hint


@pytest.mark.whole
def test_a_validator_of_shapes_finds_nothing_in_records_that_keep_the_rules_and_finds_a_planted_violation(tmp_path):
    """pyshacl reads the same file by itself. Of 400 random records it must refuse exactly those that break a rule."""
    graph = GRAPH.split(":function a", maxsplit=1)[0]
    study = by_file(tmp_path, graph)
    support, generator = study.support(), np.random.default_rng(5)
    codes = [generator.integers(0, n, 400) for n in study.schema.n_states]
    met = support.holds(codes)
    assert 50 < met.sum() < 350
    attributes = {"education-num": "number"}

    def violated(chosen: np.ndarray) -> set[int]:
        data = rdflib.Graph()
        base = "urn:example:people:"
        for record in chosen.tolist():
            node = rdflib.URIRef(f"urn:example:record:{record}")
            data.add((node, rdflib.RDF.type, rdflib.URIRef(turtle.K + "Record")))
            for variable, column in zip(study.schema.variables, codes, strict=True):
                name = attributes.get(variable.name, variable.name)
                data.add((node, rdflib.URIRef(base + name), rdflib.Literal(variable.labels[column[record]])))
        shapes = rdflib.Graph().parse(data=graph.replace("( :husband )", '( "Husband" )'), format="turtle")
        conforms, report, _ = pyshacl.validate(data, shacl_graph=shapes)
        found = {
            int(str(node).rpartition(":")[2]) for node in report.objects(None, rdflib.URIRef(turtle.SH + "focusNode"))
        }
        assert conforms == (not found)
        return found

    everybody = np.arange(400)
    assert violated(everybody) == set(everybody[~met].tolist())
    keeping = everybody[met]
    assert violated(keeping) == set()
    planted = keeping[0]
    index = study.schema.index
    codes[index("relationship")][planted], codes[index("sex")][planted] = 0, 0  # a husband who is female
    assert violated(keeping) == {planted}
    variables = study.schema.variables
    network = random_network(variables, tuple((v - 1,) if v else () for v in range(len(variables))), seed=3)
    codes = [c.astype(int) for c in sample_codes(network, 100, generator=generator, support=rake(network, support))]
    assert violated(np.arange(100)) == set()
    codes = [c.astype(int) for c in sample_codes(network, 100, generator=generator)]  # of the network without the rules
    assert violated(np.arange(100))


def test_the_function_of_a_graph_makes_its_column(tmp_path):
    study = by_file(tmp_path, GRAPH)
    assert study.knowledge is not None
    (function,) = study.knowledge.functions
    assert function_codes(function, [study.schema[study.schema.index("education")]]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["../rules.ttl", "/dev/zero", "within/../../rules.ttl", "link.ttl"])
def test_a_file_outside_the_folder_of_the_study_is_refused_without_being_read(tmp_path, name):
    (tmp_path / "rules.ttl").write_text(GRAPH)
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "link.ttl").symlink_to(tmp_path / "rules.ttl")
    (folder / "study.toml").write_text(HEAD + f'[knowledge]\nfile = "{name}"\n', encoding="utf-8")
    with pytest.raises(Misuse, match="lies outside the study") as caught:
        read_study(folder / "study.toml")
    assert caught.value.code == "STUDY_INVALID"
