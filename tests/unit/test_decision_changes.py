"""Whatever gives an approval its meaning: a change of it voids the approval, and the change is named."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.documents import party_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import PartyConfig, load_party
from verticil.party.operator.pending_studies import in_words, inbox, show
from verticil.party.operator.view_model import COUNTS_TELL
from verticil.party.policy.comparison import changes, variable_words
from verticil.party.site import Site
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.documents.view_models import document
from verticil.shared.mechanisms.transition import binary, quantize, symmetric
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.model.schema import Missing, Schema
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import PublishRule, Study
from verticil.shared.study.states import State
from verticil.shared.study.unit import Unit

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 150
PARTY = party_toml()


def people() -> str:
    rows = [f"p{i},{i % 100},{'yes' if i % 3 else 'no'},{'yes' if i % 5 else 'no'}" for i in range(N)]
    return "\n".join(["id,age,smoker,smokes", *rows]) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, PARTY)
    (tmp_path / "people.csv").write_text(people())
    return tmp_path


def config_of(folder: Path) -> PartyConfig:
    return load_party(folder / "party.toml")


def offer(site: Site, study: Study, *, submitter: str = "", ended: str = "") -> bytes:
    digest = canonical.digest(study)
    task = task_of(study, submitter=submitter, ended_words=ended)
    site.state.remember(task, study.id, NOW)
    return digest


def with_variable(study: Study, name: str, **change: object) -> Study:
    schema = Schema(
        variables=tuple(
            dataclasses.replace(variable, **change) if variable.name == name else variable  # type: ignore[arg-type]
            for variable in study.schema.variables
        )
    )
    return dataclasses.replace(study, schema=schema)


def without(study: Study, name: str) -> Study:
    schema = Schema(variables=tuple(variable for variable in study.schema.variables if variable.name != name))
    units = tuple(unit for unit in study.units if name not in unit.variables)
    return dataclasses.replace(study, schema=schema, units=units)


def with_unit(study: Study, index: int, **change: object) -> Study:
    return dataclasses.replace(
        study,
        units=tuple(
            dataclasses.replace(unit, **change) if i == index else unit  # type: ignore[arg-type]
            for i, unit in enumerate(study.units)
        ),
    )


OF_STUDY: dict[str, tuple[Callable[[Study], Study], str]] = {
    "columns": (lambda s: without(s, "region"), "column 'region' of 'registry': is gone"),
    "categories": (
        lambda s: with_variable(s, "smoker", labels=("no", "now and then")),
        "column 'smoker': with the new categories 'now and then'",
    ),
    "order of categories": (
        lambda s: with_variable(s, "smoker", labels=("yes", "no")),
        "column 'smoker': its categories are in another order: 'yes', 'no', was 'no', 'yes'",
    ),
    "bin edge": (
        lambda s: with_variable(s, "age", bins=(0.0, 18.0, 66.0, 120.0), labels=("[0,18)", "[18,66)", "[66,120)")),
        "column 'age': bin edges 0, 18, 66, 120, were 0, 18, 65, 120",
    ),
    "other": (lambda s: with_variable(s, "smoker", other="no"), "column 'smoker': other: 'no', was none"),
    "missing": (
        lambda s: with_variable(s, "smoker", missing=Missing(category="no", spellings=("?",))),
        "column 'smoker': missing '?' becomes 'no', was no missing values",
    ),
    "normalise": (
        lambda s: dataclasses.replace(s, linkage=dataclasses.replace(s.linkage, normalise=("trim", "casefold"))),
        "linkage.normalise: ('trim', 'casefold'), was ('nfkc', 'trim')",
    ),
    "matrix cell": (
        lambda s: with_unit(s, 1, transition=quantize(binary(0.2, 0.25))),
        "column 'smoker': a true 'no' is reported as 'yes' 20 % of the time, was 10 %",
    ),
    "alignment": (
        lambda s: dataclasses.replace(s, linkage=dataclasses.replace(s.linkage, mode="dh-psi")),
        "linkage.mode: 'dh-psi', was 'keyed-hash'",
    ),
    "smallest number in common": (
        lambda s: dataclasses.replace(s, linkage=dataclasses.replace(s.linkage, minimum_common_records=60)),
        "linkage.minimum_common_records: 60, was 100",
    ),
    "model and recipient": (lambda s: dataclasses.replace(s, model="peer"), "column 'age': goes to registry, went to miner"),
    "expiry": (lambda s: dataclasses.replace(s, expires=dt.date(2098, 1, 1)), "expires: 2098-01-01, was 2099-12-31"),
    "parties": (
        lambda s: dataclasses.replace(s, parties=("registry", "clinic")),
        "parties: ('registry', 'clinic'), was ('clinic', 'registry')",
    ),
    "publication": (lambda s: dataclasses.replace(s, publish=PublishRule()), "publish: (quorum none), was none"),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_STUDY)
def test_a_changed_study_is_named(release_study, what):
    change, named = OF_STUDY[what]
    assert named in changes(release_study, change(release_study))
    assert changes(release_study, release_study) == ()


def with_pair(study: Study, *impossible: tuple[int, int]) -> Study:
    """Age and smoker in one draw."""
    pair = Unit(
        variables=("age", "smoker"), owner="clinic", scheme="symmetric", impossible=impossible,
        transition=quantize(symmetric(6 - len(impossible), epsilon=2.0)),
    )  # fmt: skip
    return dataclasses.replace(study, units=(pair, *study.units[2:]))


def test_combinations_that_became_impossible_or_possible_are_named(release_study):
    """Also where their number stayed the same, and where the matrix has another size."""
    before = with_pair(release_study, (0, 1))
    young, old = "age '[0,18)' with smoker 'yes'", "age '[65,120)' with smoker 'no'"
    assert f"column 'age, smoker': {young} is not impossible any more" in changes(before, with_pair(release_study))
    assert f"column 'age, smoker': {young} is impossible now" in changes(with_pair(release_study), before)
    assert changes(before, with_pair(release_study, (2, 0))) == (
        f"column 'age, smoker': {old} is impossible now",
        f"column 'age, smoker': {young} is not impossible any more",
    )


def test_show_says_what_is_asked_of_the_table_before_anybody_looks_at_it(folder, release_study, capsys):
    """Bins, categories, other, missing, impossible combinations and normalise, in words; and that a no tells something."""
    asking = with_variable(release_study, "smoker", missing=Missing(category="no", spellings=("", "?")))
    with Site.open(config_of(folder)) as site:
        digest = offer(site, with_pair(asking, (0, 1), (2, 0)))
    (folder / "people.csv").unlink()  # no table is read
    assert main(["party", "show", digest.hex(), "--config", str(folder / "party.toml")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for said in (
        "bins [0,18), [18,65), [65,120); a number outside goes to the nearest bin",
        "categories 'no', 'yes'",
        "missing, written as an empty field, '?': becomes 'no'",
        "anything else becomes one of these, drawn here with a key that only this site has",
        "impossible, and never sent: age '[0,18)' with smoker 'yes'; age '[65,120)' with smoker 'no'",
        "ids are compared after nfkc (wide and compatibility letters as plain ones), then trim",
        COUNTS_TELL,
    ):
        assert said in text
    other = with_variable(release_study, "smoker", other="no")
    assert variable_words(other.schema[1])[1] == "anything else, also an empty field, becomes 'no'"


@pytest.mark.parametrize("page", [False, True])
def test_show_and_page_say_why_no_rule_approves(folder, release_study, page):
    rule = 'approval = "rules"\n[[policy.rule]]\nname = "usual"\ncolumns = ["age", "smoker"]\nmax_epsilon = 5.0\n'
    book = '[codebook]\n[[codebook.column]]\nsource = "smoker"\ncategories = ["no", "yes"]\n'
    (folder / "party.toml").write_text(PARTY + rule + book)
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
    with (Site.look if page else Site.open)(config_of(folder)) as site:
        said = in_words(site, site.state.study(digest), NOW).by_rule
    assert said.rule is None
    assert [text.split(" stand")[0] for text in said.why] == [
        "column 'age': its bins of the local column 'age'",
        "linkage.normalise (nfkc, trim)",
    ]


def test_whatever_field_differs_something_is_said(release_study):
    """Every field of a study, also those that later versions add: a change that nobody names would be approved unseen."""
    other = {
        "id": "another", "title": "x", "purpose": "x", "model": "peer", "expires": dt.date(2098, 1, 1), "parties": ("x",),
        "linkage": None, "schema": with_variable(release_study, "smoker", labels=("a", "b")).schema,
        "units": (*release_study.units[:-1], dataclasses.replace(release_study.units[-1], scheme="none")),
        "structure": dataclasses.replace(release_study.structure, seed=8), "parameters": None, "release": None, "breach": 0,
        "share": 0, "publish": PublishRule(quorum=1), "knowledge": Knowledge(),
    }  # fmt: skip
    for field in dataclasses.fields(Study):
        value = other.get(field.name, 0)
        changed = dataclasses.replace(release_study, **{field.name: value})
        assert changes(release_study, changed), field.name


@pytest.mark.parametrize("what", ["matrix cell", "expiry", "columns"])
def test_a_study_of_the_same_id_is_not_approved_by_the_earlier_approval(folder, release_study, what):
    """The approval is the old study's: nothing of the new one is approved, and inbox and show say what changed."""
    change, named = OF_STUDY[what]
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
        site.voting.approve(site.state.study(digest), "officer", NOW)
        again = offer(site, change(release_study))
        assert site.state.study(again).approval is None
        given = parse_approval(site.state.study(digest).approval)
        with pytest.raises(Refusal) as caught:
            site.voting.check_binding(
                dataclasses.replace(site.state.study(again), approval=site.state.study(digest).approval), NOW.date()
            )
        assert caught.value.code == "APPROVAL_VOID"
        assert given.proposal_digest == digest
    config = config_of(folder)
    facts = show(config, again.hex(), diff=True, at=NOW)
    assert facts.comparison.compared_with == digest.hex()
    assert facts.comparison.compared_with_approved is True
    assert named in facts.comparison.changes
    (line,) = inbox(config, at=NOW).waiting  # the approved one waits for nobody here
    assert line.digest == again.hex()
    assert named in line.changed


def test_an_expired_study_says_so_where_it_waits_and_when_it_is_decided(folder, release_study):
    """Before the miner has told it, from its day; afterwards from the miner's word."""
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
    later = NOW.replace(year=release_study.expires.year + 1)
    said = f"its last day was {release_study.expires.isoformat()}"
    (line,) = inbox(config_of(folder), at=later).waiting
    assert line.objections[0] == f"it expired: {said}"
    assert inbox(config_of(folder), at=NOW).waiting[0].objections == ()
    with Site.open(config_of(folder)) as site:
        site.state.move(digest, State.EXPIRED)
        with pytest.raises(Refusal, match=said) as caught:
            site.voting.approve(site.state.study(digest), "officer", NOW)
    assert caught.value.code == "STUDY_EXPIRED"


def change_declaration(folder: Path) -> None:
    text = '[[randomization]]\nvariables = ["smoker"]\nscheme = "symmetric"\nkeep = 0.75\n[policy]'
    (folder / "party.toml").write_text(PARTY.replace("[policy]", text))


def change_source(folder: Path) -> None:
    text = '[dataset.people.columns.smoker]\nsource = "smokes"\n[policy]'
    (folder / "party.toml").write_text(PARTY.replace("[policy]", text))


def change_recode(folder: Path) -> None:
    text = '[dataset.people.columns.smoker]\nrecode = { "never" = "no" }\n[policy]'
    (folder / "party.toml").write_text(PARTY.replace("[policy]", text))


def change_dataset(folder: Path) -> None:
    text = PARTY.replace("dataset.people", "dataset.patients")
    apart = '[policy]\nsame_people = { people = "gone", patients = "apart" }'
    (folder / "party.toml").write_text(text.replace("[policy]", apart))


def change_a_value(folder: Path) -> None:
    (folder / "people.csv").write_text(people().replace("p7,7,yes", "p7,7,no"))


def add_a_person(folder: Path) -> None:
    (folder / "people.csv").write_text(people() + "p999,50,no,no\n")


OF_SITE: dict[str, tuple[Callable[[Path], None], str]] = {
    "declaration": (
        change_declaration,
        "the declaration in party.toml changed; column 'smoker': scheme 'symmetric', was 'matrix';"
        " column 'smoker': a true 'no' is reported as 'no' 75 % of the time, was 90 %",
    ),
    "source": (change_source, "column 'smoker': is read from the local column 'smokes', was 'smoker'"),
    "recode": (change_recode, "column 'smoker': its recode changed"),
    "data set": (change_dataset, "column 'age': is read from data set 'patients', was 'people'"),
    "a value": (change_a_value, "column 'smoker': the data of data set 'people' changed"),
    "a person": (add_a_person, "column 'age': the data of data set 'people' changed (151 records, were 150)"),
}


@pytest.mark.parametrize("what", OF_SITE)
def test_feature_4_a_change_at_the_site_voids_the_approval_and_is_named(folder, release_study, what):
    change, named = OF_SITE[what]
    if what == "data set":  # a name in the ledger must be explained, before and after
        (folder / "party.toml").write_text(PARTY.replace("[policy]", '[policy]\nsame_people = { people = "apart" }'))
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
        site.voting.approve(site.state.study(digest), "officer", NOW)
    change(folder)
    with Site.open(config_of(folder)) as site:
        record = site.state.study(digest)

        def use() -> None:
            study = site.voting.check_binding(record, NOW.date())
            site.voting.check_data(record, parse_approval(record.approval), study, site.read(record))

        with pytest.raises(Refusal) as caught:
            use()
        assert (caught.value.code, caught.value.exit_code) == ("APPROVAL_VOID", 4)
        assert named in caught.value.message
        verdict = site.voting.approve(
            record, "officer", NOW
        )  # not sent yet: it is approved anew, and told what changed
        if what != "declaration":
            assert any(text in named for text in verdict.changed)
            assert verdict.void == ("officer",)
        record = site.state.study(digest)
        use()


def test_a_change_of_one_value_is_blamed_on_its_column_only(folder, release_study):
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
        site.voting.approve(site.state.study(digest), "officer", NOW)
    change_a_value(folder)
    with Site.open(config_of(folder)) as site:
        verdict = site.voting.approve(site.state.study(digest), "officer", NOW)
    assert verdict.changed == ("column 'smoker': the data of data set 'people' changed",)


def test_show_says_every_column_the_total_and_the_lifetime(folder, release_study):
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
    facts = show(config_of(folder), "heart", at=NOW)
    age, smoker = facts.columns
    assert smoker.words[0] == (
        "a true 'no' is reported as 'no' 90 % of the time;"
        " someone who thought it 15 % likely can raise that to at most 38.85 %"  # .15 * 3.6 / (1 + .15 * 2.6)
    )
    assert age.recipients == ("miner",)
    assert facts.total_words.startswith("all 2 columns of one person together: ")
    (cost,) = facts.cost
    assert cost.epsilon == pytest.approx(2.0 + 2.0149, abs=1e-3)  # randomization.md 1.1: ln 7.5
    assert (cost.lifetime_before, cost.lifetime_limit) == (0.0, 8.0)
    assert facts.objections == ()
    assert show(config_of(folder), digest.hex(), diff=True, at=NOW).comparison.compared_with is None
    json.dumps(document(facts))


def test_show_of_a_study_between_peers_says_who_reads_what(folder, peer_study):
    (folder / "people.csv").write_text("id,age,smoker\n" + "".join(f"p{i},young,no\n" for i in range(N)))
    with Site.open(config_of(folder)) as site:
        offer(site, peer_study())
    facts = show(config_of(folder), "peers", at=NOW)
    age, smoker = facts.columns
    assert (age.recipients, smoker.recipients) == (("registry",), ("insurer",))
    assert "exact functions of its table" in facts.share_words
    assert any("not in policy.recipients" in text for text in facts.objections)


def test_a_study_is_compared_with_the_last_one_of_the_same_analyst_only(folder: Path, release_study: Study) -> None:
    """Else whoever takes the id of a study that was approved here can have theirs read as a small change of it."""
    config = config_of(folder)
    with Site.open(config) as site:
        first = offer(site, release_study, submitter="lee")
        offer(site, dataclasses.replace(release_study, title="Another's"), submitter="mia")
        third = offer(site, dataclasses.replace(release_study, title="Mine again"), submitter="lee")
    assert show(config, "mia/heart", diff=True, at=NOW).comparison.compared_with is None
    assert show(config, third.hex(), diff=True, at=NOW).comparison.compared_with == first.hex()
    lines = {line.digest: line.changed for line in inbox(config, at=NOW).waiting}
    assert [len(changed) for changed in lines.values()] == [0, 0, 1]


def test_an_analysts_name_before_the_id_finds_their_study_and_an_id_of_two_names_both(
    folder: Path, release_study: Study
) -> None:
    config = config_of(folder)
    with Site.open(config) as site:
        ours = offer(site, release_study, submitter="lee")
        assert site.state.find("heart").digest == ours  # nobody else uses it
        theirs = offer(site, dataclasses.replace(release_study, title="Another's"), submitter="mia")
        assert site.state.find("lee/heart").digest == ours
        assert site.state.find("mia/heart").digest == theirs
        for name in ("eve/heart", "/heart", "lee/"):
            with pytest.raises(Misuse, match="this party does not know it"):
                site.state.find(name)
        with pytest.raises(Misuse, match="2 studies have this name") as caught:
            site.state.find("heart")
        for who, digest in (("lee", ours), ("mia", theirs)):
            assert f"{who}/heart {digest.hex()[:16]} (awaiting approval)" in caught.value.hint


def test_who_submitted_a_study_and_why_it_ended_are_shown_as_the_miners_word_and_the_first_name_stays(
    folder: Path, release_study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(folder)
    with Site.open(config) as site:
        digest = offer(site, release_study, submitter="lee")
        offer(site, release_study, submitter="mia", ended="closed by the miner's operator: not agreed")
        assert site.state.study(digest).task.submitter == "lee"
    for command in ("show", "status", "inbox"):
        arguments = ["party", command, *(("heart",) if command == "show" else ()), "--config", str(config.path)]
        assert main(arguments) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "submitted by 'lee', by the miner's word" in said
        told = "why it ended, by the miner's word: closed by the miner's operator: not agreed"
        assert (told in said) is (command == "status")


def test_an_inbox_of_many_studies_is_one_line_each(folder, release_study, capsys):
    config = config_of(folder)
    with Site.open(config) as site:
        for number in range(11):
            offer(site, dataclasses.replace(release_study, title=f"Study {number}"), submitter="lee")
    assert main(["party", "inbox", "--config", str(config.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 11 + 1
    assert all(len(line.split()[0]) == 16 for line in lines[1:-1])
