"""``verticil study``: write, check, submit and follow studies.

``verticil study run``: one study file, in this process, in containers, or in the federation.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from verticil.analyst.federation import find_study, open_connection, submit_study
from verticil.cli import pages
from verticil.cli.budget_text import print_models, print_plan
from verticil.cli.connection import CertificateOption, FederationOption, StudyName
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, errors_console, put, say
from verticil.cli.owners_plan import check_alone
from verticil.cli.party_text import print_alignment, print_findings, print_origins, print_stated
from verticil.cli.study_status import print_summary, watch
from verticil.cli.worth_text import print_worth
from verticil.pki.files import new_folder, removed_if_empty, write_new
from verticil.shared.core.errors import Misuse, VerticilError, printable
from verticil.shared.pages.study_status import name_study, revocations, summary_payload
from verticil.shared.study.states import State, require_withdrawn
from verticil.shared.study.vocabulary import PLACEHOLDERS

if TYPE_CHECKING:
    from verticil.analyst.check import Checked
    from verticil.analyst.federation import Connection
    from verticil.party.operator.limits import PublishedLimits
    from verticil.shared.federation.transport.interface import Control
    from verticil.shared.privacy.study_table import ColumnRow, StudyTable
    from verticil.shared.release.verification import VerifiedRelease
    from verticil.shared.study.document import Study
    from verticil.shared.study.protocol import Finding
    from verticil.wire.v1.control_pb2 import GetStudyRequest, StudySummary

app = typer.Typer(no_args_is_help=True)

_LOOK_SECONDS = 2


def split_pairs(pairs: Sequence[str], *, option: str) -> dict[str, Path]:
    """``NAME=FILE`` arguments by name.

    Raises:
        Misuse: USAGE for anything else, or a name given twice.
    """
    paths: dict[str, Path] = {}
    for pair in pairs:
        name, separator, path = pair.partition("=")
        if not separator or not name or not path:
            raise Misuse(
                "USAGE",
                f"{option}: got '{pair}', expected NAME=FILE",
                hint="NAME is the organisation that has it, as in clinic=clinic.csv",
            )
        if name in paths:
            raise Misuse("USAGE", f"{option}: party '{name}' is named twice")
        paths[name] = Path(path)
    return paths


def given_tables(data: Sequence[str], table: Path | None) -> dict[str, Path] | Path:
    """Return each party's table, as ``--data`` names them, or the one with all columns, of ``--table``.

    Raises:
        Misuse: USAGE, both or neither.
    """
    if (table is None) == (not data):
        raise Misuse("USAGE", "expected either --table FILE or --data PARTY=FILE for each party")
    return table if table is not None else split_pairs(data, option="--data")


app.command("ui", epilog="Example: verticil study ui study.toml")(pages.study_ui)


@app.command("check", epilog="Example: verticil study check study.toml --n 30000 --strict")
def check(
    study: Annotated[Path, typer.Argument(metavar="FILE", help="study.toml.")],
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Expected common records; default: the study's minimum.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 6 when there is any error or warning.")] = False,
    limits: Annotated[
        list[Path] | None,
        typer.Option(
            "--limits", metavar="FILE", help="A party's published limits; once per party. Needs --federation."
        ),
    ] = None,
    columns: Annotated[bool, typer.Option("--columns", help="Show each finding of each column.")] = False,
    federation: FederationOption = Path("federation.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show what a study promises each person and what it can learn; with --limits also what parties would refuse.

    It is for the time before anyone works, and reads no data.
    """
    from verticil.analyst.check import check as checked
    from verticil.shared.federation.identity.pki import utc_now
    from verticil.shared.study.reading import read_study

    document = read_study(study, by_owner=True)
    if len(document.parties) == 1:  # nobody but the owner of the whole table can carry it out
        if limits:
            problem = f"--limits: the study has one party, '{document.parties[0]}', which carries it out alone"
            raise Misuse("USAGE", problem, hint="leave --limits out")
        check_alone(document, n, strict=strict, by_column=columns, form=form)
        return
    document = read_study(study)
    published_limits = _published_limits(limits or (), federation)
    result = checked(
        document,
        n=n,
        today=utc_now().date(),
        party_limits={item.party: item.policy.limits_of for item in published_limits},
        violations=tuple(_broken_limits(document, published_limits, n)),
    )
    if not emit(result.to_dict(strict=strict), form=form):
        print_findings((finding for finding in result.findings if finding.code == "unreviewed"), by_column=columns)
        for words in () if result.figures is None else result.figures.words:
            say(words)
        _print_check(result)
        print_findings((finding for finding in result.findings if finding.code != "unreviewed"), by_column=columns)
        if not result.findings:
            put("[green]no findings[/]")
        if result.models:
            print_models(result.models, result.table.n)
    if result.errors or (strict and not result.spotless):
        raise typer.Exit(6)


def _published_limits(files: Sequence[Path], federation: Path) -> list[PublishedLimits]:
    """Return what the parties of these documents permit."""
    from verticil.party.operator.limits import read_limits
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.identity.pki import utc_now

    authority = load_federation(federation).authority() if files else b""
    return [read_limits(path, authority, utc_now()) for path in files]


def _broken_limits(study: Study, limits: Sequence[PublishedLimits], n: int | None) -> Iterator[Finding]:
    """Yield every limit that parties have published and the study breaks."""
    from verticil.shared.federation.identity.pki import utc_now
    from verticil.shared.study.protocol import Finding

    now = utc_now().date()
    for document in limits:
        where = f"party '{document.party}'"
        if document.party not in study.parties:
            yield Finding(severity="note", code="limits-unused", where=where, message="it is not in the study", hint="")
        for item in document.against(study, today=now):
            keys = ", ".join(dict.fromkeys(re.findall(r"policy\.\w+", item.hint))) or "these limits"
            hint = f"it published {keys} at {document.at}: ask for less, or ask its officers"
            yield Finding(severity="error", code=item.code, where=where, message=item.message, hint=hint)
        own = [study.schema[position].name for position in study.schema.owned_by(document.party)]
        if document.policy.approval == "rules" and (
            without_codebook := [name for name in own if name not in document.codebooks]
        ):
            message = f"its rules know no codebook of {', '.join(without_codebook)}: its people decide"
            yield Finding(severity="note", code="codebook-unknown", where=where, message=message, hint="")
        if n is not None and document.party in study.parties and n < document.policy.minimum_common_records:
            message = f"{n:,} common records, expected at least {document.policy.minimum_common_records:,}"
            yield Finding(severity="error", code="LINKAGE_TOO_SMALL", where=where, message=message, hint="")


def _print_check(result: Checked) -> None:
    from verticil.analyst.prediction import prediction_text
    from verticil.shared.numerics.knowledge.words import describe_knowledge
    from verticil.shared.privacy.figures import odds
    from verticil.shared.release.content import may_have_joint
    from verticil.shared.study import canonical
    from verticil.shared.study.draft_review import origin_words
    from verticil.shared.study.protocols import disclosure, protocol_of

    study, table, digest = result.study, result.table, canonical.digest(result.study).hex()
    prediction = "" if result.prediction is None else prediction_text(result.prediction)
    put(f"[bold]{study.id}[/]  {len(study.schema)} variables of {len(study.parties)} parties; digest {digest[:16]}")
    put(_columns_table(study, table))
    say(
        f"at {table.n:,} common records. odds x: how much anybody's odds about a value can grow by what is sent;",
        style="dim",
    )
    say(
        "cond: condition number; ± share: half of a 95 % interval; links: records that a pair of such columns is worth",
        style="dim",
    )
    for row in table.rows:
        for line in _row_notes(row):
            say(f"{row.variable}: {line}")
    _print_peers(study)
    if study.release.sample_from == "joint" or (study.leaves_source_open and may_have_joint(study)):
        say(
            "synthetic records: drawn from a joint model of the tables of all pairs, which is published beside the network"
        )
    elif study.records_from == "posterior":
        say(
            f"synthetic records: drawn from {study.posterior.data_sets} networks of the posterior of graphs, in equal parts; "
            "and a set of records from each"
        )
    if prediction:
        say(f"predicted distance of a joint model's records to {table.n:,} people: {prediction}")
    print_alignment(disclosure(study).document())
    print_stated(describe_knowledge(study.knowledge, study.schema))
    if study.breach is not None:
        say(
            f"every column keeps the breach rule: by what is sent of it, no belief of {study.breach.prior:g} becomes"
            f" {study.breach.posterior:g} (odds x below {study.breach.gamma_limit:.4g})"
        )
    for party, total in table.party_totals:
        put(f"  {party:24} epsilon per person {epsilon_text(total)}")
    sent_only = any(row.read_by is not None for row in table.rows)
    total = table.total_epsilon
    factor = odds(total)
    change = "no practical bound" if factor is None else f"odds x{factor:.3g}"
    masks = protocol_of(study).opens_tables
    whom = " a dealer of masks that works with its partner" if masks else ""
    put(
        f"[bold]all columns of one person{' that are sent' if sent_only and not masks else ''}: epsilon {epsilon_text(total)}[/]"
        f" ({change}): what they tell{whom} together"
    )
    print_plan(result.plan)
    if study.tables is not None and not masks:
        say(
            "what everybody but the miner learns rests on the miner's word: it has the columns and draws the noise on tables"
        )
    say(f"to send: {table.bytes_sent / 1e6:,.3g} MB, and a pseudonym of every person for finding the common people")
    print_origins(origin_words(study))


def _columns_table(study: Study, table: StudyTable) -> Table:
    text_table = Table(box=None, pad_edge=False)
    text_table.add_column("column", no_wrap=True, min_width=14)
    text_table.add_column("party")
    for heading in ("K", "epsilon", "odds x", "kept", "cond", "± share", "links"):
        text_table.add_column(heading, justify="right", no_wrap=True)
    if any(row.read_by is not None for row in table.rows):
        text_table.add_column("read by")
    text_table.add_column("", no_wrap=True)
    for row in table.rows:
        text_table.add_row(
            row.variable,
            row.party,
            str(row.n_states),
            epsilon_text(row.epsilon),
            "∞" if math.isinf(row.gamma) else f"{row.gamma:.1f}",
            f"{100 * row.kept:.0f}%",
            "-" if row.subset_size is not None else f"{row.condition_number:.2f}",
            f"{100 * row.half_width:.2f}pp" if row.half_width <= 1 else ">100pp",
            f"{row.effective_records:,.0f}",
            *(() if row.read_by is None else (", ".join(row.read_by) or "nobody",)),
            "[yellow]too noisy[/]" if row.too_noisy and row.is_sent else "",
            style="" if row.is_sent else "dim",
        )
    return text_table


def _row_notes(row: ColumnRow) -> list[str]:
    """Return what a line of figures cannot say of a draw."""
    notes: list[str] = []
    if row.two_level is not None:
        notes.append(
            f"two-level, {row.two_level.text}; the table has the epsilon of both together."
            " The group is randomized too: nothing is released exactly"
        )
    if row.is_compound:
        less = f" ({row.impossible:,} impossible removed)" if row.impossible else ""
        notes.append(
            f"one draw for all of them, over {row.n_states:,} combinations{less}; the figures are of combinations"
        )
    if row.subset_size is not None:
        notes.append(
            f"a set of {row.subset_size} of the {row.n_states} categories is sent, which holds the true one"
            f" {100 * row.kept:.0f} % of the time"
        )
    return notes


def _print_peers(study: Study) -> None:
    """Model I: who learns the structure, and what covers the parameters that are shared."""
    from verticil.shared.privacy.figures import share_cost

    if study.share is None:
        return
    share = study.share
    how = "given, so there is no miner" if study.structure.parents is not None else "searched by the miner from scores"
    say(f"between peers: each party learns its own columns; the structure is {how}")
    if share.epsilon is not None and (cost := share_cost(study)) is not None:
        say(
            f"what a party shares besides columns has {share.noise_words}: epsilon {cost.epsilon:g},"
            f" delta {cost.delta:g} of one person at each party, besides the totals below"
        )
    if share.minimum_count:
        say(f"parameters that rest on fewer than {share.minimum_count:,} people are replaced")


@app.command("draft", epilog="Example: verticil study draft clinic=clinic.csv insurer=insurer.csv --out study.toml")
def draft(
    tables: Annotated[
        list[str], typer.Argument(metavar="NAME=TABLE...", help="A party and its table, of any kind that table reads.")
    ],
    out: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    title: Annotated[str, typer.Option(help="The study's title; a study with the default is refused.")] = PLACEHOLDERS[
        "title"
    ],
    purpose: Annotated[
        str,
        typer.Option(help="Purpose, which the parties read before they approve; a study with the default is refused."),
    ] = PLACEHOLDERS["purpose"],
    public: Annotated[
        bool, typer.Option("--public", help="The tables are public: what was seen in them needs no review.")
    ] = False,
    public_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--public-column", metavar="COLUMN", help="What was seen in this column is public; may be repeated."
        ),
    ] = None,
    id_column: Annotated[str, typer.Option("--id", metavar="COLUMN", help="Names the person, in every table.")] = "",
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B,..", help="The only columns to draft; default: all.")
    ] = "",
    sheet: Annotated[str, typer.Option("--sheet", metavar="NAME", help="The sheet of a workbook.")] = "",
    with_bins: Annotated[
        bool, typer.Option("--with-bins", help="Take bins from the table where an owner's alone would be measured.")
    ] = False,
    with_means: Annotated[
        bool, typer.Option("--with-means", help="Write the exact mean of the numbers in each bin, too.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Draft a study from tables at hand, with proposed types, categories and bins. Everything in it is to be reviewed: what
    stands there was seen in data, and categories must be public knowledge. Other commands refuse it until then."""
    from verticil.analyst.draft import Wording, draft_study

    wording = Wording(
        title=title,
        purpose=purpose,
        public=public,
        public_columns=tuple(public_columns or ()),
        bins=with_bins,
        means=with_means,
        id_column=id_column,
        columns=tuple(filter(None, columns.split(","))),
        sheet=sheet,
    )
    drafted = draft_study(split_pairs(tables, option="NAME=TABLE"), wording=wording)
    if out is not None:
        write_new(out, drafted.text)
    if emit({"file": str(out) if out else None, "study": drafted.text, "notes": list(drafted.notes)}, form=form):
        return
    if out is None:
        sys.stdout.write(drafted.text)
        return
    for note in drafted.notes:
        sys.stdout.write(f"note: {printable(note)}\n")
    if public:
        put(f"draft in {out}, of public tables: its categories need no review; next: verticil study check {out}")
        return
    put(f"draft in {out}; review every line marked so, set reviewed = true, then: verticil study check {out}")


@app.command(
    "submit", epilog="Example: verticil study submit study.toml --federation federation.toml --certificate lee.crt"
)
def submit(
    study: Annotated[Path, typer.Argument(metavar="FILE", help="study.toml.")],
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    form: FormatOption = Format.text,
) -> None:
    """Propose a study to the parties. Nothing is read or sent anywhere before their officers approve it."""
    from verticil.analyst.lint import refuse_hopeless
    from verticil.shared.study.reading import read_study

    document = read_study(study)
    refuse_hopeless(document)

    async def run() -> tuple[bytes, State, str]:
        async with open_connection(federation, certificate) as connection:
            return await _submit_open(connection, document)

    digest, state, other = asyncio.run(run())
    if not emit({"id": document.id, "digest": digest.hex(), "state": state.words}, form=form):
        if other:
            say(f"{other}/{document.id} is there already, submitted by {other}, {state.words}")
        else:
            put(f"submitted [bold]{document.id}[/], {state.words}")
        put(f"digest {digest.hex()}")
        if state in (State.SUBMITTED, State.AWAITING_APPROVAL):
            say("each party's officers now see it with: verticil party inbox")


async def _submit_open(connection: Connection, study: Study) -> tuple[bytes, State, str]:
    """Submit a study that has not ended: its digest, its state, and the other analyst who had submitted it before.

    Raises:
        Misuse: STUDY_OVER, it ended before; USAGE with a party's certificate.
    """
    from verticil.wire.v1.control_pb2 import GetStudyRequest

    digest, state = await submit_study(connection, study)
    request = GetStudyRequest(study_digest=digest)
    submitter = (await connection.analyst().get_study(request)).study.submitter
    return digest, state, "" if submitter == connection.identity.name else submitter


@app.command(
    "status", epilog="Example: verticil study status hearts --watch --federation federation.toml --certificate lee.crt"
)
def status(
    study_id: StudyName,
    follow: Annotated[
        bool, typer.Option("--watch", help="Show every change until it is published or has ended.")
    ] = False,
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    form: FormatOption = Format.text,
) -> None:
    """Show where a study stands: per party and stage what is done, who holds it up, and why."""
    from verticil.shared.core.errors import from_code
    from verticil.wire.v1.common_pb2 import STUDY_STATE_PUBLISHED
    from verticil.wire.v1.control_pb2 import GetStudyRequest

    progress = errors_console()

    async def run() -> StudySummary:
        async with open_connection(federation, certificate) as connection:
            control = connection.analyst()
            summary = (await control.get_study(GetStudyRequest(study_id=study_id))).study
            if not follow:
                return summary
            with contextlib.nullcontext() if form is Format.json else watch() as show:
                while summary.state < STUDY_STATE_PUBLISHED:
                    if show is not None:
                        show(summary)
                    # Progress within a stage is no new version: it is looked for every two seconds.
                    request = GetStudyRequest(
                        study_digest=summary.study_digest, known_version=summary.version, wait_seconds=_LOOK_SECONDS
                    )
                    summary = await _patient(control, request, say_once=lambda line: progress.print(line, markup=False))
            return summary

    summary = asyncio.run(run())
    if not emit(summary_payload(summary), form=form):
        print_summary(summary)
    if follow and summary.state > STUDY_STATE_PUBLISHED:
        failure = summary.failure
        error = from_code(
            failure.code or "STUDY_WITHDRAWN", failure.message or "the study has ended", hint=failure.hint
        )
        raise typer.Exit(error.exit_code)


async def _patient(control: Control, request: GetStudyRequest, say_once: Callable[[str], None]) -> StudySummary:
    """Return the answer to a request; while the miner does not answer, say so once and ask again."""
    from verticil.shared.federation.transport.errors_on_wire import retriable

    code = ""
    while True:
        try:
            return (await control.get_study(request)).study
        except VerticilError as error:
            if not retriable(error):
                raise
            if error.code != code:
                code = error.code
                say_once(f"waiting for the miner: {code}")
            await asyncio.sleep(_LOOK_SECONDS)


@app.command("list", epilog="Example: verticil study list --federation federation.toml --certificate lee.crt")
def list_studies(
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    form: FormatOption = Format.text,
) -> None:
    """List all studies that the miner knows, the newest last."""
    from verticil.shared.federation.identity.identity import Role
    from verticil.wire.v1.control_pb2 import ListStudiesRequest

    async def run() -> tuple[Role, list[StudySummary]]:
        async with open_connection(federation, certificate) as connection:
            reply = await connection.analyst().list_studies(ListStudiesRequest())
            return connection.identity.role, list(reply.studies)

    role, studies = asyncio.run(run())
    if emit({"studies": [summary_payload(study) for study in studies]}, form=form):
        return
    if not studies:
        what = "published studies" if role is Role.CONSUMER else "studies"
        advice = "; submit one with: verticil study submit FILE" if role is Role.ANALYST else ""
        say(f"no {what} yet{advice}")
    for study in studies:
        say(f"{name_study(study):30} {State(study.state).words:18} {study.study_digest.hex()[:12]}  {study.title}")
        for line in revocations(study):
            say(f"  {line}", style="red")


@app.command(
    "cancel", epilog="Example: verticil study cancel hearts --federation federation.toml --certificate lee.crt"
)
def cancel(
    study_id: StudyName,
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    form: FormatOption = Format.text,
) -> None:
    """Withdraw a study that is not yet published. What parties have sent by then stays charged in their ledgers."""
    from verticil.wire.v1.control_pb2 import CancelStudyRequest

    async def run() -> int:
        async with open_connection(federation, certificate) as connection:
            control = connection.analyst()
            digest = await find_study(connection, study_id)
            return (await control.cancel_study(CancelStudyRequest(study_digest=digest))).state

    state = asyncio.run(run())
    require_withdrawn(study_id, State(state))
    if not emit({"id": study_id, "state": State(state).words}, form=form):
        put(f"{study_id}: {State(state).words}")


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
    id_column: str | None
    seed: int | None

    @property
    def tables(self) -> dict[str, Path] | Path:
        return given_tables(self.data, self.table)


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
    id_column: Annotated[
        str | None, typer.Option("--id", help="local, compose: name of the id column; default: the draft's, else id.")
    ] = None,
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
        result = _in_the_federation(document, out, federation, certificate)
    else:
        trial_result = _on_tables(study, document, new_folder(out), trial, on=on, prepare=prepare)
        if trial_result is None:
            if not emit({"study": document.id, "on": on.value, "compose": str(out / "compose.yaml")}, form=form):
                put(f"written {out / 'compose.yaml'}; without --prepare it is also run")
            return
        result = trial_result
    payload = {
        "study": document.id,
        "on": on.value,
        "release": str(out / "release"),
        "ca_certificate": str(out / "ca.crt"),
        "common_records": result.common_records,
        "synthetic_records": result.synthetic_records,
        "seed": None if on is Place.prod else trial.seed,
    }
    if not emit(payload, form=form):
        put(f"[green]release[/] in {out / 'release'}: {result.common_records:,} common records")
        if result.worth is not None:
            print_worth(result.worth)
        say(f"verify it again: verticil release verify {out / 'release'} --ca {out / 'ca.crt'}")


def _on_tables(
    path: Path, study: Study, out: Path, trial: _Trial, *, on: Place, prepare: bool
) -> VerifiedRelease | None:
    """Return the release of a run on tables at hand; None: the files were only written."""
    from verticil.shared.release.verification import verify_release
    from verticil.shared.storage.durable import rename
    from verticil.simulation import simulate
    from verticil.simulation.containers import bring_up, engine, lay_out_containers

    with removed_if_empty(out):
        if on is Place.local:
            simulate(study, trial.tables, out=out / "release", id_column=trial.id_column, seed=trial.seed)
        else:
            tables, compose = trial.tables, () if prepare else engine(study)
            nodes = lay_out_containers(out, path, study, tables, id_column=trial.id_column, seed=trial.seed)
            if prepare:
                return None
            rename(bring_up(out, compose), out / "release")
            shutil.copyfile(nodes.ca_certificate, out / "ca.crt")
    return verify_release(out / "release", ca_certificate=(out / "ca.crt").read_bytes())


def _in_the_federation(study: Study, out: Path, federation: Path, certificate: Path) -> VerifiedRelease:
    """Submit, follow, fetch, verify."""
    from verticil.analyst.lint import refuse_hopeless
    from verticil.shared.documents.config import load_federation
    from verticil.shared.release.download import fetch_release
    from verticil.shared.release.verification import verify_release
    from verticil.simulation.analyst import follow_study

    refuse_hopeless(study)
    authority = load_federation(federation).authority()
    progress = errors_console()

    async def run() -> None:
        async with open_connection(federation, certificate) as connection:
            control = connection.analyst()
            digest, _, other = await _submit_open(connection, study)
            words = (
                f"'{other}/{study.id}' is there already, submitted by {other}" if other else f"'{study.id}' submitted"
            )
            progress.print(f"study {words}, digest {digest.hex()}", markup=False)
            await follow_study(
                control, digest, step=lambda line: progress.print(line, markup=False), patience_seconds=math.inf
            )
            await fetch_release(control, digest, folder / "release")

    with removed_if_empty(folder := new_folder(out)):
        asyncio.run(run())
    (folder / "ca.crt").write_bytes(authority)
    return verify_release(folder / "release", ca_certificate=authority)
