"""A study whose knowledge tests write."""

from __future__ import annotations

from pathlib import Path

from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

HEAD = """\
schema = 1
id = "known"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "register"
[[party]]
name = "school"
[[variable]]
party = "register"
name = "relationship"
categories = ["Husband", "Wife", "Child"]
[[variable]]
party = "register"
name = "sex"
categories = ["Female", "Male"]
[[variable]]
party = "register"
name = "age"
bins = [0, 3, 5, 15, 30, 90]
integer = true
missing = { category = "unknown", spellings = ["?"] }
[[variable]]
party = "school"
name = "education"
categories = ["none", "some", "Bachelors"]
[[variable]]
party = "school"
name = "education-num"
categories = ["1", "9", "13"]
[[variable]]
party = "school"
name = "years"
bins = [0, 5, 15, 30]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
"""
FUNCTION = """
kind = "function"
column = "education-num"
of = ["education"]
values = [["Bachelors", "13"], ["some", "9"]]
otherwise = "1"
"""


def study(tmp_path: Path, *rules: str, head: str = HEAD) -> Study:
    path = tmp_path / "study.toml"
    path.write_text(head + "".join(f"[[knowledge.rule]]\n{rule.strip()}\n" for rule in rules), encoding="utf-8")
    return read_study(path)


PREFIXES = """\
@prefix k: <urn:verticil:knowledge:> .
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dc: <http://purl.org/dc/terms/> .
@prefix : <urn:example:people:> .
"""
GRAPH = (
    PREFIXES
    + """
<urn:example:people> a owl:Ontology ; dc:creator "somebody" .
:relationship a k:Attribute ; k:column "relationship" ; rdfs:label "adults" .
:sex a k:Attribute ; k:column "sex" .
:age a k:Attribute ; k:column "age" .
:education a k:Attribute ; k:column "education" .
:number a k:Attribute ; k:column "education-num" .
:years a k:Attribute ; k:column "years" .
:course a k:Attribute ; rdfs:label "which" ; k:replacedBy :education ;
    k:refinement ( ( "some" "b" 3 ) ( "some" "a" ) ( "none" "c" ) ) .

:husband skos:inScheme :relationship ; skos:notation "Husband" ; skos:broader :old .
:wife skos:inScheme :relationship ; skos:notation "Wife" ; skos:broader :old .
:child skos:inScheme :relationship ; skos:notation "Child" ; skos:broader [ skos:notation "young" ] .
:old skos:notation "old" .

:husbands a sh:NodeShape ; sh:targetClass k:Record ; rdfs:label "husbands" ;
    sh:or ( [ sh:not [ sh:path :relationship ; sh:in ( :husband ) ] ] [ sh:path :sex ; sh:in ( "Male" ) ] ) .
:early a sh:NodeShape ; sh:targetClass k:Record ; rdfs:label "early" ;
    sh:not [ sh:and ( [ sh:path :age ; sh:in ( "[0,3)" "[3,5)" ) ] [ sh:path :education ; sh:not [ sh:in ( "none" ) ] ] ) ] .
:several a sh:NodeShape ; sh:targetClass k:Record ; rdfs:label "x" ;
    sh:or ( [ sh:not [ sh:or ( [ sh:path :age ; sh:in ( "[0,3)" ) ] [ sh:path :age ; sh:in ( "unknown" ) ] ) ] ]
            [ sh:path :relationship ; sh:in ( "Child" ) ]
            [ sh:and ( [ sh:path :sex ; sh:in ( "Male" ) ] [ sh:path :education ; sh:in ( "some" ) ] ) ] ) .

:function a k:FunctionalDependency ; rdfs:label "number" ; k:determinant :education ; k:dependent :number ;
    k:map ( ( "Bachelors" 13 ) ( "some" 9 ) ) ; k:otherwise 1 .
:schooling a k:Order ; rdfs:label "schooling" ; k:lower :years ; k:upper :age ; k:strict true .
:mostly a k:SoftRule ; rdfs:label "mostly" ; k:probability 0.75 ;
    k:if [ sh:path :age ; sh:in ( "[30,90)" ) ] ; k:then [ sh:path :education ; sh:in ( "some" ) ] .
"""
)
