"""``python -m verticil.cli``: the same as the `verticil` command (daemons that the demo starts are run this way)."""

from verticil.cli.main import run

run()
