"""The study as a value: every default filled in, every label written out, every matrix quantized.

`reading` makes it from TOML, `canonical` turns it into the bytes that cross the wire and whose SHA-256 is the study's digest.
The study as the analyst wrote it is the *proposal*; with the parties' own, stronger declarations it is the *effective* study
(`Study.with_declaration`). What a party approves is its own part of the effective study; see `approval`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from verticil.shared.channels.privacy import Breach
from verticil.shared.channels.subset import Subset
from verticil.shared.channels.transition import Transition
from verticil.shared.estimation.design import ColumnUnit
from verticil.shared.model.constraints import Constraints, CustomNetwork, declared_constraints, declared_custom_network
from verticil.shared.model.graph import Dag
from verticil.shared.model.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkageRule:
    """How the parties find their common people.

    Attributes:
        mode: ``keyed-hash``, ``order-commitment`` or ``dh-psi``; what each reveals to whom is said in
            `study.protocol.Disclosure`.
        normalise: steps applied to an id, in order: nfkc, trim, casefold, digits-only.
        minimum_common_records: with fewer, nothing is randomized.
    """

    mode: str
    normalise: tuple[str, ...]
    minimum_common_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """How a ``two-level`` matrix was declared. For the person who approves: its epsilon is that of the matrix.

    Attributes:
        groups: positions of categories, as declared.
        epsilon_group: of the response that reports the group.
        epsilon_within: of the response that reports the value within a group that was kept.
    """

    groups: tuple[tuple[int, ...], ...]
    epsilon_group: float
    epsilon_within: float

    @property
    def text(self) -> str:
        """Both numbers in words.

        >>> TwoLevel(groups=((0, 1), (2,)), epsilon_group=1.0, epsilon_within=0.5).text
        'epsilon 1 for the group (2 groups), 0.5 within it'
        """
        return f"epsilon {self.epsilon_group:.6g} for the group ({len(self.groups)} groups), {self.epsilon_within:.6g} within it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is randomized in one draw and shipped as one artifact: a column, or a compound of several columns, of one party.

    Attributes:
        variables: names, in the order of the product domain (first slowest); several of them are one compound. The order is
            the analyst's, not that of the schema.
        owner: the party.
        scheme: symmetric, binary, blocks, two-level, matrix, subset or none; for people, the channel says it all.
        transition: the matrix, quantized; or subset selection. Its categories are those of the column, or of a compound's domain.
        two_level: how it was declared; with the scheme two-level only.
        impossible: combinations of codes that are not in a compound's domain, ascending; none for a single column.
    """

    variables: tuple[str, ...]
    owner: str
    scheme: str
    transition: Transition | Subset
    two_level: TwoLevel | None = None
    impossible: tuple[tuple[int, ...], ...] = ()

    @property
    def is_compound(self) -> bool:
        """Whether several columns are randomized in one draw."""
        return len(self.variables) > 1

    @property
    def text(self) -> str:
        """The unit in messages, as in ``column 'race'``."""
        return f"column{'s' if self.is_compound else ''} '{', '.join(self.variables)}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneticRule:
    """Parameters of the genetic algorithm (Hittmeir et al., section III)."""

    population: int = 200
    selected: int = 10
    generations: int = 400
    mutation_rate: float | None = None  # None: 1/d


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRule:
    """Parameters of the search over orders; None: by the number of variables. `exact`: try all orders of a few variables."""

    chains: int | None = None
    moves: int | None = None
    rounds: int | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HillClimbRule:
    """Parameters of hill climbing: moves for which a changed pair is tabu, and moves without a gain before it ends."""

    tabu_length: int = 10
    patience: int = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomRule:
    """A custom network (Hittmeir et al., section IV), by names.

    Attributes:
        target: what the sensitive variables may depend on.
        sensitive: what is hidden.
        hide_from: what it is hidden from; None: from all variables but the target.
    """

    target: str
    sensitive: tuple[str, ...]
    hide_from: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureRule:
    """How the structure is found.

    Attributes:
        method: genetic, greedy, order, tree, hill-climb, given, or auto: candidates are compared on records held out.
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

    method: str
    score: str
    max_parents: int
    max_family_cells: int
    seed: int
    required: tuple[tuple[str, str], ...]
    forbidden: tuple[tuple[str, str], ...]
    genetic: GeneticRule
    parents: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    tiers: tuple[tuple[str, ...], ...] = ()
    custom: CustomRule | None = None
    prefer: str = "synthesis"
    order: OrderRule = OrderRule()
    hill_climb: HillClimbRule = HillClimbRule()
    minimum_strength: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRule:
    """How parameters are estimated.

    Attributes:
        estimator: em, clip or simplex.
        prior_count: Dirichlet pseudo-count of every cell; None: a row leans on the table with a parent less, and no variable
            gets more parents than the records are worth (`estimation.smaller_families`, `learning.parents_cut`).
        interval_level: of the intervals.
    """

    estimator: str
    prior_count: float | None
    interval_level: float
    prior: str | None = None
    """``dirichlet``, with the estimator inverse only: `prior_count` is its parameter alpha in every cell (`study.prior`)."""
    prior_tables: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...] = ()
    """Alpha of some variables' families, by name in schema order: a row for all configurations of parents, or one for each."""


Sampling = Literal["systematic", "independent", "without-replacement"]
"""Ways of drawing synthetic records: see `release.dealing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRule:
    """How many synthetic records (None: as many as there are common people), how they are drawn, and with which seed.

    `pairs` are shown with what is known of them, besides the pairs of edges; Model II only.
    """

    synthetic_records: int | None
    sampling: Sampling = "systematic"
    seed: int
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumRule:
    """When waiting for a party ends, and with how few parties the study then goes on.

    Attributes:
        deadline_seconds: so long after the study was submitted (Model I: loaded) every party's part must be there.
        minimum: with so many parties the study goes on as a sub-model (`sub_model`), Model II only; None: with all of them only.
    """

    deadline_seconds: int
    minimum: int | None = None


Absence = Literal["approval", "denial", "linkage"]
"""Why a party is left out: it had not approved at the deadline; it denied; it had approved and sent no (whole) linkage tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A party that a study went on without, and what was missing of it at the deadline."""

    party: str
    missing: Absence


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRule:
    """What is done to a party's own statistics before it shares parameters; Model I only (methods.md section 4, Model I-DP).

    Attributes:
        epsilon, delta: of the Gaussian noise that each party adds to the counts behind everything it shares; None: no noise, and
            what is shared is an exact function of the party's own raw data.
        minimum_count: a parameter that rests on fewer people is replaced by a backed-off value; 0: none is.
    """

    epsilon: float | None = None
    delta: float | None = None
    minimum_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRule:
    """Who has to see the release before it is published; Model II only.

    Attributes:
        quorum: how many of the parties countersign it; None: all of them.
    """

    quorum: int | None = None


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
        breach: what no unit may allow; None: the study has no such rule.
        share: Model I: what is done before parameters are shared; None in Model II only.
        quorum: when a study that waits for a party ends; None: on its last valid day.
        publish: who countersigns the release before it is published; None: nobody.
        left_out: of an effective study that is a sub-model: the parties of the proposal that are not in it; never in a proposal.
    """

    id: str
    title: str
    purpose: str
    model: str
    expires: dt.date
    parties: tuple[str, ...]
    linkage: LinkageRule
    schema: Schema
    units: tuple[Unit, ...]
    structure: StructureRule
    parameters: ParameterRule
    release: ReleaseRule
    breach: Breach | None = None
    share: ShareRule | None = None
    quorum: QuorumRule | None = None
    publish: PublishRule | None = None
    left_out: tuple[LeftOut, ...] = ()

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
        """The combinations of codes that a unit's categories stand for: the product in C order without the impossible ones."""
        unit = self.units[index]
        states = [range(self.schema[self.schema.index(name)].n_states) for name in unit.variables]
        removed = set(unit.impossible)
        return tuple(combination for combination in itertools.product(*states) if combination not in removed)

    def column_unit(self, index: int) -> ColumnUnit:
        """A unit as estimation sees it: positions of its variables, a compound's domain, and the channel."""
        unit = self.units[index]
        return ColumnUnit(
            variables=tuple(self.schema.index(name) for name in unit.variables),
            domain=self.domain_of(index) if unit.is_compound else None,
            channel=unit.transition,
        )

    def with_declaration(self, units: Mapping[int, Unit]) -> Study:
        """The study with some units replaced by a party's own declaration (same variables, same owner, same domain)."""
        for index, unit in units.items():
            mine = self.units[index]
            if (unit.variables, unit.owner, unit.impossible) != (mine.variables, mine.owner, mine.impossible):
                raise ValueError(
                    f"unit {index} holds {mine.variables} of {mine.owner} without {len(mine.impossible)} combinations, "
                    f"got {unit.variables} of {unit.owner} without {len(unit.impossible)}"
                )
        return dataclasses.replace(self, units=tuple(units.get(index, unit) for index, unit in enumerate(self.units)))

    def constraints(self, *, where: str = "structure") -> Constraints:
        """What a searched network must meet.

        Args:
            where: what messages call the table of the declarations.

        Raises:
            Misuse: STUDY_INVALID, the declarations contradict each other; the message shows all that take part.
        """
        rule = self.structure
        return declared_constraints(
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

    def custom_network(self, *, where: str = "structure") -> CustomNetwork | None:
        """The custom network that the study asks for; None: it asks for none.

        Raises:
            Misuse: STUDY_INVALID, it contradicts itself.
        """
        rule = self.structure.custom
        if rule is None:
            return None
        return declared_custom_network(
            self.schema.names, target=rule.target, sensitive=rule.sensitive, hide_from=rule.hide_from, where=where
        )

    def expired(self, today: dt.date) -> bool:
        """Whether `today` (UTC) lies behind the last valid day."""
        return today > self.expires
