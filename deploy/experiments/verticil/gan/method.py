"""``verticil synthesize --method kipps``: the generator as the command line has it (entry point of ``verticil.generators``)."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated, Final

import typer

from verticil.curator.generators import Generator, GeneratorResult, Request
from verticil.gan.settings import GENERATORS, AnySettings, AutoencoderSettings
from verticil.shared.core.errors import Misuse


class GeneratorChoice(StrEnum):
    """Which generator `--method kipps` trains; the names of `verticil.gan.settings.GENERATORS`."""

    gan = "gan"
    vae = "vae"


class RuleLossChoice(StrEnum):
    """What a broken rule costs the adversarial generator; see `verticil.gan.settings.Settings`."""

    head = "head"
    holds = "holds"


def generate_records(
    request: Request,
    *,
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
            help="kipps, gan: head, the paper's loss (the default), or holds, the loss of vae: nearer, with fewer broken rules."
        ),
    ] = None,
) -> GeneratorResult:
    """Make the records of a request by the generator of KIPPS.

    Raises:
        Misuse: USAGE, the generator has no choice of the loss; and as `verticil.gan.generate.generate`.
    """
    from verticil.gan.generate import generate, violations

    result = generate(
        request.table,
        request.study,
        epsilon=request.epsilon,
        delta=request.delta,
        seed=request.seed,
        out=request.out,
        state=request.state,
        dataset=request.dataset,
        id_column=request.id_column,
        budget=request.budget,
        settings=settings_of(generator or GeneratorChoice.gan, steps, rule_weight, rule_loss),
        step=request.step,
    )
    rules = violations(result.sampled)
    broken = [f"  {name}: {times}" for name, times in result.sampled.violated.items() if times]
    return GeneratorResult(
        records=len(result.records),
        people=result.n_records,
        spending=result.spending,
        out=request.out,
        warnings=result.warnings,
        facts={"generator": result.generator, "rules": rules},
        lines=(
            f"rules: {rules['left_out']} of {rules['drawn']} drawn records broke one and were left out; none of these does",
            *broken,
        ),
    )


def settings_of(
    generator: GeneratorChoice, steps: int | None, rule_weight: float | None, rule_loss: RuleLossChoice | None = None
) -> AnySettings:
    """Return the usual settings of a generator, with what is asked for in place of the usual.

    Raises:
        Misuse: USAGE, the generator has no choice of the loss.
    """
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


METHOD: Final = Generator(
    help="kipps, with torch: the generator of that paper makes records and a statement, and no release.",
    generate=generate_records,
)
