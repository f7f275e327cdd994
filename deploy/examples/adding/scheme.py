import tempfile
from pathlib import Path

from support.trial import tried

with tempfile.TemporaryDirectory() as made:
    result = tried(
        """
randomization = [{ variables = ["age", "claims"], scheme = "ordinal", decay = 0.2 }]
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "tree" }
""",
        Path(made),
    )
    print(result.epsilon_per_person)
    assert 3.0 < result.epsilon_per_person < 20
