"""The protocol ``masked`` (Model III): the parties and a miner compute noisy tables together, and nobody sees a row.

The page is model-three.md. What stands here follows from the study alone: who deals the masks of which pair of parties, who is
counted for noise and how much each of them draws, whom it stops, how many bytes it takes; with the number of people it is the
`Plan` that every contributor makes by itself and compares with the others'. Every contributor is an operator of its own, by its
name. A table of three columns is of three parties, and the miner deals its masks, or within one party.

Who deals, with ``dealer = "party"``: for each pair of parties a third one. Where coalitions of two or more are tolerated, the one
that makes the fewest new pairs of a dealer with its partner, since these are covered by no noise; then the one that has the least
to multiply so far (categories of both sides); then the last in the study's order, which has fewer pairs to come.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import encode
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.field import check_capacity
from verticil.shared.masked.arithmetic.opening import deviation, sigma_each
from verticil.shared.masked.arithmetic.plan import LEAST_PARTIES, CoarsePlan, Plan
from verticil.shared.masked.arithmetic.triples import row_width
from verticil.shared.mechanisms.discrete_gaussian import MOST_OF_A_SUM
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.central import MEMBERS
from verticil.shared.study.document import MaskedRule, Study
from verticil.shared.study.protocol import MINER, Disclosure, Finding, Protocol, Statement
from verticil.shared.study.tables import cells_of, coarse_pairs, public_runs, set_sigmas, tables_of, tables_sigma
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import MAX_SAFE, fail

FLOOR: Final = 6.0
"""Epsilon of a column of which the study says nothing: what a dealer together with its partner can learn of it."""

_N_ONLY: Final = "how many people all parties have in common, and nothing else of any list"
_LINKAGE: Final = {
    "keyed-hash": Disclosure(
        mode="keyed-hash",
        miner=_N_ONLY,
        parties=f"{MEMBERS}; and which of its own people are at all parties before it in the study's order",
        together="every party has the linkage key: it, or a miner with its help, can look up every id that it can guess in the "
        "lists that it gets",
    ),
    "order-commitment": Disclosure(
        mode="order-commitment",
        miner=_N_ONLY,
        parties="that all tables hold the same people in the same order; where they do not, which blocks of 1024 rows are equal,"
        " and how many rows each table has",
        together="every party has the linkage key: where tables differ, it, or a miner with its help, can test a guess of a "
        "whole block of 1024 ids in their order",
    ),
    "dh-psi": Disclosure(
        mode="dh-psi",
        miner=_N_ONLY,
        parties=f"{MEMBERS}; how many people every other party has, and how many any of them share, but of none of its own"
        " people that they are at some of the others only",
        together="a party can learn whether the people whom it puts into its list are at all the others, and all the others"
        " together at which of them such a person is, during the study only and not by guessing afterwards; a party that does"
        " not follow the protocol can have other people taken for common ones, and does not learn who they are",
    ),
}


def rule_of(study: Study) -> MaskedRule:
    """Return what the study says in ``[masked]``, or what holds where it says nothing."""
    return study.masked or MaskedRule()


def deals_by_party(study: Study) -> bool:
    """Return whether a third party deals the masks of each pair, and not the miner; of a sub-model, as the proposal had
    it.
    """
    dealer = rule_of(study).dealer
    return len(study.parties) + len(study.left_out) > LEAST_PARTIES if dealer is None else dealer == "party"


def noise_contributors(study: Study) -> tuple[str, ...]:
    """Return who draws noise for tables across parties: the parties, and the miner if the study says so."""
    return (*study.parties, MINER) if rule_of(study).count_miner else study.parties


def widths(study: Study) -> dict[str, int]:
    """S of each party: the categories of all its units."""
    return {
        party: sum(study.units[unit].transition.n_states for unit in study.units_of(party)) for party in study.parties
    }


def triples(study: Study) -> tuple[tuple[int, ...], ...]:
    """Return the tables of three columns of three parties, whose masks the miner deals: positions of their units."""
    return tuple(table for table in tables_of(study) if len(owners_of(study, table)) == 3)


def owners_of(study: Study, table: Sequence[int]) -> tuple[str, ...]:
    """Return the parties that have columns in a table, in the study's order."""
    owners = {study.units[unit].owner for unit in table}
    return tuple(party for party in study.parties if party in owners)


def dealers(study: Study) -> tuple[str, ...]:
    """Return who deals each pair of parties, in the order of ``itertools.combinations``; see the module.

    Raises:
        Misuse: STUDY_INVALID, a third party is to deal and there is none.
    """
    pairs = tuple(itertools.combinations(study.parties, 2))
    if not deals_by_party(study):
        return (MINER,) * len(pairs)
    if len(study.parties) <= LEAST_PARTIES:
        fail(
            f"study '{study.id}': masked.dealer",
            f"got 'party' with {len(study.parties)} parties, expected at least {LEAST_PARTIES + 1}: the dealer of a pair has no "
            "columns in it",
            hint='use dealer = "miner"',
        )
    wide, several = widths(study), rule_of(study).tolerate > 1
    load = dict.fromkeys(study.parties, 0)
    together: set[frozenset[str]] = set()
    names: list[str] = []
    for pair in pairs:
        costs = (
            (
                sum(several and frozenset((name, partner)) not in together for partner in pair),
                load[name],
                -position,
                name,
            )
            for position, name in enumerate(study.parties)
            if name not in pair
        )
        dealer = min(costs)[-1]
        load[dealer] += sum(wide[name] for name in pair)
        together |= {frozenset((dealer, partner)) for partner in pair}
        names.append(dealer)
    return tuple(names)


def dealt(study: Study) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return whose masks are dealt together, and by whom: all pairs of parties, then all three that have a table together."""
    pairs = zip(itertools.combinations(study.parties, 2), dealers(study), strict=True)
    return (*pairs, *dict.fromkeys((owners_of(study, table), MINER) for table in triples(study)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What a dealer can read together with a partner: randomized values, row by row.

    Attributes:
        dealer, partner: who would have to work together.
        owners: whose columns, in the study's order: of all pairs and triples that the one deals and the other is in.
        units: the columns, ascending: of a pair all of the owner's, of a triple one. Nothing covers them but their own draw: the
            floor.
    """

    dealer: str
    partner: str
    owners: tuple[str, ...]
    units: tuple[int, ...]


def list_exposures(study: Study) -> tuple[Exposure, ...]:
    """List who can read whose columns, of all pairs of a dealer and a partner; dealers in the order of contributors."""
    read: dict[tuple[str, str], set[int]] = {}
    for pair, dealer in zip(itertools.combinations(study.parties, 2), dealers(study), strict=True):
        for one, other in itertools.permutations(pair):
            read.setdefault((dealer, one), set()).update(study.units_of(other))
    for table in triples(study):
        for unit in table:
            read.setdefault((MINER, study.units[unit].owner), set()).update(set(table) - {unit})
    return tuple(
        Exposure(
            dealer=dealer,
            partner=partner,
            owners=owners_of(study, tuple(units)),
            units=tuple(sorted(units)),
        )
        for dealer in (*study.parties, MINER)
        for partner in study.parties
        if (units := read.get((dealer, partner)))
    )


def covered_coalitions(study: Study) -> Iterator[tuple[str, ...]]:
    """Yield the coalitions that the stated epsilon and delta hold against: the largest, in the order of contributors.

    Each has `tolerate` counted contributors, no dealer together with a partner of its, and, where it is not counted, the miner,
    if that makes no such two; a miner that can be in none of them is one by itself. Smaller coalitions are covered, too.
    There can be very many: take the first.
    """
    apart = {frozenset((item.dealer, item.partner)) for item in list_exposures(study)}
    names, size = noise_contributors(study), rule_of(study).tolerate

    def larger(some: tuple[str, ...], start: int) -> Iterator[tuple[str, ...]]:
        if len(some) == size:
            yield some
            return
        for position in range(start, len(names)):
            if not any(frozenset((names[position], name)) in apart for name in some):
                yield from larger((*some, names[position]), position + 1)

    alone = MINER not in names
    for some in larger((), 0):
        joins = MINER not in names and not any(frozenset((MINER, name)) in apart for name in some)
        alone = alone and not joins
        yield (*some, MINER) if joins else some
    if alone:
        yield (MINER,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Bytes of the messages of a round by kind; hellos, seeds, tosses and seals are below 1 MB and are not in it.

    Attributes:
        masked: U, each partner's of each party.
        checks: corrections and shares of the check, both runs, of those whose rows are checked; of triples what is told of masks.
        products: Z, and what is dealt of triples.
        shares: of all tables, each party's to the miner.
        opened: the tables, to each party.
        relayed: what a relay carries, where parties reach each other through one: all that goes between parties, in and out.
    """

    masked: int
    checks: int
    products: int
    shares: int
    opened: int
    relayed: int

    @property
    def once(self) -> int:
        """Of all kinds, each message counted once: what `max_bytes` bounds."""
        return self.masked + self.checks + self.products + self.shares + self.opened


def bytes_of(study: Study, n_people: int) -> Payload:
    """Return the payload of a round (model-three.md section 3, "Sizes").

    U is 4 n S_i for each partner; the check 12 n u_i for each partner and run: 4 of the correction from the party to the dealer,
    8 of what verifier and dealer tell each other; Z is 4 S_i S_j; a share has 4 bytes for each cell, an opened table 8. A triple
    (section 8): of each party U to two, its check by two, one alpha for each run to two; to one party 4 n (K_j K_k + K_i K_k +
    K_i K_j) for each of 1 + runs sets.

    Args:
        study: the study.
        n_people: n.
    """
    wide, unchecked_parties = widths(study), rule_of(study).unchecked
    pairs = tuple(zip(itertools.combinations(study.parties, 2), dealers(study), strict=True))
    units = {party: 0 if party in unchecked_parties else len(study.units_of(party)) for party in study.parties}
    masked = sum(4 * n_people * (wide[one] + wide[other]) for (one, other), _ in pairs)
    checks = {pair: 12 * RUNS * n_people * sum(units[name] for name in pair) for pair, _ in pairs}
    products = {(one, other): 4 * wide[one] * wide[other] for (one, other), _ in pairs}
    between = masked + sum(checks[pair] + products[pair] for pair, dealer in pairs if dealer != MINER)
    of_triples = [_bytes_of_triple(study, table, n_people) for table in triples(study)]
    alphas = sum(RUNS * rows for rows, _, _ in of_triples)
    masked += sum(rows for rows, _, _ in of_triples)
    between += sum(rows for rows, _, _ in of_triples) + alphas
    return Payload(
        masked=masked,
        checks=sum(checks.values()) + alphas + sum(n_checked for _, n_checked, _ in of_triples),
        products=sum(products.values()) + sum(dealt for _, _, dealt in of_triples),
        shares=4 * _opened_cells(study) * len(study.parties),
        opened=8 * _opened_cells(study) * len(study.parties),
        relayed=2 * between,
    )


def _bytes_of_triple(study: Study, table: Sequence[int], n_people: int) -> tuple[int, int, int]:
    """Return the bytes of masked rows (and of the alphas of one run), of the checks of rows, and of what is dealt."""
    sizes = [study.units[unit].transition.n_states for unit in table]
    n_checked = sum(study.units[unit].owner not in rule_of(study).unchecked for unit in table)
    dealt = 4 * (n_people * (1 + RUNS) * row_width(sizes) + math.prod(sizes))
    return 2 * 4 * n_people * sum(sizes), 2 * 12 * RUNS * n_people * n_checked, dealt


def slot_milliseconds(study: Study, n_people: int) -> int:
    """Return how long a slot is: 250 ms and four times the work of the largest pair, so that its work fits into the next.

    The work is n (S_i S_j + 50 (S_i + S_j) + 200 runs (u_i + u_j)) ns, for products, streams and checks; of all triples together
    n (8 K_i K_j K_k + 50 (words dealt of a record + K_i + K_j + K_k)) ns; and 2000 ns for each cell of all tables, for noise and
    pads; as measured on one core (tests/bench/masked_products.py), rounded up. A machine that
    is slower yet waits for the slot after, and says so.
    """
    wide = widths(study)
    units = {party: len(study.units_of(party)) for party in study.parties}
    row = max(
        wide[one] * wide[other] + 50 * (wide[one] + wide[other]) + 200 * RUNS * (units[one] + units[other])
        for one, other in itertools.combinations(study.parties, 2)
    )
    for table in triples(study):
        sizes = [study.units[unit].transition.n_states for unit in table]
        row += 8 * math.prod(sizes) + 50 * (row_width(sizes) + sum(sizes))
    return 250 + math.ceil(4 * (n_people * row + 2000 * _opened_cells(study)) / 1_000_000)


def _opened_cells(study: Study) -> int:
    """Count the cells of all tables that are opened, those in runs of neighbouring categories among them."""
    sizes = [int(runs.max()) + 1 for runs in public_runs(study)]
    return cells_of(study) + sum(sizes[one] * sizes[other] for one, other in coarse_pairs(study))


def _sigma_each(study: Study, sigma: float) -> tuple[int, int]:
    """sigma_c for tables of a parameter sigma; raises Misuse as `verticil.shared.masked.arithmetic.opening.sigma_each`."""
    return sigma_each(sigma.as_integer_ratio(), len(noise_contributors(study)), rule_of(study).tolerate)


def _coarse_plan(study: Study) -> CoarsePlan | None:
    sigma = set_sigmas(study).coarse
    if sigma is None:
        return None
    return CoarsePlan(
        tables=coarse_pairs(study),
        runs=tuple(tuple(runs.tolist()) for runs in public_runs(study)),
        sigma=sigma.as_integer_ratio(),
        sigma_each=_sigma_each(study, sigma),
    )


def plan_of(study: Study, n_people: int, *, proposal: bytes = b"", round: int = 1) -> Plan:  # noqa: A002 - the plan's own word
    """Return the plan of a round: a function of the effective study and the number of people.

    Args:
        study: the effective study, which keeps all rules.
        n_people: n, of the common list.
        proposal: SHA-256 of the study as it was submitted; empty: it is the effective one, as no party declared anything.
        round: 1 for the first.

    Raises:
        Misuse: STUDY_UNSUPPORTED, so many people are too many, for `max_bytes` or for the field.
    """
    if study.tables is None:
        raise ValueError(f"study '{study.id}' has no [tables]")
    effective = hashlib.sha256(encode(study)).digest()
    rule = rule_of(study)
    _check_bytes(study, n_people, source=f"study '{study.id}'")
    return Plan(
        study=proposal or effective,
        effective=effective,
        round=round,
        parties=study.parties,
        miner=MINER,
        operators={name: name for name in (*study.parties, MINER)},
        n_people=n_people,
        linkage=study.linkage.mode,
        owners=tuple(study.parties.index(unit.owner) for unit in study.units),
        sizes=tuple(unit.transition.n_states for unit in study.units),
        tables=tables_of(study),
        dealers=dealers(study),
        counted=noise_contributors(study),
        tolerate=rule.tolerate,
        epsilon=study.tables.epsilon,
        delta=study.tables.delta,
        sigma=tables_sigma(study).as_integer_ratio(),
        sigma_each=_sigma_each(study, tables_sigma(study)),
        unchecked=tuple(party for party in study.parties if party in rule.unchecked),
        slot_milliseconds=slot_milliseconds(study, n_people),
        coarse=_coarse_plan(study),
    )


def _check_bytes(study: Study, n_people: int, *, source: str) -> None:
    most, payload = rule_of(study).max_bytes, bytes_of(study, n_people)
    if payload.once > most:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{source}: masked.max_bytes: a round with {n_people} people has {payload.once} bytes of messages, expected at most "
            f"{most}",
            hint="raise masked.max_bytes, or take columns or categories out",
        )


_STATEMENT: Final = (
    "No organisation and no miner saw a row of another organisation. Tables of columns were computed from masked ones, "
    "and opened with the noise of all counted contributors on tables across organisations, and of the owner on its own. All that "
    "is published follows from these noisy tables and the number of people, which is public. That is computational, and it does "
    "not hold against a dealer of masks that works together with the partner it dealt to: these two can read the randomized "
    "columns of the other. Whoever deals, opens or sends a share could have planted or hidden an association, and nothing here "
    "proves that none did."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedStatement(Statement):
    """How the tables came about; what they cost whom stands in the privacy statement.

    Attributes:
        tables: T.
        tolerate: t.
        counted: who drew noise across parties.
        sigma: parameter of the noise that an owner drew on each count of its own tables, people.
        sigma_each: of what each of `counted` drew on each count across parties, people.
        dealers: (two parties, or the three of a table, who dealt their masks).
        unchecked: parties whose rows nobody checked.
    """

    key = "masked"

    tables: int
    tolerate: int
    counted: tuple[str, ...]
    sigma: float
    sigma_each: float
    dealers: tuple[tuple[tuple[str, ...], str], ...]
    unchecked: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """They come from tables with noise."""
        return False

    @property
    def parameters(self) -> str:
        """The noise on all that is published."""
        return "the noise on the opened tables that everything was learned from"

    def document(self) -> Json:
        """Return the statement as a document."""
        return {
            "exact_parameters": False,
            "statement": _STATEMENT,
            "relation": "replace one person's values at all parties; the number of people is public",
            "tables": self.tables,
            "tolerate": self.tolerate,
            "counted": list(self.counted),
            "sigma_within_a_party": self.sigma,
            "sigma_of_each_across_parties": self.sigma_each,
            "dealers": [
                {"pair" if len(names) == 2 else "triple": list(names), "dealer": dealer}
                for names, dealer in self.dealers
            ],
            "unchecked": list(self.unchecked),
        }


class Masked(Protocol):
    """The protocol of Model III."""

    name = "masked"
    summary = "the organisations and a miner compute noisy tables together, and nobody sees a row"
    coordinated = True
    shares = False
    opens_tables = True
    counts_families = True
    sources = "noisy tables that nobody counted alone"
    privacy_note = (
        " No column is read by anybody: masked ones leave, and noisy tables are opened. A dealer of masks that works together "
        "with the partner it dealt to can read the randomized columns of the other; the sum is for these two."
    )
    randomization_default: ClassVar[Mapping[str, object]] = {"scheme": "symmetric", "epsilon": FLOOR}
    linkage = _LINKAGE

    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
        """Return no party: nobody reads a column."""
        return ()

    def readable(self, study: Study) -> tuple[int, ...]:
        """Return all units: a dealer could read them with its partner."""
        return tuple(range(len(study.units)))

    def learner(self, study: Study, child: int) -> None:
        """Return None: the miner learns every family, from the opened tables."""

    def exchanges(self, study: Study) -> int:
        """Return the number of messages of model-three.md section 2: hello, agreed, seed, product, statement, agreed
        again, masked columns, fits, toss closed, open and told, expected, w, f, done, share; of triples those of section
        8: all there, two tosses, each closed and open, alpha, sums closed and open, passed.
        """
        return 25 if triples(study) else 16

    def bytes_sent(self, study: Study, n_people: int) -> int:
        """Return the payload of a round, each message counted once."""
        return bytes_of(study, n_people).once

    def searches_scores(self, study: Study) -> bool:
        """Return False: the miner has the tables, and computes scores itself."""
        return False

    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        """Yield nothing: nobody receives a column; who may deal masks, and whose noise counts, a policy says by other
        keys.
        """
        yield from ()

    def statement(self, study: Study, dag: Dag) -> MaskedStatement:
        """Return who dealt, who drew how much noise, who was checked."""
        top, bottom = _sigma_each(study, tables_sigma(study))
        return MaskedStatement(
            tables=len(tables_of(study)),
            tolerate=rule_of(study).tolerate,
            counted=noise_contributors(study),
            sigma=tables_sigma(study),
            sigma_each=top / bottom,
            dealers=dealt(study),
            unchecked=tuple(party for party in study.parties if party in rule_of(study).unchecked),
        )

    def table_deviations(self, study: Study) -> tuple[float, ...]:
        """Within a party one draw of its owner; across parties the sum of those of all who are counted."""
        return self._deviations(study, tables_sigma(study), tables_of(study))

    def coarse_deviations(self, study: Study) -> tuple[float, ...]:
        """Return the same of tables in runs; see `Protocol.coarse_deviations`."""
        sigma = set_sigmas(study).coarse
        return () if sigma is None else self._deviations(study, sigma, coarse_pairs(study))

    def _deviations(self, study: Study, sigma: float, tables: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
        across = deviation(_sigma_each(study, sigma), len(noise_contributors(study)))
        return tuple(across if len({study.units[unit].owner for unit in table}) > 1 else sigma for table in tables)

    def check_people(self, study: Study, n_people: int) -> None:
        """See `Protocol.check_people`: a round has to be planned for them."""
        plan_of(study, n_people)

    def findings(self, study: Study) -> Iterator[Finding]:
        """Yield who could read more than others, whose rows nobody checks, and what no epsilon covers."""
        if not deals_by_party(study) and len(study.parties) > LEAST_PARTIES:
            yield Finding(
                severity="warning",
                code="miner-deals",
                where="masked.dealer",
                message="the miner deals all masks: with any one party it could read the randomized columns of all others",
                hint='use dealer = "party": then a dealer with its partner could read those of one other party, or few',
            )
        if deals_by_party(study) and (of_triples := triples(study)):
            several = f"{len(of_triples)} tables" if len(of_triples) > 1 else "one table"
            yield Finding(
                severity="note",
                code="miner-deals-triples",
                where="tables.three_way",
                message=f"the miner deals the masks of {several} of three parties' columns: with any one of the three it could "
                "read the other two's randomized columns of that table",
                hint="leave such tables out where the miner is not to be trusted so far",
            )
        if rule_of(study).unchecked:
            yield Finding(
                severity="warning",
                code="rows-unchecked",
                where="masked.unchecked",
                message=f"nobody checks the rows of {', '.join(rule_of(study).unchecked)}: such a party could learn exactly what "
                "about 20 people of its choice have in every column of its partners, for each column of its own",
                hint="leave masked.unchecked out, unless every other party's policy allows it (allow_unchecked_partners)",
            )
        yield Finding(
            severity="note",
            code="membership-not-covered",
            where="linkage",
            message="who the common people are is known to all parties, and how many to all: no epsilon covers it",
            hint="choose, order and link the people by nothing that is to be protected",
        )

    def check(self, study: Study, *, source: str) -> None:
        """Check who takes part, who deals, and that the noise can be drawn and covers somebody.

        Raises:
            Misuse: STUDY_INVALID; STUDY_UNSUPPORTED.
        """
        super().check(study, source=source)
        if study.tables is None:
            fail(
                f"{source}: tables",
                "missing, expected the epsilon and delta of the noise with the model 'masked'",
                hint="for example: [tables] with epsilon = 1.0 and delta = 1e-9",
            )
        for table in tables_of(study):
            if len(table) == 3 and len(owners_of(study, table)) == 2:
                names = ", ".join(name for unit in table for name in study.units[unit].variables)
                raise Misuse(
                    "STUDY_UNSUPPORTED",
                    f"{source}: tables.three_way: '{names}' are columns of two organisations, expected three of three, or of "
                    "one, with the model 'masked'",
                    hint="randomize the two of one organisation jointly: then a table of a pair has all three",
                )
        _check_names(study, source)
        _check_rule(study, source)
        _check_noise(study, source)
        least = study.linkage.minimum_common_records
        _check_bytes(study, least, source=source)
        check_capacity(least, max((*self.table_deviations(study), *self.coarse_deviations(study))))

    def check_unit(self, unit: Unit, *, where: str) -> None:
        """Refuse a set of categories, which has no one-hot row."""
        if isinstance(unit.transition, Subset):
            fail(
                where,
                "'subset' releases a set of categories for each person, expected one category with the model 'masked'",
                hint="use 'symmetric'",
            )


def _check_names(study: Study, source: str) -> None:
    if len(study.parties) < LEAST_PARTIES:
        fail(
            f"{source}: party",
            f"there is one [[party]], expected at least {LEAST_PARTIES} with the model 'masked'",
            hint="one organisation alone makes its tables with verticil synthesize",
        )
    if MINER in study.parties:
        fail(f"{source}: party", f"a party has the name '{MINER}', expected another one", hint="rename the party")
    names, rule = [*study.parties, *(item.party for item in study.left_out)], rule_of(study)
    for position, name in enumerate(rule.unchecked):
        if name not in names or name in rule.unchecked[:position]:
            fail(f"{source}: masked.unchecked", f"'{name[:80]}' is no party of the study, or stands there twice")


def _check_rule(study: Study, source: str) -> None:
    rule, where = rule_of(study), f"{source}: masked"
    least = study.quorum.minimum if study.quorum is not None and study.quorum.minimum is not None else None
    parties = len(study.parties) if least is None else least
    of = "parties" if least is None else "parties of the smallest sub-model (quorum.min)"
    if not 1 <= rule.max_bytes <= MAX_SAFE:
        fail(f"{where}.max_bytes", f"got {rule.max_bytes}, expected 1 to {MAX_SAFE}")
    if (n := len(noise_contributors(study))) > MOST_OF_A_SUM:
        fail(
            where,
            f"{n} contributors draw noise, expected at most {MOST_OF_A_SUM}",
            hint="propose it with fewer parties",
        )
    most = min(parties + rule.count_miner, parties) - 1
    if not 1 <= rule.tolerate <= most:
        fail(
            f"{where}.tolerate",
            f"got {rule.tolerate}, expected 1 to {most} with {parties} {of}",
            hint="so many of those who draw noise may know theirs or leave it out",
        )
    if deals_by_party(study) and parties <= LEAST_PARTIES:
        fail(
            f"{where}.dealer",
            f"a third party deals the masks of a pair, with {parties} {of}, expected at least {LEAST_PARTIES + 1}",
            hint='use dealer = "miner"',
        )
    if not any(
        len(set(some) & set(noise_contributors(study))) == rule.tolerate
        for some in itertools.islice(covered_coalitions(study), 1)
    ):
        fail(
            f"{where}.tolerate",
            f"got {rule.tolerate}, and any {rule.tolerate} of those who draw noise are a dealer with its partner, whom no noise "
            "stops: nobody would be covered",
            hint='use tolerate = 1, or dealer = "miner"',
        )


def _check_noise(study: Study, source: str) -> None:
    try:
        for sigma in (tables_sigma(study), set_sigmas(study).coarse):
            if sigma is not None:
                _sigma_each(study, sigma)
    except Misuse as error:
        hint = "choose another epsilon or delta, more or fewer columns, or another tolerate"
        raise Misuse(error.code, f"{source}: tables: {error.message}", hint=hint) from None
