"""``verticil party ledger | limits | audit | revoke``: what left this site and what may, proof of it, taking approvals back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table

from verticil.cli.output import Format, FormatOption, emit, epsilon_text, text_console
from verticil.cli.party import ApproverOption, ConfigOption, StudyArgument, app, approver_name
from verticil.cli.party_text import print_confirmations

audit_app = typer.Typer(no_args_is_help=True)


@app.command("limits", epilog="Example: verticil party limits --publish clinic-limits.json --config party.toml")
def limits(
    publish: Annotated[
        Path | None,
        typer.Option("--publish", help="File to make: the limits, signed, for analysts to check studies with."),
    ] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """What a study may ask of this site, as its policy says. Names nothing that is denied, and nothing of the tables."""
    from verticil.cli.files import write_new
    from verticil.party.config import load_party
    from verticil.party.operator import limits as of_policy
    from verticil.shared.identity.pki import utc_now

    document = load_party(config)
    facts = of_policy.limits_of(document)
    if publish is not None:
        write_new(publish, of_policy.publish(document, utc_now()))
    if emit(facts | {"file": str(publish) if publish else None}, form=form):
        return
    console = text_console()
    for name, value in cast("Mapping[str, object]", facts["limits"]).items():
        words = ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
        console.print(f"{name:24} {words if words and value is not None else 'none'}", markup=False)
    if publish is not None:
        console.print(f"signed in {publish}; analysts check with: verticil study check study.toml --limits {publish}")


@app.command("ledger", epilog="Example: verticil party ledger --config party.toml")
def ledger(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Everything that was ever sent, what it cost, and what each data set may still spend."""
    from verticil.party.config import load_party
    from verticil.party.operator.reports import ledger as read_ledger

    facts = read_ledger(load_party(config))
    if emit(facts, form=form):
        return
    console = text_console()
    shown = Table(box=None, pad_edge=False)
    for heading in ("first sent", "study", "columns", "to"):
        shown.add_column(heading)
    for heading in ("epsilon", "charged", "bytes", "attempts"):
        shown.add_column(heading, justify="right")
    rows = cast("Sequence[Mapping[str, object]]", facts["rows"])
    for row in rows:
        shown.add_row(
            str(row["first_at"]),
            str(row["study"]),
            ", ".join(cast("Sequence[str]", row["columns"])),
            str(row["recipient"]),
            epsilon_text(row["epsilon"]),
            epsilon_text(row["charged"]),
            f"{row['bytes']:,}",
            str(row["attempts"]),
        )
    console.print(shown if rows else "nothing was ever sent")
    for row in rows:
        if row["unit"] is None:
            columns = ", ".join(cast("Sequence[str]", row["columns"]))
            console.print(f"{row['study']}: of {columns}, to '{row['recipient']}': {row['words']}", markup=False)
        if row["deleted_at"] is not None:
            columns = ", ".join(cast("Sequence[str]", row["columns"]))
            console.print(
                f"{row['study']}: '{row['recipient']}' signed that it deleted {columns} at {row['deleted_at']}",
                markup=False,
            )
    for item in cast("Sequence[Mapping[str, object]]", facts["datasets"]):
        console.print(
            f"data set {item['dataset']}: epsilon {epsilon_text(item['epsilon_spent'])} of"
            f" {epsilon_text(item['epsilon_lifetime_limit'])} per person spent,"
            f" {_at_least(item['epsilon_remaining'])} left"
        )
        if item["epsilon_kept"]:
            kept = epsilon_text(item["epsilon_kept"])
            console.print(f"data set {item['dataset']}: epsilon {kept} of that is kept for studies under way")
        if item["delta_spent"]:
            console.print(
                f"data set {item['dataset']}: delta {item['delta_spent']:g} of {item['delta_lifetime_limit']:g} spent"
            )
        if infinite := cast("Sequence[str]", item["infinite"]):
            console.print(f"  besides, without any bound: {'; '.join(infinite)}", markup=False)


@audit_app.command("show", epilog="Example: verticil party audit show --study hearts --config party.toml")
def show(
    study: Annotated[str | None, typer.Option(help="Only this study: id or digest.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only so many of the newest.")] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """The audit log as it stands in state/audit.jsonl, oldest first."""
    from verticil.party.config import load_party
    from verticil.party.operator.reports import audit_entries

    found = audit_entries(load_party(config), study=study, last=last)
    if emit({"entries": found}, form=form):
        return
    console = text_console()
    for entry in found:
        console.print(_entry_text(entry), markup=False)
    if not found:
        console.print("nothing is written there")


def _at_least(epsilon: object) -> str:
    """What may still be spent, in two decimals, rounded down.

    >>> _at_least(28.1099), _at_least(math.inf)
    ('28.10', '∞')
    """
    finite = isinstance(epsilon, int | float) and math.isfinite(epsilon)
    return f"{math.floor(cast('float', epsilon) * 100 + 1e-6) / 100:.2f}" if finite else "∞"


def _entry_text(entry: Mapping[str, object]) -> str:
    parts = [f"{entry['n']:>4}", str(entry["at"]), f"{entry['event']:<16}", str(entry["who"])]
    if "study_id" in entry:
        parts.append(f"{entry['study_id']} ({str(entry.get('study', ''))[:12]})")
    if "columns" in entry:
        parts.append(", ".join(cast("Sequence[str]", entry["columns"])))
    if "epsilon" in entry:
        parts.append(f"epsilon {epsilon_text(entry['epsilon'])}")
    if "charged" in entry:
        parts.append(f"charged {epsilon_text(entry['charged'])}")
    if "bytes" in entry:
        parts.append(f"{entry['bytes']:,} bytes")
    if "peer_event" in entry:
        parts.append(f"signed {str(entry['peer_event'])[:12]}")
    if "recipient" in entry:
        parts.append(f"to {entry['recipient']}")
    if "detail" in entry:
        parts.append(f"[{entry['detail']}]")
    return "  ".join(parts)


@audit_app.command("verify", epilog="Example: verticil party audit verify --config party.toml")
def verify(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Check every line of the audit log, its order and its end. Exit 6 names the line that does not hold."""
    from verticil.party.config import load_party
    from verticil.party.operator.reports import verify_audit

    facts = verify_audit(load_party(config))
    if emit(facts, form=form):
        return
    console = text_console()
    console.print(f"[green]holds[/]: {facts['lines']} lines, head {facts['head']}")
    for line in cast("Sequence[int]", facts["torn_lines"]):
        console.print(f"line {line} tells of an unfinished line before it, from a process that was killed")
    if facts["unfinished_bytes"]:
        console.print(
            "an unfinished line stands at the end, from a process that was killed; the next event cuts it off"
        )
    console.print("note the head somewhere else: nobody can then write another history, not even at this machine")


@app.command(
    "revoke",
    epilog='Example: verticil party revoke hearts --reason "consent withdrawn" --as officer@clinic --config party.toml',
)
def revoke(
    study: StudyArgument,
    reason: Annotated[str, typer.Option(help="For the analyst and the other parties to read.")],
    approver: ApproverOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Take an approval back, for good: what is being sent stops, the others delete what they have and sign that they did."""
    from verticil.party.config import load_party
    from verticil.party.operator.reports import revoke as revoke_study

    facts = revoke_study(load_party(config), study, approver_name(approver), reason)
    if emit(facts, form=form):
        return
    console = text_console()
    console.print(f"revoked {facts['study']} ({str(facts['digest'])[:16]}) at {facts['revoked_at']} by {facts['who']}")
    if facts["after_publication"]:
        console.print("the release is published: it is shown as revoked from now on; copies of it cannot be recalled")
    deletion = cast("Mapping[str, object] | None", facts["deletion"])
    if deletion is not None:
        count = len(cast("Mapping[str, str]", deletion["artifacts"]))
        console.print(f"miner '{deletion['miner']}' signed that it deleted {count} columns at {deletion['deleted_at']}")
    elif facts["confirmations"]:
        print_confirmations(cast("Sequence[Mapping[str, object]]", facts["confirmations"]))
    elif facts["columns_sent"]:
        console.print(
            f"{facts['columns_sent']} columns had been sent, whole or in part; the daemon tells the others, and they delete them;"
            " give the command again to see what came of it"
        )
    else:
        console.print("no column had been sent")
