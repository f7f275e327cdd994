"""The study as a value, and as a document: every default filled in, every label written out, every matrix quantized.

The fields are the keys of its canonical form (`record`), and of a study's file but for what `reading` resolves. So a key is added
here: a field with a default, ``Annotated[TYPE, OPTIONAL]``, in the class of its table. It is read from both forms, written, and
enters the digests only of studies that use it. Besides it needs a rule (`rules`), its use, and a line for people.

`reading` makes it from TOML, `canonical` turns it into the bytes that cross the wire and whose SHA-256 is the study's digest.
The study as the analyst wrote it is the *proposal*; with the parties' own, stronger declarations it is the *effective* study
(`Study.with_declaration`). What a party approves is its own part of the effective study; see `approval`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import OPTIONAL, Key, Within, read_fields, write
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms.privacy import Breach
from verticil.shared.mechanisms.shared_statistics_noise import DISCRETE, NOISE_WORDS
from verticil.shared.numerics.estimation.estimators import ESTIMATORS
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.knowledge.support import Support, support
from verticil.shared.numerics.model.constraints import (
    Constraints,
    CustomNetwork,
    declared_constraints,
    declared_custom_network,
)
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.structure import is_measured, slot_numbers
from verticil.shared.related.tables import RelatedTable
from verticil.shared.study.codebook import make_variable
from verticil.shared.study.privbayes_rule import PrivBayesRule
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import (
    GRAPH_PRIORS,
    LINKAGE_MODES,
    MAX_SAFE,
    MAX_VARIABLES,
    METHODS,
    MISSING,
    PAIRS,
    PREFERENCES,
    PRIORS,
    WITHIN_BINS,
    scores,
)

_EDGES: Final = '[["parent", "child"], ..]'


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkageRule:
    """How the parties find their common people.

    Attributes:
        mode: ``keyed-hash``, ``order-commitment`` or ``dh-psi``; what each reveals to whom is said in
            `study.protocol.Disclosure`.
        normalise: steps applied to an id, in order: nfkc, trim, casefold, digits-only.
        minimum_common_records: with fewer, nothing is randomized.
    """

    mode: Annotated[str, Key(choices=LINKAGE_MODES)] = "keyed-hash"
    normalise: tuple[str, ...] = ("nfkc", "trim")
    minimum_common_records: Annotated[int, Within(1, MAX_SAFE)] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneticRule:
    """Parameters of the genetic algorithm (Hittmeir et al., section III)."""

    population: Annotated[int, Within(2, 10_000)] = 200
    selected: Annotated[int, Within(1, 10_000)] = 10
    generations: Annotated[int, Within(1, 1_000_000)] = 400
    mutation_rate: Annotated[float | None, Within(0, 1)] = None  # None: 1/d


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRule:
    """Parameters of the search over orders; None: by the number of variables. `exact`: try all orders of a few variables."""

    chains: Annotated[int | None, Within(1, 10_000)] = None
    moves: Annotated[int | None, Within(0, 100_000_000)] = None
    rounds: Annotated[int | None, Within(0, 1_000_000)] = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HillClimbRule:
    """Parameters of hill climbing: moves for which a changed pair is tabu, and moves without a gain before it ends."""

    tabu_length: Annotated[int, Within(0, 1_000_000)] = 10
    patience: Annotated[int, Within(1, 1_000_000)] = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomRule:
    """A custom network (Hittmeir et al., section IV), by names.

    Attributes:
        target: what the sensitive variables may depend on.
        sensitive: what is hidden.
        hide_from: what it is hidden from; None: from all variables but the target.
    """

    target: str
    sensitive: tuple[str, ...] = ()
    hide_from: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureRule:
    """How the structure is found.

    Attributes:
        method: genetic, greedy, order, tree, hill-climb, given, posterior: graphs are sampled (`PosteriorRule`), or auto:
            candidates are compared on records held out.
        score: what the method makes large; ``auto`` with the method auto.
        max_parents, max_family_cells: limits on every family.
        seed: of the search.
        required, forbidden: edges (parent, child) by name.
        genetic, order, hill_climb: parameters of these methods.
        parents: the structure itself, with the method ``given`` only: (child, its parents) by name, one entry for each variable
            in schema order, parents in schema order.
        tiers: variables by stages, earliest first; no edge leads from a later to an earlier one.
        custom: a custom network; None: not asked for.
        prefer: what ``auto`` chooses for: ``synthesis`` (pairs in the synthetic records) or ``structure`` (the right edges).
        minimum_strength: edges that are found and are less sure than this are taken out; None: all stay. Model II only.
    """

    method: Annotated[str, Key(choices=METHODS)]
    score: Annotated[str, Key(choices=scores)]
    max_parents: Annotated[int, Within(0, 20)] = 2
    max_family_cells: Annotated[int, Within(2, 100_000_000)] = 20_000
    seed: Annotated[int, Within(0, MAX_SAFE)] = 1
    required: Annotated[tuple[tuple[str, str], ...], Key(form=_EDGES)] = ()
    forbidden: Annotated[tuple[tuple[str, str], ...], Key(form=_EDGES)] = ()
    genetic: GeneticRule = GeneticRule()
    parents: Annotated[
        tuple[tuple[str, tuple[str, ...]], ...] | None, Key(optional=True, form='[["child", ["parent", ..]], ..]')
    ] = None
    tiers: Annotated[
        tuple[tuple[str, ...], ...], Key(optional=True, form='one list for each tier, [["first", ..], ["later", ..]]')
    ] = ()
    custom: Annotated[CustomRule | None, OPTIONAL] = None
    prefer: Annotated[str, Key(optional=True, choices=PREFERENCES)] = PREFERENCES[0]
    order: Annotated[OrderRule, OPTIONAL] = OrderRule()
    hill_climb: Annotated[HillClimbRule, OPTIONAL] = HillClimbRule()
    minimum_strength: Annotated[float | None, OPTIONAL, Within(0, 1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorRule:
    """How graphs are sampled, and what is published of them: ``[posterior]``, with the method ``posterior`` only.

    Martins, Gonçalves & Galletti, section 2. The limits on graphs (`max_parents`, required edges, tiers ..) are the structure's.

    Attributes:
        chains, steps: so many chains, each of so many steps.
        prior: of graphs, before any data: ``uniform``, or ``penalty``: exp(-gamma p^alpha) for each variable with p parents
            (their equation 5).
        gamma, alpha: of the penalty.
        data_sets: M: so many networks are drawn from the posterior and published, with a set of synthetic records from each.
        statistics: what is asked of predicted records: a name of `vocabulary.STATISTICS`, then variables and categories.
        missing: what a missing value is: ``category``, a category like another; or ``augment``, an unknown that is drawn with
            the graphs, where the records are there as they are (`study.posterior.drawn_categories`).
        within_bins: how numbers lie inside bins: ``declared``, or ``estimated`` by the bins beside (`synthesis.within_bins`).
        burn_in, thinning: steps before the first graph and between graphs; None: a fifth, and at most `KEPT_GRAPHS` of a chain.
    """

    chains: Annotated[int, Within(2, 64)] = 4
    steps: Annotated[int, Within(100, 10_000_000)] = 20_000
    prior: Annotated[str, Key(choices=GRAPH_PRIORS)] = GRAPH_PRIORS[0]
    gamma: Annotated[float, Within(0, 1e6)] = 1.0
    alpha: Annotated[float, Within(0, 100)] = 1.0
    data_sets: Annotated[int, Within(1, 100)] = 5
    statistics: Annotated[tuple[tuple[str, ...], ...], Key(form='[["chi-square", "one", "other"], ..]')] = ()
    missing: Annotated[str, Key(optional=True, choices=MISSING)] = MISSING[0]
    within_bins: Annotated[str, Key(optional=True, choices=WITHIN_BINS)] = WITHIN_BINS[0]
    burn_in: Annotated[int | None, OPTIONAL] = None
    thinning: Annotated[int | None, OPTIONAL] = None


Tables = tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]
"""A table of numbers for some variables, by name."""


def _read_tables(_: object, table: Table, name: str) -> Tables:
    inner = table.table(name)
    return tuple(
        (child, tuple(inner.numbers_in(list(row), child) for row in inner.rows(child))) for child in inner.names()
    )


def _write_tables(tables: Tables) -> Json:
    return {name: [list(row) for row in rows] for name, rows in tables}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRule:
    """How parameters are estimated.

    Attributes:
        estimator: em, clip or simplex.
        prior_count: Dirichlet pseudo-count of every cell; None: a row leans on the table with a parent less, and no variable
            gets more parents than the records are worth (`estimation.parent_smoothing`, `learning.parents_cut`).
        interval_level: of the intervals.
    """

    estimator: Annotated[str, Key(choices=ESTIMATORS)] = "em"
    prior_count: Annotated[float | None, OPTIONAL, Within(1e-6, 1e6)] = None
    interval_level: Annotated[float, Within(0.5, 0.9999)] = 0.95
    prior: Annotated[str | None, Key(optional=True, choices=PRIORS)] = None
    """``dirichlet``, with the estimator inverse only: `prior_count` is its parameter alpha in every cell (`study.prior`)."""
    prior_tables: Annotated[Tables, Key(optional=True, read=_read_tables, write=_write_tables)] = ()
    """Alpha of some variables' families, by name in schema order: a row for all configurations of parents, or one for each."""

    def in_order_of(self, names: tuple[str, ...]) -> ParameterRule:
        """Return the rule with its tables in the order of the variables; those of no variable at the end."""
        tables = sorted(self.prior_tables, key=lambda item: names.index(item[0]) if item[0] in names else len(names))
        return dataclasses.replace(self, prior_tables=tuple(tables))


Sampling = Literal["systematic", "independent", "without-replacement"]
"""Ways of drawing synthetic records: see `release.dealing`."""
Source = Literal["joint", "network", "posterior"]
"""What synthetic records are drawn from."""


def _read_records(raw: object, table: Table, name: str) -> int | None:
    if raw is None or (table.file and raw == "common"):
        return None
    if isinstance(raw, bool) or not isinstance(raw, int):
        table.fail(name, 'expected "common" or a whole number')
    return table.typed(int, raw, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRule:
    """How many synthetic records (None: as many as there are common people), from what, how they are drawn, and with which seed.

    `pairs` are shown with what is known of them, besides the pairs of edges; Model II only. `sample_from`: the joint model of all
    tables, which Model II alone can have, the network, or the networks that were drawn from a posterior; None: see
    `Study.records_from`. `within_bins`: numbers lie evenly inside their bins, or linked to each other
    (`synthesis.linked_places`); None: evenly, but for an owner alone.
    """

    synthetic_records: Annotated[int | None, Key(read=_read_records), Within(1, 100_000_000)] = None
    sampling: Annotated[Sampling, OPTIONAL] = "systematic"
    seed: Annotated[int, Within(0, MAX_SAFE)] = 1
    pairs: Annotated[tuple[tuple[str, str], ...], Key(optional=True, form='[["one", "other"], ..]')] = ()
    sample_from: Annotated[Source | None, OPTIONAL] = None
    within_bins: Annotated[Literal["even", "linked"] | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumRule:
    """When waiting for a party ends, and with how few parties the study then goes on.

    With a deadline alone every party of the study is needed, and one that is missing ends it by name. With `minimum` the study
    goes on at the deadline with the parties that are there, if they are so many: as a sub-model, whose effective study says who
    was left out (`sub_model`). The rule is part of the study's digest, so who approves the study approves every such sub-model.

    Between peers there is no sub-model: no node stands between the parties that could fix, at one moment and for all of them, who
    is left out. Two of them that saw a third one differently would learn from different people, and each sub-model more would be
    another release about nearly the same people.

    Attributes:
        deadline_seconds: so long after the study was submitted (Model I: loaded) every party's part must be there; in a file
            it is written as in ``deadline = "72h"``.
        minimum: with so many parties the study goes on as a sub-model (`sub_model`), Model II only; None: with all of them only.
    """

    deadline_seconds: int
    minimum: Annotated[int | None, Key(name="min", optional=True)] = None


Absence = Literal["approval", "denial", "linkage"]
"""Why a party is left out: it had not approved at the deadline; it denied; it had approved and sent no (whole) linkage tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A party that a study went on without, and what was missing of it at the deadline."""

    party: str
    missing: Absence


def _read_noise(raw: object, table: Table, name: str) -> str:
    if raw == "gaussian":
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{table.source}: {table.path(name)}: 'gaussian' is noise of programs before 1.0.0, which this version does not draw",
            hint=f'write noise = "{DISCRETE}", under a new id: its epsilon is proved for the whole numbers that are drawn',
        )
    return table.one_of(raw, name, (DISCRETE,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRule:
    """What is done to a party's own statistics before it shares parameters; Model I only (methods.md section 4, Model I-DP).

    Attributes:
        epsilon, delta: of the noise that each party adds to the counts behind everything it shares; None: no noise, and what is
            shared is an exact function of the party's own raw data.
        minimum_count: a parameter that rests on fewer people is replaced by a backed-off value; 0: none is.
        noise: its name, ``"discrete-gaussian"`` (`verticil.shared.mechanisms.shared_statistics_noise`); None: there is none.
    """

    epsilon: float | None = None
    delta: float | None = None
    minimum_count: int = 0
    noise: Annotated[str | None, Key(optional=True, read=_read_noise)] = None

    @property
    def noise_words(self) -> str:
        """Name the noise for people; empty: there is none."""
        return "" if self.noise is None else NOISE_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesRule:
    """Noise on the tables that everything published is learned from: ``[tables]``, where a miner counts (`study.tables`).

    Attributes:
        epsilon, delta: of all the tables together, for whoever sees what is published.
        three_way: columns by name, three each, whose table is measured besides those of pairs.
        pairs: which pairs are measured in a study with related tables: those that ``structure`` asks for
            (`related.structure.is_measured`), or ``all``.
        resolution: "two": pairs with an ordered column are measured again in runs of neighbouring categories; see there. None:
            "one", but for an owner alone.
        one_way_part: the part of the noise's budget that measures each column on its own, beside the pairs. None: 0, but for an
            owner alone, where it follows from the number of people (`analyst.prediction`). Model III has none.
    """

    epsilon: float
    delta: float
    three_way: Annotated[
        tuple[tuple[str, str, str], ...], Key(optional=True, form='[["one", "another", "a third"], ..]')
    ] = ()
    pairs: Annotated[str, Key(optional=True, choices=PAIRS)] = PAIRS[0]
    resolution: Annotated[Literal["one", "two"] | None, OPTIONAL] = None
    one_way_part: Annotated[float | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRule:
    """How nobody comes to see a row: ``[masked]``, where tables are computed by secret sharing (`study.masked`).

    Attributes:
        dealer: who deals the masks of a pair of parties: a third ``party``, or the ``miner``; None: a party, where the study was
            proposed with three or more of them, else the miner.
        tolerate: t, so many of those who draw noise may know theirs or leave it out.
        max_bytes: most payload of all messages of a round, each counted once.
        count_miner: the miner draws noise too, and is counted among those who do.
        unchecked: parties whose rows nobody checks.
    """

    dealer: Literal["party", "miner"] | None = None
    tolerate: int = 1
    max_bytes: int = 4 * 2**30
    count_miner: bool = False
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRule:
    """Who has to see the release before it is published: ``[publish] countersign = "none" | "quorum" | "all"``, ``quorum = N``.

    With a miner the parties can ask to see the release before anybody else does: it is published when so many of them have
    countersigned its manifest. Between peers the key is refused: every party signs the release anyway, each assembles it from the
    same statements, and no node holds it back from the others.

    Attributes:
        quorum: how many of the parties countersign it; None: all of them.
    """

    quorum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifierRule:
    """A key that synthetic records get: ``[identifier]``. It counts records, is no variable, and says nothing of people.

    Attributes:
        name: of the column, the first one of the records.
        format: how the number of a record is written, counted from 1: ``%d``, or with leading zeros as in ``P%06d``.
    """

    name: str
    format: Annotated[str, OPTIONAL] = "%d"


def _read_publish(_: object, table: Table, name: str) -> PublishRule | None:
    rule = table.table(name)
    rule.only("countersign", "quorum")
    kind = rule.choice("countersign", ("none", "quorum", "all"), "none")
    if rule.has("quorum") and kind != "quorum":
        rule.fail("quorum", f"stands beside countersign = '{kind}'", hint='set countersign = "quorum", or remove it')
    if kind == "none":
        return None
    return PublishRule(quorum=rule.value(int, "quorum") if kind == "quorum" else None)


def _write_publish(rule: PublishRule) -> Json:
    return {"countersign": "all"} if rule.quorum is None else {"countersign": "quorum", "quorum": rule.quorum}


def _read_schema(_: object, table: Table, name: str) -> Schema:
    items = table.tables(name)
    if len(items) > MAX_VARIABLES:
        table.fail(name, f"{len(items)} variables, expected at most {MAX_VARIABLES}")
    return schema_of(
        (make_variable(**read_fields(Variable, item), where=f"{item.source}: {item.where}") for item in items),
        table,
        name,
    )


def _write_schema(schema: Schema) -> Json:
    return [write(variable) for variable in schema.variables]


def schema_of(variables: Iterable[Variable], table: Table, name: str) -> Schema:
    """Return the schema of a document's variables.

    Raises:
        Misuse: the table's code, they do not go together.
    """
    try:
        return Schema(variables=tuple(variables))
    except ValueError as error:
        return table.fail(name, str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A resolved study.

    Attributes:
        id: names the study for people; the digest names it for programs.
        title, purpose: for people.
        model: the protocol's name: ``central`` (Model II: a miner gets the randomized columns), ``peer`` (Model I: the parties
            learn), or another one that is registered (`study.protocols`).
        expires: valid to the end of that day, UTC.
        parties: names in the declared order.
        linkage: how common people are found.
        schema: the variables, in the column order of the release.
        units: every variable is in exactly one. A unit stands where the first of its variables stands in the schema, whatever
            the order of the variables within the unit.
        structure, parameters, release: what is learned and published.
        posterior: how graphs are sampled, where they are.
        privbayes: how PrivBayes measures, where it does.
        breach: what no unit may allow; None: the study has no such rule.
        share: Model I: what is done before parameters are shared; None in Model II only.
        tables: the noise on the tables that everything is learned from; None (Model II): it is learned from the columns.
        masked: Model III: who deals, and what is tolerated; None: as `MaskedRule` has it.
        quorum: when a study that waits for a party ends; None: on its last valid day.
        publish: who countersigns the release before it is published; None: no party does.
        knowledge: what is stated of all records, and not learned; None: nothing.
        identifier: the key that synthetic records get; None: they have none.
        related: tables with several rows a person; their slots are variables of the schema.
        left_out: of an effective study that is a sub-model: the parties of the proposal that are not in it; never in a proposal.
        reviewed: False: it was read from a draft whose author has not set ``reviewed = true`` (`study.review`). No part of the
            canonical form: a study that came as bytes was asked for this where it was a file.
        drafted: how the tables of a draft are read, by party (``[draft.table.PARTY]``), for who holds them; no part of the
            canonical form either.
    """

    MARK: ClassVar = {"schema": 1}

    id: str
    title: str
    purpose: str
    model: str
    expires: dt.date
    parties: tuple[str, ...]
    linkage: LinkageRule = LinkageRule()
    schema: Annotated[Schema, Key(name="variables", read=_read_schema, write=_write_schema)]
    units: tuple[Unit, ...]
    structure: StructureRule
    posterior: Annotated[PosteriorRule, OPTIONAL] = PosteriorRule()
    privbayes: Annotated[PrivBayesRule, OPTIONAL] = field(default_factory=PrivBayesRule)
    parameters: ParameterRule = ParameterRule()
    release: ReleaseRule = ReleaseRule()
    breach: Annotated[Breach | None, OPTIONAL] = None
    share: Annotated[ShareRule | None, OPTIONAL] = None
    tables: Annotated[TablesRule | None, OPTIONAL] = None
    masked: Annotated[MaskedRule | None, OPTIONAL] = None
    quorum: Annotated[QuorumRule | None, OPTIONAL] = None
    publish: Annotated[PublishRule | None, Key(optional=True, read=_read_publish, write=_write_publish)] = None
    knowledge: Annotated[Knowledge | None, OPTIONAL] = None
    identifier: Annotated[IdentifierRule | None, OPTIONAL] = None
    related: Annotated[tuple[RelatedTable, ...], OPTIONAL] = ()
    left_out: Annotated[tuple[LeftOut, ...], OPTIONAL] = ()
    reviewed: Annotated[bool, Key(beside=True)] = field(default=True, compare=False)
    drafted: Annotated[Mapping[str, Mapping[str, object]], Key(beside=True)] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def countersignatures_needed(self) -> int:
        """How many parties countersign the release before it is published."""
        if self.publish is None:
            return 0
        return len(self.parties) if self.publish.quorum is None else self.publish.quorum

    @property
    def labels_missing_numbers(self) -> bool:
        """Whether a missing number is its category's label in the synthetic table, which makes its column text, and not null.

        Where parties countersign, one of them may run a version that reads no null; with `means` none does.
        """
        return self.publish is not None and all(variable.means is None for variable in self.schema.variables)

    @property
    def given_dag(self) -> Dag | None:
        """The structure that the study gives; None where it is to be learned."""
        if self.structure.parents is None:
            return None
        index = self.schema.index
        return Dag(parents=tuple(tuple(index(name) for name in names) for _, names in self.structure.parents))

    def units_of(self, party: str) -> tuple[int, ...]:
        """Indices of the units that `party` owns."""
        return tuple(index for index, unit in enumerate(self.units) if unit.owner == party)

    def unit_of(self, variable: str) -> int:
        """Index of the unit that holds `variable`."""
        return next(index for index, unit in enumerate(self.units) if variable in unit.variables)

    def domain_of(self, index: int) -> tuple[tuple[int, ...], ...]:
        """Return the combinations of codes of a unit's categories: the product in C order without the impossible ones."""
        unit = self.units[index]
        states = [range(self.schema[self.schema.index(name)].n_states) for name in unit.variables]
        impossible_set = set(unit.impossible)
        return tuple(combination for combination in itertools.product(*states) if combination not in impossible_set)

    def column_unit(self, index: int) -> ColumnUnit:
        """Return a unit as estimation sees it: positions of its variables, a compound's domain, and the channel."""
        unit = self.units[index]
        return ColumnUnit(
            variables=tuple(self.schema.index(name) for name in unit.variables),
            domain=self.domain_of(index) if unit.is_compound else None,
            channel=unit.transition,
        )

    def with_declaration(self, units: Mapping[int, Unit]) -> Study:
        """Return the study with some units replaced by a party's own declaration (same variables, same owner, same
        domain).
        """
        for index, unit in units.items():
            mine = self.units[index]
            if (unit.variables, unit.owner, unit.impossible) != (mine.variables, mine.owner, mine.impossible):
                raise ValueError(
                    f"unit {index} holds {mine.variables} of {mine.owner} without {len(mine.impossible)} combinations, "
                    f"got {unit.variables} of {unit.owner} without {len(unit.impossible)}"
                )
        return dataclasses.replace(self, units=tuple(units.get(index, unit) for index, unit in enumerate(self.units)))

    def constraints(self, *, where: str = "structure") -> Constraints:
        """Return what a searched network must meet.

        Args:
            where: what messages call the table of the declarations.

        Raises:
            Misuse: STUDY_INVALID, the declarations contradict each other; the message shows all that take part.
        """
        rule = self.structure
        constraints = declared_constraints(
            self.schema.names,
            self.schema.n_states,
            max_parents=rule.max_parents,
            max_family_cells=rule.max_family_cells,
            required=rule.required,
            forbidden=rule.forbidden,
            tiers=rule.tiers,
            target=None if rule.custom is None else rule.custom.target,
            sensitive=() if rule.custom is None else rule.custom.sensitive,
            hide_from=None if rule.custom is None else rule.custom.hide_from,
            where=where,
        )
        if not self.measures_by_structure:
            return constraints
        slots = [slot_numbers(self.related).get(name) for name in self.schema.names]
        measured = [[is_measured(one, other) for other in slots] for one in slots]
        return dataclasses.replace(constraints, allowed=constraints.allowed & measured | constraints.required)

    @property
    def measures_by_structure(self) -> bool:
        """Whether related tables say which pairs of columns are measured; else all are."""
        return bool(self.related) and self.tables is not None and self.tables.pairs == PAIRS[0]

    def custom_network(self, *, where: str = "structure") -> CustomNetwork | None:
        """Return the custom network that the study asks for; None: it asks for none.

        Raises:
            Misuse: STUDY_INVALID, it contradicts itself.
        """
        rule = self.structure.custom
        if rule is None:
            return None
        return declared_custom_network(
            self.schema.names, target=rule.target, sensitive=rule.sensitive, hide_from=rule.hide_from, where=where
        )

    def support(self) -> Support:
        """Return what the study's knowledge leaves possible."""
        return support(self.knowledge, self.schema)

    @property
    def refuses_joint(self) -> str:
        """What of the study a joint model of all pairs would undo, in words; empty: nothing."""
        return (
            "a custom network"
            if self.structure.custom is not None
            else "forbidden edges"
            if self.structure.forbidden
            else ""
        )

    @property
    def samples_graphs(self) -> bool:
        """Whether its result is a sample of graphs (`posterior`), and not one."""
        return METHODS[self.structure.method].samples

    @property
    def records_from(self) -> Source | None:
        """What synthetic records are drawn from; None: the network, unless `leaves_source_open`."""
        if self.release.sample_from is None and self.related:
            return "joint"  # the only one that keeps slots beyond the count empty
        return "posterior" if self.release.sample_from is None and self.samples_graphs else self.release.sample_from

    @property
    def leaves_source_open(self) -> bool:
        """Whether a miner is to say how much of a joint model and how much of the network records come from.

        A study that names `prior_count`, and no noise on tables, is of the time when there was only the network, or wants to be
        read as one: it keeps its network.
        """
        if self.records_from is not None or self.refuses_joint:
            return False
        return self.tables is not None or self.parameters.prior_count is None

    def is_expired(self, today: dt.date) -> bool:
        """Return whether `today` (UTC) lies behind the last valid day."""
        return today > self.expires
