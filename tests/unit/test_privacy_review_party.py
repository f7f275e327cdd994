"""What somebody who chooses studies, names and categories, or who reads what a party sends, tries against one party."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.documents import party_toml
from support.site_folder import task_of, write_site
from verticil.party.config import PartyConfig, load_party
from verticil.party.local_dataset import column_draws_of, read_holding
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.protocol.outgoing_errors import redact_error
from verticil.party.protocol.randomization import randomize
from verticil.party.site import Site
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import DataFault, Misuse, Refusal
from verticil.shared.mechanisms.transition import Transition, quantize, symmetric
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.study import canonical
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import Study

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
PARTY = party_toml(per_study=60.0)
SECRET = b"s" * 32
SITE = SiteSecret(value=SECRET)
N = 150


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, PARTY)
    rows = [f"p{i},{i % 90},{'yes' if i % 3 else 'no'}" for i in range(N)]
    (tmp_path / "people.csv").write_text("\n".join(["id,age,smoker", *rows]) + "\n")
    return tmp_path


def config_of(folder: Path, columns: str = "", **policy: Any) -> PartyConfig:
    (folder / "party.toml").write_text(PARTY.replace("[policy]", columns + "[policy]"))
    config = load_party(folder / "party.toml")
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, **policy))


def offer(site: Site, study: Study) -> bytes:
    """The miner tells of a study."""
    digest = canonical.digest(study)
    task = task_of(study)
    site.state.remember(task, study.id, NOW)
    return digest


def with_variables(study: Study, variables: tuple[Variable, ...], *matrices: Transition, name: str) -> Study:
    """`study` with other variables of the clinic, each with the matrix of its place; the registry's stay."""
    theirs = [position for position, variable in enumerate(study.schema.variables) if variable.owner != "clinic"]
    units = [
        dataclasses.replace(study.units[0], variables=(variable.name,), transition=matrix)
        for variable, matrix in zip(variables, matrices, strict=True)
    ]
    return dataclasses.replace(
        study,
        id=name,
        schema=Schema(variables=(*variables, *(study.schema[position] for position in theirs))),
        units=(*units, *(study.units[position] for position in theirs)),
    )


def ages(*bins: float) -> Variable:
    labels = tuple(f"[{low:g},{high:g})" for low, high in itertools.pairwise(bins))
    return Variable(name="age", owner="clinic", labels=labels, bins=bins, integer=True)


SMOKER = Variable(name="smoker", owner="clinic", labels=("no", "yes"))
TWO = quantize(symmetric(2, epsilon=2.0))
THREE = quantize(symmetric(3, epsilon=2.0))


# ---- what an approval tells


def sealed(site: Site, study: Study) -> dict[str, str]:
    digest = offer(site, study)
    site.voting.approve(site.state.study(digest), "officer", NOW)
    given = parse_approval(site.state.study(digest).approval or b"")
    return {unit.unit.variables[0]: unit.fingerprint for unit in given.units}


def test_approvals_do_not_tell_whether_two_studies_see_the_same_codes(folder, release_study):
    """Equal fingerprints under bins [0, 18, 65, 120) and [0, 18, 91, 120) would say exactly that nobody is 65 to 90."""
    with Site.open(config_of(folder, max_epsilon_lifetime=99.0)) as site:
        plain = {release.fingerprint.hex() for release in releases_of_all(site, release_study)}
        first = sealed(site, release_study)
        again = sealed(site, dataclasses.replace(release_study, id="again"))
        other_bins = (ages(0, 18, 95, 120), SMOKER)
        third = sealed(site, with_variables(release_study, other_bins, THREE, TWO, name="third"))
        fourth_bins = (ages(0, 18, 96, 120), SMOKER)  # nobody is 95: the codes are those of the third study
        fourth = sealed(site, with_variables(release_study, fourth_bins, THREE, TWO, name="fourth"))
    told = [*first.values(), *again.values(), *third.values(), *fourth.values()]
    assert len(set(told)) == len(told) == 8
    assert not plain & set(told)


def releases_of_all(site: Site, study: Study):
    digest = offer(site, study)
    return site.column_draws(study, site.read(site.state.study(digest))).values()


def test_two_variables_of_one_study_with_equal_codes_are_not_told_to_be_equal(folder, release_study):
    columns = '[dataset.people.columns.habit]\nsource = "smoker"\n'
    twice = (SMOKER, dataclasses.replace(SMOKER, name="habit"))
    study = with_variables(release_study, twice, quantize(symmetric(2, epsilon=1)), TWO, name="twice")
    with Site.open(config_of(folder, columns)) as site:
        told = sealed(site, study)
    assert told["smoker"] != told["habit"]


@pytest.mark.parametrize(
    "columns",
    [
        '[dataset.people.columns.smoker]\nsource = "smoker"\nrecode = { "sometimes" = "yes" }\n',
        '[dataset.people.columns.smoker]\nsource = "habit"\n',
    ],
    ids=["recode", "source"],
)
def test_an_approval_binds_to_where_the_column_comes_from(folder, release_study, columns):
    """The codes are the same; the noise and the ledger's charge would be others than the approver was shown."""
    path = folder / "people.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},habit", *(f"{row},{row.split(',')[2]}" for row in rows)]) + "\n")
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
        site.voting.approve(site.state.study(digest), "officer", NOW)
    with Site.open(config_of(folder, columns)) as site:
        record = site.state.study(digest)
        given = parse_approval(record.approval or b"")
        with pytest.raises(Refusal, match="smoker") as caught:
            site.voting.check_data(record, given, release_study, site.read(record))
    assert caught.value.code == "APPROVAL_VOID"


# ---- the same column again


def variants() -> list[Variable]:
    """Encodings that differ in next to nothing: each would be a fresh draw to average with."""
    base = Variable(name="smoker", owner="clinic", labels=("no", "yes"))
    unseen = Missing(category="yes", spellings=("-",))
    return [
        base,
        dataclasses.replace(base, labels=("yes", "no")),
        dataclasses.replace(base, labels=("no", "yes", "unused")),
        dataclasses.replace(base, labels=("no", "yes", "unused2")),
        dataclasses.replace(base, labels=("no", "yes"), missing=unseen),
        dataclasses.replace(base, labels=("no", "yes"), other="yes"),
    ]


def test_each_new_encoding_is_a_new_draw_charged_in_full_until_the_budget_is_spent(folder, release_study):
    config = config_of(folder)
    charged: list[float] = []
    codes: list[bytes] = []
    with Site.open(config) as site:
        for number, variable in enumerate(variants()):
            matrix = quantize(symmetric(variable.n_states, epsilon=2.0))
            study = with_variables(release_study, (variable,), matrix, name=f"try-{number}")
            holding = site.read(site.state.study(offer(site, study)))
            ((index, release),) = site.column_draws(study, holding).items()
            if number == 4:
                with pytest.raises(Refusal) as caught:
                    site.ledger.assess([release], config.policy)
                assert caught.value.code == "BUDGET_EXCEEDED"
                break
            (assessment,) = site.ledger.assess([release], config.policy)
            drawn = randomize(
                holding, np.arange(N), study, index, column_draw=release, version_tag=b"", site_secret=SECRET
            )
            codes.append(drawn.tobytes())
            charged.append(assessment.charge.epsilon)
            site.ledger.record(
                release, version_tag=b"", policy=config.policy, study_digest=b"d" * 32, study_id=study.id, unit=index,
                recipient="miner", artifact_sha256=b"a" * 32, size=1, at=NOW,
            )  # fmt: skip
        assert site.ledger.sum_charges("people").epsilon == pytest.approx(8.0)
    assert charged == pytest.approx([2.0] * 4)  # 8 of 8; the fifth is refused
    assert len(set(codes)) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda v: dataclasses.replace(v, bins=(0, 18, 65, 121), labels=("[0,18)", "[18,65)", "[65,121)")),
        lambda v: dataclasses.replace(v, outside="clamp"),
        lambda v: dataclasses.replace(
            v, labels=(*v.labels, "none"), missing=Missing(category="none", spellings=("?",))
        ),
        lambda v: dataclasses.replace(v, labels=(*v.labels, "no age"), other="no age"),
    ],
)
def test_whatever_can_change_a_code_changes_the_draw_and_nothing_else_does(folder, release_study, change):
    config = config_of(folder)
    variable = ages(0, 18, 65, 120)

    def draw(changed: Variable):
        matrix = quantize(symmetric(changed.n_states, epsilon=2.0))
        study = with_variables(release_study, (changed,), matrix, name="one")
        holding = read_holding(config, study, proposal_digest=b"p" * 32, site_secret=SITE, linkage_key=b"k" * 32)
        (release,) = column_draws_of(config, study, holding, site_secret=SECRET).values()
        return release.draw

    assert draw(change(variable)) != draw(variable)
    assert draw(dataclasses.replace(variable, integer=False)) == draw(variable)


def test_one_column_under_two_names_keeps_to_the_limit_of_a_column(folder, release_study):
    columns = '[dataset.people.columns.habit]\nsource = "smoker"\n'
    twice = (SMOKER, dataclasses.replace(SMOKER, name="habit"))
    study = with_variables(release_study, twice, TWO, quantize(symmetric(2, epsilon=1.5)), name="twice")
    with Site.open(config_of(folder, columns)) as site:
        digest = offer(site, study)
        with pytest.raises(
            Refusal, match=r"'smoker' stands behind 2 variables: epsilon sums to 3\.5, expected at most 3"
        ):
            site.voting.approve(site.state.study(digest), "officer", NOW)
        weaker = with_variables(release_study, twice, TWO, quantize(symmetric(2, epsilon=1)), name="weaker")
        verdict = site.voting.approve(site.state.study(offer(site, weaker)), "officer", NOW)
    assert [item.charge.epsilon for item in verdict.review.assessments.values()] == pytest.approx([2.0, 1.0])


def test_equal_columns_of_two_data_sets_are_two_columns(folder, release_study):
    (folder / "visits.csv").write_text((folder / "people.csv").read_text().replace("age", "years", 1))
    columns = (
        '[dataset.people.columns.smoker]\nsource = "smoker"\n'
        '[dataset.visits]\npath = "visits.csv"\nid = "id"\n[dataset.visits.columns.habit]\nsource = "smoker"\n'
        '[policy.same_people]\nvisits = "apart"\n'
    )
    twice = (SMOKER, dataclasses.replace(SMOKER, name="habit"))
    study = with_variables(release_study, twice, TWO, TWO, name="apart")
    with Site.open(config_of(folder, columns)) as site:
        assert site.voting.approve(site.state.study(offer(site, study)), "officer", NOW).complete


def test_the_same_values_twice_in_a_study_are_assessed_as_they_are_charged(folder, release_study):
    columns = '[dataset.people.columns.habit]\nsource = "smoker"\n'
    one = quantize(symmetric(2, epsilon=1.25))
    twice = (SMOKER, dataclasses.replace(SMOKER, name="habit"))
    study = with_variables(release_study, twice, one, one, name="twice")
    with Site.open(config_of(folder, columns, max_epsilon_lifetime=1.25)) as site:
        verdict = site.voting.approve(site.state.study(offer(site, study)), "officer", NOW)
    assert [item.charge.epsilon for item in verdict.review.assessments.values()] == pytest.approx([1.25, 0.0])


def test_other_normalisation_of_ids_is_no_free_draw(folder, release_study):
    """The tag is a MAC of the normalised id, and the study chooses the steps: other ids count as other data."""
    config = config_of(folder)
    other = dataclasses.replace(
        release_study, linkage=dataclasses.replace(release_study.linkage, normalise=("nfkc", "digits-only"))
    )
    with Site.open(config) as site:
        for release in releases_of_all(site, release_study):
            site.ledger.record(
                release, version_tag=b"", policy=config.policy, study_digest=b"d" * 32, study_id="heart", unit=0,
                recipient="miner", artifact_sha256=b"a" * 32, size=1, at=NOW,
            )  # fmt: skip
        changed = list(releases_of_all(site, other))
        with pytest.raises(Refusal) as caught:
            site.ledger.assess(changed, config.policy)
        assert caught.value.code == "DATA_CHANGED"
        for way in ("sticky", "fresh"):
            open_policy = dataclasses.replace(config.policy, on_data_change=way, max_epsilon_lifetime=99.0)
            assert all(item.charge.epsilon > 1 for item in site.ledger.assess(changed, open_policy))


def test_other_common_people_get_the_same_values(folder, release_study):
    """Two studies whose common people differ in one person: the difference is that person's randomized value, no more."""
    config = config_of(folder)
    holding = read_holding(config, release_study, proposal_digest=b"p" * 32, site_secret=SITE, linkage_key=b"k" * 32)
    release = column_draws_of(config, release_study, holding, site_secret=SECRET)[0]
    everybody, without_one = np.arange(N), np.delete(np.arange(N), 7)
    facts = {"column_draw": release, "version_tag": b"", "site_secret": SECRET}
    all_values = randomize(holding, everybody, release_study, 0, **facts)
    assert np.array_equal(randomize(holding, without_one, release_study, 0, **facts), np.delete(all_values, 7))


# ---- columns that are none


def test_the_id_column_is_never_released(folder, release_study):
    guesses = Variable(name="id", owner="clinic", labels=("p1", "p2", "others"), other="others")
    renamed = '[dataset.people.columns.code]\nsource = "id"\n'
    for columns, variable in (("", guesses), (renamed, dataclasses.replace(guesses, name="code"))):
        study = with_variables(release_study, (variable,), THREE, name=f"fishing-{variable.name}")
        with Site.open(config_of(folder, columns)) as site:
            digest = offer(site, study)
            with pytest.raises(Refusal, match="its column is the id of data set 'people'") as caught:
                site.voting.approve(site.state.study(digest), "officer", NOW)
        assert caught.value.code == "POLICY_REFUSED"


def test_one_file_is_one_data_set(folder):
    with pytest.raises(Misuse, match=r"dataset\.copy\.path: is the table of \[dataset\.people\]"):
        config_of(folder, '[dataset.copy]\npath = "state/../people.csv"\nid = "id"\n')


# ---- names that others choose


def test_a_later_study_of_the_same_id_is_not_approved_in_its_place(folder, release_study):
    weaker = dataclasses.replace(release_study, title="the same id, other noise")
    with Site.open(config_of(folder)) as site:
        first = offer(site, release_study)
        assert site.state.find("heart").digest == first
        second = offer(site, weaker)
        with pytest.raises(Misuse, match="2 studies have this name") as caught:
            site.state.find("heart")
        assert caught.value.hint == (
            f"give the digest of the one that you mean: heart {first.hex()[:16]} (awaiting approval),"
            f" heart {second.hex()[:16]} (awaiting approval)"
        )
        assert site.state.find(first.hex()).digest == first
        assert site.state.find(second.hex()[:12].upper()).digest == second


def test_an_id_that_looks_like_a_digest_is_not_taken_for_it(folder, release_study):
    with Site.open(config_of(folder)) as site:
        first = offer(site, release_study)
        offer(site, dataclasses.replace(release_study, id=first.hex()[:16]))
        with pytest.raises(Misuse, match="2 studies"):
            site.state.find(first.hex()[:16])
        assert site.state.find(first.hex()).digest == first


def test_a_vote_of_somebody_who_is_no_approver_any_more_does_not_count(folder, release_study):
    keys = {name: ApproverKey.create(folder / f"{name}.key") for name in ("left", "officer", "deputy")}

    def site_of(*approvers: str) -> Site:
        config = config_of(folder, approvers=approvers, approvers_needed=2)
        return Site.open(dataclasses.replace(config, approver_keys={name: keys[name].public for name in approvers}))

    with site_of("left", "officer", "deputy") as site:
        digest = offer(site, release_study)
        assert not site.voting.approve(site.state.study(digest), "left", NOW, key=keys["left"]).complete
    with site_of("officer", "deputy") as site:
        verdict = site.voting.approve(site.state.study(digest), "officer", NOW, key=keys["officer"])
        assert (verdict.complete, verdict.approvers) == (False, ("officer",))
        assert site.voting.approve(site.state.study(digest), "deputy", NOW, key=keys["deputy"]).complete


# ---- texts


@pytest.mark.parametrize(
    "error",
    [
        DataFault("DATA_UNREADABLE", "people.csv: not utf-16 at byte 817", hint="817"),
        DataFault("DATA_COLUMN_MISSING", "people.csv: no column 'salery'", hint="'salary' for 'salery'?"),
        DataFault("DATA_FILE_MISSING", "/srv/817/people.csv: no such file", hint="see path"),
        Misuse("CONFIG_INVALID", "people.csv: 817 of 900 recode targets are no category", hint="salary"),
        Refusal("LINKAGE_TOO_SMALL", "the parties have 817 records in common, expected at least 1000", hint="key"),
    ],
    ids=lambda error: error.code,
)
def test_only_the_code_of_a_local_fault_leaves(error):
    told = redact_error(error)
    assert (told.code, type(told)) == (error.code, type(error))
    assert "verticil party status" in told.hint
    for part in ("817", "salary", "people.csv", "/srv", "900"):
        assert part not in str(told)


def test_refusals_leave_as_they_are():
    error = Refusal(
        "BUDGET_EXCEEDED", "column 'race': epsilon 3.2, expected at most 3.0", hint="declare stronger noise"
    )
    assert redact_error(error) is error


def test_how_many_records_there_are_has_no_part_in_an_approval(folder, release_study):
    """That too few are common shows when the parties find the common ones."""
    with Site.open(config_of(folder, minimum_common_records=1000)) as site:
        digest = offer(site, release_study)
        assert site.voting.approve(site.state.study(digest), "officer", NOW).complete


def test_minimum_rows_counts_the_rows_of_the_file_whatever_is_in_them(folder, release_study):
    (folder / "people.csv").write_text("id,age,smoker\n" + " ,never,never\n" * (N - 1) + "x,1\n")
    for minimum, fits in ((N, True), (N + 1, False)):
        with Site.open(config_of(folder, minimum_rows=minimum)) as site:
            record = site.state.study(offer(site, release_study))
            if fits:
                assert site.review(record, NOW).holding.n_records == 0
                continue
            with pytest.raises(Refusal, match=f"fewer than the {N + 1} rows") as caught:
                site.review(record, NOW)
            assert caught.value.code == "POLICY_REFUSED"


def test_secrets_and_records_are_not_in_any_repr(folder, release_study):
    with Site.open(config_of(folder)) as site:
        digest = offer(site, release_study)
        holding = site.read(site.state.study(digest))
        verdict = site.voting.approve(site.state.study(digest), "officer", NOW)
        shown = repr(site) + repr(holding) + repr(verdict)
    tag = repr(holding.tags[0].tolist())[1:12]
    for secret in (repr(SECRET)[2:-1], SECRET.hex(), repr(bytes.fromhex("ab" * 32))[2:-1], tag, "array("):
        assert secret not in shown


@pytest.mark.parametrize("path", ["site.secret", "party.sqlite", "party.sqlite-wal"])
def test_files_of_the_state_are_the_owners(folder, release_study, path):
    with Site.open(config_of(folder)) as site:
        offer(site, release_study)
        assert (folder / "state" / path).stat().st_mode & 0o077 == 0
        assert (folder / "state").stat().st_mode & 0o077 == 0
