"""Pages that stay open cost the command that serves them no memory; an hour of it: ``tests/bench/bench_pages.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import followed
from support.site_folder import make_site, offer, opened
from verticil.shared.study.document import Study


@pytest.mark.slow
def test_fifty_open_pages_grow_nothing_and_each_follows(tmp_path: Path, release_study: Study) -> None:
    make_site(tmp_path)
    with opened(tmp_path) as site:
        digest = offer(site, release_study)
        grown, changes = followed(tmp_path / "party.toml", site, digest, n_streams=50, seconds=60)
    assert grown <= 5
    assert changes >= 30  # of about 58, on a machine that others use too
