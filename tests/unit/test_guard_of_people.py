"""The guard of common people: nothing that a study chooses moves it, and it says when it has no place."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from support.documents import PEOPLE, party_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.pseudonyms import NORMALISATIONS
from verticil.party.local_dataset import LocalDataset, read_holding
from verticil.party.operator import commands
from verticil.party.operator.pending_studies import inbox
from verticil.party.protocol.context import StudyContext
from verticil.party.site import Site
from verticil.shared.core.errors import Refusal
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.tables import RelatedTable, slot_variables
from verticil.shared.study import canonical
from verticil.shared.study.document import (
    IdentifierRule,
    LeftOut,
    LinkageRule,
    MaskedRule,
    ParameterRule,
    PosteriorRule,
    PublishRule,
    QuorumRule,
    ReleaseRule,
    ShareRule,
    Study,
    TablesRule,
)
from verticil.shared.study.privbayes_rule import PrivBayesRule
from verticil.shared.study.states import State
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import LINKAGE_MODES

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    datasets = PEOPLE + '\n[dataset.people.tables.visits]\npath = "visits.csv"\n'
    write_site(tmp_path, party_toml(datasets=datasets, recipients=("miner",)))
    (tmp_path / "visits.csv").write_text("id,ward\n" + "".join(f"P-{i:04},{'AB'[i % 2]}\n" for i in range(0, N, 3)))
    rows = (f" Ｐ-{i:04},{i % 100},{'yes' if i % 3 else 'no'}" for i in range(N))
    (tmp_path / "people.csv").write_text("\n".join(["id,age,smoker", *rows]) + "\n")
    return tmp_path


def opened(folder: Path, **policy: object) -> Site:
    config = load_party(folder / "party.toml")
    return Site.open(dataclasses.replace(config, policy=dataclasses.replace(config.policy, **policy)))  # type: ignore[arg-type]


def holding_of(site: Site, study: Study) -> LocalDataset:
    return read_holding(
        site.config, study, proposal_digest=canonical.digest(study), site_secret=site.secret, linkage_key=b"k" * 32
    )


def accept(site: Site, study: Study, left_out: tuple[int, ...] = ()) -> None:
    """The common people of the study are all of this party's but some, as others chose."""
    digest = canonical.digest(study)
    task = task_of(study, effective=True, state=State.ALIGNING, approved=True, pseudonyms_complete=True)
    site.state.remember(task, study.id, NOW)
    holding = holding_of(site, study)
    assert holding.n_records == N
    rows = np.array([row for row in holding.everyone if row not in numbers_of(holding, left_out)])
    node = SimpleNamespace(site=site, clock=lambda: NOW)
    context = StudyContext(node=node, record=site.state.study(digest), agreed=None, data=None)  # type: ignore[arg-type]
    context.accept_people(holding, rows, b"c" * 32)


def numbers_of(holding: LocalDataset, which: tuple[int, ...]) -> list[int]:
    """Where some people are, who have other places in every study: by their keys, in order."""
    order = np.argsort(holding.keys[:, :8].copy().view(">u8").reshape(-1))
    return [int(order[number]) for number in which]


def with_schema(study: Study, **change: object) -> Study:
    variables = tuple(
        dataclasses.replace(item, **change) if item.name == "smoker" else item  # type: ignore[arg-type]
        for item in study.schema.variables
    )
    return dataclasses.replace(study, schema=Schema(variables=variables))


def with_linkage(**change: object) -> Callable[[Study], Study]:
    def changed(study: Study) -> Study:
        return dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, **change))  # type: ignore[arg-type]

    return changed


def with_values(**change: object) -> Callable[[Study], Study]:
    return lambda study: dataclasses.replace(study, **change)  # type: ignore[arg-type]


def of_units(study: Study) -> Study:
    pair = Unit(
        variables=("age", "smoker"), owner="clinic", scheme="symmetric", transition=quantize(symmetric(6, epsilon=2.0))
    )  # fmt: skip
    return dataclasses.replace(study, units=(pair, *study.units[2:]))


STEPS = [steps for n in range(5) for steps in itertools.combinations(NORMALISATIONS, n)]


def with_visits(study: Study) -> Study:
    """Return a study that asks for the visits of the clinic's people, too, in one slot."""
    table = RelatedTable(name="visits", party="clinic", max_rows=1, columns=("ward",))
    slots = tuple(slot_variables(table, [Variable(name="ward", owner="clinic", labels=("A", "B"))]))
    units = [
        Unit(
            variables=(slot.name,),
            owner="clinic",
            scheme="symmetric",
            transition=quantize(symmetric(slot.n_states, epsilon=0.5)),
        )
        for slot in slots
    ]
    schema = Schema(variables=(*study.schema.variables, *slots))
    return dataclasses.replace(study, schema=schema, units=(*study.units, *units), related=(table,))


OF_STUDY: dict[str, list[Callable[[Study], Study]]] = {
    "id": [with_values(id="another")],
    "title": [with_values(title="another")],
    "purpose": [with_values(purpose="another")],
    "model": [with_values(model="peer"), with_values(model="masked")],
    "expires": [with_values(expires=dt.date(2098, 1, 1))],
    "parties": [with_values(parties=("registry", "clinic"))],
    "linkage": [],
    "schema": [
        lambda s: with_schema(s, labels=("yes", "no")),
        lambda s: with_schema(s, other="no"),
        lambda s: dataclasses.replace(s, schema=Schema(variables=s.schema.variables[1:]), units=s.units[1:]),
    ],
    "units": [of_units],
    "structure": [lambda s: dataclasses.replace(s, structure=dataclasses.replace(s.structure, seed=8))],
    "posterior": [with_values(posterior=PosteriorRule(chains=2))],
    "privbayes": [with_values(privbayes=PrivBayesRule(tau=9.0))],
    "parameters": [with_values(parameters=ParameterRule(estimator="clip"))],
    "release": [with_values(release=ReleaseRule(seed=99))],
    "breach": [with_values(breach=None)],
    "share": [with_values(share=ShareRule(epsilon=1.0, delta=1e-6, noise="discrete-gaussian"))],
    "tables": [with_values(tables=TablesRule(epsilon=1.0, delta=1e-9))],
    "masked": [with_values(masked=MaskedRule(tolerate=0))],
    "quorum": [with_values(quorum=QuorumRule(deadline_seconds=99))],
    "publish": [with_values(publish=PublishRule())],
    "knowledge": [with_values(knowledge=Knowledge())],
    "reviewed": [with_values(reviewed=False)],
    "identifier": [with_values(identifier=IdentifierRule(name="pid"))],
    "drafted": [with_values(drafted={"clinic": {"id": "pid"}})],
    "left_out": [with_values(left_out=(LeftOut(party="third", missing="approval"),))],
    "related": [with_visits],
}
OF_LINKAGE: dict[str, list[Callable[[Study], Study]]] = {
    "mode": [with_linkage(mode=mode) for mode in LINKAGE_MODES],
    "normalise": [with_linkage(normalise=steps) for steps in STEPS],
    "minimum_common_records": [with_linkage(minimum_common_records=7)],
}


def test_the_table_has_every_key_of_a_study() -> None:
    assert OF_STUDY.keys() == {field.name for field in dataclasses.fields(Study)}
    assert OF_LINKAGE.keys() == {field.name for field in dataclasses.fields(LinkageRule)}


KEYS = [*OF_STUDY, *(f"linkage.{name}" for name in OF_LINKAGE)]


@pytest.mark.parametrize(("key", "approval"), [*((key, "manual") for key in KEYS), ("linkage.normalise", "rules")])
def test_no_key_of_a_study_moves_the_guard(folder: Path, release_study: Study, key: str, approval: str) -> None:
    """400 people were published: with any other word in the study one left out is refused, and the same are not."""
    changes = OF_LINKAGE[key.removeprefix("linkage.")] if key.startswith("linkage.") else OF_STUDY[key]
    with opened(folder, approval=approval) as site:
        accept(site, dataclasses.replace(release_study, id="first"))
        for change in changes:
            study = change(dataclasses.replace(release_study, id="second"))
            with pytest.raises(Refusal) as caught:
                accept(site, study, left_out=(7,))
            assert caught.value.code == "COMMON_SET_TOO_SIMILAR"
            accept(site, study)
        assert site.common_sets.places() == 1


def test_three_sets_that_leave_one_person_are_refused_by_both_names(folder: Path, release_study: Study) -> None:
    named = (dataclasses.replace(release_study, id=name) for name in ("U", "A", "B"))
    with opened(folder) as site:
        accept(site, next(named))
        accept(site, next(named), left_out=tuple(range(200)))
        with pytest.raises(Refusal, match=r"fewer than 100 people are left of this study and U \(.*\) with A \("):
            accept(site, next(named), left_out=tuple(range(200, N - 1)))
        (*_, line) = site.audit.entries()
    assert line["event"] == "similar-people"
    assert str(line["detail"]).startswith("refuse: fewer than 100 people are left of")


@pytest.mark.parametrize("rule", ["refuse", "warn"])
def test_a_set_without_a_place_is_refused_or_not_remembered_and_people_are_told(
    folder: Path, release_study: Study, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = folder / "party.toml"
    config.write_text(
        config.read_text().replace("[policy]", f'[policy]\nmax_common_sets = 2\non_small_difference = "{rule}"')
    )
    studies = [dataclasses.replace(release_study, id=f"study-{number}") for number in range(12)]
    with opened(folder) as site:
        accept(site, studies[0])
        for study in studies[1:6]:
            accept(site, study, left_out=tuple(range(150)))
        assert site.common_sets.places() == 2
        if rule == "refuse":
            with pytest.raises(Refusal, match="all 2 places for sets of people are taken") as caught:
                accept(site, studies[6], left_out=tuple(range(300)))
            assert caught.value.code == "COMMON_SETS_FULL"
        else:
            accept(site, studies[6], left_out=tuple(range(300)))
        (*_, line) = site.audit.entries()
        assert (line["event"], line["detail"]) == (
            "common-sets-full",
            f"{rule}: all 2 places for sets of people are taken",
        )
        assert site.common_sets.places() == 2
        accept(site, studies[7])  # the same people have a place
        if rule == "refuse":  # and the first ones are remembered still
            with pytest.raises(Refusal, match="COMMON_SET_TOO_SIMILAR"):
                accept(site, studies[8], left_out=(7,))
    found = load_party(config)
    assert commands.status(found).common_sets == inbox(found).common_sets
    assert (inbox(found).common_sets.used, inbox(found).common_sets.most) == (2, 2)
    for command in ("status", "inbox"):
        assert main(["party", command, "--config", str(config)]) in {0, 5}
        assert "all 2 places for sets of common people are taken" in " ".join(capsys.readouterr().out.split())
