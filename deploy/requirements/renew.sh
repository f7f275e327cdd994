#!/usr/bin/env bash
# Resolve the lock files of this folder anew: for every role the newest versions that pyproject.toml admits, each file of each
# version by its SHA-256. Needs Python 3.11 (the oldest one supported: what resolves there installs on newer ones) and an index of
# packages; which one is not written down. Read `git diff` afterwards: it is what changes in the images and in CI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.11 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pip-tools

lock() {  # NAME SOURCE [OPTION ...]
  "$work/venv/bin/pip-compile" --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file "$work/$1.txt" "${@:3}" "$2"
  # An extra that names another one of ours brings this project itself in; it is not a package of others.
  sed -e '/^#/d' -e '/^verticil @/d' -e '/^$/d' "$work/$1.txt" >"deploy/requirements/$1.txt"
}
lock party pyproject.toml
lock peer pyproject.toml --extra peer
lock miner pyproject.toml --extra miner
lock databases pyproject.toml --extra duckdb --extra postgresql --extra sqlalchemy
# The tests' environment has the experiments, too, which name this project itself.
python3.11 -c 'import sys, tomllib
names = tomllib.load(sys.stdin.buffer)["project"]["dependencies"]
print(*(name for name in names if not name.startswith("verticil")), sep="\n")' <deploy/experiments/pyproject.toml >"$work/experiments.in"
lock ci pyproject.toml "$work/experiments.in" --extra dev
printf '%s\n' 'hatchling>=1.26' 'editables>=0.5' 'pip' >"$work/build.in"
lock build "$work/build.in"
