"""What a release says of this party's own columns, held against what this party sent: before a countersignature.

Whoever learns could turn a column's probabilities round, break the dependence of two columns, or publish records of its own
making, and sign it all. A party still has the randomized columns that it sent, so it compares

- exactly, up to rounding: the unbiased shares of each own column with their standard errors, and every figure of a family whose
  variables are all its own; they are functions of what was sent. The network's shares of all columns, and the network in the
  other formats, are functions of model.json;
- by a test: every family of the synthetic records with the network, or every pair with the joint model that they come from
  (`shared.synthesis.synthetic`), and both tables with each other;
- by a bound: the shares of each own column with foreign parents, and its table with each own parent. Whatever the parents'
  joint shares are, weighed with them the rows of the family's table give what was fitted to the sent column. They are not
  published; those that bring the release nearest to what was sent are taken, with the published one-way shares of each parent.
  Where there is a joint model, its shares of each own column and each pair of own columns. Where networks were drawn from a
  posterior, the shares of each own column in each of them, with twice the first two terms: a draw has an error of its own. Their
  records are held against them by verification.

False alarms: the test names honest records in at most 1e-6 / 2 of all releases. The bound is

    |theirs - ours|_2 <= sqrt(sum SE^2) + z max SE + the prior's share of the family + 0.02,

z such that a normal vector with these standard errors passes its first two terms in at most 1e-6 / 2 of all releases, all
comparisons together. The rest is for an honest fit: the prior's records, where there is one in every cell, and what a fit of the
whole family leaves; what rows lean on is taken off their table (`_Own.fitted`). In 52 releases of the shipped federation (300 to
30,647 people, epsilon 0.5 to 8, up to three parents, three estimators), with a prior in every cell, none used it.
Under strong noise or with few people the bound says little; the rest always holds. Two own columns that no arrow joins are not
compared with what was sent: the network says how they depend through others, and an honest one need not be right about that.

Nothing leaves by this but whether the party signs, which depends only on what it sent.

With noise on tables (``tables``) nothing is compared: what says of which columns a release was made would tell what the noise
hides.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.arrays import AnyCodes, Codes, Floats
from verticil.shared.core.errors import GateFailed, PeerFault
from verticil.shared.documents.json_document import JsonNode, parse
from verticil.shared.numerics.estimation import estimators, parameters
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign, family_design
from verticil.shared.numerics.estimation.parent_smoothing import leaned_on, row_weight
from verticil.shared.numerics.model import artifact
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.release.formats import bif, model_json, posterior
from verticil.shared.release.verification import network_in_files
from verticil.shared.study.document import Study
from verticil.shared.study.prior import estimator_of, prior_mass
from verticil.shared.synthesis.marginals import model_shares
from verticil.shared.synthesis.record_checks import record_fault

FALSE_ALARMS: Final = 1e-6
"""Of honest releases, so many are refused at most."""
_ROUNDING: Final = 1e-6
_FIT_ROUNDING: Final = 1e-2  # of a probability that another processor may have fitted with a step more or less
_SAMPLED: Final = 5e-3  # of a share that was read from a million records
_STEPS: Final = 50
_MISFIT: Final = 0.02


def check_release(site: Site, record: StudyRecord, study: Study, folder: Path) -> None:
    """Compare a release with the columns that this party sent; a `with_miner.countersigning.ReleaseCheck`."""
    if study.tables is None:
        _check_own_columns(site, record, folder)
        check_own_figures(folder, study, site.config.name, _read_sent_columns(site, record, study))


def _check_own_columns(site: Site, record: StudyRecord, folder: Path) -> None:
    """Check that the manifest's receipts for this party's units are of the bytes that it sent."""
    manifest = cast("dict[str, list[dict[str, str]]]", json.loads((folder / "manifest.json").read_bytes()))
    bodies = [cast("dict[str, object]", json.loads(receipt["body"])) for receipt in manifest["receipts"]]
    receipt_digests = {body["unit"]: body["artifact_sha256"] for body in bodies if body["party"] == site.config.name}
    artifacts = site.state.artifacts(record.digest, record.task.effective_digest)
    wrong = [unit for unit, item in artifacts.items() if receipt_digests.get(unit) != item.sha256.hex()]
    if wrong:
        raise GateFailed(
            "RELEASE_INVALID",
            f"{folder}: it was made from other columns of this party than those that were sent (units {wrong})",
        )


def _read_sent_columns(site: Site, record: StudyRecord, study: Study) -> dict[int, Codes]:
    """Return the randomized columns that this party sent."""
    columns: dict[int, Codes] = {}
    for unit, item in site.state.artifacts(record.digest, record.task.effective_digest).items():
        path = site.config.state_directory / "spool" / item.sha256.hex()
        packed_codes = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(packed_codes).digest() != item.sha256:
            site.decisions.mark_fetched(record.digest, here=False)
            raise PeerFault(
                "NOT_READY",
                f"study '{record.study_id}': a column that was sent is no longer on this disk, so the release cannot be compared",
                hint="the running daemon makes it again: verticil party status",
            )
        channel = study.units[unit].transition
        width = channel.codes_per_record
        columns[unit] = artifact.unpack(packed_codes, channel.n_states, record.n_common or 0, codes_per_record=width)
    return columns


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
    root = parse(document, source="model.json")
    marginals = root["marginals"]
    _check_shares(own, marginals, network)
    for child in own.variables:
        if own.variables.issuperset(network.dag.parents[child]):
            _check_family(own, network.families[child])
    joint = model_json.read_joint(document, study.schema)
    _check_bounds(own, marginals, network, joint)
    _check_formats(folder, network_in_files(root, network, study))
    n_records = study.release.synthetic_records or n_people
    if study.samples_graphs:
        _check_sampled(own, posterior.read_networks(folder))
    if study.records_from == "posterior":
        return  # verification holds them against these networks
    if fault := record_fault(
        folder,
        study.schema,
        joint or network,
        n_records,
        FALSE_ALARMS / 2,
        knowledge=study.knowledge,
        identifier=study.identifier,
    ):
        _differs(fault)


class _Own:
    """What this party sent, and what can be estimated from it alone."""

    def __init__(self, *, study: Study, party: str, columns: Mapping[int, AnyCodes], n_people: int) -> None:
        self.study = study
        self.n_people = n_people
        self.variables = frozenset(study.schema.owned_by(party))
        self._columns = columns
        self._units = [study.column_unit(index) for index in range(len(study.units))]
        self.support = study.support()

    def count_table(self, axes: Sequence[int]) -> tuple[NDArray[np.float64], FamilyDesign]:
        """Return the observed table of some own variables and how they were randomized."""
        design = family_design(self._units, self.study.schema.n_states, axes)
        return family_counts(self._columns, design), design.under(self.support.zeros(axes))

    def estimate_shares(self, axes: Sequence[int], z: float, *, prior_count: float) -> tuple[Floats, float]:
        """Return the shares of some own variables' combinations, and the first two terms of the module's bound."""
        counts, design = self.count_table(axes)
        error = np.sqrt(design.variance_total(counts)) / self.n_people
        ours = estimators.em_estimate(counts, design, prior_count=prior_count) / self.n_people
        return ours, float(np.sqrt((error**2).sum())) + z * float(error.max())

    def fit_family(self, family: Family, weights: Floats) -> Floats:
        """Return the joint shares of parents and child that a family was fitted to, if `weights` are the parents' joint
        shares.

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
        """Return the names of the variables, in words."""
        return ", ".join(f"'{self.study.schema.names[variable]}'" for variable in variables)


def _check_shares(own: _Own, report: JsonNode, network: Network) -> None:
    models, exact = model_shares(network, own.support)
    level = own.study.parameters.interval_level
    for variable, (node, model) in enumerate(zip(_each_variable(report, network), models, strict=True)):
        where = own.name([variable])
        if not _alike(np.array(node["model"].floats()), model, _ROUNDING if exact else _SAMPLED):
            _differs(f"column {where}: the network's shares in the marginals are not those of its tables")
        if variable not in own.variables:
            continue
        counts, design = own.count_table((variable,))
        ours = parameters.marginal_parameters(counts, design, variable=variable, model=model, level=level)
        for key, value in (("estimate", ours.estimate), ("standard_error", ours.standard_error)):
            if not _alike(np.array(node[key].floats()), value, _ROUNDING):
                _differs(f"column {where}: its {_WORDS[key]} are not those of what this party sent")


def _each_variable(report: JsonNode, network: Network) -> tuple[JsonNode, ...]:
    nodes = report.items()
    if [node["variable"].text() for node in nodes] != list(network.schema.names):
        report.fail("expected each variable once, in order")
    return nodes


_WORDS: Final = {
    "estimate": "unbiased shares",
    "standard_error": "standard errors",
    "probability": "probabilities",
}


def _check_family(own: _Own, family: Family) -> None:
    """Check a family of own variables alone, which is a function of what was sent."""
    rule = own.study.parameters
    counts, design = own.count_table((*family.parents, family.child))
    try:
        ours = parameters.family_parameters(
            counts,
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


def _check_bounds(own: _Own, report: JsonNode, network: Network, joint: JointModel | None) -> None:
    """Check the tables of own columns with foreign parents, alone and with own parents; in a joint model each own column
    and pair.
    """
    table_axes = [
        (child, own_parents)
        for child in sorted(own.variables)
        if not own.variables.issuperset(parents := network.dag.parents[child])
        for own_parents in ((), *((parent,) for parent in parents if parent in own.variables))
    ]
    tables: list[tuple[int, ...]] = []
    if joint is not None:
        tables = [axes for size in (1, 2) for axes in itertools.combinations(sorted(own.variables), size)]
    z = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / max(len(table_axes) + len(tables), 1))
    shares = [_distribution(np.array(node["estimate"].floats())) for node in report]
    for child, own_parents in table_axes:
        if (excess := _excess(own, network.families[child], own_parents, shares, z)) > 0:
            figure = f"shares together with {own.name(own_parents)}" if own_parents else "shares"
            _differs(
                f"column {own.name([child])}: by its family's probabilities its {figure} are not those of what this party sent "
                f"({excess:.3f} beyond what noise and fit explain)"
            )
    for axes in tables:
        assert joint is not None
        ours, tolerance = own.estimate_shares(axes, z, prior_count=0.0)
        excess = float(np.sqrt(((joint.shares(axes) - ours) ** 2).sum())) - tolerance - _MISFIT
        if excess > 0:
            _differs(
                f"column {own.name(axes)}: in the joint model its shares are not those of what this party sent "
                f"({excess:.3f} beyond what noise and fit explain)"
            )


def _check_sampled(own: _Own, networks: Sequence[Network]) -> None:
    """Check the shares of each own column in every network that was drawn from a posterior."""
    z = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / max(len(own.variables) * len(networks), 1))
    for number, network in enumerate(networks, 1):
        models, _ = model_shares(network, own.support)
        for variable in sorted(own.variables):
            ours, tolerance = own.estimate_shares((variable,), z, prior_count=0.0)
            excess = float(np.sqrt(((models[variable] - ours) ** 2).sum())) - 2 * tolerance - _MISFIT
            if excess > 0:
                _differs(
                    f"column {own.name([variable])}: in network {number} of {posterior.FILE} its shares are not those of what "
                    f"this party sent ({excess:.3f} beyond what noise and a draw explain)"
                )


def _excess(own: _Own, family: Family, own_parents: tuple[int, ...], shares: Sequence[Floats], z: float) -> float:
    """Return how far the table of the own parents and the child is beyond the bound of the module's text."""
    rule, n = own.study.parameters, own.n_people
    ours, noise = own.estimate_shares((*own_parents, family.child), z, prior_count=rule.prior_count or 0.0)
    mass = (
        0.0
        if rule.prior_count is None
        else prior_mass(rule, own.study.schema[family.child].name, family.probability.shape)
    )
    distance = float(np.sqrt(((_nearest(own, family, own_parents, shares, ours) - ours) ** 2).sum()))
    return distance - noise - mass / (n + mass) - _MISFIT


def _nearest(own: _Own, family: Family, own_parents: tuple[int, ...], shares: Sequence[Floats], ours: Floats) -> Floats:
    """Return the table of the own parents and the child, under joint shares of the parents that bring it nearest to `ours`.

    The parents' one-way shares are the published ones; how they depend on each other nobody but the miner knows, so the
    dependence that speaks for the release is found, by expectation-maximization and iterative proportional fitting.
    """
    shape = [len(shares[parent]) for parent in family.parents]
    table = family.probability.reshape([*shape, -1])
    others = tuple(axis for axis, parent in enumerate(family.parents) if parent not in own_parents)
    weights: Floats = np.ones(())
    for parent in family.parents:
        weights = np.multiply.outer(weights, shares[parent])
    for _ in range(_STEPS):
        fitted_table = own.fit_family(family, weights).sum(axis=others, keepdims=True)
        ratio = np.divide(
            ours.reshape(fitted_table.shape), fitted_table, out=np.zeros_like(fitted_table), where=fitted_table > 0
        )
        weights = weights * (table * ratio).sum(axis=-1)
        for axis, parent in enumerate(family.parents):
            apart = tuple(other for other in range(len(shape)) if other != axis)
            total = weights.sum(axis=apart, keepdims=True)
            target = shares[parent].reshape(total.shape)
            weights = weights * np.divide(target, total, out=np.zeros_like(total), where=total > 0)
    nearest: Floats = own.fit_family(family, weights).sum(axis=others).reshape(ours.shape)
    return nearest


def _distribution(estimate: Floats) -> Floats:
    positive = np.maximum(np.nan_to_num(estimate), 0.0)
    return positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))


def _check_formats(folder: Path, network: Network) -> None:
    for name, write in (("network.bif", bif.network_to_bif), ("network.bifxml", bif.network_to_xmlbif)):
        if (folder / name).read_bytes() != write(network):
            _differs(f"{name}: it is not the network of model.json")


def _alike(actual: Floats, expected_shares: Floats, rounding: float) -> bool:
    return actual.shape == expected_shares.shape and np.allclose(
        actual, expected_shares, rtol=rounding, atol=rounding, equal_nan=True
    )


def _differs(problem: str) -> NoReturn:
    raise GateFailed(
        "RELEASE_INVALID", problem, hint="do not countersign: deny the study, and ask the miner's operator"
    )
