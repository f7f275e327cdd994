"""One study by three models: what each tells whom of a person, how near its records come, what it sends, in how many exchanges.

The other models are made of the study as it stands: the same columns, randomized alike, the same epsilon and delta for noise on
tables or on what is shared. What a model cannot do is left out where that changes no figure here (who countersigns, with how few
parties it goes on); otherwise the row says why there is none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from verticil.analyst.prediction import predict_study
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.shared_statistics_noise import DISCRETE
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.study import rules
from verticil.shared.study.document import PosteriorRule, ShareRule, Study, TablesRule
from verticil.shared.study.inapplicable import without
from verticil.shared.study.protocols import PROTOCOLS, protocol_of
from verticil.shared.study.vocabulary import METHODS, pair_methods


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model.

    Attributes:
        model: its name.
        costs: account -> what the study tells its reader of a person whose data are replaced at all parties.
        two_way: predicted distance of synthetic records in tables of two columns; None: nothing is predicted.
        bytes_sent: of columns, or of masked messages, each counted once.
        exchanges: messages that wait for one another.
        missing: why the study cannot be carried out so; then the rest says nothing.
    """

    model: str
    costs: dict[str, Cost] = dataclasses.field(default_factory=dict)
    two_way: float | None = None
    bytes_sent: int = 0
    exchanges: int = 0
    missing: str = ""


def compare_models(study: Study, n: int) -> tuple[ModelRow, ...]:
    """Return the study by each model that organisations carry out together, in the order of the registry: II, I, III.

    Args:
        study: a study that was read.
        n: people in common, at least 1.
    """
    return tuple(_row(study, protocol.name, n) for protocol in PROTOCOLS if not protocol.whole_table)


def _row(study: Study, model: str, n: int) -> ModelRow:
    try:
        other = study if study.model == model else _as(study, model)
        rules.check(other, source="study")
    except Misuse as error:
        return ModelRow(model=model, missing=error.message.removeprefix("study: "))
    protocol, prediction = protocol_of(other), predict_study(other, n)
    return ModelRow(
        model=model,
        costs={item.reader.name: item.cost for item in privacy_statement(other).accounts},
        two_way=None if prediction is None else prediction.two_way,
        bytes_sent=protocol.bytes_sent(other, n),
        exchanges=protocol.exchanges(other),
    )


def _as(study: Study, model: str) -> Study:
    """Return the study by another model."""
    tables, structure = study.tables, study.structure
    if tables is None and study.share is not None and study.share.epsilon and study.share.delta:
        tables = TablesRule(epsilon=study.share.epsilon, delta=study.share.delta)
    between = dataclasses.replace(study, model=model, share=None, masked=None, tables=tables)
    if not PROTOCOLS.named(model).shares:
        return between
    share = ShareRule() if tables is None else ShareRule(epsilon=tables.epsilon, delta=tables.delta, noise=DISCRETE)
    if structure.method not in (*pair_methods(), "given"):
        usual = "tree" if METHODS[structure.method].one_parent else "genetic"
        structure = dataclasses.replace(structure, method=usual, score=METHODS[usual].scores[0])
    usable = without(dataclasses.replace(between, structure=structure), PROTOCOLS.named(model).inapplicable)
    return dataclasses.replace(
        usable,
        tables=None,
        share=share,
        posterior=PosteriorRule(),
        release=dataclasses.replace(usable.release, sample_from=None),
        quorum=None,
    )
