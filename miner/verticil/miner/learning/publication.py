"""From what was learned to what is published, a stage each: models, records, content.

`publish_models` rounds what a release may have of the models; `draw_published_records` draws the study's records from them;
`content_of` says how all of it came about. Each stage takes the values that the stage before gives, and none looks at a table.
"""

from __future__ import annotations

import datetime as dt
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.miner.learning.joint import asks_for_joint
from verticil.miner.learning.learn import LearnResult
from verticil.miner.learning.search_facts import search_facts
from verticil.shared.core.arrays import Codes
from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.joint.estimate import JointEstimate
from verticil.shared.numerics.joint.worth import KEY as WORTH
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.rounding import round_joint, round_network
from verticil.shared.numerics.posterior.result import StructurePosterior
from verticil.shared.release.content import OpenedTables, ReleaseContent, SignedStatement, joint_fault
from verticil.shared.release.formats.joint import fits
from verticil.shared.release.formats.posterior import MAX_GRAPHS, Agreement, Edge, Predicted, PublishedPosterior
from verticil.shared.release.records import draw_release_records
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.synthesis.table_columns import PiecewiseTable

if TYPE_CHECKING:
    import pandas as pd

_PACKAGES: Final = ("numpy", "numba", "pandas", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModels:
    """The models of a release, rounded.

    Attributes:
        joint: the joint model that records are drawn from; None: they come from the network or the posterior.
        joint_facts: how it was fitted.
        posterior: of a study that samples graphs; else None.
    """

    joint: JointModel | None
    joint_facts: Mapping[str, Json]
    posterior: PublishedPosterior | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRecords:
    """Synthetic records.

    Attributes:
        codes: one array for each variable, (n,).
        table: the same with labels and numbers; of very many piece by piece.
    """

    codes: tuple[Codes, ...]
    table: pd.DataFrame | PiecewiseTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where what was learned comes from, as a release says and proves it; see `ReleaseContent`.

    Attributes:
        study_digest: of the proposal.
        n_common: people in common.
        published_at: UTC.
        packages: whose versions a release names besides `_PACKAGES`.
        search: what is said of the search besides `search_facts`.
        states_strengths: whether strengths of edges are stated, also where there is no edge.
    """

    study_digest: bytes
    n_common: int
    published_at: dt.datetime
    receipts: tuple[SignedStatement, ...] = ()
    statements: tuple[SignedStatement, ...] = ()
    proposal: bytes = b""
    sub_model: SignedStatement | None = None
    opened: OpenedTables | None = None
    simulation: bool = False
    seed_derived: bool = False
    packages: tuple[str, ...] = ()
    search: Mapping[str, Json] = field(default_factory=dict)
    states_strengths: bool = True


def publish_models(result: LearnResult, study: Study) -> PublishedModels:
    """Round what a release of the study has of the models that were learned."""
    joint, facts = published_joint(result.joint, study)
    if result.worth is not None and joint is not None:
        facts[WORTH] = result.worth.document()
    return PublishedModels(joint=joint, joint_facts=facts, posterior=published_posterior(result.posterior, study))


def draw_published_records(
    result: LearnResult,
    models: PublishedModels,
    study: Study,
    n_common: int,
    *,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> DrawnRecords:
    """Draw the study's records from the published models; arguments and errors as of `draw_release_records`."""
    networks = () if models.posterior is None else models.posterior.networks
    codes, table = draw_release_records(
        result.network, study, n_common, models.joint, networks, folder=folder, progress=progress
    )
    return DrawnRecords(codes=codes, table=table)


def content_of(
    result: LearnResult, models: PublishedModels, records: DrawnRecords, study: Study, origin: Origin
) -> ReleaseContent:
    """Put together the content of a release.

    Args:
        result: with the network and the marginals as they are published.
        models, records: of the stages before.
        study: the effective study.
        origin: where all of it comes from.

    Raises:
        ValueError: the parts do not belong together.
    """
    facts = search_facts(
        study,
        result.search,
        auto_search=result.way,
        candidates=result.candidates,
        pair_check=result.pair_check,
        edge_strength=result.edge_strength if origin.states_strengths else None,
        weak_edges=result.weak_edges,
    )
    return ReleaseContent(
        study=study,
        study_digest=origin.study_digest.hex(),
        effective_digest=canonical.digest(study).hex(),
        network=result.network,
        marginals=result.marginals,
        synthetic=records.table,
        codes=records.codes,
        n_common=origin.n_common,
        receipts=origin.receipts,
        statements=origin.statements,
        pairs=result.pairs,
        joint=models.joint,
        joint_facts=models.joint_facts,
        posterior=models.posterior,
        proposal=origin.proposal,
        sub_model=origin.sub_model,
        provenance={
            "model_marginals": "exact" if result.marginals_exact else "sampled",
            "python": platform.python_version(),
            **{name: version(name) for name in (*_PACKAGES, *origin.packages)},
        },
        search=facts | dict(origin.search),
        simulation=origin.simulation,
        seed_derived=origin.seed_derived,
        opened=origin.opened,
        published_at=origin.published_at,
    )


def published_joint(estimate: JointEstimate | None, study: Study) -> tuple[JointModel | None, dict[str, Json]]:
    """Return the joint model as a release has it, and what is said of it; None where the records come from the network.

    A model that would not keep what the study declares, or is too large, is not published: records come from the network then.
    """

    if estimate is None or not asks_for_joint(study):
        return None, {}
    model = round_joint(estimate.model)
    if joint_fault(study, model) or not fits(model, study.schema):
        return None, {}
    facts: dict[str, Json] = {
        "kind": estimate.kind,
        "steps": estimate.steps,
        "discrepancy": round(estimate.discrepancy, 4),
        "reached": estimate.reached,
        "share_of_the_model": round(estimate.alpha, 4),
    }
    if estimate.tables_nearer is not None:
        facts["tables_nearer"] = round(estimate.tables_nearer, 2)
    return model, facts


def published_posterior(posterior: StructurePosterior | None, study: Study) -> PublishedPosterior | None:
    """Return what a release has of sampled graphs, the networks rounded; None where the study samples none."""

    if posterior is None:
        return None
    sample, chains = posterior.sample, posterior.sample.diagnostics
    distinct = sample.distinct()
    return PublishedPosterior(
        source=posterior.source,
        chains=study.posterior.chains,
        steps=sample.steps,
        burn_in=sample.burn_in,
        every=sample.every,
        n_graphs=sample.n_draws,
        agreement=Agreement(
            r_hat=chains.r_hat,
            edge_difference=chains.edge_difference,
            effective=chains.effective_size,
            agree=chains.agree,
            tail=chains.tail_size,
            moved=posterior.moved,
        ),
        edges=tuple(
            Edge(
                parent=parent,
                child=child,
                probability=float(sample.edge_probability[parent, child]),
                error=float(sample.edge_error[parent, child]),
            )
            for child, parent in np.argwhere(sample.edge_probability.T > 0).tolist()
        ),
        consensus=posterior.consensus,
        distinct=len(distinct),
        graphs=distinct[:MAX_GRAPHS],
        networks=tuple(map(round_network, posterior.networks)),
        pairs=posterior.pairs,
        predictive=tuple(
            Predicted(
                words=words,
                draws=tuple(prediction.draws.tolist()),
                mean=prediction.mean,
                low=prediction.low,
                high=prediction.high,
                r_hat=prediction.worth.r_hat,
                effective=prediction.worth.bulk,
                tail=prediction.worth.tail,
            )
            for words, prediction in zip(study.posterior.statistics, posterior.predictive, strict=True)
        ),
        missing=posterior.missing,
        constant=posterior.constant,
    )
