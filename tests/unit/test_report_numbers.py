"""The report's drawings of numbers, and its tables as cards."""

from __future__ import annotations

import math

import pytest

from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release.report.cards import with_labels
from verticil.shared.release.report.numbers import HEIGHT, SIDE, WIDTH, histogram, pair_maps

AGE = Variable(name="age", owner="clinic", labels=("[0,10)", "[10,40)", "unknown"), bins=(0, 10, 40))


def test_the_area_of_a_bar_is_its_bin_s_share() -> None:
    drawn = histogram(AGE, [0.2, 0.7, 0.1], [0.1, 0.6, 0.0], [0.3, 0.8, 0.2], [0.25, 0.65, 0.1])
    assert drawn is not None
    one, other = drawn.bars
    assert (one.x, other.x, other.x + other.width) == pytest.approx((0, WIDTH / 4, WIDTH))
    areas = [bar.width * (HEIGHT - bar.estimate) for bar in (one, other)]
    assert areas[1] / areas[0] == pytest.approx(0.7 / 0.2)
    assert (HEIGHT - one.records) / (HEIGHT - one.estimate) == pytest.approx(0.25 / 0.2)
    assert one.high < one.estimate < one.low
    assert not drawn.equal


def test_bins_of_very_different_widths_are_drawn_equally_wide() -> None:
    wide = Variable(name="income", owner="clinic", labels=("[0,10)", "[10,1000)"), bins=(0, 10, 1000))
    drawn = histogram(wide, [0.5, math.nan], [0.4, math.nan], [0.6, math.nan], [0.5, 0.5])
    assert drawn is not None
    assert drawn.equal
    assert [bar.width for bar in drawn.bars] == [WIDTH / 2] * 2
    assert drawn.bars[1].estimate is None


def test_a_column_of_categories_has_no_histogram() -> None:
    plain = Variable(name="smoker", owner="clinic", labels=("no", "yes"))
    assert histogram(plain, [0.5] * 2, [0.4] * 2, [0.6] * 2, [0.5] * 2) is None


def test_a_map_is_darkest_where_most_records_lie(release_content) -> None:
    maps = pair_maps(release_content)
    schema = release_content.study.schema
    for drawn in maps:
        assert {drawn.across, drawn.up} <= {item.name for item in schema.variables if item.bins}
        assert max(cell.shade for cell in drawn.cells) == 1.0
        assert all(0 <= cell.x < SIDE and 0 <= cell.y < SIDE for cell in drawn.cells)


def test_a_cell_says_what_stands_in_it() -> None:
    head = '<body><table><tr><th scope="col">A &amp; <code>B</code></th><th scope="col" class="number">ε</th></tr>'
    page = with_labels(
        f'{head}<tr><th scope="row">x</th><td class="number">1</td></tr><tr><td colspan="2">all</td></tr></table>'
    )
    assert '<td class="number" data-label="ε">1</td>' in page
    assert '<td colspan="2" data-label="A &amp; B">all</td>' in page
    over_rows = '<body><table><tr><td rowspan="2">1</td></tr></table>'
    assert with_labels(over_rows) == over_rows
    long = "a_name_of_a_column_that_is_longer_than_a_card"
    assert long.replace("_", "_<wbr>") in with_labels(f"<body><p>{long} and short_name</p>")
    assert "short_name" in with_labels(f'<body><p title="{long}">short_name</p>')
    assert f'title="{long}"' in with_labels(f'<body><p title="{long}">short_name</p>')
