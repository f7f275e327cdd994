"""Hints that install something say a command that works from where this program came."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verticil.shared.core.installation import install_command, install_experiments, install_package


@pytest.fixture(autouse=True)
def pip_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: str(Path(sys.executable).parent / "pip"))


def came_from(monkeypatch: pytest.MonkeyPatch, noted: Any) -> None:
    text = noted if noted is None or isinstance(noted, str) else json.dumps(noted)
    monkeypatch.setattr(metadata, "distribution", lambda _name: SimpleNamespace(read_text=lambda _file: text))


def test_a_checkout_is_named_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a checkout"
    (folder / "deploy" / "experiments").mkdir(parents=True)
    url = folder.as_uri()
    assert "%20" in url
    came_from(monkeypatch, {"url": url, "dir_info": {"editable": True}})
    assert install_command("formats") == f"pip install -e '{folder}[formats]'"
    assert install_experiments("gan") == f"pip install '{folder}/deploy/experiments[gan]'"
    came_from(monkeypatch, {"url": url, "dir_info": {}})
    assert install_command("formats") == f"pip install '{folder}[formats]'"


@pytest.mark.parametrize("noted", [None, "{", "[]", {"url": "file:///gone/verticil-1.0.0-py3-none-any.whl"}])
def test_the_name_stands_where_nothing_else_is_there(noted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    came_from(monkeypatch, noted)
    assert install_command("formats") == "pip install 'verticil[formats]'"
    assert install_experiments() == "in a checkout of verticil: pip install ./deploy/experiments"


def test_an_address_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    came_from(monkeypatch, {"url": "https://example.org/v.git", "vcs_info": {"vcs": "git", "commit_id": "1f2e"}})
    assert install_command("peer") == "pip install 'verticil[peer] @ git+https://example.org/v.git@1f2e'"
    came_from(monkeypatch, {"url": "https://example.org/v.whl", "archive_info": {}})
    assert install_command("peer") == "pip install 'verticil[peer] @ https://example.org/v.whl'"


@pytest.mark.parametrize("pip", [None, "/usr/bin/pip"])
def test_pip_of_another_environment_is_not_named(pip: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: pip)
    assert install_package("pgmpy") == f"{sys.executable} -m pip install pgmpy"


def test_this_installation_is_one_that_is_there() -> None:
    """The tests run from a checkout, whose extras an index may not have."""
    root = Path(__file__).resolve().parents[2]
    assert install_command("formats") in {f"pip install -e '{root}[formats]'", f"pip install '{root}[formats]'"}
