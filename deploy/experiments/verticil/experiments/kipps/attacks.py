"""Figures 3 and 4: what an attacker who has the published records finds out of somebody, whose record was used or was not.

**Membership** (R. Shokri et al., "Membership inference attacks against machine learning models", 2017): the attacker has people
of the same kind, makes shadow copies of the whole way to records from them, half of them in and half not, and learns from these
what membership looks like. What is looked at of a person is what a classifier that learned from the published records says of
them (the paper's attack) and, of a stronger attacker, how near the nearest of these records are, too. Half of the attacked people
are in, so who guesses is right in half of the cases.

**An attribute**: a forest that learned from the published records predicts a column of a person from all the others. The same of
people whose records were not used tells how much of that is disclosure.

An attacker knows the rules. What they make impossible is not guessed, and what they leave of an attribute counts for the rules
and not for the records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.utility import area_under_curve
from verticil.experiments.kipps.datasets import DataSet, recoded
from verticil.experiments.kipps.measures import features
from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.numerics.knowledge.support import support

Publish = Callable[[pd.DataFrame, int], pd.DataFrame]
"""(records, a seed) -> what is published of them, as many."""

_TREES: Final = 50
_LEAF: Final = 20  # attacked people of a leaf of the attacker's forest, at least
_LEAST_SHARE: Final = 1e-9  # weight of shares beside a forest's probabilities
_BLOCK: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessed:
    """An attack on membership.

    Attributes:
        accuracy: share of the attacked people rightly said to be in or not; a coin has 1/2.
        auc: how often somebody who is in gets the higher score than somebody who is not.
    """

    accuracy: float
    auc: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Of one way to records.

    Attributes:
        outputs: by what a classifier that learned from the records says.
        records: by that, and by the nearest records.
        attacked: people; half of them are in.
        shadows: copies of the whole way that the attacker learned from.
        error: standard error of an accuracy of 1/2.
    """

    outputs: Guessed
    records: Guessed
    attacked: int
    shadows: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attack on a column; shares of 1.

    Attributes:
        members, others: guessed rightly, of people whose records were used, and of others.
        without_rules: of the members, by an attacker who does not know the rules.
        rules_alone: of the members, by who always says the most common of the published values that the rules leave.
        most_common: of the members, by who always says the most common published value.
        attacked: people of each kind.
        error: standard error of `beyond`.
    """

    members: float
    others: float
    without_rules: float
    rules_alone: float
    most_common: float
    attacked: int
    error: float

    @property
    def beyond(self) -> float:
        """How much more is guessed rightly of members: disclosure."""
        return self.members - self.others


def attribute(data: DataSet, published: CodedTable, members: CodedTable, others: CodedTable, *, seed: int) -> Attribute:
    """Attack the sensitive column of members and of others.

    Args:
        data: the data set, whose rules the attacker knows.
        published: what the attacker learns from.
        members, others: as many people of each kind.
        seed: of the forest.
    """
    from sklearn.ensemble import RandomForestClassifier

    place = published.column(data.sensitive)
    forest = RandomForestClassifier(n_estimators=_TREES, random_state=seed)
    forest.fit(features(published, but=place), published.codes[place])
    shares = np.bincount(published.codes[place], minlength=published.n_states[place]) / published.n
    right: list[Bools] = []
    baselines: list[float] = []
    for table in (members, others):
        scores = np.tile(_LEAST_SHARE * shares, (table.n, 1))
        scores[:, np.asarray(forest.classes_, dtype=np.int64)] += forest.predict_proba(features(table, but=place))
        allowed, true = possible(data, table, data.sensitive), table.codes[place]
        right.append(guesses(scores, allowed) == true)
        if table is members:
            ones = np.ones_like(allowed)
            alone = np.tile(shares, (table.n, 1))
            baselines = [
                float((guess == true).mean())
                for guess in (guesses(scores, ones), guesses(alone, allowed), guesses(alone, ones))
            ]
    return Attribute(
        members=float(right[0].mean()),
        others=float(right[1].mean()),
        without_rules=baselines[0],
        rules_alone=baselines[1],
        most_common=baselines[2],
        attacked=members.n,
        error=float(np.sqrt(sum(of.var() / len(of) for of in right))),
    )


def possible(data: DataSet, table: CodedTable, column: str) -> NDArray[np.bool_]:
    """(n, K), which values of a column the rules leave to each person, given the others; all, where they leave none."""
    allowed, place = support(data.knowledge, data.schema), data.schema.index(column)
    codes = recoded(data, table.codes)
    found = np.empty((table.n, data.schema[place].n_states), dtype=np.bool_)
    for value in range(found.shape[1]):
        asked = [np.full_like(codes[place], value) if at == place else own for at, own in enumerate(codes)]
        found[:, value] = allowed.holds(asked)
    found[~found.any(axis=1)] = True
    return found


def guesses(scores: Floats, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n,), the value with the highest score (n, K) of those that are possible (n, K)."""
    return np.asarray(np.where(allowed, scores, -1.0).argmax(axis=1), dtype=np.int64)


def membership(
    data: DataSet, publish: Publish, *, people: int, shadows: int, seed: int, tell: Callable[[str], None]
) -> Membership:
    """Attack membership.

    Args:
        data: the data set; attacked people and those that the attacker has are drawn from it, nobody is both.
        publish: the way to records; also of the shadow copies, which the attacker can make, for nothing of it is secret.
        people: in, and as many not; a third of the data set at most.
        shadows: copies, at least one.
        seed: of everything.
        tell: is told which copy is made.
    """
    from sklearn.ensemble import RandomForestClassifier

    draw = np.random.default_rng([seed, 0x3])
    order = draw.permutation(len(data.frame))
    attacked, held = order[: 2 * people], order[2 * people :]
    looked: list[Floats] = []
    for number in range(shadows + 1):
        tell(f"membership, shadow copy {number} of {shadows}" if number else "membership, the attacked copy")
        rows = draw.permutation(held)[: 2 * people] if number else attacked
        if len(rows) < 2 * people:
            raise ValueError(f"{len(held)} people for the attacker, expected {2 * people}")
        frame = data.frame.iloc[rows].reset_index(drop=True)
        published = publish(frame.iloc[:people], 1000 * seed + number)
        looked.append(_looks(data, data.coded(published), data.coded(frame), seed=seed))
    inside = np.repeat([1, 0], people)
    found: list[Guessed] = []
    for used in (2, None):
        forest = RandomForestClassifier(n_estimators=_TREES, min_samples_leaf=_LEAF, random_state=seed)
        forest.fit(np.concatenate([of[:, :used] for of in looked[1:]]), np.tile(inside, shadows))
        score = np.asarray(forest.predict_proba(looked[0][:, :used]), dtype=np.float64)[:, 1]
        found.append(
            Guessed(
                accuracy=float(((score > 0.5) == inside).mean()),
                auc=area_under_curve(inside, np.column_stack([1 - score, score])),
            )
        )
    return Membership(
        outputs=found[0], records=found[1], attacked=2 * people, shadows=shadows, error=0.5 / (2 * people) ** 0.5
    )


def _looks(data: DataSet, published: CodedTable, people: CodedTable, *, seed: int) -> Floats:
    """(n, 4) of people: a classifier's probability of their own class and its entropy, distance and number of the nearest."""
    from sklearn.ensemble import RandomForestClassifier

    target = published.column(data.target)
    own = people.codes[target].astype(np.int64)
    answers = np.zeros((people.n, people.n_states[target]))
    forest = RandomForestClassifier(n_estimators=_TREES, random_state=seed)
    forest.fit(features(published, but=target), published.codes[target])
    answers[:, np.asarray(forest.classes_, dtype=np.int64)] = forest.predict_proba(features(people, but=target))
    entropy = -(answers * np.log(np.where(answers > 0, answers, 1.0))).sum(axis=1)
    nearest = np.empty((people.n, 2))
    for start in range(0, people.n, _BLOCK):
        block = slice(start, start + _BLOCK)
        apart = np.zeros((len(own[block]), published.n), dtype=np.uint8)
        for mine, theirs in zip(people.codes, published.codes, strict=True):
            apart += mine[block, None] != theirs[None, :]
        least = apart.min(axis=1)
        nearest[block] = np.column_stack([least, (apart == least[:, None]).sum(axis=1)])
    return np.column_stack([answers[np.arange(people.n), own], entropy, nearest])
