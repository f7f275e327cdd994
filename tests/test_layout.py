"""The house keeps its plan: who may import whom, and what stays out of the numerics.

Every rule is a function from (module -> what it imports) to a list of violations, applied twice: to the project, where it finds
nothing, and to the project with one planted violation, which it must find.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from support.count_protocol_names import MODEL_ONE, MODEL_THREE, files_that_name, product_modules
from support.syntax import parsed

ROOT = Path(__file__).resolve().parent.parent
WINGS = ("shared", "party", "miner", "deploy", "deploy/experiments")
Imports = Mapping[str, frozenset[str]]

# Layer 1: values and numerics. Layer 2: protocol, state machines and documents without I/O. Layer 3: edges. Longest prefix wins.
LAYERS = {
    "verticil.shared.core": 1,
    "verticil.shared.core.arrays": 0,
    "verticil.shared.core.errors": 0,
    "verticil.shared.core.compiled": 0,
    "verticil.shared.core.logs": 3,
    "verticil.shared.core.threads": 3,
    "verticil.shared.core.health": 3,
    "verticil.shared.core.permissions": 3,
    "verticil.shared.documents": 1,
    "verticil.shared.documents.config": 3,
    "verticil.shared.documents.view_models": 3,
    "verticil.shared.documents.foreign_files": 2,
    "verticil.shared.documents.foreign_files.limits": 0,
    "verticil.shared.storage": 3,
    "verticil.shared.mechanisms": 1,
    "verticil.shared.numerics": 1,
    "verticil.shared.federation": 3,
    "verticil.shared.federation.alignment.merkle": 2,
    "verticil.shared.federation.identity.identity": 2,
    "verticil.shared.federation.transport.chunks": 2,
    "verticil.shared.masked": 1,
    "verticil.shared.masked.round": 3,
    "verticil.shared.masked.round.schedule": 2,
    "verticil.shared.masked.round.documents": 2,
    "verticil.shared.masked.round.secrets": 2,
    "verticil.shared.masked.round.pair_products": 2,
    "verticil.shared.masked.round.opening": 2,
    "verticil.shared.related": 1,
    "verticil.shared.study": 1,
    "verticil.shared.study.reading": 3,
    "verticil.shared.synthesis": 1,
    "verticil.shared.synthesis.record_checks": 3,
    "verticil.shared.privacy": 1,
    "verticil.shared.release": 3,
    "verticil.shared.pages": 3,
    "verticil.shared.release.formats": 2,
    "verticil.shared.release.formats.table_files": 3,
    "verticil.shared.release.formats.related_package": 3,
    "verticil.party.dataset.encoding": 1,
    "verticil.party.dataset.compound_codes": 1,
    "verticil.party.dataset.macs": 1,
    "verticil.party.dataset.perturb": 1,
    "verticil.party.dataset.column_draws": 1,
    "verticil.party.protocol.peer.parameters": 1,
    "verticil.miner.learning": 1,
    "verticil.miner.learning.publication": 3,
    "verticil.evaluate.measures": 1,
    "verticil.experiments": 1,
    "verticil.party.limits.masked": 2,
    "verticil.party.limits.limits": 2,
    "verticil.party.limits.same_people": 2,
    "verticil.party.operator.plain_language": 1,
    "verticil.party.operator.quorum_words": 1,
    "verticil.party.policy.comparison": 1,
    "verticil.party.limits.rules": 2,
    "verticil.party.dataset.pseudonyms": 2,
    "verticil.party.dataset.order_commitment": 2,
    "verticil.wire": 2,
    # edges: gRPC, files, databases, clocks, pages, commands
    "verticil.party.airgap": 3,
    "verticil.party.audit": 3,
    "verticil.party.codebook": 3,
    "verticil.party.config": 3,
    "verticil.party.daemon": 3,
    "verticil.party.dataset": 3,
    "verticil.party.limits": 3,
    "verticil.party.local_dataset": 3,
    "verticil.party.operator": 3,
    "verticil.party.related_people": 3,
    "verticil.party.people": 3,
    "verticil.party.policy": 3,
    "verticil.party.protocol": 3,
    "verticil.party.site": 3,
    "verticil.party.storage": 3,
    "verticil.miner.airgap": 3,
    "verticil.miner.config": 3,
    "verticil.miner.daemon": 3,
    "verticil.miner.page": 3,
    "verticil.miner.rules": 3,
    "verticil.miner.scheduler": 3,
    "verticil.miner.service": 3,
    "verticil.miner.storage": 3,
    "verticil.analysis": 3,
    "verticil.analyst": 3,
    "verticil.attack": 3,
    "verticil.cli": 3,
    "verticil.api": 3,
    "verticil.curator": 3,
    "verticil.design": 3,
    "verticil.evaluate": 3,
    "verticil.gan": 3,
    "verticil.pki": 3,
    "verticil.reproduce": 3,
    "verticil.simulation": 3,
    "verticil.tables": 3,
}
MOST_FILES = 12
"""Product files outside of a protocol's own packages that may name it."""
NOT_IN_NUMERICS = ("grpc", "asyncio", "pathlib", "logging", "verticil.wire", "sqlite3", "socket")


ROOTS = {"verticil.shared", "verticil.party", "verticil.miner"}
"""A module directly below one of these is a room of its own, as a package there is; elsewhere a package below `verticil` is."""
NO_IO = ("grpc", "asyncio", "sqlite3", "socket", "ssl", "subprocess", "threading", "logging")


def layer(module: str) -> int:
    """The layer of a module; of one that is in no layer the highest, and `unknown` names it."""
    found = [p for p in LAYERS if module == p or module.startswith(p + ".")]
    return LAYERS[max(found, key=len)] if found else 3


def unknown(project: Imports) -> list[str]:
    """Modules that no line of `LAYERS` covers."""
    return [
        f"{module} is in no layer; it imports {', '.join(sorted(targets))}"
        for module, targets in project.items()
        if module not in ROOTS and not any(module == p or module.startswith(p + ".") for p in LAYERS)
    ]


def with_io(project: Imports) -> list[str]:
    """Documents and state machines that reach for the network, a database, threads or a log."""
    return [
        f"{module} imports {target}"
        for module, targets in project.items()
        if layer(module) == 2
        for target in targets
        if within(target, *NO_IO)
    ]


def imports_of(source: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


@pytest.fixture(scope="module")
def project() -> dict[str, frozenset[str]]:
    modules: dict[str, frozenset[str]] = {}
    for wing in WINGS:
        for path in (ROOT / wing / "verticil").rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / wing).with_suffix("").parts).removesuffix(".__init__")
            if not name.startswith("verticil.wire"):
                modules[name] = imports_of(path.read_text(encoding="utf-8"))
    assert len(modules) > 40
    return modules


def imported_at_start(source: str) -> frozenset[str]:
    """What a module needs before it is there: no import inside a function, none for types alone."""
    found: set[str] = set()
    waiting: list[ast.stmt] = list(parsed(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If):
            waiting += node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            waiting += [*node.body, *node.orelse, *node.finalbody]
    return frozenset(found)


def circles(imports: Imports) -> list[str]:
    """Modules that need each other: which of them is imported first decides whether they can be."""
    waiting = {module: {target for target in targets if target in imports} for module, targets in imports.items()}
    while ready := [module for module, targets in waiting.items() if not targets]:
        for module in ready:
            del waiting[module]
        for targets in waiting.values():
            targets.difference_update(ready)
    return sorted(waiting)


def test_no_modules_import_each_other() -> None:
    modules = {}
    for wing in WINGS:
        for path in (ROOT / wing / "verticil").rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / wing).with_suffix("").parts).removesuffix(".__init__")
            modules[name] = imported_at_start(path.read_text(encoding="utf-8"))
    assert len(modules) > 40
    assert circles(modules) == []
    planted = {"a": frozenset({"b.thing", "b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    assert circles(planted) == ["a", "b", "c", "d"]
    assert imported_at_start("from a import b\nif TYPE_CHECKING:\n    from c import d\n") == {"a", "a.b"}


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


OF_ITS_OWN = ("verticil.experiments", "verticil.gan", "verticil.reproduce")
"""The packages of another distribution, which the program finds by their entry points and never imports."""


def packages(wing: str) -> list[str]:
    return sorted(path.name for path in (ROOT / wing / "verticil").iterdir() if path.is_dir() and path.name[0] != "_")


def crossing(project: Imports) -> list[str]:
    outside = (
        "verticil.cli",
        "verticil.api",
        "verticil.simulation",
        "verticil.analysis",
        "verticil.analyst",
        "verticil.attack",
        "verticil.curator",
        "verticil.design",
        "verticil.evaluate",
        "verticil.pki",
        "verticil.tables",
        *OF_ITS_OWN,
    )
    forbidden = {
        "verticil.party": ("verticil.miner", *outside),
        "verticil.miner": ("verticil.party", *outside),
        "verticil.shared": ("verticil.party", "verticil.miner", *outside),
        **{f"verticil.{name}": OF_ITS_OWN for name in packages("deploy")},
    }
    return [
        f"{module} imports {target}"
        for module, targets in project.items()
        for wing, others in forbidden.items()
        if within(module, wing)
        for target in targets
        if within(target, *others)
    ]


def beyond_numerics(project: Imports) -> list[str]:
    """Experiments run through the numerics of all wings, and through nothing else of them."""
    allowed = (
        "verticil.experiments",
        "verticil.shared",
        "verticil.party.dataset",
        "verticil.miner.learning",
        "verticil.evaluate.measures",
    )
    return [
        f"{module} imports {target}"
        for module, targets in project.items()
        if within(module, "verticil.experiments")
        for target in targets
        if within(target, "verticil") and target in project and not within(target, *allowed)
    ]


A_VALUE = {("verticil.shared.documents.record", "pathlib")}
"""A path may be a value of a document; nothing is opened there."""


def impure(project: Imports) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, targets in project.items()
        if layer(module) == 1
        for target in targets
        if within(target, *NOT_IN_NUMERICS) and (module, target.partition(".")[0]) not in A_VALUE
    ]


def upward(project: Imports) -> list[str]:
    return [
        f"{module} (layer {layer(module)}) imports {target} (layer {layer(target)})"
        for module, targets in project.items()
        for target in targets
        # `from package import name` names the package too; what counts is the module behind it.
        if within(target, "verticil")
        and (target in project or within(target, "verticil.wire"))
        and layer(target) > layer(module)
        if not any(other.startswith(target + ".") and other in project for other in targets)
    ]


def relative_or_star(project: Imports) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, targets in project.items()
        for target in targets
        if target.endswith(".*")
    ]


RULES: list[tuple[Callable[[Imports], list[str]], str, str]] = [
    (crossing, "verticil.party.planted", "verticil.miner.daemon"),
    (crossing, "verticil.miner.planted", "verticil.party.config"),
    (crossing, "verticil.shared.planted", "verticil.party.config"),
    (crossing, "verticil.shared.planted", "verticil.cli.main"),
    (crossing, "verticil.miner.planted", "verticil.experiments.published"),
    (crossing, "verticil.cli.planted", "verticil.gan.generate"),
    (crossing, "verticil.evaluate.planted", "verticil.reproduce.command"),
    (beyond_numerics, "verticil.experiments.planted", "verticil.miner.daemon"),
    (beyond_numerics, "verticil.experiments.planted", "verticil.cli.main"),
    (impure, "verticil.experiments.planted", "pathlib"),
    (impure, "verticil.shared.numerics.model.planted", "grpc"),
    (impure, "verticil.shared.numerics.model.planted", "asyncio"),
    (impure, "verticil.miner.learning.planted", "pathlib"),
    (impure, "verticil.miner.learning.planted", "logging"),
    (impure, "verticil.party.dataset.perturb", "verticil.wire.v1.common_pb2"),
    (upward, "verticil.shared.numerics.model.planted", "verticil.shared.documents.config"),
    (upward, "verticil.shared.study.planted", "verticil.shared.documents.config"),
    (upward, "verticil.miner.learning.planted", "verticil.shared.release.formats.bif"),
    (relative_or_star, "verticil.shared.study.planted", "verticil.shared.core.errors.*"),
    (unknown, "verticil.shared.planted", "verticil.shared.core.errors"),
    (unknown, "verticil.planted.planted", "verticil.shared.core.errors"),
    (with_io, "verticil.shared.release.formats.planted", "sqlite3"),
    (with_io, "verticil.party.limits.limits", "grpc"),
]


@pytest.mark.parametrize(
    "rule",
    [crossing, beyond_numerics, impure, upward, relative_or_star, unknown, with_io],
    ids=lambda rule: rule.__name__,
)
def test_project_keeps_the_rule(project: dict[str, frozenset[str]], rule: Callable[[Imports], list[str]]) -> None:
    assert rule(project) == []


@pytest.mark.parametrize(("rule", "module", "target"), RULES, ids=lambda value: getattr(value, "__name__", value))
def test_rule_catches_a_planted_violation(
    project: dict[str, frozenset[str]], rule: Callable[[Imports], list[str]], module: str, target: str
) -> None:
    planted = {**project, module: project.get(module, frozenset()) | {target}}
    found = rule(planted)
    assert len(found) == 1
    assert module in found[0]
    assert target in found[0]


def namespace_inits(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.name == "__init__.py" and path.parent.name == "verticil"]


def test_verticil_is_a_namespace_package() -> None:
    paths = [
        path
        for wing in ("shared", "party", "miner", "deploy", "protos", "tests")
        for path in (ROOT / wing).rglob("*.py")
    ]
    assert namespace_inits(paths) == []
    assert namespace_inits([*paths, ROOT / "party" / "verticil" / "__init__.py"]) != []


def test_the_top_level_is_the_agreed_one() -> None:
    import subprocess

    if (ROOT / ".git").exists():
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    else:  # an archive of the sources
        top = {path.name for path in ROOT.iterdir()}
    visible = {name for name in top if not name.startswith(".")}
    assert visible == {
        "pyproject.toml",
        "protos",
        "party",
        "miner",
        "shared",
        "deploy",
        "tests",
        "README.md",
        "LICENSE",
    }


def ways_around_the_seam(source: str) -> list[str]:
    """Steps by which something becomes durable that do not go through `verticil.shared.storage.durable`."""
    if not re.search(r"COMMIT|fsync|fdatasync|replace|rename", source):  # to parse a file takes longest
        return []
    tree = parsed(source)
    seen_by_the_seam = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.With)
        and any(
            isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func) == "commit"
            for item in block.items
        )
        for inner in ast.walk(block)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "COMMIT" and id(node) not in seen_by_the_seam:
            found.append(f"line {node.lineno}: COMMIT")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = ast.unparse(node.func)
            # str.replace has two arguments and datetime.replace names them; Path.replace and Path.rename have one.
            moves = node.func.attr in {"replace", "rename"} and len(node.args) == 1 and not node.keywords
            if name in {"os.fsync", "os.fdatasync", "os.replace", "os.rename"} or moves:
                found.append(f"line {node.lineno}: {name}")
    return found


def test_every_durable_step_goes_through_the_seam() -> None:
    """So that the crash test of feature 11 meets every one of them."""
    for wing in ("shared", "party", "miner"):
        for path in (ROOT / wing / "verticil").rglob("*.py"):
            if path.name != "durable.py" and "wire" not in path.relative_to(ROOT).parts:
                assert ways_around_the_seam(path.read_text(encoding="utf-8")) == [], path
    for planted in (
        "os.fsync(fd)",
        "os.replace(a, b)",
        "path.replace(other)",
        "path.rename(other)",
        "c.execute('COMMIT')",
    ):
        assert len(ways_around_the_seam(planted)) == 1, planted
    assert (
        ways_around_the_seam("with commit(path):\n    c.execute('COMMIT')\ntext.replace('a', 'b')\nat.replace(hour=1)")
        == []
    )


def oversized(paths: list[Path], limit: int = 700) -> list[str]:
    return [str(path) for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > limit]


def test_no_file_has_more_than_700_lines(tmp_path: Path) -> None:
    paths = [
        p for wing in WINGS for p in (ROOT / wing / "verticil").rglob("*.py") if "wire" not in p.relative_to(ROOT).parts
    ]
    assert oversized(paths) == []
    (planted := tmp_path / "planted.py").write_text("pass\n" * 701)
    assert oversized([*paths, planted]) == [str(planted)]


def test_no_test_is_skipped_in_silence() -> None:
    """What a test needs and does not find is a failure that names it; what a run is to leave out has a marker."""
    silent = re.compile(r"pytest\.(skip|importorskip|xfail)\b|mark\.(skip|skipif|xfail)\b|unittest\.skip")
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "tests").rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if silent.search(line) and "silent = re.compile" not in line
    }
    assert found == set()


def line_of(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def loads_by_path(source: str) -> list[str]:
    """Ways to run another file as a module that no import statement shows."""
    return sorted(
        f"line {line_of(node)}: {name}"
        for node in ast.walk(parsed(source))
        for name in [getattr(node, "attr", "") if isinstance(node, ast.Attribute) else getattr(node, "name", "")]
        if name in {"spec_from_file_location", "SourceFileLoader"}
    )


def test_no_test_loads_another_by_path() -> None:
    """What several tests need stands in `tests/support`, and is imported."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = {
        str(path.relative_to(ROOT)): loads_by_path(text)
        for path, text in texts.items()
        if "spec_from_file_location" in text or "SourceFileLoader" in text
    }
    assert {path: lines for path, lines in found.items() if lines} == {}
    for planted in (
        "import importlib.util\nimportlib.util.spec_from_file_location('a', 'b')",
        "from importlib.util import spec_from_file_location",
    ):
        assert len(loads_by_path(planted)) == 1, planted
    imported = {
        path.name: target
        for path, text in texts.items()
        if re.search(r"(import|from)\b.*\btest_", text)
        for target in imports_of(text)
        if target.split(".")[-1].startswith("test_") or ".test_" in target
    }
    assert imported == {}


def short_patience(source: str) -> list[str]:
    """Asserts that something took less than half a minute by the clock on the wall: a busy machine fails them."""
    if not re.search(r"monotonic|perf_counter|time\.time", source):
        return []
    found = []
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.Assert):
            continue
        for compared in ast.walk(node.test):
            if isinstance(compared, ast.Compare) and isinstance(compared.left, ast.BinOp):
                limits = [limit.value for limit in compared.comparators if isinstance(limit, ast.Constant)]
                clock = re.search(r"\b(monotonic|perf_counter|time\.time)\(", ast.unparse(compared.left))
                if clock and any(isinstance(limit, int | float) and limit < 30 for limit in limits):
                    found.append(f"line {node.lineno}: {ast.unparse(node.test)}")
    return found


def test_no_default_test_limits_time_by_the_clock_on_the_wall() -> None:
    """Where speed is the promise it stands in `tests/bench`; here work is counted, or CPU time."""
    found = {
        str(path.relative_to(ROOT)): short_patience(path.read_text(encoding="utf-8"))
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert short_patience("assert time.perf_counter() - begun < 0.1")
    assert short_patience("assert time.monotonic() - begun <= 2")
    assert short_patience("assert time.monotonic() - begun < 60") == []


REGISTRIES = (
    "shared/verticil/shared/study/central.py",
    "shared/verticil/shared/study/peer.py",
    "shared/verticil/shared/study/protocols.py",
    "shared/verticil/shared/release/protocols.py",
    "party/verticil/party/protocol/shipped/registrations.py",
)
PAPERS = ("deploy/experiments/verticil/experiments/", "deploy/experiments/verticil/reproduce/")
"""They print a paper's tables of the paper's two models, and carry out no study."""
MODEL_NAMES = frozenset({"central", "peer", "masked"})


def branches_on_the_model(source: str) -> list[str]:
    """Where code decides by the name of a protocol: a comparison, a match, a table keyed by names, a place in a list of them."""

    def is_model(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "model"

    def names_one(node: ast.AST) -> bool:
        match node:
            case ast.Constant(value=str(text)):
                return text in MODEL_NAMES
            case ast.Attribute(value=ast.Name(id="Model"), attr=name):
                return name in MODEL_NAMES
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return any(map(names_one, items))
        return False

    if not re.search(r"\bmodel\b|central|peer", source):
        return []
    found: list[str] = []
    for node in ast.walk(parsed(source)):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                bad = any(map(names_one, sides)) or (
                    any(map(is_model, sides)) and any(isinstance(side, ast.Constant) for side in sides)
                )
            case ast.Match(subject=subject, cases=cases):
                values = [case.pattern.value for case in cases if isinstance(case.pattern, ast.MatchValue)]
                bad = is_model(subject) or any(map(names_one, values))
            case ast.Dict(keys=keys):
                names = {key.value for key in keys if isinstance(key, ast.Constant)}
                bad = "central" in names or names == {"peer"} or (len(names) > 1 and names <= MODEL_NAMES)
            case ast.Subscript(slice=index) | ast.Call(func=ast.Attribute(attr="get"), args=[index, *_]):
                bad = is_model(index)
            case _:
                bad = False
        if bad:
            found.append(f"line {line_of(node)}: {ast.unparse(node)[:80]}")
    return found


def test_nothing_outside_the_registries_branches_on_the_model() -> None:
    templates_branch = re.compile(r"\bmodel\s*(==|!=|in\b)")
    assert templates_branch.search('{{ "a" if words.model == "peer" else "b" }}')
    for wing in WINGS:
        for path in (ROOT / wing / "verticil").rglob("*.py"):
            place = path.relative_to(ROOT).as_posix()
            if place not in REGISTRIES and not place.startswith(PAPERS):
                assert branches_on_the_model(path.read_text(encoding="utf-8")) == [], place
        for path in (ROOT / wing).rglob("*.j2"):
            assert not templates_branch.search(path.read_text(encoding="utf-8")), path
    for planted in (
        'if study.model == "central":\n    pass',
        'if "peer" != document.model:\n    pass',
        'if study.model == "count":\n    pass',
        "if model is Model.peer:\n    pass",
        'if study.model in ("central", "count"):\n    pass',
        'if name in {"peer"}:\n    pass',
        'if study.model == "masked":\n    pass',
        'match study.model:\n    case "central":\n        pass',
        'match model:\n    case "peer":\n        pass',
        'TABLE = {"central": 1, "peer": 2}',
        "TABLE[study.model]",
        "TABLE.get(study.model, 1)",
    ):
        assert len(branches_on_the_model(planted)) == 1, planted
    assert branches_on_the_model('PROTOCOLS.named(study.model)\n{"peer": name, "at": time}\ntable.has("peer")') == []


def casts(source: str) -> list[str]:
    """Where a module says what a value is instead of having it from one that has a type."""
    if "cast" not in source:
        return []
    return [
        f"line {node.lineno}: cast"
        for node in ast.walk(parsed(source))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in {"cast", "typing.cast"})
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "cast" for alias in node.names))
    ]


def untyped_answers(command: str, application: Mapping[str, str]) -> list[str]:
    """Functions that a module of the command line imports and that answer a mapping of anything.

    Args:
        command: the module's source.
        application: module -> source, of all others.
    """
    found: list[str] = []
    for node in ast.walk(parsed(command)):
        if isinstance(node, ast.ImportFrom) and node.module in application:
            wanted = {alias.name for alias in node.names}
            found += [
                f"{node.module}.{item.name} -> {ast.unparse(item.returns)}"
                for item in parsed(application[node.module]).body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                and item.name in wanted
                and item.returns is not None
                and re.search(r"\[str, (object|Any)\]|\bFacts\b|^object$|\bAny\b", ast.unparse(item.returns))
            ]
    return found


def test_the_command_line_gets_view_models_and_casts_nothing() -> None:
    commands, application = {}, {}
    for wing in WINGS:
        for path in (ROOT / wing / "verticil").rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / wing).with_suffix("").parts).removesuffix(".__init__")
            (commands if within(name, "verticil.cli") else application)[name] = path.read_text(encoding="utf-8")
    assert len(commands) > 10
    for name, source in commands.items():
        assert casts(source) == [], name
        assert untyped_answers(source, application) == [], name
    assert casts("from typing import cast") == ["line 1: cast"]
    assert casts("rows = cast('list[str]', facts)") == ["line 1: cast"]
    planted = {"verticil.party.planted": "async def status(config) -> dict[str, object]: ..."}
    command = "def show():\n    from verticil.party.planted import status"
    assert untyped_answers(command, planted) == ["verticil.party.planted.status -> dict[str, object]"]


# ---- arrows between rooms


def room(module: str) -> str:
    """A package directly below a wing's root, a module that stands there, or (of `deploy`) a package below `verticil`."""
    parts = module.split(".")[1:]
    return "/".join(parts[:2]) if parts[0] in {"shared", "party", "miner"} else parts[0]


def arrows(project: Imports) -> dict[str, set[str]]:
    """Room -> rooms whose modules it imports."""
    found: dict[str, set[str]] = {}
    for module, targets in project.items():
        if module in ROOTS:
            continue
        real = {target for target in targets if target in project and target not in ROOTS}
        own = found.setdefault(room(module), set())
        own |= {room(target) for target in real if not any(other.startswith(target + ".") for other in real)}
        own.discard(room(module))
    return found


def not_in_the_table(project: Imports) -> list[str]:
    """Arrows that `ARROWS` does not have."""
    return [
        f"{source} imports {target}"
        for source, targets in arrows(project).items()
        for target in sorted(targets - set(ARROWS.get(source, ())))
    ]


def unneeded(found: Mapping[str, set[str]], table: Mapping[str, list[str]]) -> list[str]:
    """Arrows of the table that no import runs along."""
    return [
        f"{source} does not import {target}"
        for source, targets in table.items()
        for target in targets
        if target not in found.get(source, ())
    ]


def each_other(table: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Pairs of rooms that import each other."""
    return {(a, b) for a, targets in table.items() for b in targets if a < b and a in table.get(b, ())}


ARROWS: Mapping[str, list[str]] = tomllib.loads((ROOT / "tests" / "arrows.toml").read_text(encoding="utf-8"))
"""Which room may import which: all that is not there is a violation."""


def test_packages_import_only_what_the_table_says(project: dict[str, frozenset[str]]) -> None:
    assert not_in_the_table(project) == []
    planted = {
        **project,
        "verticil.shared.numerics.model.planted": frozenset({"verticil.shared.federation.transport.client"}),
    }
    assert not_in_the_table(planted) == ["shared/numerics imports shared/federation"]
    planted = {**project, "verticil.shared.planted": frozenset({"verticil.shared.core.errors"})}
    assert not_in_the_table(planted) == ["shared/planted imports shared/core"]


def test_the_table_has_no_arrow_that_nothing_needs(project: dict[str, frozenset[str]]) -> None:
    found = arrows(project)
    assert unneeded(found, ARROWS) == []
    assert unneeded(found, {**ARROWS, "shared/numerics": [*ARROWS["shared/numerics"], "shared/federation"]}) == [
        "shared/numerics does not import shared/federation"
    ]


def test_no_pair_of_packages_imports_each_other() -> None:
    assert each_other({source: set(targets) for source, targets in ARROWS.items()}) == set()
    assert each_other({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == {("a", "b")}


# ---- one grain finer: packages below a room


def package_of(module: str, packages: Collection[str]) -> str:
    """The package in which a module stands; itself, where it is one, or stands directly below a wing's root."""
    parent = module.rpartition(".")[0]
    return module if module in packages or parent in ROOTS else parent


def imported_packages(project: Imports) -> dict[str, set[str]]:
    """Package -> packages whose modules its own import: at the top, in a function, or for types alone."""
    packages = {parent for module in project for parent in [module.rpartition(".")[0]] if parent in project}
    imported: dict[str, set[str]] = {}
    for module, targets in project.items():
        real = {target for target in targets if target in project and target not in ROOTS}
        nearest = {target for target in real if not any(other.startswith(target + ".") for other in real)}
        own = package_of(module, packages)
        imported.setdefault(own, set()).update({package_of(target, packages) for target in nearest} - {own})
    return imported


def test_no_pair_of_packages_below_a_room_imports_each_other(project: dict[str, frozenset[str]]) -> None:
    assert each_other(imported_packages(project)) == set()
    for place, source, back in (
        ("party.protocol.central", "from verticil.party.protocol.masked.rounds import Rounds", "party.protocol.masked"),
        (
            "party.protocol.central",
            "def later():\n    from verticil.party.protocol.peer import study",
            "party.protocol.peer",
        ),
        ("party.protocol", "if TYPE_CHECKING:\n    from verticil.party.protocol.with_peers.network import Peers", ""),
    ):
        planted = {**project, f"verticil.{place}.planted": imports_of(source)}
        if back:
            other = imports_of(f"from verticil.{place}.study import planted")
            planted[f"verticil.{back}.planted"] = other
        assert len(each_other(imported_packages(planted))) == 1, source


# ---- protocols


def test_few_files_name_a_protocol_outside_of_its_own_packages() -> None:
    modules = product_modules()
    for protocol in (MODEL_ONE, MODEL_THREE):
        assert len(files_that_name(protocol, modules)) <= MOST_FILES, protocol.name
    for planted in (
        "from verticil.party.protocol.masked.rounds import Rounds",
        "def later():\n    import verticil.shared.study.masked",
        "if TYPE_CHECKING:\n    from verticil.shared.masked.round.round import Round",
        "if study.model == 'masked':\n    pass",
        "match model:\n    case 'masked':\n        pass",
        "register('masked', load)",
        "if protocol_of(study).masks:\n    pass",
        "from verticil.shared.study.protocols import is_masked",
    ):
        assert list(files_that_name(MODEL_THREE, {"verticil.planted": planted})) == ["verticil.planted"], planted
    assert files_that_name(MODEL_THREE, {"verticil.shared.masked.planted": "import verticil.shared.study.masked"}) == {}


def test_every_package_that_is_named_as_a_protocols_own_is_there() -> None:
    modules = product_modules()
    assert [name for protocol in (MODEL_ONE, MODEL_THREE) for name in protocol.packages if name not in modules] == []
