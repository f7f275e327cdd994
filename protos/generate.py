"""Make the Python of the wire contract: ``python protos/generate.py [OUT]``.

Writes the messages of every ``protos/verticil/wire/v1/*.proto`` and their types under ``shared/`` (or `OUT`). The result is
committed; a test makes it again and compares every byte, so the versions of the generators are pinned in pyproject.toml. There is
no generated code of services: `verticil.shared.federation.transport.interface` reads them from the descriptors.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(out: Path) -> None:
    """Write the generated modules below `out`."""
    sources = sorted(str(path) for path in ROOT.glob("verticil/wire/v1/*.proto"))
    include = str(files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{ROOT}", f"-I{include}", f"--python_out={out}", f"--mypy_out=quiet:{out}"]
    if protoc.main([*arguments, *sources]) != 0:
        raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared")
