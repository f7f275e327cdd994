"""Whether a site is ready for a study: identity, keys, tables, policy, budget. Reads the tables, counts, and sends nothing.

What is seen in the values is a warning, never a fault: it keeps no study from being answered, and so none from being approved.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from verticil.party.audit.log import Event, What
from verticil.party.config import PartyConfig
from verticil.party.dataset.keyfile import check_key
from verticil.party.dataset.local_dataset import compounds_of, origins
from verticil.party.dataset.source import Remark, TableReport, check_records
from verticil.party.dataset.table import DatasetRule, header, missing_columns
from verticil.party.operator.view_model import COUNTS_TELL, Facts, asked, columns, cost, number, share, total
from verticil.party.policy import approval, policy
from verticil.party.site import Site
from verticil.party.storage.studies import stamp
from verticil.shared.errors import VerticilError
from verticil.shared.identity.identity import Role
from verticil.shared.identity.pki import load_credentials, utc_now
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import disclosure


def check(
    config: PartyConfig, study: Study | None = None, *, counts: bool = True, at: dt.datetime | None = None
) -> Facts:
    """Look at everything that a study needs, without sending anything: identity, keys, tables, policy, budget.

    Args:
        config: party.toml.
        study: a study to check the tables against; None: whether the tables can be read at all.
        counts: count what became of the values of each table, and warn of what may be a mistake; False: look at the names of the
            columns alone.
        at: now.

    Returns:
        ``ok``; ``faults`` (each with code, message, hint, exit code) in the order of what to mend first; ``warnings`` (code,
        message, hint); counts of each table.
    """
    now = at if at is not None else utc_now()
    faults: list[VerticilError] = []
    facts: Facts = {"party": config.name}
    try:
        credentials = load_credentials(
            config.certificate, config.key, config.federation, role=Role.PARTY, name=config.name, at=now
        )
        facts["certificate_valid_until"] = stamp(credentials.not_after)
    except VerticilError as error:
        faults.append(error)
    try:
        facts["linkage_key_check"] = check_key(config.linkage_key)
    except VerticilError as error:
        faults.append(error)
    if study is not None:
        try:
            facts |= asked(config, study)
        except VerticilError as error:
            faults.append(error)
    tables, table_faults, remarks = _tables(config, study, counts=counts)
    if study is not None and counts:
        facts["counts_tell"] = COUNTS_TELL
    facts["tables"] = tables
    facts["warnings"] = [{"code": item.code, "message": item.message, "hint": item.hint} for item in remarks]
    faults += table_faults
    try:
        with Site.open(config) as site:
            if study is not None and not faults:
                found = _cost(config, site, study, now)
                facts |= found
                digest = bytes.fromhex(str(found["digest"]))
                site.audit.record(Event(what=What.CHECK, who="operator", study=digest, study_id=study.id), now)
    except VerticilError as error:
        faults.append(error)
    facts["ok"] = not faults
    facts["faults"] = [
        {"code": fault.code, "message": fault.message, "hint": fault.hint, "exit_code": fault.exit_code}
        for fault in {(fault.code, fault.message): fault for fault in faults}.values()
    ]
    return facts


def _tables(
    config: PartyConfig, study: Study | None, *, counts: bool
) -> tuple[list[Facts], list[VerticilError], list[Remark]]:
    tables: list[Facts] = []
    faults: list[VerticilError] = []
    remarks: list[Remark] = []
    try:
        places = {} if study is None else origins(config, study)
    except VerticilError as error:
        return tables, [error], remarks
    for name, rule in config.datasets.items():
        try:
            there = header(rule)
            if study is None:
                tables.append({"dataset": name, "columns": len(there)})
                continue
            wanted = {place.source for place in places.values() if place.dataset == name}
            if not wanted:
                continue
            facts: Facts = {"dataset": name}
            if counts:
                report = _report(config, study, rule, [v for v, place in places.items() if place.dataset == name])
                facts |= _counts(report)
                faults += report.faults
                remarks += report.remarks
            elif (absent := missing_columns(rule, there, [rule.id, *sorted(wanted)])) is not None:
                faults.append(absent)
            facts["used_columns"] = len(wanted)
            facts["extra_columns"] = len(set(there) - wanted - {rule.id})
            facts["missing_columns"] = sorted(wanted - set(there))
            tables.append(facts)
        except VerticilError as error:
            faults.append(error)
    return tables, faults, remarks


def _report(config: PartyConfig, study: Study, rule: DatasetRule, names: Sequence[str]) -> TableReport:
    variables = [variable for variable in study.schema.variables if variable.name in names]
    compounds = [one for one in compounds_of(study, config.name).values() if one.variables[0] in names]
    return check_records(rule, variables, study.linkage.normalise, compounds)


def _counts(report: TableReport) -> Facts:
    return {
        "rows": report.n_rows,
        "records": report.n_records,
        "ragged_rows": report.n_ragged,
        "empty_ids": report.n_empty_ids,
        "repeated_ids": report.n_repeated_ids,
        "columns": [
            {
                "variable": column.variable,
                "source": column.source,
                "missing": column.missing,
                "other": column.other,
                "clamped": column.clamped,
                "unseen": column.unseen,
                "absent_categories": column.absent,
            }
            for column in report.counts
        ],
    }


def _cost(config: PartyConfig, site: Site, study: Study, now: dt.datetime) -> Facts:
    found = approval.review(
        config,
        site.ledger,
        to_bytes(study),
        site_secret=site.secret,
        linkage_key=site.linkage_key,
        today=now.date(),
    )
    charges = {index: assessment.charge.epsilon for index, assessment in found.assessments.items()}
    return {
        "study": study.id,
        "digest": digest_of(study).hex(),
        "columns": columns(config, found.study, charges),
        "epsilon": number(total(found)),
        "epsilon_charged_now": policy.finite_total(list(charges.values())),
        "cost": cost(config, site, found.study),
        "alignment": disclosure(found.study).document(),
        **share(found.study),
    }
