"""Estimate one joint model from all measured tables.

The model is a mixture of products (`mixture`) whose size is chosen by its own estimated error: sizes are fitted from small to
large, the larger ones only where the usual size was stopped by its number of steps or has not reached the tables. With noise on
the tables the size with the least X + 3 df is kept (`stopping`), without noise the first with which the model reaches its goal.

Where a network was learned from exact or randomized columns, the model is weighted records (`weighted_records`): half of them
are drawn from the network, which has what no pair shows, and half from the mixture, which is near to all pairs; then they are
weighed until they have all tables. Of exact columns, whose tables tell which model is nearest to them, records of the network
alone and the mixture alone are looked at, too. Where the tables have more cells than there are records to weigh, no weights give
all of them, and the mixture is published. Where rules or the domain of a compound exclude combinations and there is no network,
the mixture's own records are weighed until they have its tables.

`holdout_weight` then estimates how much of the model to believe. All of it is a function of the tables, the network and the
seed, so it adds no privacy cost.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import holdout_weight as guard
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Arrays, Keep, Progress, Work
from verticil.shared.numerics.joint.classes import Division, independent_rows
from verticil.shared.numerics.joint.layout import Layout, Singles
from verticil.shared.numerics.joint.mixture import fit
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables, Zeros
from verticil.shared.numerics.joint.one_way import one_way_shares
from verticil.shared.numerics.joint.targets import all_targets
from verticil.shared.numerics.joint.tuning import TUNING, Size
from verticil.shared.numerics.model.joint import JointModel, Mixture, WeightedRecords

Kind = Literal["mixture", "records"]

_COMPONENT_CELLS: Final = 720_000
"""Components times categories (and `atoms.OVERHEAD`) of a mixture that can be published (`formats.joint`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointEstimate:
    """A joint model, and what a report says of it.

    Attributes:
        model: what is published.
        kind: what it is made of: a mixture; or weighed records, of the network, of both, or of the mixture for the sake of
            impossible combinations.
        steps: of the fit: of the mixture, or sweeps over all tables.
        discrepancy: its distance from the tables, in units of what their noise explains; see `stopping`.
        reached: whether it came to its end. If not, `alpha` is all that there is against a bad fit.
        alpha: the share of the model in what is published, the rest being the product of the margins.
        guarded: whether alpha was estimated; it is 1 where there is no noise, or no part to hold out.
        start: the distribution of each variable on its own.
        size: of the mixture, if there is one.
        shrunk: whether the mixture was fitted to tables that were shrunk towards independence; see `shrinkage`.
        tables_nearer: with noise on the tables and a fit that did not reach them, how many times nearer to the truth the tables
            themselves are, negative counts taken as 0, where they are estimated to be nearer; else None.
    """

    model: JointModel
    kind: Kind
    steps: int
    discrepancy: float
    reached: bool
    alpha: float
    guarded: bool
    start: tuple[Floats, ...]
    size: Size = TUNING.usual
    shrunk: bool = False
    tables_nearer: float | None = None


def estimate(
    tables: NoisyTables,
    *,
    seed: int,
    records: atoms.Records | None = None,
    allowed: atoms.Allowed | None = None,
    zeros: Zeros | None = None,
    progress: Progress | None = None,
    check: Callable[[], None] | None = None,
    keep: Keep | None = None,
    checkpoint: Arrays | None = None,
    divisions: Sequence[Division] = (),
) -> JointEstimate:
    """Estimate a joint model of all variables.

    Args:
        tables: what was measured.
        seed: of all that is drawn.
        records: draws records from the network that was learned from the same columns; None: there is none. With noise on the
            tables it is not asked.
        allowed: which of some records are possible; None: all that are in the domains of compounds.
        zeros: with `allowed`: which combinations of some variables are.
        progress: is told of every step: the piece of work, how many of its steps at most are done.
        check: is called between short steps, and raises to stop.
        keep: is offered a checkpoint after every step.
        checkpoint: where an earlier run of the same estimate stood; the result is the same, bit for bit.
        divisions: of people into classes with zeros of their own, which every record has (`classes`).

    Raises:
        ValueError: none of the records that were drawn is possible.
        checkpoints.ForeignCheckpoint: the checkpoint is of other tables or another seed.
    """
    work = Work(identity=_identity(tables, seed, divisions))
    if progress is not None:
        work.progress = progress
    if check is not None:
        work.check = check
    if keep is not None:
        work.keep_checkpoint = keep
    work.go_on(checkpoint)
    return _Estimate(tables, seed, records, allowed=allowed, zeros=zeros, work=work, divisions=divisions).complete()


class _Estimate:
    """One estimate in the making: `estimate`'s arguments, and what follows from them."""

    def __init__(
        self,
        tables: NoisyTables,
        seed: int,
        records: atoms.Records | None,
        *,
        allowed: atoms.Allowed | None,
        zeros: Zeros | None,
        work: Work,
        divisions: Sequence[Division] = (),
    ) -> None:
        self._divisions = divisions
        self._tables, self._seed, self._work, self._allowed, self._zeros = tables, seed, work, allowed, zeros
        self._records = None if tables.has_noise else records
        self._layout = Layout(tables.n_states, tables.units)
        self._start = one_way_shares(tables)
        self._restricted = allowed is not None or any(
            unit.domain is not None and len(unit.domain) < math.prod(tables.n_states[v] for v in unit.variables)
            for unit in tables.units
        )

    def complete(self) -> JointEstimate:
        """Fit the model and return the estimate."""
        self._shrunk = self._tables.has_noise and self._is_nearer_shrunk()
        guarded = guard.can_be_guarded(self._tables) and (self._tables.has_noise or self._tables.is_randomized)
        alpha = self._alpha() if guarded else 1.0
        source = self._records if self._restricted or self._can_weigh(alpha) else None
        size, facts = self._choose_size(source)
        kind: Kind = "mixture"
        model: JointModel
        if "codes" in facts:
            model, kind = self._with_product(_weighted(self._tables, facts), alpha), "records"
        else:
            mixture = model = as_mixture(self._layout, _rows(facts), self._start, alpha, _weights(facts))
            if self._restricted:
                model, kind = self._possible(mixture), "records"
        reached = bool(facts["reached"])
        return JointEstimate(
            model=model,
            kind=kind,
            steps=int(facts["steps"]),
            discrepancy=float(facts["discrepancy"]),
            reached=reached,
            alpha=alpha,
            guarded=guarded,
            start=self._start,
            size=size,
            shrunk=self._shrunk,
            tables_nearer=None if reached or not self._tables.has_noise else self._tables_nearer(facts),
        )

    def _choose_size(self, source: atoms.Records | None) -> tuple[Size, Arrays]:
        """Return the best model as arrays, and the size of its mixture: the nearest one of exact columns beside a network; of
        others the one with the least estimated error, and one that reaches the tables before others.

        Args:
            source: of the network's records, which are weighed; None: a mixture is published.
        """
        noisy = self._tables.has_noise
        best: tuple[Size, Arrays] | None = None
        if source is not None and self._is_plain():
            best = TUNING.usual, self._ranked(self._weigh([source], "of the network"))
        for number, size in enumerate(self._sizes(), 1):
            if size.rate > TUNING.usual.rate and noisy and self._layout.n_entries > TUNING.large:
                break
            fitted = self._fit(f"size {number}", size, [self._seed], shrunk=self._shrunk)
            if source is not None:
                mixture = as_mixture(self._layout, _rows(fitted), self._start, 1.0, _weights(fitted))
                both = self._ranked(self._weigh([source, atoms.of_mixture(mixture)], f"and size {number}"))
                fitted = min((both, self._ranked(fitted)), key=self._rank) if self._is_plain() else both
            if best is None or self._rank(fitted) < self._rank(best[1]):
                best = size, fitted
            wants_more = not fitted["reached"] or (noisy and int(fitted["steps"]) >= TUNING.nearly_all * size.steps)
            if not wants_more and (size.components >= TUNING.usual.components or not noisy):
                break
        assert best is not None
        return best

    def _is_plain(self) -> bool:
        """Return whether columns are exact and all records possible: the distance to the tables tells which model is nearest."""
        return not (self._restricted or self._tables.is_randomized or self._tables.has_noise)

    def _ranked(self, facts: Arrays) -> Arrays:
        """Return a fit, or weighed records, with the distance to the tables as its risk where that tells.

        The discrepancy lets cells of one or two people decide there, which records may lack (diabetes: it would take a mixture
        at .0010 in place of records at .0004).
        """
        if not self._is_plain():
            return facts
        model: JointModel
        if "codes" in facts:
            model = _weighted(self._tables, facts)
        else:
            model = as_mixture(self._layout, _rows(facts), self._start, 1.0, _weights(facts))
        return {**facts, "risk": np.array(_distance(model, self._tables))}

    def _rank(self, facts: Arrays) -> tuple[bool, float]:
        """Return a rank that is least for the best model."""
        return not facts["reached"] and not self._is_plain(), float(facts["risk"])

    def _sizes(self) -> tuple[Size, ...]:
        """Return the sizes to try; of columns with too few records to weigh the second has all components that fit."""
        if self._tables.has_noise or atoms.n_atoms(self._tables.n_states) >= self._tables.n_cells:
            return tuple(map(self._can_publish, TUNING.sizes))
        large, most = TUNING.sizes[2], most_components(self._tables.n_states)
        fits = max(min(large.fits, most // large.components), 1)
        return self._can_publish(TUNING.sizes[0]), replace(
            large, fits=fits, components=most // fits, steps=TUNING.usual.steps
        )

    def _can_publish(self, size: Size) -> Size:
        """Return the size, or as much of it as can be published."""
        most = most_components(self._tables.n_states)
        components = min(_for_classes(size, self._divisions).components, most)
        return replace(size, components=components, fits=min(_fits(self._layout, size), most // components))

    def _can_weigh(self, alpha: float) -> bool:
        """Return whether records are weighed: not of a model that is hardly believed, nor fewer of them than cells."""
        return alpha >= TUNING.least_alpha and atoms.n_atoms(self._tables.n_states) >= self._tables.n_cells

    def _weigh(self, sources: Sequence[atoms.Records], name: str) -> Arrays:
        """Weigh records, of each source as many, until they have all tables."""

        def do() -> Arrays:
            codes, weights = self._draw_atoms(sources, 1, 4)
            goal = 0.0 if self._tables.is_randomized else TUNING.exact_goal
            return _raked(atoms.rake(self._tables, codes, weights, goal=goal, work=self._work))

        return self._work.piece(f"records {name}", do)

    def _possible(self, mixture: Mixture) -> WeightedRecords:
        """Return possible records of a mixture, with weights that give them its tables of pairs."""

        def do() -> Arrays:
            sets: list[tuple[int, ...]] = [*itertools.combinations(range(len(mixture.n_states)), 2)] or [(0,)]
            own = exactly({chosen: self._kept(mixture.shares(chosen), chosen) for chosen in sets}, self._tables)
            codes, weights = self._draw_atoms([atoms.of_mixture(mixture)], 1, 5)
            return _raked(atoms.rake(own, codes, weights, work=self._work))

        return _weighted(self._tables, self._work.piece("possible", do))

    def _kept(self, shares: Floats, chosen: Sequence[int]) -> Floats:
        """Return a table without what is impossible, and with the margins that it had, as far as it can (Deming & Stephan,
        1940).
        """
        possible = None if self._zeros is None else self._zeros(chosen)
        if possible is None:
            return shares
        kept = np.where(possible, shares, 0.0)
        for _ in range(TUNING.sweeps):
            for axis in range(kept.ndim):
                others = tuple(other for other in range(kept.ndim) if other != axis)
                got, wanted = (each.sum(axis=others, keepdims=True) for each in (kept, shares))
                kept = kept * np.divide(wanted, got, out=np.zeros_like(got), where=got > 0)
        return kept

    def _with_product(self, model: WeightedRecords, alpha: float) -> WeightedRecords:
        """Return weighted records with (1 - alpha) of the product of margins, itself drawn."""
        if alpha == 1:
            return model
        product = Mixture(weights=np.ones(1), probability=tuple(share[None] for share in self._start))
        codes, weights = self._draw_atoms([atoms.of_mixture(product)], 1 - alpha, 6)
        own = atoms.heaviest(model, atoms.n_atoms(model.n_states) - len(codes))
        mixed = np.concatenate([alpha * own.weights, (1 - alpha) * weights])
        return WeightedRecords(
            n_states=model.n_states, codes=np.concatenate([own.codes, codes]), weights=mixed / mixed.sum()
        )

    def _draw_atoms(self, sources: Sequence[atoms.Records], times: float, label: int) -> tuple[atoms.AtomCodes, Floats]:
        return atoms.draw_atoms(
            sources,
            int(times * atoms.n_atoms(self._tables.n_states)),
            self._tables.units,
            rng=np.random.default_rng([self._seed, label]),
            allowed=self._allowed,
        )

    def _is_nearer_shrunk(self) -> bool:
        """Return whether tables that are shrunk make a mixture that is nearer to the truth, by the estimate that it stops at.

        By one standard error at least of the sum of squares X, (2 N)^.5 (the one-standard-error rule of Breiman, Friedman, Olshen
        & Stone, 1984). Where it is less, records of people (parts of ma2018 and diabetes, 1,500 to 3,000 people) were up to 20 %
        farther, and columns of networks at most 12 % nearer.
        """
        risks = [
            float(
                self._fit(name, _for_classes(TUNING.of_shrinkage, self._divisions), [self._seed, 8], shrunk=shrunk)[
                    "risk"
                ]
            )
            for name, shrunk in (("tables as they are", False), ("tables shrunk", True))
        ]
        return risks[0] - risks[1] > math.sqrt(2 * self._tables.n_cells)

    def _alpha(self) -> float:
        """Return how much of the model to believe; see `holdout_weight`."""
        sums = []
        size = _for_classes(replace(TUNING.of_parts, fits=_fits(self._layout, TUNING.of_parts)), self._divisions)
        for held, (fitted, rest) in enumerate(guard.parts(self._tables, [self._seed, 1])):
            part = self._fit(f"guard {held + 1}", size, [self._seed, 2, held], shrunk=self._shrunk, tables=fitted)
            weights = _weights(part)
            sums.append(guard.agreement(self._layout, _rows(part), one_way_shares(fitted), rest, weights=weights))
        return guard.alpha(sums)

    def _fit(
        self, name: str, size: Size, seed: Sequence[int], *, shrunk: bool, tables: NoisyTables | None = None
    ) -> Arrays:
        """Fit a mixture as one piece of the work."""
        return self._work.piece(
            name,
            lambda: _fitted(
                tables or self._tables,
                self._layout,
                self._work,
                seed=seed,
                size=size,
                shrunk=shrunk,
                divisions=self._divisions,
            ),
        )

    def _tables_nearer(self, fitted: Arrays) -> float | None:
        """Return how many times nearer to the truth the truncated tables are than the fit; None: they are not nearer.

        Both squared errors are estimated without bias (Stein, 1981), in units of the variance of a cell: the fit's is
        X + 2 df - N, and that of counts which are taken as 0 where they are negative is the sum of the squares that are taken
        away, plus twice the number of cells that stay, less N.
        """
        cells = self._tables.n_cells
        missed = float(fitted["discrepancy"]) * cells
        ours = missed + 2 * (float(fitted["risk"]) - missed) / TUNING.penalty - cells
        truncated = -float(cells)
        for table in self._tables.all_tables:
            below = np.minimum(table.counts, 0.0) / table.sigma
            truncated += float((below**2).sum()) + 2 * float((table.counts > 0).sum())
        return math.sqrt(ours / truncated) if ours > truncated > 0 else None


def _distance(model: JointModel, tables: NoisyTables) -> float:
    """Return the mean total variation distance of a model from the tables of exact columns."""
    distances = []
    for table in tables.tables:
        units = [tables.units[unit] for unit in table.units]
        shares = model.shares([variable for unit in units for variable in unit.variables])
        for axis, unit in enumerate(units):
            if unit.domain is not None:
                shares = shares[(slice(None),) * axis + tuple(np.array(unit.domain).T)]
        distances.append(0.5 * float(np.abs(shares - table.counts / tables.people).sum()))
    return math.fsum(distances) / len(distances)


def as_mixture(
    layout: Layout, rows: Singles, start: Sequence[Floats], alpha: float, component_weights: Floats | None = None
) -> Mixture:
    """Return the mixture with (1 - alpha) of the product of margins, in classes where its components have weights."""
    weights: Floats = np.full(len(rows), alpha / len(rows))
    product: tuple[Floats | Singles, Floats] = np.concatenate(list(start))[None], np.ones(1)
    if component_weights is not None:
        weights = alpha * component_weights
        product = independent_rows(rows, component_weights, start, layout)
    probability = []
    for columns in layout.variables:
        own = rows[:, columns].astype(np.float64)
        if alpha < 1:
            own = np.vstack([own, product[0][:, columns]])
        probability.append(own / own.sum(axis=1, keepdims=True))
    if alpha < 1:
        weights = np.append(weights, (1 - alpha) * product[1])
    return Mixture(weights=weights / weights.sum(), probability=tuple(probability))


def most_components(n_states: Sequence[int]) -> int:
    """Return how many components of a mixture of these variables can be published.

    >>> most_components((4,) * 250)
    701
    """
    return _COMPONENT_CELLS // (sum(n_states) + atoms.OVERHEAD)


def _rows(fitted: Arrays) -> Singles:
    """Return the components of a fit."""
    return np.asarray(fitted["rows"], dtype=np.float32)


def _weights(fitted: Arrays) -> Floats | None:
    """Return the weights of the components of a fit, which sum to 1; None: they weigh alike."""
    return np.asarray(fitted["weights"], dtype=np.float64) if "weights" in fitted else None


def share_of_noisy(piece: str, done: int, most: int) -> float:
    """Return how much of an estimate from noisy tables is done, at most: what stops early, or is not tried, leaps to its end.

    A fit of the usual size takes about four times as long as each of the small ones before it (ma2019 as drafted, epsilon 1
    and 5), and a larger one, where it is tried, longer than all of them.
    """
    names = [f"size {number}" for number in range(1, len(TUNING.sizes) + 1)]
    weights = {"tables as they are": 1, "tables shrunk": 1, **{f"guard {n + 1}": 1 for n in range(TUNING.guard_draws)}}
    weights |= dict(zip(names, (2, 4, 10, 20), strict=True))
    if piece not in weights:  # what follows is short
        return 1.0
    before = sum(list(weights.values())[: list(weights).index(piece)])
    return (before + weights[piece] * min(done / most, 1.0)) / sum(weights.values())


def _fits(layout: Layout, size: Size) -> int:
    """Return how many mixtures are fitted: half of them where each takes seconds."""
    return size.fits if layout.n_entries <= TUNING.large else (size.fits + 1) // 2


def _for_classes(size: Size, divisions: Sequence[Division]) -> Size:
    """Return a size with two components at least for each class of a division."""
    return replace(size, components=max([size.components, *(2 * len(each.allowed) for each in divisions)]))


def _fitted(
    tables: NoisyTables,
    layout: Layout,
    work: Work,
    *,
    seed: Sequence[int],
    size: Size,
    shrunk: bool,
    with_twin: bool = True,
    divisions: Sequence[Division] = (),
) -> Arrays:
    """Fit a mixture and return what it found as arrays."""
    start = one_way_shares(tables)
    aims = all_targets(tables, start, layout=layout, shrunk=shrunk, with_twin=with_twin)
    found = fit(aims, start, seed=seed, size=size, orders=tables.orders, work=work, divisions=divisions)
    return ({} if found.weights is None else {"weights": found.weights}) | {
        "rows": found.rows,
        "steps": np.array(found.steps),
        "risk": np.array(found.risk),
        "discrepancy": np.array(found.discrepancy),
        "reached": np.array(found.reached),
    }


def _raked(found: atoms.Raked) -> Arrays:
    """Return weighed records as arrays."""
    return {
        "codes": found.model.codes,
        "weights": found.model.weights,
        "steps": np.array(found.sweeps),
        "risk": np.array(found.discrepancy),
        "discrepancy": np.array(found.discrepancy),
        "reached": np.array(found.reached),
    }


def _weighted(tables: NoisyTables, found: Arrays) -> WeightedRecords:
    """Return weighed records from their arrays."""
    codes, weights = np.asarray(found["codes"], np.uint16), np.asarray(found["weights"], np.float64)
    return WeightedRecords(n_states=tables.n_states, codes=codes, weights=weights)


def exactly(shares: Mapping[tuple[int, ...], Floats], tables: NoisyTables) -> NoisyTables:
    """Return tables as if so many people had been counted as they are.

    Args:
        shares: of every combination of some variables' categories, in all of every variable.
        tables: of the same variables and people.
    """
    states, n = tables.n_states, max(round(tables.people), 1)
    return NoisyTables(
        n_states=states,
        units=tuple(
            ColumnUnit(variables=(variable,), domain=None, channel=quantize(identity(k)))
            for variable, k in enumerate(states)
        ),
        tables=tuple(MeasuredTable(units=chosen, counts=n * table) for chosen, table in shares.items()),
        n_records=n,
    )


def _identity(tables: NoisyTables, seed: int, divisions: Sequence[Division] = ()) -> bytes:
    """Return 32 bytes that name the tables, the seed and the estimator (8: the nearest of three for exact columns)."""
    of = f"{tables.n_states} {tables.n_records} {tables.relation} {tables.orders}"
    digest = hashlib.sha256(f"joint 8 {seed} {TUNING.sizes} {of}".encode())
    for runs in () if tables.coarse is None else tables.coarse.runs:
        digest.update(runs.astype(np.int64).tobytes())
    for unit in tables.units:
        digest.update(f"{unit.variables}{unit.domain}".encode() + unit.channel.digest())
    for table in tables.all_tables:
        digest.update(f"{table.units} {table.sigma!r} {len(table.parts)}".encode())
        for counts in (table.counts, *table.parts):
            digest.update(np.ascontiguousarray(counts, dtype=np.float64).tobytes())
    for division in divisions:
        digest.update(f"{division.variable}".encode() + np.packbits(division.allowed).tobytes())
    return digest.digest()


def refitted(
    tables: NoisyTables,
    of: JointEstimate,
    *,
    seed: int,
    fits: int,
    check: Callable[[], None] | None = None,
    divisions: Sequence[Division] = (),
) -> JointModel:
    """Return the model that other tables of the same kind give, with as much of the product of margins as an estimate: for a
    bootstrap.

    Of wide tables and of larger sizes, where a fit takes seconds, it stops after as many steps as the estimate did. What tells
    when to stop, a second fit (`stopping`), is not made again then.

    Args:
        tables: see `replicates.with_noise_of`.
        of: the estimate whose uncertainty is asked for.
        seed: of all that is drawn.
        fits: how many mixtures are fitted; fewer than of the estimate scatter a little more.
        check: is called between short steps, and raises to stop.
        divisions: those of the estimate.
    """
    layout = Layout(tables.n_states, tables.units)
    is_long = layout.n_entries > TUNING.large or of.size.components > TUNING.usual.components
    size = replace(of.size, fits=min(fits, of.size.fits), steps=of.steps if is_long else of.size.steps)
    found = _fitted(
        tables,
        layout,
        Work() if check is None else Work(check=check),
        seed=[seed],
        size=size,
        shrunk=of.shrunk,
        with_twin=not is_long,
        divisions=divisions,
    )
    return as_mixture(layout, _rows(found), one_way_shares(tables), of.alpha, _weights(found))
