"""What several test files need: federations in memory, studies, releases and documents. No test file loads another."""

from pathlib import Path
from typing import Final

import pytest

pytest.register_assert_rewrite(*(f"support.{path.stem}" for path in Path(__file__).parent.glob("[a-z]*.py")))

PATIENCE_SECONDS: Final = 120.0
"""How long a test waits for what comes, on however slow a machine; only a test that fails waits so long."""
