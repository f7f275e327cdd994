"""The pages of a site: each route opens the state, says what is there and closes it; a daemon may run beside it or not.

Without an officer the pages only read: the database is opened so that SQLite refuses every write, and no table is opened. With
one (`Officer`) they take that person's decisions, by the functions behind ``party approve`` and its like, which ask the policy,
the votes and the audit log again. The officer's key stays in this process: no page holds it, and no form asks for it.

A form says what its reader saw (`page_model.seen_of`). What has changed meanwhile, in another tab, by another approver or at the
miner, is refused with what it is now, and nothing is decided.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from verticil.party.config import PartyConfig, load_party
from verticil.party.operator import accounts, commands, reports
from verticil.party.operator.page import page_model as view
from verticil.party.operator.plain_language import PRIOR
from verticil.party.operator.preview import look_ahead
from verticil.party.operator.reports import BudgetView
from verticil.party.operator.view_model import CostView
from verticil.party.policy.comparison import percent
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import Misuse, Refusal, VerticilError
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.numerics.knowledge.words import EXPLAINED, HEADING
from verticil.shared.pages.login import Login
from verticil.shared.pages.rendering import Problem, Templates
from verticil.shared.pages.server import REPORT_POLICY, PageServer, form_of
from verticil.shared.privacy.figures import belief, gamma_of_epsilon, odds

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_DONE: Final = {
    "approve": "Your yes is stored and signed. The daemon sends the approval as soon as enough people have approved.",
    "deny": "Your no is stored. Nothing leaves for this study any more; the reason goes to the analyst or the other parties.",
    "countersign": "The release is countersigned. The daemon tells the miner.",
    "revoke": "The approval is taken back. A transfer under way stops, and the others delete what they have.",
}
_LISTED: Final = (
    "SELECT digest, version, remote_state, remote_approved, remote_failure, stage, percent, n_common, ended_words, forgotten"
    " FROM study",
    "SELECT digest, approver, content FROM vote",
    "SELECT digest FROM approval",
    "SELECT digest FROM denial",
    "SELECT digest, code FROM failure",
    "SELECT digest, sent FROM revocation",
    "SELECT digest, fetched, signature IS NULL FROM review",
    "SELECT digest, unit, receipt IS NULL FROM artifact",
    "SELECT max(number) FROM ledger",
    "SELECT number FROM audit_anchor",
    "SELECT connected, problem FROM heartbeat",
)


class Finding(Protocol):
    """The outcome of one check of the node, as ``verticil doctor`` has it: ``ok``, ``warn`` or ``fail``."""

    @property
    def check(self) -> str:
        """Return what was looked at."""
        ...

    @property
    def level(self) -> str:
        """Return the outcome in a word."""
        ...

    @property
    def detail(self) -> str:
        """Return what was seen there."""
        ...

    @property
    def hint(self) -> str:
        """Return what to do about it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Officer:
    """A person who decides in the page.

    Attributes:
        name: as with ``--as``.
        key: None where party.toml names no approvers.
    """

    name: str
    key: ApproverKey | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPage:
    """What ``verticil doctor`` finds."""

    findings: Sequence[Finding]


Doctor = Callable[[Path], Awaitable[Sequence[Finding]]]


def belief_text(epsilon: float | None) -> str:
    """Write to what a belief of 15 % can be raised by what has this epsilon, rounded up.

    >>> belief_text(2.0), belief_text(None)
    ('56.6\\xa0%', 'certainty')
    """
    gamma = gamma_of_epsilon(math.inf if epsilon is None else epsilon)
    return (
        "certainty" if gamma is None else percent(belief(PRIOR, gamma), up=True).replace(" ", "\N{NO-BREAK SPACE}", 1)
    )


def odds_text(epsilon: float | None) -> str:
    """Write by which factor what has this epsilon can change anybody's odds, rounded up.

    >>> odds_text(2.0), odds_text(11.5), odds_text(None)
    ('× 7.4', '× 98,716', 'without bound')
    """
    factor = odds(math.inf if epsilon is None else epsilon)
    if factor is None or factor > 1e12:
        return "without bound" if factor is None else "× more than a million million"
    return f"× {math.ceil(factor * 10) / 10:.1f}" if factor < 100 else f"× {math.ceil(factor):,}"


def _besides(row: CostView | BudgetView) -> tuple[str, ...]:
    """Describe the accounts of a data set in words, under its figures."""
    words = accounts.numerical_words(row) if isinstance(row, BudgetView) else accounts.beside_words(row)
    return accounts.besides(row, words)


def _finite(limit: float | None) -> float:
    return math.inf if limit is None else limit


TEMPLATES: Final = Templates(
    "verticil.party.operator.page",
    menu=(
        ("overview", "", "Overview"),
        ("ledger", "ledger", "Ledger"),
        ("audit", "audit", "Audit log"),
        ("health", "health", "Health"),
    ),
    subtitle="what this site decides and sends",
    filters={
        "belief": belief_text,
        "besides": _besides,
        "cost_words": accounts.cost_words,
        "finite": _finite,
        "odds": odds_text,
        "unstated": accounts.not_stated,
    },
    tests={"one_for_all": accounts.one_for_all},
    values={
        "stated_heading": HEADING,
        "stated_explained": EXPLAINED,
        "prior": percent(PRIOR),
        "officer": None,
        "done": "",
    },
)


class SitePages:
    """The routes of a site's pages.

    Args:
        party_toml: read anew for every request.
        officer: who decides here; None: the pages only read.
        doctor: the checks of ``verticil doctor``; None: there is no such page.
        clock: UTC now.
    """

    def __init__(
        self,
        party_toml: Path,
        *,
        officer: Officer | None = None,
        doctor: Doctor | None = None,
        clock: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self._path = party_toml
        self._officer = officer
        self._doctor = doctor
        self._clock = clock
        self._deciding = threading.Lock()
        self._stamps: object = None
        self._last: object = None

    @property
    def routes(self) -> list[Route]:
        """All pages, and the forms where somebody decides."""
        routes = [
            Route("/", self._overview),
            Route("/ledger", self._ledger),
            Route("/audit", self._audit),
            Route("/health", self._health),
            Route("/study/{digest}/", self._study),
        ]
        if self._officer is not None:
            routes += [
                Route("/study/{digest}/preview", self._preview),
                Route("/study/{digest}/release", self._release),
                Route("/study/{digest}/{act}", self._decide, methods=["POST"]),
            ]
        return routes

    def fingerprint(self) -> object:
        """Return what is equal as long as nothing has changed that a page shows."""
        config = load_party(self._path)
        database = config.state_directory / FILE_NAME
        files = (self._path, database, database.with_name(f"{FILE_NAME}-wal"))
        stamps = [(stat.st_mtime_ns, stat.st_size) for path in files if path.exists() for stat in [path.stat()]]
        if stamps != self._stamps:
            with Site.look(config) as site:
                rows = repr([site.database.rows(statement) for statement in _LISTED])
            self._stamps, self._last = stamps, (stamps[0], hashlib.sha256(rows.encode("utf-8")).digest())
        return self._last

    # ---- pages

    def _overview(self, request: Request) -> Response:
        return self._shown(request, "overview", lambda site: view.overview(site, self._clock()))

    def _ledger(self, request: Request) -> Response:
        return self._shown(request, "ledger", view.ledger)

    def _audit(self, request: Request) -> Response:
        search = request.query_params.get("search", "")[:200]
        return self._shown(request, "audit", lambda site: view.audit(site, search))

    def _health(self, request: Request) -> Response:
        findings = [] if self._doctor is None else asyncio.run(_gather(self._doctor, self._path))
        return self._shown(request, "health", lambda _site: HealthPage(findings=findings), live=False)

    def _study(self, request: Request) -> Response:
        done = _DONE.get(request.query_params.get("done", ""), "")
        return self._shown(
            request, "study", lambda site: view.study(site, _record(site, request), self._clock()), done=done
        )

    def _preview(self, request: Request) -> Response:
        try:
            preview, _ = look_ahead(load_party(self._path), _digest(request))
        except VerticilError as error:
            return self._problem(request, error)
        return TEMPLATES.answer(request, "preview", preview, **self._beside())

    def _release(self, request: Request) -> Response:
        """Show the report of the release that waits, verified; it may load nothing, and run nothing."""
        try:
            release = commands.look(load_party(self._path), _digest(request))
        except VerticilError as error:
            return self._problem(request, error)
        headers = {"Content-Security-Policy": REPORT_POLICY}
        return Response(Path(release.report).read_bytes(), media_type="text/html", headers=headers)

    def _shown(
        self, request: Request, template: str, model: Callable[[Site], DataclassInstance], **values: Any
    ) -> Response:
        try:
            with Site.look(load_party(self._path)) as site, site.database.transaction():
                shown, name = model(site), site.config.name
        except VerticilError as error:
            return self._problem(request, error)
        return TEMPLATES.answer(request, template, shown, **self._beside(name), **values)

    def _beside(self, node: str = "") -> Mapping[str, Any]:
        shown_at = f"{self._clock():%Y-%m-%d %H:%M:%S} UTC"
        return {"node": node or load_party(self._path).name, "shown_at": shown_at, "officer": self._officer}

    def _problem(self, request: Request, error: VerticilError, *, heading: str = "", status: int = 0) -> Response:
        problem = Problem(
            heading=heading or "Nothing to show",
            said=f"{error.code}: {error.message}",
            hint=error.hint,
            back="./" if "digest" in request.path_params and error.code != "STUDY_UNKNOWN" else "",
        )
        status = status or (404 if error.code == "STUDY_UNKNOWN" else 503)
        shown_at = f"{self._clock():%Y-%m-%d %H:%M:%S} UTC"
        return TEMPLATES.answer(request, "problem", problem, status=status, shown_at=shown_at, live=False)

    # ---- decisions

    def _decide(self, request: Request) -> Response:
        act, form, officer = str(request.path_params["act"]), form_of(request), self._officer
        assert officer is not None
        try:
            config = load_party(self._path)
            with self._deciding:
                self._check_form(config, request, act, form)
                _ACTS[act](config, _digest(request), officer, form)
        except _Changed as changed:
            error = changed.error
            return self._problem(request, error, heading="Nothing was decided: the study has changed", status=409)
        except VerticilError as error:
            return self._problem(request, error, heading="Nothing was decided", status=422)
        return RedirectResponse(f"./?done={act}", 303)

    def _check_form(self, config: PartyConfig, request: Request, act: str, form: Mapping[str, str]) -> None:
        """Check that the form decides about what its reader saw, and names the study where that has to be typed.

        Raises:
            _Changed: it has changed.
            Misuse: USAGE, there is no such act; STUDY_UNKNOWN; another id was typed.
        """
        if act not in _ACTS:
            raise Misuse("USAGE", "expected approve, deny, countersign or revoke")
        with Site.look(config) as site, site.database.transaction():
            record = _record(site, request)
            page = view.study(site, record, self._clock())
        if form.get("seen", "") != page.seen or act not in page.can:
            last = next((f"{item.what} by {item.who} at {item.at}" for item in page.decisions[::-1] if item.who), "")
            now = page.standing.words_of_state + (f"; last decision here: {last}" if last else "")
            raise _Changed(
                Refusal(
                    "APPROVAL_VOID",
                    f"study '{record.study_id}' is no longer as this form showed it; it is now: {now}",
                    hint="go back to the study, read what it is now, and decide anew",
                )
            )
        if act in ("countersign", "revoke") and form.get("typed", "").strip() != record.study_id:
            message = f"the study's id was typed otherwise, expected '{record.study_id}'"
            raise Misuse("USAGE", message, hint="type the id as it stands above the form")


class _Changed(Exception):
    """A form is about what has changed since."""

    def __init__(self, error: Refusal) -> None:
        super().__init__(error.message)
        self.error = error


def _approve(config: PartyConfig, digest: str, officer: Officer, _form: Mapping[str, str]) -> None:
    commands.approve(config, digest, officer.name, key=officer.key)


def _deny(config: PartyConfig, digest: str, officer: Officer, form: Mapping[str, str]) -> None:
    commands.deny(config, digest, officer.name, form.get("reason", ""))


def _countersign(config: PartyConfig, digest: str, officer: Officer, _form: Mapping[str, str]) -> None:
    commands.countersign(config, digest, officer.name, key=officer.key)


def _revoke(config: PartyConfig, digest: str, officer: Officer, form: Mapping[str, str]) -> None:
    reports.revoke(config, digest, officer.name, form.get("reason", ""))


_ACTS: Final = {"approve": _approve, "deny": _deny, "countersign": _countersign, "revoke": _revoke}


def _digest(request: Request) -> str:
    """Return the digest in the address.

    Raises:
        Misuse: STUDY_UNKNOWN, it is none.
    """
    text = str(request.path_params["digest"])
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise Misuse("STUDY_UNKNOWN", "the address names no study")
    return text


def _record(site: Site, request: Request) -> StudyRecord:
    return site.state.study(bytes.fromhex(_digest(request)))


async def _gather(doctor: Doctor, path: Path) -> Sequence[Finding]:
    return await doctor(path)


def site_server(
    party_toml: Path,
    address: tuple[str, int],
    *,
    officer: Officer | None = None,
    doctor: Doctor | None = None,
    clock: Callable[[], dt.datetime] = utc_now,
    login: Login | None = None,
) -> PageServer:
    """Return a server of a site's pages; arguments as `SitePages` and `PageServer`, raises as `PageServer`."""
    pages = SitePages(party_toml, officer=officer, doctor=doctor, clock=clock)
    decides = officer is not None
    return PageServer(pages.routes, address, fingerprint=pages.fingerprint, decides=decides, login=login)
