"""Ways to synthetic records that other packages add to ``verticil synthesize``: generators, which make records and no release.

A package names them in its entry points, in the group `GROUP`: name of the method -> a `Generator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verticil.curator.spending import Spending
from verticil.shared.core import plugins
from verticil.shared.privacy.accounts import Cost

GROUP: Final = "verticil.generators"
"""Of entry points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What ``verticil synthesize`` was asked for, whatever the method.

    Attributes:
        table, study: files.
        epsilon, delta, seed, state, dataset, id_column, budget, step: as for `verticil.curator.synthesize`.
        out: the place for what is written; nothing is there yet.
    """

    table: Path
    study: Path
    epsilon: float | None
    delta: float | None
    seed: int | None
    out: Path
    state: Path | None
    dataset: str | None
    id_column: str | None
    budget: Cost
    step: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorResult:
    """What a generator made.

    Attributes:
        records: how many records.
        people: how many people are in the table.
        spending: what it cost, and what the data set has cost in all.
        out: the place of what was written.
        warnings: what the owner should know.
        facts: what stands besides in the answer to programs.
        lines: what stands besides in the answer to people.
    """

    records: int
    people: int
    spending: Spending
    out: Path
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """A way to synthetic records.

    Attributes:
        help: a sentence for the help of ``--method``.
        generate: makes the records that a request asks for. Its keyword-only parameters are further options of the command,
            declared as Typer declares them, with None where nothing is asked for.
    """

    help: str
    generate: Callable[..., GeneratorResult]


def generators() -> dict[str, Generator]:
    """Return the generators that are installed, by the name of their method."""
    candidates = {name: plugins.load(GROUP, name) for name in plugins.names(GROUP)}
    return {name: item for name, item in candidates.items() if isinstance(item, Generator)}
