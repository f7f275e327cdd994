"""The design page of ``verticil study ui FILE..``: columns on one side, what follows from them on the other.

Every change of the form asks for the plan anew, by the function behind ``verticil study check``; the file stays as it is until it
is saved. A file that was changed elsewhere since the page was loaded is not overwritten.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from verticil.analyst.check import check
from verticil.analyst.models import ModelRow, compare_models
from verticil.analyst.prediction import prediction_text, worth_of
from verticil.curator.plan import OwnersPlan, plan_of
from verticil.design.edits import Design, design_of, edited
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.documents.config import toml_text
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.numerics.joint.worth import sentence
from verticil.shared.pages.rendering import Problem, Templates
from verticil.shared.pages.server import PageServer, form_of
from verticil.shared.privacy.plan import BudgetPlan
from verticil.shared.privacy.study_table import RECORDS_PER_CELL, StudyTable
from verticil.shared.storage.disk import replace_file, write_fault
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Finding
from verticil.shared.study.reading import read_study_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LINE_BITS: Final = 10_000_000
"""Bits a second of the line that seconds are stated for."""
EXCHANGE_SECONDS: Final = 0.05
"""Seconds that one message waits for another on it."""
_MOST_RELATIONS: Final = 12
_SAVED: Final = "./?saved=yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """A study by one model, with the seconds that its bytes and exchanges take on the line of `LINE_BITS`."""

    row: ModelRow
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """What follows from a study.

    Attributes:
        problem, hint: why there is no plan; then nothing else is stated.
        distance, nearer: predicted distance to the people in words, and the sentence on what records will be worth.
        owner: of a study of one party: what its release will be worth.
        drowned: relations that the noise hides, as pairs of columns; `n_drowned` of `n_relations` in all.
    """

    problem: str = ""
    hint: str = ""
    n: int = 0
    distance: str = ""
    nearer: str = ""
    owner: OwnersPlan | None = None
    table: StudyTable | None = None
    budget: BudgetPlan | None = None
    models: tuple[ModelLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    drowned: tuple[str, ...] = ()
    n_drowned: int = 0
    n_relations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One file, and what stands in the way of its use: what waits for a review, or what is wrong with it."""

    place: int
    name: str
    title: str
    to_review: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPage:
    """The files that the command was given."""

    files: tuple[FileRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignPage:
    """One study: what can be edited, and the plan as the file stands; `seen`: a digest of the file."""

    name: str
    design: Design
    plan: PlanPage
    seen: str


TEMPLATES: Final = Templates(
    "verticil.design",
    menu=(("files", "", "Studies"),),
    subtitle="the design of studies, before anybody works",
    values={"saved": False, "line": f"{LINE_BITS // 10**6} Mbit/s, {1000 * EXCHANGE_SECONDS:g} ms an exchange"},
)


def plan_page(text: str, folder: Path, *, n: int | None, today: dt.date) -> PlanPage:
    """Return what follows from the text of a study.toml; what is wrong with it is its only content.

    Args:
        text: of the file.
        folder: of the file, for what it names.
        n: people; None: the study's minimum.
        today: the day (UTC) to judge the expiry by.
    """
    try:
        study = read_study_text(text, folder, by_owner=True)
        return _owners(study, n) if len(study.parties) == 1 else _together(study, n, today)
    except VerticilError as error:
        return PlanPage(problem=f"{error.code}: {error.message}", hint=error.hint)


def _owners(study: Study, n: int | None) -> PlanPage:
    plan = plan_of(study, n=n)
    row = plan.rows[len(plan.rows) // 2]
    return PlanPage(
        n=plan.n,
        owner=plan,
        distance="" if row.prediction is None else prediction_text(row.prediction),
        nearer="" if row.prediction is None else sentence(worth_of(row.prediction)),
        findings=plan.findings,
        drowned=row.drowned_relations[:_MOST_RELATIONS],
        n_drowned=row.n_drowned_pairs,
        n_relations=plan.n_tables,
    )


def _together(study: Study, n: int | None, today: dt.date) -> PlanPage:
    result = check(study, n=n, today=today)
    rows = [row for row in result.table.rows if row.is_sent]
    # A pair of columns is worth n a² b² records, and each like pair n a⁴: the geometric mean of both.
    pairs = [(one, other) for place, one in enumerate(rows) for other in rows[:place]]
    drowned = [
        f"{other.variable} – {one.variable}"
        for one, other in pairs
        if math.sqrt(one.effective_records * other.effective_records) < RECORDS_PER_CELL * one.n_states * other.n_states
    ]
    models = result.models or compare_models(study, result.table.n)
    return PlanPage(
        n=result.table.n,
        distance="" if result.prediction is None else prediction_text(result.prediction),
        nearer="" if result.prediction is None else sentence(worth_of(result.prediction)),
        table=result.table,
        budget=result.plan,
        models=tuple(
            ModelLine(row=row, seconds=row.bytes_sent * 8 / LINE_BITS + row.exchanges * EXCHANGE_SECONDS)
            for row in models
        ),
        findings=result.findings,
        drowned=tuple(drowned[:_MOST_RELATIONS]),
        n_drowned=len(drowned),
        n_relations=len(pairs),
    )


class DesignPages:
    """The routes of a design page.

    Args:
        paths: the study files, in their order.
        clock: UTC now.
    """

    def __init__(self, paths: Sequence[Path], *, clock: Callable[[], dt.datetime] = utc_now) -> None:
        self._paths = tuple(paths)
        self._clock = clock

    @property
    def routes(self) -> list[Route]:
        """The list of files, and for each its page, its plan, and saving it."""
        return [
            Route("/", self._files),
            Route("/{place:int}/", self._design),
            Route("/{place:int}/plan", self._plan, methods=["POST"]),
            Route("/{place:int}/save", self._save, methods=["POST"]),
        ]

    def fingerprint(self) -> object:
        """Return what is equal as long as no file has changed."""
        return [path.stat().st_mtime_ns for path in self._paths if path.exists()]

    def _files(self, request: Request) -> Response:
        return self._shown(request, "files", FilesPage(files=tuple(map(self._row, range(len(self._paths))))))

    def _row(self, place: int) -> FileRow:
        path = self._paths[place]
        try:
            design = design_of(toml_text(path))
        except VerticilError as error:
            return FileRow(place=place, name=path.name, title="", to_review=0, problem=f"{error.code}: {error.message}")
        waits = 0 if design.reviewed else len(design.to_review)
        return FileRow(place=place, name=path.name, title=design.title, to_review=waits, problem="")

    def _design(self, request: Request) -> Response:
        try:
            path, text = self._file(request)
            design = design_of(text)
        except VerticilError as error:
            return self._problem(request, error)
        plan = plan_page(text, path.parent, n=None, today=self._clock().date())
        page = DesignPage(name=path.name, design=design, plan=plan, seen=_digest(text))
        return self._shown(request, "design", page, live=False, saved=request.query_params.get("saved") == "yes")

    def _plan(self, request: Request) -> Response:
        form = form_of(request)
        try:
            path, text = self._file(request)
            plan = plan_page(edited(text, form), path.parent, n=_people(form), today=self._clock().date())
        except VerticilError as error:
            plan = PlanPage(problem=f"{error.code}: {error.message}", hint=error.hint)
        return TEMPLATES.answer(request, "plan", plan)

    def _save(self, request: Request) -> Response:
        """Write the file; a refusal stands beside the form, whose edits stay (without htmx: on a page of its own)."""
        form, is_beside = form_of(request), "hx-request" in request.headers
        try:
            path, text = self._file(request)
            if form.get("seen", "") != _digest(text):
                hint = "open the page in a second tab, and carry your changes over; they stay here"
                raise Misuse("STUDY_INVALID", f"{path.name} has changed since the page was loaded", hint=hint)
            new = edited(text, form)
            read_study_text(new, path.parent, by_owner=True)
            try:
                replace_file(path, new.encode("utf-8"), part=path.with_name(f".{path.name}.part"))
            except OSError as error:
                raise write_fault(error, path) from None
        except VerticilError as error:
            if is_beside:
                return TEMPLATES.answer(request, "unsaved", _problem(error), status=422)
            return self._problem(request, error, heading="Nothing was saved", status=422)
        return Response(headers={"HX-Redirect": _SAVED}) if is_beside else RedirectResponse(_SAVED, 303)

    def _file(self, request: Request) -> tuple[Path, str]:
        place = int(request.path_params["place"])
        if place >= len(self._paths):
            raise Misuse("FILE_MISSING", "the address names no file")
        return self._paths[place], toml_text(self._paths[place])

    def _shown(self, request: Request, template: str, model: DataclassInstance, **values: Any) -> Response:
        shown_at = f"{self._clock():%Y-%m-%d %H:%M:%S} UTC"
        return TEMPLATES.answer(request, template, model, shown_at=shown_at, **values)

    def _problem(self, request: Request, error: VerticilError, *, heading: str = "", status: int = 404) -> Response:
        return self._shown(request, "problem", _problem(error, heading), status=status, live=False)


def design_server(
    paths: Sequence[Path], address: tuple[str, int], *, clock: Callable[[], dt.datetime] = utc_now
) -> PageServer:
    """Return a server of the design page of some files; raises as `PageServer`."""
    pages = DesignPages(paths, clock=clock)
    return PageServer(
        pages.routes, address, fingerprint=pages.fingerprint, decides=True, form_bytes=1 << 20, form_fields=5000
    )


def _problem(error: VerticilError, heading: str = "") -> Problem:
    said = f"{error.code}: {error.message}"
    return Problem(heading=heading or "Nothing to show", said=said, hint=error.hint, back="./" if heading else "")


def _people(form: Mapping[str, str]) -> int | None:
    text = form.get("n", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 10**9):
        raise Misuse("STUDY_INVALID", f"people: got '{text[:40]}', expected a whole number above 0")
    return int(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
