"""The protocol ``peer`` (Model I): the parties send randomized columns to each other, each learns its own variables' families.

Ma & Sivakumar, section 4. A variable is *cross* when one of its parents is at another party; those parents are *cross parents*.
With a structure, a unit is read by the parties that own a child of one of its variables, and by no other. Where the structure
is learned, a miner searches it from scores of pairs and has nothing else; each pair of variables is scored by exactly one party,
which holds one of them raw: both at one party, that party; else the owner that stands first in the study; so a unit is also read
by every party before its owner.

Everything here follows from the study, and in the end from the structure, so that all nodes agree without talking about it.

What must not be read into the statement of a release: the epsilon of a randomized column is a promise against those who read the
column. It says nothing about the parameters, which their owner computed from raw values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma
from verticil.shared.mechanisms.shared_statistics_noise import DISCRETE, NOISE_WORDS
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.central import MEMBERS
from verticil.shared.study.document import ShareRule, Study
from verticil.shared.study.protocol import Disclosure, Finding, Protocol, Statement
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import MAX_SAFE, Inapplicable, check_privacy, fail, pair_methods

_LINKAGE: Final = {
    "keyed-hash": Disclosure(
        mode="keyed-hash",
        miner=None,
        parties=f"{MEMBERS}; and which of its own people are at all parties before it in the study's order",
        together="every party has the linkage key: it can look up every id that it can guess in the lists that it gets",
    ),
    "order-commitment": Disclosure(
        mode="order-commitment",
        miner=None,
        parties="that all tables hold the same people in the same order; where they do not, which blocks of 1024 rows are equal,"
        " and how many rows each table has",
        together="every party has the linkage key: where tables differ, it can test a guess of a whole block of 1024 ids in their"
        " order",
    ),
    "dh-psi": Disclosure(
        mode="dh-psi",
        miner=None,
        parties=f"{MEMBERS}; how many people every other party has, and how many any of them share, but of none of its own"
        " people that they are at some of the others only",
        together="a party can learn whether the people whom it puts into its list are at all the others, and all the others"
        " together at which of them such a person is, during the study only and not by guessing afterwards; a peer that does"
        " not follow the protocol can have other people taken for common ones, and does not learn who they are",
    ),
}
EXACT_STATEMENT: Final = (
    "The parameters of local variables are exact functions of the raw data of their owner. "
    "No differential privacy protects them. "
    "The parameters of cross variables are exact functions of the raw data of their owner and of the randomized columns that it "
    "read; no differential privacy protects the owner's data in them either."
)
"""Where the study asks for no share noise."""

NOISE_STATEMENT: Final = (
    "Each party added {noise} to every count of its own tables before it computed anything that it shared. "
    "What one party shared is (epsilon, delta) differentially private for the replacement of one person's columns at that party. "
    "The number of common people is public and not covered. The randomized columns that a party sent are not part of this: "
    "their epsilons add to it, for whoever read them and by what others computed from them. "
    "For the columns of one person at all parties together, the parties' epsilons and deltas add up."
)
"""Where it does; {noise} is the kind's words."""


def scored_pairs(study: Study, party: str) -> tuple[tuple[int, int], ...]:
    """Return the pairs of variables (a, b), a < b, that `party` scores, in lexicographic order."""
    rank = {name: position for position, name in enumerate(study.parties)}
    owners = [variable.owner for variable in study.schema.variables]
    return tuple(
        (a, b)
        for a in range(len(owners))
        for b in range(a + 1, len(owners))
        if min(owners[a], owners[b], key=rank.__getitem__) == party
    )


def reads(study: Study, party: str, dag: Dag | None) -> tuple[int, ...]:
    """Return the units of other parties that `party` reads, ascending.

    Args:
        study: the effective study.
        party: the reading party.
        dag: the structure; None: while pairs are scored.
    """
    return tuple(
        index for index, unit in enumerate(study.units) if unit.owner != party and party in readers(study, index, dag)
    )


def readers(study: Study, index: int, dag: Dag | None) -> tuple[str, ...]:
    """Return the parties that read unit `index`, in the study's order; its owner is not among them.

    Args:
        study: the effective study.
        index: of the unit.
        dag: the structure; None: while pairs are scored.
    """
    unit = study.units[index]
    if dag is None:
        return study.parties[: study.parties.index(unit.owner)]
    members = {study.schema.index(name) for name in unit.variables}
    needing = {study.schema[child].owner for child, parents in enumerate(dag.parents) if members & set(parents)}
    return tuple(party for party in study.parties if party in needing and party != unit.owner)


def read_by(study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
    """Return the peers that unit `index` goes to in the whole of a study with model ``peer``, in the study's order.

    Args:
        study: a study between peers.
        index: of the unit.
        dag: the structure, where it is learned; None: it is not yet known, and then every other party may read the unit.
    """
    given = study.given_dag
    if given is not None:
        return readers(study, index, given)
    if dag is None:
        return tuple(party for party in study.parties if party != study.units[index].owner)
    reading = {*readers(study, index, None), *readers(study, index, dag)}
    return tuple(party for party in study.parties if party in reading)


def shared_tables(study: Study, party: str) -> int:
    """Count the tables of its own raw data of which a party shares something: one per own variable and per scored pair."""
    n_scored = 0 if study.structure.parents is not None else len(scored_pairs(study, party))
    return len(study.schema.owned_by(party)) + n_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOrigin:
    """Where a variable's parameters come from.

    Attributes:
        learned_by: the party that owns the variable and learned them.
        cross_parents: names of its parents at other parties; none: the variable is local.
    """

    learned_by: str
    cross_parents: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``local`` or ``cross`` (Ma & Sivakumar, section 4)."""
        return "cross" if self.cross_parents else "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentColumn:
    """A randomized column that left its party.

    Attributes:
        unit: index of the unit.
        variables: names.
        owner: who sent it.
        scored_by: who read it to score pairs, while the structure was learned.
        read_by: who read it to learn a family.
    """

    unit: int
    variables: tuple[str, ...]
    owner: str
    scored_by: tuple[str, ...]
    read_by: tuple[str, ...]

    @property
    def readers(self) -> tuple[str, ...]:
        """Everybody who read it."""
        return (*self.scored_by, *(party for party in self.read_by if party not in self.scored_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatement:
    """What noise covers the parameters.

    Attributes:
        epsilon, delta: of everything that one party shared.
        parties: party -> (number of its tables, sigma of the noise on each count).
    """

    epsilon: float
    delta: float
    parties: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatement(Statement):
    """All of it.

    Attributes:
        origins: of each variable, in schema order.
        sent: the columns that left their party, in the order of units.
        share: None: the parameters are exact functions of raw data.
        minimum_count: parameters that rest on fewer people were replaced; 0: none was.
    """

    key = "peer"

    origins: tuple[FamilyOrigin, ...]
    sent: tuple[SentColumn, ...]
    share: ShareStatement | None
    minimum_count: int

    @property
    def exact(self) -> bool:
        """Whether the parameters are exact functions of raw data."""
        return self.share is None

    @property
    def replaces(self) -> bool:
        """Whether the study asks for a least count."""
        return self.minimum_count > 0

    @property
    def parameters(self) -> str:
        """The noise on what one party shared, if there is any."""
        if self.share is None:
            return "no bound: they are exact functions of raw data"
        return f"epsilon {self.share.epsilon:g}, delta {self.share.delta:g} of one person at each party, besides the columns"

    @property
    def statement(self) -> str:
        """The plain text of the statement."""
        if self.share is None:
            return EXACT_STATEMENT
        return NOISE_STATEMENT.replace("{noise}", NOISE_WORDS)

    def document(self) -> Json:
        """Noise, and who read what."""
        return {
            "exact_parameters": self.exact,
            "statement": self.statement,
            "share": None
            if self.share is None
            else {
                "noise": DISCRETE,
                "epsilon": self.share.epsilon,
                "delta": self.share.delta,
                "relation": "replace one person's columns at one party; the number of common people is public",
                "parties": [
                    {"party": party, "tables": tables, "sigma": sigma}
                    for party, (tables, sigma) in self.share.parties.items()
                ],
            },
            "minimum_count": self.minimum_count,
            "columns": [
                {
                    "unit": column.unit,
                    "variables": list(column.variables),
                    "owner": column.owner,
                    "scored_by": list(column.scored_by),
                    "read_by": list(column.read_by),
                }
                for column in self.sent
            ],
        }

    def of_family(self, child: int) -> dict[str, Json]:
        """Return who learned the family, and from which columns of others."""
        origin = self.origins[child]
        return {"learned_by": origin.learned_by, "kind": origin.kind, "cross_parents": list(origin.cross_parents)}


def peer_statement(study: Study, dag: Dag) -> PeerStatement:
    """Return the statement of a study of Model I with this structure.

    Raises:
        ValueError: the study is not of Model I.
    """
    if study.share is None:
        raise ValueError(f"study '{study.id}' is of model '{study.model}', expected one whose parties share parameters")
    schema, rule = study.schema, study.share
    is_learned = study.structure.parents is None
    origins = tuple(
        FamilyOrigin(
            learned_by=variable.owner,
            cross_parents=tuple(schema[p].name for p in parents if schema[p].owner != variable.owner),
        )
        for variable, parents in zip(schema.variables, dag.parents, strict=True)
    )
    columns = tuple(
        SentColumn(
            unit=index,
            variables=study.units[index].variables,
            owner=study.units[index].owner,
            scored_by=readers(study, index, None) if is_learned else (),
            read_by=readers(study, index, dag),
        )
        for index in range(len(study.units))
        if read_by(study, index, dag)
    )
    share: ShareStatement | None = None
    if rule.epsilon is not None and rule.delta is not None:
        tables = {party: shared_tables(study, party) for party in study.parties}
        share = ShareStatement(
            epsilon=rule.epsilon,
            delta=rule.delta,
            parties={
                party: (count, discrete_sigma(rule.epsilon, rule.delta, count))
                for party, count in tables.items()
                if count
            },
        )
    return PeerStatement(origins=origins, sent=columns, share=share, minimum_count=rule.minimum_count)


class Peer(Protocol):
    """The protocol of Model I."""

    name = "peer"
    summary = "between the organisations, without a miner that sees columns"
    coordinated = False
    shares = True
    counts_families = False
    inapplicable = MappingProxyType(
        {
            "structure.minimum_strength": Inapplicable(
                problem="is about edges that the miner finds in tables of whole families: it goes with the model 'central' and a "
                "search"
            ),
            "publish": Inapplicable(
                problem="goes with the model 'central', got 'peer': between peers every party signs the release anyway",
                hint="remove the table",
            ),
            "release.pairs": Inapplicable(problem="nobody has tables of pairs with the model 'peer', expected none"),
        }
    )
    sources = "each party's own columns and randomized ones of the others"
    privacy_note = (
        " A column with an empty read_by never left its site and is not in the sum. All of this is about the columns "
        "that were read and holds against those in read_by; the parameters come from raw values, see peer."
    )
    linkage = _LINKAGE

    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
        """Return the peers that score or learn with the unit."""
        return read_by(study, index, dag)

    def asked_by(self, study: Study, index: int, dag: Dag | None) -> tuple[str, ...]:
        """See `Protocol.asked_by`: for scores before the structure is known, where it is learned; then for its families."""
        return () if dag is None and study.structure.parents is not None else readers(study, index, dag)

    def learner(self, study: Study, child: int) -> str:
        """Return the variable's owner."""
        return study.schema.variables[child].owner

    def exchanges(self, study: Study) -> int:
        """Columns and statements between the parties; before them, where the structure is learned, columns, scores, structure."""
        return 2 if study.structure.parents is not None else 5

    def searches_scores(self, study: Study) -> bool:
        """Return whether the study leaves the structure open."""
        return study.structure.parents is None

    def shared_tables(self, study: Study, party: str) -> int:
        """Count one table for each own variable, and one for each pair that it scores."""
        return shared_tables(study, party)

    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        """Yield who may not receive: every other party, and the miner where it gets scores."""
        strangers = [name for name in study.parties if name != party and name not in recipients]
        if strangers:
            yield f"model 'peer': {', '.join(strangers)} not in policy.recipients"
        if self.searches_scores(study) and "miner" not in recipients:
            problem = "the structure is learned from scores that the miner gets, and it is not in policy.recipients"
            yield f"model 'peer': {problem}"

    def check(self, study: Study, *, source: str) -> None:
        """Check the structure, what is shared, and that nothing is asked for that takes a miner.

        Raises:
            Misuse: STUDY_INVALID; STUDY_UNSUPPORTED.
        """
        structure = study.structure
        if structure.method not in (*pair_methods(), "given"):
            raise Misuse(
                "STUDY_UNSUPPORTED",
                f"{source}: structure.method: '{structure.method}' needs tables of whole families, and with the model 'peer' the "
                "parties send scores of pairs only",
                hint=f"use one of: {', '.join(pair_methods())}, given",
            )
        super().check(study, source=source)
        if study.share is not None:
            _check_share(study, study.share, source=source)
        if study.release.sample_from == "joint":
            problem = "got 'joint' with the model 'peer': no party has the tables of all pairs that a joint model is fitted to"
            fail(f"{source}: release.sample_from", problem, hint="use \"network\", or the model 'central'")
        if study.quorum is not None and study.quorum.minimum is not None:
            raise Misuse(
                "STUDY_UNSUPPORTED",
                f"{source}: quorum.min: goes with the model 'central', got 'peer': between peers every party is needed, because "
                "there is no miner that could fix for all of them who is left out",
                hint="give a deadline alone; without a party that stays away, load a study of the others' columns under a new id",
            )

    def check_unit(self, unit: Unit, *, where: str) -> None:
        """Subset selection is no study of Model I, in any version: a peer joins the column that it gets to its own table."""
        if unit.scheme == "subset":
            raise Misuse(
                "STUDY_INVALID",
                f"{where}: 'subset' releases a set of categories for each person; with model 'peer' a received column is joined "
                "to a table, expected one category for each person",
                hint="use 'symmetric'",
            )

    def statement(self, study: Study, dag: Dag) -> PeerStatement:
        """Return who learned and read what, and the noise of what was shared."""
        return peer_statement(study, dag)

    def findings(self, study: Study) -> Iterator[Finding]:
        """Yield who gets what, and what is shared without noise."""
        dag = study.given_dag
        if study.share is not None and study.share.epsilon is None:
            what = "the parameters" if dag is not None else "the parameters and the scores of pairs"
            yield Finding(
                severity="warning",
                code="exact-parameters",
                where="share",
                message=f"there is no noise: {what} that a party shares about its own columns are exact functions of its raw "
                "data, and no epsilon bounds what they tell about a person",
                hint='add [share] with noise = "discrete-gaussian", epsilon and delta; else every party must set '
                "policy.allow_exact_parameters",
            )
        if dag is None:
            yield Finding(
                severity="note",
                code="read-while-learning",
                where="structure.method",
                message="the structure is learned, so each column goes to every party before its owner, to be scored, and then "
                "to those that need it; the totals count every column",
                hint="list the parties with the most sensitive columns first, or give the structure",
            )
            return
        yield from _read_in_part(study, dag)
        unread = [
            name for index, unit in enumerate(study.units) if not readers(study, index, dag) for name in unit.variables
        ]
        if unread:
            they = "it is" if len(unread) == 1 else "they are"
            yield Finding(
                severity="note",
                code="unread",
                where="structure.parents",
                message=f"no other party reads {', '.join(unread)}: {they} not sent, and how {they} randomized is not used",
                hint="nothing to mend; they count in no total",
            )


def _read_in_part(study: Study, dag: Dag) -> Iterator[Finding]:
    """Compounds of which a reader needs some of the columns only."""
    for index, unit in enumerate(study.units):
        if not unit.is_compound:
            continue
        members = {study.schema.index(name): name for name in unit.variables}
        for reader in readers(study, index, dag):
            parents = {
                parent for child in study.schema.owned_by(reader) for parent in dag.parents[child]
            } & members.keys()
            if len(parents) < len(members):
                names = ", ".join(f"'{members[position]}'" for position in sorted(parents))
                yield Finding(
                    severity="warning",
                    code="compound-read-in-part",
                    where=unit.text,
                    message=f"'{reader}' needs {names} only and gets the whole compound",
                    hint="randomize what it needs by itself, unless the other columns may go there too",
                )


def _check_share(study: Study, rule: ShareRule, *, source: str) -> None:
    where = f"{source}: share"
    if len(study.parties) < 2:
        fail(f"{source}: party", "there is one [[party]], expected at least two with model 'peer'")
    if not 0 <= rule.minimum_count <= MAX_SAFE:
        fail(f"{where}.minimum_count", f"got {rule.minimum_count}, expected 0 to {MAX_SAFE}")
    if (rule.epsilon is None) != (rule.delta is None):
        missing, other = ("epsilon", "delta") if rule.epsilon is None else ("delta", "epsilon")
        fail(f"{where}.{missing}", f"missing, expected a number beside {other}: noise needs both")
    if rule.epsilon is None or rule.delta is None:
        if rule.noise is not None:
            fail(f"{where}.epsilon", f"missing: noise '{rule.noise}' needs an epsilon and a delta")
        return
    if rule.noise is None:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{where}.noise: missing beside epsilon, as in studies of before 1.0.0, whose noise this version does not draw",
            hint=f'write noise = "{DISCRETE}", under a new id',
        )
    check_privacy(where, rule.epsilon, rule.delta)
    for party in study.parties:
        try:
            discrete_sigma(rule.epsilon, rule.delta, shared_tables(study, party))
        except ValueError as error:
            fail(where, f"party '{party}': {error}", hint="choose a larger epsilon or delta, or fewer columns")
