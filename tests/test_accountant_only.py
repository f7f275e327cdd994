"""Every statement of privacy comes from the accountant: nothing else computes, adds, compares or quotes an epsilon or a delta.

Four rules are held against the syntax of every product module outside `verticil.shared.mechanisms` (where mechanisms are
measured) and `verticil.shared.privacy` (the accountant, and `figures`, its door):

- primitive: it gets hold of a function that computes an epsilon, delta, gamma or sigma, by whatever way of importing.
- arithmetic: it adds, multiplies, takes the logarithm of, or sums what is named an epsilon or a delta, or was just assigned one.
- comparison: it holds one against anything but a constant; limits are the accountant's to compare.
- quoted: it reads epsilon or delta from a study's ``share`` or ``tables``, which is what was asked for, not what the noise costs.

Names decide what a figure is: a part of the name between underscores (``total_epsilon``, ``delta``, never ``timedelta``). What
hides behind other names is found only within the function that assigned it. `EXCEPTIONS` says what may stay, and why; an
exception that nothing needs any more is found, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.syntax import parsed
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import DiscreteGaussianCounts, share_event
from verticil.shared.privacy.figures import share_cost
from verticil.shared.study.peer import peer_statement
from verticil.shared.study.reading import read_study

ROOT = Path(__file__).resolve().parent.parent
WINGS = ("shared", "party", "miner", "deploy", "deploy/experiments")
HOUSE = ("verticil.shared.mechanisms", "verticil.shared.privacy", "verticil.gan.accounting")
CHANNELS = "verticil.shared.mechanisms"

EXCEPTIONS: Mapping[str, str] = {
    # design-time: looks for a matrix that has a wanted epsilon, and states nothing
    "verticil.shared.study.schemes": "solves for matrices of a wanted epsilon (scheme and [allocate] keys)",
    "verticil.analyst.models:_as": "asks the same of another model; the figures of the table are the accountant's",
    "verticil.curator.plan": "asks for the noise at other totals, before anything is drawn; the account is the release's",
    "verticil.analyst.lint:lint_owner": "asks whether the delta that the study states is large for so many people",
    "verticil.analyst.draft:_tail": "divides a wanted total among the columns of a draft",
    "verticil.tables.categories:_most_categories": "says how many categories the noise of a randomized column leaves, no bound",
    "verticil.shared.numerics.posterior.annealing:Particles.__init__": "draws of a gamma distribution, no bound",
    # `study` lies below the accountant and may not import it: it refuses, and what it says is held against the accountant below
    "verticil.shared.study.rules:check_breach": "the study's own breach rule, on exact ratios",
    "verticil.shared.study.rules:_check_subset": "the range in which subset selection can be sampled",
    "verticil.shared.study.approval:check_not_weaker": "compares two matrices, states neither",
    "verticil.shared.study.profiles:_resized": "makes a matrix for another number of bins that is no weaker, states nothing",
    "verticil.shared.study.vocabulary:check_privacy": "what epsilon and delta of noise a study may ask for",
    "verticil.shared.study.peer:_check_share": "whether the noise that is asked for can be drawn",
    "verticil.shared.study.table_rules:check_tables": "the same of noise on tables",
    "verticil.shared.study.tables:set_sigmas": "makes the noise that the accountant charges; tests/unit/test_study_tables.py",
    "verticil.shared.study.masked:plan_of": "writes what the study asks into the plan that all compare",
    "verticil.shared.study.peer:peer_statement": "the figures of a release; a test here compares them with the accountant's",
    "verticil.shared.study.peer:PeerStatement": "writes those figures down",
    # the noise itself, which is made of what the study asks
    "verticil.party.protocol.peer.parameters:share_noise": "makes the noise that the accountant charges",
    "verticil.party.protocol.peer.sharing:_store_shared": "names the noise in the ledger's digest of it",
    # a limit, or a figure that is rounded for people
    "verticil.party.config:_policy": "the lifetime limit of delta that holds where party.toml states none",
    "verticil.shared.release.wording:factor": "e to the epsilon that it is given, rounded up, in words",
    "verticil.curator.study:changes": "names what the noise was made for, beside the account: a person who is added or removed",
    "verticil.experiments.kipps.measures:most_accurate": "bounds an attacker in a page of an experiment, states nothing",
    "verticil.experiments.privbayes.claims": "holds points of the paper's curves against those of a run",
    "verticil.cli.party:_at_least": "rounds down what the accountant leaves",
    # what is measured from draws, beside what the accountant claims
    "verticil.attack.bounds:epsilon_at_least": "a lower bound from counts",
    "verticil.attack.events:best_event": "chooses where to measure",
    "verticil.attack.attack:_of_claim": "holds a measured bound against the accountant's claim",
}
"""Module, or module:function -> why it may."""

FIGURE = {"epsilon", "epsilons", "delta", "deltas"}
PRIMITIVE = FIGURE | {"gamma", "sigma", "posterior", "slack"}
NOT_PRIMITIVES = {
    "LEAST_SIGMA",
    "LEAST_SIGMA_OF_A_SUM",
    "LARGEST_SIGMA",
    "LARGEST_EPSILON",
}  # ranges of what can be drawn
MATHEMATICS = {
    "fsum",
    "sum",
    "prod",
    "cumsum",
    "log",
    "log2",
    "log10",
    "log1p",
    "exp",
    "expm1",
    "pow",
    "hypot",
    "sqrt",
    "add",
}
ASKED = re.compile(r"\b(Share(Rule|Statement)|TablesRule)\b")
"""The classes of what a study asks of statistics between peers, and of noise on tables."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Bypass:
    """A way around the accountant."""

    module: str
    function: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}, line {self.line}: {self.rule}: {self.what}"


def parts(name: str) -> set[str]:
    return set(re.split(r"_+|\d+", name.lower()))


def is_primitive(name: str) -> bool:
    """Whether a name of `verticil.shared.mechanisms` computes a figure, or is the slack that limits are compared with."""
    return name not in NOT_PRIMITIVES and (bool(parts(name) & PRIMITIVE) or name == "column_privacy")


def origin_of(target: str) -> str | None:
    """Why a dotted name is not for others: it is, or lies in, what computes figures; None: it may be used."""
    if target != CHANNELS and not target.startswith(CHANNELS + "."):
        return None
    inside = target.removeprefix(CHANNELS).strip(".").split(".")
    if inside[0] == "loss":
        return target
    return target if any(map(is_primitive, inside[1:])) else None


def naming(tree: ast.AST) -> list[ast.AST]:
    """What may give a name in a module: its imports and assignments."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]


def bindings(nodes: Sequence[ast.AST], exported: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Local name -> dotted name of what it stands for, of imports from `channels`, also by way of another module."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else "verticil"
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                target = exported.get(node.module, {}).get(alias.name, f"{node.module}.{alias.name}")
                found[alias.asname or alias.name] = target
    for node in nodes:  # a second name for the same thing
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            target = resolved(node.value, found)
            if target is not None and target.startswith(CHANNELS):
                found.update({name.id: target for name in node.targets if isinstance(name, ast.Name)})
    return {name: target for name, target in found.items() if target.partition(".")[0] == "verticil"}


def resolved(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    """The dotted name that an expression stands for."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Subscript):  # one of a table of mechanisms
        return resolved(node.value, bound)
    if isinstance(node, ast.Attribute) and (base := resolved(node.value, bound)) is not None:
        return f"{base}.{node.attr}"
    return None


def name_of(node: ast.expr) -> str:
    """The last name of an expression: of an attribute its own, of a call that of what is called, of a key the key."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call():
            return name_of(node.func)
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
        case ast.Subscript() | ast.Starred() | ast.Await():
            return name_of(node.value)
        case _:
            return ""


class Function:
    """One function (or the statements of a module): what it does with figures."""

    def __init__(self, body: ast.AST) -> None:
        self.nodes = list(_own(body))
        self.figures: set[str] = set()
        self.asked: set[str] = set()
        if isinstance(body, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*body.args.posonlyargs, *body.args.args, *body.args.kwonlyargs)
            self.asked |= {
                item.arg for item in arguments if item.annotation and ASKED.search(ast.unparse(item.annotation))
            }
        while self._learn():
            pass

    def _learn(self) -> bool:
        """Names that an assignment makes figures, or the share of a study."""
        before = len(self.figures) + len(self.asked)
        for node in self.nodes:
            for target, value in _assigned(node):
                if self.is_figure(value):
                    self.figures.add(target)
                if self.is_asked(value):
                    self.asked.add(target)
        return len(self.figures) + len(self.asked) > before

    def is_figure(self, node: ast.expr) -> bool:
        """Whether an expression is an epsilon or a delta, or several."""
        match node:
            case ast.Name():
                return node.id in self.figures or bool(parts(node.id) & FIGURE)
            case ast.Call(func=ast.Name(id="number" | "float" | "abs" | "max" | "min" | "sorted" | "list" | "tuple")):
                return any(map(self.is_figure, node.args))
            case ast.Attribute() | ast.Call() | ast.Subscript():
                called = name_of(node)
                return bool(parts(called) & FIGURE) and not called.endswith(("exceeds", "text", "words"))
            case ast.BinOp():
                return self.is_figure(node.left) or self.is_figure(node.right)
            case ast.UnaryOp():
                return self.is_figure(node.operand)
            case ast.IfExp():
                return self.is_figure(node.body) or self.is_figure(node.orelse)
            case ast.BoolOp():
                return any(map(self.is_figure, node.values))
            case ast.NamedExpr() | ast.Starred() | ast.Await():
                return self.is_figure(node.value)
            case ast.List() | ast.Tuple() | ast.Set():
                return any(map(self.is_figure, node.elts))
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp():
                return self.is_figure(node.elt) or (
                    isinstance(node.elt, ast.Name) and self.is_figure(node.generators[0].iter)
                )
            case _:
                return False

    def is_asked(self, node: ast.expr) -> bool:
        """Whether an expression is a study's `share`, or its `tables`."""
        if isinstance(node, ast.NamedExpr):
            return self.is_asked(node.value)
        if isinstance(node, ast.Attribute):
            return node.attr in {"share", "tables"}
        return isinstance(node, ast.Name) and node.id in self.asked

    def bypasses(self, bound: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
        """(line, rule, what) of each."""
        told = [
            node
            for check in self.nodes
            if isinstance(check, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in check.ops)
            for node in (check.left, *check.comparators)
        ]
        for node in self.nodes:
            if not isinstance(node, ast.expr | ast.AugAssign):
                continue
            if isinstance(node, ast.Name | ast.Attribute) and origin_of(resolved(node, bound) or ""):
                yield node.lineno, "primitive", ast.unparse(node)
            if isinstance(node, ast.Call):
                yield from self._call(node, bound)
            if (isinstance(node, ast.BinOp) and self._adds(node.left, node.right)) or (
                isinstance(node, ast.AugAssign) and self._adds(node.target, node.value)
            ):
                yield node.lineno, "arithmetic", ast.unparse(node)
            if isinstance(node, ast.Compare) and self._orders(node):
                yield node.lineno, "comparison", ast.unparse(node)
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and node.attr in FIGURE
                and self.is_asked(node.value)
                and not any(node is other for other in told)
            ):
                yield node.lineno, "quoted", ast.unparse(node)

    def _call(self, node: ast.Call, bound: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
        called = name_of(node.func)
        if called in {"import_module", "__import__"} and any(
            isinstance(item, ast.Constant) and str(item.value).startswith(CHANNELS) for item in node.args
        ):
            yield node.lineno, "primitive", ast.unparse(node)
        if (
            called in {"getattr", "attrgetter", "vars"}
            and node.args
            and (resolved(node.args[0], bound) or "").startswith(CHANNELS)
        ):
            yield node.lineno, "primitive", ast.unparse(node)
        arguments = [*node.args, *(item.value for item in node.keywords)]
        if called in MATHEMATICS and (
            any(map(self.is_figure, arguments))
            or (called.startswith("log") and any("gamma" in parts(name_of(a)) for a in arguments))
        ):
            yield node.lineno, "arithmetic", ast.unparse(node)
        if (called == "reduce" or (called == "sum" and isinstance(node.func, ast.Attribute))) and any(
            map(self.is_figure, [*arguments, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])])
        ):
            yield node.lineno, "arithmetic", ast.unparse(node)

    def _adds(self, left: ast.expr, right: ast.expr) -> bool:
        """Text that is put together, or repeated, is no arithmetic; a list of figures that grows is none yet."""
        if any(
            isinstance(side, ast.Constant | ast.JoinedStr) and not isinstance(getattr(side, "value", None), int | float)
            for side in (left, right)
        ):
            return False
        return self.is_figure(left) or self.is_figure(right)

    def _orders(self, node: ast.Compare) -> bool:
        """Ranges (0 < epsilon < math.inf) are for everybody; what is ordered against another name is not."""
        if not any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
            return False
        sides = [node.left, *node.comparators]
        others = [
            side
            for side in sides
            if not isinstance(side, ast.Constant) and ast.unparse(side) not in {"math.inf", "-math.inf"}
        ]
        return len(others) > 1 and any(map(self.is_figure, sides))


def _own(body: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions in it; comprehensions and lambdas are its own."""
    for child in ast.iter_child_nodes(body):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        yield child
        yield from _own(child)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of an assignment, of a loop, or of a comprehension: with the elements of what is gone through."""
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    match node:
        case ast.Assign():
            pairs = [(target, node.value) for target in node.targets]
        case ast.AnnAssign() | ast.NamedExpr():
            pairs = [(node.target, node.value)]
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            pairs = [(node.target, node.iter)]
        case _:
            return
    for target, value in pairs:
        if isinstance(target, ast.Name) and value is not None:
            yield target.id, value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from ((a.id, b) for a, b in zip(target.elts, value.elts, strict=True) if isinstance(a, ast.Name))


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """(qualified name, function or module) of everything that has statements."""
    if not isinstance(tree, ast.ClassDef):
        yield name, tree
    for inner in _directly(tree):
        yield from functions(inner, f"{name}.{inner.name}" if name else inner.name)


def _directly(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        else:
            yield from _directly(child)


def sources(root: Path) -> dict[str, str]:
    """Module -> source, of the product."""
    found: dict[str, str] = {}
    for wing in WINGS:
        for path in (root / wing / "verticil").rglob("*.py"):
            name = ".".join(path.relative_to(root / wing).with_suffix("").parts).removesuffix(".__init__")
            if name.startswith("verticil.") and not name.startswith("verticil.wire"):
                found[name] = path.read_text(encoding="utf-8")
    return found


def bypasses(project: Mapping[str, str]) -> list[Bypass]:
    """Every way around the accountant, excepted or not."""
    trees = {module: parsed(source) for module, source in project.items()}
    named = {module: naming(tree) for module, tree in trees.items() if not module.startswith(CHANNELS)}
    exported: dict[str, dict[str, str]] = {}
    for _ in range(4):  # through so many modules
        exported = {module: bindings(nodes, exported) for module, nodes in named.items()}
    found: set[Bypass] = set()
    for module, tree in trees.items():
        if module.startswith(HOUSE):
            continue
        for function, body in functions(tree):
            for line, rule, what in Function(body).bypasses(exported[module]):
                found.add(Bypass(module=module, function=function, line=line, rule=rule, what=what))
    return sorted(found)


def excepted(found: Bypass) -> str | None:
    """The exception that a bypass falls under: of its module, its class, or its function."""
    within = (found.module, f"{found.module}:{found.function.partition('.')[0]}", f"{found.module}:{found.function}")
    return next((name for name in within if name in EXCEPTIONS), None)


@pytest.fixture(scope="module")
def product() -> list[Bypass]:
    project = sources(ROOT)
    assert len(project) > 200
    return bypasses(project)


def test_every_statement_of_privacy_comes_from_the_accountant(product: list[Bypass]) -> None:
    assert [str(item) for item in product if excepted(item) is None] == []


def test_no_exception_is_left_that_nothing_needs(product: list[Bypass]) -> None:
    assert set(EXCEPTIONS) - {excepted(item) for item in product} == set()


IMPORTS = "from verticil.shared.mechanisms import privacy, gaussian\n"
PLANTED = {
    "a function by name": (
        "from verticil.shared.mechanisms.privacy import epsilon as strength\n"
        "def said(unit): return strength(unit.transition)",
        "primitive",
    ),
    "a function of a module": (IMPORTS + "def said(unit): return privacy.gamma(unit.transition)", "primitive"),
    "a module under another name": (
        "import verticil.shared.mechanisms.gaussian as noise\ndef said(): return noise.analytic_delta(3.0, 1.0)",
        "primitive",
    ),
    "a full name": (
        "import verticil.shared.mechanisms.gaussian\n"
        "def said(n): return verticil.shared.mechanisms.gaussian.analytic_sigma(1.0, 1e-6)",
        "primitive",
    ),
    "a second name": (
        IMPORTS + "measure = privacy.column_privacy\ndef said(unit): return measure(unit).posterior",
        "primitive",
    ),
    "a function handed on": (IMPORTS + "def said(channels): return list(map(privacy.epsilon, channels))", "primitive"),
    "another module's import": (
        "from verticil.shared.study.rules import gamma\ndef said(unit): return gamma(unit.transition)",
        "primitive",
    ),
    "an import inside": (
        "def said():\n    from verticil.shared.mechanisms.loss import GaussianLoss\n    return GaussianLoss(mu=1.0)",
        "primitive",
    ),
    "a table of mechanisms": (
        "from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma as made\n"
        "def said(rule, n): return {'noise': made}[rule.noise](1.0, 1e-6, n)",
        "primitive",
    ),
    "a calibration": (
        "from verticil.shared.mechanisms import discrete_gaussian\ndef said(): return discrete_gaussian.least_sigma(1.0, 1e-6)",
        "primitive",
    ),
    "an import by text": (
        "import importlib\ndef said(): return importlib.import_module('verticil.shared.mechanisms.privacy').epsilon",
        "primitive",
    ),
    "an attribute by text": (IMPORTS + "def said(unit, name): return getattr(privacy, name)(unit)", "primitive"),
    "the tolerance of limits": (
        "from verticil.shared.mechanisms.privacy import EPSILON_TOLERANCE\n"
        "def said(x, most): return x > most + EPSILON_TOLERANCE",
        "primitive",
    ),
    "a sum": ("import math\ndef said(rows): return math.fsum(row.epsilon for row in rows)", "arithmetic"),
    "a sum of what a list holds": (
        "def said(rows):\n    epsilons = [row.cost for row in rows]\n    return sum(epsilons)",
        "arithmetic",
    ),
    "a sum of arrays": ("def said(epsilons): return epsilons.sum()", "arithmetic"),
    "a plus": ("def said(a, b): return a.delta + b.delta", "arithmetic"),
    "a growing total": (
        "def said(rows):\n    total = 0.0\n    for row in rows:\n        total += row.charged_epsilon\n    return total",
        "arithmetic",
    ),
    "a multiple": ("def said(n, rule): return n * rule.share_delta", "arithmetic"),
    "what an epsilon was named": ("def said(cost):\n    level = cost.epsilon\n    return level / 2", "arithmetic"),
    "a logarithm of gamma": ("import math\ndef said(column): return math.log(column.gamma)", "arithmetic"),
    "an exponential": ("import numpy as np\ndef said(epsilon): return np.exp(epsilon)", "arithmetic"),
    "a figure of a document": ("def said(model): return 2 * model['privacy']['epsilon_per_person']", "arithmetic"),
    "a limit": ("def said(cost, policy): return cost.epsilon > policy.limit", "comparison"),
    "a limit on what was named": (
        "def said(compose, costs, most):\n    total = compose(costs).delta\n    return most < total",
        "comparison",
    ),
    "a study's key in a sentence": (
        "def said(study): return f'epsilon {study.share.epsilon:g} of one person'",
        "quoted",
    ),
    "a study's key of tables": ("def said(study): return f'epsilon {study.tables.epsilon:g} of one person'", "quoted"),
    "a study's key by another name": (
        "def said(study):\n    rule = study.share\n    return dict(delta=rule.delta)",
        "quoted",
    ),
    "a study's key of an argument": ("def said(rule: ShareRule | None): return str(rule.epsilon)", "quoted"),
    "a method": ("class Said:\n    def said(self, one, other): return one.epsilon - other.epsilon", "arithmetic"),
}


@pytest.mark.parametrize("shape", PLANTED)
@pytest.mark.parametrize(
    "wing", ["party/verticil/party/operator", "deploy/verticil/cli", "shared/verticil/shared/release"]
)
def test_a_planted_bypass_is_found(tmp_path: Path, shape: str, wing: str) -> None:
    source, rule = PLANTED[shape]
    folder = tmp_path / wing
    folder.mkdir(parents=True)
    (folder / "planted.py").write_text(source + "\n", encoding="utf-8")
    rules = tmp_path / "shared/verticil/shared/study/rules.py"
    rules.parent.mkdir(parents=True)
    rules.write_text("from verticil.shared.mechanisms.privacy import gamma\n", encoding="utf-8")
    module = ".".join((folder / "planted").relative_to(tmp_path).parts[1:])
    found = bypasses(sources(tmp_path))
    assert {(item.module, item.rule) for item in found} >= {(module, rule)}
    assert not any(map(excepted, found))


def test_what_is_allowed_is_not_found() -> None:
    """Doors, times, ranges, text, and what mechanisms say of themselves besides."""
    allowed = """
import datetime as dt
import math
from verticil.shared.mechanisms import privacy, gaussian
from verticil.shared.mechanisms.gaussian import LARGEST_SIGMA, ShareNoise
from verticil.shared.privacy.figures import epsilon_exceeds, total_epsilon

def later(now, n):
    return now + n * dt.timedelta(days=1)

def said(study, cost, spent, limit, rows, noise):
    if not 0 < cost.epsilon < math.inf or math.isinf(cost.epsilon) or study.share.epsilon is None:
        return None
    epsilons = [row.epsilon for row in rows]
    text = f"epsilon {cost.epsilon:g}, delta {cost.delta:g}" + f"; kept {privacy.kept(study.unit)}"
    over = epsilon_exceeds(total_epsilon(epsilons), limit.epsilon)
    return text, over, spent + cost, noise.sigma, epsilons == [], min(LARGEST_SIGMA, 1.0), cost.delta == spent.delta
"""
    assert bypasses({"verticil.cli.allowed": allowed}) == []
    assert bypasses({"verticil.shared.privacy.planted": PLANTED["a sum"][0]}) == []


STUDY = """
schema = 1
id = "peers"
title = "Peers"
purpose = "test"
model = "peer"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[linkage]
minimum_common_records = 100
[[variable]]
party = "north"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "north"
name = "smoker"
categories = ["no", "yes"]
[[variable]]
party = "south"
name = "visits"
categories = ["few", "many"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "given"
[structure.parents]
visits = ["sex"]
[share]
noise = "discrete-gaussian"
epsilon = 1.5
delta = 1e-7
[release]
synthetic_records = 50
seed = 1
"""


def test_what_a_release_says_of_shared_statistics_is_what_the_accountant_says(tmp_path: Path) -> None:
    """`study` may not import the accountant; its figures are the same."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    study = read_study(tmp_path / "study.toml")
    dag = study.given_dag
    assert dag is not None
    said, cost = peer_statement(study, dag).share, share_cost(study)
    assert said is not None
    assert cost == Cost(epsilon=said.epsilon, delta=said.delta)
    for party, (tables, sigma) in said.parties.items():
        event = share_event(study, party)
        assert isinstance(event, DiscreteGaussianCounts)
        assert (event.tables, event.sigma) == (tables, sigma)
