import tempfile
from pathlib import Path

from support.trial import tried

with tempfile.TemporaryDirectory() as made:
    result = tried(
        """
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "tree" }
""",
        Path(made),
    )
    release = Path(made) / "release"
    print((release / "network.dot").read_text())
    assert (release / "network.dot").read_text().count(" -> ") == len(list(result.network.dag.edges()))
