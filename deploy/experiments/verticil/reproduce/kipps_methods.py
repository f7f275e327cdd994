"""The ways to synthetic records that are compared: all with an epsilon at the same one, for the replacement of one person.

Generators: that of KIPPS, an autoencoder that knows the same rules, and what stands for the paper's comparators, all our own
programs (`verticil.gan`), none the authors'.
Networks: the joint model and the network that an owner's `synthesize` makes, with the rules and without. Three generators have
no epsilon: a TVAE as the paper has it, and both of ours without noise. Who knows the rules generates no column that follows from
others, and leaves out what breaks a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd

from verticil.curator.learning import learn_study, records_of
from verticil.curator.measuring import measurement
from verticil.curator.reading import as_file, read_table
from verticil.curator.study import owners_study
from verticil.experiments.kipps.claims import AUTOENCODER
from verticil.experiments.kipps.datasets import DataSet
from verticil.experiments.kipps.experiment import Asked, Make, RecordSource
from verticil.gan import ablations as without
from verticil.gan import pate, tvae
from verticil.gan.sampling import Generator, sample
from verticil.gan.settings import AutoencoderSettings, Settings
from verticil.gan.training import Trained
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.support import Support, support
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.synthesis.synthesis import decode

_DATASET: Final = "people"


def _settings(asked: Asked) -> Settings:
    return Settings(steps=asked.training.steps, batch=asked.training.batch)


def _codes(data: DataSet, frame: pd.DataFrame, schema: Schema) -> list[Codes]:
    table = data.coded(frame)
    return [table.codes[table.names.index(name)] for name in schema.names]


def _drawn(data: DataSet, trained: Generator, asked: Asked, *, known: bool) -> pd.DataFrame:
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
        epsilon=asked.epsilon, delta=asked.delta, key=asked.key, settings=_settings(asked),
    )  # fmt: skip
    return _drawn(data, trained, asked, known=True)


def _without_noise(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    trained = without.exact(
        _codes(data, frame, data.schema), data.schema, data.knowledge, key=asked.key, settings=_settings(asked)
    )
    return _drawn(data, trained, asked, known=True)


def _autoencoded(*, private: bool) -> Make:
    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        trained = without.autoencoded(
            _codes(data, frame, data.schema), data.schema, data.knowledge,
            epsilon=asked.epsilon if private else None, delta=asked.delta, key=asked.key,
            settings=AutoencoderSettings(steps=asked.training.steps, batch=asked.training.batch),
        )  # fmt: skip
        return _drawn(data, trained, asked, known=True)

    return make


def _reduced(train: Callable[..., Trained]) -> Make:
    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        trained = train(
            _codes(data, frame, data.everything), data.everything,
            epsilon=asked.epsilon, delta=asked.delta, key=asked.key, settings=_settings(asked),
        )  # fmt: skip
        return _drawn(data, trained, asked, known=False)

    return make


def _pate(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    codes = pate.records(
        _codes(data, frame, data.everything), data.everything, asked.n,
        epsilon=asked.epsilon, delta=asked.delta, key=asked.key, settings=_settings(asked),
    )  # fmt: skip
    return _frame(data, codes, asked, known=False)


def _tvae(*, private: bool) -> Make:
    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        codes = tvae.records(
            _codes(data, frame, data.everything), data.everything, asked.n,
            epsilon=asked.epsilon if private else None, delta=asked.delta, key=asked.key, settings=_settings(asked),
        )  # fmt: skip
        return _frame(data, codes, asked, known=False)

    return make


def _model(method: Literal["joint", "network"], *, known: bool) -> Make:
    """As an owner's `synthesize`, under a secret that is drawn from the seed, and with no ledger: nobody is protected here."""

    def make(data: DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        study = owners_study(
            data.study(known=known), method=method, epsilon=asked.epsilon, delta=asked.delta, seed=asked.seed
        )
        secret = SiteSecret(value=asked.key)
        with as_file(frame) as path:
            people = read_table(path, study, dataset=_DATASET, id_column=None, secret=secret)
        measure = measurement(study, people, dataset=_DATASET, secret=secret)
        found = learn_study(study, people, measure, secret=secret, step=lambda _: None)
        return records_of(found, study)[1].iloc[: asked.n]

    return make


WAYS: Final = (
    RecordSource(name="KIPPS", words="our generator of KIPPS: condition and knowledge", make=_kipps, known=True),
    RecordSource(
        name=AUTOENCODER,
        words="our autoencoder that knows the same rules, trained by DP-SGD; not the paper's",
        make=_autoencoded(private=True),
        known=True,
    ),
    RecordSource(name="DPCTGAN", words="our generator with the condition only", make=_reduced(without.dpctgan)),
    RecordSource(name="DPWGAN", words="our generator without condition and knowledge", make=_reduced(without.dpwgan)),
    RecordSource(name="PATE-GAN", words="our small PATE-GAN, bound that does not depend on the data", make=_pate),
    RecordSource(name="DP-TVAE", words="our small TVAE, trained by DP-SGD", make=_tvae(private=True)),
    RecordSource(name="network", words="network from noisy tables", make=_model("network", known=False)),
    RecordSource(
        name="network, rules",
        words="network from noisy tables",
        make=_model("network", known=True),
        known=True,
    ),
    RecordSource(name="joint", words="joint model of noisy tables", make=_model("joint", known=False)),
    RecordSource(
        name="joint, rules",
        words="joint model of noisy tables",
        make=_model("joint", known=True),
        known=True,
    ),
    RecordSource(name="TVAE", words="our small TVAE, not private", make=_tvae(private=False), private=False),
    RecordSource(
        name="KIPPS, no noise",
        words="our generator without noise, not private",
        make=_without_noise,
        private=False,
        known=True,
    ),
    RecordSource(
        name=f"{AUTOENCODER}, no noise",
        words="our autoencoder without noise, not private",
        make=_autoencoded(private=False),
        private=False,
        known=True,
    ),
)
"""In the order of the tables."""
