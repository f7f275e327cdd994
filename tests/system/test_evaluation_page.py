"""The command and the Python of the page on evaluation, typed as they stand there: both give the same numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support import PATIENCE_SECONDS

PAGE = Path(__file__).resolve().parents[2] / "deploy" / "docs" / "analyst" / "evaluation.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE)


def people(seed: int, n: int = 120) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    smoker = generator.integers(0, 2, n)
    return pd.DataFrame({
        "age": generator.integers(18, 90, n),
        "region": generator.choice(["north", "south", "west"], n),
        "smoker": np.array(["no", "yes"])[smoker],
        "ill": np.array(["no", "yes"])[np.where(generator.random(n) < 0.8, smoker, 1 - smoker)],
    })  # fmt: skip


@pytest.mark.whole
def test_the_page_can_be_typed_and_python_gives_the_commands_numbers(tmp_path: Path) -> None:
    for seed, name in enumerate(("people", "others", "synthetic")):
        people(seed).to_csv(tmp_path / f"{name}.csv", index=False)
    people(9).to_parquet(tmp_path / "other.parquet")
    (shell, typed), (python, program), (toml, limits) = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    assert (shell, python, toml) == ("sh", "python", "toml")
    (tmp_path / "limits.toml").write_text(limits)
    typed += f"\npython - <<'PYTHON'\n{program}\nPYTHON\n"
    typed += "verticil evaluate --real people.csv --synthetic synthetic.csv --only distances"
    typed += " --fail-over limits.toml --out limited"
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", typed],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 6, done.stdout[-2000:] + done.stderr[-2000:]
    assert "synthetic: accuracy not computed, limit 0.8" in done.stderr
    document, again = (
        json.loads((tmp_path / folder / "evaluation.json").read_text()) for folder in ("evaluation", "again")
    )
    assert list(again["metrics"]) == ["distances", "membership"]
    for part in ("metrics", "details"):
        assert again[part].items() <= document[part].items()
    assert [
        row for row in document["headline"] if row["figure"] in {line["figure"] for line in again["headline"]}
    ] == again["headline"]
    assert {row["candidate"] for row in document["headline"]} == {"synthetic", "other"}
    shown = PAGE.read_text(encoding="utf-8")
    for row in document["headline"]:  # each headline figure stands on the page
        assert f"`{row['figure']}`" in shown or f"`_{row['figure'].rpartition('_')[2]}`" in shown
