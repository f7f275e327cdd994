"""Tuned numbers of learning, posteriors and the joint model stand in one place for each package, and say who chose them.

Not looked at: numbers inside functions.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEARNING = ROOT / "miner/verticil/miner/learning"
POSTERIOR = ROOT / "shared/verticil/shared/numerics/posterior"
JOINT = ROOT / "shared/verticil/shared/numerics/joint"
PACKAGES = (LEARNING, LEARNING / "posterior", LEARNING / "scoring", LEARNING / "search", POSTERIOR, JOINT)

NOT_TUNED = {
    # Constants of a generator of random numbers (SplitMix64), of a search for the highest bit, and of words of 64 bits.
    "learning/search/compiled/genetic_kernels.py": {
        "_GOLDEN", "_MIX_1", "_MIX_2", "_S30", "_S27", "_S31", "_S32", "_S11", "_UNIT",
    },
    "learning/search/compiled/order_kernels.py": {"COUNT", "SLOTS", "ROOM", "STATES", "_S54"},
    "learning/search/draws.py": {"_MASK"},
    "learning/scoring/kernels.py": {"_S16", "_S32", "_S48", "_LOW"},
    "posterior/kernels.py": {
        "_ZERO", "_ONE", "_BRUIJN", "_S58", "_S30", "_S27", "_S31", "_S11", "_GOLDEN", "_MIX_1", "_MIX_2", "_PLACES", "_SCALE",
        "_LN2",
    },
    "posterior/missing_cells.py": {"_ZERO", "_ONE", "_LN2", "_ROUND"},
    "posterior/unblinding.py": {"_ONE"},
    # What numbers are rounded to, so that sums are exact and the same on every machine.
    "learning/search/greedy.py": {"_UNIT"},
    "learning/search/hill_climb.py": {"_UNIT", "_DELETE", "_ADD", "_REVERSE"},
    "learning/search/protocol.py": {"_WEIGHT_UNIT"},
    "posterior/parent_sets.py": {"_UNIT", "MOST_VARIABLES"},  # variables of a set are the bits of one word
    # A sentinel, quantiles of a distribution, limits of floating point, shapes of an example that is compiled.
    "learning/search/order.py": {"_NO_LIMIT", "_QUANTILES"},
    "posterior/statistics.py": {"_NORMAL_95"},
    "posterior/line_moves.py": {
        *("TINY", "_FAINT", "_ROOT", "_RAISED", "_FRACTION", "_ABOVE", "_WHOLE", "_WHOLE_VALUE", "_LN2_HIGH", "_LN2_LOW"),
        *(f"_L{i}" for i in range(1, 8)),
    },
    "learning/compiling.py": {"_STATES"},
    # Limits of memory, of what can be published, of warnings and screens; Adam's own numbers; quadrature; a digest's bytes.
    "joint/checkpoints.py": {"identity"},
    "joint/count.py": {"_COUNTING", "_BLOCK"},
    "joint/estimate.py": {"_COMPONENT_CELLS"},
    "joint/mixture.py": {"_BETAS", "_TINY", "_LEAST", "_BLOCK"},
    "joint/prediction.py": {"_ERROR", "_DRAWS", "_LEAST", "_MEAN_ABSOLUTE", "_NODES", "_NODE_WEIGHTS"},
    "joint/replicates.py": {"MOST"},
    "joint/stopping.py": {"_ROUNDING"},
    "joint/weighted_records.py": {"ATOMS", "CELLS", "OVERHEAD", "_TIMES", "_FEW", "_BOUND", "_EMPTY"},
    "joint/worth.py": {"NO_NEARER"},
    # Two resolutions, smooth steps and classes have a number or two each, beside what it means.
    "joint/classes.py": {"_LEAST"},
    "joint/coarse.py": {"SHARE"},
    "joint/smooth_steps.py": {"RATE", "_LEAST"},
}  # fmt: skip


def numbers(source: str) -> dict[str, int]:
    """Return each name to which a module, or a class in it, gives a number, with its line; 0, 1 and true values aside."""
    tree = ast.parse(source)
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    lines: dict[str, int] = {}
    for body, statement in ((block, statement) for block in bodies for statement in block):
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        least = () if body is tree.body else (0, 1)  # a field that begins at 0 is no choice
        if any(
            isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in least
            for node in ast.walk(statement.value)
        ):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            lines |= dict.fromkeys(names, statement.lineno)
    return lines


def sources() -> dict[str, Path]:
    """Return the modules that are looked at, by their paths from the room on."""
    found = {}
    for top in (LEARNING, POSTERIOR, JOINT):
        for path in sorted(top.rglob("*.py")):
            if path.name != "tuning.py":
                found[path.relative_to(top.parent).as_posix()] = path
    return found


def test_no_number_of_learning_or_of_a_posterior_stands_outside_of_its_tuning() -> None:
    """Every exception is needed, so the list says nothing that is no longer true."""
    found = {name: numbers(path.read_text(encoding="utf-8")) for name, path in sources().items()}
    extra = [
        f"{name}:{line}: {one}"
        for name, names in found.items()
        for one, line in names.items()
        if one not in NOT_TUNED.get(name, set())
    ]
    assert extra == []
    assert {name: set(names) for name, names in found.items() if names} == NOT_TUNED


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("MOST: Final = 7", {"MOST"}),
        ("_A, _B = 2.0, 3.0", {"_A", "_B"}),
        ("SHAPE: Final = tuple(range(4))", {"SHAPE"}),
        ("class Search:\n    steps: int = 20_000", {"steps"}),
        ("class Search:\n    steps: int = TUNING.steps", set()),
        ("class State:\n    done: int = 0", set()),
        ("NAME: Final = 'seven'\nYES: Final = True", set()),
    ],
)
def test_a_planted_number_is_seen(source: str, names: set[str]) -> None:
    assert set(numbers(source)) == names


def fields(path: Path) -> dict[str, str]:
    """Return each field of a package's `Tuning` with the text below it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tuning")
    texts = {}
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            told = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value
            texts[statement.target.id] = " ".join(str(told or "").split())
    return texts


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.relative_to(ROOT).as_posix())
def test_each_tuned_number_says_what_it_does_and_who_chose_it(package: Path) -> None:
    """A bench that is there, the paper, or judgement."""
    texts = fields(package / "tuning.py")
    assert len(texts) > 5
    for field, text in texts.items():
        assert len(text.split()) >= 6, f"{field}: say what it does, and which bench chose it"
        benches = re.findall(r"tests/bench/\w+\.py", text)
        assert benches or "By judgement" in text or "By the paper" in text, f"{field}: which bench chose it?"
        assert [bench for bench in benches if not (ROOT / bench).is_file()] == [], field


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.relative_to(ROOT).as_posix())
def test_no_tuned_number_is_left_that_nothing_reads(package: Path) -> None:
    read = {
        node.attr
        for top in ("miner", "shared")
        for path in (ROOT / top / "verticil").rglob("*.py")
        if "wire" not in path.parts and "TUNING" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
    }
    assert sorted(fields(package / "tuning.py").keys() - read) == []


def test_the_joint_model_has_at_most_25_tuned_numbers() -> None:
    assert len(fields(JOINT / "tuning.py")) <= 25
