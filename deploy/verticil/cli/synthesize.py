"""``verticil synthesize``: synthetic records of a whole table that one organisation holds."""

from __future__ import annotations

import dataclasses
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verticil.cli.budget_text import cost_text
from verticil.cli.output import Format, FormatOption, emit, errors_console, plain_table, put, say
from verticil.pki.files import free_folder
from verticil.shared.core.errors import Misuse
from verticil.shared.privacy.accounts import Cost

if TYPE_CHECKING:
    from verticil.curator import Synthesized
    from verticil.curator.spending import Spending
    from verticil.gan.settings import AnySettings


class MethodChoice(StrEnum):
    """What records are drawn from."""

    joint = "joint"
    network = "network"
    privbayes = "privbayes"
    posterior = "posterior"
    kipps = "kipps"


class GeneratorChoice(StrEnum):
    """Which generator `--method kipps` trains; the names of `verticil.gan.settings.GENERATORS`."""

    gan = "gan"
    vae = "vae"


class RuleLossChoice(StrEnum):
    """What a broken rule costs the adversarial generator; see `verticil.gan.settings.Settings`."""

    head = "head"
    holds = "holds"


def synthesize_command(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV or Parquet: one row for each person.")],
    study: Annotated[
        Path, typer.Option(help="study.toml: columns with their categories and bins, which are public knowledge.")
    ],
    epsilon: Annotated[
        float | None, typer.Option(help="Of all that is published, for each person; default: the study's, else 1.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="With it; default: the study's, else 1e-9.")] = None,
    method: Annotated[
        MethodChoice,
        typer.Option(
            help="Draw from the joint model of all noisy tables, from the network, by PrivBayes, or from a posterior of graphs: "
            "with --epsilon inf of the records as they are, with no bound at all. Or, with torch, by the "
            "generator of KIPPS: records and a statement, and no release."
        ),
    ] = MethodChoice.joint,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Another one is another measurement, and charged; default: the study's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to make for the signed release, or a .csv or .parquet file for the records alone; default: "
            "verticil-synthetic, or the next free number."
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Names the person: no two rows may have the same.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name by which epsilon is added up; default: the file's, without its ending.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder of secret, ledger and keys; default: verticil-curator beside TABLE.")
    ] = None,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Most epsilon that all releases of the data set may cost together.")
    ] = math.inf,
    compare: Annotated[
        bool, typer.Option("--compare", help="Distances of each method to the table itself, for your eyes only.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 6 where graphs were sampled and the chains do not agree.")
    ] = False,
    generator: Annotated[
        GeneratorChoice | None,
        typer.Option(
            help="kipps: gan, the paper's adversarial network (the default), or vae, an autoencoder that knows the same rules "
            "and is nearer in tables of two columns."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="kipps: steps of the training; default: 1,500.")
    ] = None,
    rule_weight: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1e6,
            help="kipps: weight of the rules in the loss, 0 for none; default: 1 with gan, 10 with vae.",
        ),
    ] = None,
    rule_loss: Annotated[
        RuleLossChoice | None,
        typer.Option(
            help="kipps, gan: head, as it was (the default), or holds, the loss of vae: nearer, and rules are broken less often."
        ),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """What one owner of the whole table would publish: synthetic records, with one bound for everything together.

    Noise is drawn once, on tables of the columns; all else follows from the noisy tables. The same table, study and seed
    again give the same release and cost nothing, also with another method.
    """
    from verticil.curator import synthesize

    if method.value == "kipps" and (compare or strict):
        raise Misuse(
            "USAGE",
            f"--{'compare' if compare else 'strict'} does not go with --method kipps",
            hint="leave it out: there is neither a network to compare nor a chain",
        )
    of_kipps = {"--generator": generator, "--steps": steps, "--rule-weight": rule_weight, "--rule-loss": rule_loss}
    if method.value != "kipps" and (named := [name for name, value in of_kipps.items() if value is not None]):
        raise Misuse(
            "USAGE",
            f"{named[0]} goes with --method kipps, and the method is {method.value}",
            hint=f"leave {named[0]} out, or add --method kipps",
        )
    if method.value == "posterior" and epsilon is None and not _states_tables(study):
        raise Misuse(
            "USAGE",
            "--method posterior without --epsilon: graphs would be sampled from the records as they are, and no bound would hold",
            hint="--epsilon inf says that this is meant; --epsilon 1 samples from noisy tables",
        )
    progress = errors_console()

    def told(line: str) -> None:
        progress.print(line, markup=False)

    if method.value == "kipps":
        _by_generator(
            table,
            study,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            out=out or free_folder("verticil-synthetic"),
            state=state,
            dataset=dataset,
            id_column=id_column,
            budget=Cost(epsilon=budget, delta=math.inf),
            settings=_settings(generator or GeneratorChoice.gan, steps, rule_weight, rule_loss),
            step=told,
            form=form,
        )
        return
    found = synthesize(
        table,
        study,
        epsilon=epsilon,
        delta=delta,
        method=method.value,
        seed=seed,
        out=out or free_folder("verticil-synthetic"),
        state=state,
        dataset=dataset,
        id_column=id_column,
        budget=Cost(epsilon=budget, delta=math.inf),
        compare=compare,
        step=told,
    )
    if not emit(_document(found), form=form):
        _print(found)
    if strict and found.chains_agree is False:
        raise typer.Exit(6)


def _settings(
    generator: GeneratorChoice, steps: int | None, rule_weight: float | None, rule_loss: RuleLossChoice | None = None
) -> AnySettings:
    """Return the usual settings of a generator, with what is asked for in place of the usual.

    Raises:
        Misuse: USAGE, the generator has no choice of the loss.
    """
    from verticil.gan.settings import GENERATORS, AutoencoderSettings

    usual = GENERATORS[generator.value]()
    if rule_loss is not None:
        if isinstance(usual, AutoencoderSettings):
            raise Misuse(
                "USAGE", "--rule-loss goes with --generator gan, and the generator is vae", hint="leave --rule-loss out"
            )
        usual = dataclasses.replace(usual, rule_loss=rule_loss.value)
    return dataclasses.replace(
        usual,
        steps=usual.steps if steps is None else steps,
        rule_weight=usual.rule_weight if rule_weight is None else rule_weight,
    )


def _states_tables(study: Path) -> bool:
    """Whether the study itself says what noise its tables get."""
    from verticil.shared.study.reading import read_study

    return read_study(study, by_owner=True).tables is not None


def _by_generator(table: Path, study: Path, *, form: Format, **asked: Any) -> None:
    """Make and show records of a generator."""
    from verticil.curator.kipps import generate, violations

    found = generate(table, study, **asked)
    rules = violations(found.sampled)
    document = {
        "out": str(found.out),
        "records": len(found.records),
        "people": found.n_records,
        "method": "kipps",
        "generator": found.generator,
        "cost": _cost(found.spending.cost),
        "charged": not found.spending.again,
        "charged_at": f"{found.spending.at:%Y-%m-%dT%H:%M:%SZ}",
        "in_all": _cost(found.spending.total),
        "earlier": list(found.spending.others),
        "warnings": list(found.warnings),
        "rules": rules,
    }
    if emit(document, form=form):
        return
    for warning in found.warnings:
        say(f"warning: {warning}", style="yellow")
    put(f"{len(found.records)} synthetic records of {found.n_records} people in ", end="")
    say(str(found.out))
    _print_cost(found.spending)
    say(f"rules: {rules['left_out']} of {rules['drawn']} drawn records broke one and were left out; none of these does")
    for name, times in found.sampled.violated.items():
        if times:
            say(f"  {name}: {times}")


def _print_cost(spending: Spending) -> None:
    cost, total = (cost_text(item.epsilon, item.delta) for item in (spending.cost, spending.total))
    charged = f"charged before, on {spending.at:%Y-%m-%d}: nothing was spent again" if spending.again else "charged now"
    say(f"each person, for everything in it together: {cost} ({charged}); this data set in all: {total}")


def _document(found: Synthesized) -> dict[str, object]:
    from verticil.analyst.prediction import predicted

    spending, prediction = found.spending, predicted(found.study, found.n_records)
    return {
        "out": str(found.out),
        "records": len(found.records),
        "people": found.n_records,
        "study": {
            "structure": {"method": found.study.structure.method},
            "release": {"sample_from": found.study.records_from},
        },
        "changes": list(found.changes),
        "cost": _cost(spending.cost),
        "charged": not spending.again,
        "charged_at": f"{spending.at:%Y-%m-%dT%H:%M:%SZ}",
        "in_all": _cost(spending.total),
        "earlier": list(spending.others),
        "warnings": list(found.warnings),
        "chains_agree": found.chains_agree,
        "predicted_distance": None if prediction is None else dataclasses.asdict(prediction),
        **(
            {}
            if found.comparison is None
            else {
                "comparison_without_noise": [
                    {
                        "method": row.method,
                        "distances": [
                            {"ways": item.ways, "mean": item.mean, "worst": item.worst} for item in row.distances
                        ],
                    }
                    for row in found.comparison
                ]
            }
        ),
    }


def _cost(cost: Cost) -> dict[str, float | None]:
    """For a document: null where there is no bound."""
    return {"epsilon": cost.epsilon if math.isfinite(cost.epsilon) else None, "delta": cost.delta}


def _print(found: Synthesized) -> None:
    from verticil.analyst.prediction import predicted, prediction_text

    for warning in found.warnings:
        say(f"warning: {warning}", style="yellow")
    put("the study that was carried out:")
    for line in found.changes:
        say(f"  {line}")
    put(f"{len(found.records)} synthetic records of {found.n_records} people in ", end="")
    say(str(found.out))
    _print_cost(found.spending)
    if (prediction := predicted(found.study, found.n_records)) is not None:
        say(f"predicted distance to so many people, whoever they are: {prediction_text(prediction)}")
    if found.comparison is not None:
        shown = plain_table("drawn from", right=("2-way", "worst", "3-way", "worst"))
        for row in found.comparison:
            shown.add_row(row.method, *(f"{n:.4f}" for item in row.distances for n in (item.mean, item.worst)))
        put("total variation distance to the table itself, which no noise covers: for your eyes only")
        put(shown)
    if found.out is not None and found.out.is_dir():
        say(f"next: verticil release verify {found.out / 'release'} --ca {found.out / 'ca.crt'}")
