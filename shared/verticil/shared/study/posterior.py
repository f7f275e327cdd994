"""What a study may ask of sampled graphs (``[posterior]``, `verticil.shared.study.document.PosteriorRule`).

The limits of the graphs themselves are the structure's, and stand in `rules`: required edges that make a circle, or that a family
does not hold, are refused there for every method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.study.document import PosteriorRule, Study
from verticil.shared.study.vocabulary import (
    GRAPH_PRIORS,
    KEPT_GRAPHS,
    MAX_CHAIN_BYTES,
    MAX_SAMPLED,
    MAX_SET_CELLS,
    MAX_TEXT,
    MIXED_REPLICATES,
    STATISTICS,
    WITHIN_BINS,
    fail,
)

LEAST_KEPT: Final = 20
"""Graphs of a chain that burn-in and thinning leave at least; of noisy tables a chain by each replicate leaves a fifth."""
_MAX_STATISTICS: Final = 100
_MOST_NATS: Final = 1e5


def check_posterior(study: Study, *, source: str) -> None:
    """Check what a study asks of sampled graphs; of a study that samples none, that it asks nothing.

    Args:
        study: the study; its variables and its structure are checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID.
    """
    rule, where = study.posterior, f"{source}: posterior"
    if not study.samples_graphs:
        if rule != PosteriorRule():
            fail(
                where,
                f"goes with structure.method 'posterior', got '{study.structure.method}'",
                hint="remove it, or let the owner of the whole table run verticil synthesize --method posterior",
            )
        return
    _check_chains(rule, where=where)
    _check_prior(study, where=where)
    _check_missing(study, where=f"{where}.missing")
    if rule.within_bins not in WITHIN_BINS:
        fail(f"{where}.within_bins", f"got '{rule.within_bins[:MAX_TEXT]}', expected one of {', '.join(WITHIN_BINS)}")
    if rule.within_bins == "estimated" and not estimated_within(study):
        fail(
            f"{where}.within_bins",
            "'estimated', and every column with two bins or more declares `means` or `representatives`, or there is none",
            hint="leave it out: what is declared stays",
        )
    if (d := len(study.schema)) > MAX_SAMPLED:
        fail(
            f"{source}: structure.method",
            f"'posterior' with {d} variables, expected at most {MAX_SAMPLED}",
            hint="take columns out, or use a method that finds one graph",
        )
    n_replicates = 1 if study.tables is None else MIXED_REPLICATES
    if (size := 8 * (d + 1) * n_replicates * rule.chains * min(rule.steps, KEPT_GRAPHS)) > MAX_CHAIN_BYTES:
        fail(
            f"{where}.chains",
            f"{rule.chains} chains of {rule.steps} steps with {d} variables for each of {n_replicates} replicates have "
            "a state of "
            f"{size} bytes on disk, expected at most {MAX_CHAIN_BYTES}",
            hint="ask for fewer chains",
        )
    if study.release.synthetic_records is not None:
        check_set_cells(study, study.release.synthetic_records, where=f"{where}.data_sets")
    if len(rule.statistics) > _MAX_STATISTICS:
        fail(f"{where}.statistics", f"{len(rule.statistics)} of them, expected at most {_MAX_STATISTICS}")
    for number, words in enumerate(rule.statistics, 1):
        _check_statistic(study, words, where=f"{where}.statistics, number {number}")


def _check_chains(rule: PosteriorRule, *, where: str) -> None:
    """Check that burn-in and thinning leave graphs, and no more of them than a checkpoint holds."""
    if (rule.burn_in, rule.thinning) == (None, None):
        return
    burn_in = rule.steps // 5 if rule.burn_in is None else rule.burn_in
    if not 0 <= burn_in < rule.steps:
        fail(
            f"{where}.burn_in",
            f"got {burn_in}, expected 0 to {rule.steps - 1}, less than the {rule.steps} steps of a chain",
        )
    if rule.thinning is not None and rule.thinning < 1:
        fail(f"{where}.thinning", f"got {rule.thinning}, expected 1 or more steps from one graph to the next")
    thinning = rule.thinning or math.ceil((rule.steps - burn_in) / KEPT_GRAPHS)
    if not LEAST_KEPT <= (n_kept := (rule.steps - burn_in) // thinning) <= KEPT_GRAPHS:
        fail(
            f"{where}.burn_in, thinning",
            f"{rule.steps} steps with a burn-in of {burn_in} and every graph {thinning} steps after the last keep "
            f"{n_kept} graphs "
            f"of a chain, expected {LEAST_KEPT} to {KEPT_GRAPHS}",
            hint="leave both out, or change `steps`",
        )
    if rule.missing == "augment":
        fail(
            f"{where}.burn_in, thinning",
            "go with missing = 'category', got 'augment', which draws missing values in rounds of its own length",
            hint="remove them",
        )


def _check_prior(study: Study, *, where: str) -> None:
    rule = study.posterior
    if rule.prior not in GRAPH_PRIORS:
        fail(f"{where}.prior", f"got '{rule.prior[:MAX_TEXT]}', expected one of {', '.join(GRAPH_PRIORS)}")
    usual = PosteriorRule()
    if rule.prior != "penalty" and (rule.gamma, rule.alpha) != (usual.gamma, usual.alpha):
        fail(f"{where}.gamma, alpha", f"go with prior = 'penalty', got '{rule.prior}'", hint="remove them")
    penalty = rule.gamma * (most := study.structure.max_parents) ** rule.alpha
    if rule.prior == "penalty" and penalty > _MOST_NATS:
        fail(
            f"{where}.gamma, alpha",
            f"a column with {most} parents, as many as it may have, loses {penalty:g} nats, expected at most {_MOST_NATS:g}: "
            "beside more the data count for nothing",
            hint="lower them, or structure.max_parents",
        )


def drawn_categories(study: Study) -> dict[int, int]:
    """Variables whose missing values are drawn with the graphs, and of each the code of a missing value: no record has it."""
    if not study.samples_graphs or study.posterior.missing != "augment":
        return {}
    return {
        place: variable.labels.index(variable.missing.category)
        for place, variable in enumerate(study.schema.variables)
        if variable.missing is not None
    }


def estimated_within(study: Study) -> tuple[int, ...]:
    """Variables whose shape inside bins is estimated by the bins beside, anew for each network of a posterior.

    Numbers that keep a stated order with others lie as that has it.
    """
    if not study.samples_graphs or study.posterior.within_bins != "estimated":
        return ()
    orders = () if study.knowledge is None else study.knowledge.orders
    names = {name for order in orders for name in (order.lower, order.upper)}
    return tuple(
        place
        for place, variable in enumerate(study.schema.variables)
        if variable.n_bins > 1
        and variable.means is None
        and variable.representatives is None
        and variable.name not in names
    )


def _check_missing(study: Study, *, where: str) -> None:
    if study.posterior.missing != "augment":
        return
    keep = "keep missing values as a category (missing = 'category')"
    for unit in study.units:
        if study.tables is None and unit.transition.is_identity and not unit.is_compound:
            continue
        why = (
            "tables with noise have no records whose missing values could be drawn"
            if study.tables is not None
            else f"{unit.text} is randomized, and whether a value is missing with it"
            if not unit.transition.is_identity
            else f"{unit.text} is one column, and its missing values are combinations"
        )
        raise Misuse("STUDY_UNSUPPORTED", f"{where}: 'augment' needs records as they are: {why}", hint=keep)
    if study.knowledge is not None:
        why = "values are drawn by the graph alone, and need not keep what [knowledge] states of all records"
        raise Misuse("STUDY_UNSUPPORTED", f"{where}: 'augment': {why}", hint=keep)
    fixed_codes = drawn_categories(study)
    if not fixed_codes:
        fail(where, "'augment', and no variable declares missing values", hint="declare `missing` of a variable")
    for place, code in fixed_codes.items():
        variable = study.schema[place]
        if variable.labels[code] == variable.other:
            fail(
                where,
                f"'{variable.name}': its missing values have the category of all others, and cannot be told from them",
                hint="declare a category of their own in `missing`",
            )
        if variable.n_states < 3:
            fail(
                where,
                f"'{variable.name}': one category is left without that of missing values, expected two",
                hint=keep,
            )


def check_set_cells(study: Study, n_records: int, *, where: str) -> None:
    """Check that the sets of synthetic records from sampled networks are not too large.

    Args:
        study: a study that samples graphs.
        n_records: of each set.
        where: what a message calls the place.

    Raises:
        Misuse: STUDY_INVALID.
    """
    sets, d = study.posterior.data_sets, len(study.schema)
    if (cells := sets * n_records * d) > MAX_SET_CELLS:
        fail(
            where,
            f"{sets} sets of {n_records} records with {d} variables have {cells} cells, expected at most {MAX_SET_CELLS}",
            hint="ask for fewer sets (data_sets), or for smaller ones (release.synthetic_records)",
        )


def _check_statistic(study: Study, words: Sequence[str], *, where: str) -> None:
    name = words[0] if words else ""
    if name not in STATISTICS:
        fail(
            where,
            f"got '{name[:MAX_TEXT]}', expected one of {', '.join(STATISTICS)}",
            hint=near_hint(name, STATISTICS),
        )
    known = {v.name: v for v in (*study.schema.variables, *(study.knowledge.variables if study.knowledge else ()))}
    fixed_codes = {study.schema.names[place]: code for place, code in drawn_categories(study).items()}
    start = 2 if name == "mean" else 1  # from where on a variable is followed by a category of it
    n_labels = {"logistic": 1, "chi-square": 0, "linear": 0}.get(name, max(len(words) - start, 0) // 2)
    rest = [*words[1:start], *words[start + 2 * n_labels :]]
    least, most = {
        "chi-square": (2, 2),
        "linear": (2, MAX_SAMPLED),
        "logistic": (1, MAX_SAMPLED),
        "mean": (1, 1),
    }.get(name, (0, 0))
    if not least <= len(rest) <= most or (not least and not n_labels):
        fail(where, f"{len(words)} words, expected {STATISTICS[name]}")
    variables = [*words[start : start + 2 * n_labels : 2], *rest]
    for variable in variables:
        if variable not in known:
            fail(where, f"'{variable[:MAX_TEXT]}' is not a variable of the study", hint=near_hint(variable, known))
    if len(set(variables)) < len(variables):
        fail(where, "a variable stands there twice, expected different ones")
    for variable, label in zip(variables[:n_labels], words[start + 1 : start + 2 * n_labels : 2], strict=True):
        labels = known[variable].labels
        if label not in labels:
            fail(where, f"'{label[:MAX_TEXT]}' is not a category of '{variable}'", hint=near_hint(label, labels))
        if fixed_codes.get(variable) == labels.index(label):
            fail(where, f"'{label}' is what a missing value of '{variable}' is, and with missing = 'augment' none is")
    if name == "mean" and not known[rest[0]].n_bins:
        fail(where, f"'{rest[0]}' has no bins, expected a variable with numbers", hint="use 'mle' for a share")
    if name == "overlap" and (lacking := [v for v in variables if v in fixed_codes]):
        fail(
            where,
            f"'overlap' compares with the interval of the original records, which lack values of '{lacking[0]}'",
            hint="use 'mle', whose mean and interval are predicted",
        )
    if name == "overlap" and (study.tables is not None or not all(unit.transition.is_identity for unit in study.units)):
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{where}: 'overlap' compares with the interval of the original records, and nobody who learns has them as they are",
            hint="use 'mle', whose mean and interval are predicted",
        )
