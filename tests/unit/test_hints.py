"""Hints: the commands and options that they name exist, and following one on a broken site makes nothing worse.

The first part reads the source: every text that names a command, and every hint that names an option. The second breaks a real
site, runs a command, does what the hint says, and holds ledger, audit log and keys against what they were.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from support.syntax import parsed
from verticil.cli.main import app, main
from verticil.party.audit.log import Event, What
from verticil.party.config import load_party
from verticil.party.site import Site
from verticil.shared.federation.identity.authority import certify, chain_pem, open_authority
from verticil.shared.federation.identity.pki import identity_of, read_certificates, utc_now
from verticil.shared.privacy import events
from verticil.shared.privacy.events import RandomizedColumn

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    path
    for room in ("shared", "party", "miner", "deploy", "deploy/experiments")
    for path in sorted((ROOT / room / "verticil").rglob("*.py"))
]
COMMAND = re.compile(r"(^|[`:] ?|\brun )?\bverticil ([a-z][a-z-]*(?: [a-z][a-z-]*)*)((?:(?!\bverticil )[^;()`])*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def surface(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
    """Every command, group and their options."""
    yield (
        path,
        frozenset(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)),
    )
    for name, sub in getattr(command, "commands", {}).items():
        yield from surface(sub, (*path, name))


SURFACE = dict(surface(typer.main.get_command(app)))
LEAVES = {path for path in SURFACE if not any(other[:-1] == path for other in SURFACE)}
OPTIONS = frozenset(option for options in SURFACE.values() for option in options)


def faults(text: str) -> list[str]:
    """What a text names that the command line does not have."""
    found = [option for option in OPTION.findall(text) if option not in OPTIONS]
    for typed_so, words, rest in COMMAND.findall(text):
        path: tuple[str, ...] = ()
        for word in words.split():
            if (*path, word) in SURFACE:
                path = (*path, word)
            elif (path or typed_so) and path not in LEAVES:
                found.append(f"verticil {words}")
                break
            else:
                break  # a word of the sentence
        if path in LEAVES:
            known = SURFACE[path] | {"--help"}
            found += [f"verticil {' '.join(path)} {option}" for option in OPTION.findall(rest) if option not in known]
    return found


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it is (a part of) a hint; docstrings are none. What is computed stands there as X."""
    nodes = list(ast.walk(parsed(source)))
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    said = [keyword.value for call in calls for keyword in call.keywords if keyword.arg in {"hint", "exists_hint"}]
    for node in nodes:
        if isinstance(node, ast.Assign) and any(
            isinstance(to, ast.Name) and "hint" in to.id.lower() for to in node.targets
        ):
            said.append(node.value)
    hints = {id(part) for value in said for part in ast.walk(value)}
    within = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | within:
            text = node.value
        else:
            continue
        yield node.lineno, text, id(node) in hints


def named_wrongly(said: Iterable[tuple[int, str, bool]]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for line, text, is_hint in said:
        if is_hint or re.search(r"\bverticil [a-z]+ [a-z-]", text):
            found += [(line, fault) for fault in faults(text)]
    return found


def test_every_command_and_option_that_a_hint_names_exists() -> None:
    said = {path: list(texts(path.read_text("utf-8"))) for path in SOURCES}
    hints = [text for of_file in said.values() for _, text, is_hint in of_file if is_hint]
    seen = [text for text in hints if "verticil " in text or "--" in text]
    assert len(seen) > 60
    wrong = {str(path.relative_to(ROOT)): named_wrongly(of_file) for path, of_file in said.items()}
    assert {path: faults for path, faults in wrong.items() if faults} == {}


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ('raise Misuse("USAGE", "no", hint="run verticil party frobnicate")', "verticil party frobnicate"),
        ('raise Misuse("USAGE", "no", hint=f"make it: verticil pki request {name} --anew")', "--anew"),
        (
            'raise Misuse("USAGE", "no", hint="verticil pki renew NAME.crt --accept-older")',
            "verticil pki renew --accept-older",
        ),
        ('hint = "give --as-if"', "--as-if"),
    ],
)
def test_a_planted_hint_that_names_what_does_not_exist_is_found(planted: str, fault: str) -> None:
    assert fault in [found for _, found in named_wrongly(texts(planted))]


# ---- hints are followed


def typed(*words: object) -> int:
    return main([*map(str, words), "--format", "json"])


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that has joined and has spent something; its folder is the present one of whoever follows a hint."""
    home = tmp_path_factory.mktemp("joined")
    ca, site = home / "ca", home / "clinic"
    document = ("--federation", ca / "federation.toml")
    (home / "clinic.csv").write_text("id,smoker\n1,no\n2,yes\n")
    (home / "passphrase").write_text("a line of words nobody has said\n")
    assert typed("pki", "init", "--federation", "hearts", "--endpoint", "localhost:8443", "--out", ca) == 0
    assert typed("party", "init", "--name", "clinic", "--dir", site, *document, "--table", home / "clinic.csv") == 0
    assert typed("pki", "request", "clinic", "--role", "party", "--dir", site / "pki", *document) == 0
    assert typed("pki", "sign", site / "pki" / "clinic.req", "--ca", ca, "--yes", "--out", home / "answer") == 0
    sha256 = re.search(r'ca_sha256 = "(.*)"', (ca / "federation.toml").read_text())
    assert sha256 is not None
    assert typed("pki", "install", home / "answer", "--dir", site / "pki", "--fingerprint", sha256[1], *document) == 0
    assert typed("linkage", "new-key", site / "secrets" / "linkage.key") == 0
    spend(site)
    words = ("--passphrase-file", home / "passphrase", "--config", site / "party.toml")
    assert typed("party", "backup", "--out", home / "clinic.backup", *words) == 0
    shutil.copytree(
        ca, site / "ca"
    )  # where the hints' commands look for the authority, if they are typed as they stand
    shutil.copy(ca / "federation.toml", site / "federation.toml")
    shutil.copy(ca / "ca.crt", site / "ca.crt")
    return home


def spend(site: Path) -> None:
    """A row of the ledger, and the line of the audit log that goes with it."""
    with Site.open(load_party(site / "party.toml")) as opened:
        at = utc_now()
        opened.audit.record(
            Event(what=What.SEND, who="daemon", study=b"s" * 32, study_id="hearts", columns=("smoker",), epsilon=2.0, charged=2.0,
                  recipient="miner", sha256=b"a" * 32, size=10, detail="people"), at
        )  # fmt: skip
        event = events.to_json(RandomizedColumn(epsilon=2.0))
        opened.database.write(
            "INSERT INTO ledger (at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest,"
            " transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient,"
            " artifact_sha256, size)"
            " VALUES (?, ?, 'hearts', 0, '[\"smoker\"]', 'people', '[\"smoker\"]', ?, ?, ?, ?, ?, ?, 2.0, 0.0, 2.0, 0.0,"
            " 'miner', ?, 10)",
            (
                at.isoformat(),
                b"s" * 32,
                b"c" * 32,
                b"t" * 32,
                b"i" * 32,
                b"f" * 32,
                b"v" * 8,
                event,
                b"a" * 32,
            ),
        )


def spent(site: Path) -> float | None:
    """By the ledger's database; None where there is none that can be read."""
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(f"file:{site}/state/party.sqlite?mode=ro", uri=True)) as opened,
    ):
        return float(opened.execute("SELECT coalesce(sum(charged), 0) FROM ledger").fetchone()[0])
    return None


def expire(site: Path) -> None:
    path = site / "pki" / "clinic.crt"
    tls, signing = (certificate.public_key() for certificate in read_certificates(path))
    issuer, identity = open_authority(site.parent / "ca"), identity_of(read_certificates(path)[0])
    made = certify(issuer, identity, tls, signing, days=1, at=utc_now() - dt.timedelta(days=2))  # type: ignore[arg-type]
    path.write_bytes(chain_pem(made))


def revoke(site: Path) -> None:
    assert typed("pki", "revoke", "clinic", "--ca", site.parent / "ca", "--yes") == 0
    assert typed("pki", "renew", site / "pki" / "clinic.crt") == 0


Broken = tuple[str, Callable[[Path], object], tuple[str, ...], str]
CHECK = ("party", "check", "--config", "party.toml")
LEDGER = ("party", "ledger")
RESTORE = ("party", "restore", "../clinic.backup", "--dir", ".", "--passphrase-file", "../passphrase")
SITE: list[Broken] = [
    ("the database is lost", lambda s: (s / "state/party.sqlite").unlink(), LEDGER, "LEDGER_OLDER"),
    ("the database is empty", lambda s: (s / "state/party.sqlite").write_bytes(b""), LEDGER, "LEDGER_OLDER"),
    ("the database is garbage", lambda s: (s / "state/party.sqlite").write_bytes(b"x" * 9000), LEDGER, "STATE_CORRUPT"),
    ("the site secret is lost", lambda s: (s / "state/site.secret").unlink(), ("party", "status"), "SECRET_MISSING"),
    ("a key is lost", lambda s: (s / "pki/clinic.key").unlink(), CHECK, "SECRET_MISSING"),
    (
        "renewed without a key",
        lambda s: (s / "pki/clinic.key").unlink(),
        ("pki", "renew", "pki/clinic.crt"),
        "SECRET_MISSING",
    ),
    ("init again", lambda s: None, ("party", "init", "--name", "clinic", "--dir", "."), "FILE_EXISTS"),
    ("request again", lambda s: None, ("pki", "request", "clinic", "--role", "party"), "FILE_EXISTS"),
    ("restored over", lambda s: None, RESTORE, "FILE_EXISTS"),
    ("expired", expire, CHECK, "CERTIFICATE_INVALID"),
    ("revoked", revoke, ("pki", "sign", "pki/clinic.req", "--ca", "../ca", "--yes"), "CERTIFICATE_REVOKED"),
]


@pytest.mark.parametrize(("breaks", "words", "codes"), [item[1:] for item in SITE], ids=[item[0] for item in SITE])
def test_following_the_hint_on_a_broken_site_makes_nothing_worse(
    joined: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    breaks: Callable[[Path], object],
    words: tuple[str, ...],
    codes: str,
) -> None:
    shutil.copytree(joined, tmp_path / "here")
    site = tmp_path / "here" / "clinic"
    monkeypatch.chdir(site)
    breaks(site)
    before = spent(site)
    log = (site / "state" / "audit.jsonl").read_bytes()
    keys = {path.read_bytes() for path in (site / "pki").iterdir() if path.suffix in {".key", ".sign", ".seal"}}
    capsys.readouterr()
    assert typed(*words) != 0
    told = json.loads(capsys.readouterr().out)
    error = told["error"] if "error" in told else told["faults"][0]
    assert error["code"] in codes.split(), error
    assert error["hint"], error
    for command in commands(error["hint"]):
        typed(*command)  # it may be refused, too; what counts is what it leaves behind
    assert (site / "state" / "audit.jsonl").read_bytes().startswith(log)
    assert keys <= {path.read_bytes() for path in site.rglob("clinic.*") if path.suffix in {".key", ".sign", ".seal"}}
    after = spent(site)
    assert (after or 0.0) >= (before or 0.0)
    capsys.readouterr()
    if typed("party", "ledger") == 0:  # nobody is told of a budget that was spent already
        shown = json.loads(capsys.readouterr().out)
        assert shown["datasets"][0]["epsilon_spent"] == 2.0, shown
    else:
        assert json.loads(capsys.readouterr().out)["error"]["code"] in codes.split()


PLACES = {"NAME": "clinic", "ROLE": "party", "FILE": "../clinic.backup", "DIR": "restored"}
NEEDED = {
    "party restore": ["--passphrase-file", "../passphrase"],
    "party init": ["--name", "clinic", "--dir", "."],
}
"""What the reader of a hint knows to add."""


def commands(hint: str) -> Iterator[list[str]]:
    """The commands that a hint names, as its reader would type them in the site's folder."""
    for _, words, rest in COMMAND.findall(hint):
        told = [*words.split(), *rest.strip().rstrip(".,").split()]
        path = " ".join(told[:2])
        if tuple(told[:2]) in LEAVES and path != "party run":  # a daemon; `--accept-older` has tests of its own
            found = [PLACES.get(word, word) for word in told]
            found = [f"pki/{word.replace('NAME', 'clinic')}" if word.endswith("NAME.crt") else word for word in found]
            yield found + [word for word in NEEDED.get(path, []) if word not in found]


def test_the_site_that_is_broken_is_whole_before(joined: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("party", "ledger", "--config", joined / "clinic" / "party.toml") == 0
    assert json.loads(capsys.readouterr().out)["datasets"][0]["epsilon_spent"] == 2.0
