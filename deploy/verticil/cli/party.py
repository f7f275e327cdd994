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
from rich.table import Table

from verticil.cli.daemons import LogLevel, LogLevelOption, run_until_stopped
from verticil.cli.linkage import print_alignment
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, text_console

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)

_LITTLE_ROOM_BYTES = 1 << 20

ConfigOption = Annotated[Path, typer.Option("--config", help="party.toml.")]
ApproverOption = Annotated[str | None, typer.Option("--as", help="Who decides; default: your login at this host.")]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Id or digest of the study.")]


def _approver(name: str | None) -> str:
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
    from verticil.party.office import init_party

    folder.mkdir(parents=True, exist_ok=True)

    def relative(path: Path) -> str:
        return os.path.relpath(path.resolve(), folder.resolve())

    path = init_party(folder, name=name, federation=relative(federation), table=relative(table), id_column=id_column)
    payload = {
        "party_toml": str(path),
        "state": str(folder / "state"),
        "site_secret": str(folder / "state" / "site.secret"),
    }
    if emit(payload, form=form):
        return
    console = text_console()
    console.print(f"wrote {path}; read it: its policy decides what may leave")
    console.print(f"made {folder / 'state'} with the site secret: back it up, and never give it to anyone")
    console.print("next: certificate, keys and linkage key where party.toml says, then: verticil party check")


@app.command("run", epilog="Example: verticil party run --config party.toml")
def run(
    config: ConfigOption = Path("party.toml"),
    log_json: Annotated[bool, typer.Option("--log-json", help="Logs as JSON lines.")] = False,
    log_level: LogLevelOption = LogLevel.info,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    seed_derived: Annotated[bool, typer.Option("--seed-derived", hidden=True)] = False,
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
        lambda stop: run_party(document, started=started, seed_derived=seed_derived, stop=stop), with_parent=with_parent
    )
    emit({"party": document.name, "stopped": True}, form=form)


@app.command("check", epilog="Example: verticil party check --config party.toml --study study.toml")
def check(
    config: ConfigOption = Path("party.toml"),
    study: Annotated[
        Path | None, typer.Option("--study", help="study.toml to check the tables and the budget against.")
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Check certificate, keys, table, policy and budget. Reads the table, counts, and sends nothing."""
    from verticil.party.config import load_party
    from verticil.party.office import check as check_party
    from verticil.shared.study.reading import read_study

    facts = check_party(load_party(config), read_study(study) if study else None)
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
    for table in cast("Sequence[Mapping[str, object]]", facts["tables"]):
        rows = f"{table['records']:,} records" if "records" in table else f"{table['columns']} columns"
        console.print(f"data set {table['dataset']}: {rows}")
        if "records" in table:
            _print_counts(cast("Sequence[Mapping[str, object]]", table["columns"]))
    if "epsilon" in facts:
        _print_columns(cast("Sequence[Mapping[str, object]]", facts["columns"]))
        charged = epsilon_text(facts["epsilon_charged_now"])
        console.print(f"epsilon per person {epsilon_text(facts['epsilon'])}, of which {charged} would be charged now")
        _print_share(facts)
        print_alignment(cast("Mapping[str, object]", facts["alignment"]))
    for fault in faults:
        console.print(f"[red]{fault['code']}[/] ", end="")
        console.print(str(fault["message"]), markup=False)
        if fault["hint"]:
            console.print(f"        {fault['hint']}", style="dim", markup=False)
    if not faults:
        console.print("[green]ready[/]")


def _print_counts(columns: Sequence[Mapping[str, object]]) -> None:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("column")
    for heading in ("missing", "other", "clamped", "unseen", "outside"):
        shown.add_column(heading, justify="right")
    for column in columns:
        shown.add_row(
            str(column["source"]), *(str(column[key]) for key in ("missing", "other", "clamped", "unseen", "outside"))
        )
    text_console().print(shown)


def _print_columns(columns: Sequence[Mapping[str, object]]) -> None:
    shown = Table(box=None, pad_edge=False)
    for heading in ("leaves as", "scheme"):
        shown.add_column(heading)
    for heading in ("categories", "epsilon", "true value kept"):
        shown.add_column(heading, justify="right")
    if between_peers := any("read_by" in column for column in columns):
        shown.add_column("read by")
    for column in columns:
        readers = ", ".join(cast("Sequence[str]", column.get("read_by", ()))) or "nobody, it stays here"
        shown.add_row(
            ", ".join(cast("Sequence[str]", column["variables"])),
            _scheme_text(column),
            str(column["categories"]),
            epsilon_text(column["epsilon"]),
            f"{100 * cast('float', column['kept']):.0f} %",
            *((readers,) if between_peers else ()),
        )
    text_console().print(shown)
    if any("two_level" in column for column in columns):
        text_console().print(
            "two-level: epsilon is that of both responses together; the group is randomized too, nothing leaves exactly",
            style="dim",
        )


def _print_share(facts: Mapping[str, object]) -> None:
    """What leaves besides columns, in a study between peers."""
    share = cast("Mapping[str, object] | None", facts.get("share"))
    if share is None:
        return
    what = "parameters go to all parties" + (
        ", and scores of pairs of columns to the miner," if share["scores"] else ""
    )
    if share["exact"]:
        text = f"{what} without noise: they are exact functions of this table, and no epsilon bounds what they tell"
    else:
        text = f"{what} with noise of epsilon {epsilon_text(share['epsilon'])}, delta {share['delta']:g}"
        text += ", charged besides the columns"
    text_console().print(text, markup=False)


def _scheme_text(column: Mapping[str, object]) -> str:
    if "two_level" in column:
        return f"{column['scheme']}: {column['two_level']}"
    if "subset_size" in column:
        return f"{column['scheme']}: a set of {column['subset_size']} leaves, kept if the true value is in it"
    return str(column["scheme"])


@app.command("status", epilog="Example: verticil party status --config party.toml")
def status(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """What is asked of this party, where each study stands, what was spent. Reads no table."""
    from verticil.party.config import load_party
    from verticil.party.office import status as party_status

    facts = party_status(load_party(config))
    if emit(facts, form=form):
        return
    console = text_console()
    daemon = cast("Mapping[str, object]", facts["daemon"])
    alive = "running" if daemon["running"] else "not running"
    link = f", {daemon['link']}" if daemon["connected"] else f", not connected {daemon['problem']}".rstrip()
    console.print(f"[bold]{facts['party']}[/]  daemon {alive}{link}")
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
    studies = cast("Sequence[Mapping[str, object]]", facts["studies"])
    if not studies:
        console.print("nothing is asked of this party")
    for study in studies:
        console.print(f"\n[bold]{study['study']}[/]  {study['state']}  {str(study['digest'])[:16]}")
        if "title" in study:
            console.print(f"{study['title']}: {study['purpose']}", markup=False)
            _print_columns(cast("Sequence[Mapping[str, object]]", study["columns"]))
            parties = ", ".join(cast("Sequence[str]", study["parties"]))
            console.print(f"epsilon per person {epsilon_text(study['epsilon'])}; parties {parties}")
            _print_share(study)
        for objection in cast("Sequence[str]", study.get("objections", ())):
            console.print(f"against it: {objection}", style="red", markup=False)
        if study["failure"]:
            failure = cast("Mapping[str, object]", study["failure"])
            console.print(f"{failure['code']}: {failure['message']}", style="red", markup=False)
            if failure["hint"]:
                console.print(f"hint: {failure['hint']}", markup=False)
        elif study["approved"]:
            progress = f" {study['percent']} %" if study["percent"] else ""
            since = f" (since {study['since']})" if study["since"] else ""
            console.print(f"approved; {study['stage']}{progress}{since}", markup=False)
        elif study["state"] == "awaiting_approval":
            console.print(
                f"{study['approvals']} of {study['approvers_needed']} approvals; next: verticil party approve {study['study']}"
            )


@app.command("approve", epilog="Example: verticil party approve hearts --as officer@clinic --config party.toml")
def approve(
    study: StudyArgument,
    approver: ApproverOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Approve a study as it stands now: its matrices, recipients, expiry and this table. Any change voids the approval."""
    from verticil.party.config import load_party
    from verticil.party.office import approve as approve_study

    facts = approve_study(load_party(config), study, _approver(approver))
    if emit(facts, form=form):
        return
    console = text_console()
    _print_columns(cast("Sequence[Mapping[str, object]]", facts["columns"]))
    console.print(
        f"{facts['records']:,} records; at least {facts['minimum_common_records']:,} in common; until {facts['expires']}"
    )
    charged = epsilon_text(facts["epsilon_charged_now"])
    console.print(f"epsilon per person {epsilon_text(facts['epsilon'])}, of which {charged} is charged now")
    _print_share(facts)
    print_alignment(cast("Mapping[str, object]", facts["alignment"]))
    if facts["approved"]:
        console.print(f"[green]approved[/] {facts['study']} ({str(facts['digest'])[:16]})")
    else:
        count = len(cast("Sequence[str]", facts["approvers"]))
        console.print(
            f"{count} of {facts['approvers_needed']} approvals for {facts['study']}; nothing is sent before all"
        )


@app.command(
    "deny",
    epilog='Example: verticil party deny hearts --reason "income: too weak" --as officer@clinic',
)
def deny(
    study: StudyArgument,
    reason: Annotated[str, typer.Option(help="For the analyst, or the other parties, to read.")],
    approver: ApproverOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Deny a study, for good. Nothing leaves from then on."""
    from verticil.party.config import load_party
    from verticil.party.office import deny as deny_study

    facts = deny_study(load_party(config), study, _approver(approver), reason)
    if not emit(facts, form=form):
        text_console().print(f"denied {facts['study']} ({str(facts['digest'])[:16]})")


@app.command("load", epilog="Example: verticil party load study.toml --config party.toml")
def load(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study, the same file at every party.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Load a study between peers (model = "peer"): no miner tells of it, every party's operator loads the same file."""
    from verticil.party.config import load_party
    from verticil.party.office import load_study

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
    from verticil.party.office import take_release

    facts = take_release(load_party(config), study, out)
    if not emit(facts, form=form):
        text_console().print(f"release in {out}\nnext: verticil release verify {out} --ca {facts['ca_certificate']}")
