"""The node at a data-holding site and its state: ``verticil party init | run | check | status | backup | restore``."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.exceptions import Abort

from verticil.cli import daemons, party_text
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, put, say
from verticil.shared.core.errors import Misuse

if TYPE_CHECKING:
    from verticil.party.config import PartyConfig
    from verticil.party.dataset.sources.source_table import DatasetRule
    from verticil.party.operator.check import Readiness
    from verticil.party.operator.commands import Status
    from verticil.party.operator.view_model import Crossing, StudyStatus

_LITTLE_ROOM_BYTES = 1 << 20

ConfigOption = Annotated[Path, typer.Option("--config", help="party.toml.")]
ApproverOption = Annotated[
    str | None, typer.Option("--as", help="Name of the person who decides; default: your login at this host.")
]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Id, ANALYST/ID or digest of the study.")]


def approver_name(name: str | None) -> str:
    """Return the name given, or else the login at this host.

    Raises:
        Misuse: USAGE, no name is given and the account has none.
    """
    try:
        return name or f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        raise Misuse("USAGE", "--as: missing, and this account has no name", hint="give --as NAME") from None


def ask_passphrase(prompt: str, *, hint: str, twice: bool = False) -> str:
    """Ask for a passphrase in this terminal.

    Args:
        prompt: what stands before the answer.
        hint: what to do where there is no terminal.
        twice: ask again and compare.

    Raises:
        Misuse: USAGE, there is no terminal, or it has ended.
    """
    missing = Misuse("USAGE", f"{prompt}: no terminal to ask for it", hint=hint)
    if not _has_terminal():
        raise missing
    try:
        return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))
    except Abort as error:
        if isinstance(error.__context__, EOFError):
            raise missing from None
        raise


def _has_terminal() -> bool:
    """Return whether a person can be asked: the process has a terminal, whatever its standard input is."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin.isatty()
    return True


def site_of(config: Path) -> PartyConfig:
    """Return what party.toml says."""
    from verticil.party.config import load_party

    return load_party(config)


def init(
    name: Annotated[str, typer.Option(help="The party's name, as in its certificate and in studies.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder for party.toml and the state.")] = Path(),
    federation: Annotated[Path, typer.Option(help="federation.toml of the federation.")] = Path("federation.toml"),
    table: Annotated[
        str | None,
        typer.Option(
            help="The table, one row per person: a file, folder or pattern (table.csv); with --url its name in the database."
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="The database that has it, without a password: postgresql://USER@HOST/DATABASE.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(help="Query whose result is the table, in place of the name of a table in the database."),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="With --url: the file that has the password, 0600.")
    ] = None,
    password_env: Annotated[
        str | None, typer.Option("--password-env", help="With --url: the environment variable that has it.")
    ] = None,
    id_column: Annotated[str, typer.Option("--id", help="Its id column.")] = "id",
    form: FormatOption = Format.text,
) -> None:
    """Write a party.toml that permits little, make the state folder and the site secret."""
    from verticil.party.dataset.sources.server import Server
    from verticil.party.operator.commands import init_party

    server = None
    if url is not None:
        server = Server(url=url, password_file=password_file, password_env=password_env or "")
        if (table is None) == (query is None):
            raise Misuse("USAGE", "--url: expected one of --table and --query beside it")
    elif password_file is not None or password_env is not None:
        raise Misuse("USAGE", "--password-file, --password-env: expected beside --url")
    folder.mkdir(parents=True, exist_ok=True)

    def relative(path: Path) -> str:
        return os.path.relpath(path.resolve(), folder.resolve())

    exists = (folder / "party.toml").exists()
    reading, notes = (None, ()) if server is not None else _look_at(Path(table or "table.csv"))
    path = init_party(
        folder,
        name=name,
        federation=relative(federation),
        table=table or "" if server is not None else relative(Path(table or "table.csv")),
        server=server,
        query=query or "",
        id_column=id_column,
        reading=reading,
    )
    payload = {
        "party_toml": str(path),
        "state": str(folder / "state"),
        "site_secret": str(folder / "state" / "site.secret"),
    }
    if emit(payload, form=form):
        return
    for note in notes:
        say(f"note: {note}")
    put(f"{'kept' if exists else 'wrote'} {path}; read it: its policy decides what may leave")
    put(f"made {folder / 'state'} with the site secret: back it up, and never give it to anyone")
    say("next: certificate, keys and linkage key where party.toml says, then: verticil party check")


def _look_at(table: Path) -> tuple[DatasetRule | None, tuple[str, ...]]:
    """Return how a table that is there is read and written, which the node would not guess, and what to say of it."""
    from verticil.tables.profile import profile_table
    from verticil.tables.settings import rule_of

    if not table.is_file():
        return None, ()
    profile = profile_table("people", table)
    return rule_of(profile), profile.notes


def run(
    config: ConfigOption = Path("party.toml"),
    log_json: daemons.LogJsonOption = False,
    log_level: daemons.LogLevelOption = daemons.LogLevel.info,
    with_parent: daemons.WithParentOption = False,
    seed_derived: daemons.SeedDerivedOption = False,
    accept_older: Annotated[
        bool,
        typer.Option(
            "--accept-older", help="After the restore of an old backup: charge what the ledger has forgotten."
        ),
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Serve this site until SIGTERM or Ctrl-C: works on the miner's studies and on those between peers, sends what is approved.

    Logs go to standard error; with --format json as JSON lines, and one object on standard output says how it ended.
    """
    daemons.log_to_standard_error(log_level, log_json=log_json, form=form)
    from verticil.party.daemon import run_party

    document = site_of(config)
    daemons.require_private_keys(document.key, document.signing_key)

    def report_port(port: int) -> None:
        emit({"party": document.name, "port": port}, form=form)

    daemons.run_until_stopped(
        lambda stop, vitals: run_party(
            document,
            on_start=report_port,
            seed_derived=seed_derived,
            accept_older=accept_older,
            stop=stop,
            vitals=vitals,
        ),
        state=document.state_directory,
        with_parent=with_parent,
    )
    emit({"party": document.name, "stopped": True}, form=form)


def check(
    asked: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Id or digest of a study that is asked of this party.")
    ] = None,
    config: ConfigOption = Path("party.toml"),
    study: Annotated[
        Path | None, typer.Option("--study", help="study.toml to check the tables and the budget against.")
    ] = None,
    no_counts: Annotated[
        bool, typer.Option("--no-counts", help="Look at the names of the columns, and count nothing in them.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Check certificate, keys, table, policy and budget. Reads the table, counts, and sends nothing.

    What the counts show is a warning: no value keeps a study from being answered.
    """
    from verticil.party.operator.check import check as check_party
    from verticil.party.operator.commands import asked_study
    from verticil.shared.study.reading import read_study

    if asked is not None and study is not None:
        raise Misuse(
            "USAGE", "STUDY and --study: expected one of the two", hint="STUDY is one that is asked of this party"
        )
    document = site_of(config)
    study_document = read_study(study) if study is not None else None if asked is None else asked_study(document, asked)
    view = check_party(document, study_document, counts=not no_counts)
    if not emit(view, form=form):
        _print_check(view)
    if view.faults:
        raise typer.Exit(view.faults[0].exit_code)


def _print_check(view: Readiness) -> None:
    put(f"[bold]{view.party}[/]", end="")
    if view.certificate_valid_until is not None:
        put(f"  certificate valid until {view.certificate_valid_until}", end="")
    put(f"  linkage key check word {view.linkage_key_check}" if view.linkage_key_check is not None else "")
    if view.questions is not None:
        party_text.print_questions(view.questions)
    if view.counts_tell is not None:
        say(view.counts_tell, style="yellow")
    for table in view.tables:
        party_text.print_table(table)
    for warning in view.warnings:
        put(f"[yellow]{warning.code}[/] ", end="")
        say(warning.message)
        say(f"        {warning.hint}", style="dim")
    if (study := view.study) is not None:
        party_text.print_figures(study.four_figures)
        party_text.print_columns(study.columns)
        charge_text, whose = epsilon_text(study.epsilon_charged_now), "the floor" if study.four_figures else "epsilon"
        put(f"{whose} per person {epsilon_text(study.epsilon)}, of which {charge_text} would be charged now")
        party_text.print_share(study.share)
        party_text.print_cost(study.cost)
        party_text.print_stated(study.stated)
        party_text.print_alignment(study.alignment)
    for fault in view.faults:
        put(f"[red]{fault.code}[/] ", end="")
        say(fault.message)
        if fault.hint:
            say(f"        {fault.hint}", style="dim")
    if view.ok:
        put("[green]ready[/]")


def status(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Show what is asked of this party, where each study stands, what was spent. Reads no table."""
    from verticil.party.operator.commands import status as party_status

    view = party_status(site_of(config))
    if emit(view, form=form):
        return
    _print_condition(view)
    if not view.studies:
        say("nothing is asked of this party")
    for study in view.studies:
        _print_study(study)


def _print_condition(view: Status) -> None:
    """Print how the node itself is: daemon, certificate, disk, budget."""
    from verticil.party.operator import accounts

    daemon = view.daemon
    alive = "running" if daemon.running else "not running"
    link = f", {daemon.link}" if daemon.connected else f", not connected {daemon.problem}".rstrip()
    if view.carried is not None and not daemon.running:
        put(f"[bold]{view.party}[/]  {_carried_words(view.carried)}")
    else:
        put(f"[bold]{view.party}[/]  daemon {alive}{link}")
    certificate = view.certificate
    if certificate is not None and certificate.warning is not None:
        say(f"the certificate {certificate.words}: {certificate.command}", style="yellow")
    free = view.disk_free_bytes
    if free < _LITTLE_ROOM_BYTES:
        say(
            f"the disk of the state directory is full ({free >> 10} KiB left): the daemon waits for room, and cannot write"
            " down what it does, so what is shown here may be old",
            style="red",
        )
    for row in view.ledger:
        lines = accounts.spent_lines(row)
        if accounts.one_for_all(row.accounts):
            limit, lines = epsilon_text(row.epsilon_lifetime_limit), ()
            put(f"data set {row.dataset}: epsilon spent {epsilon_text(row.epsilon_spent)} of {limit} per person")
        for line in (*lines, *accounts.besides(row)):
            say(f"data set {row.dataset}: {line}")
    if view.common_sets.used:
        say(f"sets of common people: {view.common_sets.used} of {view.common_sets.most} places are taken")
    for warning in view.warnings:
        say(f"warning: {warning}", style="yellow")


def _carried_words(crossing: Crossing) -> str:
    """Say what stands in place of the daemon where files are carried: none runs there, and none should."""
    last_import, last_export = (
        "none" if number is None else f"bundle {number}" for number in (crossing.imported, crossing.exported)
    )
    return f"its files are carried, no daemon runs: last imported {last_import}, last exported {last_export}, {crossing.at}"


def _print_study(study: StudyStatus) -> None:
    from verticil.party.storage.studies import WAITS, WAITS_AGAIN

    put(f"\n[bold]{study.study}[/]  {study.state}  {study.digest[:16]}")
    if (proposal := study.proposal) is not None:
        say(f"{proposal.title}: {proposal.purpose}")
        party_text.print_columns(proposal.columns)
        parties = ", ".join(proposal.parties)
        put(f"epsilon per person {epsilon_text(proposal.epsilon)}; parties {parties}")
        party_text.print_share(study.share)
    party_text.print_submitter(study)
    if study.ended_words_of_miner:
        say(f"why it ended, by the miner's word: {study.ended_words_of_miner}")
    party_text.print_confirmations(study.confirmations or ())
    for objection in study.objections:
        say(f"against it: {objection}", style="red")
    if study.miner_forgot:
        told_again = "; it was sent again" if study.miner_forgot == "revocation" else ""
        put(f"the miner does not know the {study.miner_forgot} any more{told_again}", style="yellow")
    if (failure := study.failure) is not None:
        say(f"{failure.code}: {failure.message}", style="red")
        if failure.hint:
            say(f"hint: {failure.hint}")
    elif study.approved or not (study.stage or WAITS).startswith(WAITS):
        progress = f" {study.percent} %" if study.percent else ""
        since = f" (since {study.since})" if study.since else ""
        prefix = "approved; " if study.approved and not study.revoked else ""
        say(f"{prefix}{study.stage}{progress}{since}")
    elif study.stage or study.state == "awaiting_approval":
        if study.stage.startswith(WAITS_AGAIN):
            say(study.stage)
        put(f"{study.approvals} of {study.approvers_needed} approvals; next: verticil party show {study.digest[:16]}")


PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="Its first line is the passphrase; without it you are asked."),
]


_PASSPHRASE_BYTES: Final = 1 << 16
"""Bytes that are read of the file of a passphrase."""


def _passphrase(file: Path | None, *, twice: bool) -> str:
    if file is None:
        return ask_passphrase("passphrase", hint="give --passphrase-file FILE", twice=twice)
    try:
        with file.open("rb") as stream:
            lines = stream.read(_PASSPHRASE_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise Misuse("FILE_MISSING", f"{file}: cannot be read", hint="its first line is the passphrase") from None
    return lines[0] if lines else ""


def backup(
    out: Annotated[Path, typer.Option(help="File to make, readable by you only.")],
    passphrase_file: PassphraseOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Secret, keys, ledger, audit log and configuration in one encrypted file. The daemon may run. The tables are not in it."""
    from verticil.party.operator.backup import backup as make

    result = make(site_of(config), out, _passphrase(passphrase_file, twice=True))
    if emit(result, form=form):
        return
    put(f"wrote {result.backup}: {result.files} files, {result.bytes:,} bytes, {result.ledger_rows} ledger rows")
    put(f"audit head {result.audit_head or '(nothing is written there)'}: note it where the backup is not")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder to make; an empty one is taken.")],
    passphrase_file: PassphraseOption = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log",
            help="state/audit.jsonl of the lost state: everything in it that the backup lacks is charged.",
        ),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Restore a site's folder from a backup. Its ledger lacks what was charged later; the daemon asks the miner for it."""
    from verticil.party.operator.backup import restore as make

    result = make(file, folder, _passphrase(passphrase_file, twice=False), audit_log=audit_log)
    if emit(result, form=form):
        return
    put(f"restored {result.files} files to {result.folder}; ledger rows: {result.ledger_rows}")
    for origin, path in result.elsewhere.items():
        say(f"{origin} is now {result.folder}/{path}: move it to where party.toml names it")
    if result.problem:
        put(f"[yellow]look here first[/]: {result.problem}")
    if result.between_peers:
        say(result.between_peers, style="yellow")
    say("stop the old node for good before you start this one: two of them keep two ledgers")


def purge(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Id or digest of a study that has ended.")
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option("--older-than", min=0, max=36_500, help="Only what was last worked on so many days ago."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list, with bytes.")] = False,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Delete what ended studies have left behind: spooled columns, copies, what peers sent. Never the ledger or the audit log."""
    from verticil.party.operator.purging import purge as delete

    result = delete(site_of(config), study, older_than_days=older_than, dry_run=dry_run)
    if emit(result, form=form):
        return
    for item in result.studies:
        put(f"{item.study} ({item.digest[:12]})  {item.bytes:,} bytes")
    say(f"{'would delete' if dry_run else 'deleted'} {result.bytes:,} bytes")
