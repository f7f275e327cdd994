"""Every text has a code: whatever is in a table, a party can answer a study, and which categories are drawn tells nothing.

The draws are made from fixed secrets, so a test of their distribution gives one answer for ever; its limit is the quantile of the
chi-square distribution that a fair draw exceeds once in a million, and a draw with a planted fault must exceed it.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from support.documents import party_toml
from support.site_folder import write_site
from verticil.party import local_dataset
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.encoding import Codebook
from verticil.party.dataset.perturb import perturb, record_tags, unit_key
from verticil.party.dataset.undeclared_values import draw, substitute_key
from verticil.party.local_dataset import column_draws_of, read_holding, read_people
from verticil.party.protocol.randomization import randomize
from verticil.party.storage.secret import SiteSecret
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.study.document import Study
from verticil.shared.study.unit import Unit

PARTY = party_toml(per_study=60.0, lifetime=99.0)
SECRET = b"s" * 32
SITE = SiteSecret(value=SECRET, format=1)  # as sites had it before the encoding was total
FALSE_ALARM = 1e-6

SMOKER = Variable(name="smoker", owner="clinic", labels=("no", "yes", "once"))
AGE = Variable(name="age", owner="clinic", labels=("[17,30)", "[30,57)"), bins=(17.0, 30.0, 57.0), integer=True)
AREA = Variable(
    name="area",
    owner="clinic",
    labels=("north", "elsewhere", "unknown"),
    other="elsewhere",
    missing=Missing(category="unknown", spellings=("?", "")),
)
WARD = Variable(
    name="ward", owner="clinic", labels=("[0,5)", "none"), bins=(0.0, 5.0),
    missing=Missing(category="none", spellings=("-",)),
)  # fmt: skip
VARIABLES = (SMOKER, AGE, AREA, WARD)
IMPOSSIBLE = ((0, 1), (2, 0), (2, 1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(folder: Path) -> Path:
    write_site(folder, PARTY)
    return folder


def config_of(folder: Path, rows: Sequence[Sequence[str]]) -> PartyConfig:
    with (folder / "people.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("id", "smoker", "age", "area", "ward"), *rows])
    return load_party(folder / "party.toml")


def study_of(study: Study, variables: Sequence[Variable] = VARIABLES) -> Study:
    """Smoker and area are a compound with impossible combinations; the others stand alone."""
    registry = [position for position, v in enumerate(study.schema.variables) if v.owner != "clinic"]
    pair = Unit(
        variables=("smoker", "area"), owner="clinic", scheme="symmetric",
        transition=quantize(symmetric(6, epsilon=2.0)), impossible=IMPOSSIBLE,
    )  # fmt: skip
    single = [
        Unit(variables=(name,), owner="clinic", scheme="symmetric", transition=quantize(symmetric(2, epsilon=1.0)))
        for name in ("age", "ward")
    ]
    return dataclasses.replace(
        study,
        schema=Schema(variables=(*variables, *(study.schema[position] for position in registry))),
        units=(pair, *single, *(study.units[position] for position in registry)),
    )


# ---- any text


@settings(max_examples=150, deadline=None)
@given(
    st.text() | st.from_regex(r"[ ]?[-+]?[0-9.]{1,9}(e-?[0-9]{1,4})?[ ]?", fullmatch=True), st.sampled_from(VARIABLES)
)
def test_any_text_has_a_code_or_is_drawn_for(text: str, variable: Variable) -> None:
    """And it is drawn for only where the study has no category for such values."""
    (code,), (outcome,) = Codebook(variable, {}, where="here").encode([text])
    assert -1 <= code < variable.n_states
    assert code >= 0 or variable.other is None
    assert (code, outcome) == tuple(int(part[0]) for part in Codebook(variable, {}, where="here").encode([text]))
    (again,), _ = Codebook(variable, {}, where="here").encode([text], closely=True)
    assert again == code


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)] * 5), max_size=12
    )
)
def test_any_table_can_be_released(release_study: Study, rows: list[tuple[str, ...]]) -> None:
    """Of every record one code of each unit, whatever its values are, and of no record whose id is not its own."""
    study = study_of(release_study)
    with tempfile.TemporaryDirectory() as name:
        config = config_of(made(Path(name)), rows)
        people = read_people(config, study, site_secret=SITE, linked_by=None)
        holding = read_holding(config, study, proposal_digest=b"p" * 32, site_secret=SITE, linkage_key=b"k" * 32)
    assert people.n_rows == len(rows)
    ids = list(people.names())
    assert len(set(ids)) == len(ids) == holding.n_records
    assert "" not in ids
    for index, release in column_draws_of(config, study, holding, site_secret=SECRET).items():
        codes = randomize(
            holding, holding.everyone, study, index, column_draw=release, version_tag=b"", site_secret=SECRET
        )
        assert codes.shape == (holding.n_records,)


@pytest.mark.parametrize(
    ("outside", "expected"),
    [
        ("error", "1e516149aedcdc007fd82d95abdb14e85599b21acef7cb568c19889e08704841"),
        ("clamp", "9d7cffe658fbd055b9788ef4f25f9bf307900ffac5ad955a5e9f3cb539af39b8"),
    ],
)
@pytest.mark.parametrize("memory_rows", [1 << 19, 20])
def test_a_table_that_was_valid_before_sends_the_same_bytes(
    folder: Path, release_study: Study, monkeypatch: pytest.MonkeyPatch, outside: str, expected: str, memory_rows: int
) -> None:
    """SHA-256 of fingerprints and released codes, as the version made them that refused every other table; in memory or not."""
    monkeypatch.setattr(local_dataset, "MEMORY_ROWS", memory_rows)
    rows = [
        (f"p{i}", ("no", "yes", "once")[i % 3], str(17 + i % 40), ("?", "Mars", "")[i % 3], ("-", "3", "4.5")[i % 3])
        for i in range(150)
    ]
    variables = [dataclasses.replace(v, outside=outside) if v.bins else v for v in VARIABLES]
    study, config = study_of(release_study, variables), config_of(folder, rows)
    assert sent(config, study) == expected


def sent(config: PartyConfig, study: Study) -> str:
    holding = read_holding(config, study, proposal_digest=b"p" * 32, site_secret=SITE, linkage_key=b"k" * 32)
    whole = hashlib.sha256()
    for index, release in column_draws_of(config, study, holding, site_secret=SECRET).items():
        whole.update(release.fingerprint)
        codes = randomize(
            holding, holding.everyone, study, index, column_draw=release, version_tag=b"", site_secret=SECRET
        )
        whole.update(codes.tobytes())
    return whole.hexdigest()


# ---- the draw

Codes = NDArray[np.uint8] | NDArray[np.uint16]
N = 60_000


@pytest.fixture(scope="module")
def tags() -> NDArray[np.uint8]:
    return record_tags(SECRET, (f"{i:06d}" for i in range(N)))


def key_of(**changes: object) -> bytes:
    named = {"dataset": "people", "source_columns": ["smoker"], "codebook_digest": b"c" * 32, **changes}
    secret = named.pop("secret", SECRET)
    return substitute_key(secret, **named)  # type: ignore[arg-type]


def statistic(*counts: NDArray[np.int64]) -> tuple[float, int]:
    """Pearson's chi-square of a table of counts against independence, or of one row against equal shares; degrees of freedom."""
    table = np.vstack(counts).astype(float)
    rows, columns = table.shape
    if rows == 1:
        expected, freedom = np.full_like(table, table.sum() / columns), columns - 1
    else:
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        freedom = (rows - 1) * (columns - 1)
    return float(((table - expected) ** 2 / expected).sum()), freedom


def is_fair(*counts: NDArray[np.int64]) -> bool:
    found, freedom = statistic(*counts)
    return found <= chi2.isf(FALSE_ALARM, freedom)


@pytest.mark.parametrize("n_states", [2, 3, 7, 256, 300])
def test_every_declared_category_is_drawn_equally_often(tags: NDArray[np.uint8], n_states: int) -> None:
    drawn = draw(key_of(), tags, n_states)
    assert drawn.dtype == (np.uint8 if n_states <= 256 else np.uint16)
    assert is_fair(np.bincount(drawn, minlength=n_states))
    constant = np.zeros(N, dtype=np.intp)
    assert not is_fair(np.bincount(constant, minlength=n_states))
    often = np.where(np.arange(N) % 10 == 0, 0, drawn)  # one in ten gets the first category
    assert not is_fair(np.bincount(often, minlength=n_states))


def test_the_draw_is_independent_of_the_noise(tags: NDArray[np.uint8]) -> None:
    """What is released of a drawn category does not lean on which was drawn for the person, beyond the matrix itself."""
    transition = quantize(symmetric(4, epsilon=1.0))
    key = unit_key(
        SECRET, dataset="people", source_columns=["smoker"], codebook_digest=b"c" * 32,
        transition_digest=transition.digest(),
    )  # fmt: skip
    noise = perturb(key, tags, np.zeros(N, dtype=np.uint8), transition)

    def crossed(drawn: Codes) -> list[NDArray[np.int64]]:
        return [np.bincount(noise[drawn == code], minlength=4) for code in range(4)]

    assert is_fair(*crossed(draw(key_of(), tags, 4)))
    assert not is_fair(*crossed(draw(key, tags, 4)))  # drawn with the noise's own key


def test_the_draw_belongs_to_the_person_and_to_the_column(tags: NDArray[np.uint8]) -> None:
    drawn = draw(key_of(), tags, 4)
    shuffled = np.random.default_rng(1).permutation(N)[:999]
    np.testing.assert_array_equal(draw(key_of(), tags[shuffled], 4), drawn[shuffled])
    for other in (
        key_of(dataset="wards"),
        key_of(source_columns=["smoke"]),
        key_of(source_columns=["smoker", "age"]),
        key_of(codebook_digest=b"C" * 32),
        key_of(secret=b"S" * 32),
    ):
        elsewhere = draw(other, tags, 4)
        assert is_fair(*[np.bincount(elsewhere[drawn == code], minlength=4) for code in range(4)])


def test_the_draw_is_the_high_word_of_a_product(tags: NDArray[np.uint8]) -> None:
    """The formula of the module, in whole numbers of Python."""
    cipher = Cipher(algorithms.AES(key_of()), modes.ECB()).encryptor()
    for n_states in (2, 257, 65_536):
        drawn = draw(key_of(), tags[:200], n_states)
        for tag, code in zip(tags[:200], drawn.tolist(), strict=True):
            u = int.from_bytes(cipher.update(tag.tobytes() + bytes(2))[:8], "little")
            assert code == u * n_states >> 64


# ---- in the table


def test_a_person_keeps_the_drawn_category(folder: Path, release_study: Study) -> None:
    """From reading to reading, in any order of rows, whoever else is there; and what was declared stays as it is."""
    rows = [(f"p{i}", "no", "30", "?", "3" if i % 3 else "unheard of") for i in range(90)]
    study = study_of(release_study)

    def wards(rows: Sequence[Sequence[str]]) -> dict[str, int]:
        people = read_people(config_of(folder, rows), study, site_secret=SITE, linked_by=None)
        return dict(zip(people.names(), people.codes["ward"].tolist(), strict=True))

    first = wards(rows)
    assert {first[f"p{i}"] for i in range(0, 90, 3)} == {0, 1}
    assert {first[f"p{i}"] for i in range(90) if i % 3} == {0}
    assert wards(rows) == wards(rows[::-1]) == first
    assert wards(rows[30:60]) == {f"p{i}": first[f"p{i}"] for i in range(30, 60)}
    assert wards([(*row[:4], "3") if row[0] == "p0" else row for row in rows]) == first | {"p0": 0}


@pytest.mark.parametrize(
    "values", [("no", "30", "north", "3"), ("never", "", "north", "x"), ("no", "-9e9", "Mars", "")]
)
def test_the_same_work_is_done_whatever_the_values_are(
    folder: Path, release_study: Study, monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...]
) -> None:
    """For every column without `other`, and for the compound, a category is drawn for each record."""
    from verticil.party.dataset import undeclared_values as substitutes

    calls: list[tuple[int, int]] = []

    def counted(key: bytes, tags: NDArray[np.uint8], n_states: int) -> Codes:
        calls.append((len(tags), n_states))
        return draw(key, tags, n_states)

    monkeypatch.setattr(substitutes, "draw", counted)
    rows = [(f"p{i}", *values) for i in range(50)]
    read_people(config_of(folder, rows), study_of(release_study), site_secret=SITE, linked_by=None)
    assert calls == [(50, 3), (50, 2), (50, 2), (50, 6)]
