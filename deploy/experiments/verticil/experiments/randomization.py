"""The data sets of an experiment and their randomized counts, by two paths.

`row_level_tables` releases every record through the party's own `perturb`, under a fresh key for each column and run, and
counts with the miner's own `family_table`. `drawn_tables` draws the released counts of one family directly: the records of a
true cell are spread over the released cells by one multinomial draw, which is the same distribution (randomizations of
different records and columns are independent) at a cost that does not grow with the number of records.

Keys are drawn from the experiment's generator, so that a run can be repeated: these data protect nobody. A site's keys never
come from a seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.published import Design, PrintedNetwork, as_network
from verticil.miner.learning.scoring.counting import family_table
from verticil.party.dataset.perturb import perturb, record_tags
from verticil.shared.core.arrays import Codes, Ints
from verticil.shared.mechanisms.transition import Transition, identity, quantize
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.synthesis.synthesis import sample_codes


class Model(StrEnum):
    """The paper's two models (its section 2)."""

    central = "central"
    """Model II: every sensitive variable is randomized and goes to the miner."""
    peer = "peer"
    """Model I: only parents at another site than their child's are randomized, and go to that site."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """A data set.

    Attributes:
        codes: (n,) for each variable.
        tags: (n, 14), see `verticil.party.dataset.perturb`.
    """

    codes: Mapping[str, Codes]
    tags: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.tags)


def draw_records(network: PrintedNetwork, n: int, generator: np.random.Generator) -> Records:
    """Draw n independent records from a network, and a secret with their tags."""
    codes = sample_codes(as_network(network), n, generator=generator, method="independent")
    tags = record_tags(generator.bytes(32), map(str, range(n)))
    return Records(codes={node.name: column for node, column in zip(network.nodes, codes, strict=True)}, tags=tags)


def true_table(network: PrintedNetwork, records: Records, child: str, *, n: int | None = None) -> Ints:
    """The counts of a family in the first n records as they are; axes: parents as printed, child."""
    return family_table([records.codes[name][:n] for name in network.family(child)], network.shape(child))


def family_channels(network: PrintedNetwork, design: Design, child: str, model: Model) -> tuple[Transition, ...]:
    """The matrix of each axis of a family's table under a model; the identity where a variable is not randomized.

    Raises:
        ValueError: Model I, and the paper does not say who holds a variable.
    """

    def randomized(name: str) -> bool:
        return name in design and (model is Model.central or network.site(name) != network.site(child))

    return tuple(
        design[name] if randomized(name) else quantize(identity(network.node(name).n_states))
        for name in network.family(child)
    )


def released_columns(network: PrintedNetwork, design: Design, model: Model) -> tuple[str, ...]:
    """The randomized variables that leave their site under a model, in the order of the network's nodes."""
    sent = {
        name
        for node in network.nodes
        for name, channel in zip(
            network.family(node.name), family_channels(network, design, node.name, model), strict=True
        )
        if not channel.is_identity
    }
    return tuple(node.name for node in network.nodes if node.name in sent)


def row_level_tables(
    network: PrintedNetwork,
    design: Design,
    records: Records,
    children: Sequence[str],
    *,
    runs: int,
    generator: np.random.Generator,
    model: Model = Model.central,
    sizes: Sequence[int] = (),
) -> dict[str, Ints]:
    """Randomize all records `runs` times and count each child's family.

    Args:
        network: structure.
        design: matrices.
        records: the data set, the same in all runs.
        children: whose families to count.
        runs: independent randomizations; each variable is released once in a run, whoever receives it.
        generator: of the keys.
        model: which axes of a family are randomized.
        sizes: ascending numbers of records, the last all of them; the default is that one alone. What a record releases does
            not depend on how many others there are.

    Returns:
        For each child (sizes, runs, K_parent_1, .., K_child), int64: counts of the first n records, for each n in `sizes`.
    """
    ends = tuple(sizes) or (len(records),)
    randomized = {
        (child, name): not channel.is_identity
        for child in children
        for name, channel in zip(network.family(child), family_channels(network, design, child, model), strict=True)
    }
    tables = {child: np.zeros((len(ends), runs, *network.shape(child)), dtype=np.int64) for child in children}
    for run in range(runs):
        released = {
            name: perturb(generator.bytes(32), records.tags, records.codes[name], design[name])
            for name in sorted({name for (_, name), sent in randomized.items() if sent})
        }
        for child, table in tables.items():
            columns = [(released if randomized[child, name] else records.codes)[name] for name in network.family(child)]
            for number, (start, stop) in enumerate(zip((0, *ends), ends, strict=False)):
                table[number, run] = family_table([column[start:stop] for column in columns], network.shape(child))
    return {child: table.cumsum(axis=0) for child, table in tables.items()}


def drawn_tables(true: Ints, channels: Sequence[Transition], *, runs: int, generator: np.random.Generator) -> Ints:
    """Draw the released counts of one family.

    Args:
        true: (K_1, .., K_m), counts of the records as they are.
        channels: matrix of each axis.
        runs: independent randomizations.
        generator: source of the draws.

    Returns:
        (runs, K_1, .., K_m), int64.
    """
    forward = [axis.forward for axis in as_design(channels).axes]
    released = np.zeros((runs, true.size), dtype=np.int64)
    for cell, count in enumerate(true.flat):
        one_record = np.zeros(true.size)
        one_record[cell] = 1.0
        spread = apply_axes(one_record.reshape(true.shape), forward).ravel()
        released += generator.multinomial(int(count), spread / spread.sum(), size=runs)
    return released.reshape(runs, *true.shape)
