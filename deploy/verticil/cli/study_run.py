"""``verticil study run``: one study file, in this process, in containers, or in the federation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.connection import CertificateOption, FederationOption, open_connection
from verticil.cli.files import new_folder
from verticil.cli.output import Format, FormatOption, emit, errors_console, text_console
from verticil.cli.study import app, split_pairs
from verticil.shared.errors import Misuse

__all__ = ["app"]  # whose commands stand in several modules

if TYPE_CHECKING:
    from verticil.shared.release.verification import VerifiedRelease
    from verticil.shared.study.document import Study


class Place(StrEnum):
    """Where a study runs."""

    local = "local"
    compose = "compose"
    prod = "prod"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """What a run on tables at hand needs besides the study."""

    data: tuple[str, ...]
    table: Path | None
    id_column: str
    seed: int | None

    @property
    def tables(self) -> dict[str, Path] | Path:
        if (self.table is None) == (not self.data):
            raise Misuse("USAGE", "expected either --table FILE or --data PARTY=FILE for each party")
        return self.table if self.table is not None else split_pairs(self.data, option="--data")


@app.command(
    "run",
    epilog="Example: verticil study run study.toml --on local --data clinic=clinic.csv --data insurer=insurer.csv --out trial",
)
def run(
    study: Annotated[Path, typer.Argument(metavar="FILE", help="study.toml.")],
    on: Annotated[
        Place,
        typer.Option(
            "--on", help="local: in this process; compose: in containers; prod: by the federation's own nodes."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the release.")] = Path("study-run"),
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="PARTY=FILE", help="local, compose: a party's table; once per party."),
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--table", help="local, compose: one table with all columns instead.")
    ] = None,
    id_column: Annotated[str, typer.Option("--id", help="local, compose: name of the id column.")] = "id",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="local, compose: for a repeatable run; default: \\[simulation] seed of the study."),
    ] = None,
    prepare: Annotated[bool, typer.Option("--prepare", help="compose: write the files, and start nothing.")] = False,
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    form: FormatOption = Format.text,
) -> None:
    """Carry a study out and bring its verified release home: the same file for a trial and for the real thing.

    With a seed, local and compose runs publish the same model and the same synthetic records. A federation's sites draw their own
    secrets: a seed in the file is for trials, and is not submitted. There nothing happens before every site has approved;
    interrupted, the same command goes on waiting.
    """
    from verticil.shared.study.reading import read_study
    from verticil.simulation.provision import study_seed

    document = read_study(study)
    trial = _Trial(
        data=tuple(data or ()), table=table, id_column=id_column, seed=seed if seed is not None else study_seed(study)
    )
    if on is Place.prod and (data or table is not None or seed is not None):
        raise Misuse("USAGE", "--data, --table, --seed: not with --on prod", hint="there each site has its own table")
    if prepare and on is not Place.compose:
        raise Misuse("USAGE", "--prepare: only with --on compose")
    if on is Place.prod:
        verified = _in_the_federation(document, out, federation, certificate)
    else:
        found = _on_tables(study, document, new_folder(out), trial, on=on, prepare=prepare)
        if found is None:
            if not emit({"study": document.id, "on": on.value, "compose": str(out / "compose.yaml")}, form=form):
                text_console().print(f"written {out / 'compose.yaml'}; without --prepare it is also run")
            return
        verified = found
    payload = {
        "study": document.id,
        "on": on.value,
        "release": str(out / "release"),
        "ca_certificate": str(out / "ca.crt"),
        "common_records": verified.n_common,
        "synthetic_records": verified.synthetic_records,
        "seed": None if on is Place.prod else trial.seed,
    }
    if not emit(payload, form=form):
        console = text_console()
        console.print(f"[green]release[/] in {out / 'release'}: {verified.n_common:,} common records")
        console.print(f"verify it again: verticil release verify {out / 'release'} --ca {out / 'ca.crt'}", markup=False)


def _on_tables(
    path: Path, study: Study, out: Path, trial: _Trial, *, on: Place, prepare: bool
) -> VerifiedRelease | None:
    """The release of a run on tables at hand; None: the files were only written."""
    import shutil

    from verticil.shared.durable import rename
    from verticil.shared.release.verification import verify_release
    from verticil.simulation import simulate
    from verticil.simulation.containers import bring_up, engine, lay_out_containers

    try:
        if on is Place.local:
            simulate(study, trial.tables, out=out / "release", id_column=trial.id_column, seed=trial.seed)
        else:
            tables, compose = trial.tables, () if prepare else engine()
            made = lay_out_containers(out, path, study, tables, id_column=trial.id_column, seed=trial.seed)
            if prepare:
                return None
            rename(bring_up(out, compose), out / "release")
            shutil.copyfile(made.ca_certificate, out / "ca.crt")
    except BaseException:
        if not any(out.iterdir()):
            out.rmdir()
        raise
    return verify_release(out / "release", ca_certificate=(out / "ca.crt").read_bytes())


def _in_the_federation(study: Study, out: Path, federation: Path, certificate: Path) -> VerifiedRelease:
    """Submit, follow, fetch, verify."""
    import math

    from verticil.analyst.lint import refuse_hopeless
    from verticil.shared.config import load_federation
    from verticil.shared.release.verification import verify_release
    from verticil.shared.study.canonical import to_bytes
    from verticil.shared.transport.fetch import fetch_release
    from verticil.simulation.analyst import follow_study
    from verticil.wire.v1.control_pb2 import SubmitStudyRequest

    refuse_hopeless(study)
    authority = load_federation(federation).ca_certificate.read_bytes()
    folder, progress = new_folder(out), errors_console()

    async def run() -> None:
        async with open_connection(federation, certificate) as connection:
            control = connection.analyst()
            digest = (await control.submit_study(SubmitStudyRequest(proposal=to_bytes(study)))).study_digest
            progress.print(f"study '{study.id}' submitted, digest {digest.hex()}", markup=False)
            await follow_study(
                control, digest, step=lambda line: progress.print(line, markup=False), patience_seconds=math.inf
            )
            await fetch_release(control, digest, folder / "release")

    asyncio.run(run())
    (folder / "ca.crt").write_bytes(authority)
    return verify_release(folder / "release", ca_certificate=authority)
