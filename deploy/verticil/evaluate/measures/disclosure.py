"""Attribute disclosure: what somebody who knows part of a record learns about the rest from published records.

The attacker knows the key attributes of a person and looks for the published records nearest to them (Hamming distance rho). The
generalized correct attribution probability is the share of the person's true sensitive value among those (GCAP; Hittmeir, Mayer &
Ekelhart 2022, eq. 1). CAP (Elliot 2014; Taub et al. 2018) asks for a complete match, rho = 0, and is undefined without one.

A number alone says little: whoever knows the margins guesses the most common value, and a good model tells about people in
general, whether their records were used or not. So `disclosure` puts two more beside it: the share of the most common value, and
the same attack on people whose records were not used. What members lose beyond the others is disclosure; the rest is inference
that any good model permits. It needs the original records, so it runs only where somebody has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Bools, Floats, Ints, combination_numbers

Codes = NDArray[np.integer]

_BLOCK_CELLS: Final = 400_000  # distances that are held at a time: they stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttackedRecords:
    """Some records, as far as the attack is about them.

    Attributes:
        keys: one array (n,) of codes for each key attribute.
        sensitive: (n,), codes of the sensitive attribute.
        possible: (n, K), which codes each record can have by rules, at least one; None: all.
    """

    keys: tuple[Codes, ...]
    sensitive: Codes
    possible: Bools | None = None

    def __post_init__(self) -> None:
        if not self.keys or any(column.shape != self.sensitive.shape for column in self.keys):
            raise ValueError(
                f"{len(self.keys)} key attributes for {len(self.sensitive)} records, expected at least one, all as long"
            )
        if self.possible is not None and (
            len(self.possible) != len(self.sensitive) or not self.possible.any(axis=1).all()
        ):
            raise ValueError(
                f"possible codes of {len(self.possible)} records, expected some for each of {len(self.sensitive)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """What the attack gives for each attacked record.

    Attributes:
        probability: (n,), share of the true value among the nearest published records; NaN where it is undefined.
        distance: (n,), key attributes in which the nearest published record differs, rho.
        vote: (n,), the most common sensitive value among them, of equals the smallest; -1 where there is none.
        correct: (n,), bool: the vote is the true value.
    """

    probability: Floats
    distance: NDArray[np.int64]
    vote: NDArray[np.int64]
    correct: NDArray[np.bool_]

    @property
    def mean(self) -> float:
        """Mean probability over the records where it is defined; NaN where there is none."""
        probabilities = self.probability[~np.isnan(self.probability)]
        return float(probabilities.mean()) if len(probabilities) else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of the records whose true value is the vote; one without a vote counts as wrong."""
        return float(self.correct.mean()) if len(self.correct) else float("nan")

    @property
    def matched(self) -> float:
        """Share of the records whose whole key is published."""
        return float((self.distance == 0).mean()) if len(self.distance) else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """An attack on members and on others, all shares of 1.

    Attributes:
        gcap, vote: mean GCAP and accuracy of its majority vote, of those whose records were used.
        matched: share of them whose key is published.
        baseline: share of their most common sensitive value.
        others_gcap, others_vote, others_baseline: the same for people whose records were not used.
    """

    gcap: float
    vote: float
    matched: float
    baseline: float
    others_gcap: float
    others_vote: float
    others_baseline: float


def gcap(originals: AttackedRecords, synthetic: AttackedRecords) -> Attribution:
    """Return generalized correct attribution probability of each attacked record; always defined.

    Args:
        originals: the original records.
        synthetic: the synthetic ones, with the same key attributes in the same order.

    Raises:
        ValueError: there is no published record, or the number of key attributes differs.

    >>> a = lambda *codes: np.array(codes)
    >>> original = AttackedRecords(keys=(a(0, 0, 1, 2), a(0, 1, 1, 2)), sensitive=a(0, 1, 0, 1))
    >>> synthetic = AttackedRecords(keys=(a(0, 0, 0, 1, 1, 1), a(0, 0, 1, 0, 1, 1)), sensitive=a(0, 1, 1, 0, 0, 0))
    >>> gcap(original, synthetic).probability.round(4).tolist()
    [0.5, 1.0, 1.0, 0.3333]
    """
    return _attribution(originals, synthetic, is_generalized=True)


def cap(originals: AttackedRecords, synthetic: AttackedRecords) -> Attribution:
    """Correct attribution probability; undefined where the whole key is not published. Arguments and errors as for `gcap`."""
    return _attribution(originals, synthetic, is_generalized=False)


def majority_share(sensitive: Codes) -> float:
    """Return the share of the most common value: how often one is right who knows only the margin.

    >>> majority_share(np.array([2, 0, 2, 1]))
    0.5
    """
    return float(np.bincount(sensitive).max() / len(sensitive))


def disclosure(members: AttackedRecords, others: AttackedRecords, synthetic: AttackedRecords) -> Disclosure:
    """Attack members and others with the same published records.

    Args:
        members: the records that the published ones were made from.
        others: records of the same population that were not used.
        synthetic: the synthetic records.
    """
    of_members, of_others = gcap(members, synthetic), gcap(others, synthetic)
    return Disclosure(
        gcap=of_members.mean,
        vote=of_members.accuracy,
        matched=of_members.matched,
        baseline=majority_share(members.sensitive),
        others_gcap=of_others.mean,
        others_vote=of_others.accuracy,
        others_baseline=majority_share(others.sensitive),
    )


def _attribution(originals: AttackedRecords, synthetic: AttackedRecords, *, is_generalized: bool) -> Attribution:
    if len(originals.keys) != len(synthetic.keys):
        raise ValueError(f"{len(originals.keys)} and {len(synthetic.keys)} key attributes, expected as many")
    n = len(originals.sensitive)
    if not len(synthetic.sensitive):
        raise ValueError("there is no published record")
    n_values = 1 + int(max(synthetic.sensitive.max(), originals.sensitive.max(initial=0)))
    if originals.possible is not None:
        n_values = max(n_values, originals.possible.shape[1])
    key_columns = [np.concatenate(columns) for columns in zip(originals.keys, synthetic.keys, strict=True)]
    groups = combination_numbers(key_columns)
    # Each distinct key is handled once: its published records as a table of their sensitive values.
    original_groups, first_asked, of_record = np.unique(groups[:n], return_index=True, return_inverse=True)
    synthetic_groups, first_offered, of_published = np.unique(groups[n:], return_index=True, return_inverse=True)
    tables = np.zeros((len(synthetic_groups), n_values))
    np.add.at(tables, (of_published, synthetic.sensitive), 1.0)
    place = np.minimum(np.searchsorted(synthetic_groups, original_groups), len(synthetic_groups) - 1)
    has_match = synthetic_groups[place] == original_groups
    counts = np.where(has_match[:, None], tables[place], 0.0)
    distance = np.where(has_match, 0, len(key_columns))
    if is_generalized and not has_match.all():
        without_match = np.flatnonzero(~has_match)
        counts[without_match], distance[without_match] = _nearest(
            np.stack([column[:n][first_asked[without_match]] for column in key_columns], axis=1),
            np.stack([column[n:][first_offered] for column in key_columns], axis=1),
            tables,
        )
    return attribute_counts(
        counts[of_record],
        originals.sensitive,
        distance=distance[of_record],
        possible=originals.possible,
        margin=tables.sum(axis=0),
    )


def attribute_counts(
    counts: Floats | Ints,
    truth: Codes,
    *,
    distance: NDArray[np.int64],
    possible: Bools | None = None,
    margin: Floats | Ints | None = None,
) -> Attribution:
    """Return what an attacker says of each record who counts the values of some published ones, here the nearest.

    Args:
        counts: (n, K), how many of them have each value.
        truth: (n,), the true one.
        distance: (n,), of the nearest.
        possible: (n, K), which values each record can have; None: all.
        margin: (K,), how many published records have each value; the guess among possible ones where all counted ones are
            impossible. None: no guess.

    >>> found = attribute_counts(np.array([[3, 1, 0]]), np.array([1]), distance=np.zeros(1, dtype=np.int64),
    ...     possible=np.array([[False, True, True]]))
    >>> found.probability.tolist(), found.vote.tolist()
    ([1.0], [1])
    """
    counts = counts.astype(np.float64)
    if possible is not None:
        counts = counts * possible
        if margin is not None and (impossible := np.flatnonzero(counts.sum(axis=1) == 0)).size:
            rest = possible[impossible] * margin
            counts[impossible] = np.where(rest.sum(axis=1, keepdims=True) > 0, rest, possible[impossible])
    totals = counts.sum(axis=1)
    record = np.arange(len(truth))
    share = np.divide(counts[record, truth], totals, out=np.full(len(truth), np.nan), where=totals > 0)
    vote = np.where(totals > 0, counts.argmax(axis=1), -1)
    return Attribution(probability=share, distance=distance, vote=vote, correct=vote == truth)


def _nearest(original_keys: Codes, synthetic_keys: Codes, tables: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Add up the sensitive values of the published records nearest to each key; also return the distance."""
    counts = np.empty((len(original_keys), tables.shape[1]))
    distance = np.empty(len(original_keys), dtype=np.int64)
    width = np.uint8 if original_keys.shape[1] < 256 else np.uint16
    mine, theirs = (np.ascontiguousarray(keys.T) for keys in _narrow(original_keys, synthetic_keys))
    step = max(1, _BLOCK_CELLS // len(synthetic_keys))
    differ = np.empty((step, len(synthetic_keys)), dtype=np.bool_)
    for start in range(0, len(original_keys), step):
        part = slice(start, min(start + step, len(original_keys)))
        apart = np.zeros((part.stop - start, len(synthetic_keys)), dtype=width)
        for position in range(original_keys.shape[1]):
            out = differ[: len(apart)]
            np.not_equal(mine[position, part, None], theirs[None, position], out=out)
            apart += out.view(np.uint8)
        least = apart.min(axis=1)
        row, key = np.nonzero(apart == least[:, None])
        starts = np.searchsorted(row, np.arange(len(apart)))
        distance[part], counts[part] = least, np.add.reduceat(tables[key], starts, axis=0)
    return counts, distance


def _narrow(original_keys: Codes, synthetic_keys: Codes) -> tuple[Codes, Codes]:
    """Store the same keys in as few bytes as hold both: the narrower, the faster."""
    width = np.min_scalar_type(int(max(original_keys.max(initial=0), synthetic_keys.max(initial=0))))
    return original_keys.astype(width), synthetic_keys.astype(width)
