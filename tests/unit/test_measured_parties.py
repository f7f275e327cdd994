"""Bins that parties measure of their own columns, by the code of the nodes: Models II and III."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.measured import N, check_release, study, tables
from verticil.shared.release.verification import verify_release
from verticil.simulation import simulate


@pytest.mark.whole
@pytest.mark.parametrize("model", ["central", "masked"])
def test_parties_measure_their_own_columns_and_the_release_has_the_bins(model: str, tmp_path: Path) -> None:
    data = tables()
    simulate(study(model), data, out=tmp_path / "made", id_column="id", seed=1)
    release = next(path.parent for path in (tmp_path / "made").rglob("manifest.json"))
    verified = verify_release(release, ca_certificate=next(tmp_path.rglob("ca.crt")).read_bytes())
    assert verified.common_records == N
    check_release(release, data)
