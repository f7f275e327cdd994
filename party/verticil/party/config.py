"""party.toml: private to the site, read strictly.

Secrets never stand in it, only paths; paths are relative to the file. What is declared here is enforced at the site whatever the
miner says. Reading it opens no key and no table: a wrong path shows up in `party check` and when the daemon starts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Literal, cast, get_args

from verticil.party.codebook import known_from
from verticil.party.dataset.sources.column_rules import columns_of_summary, read_column_rule
from verticil.party.dataset.sources.server import Server, has_password, no_url
from verticil.party.dataset.sources.source_table import DATABASES, ENDINGS, DatasetRule, Format, OneRow
from verticil.party.dataset.sources.statement import no_query, no_table
from verticil.party.limits.limits import (
    DELTA_STUDIES,
    MAX_COMMON_SETS,
    MAX_OPEN_STUDIES,
    MINIMUM_DIFFERENCE,
    RULE_APPROVALS,
    SHARE_DELTA,
    Policy,
)
from verticil.party.limits.masked import FLOOR, LINKAGES, MaskedPolicy
from verticil.party.limits.rules import RequestFacts, Rule
from verticil.party.limits.same_people import APART, GONE, WORDS, SamePeople, circle_from
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.config import (
    RELAY,
    Federation,
    check_address,
    listen_address,
    load_federation,
    path_in,
    read_toml,
)
from verticil.shared.documents.record import read
from verticil.shared.documents.toml_table import Table, is_name, near_hint, quoted
from verticil.shared.federation.identity.key_words import says
from verticil.shared.federation.identity.signing import public_key_from
from verticil.shared.federation.transport.metrics import metrics_address
from verticil.shared.mechanisms.privacy import Breach
from verticil.shared.privacy.accounts import DEALER, PUBLIC, Cost, Reader, ReaderLimits
from verticil.shared.study.protocol import MINER

DEFAULT_PAGE: Final = ("127.0.0.1", 8899)
REVIEW_MEGABYTES: Final = 256
PAGE_HINT: Final = "from another machine: ssh -L 8899:127.0.0.1:8899 HOST, and open the address there"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRule:
    """Where this party serves its peers in Model I.

    Attributes:
        listen: host:port to bind; port 0 takes a free one. Empty with `relay`.
        advertise: host:port at which peers reach it; what federation.toml says of this party in [peers]. Empty with `relay`.
        relay: it listens nowhere; what peers ask comes and goes through the miner, sealed (`verticil.party.protocol.relay`).
    """

    listen: str = ""
    advertise: str = ""
    relay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyConfig:
    """What party.toml says.

    Attributes:
        path: the file.
        name: this party; the name in its certificate.
        federation: the shared document.
        state_directory: database, spool, site secret.
        certificate, key, signing_key: files of the party's identity.
        sealing_key: file of the key for what passes through the miner between peers; only there where it is needed.
        linkage_key: file of the key that the parties share.
        datasets: rule by name.
        declarations: the ``[[randomization]]`` tables, read anew for each study.
        policy: the site's limits.
        peer: Model I only.
        metrics: where the page for a monitoring system is served; None: nowhere.
        page: where `verticil party ui` shows the page for the site's people.
        approver_keys: public key (Ed25519, 32 bytes) of each approver that has one.
        codebook: what a study may ask for to be approved by a rule; see `verticil.party.codebook`.
        review_bytes: most bytes of a release that is fetched to be countersigned.
    """

    path: Path
    name: str
    federation: Federation
    state_directory: Path
    certificate: Path
    key: Path
    signing_key: Path
    sealing_key: Path
    linkage_key: Path
    datasets: Mapping[str, DatasetRule]
    declarations: tuple[Table, ...]
    policy: Policy
    peer: PeerRule | None
    metrics: tuple[str, int] | None = None
    page: tuple[str, int] = DEFAULT_PAGE
    approver_keys: Mapping[str, bytes] = field(default_factory=dict)
    codebook: RequestFacts = field(default_factory=RequestFacts)
    review_bytes: int = REVIEW_MEGABYTES * 2**20


def load_party(path: Path) -> PartyConfig:
    """Read party.toml and the federation.toml that it names.

    Raises:
        Misuse: CONFIG_INVALID, FILE_MISSING.
    """
    table = read_toml(path)
    base = path.parent
    name = table.value(str, "name")
    if not is_name(name):
        table.fail("name", f"got '{name}', expected 1 to 63 of A-Z a-z 0-9 _ -")
    identity = table.table("identity")
    certificate = path_in(identity, "certificate", base)
    linkage = table.table("linkage")
    datasets = table.named_tables("dataset")
    if not datasets:
        table.fail(
            "dataset", "missing, expected at least one [dataset.NAME]", hint="it says where the party's table is"
        )
    rules = {key: dataset_rule(rule, base) for key, rule in datasets.items()}
    _check_files(table, rules)
    _check_denied(table, rules)
    keys = _approver_keys(table.tables("approver", optional=True))
    federation = load_federation(path_in(table, "federation", base))
    config = PartyConfig(
        path=path,
        name=name,
        federation=federation,
        state_directory=path_in(table, "state_directory", base),
        certificate=certificate,
        key=path_in(identity, "key", base),
        signing_key=path_in(identity, "signing_key", base)
        if identity.has("signing_key")
        else certificate.with_suffix(".sign"),
        sealing_key=path_in(identity, "sealing_key", base)
        if identity.has("sealing_key")
        else certificate.with_suffix(".seal"),
        linkage_key=path_in(linkage, "key", base),
        datasets=rules,
        declarations=table.tables("randomization", optional=True),
        policy=_policy(table.table("policy"), tuple(keys), name, federation, tuple(rules)),
        peer=_peer(table.table("peer")) if table.has("peer") else None,
        metrics=metrics_address(table.table("metrics", optional=True)),
        page=listen_address(table.table("ui", optional=True), hint=PAGE_HINT) or DEFAULT_PAGE,
        approver_keys=keys,
        codebook=known_from(table.table("codebook", optional=True), rules),
        review_bytes=_review_bytes(table),
    )
    for part in (identity, linkage, table):
        part.finish()
    _check_relay(table, config)
    return config


def require_marked_authority(config: PartyConfig, *, is_demo: bool) -> None:
    """Refuse automatic approval under an ordinary certificate authority.

    Raises:
        Misuse: CONFIG_INVALID.
    """
    if config.policy.approval == "auto" and not is_demo:
        raise Misuse(
            "CONFIG_INVALID",
            f"{config.path.name}: policy.approval: got 'auto', expected 'manual'",
            hint="automatic approval is for `verticil demo` only: this CA certificate does not carry the demo marker",
        )


def _check_files(table: Table, datasets: Mapping[str, DatasetRule]) -> None:
    """Refuse one table under two names: the lifetime sum is per data set name, so it would be charged to two sums."""
    names: dict[tuple[str, str, str], str] = {}
    for name, rule in datasets.items():
        place = str(rule.path.resolve()) if rule.server is None else rule.server.named_by
        other = names.setdefault((place, rule.table, " ".join(rule.query.split())), name)
        if other != name:
            table.fail(
                f"dataset.{name}.{'path' if rule.server is None else 'url'}",
                f"is the table of [dataset.{other}], expected one data set for each",
                hint="the epsilon ever spent is summed for each data set",
            )


def _check_denied(table: Table, datasets: Mapping[str, DatasetRule]) -> None:
    """Refuse a summary that looks at a column which never leaves."""
    denied = set(table.table("policy").strings("deny_columns", []))
    for name, rule in datasets.items():
        for variable, column in rule.columns.items():
            if (summary := column.summary) is not None and (used := denied & {*columns_of_summary(summary)}):
                hint = "take it out of policy.deny_columns, or make the summary of other columns"
                place = f"dataset.{name}.columns.{variable}"
                table.fail(place, f"looks at column '{min(used)}', which is in policy.deny_columns", hint=hint)


_FILES: Final = tuple(kind for kind in get_args(Format) if kind != "server")
_URLS: Final = ("url", "url_env", "url_file")


def _place(table: Table, base: Path) -> tuple[Path, Format, Server | None]:
    """Return where a data set is, in a file or on a server."""
    keys = [key for key in ("path", *_URLS) if table.has(key)]
    if len(keys) > 1:
        table.fail(keys[1], f"stands beside {keys[0]}, expected one place")
    if not keys or keys == ["path"]:
        path = path_in(table, "path", base)
        return path, cast("Format", table.choice("format", _FILES, ENDINGS.get(path.suffix.lower(), "csv"))), None
    if table.has("format"):
        table.fail("format", f"stands beside {keys[0]}, expected it beside path only")
    passwords = [key for key in ("password_env", "password_file") if table.has(key)]
    if len(passwords) > 1 or (passwords and keys != ["url"]):
        table.fail(passwords[-1], f"stands beside {[*keys, *passwords][-2]}, expected one place of the password")
    server = Server(
        url=table.value(str, "url", ""),
        url_env=table.value(str, "url_env", ""),
        url_file=path_in(table, "url_file", base) if table.has("url_file") else None,
        password_env=table.value(str, "password_env", ""),
        password_file=path_in(table, "password_file", base) if table.has("password_file") else None,
    )
    if keys == ["url"]:
        if (scheme := server.url.partition(":")[0]) in ENDINGS.values():
            table.fail("url", f'is of a file, expected path = FILE beside format = "{scheme}"')
        hint = "remove it there and change it; then password_file, password_env, url_file or url_env"
        if not (problem := no_url(server.url)) and has_password(server.url):
            problem = "has a password, expected none in this file"
        if problem:
            table.fail("url", problem, hint=hint if "password" in problem else "")
    return Path(), "server", server


_MOST_ABOVE: Final = 1000
"""Most lines above a header."""


def dataset_rule(table: Table, base: Path) -> DatasetRule:
    """Return the rule to read a local table, as ``[dataset.NAME]`` says it; paths are relative to `base`.

    A related table, ``[dataset.NAME.tables.TABLE]``, has the same keys. Its id has the name of the table of people, unless it
    says another one.

    Raises:
        Misuse: CONFIG_INVALID.
    """
    path, kind, server = _place(table, base)
    keys = [key for key in ("table", "query") if table.has(key) and table.value(str, key)]
    if kind in DATABASES and len(keys) != 1:
        table.fail("table", f"got {' and '.join(keys) or 'neither'}, expected either table or query")
    if kind not in DATABASES and keys:
        table.fail(keys[0], f'stands beside format = "{kind}", expected it of a database only')
    for key, wrong in (("table", no_table), ("query", no_query)):
        if key in keys and (problem := wrong(table.value(str, key))):
            table.fail(key, problem)
    rule = DatasetRule(
        path=path,
        format=kind,
        server=server,
        table=table.value(str, "table", ""),
        query=table.value(str, "query", ""),
        delimiter=table.value(str, "delimiter", ","),
        encoding=table.value(str, "encoding", "utf-8"),
        skip=_lines_above(table),
        quote=table.value(bool, "quote", True),
        sheet=table.value(str, "sheet", ""),
        id=table.value(str, "id"),
        columns={
            variable: read_column_rule(column, variable) for variable, column in table.named_tables("columns").items()
        },
        tables={
            name: _related_rule(item, table.value(str, "id"), base)
            for name, item in table.named_tables("tables").items()
        },
        one_row=cast("OneRow", table.choice("one_row", get_args(OneRow)[1:], "")) if table.has("one_row") else "",
        order=_order(table),
    )
    _check_summaries(table, rule)
    if rule.one_row in ("first", "last") and not rule.order:
        table.fail(
            "order", f'missing beside one_row = "{rule.one_row}", expected the column that orders a person\'s rows'
        )
    table.finish()
    return rule


def _order(table: Table) -> tuple[str, ...]:
    """Return the columns that order a person's rows: one, or several in a list."""
    if not table.has("order"):
        return ()
    return table.strings("order") if isinstance(table.raw("order"), list) else (table.value(str, "order"),)


def _check_summaries(table: Table, rule: DatasetRule) -> None:
    """Check that each summary is of a table that is there, has an order where it needs one, and does not say who a person is."""
    for variable, column in rule.columns.items():
        if (summary := column.summary) is None:
            continue
        key = f"columns.{variable}"
        related = rule.tables.get(summary.table)
        if related is None:
            hint = (
                near_hint(summary.table, rule.tables) or f"write [dataset.NAME.tables.{summary.table}] with its place"
            )
            table.fail(key, f"table '{summary.table}' is no related table of the data set", hint=hint)
        if summary.kind in ("first", "last") and not related.order:
            hint = f"write order = COLUMN in [dataset.NAME.tables.{summary.table}]"
            table.fail(key, f'summary = "{summary.kind}" needs an order of the rows, and the table has none', hint=hint)
        if summary.kind in ("first", "last") and len(related.order) > 1:
            table.fail(
                key,
                f'summary = "{summary.kind}" goes by one column, and the order of the table has {len(related.order)}',
            )
        if related.id in columns_of_summary(summary):
            table.fail(key, f"looks at '{related.id}', which names the person, expected another column")


def _related_rule(table: Table, id_column: str, base: Path) -> DatasetRule:
    """Return the rule to read a related table."""
    for key in ("tables", "one_row"):
        if table.has(key):
            table.fail(key, "stands in a related table, expected it in [dataset.NAME] only")
    return dataset_rule(table if table.has("id") else table.with_value("id", id_column), base)


def _lines_above(table: Table) -> int:
    """Return how many lines stand above the header."""
    skip = table.value(int, "skip", 0)
    return skip if 0 <= skip <= _MOST_ABOVE else table.fail("skip", f"got {skip}, expected 0 to {_MOST_ABOVE}")


def columns_toml(rule: DatasetRule, dataset: str = "people") -> str:
    """Return ``[dataset.NAME.columns.VARIABLE]`` of each column that is not read as is usual."""
    lines: list[str] = []
    for name, column in rule.columns.items():
        recode = ", ".join(f"{quoted(text)} = {quoted(other)}" for text, other in column.recode.items())
        lines += ["", f"[dataset.{dataset}.columns.{quoted(name)}]"]
        if (summary := column.summary) is not None:
            lines += [f"table = {quoted(summary.table)}", f"summary = {quoted(summary.kind)}"]
            lines += [f"source = {quoted(summary.column)}"] * bool(summary.column)
            lines += [f"where = {quoted(summary.where)}"] * bool(summary.where)
        elif column.source != name:
            lines += [f"source = {quoted(column.source)}"]
        lines += [f"recode = {{ {recode} }}"] * bool(recode)
        written = column.written if summary is None else summary.written
        lines += [f"written = {quoted(written)}"] * (written != "plain")
    return "".join(f"{line}\n" for line in lines)


def related_toml(rule: DatasetRule, base: Path, dataset: str = "people") -> str:
    """Return ``[dataset.NAME.tables.TABLE]`` of each related table."""
    return "".join(
        f"\n[dataset.{dataset}.tables.{name}]\n{place_toml(table, base)}id = {quoted(table.id)}\n"
        + columns_toml(table, f"{dataset}.tables.{name}")
        for name, table in rule.tables.items()
    )


def place_toml(rule: DatasetRule, base: Path) -> str:
    """Return the lines of ``[dataset.NAME]`` that say where a table is and what it is; paths are relative to `base`."""
    lines: dict[str, str | Path | None] = {}
    if rule.server is None:
        lines |= {"path": rule.path, "format": rule.format}
    else:
        lines |= {field.name: getattr(rule.server, field.name) for field in fields(rule.server)}
    lines |= {"table": rule.table, "query": rule.query}
    if rule.format == "csv":
        lines |= {"delimiter": rule.delimiter, "encoding": rule.encoding}
    lines |= {"sheet": rule.sheet, "one_row": rule.one_row}
    texts = {
        key: os.path.relpath(value.resolve(), base.resolve()) if isinstance(value, Path) else value
        for key, value in lines.items()
        if value
    }
    numbers = f"skip = {rule.skip}\n" * bool(rule.skip) + "quote = false\n" * (not rule.quote)
    numbers += f"order = [{', '.join(map(quoted, rule.order))}]\n" * bool(rule.order)
    return numbers + "".join(f"{key} = {quoted(text)}\n" for key, text in texts.items())


def _approver_keys(tables: tuple[Table, ...]) -> dict[str, bytes]:
    """``[[approver]]``: name and public key of each person who may approve."""
    keys: dict[str, bytes] = {}
    for table in tables:
        name, text = table.value(str, "name"), table.value(str, "public_key")
        table.finish()
        if not name or not name.isprintable() or len(name) > 100 or "," in name:
            table.fail("name", "expected a name of 1 to 100 printable letters without commas")
        if (public := public_key_from(text)) is None:
            hint = "the line that `verticil party approver keygen` prints"
            table.fail("public_key", "expected the 44 letters of an Ed25519 public key", hint=hint)
        if name in keys:
            table.fail("name", f"'{name}' stands there twice, expected one key for each approver")
        if public in keys.values():
            table.fail("public_key", f"'{name}' has the key of another approver, expected one key for each")
        keys[name] = public
    return keys


def _rule(table: Table) -> Rule:
    rule = Rule(
        name=table.value(str, "name"),
        columns=table.strings("columns"),
        max_epsilon=_limit(table, "max_epsilon"),
        parties=table.strings("parties", []),
        recipients=table.strings("recipients", []),
        max_days=_at_least(table, "max_days", 0, 0) if table.has("max_days") else None,
        only_repeats=table.value(bool, "only_repeats", False),
    )
    table.finish()
    if not rule.name or not rule.name.isprintable() or len(rule.name) > 60:
        table.fail("name", "expected a name of 1 to 60 printable letters")
    return rule


def _policy(
    table: Table, with_keys: tuple[str, ...], own_name: str, federation: Federation, datasets: tuple[str, ...]
) -> Policy:
    rules = tuple(_rule(item) for item in table.tables("rule", optional=True))
    approvers = table.strings("approvers", [])
    if approvers and (strangers := [name for name in with_keys if name not in approvers]):
        hint = "name the same people there, or leave policy.approvers out: [[approver]] says who they are"
        table.fail("approvers", f"'{strangers[0]}' has a key in [[approver]] and is not among them", hint=hint)
    share_delta = _limit(table, "max_share_delta") if table.has("max_share_delta") else SHARE_DELTA
    policy = Policy(
        approval=cast(
            "Literal['manual', 'rules', 'auto']", table.choice("approval", ("manual", "rules", "auto"), "manual")
        ),
        approvers=approvers or with_keys,
        approvers_needed=_at_least(table, "approvers_needed", 1, 1),
        max_epsilon_per_column=_limit(table, "max_epsilon_per_column"),
        max_epsilon_per_study=_limit(table, "max_epsilon_per_study"),
        max_epsilon_lifetime=_limit(table, "max_epsilon_lifetime"),
        allow_infinite=table.strings("allow_infinite", []),
        minimum_common_records=_at_least(table, "minimum_common_records", 1, 1000),
        minimum_parties=_at_least(table, "minimum_parties", 2, 2),
        max_categories=_at_least(table, "max_categories", 2, 50),
        deny_columns=table.strings("deny_columns", []),
        recipients=table.strings("recipients", []),
        on_data_change=cast(
            "Literal['refuse', 'sticky', 'fresh']",
            table.choice("on_data_change", ("refuse", "sticky", "fresh"), "refuse"),
        ),
        breach=read(Breach, table.table("breach")) if table.has("breach") else None,
        allow_exact_parameters=table.value(bool, "allow_exact_parameters", False),
        # What is shared speaks of every column, so of none more than a column may.
        max_share_epsilon=_limit(
            table, "max_share_epsilon" if table.has("max_share_epsilon") else "max_epsilon_per_column"
        ),
        max_share_delta=share_delta,
        max_delta_lifetime=(
            _limit(table, "max_delta_lifetime") if table.has("max_delta_lifetime") else DELTA_STUDIES * share_delta
        ),
        public=_account(table, PUBLIC),
        dealer=_account(table, DEALER),
        minimum_difference=_at_least(table, "minimum_difference", 0, MINIMUM_DIFFERENCE),
        on_small_difference=cast(
            "Literal['warn', 'refuse']", table.choice("on_small_difference", ("warn", "refuse"), "refuse")
        ),
        max_common_sets=_at_least(table, "max_common_sets", 1, MAX_COMMON_SETS),
        max_open_studies=_at_least(table, "max_open_studies", 1, MAX_OPEN_STUDIES),
        rules=rules,
        minimum_rows=_at_least(table, "minimum_rows", 1, 1),
        max_days=_at_least(table, "max_days", 0, 0) if table.has("max_days") else None,
        max_rule_approvals_per_day=_at_least(table, "max_rule_approvals_per_day", 0, RULE_APPROVALS),
        masked=_masked(table, own_name, pinned_keys(federation)),
        same_people=_same_people(table.table("same_people", optional=True), datasets),
    )
    if rules and policy.approval == "manual":
        table.fail("rule", 'stands beside approval = "manual"', hint='set approval = "rules", or remove the rules')
    n_approvers = len(set(approvers))  # of [[approver]] one is added after the other, and too few just never are enough
    if approvers and policy.approvers_needed > n_approvers:
        table.fail("approvers_needed", f"got {policy.approvers_needed}, expected at most the {n_approvers} approvers")
    table.finish()
    return policy


def _same_people(table: Table, datasets: tuple[str, ...]) -> SamePeople:
    """Read ``same_people`` of ``[policy]``: of each name another one, ``apart`` or ``gone``."""
    words = {name: table.value(str, name) for name in table.names()}
    table.finish()
    accounts = {name: other for name, other in words.items() if other not in WORDS}
    for name, other in words.items():
        if not is_name(other):
            table.fail(name, f"got '{other}', expected the name of a data set, '{APART}' or '{GONE}'")
        if other in WORDS and other in datasets:
            hint = f"rename [dataset.{other}]: here the word would be read as a name"
            table.fail(name, f"got '{other}', which is a data set, too", hint=hint)
        if other == name:
            table.fail(name, "names itself, expected another name", hint="leave it out: it has one account anyway")
        if other == GONE and name in datasets:
            table.fail(name, f"got '{GONE}', and [dataset.{name}] stands in this file")
        if circle_from(accounts, name):
            table.fail(name, f"'{other}' leads back to '{name}', expected names that lead to a last one")
    same_people = SamePeople(
        datasets=frozenset(datasets),
        joined=accounts,
        apart=frozenset(name for name, word in words.items() if word == APART),
        gone=frozenset(name for name, word in words.items() if word == GONE),
    )
    for name, other in accounts.items():
        if not same_people.is_explained(name):
            table.fail(name, f"got '{other}', and neither is a data set of this file: {', '.join(datasets)}")
    return same_people


def pinned_keys(federation: Federation) -> dict[str, bytes]:
    """Return the sealing keys that federation.toml pins: of parties, and of the miner by the name ``miner``."""
    miner = {} if federation.miner_sealing is None else {MINER: federation.miner_sealing}
    return {**federation.sealing, **miner}


def _masked(table: Table, own_name: str, key_pins: Mapping[str, bytes]) -> MaskedPolicy:
    """Return what ``[policy]`` says of masked studies."""
    confirmed_words = table.table("confirmed_keys", optional=True)
    words = {name: confirmed_words.value(str, name) for name in confirmed_words.names()}
    confirmed_words.finish()
    right = [name for name in words if name in key_pins and says(words[name], name, key_pins[name])]
    keys = [key for key in ("max_masked_epsilon", "max_masked_delta") if table.has(key)]
    if len(keys) == 1:
        missing = "max_masked_delta" if keys == ["max_masked_epsilon"] else "max_masked_epsilon"
        table.fail(missing, f"missing, expected a number beside {keys[0]}: a limit that is not stated is not infinite")
    return MaskedPolicy(
        allow=table.value(bool, "allow_masked", False),
        most=Cost(epsilon=_limit(table, keys[0]), delta=_limit(table, keys[1])) if keys else None,
        floor=_limit(table, "max_floor_epsilon_per_column") if table.has("max_floor_epsilon_per_column") else FLOOR,
        confirmed=(own_name, *right),
        differing=tuple(name for name in words if name in key_pins and name not in right),
        dealers=table.strings("allowed_dealers") if table.has("allowed_dealers") else None,
        noise=table.strings("noise_from") if table.has("noise_from") else None,
        unchecked=table.value(bool, "allow_unchecked_partners", False),
        raw=table.strings("allow_raw_under_masks", []),
        linkages=_at_least(table, "max_linkages", 0, LINKAGES),
    )


def _account(table: Table, reader: Reader) -> ReaderLimits | None:
    """Return the limits of an account; those of delta may be left out together, and are 0 then: nothing with a delta goes."""
    if not any(table.has(key) for key in reader.keys):
        return None
    epsilon, delta, epsilon_lifetime, delta_lifetime = reader.keys
    for key, other in ((epsilon, epsilon_lifetime), (delta, delta_lifetime)):
        for missing, present in ((key, other), (other, key)):
            if table.has(present) and not table.has(missing):
                table.fail(
                    missing, f"missing, expected a number beside {present}: a limit that is not stated is not infinite"
                )
    with_delta = table.has(delta)
    if with_delta and not table.has(epsilon):
        table.fail(epsilon, f"missing, expected a number beside {delta}: a limit that is not stated is not infinite")
    return ReaderLimits(
        study=Cost(epsilon=_limit(table, epsilon), delta=_limit(table, delta) if with_delta else 0.0),
        lifetime=Cost(
            epsilon=_limit(table, epsilon_lifetime), delta=_limit(table, delta_lifetime) if with_delta else 0.0
        ),
    )


def _limit(table: Table, key: str) -> float:
    # Required: a limit that nobody stated is not a limit.
    value = table.value(float, key)
    if math.isnan(value) or value < 0:
        table.fail(key, f"got {value}, expected a number of at least 0")
    return value


def _at_least(table: Table, key: str, least: int, default: int) -> int:
    value = table.value(int, key, default)
    if value < least:
        table.fail(key, f"got {value}, expected at least {least}")
    return value


def _review_bytes(table: Table) -> int:
    if not table.has("review"):
        return REVIEW_MEGABYTES * 2**20
    rule = table.table("review")
    megabytes = _at_least(rule, "max_megabytes", 1, REVIEW_MEGABYTES)
    rule.finish()
    return megabytes * 2**20


def _peer(table: Table) -> PeerRule:
    if table.value(bool, "relay", False):
        for key in ("listen", "advertise"):
            if table.has(key):
                table.fail(key, "not with relay = true", hint="such a party listens nowhere; drop one of the two")
        rule = PeerRule(relay=True)
    else:
        rule = PeerRule(listen=table.value(str, "listen"), advertise=table.value(str, "advertise"))
        for key, value in (("listen", rule.listen), ("advertise", rule.advertise)):
            check_address(table, key, value, example="clinic.example.org:8443")
    table.finish()
    return rule


def _check_relay(table: Table, config: PartyConfig) -> None:
    """Check that party.toml and federation.toml say the same of how this party is reached."""
    address = config.federation.peers.get(config.name)
    if config.peer is None or address is None or config.peer.relay == (address == RELAY):
        return
    line = "relay = true" if address == RELAY else "listen and advertise"
    table.fail(
        "peer",
        f"federation.toml says '{address}' of '{config.name}' in [peers], expected {line} here",
        hint="the others reach this party as federation.toml says",
    )
