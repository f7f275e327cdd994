"""Where a study leaves open what its records come from: as much of the joint model and of the network as is nearest to the truth.

With T the true tables of pairs, J the joint model's, N the network's and D = J - N, the tables N + b D are nearest to T, cell by
cell weighed with W, at b = sum W D (T - N) / sum W D^2. T is not known, but an unbiased estimate F of it is: the counts through
the inverse of the channels. What F shows of chance D has in it, too, so

    b = (sum W D (F - N) - C) / sum W D^2,      C = the expectation of sum W D (F - T),

in which C, a covariance, hardly depends on the truth. It is counted in a world in which that is known: the network stands for
it. People are drawn from it, randomized and counted as these were, and both models are made of them, J* by the same estimate, N*
with the same arrows; C is the median of sum W (J* - N*) (F* - T*) in `WORLDS` such worlds.

With noise on the tables F is J itself, and so is F*: F has all of the noise in it, and a mixture, which is not made of the
network's records, does not lean towards them. (A joint model of weighted records does, where noise is large: it starts from the
network and stops before it is at T. By J in the place of F, b was too small for columns at epsilon 2 and 3.)

Where the network says all that there is to say, b is near 0: J repeats the chance of these people. Where it leaves out what the
tables show, D is far larger than chance makes it, and b is near 1. So estimates are shrunk towards a model (James & Stein 1961),
with a covariance that is simulated (Efron 2004), because J is no linear function of what was measured.

The distance by which records are judged, a sum of absolute differences, is convex: N + b D is never farther from T than the
farther of the two, and often nearer than both, because their errors differ; and an error of b costs little. Where a tenth or less
is of one model, it is left out (`_LEAST`): then the other is as good. W is 1 over the root of the network's share of the cell,
which an error of it is in proportion to: so each cell counts as in that sum.

The blend is weighted records. Where the joint model is the network's own records, weighed, it is the mean of both weights of the
same records; else records of both, drawn in that proportion. Then they are weighed until they have the tables N + b D, so that
the scatter of what was drawn is not published. Wide tables have more cells than there are records to weigh, so no weights give
that: then the nearer one is taken alone, b rounded. Everything is a function of what the models were made of and the study's
seed: of noisy tables alone, where tables have noise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
from collections.abc import Callable
from typing import Final

import numpy as np

from verticil.miner.learning.full_likelihood import source_of_records
from verticil.miner.learning.held_out import quick_network
from verticil.miner.learning.model_tables import ModelTables, observed_of
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.counting import all_pair_tables
from verticil.shared.core.arrays import Codes, Floats, distinct_rows
from verticil.shared.numerics.estimation.estimators import inverse_estimate
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate, exactly, too_few_records
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.replicates import MOST, people, redrawn
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.elimination import TooWideError, network_pair
from verticil.shared.numerics.model.joint import JointModel, WeightedRecords
from verticil.shared.numerics.model.network import Network
from verticil.shared.synthesis.synthesis import sample_codes

WORLDS: Final = 3
_LEAST: Final = 0.1
_EXACT_PAIRS: Final = 1000
_SAMPLE: Final = 1_000_000
_SWEEPS: Final = 10
_GOAL: Final = 0.02
"""How near to the tables of N + b D the records are weighed: what is left adds a hundredth to the scatter of these people."""


def blend_models(
    joint: JointEstimate,
    network: Network,
    tables: NoisyTables,
    *,
    seed: int,
    support: Support | None = None,
    progress: Callable[[float], None] = lambda _share: None,
    check: Callable[[], None] = lambda: None,
) -> JointEstimate:
    """Put as much of the network into a joint estimate as is nearest to the truth.

    Args:
        joint: of all tables.
        network: that was learned from the same.
        tables: what both were made of.
        seed: of all that is drawn.
        support: what every record meets; None: nothing.
        progress: is told the share that is done.
        check: is called between short steps, and raises to stop.

    Returns:
        The estimate with another model and the share of the joint one in it; at 0 that is the network, whose records are not in
        the model.
    """
    own = _records(network, joint, tables, seed, support)
    ours, theirs, truth = _shares(joint.model), _network_shares(network, support, check), _shares(own)
    weights = [np.maximum(share, 0.5 / tables.people) ** -0.5 for share in theirs]
    apart = _sum(weights, _minus(ours, theirs), _minus(ours, theirs))
    projection = _sum(weights, _minus(ours, theirs), _minus(_looked_at(tables, ours), theirs))
    chances: list[float] = []
    for world in range(WORLDS):
        other_tables, again, other = _again(network, tables, own, seed=seed + 1 + world, support=support, check=check)
        other_shares = _shares(again.model)
        chance = _sum(
            weights,
            _minus(other_shares, _network_shares(other, support, check)),
            _minus(_looked_at(other_tables, other_shares), truth),
        )
        chances.append(other_tables.people / tables.people * chance)
        progress((1 + world) / WORLDS)
    share = share_of_joint(projection - statistics.median(chances), apart)
    if too_few_records(tables):
        share = float(share >= 0.5)
    if share in (0.0, 1.0):
        return dataclasses.replace(joint, share=share)
    pairs = itertools.combinations(range(len(tables.n_states)), 2)
    between: dict[tuple[int, ...], Floats] = {
        pair: share * a + (1 - share) * b for pair, a, b in zip(pairs, ours, theirs, strict=True)
    }
    codes, drawn_so = _mix_records(joint, network, tables, share, support=support, rng=np.random.default_rng([seed, 8]))
    mixture = atoms.rake(exactly(between, tables), codes, drawn_so, sweeps=_SWEEPS, goal=_GOAL, work=Work(check=check))
    return dataclasses.replace(joint, model=mixture.model, share=share)


def share_of_joint(above: float, below: float) -> float:
    """Return b, from what is above and below the line; 0 where both models are the same.

    >>> [share_of_joint(above, 2.0) for above in (-1.0, 0.1, 1.5, 1.9, 3.0)]
    [0.0, 0.0, 0.75, 1.0, 1.0]
    """
    share = above / below if below > 0 else 0.0
    return 0.0 if share <= _LEAST else 1.0 if share >= 1 - _LEAST else share


def _again(
    network: Network,
    tables: NoisyTables,
    own: WeightedRecords,
    *,
    seed: int,
    support: Support | None,
    check: Callable[[], None],
) -> tuple[NoisyTables, JointEstimate, Network]:
    """Return the tables of other people, who are drawn from the network's records, and what both models are by them.

    Of columns at most `MOST` people are drawn, and the tables say how many: chance is larger by the ratio.
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, 0], counter=[0, 0, 0, 2]))
    possible, zeros = (None, None) if support is None or not support.restricts else (support.holds, support.zeros)
    if tables.has_noise:
        new_tables = redrawn(tables, own, generator)
        new_tables = new_tables if zeros is None else new_tables.without(zeros)
        joint_estimate = estimate(new_tables, seed=seed, allowed=possible, zeros=zeros, check=check)
        counts_of_families: FamilyTables = ModelTables(joint_estimate.model, new_tables.people, network.schema.names)
        other = quick_network(network.schema, network.dag, counts_of_families, prior_count=0.0, support=support)
        return dataclasses.replace(new_tables, n_records=round(tables.people)), joint_estimate, other
    columns = [c.astype(np.uint16) for c in people(tables, own, min(round(tables.people), MOST), generator)]
    counts_of_families = FamilyTables([c.ravel() for c in columns], tables.units, tables.n_states, check=check)
    other = quick_network(network.schema, network.dag, counts_of_families, prior_count=None, support=support)
    new_tables = from_columns(columns, tables.units, tables.n_states, check=check)
    source = source_of_records(other, columns, tables, is_restricted=zeros is not None, check=check)
    records = _make_sampler(source, support)
    return (
        new_tables,
        estimate(new_tables, seed=seed, records=records, allowed=possible, zeros=zeros, check=check),
        other,
    )


def _records(
    network: Network, joint: JointEstimate, tables: NoisyTables, seed: int, support: Support | None
) -> WeightedRecords:
    """Return possible records of a network: those that a joint model was made of, or others."""
    if joint.drawn is not None and isinstance(joint.model, WeightedRecords):
        return dataclasses.replace(joint.model, weights=joint.drawn)
    n, rng = atoms.n_atoms(tables.n_states), np.random.default_rng([seed, 7])
    codes, _, weights = atoms.draw([_make_sampler(network, support)], n, joint.start, tables.units, rng=rng)
    return WeightedRecords(n_states=tables.n_states, codes=codes[weights > 0], weights=weights[weights > 0])


def _make_sampler(source: Network | JointModel, support: Support | None) -> atoms.Records:
    by = rake(source, support)

    def records(n: int, generator: np.random.Generator) -> list[Codes]:
        return sample_codes(source, n, generator=generator, support=by)

    return records


def _mix_records(
    joint: JointEstimate,
    network: Network,
    tables: NoisyTables,
    share: float,
    *,
    support: Support | None,
    rng: np.random.Generator,
) -> tuple[atoms.AtomCodes, Floats]:
    """Return b of the joint model's records and 1 - b of the network's, with weights; all possible."""
    model = joint.model
    if joint.drawn is not None and isinstance(model, WeightedRecords):
        weights = share * model.weights + (1 - share) * joint.drawn
        return model.codes[weights > 0], weights[weights > 0]
    n = atoms.n_atoms(tables.n_states)
    sizes = round(share * n), n - round(share * n)
    parts = [_make_sampler(source, support)(size, rng) for source, size in zip((model, network), sizes, strict=True)]
    codes = np.concatenate([np.stack(part, axis=1) for part in parts]).astype(np.uint16)
    for unit in tables.units:
        codes = codes[atoms.categories_of(codes, unit) >= 0]
    codes, _, counts = distinct_rows(codes)
    return codes, counts / counts.sum()


def _network_shares(network: Network, support: Support | None, check: Callable[[], None]) -> list[Floats]:
    """Return the tables of all pairs: exact, or of a million records where there are many or elimination is too large."""
    states = network.schema.n_states
    pairs = list(itertools.combinations(range(len(states)), 2))
    shares: list[Floats] = []
    support = rake(network, support)
    rules = () if support is None else support.limits
    with contextlib.suppress(TooWideError):
        for pair in pairs if len(pairs) <= _EXACT_PAIRS else ():
            check()
            shares.append(network_pair(network, *pair, rules))
    if len(shares) < len(pairs):
        check()
        sample = sample_codes(network, _SAMPLE, generator=np.random.default_rng(0), support=support)
        tables = all_pair_tables(sample, states, check=check)
        shares = [tables.table(*pair) / _SAMPLE for pair in pairs]
    return shares


def _shares(model: JointModel) -> list[Floats]:
    """Return the tables of all pairs."""
    return [model.shares(pair) for pair in itertools.combinations(range(len(model.n_states)), 2)]


def _looked_at(tables: NoisyTables, ours: list[Floats]) -> list[Floats]:
    """Return F: unbiased estimates of all pairs; with noise on the tables the joint model's."""
    if tables.has_noise:
        return ours
    estimates: list[Floats] = []
    for pair in itertools.combinations(range(len(tables.n_states)), 2):
        measurement = observed_of(tables, pair)
        assert measurement is not None  # every pair was counted
        _, counts, design = measurement
        estimates.append(inverse_estimate(counts, design) / tables.people)
    return estimates


def _minus(first: list[Floats], second: list[Floats]) -> list[Floats]:
    return [a - b for a, b in zip(first, second, strict=True)]


def _sum(weights: list[Floats], first: list[Floats], second: list[Floats]) -> float:
    return float(sum((w * a * b).sum() for w, a, b in zip(weights, first, second, strict=True)))
