"""What a study promises and what it can learn, before anyone works: findings, and one table row for each draw.

A draw is of one column, or of the columns of a compound. Between peers (model ``peer``) the findings say who reads what; columns
that nobody reads are not judged, because their noise is never used.

Pure and without data: everything follows from the study and from the number of records that the reader expects. Formulas
stand in `verticil.shared.mechanisms.privacy` (randomization.md 1.1). A study that cannot be read at
all is not linted: see `reading` and `rules`.

A column is called too noisy for links when a pair of columns like it keeps fewer than five effective records for each cell
of their joint table: n a^4 < 5 K^2 (randomization.md section 7, the rule for families with lambda = a for both columns). It is an
error when the records tell less about the share of an average category than one person does whose category is known: the whole
release would describe the noise. A proposal with an error is not submitted.
"""

from __future__ import annotations

import datetime as dt
import math
import unicodedata
from collections.abc import Iterable, Iterator
from statistics import NormalDist
from typing import Final

import numpy as np

from verticil.analyst.prediction import best_one_way_part, drowned_shares, no_nearer, predict_study
from verticil.analyst.related import related_findings
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms import privacy
from verticil.shared.numerics.knowledge.reasoning import reach
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.privacy.figures import delta_words, epsilon_exceeds, share_cost, tables_cost
from verticil.shared.privacy.study_table import RECORDS_PER_CELL, ColumnRow, StudyTable, family_records, study_table
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed, review_findings
from verticil.shared.study.protocol import Finding
from verticil.shared.study.protocols import opens_tables, protocol_of, table_deviations
from verticil.shared.study.sub_model import obstacle
from verticil.shared.study.tables import tables_noise
from verticil.shared.study.unit import Unit

_LARGE_EPSILON: Final = 5.0  # one column; odds x148
_LARGE_FLOOR: Final = 6.0  # where nobody but a dealer of masks with its partner could read it
_LARGE_PARTY_TOTAL: Final = 20.0
_LARGE_TOTAL: Final = 40.0
_ILL_CONDITIONED: Final = 10.0  # variances grow a hundredfold
_MANY_STATES: Final = 50
_SMALL_MINIMUM: Final = 100
_SOON_DAYS: Final = 7
_SEVERITIES: Final = ("error", "warning", "note")


def lint(study: Study, *, n: int | None = None, today: dt.date | None = None) -> list[Finding]:
    """Return everything worth saying about a study: errors, then warnings, then notes.

    Args:
        study: a study that was read, so its hard rules hold.
        n: expected number of common people; default the study's minimum.
        today: the day (UTC) to judge the expiry by; None: it is not judged.
    """
    table = study_table(study, n)
    findings = [
        *review_findings(study),
        *_head(study, n, today),
        *_columns(study, table),
        *_knowledge(study),
        *_totals(study, table),
        *_labels(study),
        *_structure(study),
        *_families(study, n),
        *_share(study, table),
        *_noisy_tables(study, table),
        *_joint_model(study, table),
        *related_findings(study, table.n),
        *_round(study, table.n),
        *protocol_of(study).findings(study),
    ]
    return by_severity(findings)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in their order, errors before warnings before notes."""
    return sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))


def lint_owner(study: Study, own: Study, n: int) -> list[Finding]:
    """Return what is worth saying about a study that the owner of a whole table carries out alone, in any order.

    Args:
        study: as it was read.
        own: the study that would be carried out, with noise on tables and columns as they are.
        n: number of people.
    """
    findings = list(review_findings(study))
    findings += [*_knowledge(study), *_labels(own), *_structure(own), *related_findings(own, n)]
    if own.tables is not None and (words := delta_words(n, own.tables.delta)) is not None:
        findings.append(warning("delta-large", "tables.delta", *words))
    return findings


def refuse_hopeless(study: Study) -> None:
    """Refuse to propose a study that `lint` finds an error in, before anybody is asked or works; the miner knows the day.

    Raises:
        Misuse: UNREVIEWED, its author has not reviewed it; STUDY_INVALID, the first error.
    """
    require_reviewed(study)
    for finding in lint(study):
        if finding.severity == "error":
            raise Misuse("STUDY_INVALID", f"study '{study.id}': {finding.where}: {finding.message}", hint=finding.hint)


def _knowledge(study: Study) -> Iterator[Finding]:
    if study.knowledge is not None:
        for remark in reach(study.knowledge, study.schema).remarks:
            yield warning(remark.code, remark.where, remark.message, remark.hint)


def warning(code: str, where: str, message: str, hint: str) -> Finding:
    """Return a warning: the study can be carried out, and is worth less than its author may think."""
    return Finding(severity="warning", code=code, where=where, message=message, hint=hint)


def _head(study: Study, n: int | None, today: dt.date | None) -> Iterator[Finding]:
    if today is not None and study.is_expired(today):
        yield Finding(
            severity="error",
            code="expired",
            where="expires",
            message=f"the study expired on {study.expires.isoformat()}",
            hint="set a later date",
        )
    elif today is not None and (study.expires - today).days < _SOON_DAYS:
        yield warning(
            "expires-soon",
            "expires",
            f"the study expires on {study.expires.isoformat()}",
            "leave time for every party to approve",
        )
    minimum = study.linkage.minimum_common_records
    if n is not None and n < minimum:
        yield Finding(
            severity="error",
            code="below-minimum",
            where="linkage.minimum_common_records",
            message=f"{n:,} records are expected and {minimum:,} are the minimum: the study would stop after linkage",
            hint="lower the minimum, or find more common people",
        )
    if minimum < _SMALL_MINIMUM:
        yield warning(
            "minimum-small",
            "linkage.minimum_common_records",
            f"{minimum:,} common people are enough to go on: a release about so few can be about one of them",
            f"ask for at least {_SMALL_MINIMUM}",
        )


def _share(study: Study, table: StudyTable) -> Iterator[Finding]:
    for where, cost in (("share", share_cost(study)), ("tables", tables_cost(study))):
        if cost is None or (words := delta_words(table.n, cost.delta)) is None:
            continue
        yield warning("delta-large", f"{where}.delta", *words)


def _noisy_tables(study: Study, table: StudyTable) -> Iterator[Finding]:
    """Yield findings on the noise on tables: how much, and whether the tables still say more than it hides."""
    cost = tables_cost(study)
    if cost is None:
        return
    noise, deviation = tables_noise(study), max(table_deviations(study))
    average = table.n * noise.tables / noise.cells
    noise_text = (
        f"noise of standard deviation {deviation:.4g} on each count of {noise.tables:,} tables, whose average cell has "
        f"{average:,.1f} of {table.n:,} people"
    )
    if deviation > average:
        yield warning(
            "noise-above-cells",
            "tables",
            f"{noise_text}: links between most columns are lost in it",
            "fewer columns or categories, a larger epsilon or delta, or more records (--n)",
        )
    else:
        yield Finding(severity="note", code="noise-on-tables", where="tables", message=noise_text, hint="")
    if epsilon_exceeds(cost.epsilon, table.total_epsilon):
        yield warning(
            "noise-on-tables-idle",
            "tables.epsilon",
            f"epsilon {cost.epsilon:.3g} for everybody: the columns alone bound what anybody learns by {table.total_epsilon:.3g}",
            "ask for less, or leave the table out",
        )


def _joint_model(study: Study, table: StudyTable) -> Iterator[Finding]:
    """Yield findings on a study whose records come from a joint model: whether that is worth anything."""
    if study.release.sample_from != "joint" and study.tables is None:
        return
    prediction = predict_study(study, table.n)
    if study.tables is not None and study.tables.one_way_part is None and not opens_tables(study):
        part = best_one_way_part(study, table.n)
        if part:
            yield warning(
                "columns-unmeasured",
                "tables.one_way_part",
                f"the noise on tables of pairs hides much of the shares of single columns of {table.n:,} people",
                f"write one_way_part = {part:g}: so much of the same epsilon then measures each column on its own",
            )
    if (drowned := drowned_shares(study, table.n, prediction)) is not None:
        yield drowned
        return
    yield from no_nearer(prediction, table.n)


def _round(study: Study, n: int) -> Iterator[Finding]:
    """Say why the study's protocol cannot be carried out for so many people."""
    protocol = protocol_of(study)
    try:
        protocol.check_people(study, n)
    except Misuse as error:
        yield Finding(severity="error", code="no-plan", where=protocol.name, message=error.message, hint=error.hint)


def _columns(study: Study, table: StudyTable) -> Iterator[Finding]:
    masks = protocol_of(study).opens_tables
    large, key = (_LARGE_FLOOR, "allow_raw_under_masks") if masks else (_LARGE_EPSILON, "allow_infinite")
    sends = "leaves to a dealer of masks with its partner" if masks else "sends"
    for row, unit in zip(table.rows, study.units, strict=True):
        where = unit.text
        yield from _domain(study, unit, where)
        if not row.is_sent:
            continue
        if math.isinf(row.epsilon):
            yield warning(
                "epsilon-infinite",
                where,
                f"the scheme '{row.scheme}' {sends} " + _sent_exactly(unit.transition),
                f"'{row.party}' must name it in {key}, or choose a scheme without zero cells",
            )
        elif epsilon_exceeds(row.epsilon, large):
            yield warning(
                "epsilon-large",
                where,
                f"epsilon {row.epsilon:.3g}: the odds of a guess can change by a factor of {row.gamma:,.0f}",
                f"an epsilon of at most 3 is usual; above {large:g} little is hidden",
            )
        if _relabels(unit.transition):
            yield warning(
                "relabels",
                where,
                "for some true category another one is the likelier to be released: the released column reads wrong"
                + (", p1 + p2 is above 1" if row.scheme == "binary" else ""),
                "the estimates are right all the same; "
                + (
                    "make the groups more alike in size, or raise one of the two epsilons"
                    if row.two_level
                    else "swap the categories if this is not meant"
                ),
            )
        # The condition number is of single codes; the members of a set are not independent draws.
        if row.condition_number > _ILL_CONDITIONED and row.subset_size is None:
            yield warning(
                "ill-conditioned",
                where,
                f"condition number {row.condition_number:.3g}: standard errors grow by up to that factor",
                _more_signal(row.n_states),
            )
        if (worth := _records_worth(row)) < 1:
            enough = math.ceil(table.n / worth)
            yield Finding(
                severity="error",
                code="nothing-to-learn",
                where=where,
                message=f"{table.n:,} records are worth {worth:.2g} for the share of a category: less than one person whose "
                "category is known",
                hint=f"{_more_signal(row.n_states)}; or ask for at least {enough:,} common people (minimum_common_records)",
            )
        elif row.too_noisy:
            yield warning(
                "too-noisy-for-links",
                where,
                f"for a link with a column like it, {table.n:,} records are worth {row.effective_records:,.0f}; "
                f"its {row.n_states**2:,} cells need {RECORDS_PER_CELL * row.n_states**2:,}",
                _more_signal(row.n_states) + "; or expect more records (--n)",
            )
        if row.n_states > _MANY_STATES:
            yield warning(
                "many-categories",
                where,
                f"{row.n_states} categories: many parties refuse more than {_MANY_STATES}",
                "merge categories",
            )


def _records_worth(row: ColumnRow) -> float:
    """Return how many records with known categories would give an average category's share as exactly.

    It is inf where a few categories may be worth more than others.
    """
    if row.scheme not in {"symmetric", "subset"}:
        return math.inf
    share = 1 / row.n_states
    return share * (1 - share) * (NormalDist().inv_cdf(0.975) / row.half_width) ** 2 if row.half_width else math.inf


def _domain(study: Study, unit: Unit, where: str) -> Iterator[Finding]:
    """Yield what impossible combinations do beyond the draw: categories without a possible one, and what may be synthesized."""
    if not unit.impossible:
        return
    if (dag := study.given_dag) is None:
        yield _note(
            "impossible-if-joined",
            where,
            "synthetic records are without the impossible combinations only where the network that is found describes one of "
            "these columns given the others",
            "nothing to mend where they hang together strongly; give the structure to be certain",
        )
    else:
        members = {study.schema.index(name) for name in unit.variables}
        if not any(members <= {child, *dag.parents[child]} for child in members):
            yield warning(
                "impossible-not-joined",
                where,
                "the structure describes none of these columns given the others: synthetic records will hold combinations that "
                "are impossible",
                "make all but one of them parents of the last one",
            )
    domain = study.domain_of(study.units.index(unit))
    for place, name in enumerate(unit.variables):
        variable = study.schema[study.schema.index(name)]
        for code in sorted(set(range(variable.n_states)) - {combination[place] for combination in domain}):
            yield warning(
                "category-impossible",
                where,
                f"every combination with category '{variable.labels[code]}' of '{name}' is declared impossible",
                "a record with it stops the study; remove the category, or one of the combinations from impossible",
            )


def _more_signal(n_states: int) -> str:
    return "merge categories, or agree on a larger epsilon" if n_states >= 8 else "agree on a larger epsilon"


def _sent_exactly(transition: privacy.Mechanism) -> str:
    return "it as it is" if transition.is_identity else "a part of it as it is: a released category rules out true ones"


def _relabels(transition: privacy.Mechanism) -> bool:
    matrix = transition.probabilities
    return bool((np.diagonal(matrix) < matrix.max(axis=1)).any())


def _totals(study: Study, table: StudyTable) -> Iterator[Finding]:
    hint = "randomize more strongly, or ask for fewer columns"
    masks = protocol_of(study).opens_tables  # then the sum is the floor, which is large by design
    whom, finding = (", for a dealer of masks with its partner", _note) if masks else ("", warning)
    for party, total in table.party_totals:
        if epsilon_exceeds(total, _LARGE_PARTY_TOTAL):
            yield finding(
                "party-total-large",
                f"party '{party}'",
                f"its columns of one person sum to epsilon {total:.3g}, above {_LARGE_PARTY_TOTAL:g}{whom}",
                hint,
            )
    if epsilon_exceeds(table.total_epsilon, _LARGE_TOTAL):
        yield finding(
            "total-large",
            "all columns",
            f"all columns of one person sum to epsilon {table.total_epsilon:.3g}{whom}: treat the set of them as identifying",
            hint,
        )


def _labels(study: Study) -> Iterator[Finding]:
    for variable in study.schema.variables:
        originals: dict[str, str] = {}
        for label in variable.labels:
            first = originals.setdefault(unicodedata.normalize("NFKC", label).casefold(), label)
            if first != label:
                yield warning(
                    "labels-alike",
                    f"variable '{variable.name}'",
                    f"the categories '{first}' and '{label}' differ only in case or in how letters are encoded",
                    "merge them; a party can recode its own spelling",
                )

        is_even = study.release.within_bins != "linked" and variable.means is None and variable.representatives is None
        if is_even and variable.wide_bins:
            yield warning(
                "bin-wide",
                f"variable '{variable.name}'",
                f"{', '.join(variable.labels[place] for place in variable.wide_bins)}: much wider than the bins beside, and "
                "synthetic numbers are spread evenly over it",
                "divide it, or declare each bin's mean (means)",
            )


def _structure(study: Study) -> Iterator[Finding]:
    rule = study.structure
    if study.quorum is not None and (minimum := study.quorum.minimum) is not None and minimum < len(study.parties):
        for party in study.parties:
            if (why := obstacle(study, {party})) is not None:
                yield warning(
                    "party-indispensable",
                    "quorum.min",
                    f"the study cannot go on without party '{party}': {why}",
                    "name no column of a party that may stay away; or leave quorum.min out, so that nobody expects a sub-model",
                )
    if rule.parents is not None:
        return  # no family is cut: one that is too large is refused
    widest = sorted(study.schema.variables, key=lambda variable: -variable.n_states)[: rule.max_parents + 1]
    if (cells := math.prod(variable.n_states for variable in widest)) > rule.max_family_cells:
        yield warning(
            "families-cut",
            "structure.max_family_cells",
            f"a family of {len(widest) - 1} parents can have {cells:,} cells ({_names(widest)}), "
            f"at most {rule.max_family_cells:,} are allowed: the weakest parents of such a family are dropped",
            "merge categories, allow fewer parents, or raise max_family_cells",
        )


def _families(study: Study, n: int | None) -> Iterator[Finding]:
    """Yield families with more cells than there are records; only where somebody says how many there are."""
    if n is None:
        return
    schema, rule, dag = study.schema, study.structure, study.given_dag
    if dag is None:
        # The largest table that a search may come to: the widest columns that fit, one after the other.
        family: list[int] = []
        for v in sorted(range(len(schema)), key=lambda v: -schema.n_states[v]):
            cells = math.prod(schema.n_states[u] for u in (*family, v))
            if len(family) <= rule.max_parents and cells <= rule.max_family_cells:
                family.append(v)
        families, may = [(family[0], tuple(family[1:]))], "can have"
    else:
        families, may = list(enumerate(dag.parents)), "has"
    for child, parents in families:
        cells = math.prod(schema.n_states[v] for v in (child, *parents))
        if parents and cells > n:
            worth = family_records(study, child, parents, n)
            exact = "" if math.isclose(worth, n) else f", worth {worth:,.0f} unrandomized ones"
            cut = dag is None and protocol_of(study).counts_families and study.parameters.prior_count is None
            so = "parents are left out of such a table" if cut else "most of its probabilities would be guesses"
            yield warning(
                "few-records",
                "structure",
                f"the table of '{schema.names[child]}' with the parents {_names(schema.variables[v] for v in parents)} {may} "
                f"{cells:,} cells, and {n:,} records are expected{exact}: {so}",
                "allow fewer parents (max_parents, max_family_cells), merge categories, or find more common people",
            )


def _names(variables: Iterable[Variable]) -> str:
    return ", ".join(f"'{variable.name}'" for variable in variables)


def _note(code: str, where: str, message: str, hint: str) -> Finding:
    return Finding(severity="note", code=code, where=where, message=message, hint=hint)
