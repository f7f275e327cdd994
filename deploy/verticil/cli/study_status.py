"""What ``verticil study status`` shows; the words are `shared.pages.study_status`'s.

With ``--watch`` a terminal shows one table that changes; anything else gets one line for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from verticil.cli.output import plain_table, put, say, text_console
from verticil.cli.worth_text import print_worth
from verticil.shared.pages.study_status import (
    age_text,
    changes,
    name_study,
    objections,
    reasons,
    revocations,
    state_of,
    votes,
)
from verticil.shared.release.worth import worth_of_study

if TYPE_CHECKING:
    from verticil.wire.v1.control_pb2 import PartyStatus, StudySummary

_DONE: Final = "ok"
_NOTHING: Final = "-"


def _online(party: PartyStatus) -> str:
    if party.standing:
        return party.standing
    if party.online:
        return f"yes ({age_text(party.lease_age_seconds)})"
    return f"no ({age_text(party.lease_age_seconds)})" if party.seen else "no (never)"


def _stages(party: PartyStatus) -> tuple[str, str, str, str]:
    """Return what the table says in the columns approve, link, confirm and send."""
    percent = f"{party.percent} %"
    approve = _DONE if party.approved else (votes(party).strip(" ()") or _NOTHING)
    link = _DONE if party.pseudonyms_complete else (percent if party.stage == "linking" else _NOTHING)
    confirm = _DONE if party.alignment_confirmed else _NOTHING
    if party.units_expected and party.units_received == party.units_expected:
        send = _DONE
    elif party.stage == "uploading":
        send = percent
    else:
        send = f"{party.units_received} of {party.units_expected}" if party.units_received else _NOTHING
    return approve, link, confirm, send


def _render(study: StudySummary) -> RenderableType:
    parts: list[RenderableType] = [Text.assemble((name_study(study), "bold"), f"  {state_of(study)}")]
    parts.append(Text(f"digest {study.study_digest.hex()}", style="dim"))
    if study.deadline:
        parts.append(Text(f"every party's part must be there by {study.deadline}", style="dim"))
    if study.failure.code:
        parts.append(Text(f"{study.failure.code}: {study.failure.message}", style="red"))
        if study.failure.hint:
            parts.append(Text(f"hint: {study.failure.hint}"))
    if absent := [party.party for party in study.parties if party.left_out]:
        parts.append(Text(f"a sub-model: goes on without {', '.join(absent)}", style="yellow"))
    table, words = plain_table("party", "online", "approve", "link", "confirm", "send", "now"), reasons(study)
    for party in study.parties:
        table.add_row(*(Text(cell) for cell in (party.party, _online(party), *_stages(party), words[party.party])))
    parts.append(table)
    parts.extend(Text(line, style="yellow") for line in objections(study))
    parts.extend(Text(line, style="red") for line in revocations(study))
    if study.n_common:
        parts.append(Text(f"people at all parties: {study.n_common:,}"))
    return Group(*parts)


def print_summary(study: StudySummary) -> None:
    """Print a study's status for people: who has done what, who is waited for, and what its records are worth."""
    put(_render(study))
    if (worth := worth_of_study(study)) is not None:
        print_worth(worth)


@contextmanager
def watch() -> Generator[Callable[[StudySummary], None]]:
    """Yield what shows a study while it goes on: on a terminal one table that changes, elsewhere a line for each change."""
    if text_console().is_terminal:
        with Live(console=text_console(), auto_refresh=False, transient=True) as live:
            yield lambda study: live.update(_render(study), refresh=True)
        return
    last_lines: dict[str, str] = {}

    def show(study: StudySummary) -> None:
        for line in changes(study, last_lines):
            say(line)

    yield show
