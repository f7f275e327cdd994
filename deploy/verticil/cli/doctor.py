"""``verticil doctor``: what stands between this node and its work, check by check, and what to do about it.

It reads configuration, certificates, the state and the header of the table, opens a few connections and asks other nodes for
their health. It sends nothing about any study, makes and changes nothing, and never shows a value of a table.
The exit code is that of the first check that failed (README); warnings alone are 0.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from verticil.cli.interruption import run_reading
from verticil.cli.output import Format, FormatOption, emit, put, say
from verticil.shared.core.errors import VerticilError

if TYPE_CHECKING:
    from verticil.cli.doctor_findings import Finding

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="party.toml or miner.toml.")] = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Check certificates, state (database, audit log, secret), data, disk, connection, clock; say what to do. Changes nothing."""
    from verticil.cli.doctor_findings import exit_code

    findings = run_reading(collect(config, show=form is Format.text))
    code = exit_code(findings)
    payload = {"config": str(config), "ok": code == 0, "checks": [dataclasses.asdict(finding) for finding in findings]}
    if not emit(payload, form=form):
        counts = {level: sum(finding.level == level for finding in findings) for level in _COLOURS}
        put(
            f"{counts['ok']} ok, {counts['warn']} {'warning' if counts['warn'] == 1 else 'warnings'}, {counts['fail']} failed"
        )
    if code:
        raise typer.Exit(code)


async def collect(config: Path, *, show: bool = False) -> list[Finding]:
    """Return what all checks of a node find; with `show`, say each at once."""
    from verticil.cli.doctor_checks import checks
    from verticil.cli.doctor_findings import fail

    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        findings.append(finding)
        if show:
            put(f"[{_COLOURS[finding.level]}]{finding.level:4}[/] ", end="")
            say(f"{finding.check}: {finding.detail}")
            if finding.hint and finding.level != "ok":
                say(f"     -> {finding.hint}")

    try:
        async for finding in checks(config):
            add(finding)
    except VerticilError as error:  # the configuration itself
        add(fail("configuration", error))
    return findings
