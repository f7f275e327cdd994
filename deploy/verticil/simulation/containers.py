"""A study on tables at hand as containers: the nodes' folders, a compose file beside them, and what brings them up.

`lay_out_containers` writes one folder per node (as `provision` makes them, with its table in it) and ``compose.yaml``: a miner,
a container for each party and the analyst's, confined as in deploy/compose.yaml. Each mounts its own node's folder and nothing
else; each party shares a network with the miner and with nobody else; no network reaches the outside. `bring_up` needs an
engine and the images of deploy/Dockerfile, named verticil-party:VERSION and verticil-miner:VERSION (verticil-peer:VERSION where
the parties meet, which they do through the miner, sealed); it takes the containers
down again, whatever happens.

The certificates are a demonstration's (marked, valid for a day): approval is automatic under them, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, TypeAlias

from verticil.pki.files import write_new
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.config import RELAY
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.protocols import protocol_of
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, provision
from verticil.simulation.table_layout import Tables, lay_out

_PORT: Final = 8443


Role: TypeAlias = Literal["party", "peer", "miner"]


def image(role: Role) -> str:
    """Return the image that a node of this role runs: of this version of the program. The analyst's is the miner's."""
    return f"verticil-{role}:{version('verticil')}"


def lay_out_containers(
    folder: Path, study_toml: Path, study: Study, tables: Tables, *, id_column: str | None, seed: int | None
) -> Provisioned:
    """Write ``folder/federation`` and ``folder/compose.yaml``. Starts nothing.

    Args:
        folder: exists, and holds neither.
        study_toml: the study's file, for the analyst.
        study: what was read from it.
        tables, id_column: as for `verticil.simulation.simulate`; files are copied into the parties' folders.
        seed: derive site secrets and linkage key from it (the manifest says so); None: random.

    Raises:
        Misuse: UNREVIEWED; STUDY_UNSUPPORTED for a study that no miner carries out; USAGE, a party has no table.
        DataFault: a table cannot be read; DISK_FULL.
    """
    require_reviewed(study)
    protocol = protocol_of(study)
    if not protocol.coordinated:
        hint = "simulate it in one process: --on local"
        raise Misuse("STUDY_UNSUPPORTED", f"study '{study.id}': model '{study.model}' in containers", hint=hint)
    root = folder / "federation"
    sites = []
    with tempfile.TemporaryDirectory(prefix="verticil-tables-") as temporary:
        for site in lay_out(Path(temporary), study, tables, id_column=id_column):
            if not site.table.path.is_file():
                raise Misuse("USAGE", f"table of '{site.name}': expected a file, which is copied for the container")
            place = root / site.name / f"table{site.table.path.suffix}"
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(site.table.path, place)
            sites.append(dataclasses.replace(site, table=dataclasses.replace(site.table, path=place)))
    nodes = provision(
        root,
        federation="simulation",
        sites=sites,
        limits=OPEN_LIMITS,
        endpoint=f"miner:{_PORT}",
        listen=f"0.0.0.0:{_PORT}",
        hosts=("miner", "localhost", "127.0.0.1"),
        seed=seed,
        peers=dict.fromkeys(study.parties, RELAY) if protocol.opens_tables else None,
        masked=protocol.opens_tables,
    )
    shutil.copyfile(study_toml, nodes.analyst / "study.toml")
    role: Role = "peer" if protocol.opens_tables else "party"
    write_new(folder / "compose.yaml", _compose(study.parties, is_seeded=seed is not None, role=role))
    return nodes


def engine(study: Study) -> tuple[str, ...]:
    """Return the compose command of this machine, when it can start the images of a study's nodes.

    Raises:
        Misuse: USAGE, there is no such command, or no image, or no engine runs.
    """
    commands = (("docker", "compose"), ("docker-compose",))
    compose = next((command for command in commands if _run(*command, "version") == 0), None)
    if compose is None:
        hint = "install Docker with compose, or only write the files: --prepare"
        raise Misuse("USAGE", "docker compose: no such command", hint=hint)
    roles: tuple[Role, ...] = ("peer" if protocol_of(study).opens_tables else "party", "miner")
    for role in roles:
        name = image(role)
        if _run("docker", "image", "inspect", name):
            build = f"docker build -f deploy/Dockerfile --target {role} -t {name} ."
            hint = f"in the project's folder: {build} ; or only write the files: --prepare"
            raise Misuse("USAGE", f"image '{name}': not there, or no engine runs", hint=hint)
    return compose


def bring_up(folder: Path, compose: Sequence[str]) -> Path:
    """Run the containers of ``folder/compose.yaml`` until the analyst has the verified release.

    Args:
        folder: of `lay_out_containers`.
        compose: of `engine`.

    Returns:
        The release's folder; the authority's certificate lies beside it.

    Raises:
        PeerFault: NOT_READY, the containers ended without a release; what they said stands on standard error.
    """
    command = [*compose, "--file", str(folder / "compose.yaml"), "--project-name", f"verticil-{os.getpid()}"]
    try:
        code = _run(*command, "up", "--exit-code-from", "analyst", is_shown=True)
    finally:
        _run(*command, "down", "--volumes")
    release = folder / "federation" / "analyst" / "release"
    if code or not release.is_dir():
        problem = f"the containers ended with exit code {code} and without a release"
        raise PeerFault("NOT_READY", problem, hint=f"what they said stands above; the nodes' folders are in {folder}")
    return release


def _run(*command: str, is_shown: bool = False) -> int:
    """Return the exit code of a command; 127: there is none of that name. What it says goes to standard error, or nowhere."""
    output = sys.stderr.fileno() if is_shown else subprocess.DEVNULL
    try:
        return subprocess.run(command, stdout=output, stderr=output, check=False).returncode  # noqa: S603 (no shell, our words)
    except FileNotFoundError:
        return 127


def _compose(parties: Sequence[str], *, is_seeded: bool, role: Role = "party") -> str:
    """Return the compose file; names of parties are safe in YAML and as services (`is_party_name`)."""
    miner = ["miner", "run", "--config", "/federation/miner/miner.toml", *(["--seed-derived"] if is_seeded else [])]
    services = _service("miner", miner, role="miner", networks=[*parties, "analyst"], after={})
    for name in parties:
        command = ["party", "run", "--config", f"/federation/{name}/party.toml"]
        services += _service(name, command, role=role, networks=[name], after={"miner": "service_healthy"})
    services += _service(
        "analyst",
        ["--folder", "/federation/analyst"],
        role="miner",
        networks=["analyst"],
        after={"miner": "service_healthy"},
        program=["python3", "-m", "verticil.simulation.analyst"],
    )
    networks = "".join(f"  {name}: {{ internal: true }}\n" for name in (*parties, "analyst"))
    return f"{_HEAD.format(user=f'{os.getuid()}:{os.getgid()}')}{services}\nnetworks:\n{networks}"


def _service(
    name: str,
    command: Sequence[str],
    *,
    role: Role,
    networks: Sequence[str],
    after: Mapping[str, str],
    program: Sequence[str] = (),
) -> str:
    lines = [f"  {name}:", "    <<: *node", f"    image: {image(role)}", f"    mem_limit: {_MEMORY[role]}"]
    if program:
        lines.append(f"    entrypoint: [{', '.join(program)}]")
    lines += [
        f"    command: [{', '.join(command)}]",
        f'    volumes: ["./federation/{name}:/federation/{name}"]',
        f"    networks: [{', '.join(networks)}]",
    ]
    if after:
        conditions = ", ".join(f"{other}: {{ condition: {condition} }}" for other, condition in after.items())
        lines.append(f"    depends_on: {{ {conditions} }}")
    if not program:
        lines.append(f"    healthcheck: {{ test: [CMD, verticil-probe, /federation/{name}/state], {_PROBE} }}")
    return "\n".join(lines) + "\n"


_PROBE: Final = "interval: 10s, timeout: 10s, retries: 3, start_period: 30s"
_MEMORY: Final = {"party": "${PARTY_MEMORY:-2g}", "peer": "${PARTY_MEMORY:-2g}", "miner": "${MINER_MEMORY:-4g}"}
_HEAD: Final = """# One study as containers, by `verticil study run --on compose`. The tables and all nodes' keys lie beside it.
# A container that takes more memory than its limit is ended: PARTY_MEMORY and MINER_MEMORY in the environment raise it (16g).
version: "3.8"

x-node: &node
  user: "{user}"
  read_only: true
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  tmpfs: [/tmp]
  stop_grace_period: 30s
  pids_limit: 1024
  logging: {{ driver: json-file, options: {{ max-size: 10m, max-file: "5" }} }}

services:
"""
