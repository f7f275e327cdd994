"""``verticil reproduce``: a paper's experiments, theirs beside ours. A paper's module makes its `Experiment` of the options."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from verticil.cli.output import Format, FormatOption
from verticil.experiments.randomization import Model
from verticil.reproduce.experiment import Experiment, Options, carry_out
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_experiments


class Paper(StrEnum):
    """Whose experiments."""

    ma_sivakumar = "ma-sivakumar"
    hittmeir = "hittmeir"
    privbayes = "privbayes"
    martins = "martins"
    kipps = "kipps"


_OF: Final[Mapping[str, frozenset[Paper]]] = {
    "table": frozenset(Paper) - {Paper.privbayes},
    "figure": frozenset(Paper) - {Paper.privbayes},
    "runs": frozenset({Paper.ma_sivakumar}),
    "model": frozenset({Paper.ma_sivakumar}),
    "credit_card": frozenset({Paper.hittmeir}),
    "unsw": frozenset({Paper.kipps}),
    "colorado": frozenset({Paper.privbayes}),
    "pnad": frozenset({Paper.martins}),
    "burn_in": frozenset({Paper.martins}),
    "thinning": frozenset({Paper.martins}),
    "draws": frozenset({Paper.martins}),
    "sets": frozenset({Paper.martins}),
    "quick": frozenset(Paper) - {Paper.ma_sivakumar},
    "repeats": frozenset({Paper.hittmeir, Paper.privbayes, Paper.martins}),
}
"""Option -> the papers that have it."""


def reproduce(
    paper: Annotated[
        Paper, typer.Argument(metavar="PAPER", help="ma-sivakumar, hittmeir, privbayes, martins or kipps.")
    ],
    table: Annotated[
        int | None,
        typer.Option(
            "--table", help="Only this table: ma-sivakumar 2; hittmeir 2 to 7 and 9 to 12; martins 1 to 6; kipps 1."
        ),
    ] = None,
    figure: Annotated[
        int | None,
        typer.Option(
            "--figure", help="Only this figure: ma-sivakumar 4, 5; hittmeir 1; martins 1 to 14; kipps 2 to 4."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1_000_000,
            help="ma-sivakumar: randomizations; default: 5 for table 2 and 10 for figure 4, as in the paper, 1,000 draws for "
            "figure 5.",
        ),
    ] = None,
    model: Annotated[
        Model | None,
        typer.Option(help="ma-sivakumar: central (the default) is Model II, peer Model I; peer has table 2 only."),
    ] = None,
    credit_card: Annotated[
        Path | None,
        typer.Option(
            "--credit-card",
            help="hittmeir: the Credit Card Fraud table as CSV for tables 4 and 7; without it one of its shape is made up.",
        ),
    ] = None,
    unsw: Annotated[
        Path | None,
        typer.Option("--unsw", help="kipps: UNSW-NB15's training or testing set as CSV, which is run besides."),
    ] = None,
    colorado: Annotated[
        Path | None,
        typer.Option(
            "--colorado",
            help="privbayes: Colorado's census (NIST's challenge) as CSV, with CITY, SEX and INCWAGE; else a stand-in.",
        ),
    ] = None,
    pnad: Annotated[
        Path | None,
        typer.Option(
            "--pnad",
            help="martins: people of PNAD 2023 as CSV, by PNADcIBGE's names (V1022, V2007, V2009, V2010, VD4019); else a "
            "stand-in.",
        ),
    ] = None,
    burn_in: Annotated[
        int | None,
        typer.Option(min=0, help="martins: steps of each chain before its first graph; default: a fifth of the steps."),
    ] = None,
    thinning: Annotated[
        int | None,
        typer.Option(
            min=1, help="martins: steps from one graph to the next; default: such that at most 4,000 are kept."
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="martins: M, sets of records that S1 draws; default 1,000, with --quick 500; the paper: at least 500.",
        ),
    ] = None,
    sets: Annotated[
        int | None, typer.Option(min=2, help="martins: sets of records that S2 combines; default 5, as in the paper.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="All but ma-sivakumar: few records and runs, to see that it runs.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="hittmeir: how often classifiers are trained in tables 5 to 7, 11 and 12; default: as in the paper, 10 random "
            "splits of Contraceptive Method Choice, and once on the others; privbayes: seeds of noise, default 5; martins: data "
            "sets of each scenario, default 10.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the data sets, the keys and the searches.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for numbers.json and the figures; default: where there are figures, a new one here."),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Run a paper's experiments through this program's own methods, and print theirs beside ours.

    ma-sivakumar: data drawn from the paper's networks; nobody's records are involved. hittmeir: two public data sets, and a third
    where you have it; whole, it takes a quarter of an hour of CPU time. privbayes: PrivBayes beside other ways to synthetic
    records, on a public survey, by the scores of NIST's challenge. martins: networks sampled from their posterior, and how sure
    synthetic records can be of a statistic. kipps: a private generator that knows rules, its comparators and networks, by
    likeness, classifiers and attacks; needs torch (extra gan), and takes a quarter of an hour of CPU time whole.
    """
    options = Options(
        table=table,
        figure=figure,
        runs=runs,
        model=model,
        credit_card=credit_card,
        unsw=unsw,
        colorado=colorado,
        pnad=pnad,
        burn_in=burn_in,
        thinning=thinning,
        draws=draws,
        sets=sets,
        quick=quick,
        repeats=repeats,
        seed=seed,
    )
    _check_whose(paper, options)
    if paper is Paper.kipps and find_spec("torch") is None:
        raise Misuse("USAGE", f"reproduce {paper.value} needs torch", hint=install_experiments("gan"))
    experiment: Experiment[Any] = import_module(f"verticil.reproduce.{paper.name}").experiment(options)
    carry_out(experiment, seed=seed, out=out, form=form)


def _check_whose(paper: Paper, options: Options) -> None:
    """Refuse an option of another paper.

    Raises:
        Misuse: USAGE.
    """
    for name, papers in _OF.items():
        if getattr(options, name) not in {None, False} and paper not in papers:
            of = ", ".join(each.value for each in Paper if each in papers)
            raise Misuse("USAGE", f"--{name.replace('_', '-')} is of {of}, got {paper.value}", hint="leave it out")
