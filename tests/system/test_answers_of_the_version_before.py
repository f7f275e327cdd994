"""What commands answer, as text and as JSON, is byte for byte what the program of commit 48ec39e answered, but for times.

`tests/vectors/answers.json` was recorded with that program, by this file (``python test_answers_of_the_version_before.py FILE``),
on the states of `tests/data/before`: a study with a miner in the middle of its work, one between peers, and one that waits.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from support import archives
from support.kept_answers import stands
from verticil.cli.main import main

TESTS = Path(__file__).resolve().parents[1]
BEFORE = TESTS / "data" / "before"
ANSWERS = TESTS / "vectors" / "answers.json"

PASSING = (
    (r"expires = \d{4}-\d\d-\d\d", "expires = DAY"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(Z|\+00:00| UTC)?", "TIME"),
    (r'("seconds_left"|"disk_free_bytes"): \d+', r"\1: N"),
    (r"[\d.]+ GiB free", "N GiB free"),
    (r"of version \d+", "of version N"),
    (r"ends in \d+ days", "ends in N days"),
    (r'("(audit_)?head": )"[0-9a-f]{64}"', r"\1HEAD"),
    (r"head [0-9a-f]{16,64}", "head HEAD"),
    (r'("made_at": )"[^"]*"', r"\1TIME"),
    (r'("backup": "[^"]*", "bytes": )\d+', r"\1N"),
    (r"\d+ files, [\d,]+ bytes", "N files, N bytes"),
    (r'"files": \d+, "ledger_rows"', '"files": N, "ledger_rows"'),
    (r"(hash|previous)\": \"[0-9a-f]{64}", r"\1\": \"HASH"),
    (r"[A-Za-z0-9+/]{43}=", "KEY"),
)
CHANGED = (('noise = "gaussian", epsilon', 'noise = "discrete-gaussian", epsilon'),)
"""What is said in other words since then: a new study is told of the noise that new studies take."""

COMMANDS = """
party status --config central/clinic/party.toml
party inbox --config central/clinic/party.toml
party show hearts --diff last --config central/clinic/party.toml
party check --config central/clinic/party.toml
party check hearts --config central/clinic/party.toml
party check --study central/analyst/study.toml --no-counts --config central/clinic/party.toml
party check --study lost.toml --config central/insurer/party.toml
party preview hearts --out seen-{form} --config central/clinic/party.toml
party countersign hearts --look --config central/clinic/party.toml
party limits --config central/clinic/party.toml
party limits --publish limits-{form}.json --config central/clinic/party.toml
party ledger --config central/clinic/party.toml
party audit show --config central/clinic/party.toml
party audit verify --config central/clinic/party.toml
party approver list --config central/clinic/party.toml
party approver keygen --key officer-{form}.key
party approver add officer-{form} --config central/insurer/party.toml
party approver list --config central/insurer/party.toml
party approver remove officer-{form} --config central/insurer/party.toml
party backup --out made-{form}.backup --passphrase-file words --config central/clinic/party.toml
party restore clinic.backup --dir restored-{form} --passphrase-file words
party purge --older-than 0 --dry-run --config central/clinic/party.toml
party revoke hearts --reason withdrawn --as demo@insurer --config central/insurer/party.toml
party revoke hearts --reason withdrawn --as officer --config central/insurer/party.toml
party status --config central/insurer/party.toml
party purge hearts --config central/insurer/party.toml
party export --out exported-{form} --config central/clinic/party.toml
party release hearts --out taken --config central/clinic/party.toml
party init --name shop --dir shop-{form}
doctor central/miner/miner.toml
miner purge --dry-run --config central/miner/miner.toml
miner audit show --config central/miner/miner.toml
miner audit verify --config central/miner/miner.toml
party status --config peer/clinic/party.toml
party inbox --config peer/clinic/party.toml
party show hearts --config peer/clinic/party.toml
party load second-{form}.toml --config peer/clinic/party.toml
party load second-{form}.toml --config peer/clinic/party.toml
party inbox --config peer/clinic/party.toml
party status --config peer/clinic/party.toml
party show second-{form} --diff last --config peer/clinic/party.toml
party check second-{form} --config peer/clinic/party.toml
party preview second-{form} --out second-seen-{form} --config peer/clinic/party.toml
party approve second-{form} --as officer --config peer/clinic/party.toml
party approve second-{form} --as demo@clinic --key peer/clinic/secrets/approver.key --config peer/clinic/party.toml
party revoke second-{form} --reason changed --as demo@clinic --config peer/clinic/party.toml
party load second-{form}.toml --config peer/insurer/party.toml
party deny second-{form} --reason no --as demo@insurer --config peer/insurer/party.toml
party inbox --config peer/insurer/party.toml
party ledger --config peer/insurer/party.toml
party audit show --last 3 --config peer/insurer/party.toml
doctor peer/clinic/party.toml
healthcheck --config peer/clinic/party.toml
study check central/analyst/study.toml
study check peer/analyst/study.toml --n 300 --strict
study check central/analyst/study.toml --limits limits-{form}.json --federation central/analyst/federation.toml
study draft clinic=central/tables/clinic.csv insurer=central/tables/insurer.csv
study draft clinic=central/tables/clinic.csv insurer=central/tables/insurer.csv --out draft-{form}.toml
release verify release --ca ca.crt
release verify release
release sample release -n 50 --seed 1 --out sample-{form}.csv
linkage check central/clinic/secrets/linkage.key
"""
FILES = (
    "seen-json/frequencies.csv",
    "seen-json/preview.json",
    "second-seen-json/preview.json",
    "draft-json.toml",
    "sample-json.csv",
)


def unpack(root: Path) -> None:
    for model in ("central", "peer"):
        archives.unpack(BEFORE / f"{model}.tar.xz", root / model)
        for secret in (
            *root.glob(f"{model}/*/pki/*"),
            *root.glob(f"{model}/*/secrets/*"),
            *root.glob(f"{model}/*/state/site.secret"),
        ):
            os.chmod(secret, 0o600)
    archives.unpack(BEFORE / "release.tar.xz", root)
    for name in ("clinic.backup", "ca.crt"):
        shutil.copyfile(BEFORE / name, root / name)
    (root / "words").write_text("four words of passphrase\n", encoding="utf-8")
    low: dict[str, str] = {"0": "0"}  # in place of the ports that were free then: low ones, at which nothing serves
    for config in sorted(root.glob("*/*/*.toml")):
        text = config.read_text(encoding="utf-8")
        text = re.sub(
            r"(127\.0\.0\.1):(\d+)", lambda found: f"{found[1]}:{low.setdefault(found[2], str(len(low)))}", text
        )
        config.write_text(text, encoding="utf-8")
    study = (root / "peer" / "analyst" / "study.toml").read_text(encoding="utf-8")
    for form in ("text", "json"):
        (root / f"second-{form}.toml").write_text(
            study.replace('id = "hearts"', f'id = "second-{form}"'), encoding="utf-8"
        )


def steady(text: str, root: Path) -> str:
    in_a_year = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=365)  # when a draft expires
    text = text.replace(str(root), "ROOT").replace(f"expires = {in_a_year}", "expires = 2027-11-22")
    for pattern, words in PASSING:
        text = re.sub(pattern, words, text)
    return text


def answers(root: Path) -> dict[str, list[object]]:
    """Of each command, as text and as JSON: exit code, standard output, standard error; and the files that they made."""
    unpack(root)
    found: dict[str, list[object]] = {}
    with contextlib.chdir(root):
        for form in ("text", "json"):
            for line in COMMANDS.strip().replace("{form}", form).splitlines():
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = main([*line.split(), "--format", form])
                name = f"{line} --format {form}"
                while name in found:
                    name += " (again)"
                found[name] = [code, steady(out.getvalue(), root), steady(err.getvalue(), root)]
        for file in FILES:
            found[file] = [0, steady(Path(file).read_text(encoding="utf-8"), root), ""]
    return found


def test_every_command_answers_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    recorded = ANSWERS.read_text(encoding="utf-8")
    for before, now in CHANGED:
        recorded = recorded.replace(before, now).replace(json.dumps(before)[1:-1], json.dumps(now)[1:-1])
        recorded = recorded.replace(json.dumps(json.dumps(before)[1:-1])[1:-1], json.dumps(json.dumps(now)[1:-1])[1:-1])
    expected = json.loads(recorded)
    found = answers(tmp_path)
    assert list(found) == list(expected)
    for name, answer in expected.items():
        assert stands(answer, found[name]), f"{name}: {answer} {found[name]}"


def test_an_answer_that_lost_something_is_noticed() -> None:
    assert stands(
        [0, '{"a": 1, "b": [{"c": 2}]}', "one\ntwo"], [0, '{"a": 1, "b": [{"c": 2, "d": 3}]}', "one\nnew\ntwo"]
    )
    for before, now in (
        ('{"a": 1}', '{"b": 1}'),
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": [1]}', '{"a": [1, 2]}'),
        ('{"a": 0.25}', '{"a": 0.2500000001}'),
        ("one\ntwo", "two\none"),
        ("one\ntwo", "one"),
        (0, 1),
    ):
        assert not stands([before], [now])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        recorded = json.dumps(answers(Path(folder).resolve()), indent=1, ensure_ascii=False)
    Path(sys.argv[1]).write_text(recorded + "\n", encoding="utf-8")
