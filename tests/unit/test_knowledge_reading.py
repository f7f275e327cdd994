"""``[[knowledge.rule]]``: what each kind becomes, what is refused with which words, and that the digest binds the meaning."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from support.knowledge import FUNCTION, HEAD, study
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge.rules import Condition, Function, Groups, Order, Refinement, Rule, SoftRule
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.study import canonical


def clause(*conditions: tuple[str, str | tuple[str, ...]]) -> tuple[Condition, ...]:
    return tuple(
        Condition(variable=name, values=(values,) if isinstance(values, str) else values) for name, values in conditions
    )


def test_every_kind_becomes_its_canonical_rule(tmp_path):
    read = study(
        tmp_path,
        'kind = "implication"\nname = "husbands"\nif = { relationship = "Husband" }\nthen = { sex = ["Male"] }',
        'kind = "forbidden"\nname = "early"\nall = { education = { not = "none" }, age = { below = 5 } }',
        FUNCTION + 'name = "number"',
        'kind = "order"\nname = "schooling"\nlower = "years"\nupper = "age"\nstrict = true',
        'kind = "groups"\nname = "adults"\ncolumn = "relationship"\ngroups = { young = ["Child"], old = ["Wife", "Husband"] }',
        'kind = "property"\nname = "which"\ncolumn = "education"\nvalues = [["some", "b", 3], ["some", "a"], ["none", "c"]]',
        'kind = "soft"\nname = "mostly"\nif = { age = { from = 30 } }\nthen = { education = "some" }\nprobability = 0.75',
    )
    known = read.knowledge
    assert known is not None
    early = clause(("age", ("[0,3)", "[3,5)")), ("education", ("some", "Bachelors")))
    assert known.rules == (
        Rule(name="early", when=early),
        Rule(name="husbands", when=clause(("relationship", "Husband")), then=clause(("sex", "Male"))),
    )
    assert known.orders == (Order(name="schooling", lower="years", upper="age", strict=True),)
    (function,) = known.functions
    assert function == Function(
        name="number",
        variable=function.variable,
        position=4,
        of=("education",),
        values=(("some", "9"), ("Bachelors", "13")),
        otherwise="1",
    )
    assert (function.variable.name, function.variable.owner, function.variable.labels) == (
        "education-num",
        "school",
        ("1", "9", "13"),
    )
    assert read.schema.names == ("relationship", "sex", "age", "education", "years")
    assert [unit.variables for unit in read.units] == [(name,) for name in read.schema.names]
    old, young = ("old", ("Husband", "Wife")), ("young", ("Child",))
    assert known.groups == (Groups(name="adults", variable="relationship", groups=(old, young)),)
    finer = (("none", "c", 1.0), ("some", "a", 1.0), ("some", "b", 3.0))
    assert known.refinements == (Refinement(name="which", variable="education", values=finer),)
    assert known.soft == (
        SoftRule(
            name="mostly",
            when=clause(("age", "[30,90)")),
            then=clause(("education", "some")),
            probability=0.75,
        ),
    )
    assert canonical.from_bytes(canonical.to_bytes(read), wire=False) == read
    assert describe_knowledge(known, read.schema)[-1] == (
        "mostly: where age is from 30, education is 'some' with probability 0.75 (it rules out nothing)."
    )


def test_conditions_in_one_table_all_hold_and_a_list_of_tables_says_one_of_them(tmp_path):
    read = study(
        tmp_path,
        'kind = "implication"\nname = "x"\nif = [{ age = { below = 3 } }, { age = "unknown" }]\n'
        'then = [{ relationship = "Child" }, { sex = "Male", education = "some" }]',
    )
    assert read.knowledge is not None
    when = [clause(("age", "[0,3)")), clause(("age", "unknown"))]
    then = [
        clause(("relationship", "Child"), ("sex", "Male")),
        clause(("relationship", "Child"), ("education", "some")),
    ]
    assert [(rule.when, rule.then) for rule in read.knowledge.rules] == [(one, other) for one in when for other in then]
    assert [rule.name for rule in read.knowledge.rules] == ["x", "x (2)", "x (3)", "x (4)"]


def test_names_are_made_from_words_and_neither_order_nor_spelling_changes_the_digest(tmp_path):
    one = 'kind = "forbidden"\nall = { age = { from = 3, below = 15 }, relationship = ["Wife", "Husband"] }'
    same = 'kind = "forbidden"\nall = { relationship = { not = "Child" }, age = ["[5,15)", "[3,5)"] }'
    other = 'kind = "implication"\nif = { relationship = "Wife" }\nthen = { sex = "Female" }'
    read, again = study(tmp_path, one, other), study(tmp_path, other, same)
    assert canonical.digest(read) == canonical.digest(again)
    assert read.knowledge is not None
    assert read.knowledge.names == (
        "never together: relationship is one of 'Husband', 'Wife' and age is from 3 and below 15",
        "where relationship is 'Wife', sex is 'Female'",
    )
    assert describe_knowledge(read.knowledge, read.schema)[1] == "Where relationship is 'Wife', sex is 'Female'."
    assert canonical.digest(study(tmp_path, one)) != canonical.digest(read)


def test_a_study_without_knowledge_keeps_its_digest(tmp_path):
    assert b"knowledge" not in canonical.to_bytes(study(tmp_path))


IMPLIES = 'kind = "implication"\nif = {{ {} }}\nthen = {{ sex = "Male" }}'


@pytest.mark.parametrize(
    ("rule", "words", "hint"),
    [
        ('kind = "implications"', r"knowledge\.rule\[1\]\.kind: got 'implications', expected one of", "implication"),
        ('kind = "order"\nlow = "age"', r"rule\[1\]\.low: unknown key", "'lower'"),
        ('kind = "order"\nlower = "age"', r"rule\[1\]\.upper: missing", ""),
        (IMPLIES.format('relation = "Husband"'), r"rule\[1\]\.if\.relation: 'relation' is not a variable", "relationship"),
        (IMPLIES.format('relationship = "Husbant"'), r"\.if\.relationship: 'Husbant' is not a category", "'Husband'"),
        (IMPLIES.format('relationship = ["Wife", "Wife"]'), r"a category stands there twice", ""),
        (IMPLIES.format("relationship = []"), r"no category of 'relationship' is left", ""),
        (IMPLIES.format('age = { not = ["unknown", { below = 90 }] }'), r"if\.age\.not: got a list, expected a list of", ""),
        (IMPLIES.format("age = 7"), r"if\.age: got a whole number, expected a category of 'age' as a string", ""),
        (IMPLIES.format("age = { below = 14 }"), r"if\.age\.below: 14 is no edge of the bins of 'age'", "edge is 15"),
        (IMPLIES.format("age = { below = 0 }"), r"if\.age: no category of 'age' is left", ""),
        (IMPLIES.format("age = { under = 5 }"), r"if\.age\.under: unknown key", ""),
        (IMPLIES.format("sex = { below = 5 }"), r"if\.sex\.below: 'sex' has categories, expected some of them", ""),
        (IMPLIES.format(""), r"rule\[1\]\.if: the table is empty", ""),
        ('kind = "forbidden"\nall = []', r"rule\[1\]\.all: the list is empty", ""),
        (FUNCTION.replace('otherwise = "1"', ""), r"values: 2 of 3 combinations .* none where education = none", "otherwise"),
        (FUNCTION.replace('"13"', '"133"'), r"values\[1\]: '133' is not a category of 'education-num'", "'13'"),
        (FUNCTION.replace('["some", "9"]', '["Bachelors", "9"]'), r"is '9' and '13' where education = Bachelors", "follow"),
        (FUNCTION.replace('["some", "9"]', '["some"]'), r"values\[2\]: 1 texts, expected a category of 'education' and", ""),
        (FUNCTION.replace('of = ["education"]', 'of = ["education-num"]'), r"\.of: 'education-num' follows from itself", ""),
        ('kind = "order"\nlower = "sex"\nupper = "age"', r"\.lower: 'sex' has categories, expected a variable with bins", ""),
        ('kind = "groups"\ncolumn = "sex"\ngroups = { m = ["Male"] }', r"groups: 'Female' is in no group", ""),
        (
            'kind = "groups"\ncolumn = "sex"\ngroups = { m = ["Male"], f = ["Female", "Male"] }',
            r"groups\.f: 'Male' is in the group 'm' already",
            "",
        ),
        ('kind = "property"\ncolumn = "sex"\nvalues = [["Male", "x", 0]]', r"values\[1\]: got the weight 0", ""),
        ('kind = "property"\ncolumn = "sex"\nvalues = [["Male", "x"], ["Female", "x"]]', r"'x' stands there twice", ""),
        (IMPLIES.format('sex = "Male"').replace("implication", "soft") + "\nprobability = 1", r"got 1, expected more", "impl"),
        ('kind = "implication"\nname = " "\nif = { age = "unknown" }\nthen = { sex = "Male" }', r"a rule's name is ' '", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_key_and_hint(tmp_path, rule, words, hint):
    with pytest.raises(Misuse) as caught:
        study(tmp_path, rule)
    assert caught.value.code == "STUDY_INVALID"
    assert "study.toml" in caught.value.message
    assert re.search(words, caught.value.message), caught.value.message
    assert hint in caught.value.hint


FLAG = '[[variable]]\nparty = "{}"\nname = "{}"\ncategories = {}\n'
IS = 'relationship = "Husband"'
HUSBANDS = 'kind = "implication"\nif = {{ {} }}\nthen = {{ sex = "Male" }}\nflag = "{}"'


def with_flag(party: str = "register", name: str = "told", categories: str = '["no", "yes"]') -> str:
    return HEAD.replace("[randomization_default]", FLAG.format(party, name, categories) + "[randomization_default]")


def test_a_flag_is_a_column_that_says_where_its_rule_applies(tmp_path):
    plain = study(tmp_path, HUSBANDS.format(IS, "x").replace('\nflag = "x"', ""), head=with_flag())
    found = study(tmp_path, HUSBANDS.format(IS, "told"), head=with_flag())
    assert found.knowledge is not None
    assert plain.knowledge is not None
    assert found.knowledge.rules == plain.knowledge.rules
    (flag,) = found.knowledge.flags
    assert flag.when == (Condition(variable="relationship", values=("Husband",)),)
    told, relationship = found.schema.index("told"), found.schema.index("relationship")
    np.testing.assert_array_equal(
        found.support().table((relationship, told)), [[False, True], [True, False], [True, False]]
    )
    assert found.knowledge.flag("sex") is None
    assert any(
        "told is 'yes', else 'no'; its party writes it from them" in text
        for text in describe_knowledge(found.knowledge, found.schema)
    )
    assert canonical.from_bytes(canonical.to_bytes(found), wire=False) == found
    assert canonical.digest(plain) != canonical.digest(found)
    assert b"flags" not in canonical.to_bytes(plain)


@pytest.mark.parametrize(
    ("head", "rule", "words"),
    [
        (with_flag("school"), HUSBANDS.format(IS, "told"), "'told' is a column of 'school', and 'relationship'"),
        (with_flag(), HUSBANDS.format(IS + ', education = "some"', "told"), "is one of 'school': nobody could"),
        (with_flag(), HUSBANDS.format(IS, "tod"), "flag: 'tod' is not a variable"),
        (with_flag(categories='["no", "yes", "?"]'), HUSBANDS.format(IS, "told"), "two categories and no more"),
        (with_flag(), HUSBANDS.format(IS, "age"), "'age' is a flag, expected two categories"),
        (with_flag(), HUSBANDS.format('told = "yes"', "told"), "'told' is a flag itself"),
        (
            with_flag(),
            HUSBANDS.format(IS, "told") + "\n[[knowledge.rule]]\n" + HUSBANDS.format('age = "unknown"', "told"),
            r"'told' is the flag of knowledge.rule\[1\] already",
        ),
        (
            with_flag(),
            HUSBANDS.format(IS, "told").replace("if = {", "if = [{").replace("}\nthen", '}, { sex = "Male" }]\nthen'),
            "'if' has alternatives",
        ),
        (
            with_flag("school"),
            FUNCTION + "[[knowledge.rule]]\n" + HUSBANDS.format('education-num = "1"', "told"),
            "'education-num' follows from others, expected variables that a party sends",
        ),
    ],
)
def test_a_flag_that_nobody_could_write_is_refused_by_name(tmp_path, head, rule, words):
    with pytest.raises(Misuse) as caught:
        study(tmp_path, rule, head=head)
    assert caught.value.code == "STUDY_INVALID"
    assert re.search(words, caught.value.message), caught.value.message


def test_a_flag_in_a_canonical_form_is_checked_as_well(tmp_path):
    found = study(tmp_path, HUSBANDS.format(IS, "told"), head=with_flag())
    assert found.knowledge is not None
    (flag,) = found.knowledge.flags
    for changed, words in (
        (dataclasses.replace(flag, when=(Condition(variable="education", values=("some",)),)), "nobody could write it"),
        (
            dataclasses.replace(flag, variable="sex", when=(Condition(variable="sex", values=("Male",)),)),
            "is a flag itself",
        ),
    ):
        planted = dataclasses.replace(found, knowledge=dataclasses.replace(found.knowledge, flags=(changed,)))
        with pytest.raises(Misuse, match=words):
            canonical.from_bytes(canonical.to_bytes(planted), wire=False)


def test_rules_that_are_wrong_together_are_named(tmp_path):
    never = 'kind = "forbidden"\nname = "{}"\nall = {{ sex = "{}" }}'
    with pytest.raises(Misuse, match="no record is possible: 'no men' and 'no women' contradict each other"):
        study(tmp_path, never.format("no men", "Male"), never.format("no women", "Female"))
    with pytest.raises(Misuse, match=r"rule\[2\].name: 'a' is the name of knowledge.rule\[1\] already"):
        study(tmp_path, never.format("a", "Male"), IMPLIES.format('age = "unknown"') + '\nname = "a"')
    with pytest.raises(Misuse, match=r"rule\[2\].kind: it states what knowledge.rule\[1\] states already"):
        study(tmp_path, never.format("a", "Male"), never.format("b", "Male"))
    with pytest.raises(
        Misuse, match=r"rule\[2\].column: 'education-num' follows from others by knowledge.rule\[1\] already"
    ):
        study(tmp_path, FUNCTION, FUNCTION)
    swapped = FUNCTION.replace("education-num", "relationship").replace("education", "sex").split("values")[0]
    first = swapped + 'values = []\notherwise = "Child"'
    second = 'kind = "function"\ncolumn = "sex"\nof = ["education"]\nvalues = []\notherwise = "Male"'
    with pytest.raises(
        Misuse, match="'relationship' follows from 'sex', which follows from others and is declared after it"
    ):
        study(tmp_path, first.replace('["education"]', '["sex"]'), second)
    wide = HEAD.replace('["none", "some", "Bachelors"]', str([f"e{number}" for number in range(400)])).replace(
        '["1", "9", "13"]', str([f"n{number}" for number in range(400)])
    )
    with pytest.raises(Misuse, match="its 4 variables have 2880000 combinations, expected at most 1000000"):
        study(
            tmp_path,
            'kind = "forbidden"\nall = { education = "e1", education-num = "n1", age = "unknown", relationship = "Wife" }',
            head=wide,
        )
    many = [
        f'kind = "forbidden"\nall = {{ education = "e{number % 400}", education-num = "n{number // 400}" }}'
        for number in range(1001)
    ]
    with pytest.raises(Misuse, match=r"rule\[1001\].kind: 1001 rules with those before it, expected at most 1000"):
        study(tmp_path, *many, head=wide)


@pytest.mark.parametrize("column", ["education", "education-num"])  # a party sends it; it follows from others
def test_a_rule_on_a_column_of_a_party_that_is_not_in_the_study_is_refused_by_both_names(tmp_path, column):
    head = HEAD.replace(f'party = "school"\nname = "{column}"\n', f'party = "bank"\nname = "{column}"\n')
    assert head != HEAD
    with pytest.raises(Misuse, match=rf"'{column}'.*'bank'|'bank'.*'{column}'") as caught:
        study(tmp_path, FUNCTION, head=head)
    assert caught.value.code == "STUDY_INVALID"


def test_a_column_that_follows_is_randomized_by_nobody(tmp_path):
    head = HEAD.replace("[randomization_default]", '[[randomization]]\nvariables = ["education-num"]\nscheme = "none"\n'
                        "[randomization_default]")  # fmt: skip
    with pytest.raises(Misuse, match=r"variables: \[\[randomization\]\] of 'education-num', which follows from others"):
        study(tmp_path, FUNCTION, head=head)
    with pytest.raises(Misuse, match=r"knowledge.rule: there is no rule"):
        study(tmp_path, head=HEAD + "[knowledge]\nrule = []\n")


def test_knowledge_that_states_nothing_is_no_canonical_form(tmp_path):
    body = (
        canonical.to_bytes(study(tmp_path))
        .replace(b'"knowledge":', b"")
        .replace(b'"linkage"', b'"knowledge":{},"linkage"')
    )
    with pytest.raises(Misuse, match="it states nothing"):
        canonical.from_bytes(body, wire=False)
