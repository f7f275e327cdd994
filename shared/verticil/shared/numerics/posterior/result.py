"""What a study with sampled graphs learned: the graphs, networks drawn with them, and what follows with their uncertainty.

Martins, Gonçalves & Galletti, section 2: nothing is said of one graph that was chosen; what is said holds over the graphs that
the released data leave possible, each as often as it is probable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network, PairEstimate
from verticil.shared.numerics.posterior.predictive import Predictive
from verticil.shared.numerics.posterior.sample import GraphSample

Source = Literal["records", "randomized", "noisy-tables"]
"""What the graphs were scored by: records as they are, randomized columns, or tables with noise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StructurePosterior:
    """The structure's uncertainty, and what is said with it.

    Attributes:
        sample: the graphs, with the probability of every edge and how well the chains agree.
        source: what the graphs were scored by.
        consensus: of all graphs within the limits the one with the largest sum of P(parent -> child), over the pairs that are
            linked, in one direction or the other, with a probability of one half or more.
        networks: each a graph of the sample with probabilities drawn given the graph and what was released.
        pairs: the pairs of the consensus's edges and those that the study names: mean over the draws of (graph, probabilities),
            and a band that holds the whole table with the study's level.
        predictive: of the statistics that the study names, in their order.
        missing: (variable, records whose value is missing) of each variable whose missing values were unknowns of the sample;
            None: a missing value is a category like another.
        moved: how far what was learned from moves an edge's probability from the prior's, at most (`influence`); None: of noisy
            tables and of missing values that were drawn it is not known.
        constant: variables that have one value in all released records.
    """

    sample: GraphSample
    source: Source
    consensus: Dag
    networks: tuple[Network, ...]
    pairs: tuple[PairEstimate, ...] = ()
    predictive: tuple[Predictive, ...] = ()
    missing: tuple[tuple[int, int], ...] | None = None
    moved: float | None = None
    constant: tuple[int, ...] = ()
