"""From a table to a model and records, by the miner's code or by PrivBayes.

Nothing is looked at that has no noise, but for a study that samples graphs and names no noise: it promises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from verticil.curator.measuring import measure_tables, noise_key
from verticil.curator.progress import LearningProgress
from verticil.curator.reading import Table
from verticil.curator.study import LEAST_RECORDS
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import LearnResult, learn
from verticil.miner.learning.publication import PublishedModels, draw_published_records, publish_models
from verticil.miner.learning.search.protocol import SearchResult
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import unit_codes
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.parameters import marginal_parameters
from verticil.shared.numerics.model.network import Marginal
from verticil.shared.numerics.model.rounding import round_network
from verticil.shared.numerics.privbayes import fitting as privbayes
from verticil.shared.numerics.privbayes.fitting import Fitted
from verticil.shared.numerics.privbayes.measuring import NoisyTable
from verticil.shared.privacy.privbayes import study_noise
from verticil.shared.study.document import Study
from verticil.shared.study.vocabulary import METHODS
from verticil.shared.synthesis.marginals import model_shares
from verticil.shared.synthesis.table_columns import PiecewiseTable

if TYPE_CHECKING:
    import pandas as pd


def learn_study(
    study: Study,
    table: Table,
    column_draw: ColumnDraw,
    *,
    secret: SiteSecret,
    step: Callable[[str], None],
    show: Callable[[str], None] | None = None,
) -> LearnResult:
    """Measure with noise, and learn from what was measured and the number of people alone.

    Args:
        study: the owner's study.
        table: the people.
        column_draw: the measurement of them; the ledger has been charged for it if anything of the result is published.
        secret: of the owner.
        step: told each stage once.
        show: told how far a stage is, per cent by per cent; None: nobody watches.

    Raises:
        DataFault: LEARNING_FAILED.
    """
    has_course = study.tables is not None and not study.samples_graphs
    report = LearningProgress(step, show, has_course=has_course).report
    if study.tables is None:
        own = dict(zip(study.schema.names, table.codes, strict=True))
        return learn([unit_codes(study, index, own) for index in range(len(study.units))], study, progress=report)
    step("counting, with noise")
    if METHODS[study.structure.method].whole_table:
        return _by_privbayes(study, table.codes, key=noise_key(column_draw, secret))
    tables = measure_tables(study, table, column_draw, secret)
    return learn_from_tables(tables, study, progress=report)


def _by_privbayes(study: Study, codes: Sequence[Codes], *, key: bytes) -> LearnResult:
    """Learn the network of PrivBayes, which scores pairs, chooses its tables and measures them, all with noise of one key."""
    schema, level, rule = study.schema, study.parameters.interval_level, study.privbayes
    result = privbayes.fit(
        codes,
        schema.n_states,
        key=key,
        noise=study_noise(study),
        tau=rule.tau,
        projection="clip" if rule.negative == "clip" else "simplex",
        consistent=rule.consistent,
        constraints=study.constraints(),
        zeros=study.support().zeros,
    )
    # Of a public number `read_table` asked before; of a noisy one nothing else may.
    if result.n_records < LEAST_RECORDS:
        raise DataFault(
            "LEARNING_FAILED",
            f"the number of people, counted with noise, is below {LEAST_RECORDS}, so nothing is published; the noise was charged",
            hint="noise that protects people leaves nothing of so few",
        )
    network = round_network(result.network(schema, level=level))
    models, exact = model_shares(network, study.support())
    nothing = np.zeros((len(schema), len(schema)))
    return LearnResult(
        network=network,
        marginals=tuple(
            _marginal(result, study, variable, model, result.n_records) for variable, model in enumerate(models)
        ),
        marginals_exact=exact,
        pair_information=nothing,
        significant=nothing.astype(np.bool_),
        search=SearchResult(dag=network.dag, fitness=0.0, generations=0, dropped_edges=(), seed=study.structure.seed),
        way=None,
        candidates=(),
        pair_check=None,
        pairs=(),
        edge_strength={},
        weak_edges={},
        n_records=result.n_records,
    )


def _marginal(result: Fitted, study: Study, variable: int, model: Floats, n: int) -> Marginal:
    """Take a marginal from the table that tells most of the variable: of its cells the fewest are added up for a category."""

    def variance(table: NoisyTable) -> float:
        return float(table.deviation**2 * table.counts.size / table.counts.shape[table.attributes.index(variable)])

    table = min((table for table in result.tables if variable in table.attributes), key=variance)
    others = tuple(axis for axis, attribute in enumerate(table.attributes) if attribute != variable)
    return marginal_parameters(
        table.counts.sum(axis=others),
        quantize(identity(study.schema[variable].n_states)),
        variable=variable,
        model=model,
        level=study.parameters.interval_level,
        noise_variance=variance(table),
        people=n,
    )


def records_of(
    result: LearnResult, study: Study, models: PublishedModels | None = None
) -> tuple[tuple[Codes, ...], pd.DataFrame]:
    """Draw the synthetic records, in codes and as a table, from what the study says.

    Args:
        result: what was learned.
        study: the owner's study.
        models: as `publish_models` gives them for both; None: they are rounded here.

    Raises:
        DataFault: LEARNING_FAILED, the network is too wide for how the study draws.
    """
    records = draw_published_records(result, models or publish_models(result, study), study, result.n_records)
    if isinstance(records.table, PiecewiseTable):  # who asked for it is handed one frame
        import pandas as pd

        return records.codes, pd.concat(records.table, ignore_index=True)
    return records.codes, records.table
