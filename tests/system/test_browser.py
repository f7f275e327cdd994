"""Every page in Debian's Chromium: it renders, says nothing on the console, asks nobody else, and a keyboard is enough.

Screenshots are kept in the folder that VERTICIL_SCREENSHOTS names (`.ci/run`: .ci/screenshots), else beside the test's files.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import queue
import re
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, Error, Locator, Page, Playwright, sync_playwright

from support import PATIENCE_SECONDS
from support import miner_service as service
from support.pages import FORM, served
from support.site_folder import deciding, offer, opened, site_of
from verticil.analyst.draft import Wording, draft_study
from verticil.design.pages import design_server
from verticil.miner.airgap.exchange import Exchange
from verticil.miner.page.pages import miner_server
from verticil.miner.page.source import NodeSource
from verticil.miner.storage.audit import MinerAudit
from verticil.party.operator.page.pages import Officer, site_server
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.storage.database import FILE_NAME
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import read_certificates
from verticil.shared.pages.login import ServerFiles, login_of
from verticil.shared.pages.server import PageServer
from verticil.shared.study.document import Study
from verticil.shared.study.states import State
from verticil.simulation import simulate

pytestmark = pytest.mark.browser

AXE = (Path(__file__).parents[1] / "data" / "axe" / "axe.min.js").read_text(encoding="utf-8")
VIOLATIONS = "async () => (await axe.run(document)).violations.map(v => [v.id, v.nodes.map(n => n.html)])"
LOOKS = ((390, "dark"), (1280, "light"))
keys = service.keys
OVERFLOW = """(() => {
  const page = document.scrollingElement, beyond = [];
  for (const element of document.body.querySelectorAll("*")) {
    let inside = false;
    for (let above = element; above; above = above.parentElement)
      inside ||= ["auto", "scroll", "hidden"].includes(getComputedStyle(above).overflowX);
    if (!inside && element.getBoundingClientRect().right > WIDTH + 0.5) beyond.push(element.outerHTML.slice(0, 80));
  }
  return {wide: page.scrollWidth, beyond};
})()"""
BROKEN = """(() => {
  const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (!text.parentElement.checkVisibility() || text.parentElement.closest("svg, code, pre, style")) continue;
    for (const word of text.data.matchAll(/\\p{L}{2,}/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
})()"""
SECTIONS = """[...document.querySelectorAll("h2")].map(
  h => [h.textContent, h.checkVisibility(), h.getBoundingClientRect().height]
)"""
STUDY = """schema = 1
id = "a-study-with-a-rather-long-name-for-the-head-of-its-report"
purpose = "How a report looks"
expires = 2099-12-31

[[party]]
name = "clinic"
[[party]]
name = "statistical_office_of_the_northern_district"

[linkage]
minimum_common_records = 100

[[variable]]
party = "clinic"
name = "smoking_status_at_the_time_of_admission"
categories = ["never", "formerly, and not within the last twelve months", "now"]

[[variable]]
party = "clinic"
name = "age"
bins = [0, 30, 60, 120]
integer = true
means = [20, 44.5, 71]
missing = { category = "unknown", spellings = ["N"] }

[[variable]]
party = "statistical_office_of_the_northern_district"
name = "income"
bins = [0, 10000, 50000, 1000000]
means = [6000, 28000, 90000]

[randomization_default]
scheme = "symmetric"
epsilon = 3.0

[structure]
method = "given"
[structure.parents]
age = ["smoking_status_at_the_time_of_admission"]
income = ["age", "smoking_status_at_the_time_of_admission"]

[release]
seed = 1
"""


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """Playwright, for this module only: while it runs the thread has its event loop, and another test could run none."""
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Debian's Chromium, which .ci/packages names, in place of one that would have to be downloaded."""
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-quic", "--hide-scrollbars"]
    found = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
    yield found
    found.close()


@pytest.fixture(scope="module")
def browser_context_args() -> dict[str, Any]:
    """Return no arguments of a context: those of pytest-playwright need its own Playwright."""
    return {}


class Watched:
    """A page of the browser, with everything that it complained about and asked for.

    Args:
        page: of pytest-playwright.
        own: where its addresses begin.
        shots: folder for screenshots.
    """

    def __init__(self, page: Page, own: str, shots: Path) -> None:
        self.page = page
        self._own = own
        self._shots = Path(os.environ.get("VERTICIL_SCREENSHOTS") or shots)
        self._shots.mkdir(parents=True, exist_ok=True)
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith((own, "data:")) or self.elsewhere.append(request.url))

    def check(self, name: str) -> None:
        """Look at the page on a dark telephone and on a light screen: nothing is cut off, axe finds nothing, nobody else is
        asked.
        """
        page = self.page
        page.evaluate(f"() => {{ {AXE}\n }}")
        for width, scheme in LOOKS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=self._shots / f"{name}-{width}-{scheme}.png", full_page=True)
            assert page.evaluate(VIOLATIONS) == [], (name, width, scheme)
            fits = page.evaluate(OVERFLOW.replace("WIDTH", str(width)))
            assert fits == {"wide": width, "beyond": []}, name
        assert (self.complaints, self.elsewhere) == ([], []), name

    def tab_to(self, text: str, most: int = 80) -> None:
        """Press the key Tab until what has this text or id has the focus, and is seen to have it."""
        of_focus = """() => { const e = document.activeElement, s = getComputedStyle(e);
            return [[e.textContent.trim(), e.id], s.outlineStyle !== "none" && e.checkVisibility()]; }"""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            words, is_seen = self.page.evaluate(of_focus)
            if text in words:
                assert is_seen, text
                return
        raise AssertionError(f"the keyboard does not reach {text!r}")


def test_an_officer_decides_with_the_keyboard_alone(page: Page, tmp_path: Path, release_study: Study) -> None:
    folder = tmp_path / "site"
    digest = site_of(folder, release_study)
    with deciding(folder) as visitor:
        seen = Watched(page, visitor.server.url, tmp_path / "shots")
        page.goto(visitor.server.url)
        seen.check("site-overview")
        seen.tab_to("Hearts and incomes")
        page.keyboard.press("Enter")
        page.wait_for_url("**/study/*/")
        seen.tab_to("Compare raw with randomized shares")
        page.keyboard.press("Enter")
        page.wait_for_selector("#preview table")
        seen.check("site-study")
        seen.tab_to("Approve")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Your yes is stored and signed")
        with opened(folder) as site:
            offer(site, release_study, State.REVIEW)
            site.decisions.ask_for_review(digest, b"m" * 32)
        page.goto(f"{visitor.server.url}study/{digest.hex()}/")
        seen.tab_to("typed-countersign")
        page.keyboard.type("hearts")
        page.keyboard.press("Enter")  # another id: the browser itself keeps the form, and what was typed
        assert page.locator("#typed-countersign").input_value() == "hearts"
        assert page.evaluate("document.querySelector('#typed-countersign:invalid') !== null")
        seen.check("site-countersign")
        seen.tab_to("reason-revoke")
        page.keyboard.type("consent withdrawn")
        seen.tab_to("typed-revoke")
        page.keyboard.type("heart")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=The approval is taken back")
        seen.check("site-revoked")


def test_the_pages_of_a_site_follow_without_reload(page: Page, tmp_path: Path, release_study: Study) -> None:
    folder = tmp_path / "site"
    site_of(folder, release_study)
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(server.url)
        page.evaluate("() => { window.first = true; }")
        page.wait_for_timeout(1500)
        with opened(folder) as site:
            offer(
                site,
                dataclasses.replace(release_study, id="another", title="\u05d0\u05d7\u05e8 <b>title</b> of a study"),
            )
        page.wait_for_selector("text=<b>title</b> of a study")
        assert page.evaluate("window.first") is True
        for name in ("ledger", "audit?search=config", "health"):
            page.goto(server.url + name)
            seen.check(f"site-{name.partition('?')[0]}")
    page.wait_for_selector("#line:visible")  # the server has ended


def test_a_form_goes_once_what_its_reader_saw_has_changed(page: Page, tmp_path: Path, release_study: Study) -> None:
    folder = tmp_path / "site"
    digest = site_of(folder, release_study).hex()
    with deciding(folder) as lena, deciding(folder, "noor") as noor:
        seen = Watched(page, lena.server.url, tmp_path / "shots")
        page.goto(f"{lena.server.url}study/{digest}/")
        page.wait_for_timeout(1500)
        assert noor.decide(digest, "deny", reason="too much")[0] == 303
        page.wait_for_selector("#changed:visible")
        assert page.locator("#forms").is_hidden()
        assert "denied here" in page.inner_text("#live")
        seen.check("site-changed")
        page.locator("#changed a").press("Enter")
        page.wait_for_load_state()
        assert page.locator("#forms button").count() == 0


def test_a_line_that_is_lost_is_told_and_found_again_with_what_changed_meanwhile(
    page: Page, tmp_path: Path, release_study: Study
) -> None:
    folder = tmp_path / "site"
    site_of(folder, release_study)
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        page.route("**/events", lambda route: route.abort())
        page.goto(server.url)
        page.wait_for_selector("#line:visible")
        with opened(folder) as site:
            offer(site, dataclasses.replace(release_study, id="another", title="Came while the line was lost"))
        page.wait_for_timeout(1500)
        assert page.locator("text=Came while the line was lost").count() == 0
        page.unroute("**/events")
        page.wait_for_selector("#line", state="hidden")
        page.wait_for_selector("text=Came while the line was lost")


ROGUE = """<!DOCTYPE html><title>rogue</title><iframe name=inner src="URLstudy/DIGEST/"></iframe><img src="URL">
<form id=forged method=post action="URLstudy/DIGEST/approve" target=inner><input name=seen value="SEEN"></form>"""


def test_a_rogue_page_in_the_same_browser_decides_and_reads_nothing(
    page: Page, tmp_path: Path, release_study: Study
) -> None:
    """Even one that knows the whole address: it frames the page, sends a form, asks by script, and by a name of its own."""
    folder = tmp_path / "site"
    digest = site_of(folder, release_study).hex()
    with deciding(folder) as visitor:
        url = visitor.server.url
        place, seen = f"{url}study/{digest}/approve", visitor.page(f"study/{digest}/").fields["seen"]
        page.route(
            "http://rogue.example/**",
            lambda route: route.fulfill(
                content_type="text/html", body=ROGUE.replace("URL", url).replace("DIGEST", digest).replace("SEEN", seen)
            ),
        )
        page.goto("http://rogue.example/")
        page.wait_for_load_state()
        framed = page.frame(name="inner")
        assert framed is not None
        assert "Hearts and incomes" not in framed.content()  # X-Frame-Options: it is an error page of the browser
        with page.expect_request(place) as sent:
            page.evaluate("document.getElementById('forged').submit()")
        answer = sent.value.response()
        assert answer is None or answer.status == 403
        asked = "async ([url, body]) => { try { return (await fetch(url, body)).ok } catch { return 'refused' } }"
        for body in ({}, {"method": "POST", "body": f"seen={seen}", "headers": {"Content-Type": FORM}}):
            assert page.evaluate(asked, [url if not body else place, body]) == "refused"
        with opened(folder) as site:
            assert site.state.study(bytes.fromhex(digest)).n_votes == 0


def test_a_name_that_was_pointed_at_this_machine_opens_no_page(
    playwright: Playwright, tmp_path: Path, release_study: Study
) -> None:
    site_of(tmp_path / "site", release_study)
    arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP rebound.example 127.0.0.1"]
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
    with contextlib.closing(browser), deciding(tmp_path / "site") as visitor:
        page = browser.new_page()
        answer = page.goto(visitor.server.url.replace("127.0.0.1", "rebound.example"))
        assert answer is not None
        assert (answer.status, "not known under that name" in page.content()) == (421, True)


@contextlib.contextmanager
def miner_pages(folder: Path, keys: service.Keys) -> Iterator[PageServer]:
    """A miner with a published study and one that waits, in an event loop of its own, which serves its operator's pages."""
    begun: queue.Queue[tuple[PageServer, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        federation = service.Federation(folder, keys)
        async with federation.node as node:
            await federation.publish(service.make_study(study_id="over"))
            await federation.submit(service.make_study())
            audit, config = MinerAudit(folder), SimpleNamespace(state_directory=folder, name="miner")
            source = NodeSource("miner", node, audit, Exchange(config, node, audit=audit))
            with miner_server(source, ("127.0.0.1", 0)) as server:
                stop = asyncio.Event()
                begun.put((server, asyncio.get_running_loop(), stop))
                await server.serve(stop)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    server, loop, stop = begun.get(timeout=PATIENCE_SECONDS)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_SECONDS)


def test_an_operator_reads_and_ends_a_study_with_the_keyboard_alone(
    page: Page, tmp_path: Path, keys: service.Keys
) -> None:
    with miner_pages(tmp_path / "miner", keys) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(server.url)
        seen.check("miner-studies")
        page.locator("tbody a").last.click()
        page.wait_for_url("**/study/*/")
        seen.check("miner-published")
        page.goto(server.url)
        seen.tab_to(page.locator("tbody a").first.inner_text())
        page.keyboard.press("Enter")
        page.wait_for_url("**/study/*/")
        seen.check("miner-study")
        seen.tab_to("reason")
        page.keyboard.type("not agreed with us")
        seen.tab_to("typed")
        page.keyboard.type("trial")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=The study is ended")
        page.goto(f"{server.url}log")
        seen.check("miner-log")


def test_an_analyst_sees_what_follows_from_a_change(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("bins = [0, 30, 60, 120]", "bins = [0, 30, 60, 120]  # as everybody has them"))
    with served(design_server([path], ("127.0.0.1", 0))) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(server.url)
        seen.tab_to("study.toml")
        page.keyboard.press("Enter")
        page.wait_for_selector("#plan table")
        before = page.inner_text("#plan")
        seen.tab_to("n")
        page.keyboard.type("20000")
        page.wait_for_selector("text=for 20,000 people")
        seen.tab_to("epsilon")
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("() => document.querySelector('#plan').innerText.includes('3.50')")
        assert page.inner_text("#plan") != before
        seen.check("design")
        page.get_by_role("button", name="Save study.toml").press("Enter")
        page.wait_for_selector("text=Saved study.toml")
    assert "epsilon = 3.5" in path.read_text()
    assert "# as everybody has them" in path.read_text()


def test_drafts_findings_and_errors_are_as_readable_as_other_pages(
    page: Page, tmp_path: Path, release_study: Study
) -> None:
    rows = [f"p{i},{20 + i % 60},{'yes' if i % 3 else 'no'}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["id,age,smoker", *rows]) + "\n")
    weak = STUDY.replace("epsilon = 3.0", "epsilon = 0.1")
    texts = {
        "draft": draft_study({"clinic": tmp_path / "t.csv"}, wording=Wording()).text,
        "weak": weak,
        "broken": "schema =",
    }
    paths = [tmp_path / f"{name}.toml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    with served(design_server(paths, ("127.0.0.1", 0))) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(server.url)
        seen.check("design-files")
        for place, (name, words) in enumerate(
            (("draft", "To review before anybody works"), ("weak", "error, "), ("broken", "not TOML"))
        ):
            page.goto(f"{server.url}{place}/")
            assert words in page.inner_text("body")
            seen.complaints = [
                text for text in seen.complaints if "404" not in text
            ]  # the browser's own word of a refusal
            seen.check(f"design-{name}")
    folder = tmp_path / "site"
    site_of(folder, release_study)
    (folder / "state" / FILE_NAME).rename(folder / "state" / "gone")
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0))) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(server.url)
        assert "STATE_CORRUPT" in page.inner_text("main")
        seen.complaints.clear()
        seen.check("site-problem")


def test_a_save_that_fails_says_why_beside_the_button_and_every_edit_stays(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    with served(design_server([path], ("127.0.0.1", 0))) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(f"{server.url}0/")
        bins, own = page.locator("[name=bins-1]"), page.locator("[name=epsilon-0]")
        own.fill("1.25")
        bins.fill("0, 30, young")
        save = page.get_by_role("button", name="Save study.toml")
        save.press("Enter")
        page.wait_for_selector("#unsaved >> text=column 'age': bins: got 'young'")
        assert (bins.input_value(), own.input_value(), path.read_text()) == ("0, 30, young", "1.25", STUDY)
        seen.complaints.clear()  # the browser's own word of a refusal
        seen.check("design-unsaved")
        path.write_text(f"# somebody else's\n{STUDY}")
        bins.fill("0, 30, 65, 120")
        save.press("Enter")
        page.wait_for_selector("#unsaved >> text=has changed since the page was loaded")
        assert (bins.input_value(), own.input_value()) == ("0, 30, 65, 120", "1.25")
        path.write_text(STUDY)
        save.press("Enter")
        page.wait_for_selector("text=Saved study.toml")
    assert tomllib.loads(path.read_text())["variable"][1]["bins"] == [0, 30, 65, 120]
    assert "epsilon = 1.25" in path.read_text()


def drag(page: Page, what: Locator, target: Locator) -> None:
    """Drag with a mouse that moves as a hand does; `Locator.drag_to` moves once, which begins nothing in a page that scrolls."""
    what.scroll_into_view_if_needed()
    begin = what.bounding_box()
    assert begin is not None
    page.mouse.move(begin["x"] + 10, begin["y"] + 10)
    page.mouse.down()
    page.mouse.move(begin["x"] + 30, begin["y"] + 30, steps=4)
    target.scroll_into_view_if_needed()
    end = target.bounding_box()
    assert end is not None
    page.mouse.move(end["x"] + 30, end["y"] + 20, steps=4)
    page.mouse.up()


def test_a_column_is_dragged_out_of_a_study_and_moved_back_with_the_keyboard(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY[: STUDY.index("[structure]")] + STUDY[STUDY.index("[release]") :])
    lists = """() => ["in", "out"].map(list => [...document.querySelectorAll(`[data-list=${list}] legend`)].map(
        name => name.textContent.trim().split(" ")[0]))"""
    smoking = "smoking_status_at_the_time_of_admission"
    with served(design_server([path], ("127.0.0.1", 0))) as server:
        seen = Watched(page, server.url, tmp_path / "shots")
        page.goto(f"{server.url}0/")
        row = page.locator("#plan th", has_text=re.compile("^age$"))
        row.first.wait_for()
        assert page.evaluate(lists) == [[smoking, "age", "income"], []]
        column, name = (
            page.locator("[data-column]", has_text="age of clinic"),
            page.locator("[draggable]", has_text="age of"),
        )
        drag(page, name, page.locator("[data-list=out]"))
        row.first.wait_for(state="detached")
        assert page.evaluate(lists) == [[smoking, "income"], ["age"]]
        seen.check("design-left-out")
        column.locator("[data-moves]").focus()
        page.keyboard.press("Space")
        row.first.wait_for()
        assert page.evaluate(lists) == [[smoking, "income", "age"], []]
        assert page.evaluate("document.activeElement.name") == "in-1"  # a keyboard stays where it is
        drag(page, name, page.locator("[data-list=out]"))
        row.first.wait_for(state="detached")
        page.get_by_role("button", name="Save study.toml").press("Enter")
        page.wait_for_selector("text=Saved study.toml")
        assert page.evaluate(lists) == [[smoking, "income"], []]
    assert [variable["name"] for variable in tomllib.loads(path.read_text())["variable"]] == [smoking, "income"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    statuses = ("never", "formerly, and not within the last twelve months", "now")
    clinic = pd.DataFrame(
        {
            "id": [str(i) for i in range(600)],
            "smoking_status_at_the_time_of_admission": [statuses[i * i % 3] for i in range(600)],
            "age": ["N" if i % 7 == 0 else str(i % 90) for i in range(600)],
        }
    )
    office = pd.DataFrame({"id": clinic["id"], "income": [str(100 * (i * i % 997)) for i in range(600)]})
    tables = {"clinic": clinic, "statistical_office_of_the_northern_district": office}
    simulate(folder / "study.toml", tables, seed=1, out=folder / "release")
    return folder / "release" / "report.html"


@pytest.mark.whole
def test_the_report_of_a_release_opens_without_a_complaint_and_without_sideways_scroll(
    report: Path, page: Page, tmp_path: Path
) -> None:
    seen = Watched(page, report.as_uri(), tmp_path / "shots")
    page.goto(report.as_uri())
    sections = page.evaluate(SECTIONS)
    assert len(sections) >= 5
    assert [title for title, visible, height in sections if not visible or height == 0] == []
    figures = page.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)")
    assert figures
    assert min(figures) > 0
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    seen.check("report")
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate(BROKEN) == []
    cards = "[...document.querySelectorAll('table.stack')].map(t => [t.scrollWidth, t.clientWidth])"
    widths = page.evaluate(cards)
    assert len(widths) > 5
    assert all(wide <= shown for wide, shown in widths)
    assert "A suspicion of 15% becomes at most" in page.evaluate(
        "getComputedStyle(document.querySelector('#privacy ~ .scroll td:nth-child(6)'), '::before').content"
    )
    assert page.evaluate("document.querySelectorAll('svg.histogram').length") == 2
    assert page.evaluate("document.querySelectorAll('svg.map rect').length") > 3
    page.set_viewport_size({"width": 718, "height": 1047})  # A4 without a centimetre on each side, at 96 dots an inch
    page.emulate_media(media="print")
    first, after = page.evaluate("""(() => { const part = document.querySelector('[aria-labelledby="what"]');
        return [part.getBoundingClientRect().top, getComputedStyle(part).breakBefore]; })()""")
    assert first < 1047
    assert after == "page"


def test_a_browser_s_certificate_is_the_login(browser: Browser, tmp_path: Path, release_study: Study) -> None:
    create_authority(tmp_path / "ca", "hospital")
    for name, role in (("lena", Role.ANALYST), ("page", Role.MINER)):
        issue(tmp_path / "ca", name, role, tmp_path, hosts=("127.0.0.1",) if name == "page" else ())
    server_files = ServerFiles(certificate=tmp_path / "page.crt", key=tmp_path / "page.key")
    login = login_of([read_certificates(tmp_path / "lena.crt")[0]], server_files)
    folder = tmp_path / "site"
    site_of(folder, release_study)
    officer = Officer(name="lena", key=ApproverKey.load(folder / "approvers" / "lena.key"))
    with served(site_server(folder / "party.toml", ("127.0.0.1", 0), officer=officer, login=login)) as server:
        shown = {
            "origin": server.login_url.rstrip("/"),
            "certPath": tmp_path / "lena.crt",
            "keyPath": tmp_path / "lena.key",
        }
        # the browser's own check of the server is `test_page_login`'s: its list of authorities is Debian's
        with browser.new_context(client_certificates=[shown], ignore_https_errors=True) as context:
            page = context.new_page()
            seen = Watched(page, server.login_url, tmp_path / "shots")
            page.goto(server.login_url)
            page.get_by_role("link", name="Hearts and incomes").first.click()
            page.get_by_role("button", name="Approve").click()
            page.wait_for_selector("text=Your yes is stored and signed")
            with opened(folder) as site:
                offer(site, dataclasses.replace(release_study, id="another", title="Another study"))
            page.goto(server.login_url)
            page.wait_for_selector("text=Another study")
            seen.check("site-certificate")
        with browser.new_context(ignore_https_errors=True) as context, pytest.raises(Error):
            context.new_page().goto(server.login_url)
