"""A mixture of products, fitted to all measured tables at once through the channels.

With T the probabilities of the variables in M components (rows), and R = released(T) what they are released as, the expected
released table of any two units is a block of R^T R / M. The residual D of all tables is one symmetric matrix, and R D, taken back
through the channels and the softmax of the logits, is the gradient of the sum of squared residuals: two matrix products a step,
whatever the number of pairs. The steps are Adam's (Kingma & Ba, 2015). Several mixtures (`Size`) with starts of their own are
fitted side by side, each to the whole; their mean is published, one mixture with all their components in equal parts: what each
fit has made of the noise alone is averaged out.

The residual of a cell is (e - f) / max(e, .5 / n) where the counts are exact or of randomized records, so that rare cells count;
with noise on the tables, which does not know of rare cells, it is (e - f) / variance. `stopping` says when to stop, with noise by
what a few more fits tell, each the twin of one of the others, from the same start's noise to tables that were moved a little.

Where people are divided into classes (`classes`), each component has the zeros of its class, and the weights of the components
are fitted, too: the logarithms of both take the same steps.

Large matrices are worked on in blocks of rows. Same seed, same machine, same result; a fit that was stopped goes on bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint import kernels
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.classes import Division, Weighing, classes_of
from verticil.shared.numerics.joint.layout import Layout, Singles
from verticil.shared.numerics.joint.smooth_steps import SmoothSteps, smooth_steps
from verticil.shared.numerics.joint.stopping import Discrepancy
from verticil.shared.numerics.joint.targets import OtherTable, Targets, expected_table, outer_rows
from verticil.shared.numerics.joint.tuning import TUNING, Size

_BETAS: Final = (0.9, 0.999)
_TINY: Final = 1e-8
_LEAST: Final = 1e-5  # share of a category at the start
_BLOCK: Final = 2**18  # cells of the residuals that are held at once: what a processor keeps near itself


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What a fit has found.

    Attributes:
        rows: (m, S) probabilities of all components.
        steps: after how many they were so.
        risk: what is made least; see `stopping`.
        discrepancy: theirs; see `stopping`.
        reached: whether it is as low as chance lets the truth's be.
        weights: (m,) of the components, that sum to 1; None: all weigh alike.
    """

    rows: Singles
    steps: int
    risk: float
    discrepancy: float
    reached: bool
    weights: Singles | None = None


def fit(
    sets: Sequence[Targets],
    start: Sequence[Floats],
    *,
    seed: Sequence[int],
    size: Size = TUNING.usual,
    orders: Sequence[Sequence[int]] = (),
    work: Work | None = None,
    divisions: Sequence[Division] = (),
) -> Fit:
    """Fit a mixture.

    Args:
        sets: what to, at each resolution.
        start: the distribution of each variable.
        seed: of the starts' noise.
        size: how large it is.
        orders: of each variable the codes of its ordered categories, whose steps are smooth (`smooth_steps`).
        work: progress, stopping and going on; see there.
        divisions: of people into classes, each of which has zeros of its own; none: all components are alike.
    """
    work, targets = work or Work(), sets[0]
    smooth = smooth_steps(targets.layout, orders, start, size.rate)
    layout, fits, components, steps = targets.layout, size.fits, size.components, size.steps
    state = work.state()
    twins = max(1, fits // TUNING.twins) if targets.twin is not None else 0
    weighing = None
    if divisions:
        own = classes_of(divisions, layout, start, fits=fits, components=components, seed=seed)
        weighing = Weighing(own, twins, state)
    best_weights: Singles | None = None
    if state is None:
        base = np.log(np.maximum(np.concatenate(list(start)), _LEAST))
        noise = np.random.default_rng(list(seed)).normal(0.0, TUNING.spread, (fits, components, len(base)))
        logits = (base + noise).astype(np.float32)
        if targets.twin is not None:
            moved = np.log(np.maximum(targets.twin.start, _LEAST))
            logits = np.concatenate([logits, (moved + noise[:twins]).astype(np.float32)])
        if weighing is not None:
            logits[~weighing.possible] = -np.inf
        first, second, step = np.zeros_like(logits), np.zeros_like(logits), 0
        best, risk, best_step, best_discrepancy = logits[:fits].copy(), math.inf, 0, math.inf
    else:
        logits, first, second, best = (
            np.array(state[name], dtype=np.float32) for name in ("logits", "first", "second", "best")
        )
        step, best_step = int(state["step"]), int(state["best_step"])
        risk, best_discrepancy = float(state["risk"]), float(state["discrepancy"])
        best_weights = np.array(state["best_weights"], dtype=np.float32) if divisions else None
    stop = Discrepancy(sets)
    while True:
        rows = probabilities(layout, logits)
        gradient = residual_gradient(sets, rows, stop, work, twins=twins, weighing=weighing)
        if stop.risk < risk:
            best[:] = logits[:fits]
            best_weights = None if weighing is None else weighing.of_fits(fits)
            risk, best_step, best_discrepancy = stop.risk, step, stop.discrepancy
        if stop.is_over(step, best_step) or step >= steps:
            found = probabilities(layout, best).reshape(fits * components, -1)
            return Fit(found, best_step, risk, best_discrepancy, best_discrepancy <= stop.goal, best_weights)
        step += 1
        with np.errstate(invalid="ignore"):  # what is impossible stays so
            _adam(logits, through_softmax(layout, rows, gradient), first, second, step, rate=size.rate, smooth=smooth)
        if weighing is not None:
            _adam(*weighing.arguments(), step, rate=size.rate)
        work.report(step, steps)
        work.keep(
            {
                "logits": logits, "first": first, "second": second, "step": np.array(step), "best": best,
                "risk": np.array(risk), "best_step": np.array(best_step), "discrepancy": np.array(best_discrepancy),
                **({} if weighing is None or best_weights is None else weighing.state() | {"best_weights": best_weights}),
            }
        )  # fmt: skip


def probabilities(layout: Layout, logits: Singles) -> Singles:
    """Return the softmax of each variable's logits: (.., S). Logits stay far from where exp overflows."""
    rows = np.exp(logits)
    kernels.normalize(rows.reshape(-1, rows.shape[-1]), layout.ends)
    return rows


def through_softmax(layout: Layout, rows: Singles, gradient: Singles) -> Singles:
    """Return the gradient for the logits, from that for the probabilities; overwrites it."""
    width = rows.shape[-1]
    kernels.through_softmax(rows.reshape(-1, width), gradient.reshape(-1, width), layout.ends)
    return gradient


def residual_gradient(
    sets: Sequence[Targets],
    rows: Singles,
    stop: Discrepancy,
    work: Work,
    *,
    twins: int = 0,
    weighing: Weighing | None = None,
) -> Singles:
    """Return the gradient for the probabilities of every fit; the mean of the fits is measured by the way.

    Args:
        sets: what is fitted, at each resolution.
        rows: (fits + twins, components, S) probabilities; the last are the twins of the first.
        stop: has the measures afterwards.
        work: is asked between blocks whether to stop.
        twins: how many; they are fitted to the targets' twins.
        weighing: has the weights of the components, and gets the gradient for them; None: all weigh alike.

    Returns:
        (fits + twins, components, S): R D, taken back to the probabilities.
    """
    stop.begin()
    if weighing is not None:
        weighing.begin()
    first, *rest = (_gradient(targets, rows, stop, work, twins=twins, weighing=weighing) for targets in sets)
    for more in rest:
        first += more
    stop.end()
    return first


def _gradient(
    targets: Targets, rows: Singles, stop: Discrepancy, work: Work, *, twins: int, weighing: Weighing | None
) -> Singles:
    """Return what the tables of one resolution say; arguments as of `residual_gradient`."""
    layout, twin = targets.layout, targets.twin
    released = layout.released(rows)
    count, components, size = released.shape
    fits = count - twins
    gradient = np.zeros_like(released)
    weights = None if weighing is None else weighing.weights()
    scaled = released / np.float32(components) if weights is None else released * weights[..., None]
    whole = released[:fits].reshape(fits * components, size)
    squares = layout.released(rows[:fits], squared=True).reshape(whole.shape) if stop.needs_squares else None
    stop.turn_to(targets, whole, squares, None if weighing is None else weighing.of_fits(fits))
    for block, onward in upper_blocks(size):
        work.check()
        shares, weight = targets.shares[block, onward], targets.weight[block, onward]
        width = block.stop - block.start
        expected = np.zeros(shares.shape, np.float32)
        originals: list[Singles] = []
        for place, (fit_rows, fit_gradient) in enumerate(zip(released, gradient, strict=True)):
            own, aim = scaled[place][:, block].T @ fit_rows[:, onward], shares
            if place < fits:
                expected += own
            if place < twins:
                originals.append(own.copy())
            if twin is not None and place >= fits:
                aim = twin.shares[block, onward]
                stop.add_twin((own - originals[place - fits]) * twin.move[block, onward], True, twins)
            residual = _residual(targets, own, aim, weight)
            fit_gradient[:, block] += fit_rows[:, onward] @ residual.T
            fit_gradient[:, block.stop :] += fit_rows[:, block] @ residual[:, width:]
        expected /= fits
        stop.add_pairs(block, onward, expected)
    if weighing is not None:
        weighing.take(released, gradient)
    for number, other in enumerate(targets.others):
        aims = [other.shares] * fits + ([] if twin is None else [twin.others[number].shares] * twins)
        _add_other(targets, other, aims, released, gradient, weighing=weighing)
        stop.add_other(other)
        for place in range(twins):
            away, near = (
                expected_table(
                    [released[at][:, layout.entries[unit]] for unit in other.units],
                    None if weights is None else weights[at],
                )
                for at in (fits + place, place)
            )
            away = away - near
            stop.add_twin(away * ((aims[-1] - other.shares) * other.weight), False, twins)
    return layout.back(rows, gradient)


def upper_blocks(size: int) -> list[tuple[slice, slice]]:
    """Blocks of rows, each with the columns from its first row on, of at most `_BLOCK` cells: half of a symmetric matrix.

    What is below the diagonal is above it, too, but for the square on the diagonal, which has all its cells.
    """
    found, at = [], 0
    while at < size:
        end = min(at + max(1, _BLOCK // (size - at)), size)
        found.append((slice(at, end), slice(at, size)))
        at = end
    return found


def _residual(targets: Targets, expected: Singles, shares: Singles, weight: Singles) -> Singles:
    """Return the residual of some cells; `expected` may be overwritten."""
    if targets.noisy:
        expected -= shares
        expected *= weight
        return expected
    residual = expected - shares
    residual /= np.maximum(expected, np.float32(0.5 / targets.n))
    residual *= weight
    return residual


def _add_other(
    targets: Targets,
    other: OtherTable,
    aims: Sequence[Singles],
    released: Singles,
    gradient: Singles,
    *,
    weighing: Weighing | None,
) -> None:
    """Add what a table of one unit, or of three and more, says to the gradient."""
    places = [targets.layout.entries[unit] for unit in other.units]
    weights = None if weighing is None else weighing.weights()
    for number, (aim, fit_rows, fit_gradient) in enumerate(zip(aims, released, gradient, strict=True)):
        parts = [fit_rows[:, place] for place in places]
        expected = expected_table(parts, None if weights is None else weights[number])
        residual = _residual(targets, expected, aim, other.weight)
        if weighing is not None:
            weighing.gradient[number] += outer_rows(parts) @ residual.reshape(-1)
        for axis, place in enumerate(places):
            rest = [part for at, part in enumerate(parts) if at != axis]
            flat = np.moveaxis(residual, axis, -1).reshape(-1, residual.shape[axis])
            fit_gradient[:, place] += outer_rows(rest) @ flat if rest else flat


def _adam(
    logits: Singles,
    gradient: Singles,
    first: Singles,
    second: Singles,
    step: int,
    *,
    rate: float,
    smooth: SmoothSteps | None = None,
) -> None:
    """Take one step of Adam, in place; with `smooth` in its coordinates."""
    one, two = _BETAS
    if smooth is not None:
        gradient = smooth.coordinates(gradient)
    first *= np.float32(one)
    first += np.float32(1 - one) * gradient
    second *= np.float32(two)
    second += np.float32(1 - two) * (gradient * gradient)
    scale = np.sqrt(second / np.float32(1 - two**step))
    scale += np.float32(_TINY)
    change = (np.float32(rate / (1 - one**step)) * first / scale).astype(np.float32, copy=False)
    logits -= change if smooth is None else smooth.logits(change)
