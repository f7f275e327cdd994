import tempfile
from pathlib import Path

from support.trial import tried

with tempfile.TemporaryDirectory() as made:
    result = tried(
        """
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "order", most_edges = 1 }
""",
        Path(made),
    )
    print(list(result.network.dag.edges()))
    assert len(list(result.network.dag.edges())) == 1
