"""The schema: which variables there are, who owns them, and which categories each has, in order.

Categories are declared in the study and never discovered from data. A code is the position of a category in
`Variable.labels`; everything behind the party's reader works with codes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

MAX_STATES = 65_536
"""Codes are uint8 or uint16."""

_WIDE = 5.0

_UNWRITABLE = frozenset(
    map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF))
)
"""What the formats of a release cannot carry (XML 1.0 has no control characters), or lose at the ends of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """How missing values are written in the source, and the category that they become."""

    category: str
    spellings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable of the study.

    Attributes:
        name: the study's name for it.
        owner: name of the party that holds it.
        labels: all categories in order, those of `other` and `missing` and the derived ones of bins included; at least two.
        bins: finite, increasing edges; bin b is [edge_b, edge_b+1); None for a categorical variable.
        integer: synthetic values are whole numbers inside the bin.
        representatives: the synthetic value of each bin, inside it; None: values are spread over the bin.
        means: the mean of each bin's synthetic values, inside it, in place of an even spread; None: none is declared.
        outside: a number outside the bins goes into the nearest one, whatever this says: "clamp" beside bins, "error" beside
            categories and in older studies, whose digests it keeps.
        other: the category that an unseen value becomes; None: the site draws a declared category in its place.
        missing: spellings of missing values and their category; None: an empty value is an unseen value like any other.
        origin: where the categories or bins come from, as the study's author says: "table", the data themselves, or "public",
            public knowledge; None: the study does not say.
        kind: the type, of `KINDS`; None: the study states none, and records are written as version 1.0.0 wrote them. Bins and
            points of dates are days since 1970-01-01, of moments seconds since then, of times of day seconds since midnight.
        points: values with a category of their own, ascending, exact in records; behind the bins.
        unit: of numbers, for people.
        decimals: that numbers are written with.
        format: how records write dates, moments or times (`written_values.dates`); None: by ISO 8601.
        timezone: of moments, an IANA name; None: they have none.
        endings: digits that values end in as records write them, and the share of each (`study.endings`).
        groups: category -> the values of the table that it stands for.
        group_by: how a value becomes its category: ``prefix:N``, its first N letters; None: not so.
        bounds: where the bins are measured with noise, the values that they cover at most, by public knowledge; `bins` are equal
            widths between them until they are measured, and what was measured afterwards. None: the bins are declared.
        profile: with `bounds`, once they are measured, the noisy counts that the bins and points follow from
            (`numerics.estimation.profiles`).
        ordered: whether the order of bins, or of the categories of the type "ordered", is used under noise.
    """

    name: str
    owner: str
    labels: tuple[str, ...]
    bins: tuple[float, ...] | None = None
    integer: bool = False
    representatives: tuple[float, ...] | None = None
    means: tuple[float, ...] | None = None
    outside: Literal["error", "clamp"] = "error"
    other: str | None = None
    missing: Missing | None = None
    origin: str | None = None
    kind: str | None = None
    points: tuple[float, ...] = ()
    unit: str | None = None
    decimals: int | None = None
    format: str | None = None
    timezone: str | None = None
    endings: tuple[tuple[str, float], ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    group_by: str | None = None
    bounds: tuple[float, float] | None = None
    profile: tuple[int, ...] = ()
    ordered: bool = True

    def __post_init__(self) -> None:
        if not 2 <= len(self.labels) <= MAX_STATES:
            raise ValueError(f"variable '{self.name}': {len(self.labels)} categories, expected 2 to {MAX_STATES}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"variable '{self.name}': categories are not distinct")
        for word, numbers in (("representatives", self.representatives), ("means", self.means)):
            if numbers is not None and len(numbers) != self.n_bins:
                raise ValueError(f"variable '{self.name}': {len(numbers)} {word} of {self.n_bins} bins")
        for what, text in (
            ("its name", self.name),
            ("its owner", self.owner),
            *(("a category", label) for label in self.labels),
        ):
            if not text or text != text.strip() or any(character in _UNWRITABLE for character in text):
                raise ValueError(
                    f"variable {self.name!r}: {what} is {text!r}, expected text without blanks at its ends and control characters"
                )

    @property
    def n_states(self) -> int:
        """Number of categories, K."""
        return len(self.labels)

    @property
    def n_bins(self) -> int:
        """Number of bins; 0 for a categorical variable. The bins are the first categories."""
        return len(self.bins) - 1 if self.bins else 0

    @property
    def n_valued(self) -> int:
        """Number of categories that stand for a value on the variable's scale: bins, then points. Words come behind them."""
        return self.n_bins + len(self.points)

    @property
    def order(self) -> tuple[int, ...]:
        """Codes of the categories that have an order, in their order; empty: there is none, or it is not used.

        Bins are in order, and so are the categories of the type "ordered", but for those of `other` and `missing`.
        """
        if not self.ordered:
            return ()
        if self.bins is not None:
            return tuple(range(self.n_bins))
        if self.kind != "ordered":
            return ()
        words = {self.other, None if self.missing is None else self.missing.category}
        return tuple(code for code, label in enumerate(self.labels) if label not in words)

    @property
    def wide_bins(self) -> tuple[int, ...]:
        """Bins more than `_WIDE` times as wide as the widest of their neighbours, two on each side, ascending.

        >>> income = (0.0, 1.0, 10.0, 20.0, 30.0, 900.0)
        >>> Variable(name="x", owner="a", labels=tuple("abcde"), bins=income).wide_bins
        (4,)
        """
        widths = [high - low for low, high in itertools.pairwise(self.bins or ())]
        return tuple(
            place
            for place, width in enumerate(widths)
            if width > _WIDE * max([*widths[max(place - 2, 0) : place], *widths[place + 1 : place + 3]], default=width)
        )

    @property
    def code_dtype(self) -> DTypeLike:
        """uint8 up to 256 categories, else uint16."""
        return np.uint8 if len(self.labels) <= 256 else np.uint16


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The study's variables in their declared order, which is the column order of the release.

    Attributes:
        variables: the variables; names are distinct.
    """

    variables: tuple[Variable, ...]
    _index: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for position, variable in enumerate(self.variables):
            if self._index.setdefault(variable.name, position) != position:
                raise ValueError(f"variable '{variable.name}' is declared twice")

    def __len__(self) -> int:
        return len(self.variables)

    def __getitem__(self, position: int) -> Variable:
        return self.variables[position]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def index(self, name: str) -> int:
        """Position of the variable called `name`.

        Raises:
            KeyError: there is none.
        """
        return self._index[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The variables' names in order."""
        return tuple(variable.name for variable in self.variables)

    @property
    def n_states(self) -> tuple[int, ...]:
        """K of each variable in order."""
        return tuple(variable.n_states for variable in self.variables)

    def owned_by(self, party: str) -> tuple[int, ...]:
        """Positions of the variables of one party, in order."""
        return tuple(i for i, variable in enumerate(self.variables) if variable.owner == party)
