"""Run ``verticil`` with the blank protocol: ``python -m support.blank_protocol party run ...``."""

from __future__ import annotations

from support.blank_protocol.register import register_all
from verticil.cli.main import run

if __name__ == "__main__":
    register_all()
    run()
