"""``verticil reproduce martins``: Martins, Gonçalves & Galletti's tables and figures, theirs beside ours."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from verticil.cli.output import put, say
from verticil.experiments.figures import Form
from verticil.experiments.martins import experiment as martins
from verticil.experiments.martins import figures, paper
from verticil.experiments.martins.claims import CONCLUSION, claims
from verticil.experiments.martins.datasets import MINIMUM_WAGE, PNAD, pnad
from verticil.experiments.martins.experiment import Estimated, Panel, Results, Scale, Survey
from verticil.reproduce.experiment import (
    Experiment,
    Options,
    Workplace,
    image_files,
    print_claims,
    print_sentences,
    read_columns,
    results_table,
)
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.graph import Dag

FIGURES: Final = (1, *sorted((*paper.FIGURES, *paper.PNAD_FIGURES)))
_NOTES: Final = (
    "the paper says of its parameters only that they lie between .2 and .8; ours stand in verticil.experiments.martins.paper",
    f"at most {martins.MAX_PARENTS} parents, the default of the R package of the paper's sampler; the paper names no limit",
    "P1 has the smallest gamma with which the true network's mean probability exceeds .85 under U(0, 1) parameters, as the text "
    "says, P2 has 0; networks that differ in the direction of lone edges are one, as in the paper; probabilities are exact, the "
    "graphs that S1 and S2 take are sampled",
    "S3 is our own iterative proportional fitting of all two-way tables; the paper takes that of the R package synthpop",
    "chi-square tests have no correction for continuity; what the figures' points are is not in the paper's text",
)
_GAMMA: Final = "gamma of its P1 is that of 4 variables and 5,000 records"
_STAND_IN: Final = (
    "in place of PNAD stand the people from 15 years on in NIST's records of the American Community Survey, Massachusetts 2019; "
    f"{_GAMMA}; --pnad FILE takes PNAD's"
)
_OWN: Final = (
    f"PNAD's records are those of your file that have all of {', '.join(PNAD)}, of people who are white, brown or black; the "
    f"minimum wage is R$ {MINIMUM_WAGE:,.0f}; which income the paper takes is not said; {_GAMMA}"
)


def experiment(options: Options) -> Experiment[Results]:
    """Choose the experiments.

    Raises:
        Misuse: USAGE, no such table or figure, or the chains would keep too few graphs.
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_COLUMN_MISSING, DATA_CATEGORY_UNSEEN: the file is no such table.
    """
    if options.table not in {None, *martins.TABLES} or options.figure not in {None, *FIGURES}:
        raise Misuse("USAGE", "martins: expected --table 1 to 6, or --figure 1 to 14")
    everything = options.table is None and options.figure is None
    tables = martins.TABLES if everything else (options.table,) * (options.table is not None)
    wanted = FIGURES if everything else (options.figure,) * (options.figure is not None)
    scale = scale_of(options)
    records = None if options.pnad is None else pnad(read_columns(options.pnad))
    notes = [*_NOTES, _STAND_IN if options.pnad is None else _OWN]

    def run(place: Workplace) -> Results:
        return martins.run(
            [number for number in tables if number], [number for number in wanted if number], scale,
            seed=options.seed, tell=place.tell, pnad=records,
        )  # fmt: skip

    def facts(found: Results) -> dict[str, object]:
        return {
            "scale": dataclasses.asdict(scale),
            **_payload(found),
            "claims": [claim.document() for claim in claims(found)],
            "notes": notes,
            "errata": list(paper.ERRATA),
        }

    def printed(found: Results) -> None:
        for number in tables:
            _TABLES[number or 0](found)
        _print_gammas(found)
        _print_panels(found.panels)
        if results := claims(found):
            print_claims(results)
        print_sentences("", notes)
        print_sentences("Errata of the paper", paper.ERRATA)

    return Experiment(
        title="martins",
        run=run,
        tables=facts,
        figures=_images,
        printed=printed,
        draws=bool(wanted),
        warning="A quick run: few replications and short chains; its numbers say little." * options.quick,
    )


def scale_of(options: Options) -> Scale:
    """Return how much is run, with what was chosen in place of the usual.

    Raises:
        Misuse: USAGE, the chains would keep too few graphs.
    """
    chosen = {
        "burn_in": options.burn_in,
        "thinning": options.thinning,
        "draws": options.draws,
        "sets": options.sets,
        "replicates": options.repeats,
    }
    scale = martins.QUICK if options.quick else martins.FULL
    try:
        return dataclasses.replace(scale, **{name: value for name, value in chosen.items() if value is not None})
    except ValueError as error:
        raise Misuse("USAGE", f"martins: {error}", hint="lower --burn-in or --thinning") from None


def graph_words(graph: Dag) -> str:
    """As the paper writes it.

    >>> graph_words(Dag(parents=((), (0,), (0, 1))))
    'X1, X2|X1, X3|X1,X2'
    """
    return ", ".join(
        f"X{v + 1}" + ("|" + ",".join(f"X{u + 1}" for u in parents) if parents else "")
        for v, parents in enumerate(graph.parents)
    )


def _payload(found: Results) -> dict[str, object]:
    payload: dict[str, object] = {
        "gammas": martins.GAMMAS,
        "figure_1": [dataclasses.asdict(each) for each in found.calibrations],
        "table_3": [
            {**dataclasses.asdict(each), "theirs": dataclasses.asdict(paper.TABLE_3[each.d, each.prior, each.n])}
            for each in found.estimated
        ],
        "figures": [
            {
                "figure": each.figure, "statistic": each.shown.words, "d": each.d, "n": each.n, "prior": each.prior,
                "real": each.truths,
                **{name: [dataclasses.asdict(answer) for answer in answers] for name, answers in each.answers.items()},
            }
            for each in found.panels
        ],
    }  # fmt: skip
    if found.survey:
        payload["survey"] = {
            "stand_in": found.survey.stand_in,
            "records": found.survey.records,
            "shares": found.survey.shares,
            "gamma": found.survey.gamma,
            "networks": [{"network": graph_words(graph), **values} for graph, values in found.survey.networks],
        }
    return payload


def _images(found: Results) -> dict[str, bytes]:
    drawn: dict[int, Mapping[Form, bytes]] = {}
    if found.calibrations:
        drawn[1] = figures.draw_gammas(
            found.calibrations, "Figure 1: gamma and the posterior probability of the true network"
        )
    for number in sorted({panel.figure for panel in found.panels}):
        panels = [panel for panel in found.panels if panel.figure == number]
        if number in paper.FIGURES:
            drawn[number] = figures.draw_answers(panels, f"Figure {number}: {paper.FIGURES[number].words}")
        else:
            whose = "PNAD" if found.survey and not found.survey.stand_in else "a stand-in for PNAD (NIST's ACS excerpt)"
            drawn[number] = figures.draw_survey(panels, f"Figure {number}: {whose}")
    return image_files({f"figure {number}": forms for number, forms in drawn.items()})


# ---- tables


def _print_table_1(_: Results) -> None:
    shown = results_table("Table 1: directed acyclic graphs", "nodes", "theirs", "ours")
    for nodes, theirs in enumerate(paper.GRAPH_COUNTS, start=1):
        ours = martins.graphs_of(nodes)
        shown.add_row(str(nodes), f"{theirs:,}", f"{ours:,}" + (" (erratum)" if ours != theirs else ""))
    put(shown)


def _print_table_2(_: Results) -> None:
    shown = results_table("\nTable 2: simulated scenarios", "d", "network", "P(X = 1), ours", "sample sizes", left=3)
    for d, graph in paper.TRUE_GRAPHS.items():
        shares = "; ".join(" ".join(f"{share:g}" for share in row) for row in paper.TRUE_SHARES[d])
        shown.add_row(str(d), graph_words(graph), shares, ", ".join(f"{n:,}" for n in paper.SIZES[d]))
    put(shown)


def _print_table_3(found: Results) -> None:
    shown = results_table(
        "\nTable 3: how often the true network is the most probable one - its mean probability then / otherwise",
        *("d", "prior", "n", "gamma", "theirs, of 10", "ours, BDeu(1)", "ours, U(0, 1)", "sampler's error"),
        left=2,
    )
    for d, prior, n in paper.TABLE_3:
        ours = {each.score: each for each in found.estimated if (each.d, each.prior, each.n) == (d, prior, n)}
        gamma = next(each.gamma for each in found.calibrations if (each.d, each.n, each.score) == (d, n, "dirichlet"))
        theirs = paper.TABLE_3[d, prior, n]
        shown.add_row(
            str(d),
            prior,
            f"{n:,}",
            f"{gamma if prior == 'P1' else 0:g}",
            _cell(theirs),
            *(_cell(ours[score]) for score in ("bdeu", "dirichlet")),
            f"{max(each.sampling_error for each in ours.values()):.3f}",
        )
    put(shown)
    say(
        "sampler's error: the largest difference of the true network's share of the sampled graphs to its exact probability"
    )


def _cell(cell: paper.Cell | Estimated) -> str:
    means = ["" if mean is None else f"{mean:.2f}" for mean in (cell.mean, cell.others)]
    return f"{cell.found} - {means[0]} / {means[1]}".rstrip(" /")


def _print_table_4(_: Results) -> None:
    shown = results_table("\nTable 4: the variables, and what stands in for them (ours)", "", "theirs", "ours", left=3)
    for number, column in enumerate(paper.TABLES_4_5, start=1):
        shown.add_row(f"X{number}", column.theirs, column.ours)
    put(shown)


def _print_table_5(found: Results) -> None:
    survey = _survey(found)
    shown = results_table(
        f"\nTable 5: shares, {paper.PNAD_RECORDS:,} households of PNAD and {survey.records:,} people "
        + ("of the stand-in" if survey.stand_in else "of your file"),
        *("", "theirs", "", "ours", ""),
        left=2,
    )
    for number, (column, share) in enumerate(zip(paper.TABLES_4_5, survey.shares, strict=True), start=1):
        ours = column.shown[1] if survey.stand_in else column.shown[0]
        shown.add_row(f"X{number}", column.shown[0], f"{column.share:.2f}", ours, f"{share:.2f}")
    put(shown)


def _print_table_6(found: Results) -> None:
    survey = _survey(found)
    shown = results_table(
        f"\nTable 6: the two most probable networks (P1: gamma = {survey.gamma:g}); ours are of "
        + ("the stand-in" if survey.stand_in else "your file"),
        *("whose", "network", "P1", "P2"),
        left=2,
    )
    for whose, networks in (("theirs", paper.TABLE_6), ("ours", survey.networks)):
        for graph, probability in networks:
            shown.add_row(whose, graph_words(graph), *(f"{probability[prior]:.3f}" for prior in martins.PRIORS))
    put(shown)


def _survey(found: Results) -> Survey:
    assert found.survey is not None
    return found.survey


_TABLES: Final[Mapping[int, Callable[[Results], None]]] = {
    1: _print_table_1,
    2: _print_table_2,
    3: _print_table_3,
    4: _print_table_4,
    5: _print_table_5,
    6: _print_table_6,
}


# ---- figures


def _print_gammas(found: Results) -> None:
    if not found.calibrations:
        return
    asked = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
    shown = results_table(
        "\nFigure 1: mean posterior probability of the true network, by gamma",
        *("d", "parameters", "n", *(f"{gamma:g}" for gamma in asked), "smallest with > .85"),
        left=2,
    )
    for each in found.calibrations:
        values = dict(zip(martins.GAMMAS, each.probability, strict=True))
        shown.add_row(
            str(each.d),
            "BDeu(1)" if each.score == "bdeu" else "U(0, 1)",
            f"{each.n:,}",
            *(f"{values[gamma]:.2f}" for gamma in asked),
            f"{each.gamma:g}" if each.reached else f"none; most at {each.gamma:g}",
        )
    put(shown)


def _print_panels(panels: Sequence[Panel]) -> None:
    """Print the figures in numbers, by what they show."""
    for what in paper.WHAT_WORDS:
        chosen = [panel for panel in panels if panel.shown.what == what]
        if not chosen:
            continue
        headings, row = _SUMMARIES[what]
        shown = results_table(
            f"\nours: {paper.WHAT_WORDS[what]}, means over the replications (figures 6 and 7: one)",
            *("figure", "statistic", "d", "n", "prior", *headings),
            left=2,
        )
        for panel in sorted(chosen, key=lambda each: (each.figure, each.d, each.n, each.prior)):
            name = panel.shown.words.partition(" of ")[2]
            shown.add_row(
                str(panel.figure), name.removeprefix("the intervals of "), str(panel.d), f"{panel.n:,}", panel.prior,
                *row(panel),
            )  # fmt: skip
        put(shown)


def _overlap_cells(panel: Panel) -> list[str]:
    first = panel.answers["S1"]
    below = [
        f"{sum(answer.value < (own.low or 0.0) for own, answer in zip(first, panel.answers[way], strict=True))}"
        for way in ("S2", "S3")
    ]
    width = statistics.mean((answer.high or 0.0) - (answer.low or 0.0) for answer in first)
    return [*(f"{_mean(panel, way):.2f}" for way in ("S1", "S2", "S3")), f"{width:.2f}", *below]


def _estimate_cells(panel: Panel) -> list[str]:
    return [f"{statistics.mean(panel.truths):.3f}", *_distances(panel), *_held(panel)]


def _p_value_cells(panel: Panel) -> list[str]:
    agreeing = [
        str(
            sum(
                (answer.value < CONCLUSION) == (truth < CONCLUSION)
                for answer, truth in zip(panel.answers[way], panel.truths, strict=True)
            )
        )
        for way in ("S1", "S2", "S3")
    ]
    return [f"{statistics.mean(panel.truths):.2g}", *_distances(panel), *agreeing, *_held(panel)]


def _distances(panel: Panel) -> list[str]:
    """Mean absolute differences to what the real records give."""
    cells: list[str] = []
    for answers in panel.answers.values():
        apart = [abs(answer.value - truth) for answer, truth in zip(answers, panel.truths, strict=True)]
        cells.append(f"{statistics.mean(apart):.2g}")
    return cells


def _held(panel: Panel) -> list[str]:
    """In how many replications the interval holds what the real records give, and its mean width: of S1, of S2."""
    cells: list[str] = []
    for way in ("S1", "S2"):
        answers = panel.answers[way]
        inside = sum(answer.holds(truth) for answer, truth in zip(answers, panel.truths, strict=True))
        width = statistics.mean((answer.high or 0.0) - (answer.low or 0.0) for answer in answers)
        cells.append(f"{inside} ({width:.2g})")
    return cells


def _mean(panel: Panel, way: str) -> float:
    return statistics.mean(answer.value for answer in panel.answers[way])


_SUMMARIES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Panel], list[str]]]]] = {
    "overlap": (("S1", "S2", "S3", "S1's width", "S2 below S1", "S3 below S1"), _overlap_cells),
    "mle": (("real", "S1 off", "S2 off", "S3 off", "S1 holds (width)", "S2 holds (width)"), _estimate_cells),
    "p-value": (
        (
            "real", "S1 off", "S2 off", "S3 off", "S1 agrees", "S2 agrees", "S3 agrees", "S1 holds (width)",
            "S2 holds (width)",
        ),
        _p_value_cells,
    ),
}  # fmt: skip
