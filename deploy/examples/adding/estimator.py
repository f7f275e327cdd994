import tempfile
from pathlib import Path

from support.trial import tried

with tempfile.TemporaryDirectory() as made:
    result = tried(
        """
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "tree" }
parameters = { estimator = "shrunk", prior_count = 0.5 }
""",
        Path(made),
    )
    report = (Path(made) / "release" / "report.html").read_text()
    assert "the mean of two ways" in report
