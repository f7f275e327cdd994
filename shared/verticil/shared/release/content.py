"""What a release consists of, as one value, before it becomes files.

The publisher (the miner, or in Model I every party) puts it together; `bundle` writes it. The value is checked once, here:
its parts belong to the same study and to each other.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from verticil.shared.core.arrays import AnyCodes
from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.knowledge.columns import columns
from verticil.shared.numerics.model.joint import JointModel, WeightedRecords
from verticil.shared.numerics.model.network import Marginal, Network, PairAccuracy, PairEstimate
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.structure import model_fault
from verticil.shared.release.formats import joint
from verticil.shared.release.formats.posterior import PublishedPosterior
from verticil.shared.release.posterior import posterior_fault, posterior_files
from verticil.shared.release.related import related_files
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.synthesis.marginals import pair_accuracy
from verticil.shared.synthesis.table_columns import PiecewiseTable

if TYPE_CHECKING:
    import pandas as pd

FILES: Final[Mapping[str, str]] = {
    "report.html": "This report, for people.",
    "model.json": "The whole model: graph, every probability with its standard error and interval, owners, privacy figures.",
    "network.bifxml": "The network with its original names, for pgmpy, pyAgrum and other tools (XMLBIF 0.3). No uncertainty.",
    "network.bif": "The network with safe names, for bnlearn too (BIF). No uncertainty.",
    "labels.json": "What the safe names in network.bif stand for.",
    "synthetic.parquet": "The synthetic records, with their categories as types.",
    "synthetic.csv": "The synthetic records as text.",
    "datapackage.json": "Describes the columns of the synthetic records (Frictionless Data Package 2.0).",
    "study.json": "The study as it was carried out, the parties' own declarations included. Its SHA-256 is the effective digest.",
}
"""The files of a release besides the manifest and its signature, and what each is."""

_JOINT_FILES: Final[Mapping[str, str]] = {
    joint.FILE: "The joint model that the synthetic records come from: a network with one root, for pgmpy, pyAgrum and others.",
}
PROPOSAL: Final = "proposal.json"
_SUB_MODEL_FILES: Final[Mapping[str, str]] = {
    PROPOSAL: "The study as proposed and approved, with the parties that were left out. Its SHA-256 is the study's digest.",
}


COPIES: Final = "records_equal_to_a_row_of_one_person"
"""Of a search: what the owner of a whole table counted, of a release that no bound covers."""


class SignedStatement(Protocol):
    """A signed body, as the wire message `Signed` has it."""

    @property
    def body(self) -> bytes:
        """What the party states."""
        ...

    @property
    def signature(self) -> bytes:
        """The Ed25519 signature of the body."""
        ...

    @property
    def certificate(self) -> bytes:
        """DER of the signer's certificate."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTables:
    """What a release says of the tables that a masked study opened (model-three.md section 4.7).

    Attributes:
        sha256: of their counts, as all parties have them.
        alarms: where they do not fit together, in words; honest ones have any with a chance of 10^-6 at most.
    """

    sha256: bytes
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)  # without slots, for what is computed once
class ReleaseContent:
    """Everything that is published.

    Attributes:
        study: the effective study.
        study_digest: of the proposal, lower-case hex.
        effective_digest: of `study`, lower-case hex.
        network: the model; what `synthetic` was drawn from where there is neither a joint model nor a posterior.
        marginals: one-way shares, one for each variable, in schema order.
        synthetic: the synthetic records, with `columns`; of very many piece by piece.
        codes: the same records as codes, one array for each variable.
        n_common: how many people all parties have in common.
        receipts: the miner's signed receipts, one for each unit; none in Model I, and in Model III, where it gets no column.
        provenance: versions and whatever else tells how the release was made.
        search: how the structure was found.
        simulation: everything ran on one machine; its user could read the data of all parties.
        seed_derived: site secrets and linkage key were derived from a seed, so the noise can be computed again.
        published_at: time of publication, UTC.
        statements: Model I: each party's signed parameters, in the study's order.
        proposal, sub_model: of a sub-model: canonical bytes of the study as proposed, and the miner's statement of it.
        pairs: Model II: what is known of each edge's pair and of those that the study names.
        structure: Model I: the structure, signed by the miner that searched it; None where the study gives it.
        joint: Model II: the joint model, rounded, that `synthetic` was drawn from; None: from the network.
        joint_facts: how it was fitted.
        opened: Model III: the tables that everything follows from; None in a simulation that opened none.
        posterior: of a study that samples graphs: the sample, and the networks that sets of records are drawn from.

    Raises:
        ValueError: the parts do not belong together.
    """

    study: Study
    study_digest: str
    effective_digest: str
    network: Network
    marginals: tuple[Marginal, ...]
    synthetic: pd.DataFrame | PiecewiseTable
    codes: tuple[AnyCodes, ...]
    n_common: int
    receipts: tuple[SignedStatement, ...]
    provenance: Mapping[str, Json]
    search: Mapping[str, Json]
    simulation: bool
    seed_derived: bool
    published_at: dt.datetime
    statements: tuple[SignedStatement, ...] = ()
    structure: SignedStatement | None = None
    proposal: bytes = b""
    sub_model: SignedStatement | None = None
    pairs: tuple[PairEstimate, ...] = ()
    joint: JointModel | None = None
    joint_facts: Mapping[str, Json] = field(default_factory=dict)
    opened: OpenedTables | None = None
    posterior: PublishedPosterior | None = None

    def __post_init__(self) -> None:
        schema = self.study.schema
        if self.network.schema != schema:
            raise ValueError("the network's schema is not the study's")
        if (digest := canonical.digest(self.study).hex()) != self.effective_digest:
            raise ValueError(f"effective digest is {self.effective_digest}, the study's is {digest}")
        if problem := self._models_fault():
            raise ValueError(problem)
        custom = self.study.custom_network()
        if custom is not None and custom.leaks(self.network.dag):
            raise ValueError("the network does not keep what the study's custom network promises")
        if tuple(map(str, self.synthetic.columns)) != self.columns.names or len(self.codes) != len(schema):
            raise ValueError("the synthetic records do not have the study's columns in their order")
        if any(code.shape != (len(self.synthetic),) for code in self.codes):
            raise ValueError(f"codes do not have one entry for each of the {len(self.synthetic)} synthetic records")
        if tuple(marginal.variable for marginal in self.marginals) != tuple(range(len(schema))):
            raise ValueError(
                f"{len(self.marginals)} marginals, expected one for each of {len(schema)} variables in order"
            )
        if not protocol_of(self.study).coordinated and len(self.statements) != len(self.study.parties):
            raise ValueError(
                f"{len(self.statements)} statements, expected one of each of {len(self.study.parties)} parties"
            )
        if not bool(self.study.left_out) == bool(self.proposal) == (self.sub_model is not None):
            raise ValueError("a sub-model, and no other study, comes with its proposal and the miner's statement")
        if protocol_of(self.study).opens_tables and (self.receipts or not (self.opened or self.simulation)):
            raise ValueError(
                "a release of masked tables has their digest, unless it is a simulation's, and no receipts"
            )
        if self.published_at.utcoffset() != dt.timedelta(0):
            raise ValueError("published_at is not a UTC time")

    def _models_fault(self) -> str:
        """Why the joint model or the posterior does not belong to the study; empty: both do, as far as they are there."""
        if self.joint is not None and (problem := joint_fault(self.study, self.joint)):
            return f"the joint model: {problem}"
        if (self.posterior is not None) != self.study.samples_graphs:
            return "a study that samples graphs, and no other one, comes with their posterior"
        if self.posterior is None:
            return ""
        problem = posterior_fault(self.study, self.posterior, self.network.dag)
        return problem and f"the posterior: {problem}"

    @functools.cached_property
    def columns(self) -> Schema:
        """The columns of the synthetic records: the study's variables in their order, with what follows from them."""
        return columns(self.study.knowledge, self.study.schema).published

    @functools.cached_property
    def accuracy(self) -> tuple[PairAccuracy, ...]:
        """How far the network, the joint model and the synthetic records are from what is known of `pairs`."""
        return pair_accuracy(
            self.network, self.pairs, self.codes, self.n_common, self.joint, support=self.study.support()
        )

    @property
    def files(self) -> Mapping[str, str]:
        """The files of this release, as `FILES`."""
        return {
            **FILES,
            **({} if self.joint is None else _JOINT_FILES),
            **posterior_files(self.study),
            **related_files(self.study),
            **(_SUB_MODEL_FILES if self.study.left_out else {}),
        }

    @property
    def published_text(self) -> str:
        """Time of publication, ISO 8601 seconds."""
        return self.published_at.strftime("%Y-%m-%dT%H:%M:%SZ")


def may_have_joint(study: Study) -> bool:
    """Return whether a release of the study can have a joint model."""
    return (
        study.records_from not in ("network", "posterior")
        and not study.refuses_joint
        and protocol_of(study).counts_families
    )


def joint_fault(study: Study, model: JointModel) -> str:
    """Why a joint model cannot be one of the study; empty: it can.

    It must not undo what the study keeps apart, and what a joint draw declares or a rule of the study says impossible is that.
    """
    schema = study.schema
    if not may_have_joint(study):
        return study.refuses_joint or "the study's records come from the network"
    others = model.n_states != schema.n_states
    if problem := "its variables are not the study's" if others else model_fault(study.related, schema, model):
        return problem
    for unit in study.units:
        for combination in unit.impossible:
            evidence = dict(zip(map(schema.index, unit.variables), combination, strict=True))
            with contextlib.suppress(ValueError):
                model.condition_on(evidence)
                return f"{unit.text}: a combination that the study declares impossible has a share"
    support = study.support()
    if support.restricts:
        if not isinstance(model, WeightedRecords):
            return "it is not made of records, which alone meet what the study states of all"
        if violations := support.find_broken_rule(list(model.codes[model.weights > 0].T)):
            return f"a record does not meet the rule '{violations}'"
    return ""
