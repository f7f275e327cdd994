"""What a node installs has no experiments: they are a distribution of their own, which the command line finds, or asks for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from verticil.cli.commands import names
from verticil.cli.main import main
from verticil.shared.core import plugins
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_experiments

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / "deploy" / "experiments"
PROJECT, OTHER = (tomllib.loads((at / "pyproject.toml").read_text(encoding="utf-8")) for at in (ROOT, EXPERIMENTS))


def packed(folder: Path) -> set[str]:
    """The modules and data in the wheel of the project in `folder`."""
    builder = WheelBuilder(str(folder))
    with builder.config.set_build_data({"artifacts": [], "force_include": {}, "build_hooks": ()}):
        found = {file.distribution_path for file in builder.recurse_included_files()}
    return {path for path in found if "__pycache__" not in path}


def test_a_node_installs_no_experiments() -> None:
    own = packed(ROOT)
    assert {"verticil/party/daemon.py", "verticil/miner/daemon.py", "verticil/cli/main.py"} <= own
    assert own & packed(EXPERIMENTS) == set()
    assert not [path for path in own if path.split("/")[1] in {"experiments", "gan", "reproduce"}]


def test_the_experiments_are_whole_in_a_distribution_of_their_own() -> None:
    there = {
        str(path.relative_to(EXPERIMENTS))
        for path in (EXPERIMENTS / "verticil").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.split("/")[1] for path in there} == {"experiments", "gan", "reproduce"}
    assert there == packed(EXPERIMENTS)


def test_both_are_of_one_version_and_the_experiments_say_so() -> None:
    version = PROJECT["project"]["version"]
    assert OTHER["project"]["version"] == version
    assert f"verticil[miner]=={version}" in OTHER["project"]["dependencies"]


# ---- what is found on the path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that comes before all others: what stands here and there is taken from here."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    (place := folder / f"{name}-{version}.dist-info").mkdir()
    if entry_points:
        (place / "entry_points.txt").write_text(entry_points, encoding="utf-8")


ENTRY_POINTS = (
    "[console_scripts]\nother = other:main\n\n[verticil.commands]\nreproduce = verticil.planted.entry:ENTRY\n"
)


def test_a_package_of_this_version_is_found_by_its_entry_points(path: Path) -> None:
    install(path, "verticil", "1.2.3")
    install(path, "verticil_planted", "1.2.3", "[verticil.commands]\nplanted = verticil.cli.commands:ENTRIES\n")
    install(path, "verticil_bare", "1.2.3")
    install(path, "other", "1.2.3", ENTRY_POINTS)
    install(path, "verticilium", "1.2.3", ENTRY_POINTS)  # a plant's disease
    assert plugins.names("verticil.commands") == ("planted",)
    assert "demo" in plugins.load("verticil.commands", "planted")  # type: ignore[operator]
    assert plugins.names("verticil.generators") == ()
    assert plugins.load("verticil.commands", "another") is None


def test_a_package_of_another_version_is_refused_by_name_and_never_imported(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(path, "verticil", "1.2.3")
    install(
        path, "verticil_experiments", "1.2.2", ENTRY_POINTS + "[verticil.generators]\nkipps = verticil.planted:METHOD\n"
    )
    assert "reproduce" not in names()
    assert plugins.names("verticil.generators") == ()
    with pytest.raises(Misuse, match=r"verticil-experiments 1\.2\.2, expected version 1\.2\.3.*pip uninstall"):
        plugins.load("verticil.generators", "kipps")
    assert main(["reproduce", "ma-sivakumar", "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "'reproduce' is in the package verticil-experiments 1.2.2, expected version 1.2.3" in error["message"]
    assert "install verticil-experiments 1.2.3" in error["hint"]


def test_without_the_package_its_command_is_in_no_list_and_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_installed", lambda _path: ())
    assert "reproduce" not in names()
    assert main(["--help"]) == 0
    assert "reproduce" not in capsys.readouterr().out
    assert main(["reproduce", "ma-sivakumar", "--table", "2", "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "USAGE"
    assert "verticil-experiments, which is not installed" in error["message"]
    assert error["hint"] == install_experiments()


@pytest.mark.whole
def test_without_the_package_its_method_is_none_and_its_options_are_not_there(tmp_path: Path) -> None:
    """A process of its own: the options of `synthesize` are those of what is installed when it starts."""
    code = (
        "import sys; from verticil.shared.core import plugins; plugins._installed = lambda path: ()\n"
        "from verticil.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    for arguments, said in (
        (
            ["t.csv", "--study", "s.toml", "--method", "kipps"],
            "got 'kipps', expected one of joint, network, privbayes, posterior",
        ),
        (["t.csv", "--study", "s.toml", "--steps", "10"], "No such option: --steps"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, "synthesize", *arguments, "--format", "json"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert said in json.loads(done.stdout)["error"]["message"]


def test_looking_for_packages_reads_no_metadata_of_others() -> None:
    """`importlib.metadata.entry_points` reads that of every installed package; CPU time, of twenty calls each."""
    code = (
        "import sys, json; from verticil.cli.main import main; main(['--help']); print(json.dumps(sorted(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "importlib.metadata" not in json.loads(shown.splitlines()[-1])
    begun = time.process_time()
    for _ in range(20):
        plugins._installed.__wrapped__(tuple(sys.path))
    assert (time.process_time() - begun) / 20 < 0.01
