"""The report of a real release in Debian's Chromium: it renders, says nothing on the console, and fits a telephone's screen.

The browser is spoken to over a pipe (Chrome DevTools Protocol), with a profile of its own and no network to speak of.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verticil.simulation import simulate

pytestmark = pytest.mark.browser

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--hide-scrollbars",
)  # fmt: skip
WIDTHS = (390, 1280)
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


class Browser:
    """One page of a running Chromium."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads from 3 and writes to 4.
        command = ["chromium", *OPTIONS, f"--user-data-dir={profile}"]
        shell = ["bash", "-c", f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"', "bash", *command]
        environment = {**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)}
        self._process = subprocess.Popen(
            shell,
            pass_fds=(to_browser, from_browser),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 16)
            assert read, "chromium has ended"
            self._rest += read
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def open(self, path: Path, width: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        loader = self.call("Page.navigate", url=path.as_uri())["loaderId"]  # an empty page may still be about to load
        loaded = {"name": "load", "loaderId": loader}
        while not any(loaded.items() <= event["params"].items() for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        self.call("Page.close")
        self._session = None
        self.call("Browser.close")
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.whole
@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_of_a_release_opens_without_a_complaint_and_without_sideways_scroll(
    report: Path, browser: Browser, width: int
) -> None:
    browser.open(report, width)
    sections = browser.value(SECTIONS)
    assert len(sections) >= 5
    assert [title for title, visible, height in sections if not visible or height == 0] == []
    figures = browser.value("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)")
    assert figures
    assert min(figures) > 0
    browser.value("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    fits = browser.value(OVERFLOW.replace("WIDTH", str(width)))
    shot = base64.b64decode(browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])
    (report.parent.parent / f"{width}.png").write_bytes(shot)
    assert fits == {"wide": width, "beyond": []}
    said = [
        e
        for e in browser.events
        if e["method"] in {"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}
    ]
    assert said == []
    asked = {e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"}
    assert asked == {report.as_uri()}
