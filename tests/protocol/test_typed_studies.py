"""A study of dates, points and a key in Models I, II and III, in one process: records with their types, which verify."""

from __future__ import annotations

from pathlib import Path

import pytest

import verticil.api as vt
from support.typed_studies import KEYS, STUDY, check_records, tables


@pytest.mark.whole
@pytest.mark.parametrize("model", ["central", "peer", "masked"])
def test_dates_points_and_a_key_come_back_in_each_model(model: str, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.format(model=model, keys=KEYS[model]))
    release = vt.simulate(tmp_path / "study.toml", tables(), seed=1, compare=True)
    release.verify()
    check_records(release)
