"""Studies that are asked of a party, and what its people decide: ``verticil party inbox | show | approve | deny`` and others."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from verticil.cli import party_text
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, plain_table, put, say
from verticil.cli.party_site import ApproverOption, ConfigOption, StudyArgument, approver_name, ask_passphrase, site_of
from verticil.shared.core.errors import Misuse

if TYPE_CHECKING:
    from verticil.party.operator.pending_studies import Comparison, PendingStudy

_IN_FULL: Final = 10
"""So many studies the inbox shows with all their terms; of more it has one line each."""

KeyOption = Annotated[
    Path | None,
    typer.Option("--key", help="The approver's private key; default: approvers/NAME.key beside party.toml."),
]


def ask_key_passphrase(key: Path) -> str:
    """Ask for the passphrase of a key's file, in this terminal."""
    return ask_passphrase(f"passphrase of {key}", hint="run the command in a terminal")


class Against(StrEnum):
    """What a study is compared with."""

    last = "last"


def inbox(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """List the studies that wait for somebody here: for an approval, or for a countersignature of the release."""
    from verticil.party.operator.pending_studies import inbox as party_inbox

    view = party_inbox(site_of(config))
    if emit(view, form=form):
        return
    if not view.waiting:
        put(f"[bold]{view.party}[/]  nothing waits for you")
    for warning in view.common_sets.warnings:
        say(f"warning: {warning}", style="yellow")
    if len(view.waiting) > _IN_FULL:
        _list_waiting(view.waiting)
        return
    for study in view.waiting:
        put(f"[bold]{study.study}[/]  {study.digest[:16]}  waits for your {study.waits_for}")
        party_text.print_submitter(study, indent="  ")
        if (terms := study.terms) is not None:
            say(f"  {terms.title}: {terms.purpose}")
            columns, recipients = ", ".join(terms.columns) or "none", ", ".join(terms.recipients) or "nobody"
            say(f"  columns: {columns}   recipients: {recipients}   until {terms.expires}")
            party_text.print_figures(terms.four_figures, indent="  ")
            party_text.print_cost(terms.cost, indent="  ")
            if study.changed:
                where = f"{len(study.changed)} places"
                put(f"  changed since the last study of this id in {where}: show --diff last")
        for objection in study.objections:
            say(f"  against it: {objection}", style="red")
        name = study.digest[:16]  # an id may be that of several studies
        what = f"countersign {name} --look" if study.waits_for == "countersignature" else f"show {name}"
        say(f"  next: verticil party {what}")


def _list_waiting(waiting: Sequence[PendingStudy]) -> None:
    """Print one line for each of many studies."""
    table = plain_table("digest", "study", "waits for your", "until", "against it", no_wrap=True)
    for study in waiting:
        until = "" if study.terms is None else study.terms.expires
        table.add_row(study.digest[:16], study.study, study.waits_for, until, str(len(study.objections) or ""))
    put(table)
    say(f"{len(waiting)} studies; next: verticil party show DIGEST, or verticil party countersign DIGEST --look")


def show(
    study: StudyArgument,
    diff: Annotated[
        Against | None, typer.Option("--diff", help="last: also what changed since the last study of this id.")
    ] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show a study in words: what happens to each column, what can be learned, who gets it, what it costs. Reads no table."""
    from verticil.party.operator.pending_studies import show as party_show

    view = party_show(site_of(config), study, diff=diff is not None)
    if emit(view, form=form):
        return
    put(f"[bold]{view.study}[/]  {view.digest}")
    party_text.print_submitter(view)
    say(f"{view.title}: {view.purpose}")
    say(
        f"model {view.model}; parties {', '.join(view.parties)}; until {view.expires};"
        f" linked by {view.alignment['mode']}, at least {view.minimum_common_records:,} people in common"
    )
    party_text.print_figures(view.four_figures, view.membership_words)
    if view.questions is not None:
        party_text.print_questions(view.questions)
    party_text.print_stated(view.stated)
    party_text.print_origins(view.origins)
    for column in view.columns:
        to = ", ".join(column.recipients) or "nobody, it stays here"
        put(f"\n[bold]column '{', '.join(column.variables)}'[/]", end="")
        local = ", ".join(column.sources)
        alone = column.leaves or not column.recipients
        goes = f"goes to {to}" if alone else f"is read by nobody, unless they work together: {to}"
        say(f" (local {local}) {goes}; epsilon {epsilon_text(column.epsilon)}")
        for sentence in column.words:
            say(f"  {sentence}")
    say(f"\n{view.total_words}")
    for sentence in (*([view.share_words] if view.share_words else ()), *view.quorum_words):
        say(sentence)
    for event in view.further_events or ():
        say(event.text)
    party_text.print_alignment(view.alignment)
    party_text.print_cost(view.cost if view.cost_is_ahead else ())
    if view.comparison is not None:
        _print_changes(view.comparison)
    for objection in view.objections:
        say(f"against it: {objection}", style="red")
    if (ruling := view.by_rule) is not None:
        if ruling.rule is not None:
            say(f"rule '{ruling.rule}' covers it")
        for why in ruling.why:
            say(f"no rule approves it: {why}")
    if view.waits_for == "approval":
        say(f"\n{view.counts_tell}")


def _print_changes(comparison: Comparison) -> None:
    if comparison.compared_with is None:
        say("\nno earlier study of this id was seen here")
        return
    which = "approved here" if comparison.compared_with_approved else "seen here, and not approved"
    say(f"\nsince {comparison.compared_with[:16]}, {which}:")
    for line in comparison.changes:
        say(f"  {line}")


def preview(
    study: StudyArgument,
    out: Annotated[Path, typer.Option(help="Folder to make, readable by you only.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Write what would leave: the randomized codes of all local rows, and raw against randomized frequencies. Sends nothing."""
    from verticil.party.operator.preview import preview as party_preview

    view = party_preview(site_of(config), study, out)
    if emit(view, form=form):
        return
    table = plain_table("column", "category", right=("raw", "randomized"))
    for column in view.columns:
        name = " & ".join(column.variables)
        for row in column.frequencies:
            raw, randomized = 100 * row.raw_share, 100 * row.randomized_share
            table.add_row(name, row.category, f"{raw:.1f} %", f"{randomized:.1f} %")
            name = ""
    put(table)
    put(f"{view.records:,} records; of these only those that all parties have in common would be sent. Wrote {out}.")
    say(
        "nothing left this site, so nothing was charged; keep the folder here: its codes are a release, its table is raw"
    )


def approve(
    study: StudyArgument,
    approver: ApproverOption = None,
    key: KeyOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Approve a study as it stands now: its matrices, recipients, expiry and this table. Any change voids the approval."""
    from verticil.party.operator.commands import approve as approve_study
    from verticil.party.policy.voting import approver_key

    document, who = site_of(config), approver_name(approver)
    own = approver_key(document, who, key, passphrase=ask_key_passphrase)
    view = approve_study(document, study, who, key=own)
    if emit(view, form=form):
        return
    party_text.print_figures(view.four_figures)
    party_text.print_columns(view.columns)
    put(f"{view.records:,} records; at least {view.minimum_common_records:,} in common; until {view.expires}")
    charge_text = epsilon_text(view.epsilon_charged_now)
    whose = "the floor" if view.four_figures else "epsilon"
    put(f"{whose} per person {epsilon_text(view.epsilon)}, of which {charge_text} is charged now")
    party_text.print_share(view.share)
    party_text.print_stated(view.stated)
    party_text.print_alignment(view.alignment)
    for line in view.changed:
        say(f"changed since the last vote: {line}", style="yellow")
    if view.void:
        void_votes = ", ".join(view.void)
        say(f"void, they were for something else: the votes of {void_votes}", style="yellow")
    if view.approved:
        put(f"[green]approved[/] {view.study} ({view.digest[:16]})")
    else:
        count = f"{len(view.approvers)} of {view.approvers_needed}"
        put(f"{count} approvals for {view.study}; nothing is sent before all")


def deny(
    study: StudyArgument,
    reason: Annotated[str, typer.Option(help="For the analyst, or the other parties, to read.")],
    approver: ApproverOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Deny a study, for good. Nothing leaves from then on."""
    from verticil.party.operator.commands import deny as deny_study

    denial = deny_study(site_of(config), study, approver_name(approver), reason)
    if not emit(denial, form=form):
        put(f"denied {denial.study} ({denial.digest[:16]})")


def countersign(
    study: StudyArgument,
    approver: ApproverOption = None,
    key: KeyOption = None,
    look: Annotated[bool, typer.Option("--look", help="Only verify the release and say where its report is.")] = False,
    refuse: Annotated[
        str | None, typer.Option("--refuse", metavar="REASON", help="Keep the release from being published, for good.")
    ] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Verify a release that waits for the parties, offline, and countersign it; nobody else gets it before enough have."""
    from verticil.party.operator import commands
    from verticil.party.policy.voting import approver_key

    document = site_of(config)
    if refuse is not None and look:
        raise Misuse("USAGE", "--look and --refuse: expected one of the two")
    if refuse is not None:
        denial = commands.deny(document, study, approver_name(approver), refuse)
        if not emit(denial, form=form):
            put(f"refused {denial.study} ({denial.digest[:16]}): it is not published")
        return
    if look:
        view = commands.look(document, study)
    else:
        who = approver_name(approver)
        own = approver_key(document, who, key, passphrase=ask_key_passphrase)
        view = commands.countersign(document, study, who, key=own)
    if emit(view, form=form):
        return
    put(f"the release holds: {view.common_records:,} people in common, signed by {view.publisher}")
    say(f"report: {view.report}")
    if view.countersigned:
        put(f"[green]countersigned[/] {view.study}, manifest {view.manifest_sha256[:16]}")
    else:
        put(f"read it; next: verticil party countersign {view.study} --as NAME, or --refuse REASON")


def load(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study, the same file at every party.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Load a study between peers (model = "peer"): no miner distributes it, every party's operator loads the same file."""
    from verticil.party.operator.peer_commands import load_study

    result = load_study(site_of(config), study)
    if emit(result, form=form):
        return
    words = "loaded" if result.new else "was loaded before:"
    put(f"{words} {result.study}, digest {result.digest}")
    if result.state == "published":
        put(f"it is published; next: verticil party release {result.study} --config {config}")
        return
    say("compare the digest with the other operators; the daemons do, too, before anything leaves")
    put(f"next: verticil party approve {result.study} --config {config}")


def release(
    study: StudyArgument,
    out: Annotated[Path, typer.Option(help="Folder to make; the authority's certificate is put beside it as ca.crt.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Verify the published release of a study between peers and copy it."""
    from verticil.party.operator.peer_commands import take_release

    result = take_release(site_of(config), study, out)
    if not emit(result, form=form):
        put(f"release in {out}\nnext: verticil release verify {out} --ca {result.ca_certificate}")


def revoke(
    study: StudyArgument,
    reason: Annotated[str, typer.Option(help="For the analyst and the other parties to read.")],
    approver: ApproverOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Take an approval back, for good: what is being sent stops, the others delete what they have and sign that they did."""
    from verticil.party.operator.reports import revoke as revoke_study

    revocation = revoke_study(site_of(config), study, approver_name(approver), reason)
    if emit(revocation, form=form):
        return
    put(f"revoked {revocation.study} ({revocation.digest[:16]}) at {revocation.revoked_at} by {revocation.who}")
    if revocation.after_publication:
        say("the release is published: it is shown as revoked from now on; copies of it cannot be recalled")
    if (deletion := revocation.deletion) is not None:
        count = len(deletion.artifacts)
        put(f"miner '{deletion.miner}' signed that it deleted {count} columns at {deletion.deleted_at}")
    elif revocation.confirmations:
        party_text.print_confirmations(revocation.confirmations)
    elif revocation.columns_sent:
        put(
            f"{revocation.columns_sent} columns had been sent, whole or in part; the daemon tells the others, and they delete"
            " them; give the command again to see what came of it"
        )
    else:
        say("no column had been sent")
