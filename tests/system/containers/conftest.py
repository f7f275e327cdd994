"""A Docker engine of the test's own, the project's image built by it, and the federation of deploy/compose.yaml in it.

Promises
- Nothing is left behind, whatever happens: the engine and everything that it starts live in a process, mount and network
  namespace whose first process dies with the test. No rule, interface, mount or process of the machine is touched; files lie in
  the test's folder, but for the engine's cgroup, which is removed.
- No registry is asked. The base image is packed from the running Python and the shared libraries that it needs, and the
  packages are those of the running environment, put back into wheels. deploy/Dockerfile is built as it is, with ``BASE`` given,
  and with ``REQUIREMENTS``: locks of these wheels in place of the published ones.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import importlib.metadata as metadata
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("dockerd", "docker", "docker-compose", "unshare", "setpriv", "nsenter", "ip", "tc", "tar", "ldd")
SHELL = ("sh", "mkdir", "chown", "chmod", "sleep")
LIBRARIES = tuple(
    f"lib{name}" for name in ("stdc++.so.6", "gcc_s.so.1", "z.so.1", "resolv.so.2", "nss_files.so.2", "nss_dns.so.2")
)
LIBRARIES += tuple(
    f"lib{name}" for name in ("pthread.so.0", "dl.so.2", "rt.so.1", "util.so.1", "m.so.6")
)  # what wheels may expect
UP_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A running engine.

    Attributes:
        folder: its files.
        inside: process whose namespaces everything lives in.
        environment: for the docker commands.
    """

    folder: Path
    inside: int
    environment: Mapping[str, str]

    def run(self, *command: str, given: bytes | None = None, check: bool = True) -> str:
        done = subprocess.run(command, input=given, capture_output=True, env=dict(self.environment), check=False)
        told = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {told[-4000:]}"
        return done.stdout.decode()

    def docker(self, *words: str, check: bool = True) -> str:
        return self.run("docker", *words, check=check)

    def enter(self, *command: str) -> str:
        """Run a command of the machine in the engine's namespaces."""
        return self.run("nsenter", "-t", str(self.inside), "--pid", "--mount", "--net", "--", *command)

    def volume(self, name: str) -> Path:
        """The files of a named volume, as the machine sees them."""
        return self.folder / "data" / "volumes" / name / "_data"


def why_not() -> str:
    """Why no engine can be started here; empty: one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "an engine of one's own needs Linux and root"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"not installed: {', '.join(missing)} (Debian: docker.io docker-compose iptables iproute2)"
    return ""


@contextlib.contextmanager
def engine_in(folder: Path) -> Iterator[Engine]:
    """Start an engine; raises RuntimeError with the end of its log if it does not come up."""
    name, socket = f"verticil-test-{os.getpid()}", folder / "docker.sock"
    daemon = (
        f"ip link set lo up && exec dockerd --data-root {folder}/data --exec-root {folder}/exec --pidfile {folder}/dockerd.pid"
        f" -H unix://{socket} --cgroup-parent {name}"
    )
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    with (folder / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *spaces, "sh", "-c", daemon], stdout=log, stderr=log, cwd=folder
        )
    environment = {
        **os.environ,
        "DOCKER_HOST": f"unix://{socket}",
        "DOCKER_BUILDKIT": "0",
        "DOCKER_CONFIG": str(folder),
    }
    environment["COMPOSE_PROJECT_NAME"] = "verticil"
    try:
        end = time.monotonic() + UP_SECONDS
        while subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"dockerd: {(folder / 'dockerd.log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Engine(folder=folder, inside=int(first), environment=environment)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)  # its child, the first process of the namespace, takes all others along
        process.wait()
        end = time.monotonic() + UP_SECONDS
        groups = [path for path in Path("/sys/fs/cgroup").glob(f"**/{name}") if path.is_dir()]
        for group in groups:  # a cgroup is empty when the kernel has buried its last process
            for path in [*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group]:
                while path.exists() and time.monotonic() < end:
                    with contextlib.suppress(OSError):
                        path.rmdir()
                        break
                    time.sleep(0.1)


def _needed(*roots: str) -> set[str]:
    """The installed distributions that these requirements need, with their own."""
    found: dict[str, set[str]] = {}
    todo = [Requirement(root) for root in roots]
    while todo:
        wanted = todo.pop()
        name, extras = canonicalize_name(wanted.name), {"", *wanted.extras}
        if extras <= found.get(name, set()):
            continue
        found.setdefault(name, set()).update(extras)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(requirement)
    return set(found)


def write_wheel(name: str, folder: Path) -> None:
    """Put an installed distribution back into a wheel; what its installation made is made again by the next one."""
    found = metadata.distribution(name)
    info = next(path.parts[0] for path in found.files or () if path.parts[0].endswith(".dist-info"))
    tags = re.findall(r"^Tag: (.*)$", found.read_text("WHEEL") or "", flags=re.MULTILINE)
    tag = next(tag for tag in tags if "3" in tag.split("-")[0])
    made_anew = {f"{info}/{file}" for file in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")}
    records = io.StringIO()
    rows = csv.writer(records, lineterminator="\n")
    file = folder / f"{info.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as wheel:
        for path in found.files or ():
            if ".." in path.parts or "__pycache__" in path.parts or str(path) in made_anew:
                continue
            data = Path(str(found.locate_file(path))).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([str(path), f"sha256={digest}", len(data)])
            wheel.writestr(str(path), data)
        rows.writerow([f"{info}/RECORD", "", ""])
        wheel.writestr(f"{info}/RECORD", records.getvalue())


def write_locked_wheels(folder: Path, **roles: set[str]) -> None:
    """Wheels of installed distributions, and for each role the lock file of those that it needs."""
    for name in sorted(set().union(*roles.values())):
        write_wheel(name, folder)
    hashes = {
        canonicalize_name(file.name.split("-")[0]): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.glob("*.whl")
    }
    for role, names in roles.items():
        lines = [f"{name}=={metadata.version(name)} --hash=sha256:{hashes[name]}\n" for name in sorted(names)]
        (folder / f"{role}.txt").write_text("".join(lines))


def write_base(root: Path) -> None:
    """A root file system with Python, a shell, and the wheels that pip will find."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in (
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/local/bin",
        "etc",
        "wheels",
        "tmp",
        "proc",
        "sys",
        "dev",
        "root",
    ):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for link in ("bin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (root / "etc" / "nsswitch.conf").write_text("hosts: files dns\n")
    (root / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")

    python = Path(sys.base_prefix) / "bin" / version
    programs = [python, *(Path(str(shutil.which(name))) for name in SHELL)]
    shutil.copy2(python, root / "usr/local/bin/python3")
    for program in programs[1:]:
        shutil.copy2(program, root / "usr/bin" / program.name)
    standard = Path(sysconfig.get_path("stdlib"))
    left_out = shutil.ignore_patterns(
        "site-packages", "dist-packages", "test", "tests", "__pycache__", "idlelib", "config-*"
    )
    shutil.copytree(standard, root / "usr/local/lib" / version, ignore=left_out, symlinks=False)

    modules = (standard / "lib-dynload").glob("*.so")
    told = subprocess.run(["ldd", *map(str, programs), *map(str, modules)], capture_output=True, text=True, check=False)
    needed = set(re.findall(r"(/\S+\.so\S*) \(0x", told.stdout))
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    needed |= {path for path in re.findall(r"=> (\S+)", cache) if Path(path).name in LIBRARIES}
    for path in map(Path, sorted(needed)):
        usual = path.parts[1] in {"lib", "lib64"} or path.parts[1:3] == ("usr", "lib")
        target = root / path.relative_to("/") if usual else root / "usr/lib" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    write_locked_wheels(
        root / "wheels",
        build=_needed(*project["build-system"]["requires"], "pip"),
        party=_needed(*project["project"]["dependencies"]),
        peer=_needed("verticil[peer]") - {"verticil"},
        miner=_needed("verticil[miner]") - {"verticil"},
    )


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if reason := why_not():
        pytest.fail(reason)
    folder = tmp_path_factory.mktemp("engine")
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(engine_in(folder))
        except RuntimeError as error:
            pytest.fail(f"no engine can be started here: {error}")
        yield engine
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base_image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A base image without a registry; its name."""
    root = tmp_path_factory.mktemp("base")
    write_base(root)
    path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    words = ["tar", "-C", str(root), "--owner=0", "--group=0", "-c", "."]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["docker", "import", "--change", path, "-", "base:local"],
            stdin=packed.stdout,
            env=dict(engine.environment),
            check=True,
            capture_output=True,
        )
    assert packed.returncode == 0
    shutil.rmtree(root)
    return "base:local"
