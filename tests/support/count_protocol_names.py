"""Count the product files that name a protocol outside of its own packages.

A protocol hands its parts to registries, so that no other file has to know it. A file names a protocol where it

- imports one of the protocol's own modules, at the top, in a function or for types alone;
- asks whether a study is of just this protocol, by a function or attribute that is named after it;
- compares with its name: in a comparison, a ``match``, or as an argument of ``register`` or ``named``.

Run ``python tests/support/count_protocol_names.py`` for the files and why each counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
WINGS: Final = ("shared", "party", "miner", "deploy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolNames:
    """What belongs to one protocol.

    Attributes:
        name: as studies have it.
        packages: its own modules, and packages with all that they contain.
        questions: functions and attributes of a protocol that ask whether a study is of this one.
    """

    name: str
    packages: tuple[str, ...]
    questions: tuple[str, ...] = ()

    def owns(self, module: str) -> bool:
        """Return whether a module belongs to the protocol."""
        return any(module == package or module.startswith(package + ".") for package in self.packages)


MODEL_ONE: Final = ProtocolNames(
    name="peer",
    packages=(
        "verticil.party.operator.peer_commands",
        "verticil.party.protocol.peer",
        "verticil.shared.release.peer",
        "verticil.shared.release.peer_assembly",
        "verticil.shared.study.peer",
        "verticil.simulation.peers",
    ),
)
MODEL_THREE: Final = ProtocolNames(
    name="masked",
    packages=(
        "verticil.miner.rules.rounds",
        "verticil.miner.service.masked",
        "verticil.party.limits.masked",
        "verticil.party.protocol.masked",
        "verticil.shared.masked",
        "verticil.shared.privacy.masked",
        "verticil.shared.privacy.masked_figures",
        "verticil.shared.release.masked",
        "verticil.shared.study.masked",
    ),
    questions=("is_masked", "masks"),
)


def reasons(source: str, protocol: ProtocolNames) -> Iterator[str]:
    """Say where the source of a module names a protocol."""
    if not any(word in source for word in (protocol.name, *protocol.questions)):  # to parse a file takes longest
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (f"line {node.lineno}: imports {item.name}" for item in names if protocol.owns(item.name))
            case ast.ImportFrom(module=str(module), names=names):
                for item in names:
                    whole = f"{module}.{item.name}"
                    if protocol.owns(module) or protocol.owns(whole) or item.name in protocol.questions:
                        yield f"line {node.lineno}: imports {whole}"
            case ast.Attribute(value=ast.Call() | ast.Name(id="protocol"), attr=attribute):
                if attribute in protocol.questions:
                    yield f"line {node.lineno}: asks .{attribute}"
            case ast.Compare(left=left, comparators=others):
                if any(_is_name(side, protocol.name) for side in (left, *others)):
                    yield f"line {node.lineno}: compares with '{protocol.name}'"
            case ast.MatchValue(value=value):
                if _is_name(value, protocol.name):
                    yield f"line {node.lineno}: matches '{protocol.name}'"
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=[first, *_]):
                if function in {"register", "register_release", "named"} and _is_name(first, protocol.name):
                    yield f"line {node.lineno}: {function}('{protocol.name}')"
            case _:
                pass


def _is_name(node: ast.AST, protocol: str) -> bool:
    """Return whether an expression is the protocol's name, or a list in which it stands."""
    match node:
        case ast.Constant(value=value):
            return value == protocol
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(_is_name(item, protocol) for item in items)
        case _:
            return False


def product_modules(root: Path = ROOT) -> Mapping[str, str]:
    """Return the source of each module of the product, by the module's name; generated code is left out."""
    modules: dict[str, str] = {}
    for wing in WINGS:
        for path in sorted((root / wing / "verticil").rglob("*.py")):
            name = ".".join(path.relative_to(root / wing).with_suffix("").parts).removesuffix(".__init__")
            if not name.startswith("verticil.wire"):
                modules[name] = path.read_text(encoding="utf-8")
    return modules


def files_that_name(protocol: ProtocolNames, modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the modules that name a protocol and are not its own, each with the places and why they count."""
    outside = {
        module: list(reasons(source, protocol)) for module, source in modules.items() if not protocol.owns(module)
    }
    return {module: places for module, places in outside.items() if places}


def main() -> None:
    """Print the files that name each protocol."""
    modules = product_modules()
    for protocol in (MODEL_ONE, MODEL_THREE):
        files = files_that_name(protocol, modules)
        print(f"{protocol.name}: {len(files)} files outside of its packages")
        for module, places in files.items():
            print(f"  {module}: {'; '.join(places)}")


if __name__ == "__main__":
    main()
