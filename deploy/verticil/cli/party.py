"""``verticil party``: every command of the node at a data-holding site, and what it tells of its record and its approvers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli import airgap, evaluate, pages, party_site, party_study, party_text, service_unit
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, plain_table, put, say
from verticil.cli.party_site import ConfigOption, site_of

if TYPE_CHECKING:
    from verticil.party.operator.keys import PinnedKeys
    from verticil.party.operator.reports import BudgetView
    from verticil.shared.documents.json_document import Json
    from verticil.shared.federation.audit import AuditLine

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The approver, as in approve --as NAME.")]


# ---- the record: limits, ledger, audit log


def limits(
    publish: Annotated[
        Path | None,
        typer.Option("--publish", help="File to make: the limits, signed, for analysts to check studies with."),
    ] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show what a study may ask of this site, as its policy says. Names nothing that is denied, and nothing of the tables."""

    from verticil.party.operator import limits as of_policy
    from verticil.pki.files import write_new
    from verticil.shared.documents.view_models import document
    from verticil.shared.federation.identity.pki import utc_now

    settings = site_of(config)
    view = of_policy.limits_of(settings)
    if publish is not None:
        write_new(publish, of_policy.publish(settings, utc_now()))
    if emit(document(view) | {"file": str(publish) if publish else None}, form=form):
        return
    for name, value in view.limits.items():
        words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if isinstance(value, Mapping):
            words = "; ".join(f"{account}: {_limits_words(most)}" for account, most in value.items())
            words = words or "no limit is set, so that what is drawn for everybody is refused"
        say(f"{name:24} {words if words and value is not None else 'none'}")
    if publish is not None:
        put(f"signed in {publish}; analysts check with: verticil study check study.toml --limits {publish}")


def _limits_words(limits: Json) -> str:
    """Write the limits of one account, or one of masked studies."""
    if isinstance(limits, Mapping):
        return ", ".join(f"{what} {'none' if most is None else most}" for what, most in limits.items())
    return (", ".join(map(str, limits)) or "nobody") if isinstance(limits, list | tuple) else str(limits)


def ledger(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Everything that was ever sent, what it cost, and what each data set may still spend."""
    from verticil.party.operator.reports import ledger as read_ledger

    view = read_ledger(site_of(config))
    if emit(view, form=form):
        return
    for digest, figures in (view.four_figures or {}).items():
        put(f"[bold]masked tables of {digest[:16]}[/]")
        party_text.print_figures(figures, indent="  ")
    table = plain_table("first sent", "study", "columns", "to", right=("epsilon", "charged", "bytes", "attempts"))
    for row in view.rows:
        table.add_row(
            row.first_at,
            row.study,
            ", ".join(row.columns),
            row.recipient,
            epsilon_text(row.epsilon),
            epsilon_text(row.charged),
            f"{row.bytes:,}",
            str(row.attempts),
        )
    put(table if view.rows else "nothing was ever sent")
    for row in view.rows:
        if row.noise is not None:
            columns = ", ".join(row.columns)
            say(f"{row.study}: of {columns}, to '{row.recipient}': {row.noise.words}")
    for row in view.rows:
        if row.deleted_at is not None:
            columns = ", ".join(row.columns)
            say(f"{row.study}: '{row.recipient}' signed that it deleted {columns} at {row.deleted_at}")
    for item in view.datasets:
        _print_budget(item)


def _print_budget(item: BudgetView) -> None:
    """Print what was spent, is kept and is left of a data set's lifetime budget, on each account."""
    from verticil.party.operator import accounts

    whose = f"data set {item.dataset}"
    if accounts.one_for_all(item.accounts):
        amount, limit = epsilon_text(item.epsilon_spent), epsilon_text(item.epsilon_lifetime_limit)
        put(f"{whose}: epsilon {amount} of {limit} per person spent, {_at_least(item.epsilon_remaining)} left")
        if item.epsilon_kept:
            put(f"{whose}: epsilon {epsilon_text(item.epsilon_kept)} of that is kept for studies under way")
        if item.delta_spent:
            put(f"{whose}: delta {item.delta_spent:g} of {item.delta_lifetime_limit:g} spent")
    else:
        for line in accounts.budget_lines(item):
            say(f"{whose}: {line}")
    for line in accounts.besides(item, accounts.numerical_words(item)):
        say(f"{whose}: {line}")
    if item.infinite:
        say(f"  besides, without any bound: {'; '.join(item.infinite)}")


def show_audit(
    study: Annotated[str | None, typer.Option(help="Only this study: id or digest.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only so many of the newest.")] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show the audit log as it stands in state/audit.jsonl, oldest first."""
    from verticil.party.operator.reports import audit_entries

    view = audit_entries(site_of(config), study=study, last=last)
    if emit(view, form=form):
        return
    for line in view.entries:
        say(_line_text(line))
    if not view.entries:
        say("nothing is written there")


def _at_least(epsilon: float) -> str:
    """Write what may still be spent, in two decimals, rounded down.

    >>> _at_least(28.1099), _at_least(math.inf)
    ('28.10', '∞')
    """
    return f"{math.floor(epsilon * 100 + 1e-6) / 100:.2f}" if math.isfinite(epsilon) else "∞"


def _line_text(line: AuditLine) -> str:
    entry = line.said
    parts = [f"{line.text('n'):>4}", line.text("at"), f"{line.text('event'):<16}", line.text("who")]
    if "study_id" in entry:
        parts.append(f"{line.text('study_id')} ({line.text('study')[:12]})")
    if "columns" in entry:
        parts.append(line.columns)
    parts += [f"{word} {epsilon_text(line.number(word))}" for word in ("epsilon", "charged") if word in entry]
    if (size := line.number("bytes")) is not None:
        parts.append(f"{size:,} bytes")
    if "peer_event" in entry:
        parts.append(f"signed {line.text('peer_event')[:12]}")
    if "recipient" in entry:
        parts.append(f"to {line.text('recipient')}")
    if "detail" in entry:
        parts.append(f"[{line.text('detail')}]")
    return "  ".join(parts)


def verify_audit(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Check every line of the audit log, its order and its end. Exit 6 names the line that does not hold."""
    from verticil.party.operator.reports import verify_audit as verify_log

    result = verify_log(site_of(config))
    if emit(result, form=form):
        return
    put(f"[green]holds[/]: {result.lines} lines, head {result.head}")
    for line in result.torn_lines:
        put(f"line {line} says that the line before it is unfinished, from a process that was killed")
    if result.unfinished_bytes:
        say("an unfinished line stands at the end, from a process that was killed; the next event cuts it off")
    say("write the head down somewhere else: the history can then not be rewritten unseen, not even on this machine")


# ---- keys of others


def pinned_keys(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Show the sealing keys that federation.toml pins, in words to compare by telephone, and which were confirmed here."""
    from verticil.party.operator.keys import keys

    _print_keys(keys(site_of(config)), form)


def confirm_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key: a party, or miner.")],
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="The words that they read to you.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Confirm a pinned key, whose owner has read its words to you. The owner may then deal masks, and its noise counts."""
    from verticil.party.operator.keys import confirm_key as confirm

    _print_keys(confirm(config, name, " ".join(words)), form)


def _print_keys(view: PinnedKeys, form: Format) -> None:
    if emit(view, form=form):
        return
    table = plain_table("whose", "words of the pinned key", "here")
    for key in view.keys:
        table.add_row(key.name, key.words, "read it to the others" if key.standing == "own" else key.standing)
    put(table if view.keys else "federation.toml pins no sealing key")


# ---- approvers


def make_approver(
    key: Annotated[Path, typer.Option("--key", help="File to make, 0600: the approver's own, on their own machine.")],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Ask for a passphrase, here, that opens the file; each use asks for it.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Make an approver's key pair. The file stays with the person; the public line goes into party.toml."""
    from verticil.party.operator.approvers import make_key

    hint = "run the command in a terminal"
    words = party_site.ask_passphrase("passphrase", hint=hint, twice=True) if encrypt else ""
    new_key = make_key(key, passphrase=words)
    if not emit(new_key, form=form):
        say(f"made {key}; public key {new_key.public_key}")
        put(f"the site's operator adds it: verticil party approver add NAME --public-key {new_key.public_key}")


def add_approver(
    name: NameArgument,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The private key, made when absent; default: approvers/NAME.key beside party.toml."),
    ] = None,
    public_key: Annotated[str | None, typer.Option("--public-key", help="Public key that was made elsewhere.")] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Name an approver in party.toml, with a key of their own; makes the key where there is none yet."""
    from verticil.party.operator.approvers import add_approver as add_to_site

    result = add_to_site(config, name, key=key, public_key=public_key)
    if emit(result, form=form):
        return
    if result.made:
        say(f"made {result.key}: it is {name}'s alone, and whoever has it can approve in their name")
    say(f"{config}: approvers {', '.join(result.approvers)}; {result.approvers_needed} needed")
    say("a running daemon knows them at once")


def remove_approver(
    name: NameArgument, config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text
) -> None:
    """Take an approver out of party.toml: their votes count no more, also for studies under way. Their key's file stays."""
    from verticil.party.operator.approvers import remove_approver as remove_from_site

    remaining = remove_from_site(config, name)
    if emit(remaining, form=form):
        return
    say(f"{config}: approvers {', '.join(remaining.approvers)}; {remaining.approvers_needed} needed")
    if not remaining.enough:
        say("these are too few: nothing can be approved until there are more", style="yellow")


def list_approvers(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """List who may approve here, and with which key."""
    from verticil.party.operator.approvers import approvers

    view = approvers(site_of(config))
    if emit(view, form=form):
        return
    if not view.approvers:
        say("no approver is named: every user who may run the command here approves for the site")
    for row in view.approvers:
        say(f"{row.name}  {row.public_key or 'no key: cannot approve'}")
    put(f"{view.approvers_needed} needed")


# ---- all commands, in the order of the help


def _example(words: str) -> str:
    return f"Example: verticil party {words} --config party.toml"


app = typer.Typer(no_args_is_help=True)
app.command("init", epilog="Example: verticil party init --name clinic --dir clinic --table clinic.csv")(
    party_site.init
)
app.command("run", epilog=_example("run"))(party_site.run)
app.command("check", epilog="Example: verticil party check --config party.toml --study study.toml")(party_site.check)
app.command("status", epilog=_example("status"))(party_site.status)
app.command("load", epilog=_example("load study.toml"))(party_study.load)
app.command("release", epilog=_example("release hearts --out hearts"))(party_study.release)
app.command("evaluate", epilog=_example("evaluate hearts"))(evaluate.evaluate_own_command)
app.command("backup", epilog=_example("backup --out clinic.backup --passphrase-file words"))(party_site.backup)
app.command(
    "restore", epilog="Example: verticil party restore clinic.backup --dir clinic-again --passphrase-file words"
)(party_site.restore)
app.command("purge", epilog=_example("purge --older-than 90"))(party_site.purge)
app.command("inbox", epilog=_example("inbox"))(party_study.inbox)
app.command("show", epilog=_example("show hearts --diff last"))(party_study.show)
app.command("preview", epilog=_example("preview hearts --out preview"))(party_study.preview)
app.command("approve", epilog=_example("approve hearts --as officer@clinic"))(party_study.approve)
app.command("deny", epilog='Example: verticil party deny hearts --reason "income: too weak" --as officer@clinic')(
    party_study.deny
)
app.command("countersign", epilog=_example("countersign hearts --as officer@clinic"))(party_study.countersign)
app.command("ui", epilog=_example("ui --decide --as officer@clinic"))(pages.party_ui)
app.command("limits", epilog=_example("limits --publish clinic-limits.json"))(limits)
app.command("keys", epilog=_example("keys"))(pinned_keys)
app.command("confirm-key", epilog=_example("confirm-key insurer lusab-babad-..."))(confirm_key)
app.command("ledger", epilog=_example("ledger"))(ledger)
app.command("revoke", epilog=_example('revoke hearts --reason "consent withdrawn" --as officer@clinic'))(
    party_study.revoke
)
app.command("install-service", epilog=_example("install-service --print"))(service_unit.install_party)
app.command("export", epilog=_example("export --out to-miner.carried"))(airgap.party_export)
app.command("import", epilog=_example("import from-miner.carried"))(airgap.party_import)

approver_app = typer.Typer(no_args_is_help=True)
approver_app.command("keygen", epilog="Example: verticil party approver keygen --key officer.key")(make_approver)
approver_app.command("add", epilog=_example("approver add officer@clinic"))(add_approver)
approver_app.command("remove", epilog=_example("approver remove officer@clinic"))(remove_approver)
approver_app.command("list", epilog=_example("approver list"))(list_approvers)
app.add_typer(approver_app, name="approver", help="The people who approve: their keys, and their names in party.toml.")

audit_app = typer.Typer(no_args_is_help=True)
audit_app.command("show", epilog=_example("audit show --study hearts"))(show_audit)
audit_app.command("verify", epilog=_example("audit verify"))(verify_audit)
app.add_typer(
    audit_app,
    name="audit",
    help="The log of what this site did, each line chained to the one before.",
    epilog="Example: verticil party audit verify --config party.toml",
)
