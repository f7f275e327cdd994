"""What the paper says of its generator beside others, and whether it is found here: theirs, ours, and the reason where it is not.

Every claim is about an order of ways: the paper's generator has a larger, or a smaller, figure than each of some others. Ours
is the mean over the tables on which all of them were measured. One seed is run, so an order that is found is of that seed, and
no way is called the best. An attack tells two ways apart where they differ by more than two standard errors of the difference.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verticil.experiments.kipps import paper
from verticil.experiments.kipps.experiment import Row, of_attribute, of_fidelity, of_learned, of_membership
from verticil.experiments.kipps.tables import PrintedTable, number

PAPERS: Final = "KIPPS"
"""The way that the paper's claims are of."""
AUTOENCODER: Final = "KIPPS, vae"
"""The way of the autoencoder that knows the same rules."""
TITLE: Final = (
    "What the paper says of KIPPS beside others, and what is found (one seed: an order that is near can be chance)"
)

Value = Callable[[Row], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An order that the paper states.

    Attributes:
        part: of the experiment.
        words: what is compared.
        where: of the paper.
        theirs: figures as printed, by way.
        of: ours, of a row.
        larger: whether the paper's generator has the larger figure, else the smaller one.
        data: the one table that it is about; None: the mean over all.
        error: the standard error of a row's figure; None: it has none here.
        ties: whether an equal figure is what the paper has.
    """

    part: str
    words: str
    where: str
    theirs: Mapping[str, float]
    of: Value
    larger: bool
    data: str | None = None
    error: Value | None = None
    ties: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim held against the rows.

    Attributes:
        claim: the claim's words and where it stands.
        theirs, ours: figures by way, in words.
        found: whether the order is found; None: too little was measured to tell.
        reason: why not; empty where it is found.
    """

    claim: str
    theirs: str
    ours: str
    found: bool | None
    reason: str

    @property
    def text(self) -> str:
        """ "found", or "not found" or "not asked" with the reason."""
        return {True: "found", False: f"not found: {self.reason}", None: f"not asked: {self.reason}"}[self.found]


def _printed(value: Callable[[paper.Printed], float], *names: str) -> dict[str, float]:
    return {name: value(paper.TABLE_1[name]) for name in names}


_QUICK: Final = "a quick run has too few records and steps"
_ALL: Final = ("KIPPS", "DPCTGAN", "DPWGAN", "PATE-GAN", "TVAE")
_PRIVATE: Final = ("KIPPS", "DPCTGAN", "DPWGAN", "PATE-GAN")

CLAIMS: Final = (
    Claim(
        part="table 1", words="pMSE is among the lowest", where="6.2", larger=False, ties=True,
        theirs=_printed(lambda row: row.pmse, *_ALL), of=of_fidelity(lambda found: found.pmse),
    ),
    Claim(
        part="table 1", words="mean p-value of chi-square is higher", where="6.2", larger=True,
        theirs=_printed(lambda row: row.chi_square, *_PRIVATE), of=of_fidelity(lambda found: found.chi_square),
    ),
    Claim(
        part="table 1", words="mean p-value of Kolmogorov-Smirnov is higher", where="6.2", larger=True,
        theirs=_printed(lambda row: row.ks, *_PRIVATE), of=of_fidelity(lambda found: found.ks),
    ),
    Claim(
        part="table 1", words="overlap of intervals is highest, tied with PATE-GAN", where="6.2", larger=True, ties=True,
        theirs=_printed(lambda row: row.overlap, *_ALL), of=of_fidelity(lambda found: found.overlap),
    ),
    Claim(
        part="table 1", words="standardized difference is lower", where="6.2", larger=False,
        theirs=_printed(lambda row: row.difference, "KIPPS", "DPWGAN", "PATE-GAN", "TVAE"),
        of=of_fidelity(lambda found: found.difference),
    ),
    Claim(
        part="figure 2", words="classifiers' mean accuracy on Adult is higher", where="6.3", larger=True, data="Adult",
        theirs={name: paper.FIGURE_2["Adult"][name] for name in _PRIVATE}, of=of_learned(lambda found: found.mean),
    ),
    Claim(
        part="figure 3", words="an attack on membership is right less often", where="6.4", larger=False,
        theirs=paper.FIGURE_3, of=of_membership(lambda found: found.outputs.accuracy),
        error=of_membership(lambda found: found.error),
    ),
    Claim(
        part="figure 4", words="an attack on an attribute is right less often, beyond chance", where="6.4", larger=False,
        theirs=paper.FIGURE_4, of=of_attribute(lambda found: found.beyond), error=of_attribute(lambda found: found.error),
    ),
)  # fmt: skip


def verdicts(rows: Sequence[Row], parts: Sequence[str], *, quick: bool = False) -> list[Verdict]:
    """Hold the claims of some parts against what was measured.

    Args:
        rows: the results.
        parts: that were run.
        quick: the run has few records and steps, so that nothing is judged.
    """
    judged = [_verdict(claim, rows) for claim in CLAIMS if claim.part in parts]
    return [dataclasses.replace(one, found=None, reason=_QUICK) for one in judged] if quick else judged


def shown(found: Sequence[Verdict]) -> PrintedTable:
    """Return the verdicts as a table of words."""
    return PrintedTable(
        title=TITLE,
        headings=("KIPPS, in the paper's section", "theirs", "ours", "here"),
        rows=tuple((one.claim, one.theirs, one.ours, one.text) for one in found),
    )


def _verdict(claim: Claim, rows: Sequence[Row]) -> Verdict:
    names = list(claim.theirs)
    used = _tables_of_all(claim, names, rows)
    words = f"{claim.words} ({claim.where})"
    theirs = " · ".join(f"{name} {value:g}" for name, value in claim.theirs.items())
    if not used:
        return Verdict(
            claim=words, theirs=theirs, ours="–", found=None, reason="no table has a figure of all of these ways"
        )
    means = {name: _mean(claim.of, name, used, rows) for name in names}
    beside = {**means}
    if (own := _mean_or_none(claim.of, AUTOENCODER, used, rows)) is not None:
        beside[AUTOENCODER] = own
    ours = " · ".join(f"{name} {number(value)}" for name, value in beside.items())
    if claim.data is None:
        ours += f" (mean of {', '.join(used)}; theirs of {paper.TABLES} tables)"
    rivals = {name: value for name, value in means.items() if name != PAPERS}
    worse = [name for name, value in rivals.items() if not _ahead(claim, means[PAPERS], value)]
    reason = ""
    if worse:
        reason = f"{', '.join(worse)} {'is' if len(worse) == 1 else 'are'} not {'lower' if claim.larger else 'higher'}"
        without = _mean_or_none(claim.of, f"{PAPERS}, no noise", used, rows)
        if claim.error is None and without is not None:
            behind = not all(_ahead(claim, without, means[name]) for name in worse)
            reason += "; noise is not the reason" if behind else "; noise is the reason"
            reason += f": without any, KIPPS has {number(without)}"
    elif claim.error is not None:
        near = [
            name for name, value in rivals.items() if abs(value - means[PAPERS]) <= 2 * _error(claim, name, used, rows)
        ]
        if near:
            worse, reason = near, f"the attack does not tell it from {', '.join(near)} by two standard errors"
    return Verdict(claim=words, theirs=theirs, ours=ours, found=not worse, reason=reason)


def _ahead(claim: Claim, own: float, other: float) -> bool:
    if claim.ties and round(own, 3) == round(other, 3):
        return True
    return own > other if claim.larger else own < other


def _tables_of_all(claim: Claim, names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the tables on which every way has a figure."""
    measured = {(row.data, row.way) for row in rows if claim.of(row) is not None}
    tables = [claim.data] if claim.data is not None else list(dict.fromkeys(row.data for row in rows))
    return [table for table in tables if all((table, name) in measured for name in names)]


def _values(of: Value, way: str, tables: Sequence[str], rows: Sequence[Row]) -> list[float]:
    return [value for row in rows if row.way == way and row.data in tables and (value := of(row)) is not None]


def _mean(of: Value, way: str, tables: Sequence[str], rows: Sequence[Row]) -> float:
    values = _values(of, way, tables, rows)
    return math.fsum(values) / len(values)


def _mean_or_none(of: Value, way: str, tables: Sequence[str], rows: Sequence[Row]) -> float | None:
    return _mean(of, way, tables, rows) if len(_values(of, way, tables, rows)) == len(tables) else None


def _error(claim: Claim, way: str, tables: Sequence[str], rows: Sequence[Row]) -> float:
    """Return the standard error of the difference of the means of the paper's way and another."""
    assert claim.error is not None
    errors = [*_values(claim.error, way, tables, rows), *_values(claim.error, PAPERS, tables, rows)]
    return math.sqrt(math.fsum(error**2 for error in errors)) / len(tables)
