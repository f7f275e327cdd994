"""What a study states of all records, at a party: properties are written before anything is drawn; contradictions are counted."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from support.documents import party_toml
from support.knowing import CHILDREN, EARNER, GROWN, PLACE, study_that_knows
from support.linking import records_of
from support.site_folder import write_site
from verticil.curator.reading import read_table
from verticil.curator.study import owners_study
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.encoding import Codebook
from verticil.party.dataset.sources.source_table import DatasetRule, with_properties
from verticil.party.limits.rules import list_uncovered, questions_of
from verticil.party.local_dataset import LocalDataset, column_draws_of, columns_of, read_holding
from verticil.party.operator.check import check
from verticil.party.operator.view_model import questions
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge.columns import columns, narrow_knowledge
from verticil.shared.numerics.knowledge.rules import Condition, Flag, Groups, Knowledge, Refinement, Rule
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import LeftOut, QuorumRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.sub_model import narrow as sub_model

ADULTS = Rule(
    name="adults smoke",
    when=(Condition(variable="smoker", values=("yes",)),),
    then=(Condition(variable="age", values=("[18,65)", "[65,120)")),),
)
SITE = SiteSecret(value=b"s" * 32)
N = 120
SMOKED = Refinement(
    name="smoked", variable="smoker", values=(("yes", "pipe", 1.0), ("yes", "cigar", 2.0), ("no", "none", 1.0))
)
RECODE = '[dataset.people.columns.smoker]\nrecode = { cigarillo = "cigar", none = "yes" }\n'


def stating(*refinements: Refinement, rules: tuple[Rule, ...] = ()) -> Study:
    known = Knowledge(rules=rules, functions=(GROWN, EARNER), refinements=(PLACE, *refinements))
    return dataclasses.replace(study_that_knows(), knowledge=known)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path)
    return tmp_path


def config_of(folder: Path, values: list[str], *, extra: str = "", grown: list[str] | None = None) -> PartyConfig:
    """The clinic: person i is i years old."""
    rows = [f"p{i},{i},{values[i % len(values)]}" for i in range(N)]
    if grown is not None:
        rows = [f"{row},{value}" for row, value in zip(rows, grown, strict=True)]
    header = "id,age,smoker" + ("" if grown is None else ",grown")
    (folder / "people.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "party.toml").write_text(party_toml(per_study=60.0).replace("[policy]", extra + "[policy]"))
    return load_party(folder / "party.toml")


def held(config: PartyConfig, study: Study):
    holding = read_holding(config, study, proposal_digest=b"p" * 32, site_secret=SITE, linkage_key=b"k" * 32)
    return holding, column_draws_of(config, study, holding, site_secret=SITE.value)[1]


def smoker(holding: LocalDataset, n: int) -> list[int]:
    """The codes of the first people of the table."""
    return holding.codes["smoker"][records_of(holding.tags, SITE.tag_key, [f"p{i}" for i in range(n)])].tolist()


def test_a_property_is_written_in_place_of_its_finer_values(folder):
    """Labels themselves stay what they are; a recode of the site's own comes first, also where it names a finer value."""
    study = stating(SMOKED)
    holding, _ = held(config_of(folder, ["pipe", "cigar", "none", "no", "yes"]), study)
    assert smoker(holding, 5) == [1, 1, 0, 0, 1]
    holding, _ = held(config_of(folder, ["cigarillo", "none", "pipe", "no"], extra=RECODE), study)
    assert smoker(holding, 4) == [1, 1, 1, 0]


def test_which_value_has_which_property_is_part_of_what_a_code_means(folder):
    """Another assignment is another draw; other weights, which only say how synthetic values are written, are not."""
    config = config_of(folder, ["no", "yes"])
    digests = []
    moved = dataclasses.replace(SMOKED, values=(("yes", "pipe", 1.0), ("no", "cigar", 2.0), ("no", "none", 1.0)))
    heavier = dataclasses.replace(SMOKED, values=tuple((label, value, 9.0) for label, value, _ in SMOKED.values))
    for study in (stating(), stating(SMOKED), stating(moved), stating(heavier)):
        digests.append(held(config, study)[1].codebook_digest)
    plain, stated, other, weighed = digests
    assert len({plain, stated, other}) == 3
    assert weighed == stated


def test_no_rule_of_a_site_approves_a_cut_that_properties_make(folder):
    """Categories that party.toml permits are another question where a study says which values go into them."""
    plain, known = stating(), stating(SMOKED)
    columns = columns_of(config_of(folder, ["no", "yes"]), plain)
    allowed = questions_of(plain, "clinic", columns)
    assert list_uncovered(plain, "clinic", columns, allowed) == ()
    (said,) = list_uncovered(known, "clinic", columns, allowed)
    assert said.startswith("column 'smoker': its categories")
    assert list_uncovered(known, "clinic", columns, questions_of(known, "clinic", columns)) == ()
    (words,) = [item.words for item in questions(config_of(folder, ["no"]), known).asked if item.columns == ("smoker",)]
    assert "3 finer values that the study lists are written as their category, before anything else" in words


TOLD = Flag(
    name="told",
    variable="told",
    when=(Condition(variable="age", values=("[18,65)",)), Condition(variable="smoker", values=("yes",))),
)


def flagged(*rules: Rule, flag: Flag = TOLD) -> Study:
    """The clinic has a flag: who smokes between 18 and 64."""
    study = study_that_knows(rules=rules)
    told = Variable(name="told", owner="clinic", labels=("no", "yes"))
    unit = dataclasses.replace(study.units[1], variables=("told",))
    schema = Schema(variables=(*study.schema.variables, told))
    knowledge = Knowledge(rules=rules, flags=(flag,))
    return dataclasses.replace(study, schema=schema, units=(*study.units, unit), knowledge=knowledge)


def test_a_flag_is_written_from_its_columns_and_stands_in_no_table(folder):
    config, study = config_of(folder, ["yes", "no"]), flagged()
    holding, _ = held(config, study)
    ages, smokes = np.arange(N), np.arange(N) % 2 == 0
    told = holding.codes["told"] == 1  # people stand in the order of their links
    met = [
        holding.codes[name] == study.schema[study.schema.index(name)].labels.index(label)
        for name, label in (("age", "[18,65)"), ("smoker", "yes"))
    ]
    np.testing.assert_array_equal(told, met[0] & met[1])
    assert told.sum() == ((ages >= 18) & (ages < 65) & smokes).sum()
    releases = column_draws_of(config, study, holding, site_secret=SITE.value)
    place = study.unit_of("told")
    assert releases[place].sources == ("flag of age, smoker",)
    assert releases[place].event.epsilon == releases[1].event.epsilon > 1
    found = check(config, study)
    assert "told" not in str(found.faults)
    assert [table.missing_columns for table in found.tables] == [()]
    (asked_,) = [item for item in questions(config, study).asked if item.columns == ("told",)]
    assert asked_.sources == ("flag of age, smoker",)


def test_rules_are_counted_beside_a_flag(folder):
    assert warnings(config_of(folder, ["yes", "no"]), flagged(ADULTS)) == [
        "people.csv: 9 of 120 rows are not as the rule 'adults smoke' of the study states"
    ]


def test_what_a_flag_means_is_part_of_its_release_and_of_what_people_approve(folder):
    config = config_of(folder, ["yes", "no"])
    other = dataclasses.replace(TOLD, when=TOLD.when[1:])
    same = dataclasses.replace(TOLD, when=(TOLD.when[0], dataclasses.replace(TOLD.when[1], values=("no",))))
    sent = [
        column_draws_of(config, s, held(config, s)[0], site_secret=SITE.value)[s.unit_of("told")]
        for s in (flagged(), flagged(flag=other), flagged(flag=same))
    ]
    assert len({each.codebook_digest for each in sent}) == 3
    columns = columns_of(config, flagged())
    allowed = questions_of(flagged(), "clinic", columns)
    assert list_uncovered(flagged(), "clinic", columns, allowed) == ()
    (said,) = list_uncovered(flagged(flag=same), "clinic", columns_of(config, flagged(flag=same)), allowed)
    assert said.startswith("column 'told': its categories")


def test_a_flag_of_columns_in_two_data_sets_is_refused_by_the_party(folder):
    config = config_of(folder, ["yes", "no"])
    (folder / "more.csv").write_text("id,smoker\n" + "".join(f"p{i},yes\n" for i in range(N)))
    (folder / "people.csv").write_text("id,age\n" + "".join(f"p{i},{i}\n" for i in range(N)))
    (rule,) = config.datasets.values()
    more = dataclasses.replace(rule, path=folder / "more.csv")
    split = dataclasses.replace(config, datasets={"people": rule, "more": more})
    with pytest.raises(
        Misuse, match="'age' is in data set 'people', 'smoker' is in data set 'more', expected one data set"
    ):
        held(split, flagged())


def test_an_owner_alone_writes_flags_too(folder):
    study = owners_study(flagged(), method="network", epsilon=2)
    rows = [f"{i},{'yes' if i % 2 else 'no'},>50K,{50 + i},south" for i in range(N)]
    (folder / "all.csv").write_text("\n".join(["age,smoker,income,weight,region", *rows]) + "\n")
    table = read_table(folder / "all.csv", study, dataset="all", id_column=None, secret=SITE)
    ages = np.arange(N)
    np.testing.assert_array_equal(table.codes[5], (ages >= 18) & (ages < 65) & (ages % 2 == 1))
    assert table.sources[5] == "flag of age, smoker"


def test_without_its_party_a_flag_goes_and_nothing_else() -> None:
    study = flagged(ADULTS)
    left = narrow_knowledge(study.knowledge, study.schema, ["income", "weight", "region"])
    assert left is None
    assert narrow_knowledge(study.knowledge, study.schema, ["age", "smoker"]) == Knowledge(rules=(ADULTS,))


def warnings(config: PartyConfig, study: Study) -> list[str]:
    found = check(config, study)
    return [item.message for item in found.warnings if "of the study states" in item.message]


def test_a_party_counts_what_contradicts_a_rule_of_its_own_columns(folder):
    """Ages 0 to 119: children 0 to 17; every second person smokes. `earner` and `region` are another party's."""
    study = stating(SMOKED, rules=(CHILDREN,))
    assert warnings(config_of(folder, ["pipe", "no"]), study) == [
        "people.csv: 9 of 120 rows are not as the rule 'no child smokes' of the study states"
    ]
    assert warnings(config_of(folder, ["no"]), study) == []
    right = ["no" if i < 18 else "yes" for i in range(N)]
    assert warnings(config_of(folder, ["no"], grown=right), study) == []
    wrong = ["yes", "yes", *right[2:50], "?", *right[51:]]  # what is no category is counted as such, and not here
    assert warnings(config_of(folder, ["no"], grown=wrong), study) == [
        "people.csv: 2 of 120 rows are not as the rule 'grown' of the study states"
    ]


def test_what_is_sent_does_not_depend_on_contradictions(folder):
    """The column that follows is not read; rows that break a rule are as they are."""
    study = stating(SMOKED, rules=(CHILDREN,))
    without, release = held(config_of(folder, ["pipe", "no"]), study)
    there, again = held(config_of(folder, ["pipe", "no"], grown=["nonsense"] * N), study)
    np.testing.assert_array_equal(without.codes["smoker"], there.codes["smoker"])
    assert (release, set(there.codes)) == (again, {"age", "smoker"})


def test_a_column_that_follows_is_charged_nothing(folder):
    """What the ledger charges for: with the column declared and sent its epsilon more, and every other charge the same."""
    study = stating()
    whole = dataclasses.replace(
        study,
        schema=Schema(variables=(*study.schema.variables, GROWN.variable)),
        units=(*study.units, dataclasses.replace(study.units[1], variables=("grown",))),
        knowledge=Knowledge(refinements=(PLACE,)),
    )
    config = config_of(folder, ["no", "yes"], grown=["no" if i < 18 else "yes" for i in range(N)])
    charged = [
        {
            release.variables: release.epsilon
            for release in column_draws_of(config, s, held(config, s)[0], site_secret=SITE.value).values()
        }
        for s in (study, whole)
    ]
    assert charged[1].pop(("grown",)) > 1
    assert charged[0] == charged[1]


def test_an_owner_alone_has_them_too(folder):
    study = owners_study(stating(SMOKED, rules=(CHILDREN,)), method="network", epsilon=2)
    assert study.tables is not None
    assert isinstance(study.tables.epsilon, float)  # a whole number would stand otherwise in what the owner signs
    assert study.knowledge is not None
    assert {item.variable.owner for item in study.knowledge.functions} == {"owner"}
    rows = [f"{i},{'pipe' if i % 2 else 'none'},>50K,{50 + i},east" for i in range(N)]
    (folder / "all.csv").write_text("\n".join(["age,smoker,income,weight,region", *rows]) + "\n")
    table = read_table(folder / "all.csv", study, dataset="all", id_column=None, secret=SITE)
    assert table.codes[1][:4].tolist() == [0, 1, 0, 1]
    assert set(table.codes[4].tolist()) == {0}
    assert [remark for remark in table.remarks if "states" in remark] == [
        "all.csv: 9 of 120 rows are not as the rule 'no child smokes' of the study states"
    ]


# ---- without some parties


def test_what_is_left_of_knowledge_without_a_party():
    study = stating(SMOKED, rules=(CHILDREN,))
    assert study.knowledge is not None
    groups = Groups(name="g", variable="income", groups=(("a", ("<=50K",)), ("b", (">50K",))))
    known = dataclasses.replace(study.knowledge, groups=(groups,))
    old = dataclasses.replace(
        EARNER, name="old", of=("age",), values=(("[0,18)", "none"),), otherwise="some", position=7
    )
    old = dataclasses.replace(old, variable=dataclasses.replace(EARNER.variable, name="old"))  # the other party's
    known = dataclasses.replace(known, functions=(*known.functions, old))
    left = narrow_knowledge(known, study.schema, ("age", "smoker"))
    assert left is not None
    assert left.names == ("no child smokes", "grown", "smoked")
    assert left.functions[0].position == 1
    other = narrow_knowledge(known, study.schema, ("income", "weight", "region"))
    assert other is not None
    assert other.names == ("g", "place")  # `earner` follows from a column of the clinic
    assert narrow_knowledge(known, study.schema, ("weight",)) is None
    only = narrow_knowledge(known, study.schema, ("income", "age"))
    assert only is not None
    assert [(item.name, item.position) for item in only.functions] == [("grown", 1), ("earner", 3), ("old", 4)]


def test_a_sub_model_states_what_it_can():
    two = stating(SMOKED, rules=(CHILDREN,))
    study = dataclasses.replace(
        two,
        parties=(*two.parties, "insurer"),
        schema=Schema(
            variables=tuple(
                dataclasses.replace(item, owner="insurer") if item.name == "weight" else item
                for item in two.schema.variables
            )
        ),
        units=tuple(
            dataclasses.replace(unit, owner="insurer") if unit.variables == ("weight",) else unit for unit in two.units
        ),
        quorum=QuorumRule(deadline_seconds=3600, minimum=2),
    )
    found = sub_model(study, (LeftOut(party="registry", missing="approval"),))
    assert found.knowledge is not None
    assert found.knowledge.names == ("no child smokes", "grown", "smoked")
    assert columns(found.knowledge, found.schema).published.names == ("age", "grown", "smoker", "weight")
    assert support(found.knowledge, found.schema).restricts
    plain = dataclasses.replace(study, knowledge=Knowledge(refinements=(PLACE,)))
    assert sub_model(plain, (LeftOut(party="registry", missing="approval"),)).knowledge is None


# ---- the page


def test_what_the_page_says_of_properties_and_groups_can_be_read(tmp_path):
    """Both pieces of the page in one study, and its table of raw values."""
    page = (Path(__file__).resolve().parents[2] / "deploy" / "docs" / "analyst" / "knowledge.md").read_text(
        encoding="utf-8"
    )
    pieces = [text for text in re.findall(r"^```toml\n(.*?)```", page, re.DOTALL | re.MULTILINE) if '"service"' in text]
    head = 'schema = 1\nid = "ports"\npurpose = "test"\nexpires = 2099-12-31\n[[party]]\nname = "provider"\n'
    head += '[[party]]\nname = "bank"\n'
    other = '[[variable]]\nparty = "bank"\nname = "loan"\ncategories = ["no", "yes"]\n'
    (tmp_path / "study.toml").write_text(
        head + other + "".join(pieces) + '[randomization_default]\nscheme = "symmetric"\nepsilon = 1.0\n'
    )
    study = read_study(tmp_path / "study.toml")
    assert study.knowledge is not None
    assert study.units[study.unit_of("service")].two_level is not None
    rule = with_properties(
        DatasetRule(path=tmp_path / "t.csv", format="csv", id="id"), study.knowledge, study.schema.names
    )
    codebook = Codebook(study.schema[study.schema.index("service")], rule.column("service").recode, where="t.csv")
    codes, _ = codebook.encode(["443", "587", "31337", "web"])
    assert codes.tolist() == [0, 1, 3, 0]
    published = columns(study.knowledge, study.schema).published
    assert published[published.index("service")].labels == ("443", "80", "8080", "25", "587", "53", "other")
