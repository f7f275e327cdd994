"""Whether a site is ready for a study: identity, keys, tables, policy, budget. Reads the tables, counts, and sends nothing.

What is seen in the values is a warning, never a fault: it keeps no study from being answered, and so none from being approved.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from verticil.party.audit.log import Event, What
from verticil.party.config import PartyConfig
from verticil.party.dataset.keyfile import check_key
from verticil.party.dataset.people_rows import header
from verticil.party.dataset.related_rows import row_remarks
from verticil.party.dataset.source import Remark, TableReport, check_records
from verticil.party.dataset.sources.open_source import missing_columns
from verticil.party.dataset.sources.source_table import DatasetRule, with_properties
from verticil.party.local_dataset import compounds_of, origins, stated_of
from verticil.party.operator.policy_checks import (
    check_approvers,
    list_small_table,
    list_unknown_columns,
    list_unknown_recipients,
)
from verticil.party.operator.same_people import problems, read_people
from verticil.party.operator.view_model import (
    COUNTS_TELL,
    ColumnView,
    CostView,
    Notice,
    Questions,
    ShareView,
    columns,
    cost,
    figure_words,
    number,
    questions,
    share,
    total,
)
from verticil.party.policy import approval_checks
from verticil.party.site import Site
from verticil.party.storage.studies import stamp
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.view_models import inlined, left_out
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.privacy.figures import finite_epsilon
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import disclosure


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Notice):
    """What keeps a site from being ready."""

    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHeader:
    """A table that no study was held against: how many columns it has."""

    dataset: str
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """What became of the values of one column."""

    variable: str
    source: str
    missing: int
    other: int
    clamped: int
    unseen: int
    absent_categories: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the rows of a table."""

    rows: int
    records: int
    ragged_rows: int
    empty_ids: int
    repeated_ids: int
    columns: tuple[ColumnCounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFit:
    """How a table fits a study.

    Attributes:
        counts: None: nothing was to be counted.
        used_columns, extra_columns: how many the study uses, and how many not.
        missing_columns: names that the study uses and the table lacks.
    """

    dataset: str
    counts: Counts | None = inlined()
    used_columns: int
    extra_columns: int
    missing_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCost:
    """What an approval of the study would charge now; `four_figures` of a masked one, in words; what it states (`stated`)."""

    stated: tuple[str, ...] | None = left_out()
    four_figures: tuple[str, ...] | None = left_out()
    study: str
    digest: str
    columns: tuple[ColumnView, ...]
    epsilon: float | None
    epsilon_charged_now: float
    cost: tuple[CostView, ...]
    alignment: Mapping[str, str]
    share: ShareView | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether a site is ready for a study.

    Attributes:
        party: its name.
        certificate_valid_until, linkage_key_check: None: they cannot be read.
        questions: what the study asks; None: there is no study, or it does not fit party.toml.
        counts_tell: what must stand before counts.
        tables: how each looks.
        warnings: what may be a mistake; it keeps nothing from being answered.
        study: what it would charge; None: something is in the way.
        ok: there is no fault.
        faults: in the order of what to mend first.
    """

    party: str
    certificate_valid_until: str | None = left_out()
    linkage_key_check: str | None = left_out()
    questions: Questions | None = inlined()
    counts_tell: str | None = left_out()
    tables: tuple[TableHeader | TableFit, ...]
    warnings: tuple[Notice, ...]
    study: StudyCost | None = inlined()
    ok: bool
    faults: tuple[Fault, ...]


def check(config: PartyConfig, study: Study | None = None, *, counts: bool = True) -> Readiness:
    """Look at everything that a study needs, without sending anything: identity, keys, tables, policy, budget.

    Args:
        config: party.toml.
        study: a study to check the tables against; None: whether the tables can be read at all.
        counts: count what became of the values of each table, and warn of what may be a mistake; False: look at the names of the
            columns alone.
    """
    now = utc_now()
    faults: list[VerticilError] = []
    valid_until = key_check = None
    table_questions: Questions | None = None
    costs: StudyCost | None = None
    try:
        credentials = load_credentials(
            config.certificate, config.key, config.federation, role=Role.PARTY, name=config.name, at=now
        )
        valid_until = stamp(credentials.not_after)
    except VerticilError as error:
        faults.append(error)
    try:
        key_check = check_key(config.linkage_key)
    except VerticilError as error:
        faults.append(error)
    try:
        check_approvers(config)
    except VerticilError as error:
        faults.append(error)
    if study is not None:
        try:
            table_questions = questions(config, study)
        except VerticilError as error:
            faults.append(error)
    tables, table_faults, remarks = _tables(config, study, counts=counts)
    faults += table_faults
    remarks += list_unknown_recipients(config, study)
    try:
        with Site.open(config) as site:
            site.ledger.check_rows()
            read_people(site, again=counts)
            of_people, overlaps = problems(site)
            faults += of_people
            remarks += [Remark(code="SAME_PEOPLE", message=item.words, hint=item.hint) for item in overlaps]
            if study is not None and not faults:
                costs = _cost(config, site, study, now)
                digest = bytes.fromhex(costs.digest)
                site.audit.record(Event(what=What.CHECK, who="operator", study=digest, study_id=study.id), now)
    except VerticilError as error:
        faults.append(error)
    return Readiness(
        party=config.name,
        certificate_valid_until=valid_until,
        linkage_key_check=key_check,
        questions=table_questions,
        counts_tell=COUNTS_TELL if study is not None and counts else None,
        tables=tuple(tables),
        warnings=tuple(Notice(code=item.code, message=item.message, hint=item.hint) for item in remarks),
        study=costs,
        ok=not faults,
        faults=tuple(
            Fault(code=fault.code, message=fault.message, hint=fault.hint, exit_code=fault.exit_code)
            for fault in {(fault.code, fault.message): fault for fault in faults}.values()
        ),
    )


def _tables(
    config: PartyConfig, study: Study | None, *, counts: bool
) -> tuple[list[TableHeader | TableFit], list[VerticilError], list[Remark]]:
    tables: list[TableHeader | TableFit] = []
    faults: list[VerticilError] = []
    remarks: list[Remark] = []
    names: set[str] = set()
    try:
        places = {} if study is None else origins(config, study)
    except VerticilError as error:
        return tables, [error], remarks
    for name, rule in config.datasets.items():
        try:
            there = header(rule)
            names.update(there, rule.columns)
            for related_rule in rule.tables.values():
                names.update(header(related_rule), related_rule.columns)
            if study is None:
                tables.append(TableHeader(dataset=name, columns=len(there)))
                continue
            own = {v: place for v, place in places.items() if place.dataset == name and not place.flag}
            sources = {place.source for place in own.values()}
            if not sources:
                continue
            table_counts: Counts | None = None
            if counts:
                report = _report(config, study, rule, list(own))
                table_counts = _counts(report)
                faults += report.faults
                remarks += [*report.remarks, *list_small_table(config, name, report.n_rows)]
                related = [table for table in study.related if table.party == config.name and table.name in rule.tables]
                if related and not report.faults:
                    folder, normalise = config.state_directory, study.linkage.normalise
                    remarks += row_remarks(rule, related, study.schema, normalise, folder=folder)
            elif (absent := missing_columns(rule, there, [rule.id, *sorted(sources)])) is not None:
                faults.append(absent)
            fit = TableFit(
                dataset=name,
                counts=table_counts,
                used_columns=len(sources),
                extra_columns=len(set(there) - sources - {rule.id}),
                missing_columns=tuple(sorted(sources - set(there))),
            )
            tables.append(fit)
        except VerticilError as error:
            faults.append(error)
    if not faults:  # else the columns of a table may not be known
        remarks += list_unknown_columns(config, names)
    return tables, faults, remarks


def _report(config: PartyConfig, study: Study, rule: DatasetRule, names: Sequence[str]) -> TableReport:
    variables = [variable for variable in study.schema.variables if variable.name in names]
    compounds = [one for one in compounds_of(study, config.name).values() if one.variables[0] in names]
    knowledge = stated_of(study, names)
    normalise, folder = study.linkage.normalise, config.state_directory
    rule = replace(with_properties(rule, knowledge, names), normalise=tuple(normalise))
    return check_records(rule, variables, normalise, compounds, knowledge, folder=folder)


def _counts(report: TableReport) -> Counts:
    return Counts(
        rows=report.n_rows,
        records=report.n_records,
        ragged_rows=report.n_ragged,
        empty_ids=report.n_empty_ids,
        repeated_ids=report.n_repeated_ids,
        columns=tuple(
            ColumnCounts(
                variable=column.variable,
                source=column.source,
                missing=column.missing,
                other=column.other,
                clamped=column.clamped,
                unseen=column.unseen,
                absent_categories=column.absent,
            )
            for column in report.counts
        ),
    )


def _cost(config: PartyConfig, site: Site, study: Study, now: dt.datetime) -> StudyCost:
    review = approval_checks.review(
        config,
        site.ledger,
        site.sketches,
        to_bytes(study),
        site_secret=site.secret,
        linkage_key=site.linkage_key,
        today=now.date(),
    )
    charges = {index: assessment.charge.epsilon for index, assessment in review.assessments.items()}
    return StudyCost(
        stated=describe_knowledge(review.study.knowledge, review.study.schema) or None,
        four_figures=figure_words(site, review.study),
        study=study.id,
        digest=digest_of(study).hex(),
        columns=columns(config, review.study, charges),
        epsilon=number(total(review)),
        epsilon_charged_now=finite_epsilon(charges.values()),
        cost=cost(config, site, review.study),
        alignment=disclosure(review.study).document(),
        share=share(review.study),
    )
