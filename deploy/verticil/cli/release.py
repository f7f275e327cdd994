"""``verticil release``: fetch a published release, verify it, draw more synthetic rows from it."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.budget_text import cost_text
from verticil.cli.connection import CertificateOption, FederationOption, StudyName, find_study, open_connection
from verticil.cli.output import Format, FormatOption, emit, put, say
from verticil.cli.study_status import revocations
from verticil.shared.errors import Misuse
from verticil.shared.knowledge.raking import raked
from verticil.shared.model.schema import Schema

if TYPE_CHECKING:
    from verticil.shared.model.joint import JointModel
    from verticil.shared.model.network import Network
    from verticil.shared.release.verification import VerifiedRelease
    from verticil.shared.release.within_bins import Tilts
    from verticil.shared.study.document import Sampling, Study

app = typer.Typer(no_args_is_help=True)


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
    from verticil.shared.transport.fetch import fetch_release
    from verticil.wire.v1.control_pb2 import GetStudyRequest

    async def run() -> list[str]:
        async with open_connection(federation, certificate) as connection:
            digest = await find_study(connection, study_id)
            source = connection.control or connection.coordinator
            assert source is not None
            await fetch_release(source, digest, out)
            if connection.control is None:
                return []
            found = await connection.control.get_study(GetStudyRequest(study_digest=digest))
            return revocations(found.study)

    revoked = asyncio.run(run())
    files = sorted(path.name for path in out.iterdir())
    if not emit({"release": str(out), "files": files, "revocations": revoked}, form=form):
        for line in revoked:
            say(line, style="red")
        put(f"release in {out}\nnext: verticil release verify {out} --ca CA_CERTIFICATE")


def _print_verified(verified: VerifiedRelease) -> None:
    signed = (
        f"{verified.statements} parties' signed parameters" if verified.statements else f"{verified.receipts} receipts"
    )
    evidence = "the plan of the round" if verified.opened else signed
    put(f"[green]verified[/]: {len(verified.files)} files and {evidence}, signed by {', '.join(verified.signers)}")
    put(f"study {verified.study_id}, digest {verified.study_digest}, published {verified.published_at}")
    if verified.left_out:
        say(f"a sub-model: the study went on without {', '.join(verified.left_out)}")
    if verified.countersigned_by:
        put(f"countersigned before publication by {', '.join(verified.countersigned_by)}")
    for account in verified.accounts:
        cost = cost_text(account.cost.epsilon, account.cost.delta)
        say(f"one person, all of it, for {account.reader.words}: {cost}")
    if verified.opened:
        say(f"opened tables {verified.opened}: what every party got, and compares before it countersigns")
    for words in (
        *(f"the opened tables do not fit together: {words}" for words in verified.alarms),
        *verified.revoked_later,
    ):
        say(words, style="yellow")
    if verified.chains_agree is not None:
        agree = "the chains that sampled graphs agree"
        disagree = (
            "the chains that sampled graphs do not agree: take the probabilities of edges and the sets for no posterior"
        )
        say(agree if verified.chains_agree else disagree, style="" if verified.chains_agree else "yellow")
    if verified.exact_parameters:
        say("the parameters are exact functions of raw data: no differential privacy protects them", style="yellow")
    if verified.simulation:
        say("this release comes from a simulation: whoever ran it held all the tables")
    if verified.seed_derived:
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
        bool, typer.Option("--strict", help="Exit 6 also where graphs were sampled and the chains do not agree.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Check every file, the signature and its chain. With neither --ca nor --fingerprint: consistency only, and exit 6."""
    from verticil.shared.membership.revocation import FILE_NAME
    from verticil.shared.release.verification import verify_release

    if revoked is None and ca is not None and ca.with_name(FILE_NAME).is_file():
        revoked = ca.with_name(FILE_NAME)
    for path in (ca, revoked):
        if path is not None and not path.is_file():
            raise Misuse("FILE_MISSING", f"{path}: no such file")
    verified = verify_release(
        folder,
        ca_certificate=ca.read_bytes() if ca else None,
        fingerprint=fingerprint,
        revoked=revoked.read_bytes() if revoked else None,
    )
    payload = {
        "verified": True,
        "study": verified.study_id,
        "study_digest": verified.study_digest,
        "effective_digest": verified.effective_digest,
        "publisher": verified.publisher,
        "publisher_sha256": verified.publisher_sha256,
        "signers": list(verified.signers),
        "authority_sha256": verified.authority_sha256,
        "published_at": verified.published_at,
        "common_records": verified.n_common,
        "synthetic_records": verified.synthetic_records,
        "epsilon_per_person": verified.epsilon_per_person,
        **({"accounts": [item.document() for item in verified.accounts]} if verified.accounts else {}),
        "receipts": verified.receipts,
        "statements": verified.statements,
        "opened_tables_sha256": verified.opened or None,
        "alarms": list(verified.alarms),
        "countersigned_by": list(verified.countersigned_by),
        "parties_left_out": list(verified.left_out),
        "deny_list": None if revoked is None else str(revoked),
        "revoked_later": list(verified.revoked_later),
        "exact_parameters": verified.exact_parameters,
        **({} if verified.chains_agree is None else {"chains_agree": verified.chains_agree}),
        "simulation": verified.simulation,
        "seed_derived": verified.seed_derived,
        "files": list(verified.files),
    }
    if not emit(payload, form=form):
        _print_verified(verified)
    if strict and verified.chains_agree is False:
        raise typer.Exit(6)


@app.command("sample", epilog="Example: verticil release sample hearts -n 10000 --seed 1 --out more.csv")
def sample(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The release folder; its models are read, and nothing is verified.")
    ],
    n: Annotated[int, typer.Option("-n", "--records", min=1, max=100_000_000, help="How many synthetic records.")],
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same records.")] = 0,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path("synthetic.csv"),
    given: Annotated[
        list[str] | None,
        typer.Option("--given", metavar="VARIABLE=CATEGORY", help="Only people with this category; once per variable."),
    ] = None,
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
    """Draw synthetic records from a release's joint model or network, a million at a time.

    With --given they are drawn from the exact conditional distribution (of the consensus, where graphs were sampled): none is
    drawn and thrown away.
    """
    import numpy as np

    from verticil.shared.formats import model_json
    from verticil.shared.formats.tables import write_csv, write_parquet
    from verticil.shared.release.synthesis import decode, sample_chunks

    if out.suffix not in {".csv", ".parquet"}:
        raise Misuse("USAGE", f"--out: got '{out.name}', expected a name that ends with .csv or .parquet")
    if out.exists():
        raise Misuse(
            "FILE_EXISTS", f"{out}: exists already and is not overwritten", hint="name another file with --out"
        )
    model = folder / "model.json"
    if not model.is_file():
        raise Misuse("FILE_MISSING", f"{model}: no such file", hint="give the folder of a release")
    document = model.read_bytes()
    network = model_json.read(document)
    other = source in {SourceChoice.network, SourceChoice.posterior}
    joint = None if other else model_json.read_joint(document, network.schema)
    sampled = _sampled(folder, source, given=bool(given))
    if source is SourceChoice.joint and joint is None:
        raise Misuse("USAGE", f"--from joint: {folder} has no joint model", hint="leave it out: the network is there")
    evidence, study = _evidence(network.schema, given or []), _study(folder)
    knowledge, support = (None, None) if study is None else (study.knowledge, study.support())
    method: Sampling = sampling.value
    generator = np.random.Generator(np.random.PCG64(seed))
    try:
        sources = sampled or (joint or network,)
        made_by = [raked(each, support) for each in sources]
        sizes = [len(range(place, n, len(sources))) for place in range(len(sources))]
        tables = (
            decode(network.schema, codes, generator, knowledge=knowledge, tilts=_tilts(each, study))
            for each, by, size in zip(sources, made_by, sizes, strict=True)
            if size
            for codes in sample_chunks(each, size, generator=generator, given=evidence, method=method, support=by)
        )
        (write_csv if out.suffix == ".csv" else write_parquet)(tables, out)
    except ValueError as error:
        where = "--given" if evidence else f"--sampling {sampling.value}"
        raise Misuse("USAGE", f"{where}: {error}", hint="ask for less at once, or for what can be") from None
    n_columns = len(network.schema) + (0 if knowledge is None else len(knowledge.functions))
    payload = {
        "file": str(out),
        "records": n,
        "columns": n_columns,
        "seed": seed,
        "sampling": sampling.value,
        **({"from": "posterior"} if sampled else {} if joint is None else {"from": "joint"}),
    }
    if not emit(payload, form=form):
        put(f"{n} synthetic records of {n_columns} columns in {out} (seed {seed})")


def _study(folder: Path) -> Study | None:
    """The study of a release; None: model.json lies there alone."""
    from verticil.shared.study import canonical

    path = folder / "study.json"
    return canonical.from_bytes(path.read_bytes(), source=path.name, wire=False) if path.is_file() else None


def _tilts(source: Network | JointModel, study: Study | None) -> Tilts:
    """How numbers of the source lie inside bins, where the study has that estimated."""
    from verticil.shared.model.joint import JointModel
    from verticil.shared.release.within_bins import tilts_of

    return {} if study is None or isinstance(source, JointModel) else tilts_of((source,), study)


def _sampled(folder: Path, source: SourceChoice | None, *, given: bool) -> tuple[Network, ...]:
    """The networks of a posterior that records come from; none: they come from the joint model or the one network."""
    from verticil.shared.formats import posterior

    there = (folder / posterior.FILE).is_file()
    if source is None and there and not given:
        study = _study(folder)
        return posterior.read_networks(folder) if study is not None and study.records_from == "posterior" else ()
    if source is not SourceChoice.posterior:
        return ()
    if not there:
        raise Misuse(
            "USAGE", f"--from posterior: {folder} has no {posterior.FILE}", hint="leave it out: the network is there"
        )
    if given:
        raise Misuse(
            "USAGE",
            "--given with --from posterior: the networks give the categories different chances, so equal parts of each are no "
            "records of people who have them",
            hint="use --from network, the consensus",
        )
    return posterior.read_networks(folder)


def _evidence(schema: Schema, given: Sequence[str]) -> dict[int, int]:
    """Variable -> code of each ``VARIABLE=CATEGORY``; a variable's name may hold an equals sign, its longest match counts."""
    evidence: dict[int, int] = {}
    for text in given:
        names = [name for name in schema.names if text.startswith(f"{name}=")]
        if not names:
            near = difflib.get_close_matches(text.partition("=")[0], schema.names, 1)
            hint = f"did you mean '{near[0]}'?" if near else "expected VARIABLE=CATEGORY"
            raise Misuse("USAGE", f"--given: '{text}': no such variable in this release", hint=hint)
        name = max(names, key=len)
        position, label = schema.index(name), text[len(name) + 1 :]
        labels = schema[position].labels
        if label not in labels:
            near = difflib.get_close_matches(label, labels, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"its categories are {', '.join(labels[:20])}"
            raise Misuse("USAGE", f"--given: '{label}' is not a category of '{name}'", hint=hint)
        if position in evidence:
            raise Misuse("USAGE", f"--given: '{name}' is given twice, expected once")
        evidence[position] = labels.index(label)
    return evidence
