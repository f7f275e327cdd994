"""What several test files need: federations in memory, studies, releases and documents. No test file loads another."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"support.{path.stem}" for path in Path(__file__).parent.glob("[a-z]*.py")))
