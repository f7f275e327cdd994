"""Attacks on randomized columns: the code that a party runs, from a site secret to released codes.

`verticil.party.protocol.randomization.randomize` is called as an upload calls it, for made-up people with every true category in
turn; the study is `columns.toml`, and what it promises is what the accountant says of the events that it plans. Columns without
a finite epsilon promise nothing and are not attacked. All randomness of a released value is in the site secret and the person's
id, so draws are over these:

- ``site secrets``: a new secret for each draw, one id. Nothing is assumed of how draws under one secret hang together.
- ``people``: many ids under each of a few secrets. Far more draws in the same time; that people are drawn independently of each
  other is what ``two-people`` attacks.

Three more mechanisms put two released values together, over site secrets:

- ``two-people``: what a person's value does to another person's released value, which must be nothing.
- ``asked-twice``: two studies ask for the same column under the same matrix. It is charged once, because the noise is sticky.
- ``another-matrix``: a second study asks for it under another matrix. Both are charged.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verticil.attack.attack import Attack
from verticil.attack.events import Counts
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.dataset.perturb import record_tags
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.randomization import randomize
from verticil.party.storage.secret import SiteSecret, secret_id
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.privacy.accountant import compose, cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import PrivacyEvent, plan_events
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

STUDY: Final = Path(__file__).with_name("columns.toml")
PARTY: Final = "site"
Numbers: TypeAlias = NDArray[np.int64]
ONE_SITE: Final = 0.02
"""Draws over site secrets for each draw over people: keys are derived anew for each."""
_LARGE: Final = 16  # categories, from which on there are fewer of them
_PEOPLE_AT_ONCE: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """A unit of the study, ready to be randomized for made-up people.

    Attributes:
        study: it is a unit of.
        index: of the unit.
        event: that the study plans for it.
        values: variable -> (K,), the true code of each category of the unit.
        labels: (K,), in words.
        sources: local columns that the site has it from.
    """

    study: Study
    index: int
    event: PrivacyEvent
    values: Mapping[str, Codes]
    labels: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def n_states(self) -> int:
        """K, the number of categories."""
        return len(self.labels)

    def release(self, secret: SiteSecret, ids: Sequence[str], true: NDArray[np.intp]) -> Numbers:
        """Release people's values as a site with this secret does.

        Args:
            secret: of the site.
            ids: n ids.
            true: (n,), the true category of each.

        Returns:
            (n, codes per record).
        """
        return self.released_of(secret, record_tags(secret.tag_key, ids), true)

    def released_of(self, secret: SiteSecret, tags: NDArray[np.uint8], true: NDArray[np.intp]) -> Numbers:
        """`released`, of people whose tags (n, 14) have been made under the secret."""
        transition = self.study.units[self.index].transition
        holding = LocalDataset(
            tags=tags,
            keys=np.zeros((0, 16), dtype=np.uint8),
            tables={},
            codes={name: codes[true] for name, codes in self.values.items()},
            fingerprints={},
            source_fingerprints={},
            pseudonyms=np.zeros((0, 16), dtype=np.uint8),
            seeds=np.zeros((0, 32), dtype=np.uint8),
            tree=None,
            n_rows=len(tags),
        )
        column_draw = ColumnDraw(
            variables=self.study.units[self.index].variables,
            dataset="people",
            sources=self.sources,
            codebook_digest=bytes(32),
            transition_digest=transition.digest(),
            secret_id=secret_id(secret.value),
            fingerprint=bytes(32),
            event=self.event,
        )
        rows = np.arange(len(tags), dtype=np.int64)
        codes = randomize(
            holding, rows, self.study, self.index, column_draw=column_draw, version_tag=b"", site_secret=secret.value
        )
        return codes.astype(np.int64).reshape(len(tags), transition.codes_per_record)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """The outcomes of one column, numbered.

    Attributes:
        names: (M,), in words.
        documented: (K, M), probability of each under each true category.
        numbered: (n, codes per record) -> (n,), which outcome each record is.
    """

    names: tuple[str, ...]
    documented: Floats
    numbered: Callable[[Numbers], Numbers]


def attacks() -> Iterator[Attack]:
    """Yield every attack on randomized columns."""
    study = read_study(STUDY)
    columns = {_name(column): column for column in columns_of(study)}
    for name, column in columns.items():
        yield from _on_column(name, column)
    one, other = columns["symmetric-5"], columns["symmetric-5-again"]
    yield _on_two_people("two-people", one)
    again = dataclasses.replace(one, study=dataclasses.replace(study, id="asked-again"))
    yield _on_two_releases("asked-twice", one, again, events=(one.event,))
    second = dataclasses.replace(other, sources=one.sources)
    yield _on_two_releases("another-matrix", one, second, events=(one.event, second.event))


def columns_of(study: Study) -> Iterator[Column]:
    """Yield the units of the party that have a finite epsilon, in the study's order."""
    for item in plan_events(study, PARTY):
        if item.unit is None or not math.isfinite(cost_of(item.event).epsilon):
            continue
        unit = study.units[item.unit]
        variables = [study.schema[study.schema.index(name)] for name in unit.variables]
        every = itertools.product(*(range(variable.n_states) for variable in variables))
        domain = [codes for codes in every if codes not in unit.impossible]
        yield Column(
            study=study,
            index=item.unit,
            event=item.event,
            values={
                variable.name: np.array([codes[place] for codes in domain], dtype=np.uint8)
                for place, variable in enumerate(variables)
            },
            labels=tuple(
                " and ".join(variable.labels[code] for variable, code in zip(variables, codes, strict=True))
                for codes in domain
            ),
            sources=unit.variables,
        )


def _name(column: Column) -> str:
    return column.sources[0] if len(column.sources) == 1 else "compound"


def _on_column(name: str, column: Column) -> Iterator[Attack]:
    outcomes = _outcomes(column)
    n_states, n_outcomes = column.n_states, len(outcomes.names)
    every = np.arange(n_states)

    def count(codes: Numbers) -> Counts:
        """Count records that come in the order of `every`, again and again."""
        numbers = outcomes.numbered(codes).reshape(-1, n_states) + every * n_outcomes
        return np.bincount(numbers.reshape(-1), minlength=n_states * n_outcomes).reshape(n_states, n_outcomes)

    def over_people(generator: np.random.Generator, draws: int) -> Counts:
        secret = fresh(generator)
        tags = record_tags(secret.tag_key, (str(number) for number in range(draws)))
        true = np.tile(every, draws)
        return count(column.released_of(secret, np.repeat(tags, n_states, axis=0), true))

    def over_sites(generator: np.random.Generator, draws: int) -> Counts:
        ids = ["1"] * n_states
        return count(np.concatenate([column.release(fresh(generator), ids, every) for _ in range(draws)]))

    for over, draw, weight, at_once in (
        ("people", over_people, 1.0, max(_PEOPLE_AT_ONCE // n_states, 1_000)),
        ("site secrets", over_sites, ONE_SITE * min(1.0, _LARGE / n_states), 500),
    ):
        yield Attack(
            mechanism=name,
            over=over,
            inputs=column.labels,
            claims=(cost_of(column.event),),
            draw=draw,
            words=lambda chosen: "released " + name_outcomes(chosen, outcomes.names),
            documented=outcomes.documented,
            weight=weight,
            at_once=at_once,
        )


def _on_two_people(name: str, column: Column) -> Attack:
    """Return the attack on two people.

    A person's value must not show in what is released of somebody else, whose value is known.
    """
    n_states = column.n_states
    true = np.append(np.arange(n_states), 0)
    ids = ["1"] * n_states + ["2"]

    def draw(generator: np.random.Generator, draws: int) -> Counts:
        counts = np.zeros((n_states, n_states**2), dtype=np.int64)
        rows = np.arange(n_states)
        for _ in range(draws):
            codes = column.release(fresh(generator), ids, true)[:, 0]
            counts[rows, codes[:-1] * n_states + codes[-1]] += 1
        return counts

    return _of_pairs(name, column, (cost_of(column.event),), draw, "{}, and {} of the other")


def _on_two_releases(name: str, one: Column, other: Column, *, events: Sequence[PrivacyEvent]) -> Attack:
    """Return the attack on the same value, released under two studies."""
    n_states = one.n_states
    every, ids = np.arange(n_states), ["1"] * n_states

    def draw(generator: np.random.Generator, draws: int) -> Counts:
        counts = np.zeros((n_states, n_states**2), dtype=np.int64)
        for _ in range(draws):
            secret = fresh(generator)
            first, second = (column.release(secret, ids, every)[:, 0] for column in (one, other))
            counts[every, first * n_states + second] += 1
        return counts

    claim = compose(cost_of(event) for event in events)
    return _of_pairs(name, one, (claim,), draw, "{}, then {}")


def _of_pairs(
    name: str,
    column: Column,
    claims: tuple[Cost, ...],
    draw: Callable[[np.random.Generator, int], Counts],
    words: str,
) -> Attack:
    pairs = tuple(words.format(first, second) for first, second in itertools.product(column.labels, repeat=2))
    return Attack(
        mechanism=name,
        over="site secrets",
        inputs=column.labels,
        claims=claims,
        draw=draw,
        words=lambda chosen: "released " + name_outcomes(chosen, pairs),
        weight=ONE_SITE,
        at_once=500,
    )


def _outcomes(column: Column) -> Released:
    channel = column.study.units[column.index].transition
    if not isinstance(channel, Subset):
        return Released(
            names=column.labels,
            documented=channel.probabilities,
            numbered=lambda codes: codes[:, 0],
        )
    n_states, size = channel.n_states, channel.size
    sets = list(itertools.combinations(range(n_states), size))
    numbers = np.array([sum(1 << member for member in subset) for subset in sets])
    order = np.argsort(numbers)
    within = np.array([[state in subset for subset in sets] for state in range(n_states)])
    inside, outside = math.comb(n_states - 1, size - 1), math.comb(n_states - 1, size)
    return Released(
        names=tuple("{" + ", ".join(column.labels[member] for member in subset) + "}" for subset in sets),
        documented=np.where(within, channel.keep / inside, (1 - channel.keep) / outside),
        numbered=lambda codes: order[np.searchsorted(numbers, (1 << codes).sum(axis=1), sorter=order)].astype(np.int64),
    )


def fresh(generator: np.random.Generator) -> SiteSecret:
    """Draw a new site secret, as ``party init`` makes it, from a generator."""
    return SiteSecret(value=generator.bytes(32))


def name_outcomes(is_member: NDArray[np.bool_], names: Sequence[str], most: int = 2) -> str:
    """Name the first outcomes of a set, and say how many more there are."""
    places = np.flatnonzero(is_member)
    more = f" or {len(places) - most} more" if len(places) > most else ""
    return " or ".join(names[int(place)] for place in places[:most]) + more
