import tempfile
from pathlib import Path

from support.trial import tried

with tempfile.TemporaryDirectory() as made:
    result = tried(
        """
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "star" }
""",
        Path(made),
    )
    parents = [family.parents for family in result.network.families]
    print(parents)
    assert len({parent for family in parents for parent in family}) == 1
