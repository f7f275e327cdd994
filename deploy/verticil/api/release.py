"""A release as a value: what it says, what it verifies to, more records, answers; from a folder, a run or a federation."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shutil
import tempfile
import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from verticil.api.arguments import check_arguments
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.documents.foreign_files.limits import DOCUMENT_BYTES

if TYPE_CHECKING:
    import pandas as pd

    from verticil.api.network import NamedNetwork
    from verticil.curator import Synthesized
    from verticil.shared.core.arrays import Codes, Floats
    from verticil.shared.numerics.joint.worth import Worth
    from verticil.shared.numerics.model.network import Marginal
    from verticil.shared.release.drawing import ReleaseModels
    from verticil.shared.release.plot import Plot
    from verticil.shared.release.verification import VerifiedRelease
    from verticil.simulation import Simulated

Source = Literal["joint", "network", "posterior"]
Sampling = Literal["systematic", "independent", "without-replacement"]
_MOST_RECORDS: Final = 100_000_000  # that are held in memory


@check_arguments()
def load(
    path: Path | str,
    *,
    ca: Path | str | None = None,
    fingerprint: str | None = None,
    revoked: Path | str | None = None,
    allow_unverified: bool = False,
) -> Release:
    """Open a release that verifies, as ``verticil release verify`` does it.

    Args:
        path: the release folder.
        ca: the certificate of the federation's authority, from a trusted place.
        fingerprint: SHA-256 of the authority's or of the signer's certificate, in hex, from a trusted place.
        revoked: the federation's deny-list; None: ``revoked.crl`` beside `ca`, where there is one.
        allow_unverified: open it all the same; the reason stays in `Release.warning` and in what is shown of it.

    Raises:
        Misuse: FILE_MISSING, there is no such release or certificate; USAGE, `fingerprint` is none.
        GateFailed: RELEASE_INVALID, something in it does not hold; RELEASE_UNTRUSTED, all holds, but not from an anchor that was
            given, or none was. With `allow_unverified`, RELEASE_INVALID only where the models cannot be read.

    >>> import verticil.api as vt
    >>> vt.load("no-such-release", ca="ca.crt")
    Traceback (most recent call last):
        ...
    verticil.shared.core.errors.Misuse: FILE_MISSING: ca.crt: no such file
    """
    return open_release(Path(path), Anchors.of(ca, fingerprint, revoked), allow_unverified=allow_unverified)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """What a release is verified by: see `load`."""

    ca: Path | None = None
    fingerprint: str | None = None
    revoked: Path | None = None

    @classmethod
    def of(cls, ca: Path | str | None, fingerprint: str | None, revoked: Path | str | None) -> Anchors:
        """Make anchors from what a user gives."""
        ca_path, revoked_path = (None if path is None else Path(path) for path in (ca, revoked))
        return cls(ca=ca_path, fingerprint=fingerprint, revoked=revoked_path)


def open_release(
    path: Path,
    anchors: Anchors,
    *,
    allow_unverified: bool = False,
    run: Simulated | Synthesized | None = None,
    temporary: Path | None = None,
) -> Release:
    """`load`, with what made the release, and the folder that goes when nobody has the release any more."""
    from verticil.shared.core.errors import VerticilError
    from verticil.shared.release.drawing import open_models
    from verticil.shared.release.verification import verify_release_with

    verification, warning = None, ""
    try:
        verification, _ = verify_release_with(
            path, ca=anchors.ca, fingerprint=anchors.fingerprint, revoked=anchors.revoked
        )
    except VerticilError as error:
        if not allow_unverified or not isinstance(error, GateFailed):
            raise
        warning = f"{error.code}: {error.message}"
    models = open_models(path)
    digests = {} if verification is None else _read_digests(path)
    release = Release(
        path=path, anchors=anchors, verified=verification, warning=warning, models=models, run=run, listed=digests
    )
    if temporary is not None:
        weakref.finalize(release, shutil.rmtree, temporary, ignore_errors=True)
    if verification is not None and digests["model.json"] != hashlib.sha256(models.document).hexdigest():
        raise GateFailed("RELEASE_INVALID", f"{path}: model.json changed while it was opened", hint="open it again")
    try:
        repr(release)
    except (KeyError, TypeError, ValueError):  # of a release that was not verified
        raise GateFailed("RELEASE_INVALID", f"{path}: model.json: is not that of a release") from None
    return release


def _read_digests(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a release, hex: of those that its manifest lists, of the manifest and its signature."""
    from verticil.shared.documents.json_document import parse
    from verticil.shared.release.manifest import MANIFEST, SIGNATURE
    from verticil.shared.release.signatures import read_document

    signed = {name: read_document(path, name) for name in (MANIFEST, SIGNATURE)}
    files = parse(signed[MANIFEST], source=MANIFEST)["files"]
    listed = {name: files[name]["sha256"].text() for name in files.keys()}  # noqa: SIM118 - no dict
    return listed | {name: hashlib.sha256(content).hexdigest() for name, content in signed.items()}


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Yield a folder for a release that is made or fetched in here; where that fails, it goes."""
    folder = Path(tempfile.mkdtemp(prefix="verticil-release-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Release:
    """A release: a network, synthetic records, and what everything cost whom.

    Attributes:
        path: the folder.
        verified: what verification found; None: it was opened without, see `warning`.
        warning: why it does not verify; empty: it does.
        run: what the run that made it found besides (cost, comparison with the tables ..); None: it was opened.
        models: the models as values, by positions.
        anchors: what it was verified by.
        listed: SHA-256 of each of its files as it was verified, hex; of one that was not, none.
    """

    path: Path
    anchors: Anchors
    verified: VerifiedRelease | None
    warning: str
    models: ReleaseModels = field(repr=False)
    run: Simulated | Synthesized | None = None
    listed: Mapping[str, str] = field(default_factory=dict, repr=False)

    # ---- what it says

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """model.json, as it is published."""
        content: dict[str, Any] = json.loads(self.models.document)
        return content

    @cached_property
    def network(self) -> NamedNetwork:
        """The network, by names; of sampled graphs their consensus."""
        from verticil.api.network import NamedNetwork

        search = self.document["structure"]["search"]
        figures = (
            {(str(parent), str(child)): float(figure) for parent, child, figure in search.get(key) or ()}
            for key in ("edge_strength", "edge_information")
        )
        strength, information = figures
        return NamedNetwork(model=self.models.network, strength=strength, information=information)

    @property
    def id(self) -> str:
        """The id of the study."""
        return str(self.document["study"]["id"])

    @property
    def parties(self) -> tuple[str, ...]:
        """Those whose columns are in it."""
        return tuple(self.document["parties"])

    @property
    def n_common(self) -> int:
        """People that all parties have in common."""
        return int(self.document["n_common"])

    @property
    def epsilon_per_person(self) -> float | None:
        """The sum over all columns that anybody else reads; None: without a bound. `accounts` has what each reader learns."""
        total = self.document["privacy"]["epsilon_per_person"]
        return None if total is None else float(total)

    @property
    def accounts(self) -> pd.DataFrame:
        """What all of the study costs a person: a row an account, with ``reader``, ``epsilon`` (inf: no bound), ``delta``."""
        import pandas as pd

        rows = [
            (item["account"], item["reader"], math.inf if item["epsilon"] is None else item["epsilon"], item["delta"])
            for item in self.document["privacy"]["accounts"]["list"]
        ]
        return pd.DataFrame(rows, columns=pd.Index(["account", "reader", "epsilon", "delta"])).set_index("account")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the release says that is not to be trusted in it."""
        return tuple(self.document.get("warnings", ()))

    @property
    def worth(self) -> Worth | None:
        """What the records are worth: estimated distances to the people, and what the noise took; None: it does not say it."""
        from verticil.shared.numerics.joint.worth import read_worth

        return read_worth(self.document)

    @property
    def variables(self) -> pd.DataFrame:
        """A row for each variable: ``party``, ``kind`` (its type, else numbers or categories), ``categories``, ``missing`` (its
        category).
        """
        import pandas as pd

        rows = [
            {
                "variable": item.name,
                "party": item.owner,
                "kind": item.kind or ("categories" if item.bins is None else "numbers"),
                "categories": item.labels,
                "missing": None if item.missing is None else item.missing.category,
            }
            for item in self.models.schema.variables
        ]
        return pd.DataFrame(rows).set_index("variable")

    @check_arguments()
    def verify(
        self,
        *,
        ca: Path | str | None = None,
        fingerprint: str | None = None,
        revoked: Path | str | None = None,
    ) -> dict[str, Any]:
        """Verify it again, by the anchors that it was opened with or by others; arguments and errors as of `load`.

        Returns:
            The document of ``verticil release verify --format json``.
        """
        from verticil.shared.release.verification import verify_release_with

        other = Anchors.of(ca, fingerprint, revoked)
        by = self.anchors if other == Anchors() else other
        result, deny_list = verify_release_with(self.path, ca=by.ca, fingerprint=by.fingerprint, revoked=by.revoked)
        return {**result.document(), "deny_list": None if deny_list is None else str(deny_list)}

    # ---- shares

    def marginals(self) -> pd.DataFrame:
        """Return the share of every category, a row for each ``(variable, category)``.

        Columns: ``estimate`` (unbiased, not clipped), ``standard_error``, ``low`` and ``high`` (at the study's level),
        ``network``; where records come from a joint model ``joint``; ``synthetic``. NaN: too few people to tell.
        """
        import pandas as pd

        return pd.concat(
            {self.network.nodes[item.variable]: self._shares(item) for item in self.models.marginals},
            names=["variable"],
        )

    def _shares(self, item: Marginal) -> pd.DataFrame:
        import numpy as np
        import pandas as pd

        variable = self.models.schema[item.variable]
        codes = self._codes[item.variable]
        joint = self.models.joint
        return pd.DataFrame(
            {
                "estimate": item.estimate,
                "standard_error": item.standard_error,
                "low": item.interval_low,
                "high": item.interval_high,
                "network": item.model,
                **({} if joint is None else {"joint": joint.shares([item.variable])}),
                "synthetic": np.bincount(codes, minlength=variable.n_states) / max(1, len(codes)),
            },
            index=pd.Index(variable.labels, name="category"),
        )

    @check_arguments()
    def joint(self, a: str, b: str) -> pd.DataFrame:
        """Return the share of every combination of two variables' categories, a row for each ``(category of a, category of b)``.

        Columns: ``estimate`` (unbiased) with ``low`` and ``high`` (all of the table hold together), which are there for the
        pairs of edges and those that the study names, and otherwise NaN; ``network``; where records come from a joint model
        ``joint``; ``synthetic``. ``attrs["verdict"]`` is what the release says of them; empty: it does not say.

        Raises:
            Misuse: USAGE, no such variable; the nearest one is named.
        """
        import numpy as np
        import pandas as pd

        from verticil.shared.release.drawing import variable_of
        from verticil.shared.synthesis.marginals import model_pairs

        schema = self.models.schema
        both = variable_of(schema, a, where="a"), variable_of(schema, b, where="b")
        if a == b:
            raise Misuse("USAGE", f"b: '{b}' is a, too, expected another variable", hint="marginals() has its shares")
        first, second = schema.index(a), schema.index(b)
        shape = (both[0].n_states, both[1].n_states)
        codes = self._codes[first].astype(np.int64) * shape[1] + self._codes[second]
        synthetic = np.bincount(codes, minlength=shape[0] * shape[1]) / max(1, len(codes))
        pairs = {(pair.first, pair.second): pair for pair in self.models.pairs}
        forward = pairs.get((first, second))
        backward = pairs.get((second, first))
        pair = forward or backward
        columns: dict[str, Floats] = dict.fromkeys(("estimate", "low", "high"), np.full(shape, np.nan))
        if pair is not None:
            columns = {
                name: table if forward is not None else table.T
                for name, table in (("estimate", pair.estimate), ("low", pair.low), ("high", pair.high))
            }
        columns["network"] = model_pairs(self.models.network, [(first, second)], self.models.support)[0][0]
        if self.models.joint is not None:
            columns["joint"] = self.models.joint.shares([first, second])
        frame = pd.DataFrame(
            {**{name: table.ravel() for name, table in columns.items()}, "synthetic": synthetic},
            index=pd.MultiIndex.from_product([item.labels for item in both], names=[a, b]),
        )
        frame.attrs["verdict"] = "" if pair is None else pair.verdict
        return frame

    @check_arguments()
    def query(
        self,
        target: str,
        *,
        given: Mapping[str, object] | None = None,
        source: Literal["joint", "network"] | None = None,
    ) -> pd.DataFrame:
        """Return how probable each category of a variable is, of all people or of those with what is given; nothing is drawn.

        Args:
            target: the variable.
            given: variable -> category, or of a variable with bins a number.
            source: what the probabilities are of; None: what the release's own records come from.

        Returns:
            A row for each category: ``probability``; ``low`` and ``high``, the network's interval at the study's level,
            conditional on its structure, NaN where nothing can be said; ``network``, its own probability, NaN where it is too
            wide for one. ``attrs`` has the rest of the document of ``verticil release query --format json``: ``source`` says
            which model answered, ``interval`` how intervals were made, ``too_wide`` what the network could
            not, ``outside`` why a probability lies outside of its interval.

        Raises:
            Misuse: USAGE, no such variable or category (the nearest one is named), what is given has probability 0, or it needs
                too large a table of the network, and no joint model answers.
        """
        import pandas as pd

        from verticil.shared.release.query import query

        answer = query(self.models, target, given or {}, source=source)
        nothing = float("nan"), float("nan")
        frame = pd.DataFrame(
            [
                (item.probability, *(item.interval or nothing), nothing[0] if item.network is None else item.network)
                for item in answer.shares
            ],
            columns=pd.Index(["probability", "low", "high", "network"]),
            index=pd.Index([item.category for item in answer.shares], name=target),
        )
        frame.attrs.update({key: value for key, value in answer.to_dict().items() if key != "shares"})
        return frame

    # ---- estimates

    @check_arguments()
    def regress(self, formula: str, *, level: float = 0.95) -> pd.DataFrame:
        """Estimate a linear regression with intervals that know of the noise; a regression on `table` shrinks its effects.

        Args:
            formula: ``"weight ~ age + C(ward)"``, or ``"smoker == 'yes' ~ age"`` for the share of a category. Numbers count as
                their bin's mean; names with signs stand in backticks.
            level: of each interval.

        Returns:
            A row for each coefficient: ``estimate``, ``standard_error``, ``low`` and ``high``, of the population that the
            people are from. ``attrs``: ``level``, ``people``, ``reference`` (of each column of
            categories the one that others are compared with), ``merged`` (categories too rare for a coefficient of their own).

        Raises:
            Misuse: USAGE, no such column, or the release has no tables that an interval could follow from; the hint has them.
            GateFailed: TOO_NOISY, the noise does not allow so many coefficients, or drowns a column.
        """
        import pandas as pd

        from verticil.analysis.regression import regress

        result = regress(self.models, formula, level=level)
        design, coefficients = result.design, result.coefficients
        frame = pd.DataFrame(
            {name: getattr(coefficients, name) for name in ("estimate", "standard_error", "low", "high")},
            index=pd.Index(design.labels, name="coefficient"),
        )
        frame.attrs.update(level=level, people=self.n_common, reference=design.reference, merged=design.merged)
        return frame

    @check_arguments()
    def tabulate(self, *columns: str, level: float = 0.95) -> pd.DataFrame:
        """Estimate the share of each combination of categories, each with an interval of its own.

        Args:
            columns: one or two.
            level: of each interval; those of `joint` hold together, and are wider.

        Returns:
            A row for each combination: ``estimate`` (unbiased, not clipped), ``standard_error``, ``low``, ``high``. ``attrs``
            as of `regress`: ``level``, ``people``.

        Raises:
            Misuse: USAGE, as of `regress`.
        """
        import pandas as pd

        from verticil.analysis.tabulation import tabulate

        result = tabulate(self.models, columns, level=level)
        labels = [self.models.schema[variable].labels for variable in result.variables]
        frame = pd.DataFrame(
            {name: getattr(result, name).ravel() for name in ("estimate", "standard_error", "low", "high")},
            index=pd.MultiIndex.from_product(labels, names=columns)
            if len(labels) > 1
            else pd.Index(labels[0], name=columns[0]),
        )
        frame.attrs.update(level=level, people=self.n_common)
        return frame

    # ---- records

    @check_arguments()
    def table(self, *, binned: bool = False) -> pd.DataFrame:
        """Return the release's synthetic records; where a bound holds for everybody, none is a real person's.

        A typed column has the type that a table of people has of it: ``Int64``, ``Float64``, ``string``, ordered categories,
        ``bool`` (``boolean`` where values can be missing), Python's dates and times, ``datetime64[us]`` with its zone. Of the
        others, columns of numbers are ``Int64`` or ``Float64``, and the rest categories. What is missing is null. With `binned`
        numbers and moments are their bins and points, as ordered categories. ``attrs["numbers"]`` says of each number how it
        was made: ``bins`` (how many, and from whom), ``points`` (values of their own), ``inside`` (how values lie in a bin).
        """
        import io

        import pandas as pd
        import pyarrow as pa

        from verticil.api.frames import type_columns
        from verticil.shared.study.number_words import number_words

        try:
            content = self._read("synthetic.parquet", most=self._check_table())
            frame = type_columns(pd.read_parquet(io.BytesIO(content)), self.models, as_bins=binned)
        except (pa.ArrowException, OSError, ValueError, KeyError):  # of a release that was not verified
            problem = f"{self.path / 'synthetic.parquet'}: is not the table of this release"
            raise GateFailed("RELEASE_INVALID", problem, hint="fetch the release again") from None
        made = {} if self.models.study is None else number_words(self.models.study)
        frame.attrs["numbers"] = {name: dataclasses.asdict(words) for name, words in made.items()}
        return frame

    @check_arguments()
    def tables(self, *, binned: bool = False) -> dict[str, pd.DataFrame]:
        """Return the tables of a release whose study has related tables: ``people``, and each of them by its name.

        The first column of all of them is the made-up key of a person; in related tables the number of the row follows. Of a
        release without related tables there is one, `table`.

        Args:
            binned: as of `table`; only for a release without related tables.

        Raises:
            GateFailed: RELEASE_INVALID.
        """
        import pandas as pd

        from verticil.shared.synthesis.related_rows import tables_of_records

        study = self.models.study
        if study is None or not study.related:
            return {"people": self.table(binned=binned)}
        self._check_table()
        frame = pd.read_parquet(self.file("synthetic.parquet"))
        records = frame if study.identifier is None else frame.drop(columns=[study.identifier.name])
        return next(tables_of_records([records], study))

    def sdv_metadata(self) -> dict[str, Any]:
        """Return how the Synthetic Data Vault describes the release's `tables`, for its `Metadata.load_from_dict`.

        Raises:
            ValueError: the release does not have its study.
        """
        from verticil.shared.release.formats.sdv_metadata import sdv_metadata

        if self.models.study is None:
            raise ValueError("the release does not have its study, which says what its columns are")
        return sdv_metadata(self.models.study)

    def _check_table(self) -> int:
        """Check what the table says of its size, before it is read; return how many bytes it has at most.

        Raises:
            GateFailed: RELEASE_INVALID, it has other columns or more records than the manifest says, or than are held in memory
                of a release that was not verified.
            ValueError, OSError: it is no table.
        """
        from verticil.shared.numerics.knowledge.columns import columns
        from verticil.shared.synthesis.record_checks import check_parquet, read_records, table_bytes
        from verticil.tables.texts import MAX_ROWS

        path, study, n_records = self.file("synthetic.parquet"), self.models.study, self._n_records()
        if self.verified is None and n_records > MAX_ROWS:
            problem = f"says that it has {n_records} records, expected at most {MAX_ROWS} of one that was not verified"
            raise GateFailed("RELEASE_INVALID", f"{self.path}: {problem}")
        table_schema = columns(None if study is None else study.knowledge, self.models.schema).published
        identifier = None if study is None else study.identifier
        check_parquet(path, table_schema, n_records, identifier=identifier)
        if self.verified is None and study is not None:  # else every value was held against the study's
            read_records(path, self.models.schema, n_records, study.knowledge, identifier=identifier)
        return table_bytes(table_schema, n_records, identifier)

    def _n_records(self) -> int:
        """Return how many synthetic records the manifest says there are."""
        from verticil.shared.documents.json_document import parse

        return parse(self._read("manifest.json"), source="manifest.json")["synthetic_records"].integer()

    @check_arguments()
    def sample(
        self,
        n: int,
        *,
        given: Mapping[str, object] | None = None,
        seed: int = 0,
        source: Source | None = None,
        sampling: Sampling = "systematic",
        binned: bool = False,
    ) -> pd.DataFrame:
        """Draw more synthetic records; the same for a seed as those of ``verticil release sample``.

        Args:
            n: how many.
            given: variable -> category, or of a variable with bins a number: all records have it, drawn from the exact
                conditional distribution.
            seed: the same one, the same records.
            source: what they come from; None: what the release's own do.
            sampling: rounded within each parent configuration, drawn one by one, or dealt out of histograms.
            binned: as for `table`.

        Raises:
            Misuse: USAGE, as of `query`; n or seed is negative, or n is above 100 million.
        """
        import pandas as pd

        from verticil.api.frames import type_columns
        from verticil.shared.release.drawing import draw_record_tables
        from verticil.shared.synthesis.identifier import add_identifier

        if n > _MOST_RECORDS:
            problem = f"n: got {n:,}, expected at most {_MOST_RECORDS:,} in one frame"
            raise Misuse("USAGE", problem, hint="write more of them to a file: verticil release sample --out")
        parts = draw_record_tables(self.models, n, seed=seed, given=given or {}, sampling=sampling, source=source)
        study = self.models.study
        records = add_identifier(parts, None if study is None else study.identifier)
        return type_columns(pd.concat(list(records), ignore_index=True), self.models, as_bins=binned)

    @cached_property
    def _codes(self) -> list[Codes]:
        """The synthetic records, as codes: (n,) of each variable."""
        from verticil.shared.synthesis.record_checks import read_records

        table = self.file("synthetic.parquet")
        study = self.models.study
        if study is None:
            raise GateFailed("RELEASE_INVALID", f"{self.path}: study.json: missing", hint="this is not a release")
        return read_records(table, self.models.schema, self._n_records(), study.knowledge, identifier=study.identifier)

    @check_arguments()
    def file(self, name: str) -> Path:
        """Return the path of one of its files, which is as it was verified.

        Raises:
            GateFailed: RELEASE_INVALID, it is not there, another one than it was, or none of those that were verified.
        """
        path = self.path / name
        if self.verified is not None and name not in self.listed:
            problem = f"{path}: none of the files that were verified"
            raise GateFailed("RELEASE_INVALID", problem, hint="take a name that `listed` has")
        try:
            with path.open("rb") as file:
                self._check_unchanged(name, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError:
            raise GateFailed("RELEASE_INVALID", f"{path}: missing", hint="fetch the release again") from None
        return path

    def _read(self, name: str, *, most: int = DOCUMENT_BYTES) -> bytes:
        """Return the bytes of a file that has at most so many; errors as of `file`."""
        from verticil.shared.release.signatures import read_document

        content = read_document(self.path, name, most=most, hint="fetch the release again")
        self._check_unchanged(name, hashlib.sha256(content).hexdigest())
        return content

    def _check_unchanged(self, name: str, sha256: str) -> None:
        if sha256 != self.listed.get(name, sha256):
            raise GateFailed(
                "RELEASE_INVALID", f"{self.path / name}: changed since it was opened", hint="open it again"
            )

    # ---- elsewhere

    def plot(self) -> Plot:
        """Return a drawing of the network, see `NamedNetwork.plot`."""
        return self.network.plot()

    def to_networkx(self) -> Any:
        """Return the network for networkx; see `NamedNetwork.to_networkx`."""
        return self.network.to_networkx()

    def to_pgmpy(self) -> Any:
        """Return the network for pgmpy; see `NamedNetwork.to_pgmpy`."""
        return self.network.to_pgmpy()

    def to_pyagrum(self) -> Any:
        """Return the network for pyAgrum; see `NamedNetwork.to_pyagrum`."""
        return self.network.to_pyagrum()

    # ---- shown

    def _lines(self) -> tuple[str, str, str]:
        from verticil.shared.release.wording import count

        network = self.models.network
        head = (
            f"Release '{self.id}': {count(len(network.schema), 'variable')} of "
            f"{count(len(self.parties), 'party', 'parties')}, {count(len(network.dag.edges()), 'edge')}, {self.n_common:,} people"
        )
        cost = self._cost() + ("; simulated" if self.document["simulation"] else "")
        if self.verified is None:
            return head, f"NOT VERIFIED: {self.warning}", cost
        return head, f"verified: signed by {', '.join(self.verified.signers)}, {self.verified.published_at}", cost

    def _cost(self) -> str:
        """Say what the study cost a person, for each reader; rounded upwards. Of one owner's columns there is no reader."""
        from verticil.shared.privacy.figures import epsilon_words

        def delta(item: Mapping[str, Any]) -> str:
            return f", delta {item['delta']:g}" if item["delta"] else ""

        costs = [
            f"{epsilon_words(item['epsilon'])}{delta(item)} for {re.split('[:,]', item['reader'])[0]}"
            for item in self.document["privacy"]["accounts"]["list"]
            if len(self.parties) > 1 or item["account"] != "columns"
        ]
        return f"each person: {'; '.join(costs)}"

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        head, state, cost = map(escape, self._lines())
        colour = "#b00020" if self.verified is None else "#00612e"
        return (
            f"<div><strong>{head}</strong><br><span style='color:{colour};font-weight:600'>{state}</span><br>{cost}"
            f"<br>{self.plot().svg}</div>"
        )
