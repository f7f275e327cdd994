"""What a study may name, how large it may be, and how a rule that it breaks is said.

Each way to a structure has one line here, and one where the miner registers it (`verticil.miner.learning.structure`). The schemes
of randomization stand in `verticil.shared.study.schemes`, the estimators in `verticil.shared.numerics.estimation.estimators`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from verticil.shared.core.errors import Misuse

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MAX_VARIABLES: Final = 1024
MAX_CELLS: Final = 700_000
"""Cells of all matrices together. Written out in decimal they then stay below 16 MiB."""
MAX_COMBINATIONS: Final = 100_000
"""Combinations of a compound's categories, the impossible ones among them: what is enumerated to make its domain."""
MAX_TEXT: Final = 200
"""Letters in a name or label."""
MAX_PURPOSE: Final = 4000
MAX_SAFE: Final = 2**53 - 1
"""The largest whole number that RFC 8785 can write."""
LARGEST_DELTA: Final = 1e-2
"""Of noise; delta is the chance that the promise of epsilon fails altogether."""

LINKAGE_MODES: Final = ("keyed-hash", "order-commitment", "dh-psi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inapplicable:
    """Why a model or a method has no use for a key of a study.

    Attributes:
        problem: why.
        hint: what to do.
        code: of the error.
    """

    problem: str
    hint: str = "remove it"
    code: str = "STUDY_INVALID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to a structure, as a study names it; the miner registers each search under its name.

    Attributes:
        scores: what it can make large; the first is its default.
        on_pairs: it needs nothing but the scores of pairs; between peers no node has more.
        keys: of the study's structure that go with it and with no other.
        one_parent: a variable has one parent at most.
        whole_table: it measures its own tables, where one organisation has all columns; else it needs noisy tables.
        samples: it finds no graph but a sample of the graphs that the data leave possible; its scores know what noise leaves of
            counts, so they take randomized columns and noisy tables.
        inapplicable: keys of a study that it has no use for; see `study.inapplicable`.
    """

    scores: tuple[str, ...] = ("mutual-information",)
    on_pairs: bool = False
    keys: tuple[str, ...] = ()
    one_parent: bool = False
    whole_table: bool = False
    samples: bool = False
    inapplicable: Mapping[str, Inapplicable] = field(default_factory=dict)


METHODS: Final = {
    "genetic": Method(on_pairs=True),
    "greedy": Method(),
    "order": Method(on_pairs=True, keys=("order",)),
    "tree": Method(on_pairs=True, one_parent=True),
    "hill-climb": Method(scores=("bic", "bic-noise", "bdeu"), keys=("hill_climb",)),
    "given": Method(
        inapplicable={
            "structure.minimum_strength": Inapplicable(problem="is about edges that are found: it goes with a search")
        }
    ),
    "privbayes": Method(scores=("total-variation",), whole_table=True),
    "posterior": Method(
        scores=("bdeu", "dirichlet"),
        samples=True,
        inapplicable={
            "structure.minimum_strength": Inapplicable(
                problem="takes edges out of one graph that was found, and the method 'posterior' publishes how probable "
                "each edge is"
            )
        },
    ),
    "auto": Method(scores=("auto",), on_pairs=True, keys=("prefer",)),
}
PREFERENCES: Final = ("synthesis", "structure")
MAX_GREEDY_FAMILIES: Final = 2**24
"""Families that the greedy search may have to count: with two parents those of some 460 variables."""
MAX_EXACT: Final = 15
"""Most variables that may stand in any order, for the exact search over orders."""
PRIORS: Final = ("dirichlet",)
PAIRS: Final = ("structure", "all")
"""Which pairs of columns are measured where a study has related tables."""
SAMPLING: Final = ("systematic", "independent", "without-replacement")
SOURCES: Final = ("joint", "network", "posterior")
GRAPH_PRIORS: Final = ("uniform", "penalty")
MISSING: Final = ("category", "augment")
WITHIN_BINS: Final = ("declared", "estimated")
NEGATIVE: Final = ("simplex", "clip")
"""How PrivBayes avoids negative counts."""
NEIGHBOURS: Final = ("replace", "add-remove")
"""Which tables the epsilon of PrivBayes compares."""
STATISTICS: Final = {
    "mle": '["mle", "VARIABLE", "CATEGORY", "GIVEN", "ITS CATEGORY", ..]',
    "chi-square": '["chi-square", "ONE", "OTHER"]',
    "linear": '["linear", "RESPONSE", "PREDICTOR", "BESIDES", ..]',
    "logistic": '["logistic", "RESPONSE", "ITS CATEGORY", "PREDICTOR", "BESIDES", ..]',
    "mean": '["mean", "VARIABLE WITH BINS", "GIVEN", "ITS CATEGORY", ..]',
    "overlap": '["overlap", "VARIABLE", "CATEGORY", "GIVEN", "ITS CATEGORY", ..]',
}
"""What a study with sampled graphs may ask of the records that the posterior predicts, and how it is written."""
MAX_SAMPLED: Final = 64
"""Most variables of a study whose graphs are sampled: a set of parents is one word of the machine."""
MAX_SET_CELLS: Final = 2**28
"""Of all the sets of synthetic records that are drawn from sampled networks: records times variables."""
MAX_CHAIN_BYTES: Final = 2**27
"""Of the state of all chains that sample graphs, which a checkpoint writes whole. Only replicates can have more."""
KEPT_GRAPHS: Final = 4_000
"""Most graphs that a chain keeps."""
MIXED_REPLICATES: Final = 10
"""Replicates of a joint model of noisy tables by which graphs are sampled, each by chains of its own."""
TABLE: Final = "table"
PUBLIC: Final = "public"
ORIGINS: Final = (TABLE, PUBLIC)
"""Where a column's categories or bins come from, as the study's author says: the data themselves, or public knowledge."""
PLACEHOLDERS: Final = {"title": "Draft", "purpose": "To be written"}
"""What a draft writes for the keys that only its author can write."""
NORMALISE_STEPS: Final = ("nfkc", "trim", "casefold", "digits-only")


def scores() -> tuple[str, ...]:
    """Return the scores that any method can make large."""
    return tuple(dict.fromkeys(score for method in METHODS.values() for score in method.scores))


def pair_methods() -> tuple[str, ...]:
    """Methods that need nothing but the scores of pairs; between peers no node has more."""
    return tuple(name for name, method in METHODS.items() if method.on_pairs)


def starts_a_formula(text: str) -> bool:
    """Return whether a spreadsheet that opens a CSV file with this text would compute something instead of showing the text.

    Signs alone, such as the result ``+`` of a test, are shown.

    >>> [starts_a_formula(text) for text in ("=1+1", "@SUM(A1)", "-1+1", "-", "-3.5", "+2e3", "a=b")]
    [True, True, True, False, False, False, False]
    """
    return text[:1] in {"=", "+", "-", "@", "\t"} and bool(text.strip("+-")) and _NUMBER.fullmatch(text) is None


def check_privacy(where: str, epsilon: float, delta: float) -> None:
    """Refuse an epsilon and a delta of noise that promise nothing.

    Raises:
        Misuse: STUDY_INVALID.
    """
    if not 0 < epsilon < math.inf:
        fail(f"{where}.epsilon", f"got {epsilon:g}, expected a finite number > 0")
    if not 0 < delta <= LARGEST_DELTA:
        fail(
            f"{where}.delta",
            f"got {delta:g}, expected more than 0 and at most {LARGEST_DELTA:g}",
            hint="delta is the chance that the promise fails: take far less than 1 in the number of people",
        )


def fail(where: str, problem: str, *, hint: str = "") -> NoReturn:
    """Raise `Misuse` with the code STUDY_INVALID."""
    raise Misuse("STUDY_INVALID", f"{where}: {problem}", hint=hint)
