"""Studies, networks and releases that several test files need, as plain functions."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verticil.party.dataset.perturb import perturb, record_tags
from verticil.party.protocol.peer.parameters import learn_families, share_noise
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.joint import JointModel, Mixture, WeightedRecords
from verticil.shared.numerics.model.network import Family, Marginal, Network, PairEstimate
from verticil.shared.numerics.model.rounding import round_joint, round_network
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.formats.posterior import Agreement, Edge, Predicted, PublishedPosterior
from verticil.shared.release.records import draw_release_records
from verticil.shared.release.statement import PartyStatement, Received, software_text
from verticil.shared.study import canonical
from verticil.shared.study.document import (
    GeneticRule,
    LinkageRule,
    ParameterRule,
    PosteriorRule,
    ReleaseRule,
    ShareRule,
    StructureRule,
    Study,
)
from verticil.shared.study.peer import reads
from verticil.shared.study.structure_document import Structure, given_structure
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.marginals import model_shares
from verticil.shared.synthesis.synthesis import sample_codes

HARD_LABELS = (
    "<=50K",
    ">50K",
    "a&b",
    "[17,25)",
    "(0,10]",
    "a  b",
    "'q' \"x\"",
    "é ü 漢",
    "a;b|c(d){e}",
    "//",
    "/*",
    "table",
    "?",
    "1e-5",
)


def random_network(
    variables: tuple[Variable, ...], parents: tuple[tuple[int, ...], ...], *, seed: int = 1, rounded: bool = True
) -> Network:
    generator = np.random.default_rng(seed)
    schema = Schema(variables=variables)
    families = []
    for child, family in enumerate(parents):
        n_rows = int(np.prod([schema[p].n_states for p in family], dtype=np.int64))
        probability = generator.dirichlet(np.full(schema[child].n_states, 0.4), size=n_rows)
        error = np.sqrt(probability * (1 - probability) / 200) + 0.01
        estimate = probability + error * generator.normal(size=probability.shape)
        unstable = np.repeat(generator.random((n_rows, 1)) < 0.2, schema[child].n_states, axis=1)
        low, high = (np.where(unstable, np.nan, np.clip(estimate + z * error, 0, 1)) for z in (-1.96, 1.96))
        estimate[unstable & (generator.random(unstable.shape) < 0.3)] = np.nan
        families.append(
            Family(
                child=child, parents=family, probability=probability, estimate=estimate, standard_error=error,
                interval_low=low, interval_high=high, unstable=unstable,
            )
        )  # fmt: skip
    network = Network(schema=schema, dag=Dag(parents=parents), families=tuple(families))
    return round_network(network) if rounded else network


def release_study_of_two() -> Study:
    schema = Schema(
        variables=(
            Variable(name="age", owner="clinic", labels=("[0,18)", "[18,65)", "[65,120)"), bins=(0, 18, 65, 120), integer=True),
            Variable(name="smoker", owner="clinic", labels=("no", "yes")),
            Variable(name="income", owner="registry", labels=("<=50K", ">50K"), ),
            Variable(
                name="weight", owner="registry", labels=("[0,50)", "[50,300)", "unknown"), bins=(0, 50, 300),
                missing=Missing(category="unknown", spellings=("?", "")),
            ),
            Variable(name="region", owner="registry", labels=("north & east", "south")),
        )
    )  # fmt: skip
    matrices = (
        symmetric(3, epsilon=2.0),
        binary(0.1, 0.25),
        symmetric(2, gamma=9),
        symmetric(3, epsilon=1.0),
        identity(2),
    )
    return Study(
        id="heart", title="Hearts and incomes", purpose="Find out", model="central", expires=dt.date(2099, 12, 31),
        parties=("clinic", "registry"),
        linkage=LinkageRule(mode="keyed-hash", normalise=("nfkc", "trim"), minimum_common_records=100),
        schema=schema,
        units=tuple(
            Unit(variables=(variable.name,), owner=variable.owner, scheme="matrix", transition=quantize(matrix))
            for variable, matrix in zip(schema.variables, matrices, strict=True)
        ),
        structure=StructureRule(
            method="genetic", score="mutual-information", max_parents=2, max_family_cells=20_000, seed=7,
            required=(), forbidden=(), genetic=GeneticRule(),
        ),
        parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
        release=ReleaseRule(synthetic_records=None, seed=7),
    )  # fmt: skip


def content_of(study: Study) -> ReleaseContent:
    schema, n = study.schema, 400
    network = random_network(schema.variables, ((), (0,), (0, 1), (), (2,)), seed=1)
    generator = np.random.default_rng(2)
    codes = tuple(generator.integers(0, variable.n_states, n).astype(np.uint8) for variable in schema.variables)
    columns: dict[str, object] = {}
    for variable, code in zip(schema.variables, codes, strict=True):
        labels = pd.Categorical.from_codes(code.astype(np.int8), list(variable.labels))
        columns[variable.name] = np.array([5, 40, 80])[code] if variable.name == "age" else labels
    columns["weight"] = np.array([42.5, 77.1, np.nan])[codes[3]]
    marginals, models = [], model_shares(network)[0]
    for position, variable in enumerate(schema.variables):
        share = np.bincount(codes[position], minlength=variable.n_states) / n
        estimate = share - 0.05 * (np.arange(variable.n_states) == 0)
        marginals.append(
            Marginal(
                variable=position, estimate=estimate, standard_error=np.full(variable.n_states, 0.01), model=models[position],
                interval_low=np.clip(estimate - 0.02, 0, 1), interval_high=np.clip(estimate + 0.02, 0, 1),
            )
        )  # fmt: skip
    return ReleaseContent(
        study=study, study_digest="ab" * 32, effective_digest=canonical.digest(study).hex(),
        network=network, marginals=tuple(marginals), synthetic=pd.DataFrame(columns), codes=codes, n_common=1234,
        receipts=(), provenance={"numpy": "2.0.0"}, search={"method": "genetic", "seed": 7, "fitness": 0.25},
        simulation=True, seed_derived=False, published_at=dt.datetime(2026, 11, 21, 10, 0, 0, tzinfo=dt.UTC),
    )  # fmt: skip


def random_mixture(n_states: tuple[int, ...], m: int = 6, *, seed: int = 1) -> Mixture:
    """Rounded, so that it can be published."""
    generator = np.random.default_rng(seed)
    tables = tuple(generator.dirichlet(np.full(k, 0.5), m) for k in n_states)
    made = round_joint(Mixture(weights=generator.dirichlet(np.ones(m)), probability=tables))
    assert isinstance(made, Mixture)
    return made


def random_records(n_states: tuple[int, ...], size: int = 40, *, seed: int = 1) -> WeightedRecords:
    """Rounded, so that they can be published."""
    generator = np.random.default_rng(seed)
    codes = np.stack([generator.integers(0, k, size) for k in n_states], axis=1).astype(np.uint16)
    made = round_joint(WeightedRecords(n_states=n_states, codes=codes, weights=generator.dirichlet(np.ones(size))))
    assert isinstance(made, WeightedRecords)
    return made


def with_joint(content: ReleaseContent, model: JointModel) -> ReleaseContent:
    """The release with a joint model that its records are drawn from."""
    codes, synthetic = draw_release_records(content.network, content.study, content.n_common, model)
    return dataclasses.replace(
        content, joint=model, joint_facts={"method": "mixture"}, codes=codes, synthetic=synthetic
    )


GRAPHS = (((), (0,), (0, 1), (), (2,)), ((1,), (), (0,), (), (2,)), ((), (0,), (0, 1), (2,), ()))
"""Of the release with a posterior: 0 -> 1 in two of three, 1 -> 0 in one."""


def with_posterior(content: ReleaseContent, *, agree: bool = True, **release: object) -> ReleaseContent:
    """The release of a study that samples graphs: three networks on `GRAPHS`, and its records from them; `release`: its rule."""
    study = dataclasses.replace(
        content.study,
        structure=dataclasses.replace(content.study.structure, method="posterior", score="bdeu"),
        posterior=PosteriorRule(data_sets=3, statistics=(("chi-square", "age", "smoker"), ("mle", "smoker", "yes"))),
        release=dataclasses.replace(content.study.release, **release),  # type: ignore[arg-type]  # the fields are the tests' to choose
    )
    variables, d = study.schema.variables, len(study.schema)
    networks = tuple(random_network(variables, graph, seed=20 + place) for place, graph in enumerate(GRAPHS))
    share = {(p, c): sum(p in graph[c] for graph in GRAPHS) / 3 for c in range(d) for p in range(d)}
    table, nan, worth = np.full((3, 2), 1 / 6), float("nan"), {"r_hat": 1.002, "effective": 900.0, "tail": 800.0}
    posterior = PublishedPosterior(
        source="randomized", chains=4, steps=20_000, burn_in=5_000, every=15, n_graphs=4_000,
        agreement=Agreement(
            r_hat=1.01 if agree else 1.32, edge_difference=0.012 if agree else 0.4, effective=812.0 if agree else 7.5,
            tail=640.0 if agree else 6.0, agree=agree,
        ),
        edges=tuple(
            Edge(parent=parent, child=child, probability=probability, error=0.01)
            for (parent, child), probability in share.items() if probability
        ),
        consensus=content.network.dag,
        distinct=41,
        graphs=tuple((Dag(parents=graph), weight) for graph, weight in zip(GRAPHS, (0.5, 0.25, 0.125), strict=True)),
        networks=networks,
        pairs=(PairEstimate(first=0, second=1, estimate=table, low=table - 0.05, high=table + 0.07, exact=False),),
        predictive=(
            Predicted(words=study.posterior.statistics[0], draws=(0.2, nan, 0.6), mean=0.4, low=0.2, high=0.6, **worth),
            Predicted(words=study.posterior.statistics[1], draws=(nan,) * 3, mean=nan, low=nan, high=nan, **worth),
        ),
    )  # fmt: skip
    codes, synthetic = draw_release_records(content.network, study, content.n_common, sampled=networks)
    return dataclasses.replace(
        content, study=study, effective_digest=canonical.digest(study).hex(), posterior=posterior, codes=codes,
        synthetic=synthetic, search={"method": "posterior", "score": "bdeu", "seed": 7},
    )  # fmt: skip


def peer_study_of_three(**changes: object) -> Study:
    variables = (
        Variable(name="age", owner="clinic", labels=("young", "middle", "old")),
        Variable(name="smoker", owner="clinic", labels=("no", "yes")),
        Variable(name="income", owner="registry", labels=("low", "high")),
        Variable(name="region", owner="registry", labels=("north", "south")),
        Variable(name="claims", owner="insurer", labels=("none", "some", "many")),
        Variable(name="plan", owner="insurer", labels=("basic", "full")),
    )
    schema = Schema(variables=variables)
    parents = (("age", ()), ("smoker", ("age",)), ("income", ("age",)), ("region", ("income",)))
    parents += (("claims", ("smoker", "income")), ("plan", ("claims",)))  # type: ignore[assignment]  # longer than the first
    epsilons = (2.0, 2.5, 1.5, 2.0, 2.0, 2.0)
    study = Study(
        id="peers", title="Smoking, income and claims", purpose="Find out together", model="peer", expires=dt.date(2099, 12, 31),
        parties=("clinic", "registry", "insurer"),
        linkage=LinkageRule(mode="keyed-hash", normalise=("nfkc", "trim"), minimum_common_records=100),
        schema=schema,
        units=tuple(
            Unit(
                variables=(variable.name,), owner=variable.owner, scheme="symmetric",
                transition=quantize(symmetric(variable.n_states, epsilon=epsilon)),
            )
            for variable, epsilon in zip(variables, epsilons, strict=True)
        ),
        structure=StructureRule(
            method="given", score="mutual-information", max_parents=2, max_family_cells=20_000, seed=7,
            required=(), forbidden=(), genetic=GeneticRule(), parents=parents,
        ),
        parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
        release=ReleaseRule(synthetic_records=300, seed=7),
        share=ShareRule(),
    )  # fmt: skip
    return dataclasses.replace(study, **changes)  # type: ignore[arg-type]  # the fields are the tests' to choose


@dataclass(frozen=True)
class PeerCase:
    """What all parties of a peer study hold and read, on one machine."""

    study: Study
    raw: Mapping[int, NDArray[np.uint8]]
    released: Mapping[int, NDArray[np.unsignedinteger]]

    @property
    def n_common(self) -> int:
        return len(self.raw[0])

    @property
    def structure(self) -> Structure:
        structure = given_structure(self.study, canonical.digest(self.study))
        assert structure is not None
        return structure

    def columns(
        self, party: str, dag: Dag | None
    ) -> tuple[dict[int, NDArray[np.uint8]], dict[int, NDArray[np.unsignedinteger]]]:
        """The raw and the received columns of a party."""
        own = {v: self.raw[v] for v in self.study.schema.owned_by(party)}
        return own, {unit: self.released[unit] for unit in reads(self.study, party, dag)}

    def statement(self, party: str, *, minute: int = 0, key: bytes = bytes(32)) -> PartyStatement:
        """What a party states; its signature is the test's."""
        structure = self.structure
        own, remote = self.columns(party, structure.dag)
        noise = share_noise(key, self.study, party)
        families, marginals = learn_families(own, remote, self.study, party, structure.dag, noise=noise)
        return PartyStatement(
            party=party, effective_digest=canonical.digest(self.study), n_common=self.n_common,
            common_sha256=hashlib.sha256(b"common").digest(), structure_sha256=structure.sha256,
            computed_at=dt.datetime(2026, 11, 21, 10, minute, tzinfo=dt.UTC), software=software_text(),
            received=tuple(
                Received(
                    unit=unit, owner=self.study.units[unit].owner, n_records=self.n_common,
                    artifact_sha256=hashlib.sha256(codes.tobytes()).digest(),
                )
                for unit, codes in sorted(remote.items())
            ),
            families=families, marginals=marginals, exact=noise is None,
        )  # fmt: skip


def draw_peer_case(study: Study, *, n: int = 3000, seed: int = 5) -> PeerCase:
    generator = np.random.default_rng(seed)
    dag = given_structure(study, canonical.digest(study))
    network = random_network(
        study.schema.variables, dag.dag.parents if dag else tuple(() for _ in study.schema.variables), seed=seed
    )
    raw = dict(enumerate(sample_codes(network, n, generator=generator, method="independent")))
    tags = record_tags(generator.bytes(32), map(str, range(n)))
    released = {}
    for index, unit in enumerate(study.units):
        domain = {combination: code for code, combination in enumerate(study.domain_of(index))}
        members = [raw[study.schema.index(name)] for name in unit.variables]
        codes = np.array([domain[tuple(map(int, row))] for row in zip(*members, strict=True)], dtype=np.uint8)
        released[index] = perturb(generator.bytes(32), tags, codes, unit.transition)
    return PeerCase(study=study, raw=raw, released=released)
