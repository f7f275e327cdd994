"""The example of the page on several rows a person, typed as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from support import PATIENCE_SECONDS

PAGE = Path(__file__).resolve().parents[2] / "deploy" / "docs" / "analyst" / "several-rows.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE)


@pytest.mark.whole
def test_the_example_can_be_typed(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    example = FENCE.findall(text[: text.index("## 2.")])
    assert [language for language, _ in example] == ["python", "toml", "sh", "toml", "sh"]
    (_, making), (_, hospital), (_, alone), (_, more), (_, together) = example
    (tmp_path / "make.py").write_text(making)
    (tmp_path / "hospital.toml").write_text(hospital)
    (tmp_path / "more.toml").write_text(more)
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", f"python make.py\n{alone}\n{together}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "person,row,seen,ward" in done.stdout
    assert "person,row,amount" in done.stdout
    assert "4 slots of 2 columns are 9 columns of each person" in done.stdout
    for folder in (tmp_path / "hospital-synthetic" / "release", tmp_path / "trial" / "release"):
        people, visits = (pd.read_csv(folder / f"{name}.csv") for name in ("people", "visits"))
        assert set(visits["person"]) <= set(people["person"])
        assert visits["person"].str.fullmatch(r"P\d{6}").all()


def test_the_keys_of_the_page_are_those_of_a_party() -> None:
    """The page's party.toml is read as a node reads it."""
    from verticil.party.config import dataset_rule
    from verticil.shared.documents.config import toml_table

    text = PAGE.read_text(encoding="utf-8")
    ((_, party),) = FENCE.findall(text[text.index("## 3.") : text.index("## 4.")])
    table = toml_table("schema = 1\n" + party, source="party.toml", code="CONFIG_INVALID")
    rule = dataset_rule(table.named_tables("dataset")["people"], Path("/site"))
    assert rule.tables["visits"].column("ward").source == "dept"
    assert rule.tables["visits"].id == rule.id == "id"
