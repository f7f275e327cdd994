"""A program: fuzz one decoder of test_decoders.py, guided by coverage. Run by test_decoders_coverage_guided.py.

``DECODER FOLDER SECONDS`` takes the decoder of that name from the one table, with every function of the product instrumented, and
feeds it what libFuzzer makes of the decoder's valid example, for that many seconds. What a document may do is what `harmless`
says; beyond that the process may not grow by more than `ROOM`. It ends with 0 when nothing was found; else it prints what, and
leaves the document that did it in FOLDER/found. The names in `PLANTED` are decoders with a fault, so that finding can be tested.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
from pathlib import Path
from types import ModuleType

ROOM = 512 * 2**20
"""Bytes of address space beyond what the decoders and their examples take. libFuzzer has its part of it."""
LONGEST = 65_536
SLOWEST_SECONDS = 20


def _fault(data: bytes) -> None:
    if data[:1] == b"V" and data[1:2] == b"T" and data[2:3] == b"C" and data[3:4] != b"1":
        raise KeyError("planted")


def _hunger(data: bytes) -> None:
    if data[:1] == b"V" and data[1:2] != b"T":
        bytearray(2 * ROOM)


PLANTED = {"a fault behind three branches": _fault, "hunger": _hunger}


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # frozen dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def main(name: str, folder: Path, seconds: int) -> None:
    import atheris

    here = Path(__file__).parent
    with atheris.instrument_imports(include=["verticil"], enable_loader_override=False):
        shared = loaded(here.parent / "conftest.py")
        table = loaded(here / "test_decoders.py")
    study = shared._study()
    (made := folder / "made").mkdir()
    if name in PLANTED:
        decoder = table.Decoder(atheris.instrument_func(PLANTED[name]), b"VTC1")
    else:
        content = shared._release_content(study)
        decoder = table.make_decoders(made, study, content, shared._peer_case, shared._peer_study)[name]
    (corpus := folder / "corpus").mkdir()
    (corpus / "example").write_bytes(decoder.example)
    for number, raw in enumerate(table.RAW):
        (corpus / f"raw-{number}").write_bytes(raw[:LONGEST])
    (found := folder / "found").mkdir()
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={max(LONGEST, 2 * len(decoder.example))}",
        f"-timeout={SLOWEST_SECONDS}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
        "-seed=1",
        "-rss_limit_mb=0",  # it looks once a second; the system's own limit holds for every allocation
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: table.harmless(decoder, data))
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
