"""The commands of the page for one organisation alone, typed as they stand there, and its Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support import PATIENCE_SECONDS

PAGE = Path(__file__).resolve().parents[2] / "deploy" / "docs" / "analyst" / "alone.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE)


@pytest.mark.whole
def test_the_page_can_be_typed(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    smoker = generator.integers(0, 2, 400)
    frame = pd.DataFrame({
        "smoker": np.array(["no", "yes"])[smoker],
        "ill": np.array(["no", "yes"])[np.where(generator.random(400) < 0.8, smoker, 1 - smoker)],
        "region": generator.choice(["north", "south", "west"], 400),
    })  # fmt: skip
    frame.to_csv(tmp_path / "people.csv", index=False)
    (_, typed), (language, python) = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    assert language == "python"
    again = python.replace('out="people-synthetic"', 'out="again"')
    typed += f"\npython - <<'PYTHON'\n{again}\nprint(release.run.spending.again)\nPYTHON"
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", typed],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (tmp_path / "people-synthetic" / "release" / "manifest.sig").is_file()
    assert done.stdout.endswith("True\n")  # the same measurement again costs nothing
    for name in ("synthetic.csv", "model.json"):
        one, other = (tmp_path / folder / "release" / name for folder in ("people-synthetic", "again"))
        assert one.read_bytes() == other.read_bytes()
