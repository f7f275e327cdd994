"""A trial of a study with noise on tables, with the code of the real nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verticil.miner.learning import from_tables
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.study.reading import read_study
from verticil.simulation import simulate


@pytest.mark.slow
def test_a_trial_with_a_seed_draws_the_same_noise_and_one_without_another(
    tmp_path: Path,
    study_text: str,
    write_federation_tables: Callable[..., dict[str, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (path := tmp_path / "study.toml").write_text(study_text + "\n[tables]\nepsilon = 1.0\ndelta = 1e-9\n")
    tables = write_federation_tables(tmp_path / "tables", 1500)
    seen: list[bytes] = []

    def learner(noisy: NoisyTables, *_: object, **__: object) -> None:
        seen.append(b"".join(table.counts.tobytes() for table in noisy.tables))
        raise Misuse("STUDY_UNSUPPORTED", "enough")

    monkeypatch.setattr(from_tables, "learn_from_tables", learner)
    for place, seed in enumerate((3, 3, 4, None)):
        (tmp_path / str(place)).mkdir()
        with pytest.raises(Misuse, match="enough"):
            simulate(read_study(path), tables, seed=seed, out=tmp_path / str(place) / "release")
    assert len(seen) == 4
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3
