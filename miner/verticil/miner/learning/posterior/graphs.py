"""Graphs sampled from their posterior, and the consensus of them.

The consensus is the graph, within the study's limits, with the largest sum of P(parent -> child) over the pairs of variables that
are linked with a probability of one half or more: an edge that most graphs have, in the direction that fits best with the others.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from verticil.miner.learning.posterior.scores import PosteriorScores, local_score
from verticil.miner.learning.posterior.tuning import TUNING
from verticil.miner.learning.scoring.column_groups import processors
from verticil.miner.learning.scoring.scores import PairScores
from verticil.miner.learning.search.order import ExactSearch, OrderSearch
from verticil.miner.learning.search.protocol import (
    UNINTERRUPTED,
    ForeignCheckpoint,
    Interruption,
    LearningCancelled,
    SearchProblem,
    SearchResult,
    Stages,
    run_search,
)
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.posterior.annealed import AnnealedGraphs, can_be_annealed
from verticil.shared.numerics.posterior.chains import Chains, Checkpoint
from verticil.shared.numerics.posterior.influence import edges_moved, most_moved
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.released import ReleasedChains, ReleasedSample, released_counts
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.study.document import Study
from verticil.shared.study.vocabulary import MAX_EXACT

Problem_contra = TypeVar("Problem_contra", contravariant=True)
State = TypeVar("State")
Sample_co = TypeVar("Sample_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """A sample of graphs, and how it was made.

    Attributes:
        sample: the graphs.
        result: the consensus as a search's result: its fitness is the sum of the probabilities of its edges.
        scores: of families; None: they changed with the unknown cells of records.
        moved: how far what was learned from moves an edge's probability from the prior's, at most (`influence`); None: not asked.
        drawn: the same graphs with true counts; None: graphs were sampled by scores, or records were completed.
    """

    sample: GraphSample
    result: SearchResult
    scores: PosteriorScores | None
    moved: float | None = None
    drawn: ReleasedSample | None = None


def sampled_graphs(
    scores: PosteriorScores,
    problem: SearchProblem,
    pairs: PairScores,
    study: Study,
    *,
    progress: Callable[[float], None] | None = None,
    interruption: Interruption = UNINTERRUPTED,
) -> Sampled:
    """Sample graphs, and find their consensus.

    Of few randomized columns the released counts are given: where graphs are few, too, each graph's probability is estimated
    (`posterior.annealed`), else graphs are sampled together with true counts (`posterior.released`). Others are sampled by the
    scores of all sets of parents.

    Args:
        scores: of families.
        problem: limits and constraints; its weights do not count.
        pairs: which candidates a variable has, where there are too many sets.
        study: names the chains, the prior and the seed.
        progress: is told the share that is done.
        interruption: how it is stopped, and gone on with; its checkpoint is of the same scores and study.

    Raises:
        LearningCancelled: `interruption` said so; it brings the checkpoint once the chains have begun.
        ForeignCheckpoint: the checkpoint is of another sample.
        Misuse: STUDY_UNSUPPORTED, too many sets of parents; STUDY_INVALID, there is no graph.
    """
    rule, released_sample = study.posterior, None
    seed, joint = study.structure.seed, scores.joint()
    if joint is None:
        sets = sets_of(scores, problem, pairs, study, interruption)
        chains = Chains(
            chains=rule.chains, steps=rule.steps, threads=_threads(), discarded=rule.burn_in, thinning=rule.thinning
        )
        sample = run_chains(chains, sets, seed, progress, interruption)
        moved_edges = most_moved(sets, prior_of(study))
    else:
        sets = sets_of(None, problem, pairs, study, interruption)
        laid_out = released_counts(*joint, sets, local_score(study.structure.score))
        if can_be_annealed(sets, len(laid_out.released), rule.steps):
            annealing = AnnealedGraphs(
                chains=rule.chains, steps=rule.steps, discarded=rule.burn_in, thinning=rule.thinning
            )
            released_sample = run_chains(annealing, laid_out, seed, progress, interruption)
        else:
            together = ReleasedChains(
                chains=rule.chains, steps=rule.steps, threads=_threads(), discarded=rule.burn_in, thinning=rule.thinning
            )
            released_sample = run_chains(together, laid_out, seed, progress, interruption)
        sample = released_sample.sample
        moved_edges = edges_moved(sample.edge_probability, sets)
    result = consensus(sample, problem, seed=study.structure.seed)
    return Sampled(sample=sample, result=result, scores=scores, moved=moved_edges, drawn=released_sample)


def mixed_graphs(
    parts: Sequence[PosteriorScores],
    problem: SearchProblem,
    pairs: PairScores,
    study: Study,
    *,
    progress: Callable[[float], None],
    stages: Stages,
) -> Sampled:
    """Sample graphs by each of several scores, as many by one as by another, and mix them.

    A graph of a chain by each score comes before the second one by any, in an order drawn anew each time: then chains can be
    compared as always, and a few graphs that are taken evenly are by all scores. What is compared is the log weight less its
    mean by the same score.

    Args:
        parts: scores of families, of replicates.
        problem, pairs, study: see `sampled_graphs`; a chain by one score makes 1 / `TUNING.replicate_share` of the study's steps.
        progress: is told the share that is done.
        stages: each score is one of them.
    """
    rule, seed = study.posterior, study.structure.seed
    burn_in = None if rule.burn_in is None else rule.burn_in // TUNING.replicate_share
    chains = Chains(
        chains=rule.chains,
        steps=max(rule.steps // TUNING.replicate_share, TUNING.least_replicate_steps),
        threads=_threads(),
        discarded=burn_in,
        thinning=rule.thinning,
    )
    samples: list[GraphSample] = []
    for number, scores in enumerate(parts):

        def report(share: float, number: int = number) -> None:
            progress((number + share) / len(parts))

        with stages.stage(f"graphs {number + 1}") as own:
            sets = sets_of(scores, problem, pairs, study, own)
            samples.append(run_chains(chains, sets, seed + number, report, own))
    d, n = samples[0].n_variables, samples[0].n_draws // rule.chains
    masks = np.stack([each.parents.reshape(rule.chains, n, d) for each in samples], axis=2)
    weights = np.stack([(each.log_weight - each.log_weight.mean()).reshape(rule.chains, n) for each in samples], axis=2)
    # Whoever takes every so many of the graphs is to meet every score, also where that many is a multiple of the scores.
    order = np.random.default_rng([seed, len(samples)]).permuted(
        np.tile(np.arange(len(samples)), (rule.chains, n, 1)), axis=2
    )
    masks, weights = np.take_along_axis(masks, order[..., None], axis=2), np.take_along_axis(weights, order, axis=2)
    mixture = GraphSample(
        parents=masks.reshape(-1, d),
        log_weight=weights.reshape(-1),
        chain=np.repeat(np.arange(rule.chains, dtype=np.int16), n * len(samples)),
        steps=chains.steps * len(samples),
        burn_in=chains.burn_in * len(samples),
        every=chains.every,
    )
    return Sampled(sample=mixture, result=consensus(mixture, problem, seed=seed), scores=parts[0])


def sets_of(
    scores: PosteriorScores | None, problem: SearchProblem, pairs: PairScores, study: Study, interruption: Interruption
) -> ParentSets:
    """Return all sets of parents that the study permits; without scores their weights are those of the prior alone."""
    return parent_sets(
        scores or (lambda _child, _parents: 0.0),
        problem.n_states,
        max_parents=problem.max_parents,
        max_family_cells=problem.max_family_cells,
        prior=prior_of(study),
        constraints=problem.constraints,
        candidates=candidate_parents(
            problem,
            pairs,
            most=TUNING.most_sets_of_all_plain if scores and scores.are_plain else TUNING.most_sets_of_all,
        ),
        count_ahead=None if scores is None else scores.count_ahead,
        raise_if_cancelled=interruption.check,
    )


def prior_of(study: Study) -> StructurePrior:
    """Return the prior of graphs that a study names."""
    rule = study.posterior
    return StructurePrior(gamma=rule.gamma, alpha=rule.alpha) if rule.prior == "penalty" else StructurePrior()


def candidate_parents(
    problem: SearchProblem, pairs: PairScores, *, most: int = TUNING.most_sets_of_all
) -> list[tuple[int, ...]] | None:
    """Return the variables that tell the most about each one; None: all, because there are at most so many sets of all."""
    d = len(problem.n_states)
    widest = min(problem.max_parents, d - 1)
    if d * sum(math.comb(d - 1, size) for size in range(widest + 1)) <= most:
        return None
    candidates: list[tuple[int, ...]] = []
    for child in range(d):
        possible = problem.may_have(child)
        ranking = sorted(possible, key=lambda v: (-pairs.information[v, child], pairs.p_value[v, child], v))
        candidates.append(tuple(sorted(ranking[: TUNING.candidate_parents])))
    return candidates


def _threads() -> int:
    return min(2, processors())  # as counting does; the sample is the same


class _Chains(Protocol[Problem_contra, State, Sample_co]):
    def start(self, sets: Problem_contra, seed: int, /) -> State: ...
    def step(self, state: State, /) -> State: ...
    def progress(self, state: State, /) -> float: ...
    def result(self, state: State, /) -> Sample_co: ...
    def checkpoint(self, state: State, /) -> Checkpoint: ...
    def resume(self, sets: Problem_contra, checkpoint: Checkpoint, /) -> State: ...


def run_chains(
    chains: _Chains[Problem_contra, State, Sample_co],
    sets: Problem_contra,
    seed: int,
    progress: Callable[[float], None] | None,
    interruption: Interruption,
) -> Sample_co:
    """Start, or go on where the checkpoint stopped; step until done; hand over the sample. See `sampled_graphs`."""
    if interruption.checkpoint is None:
        state = chains.start(sets, seed)
    else:
        try:
            state = chains.resume(sets, interruption.checkpoint)
        except ValueError as error:
            raise ForeignCheckpoint(str(error)) from None
    while (share := chains.progress(state)) < 1.0:
        if interruption.cancelled():
            raise LearningCancelled(chains.checkpoint(state))
        state = chains.step(state)
        interruption.keep(functools.partial(chains.checkpoint, state))
        if progress is not None:
            progress(share)
    return chains.result(state)


def consensus(sample: GraphSample, problem: SearchProblem, *, seed: int) -> SearchResult:
    """See the module; exact where at most `MAX_EXACT` variables may stand in any order.

    Args:
        sample: the graphs.
        problem: limits and constraints.
        seed: of the search where it is not exact.
    """
    weights = np.where(sample.skeleton_probability >= TUNING.linked, sample.edge_probability, 0.0)
    constraints: Constraints | None = problem.constraints
    own = dataclasses.replace(problem, weights=weights)
    widest = len(problem.n_states) if constraints is None else max(map(len, constraints.blocks))
    few = widest <= MAX_EXACT
    result = run_search(ExactSearch(), own, seed=seed) if few else run_search(OrderSearch(), own, seed=seed)
    return dataclasses.replace(result, generations=sample.steps)
