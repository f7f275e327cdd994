"""The ways to synthetic records that are compared: all with an epsilon at the same one, for the replacement of one person.

Generators: that of KIPPS and what stands for the paper's comparators, all our own programs (`verticil.gan`), none the authors'.
Networks: the joint model and the network that an owner's `synthesize` makes, with the rules and without. Two generators have no
epsilon: a TVAE as the paper has it, and ours without noise. Who knows the rules generates no column that follows from others, and
leaves out what breaks a rule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd

from verticil.curator.synthesis import synthesize
from verticil.experiments.kipps.datasets import DataSet
from verticil.gan import pate, tvae, without
from verticil.gan.sampling import sample
from verticil.gan.settings import Settings
from verticil.gan.training import Trained
from verticil.shared.arrays import Codes
from verticil.shared.knowledge.support import Support, support
from verticil.shared.model.schema import Schema
from verticil.shared.release.synthesis import decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every method is asked for.

    Attributes:
        epsilon, delta: of those that have them, for the replacement of one person.
        settings: of generators.
        seed: of noise and records.
        n: how many records.
    """

    epsilon: float
    delta: float
    settings: Settings
    seed: int
    n: int

    @property
    def key(self) -> bytes:
        """Drawn from the seed: nobody is protected here."""
        return np.random.default_rng([self.seed, 0xF]).bytes(32)


Make = Callable[[DataSet, pd.DataFrame, Asked], pd.DataFrame]
"""(the data set, the records to synthesize, what is asked for) -> synthetic records of all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way.

    Attributes:
        name: short.
        words: for people.
        make: makes records.
        private: it has the epsilon; else nothing bounds what it tells.
        known: it knows the rules.
        network: it is no generator.
    """

    name: str
    words: str
    make: Make
    private: bool = True
    known: bool = False
    network: bool = False


def _codes(data: DataSet, frame: pd.DataFrame, schema: Schema) -> list[Codes]:
    table = data.coded(frame)
    return [table.codes[table.names.index(name)] for name in schema.names]


def _drawn(data: DataSet, trained: Trained, asked: Asked, *, known: bool) -> pd.DataFrame:
    allowed = support(data.knowledge, data.schema) if known else Support(data.everything, (), ())
    found = sample(trained, allowed, asked.n, seed=asked.seed)
    return _frame(data, found.codes, asked, known=known)


def _frame(data: DataSet, codes: Sequence[Codes], asked: Asked, *, known: bool) -> pd.DataFrame:
    generator = np.random.default_rng([asked.seed, 0xA])
    schema = data.schema if known else data.everything
    return decode(schema, codes, generator, knowledge=data.knowledge if known else None)


def _kipps(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    trained = without.kipps(
        _codes(data, frame, data.schema), data.schema, data.knowledge,
        epsilon=asked.epsilon, delta=asked.delta, key=asked.key, settings=asked.settings,
    )  # fmt: skip
    return _drawn(data, trained, asked, known=True)


def _without_noise(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    trained = without.exact(
        _codes(data, frame, data.schema), data.schema, data.knowledge, key=asked.key, settings=asked.settings
    )
    return _drawn(data, trained, asked, known=True)


def _reduced(train: Callable[..., Trained]) -> Make:
    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        trained = train(
            _codes(data, frame, data.everything), data.everything,
            epsilon=asked.epsilon, delta=asked.delta, key=asked.key, settings=asked.settings,
        )  # fmt: skip
        return _drawn(data, trained, asked, known=False)

    return make


def _pate(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    codes = pate.records(
        _codes(data, frame, data.everything), data.everything, asked.n,
        epsilon=asked.epsilon, delta=asked.delta, key=asked.key, settings=asked.settings,
    )  # fmt: skip
    return _frame(data, codes, asked, known=False)


def _tvae(*, private: bool) -> Make:
    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        codes = tvae.records(
            _codes(data, frame, data.everything), data.everything, asked.n,
            epsilon=asked.epsilon if private else None, delta=asked.delta, key=asked.key, settings=asked.settings,
        )  # fmt: skip
        return _frame(data, codes, asked, known=False)

    return make


def _model(method: Literal["joint", "network"], *, known: bool) -> Make:
    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        with tempfile.TemporaryDirectory() as state:
            found = synthesize(
                frame, data.study(known=known), epsilon=asked.epsilon, delta=asked.delta, method=method, seed=asked.seed,
                state=Path(state) / "state",
            )  # fmt: skip
        return found.records.iloc[: asked.n]

    return make


METHODS: Final = (
    Method(name="KIPPS", words="our generator of KIPPS: condition and knowledge", make=_kipps, known=True),
    Method(name="DPCTGAN", words="our generator with the condition only", make=_reduced(without.dpctgan)),
    Method(name="DPWGAN", words="our generator without condition and knowledge", make=_reduced(without.dpwgan)),
    Method(name="PATE-GAN", words="our small PATE-GAN, bound that does not depend on the data", make=_pate),
    Method(name="DP-TVAE", words="our small TVAE, trained by DP-SGD", make=_tvae(private=True)),
    Method(name="network", words="network from noisy tables", make=_model("network", known=False), network=True),
    Method(
        name="network, rules",
        words="network from noisy tables, given the rules",
        make=_model("network", known=True),
        known=True,
        network=True,
    ),
    Method(name="joint", words="joint model of noisy tables", make=_model("joint", known=False), network=True),
    Method(
        name="joint, rules",
        words="joint model of noisy tables, given the rules",
        make=_model("joint", known=True),
        known=True,
        network=True,
    ),
    Method(name="TVAE", words="our small TVAE, not private", make=_tvae(private=False), private=False),
    Method(
        name="KIPPS, no noise",
        words="our generator without noise, not private",
        make=_without_noise,
        private=False,
        known=True,
    ),
)
"""In the order of the tables."""
