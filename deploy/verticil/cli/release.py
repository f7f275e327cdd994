"""``verticil release``: fetch a published release, verify it, ask it, draw more synthetic rows from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.budget_text import cost_text
from verticil.cli.connection import CertificateOption, FederationOption, StudyName
from verticil.cli.output import Format, FormatOption, emit, plain_table, put, say, telling
from verticil.cli.release_estimates import regress, tabulate
from verticil.cli.worth_text import print_worth
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.progress import Meter

if TYPE_CHECKING:
    from verticil.shared.numerics.model.schema import Schema
    from verticil.shared.privacy.statement import AccountStatement
    from verticil.shared.release.verification import VerifiedRelease
    from verticil.shared.study.document import Source

app = typer.Typer(no_args_is_help=True)

UNNOTICED = "a miner that moves people in every cross table and keeps all margins, 300 say, is not noticed by any party"
"""What a release of masked tables does not say of itself."""


class SamplingChoice(StrEnum):
    """`Sampling` for the command line."""

    systematic = "systematic"
    independent = "independent"
    without_replacement = "without-replacement"


class SourceChoice(StrEnum):
    """`Source` for the command line."""

    joint = "joint"
    network = "network"
    posterior = "posterior"


GivenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--given",
        metavar="VARIABLE=CATEGORY",
        help="Only people with this category, or with a number in its bin; once per variable.",
    ),
]


@app.command(
    "fetch",
    epilog="Example: verticil release fetch hearts --out hearts --federation federation.toml --certificate lee.crt",
)
def fetch(
    study_id: StudyName,
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    federation: FederationOption = Path("federation.toml"),
    certificate: CertificateOption = Path("analyst.crt"),
    form: FormatOption = Format.text,
) -> None:
    """Fetch the release of a study; parties, analysts and consumers may."""
    from verticil.analyst.federation import find_study, open_connection
    from verticil.shared.documents.config import load_federation
    from verticil.shared.pages.study_status import revocations
    from verticil.shared.release.download import fetch_release
    from verticil.wire.v1.control_pb2 import GetStudyRequest

    async def run() -> list[str]:
        async with open_connection(federation, certificate) as connection:
            digest = await find_study(connection, study_id)
            source = connection.control or connection.coordinator
            assert source is not None
            await fetch_release(source, digest, out)
            if connection.control is None:
                return []
            reply = await connection.control.get_study(GetStudyRequest(study_digest=digest))
            return revocations(reply.study)

    revocation_lines = asyncio.run(run())
    files = sorted(path.name for path in out.iterdir())
    if not emit({"release": str(out), "files": files, "revocations": revocation_lines}, form=form):
        for line in revocation_lines:
            say(line, style="red")
        put(f"release in {out}\nnext: verticil release verify {out} --ca {load_federation(federation).ca_certificate}")


def _both(account: AccountStatement) -> str:
    """Return what an account costs a person who is replaced and, where tables have noise, one who is added or removed instead."""
    cost, beside = cost_text(account.cost.epsilon, account.cost.delta), account.beside
    if beside is None:
        return cost
    return (
        f"{cost} if the person is replaced; {cost_text(beside.epsilon, beside.delta)} if the person is added or removed "
        "(the noise on tables)"
    )


def _print_verified(result: VerifiedRelease) -> None:
    has_one_owner = result.statements == 1
    signed = f"{result.receipts} receipts"
    if result.statements:
        signed = "the owner's signed parameters" if has_one_owner else f"{result.statements} parties' signed parameters"
    evidence = "the plan of the round" if result.opened_tables_sha256 else signed
    put("[green]verified[/]: ", end="")
    say(f"{len(result.files)} files and {evidence}, signed by {', '.join(result.signers)}")
    say(f"study {result.study}, digest {result.study_digest}, published {result.published_at}")
    if result.parties_left_out:
        say(f"a sub-model: the study went on without {', '.join(result.parties_left_out)}")
    if result.countersigned_by:
        say(f"countersigned before publication by {', '.join(result.countersigned_by)}")
    for account in result.accounts:
        if has_one_owner and account.reader.name == "columns":  # nobody else reads any
            continue
        say(f"one person, all of it, for {account.reader.words}: {_both(account)}")
    if result.opened_tables_sha256:
        say(f"opened tables {result.opened_tables_sha256}: what every party got, and compares before it countersigns")
        say(UNNOTICED, style="dim")
    for words in (
        *(f"the opened tables do not fit together: {words}" for words in result.alarms),
        *result.revoked_later,
    ):
        say(words, style="yellow")
    if result.chains_agree is not None:
        agree = "the chains that sampled graphs agree"
        disagree = (
            "the chains that sampled graphs do not agree: take the probabilities of edges and the sets for no posterior"
        )
        say(agree if result.chains_agree else disagree, style="" if result.chains_agree else "yellow")
    for words in result.posterior_remarks or ():
        say(words, style="yellow")
    if result.exact_parameters:
        say("the parameters are exact functions of raw data: no differential privacy protects them", style="yellow")
    if result.simulation:
        say("this release comes from a simulation: the person who ran it held all the tables")
    if result.seed_derived:
        say("the sites' secrets were derived from a seed: the noise can be computed again", style="yellow")


@app.command("verify", epilog="Example: verticil release verify hearts --ca ca.crt")
def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The release folder.")],
    ca: Annotated[Path | None, typer.Option(help="Certificate of the federation's authority.")] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="SHA-256 of the authority's or the signer's certificate, in hex.")
    ] = None,
    revoked: Annotated[
        Path | None, typer.Option(help="The federation's deny-list; revoked.crl beside the --ca file unless given.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit 6 also where sampled chains do not agree, or masked tables do not fit together."
        ),
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Check every file, the signature and its chain. Without --ca and --fingerprint: only that files fit together; exit 6."""
    from verticil.shared.release.verification import verify_release_with

    result, deny_list = verify_release_with(folder, ca=ca, fingerprint=fingerprint, revoked=revoked)
    payload = {**result.document(), "deny_list": None if deny_list is None else str(deny_list)}
    if not emit(payload, form=form):
        _print_verified(result)
        if result.worth is not None:
            print_worth(result.worth)
    if strict and (result.alarms or result.chains_agree is False):
        raise typer.Exit(6)


@app.command("sample", epilog="Example: verticil release sample hearts -n 10000 --seed 1 --out more.csv")
def sample(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The release folder; its models are read, and nothing is verified.")
    ],
    n: Annotated[int, typer.Option("-n", "--records", min=1, max=100_000_000, help="Number of synthetic records.")],
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same records.")] = 0,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path("synthetic.csv"),
    given: GivenOption = None,
    sampling: Annotated[
        SamplingChoice,
        typer.Option(help="Rounded within each parent configuration, drawn one by one, or dealt out of histograms."),
    ] = SamplingChoice.systematic,
    source: Annotated[
        SourceChoice | None,
        typer.Option(
            "--from",
            help="The joint model, the network, or the networks of a posterior in equal parts; what the release's own records "
            "come from unless given.",
        ),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Draw synthetic records from a release's joint model or network, a million at a time; standard error says how far it is.

    With --given they are drawn from the exact conditional distribution (of the consensus, where graphs were sampled): none is
    drawn and thrown away.
    """
    from verticil.shared.numerics.knowledge.columns import columns
    from verticil.shared.release.drawing import draw_record_tables, open_models
    from verticil.shared.release.formats.table_files import write_table
    from verticil.shared.storage.disk import check_place

    if out.suffix.lower() not in {".csv", ".parquet"}:
        raise Misuse("USAGE", f"--out: got '{out.name}', expected a name that ends with .csv or .parquet")
    if out.exists():
        raise Misuse(
            "FILE_EXISTS", f"{out}: exists already and is not overwritten", hint="name another file with --out"
        )
    check_place(out)
    models = open_models(folder)
    source_name: Source | None = None if source is None else source.value
    with _options_named():
        tables = draw_record_tables(
            models,
            n,
            seed=seed,
            given=_parse_given(models.schema, given or []),
            sampling=sampling.value,
            source=source_name,
        )
        with telling(form) as tell:
            meter = Meter("drawing and writing records", n, tell, every_seconds=2)
            knowledge = None if models.study is None else models.study.knowledge
            identifier = None if models.study is None else models.study.identifier
            written = columns(knowledge, models.schema).published
            write_table(meter.over(tables), out, schema=written, identifier=identifier)
        drawn_from = models.source(source_name, given=bool(given))
    n_columns = len(written) + (identifier is not None)
    payload = {
        "file": str(out),
        "records": n,
        "columns": n_columns,
        "seed": seed,
        "sampling": sampling.value,
        **({} if drawn_from == "network" else {"from": drawn_from}),
    }
    if not emit(payload, form=form):
        put(f"{n} synthetic records of {n_columns} columns in {out} (seed {seed})")


@app.command("query", epilog="Example: verticil release query hearts smoker --given sex=female --given age=37")
def ask(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The release folder; its models are read, and nothing is verified.")
    ],
    target: Annotated[str, typer.Argument(metavar="VARIABLE", help="Whose categories are asked for.")],
    given: GivenOption = None,
    source: Annotated[
        SourceChoice | None,
        typer.Option(
            "--from", help="The joint model or the network; what the release's own records come from unless given."
        ),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Say how probable each category of a variable is, for all people or for those whom --given selects, with an interval.

    Exact, nothing is drawn. Intervals are conditional on the network's structure, as all of a release are.
    """
    from verticil.shared.release.drawing import open_models
    from verticil.shared.release.query import query

    models = open_models(folder)
    with _options_named():
        answer = query(
            models, target, _parse_given(models.schema, given or []), source=None if source is None else source.value
        )
    if emit(answer.to_dict(), form=form):
        return
    condition = ", ".join(f"{name} = {label}" for name, label in answer.given.items())
    say(
        f"{target} of people with {condition} ({100 * answer.given_probability:.3g} % of all)"
        if condition
        else f"{target} of all"
    )
    table = plain_table("category", right=("probability", "network", f"{100 * answer.interval_level:g} % interval"))
    for share in answer.shares:
        interval = "-" if share.interval is None else "{:.4f} to {:.4f}".format(*share.interval)
        network = "-" if share.network is None else f"{share.network:.4f}"
        table.add_row(share.category, f"{share.probability:.4f}", network, interval)
    put(table)
    model = "joint model" if answer.source == "joint" else "network"
    interval = "none" if answer.interval == "none" else "of the network, conditional on its structure"
    say(f"probability: of the {model}; interval: {interval}", style="dim")
    if answer.outside is not None:
        say(f"outside of its interval: {answer.outside}", style="dim")
    if answer.too_wide is not None:
        alone = answer.shares[0].network is None
        what = "the joint model answers alone: the network" if alone else "the delta method"
        say(f"{what} is too wide: {answer.too_wide}", style="dim")


app.command("regress", epilog="Example: verticil release regress hearts \"claims == '1' ~ smoker\"")(regress)
app.command("tabulate", epilog="Example: verticil release tabulate hearts smoker claims")(tabulate)


@contextlib.contextmanager
def _options_named() -> Generator[None]:
    """Name what is wrong by the option that asked for it."""
    try:
        yield
    except Misuse as error:
        word = error.message.split(":")[0].split(" ")[0]
        options = {"given": "--given", "source": "--from", "sampling": "--sampling", "target": "VARIABLE"}
        raise Misuse(error.code, options.get(word, word) + error.message[len(word) :], hint=error.hint) from None


def _parse_given(schema: Schema, texts: Sequence[str]) -> dict[str, object]:
    """Variable -> category of each ``VARIABLE=CATEGORY``; a variable's name may hold an equals sign, its longest match counts."""
    conditions: dict[str, object] = {}
    for text in texts:
        names = [name for name in schema.names if text.startswith(f"{name}=")]
        name = max(names, key=len) if names else text.partition("=")[0]
        if name in conditions:
            raise Misuse("USAGE", f"given: '{name}' is given twice, expected once")
        if not names and "=" not in text:
            raise Misuse("USAGE", f"given: '{text}', expected VARIABLE=CATEGORY")
        conditions[name] = text[len(name) + 1 :]
    return conditions
