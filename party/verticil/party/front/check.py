"""Whether a site is ready for a study: identity, keys, tables, policy, budget. Reads the tables, counts, and sends nothing."""

from __future__ import annotations

import datetime as dt

from verticil.party.config import PartyConfig
from verticil.party.control import approval, policy
from verticil.party.control.holdings import compounds_of, origins
from verticil.party.control.site import Site
from verticil.party.control.state import stamp
from verticil.party.evidence.audit import Event, What
from verticil.party.front.facts import Facts, columns, cost, number, share, total
from verticil.party.records.keyfile import check_key
from verticil.party.records.source import TableReport, check_records, header
from verticil.shared.alignment.disclosure import disclosure
from verticil.shared.errors import VerticilError
from verticil.shared.identity.identity import Role
from verticil.shared.identity.pki import load_credentials, utc_now
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study

__all__ = ["check"]


def check(config: PartyConfig, study: Study | None = None, *, at: dt.datetime | None = None) -> Facts:
    """Look at everything that a study needs, without sending anything: identity, keys, tables, policy, budget.

    Args:
        config: party.toml.
        study: a study to check the tables against; None: whether the tables can be read at all.
        at: now.

    Returns:
        ``ok``; ``faults`` (each with code, message, hint, exit code) in the order of what to mend first; counts of each table.
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
    tables, table_faults = _tables(config, study)
    facts["tables"] = tables
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


def _tables(config: PartyConfig, study: Study | None) -> tuple[list[Facts], list[VerticilError]]:
    tables: list[Facts] = []
    faults: list[VerticilError] = []
    try:
        places = {} if study is None else origins(config, study)
    except VerticilError as error:
        return tables, [error]
    for name, rule in config.datasets.items():
        try:
            if study is None:
                tables.append({"dataset": name, "columns": len(header(rule))})
                continue
            variables = [
                study.schema[position]
                for position in study.schema.owned_by(config.name)
                if places[study.schema[position].name].dataset == name
            ]
            if variables:
                compounds = [
                    compound
                    for compound in compounds_of(study, config.name).values()
                    if places[compound.variables[0]].dataset == name
                ]
                report = check_records(rule, variables, study.linkage.normalise, compounds)
                wanted = {places[variable.name].source for variable in variables}
                there = header(rule)
                facts = _counts(report)
                facts["extra_columns"] = len(set(there) - wanted - {rule.id})
                facts["missing_columns"] = sorted(wanted - set(there))
                tables.append({"dataset": name, **facts})
                faults += report.faults
        except VerticilError as error:
            faults.append(error)
    return tables, faults


def _counts(report: TableReport) -> Facts:
    return {
        "records": report.n_records,
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
                "outside": column.outside,
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
        site_secret=site.site_secret,
        linkage_key=site.linkage_key,
        today=now.date(),
    )
    charges = {index: assessment.charge for index, assessment in found.assessments.items()}
    return {
        "study": study.id,
        "digest": digest_of(study).hex(),
        "columns": columns(config, found.study, charges),
        "epsilon": number(total(found)),
        "epsilon_charged_now": policy.finite_total(list(charges.values())),
        "cost": cost(config, site, found.study),
        "alignment": disclosure(found.study.linkage.mode, found.study.model).document(),
        **share(found.study),
    }
