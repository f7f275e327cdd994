"""report.html: what it says, that it needs nothing else, and that foreign text stays text."""

from __future__ import annotations

import dataclasses
import doctest
import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Projection
from verticil.shared.release import wording
from verticil.shared.release.report import layout, probabilities
from verticil.shared.release.report.page import render
from verticil.shared.study import canonical
from verticil.shared.study.document import CustomRule

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Checks nesting, keeps tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def _outline(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def _words(page: str) -> str:
    return " ".join(" ".join(_outline(page).text).split()).replace(" ,", ",")


@pytest.fixture(scope="module")
def page(release_content) -> str:
    return render(release_content)


def _with_study(content, study):
    return dataclasses.replace(content, study=study, effective_digest=canonical.digest(study).hex())


def _bounded(content):
    units = tuple(
        dataclasses.replace(unit, transition=quantize(symmetric(unit.transition.n_states, epsilon=0.5)))
        for unit in content.study.units
    )
    return _with_study(content, dataclasses.replace(content.study, units=units))


def test_it_needs_nothing_else(page):
    outline = _outline(page)
    names = {tag for tag, _ in outline.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    for _, attributes in outline.tags:
        assert not {name for name in attributes if name.startswith("on")}
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes)
    assert not re.search(r"https?:|//|@import|url\((?!#)", re.sub(r"<!DOCTYPE html>", "", page))
    policy = next(attributes["content"] for tag, attributes in outline.tags if attributes.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_foreign_text_stays_text(release_content):
    """Titles, party names, columns and labels come from other people."""
    bad = "</style><script>alert(1)</script>\"'&"
    study = release_content.study
    schema = dataclasses.replace(
        study.schema,
        variables=tuple(
            dataclasses.replace(
                v,
                name=bad + v.name,
                owner=bad + v.owner,
                labels=tuple(bad + label for label in v.labels),
                bins=None,
                missing=None,
            )
            for v in study.schema.variables
        ),
    )
    units = tuple(dataclasses.replace(u, variables=(bad + u.variables[0],), owner=bad + u.owner) for u in study.units)
    hostile = dataclasses.replace(
        study, schema=schema, units=units, parties=tuple(bad + p for p in study.parties), title=bad, purpose=bad
    )
    content = dataclasses.replace(
        release_content,
        study=hostile,
        effective_digest=canonical.digest(hostile).hex(),
        network=dataclasses.replace(release_content.network, schema=schema),
        synthetic=release_content.synthetic.set_axis(list(schema.names), axis=1),
        search={bad: bad},
        provenance={bad: [bad]},
    )
    page = render(content)
    assert "<script" not in page
    assert html.escape(bad, quote=True).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in page
    assert page.count("</style>") == 1
    _outline(page)


def test_each_column_and_the_person_are_stated(release_content):
    """Closed forms: epsilon .5 per column, five columns: 2.5, odds e^2.5 = 12.18, and .15 becomes .6825 at most."""
    words = _words(render(_bounded(release_content)))
    assert "none is a real person's" in words
    assert "It is not a table of real people." in words
    unbounded = _words(render(release_content))
    assert "none is a real person's" not in unbounded
    assert "a table of real people" not in unbounded
    assert "a rare one may be a real person's" in unbounded
    assert "All 5 columns of one person together: ε = 2.50." in words
    assert "12.2 times" in words
    assert "for the miner, and for everybody who has this release: ε = 2.50" in words
    assert "All of this study, of one person ε = 2.50 for the miner, and for everybody" in words  # the first screen
    assert "at most 68.3%" in words
    assert words.count("1.65 times") == 6  # e^.5 = 1.6487, rounded up; five rows and the example
    assert "no limit" not in words
    for party, part in (("clinic", "1.00"), ("registry", "1.50")):
        assert re.search(rf"{party} [^.]*?{part}", words)
    assert "identifying" not in words.split("How to read the table")[0]


def test_a_column_without_a_bound_is_said_first_and_the_total_has_none(page):
    words = _words(page)
    assert "All 5 columns of one person together: no limit. region was sent in a way that has no limit" in words
    assert "Treat the complete set of values of a person as identifying." in words
    assert "One person, all 5 columns no limit 100% no limit" in words
    assert "100% (sent as it is)" in words


def test_a_wide_bound_is_called_what_it_is(release_content):
    units = tuple(
        dataclasses.replace(unit, transition=quantize(symmetric(unit.transition.n_states, epsilon=3.0)))
        for unit in release_content.study.units
    )
    content = _with_study(release_content, dataclasses.replace(release_content.study, units=units))
    words = _words(render(content))
    assert "ε = 15.00." in words
    assert "4 × 10⁶ times" in words  # e^15 = 3.269e6, rounded up
    assert "treat the complete set of randomized values of a person as identifying" in words


def test_simulation_and_seed_are_announced(release_content, page):
    assert "This was a simulation." in page
    assert "can be taken out again" not in page
    real = render(dataclasses.replace(release_content, simulation=False, seed_derived=True))
    assert "This was a simulation." not in real
    assert "The noise in this release can be taken out again." in real


def test_people_intervals_structure_and_verification(release_content, page):
    words = _words(page)
    assert "a description of 1,234 people as a group" in words
    assert "400 synthetic records" in words
    assert "conditional on the structure" in words
    n_rows = sum(family.unstable.shape[0] for family in release_content.network.families)
    n_unstable = sum(int(family.unstable.any(axis=1).sum()) for family in release_content.network.families)
    assert n_unstable
    assert f"{n_unstable} of {n_rows} combinations of parent categories were too rare" in words
    assert "verticil release verify FOLDER --ca ca.crt" in words
    for name in ("model.json", "manifest.sig", "synthetic.csv"):
        assert name in words


def test_the_network_is_drawn_with_owners_and_crossings_marked(page):
    outline = _outline(page)
    classes = [attributes.get("class") or "" for _, attributes in outline.tags]
    assert [c for c in classes if c.startswith("box ")] == ["box owner-0"] * 2 + ["box owner-1"] * 3
    edges = [c for c in classes if c.startswith("edge")]
    assert sorted(edges) == sorted(
        ["edge", "edge", "edge crossing", "edge crossing", "edge", "edge crossing"]
    )  # the last two: the legend
    words = _words(page)
    assert "4 arrows, 2 of them between columns of different organisations" in words
    assert "income registry age, smoker" in words


def test_shares_show_estimate_interval_and_synthetic_side_by_side(release_content, page):
    share = np.bincount(release_content.codes[4], minlength=2) / 400
    words = _words(page)
    estimate, low, high = share[0] - 0.05, share[0] - 0.07, share[0] - 0.03
    interval = f"{100 * low:.1f}–{100 * high:.1f}%"
    assert f"north & east {100 * estimate:.1f} ± 1.0% {interval} {100 * share[0]:.1f}%" in words
    assert "In 1 category the synthetic share lies outside the interval." in words


def test_every_probability_has_its_error_and_interval(release_content, page, monkeypatch):
    words = _words(page)
    smoker, schema = release_content.network.families[1], release_content.study.schema
    assert "smoker given age : 6 probabilities" in words
    table = words.split("smoker given age : 6 probabilities")[1].split("income given")[0]
    for label, unstable, *cells in zip(
        schema[0].labels, smoker.unstable[:, 0], smoker.probability, smoker.estimate, smoker.standard_error, strict=True
    ):
        (p, _), (estimate, _), (error, _) = cells
        stated = f"{label} no {wording.share(p)} {wording.share(estimate)} {wording.share(error)}"
        low, high = (
            ends[list(schema[0].labels).index(label), 0] for ends in (smoker.interval_low, smoker.interval_high)
        )
        assert f"{stated} {'n/a' if unstable else wording.interval(low, high)}" in table
    # age 3, smoker 6, income 12, weight 3, region 4: the third does not fit, the others do
    monkeypatch.setattr(probabilities, "MAX_ROWS", 16)
    assert [len(table.configurations) for table in probabilities.family_tables(release_content)] == [1, 3, 0, 1, 2]
    assert _words(render(release_content)).count("Too many for this page") == 1


def test_what_was_moved_to_make_probabilities(release_content, page):
    assert "From estimates to probabilities" not in _words(page)  # a model that does not know it
    moved = (0.0, 0.01, 0.25, 0.001, 0.02)
    network = release_content.network
    families = tuple(
        dataclasses.replace(family, projection=Projection(mass_moved=share, negative_cells=position))
        for position, (family, share) in enumerate(zip(network.families, moved, strict=True))
    )
    content = dataclasses.replace(release_content, network=dataclasses.replace(network, families=families))
    words = _words(render(content))
    cells = sum(family.probability.size for family in families)
    assert f"10 of the {cells} counts in the tables of all columns were negative" in words
    assert "made from the most probable counts that are not negative (constrained EM, with a prior)" in words
    assert "this counts 5.6% of the people in another cell" in words  # .281 / 5
    order = ["income age", "region income", "smoker age", "weight nothing", "age nothing"]
    table = words.split("The tables that were changed most:")[1].split("Standard errors")[0]
    assert sorted(order, key=table.index) == order
    assert "income age, smoker 12 2 25.0% region income 4 4 2.0%" in table
    for estimator, method in (("clip", "set to zero"), ("simplex", "least squares")):
        study = content.study
        parameters = dataclasses.replace(study.parameters, estimator=estimator)
        assert method in _words(render(_with_study(content, dataclasses.replace(study, parameters=parameters))))


def test_a_variable_with_many_categories_shows_the_most_frequent(release_content):
    study = release_content.study
    region = study.schema.index("region")
    labels = tuple(f"district {number:02d}" for number in range(60))
    variables = tuple(
        dataclasses.replace(v, labels=labels) if position == region else v
        for position, v in enumerate(study.schema.variables)
    )
    schema = dataclasses.replace(study.schema, variables=variables)
    units = (
        *study.units[:region],
        dataclasses.replace(study.units[region], transition=quantize(symmetric(60, epsilon=3.0))),
    )
    family = release_content.network.families[region]
    wide = np.full((family.probability.shape[0], 60), 1 / 60)
    family = dataclasses.replace(
        family,
        probability=wide,
        estimate=wide,
        standard_error=wide,
        interval_low=wide,
        interval_high=wide,
        unstable=wide > 1,
    )
    share = np.full(60, 1 / 60)
    marginal = dataclasses.replace(
        release_content.marginals[region],
        estimate=share,
        standard_error=share,
        interval_low=share,
        interval_high=share,
        model=share,
    )
    codes = np.minimum(np.arange(400), 59).astype(np.uint8)  # all of the last, one each of the others
    content = dataclasses.replace(
        _with_parts(release_content, dataclasses.replace(study, schema=schema, units=units), schema, region, family),
        marginals=(*release_content.marginals[:region], marginal),
        codes=(*release_content.codes[:region], codes),
    )
    words = _words(render(content)).split("Every probability of the network")[0]
    assert "20 rarer categories are not shown" in words
    assert "district 59" in words
    assert "district 39" not in words


def _with_parts(content, study, schema, position, family):
    families = tuple(family if number == position else other for number, other in enumerate(content.network.families))
    network = dataclasses.replace(content.network, schema=schema, families=families)
    return dataclasses.replace(content, study=study, effective_digest=canonical.digest(study).hex(), network=network)


def _random_dag(d: int, seed: int) -> Dag:
    generator = np.random.default_rng(seed)
    return Dag(
        parents=tuple(
            tuple(sorted(generator.choice(v, size=min(v, int(generator.integers(0, 3))), replace=False).tolist()))
            for v in range(d)
        )
    )


@pytest.mark.parametrize("seed", range(8))
def test_layout(seed):
    """Arrows point down, nothing overlaps, everything is on the paper, and it is the same every time."""
    dag = _random_dag(5 + 6 * seed, seed)
    widths = [60.0 + 9 * (v % 7) for v in range(dag.n_variables)]
    drawing = layout.arrange(dag, widths)
    assert layout.arrange(dag, widths) == drawing
    assert [(curve.parent, curve.child) for curve in drawing.curves] == list(dag.edges())
    for parent, child in dag.edges():
        assert drawing.boxes[parent].y + drawing.boxes[parent].height <= drawing.boxes[child].y
    for i, a in enumerate(drawing.boxes):
        assert a.width / 2 <= a.x <= drawing.width - a.width / 2
        assert a.height / 2 <= a.y <= drawing.height - a.height / 2
        for b in drawing.boxes[i + 1 :]:
            assert abs(a.x - b.x) >= (a.width + b.width) / 2 or abs(a.y - b.y) >= (a.height + b.height) / 2


def test_layout_of_nothing_linked_and_of_a_chain():
    loose = layout.arrange(Dag(parents=((), (), ())), [100, 100, 100])
    assert len({box.y for box in loose.boxes}) == 1
    chain = layout.arrange(Dag(parents=((), (0,), (1,))), [100, 60, 80])
    assert len({round(box.x, 6) for box in chain.boxes}) == 1


def test_layout_has_no_crossing_where_none_is_needed():
    """Two pairs declared crosswise: 0 -> 3, 1 -> 2."""
    drawing = layout.arrange(Dag(parents=((), (), (1,), (0,))), [60.0] * 4)
    boxes = drawing.boxes
    assert (boxes[0].x - boxes[1].x) * (boxes[3].x - boxes[2].x) > 0


def test_examples_in_the_docstrings():
    assert doctest.testmod(wording).failed == 0


def _with_schemes(content, matrices):
    units = tuple(
        dataclasses.replace(unit, transition=quantize(matrix(unit.transition.n_states)))
        for unit, matrix in zip(content.study.units, matrices, strict=True)
    )
    return _with_study(content, dataclasses.replace(content.study, units=units))


def test_of_columns_that_are_sent_as_they_are_nothing_is_said_that_holds_for_noise_only(page, release_content):
    words = _words(page)
    assert "but for region, sent to the miner as it is" in words
    assert "Of region, the true values were sent to the miner, without noise. Of all other columns, each" in words
    assert "True values of region, person by person the organisation that holds them, and the miner" in words
    assert "True values of all other columns only the organisation that holds them" in words
    assert "Where a limit is given below, it holds for them too" in words

    words = _words(render(_with_schemes(release_content, [identity] * 5)))
    assert "No value was changed: every column was sent to the miner as it is." in words
    assert "There is no limit on what these values tell about a person." in words
    for claim in (
        "drawn at random",
        "kept its true values",
        "carries the noise",
        "only the organisation",
        "One column,",
    ):
        assert claim not in words

    words = _words(render(_bounded(release_content)))
    assert "Each organisation kept its true values." in words
    assert "so the limits below hold for them too, for every person" in words
    assert "True values only the organisation that holds them" in words
    assert "without noise" not in words


def test_names_in_a_row_are_isolated_from_each_other(release_content):
    """A right-to-left name must not change places with its neighbours."""
    outline = _outline(render(release_content))
    assert [tag for tag, _ in outline.tags].count("bdi") >= len(release_content.study.schema)


def test_strengths_are_in_the_drawing_and_in_the_list(release_content):
    edges = release_content.network.dag.edges()
    names = release_content.study.schema.names
    rows = [[names[parent], names[child], 1.0 if child == 1 else 0.37] for parent, child in edges]
    told = [[parent, child, 0.02] for parent, child, _ in rows]
    search = {"method": "auto", "edge_strength": rows, "edge_information": told}
    page = render(dataclasses.replace(release_content, search=search))
    words = _words(page)
    assert "Strength of the arrows" in words
    assert "100% (0.02 nats)" in words
    assert f"{names[edges[0][0]]} → {names[edges[0][1]]}" in words
    assert page.count(", strength 37%, 0.02 nats, not confirmed</title>") == len(edges) - 1
    assert page.count(", strength 100%, 0.02 nats</title>") == 1
    assert len(re.findall(r'<path class="edge(?: crossing)? unconfirmed" d="M[^>]*marker-end', page)) == len(edges) - 1
    assert f"{len(edges) - 1} of the arrows are not, and drawn dashed" in words
    assert "less strength than" not in words
    weak = {"minimum_strength": 0.5, "weak_edges_taken_out": [[names[0], names[3], 0.12]]}
    taken = _words(render(dataclasses.replace(release_content, search={**search, **weak})))
    assert f"takes out arrows of less strength than 50%: {names[0]} → {names[3]} (12%) ." in taken
    widths = re.findall(r'class="edge[^>]*style="stroke-width: ([0-9.]+)"', page)
    assert sorted(set(widths)) == ["1.27", "2.40"]
    assert "Structure search: edge strength" not in words
    assert "strength" not in render(release_content)  # a release that has none says nothing of it


def test_candidates_are_among_the_facts(release_content):
    candidates = [{"method": "tree", "score": "mutual-information", "edges": 4, "held_out_log_likelihood": -1.25}]
    page = render(dataclasses.replace(release_content, search={"chosen": "tree", "candidates": candidates}))
    assert "method tree; score mutual-information; edges 4; held out log likelihood -1.25" in _words(page)


def _with_custom(release_content, **rule):
    study = release_content.study
    study = dataclasses.replace(study, structure=dataclasses.replace(study.structure, custom=CustomRule(**rule)))
    return dataclasses.replace(release_content, study=study, effective_digest=canonical.digest(study).hex())


def test_a_custom_network_and_what_it_does_not_promise(release_content):
    # age -> smoker, age and smoker -> income, income -> region; weight alone
    content = _with_custom(release_content, target="income", sensitive=("region",), hide_from=("age", "smoker"))
    words = _words(render(content))
    assert "'region' and 'age', 'smoker' are independent given 'income'" in words
    assert "count 'income' among the quasi-identifiers" in words
    assert "Who also knows 'weight' may learn more" in words
    assert "no bound as ε is" in words
    assert "A custom network" not in _words(render(release_content))


def test_a_network_that_leaks_is_no_release(release_content):
    with pytest.raises(ValueError, match="does not keep what the study's custom network promises"):
        _with_custom(release_content, target="weight", sensitive=("region",), hide_from=("age",))
