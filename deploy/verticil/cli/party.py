"""``verticil party``: set up, run and decide at a data-holding site."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from verticil.cli.daemons import LogLevel, LogLevelOption, run_until_stopped
from verticil.cli.linkage import print_alignment
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, text_console
from verticil.cli.party_text import (
    print_asked,
    print_columns,
    print_confirmations,
    print_cost,
    print_share,
    print_submitter,
    print_table,
)

app = typer.Typer(no_args_is_help=True)

_LITTLE_ROOM_BYTES = 1 << 20

ConfigOption = Annotated[Path, typer.Option("--config", help="party.toml.")]
ApproverOption = Annotated[str | None, typer.Option("--as", help="Who decides; default: your login at this host.")]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Id, ANALYST/ID or digest of the study.")]


def approver_name(name: str | None) -> str:
    """Who decides, when nobody is named: the login at this host."""
    return name or f"{getpass.getuser()}@{socket.gethostname()}"


@app.command(
    "init",
    epilog="Example: verticil party init --name clinic --dir clinic --table clinic.csv",
)
def init(
    name: Annotated[str, typer.Option(help="The party's name, as in its certificate and in studies.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder for party.toml and the state.")] = Path(),
    federation: Annotated[Path, typer.Option(help="federation.toml of the federation.")] = Path("federation.toml"),
    table: Annotated[Path, typer.Option(help="The table, one row per person.")] = Path("table.csv"),
    id_column: Annotated[str, typer.Option("--id", help="Its id column.")] = "id",
    form: FormatOption = Format.text,
) -> None:
    """Write a party.toml that permits little, make the state folder and the site secret."""
    from verticil.party.operator.commands import init_party

    folder.mkdir(parents=True, exist_ok=True)

    def relative(path: Path) -> str:
        return os.path.relpath(path.resolve(), folder.resolve())

    kept = (folder / "party.toml").exists()
    path = init_party(folder, name=name, federation=relative(federation), table=relative(table), id_column=id_column)
    payload = {
        "party_toml": str(path),
        "state": str(folder / "state"),
        "site_secret": str(folder / "state" / "site.secret"),
    }
    if emit(payload, form=form):
        return
    console = text_console()
    console.print(f"{'kept' if kept else 'wrote'} {path}; read it: its policy decides what may leave")
    console.print(f"made {folder / 'state'} with the site secret: back it up, and never give it to anyone")
    console.print("next: certificate, keys and linkage key where party.toml says, then: verticil party check")


@app.command("run", epilog="Example: verticil party run --config party.toml")
def run(
    config: ConfigOption = Path("party.toml"),
    log_json: Annotated[bool, typer.Option("--log-json", help="Logs as JSON lines.")] = False,
    log_level: LogLevelOption = LogLevel.info,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    seed_derived: Annotated[bool, typer.Option("--seed-derived", hidden=True)] = False,
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
    from verticil.shared import logs

    logs.configure(
        as_json=log_json or form is Format.json, level=logging.getLevelNamesMapping()[log_level.value.upper()]
    )
    from verticil.party.config import load_party
    from verticil.party.daemon import run_party

    document = load_party(config)

    def started(port: int) -> None:
        if form is Format.json:
            sys.stdout.write(json.dumps({"party": document.name, "port": port}) + "\n")
            sys.stdout.flush()

    run_until_stopped(
        lambda stop, vitals: run_party(
            document, started=started, seed_derived=seed_derived, accept_older=accept_older, stop=stop, vitals=vitals
        ),
        state=document.state_directory,
        with_parent=with_parent,
    )
    emit({"party": document.name, "stopped": True}, form=form)


@app.command("check", epilog="Example: verticil party check --config party.toml --study study.toml")
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
    from verticil.party.config import load_party
    from verticil.party.operator.check import check as check_party
    from verticil.party.operator.commands import asked_study
    from verticil.shared.errors import Misuse
    from verticil.shared.study.reading import read_study

    if asked is not None and study is not None:
        raise Misuse(
            "USAGE", "STUDY and --study: expected one of the two", hint="STUDY is one that is asked of this party"
        )
    document = load_party(config)
    resolved = read_study(study) if study is not None else None if asked is None else asked_study(document, asked)
    facts = check_party(document, resolved, counts=not no_counts)
    faults = cast("Sequence[Mapping[str, object]]", facts["faults"])
    if not emit(facts, form=form):
        _print_check(facts, faults)
    if faults:
        raise typer.Exit(cast("int", faults[0]["exit_code"]))


def _print_check(facts: Mapping[str, object], faults: Sequence[Mapping[str, object]]) -> None:
    console = text_console()
    console.print(f"[bold]{facts['party']}[/]", end="")
    if "certificate_valid_until" in facts:
        console.print(f"  certificate valid until {facts['certificate_valid_until']}", end="")
    console.print(f"  linkage key check word {facts['linkage_key_check']}" if "linkage_key_check" in facts else "")
    if "asked" in facts:
        print_asked(facts)
    if "counts_tell" in facts:
        console.print(str(facts["counts_tell"]), style="yellow", markup=False)
    for table in cast("Sequence[Mapping[str, object]]", facts["tables"]):
        print_table(table)
    for warning in cast("Sequence[Mapping[str, object]]", facts["warnings"]):
        console.print(f"[yellow]{warning['code']}[/] ", end="")
        console.print(str(warning["message"]), markup=False)
        console.print(f"        {warning['hint']}", style="dim", markup=False)
    if "epsilon" in facts:
        print_columns(cast("Sequence[Mapping[str, object]]", facts["columns"]))
        charged = epsilon_text(facts["epsilon_charged_now"])
        console.print(f"epsilon per person {epsilon_text(facts['epsilon'])}, of which {charged} would be charged now")
        print_share(facts)
        print_cost(cast("Sequence[Mapping[str, object]]", facts["cost"]))
        print_alignment(cast("Mapping[str, object]", facts["alignment"]))
    for fault in faults:
        console.print(f"[red]{fault['code']}[/] ", end="")
        console.print(str(fault["message"]), markup=False)
        if fault["hint"]:
            console.print(f"        {fault['hint']}", style="dim", markup=False)
    if not faults:
        console.print("[green]ready[/]")


def _print_condition(facts: Mapping[str, object]) -> None:
    """How the node itself is: daemon, certificate, disk, budget."""
    console = text_console()
    daemon = cast("Mapping[str, object]", facts["daemon"])
    alive = "running" if daemon["running"] else "not running"
    link = f", {daemon['link']}" if daemon["connected"] else f", not connected {daemon['problem']}".rstrip()
    carried = cast("Mapping[str, object] | None", facts["carried"])
    if carried is not None and not daemon["running"]:
        console.print(f"[bold]{facts['party']}[/]  {_carried_words(carried)}")
    else:
        console.print(f"[bold]{facts['party']}[/]  daemon {alive}{link}")
    certificate = cast("Mapping[str, object] | None", facts["certificate"])
    if certificate is not None and certificate["warning"] is not None:
        console.print(f"the certificate {certificate['words']}: {certificate['command']}", style="yellow", markup=False)
    free = cast("int", facts["disk_free_bytes"])
    if free < _LITTLE_ROOM_BYTES:
        console.print(
            f"the disk of the state directory is full ({free >> 10} KiB left): the daemon waits for room, and cannot write"
            " down what it does, so what is shown here may be old",
            style="red",
            markup=False,
        )
    for row in cast("Sequence[Mapping[str, object]]", facts["ledger"]):
        limit = epsilon_text(row["epsilon_lifetime_limit"])
        console.print(
            f"data set {row['dataset']}: epsilon spent {epsilon_text(row['epsilon_spent'])} of {limit} per person"
        )
    for warning in cast("Sequence[str]", facts["warnings"]):
        console.print(f"warning: {warning}", style="yellow", markup=False)


def _carried_words(carried: Mapping[str, object]) -> str:
    """What stands in place of the daemon where files are carried: none runs there, and none should."""
    imported, exported = (
        "none" if (number := carried[which]) is None else f"bundle {number}" for which in ("imported", "exported")
    )
    return f"its files are carried, no daemon runs: last imported {imported}, last exported {exported}, {carried['at']}"


@app.command("status", epilog="Example: verticil party status --config party.toml")
def status(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """What is asked of this party, where each study stands, what was spent. Reads no table."""
    from verticil.party.config import load_party
    from verticil.party.operator.commands import status as party_status
    from verticil.party.storage.studies import WAITS, WAITS_AGAIN

    facts = party_status(load_party(config))
    if emit(facts, form=form):
        return
    console = text_console()
    _print_condition(facts)
    studies = cast("Sequence[Mapping[str, object]]", facts["studies"])
    if not studies:
        console.print("nothing is asked of this party")
    for study in studies:
        console.print(f"\n[bold]{study['study']}[/]  {study['state']}  {str(study['digest'])[:16]}")
        if "title" in study:
            console.print(f"{study['title']}: {study['purpose']}", markup=False)
            print_columns(cast("Sequence[Mapping[str, object]]", study["columns"]))
            parties = ", ".join(cast("Sequence[str]", study["parties"]))
            console.print(f"epsilon per person {epsilon_text(study['epsilon'])}; parties {parties}")
            print_share(study)
        print_submitter(study)
        if study["ended_words_of_miner"]:
            console.print(f"why it ended, by the miner's word: {study['ended_words_of_miner']}", markup=False)
        print_confirmations(cast("Sequence[Mapping[str, object]]", study.get("confirmations", ())))
        for objection in cast("Sequence[str]", study.get("objections", ())):
            console.print(f"against it: {objection}", style="red", markup=False)
        if study["miner_forgot"]:
            told_again = "; it was told again" if study["miner_forgot"] == "revocation" else ""
            console.print(f"the miner does not know the {study['miner_forgot']} any more{told_again}", style="yellow")
        if study["failure"]:
            failure = cast("Mapping[str, object]", study["failure"])
            console.print(f"{failure['code']}: {failure['message']}", style="red", markup=False)
            if failure["hint"]:
                console.print(f"hint: {failure['hint']}", markup=False)
        elif study["approved"] or not str(study["stage"] or WAITS).startswith(WAITS):
            progress = f" {study['percent']} %" if study["percent"] else ""
            since = f" (since {study['since']})" if study["since"] else ""
            approved = "approved; " if study["approved"] and not study["revoked"] else ""
            console.print(f"{approved}{study['stage']}{progress}{since}", markup=False)
        elif study["stage"] or study["state"] == "awaiting_approval":
            if str(study["stage"]).startswith(WAITS_AGAIN):
                console.print(str(study["stage"]), markup=False)
            console.print(
                f"{study['approvals']} of {study['approvers_needed']} approvals;"
                f" next: verticil party show {str(study['digest'])[:16]}"
            )


@app.command("load", epilog="Example: verticil party load study.toml --config party.toml")
def load(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study, the same file at every party.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Load a study between peers (model = "peer"): no miner tells of it, every party's operator loads the same file."""
    from verticil.party.config import load_party
    from verticil.party.operator.peer_commands import load_study

    facts = load_study(load_party(config), study)
    if emit(facts, form=form):
        return
    console = text_console()
    known = "loaded" if facts["new"] else "was loaded before:"
    console.print(f"{known} {facts['study']}, digest {facts['digest']}")
    if facts["state"] == "published":
        console.print(f"it is published; next: verticil party release {facts['study']} --config {config}")
        return
    console.print("compare the digest with the other operators; the daemons do, too, before anything leaves")
    console.print(f"next: verticil party approve {facts['study']} --config {config}")


@app.command("release", epilog="Example: verticil party release hearts --out hearts --config party.toml")
def release(
    study: StudyArgument,
    out: Annotated[Path, typer.Option(help="Folder to make; the authority's certificate is put beside it as ca.crt.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Verify the published release of a study between peers and copy it."""
    from verticil.party.config import load_party
    from verticil.party.operator.peer_commands import take_release

    facts = take_release(load_party(config), study, out)
    if not emit(facts, form=form):
        text_console().print(f"release in {out}\nnext: verticil release verify {out} --ca {facts['ca_certificate']}")
