"""report.html of Model I: who computed what, who read what, and the plain statement about the parameters."""

from __future__ import annotations

import dataclasses
import html
import math
import re

import pytest

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.release.peer_assembly import assemble
from verticil.shared.release.report.page import render
from verticil.shared.release.statement import statement_body
from verticil.shared.study.document import ShareRule
from verticil.wire.v1 import common_pb2


def _content(case):
    signed = [common_pb2.Signed(body=statement_body(case.statement(party), case.study)) for party in case.study.parties]
    return assemble(case.study, b"p" * 32, case.structure, signed, simulation=False, seed_derived=False)


def _words(page: str) -> str:
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split()).replace(" ,", ",").replace(" .", ".")


@pytest.fixture(scope="module")
def exact(peer_case, peer_study) -> str:
    return render(_content(peer_case(peer_study(share=ShareRule(minimum_count=60)))))


@pytest.fixture(scope="module")
def noisy(peer_case, peer_study) -> str:
    return render(_content(peer_case(peer_study(share=ShareRule(noise="discrete-gaussian", epsilon=2.0, delta=1e-6)))))


def test_it_names_the_noise_that_was_drawn(peer_case, peer_study, noisy):
    other = render(_content(peer_case(peer_study(share=ShareRule(epsilon=2.0, delta=1e-6, noise="discrete-gaussian")))))
    sums = r"all 3 organisations together this adds up to at most ε = ([\d.]+), δ = 3 × 10⁻⁶"
    everybody = r"and for everybody who has this release: ε = ([\d.]+), δ = 3 × 10⁻⁶"
    noise, total = (float(re.search(pattern, _words(other))[1]) for pattern in (sums, everybody))
    assert 2 < noise < 6  # composed: less than what three of them add up to
    assert total == pytest.approx(6 + noise, abs=0.01)
    assert "Each organisation added discrete Gaussian noise to every count" in _words(noisy)


def test_without_noise_it_says_so_plainly(exact):
    words = _words(exact)
    assert (
        "The parameters of local variables are exact functions of the raw data of their owner. "
        "No differential privacy protects them."
    ) in words
    assert "No limit covers both together." in words
    assert "fewer than 60 people stand behind a probability" in words
    assert "miner" not in words
    assert "δ (delta)" not in words


def test_with_noise_it_says_what_for(noisy):
    words = _words(noisy)
    assert "ε = 2, δ = 10⁻⁶ for each organisation." in words
    assert "for the replacement of one person's columns at that organisation" in words
    assert "2 tables 4.5 people" in words  # 2 sigma_AGM(2, 1e-6): sqrt(2 * 2 tables)
    # the noise of three organisations with 2 each is composed, and 6 of columns (1.5 + 2.5 + 2) is added
    (together,) = re.findall(r"all 3 organisations together this adds up to at most ε = (\d\.\d+), δ = 3 × 10⁻⁶", words)
    assert 2 * math.sqrt(3) < float(together) < 4.2
    assert f"and for everybody who has this release: ε = {6 + float(together):.2f}, δ = 3 × 10⁻⁶" in words
    assert re.search(r"added or removed instead: ε = \d\.\d\d, δ = 3 × 10⁻⁶ ?\)", words)
    assert "exact functions" not in words
    assert "fewer than" not in words.replace("worth fewer", "")


def test_it_says_who_computed_what_and_who_read_what(exact):
    words = _words(exact)
    assert "claims insurer cross claims smoker, income" in words
    assert "smoker clinic local smoker, age nothing else" in words
    assert "2 of 6 columns" in words
    assert "income registry insurer 2 81.7%" in words  # held by, read by, categories, kept with e^1.5 / (e^1.5 + 1)
    assert "region registry insurer" not in words
    assert "insurer smoker, income 54.6 times" in words  # e^(2.5 + 1.5)
    assert "All readers together 3 columns 404 times" in words  # e^6
    assert "Not a single column was sent by: insurer." in words
    assert "hold against the readers of a column" in words


def test_without_a_cross_variable_nothing_was_sent(peer_case, peer_study):
    study = peer_study()
    parents = tuple((child, ()) for child, _ in study.structure.parents)
    case = peer_case(dataclasses.replace(study, structure=dataclasses.replace(study.structure, parents=parents)))
    assert case.structure.dag == Dag(parents=((),) * 6)
    words = _words(render(_content(case)))
    assert "No column left its organisation" in words
    assert "3 organisations hold different columns" in words


def test_it_needs_nothing_else(exact, noisy):
    for page in (exact, noisy):
        assert not re.search(r"https?:|<script|<link|<img|url\((?!#)", page)
        assert page.count("<section") == page.count("</section>") == 7


def test_foreign_text_stays_text(peer_case, peer_study):
    bad = "</style><script>alert(1)</script>\"'&"
    study = peer_study()
    schema = dataclasses.replace(
        study.schema,
        variables=tuple(
            dataclasses.replace(v, name=bad + v.name, owner=bad + v.owner, labels=tuple(bad + x for x in v.labels))
            for v in study.schema.variables
        ),
    )
    parents = tuple((bad + child, tuple(bad + name for name in of)) for child, of in study.structure.parents)
    hostile = dataclasses.replace(
        study, schema=schema, parties=tuple(bad + party for party in study.parties), title=bad,
        units=tuple(dataclasses.replace(u, variables=(bad + u.variables[0],), owner=bad + u.owner) for u in study.units),
        structure=dataclasses.replace(study.structure, parents=parents),
    )  # fmt: skip
    page = render(_content(peer_case(hostile)))
    assert "<script" not in page
    assert html.escape(bad + "claims").replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
