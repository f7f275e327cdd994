"""A study's file as a value: drafted from tables, read, edited, checked, written.

>>> import pandas as pd
>>> from verticil.api import study
>>> people = pd.DataFrame({"id": range(40), "smoker": ["yes", "no"] * 20, "age": [20 + i % 40 for i in range(40)]})
>>> drafted = study.draft({"clinic": people}).replace(id="hearts", structure={"max_parents": 1})
>>> drafted
Study 'hearts': 2 variables of 1 party, model central
clinic: smoker (2), age (3)
a draft, 6 lines to review: check(n=..) says what it promises and what it can learn
>>> mine = drafted.with_variable("smoker", categories=["no", "yes", "unknown"], from_="public").mark_reviewed()
>>> mine.resolved.schema.n_states, drafted.is_reviewed, mine.is_reviewed
((3, 3), False, True)
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verticil.api.arguments import check_arguments, plain
from verticil.api.optional import import_optional
from verticil.shared.core.errors import Misuse
from verticil.shared.study.vocabulary import PLACEHOLDERS

if TYPE_CHECKING:
    import pandas as pd

    from verticil.analyst.check import Checked
    from verticil.curator.plan import OwnersPlan
    from verticil.shared.study import document


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Study:
    """A study document that was read and is whole. Edits give another one, with the comments that stand in it.

    Attributes:
        text: the TOML of ``study.toml``.
        folder: what the file of stated knowledge is relative to.
        path: the file that was read, for messages; None: the text was made here.
        resolved: the study with every default filled in, as programs have it. What only the owner of a whole table may say in it
            is read, and refused where parties shall carry it out: by `simulate`, `submit` and, of several parties, `check`.

    Raises:
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID, MATRIX_SINGULAR, FILE_MISSING: it is no study.
    """

    text: str = field(repr=False)
    folder: Path = Path()
    path: Path | None = None
    resolved: document.Study = field(init=False)

    def __post_init__(self) -> None:
        from verticil.shared.study.reading import read_study_text

        study = read_study_text(self.text, self.folder, by_owner=True, path=self.path)
        object.__setattr__(self, "resolved", study)

    @property
    def id(self) -> str:
        """The id of the study."""
        return self.resolved.id

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical study, hex: its name for programs."""
        from verticil.shared.study import canonical

        return canonical.digest(self.resolved).hex()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a draft left out, or is not as it seems: its lines that begin with ``# note``."""
        from verticil.analyst.draft import NOTE

        return tuple(line.removeprefix(NOTE) for line in self.text.splitlines() if line.startswith(NOTE))

    @property
    def to_review(self) -> tuple[str, ...]:
        """The lines of a draft that tell of the table they were drafted from, for people to replace."""
        return tuple(line for line in self.text.splitlines() if "# review:" in line)

    @property
    def is_reviewed(self) -> bool:
        """Whether its author has reviewed it, or it never was a draft: else `simulate`, `synthesize` and `submit` refuse it."""
        return self.resolved.reviewed

    def mark_reviewed(self) -> Study:
        """Another study whose author says so of it: ``[draft] reviewed = true``. What is still to be replaced stays as it is."""
        return self.replace(draft={"reviewed": True})

    @property
    def variables(self) -> pd.DataFrame:
        """A row for each variable: ``party``, ``kind`` (its type, else numbers or categories), ``categories``, ``from`` (where
        they come from; None: not stated), ``epsilon`` of what is sent.
        """
        import pandas as pd

        from verticil.shared.privacy.study_table import study_table

        epsilon = {
            name: row.epsilon for row in study_table(self.resolved, None).rows for name in row.variable.split(", ")
        }
        rows = [
            {
                "variable": item.name,
                "party": item.owner,
                "kind": item.kind or ("categories" if item.bins is None else "numbers"),
                "categories": item.labels,
                "from": item.origin,
                "epsilon": epsilon.get(item.name, float("nan")),
            }
            for item in self.resolved.schema.variables
        ]
        return pd.DataFrame(rows).set_index("variable")

    @check_arguments()
    def check(self, *, n: int | None = None) -> Checked | OwnersPlan:
        """Return what it promises each person and what it can learn from `n` common people (None: its minimum); no data are read.

        The same as ``verticil study check``: `to_dict` is its JSON. Of a study with one party it is the plan of `synthesize`.
        """
        from verticil.analyst.check import check
        from verticil.shared.federation.identity.pki import utc_now

        if n is not None and n < 1:
            raise Misuse("USAGE", f"n: got {n}, expected 1 or more")
        if len(self.resolved.parties) == 1:
            from verticil.curator.plan import plan_of

            return plan_of(resolve_study(self, by_owner=True), n=n)
        return check(resolve_study(self), n=n, today=utc_now().date())

    def replace(self, **changes: object) -> Study:
        """Return another study with some keys of its file replaced: a table's keys are merged into it, None takes a key out.

        Args:
            changes: key -> value, as in ``study.toml``: ``id="trial", structure={"max_parents": 1}``. Arrays of numpy and columns
                of pandas are lists.

        Raises:
            Misuse: STUDY_INVALID, a value has no place in the file; and as of `Study`.
        """
        content = self._parse()
        _merge(content, changes)
        return self._write(content)

    @check_arguments()
    def with_variable(self, name: str, /, **changes: object) -> Study:
        """Return another study with some keys of a variable replaced, as in ``[[variable]]``; None takes a key out.

        Args:
            name: of the variable.
            changes: key -> value; ``from_`` is the key ``from``, which Python reserves.

        Raises:
            Misuse: USAGE, there is no such variable; the nearest one is named; and as of `replace`.
        """
        content = self._parse()
        keys = {key.removesuffix("_"): value for key, value in changes.items()}
        _merge(content["variable"][self._place(content, name)], keys)
        return self._write(content)

    @check_arguments()
    def without_variable(self, *names: str) -> Study:
        """Return another study without some variables; errors as of `with_variable`."""
        content = self._parse()
        for name in names:
            del content["variable"][self._place(content, name)]
        _taken_out(content, names)
        if pairs := content.get("release", {}).get("pairs"):
            content["release"]["pairs"] = [pair for pair in pairs if not {*names} & {*pair}]
        return self._write(content)

    @check_arguments()
    def with_randomization(self, *names: str, **rule: object) -> Study:
        """Return another study in which these columns are randomized by a rule of their own, as in ``[[randomization]]``.

        Args:
            names: of variables; each gets the same rule.
            rule: ``scheme="symmetric", epsilon=1.0``, or what else the scheme has.
        """
        tomlkit = import_optional("tomlkit")
        content = self._parse()
        for name in names:
            self._place(content, name)
        _taken_out(content, names)
        table = tomlkit.table()
        _merge(table, {"variables": names, "scheme": "symmetric", **rule})
        if "randomization" not in content:
            content["randomization"] = tomlkit.aot()
        content["randomization"].append(table)
        return self._write(content)

    @check_arguments()
    def save(self, path: Path | str) -> Path:
        """Write the file, which is not there yet.

        Raises:
            Misuse: FILE_EXISTS.
        """
        from verticil.pki.files import write_new

        write_new(Path(path), self.text)
        return Path(path)

    def to_toml(self) -> str:
        """Return the text of the file."""
        return self.text

    def _parse(self) -> Any:
        return import_optional("tomlkit").parse(self.text)

    def _write(self, content: Any) -> Study:
        return dataclasses.replace(self, text=import_optional("tomlkit").dumps(content), path=None)

    def _place(self, content: Any, name: str) -> int:
        from verticil.shared.documents.toml_table import near_hint

        names = [str(item["name"]) for item in content["variable"]]
        if name not in names:
            raise Misuse("USAGE", f"'{name}': no such variable in study '{self.id}'", hint=near_hint(name, names))
        return names.index(name)

    def __repr__(self) -> str:
        study = self.resolved
        variables_of = {
            party: [study.schema[place] for place in study.schema.owned_by(party)] for party in study.parties
        }
        columns = "; ".join(
            f"{party}: {', '.join(f'{item.name} ({item.n_states})' for item in items[:6])}"
            + (", .." if len(items) > 6 else "")
            for party, items in variables_of.items()
        )
        n_parties = f"{len(study.parties)} {'party' if len(study.parties) == 1 else 'parties'}"
        n_to_review = len(self.to_review)
        state = "not checked" if study.reviewed else f"a draft, {n_to_review} lines to review"
        return (
            f"Study '{study.id}': {len(study.schema)} variables of {n_parties}, model {study.model}\n{columns}\n"
            f"{state}: check(n=..) says what it promises and what it can learn"
        )

    def _repr_html_(self) -> str:
        from html import escape

        head, _, state = (escape(line) for line in repr(self).split("\n"))
        variables = self.variables
        if variables["from"].isna().all():
            variables = variables.drop(columns="from")  # of a study that does not state it
        return f"<div><strong>{head}</strong><br>{state}<br>{variables.to_html()}</div>"


def _merge(table: Any, changes: Mapping[str, object]) -> None:
    for key, value in changes.items():
        if value is None:
            table.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(table.get(key), Mapping):
            _merge(table[key], value)
        else:
            try:
                table[key] = plain(value)
            except import_optional("tomlkit").exceptions.ConvertError:
                problem = f"{key}: a {type(value).__name__}, or what is in it, has no place in study.toml"
                hint = "write numbers, texts, booleans, dates, and lists of these"
                raise Misuse("STUDY_INVALID", problem, hint=hint) from None


def _taken_out(content: Any, names: tuple[str, ...]) -> None:
    """Take columns out of the rules of their own; what is randomized jointly stays."""
    rules = content.get("randomization", [])
    for place in reversed(range(len(rules))):
        if (own := rules[place].get("variables")) is None:
            continue
        remaining = [name for name in own if name not in names]
        if not remaining:
            del rules[place]
        elif len(remaining) < len(own):
            rules[place]["variables"] = remaining
    if "randomization" in content and not rules:
        del content["randomization"]


@check_arguments(tables="a mapping from party to table, such as {'owner': table}")
def draft(
    tables: Mapping[str, Path | str | pd.DataFrame],
    *,
    title: str = PLACEHOLDERS["title"],
    purpose: str = PLACEHOLDERS["purpose"],
    public: bool = False,
    public_columns: Sequence[str] = (),
    bins: bool = False,
    means: bool = False,
    id_column: str | None = None,
    columns: Sequence[str] = (),
    sheet: str | None = None,
    today: dt.date | None = None,
) -> Study:
    """Write a first draft from tables at hand; what stands in it was seen in the data, and is to be reviewed (`Study.to_review`).

    Categories must be public knowledge: draft from last year's or public data, or replace what was drafted. Then say so
    (`Study.mark_reviewed`): before, `simulate`, `synthesize` and `Federation.submit` refuse the study.

    Args:
        tables: party -> its table: a CSV or Parquet file, or a frame; ``PARTY.TABLE`` -> a related table, several rows a person.
        title, purpose: of the study; the defaults are refused until they are replaced.
        public: the tables are public: what was seen in them needs no review.
        public_columns: columns of which this holds.
        bins: take the bins of numbers from the table, where those of an owner alone would be measured with noise.
        means: write the exact mean of the numbers in each bin, too, and the bins.
        id_column: names the person in every table; None: the column that is in all of them and unique in each.
        columns: the only columns to draft; none: all.
        sheet: of a workbook; None: its only one.
        today: the day (UTC) from which the expiry is counted, a year ahead; None: today.

    Raises:
        Misuse: USAGE, no table, or a party's name cannot stand in a certificate.
        DataFault: a table cannot be used; DATA_ID_MISSING, no column is in all tables and unique in each.
    """
    from verticil.analyst.draft import Wording
    from verticil.analyst.draft import draft as draft_text
    from verticil.api.frames import as_files

    wording = Wording(
        title=title,
        purpose=purpose,
        public=public,
        public_columns=tuple(public_columns),
        bins=bins,
        means=means,
        id_column=id_column or "",
        columns=tuple(columns),
        sheet=sheet or "",
    )
    with tempfile.TemporaryDirectory(prefix="verticil-draft-") as folder:
        return Study(text=draft_text(as_files(tables, Path(folder)), wording=wording, today=today))


@check_arguments()
def read(path: Path | str) -> Study:
    """Read ``study.toml``.

    Raises:
        Misuse: FILE_MISSING, and as of `Study`.
    """
    from verticil.shared.documents.config import toml_text

    place = Path(path)
    return Study(text=toml_text(place, code="STUDY_INVALID"), folder=place.parent, path=place)


def resolve_study(study_or_path: Study | document.Study | Path | str, *, by_owner: bool = False) -> document.Study:
    """Return the study that is given as a value, or the path of its file.

    Args:
        study_or_path: the study.
        by_owner: the owner of a whole table uses it alone; else what only such an owner may say is refused.

    Raises:
        Misuse: FILE_MISSING, and as of `Study`.
    """
    from verticil.shared.study.document import Study as Resolved
    from verticil.shared.study.reading import read_study_text

    if isinstance(study_or_path, Resolved):
        return study_or_path
    study = study_or_path if isinstance(study_or_path, Study) else read(study_or_path)
    return study.resolved if by_owner else read_study_text(study.text, study.folder, path=study.path)
