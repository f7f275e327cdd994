"""``verticil party inbox | show | preview | approve | deny | countersign``: what the people of a site decide, and by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table

from verticil.cli.linkage import print_alignment
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, text_console
from verticil.cli.party import ApproverOption, ConfigOption, StudyArgument, app, approver_name
from verticil.cli.party_text import print_asked, print_columns, print_cost, print_share, print_submitter

__all__ = ["app"]  # whose commands stand in several modules

KeyOption = Annotated[
    Path | None,
    typer.Option("--key", help="The approver's private key; default: approvers/NAME.key beside party.toml."),
]


class Against(StrEnum):
    """What a study is compared with."""

    last = "last"


@app.command("inbox", epilog="Example: verticil party inbox --config party.toml")
def inbox(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """The studies that wait for somebody here: for an approval, or for a countersignature of the release."""
    from verticil.party.config import load_party
    from verticil.party.operator.pending_studies import inbox as party_inbox

    facts = party_inbox(load_party(config))
    if emit(facts, form=form):
        return
    console = text_console()
    waiting = cast("Sequence[Mapping[str, object]]", facts["waiting"])
    if not waiting:
        console.print(f"[bold]{facts['party']}[/]  nothing waits for you")
    for study in waiting:
        console.print(f"[bold]{study['study']}[/]  {str(study['digest'])[:16]}  waits for your {study['waits_for']}")
        print_submitter(study, indent="  ")
        if "title" in study:
            console.print(f"  {study['title']}: {study['purpose']}", markup=False)
            columns = ", ".join(cast("Sequence[str]", study["columns"])) or "none"
            recipients = ", ".join(cast("Sequence[str]", study["recipients"])) or "nobody"
            console.print(f"  columns: {columns}   recipients: {recipients}   until {study['expires']}", markup=False)
            print_cost(cast("Sequence[Mapping[str, object]]", study["cost"]), indent="  ")
            if changed := cast("Sequence[str]", study["changed"]):
                console.print(f"  changed since the last study of this id in {len(changed)} places: show --diff last")
        for objection in cast("Sequence[str]", study["objections"]):
            console.print(f"  against it: {objection}", style="red", markup=False)
        name = str(study["digest"])[:16]  # an id may be that of several studies
        what = f"countersign {name} --look" if study["waits_for"] == "countersignature" else f"show {name}"
        console.print(f"  next: verticil party {what}", markup=False)


@app.command("show", epilog="Example: verticil party show hearts --diff last --config party.toml")
def show(
    study: StudyArgument,
    diff: Annotated[
        Against | None, typer.Option("--diff", help="last: also what changed since the last study of this id.")
    ] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """A study in words: what happens to each column, what can be learned from it, who gets it, what it costs. Reads no table."""
    from verticil.party.config import load_party
    from verticil.party.operator.pending_studies import show as party_show

    facts = party_show(load_party(config), study, diff=diff is not None)
    if emit(facts, form=form):
        return
    console = text_console()
    alignment = cast("Mapping[str, object]", facts["alignment"])
    console.print(f"[bold]{facts['study']}[/]  {facts['digest']}")
    print_submitter(facts)
    console.print(f"{facts['title']}: {facts['purpose']}", markup=False)
    parties = ", ".join(cast("Sequence[str]", facts["parties"]))
    console.print(
        f"model {facts['model']}; parties {parties}; until {facts['expires']}; linked by {alignment['mode']},"
        f" at least {facts['minimum_common_records']:,} people in common",
        markup=False,
    )
    print_asked(facts)
    for column in cast("Sequence[Mapping[str, object]]", facts["columns"]):
        name = ", ".join(cast("Sequence[str]", column["variables"]))
        source = ", ".join(cast("Sequence[str]", column["sources"]))
        to = ", ".join(cast("Sequence[str]", column["recipients"])) or "nobody, it stays here"
        console.print(f"\n[bold]column '{name}'[/]", end="")
        console.print(f" (local {source}) goes to {to}; epsilon {epsilon_text(column['epsilon'])}", markup=False)
        for sentence in cast("Sequence[str]", column["words"]):
            console.print(f"  {sentence}", markup=False)
    console.print(f"\n{facts['total_words']}", markup=False)
    if facts["share_words"]:
        console.print(str(facts["share_words"]), markup=False)
    for event in cast("Sequence[Mapping[str, object]]", facts["further_events"]):
        of, to = (", ".join(cast("Sequence[str]", event[key])) for key in ("columns", "recipients"))
        console.print(f"besides, of {of}, to {to}: {event['words']}", markup=False)
    for sentence in cast("Sequence[str]", facts["quorum_words"]):
        console.print(sentence, markup=False)
    print_alignment(alignment)
    print_cost(cast("Sequence[Mapping[str, object]]", facts["cost"]))
    if diff is not None:
        _print_changes(facts)
    for objection in cast("Sequence[str]", facts["objections"]):
        console.print(f"against it: {objection}", style="red", markup=False)
    if (ruled := cast("Mapping[str, object] | None", facts["by_rule"])) is not None:
        if ruled["rule"] is not None:
            console.print(f"rule '{ruled['rule']}' covers it", markup=False)
        for why in cast("Sequence[str]", ruled["why"]):
            console.print(f"no rule approves it: {why}", markup=False)
    if facts["waits_for"] == "approval":
        console.print(f"\n{facts['counts_tell']}", markup=False)


def _print_changes(facts: Mapping[str, object]) -> None:
    console = text_console()
    if facts["compared_with"] is None:
        console.print("\nno earlier study of this id was seen here")
        return
    which = "approved here" if facts["compared_with_approved"] else "seen here, and not approved"
    console.print(f"\nsince {str(facts['compared_with'])[:16]}, {which}:", markup=False)
    for line in cast("Sequence[str]", facts["changes"]):
        console.print(f"  {line}", markup=False)


@app.command("preview", epilog="Example: verticil party preview hearts --out preview --config party.toml")
def preview(
    study: StudyArgument,
    out: Annotated[Path, typer.Option(help="Folder to make, readable by you only.")],
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Write what would leave: the randomized codes of all local rows, and raw against randomized frequencies. Sends nothing."""
    from verticil.party.config import load_party
    from verticil.party.operator.preview import preview as party_preview

    facts = party_preview(load_party(config), study, out)
    if emit(facts, form=form):
        return
    console = text_console()
    shown = Table(box=None, pad_edge=False)
    for heading in ("column", "category"):
        shown.add_column(heading)
    for heading in ("raw", "randomized"):
        shown.add_column(heading, justify="right")
    for column in cast("Sequence[Mapping[str, object]]", facts["columns"]):
        name = " & ".join(cast("Sequence[str]", column["variables"]))
        for row in cast("Sequence[Mapping[str, object]]", column["frequencies"]):
            raw, released = (100 * cast("float", row[key]) for key in ("raw_share", "randomized_share"))
            shown.add_row(name, str(row["category"]), f"{raw:.1f} %", f"{released:.1f} %")
            name = ""
    console.print(shown)
    console.print(
        f"{facts['records']:,} records; of these only those that all parties have in common would be sent. Wrote {facts['out']}."
    )
    console.print(
        "nothing left this site, so nothing was charged; keep the folder here: its codes are a release, its table is raw"
    )


@app.command("approve", epilog="Example: verticil party approve hearts --as officer@clinic --config party.toml")
def approve(
    study: StudyArgument,
    approver: ApproverOption = None,
    key: KeyOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Approve a study as it stands now: its matrices, recipients, expiry and this table. Any change voids the approval."""
    from verticil.party.config import load_party
    from verticil.party.operator.commands import approve as approve_study

    facts = approve_study(load_party(config), study, approver_name(approver), key=key)
    if emit(facts, form=form):
        return
    console = text_console()
    print_columns(cast("Sequence[Mapping[str, object]]", facts["columns"]))
    console.print(
        f"{facts['records']:,} records; at least {facts['minimum_common_records']:,} in common; until {facts['expires']}"
    )
    charged = epsilon_text(facts["epsilon_charged_now"])
    console.print(f"epsilon per person {epsilon_text(facts['epsilon'])}, of which {charged} is charged now")
    print_share(facts)
    print_alignment(cast("Mapping[str, object]", facts["alignment"]))
    for line in cast("Sequence[str]", facts["changed"]):
        console.print(f"changed since the last vote: {line}", style="yellow", markup=False)
    if gone := cast("Sequence[str]", facts["void"]):
        console.print(
            f"void, they were for something else: the votes of {', '.join(gone)}", style="yellow", markup=False
        )
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
    from verticil.party.operator.commands import deny as deny_study

    facts = deny_study(load_party(config), study, approver_name(approver), reason)
    if not emit(facts, form=form):
        text_console().print(f"denied {facts['study']} ({str(facts['digest'])[:16]})")


@app.command("countersign", epilog="Example: verticil party countersign hearts --as officer@clinic --config party.toml")
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
    from verticil.party.config import load_party
    from verticil.party.operator import countersign as desk
    from verticil.party.operator.commands import deny as deny_study
    from verticil.shared.errors import Misuse

    document = load_party(config)
    if refuse is not None and look:
        raise Misuse("USAGE", "--look and --refuse: expected one of the two")
    if refuse is not None:
        facts = deny_study(document, study, approver_name(approver), refuse)
        if not emit(facts, form=form):
            text_console().print(f"refused {facts['study']} ({str(facts['digest'])[:16]}): it is not published")
        return
    facts = desk.look(document, study) if look else desk.countersign(document, study, approver_name(approver), key=key)
    if emit(facts, form=form):
        return
    console = text_console()
    console.print(f"the release holds: {facts['common_records']:,} people in common, signed by {facts['publisher']}")
    console.print(f"report: {facts['report']}", markup=False)
    if facts["countersigned"]:
        console.print(f"[green]countersigned[/] {facts['study']}, manifest {str(facts['manifest_sha256'])[:16]}")
    else:
        console.print(f"read it; next: verticil party countersign {facts['study']} --as NAME, or --refuse REASON")
