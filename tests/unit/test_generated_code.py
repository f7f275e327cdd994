"""The committed code of the wire contract is what the generators make of the protos."""

from __future__ import annotations

import os
import pkgutil
import re
import runpy
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "shared" / "verticil" / "wire" / "v1"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # grpc_tools reads its own version with pkg_resources
def test_generated_code_equals_committed_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = sysconfig.get_path("scripts")  # protoc looks for its plugin on the path
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    runpy.run_path(str(ROOT / "protos" / "generate.py"))["generate"](tmp_path)
    made = {path.name: path.read_bytes() for path in (tmp_path / "verticil" / "wire" / "v1").iterdir()}
    kept = {path.name: path.read_bytes() for path in COMMITTED.iterdir() if path.is_file()}
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == [], "run: python protos/generate.py"
    said = [line for line in capfd.readouterr().err.splitlines() if "fork_posix.cc" not in line]
    assert said == []  # gRPC says that it was there when the generators are started after other tests of this process


def test_the_modules_and_functions_that_the_protos_name_exist() -> None:
    protos = (ROOT / "protos" / "verticil" / "wire" / "v1").glob("*.proto")
    named = {name for proto in protos for name in re.findall(r"verticil\.shared(?:\.\w+)+", proto.read_text("utf-8"))}
    assert len(named) >= 8
    for name in sorted(named):
        pkgutil.resolve_name(name)
