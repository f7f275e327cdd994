"""``verticil miner``: set up and run the coordinator.

``verticil miner audit``: whom the miner refused, and which certificates it showed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verticil.cli import airgap, daemons, pages, service_unit
from verticil.cli.airgap import ask_miner
from verticil.cli.output import Format, FormatOption, emit, put, say

app = typer.Typer(no_args_is_help=True)
_ConfigOption = Annotated[Path, typer.Option(help="miner.toml.")]


@app.command(
    "init", epilog="Example: verticil miner init --dir miner --federation federation.toml --listen 0.0.0.0:8443"
)
def init(
    federation: Annotated[Path, typer.Option(help="federation.toml of the federation.")] = Path("federation.toml"),
    folder: Annotated[Path, typer.Option("--dir", help="Folder for miner.toml and the state.")] = Path(),
    name: Annotated[str, typer.Option(help="The name in the miner's certificate.")] = "miner",
    listen: Annotated[str, typer.Option(help="host:port to bind.")] = "0.0.0.0:8443",
    form: FormatOption = Format.text,
) -> None:
    """Write miner.toml and make the state folder."""
    from verticil.miner.daemon import init_miner

    path = init_miner(folder, name=name, federation=federation, listen=listen)
    if not emit({"miner_toml": str(path)}, form=form):
        put(
            f"wrote {path}\nnext: put the miner's certificate and keys where it says, then: verticil miner run --config {path}"
        )


@app.command("run", epilog="Example: verticil miner run --config miner.toml")
def run(
    config: _ConfigOption = Path("miner.toml"),
    log_json: daemons.LogJsonOption = False,
    log_level: daemons.LogLevelOption = daemons.LogLevel.info,
    with_parent: daemons.WithParentOption = False,
    seed_derived: daemons.SeedDerivedOption = False,
    accept_older: Annotated[
        bool, typer.Option("--accept-older", help="Without a newer backup: end the studies that were forgotten.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Serve parties and analysts until SIGTERM or Ctrl-C. Everything durable is on disk; a restart goes on where it was.

    Logs go to standard error; with --format json as JSON lines, and one object on standard output says how it ended.
    """
    daemons.log_to_standard_error(log_level, log_json=log_json, form=form)
    from verticil.miner.config import load_miner
    from verticil.miner.daemon import run_miner

    document = load_miner(config)
    daemons.require_private_keys(document.key, document.signing_key)

    ports: list[int] = []

    def report_port(port: int) -> None:
        ports.append(port)
        if with_parent:  # who started us waits for this line
            emit({"event": "listening", "port": port}, form=Format.json)

    daemons.run_until_stopped(
        lambda stop, vitals: run_miner(
            document,
            stop=stop,
            on_start=report_port,
            seed_derived=seed_derived,
            accept_older=accept_older,
            vitals=vitals,
        ),
        state=document.state_directory,
        with_parent=with_parent,
    )
    emit({"miner": document.name, "port": ports[0], "stopped": True}, form=form)


@app.command("purge", epilog="Example: verticil miner purge --dry-run --config miner.toml")
def purge(
    config: _ConfigOption = Path("miner.toml"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list, with bytes; the miner may run.")] = False,
    form: FormatOption = Format.text,
) -> None:
    """Delete what ended studies no longer need and the days of retention allow; a running miner does that by itself."""
    from verticil.miner.config import load_miner
    from verticil.miner.scheduler.retention import purge as purge_miner

    items = purge_miner(load_miner(config), dry_run=dry_run)
    due = sum(item.size for item in items if item.is_due)
    payload = {
        "dry_run": dry_run,
        "due_bytes": due,
        "items": [
            {
                "study": item.study_id or None,
                "folder": str(item.folder),
                "what": item.what,
                "bytes": item.size,
                "why": item.why,
                "due": None if item.due is None else item.due.isoformat(),
                "is_due": item.is_due,
            }
            for item in items
        ],
    }
    if emit(payload, form=form):
        return
    for item in items:
        when = "now" if item.is_due or item.due is None else f"on {item.due:%Y-%m-%d}"
        say(f"{item.size:>14,} bytes  {item.what:8} {item.study_id or item.folder.name}  {when}  ({item.why})")
    outcome = "would be deleted now" if dry_run else "deleted"
    put(f"{due:>14,} bytes {outcome}")


@app.command(
    "close", epilog='Example: verticil miner close lee/hearts --reason "not agreed with us" --config miner.toml'
)
def close(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Id, ANALYST/id or digest of the study.")],
    reason: Annotated[str, typer.Option(help="For the analyst and the parties to read.")],
    config: _ConfigOption = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """End a study that is not published, for good, as if its analyst withdrew it. The daemon may run."""
    from verticil.miner.airgap.local_control import ControlRequest
    from verticil.shared.federation.airgap.exchange import Closed

    closure = ask_miner(config, ControlRequest(verb="close", study=study, reason=reason), Closed)
    if not emit(closure, form=form):
        say(
            f"closed {closure.submitter}/{closure.study} ({closure.digest[:16]}); the daemon deletes what the miner"
            " holds of it, or, where none runs: verticil miner purge"
        )


audit_app = typer.Typer(no_args_is_help=True)


@audit_app.command("show", epilog="Example: verticil miner audit show --last 20 --config miner.toml")
def show_audit(
    last: Annotated[int | None, typer.Option(min=1, help="Only so many of the newest.")] = None,
    config: _ConfigOption = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show the miner's audit log as it stands in state/audit.jsonl, oldest first."""
    from verticil.miner.config import load_miner
    from verticil.miner.storage.audit import MinerAudit
    from verticil.shared.federation.audit import AuditLines

    lines = tuple(MinerAudit(load_miner(config).state_directory).entries())[-(last or 0) :]
    if emit(AuditLines(entries=lines), form=form):
        return
    for line in lines:
        words = [f"{line.text('n'):>4}", line.text("at"), f"{line.text('event'):<16}", line.text("who")]
        say("  ".join([*words, f"[{line.text('detail')}]"]))
    if not lines:
        say("nothing is written there")


@audit_app.command("verify", epilog="Example: verticil miner audit verify --config miner.toml")
def verify_audit(config: _ConfigOption = Path("miner.toml"), form: FormatOption = Format.text) -> None:
    """Check every line of the miner's audit log, its order and its end. Exit 6 names the line that does not hold."""
    from verticil.miner.config import load_miner
    from verticil.miner.storage.audit import MinerAudit

    document = load_miner(config)
    result = MinerAudit(document.state_directory).verify()
    facts = {
        "miner": document.name,
        "lines": result.n_lines,
        "head": result.head.hex(),
        "torn_lines": list(result.torn),
        "unfinished_bytes": result.unfinished_bytes,
    }
    if emit(facts, form=form):
        return
    put(f"[green]holds[/]: {result.n_lines} lines, head {result.head.hex()}")


app.add_typer(
    audit_app,
    name="audit",
    help="Show the log of callers that this miner refused; each line is chained to the one before.",
    epilog="Example: verticil miner audit verify --config miner.toml",
)


app.command("export", epilog="Example: verticil miner export clinic --out to-clinic.carried --config miner.toml")(
    airgap.miner_export
)
app.command("import", epilog="Example: verticil miner import from-clinic.carried --config miner.toml")(
    airgap.miner_import
)
app.command("ui", epilog="Example: verticil miner ui --config miner.toml")(pages.miner_ui)
app.command("install-service", epilog="Example: verticil miner install-service --print --config miner.toml")(
    service_unit.install_miner
)
