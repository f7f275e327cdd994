"""Whether data changed rests on ids and texts, and on nothing that a study chooses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from pathlib import Path

import numpy as np
import pytest

from support.documents import PEOPLE, party_toml
from support.site_folder import task_of, write_site
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import ColumnDraw, origins_of
from verticil.party.dataset.local_person_keys import KEY_BYTES, PersonMacs
from verticil.party.dataset.source_fingerprints import SourceFingerprints
from verticil.party.dataset.sources.source_table import TextColumn
from verticil.party.limits.limits import Policy
from verticil.party.local_dataset import LocalDataset, read_holding
from verticil.party.policy.approval_checks import review
from verticil.party.site import Site
from verticil.shared.core.errors import Refusal
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.schema import Missing, Variable
from verticil.shared.study import canonical
from verticil.shared.study.approval import Approval
from verticil.shared.study.document import Study
from verticil.shared.study.states import State
from verticil.shared.study.typed_variables import bin_labels

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 150
SECRET = b"s" * 32
SEND = {"study_id": "heart", "recipient": "miner", "artifact_sha256": b"a" * 32, "size": 9, "at": NOW}


def column_of(texts: list[str]) -> TextColumn:
    distinct = tuple(dict.fromkeys(texts))
    return TextColumn(distinct=distinct, index=np.array([distinct.index(text) for text in texts], dtype=np.int32))


def fingerprint_of(
    rows: list[tuple[str, ...]], *, names: str = "ab", at_once: int = 1000, secret: bytes = SECRET
) -> bytes:
    made = SourceFingerprints(secret)
    for start in range(0, len(rows), at_once):
        ids, *columns = (list(texts) for texts in zip(*rows[start : start + at_once], strict=True))
        pairs, has_id = PersonMacs(secret).of(ids)
        made.take(pairs[:, :KEY_BYTES], dict(zip(names, map(column_of, columns), strict=True)), has_id)
    return made.of(list(names))


ROWS = [("p1", "c", "43"), ("p2", "b", "50"), ("p3", "c", "43"), ("p4", "", "Zürich"), ("", "x", "1")]


def test_the_order_of_rows_the_batches_and_rows_without_an_id_are_not_data():
    expected = fingerprint_of(ROWS)
    assert all(fingerprint_of(list(rows), at_once=2) == expected for rows in itertools.permutations(ROWS))
    assert fingerprint_of(ROWS[:-1]) == expected
    assert fingerprint_of([(f" {name.upper()}", *rest) for name, *rest in ROWS]) == expected  # the same people


@pytest.mark.parametrize(
    "rows",
    [
        [("p1", "b", "43"), *ROWS[1:]],
        [("p1", "c ", "43"), *ROWS[1:]],
        [("p1", "b", "43"), ("p2", "c", "50"), *ROWS[2:]],
        [("p9", "c", "43"), *ROWS[1:]],
        [("p1", "43", "c"), *ROWS[1:]],
        [*ROWS[:3], ("p4", "\udcff", "Zürich")],
        ROWS[1:],
        [*ROWS, ROWS[0]],
        [*ROWS, ("p5", "", "")],
    ],
    ids=["a text", "a blank", "two people's texts", "a person", "columns", "bytes", "one fewer", "twice", "one more"],
)
def test_every_text_and_every_person_counts(rows):
    assert fingerprint_of(rows) != fingerprint_of(ROWS)


def test_names_and_secrets_count():
    prints = {fingerprint_of(ROWS), fingerprint_of(ROWS, names="ac"), fingerprint_of(ROWS, secret=b"t" * 32)}
    assert len(prints) == 3


# ---- a site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, party_toml(lifetime=900.0, datasets=PEOPLE, recipients=("miner",)))
    write(tmp_path)
    return tmp_path


def write(folder: Path, **changes: str) -> None:
    """People with an age and whether they smoke; `changes`: other lines for some of them."""
    lines = {f"p{i}": f"p{i},{i % 100},{'yes' if i % 3 else 'no'}" for i in range(N)}
    (folder / "people.csv").write_text("\n".join(["id,age,smoker", *(lines | changes).values()]) + "\n")


def with_bins(study: Study, study_id: str, edge: float) -> Study:
    """The same study with ages in two bins."""
    age = study.schema.index("age")
    old = study.schema[age]
    labels = bin_labels((0.0, edge, 120.0))
    missing = None if old.missing is None else Missing(category="none", spellings=("",))
    variable: Variable = dataclasses.replace(
        old, bins=(0.0, edge, 120.0), labels=(*labels, *(["none"] if missing else [])), missing=missing, other=None,
        representatives=None, means=None,
    )  # fmt: skip
    variables = tuple(variable if place == age else item for place, item in enumerate(study.schema.variables))
    transition = quantize(symmetric(variable.n_states, epsilon=1.0))
    units = tuple(
        dataclasses.replace(unit, scheme="symmetric", transition=transition) if unit.variables == ("age",) else unit
        for unit in study.units
    )
    return dataclasses.replace(
        study, id=study_id, schema=dataclasses.replace(study.schema, variables=variables), units=units
    )


def holding_of(site: Site, study: Study) -> LocalDataset:
    return read_holding(
        site.config, study, proposal_digest=canonical.digest(study), site_secret=site.secret, linkage_key=b"k" * 32
    )


def column_draws_of(site: Site, study: Study) -> dict[int, ColumnDraw]:
    return site.column_draws(study, holding_of(site, study))


def age_of(site: Site, study: Study) -> ColumnDraw:
    return next(item for item in column_draws_of(site, study).values() if item.variables == ("age",))


def send(site: Site, release: ColumnDraw, study_digest: bytes, policy: Policy | None = None) -> float:
    (found,) = site.ledger.assess([release], policy or site.config.policy, study_digest=study_digest)
    return site.ledger.record(
        release, version_tag=found.version_tag, policy=policy or site.config.policy, unit=0, study_digest=study_digest,
        **SEND,
    ).epsilon  # fmt: skip


def has_changed(site: Site, release: ColumnDraw) -> bool:
    try:
        site.ledger.assess([release], site.config.policy)
    except Refusal as error:
        assert error.code == "DATA_CHANGED"  # noqa: PT017
        return True
    return False


def test_no_codebook_tells_which_value_changed(folder: Path, release_study: Study) -> None:
    """Eleven edges, asked again after one person's age went from 43 to 50, had answered which edge lies between."""
    studies = [with_bins(release_study, f"edge-{edge}", edge) for edge in range(40, 62, 2)]
    with Site.open(load_party(folder / "party.toml")) as site:
        for study in studies:
            assert send(site, age_of(site, study), canonical.digest(study)) > 0
        assert not any(has_changed(site, age_of(site, study)) for study in studies)
        write(folder, p43="p43,50,yes")
        assert all(has_changed(site, age_of(site, study)) for study in studies)
        write(folder, p43="p43,43.0,yes")  # the same number in every codebook, another text
        assert all(has_changed(site, age_of(site, study)) for study in studies)
        write(folder, p43="p43,43,no")  # another column
        assert not any(has_changed(site, age_of(site, study)) for study in studies)


def test_no_codebook_tells_by_a_void_approval_which_value_changed(folder: Path, release_study: Study) -> None:
    studies = [with_bins(release_study, f"edge-{edge}", edge) for edge in (40, 48, 60)]
    with Site.open(load_party(folder / "party.toml")) as site:
        given = [approval_of(site, study) for study in studies]
        assert [approval_of(site, study) for study in studies] == given
        write(folder, p43="p43,50,yes")
        for study, before in zip(studies, given, strict=True):
            changed = [
                one.unit.variables
                for one, other in zip(before.units, approval_of(site, study).units, strict=True)
                if one != other
            ]
            assert changed == [("age",)]


def approval_of(site: Site, study: Study) -> Approval:
    """What an approval of the study would bind to."""
    return review(
        site.config, site.ledger, site.sketches, canonical.to_bytes(study), site_secret=site.secret, linkage_key=b"k" * 32,
        today=NOW.date(),
    ).bound  # fmt: skip


def test_room_is_kept_for_changed_texts_that_are_charged_again(folder: Path, release_study: Study) -> None:
    """What was charged for the same codes from other texts is not what will be charged."""
    study = with_bins(release_study, "edge", 48)
    digest = canonical.digest(study)
    with Site.open(load_party(folder / "party.toml")) as site:
        policy = dataclasses.replace(site.config.policy, on_data_change="sticky")
        first = age_of(site, study)
        task = task_of(study, effective=True, state=State.ALIGNING, approved=True)
        site.state.remember(task, study.id, NOW)
        send(site, first, b"2" * 32, policy)
        site.ledger.reserve(digest, {0: first}, policy, shared={})
        assert site.ledger.sum_reserved() == {}
        write(folder, p43="p43,43.0,yes")
        second = age_of(site, study)
        assert second.fingerprint == first.fingerprint
        site.ledger.reserve(digest, {0: second}, policy, shared={})
        assert site.ledger.sum_reserved()["people"].epsilon == pytest.approx(second.epsilon)
        send(site, second, digest, policy)
        assert site.ledger.sum_reserved() == {}


def test_changed_texts_get_noise_of_their_own(folder: Path, release_study: Study) -> None:
    """Also where their codes stay the same: whoever compares two columns must not see that nobody left a bin."""
    study = with_bins(release_study, "edge", 48)
    with Site.open(load_party(folder / "party.toml")) as site:
        policy = dataclasses.replace(site.config.policy, on_data_change="fresh")
        write(folder, p43="p43,50,yes")
        first = age_of(site, study)
        assert send(site, first, b"1" * 32, policy) > 0
        write(folder, p43="p43,51,yes")  # in the same bin
        second = age_of(site, study)
        assert second.fingerprint == first.fingerprint
        (assessment,) = site.ledger.assess([second], policy)
        assert assessment.version_tag == second.source_fingerprint
        assert assessment.charge.epsilon > 0


def test_a_release_is_read_back_with_its_texts(folder: Path, release_study: Study) -> None:
    with Site.open(load_party(folder / "party.toml")) as site:
        release = age_of(site, release_study)
    assert len(release.source_fingerprint) == 32
    assert ColumnDraw.from_json(release.to_json()) == release


def test_data_are_those_of_before_only_with_the_same_codes_and_texts(folder: Path, release_study: Study) -> None:
    with Site.open(load_party(folder / "party.toml")) as site:
        (then,) = origins_of({0: age_of(site, release_study)}, 40).values()
    assert then.has_data_of(dataclasses.replace(then, n_records=41))
    assert not then.has_data_of(dataclasses.replace(then, fingerprint="aa"))
    assert not then.has_data_of(dataclasses.replace(then, source_fingerprint="aa"))
