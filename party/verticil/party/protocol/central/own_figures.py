"""What a release says of this party's own columns, held against what this party sent: before a countersignature.

Whoever learns could turn a column's probabilities round, break the dependence of two columns, or publish records of its own
making, and sign it all. A party still has the randomized columns that it sent, so it compares

- exactly, up to rounding: the unbiased shares of each own column with their standard errors, and every figure of a family whose
  variables are all its own; they are functions of what was sent. The network's shares of all columns, and the network in the
  other formats, are functions of model.json;
- by a test: every family of the synthetic records with the network (`shared.release.synthetic`), and both tables with each other;
- by a bound: the shares of each own column with foreign parents, and its table with each own parent. Whatever the parents'
  joint shares are, weighed with them the rows of the family's table give what was fitted to the sent column. They are not
  published; those that bring the release nearest to what was sent are taken, with the published one-way shares of each parent.

False alarms: the test names honest records in at most 1e-6 / 2 of all releases. The bound is

    |theirs - ours|_2 <= sqrt(sum SE^2) + z max SE + the prior's share of the family + 0.02,

z such that a normal vector with these standard errors passes its first two terms in at most 1e-6 / 2 of all releases, all
comparisons together. The rest is for an honest fit: the prior's records, where there is one in every cell, and what a fit of the
whole family leaves; what rows lean on is taken off their table (`_Own.fitted`). In 52 releases of the shipped federation (300 to
30,647 people, epsilon 0.5 to 8, up to three parents, three estimators), with a prior in every cell, none used it.
Under strong noise or with few people the bound says little; the rest always holds. Two own columns that no arrow joins are not
compared with what was sent: the network says how they depend through others, and an honest one need not be right about that.

Nothing is told to anybody by this but whether the party signs, which depends only on what it sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from verticil.shared.arrays import AnyCodes, Floats
from verticil.shared.errors import GateFailed
from verticil.shared.estimation import estimators, parameters
from verticil.shared.estimation.contingency import family_counts
from verticil.shared.estimation.design import FamilyDesign, family_design
from verticil.shared.estimation.smaller_families import leaned_on, row_weight
from verticil.shared.formats import bif, model_json, xmlbif
from verticil.shared.formats.json_document import Node, parse
from verticil.shared.model.network import Family, Network
from verticil.shared.release.shares import model_shares
from verticil.shared.release.synthetic import TABLES, read_records, unlikely_family
from verticil.shared.study.document import Study
from verticil.shared.study.prior import estimator_of, prior_mass

FALSE_ALARMS: Final = 1e-6
"""Of honest releases, so many are refused at most."""
_ROUNDING: Final = 1e-6
_FIT_ROUNDING: Final = 1e-2  # of a probability that another processor may have fitted with a step more or less
_SAMPLED: Final = 5e-3  # of a share that was read from a million records
_STEPS: Final = 50
_MISFIT: Final = 0.02


def check_own_figures(folder: Path, study: Study, party: str, columns: Mapping[int, AnyCodes]) -> None:
    """Compare a release, whose signatures and digests hold, with what this party sent.

    Args:
        folder: the release.
        study: the effective study.
        party: this one.
        columns: released codes of each of its units, as sent.

    Raises:
        GateFailed: RELEASE_INVALID, which column and which figure.
    """
    document = (folder / "model.json").read_bytes()
    network = model_json.read(document)
    n_people = len(next(iter(columns.values()))) // study.units[next(iter(columns))].transition.codes_per_record
    own = _Own(study=study, party=party, columns=columns, n_people=n_people)
    marginals = parse(document, source="model.json")["marginals"]
    _check_shares(own, marginals, network)
    for child in own.variables:
        if own.variables.issuperset(network.dag.parents[child]):
            _check_family(own, network.families[child])
    _check_bounds(own, marginals, network)
    _check_formats(folder, network)
    _check_records(folder, study, network, n_people)


class _Own:
    """What this party sent, and what can be estimated from it alone."""

    def __init__(self, *, study: Study, party: str, columns: Mapping[int, AnyCodes], n_people: int) -> None:
        self.study = study
        self.n_people = n_people
        self.variables = frozenset(study.schema.owned_by(party))
        self._columns = columns
        self._units = [study.column_unit(index) for index in range(len(study.units))]

    def counted(self, axes: Sequence[int]) -> tuple[NDArray[np.float64], FamilyDesign]:
        """The observed table of some own variables and how they were randomized."""
        design = family_design(self._units, self.study.schema.n_states, axes)
        return family_counts(self._columns, design), design

    def fitted(self, family: Family, weights: Floats) -> Floats:
        """The joint shares of parents and child that a family was fitted to, if `weights` are the parents' joint shares.

        Where rows lean on smaller tables, what they lean on is taken off again.
        """
        table = family.probability.reshape(*weights.shape, -1)
        if self.study.parameters.prior_count is not None or not family.parents:
            return weights[..., None] * table
        design = family_design(self._units, self.study.schema.n_states, (*family.parents, family.child))
        lent = row_weight(design, tuple(range(len(family.parents)))) / self.n_people
        on = leaned_on(table, self.n_people * weights, design)
        return np.maximum((weights[..., None] + lent) * table - lent * on, 0.0)

    def name(self, variables: Sequence[int]) -> str:
        """In words."""
        return ", ".join(f"'{self.study.schema.names[variable]}'" for variable in variables)


def _check_shares(own: _Own, published: Node, network: Network) -> None:
    models, exact = model_shares(network)
    level = own.study.parameters.interval_level
    for variable, (node, model) in enumerate(zip(_each_variable(published, network), models, strict=True)):
        where = own.name([variable])
        if not _alike(np.array(node["model"].floats()), model, _ROUNDING if exact else _SAMPLED):
            _differs(f"column {where}: the network's shares in the marginals are not those of its tables")
        if variable not in own.variables:
            continue
        observed, design = own.counted((variable,))
        ours = parameters.marginal_parameters(observed, design, variable=variable, model=model, level=level)
        for key, value in (("estimate", ours.estimate), ("standard_error", ours.standard_error)):
            if not _alike(np.array(node[key].floats()), value, _ROUNDING):
                _differs(f"column {where}: its {_WORDS[key]} are not those of what this party sent")


def _each_variable(published: Node, network: Network) -> tuple[Node, ...]:
    nodes = published.items()
    if [node["variable"].text() for node in nodes] != list(network.schema.names):
        published.fail("expected each variable once, in order")
    return nodes


_WORDS: Final = {
    "estimate": "unbiased shares",
    "standard_error": "standard errors",
    "probability": "probabilities",
}


def _check_family(own: _Own, family: Family) -> None:
    """A family of own variables alone is a function of what was sent."""
    rule = own.study.parameters
    observed, design = own.counted((*family.parents, family.child))
    try:
        ours = parameters.family_parameters(
            observed,
            design,
            family.child,
            family.parents,
            prior_count=rule.prior_count,
            level=rule.interval_level,
            estimator=estimator_of(rule, own.study.schema[family.child].name),
        )
    except ValueError:
        _differs(f"column {own.name([family.child])}: what this party sent gives no probabilities for its family")
    for key, rounding in (("probability", _FIT_ROUNDING), ("estimate", _ROUNDING), ("standard_error", _ROUNDING)):
        if not _alike(getattr(family, key), getattr(ours, key), rounding):
            _differs(
                f"column {own.name([family.child])}: the {_WORDS[key]} of its family are not those of what this party sent"
            )


def _check_bounds(own: _Own, published: Node, network: Network) -> None:
    """The tables of own columns with foreign parents, alone and with each own parent."""
    wanted = [
        (child, kept)
        for child in sorted(own.variables)
        if not own.variables.issuperset(parents := network.dag.parents[child])
        for kept in ((), *((parent,) for parent in parents if parent in own.variables))
    ]
    z = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / max(len(wanted), 1))
    shares = [_distribution(np.array(node["estimate"].floats())) for node in published]
    for child, kept in wanted:
        if (excess := _excess(own, network.families[child], kept, shares, z)) > 0:
            figure = f"shares together with {own.name(kept)}" if kept else "shares"
            _differs(
                f"column {own.name([child])}: by its family's probabilities its {figure} are not those of what this party sent "
                f"({excess:.3f} beyond what noise and fit explain)"
            )


def _excess(own: _Own, family: Family, kept: tuple[int, ...], shares: Sequence[Floats], z: float) -> float:
    """How far the table of the kept parents and the child is beyond the bound of the module's text."""
    rule, n = own.study.parameters, own.n_people
    observed, design = own.counted((*kept, family.child))
    ours = estimators.em_estimate(observed, design, prior_count=rule.prior_count or 0.0) / n
    error = np.sqrt(design.variance_total(observed)) / n
    mass = (
        0.0
        if rule.prior_count is None
        else prior_mass(rule, own.study.schema[family.child].name, family.probability.shape)
    )
    noise = float(np.sqrt((error**2).sum())) + z * float(error.max())
    distance = float(np.sqrt(((_nearest(own, family, kept, shares, ours) - ours) ** 2).sum()))
    return distance - noise - mass / (n + mass) - _MISFIT


def _nearest(own: _Own, family: Family, kept: tuple[int, ...], shares: Sequence[Floats], ours: Floats) -> Floats:
    """The table of the kept parents and the child, under joint shares of the parents that bring it nearest to `ours`.

    The parents' one-way shares are the published ones; how they depend on each other nobody but the miner knows, so the
    dependence that speaks for the release is found, by expectation-maximization and iterative proportional fitting.
    """
    shape = [len(shares[parent]) for parent in family.parents]
    table = family.probability.reshape([*shape, -1])
    others = tuple(axis for axis, parent in enumerate(family.parents) if parent not in kept)
    weights: Floats = np.ones(())
    for parent in family.parents:
        weights = np.multiply.outer(weights, shares[parent])
    for _ in range(_STEPS):
        made = own.fitted(family, weights).sum(axis=others, keepdims=True)
        ratio = np.divide(ours.reshape(made.shape), made, out=np.zeros_like(made), where=made > 0)
        weights = weights * (table * ratio).sum(axis=-1)
        for axis, parent in enumerate(family.parents):
            apart = tuple(other for other in range(len(shape)) if other != axis)
            total = weights.sum(axis=apart, keepdims=True)
            wanted = shares[parent].reshape(total.shape)
            weights = weights * np.divide(wanted, total, out=np.zeros_like(total), where=total > 0)
    nearest: Floats = own.fitted(family, weights).sum(axis=others).reshape(ours.shape)
    return nearest


def _distribution(estimate: Floats) -> Floats:
    positive = np.maximum(np.nan_to_num(estimate), 0.0)
    return positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))


def _check_formats(folder: Path, network: Network) -> None:
    for name, write in (("network.bif", bif.network_to_bif), ("network.bifxml", xmlbif.network_to_xmlbif)):
        if (folder / name).read_bytes() != write(network):
            _differs(f"{name}: it is not the network of model.json")


def _check_records(folder: Path, study: Study, network: Network, n_people: int) -> None:
    n_records = study.release.synthetic_records or n_people
    text, binary = (read_records(folder / name, study.schema, n_records) for name in TABLES)
    for variable, (one, other) in enumerate(zip(text, binary, strict=True)):
        if not np.array_equal(one, other):
            _differs(f"column '{study.schema.names[variable]}': {TABLES[0]} and {TABLES[1]} hold different records")
    if (found := unlikely_family(network, text, FALSE_ALARMS / 2)) is not None:
        _differs(f"column '{study.schema.names[found]}': the synthetic records were not drawn from the network")


def _alike(got: Floats, expected: Floats, rounding: float) -> bool:
    return got.shape == expected.shape and np.allclose(got, expected, rtol=rounding, atol=rounding, equal_nan=True)


def _differs(problem: str) -> NoReturn:
    raise GateFailed(
        "RELEASE_INVALID", problem, hint="do not countersign: deny the study, and ask the miner's operator"
    )
