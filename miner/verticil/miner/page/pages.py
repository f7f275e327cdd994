"""The pages of the miner: studies as a table, one study with its parties, what is published.

They read, but for two things: the operator ends a study, and the analyst submits and withdraws their own, by the calls behind
``verticil miner close`` and ``verticil study submit | cancel``. For both the study's id is typed. Nothing of a column is shown
that is not in the study or in a published release.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from verticil.miner.page.source import Source, StudyEvent
from verticil.miner.storage.records import ReleaseFile
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.federation.audit import AuditLine
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.pages.login import Login
from verticil.shared.pages.rendering import Problem, Templates
from verticil.shared.pages.server import REPORT_POLICY, PageServer, form_of
from verticil.shared.pages.study_status import age_text, name_study, reasons, revocations, votes
from verticil.shared.privacy.statement import AccountStatement, privacy_statement
from verticil.shared.privacy.study_table import StudyTable, study_table
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.states import State, is_final
from verticil.wire.v1.control_pb2 import PartyStatus, StudySummary

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_STAGES: Final = (
    ("approval", (State.SUBMITTED, State.AWAITING_APPROVAL)),
    ("common people", (State.ALIGNING,)),
    ("columns", (State.PREPARING, State.UPLOADING)),
    ("learning", (State.ESTIMATING, State.LEARNING)),
    ("review", (State.REVIEW,)),
    ("published", (State.PUBLISHED,)),
)
_REPORT: Final = "report.html"
_UNANSWERED: Final = "The miner did not answer; the same form again does nothing twice"
STUDY_BYTES: Final = 1 << 20
"""Of a study that is pasted into a form, as it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step on the way to the release."""

    name: str
    over: bool
    now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One study of the table: where it stands, and who holds it up."""

    digest: str
    name: str
    title: str
    state: str
    how: str
    stages: tuple[Stage, ...]
    waits_for: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiesPage:
    """All studies, the newest first."""

    rows: tuple[StudyRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyRow:
    """What a party has done, and what is waited for there."""

    name: str
    online: str
    approved: str
    linked: bool
    confirmed: bool
    columns: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """One study.

    Attributes:
        table: what each column tells and is worth; None: the reader is not told.
        accounts: what all of it tells each reader of a person; empty: the reader is not told.
        since: when something last happened; empty: not known.
        may_end: ``close`` or ``cancel``; empty: this reader cannot end it.
    """

    row: StudyRow
    study_id: str
    failure: str
    hint: str
    deadline: str
    n_common: int
    parties: tuple[PartyRow, ...]
    revoked: tuple[str, ...]
    since: str
    purpose: str
    table: StudyTable | None
    accounts: tuple[AccountStatement, ...]
    files: tuple[ReleaseFile, ...]
    has_report: bool
    events: tuple[StudyEvent, ...]
    may_end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """The miner's own log, the newest line first."""

    lines: tuple[AuditLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPage:
    """A form for a study; after a refusal with its text, and what is wrong with it."""

    heading: str = "Submit a study"
    text: str = ""
    problem: str = ""
    hint: str = ""


def _finite(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "no limit"


TEMPLATES: Final = Templates(
    "verticil.miner.page",
    menu=(),
    subtitle="every study, and who holds it up",
    filters={"count": _finite},
    values={"reader": "", "may_submit": False, "done": ""},
)


class MinerPages:
    """The routes of the miner's pages.

    Args:
        source: the facts, and who reads.
        clock: UTC now.
    """

    def __init__(self, source: Source, *, clock: Callable[[], dt.datetime] = utc_now) -> None:
        self._source = source
        self._clock = clock
        self._menu = [("studies", "", "Studies")]
        if source.may_submit:
            self._menu.append(("submit", "submit", "Submit a study"))
        elif not source.reader:
            self._menu.append(("log", "log", "Log"))

    @property
    def routes(self) -> list[Route]:
        """All pages and forms of this reader."""
        routes = [
            Route("/", self._studies),
            Route("/study/{digest}/", self._study),
            Route("/study/{digest}/files/{path:path}", self._file),
            Route("/study/{digest}/end", self._end, methods=["POST"]),
        ]
        if self._source.may_submit:
            return [*routes, Route("/submit", self._submit_page), Route("/submit", self._submit, methods=["POST"])]
        return routes if self._source.reader else [*routes, Route("/log", self._log)]

    # ---- pages

    async def _studies(self, request: Request) -> Response:
        try:
            studies = await self._source.studies()
        except VerticilError as error:
            return self._problem(request, error)
        return self._shown(request, "studies", StudiesPage(rows=tuple(map(_row, reversed(studies)))))

    async def _study(self, request: Request) -> Response:
        source = self._source
        try:
            digest = _digest(request)
            study, proposal = await source.study(digest), await source.proposal(digest)
            events, files = await source.events(digest), await source.files(digest)
        except VerticilError as error:
            return self._problem(request, error)
        mine = source.may_submit and source.reader == study.submitter if source.reader else True
        is_open, words = not is_final(State(study.state)), reasons(study)
        page = StudyPage(
            row=_row(study),
            study_id=study.study_id,
            failure=f"{study.failure.code}: {study.failure.message}" if study.failure.code else "",
            hint=study.failure.hint,
            deadline=study.deadline,
            n_common=study.n_common,
            parties=tuple(_party(party, words[party.party]) for party in study.parties),
            revoked=tuple(revocations(study)),
            since=events[-1].at if events else "",
            purpose="" if proposal is None else proposal.purpose,
            table=None if proposal is None else study_table(proposal, study.n_common or None),
            accounts=() if proposal is None else privacy_statement(proposal).accounts,
            files=tuple(files),
            has_report=any(file.path == _REPORT for file in files),
            events=tuple(events),
            may_end=("cancel" if source.reader else "close") if mine and is_open else "",
        )
        return self._shown(request, "study", page, done=request.query_params.get("done") == "end")

    async def _file(self, request: Request) -> Response:
        path = str(request.path_params["path"])
        try:
            content = await self._source.file(_digest(request), path)
        except VerticilError as error:
            return self._problem(request, error)
        if path == _REPORT:
            return Response(content, media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})
        headers = {"Content-Disposition": f'attachment; filename="{Path(path).name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def _log(self, request: Request) -> Response:
        try:
            lines = await self._source.log()
        except VerticilError as error:
            return self._problem(request, error)
        return self._shown(request, "log", LogPage(lines=tuple(lines[::-1][:300])))

    def _submit_page(self, request: Request) -> Response:
        return self._shown(request, "submit", SubmitPage(), live=False)

    # ---- what a reader does

    async def _end(self, request: Request) -> Response:
        form = form_of(request)
        try:
            digest = _digest(request)
            study = await self._source.study(digest)
            if form.get("typed", "").strip() != study.study_id:
                message = f"the study's id was typed otherwise, expected '{study.study_id}'"
                raise Misuse("USAGE", message, hint="type the id as it stands above the form")
            await self._source.end(digest, form.get("reason", ""))
        except VerticilError as error:
            heading = _refused(error, "Nothing was ended")
            return self._problem(request, error, heading=heading, status=422, back="./")
        return RedirectResponse("./?done=end", 303)

    async def _submit(self, request: Request) -> Response:
        text = form_of(request).get("study", "").replace("\r\n", "\n")
        try:
            digest = await self._source.submit(read_study_text(text, Path()))
        except VerticilError as error:
            heading = _refused(error, "Nothing was submitted")
            page = SubmitPage(heading=heading, text=text, problem=f"{error.code}: {error.message}", hint=error.hint)
            # not live: the next event would take these words away
            return self._shown(request, "submit", page, status=422, live=False)
        return RedirectResponse(f"./study/{digest.hex()}/", 303)

    # ---- what they share

    def _shown(self, request: Request, template: str, model: DataclassInstance, **values: Any) -> Response:
        return TEMPLATES.answer(request, template, model, **self._beside(), **values)

    def _beside(self) -> dict[str, Any]:
        shown_at = f"{self._clock():%Y-%m-%d %H:%M:%S} UTC"
        source = self._source
        facts = {"node": source.node, "reader": source.reader, "may_submit": source.may_submit}
        return facts | {"menu": self._menu, "shown_at": shown_at}

    def _problem(
        self, request: Request, error: VerticilError, *, heading: str = "", status: int = 0, back: str = ""
    ) -> Response:
        said = f"{error.code}: {error.message}"
        problem = Problem(heading=heading or "Nothing to show", said=said, hint=error.hint, back=back)
        status = status or (404 if error.code in ("STUDY_UNKNOWN", "FILE_MISSING") else 503)
        return TEMPLATES.answer(request, "problem", problem, status=status, live=False, **self._beside())


def miner_server(
    source: Source,
    address: tuple[str, int],
    *,
    login: Login | None = None,
    elsewhere: str = "another one: --listen 127.0.0.1:0",
    clock: Callable[[], dt.datetime] = utc_now,
) -> PageServer:
    """Return a server of the miner's pages; raises as `PageServer`."""
    return PageServer(
        MinerPages(source, clock=clock).routes,
        address,
        fingerprint=source.version,
        decides=True,
        form_bytes=STUDY_BYTES,
        login=login,
        elsewhere=elsewhere,
    )


def _refused(error: VerticilError, words: str) -> str:
    """Return the heading over an error: `words`, unless the miner may have done it before the line broke."""
    return _UNANSWERED if error.code in ("UNREACHABLE", "DEADLINE") else words


def _digest(request: Request) -> bytes:
    text = str(request.path_params["digest"])
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise Misuse("STUDY_UNKNOWN", "the address names no study")
    return bytes.fromhex(text)


def _row(study: StudySummary) -> StudyRow:
    state = State(study.state)
    at = next((place for place, (_, states) in enumerate(_STAGES) if state in states), None)
    over = len(_STAGES) if state is State.PUBLISHED else at or 0
    how = {State.PUBLISHED: "done", State.FAILED: "failed"}.get(state, "ended" if is_final(state) else "working")
    waits = [] if is_final(state) else [f"{party}: {words}" for party, words in reasons(study).items() if words]
    return StudyRow(
        digest=study.study_digest.hex(),
        name=name_study(study),
        title=study.title,
        state=state.words,
        how=how,
        stages=tuple(Stage(name=name, over=place < over, now=place == at) for place, (name, _) in enumerate(_STAGES)),
        waits_for=tuple(waits),
        detail=study.stage_detail,
    )


def _party(party: PartyStatus, words: str) -> PartyRow:
    heard = (
        f"last heard of {age_text(party.lease_age_seconds)} ago"
        if party.seen
        else "not heard of since the miner started"
    )
    return PartyRow(
        name=party.party,
        online=party.standing or ("online" if party.online else f"offline, {heard}"),
        approved="yes" if party.approved else f"no{votes(party)}",
        linked=party.pseudonyms_complete,
        confirmed=party.alignment_confirmed,
        columns=f"{party.units_received} of {party.units_expected}",
        why=words,
    )
