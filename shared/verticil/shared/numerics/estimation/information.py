"""How much two variables tell about each other, estimated from randomized columns.

Two questions, answered by different numbers:

- *Is there anything?* A test of independence: `independence`. A pair that fails it has information 0.
- *How much?* The mutual information of the released pair is attenuated and useless as a value. The table that the EM finds
  behind the released one (`estimators`; `_STEPS` steps) has it, with two errors. Each is measured by drawing released tables of
  n records, seeded, and running the same EM on them (parametric bootstrap):

  - noise looks like dependence: the mean information of tables drawn from independent variables with the same shares is taken
    off;
  - noise spreads what is concentrated, so of a strong link some is lost: where tables drawn from the EM's own table have less
    information than it, the difference is added, times the part of the information that the first correction left.

  A formula of second order in the noise cannot do that: the bias that it finds for variables of many categories exceeds
  the information of a pair that is a function.

Without randomization nothing is drawn: the mean under independence is the familiar (K_a - 1)(K_b - 1) / 2n, of the categories
that occur.

How tables are drawn: of columns with one code a record as multinomial counts. Of subset columns, where a record is in several
cells, and where noise was added to the counts, as normal ones with the second moments that records have under independence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.numerics.estimation.axes import apply_axes, plogp
from verticil.shared.numerics.estimation.estimators import along, em_start, em_tables
from verticil.shared.numerics.estimation.independence import as_pair, dependence_p_value
from verticil.shared.numerics.estimation.inverse_estimation import Design, FamilyDesign

Matrices: TypeAlias = list[Floats | None]

_STEPS: Final = 60
"""Of the EM."""
_DRAWS: Final = 4
"""Tables of each kind: only their mean is used."""
_SEED: Final = 11
_BATCH: Final = 2**18
"""Cells of the tables that are fitted together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """What the released table of a family says of its true one.

    Attributes:
        information: nats, >= 0, of the last variable and the joint of the others.
        table: (J, K), the estimated shares: of the others' joint categories and of the last variable's.
        noise: by how much such an estimate is wrong for sampling and randomization alone: mean total variation distance.
    """

    information: float
    table: Floats
    noise: float


def pair_information(table: Counts, design: Design, *, level: float, noise_variance: float = 0.0) -> float:
    """Estimate the mutual information of two variables.

    Args:
        table: counts of released records (`contingency.family_counts`): one axis for each unit, in the design's order.
        design: of the two variables, or the channels of both columns.
        level: of the test of independence.
        noise_variance: of independent noise that was added to every cell of `table`, which may then be negative.

    Returns:
        Nats; 0 where the test does not reject, or there is not more than under independence.

    Raises:
        ValueError: the design does not fit the table, or is not one of two variables.
    """
    design = as_pair(design)
    if not dependence_p_value(table, design, noise_variance=noise_variance) < level:
        return 0.0
    return links([(table, design)], noise_variance=noise_variance)[0].information


def plug_in_information(table: Counts) -> float:
    """Mutual information of a table, nats; negative cells count as 0, the rest is scaled to sum 1.

    >>> round(plug_in_information(np.array([[50, 0], [0, 50]])), 6)  # ln 2
    0.693147
    """
    return float(_information(np.maximum(table, 0.0)[None])[0])


def links(
    families: Sequence[tuple[Counts, FamilyDesign]],
    *,
    noise_variance: float = 0.0,
    raise_if_cancelled: Callable[[], None] | None = None,
) -> list[Link]:
    """Estimate what many families say of the last variable and the joint of the others; nothing is tested.

    Tables of one shape are fitted together; what a family gets does not depend on the others.

    Args:
        families: observed table and design of each, see `pair_information`.
        noise_variance: of all tables.
        raise_if_cancelled: called between short pieces of work; may raise.

    Returns:
        Of each family; of one without records no information and no table.

    Raises:
        ValueError: a design does not fit its table.
    """
    answers = [Link(information=0.0, table=np.zeros((0, 0)), noise=0.0)] * len(families)
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, (table, design) in enumerate(families):
        design.fits(table)
        if float(table.sum()) <= 0:
            continue
        if not noise_variance and all(axis.channel.is_identity for axis in design.axes):
            answers[place] = _exact(design.estimate(table))
            continue
        plain = all(axis.cells is None for axis in design.axes)
        shape = tuple((axis.n_entries, axis.forward is None) for axis in design.axes)
        alike.setdefault((shape, design.shape, None if plain else place), []).append(place)
    for places in alike.values():
        size = max(_BATCH // (families[places[0]][0].size * 2 * _DRAWS), 1)
        for first in range(0, len(places), size):
            some = places[first : first + size]
            if raise_if_cancelled is not None:
                raise_if_cancelled()
            for place, link in zip(
                some, _links_of_shape([families[place] for place in some], noise_variance), strict=True
            ):
                answers[place] = link
    return answers


def _information(tables: Floats) -> Floats:
    """(..,) of tables (.., J, K) that are not negative."""
    total = tables.sum(axis=(-2, -1), keepdims=True)
    cells = np.divide(tables, total, out=np.zeros(tables.shape), where=total > 0)
    product = cells.sum(axis=-1, keepdims=True) * cells.sum(axis=-2, keepdims=True)
    ratio = np.divide(cells, product, out=np.ones_like(cells), where=cells > 0)
    return np.asarray((cells * np.log(ratio)).sum(axis=(-2, -1)), dtype=np.float64)


def _exact(table: Floats) -> Link:
    n, table = float(table.sum()), table.reshape(-1, table.shape[-1])
    n_nonempty = [int(np.count_nonzero(table.sum(axis=side))) for side in range(2)]
    information = max(plug_in_information(table) - (n_nonempty[0] - 1) * (n_nonempty[1] - 1) / (2 * n), 0.0)
    shares = table / n
    noise = float(np.sqrt(shares * (1 - shares) / (2 * math.pi * n)).sum())
    return Link(information=information, table=shares, noise=noise)


def _links_of_shape(families: Sequence[tuple[Counts, FamilyDesign]], noise_variance: float) -> list[Link]:
    """Return the `links` of families whose tables have one shape; of several, every axis is a variable."""
    designs = [design for _, design in families]
    shares = np.stack([_shares(counts) for counts, _ in families])
    starts = np.stack([em_start(share, design) for share, design in zip(shares, designs, strict=True)])
    forward: Matrices = []
    for axes in zip(*(design.axes for design in designs), strict=True):
        matrices = [axis.forward for axis in axes]
        forward.append(None if matrices[0] is None else np.stack([m for m in matrices if m is not None]))
    fits = em_tables(shares[:, None], starts[:, None], forward, steps=_STEPS, accelerate=True)
    tables = [_cells(fit, design) for fit, design in zip(fits, designs, strict=True)]
    independent = np.stack(
        [_independent(start, table[0], design) for start, table, design in zip(starts, tables, designs, strict=True)]
    )
    draws = np.stack(
        [
            _draw_tables(counts, design, means, noise_variance)
            for (counts, design), means in zip(
                families, along(np.stack([independent, fits[:, 0]], axis=1), forward), strict=True
            )
        ]
    )
    drawn_starts = np.stack(
        [
            np.stack([em_start(table, design) for table in of_family])
            for of_family, design in zip(draws, designs, strict=True)
        ]
    )
    again = em_tables(draws, drawn_starts, forward, steps=_STEPS, accelerate=True)
    answers = []
    for (table,), fit, design in zip(tables, again, designs, strict=True):
        draw_cells = _cells(fit, design)
        information = float(_information(table))
        alone, like_it = _information(draw_cells).reshape(2, -1).mean(axis=1)
        most = min(-plogp(table.sum(axis=side)) for side in range(2))
        more = max(information - alone, 0.0)
        shrinkage = max(information - like_it, 0.0) * more / information if information > 0 else 0.0
        noise = float(np.abs(draw_cells[_DRAWS:] - table).sum()) / (2 * _DRAWS)
        answers.append(Link(information=min(more + shrinkage, most), table=table, noise=noise))
    return answers


def _shares(table: Counts) -> Floats:
    cells = np.maximum(table, 0.0)
    return np.asarray(cells / cells.sum(), dtype=np.float64)


def _cells(fits: Floats, design: FamilyDesign) -> Floats:
    """(r, J, K): the family's own cells of tables over the categories of its units, (r, ..)."""
    spread = [axis.spread for axis in design.axes]
    tables = [design.arrange(apply_axes(fit, spread)) for fit in fits]
    return np.stack(tables).reshape(len(tables), -1, design.shape[-1])


def _independent(start: Floats, table: Floats, design: FamilyDesign) -> Floats:
    """Shares of the units' categories if the last variable were independent of the others, with the margins of `table`."""
    product = np.outer(table.sum(axis=1), table.sum(axis=0))
    now = _cells(start[None], design)[0]
    ratio = np.divide(product, now, out=np.zeros_like(product), where=now > 0).reshape(design.shape)
    members = [member for axis in design.axes for member in axis.members]
    apart = ratio.transpose(members).reshape([axis.n_cells for axis in design.axes])
    back = [None if axis.spread is None else axis.spread.T for axis in design.axes]
    return np.asarray(start * apply_axes(apart, back), dtype=np.float64)


def _draw_tables(table: Counts, design: FamilyDesign, means: Floats, noise_variance: float) -> Floats:
    """Draw shares of released tables, `_DRAWS` around each of some means: (2 * _DRAWS, ..)."""
    generator = np.random.Generator(np.random.Philox(_SEED))
    n = float(table.sum())
    means = np.maximum(means, 0.0)
    means = means / means.sum(axis=tuple(range(1, means.ndim)), keepdims=True)
    if not noise_variance and all(axis.is_linear for axis in design.axes):
        flat = means.reshape(len(means), -1)
        counts = generator.multinomial(round(n), flat[:, None], size=(len(flat), _DRAWS))
        return (counts / round(n)).reshape(-1, *table.shape)
    shares = _shares(table)
    roots: list[Floats | None] = []
    for place, axis in enumerate(design.axes):
        others = tuple(other for other in range(shares.ndim) if other != place)
        values, vectors = np.linalg.eigh(axis.joint_shares(shares.sum(axis=others)))
        roots.append((vectors * np.sqrt(np.maximum(values, 0.0))).T)
    tables = []
    for mean in np.repeat(means, _DRAWS, axis=0):
        noise = apply_axes(generator.standard_normal(table.shape), roots)
        noise = math.sqrt(n) * (noise - noise.sum() * mean)  # a record's entries sum to 1
        noise += math.sqrt(noise_variance) * generator.standard_normal(table.shape)
        tables.append(_shares(n * mean + noise))
    return np.stack(tables)
