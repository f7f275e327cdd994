"""One joint model from all tables that were measured: the door of this package.

Of exact or randomized columns, where a learned network is there to draw from, the model is weighted records (`atoms`): records
of the network, and of a mixture of products (`mixture`) as far as the network leaves dependence unexplained, that is a hybrid;
of exact columns those of the network alone where they come as near to the tables as is asked for. A network has what no pair
shows, a mixture is nearer to all pairs. With noise on the tables, without a network, or where the tables have more cells than
there are records to weigh (`too_few_records`), the model is the mixture itself. Where combinations are impossible, in the domain
of a compound or declared so, the mixture's own records are weighed so that they have its tables.

Of such wide tables a mixture of the usual size is too small, too. Then a larger one is fitted, of as many components as can be
published; not with noise on the tables.

How much of it to believe is for `guard`. All of it is a function of the tables, the network and the seed: where those are of an
account that is paid, it spends nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.design import ColumnUnit
from verticil.shared.numerics.joint import holdout_weight as guard
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Arrays, Keep, Progress, Work
from verticil.shared.numerics.joint.layout import Layout, Singles
from verticil.shared.numerics.joint.mixture import COMPONENTS, FITS, STEPS, fit
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables, Zeros
from verticil.shared.numerics.joint.one_way import one_way_shares
from verticil.shared.numerics.joint.targets import targets
from verticil.shared.numerics.model.joint import JointModel, Mixture, WeightedRecords

Kind = Literal["mixture", "records", "hybrid"]

_LARGE: Final = 500  # released entries; above, half as many mixtures are fitted, which then take seconds each
_COMPONENT_CELLS: Final = 720_000
"""Components times categories (and `atoms.OVERHEAD`) of a larger mixture: at 24 bytes for each probability that is what can be
published (`formats.joint`), with a tenth left for long labels."""
_LARGER: Final = (200, 2, 4)
"""Components in a fit of a larger mixture at least, and how many fits there are at least and at most. Of 96 columns in blocks of
ma2018, two copies of hailfinder, and 80 columns of eight categories that are copies of one another (.7), several fits are nearer
than one of as many components in all where there is much noise, and in triples; fewer and larger ones where there is little."""
_GUARD_FITS: Final = 2
"""Mixtures that are fitted to each part of the guard. Fewer than are published: their mean is a little worse, and so alpha is
rather too small than too large."""
_CANDIDATES: Final = 4
"""Of how many drawn records a hybrid keeps the one that weighs most. Where exact tables are not met, it is for want of the right
records, and weighing more of them tells which those are."""
_FIRST_SWEEPS: Final = 3  # over candidates
_EXACT_SWEEPS: Final = 5  # over records of the network alone: what is not met by then is for want of records
_EXACT_GOAL: Final = 0.1
"""Where weighing for exact counts stops. Beyond 1 nobody can tell it from chance; on to here it still came nearer to the people
and to the networks that had made them (CHILD, INSURANCE, ALARM), as long as no records of a mixture were needed for it."""
_MIXTURE: Final = 10.0
"""How many times what a network leaves unexplained the mixture's part of a hybrid is, at most half. Unexplained is the
discrepancy of the network's own records above 1, with one standard error of it, in parts of that of independent columns: .3 to
5 % where a network had made the records, 5 % and more of people's. With half of the mixture everywhere, triples of CHILD and
ALARM are 10 to 20 % farther at epsilon 3; with none of it, pairs of Adult are 2 to 5 %.

Twice that part is what is believed of every randomized table at least, so all where half of the records are the mixture's:
people's tables are a little off everywhere, and with less of them pairs of the shipped federation and of ma2019 were up to 9 %
farther. Where a network is nearly right most tables show nothing but noise: pairs of asia, sachs and random networks at epsilon
2 and 3 were 2 to 9 % nearer with tables that are shrunk towards the network's (`adaptive_shrinkage`). Without the standard
error, which is .09 of the shipped federation's dependence at epsilon 1, a part of its network's records was taken by chance, and
pairs were 1 % farther."""
_FITTINGS: Final = 20  # of a table to its margins
_SIDE_STEPS: Final = 300  # of a mixture that is not what is published
_TRIED: Final = 25  # components of a mixture that is fitted to see whether tables should be shrunk
_PRODUCT: Final = 0.25  # of the atoms, at most, are those of the product of margins
_LEAST_ALPHA: Final = 0.5  # below, the model is mostly the product of margins, which a mixture holds as it is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointEstimate:
    """A joint model, and what a report says of it.

    Attributes:
        model: what is published.
        kind: what it is made of: a mixture; records of the network, or of the mixture for the sake of impossible combinations; of
            both.
        steps: of the fit: of the mixture, or sweeps over all tables.
        discrepancy: its distance from the tables, in units of what their noise explains; see `stopping`.
        reached: whether it came to its end. If not, `alpha` is all that there is against a bad fit.
        alpha: the share of the model in what is published, the rest being the product of the margins.
        guarded: whether alpha was estimated; it is 1 where there is no noise, or no part to hold out.
        start: the distribution of each variable on its own.
        drawn: (A,), where the model is the network's records, weighed: the weights that they were drawn with, so what the network
            itself says of them. None: it is made of others.
        shrunk: whether the mixture was fitted to tables that were shrunk towards independence; see `shrinkage`.
        share: of the joint model in `model`, the rest being the network's: below 1 where a study leaves open which it is.
    """

    model: JointModel
    kind: Kind
    steps: int
    discrepancy: float
    reached: bool
    alpha: float
    guarded: bool
    start: tuple[Floats, ...]
    drawn: Floats | None = None
    shrunk: bool = False
    share: float = 1.0


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

    Raises:
        ValueError: none of the records that were drawn is possible.
        work.ForeignCheckpoint: the checkpoint is of other tables or another seed.
    """
    work = Work(identity=_identity(tables, seed))
    if progress is not None:
        work.progress = progress
    if check is not None:
        work.check = check
    if keep is not None:
        work.keep_checkpoint = keep
    work.go_on(checkpoint)
    return _Estimate(tables, seed, records, allowed=allowed, zeros=zeros, work=work).found()


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
    ) -> None:
        self._tables, self._seed, self._work, self._allowed, self._zeros = tables, seed, work, allowed, zeros
        self._records = None if tables.has_noise else records
        self._layout = Layout(tables.n_states, tables.units)
        self._start = one_way_shares(tables)
        self._restricted = allowed is not None or any(
            unit.domain is not None and len(unit.domain) < math.prod(tables.n_states[v] for v in unit.variables)
            for unit in tables.units
        )

    def found(self) -> JointEstimate:
        self._shrunk = self._tables.has_noise and self._is_nearer_shrunk()
        guarded = guard.can_be_guarded(self._tables) and (self._tables.has_noise or self._tables.is_randomized)
        alpha = self._alpha() if guarded else 1.0
        model, kind, facts = self._model(alpha)
        return JointEstimate(
            model=model,
            kind=kind,
            steps=int(facts["steps"]),
            discrepancy=float(facts["discrepancy"]),
            reached=bool(facts["reached"]),
            alpha=alpha,
            guarded=guarded,
            start=self._start,
            shrunk=self._shrunk,
            drawn=np.asarray(facts["drawn"], np.float64)
            if kind == "records" and alpha == 1 and "drawn" in facts
            else None,
        )

    def _model(self, alpha: float) -> tuple[JointModel, Kind, Arrays]:
        by_records = self._restricted or (alpha >= _LEAST_ALPHA and not too_few_records(self._tables))
        if self._records is not None and by_records:
            kind: Kind = "hybrid"
            if self._tables.is_randomized:
                found = self._hybrid(self._records)
            else:
                found, kind = self._of_exact(self._records)
            return self._with_product(_weighted(self._tables, found), alpha), kind, found
        found = self._mixture()
        mixture = as_mixture(self._layout, np.asarray(found["rows"], dtype=np.float32), self._start, alpha)
        if not self._restricted:
            return mixture, "mixture", found
        return self._possible(mixture), "records", found

    def _mixture(self) -> Arrays:
        """Return the mixture that is published: of wide tables without noise a larger one, in the place of records to weigh.

        With noise a larger one was nearer in pairs (100 columns of ten categories: .77 and .66 times as far at epsilon 1 and 4),
        but farther in triples than independent columns; and replicates for intervals would have to be as large.
        """
        if self._tables.has_noise or not too_few_records(self._tables):
            return _mixture(self._tables, self._layout, self._work, "mixture", seed=[self._seed], shrunk=self._shrunk)
        fits, components = larger(self._tables.n_states)
        steps = STEPS if self._tables.is_randomized else _SIDE_STEPS
        seed = [self._seed, 9]
        return _mixture(
            self._tables, self._layout, self._work, "larger mixture", seed=seed, fits=fits, components=components,
            steps=steps,
        )  # fmt: skip

    def _of_exact(self, records: atoms.Records) -> tuple[Arrays, Kind]:
        def do() -> Arrays:
            codes, weights, drawn = self._drawn([records], 1, 3)
            found = atoms.rake(self._tables, codes, weights, sweeps=_EXACT_SWEEPS, goal=_EXACT_GOAL, work=self._work)
            return {**_raked(found), "drawn": drawn}

        found = self._work.piece("records", do)
        if found["reached"]:
            return found, "records"
        hybrid = self._hybrid(records)
        return (hybrid, "hybrid") if float(hybrid["discrepancy"]) < float(found["discrepancy"]) else (found, "records")

    def _hybrid(self, records: atoms.Records) -> Arrays:
        exact = not self._tables.is_randomized
        part = 0.5 if exact else self._part_of_mixture(records)
        sources, parts = [records], [1 - part]
        if part > 0:
            steps = _SIDE_STEPS if exact else STEPS
            found = _mixture(self._tables, self._layout, self._work, "mixture", seed=[self._seed], steps=steps)
            mixture = as_mixture(self._layout, np.asarray(found["rows"], dtype=np.float32), self._start, 1.0)
            sources, parts = [records, atoms.of_mixture(mixture)], [1 - part, part]

        def candidates() -> Arrays:
            codes, weights, _ = self._drawn(sources, _CANDIDATES, 4)
            first = atoms.rake(self._tables, codes, weights, sweeps=_FIRST_SWEEPS, work=self._work)
            return _raked(first, keep=atoms.n_atoms(self._tables.n_states))

        def do() -> Arrays:
            if chosen is None:
                codes, weights, own = self._drawn(sources, 1, 4, parts=parts)
                found = atoms.rake(self._tables, codes, weights, goal=0.0, own=own, least=2 * part, work=self._work)
                return _raked(found)
            sweeps = 2 * _EXACT_SWEEPS
            return _raked(
                atoms.rake(self._tables, chosen.codes, chosen.weights, sweeps=sweeps, goal=_EXACT_GOAL, work=self._work)
            )

        # Of randomized columns the tables are no reason to choose: they are far from what they will be.
        chosen = _weighted(self._tables, self._work.piece("candidates", candidates)) if exact else None
        return self._work.piece("hybrid", do)

    def _part_of_mixture(self, records: atoms.Records) -> float:
        """Return which part of a hybrid's atoms the mixture gives: see `_MIXTURE`."""
        product = Mixture(weights=np.ones(1), probability=tuple(share[None] for share in self._start))

        def excess(source: atoms.Records) -> float:
            self._work.check()
            return atoms.rake(self._tables, *self._drawn([source], 1, 7, loosened=0.0)[:2], sweeps=0).discrepancy - 1

        def do() -> Arrays:
            dependence = excess(atoms.of_mixture(product))
            missed = excess(records) + math.sqrt(2 / max(atoms.n_degrees(self._tables), 1.0))
            return {"part": np.array(np.clip(_MIXTURE * missed / dependence, 0, 0.5) if dependence > 0 else 0.5)}

        return float(self._work.piece("part of mixture", do)["part"])

    def _possible(self, mixture: Mixture) -> WeightedRecords:
        """Possible records of a mixture, with weights that give them its tables of pairs."""

        def do() -> Arrays:
            sets: list[tuple[int, ...]] = [*itertools.combinations(range(len(mixture.n_states)), 2)] or [(0,)]
            own = exactly({chosen: self._kept(mixture.shares(chosen), chosen) for chosen in sets}, self._tables)
            codes, weights, _ = self._drawn([atoms.of_mixture(mixture)], 1, 5)
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
        for _ in range(_FITTINGS):
            for axis in range(kept.ndim):
                others = tuple(other for other in range(kept.ndim) if other != axis)
                got, wanted = (each.sum(axis=others, keepdims=True) for each in (kept, shares))
                kept = kept * np.divide(wanted, got, out=np.zeros_like(got), where=got > 0)
        return kept

    def _with_product(self, model: WeightedRecords, alpha: float) -> WeightedRecords:
        """Weighted records with (1 - alpha) of the product of margins, itself drawn."""
        if alpha == 1:
            return model
        product = Mixture(weights=np.ones(1), probability=tuple(share[None] for share in self._start))
        codes, weights, _ = self._drawn([atoms.of_mixture(product)], _PRODUCT, 6)
        own = atoms.heaviest(model, atoms.n_atoms(model.n_states) - len(codes))
        mixed = np.concatenate([alpha * own.weights, (1 - alpha) * weights])
        return WeightedRecords(
            n_states=model.n_states, codes=np.concatenate([own.codes, codes]), weights=mixed / mixed.sum()
        )

    def _drawn(
        self,
        sources: Sequence[atoms.Records],
        times: float,
        label: int,
        *,
        parts: Sequence[float] | None = None,
        loosened: float = atoms.LOOSENED,
    ) -> tuple[atoms.AtomCodes, Floats, Floats]:
        return atoms.draw(
            sources,
            int(times * atoms.n_atoms(self._tables.n_states)),
            self._start,
            self._tables.units,
            rng=np.random.default_rng([self._seed, label]),
            allowed=self._allowed,
            parts=parts,
            loosened=loosened,
        )

    def _is_nearer_shrunk(self) -> bool:
        """Return whether tables that are shrunk make a mixture that is nearer to the truth, by the estimate that it stops at.

        By one standard error at least of the sum of squares X, (2 N)^.5 (the one-standard-error rule of Breiman, Friedman, Olshen
        & Stone, 1984). Where it is less, records of people (parts of ma2018 and diabetes, 1,500 to 3,000 people) were up to 20 %
        farther, and columns of networks at most 12 % nearer.
        """
        risks = []
        for name, shrunk in (("tables as they are", False), ("tables shrunk", True)):
            found = _mixture(
                self._tables,
                self._layout,
                self._work,
                name,
                seed=[self._seed, 8],
                fits=1,
                components=_TRIED,
                steps=_SIDE_STEPS,
                shrunk=shrunk,
            )
            risks.append(float(found["risk"]))
        return risks[0] - risks[1] > math.sqrt(2 * _cells(self._tables))

    def _alpha(self) -> float:
        sums = []
        for held, (fitted, rest) in enumerate(guard.parts(self._tables, [self._seed, 1])):
            name = f"guard {held + 1}"
            found = _mixture(
                fitted,
                self._layout,
                self._work,
                name,
                seed=[self._seed, 2, held],
                fits=_fits(self._layout, _GUARD_FITS),
                steps=_SIDE_STEPS,
                shrunk=self._shrunk,
            )
            rows = np.asarray(found["rows"], dtype=np.float32)
            sums.append(guard.agreement(self._layout, rows, one_way_shares(fitted), rest))
        return guard.alpha(sums)


def as_mixture(layout: Layout, rows: Singles, start: Sequence[Floats], alpha: float) -> Mixture:
    """Return the mixture with (1 - alpha) of the product of margins."""
    weights = np.full(len(rows), alpha / len(rows))
    probability = []
    for variable, columns in enumerate(layout.variables):
        own = rows[:, columns].astype(np.float64)
        if alpha < 1:
            own = np.vstack([own, start[variable]])
        probability.append(own / own.sum(axis=1, keepdims=True))
    if alpha < 1:
        weights = np.append(weights, 1 - alpha)
    return Mixture(weights=weights / weights.sum(), probability=tuple(probability))


def too_few_records(tables: NoisyTables) -> bool:
    """Return whether weighted records that can be published are fewer than the cells that were measured.

    Then no weights give them all tables. Columns of blocks of ma2018, as they are and at epsilon 3: where there are about as many
    (260 categories), weighted records are .83 and 1.05 times as far in pairs as the larger mixture, at 302 1.1 both times, at 470
    2.9 and 1.4, at 940 5.4 and 1.9, and there farther than the network, too.
    """
    return atoms.n_atoms(tables.n_states) < _cells(tables)


def larger(n_states: Sequence[int]) -> tuple[int, int]:
    """Return how many fits of how many components a larger mixture of these variables is made of.

    >>> larger((4,) * 250)
    (3, 233)
    """
    most, (each, least, many) = _COMPONENT_CELLS // (sum(n_states) + atoms.OVERHEAD), _LARGER
    fits = min(max(most // each, least), many)
    return fits, max(most // fits, 1)


def _cells(tables: NoisyTables) -> int:
    return sum(table.counts.size for table in tables.tables)


def _fits(layout: Layout, fits: int) -> int:
    """So many fits, or half of them where each takes seconds."""
    return fits if layout.n_entries <= _LARGE else (fits + 1) // 2


def share_of_noisy(piece: str, done: int, most: int) -> float:
    """Return how much of an estimate from noisy tables is done, at most: a fit that stops early leaps to its end.

    The last fit takes about four times as long as each of the six before it (ma2019 as drafted, epsilon 1 and 5).
    """
    weights = {"tables as they are": 1, "tables shrunk": 1, **{f"guard {n + 1}": 1 for n in range(guard.DRAWS)}}
    weights["mixture"] = 4
    if piece not in weights:  # what follows is short
        return 1.0
    before = sum(list(weights.values())[: list(weights).index(piece)])
    return (before + weights[piece] * min(done / most, 1.0)) / sum(weights.values())


def _mixture(
    tables: NoisyTables,
    layout: Layout,
    work: Work,
    name: str,
    *,
    seed: Sequence[int],
    fits: int | None = None,
    components: int = COMPONENTS,
    steps: int = STEPS,
    shrunk: bool = False,
    with_twin: bool = True,
) -> Arrays:
    def do() -> Arrays:
        start = one_way_shares(tables)
        own = _fits(layout, FITS) if fits is None else fits
        aims = targets(tables, start, layout=layout, shrunk=shrunk, with_twin=with_twin)
        found = fit(aims, start, seed=seed, fits=own, components=components, steps=steps, work=work)
        return {
            "rows": found.rows,
            "steps": np.array(found.steps),
            "risk": np.array(found.risk),
            "discrepancy": np.array(found.discrepancy),
            "reached": np.array(found.reached),
        }

    return work.piece(name, do)


def _raked(found: atoms.Raked, *, keep: int | None = None) -> Arrays:
    model = found.model if keep is None else atoms.heaviest(found.model, keep)
    return {
        "codes": model.codes,
        "weights": model.weights,
        "steps": np.array(found.sweeps),
        "discrepancy": np.array(found.discrepancy),
        "reached": np.array(found.reached),
    }


def _weighted(tables: NoisyTables, found: Arrays) -> WeightedRecords:
    codes, weights = np.asarray(found["codes"], np.uint16), np.asarray(found["weights"], np.float64)
    return WeightedRecords(n_states=tables.n_states, codes=codes, weights=weights)


def exactly(shares: Mapping[tuple[int, ...], Floats], tables: NoisyTables) -> NoisyTables:
    """Tables as if so many people had been counted as they are.

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


def _identity(tables: NoisyTables, seed: int) -> bytes:
    """32 bytes that name the tables, the seed and what a checkpoint holds (4: which tables are fitted, and a larger mixture)."""
    digest = hashlib.sha256(f"joint 4 {seed} {STEPS} {tables.n_states} {tables.n_records} {tables.relation}".encode())
    for unit in tables.units:
        digest.update(f"{unit.variables}{unit.domain}".encode() + unit.channel.digest())
    for table in tables.tables:
        digest.update(f"{table.units} {table.sigma!r} {len(table.parts)}".encode())
        for counts in (table.counts, *table.parts):
            digest.update(np.ascontiguousarray(counts, dtype=np.float64).tobytes())
    return digest.digest()


def refitted(
    tables: NoisyTables, of: JointEstimate, *, seed: int, fits: int, check: Callable[[], None] | None = None
) -> JointModel:
    """Return the model that other tables of the same kind give, with as much of the product of margins as an estimate: for a
    bootstrap.

    Of wide tables, where a fit takes seconds, it stops after as many steps as the estimate did. What tells when to stop, a second
    fit (`stopping`), is not made again.

    Args:
        tables: see `replicates.redrawn`.
        of: the estimate whose uncertainty is asked for.
        seed: of all that is drawn.
        fits: see `mixture.fit`.
        check: is called between short steps, and raises to stop.
    """
    work = Work() if check is None else Work(check=check)
    layout = Layout(tables.n_states, tables.units)
    wide = layout.n_entries > _LARGE
    found = _mixture(
        tables,
        layout,
        work,
        "mixture",
        seed=[seed],
        fits=_fits(layout, fits),
        steps=of.steps if wide else STEPS,
        shrunk=of.shrunk,
        with_twin=not wide,
    )
    return as_mixture(layout, np.asarray(found["rows"], dtype=np.float32), one_way_shares(tables), of.alpha)
