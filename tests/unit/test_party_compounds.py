"""Compounds at the party: which code a combination has, what the noise depends on, what is charged, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.documents import party_toml
from support.linking import records_of
from support.site_folder import write_site
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.column_draws import ColumnDraw, seals
from verticil.party.dataset.compound_codes import Compound
from verticil.party.dataset.perturb import compound_digest
from verticil.party.dataset.source import check_records
from verticil.party.local_dataset import LocalDataset, column_draws_of, compounds_of, origins, read_holding, unit_codes
from verticil.party.policy.ledger import Ledger
from verticil.party.protocol.randomization import randomize
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import Misuse, Refusal, VerticilError
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import Study
from verticil.shared.study.unit import Unit

PARTY = party_toml(per_study=60.0)
NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
SECRET = b"s" * 32
SITE = SiteSecret(value=SECRET)
N = 150
SHIPS = ("Husband", "Wife", "Own-child")
STATES = ("Married", "Single")
# Of the six combinations, husbands and wives who are single are declared impossible: (1, 0) and (1, 1) of STATES x SHIPS.
IMPOSSIBLE = ((1, 0), (1, 1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, PARTY)
    write(tmp_path, [("Married", SHIPS[i % 3]) if i % 2 else ("Single", "Own-child") for i in range(N)])
    return tmp_path


def write(folder: Path, pairs: list[tuple[str, str]]) -> None:
    rows = [f"p{i},{state},{ship},{i % 9}" for i, (state, ship) in enumerate(pairs)]
    (folder / "people.csv").write_text("\n".join(["id,marital-status,relationship,ward", *rows]) + "\n")


def config_of(folder: Path, extra: str = "") -> PartyConfig:
    (folder / "party.toml").write_text(PARTY.replace("[policy]", extra + "[policy]"))
    return load_party(folder / "party.toml")


def study_of(study: Study, **changes: Any) -> Study:
    """The clinic has a compound of two columns and a subset column, the registry what it has in `study`."""
    registry = [position for position, v in enumerate(study.schema.variables) if v.owner != "clinic"]
    clinic = (
        Variable(name="marital-status", owner="clinic", labels=STATES),
        Variable(name="relationship", owner="clinic", labels=SHIPS),
        Variable(name="ward", owner="clinic", labels=tuple(map(str, range(9)))),
    )
    pair = Unit(
        variables=("marital-status", "relationship"), owner="clinic", scheme="symmetric",
        transition=quantize(symmetric(4, epsilon=2.0)), impossible=IMPOSSIBLE,
    )  # fmt: skip
    ward = Unit(variables=("ward",), owner="clinic", scheme="subset", transition=subset_selection(9, epsilon=1.0))
    return dataclasses.replace(
        study,
        schema=Schema(variables=(*clinic, *(study.schema[position] for position in registry))),
        units=(dataclasses.replace(pair, **changes), ward, *(study.units[position] for position in registry)),
    )


def read(config: PartyConfig, study: Study):
    return read_holding(config, study, proposal_digest=b"p" * 32, site_secret=SITE, linkage_key=b"k" * 32)


def in_table(holding: LocalDataset, people: Iterable[int] = range(N)) -> NDArray[np.int64]:
    """The records of these people, in the order of the table."""
    return np.array(records_of(holding.tags, SITE.tag_key, [f"p{i}" for i in people]), dtype=np.int64)


def in_order(holding: LocalDataset, study: Study) -> NDArray[np.unsignedinteger]:
    """The codes of the first unit, in the order of the table."""
    return unit_codes(study, 0, holding.codes)[in_table(holding)]


def released(config: PartyConfig, study: Study, index: int) -> dict[bytes, list[int]]:
    """What is released of each person, by the person's tag."""
    holding = read(config, study)
    release = column_draws_of(config, study, holding, site_secret=SECRET)[index]
    rows = np.arange(holding.n_records)
    codes = randomize(holding, rows, study, index, column_draw=release, version_tag=b"", site_secret=SECRET)
    sets: Any = codes.reshape(holding.n_records, -1)
    return {tag.tobytes(): row.tolist() for tag, row in zip(holding.tags, sets, strict=True)}


# ---- the code of a combination


@pytest.mark.parametrize(
    ("n_states", "impossible"),
    [
        ((2, 3), ()),
        ((2, 3), IMPOSSIBLE),
        ((3, 2, 4), ((2, 1, 3), (0, 0, 0), (1, 0, 2))),
        ((20, 20), ((3, 3),)),
        ((5,), ()),
    ],
)
def test_codes_are_positions_in_the_domain_of_the_study(release_study, n_states, impossible):
    names = [f"v{position}" for position in range(len(n_states))]
    variables = [
        Variable(name=name, owner="clinic", labels=tuple(map(str, range(k))))
        for name, k in zip(names, n_states, strict=True)
    ]
    unit = Unit(
        variables=tuple(names), owner="clinic", scheme="none", transition=quantize(np.eye(2)), impossible=impossible
    )
    study = dataclasses.replace(release_study, schema=Schema(variables=tuple(variables)), units=(unit,))
    domain = study.domain_of(0)
    columns = {
        name: np.array(codes, dtype=np.uint8) for name, codes in zip(names, zip(*domain, strict=True), strict=True)
    }
    compound = Compound(variables=tuple(names), n_states=n_states, impossible=impossible)
    assert compound.n_domain == len(domain)
    assert compound.encode(columns).tolist() == list(range(len(domain)))
    assert compound.codes(columns).dtype == (np.uint8 if len(domain) <= 256 else np.uint16)
    for combination in impossible:
        one = {name: np.array([code], dtype=np.uint8) for name, code in zip(names, combination, strict=True)}
        assert compound.encode(one).tolist() == [-1]
        with pytest.raises(ValueError, match="declared impossible"):
            compound.codes(one)


def test_the_largest_domain(release_study):
    a, b = (
        (np.arange(65_536, dtype=np.uint32) // 256).astype(np.uint8),
        np.arange(65_536, dtype=np.uint32).astype(np.uint8),
    )
    compound = Compound(variables=("a", "b"), n_states=(256, 256))
    assert (compound.codes({"a": a, "b": b}) == np.arange(65_536)).all()


def test_units_of_the_clinic(release_study):
    study = study_of(release_study)
    assert compounds_of(study, "registry") == {}
    assert compounds_of(study, "clinic") == {
        0: Compound(variables=("marital-status", "relationship"), n_states=(2, 3), impossible=IMPOSSIBLE)
    }
    codes = {
        "marital-status": np.array([0, 0, 0, 1], dtype=np.uint8),
        "relationship": np.array([0, 1, 2, 2], dtype=np.uint8),
        "ward": np.array([8, 7, 6, 5], dtype=np.uint8),
    }
    assert unit_codes(study, 0, codes).tolist() == [0, 1, 2, 3]
    assert unit_codes(study, 1, codes).tolist() == [8, 7, 6, 5]


# ---- what the noise depends on


@pytest.mark.parametrize("index", [0, 1])
def test_any_row_order_gives_every_person_the_same(folder, release_study, index):
    config, study = config_of(folder), study_of(release_study)
    first = released(config, study, index)
    assert {len(codes) for codes in first.values()} == (
        {1} if index == 0 else {study.units[1].transition.codes_per_record}
    )
    lines = (folder / "people.csv").read_text().splitlines()
    (folder / "people.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    assert released(config, study, index) == first


def test_the_true_combination_is_drawn_once_and_by_its_code(folder, release_study):
    """By the identity: what is released is the code of the combination; by hand: Married is 0, 1, 2, Single Own-child is 3."""
    study = study_of(release_study, transition=quantize(np.eye(4)), scheme="none")
    holding = read(config_of(folder), study)
    release = column_draws_of(config_of(folder), study, holding, site_secret=SECRET)[0]
    rows = in_table(holding)
    codes = randomize(holding, rows, study, 0, column_draw=release, version_tag=b"", site_secret=SECRET)
    assert codes.tolist() == [i % 3 if i % 2 else 3 for i in range(N)]


def test_what_a_compound_release_is_made_of(folder, release_study):
    study, config = study_of(release_study), config_of(folder)
    holding = read(config, study)
    release = column_draws_of(config, study, holding, site_secret=SECRET)[0]
    assert (release.variables, release.sources) == (("marital-status", "relationship"),) * 2
    assert release.epsilon == pytest.approx(2.0)
    plain = [
        Unit(variables=(v.name,), owner=v.owner, scheme="none", transition=quantize(np.eye(v.n_states)))
        for v in study.schema.variables
    ]
    alone = dataclasses.replace(study, units=tuple(plain))
    singles = column_draws_of(config, alone, read(config, alone), site_secret=SECRET)
    digests = singles[0].codebook_digest + singles[1].codebook_digest
    assert release.codebook_digest == hashlib.sha256(digests + b"[[1,0],[1,1]]").digest()
    blocks = [
        tag.tobytes() + bytes([i % 3 if i % 2 else 3, 0]) for i, tag in enumerate(holding.tags[in_table(holding)])
    ]
    assert release.fingerprint == hashlib.sha256(b"".join(sorted(blocks))).digest()
    # Of the rules for columns only those of the compound's own enter.
    other = config_of(folder, '[dataset.people.columns.ward]\nsource = "ward"\nrecode = { "9" = "0" }\n')
    assert column_draws_of(other, study, read(other, study), site_secret=SECRET)[0] == release


def variants() -> dict[str, dict[str, Any]]:
    return {
        "turned": {"variables": ("relationship", "marital-status"), "impossible": ((0, 1), (1, 1))},
        "other combinations": {"impossible": ((0, 0), (1, 1))},
        "other matrix": {"transition": quantize(symmetric(4, epsilon=1.0))},
        "whole": {"impossible": (), "transition": quantize(symmetric(6, epsilon=2.0))},
    }


def test_whatever_changes_a_code_is_another_draw(folder, release_study):
    config = config_of(folder)
    write(folder, [("Married", "Own-child")] * N)  # possible in all variants
    draws = {}
    for name, changes in {"plain": {}, **variants()}.items():
        study = study_of(release_study, **changes)
        draws[name] = column_draws_of(config, study, read(config, study), site_secret=SECRET)[0].draw
    assert len(set(draws.values())) == len(draws)


def test_the_digest_of_a_list_does_not_depend_on_its_order_and_needs_whole_digests():
    two = [b"1" * 32, b"2" * 32]
    assert compound_digest(two, [(1, 0), (0, 1)]) == compound_digest(two, [(0, 1), (1, 0)])
    assert compound_digest(two, []) != compound_digest(two[::-1], [])
    with pytest.raises(ValueError, match="codebook digest of 3 bytes"):
        compound_digest([b"abc"], [])


# ---- the ledger


def charge(ledger: Ledger, config: PartyConfig, release: ColumnDraw) -> float:
    return ledger.record(
        release, version_tag=b"", policy=config.policy, study_digest=b"d" * 32, study_id="s", unit=0, recipient="miner",
        artifact_sha256=b"a" * 32, size=1, at=NOW,
    ).epsilon  # fmt: skip


def test_a_column_that_was_released_alone_is_charged_in_full_in_a_compound(folder, release_study, tmp_path):
    config, study = config_of(folder), study_of(release_study)
    alone = Unit(
        variables=("marital-status",),
        owner="clinic",
        scheme="symmetric",
        transition=quantize(symmetric(2, epsilon=2.5)),
    )
    single = dataclasses.replace(study, schema=Schema(variables=study.schema.variables[:1]), units=(alone,))
    before = column_draws_of(config, single, read(config, single), site_secret=SECRET)[0]
    together = column_draws_of(config, study, read(config, study), site_secret=SECRET)[0]
    (tmp_path / "database").mkdir()
    with Database(tmp_path / "database", create=True) as database:
        ledger = Ledger(database)
        assert charge(ledger, config, before) == pytest.approx(2.5)
        assert charge(ledger, config, together) == pytest.approx(2.0)
        assert charge(ledger, config, together) == 0.0
        assert charge(ledger, config, before) == 0.0
        assert ledger.sum_charges("people").epsilon == pytest.approx(4.5)
        assert [", ".join(row.variables) for row in ledger.rows()][1] == "marital-status, relationship"
        strict = dataclasses.replace(config.policy, max_epsilon_per_column=1.0)
        with pytest.raises(Refusal, match=r"column 'marital-status, relationship': epsilon 2, expected at most 1"):
            ledger.assess([together], strict)
    assert ColumnDraw.from_json(together.to_json()) == together


def test_an_approval_binds_to_the_data_of_every_column_of_a_compound(folder, release_study):
    config, study = config_of(folder), study_of(release_study)

    def sealed() -> dict[int, bytes]:
        return seals(
            column_draws_of(config, study, read(config, study), site_secret=SECRET), b"p" * 32, site_secret=SECRET
        )

    before = sealed()
    text = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(text.replace("p1,Married,Wife", "p1,Married,Husband"))
    after = sealed()
    assert before[0] != after[0]
    assert before[1] == after[1]


# ---- what is refused


def test_in_place_of_an_impossible_combination_a_possible_one_is_drawn_for_the_record(folder, release_study):
    """And no other record's, or other column's, value changes."""
    rows = [("Married", "Wife")] * 60 + [("Single", "Wife"), ("Single", "Husband")] * 45
    write(folder, rows)
    config, study = config_of(folder), study_of(release_study)
    holding = read(config, study)
    (compound,) = compounds_of(study, "clinic").values()
    codes = in_order(holding, study)  # each record has one
    assert (codes[:60] == codes[0]).all()
    assert set(codes[60:].tolist()) == set(range(compound.n_domain))
    np.testing.assert_array_equal(codes, in_order(read(config, study), study))
    write(folder, list(reversed(rows)))  # other people have them: the draw belongs to the person
    other = in_order(read(config, study), study)
    assert (other[90:] == codes[0]).all()
    np.testing.assert_array_equal(other[60:90], codes[60:90])


def test_a_check_of_the_table_counts_impossible_combinations_and_names_none(folder, release_study):
    write(folder, [("Married", "Wife")] * (N - 3) + [("Single", "Wife"), ("Single", "Husband"), ("Single", "Wife")])
    config, study = config_of(folder), study_of(release_study)
    own = [study.schema[position] for position in study.schema.owned_by("clinic")]
    rule = config.datasets["people"]
    compounds = list(compounds_of(study, "clinic").values())
    (remark,) = check_records(rule, own, (), compounds).remarks
    assert (remark.code, remark.message) == (
        "DATA_CATEGORY_UNSEEN",
        "people.csv: columns 'marital-status', 'relationship': 3 of 150 rows have a combination of values that the study"
        " declares impossible, in place of which a possible one is drawn",
    )
    assert not any(word in str(remark) for word in (*STATES, *SHIPS, "p147"))
    assert check_records(rule, own, ()).remarks == ()
    # A value without a category has no combination either: it is counted in its column alone.
    write(folder, [("Married", "Wife")] * (N - 2) + [("Single", "Wife"), ("Single", "Widow")])
    one, other = check_records(rule, own, (), compounds).remarks
    assert "column 'relationship' 1" in one.message
    assert "1 of 150 rows have a combination" in other.message


def test_columns_of_two_data_sets_are_not_one_draw(folder, release_study):
    (folder / "home.csv").write_text("id,relationship\n" + "".join(f"p{i},Own-child\n" for i in range(N)))
    (folder / "people.csv").write_text("id,marital-status,ward\n" + "".join(f"p{i},Single,1\n" for i in range(N)))
    config = config_of(folder, '[dataset.home]\npath = "home.csv"\nid = "id"\n')
    with pytest.raises(Misuse) as caught:
        origins(config, study_of(release_study))
    assert caught.value.code == "CONFIG_INVALID"
    assert "'marital-status' is in data set 'people', 'relationship' is in data set 'home'" in caught.value.message
    assert isinstance(caught.value, VerticilError)


def test_a_compound_of_one_of_several_data_sets(folder, release_study):
    """The people are those of all data sets."""
    (folder / "wards.csv").write_text("id,ward\n" + "".join(f"p{i},{i % 9}\n" for i in range(20, N + 20)))
    pairs = [("Married", SHIPS[i % 3]) for i in range(N)]
    rows = "".join(f"p{i},{state},{ship}\n" for i, (state, ship) in enumerate(pairs))
    (folder / "people.csv").write_text("id,marital-status,relationship\n" + rows)
    config, study = config_of(folder, '[dataset.wards]\npath = "wards.csv"\nid = "id"\n'), study_of(release_study)
    holding = read(config, study)
    assert holding.n_records == N - 20
    codes = unit_codes(study, 0, holding.codes)[in_table(holding, range(20, N))]
    assert codes.tolist() == [i % 3 for i in range(20, N)]
