"""What is drawn from the models of a release: the one way for commands and for programs.

Records come from what the release's own came from unless another source is named. Messages begin with what is wrong: ``given``,
``source`` or ``sampling``.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from verticil.shared.core.errors import Misuse
from verticil.shared.core.name_lists import check_choice, shortened
from verticil.shared.documents.written_values.dates import DAY, DatePattern
from verticil.shared.documents.written_values.on_scale import value_text
from verticil.shared.documents.written_values.reading import MOMENTS, usual_pattern, value_reader
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Marginal, Network, PairAccuracy
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.formats import model_json, posterior
from verticil.shared.release.signatures import read_document
from verticil.shared.study import canonical
from verticil.shared.study.document import Sampling, Source, Study
from verticil.shared.study.typed_variables import written_format
from verticil.shared.synthesis.linked_places import inside_bins
from verticil.shared.synthesis.synthesis import decode, sample_chunks
from verticil.shared.synthesis.typed_columns import codes_of
from verticil.shared.synthesis.within_bins import Tilts, tilts_of

if TYPE_CHECKING:
    import pandas as pd

_LISTED = 20
_NUMBER = re.compile(r"\[?([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(?:[],)]|$)")


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseModels:
    """The models of a release.

    Attributes:
        folder: of the release.
        document: the bytes of model.json.
        network: the network; of sampled graphs their consensus.
        joint: the joint model; None: there is none.
        study: as it was carried out; None: model.json lies there alone.
    """

    folder: Path
    document: bytes
    network: Network
    joint: JointModel | None
    study: Study | None

    @property
    def schema(self) -> Schema:
        """The variables of the release."""
        return self.network.schema

    @cached_property
    def support(self) -> Support | None:
        """What every record meets; None: nothing is known."""
        return None if self.study is None else self.study.support()

    @cached_property
    def marginals(self) -> tuple[Marginal, ...]:
        """The published share of every category."""
        return model_json.read_marginals(self.document, self.schema)

    @cached_property
    def pairs(self) -> tuple[PairAccuracy, ...]:
        """The published shares of pairs; none: nobody has tables of pairs."""
        return model_json.read_pairs(self.document, self.schema)

    @cached_property
    def sampled(self) -> tuple[Network, ...]:
        """The networks of a posterior; none: graphs were not sampled."""
        return posterior.read_networks(self.folder) if (self.folder / posterior.FILE).is_file() else ()

    def source(self, asked: Source | None, *, given: bool) -> Source:
        """Return the source to draw from: the one that is asked for, or without one the release's own.

        With evidence the consensus stands for sampled graphs, which give it different chances.

        Raises:
            Misuse: USAGE, there is no such source, the release has none, or it does not go with evidence.
        """
        if asked is not None:
            check_choice("source", asked, get_args(Source))
        there = (self.folder / posterior.FILE).is_file()
        if asked is None:
            own = there and not given and self.study is not None and self.study.records_from == "posterior"
            return "posterior" if own else "network" if self.joint is None else "joint"
        if asked == "joint" and self.joint is None:
            raise Misuse(
                "USAGE", f"source joint: {self.folder} has no joint model", hint="leave it out: the network is there"
            )
        if asked == "posterior" and not there:
            raise Misuse(
                "USAGE",
                f"source posterior: {self.folder} has no {posterior.FILE}",
                hint="leave it out: the network is there",
            )
        if asked == "posterior" and given:
            raise Misuse(
                "USAGE",
                "given with the source posterior: the networks give the categories different chances, so equal parts of each are "
                "no records of people who have them",
                hint="name the source network, the consensus",
            )
        return asked

    def models(self, source: Source) -> Sequence[Network | JointModel]:
        """Return the models of a source that is there."""
        if source == "posterior":
            return self.sampled
        return (self.network,) if source == "network" or self.joint is None else (self.joint,)


def open_models(folder: Path) -> ReleaseModels:
    """Read the models of a release; nothing is verified.

    Raises:
        Misuse: FILE_MISSING, this is no release.
        GateFailed: RELEASE_INVALID.
    """
    model, study = folder / "model.json", folder / "study.json"
    if not model.is_file():
        inner = folder / "release"
        where = f": {inner}" if (inner / model.name).is_file() else ""
        raise Misuse("FILE_MISSING", f"{model}: no such file", hint=f"give the folder of a release{where}")
    document = read_document(folder, model.name)
    network = model_json.read(document)
    return ReleaseModels(
        folder=folder,
        document=document,
        network=network,
        joint=model_json.read_joint(document, network.schema),
        study=canonical.from_bytes(read_document(folder, study.name), source=study.name, wire=False)
        if study.is_file()
        else None,
    )


def evidence_of(schema: Schema, given: Mapping[str, object]) -> dict[int, int]:
    """Variable -> code of what is known of a person: a category, or of a variable with bins a number or moment in one of them.

    Raises:
        Misuse: USAGE, no such variable or category; the nearest one is named.
    """
    evidence: dict[int, int] = {}
    for name, value in given.items():
        variable = variable_of(schema, name, where="given")
        evidence[schema.index(name)] = _code(variable, value)
    return evidence


def variable_of(schema: Schema, name: str, *, where: str) -> Variable:
    """Return the variable of a name.

    Raises:
        Misuse: USAGE, there is none; the nearest one is named.
    """
    if name not in schema:
        near = difflib.get_close_matches(str(name), schema.names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"its variables are {shortened(schema.names, _LISTED)}"
        raise Misuse("USAGE", f"{where}: '{name}': no such variable in this release", hint=hint)
    return schema[schema.index(name)]


def _as_records_write(variable: Variable, text: str) -> str:
    """Return a moment that is written in a usual way as records write it; any other text as it is."""
    kind = str(variable.kind)
    if kind not in MOMENTS or (moment := value_reader(kind, usual_pattern(kind))(text)) is None:
        return text
    return DatePattern.of(written_format(variable)).write(moment * (DAY if kind == "date" else 1))


def _code(variable: Variable, value: object) -> int:
    label = str(value)
    if label in variable.labels:
        return variable.labels.index(label)
    if variable.kind is not None and label:
        own = value if isinstance(value, dt.date | dt.time) else _as_records_write(variable, label)
        if (code := int(codes_of(variable, [own])[0])) >= 0:
            return code
    if variable.bins is not None:
        low, high = variable.bins[0], variable.bins[-1]
        try:
            number = float(label)
        except ValueError:
            number = np.nan
        if low <= number < high:
            return int(np.searchsorted(variable.bins, number, side="right")) - 1
    near = [] if variable.kind in MOMENTS else _near_labels(variable, label)
    numbers = ""
    if variable.bins is not None:
        first, last = (value_text(variable.kind, edge) for edge in (variable.bins[0], variable.bins[-1]))
        numbers = f", or a {'moment' if variable.kind in MOMENTS else 'number'} from {first} to below {last}"
    hint = (
        f"did you mean '{near[0]}'?" if near else f"its categories are {shortened(variable.labels, _LISTED)}{numbers}"
    )
    raise Misuse("USAGE", f"given: '{label}' is not a category of '{variable.name}'", hint=hint)


def _near_labels(variable: Variable, text: str) -> list[str]:
    """Return the label that is nearest to a text, if one is: the bin of the number that it begins with, else a spelling."""
    if variable.bins is not None and (number := _NUMBER.match(text)) is not None:
        place = int(np.searchsorted(variable.bins, float(number[1]), side="right")) - 1
        return [variable.labels[place]] if 0 <= place < variable.n_bins else []
    return difflib.get_close_matches(text, variable.labels, 1)


def draw_record_tables(
    models: ReleaseModels,
    n: int,
    *,
    seed: int,
    given: Mapping[str, object],
    sampling: Sampling = "systematic",
    source: Source | None = None,
) -> Iterator[pd.DataFrame]:
    """Draw records as tables, a million at a time; what is wrong is said before the first.

    Args:
        models: of the release.
        n: number of records.
        seed: the same one, the same records.
        given: what every record has, see `evidence_of`.
        sampling: see `synthesis`.
        source: what records come from; None: what the release's own do.

    Raises:
        Misuse: USAGE; while tables are drawn, too, where what is asked for needs too large a table.
    """
    if n < 0 or seed < 0:
        name, value = ("n", n) if n < 0 else ("seed", seed)
        raise Misuse("USAGE", f"{name}: got {value}, expected 0 or more")
    check_choice("sampling", sampling, get_args(Sampling))
    chosen_models = models.models(models.source(source, given=bool(given)))
    evidence = evidence_of(models.schema, given)
    generator = np.random.Generator(np.random.PCG64(seed))
    return _draw_record_tables(models, chosen_models, n, generator, evidence=evidence, sampling=sampling)


def _draw_record_tables(
    models: ReleaseModels,
    chosen: Sequence[Network | JointModel],
    n: int,
    generator: np.random.Generator,
    *,
    evidence: Mapping[int, int],
    sampling: Sampling,
) -> Iterator[pd.DataFrame]:
    knowledge = None if models.study is None else models.study.knowledge
    inside = None if models.study is None else inside_bins(models.study)
    try:
        made_by = [rake(each, models.support) for each in chosen]
        sizes = [len(range(place, n, len(chosen))) for place in range(len(chosen))]
        for each, by, size in zip(chosen, made_by, sizes, strict=True):
            if not size and n:
                continue
            chunks = sample_chunks(each, size, generator=generator, evidence=evidence, method=sampling, support=by)
            for codes in chunks:
                tilts = _tilts(each, models.study)
                yield decode(models.schema, codes, generator, knowledge=knowledge, tilts=tilts, inside=inside)
    except ValueError as error:
        where = "given" if evidence else f"sampling {sampling}"
        raise Misuse("USAGE", f"{where}: {error}", hint="ask for less at once, or for what can be") from None


def _tilts(source: Network | JointModel, study: Study | None) -> Tilts:
    """Return how numbers of the source lie inside bins, where the study has that estimated."""
    return {} if study is None or not isinstance(source, Network) else tilts_of((source,), study)
