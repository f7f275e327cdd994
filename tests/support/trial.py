"""A small study of two parties, to try one setting of it in a simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verticil.simulation import simulate
from verticil.simulation.in_process import Simulated

STUDY = """\
schema = 1
id = "example"
purpose = "adding"
expires = 2099-12-31
party = [{{ name = "clinic" }}, {{ name = "insurer" }}]
linkage = {{ minimum_common_records = 100 }}
variable = [
  {{ party = "clinic", name = "age", categories = ["young", "middle", "old"] }},
  {{ party = "clinic", name = "smoker", categories = ["no", "yes"] }},
  {{ party = "insurer", name = "claims", categories = ["none", "some", "many"] }},
{more}]
{settings}
release = {{ synthetic_records = 100, seed = 7 }}
"""


def tried(settings: str, folder: Path, *, more: str = "") -> Simulated:
    """Simulate 3,000 people whose claims follow from what they smoke; the release is `folder`/release.

    Args:
        settings: lines of the study.
        folder: for tables, study and release.
        more: entries of `variable`, each with a comma at its end; the tables have no such columns.
    """
    draw = np.random.default_rng(1)
    clinic, insurer = ["id,age,smoker"], ["id,claims"]
    for number in range(3000):
        smokes = draw.random() < 0.4
        age = ("young", "middle", "old")[min(2, draw.poisson(0.5 + smokes))]
        claims = ("none", "some", "many")[min(2, draw.poisson(0.3 + 1.5 * smokes))]
        clinic.append(f"p{number},{age},{'yes' if smokes else 'no'}")
        insurer.append(f"p{number},{claims}")
    (folder / "clinic.csv").write_text("\n".join(clinic) + "\n")
    (folder / "insurer.csv").write_text("\n".join(insurer) + "\n")
    (folder / "study.toml").write_text(STUDY.format(settings=settings, more=more))
    tables = {party: folder / f"{party}.csv" for party in ("clinic", "insurer")}
    return simulate(folder / "study.toml", tables, seed=1, out=folder / "release")
