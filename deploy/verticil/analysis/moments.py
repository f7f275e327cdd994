"""Linear regression from tables of two columns, without the shrinkage that noise causes.

Least squares needs the moments A = E[x x'] and c = E[x y] alone. Each is a sum over the table of two columns. The published
tables are unbiased, whatever noise or randomization they carry, and so are A and c. Their solution b lacks the attenuation of
an ordinary regression on synthetic records, up to terms of second order.

**Interval.** At the true coefficients the error of c - A b has the mean 0, and draws of all errors give its covariance
(`tables`). For one coefficient the others are profiled out. The interval holds every value t at which the remaining equation
is within z of its standard error. That error depends on t: Fieller's interval of a ratio (1954). With d the direction in which
all coefficients move with the j-th, p = A^-1 (dc - dA b) and q = A^-1 dA d,

    tau^2 <= z^2 Var(p_j - tau q_j),      t = b_j + tau.

Where Var(q_j) z^2 reaches 1 the noise does not tell the predictor's own variation from none, and every value would fit. Where
terms of second order, -E[A^-1 dA A^-1 (dc - dA b)], move an estimate by more than `MOST_BIAS` of its standard error, there are
more coefficients than the noise allows. Then the category with the noisiest moments is merged with its column's reference, and so
on; the result names what was merged. Where a number or a whole column is what drowns, the regression is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from verticil.analysis.design import Design
from verticil.analysis.published_shares import N_DRAWS, N_RECORDS, Measured, Shares, published_shares, seeded
from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.core.errors import GateFailed

MOST_BIAS: Final = 0.5
"""Of a standard error: with a bias of half of it an interval of 95 % holds 92 %."""
MOST_COEFFICIENTS: Final = 60
"""Draws of their moments take some 10 CPU seconds and 100 MB then."""
_RECORDS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coefficients:
    """Estimates of all coefficients, each (p,), in the order of the design.

    Attributes:
        estimate: of the population that the people are from.
        standard_error: over people, randomization and noise.
        low, high: ends of the intervals.
    """

    estimate: Floats
    standard_error: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """E[x x'], (p, p), and E[x y], (p,), of a regression; of draws their errors, with one more axis in front."""

    xx: Floats
    xy: Floats

    def under(self, transform: Floats) -> Moments:
        """Return the moments of T x."""
        return Moments(xx=transform @ self.xx @ transform.T, xy=self.xy @ transform.T)


def regress_tables(measured: Measured, design: Design, level: float) -> tuple[Design, Coefficients]:
    """Return the coefficients by least squares from the published tables, and the design with what had to be merged.

    Raises:
        Misuse: USAGE, the release does not publish what is needed.
        GateFailed: TOO_NOISY.
    """
    variables = design.variables
    pairs = [(a, b) for a in variables for b in variables if a < b]
    if (size := design.starts[-1]) > MOST_COEFFICIENTS:
        raise GateFailed(
            "TOO_NOISY",
            f"formula: {size} coefficients, expected at most {MOST_COEFFICIENTS}",
            hint="leave columns out, or use columns with fewer categories",
        )
    published = _moments(design, published_shares(measured.models, variables, pairs), 1.0)
    generator = seeded()
    noise = _moments(design, measured.noise(variables, pairs, generator), 0.0)
    people = _errors_of_people(measured, design, generator)
    return solve(published, Moments(xx=noise.xx + people.xx, xy=noise.xy + people.xy), design, level)


def solve(published: Moments, errors: Moments, design: Design, level: float) -> tuple[Design, Coefficients]:
    """Return the coefficients that solve the published moments, see the module.

    Args:
        published: unbiased.
        errors: draws of their errors.
        design: of both.
        level: of each interval.

    Raises:
        GateFailed: TOO_NOISY.
    """
    while True:
        coefficients, bad = _solve(published, errors, level)
        if not bad.any():
            return design, coefficients
        scale = np.sqrt(np.maximum(np.diag(published.xx) - published.xx[0] ** 2, 1e-12))
        scale[0] = 1.0
        noise = (errors.xx.var(axis=0) / np.outer(scale, scale) ** 2).sum(axis=1)
        options = ((design.without(place), place) for place in np.argsort(-noise).tolist())
        option = next((smaller for smaller, _ in options if smaller is not None), None)
        if option is None:
            break
        design, transform = option
        published = published.under(transform)
        errors = errors.under(transform)
    names = [label for label, is_bad in zip(design.labels, bad, strict=True) if is_bad]
    raise GateFailed(
        "TOO_NOISY",
        f"formula: the noise of this release does not allow {len(bad)} coefficients; no interval holds for {', '.join(names)}",
        hint="leave columns out, or ask for a release with a larger epsilon",
    )


def _solve(published: Moments, errors: Moments, level: float) -> tuple[Coefficients, Bools]:
    """Return all coefficients, and which of them the noise leaves without an interval."""
    size = len(published.xy)
    try:
        inverse = np.linalg.inv(published.xx)
    except np.linalg.LinAlgError:
        nothing = np.full(size, np.nan)
        empty = Coefficients(estimate=nothing, standard_error=nothing, low=nothing, high=nothing)
        return empty, np.ones(size, np.bool_)
    estimate = inverse @ published.xy
    p = (errors.xy - errors.xx @ estimate) @ inverse.T
    covariance = np.cov(p.T).reshape(size, size)
    variance = np.diag(covariance)
    bias = -np.einsum("ij,rjk,rk->i", inverse, errors.xx, p, optimize=True) / len(p)
    # q of each coefficient: (draws, p), by the direction in which all move with it.
    q = np.einsum("ji,rik,kj->rj", inverse, errors.xx, covariance / variance, optimize=True)
    q_variance = q.var(axis=0, ddof=1)
    both = ((p - p.mean(axis=0)) * (q - q.mean(axis=0))).sum(axis=0) / (len(p) - 1)
    z = NormalDist().inv_cdf((1 + level) / 2)
    leading = 1 - z**2 * q_variance
    bad = (leading <= 0) | (np.abs(bias) > MOST_BIAS * np.sqrt(variance)) | (np.diag(inverse) <= 0)
    leading = np.where(bad, np.nan, leading)
    middle = -(z**2) * both / leading
    half = np.sqrt(middle**2 + z**2 * variance / leading)
    return Coefficients(
        estimate=estimate,
        standard_error=np.sqrt(variance),
        low=estimate + middle - half,
        high=estimate + middle + half,
    ), bad


def _moments(design: Design, shares: Shares, total: float) -> Moments:
    """Sum the shares of categories to moments; `total` is the share of all people."""
    lead = shares.one[design.outcome].shape[:-1]
    starts = design.starts
    xx, xy = np.zeros((*lead, starts[-1], starts[-1])), np.zeros((*lead, starts[-1]))
    xx[..., 0, 0] = total
    xy[..., 0] = shares.one[design.outcome] @ design.values
    for place, predictor in enumerate(design.predictors):
        own, features, share = (
            slice(starts[place], starts[place + 1]),
            predictor.features,
            shares.one[predictor.variable],
        )
        xx[..., 0, own] = xx[..., own, 0] = share @ features
        xx[..., own, own] = np.einsum("...k,ki,kj->...ij", share, features, features, optimize=True)
        xy[..., own] = np.einsum(
            "...ab,ai,b->...i",
            _pair(shares, predictor.variable, design.outcome),
            features,
            design.values,
            optimize=True,
        )
        for later, other in enumerate(design.predictors[place + 1 :], start=place + 1):
            its = slice(starts[later], starts[later + 1])
            table = _pair(shares, predictor.variable, other.variable)
            block = np.einsum("...ab,ai,bj->...ij", table, features, other.features, optimize=True)
            xx[..., own, its], xx[..., its, own] = block, block.swapaxes(-1, -2)
    return Moments(xx=xx, xy=xy)


def _pair(shares: Shares, a: int, b: int) -> Floats:
    return shares.two[a, b] if a < b else shares.two[b, a].swapaxes(-1, -2)


def _errors_of_people(measured: Measured, design: Design, generator: np.random.Generator) -> Moments:
    """Draw the errors of the moments by the choice of people and by the randomization of their columns."""
    records = measured.records(N_RECORDS, generator)
    size = design.starts[-1]
    total, weight, mean = np.zeros((N_DRAWS, size * (size + 1))), np.zeros(N_DRAWS), np.zeros(size * (size + 1))
    for part in _of_records(measured, design, records, generator):
        multipliers = generator.standard_normal((N_DRAWS, len(part)))
        total += multipliers @ part
        weight += multipliers.sum(axis=1)
        mean += part.sum(axis=0) / N_RECORDS
    total = (total - weight[:, None] * mean) / np.sqrt(N_RECORDS * measured.n_people)
    return Moments(xx=total[:, : size * size].reshape(-1, size, size), xy=total[:, size * size :])


def _of_records(
    measured: Measured, design: Design, records: list[np.ndarray], generator: np.random.Generator
) -> Iterator[Floats]:
    """Yield x x' and x y of records as they are released, in parts: (n, p p + p); unbiased for the true ones."""
    starts = design.starts
    units = {measured.unit_of[v]: None for v in design.variables}
    released = {unit: measured.randomized(records, unit, generator) for unit in units}
    outcome = measured.unit_of[design.outcome]
    of_outcome = measured.weights([design.outcome]) @ design.values
    columns = [
        (slice(a, b), p, measured.unit_of[p.variable])
        for a, b, p in zip(starts, starts[1:], design.predictors, strict=False)
    ]
    single = [measured.weights([p.variable]) @ p.features for _, p, _ in columns]
    for start in range(0, N_RECORDS, _RECORDS_AT_ONCE):
        codes = {unit: column[start : start + _RECORDS_AT_ONCE] for unit, column in released.items()}
        x = np.column_stack(
            [np.ones(len(codes[outcome])), *(row[codes[u]] for row, (_, _, u) in zip(single, columns, strict=True))]
        )
        y = of_outcome[codes[outcome]]
        xx, xy = x[:, :, None] * x[:, None, :], x * y[:, None]
        for place, (own, predictor, unit) in enumerate(columns):
            both = np.einsum(
                "mk,ki,kj->mij", measured.weights([predictor.variable]), predictor.features, predictor.features
            )
            xx[:, own, own] = both[codes[unit]]
            if unit == outcome:
                table = measured.weights([predictor.variable, design.outcome])
                xy[:, own] = np.einsum("mab,ai,b->mi", table, predictor.features, design.values)[codes[unit]]
            for its, other, other_unit in columns[place + 1 :]:
                if other_unit == unit:
                    table = measured.weights([predictor.variable, other.variable])
                    block = np.einsum("mab,ai,bj->mij", table, predictor.features, other.features)[codes[unit]]
                    xx[:, own, its], xx[:, its, own] = block, block.swapaxes(1, 2)
        yield np.concatenate([xx.reshape(len(x), -1), xy], axis=1)
