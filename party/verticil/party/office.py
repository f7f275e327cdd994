"""What the people of a site do, behind ``verticil party``: set it up, see what is asked, check the data, decide.

Every function opens the site's state, does one thing and closes it; a daemon may run beside it. What they return is
plain data for a terminal or for JSON: names, counts, epsilons, codes. No value of a table, no id, no key.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from verticil.party.config import PartyConfig
from verticil.party.control import approval, policy
from verticil.party.control.holdings import columns_of, compounds_of, origins
from verticil.party.control.site import Site, Verdict, init_state
from verticil.party.control.state import Heartbeat, StudyRecord, stamp
from verticil.party.desk import load_study, take_release
from verticil.party.records.keyfile import check_key
from verticil.party.records.source import TableReport, check_records, header
from verticil.shared.alignment.disclosure import disclosure
from verticil.shared.channels import privacy
from verticil.shared.channels.subset import Subset
from verticil.shared.disk import create_file
from verticil.shared.errors import Misuse, PeerFault, VerticilError
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.readers import read_by, sent_units
from verticil.shared.study.states import State
from verticil.shared.transport.identity import Role, is_name
from verticil.shared.transport.pki import load_credentials, utc_now

__all__ = [
    "Facts",
    "approve",
    "check",
    "deny",
    "init_party",
    "linked_to",
    "load_study",
    "probe",
    "status",
    "take_release",
]

Facts = dict[str, object]

_STALE_SECONDS: Final = 90


def init_party(
    directory: Path, *, name: str, federation: str = "federation.toml", table: str = "table.csv", id_column: str = "id"
) -> Path:
    """Set a party up: party.toml with a policy that permits little, the state directory and the site secret.

    Args:
        directory: made when absent.
        name: the party's name, as in its certificate.
        federation: path of federation.toml, relative to `directory`.
        table: path of the table, relative to `directory`.
        id_column: its id column.

    Returns:
        The path of party.toml.

    Raises:
        Misuse: FILE_EXISTS, CONFIG_INVALID.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    if not is_name(name):
        raise Misuse("CONFIG_INVALID", f"name: got '{name[:80]}', expected 1 to 63 of A-Z a-z 0-9 _ -")
    path = directory / "party.toml"
    init_state(directory / "state")
    text = _TEMPLATE
    for key, value in {"NAME": name, "FEDERATION": federation, "TABLE": table, "ID": id_column}.items():
        text = text.replace(f'"{key}"', json.dumps(value, ensure_ascii=False))
    text = text.replace("NAME.", f"{name}.")
    create_file(path, text.encode("utf-8"), mode=0o644, exists_hint="edit it, or name another folder")
    return path


def approve(config: PartyConfig, study: str, approver: str, *, at: dt.datetime | None = None) -> Facts:
    """Approve a study by id or digest; the daemon sends the approval when there are enough.

    Raises:
        Misuse: STUDY_UNKNOWN, CONFIG_INVALID.
        Refusal: whatever speaks against it.
        DataFault: whatever is wrong with the tables or the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        verdict = site.approve(record, approver, at if at is not None else utc_now())
        return {**_named(record), **_approved(config, verdict)}


def deny(config: PartyConfig, study: str, approver: str, reason: str, *, at: dt.datetime | None = None) -> Facts:
    """Deny a study by id or digest, for good; the daemon tells the reason to the analyst or, between peers, to the others.

    Raises:
        Misuse: STUDY_UNKNOWN, USAGE.
        Refusal: the person is not an approver, or the study has ended.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        site.deny(record, approver, reason, at if at is not None else utc_now())
        return {**_named(record), "denied": True, "reason": reason}


def status(config: PartyConfig, *, at: dt.datetime | None = None) -> Facts:
    """What is asked of this party, where each study stands, what was spent. Reads no table.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    now = at if at is not None else utc_now()
    with Site.open(config) as site:
        beat = site.state.heartbeat()
        alive = _seconds_since(beat, now) <= _STALE_SECONDS
        return {
            "party": config.name,
            "daemon": {
                "running": alive,
                "last_seen": None if beat is None else beat.at,
                "connected": beat is not None and beat.connected and alive,
                "link": linked_to(config),
                "problem": "" if beat is None else beat.problem,
            },
            "disk_free_bytes": shutil.disk_usage(config.state_directory).free,
            "studies": [_study_status(config, record) for record in site.state.studies()],
            "ledger": [
                {
                    "dataset": name,
                    "epsilon_spent": site.ledger.spent(name),
                    "epsilon_lifetime_limit": _number(config.policy.max_epsilon_lifetime),
                }
                for name in dict.fromkeys([*config.datasets, *site.ledger.datasets()])
            ],
            "attempted_sends": len(site.ledger.rows()),
        }


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
    except VerticilError as error:
        faults.append(error)
    facts["ok"] = not faults
    facts["faults"] = [
        {"code": fault.code, "message": fault.message, "hint": fault.hint, "exit_code": fault.exit_code}
        for fault in {(fault.code, fault.message): fault for fault in faults}.values()
    ]
    return facts


def probe(config: PartyConfig, *, at: dt.datetime | None = None) -> str:
    """Whether the daemon of this configuration lives, by its heartbeat.

    Returns:
        A line for people.

    Raises:
        PeerFault: NOT_READY, no heartbeat for a minute and a half.
        DataFault: STATE_CORRUPT, SECRET_MISSING.
    """
    now = at if at is not None else utc_now()
    with Site.open(config) as site:
        beat = site.state.heartbeat()
    age = _seconds_since(beat, now)
    if beat is None or age > _STALE_SECONDS:
        last = "never" if beat is None else beat.at
        raise PeerFault(
            "NOT_READY", f"party '{config.name}': last heartbeat {last}", hint="start it: verticil party run"
        )
    link = linked_to(config) if beat.connected else f"not connected ({beat.problem or 'starting'})"
    return f"heartbeat {age:.0f} s ago, {link}"


def linked_to(config: PartyConfig) -> str:
    """What a daemon that works is connected to, in words."""
    return "connected to the miner" if config.federation.endpoint is not None else "serving its peers"


# ---- pieces


def _seconds_since(beat: Heartbeat | None, now: dt.datetime) -> float:
    if beat is None or beat.pid == 0:
        return math.inf
    return (now - dt.datetime.fromisoformat(beat.at)).total_seconds()


def _named(record: StudyRecord) -> Facts:
    return {"study": record.study_id, "digest": record.digest.hex()}


def _number(value: float) -> float | None:
    """None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def _columns(config: PartyConfig, study: Study, charges: Mapping[int, float]) -> list[Facts]:
    sources = {variable: place.source for variable, place in origins(config, study).items()}
    rows: list[Facts] = []
    for index in study.units_of(config.name):
        unit = study.units[index]
        row: Facts = {
            "variables": list(unit.variables),
            "sources": [sources[variable] for variable in unit.variables],
            "scheme": unit.scheme,
            "categories": unit.transition.n_states,
            "epsilon": _number(privacy.epsilon(unit.transition)),
            "kept": privacy.kept(unit.transition)[0],
        }
        if unit.two_level is not None:
            row["two_level"] = unit.two_level.text
        if unit.impossible:
            row["impossible_combinations"] = len(unit.impossible)
        if isinstance(unit.transition, Subset):
            row["subset_size"] = unit.transition.size
        if study.model == "peer":
            row["read_by"] = list(read_by(study, index))
        if index in charges:
            row["charge_now"] = _number(charges[index])
        rows.append(row)
    return rows


def _total(found: approval.Review) -> float:
    """Epsilon of one person: of the units that are sent."""
    sent = sent_units(found.study)
    return privacy.total_epsilon(release.epsilon for index, release in found.releases.items() if index in sent)


def _approved(config: PartyConfig, verdict: Verdict) -> Facts:
    found = verdict.review
    charges = {index: assessment.charge for index, assessment in found.assessments.items()}
    return {
        "approved": verdict.complete,
        "approvers": list(verdict.approvers),
        "approvers_needed": config.policy.approvers_needed,
        "records": found.holding.n_records,
        "minimum_common_records": found.minimum_common_records,
        "columns": _columns(config, found.study, charges),
        "epsilon": _number(_total(found)),
        "epsilon_charged_now": policy.finite_total(list(charges.values())),
        "expires": found.study.expires.isoformat(),
        "alignment": disclosure(found.study.linkage.mode, found.study.model).document(),
        **_share(found.study),
    }


def _share(study: Study) -> Facts:
    """What this party tells its peers besides columns; nothing in a study with a miner."""
    rule = study.share
    if rule is None:
        return {}
    return {
        "share": {
            "exact": rule.epsilon is None,
            "scores": study.structure.parents is None,
            "epsilon": rule.epsilon,
            "delta": rule.delta,
            "minimum_count": rule.minimum_count,
        }
    }


def _study_status(config: PartyConfig, record: StudyRecord) -> Facts:
    facts: Facts = {
        **_named(record),
        "state": State(record.task.state).name.lower(),
        "stage": record.stage,
        "percent": record.percent,
        "since": record.stage_at or None,
        "seen_at": record.seen_at,
        "approved": record.approval is not None,
        "approvals": record.n_votes,
        "approvers_needed": config.policy.approvers_needed,
        "common_records": record.n_common,
        "failure": None,
    }
    if record.failure is not None:
        error = record.failure
        facts["failure"] = {"code": error.code, "message": error.message, "hint": error.hint}
    try:
        proposal = approval.parsed(record.task.proposal)
        study = approval.declared(config, proposal)
        columns = columns_of(config, study)
        sent = sent_units(study)
        epsilons = [privacy.epsilon(study.units[i].transition) for i in study.units_of(config.name) if i in sent]
        facts |= {
            "title": study.title,
            "purpose": study.purpose,
            "parties": list(study.parties),
            "expires": study.expires.isoformat(),
            "columns": _columns(config, study, {}),
            "epsilon": _number(privacy.total_epsilon(epsilons)),
            "objections": [found.message for found in policy.objections(config.policy, study, config.name, columns)],
            **_share(study),
        }
    except VerticilError as error:  # a broken table or declaration must not hide the other studies
        facts["objections"] = [f"{error.code}: {error.message}"]
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
                tables.append({"dataset": name, **_counts(report)})
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
        "columns": _columns(config, found.study, charges),
        "epsilon": _number(_total(found)),
        "epsilon_charged_now": policy.finite_total(list(charges.values())),
        "alignment": disclosure(found.study.linkage.mode, found.study.model).document(),
        **_share(found.study),
    }


_TEMPLATE: Final = """schema = 1
name = "NAME"
federation = "FEDERATION"                # paths are relative to this file
state_directory = "state"                # database, spool, site secret (0600); never shared, always backed up

[identity]
certificate = "pki/NAME.crt"
key = "pki/NAME.key"

[linkage]
key = "secrets/linkage.key"              # shared by the parties, never given to the miner

[dataset.people]
path = "TABLE"
format = "csv"                           # csv | parquet
delimiter = ","
encoding = "utf-8"
id = "ID"                                # always read as text

# [dataset.people.columns.sex]           # only where the local table differs from the study
# source = "SEX"
# recode = { "M" = "Male", "F" = "Female" }

# [[randomization]]                      # your own declaration; at least as strong as the study's
# variables = ["race"]
# scheme = "symmetric"
# epsilon = 1.5

# [peer]                                 # for studies between peers: where this party serves them
# listen = "0.0.0.0:8444"
# advertise = "NAME.example.org:8444"    # as in [peers] of federation.toml

[policy]                                 # enforced here, whatever the miner says
approval = "manual"                      # each study waits for `verticil party approve`
approvers = []                           # who may approve; empty: whoever may run the command here
approvers_needed = 1
max_epsilon_per_column = 3.0
max_epsilon_per_study = 20.0             # all columns of one person, and what is shared besides
max_epsilon_lifetime = 40.0              # of this data set, over everything it ever releases
allow_infinite = []                      # variables that may be sent with scheme "none", "blocks" or a zero cell
allow_exact_parameters = false           # between peers: may parameters be shared that are exact functions of this table
# max_share_epsilon = 3.0                # between peers: of the noise on what is shared besides columns; if absent as per column
# max_share_delta = 1e-6                 # and its delta
minimum_common_records = 1000
minimum_parties = 2
max_categories = 50
# breach = { prior = 0.1, posterior = 0.5 }   # refuse a column by which a belief of 0.1 can become 0.5, also if in allow_infinite
deny_columns = ["ID"]                    # never leave, whatever a study calls them
recipients = ["miner"]                   # and the names of other parties, for studies between peers
on_data_change = "refuse"                # refuse | sticky | fresh: a second release of changed data
"""
