"""The distance of a release's synthetic records from the real joint data, for whoever holds all the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verticil.shared.arrays import Codes
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from verticil.shared.evaluation.fidelity import Comparison
    from verticil.shared.model.schema import Variable
    from verticil.simulation.provision import Provisioned


def compare_with_tables(made: Provisioned, release: Path, study: Study, *, seed: int | None) -> Comparison:
    """Compare a release with the tables from which it was made.

    Args:
        made: the nodes' folders; each party's table is read as the party reads it.
        release: folder with synthetic.parquet.
        study: the study.
        seed: of the bootstrap; None: 0.
    """
    import numpy as np
    import pandas as pd

    from verticil.shared.evaluation.fidelity import compare

    real = real_codes(made, study)
    table = pd.read_parquet(release / "synthetic.parquet")
    synthetic = [synthetic_codes(table[variable.name], variable) for variable in study.schema.variables]
    return compare(real, synthetic, study.schema.n_states, generator=np.random.default_rng(seed or 0))


def real_codes(made: Provisioned, study: Study) -> list[Codes]:
    """The columns of the common people, in one common order."""
    import numpy as np

    from verticil.party.config import load_party
    from verticil.party.dataset.local_dataset import read_people
    from verticil.party.storage.secret import read_secret

    tables = {}
    for name, folder in made.parties.items():
        config = load_party(folder / "party.toml")
        tables[name] = read_people(config, study, site_secret=read_secret(config.state_directory))
    rows = {name: {identity: row for row, identity in enumerate(people.ids)} for name, people in tables.items()}
    common = sorted(set.intersection(*(set(index) for index in rows.values())))
    order = {name: np.array([index[identity] for identity in common], dtype=np.int64) for name, index in rows.items()}
    return [tables[variable.owner].codes[variable.name][order[variable.owner]] for variable in study.schema.variables]


def synthetic_codes(column: pd.Series, variable: Variable) -> NDArray[np.uint16]:
    """The codes of a column of synthetic.parquet: labels by name, values of a binned variable by bin."""
    import numpy as np
    import pandas as pd

    code = {label: position for position, label in enumerate(variable.labels)}
    if not variable.bins:
        return np.asarray(column.map(code), dtype=np.uint16)
    edges = np.asarray(variable.bins)

    def of(value: object) -> int:
        found = variable.n_bins if value is None or value is pd.NA or str(value) == "nan" else code.get(str(value))
        return found if found is not None else int(np.searchsorted(edges, float(str(value)), side="right")) - 1

    places, distinct = pd.factorize(column, use_na_sentinel=False)
    return np.array([of(value) for value in distinct], dtype=np.uint16)[places]
