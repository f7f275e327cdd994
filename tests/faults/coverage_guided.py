"""A program: fuzz the decoders of support/decoders.py, guided by coverage. Run by test_decoders_coverage_guided.py.

``FOLDER`` makes the one table of decoders there, with every function of the product instrumented, and then takes lines
``SECONDS DECODER``. For each it forks a process that feeds the decoder what libFuzzer makes of its valid example, for so
many seconds. What a document may do is what `harmless` says; beyond that the process may not grow by more than `ROOM`. One line
comes back: the folder with what the process told (``told``) and the documents in which something was found (``found``), and its
exit code, 0 when it is nothing. The names in `PLANTED` are decoders with a fault, so that finding can be tested.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

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


def fuzz(atheris: Any, decoder: Any, place: Path, seconds: int, seeds: tuple[bytes, ...], harmless: Any) -> None:
    """Does not return: libFuzzer ends the process."""
    with (place / "told").open("wb") as told:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
    for number, seed in enumerate((decoder.example, *seeds)):
        (place / "corpus" / str(number)).write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={max(LONGEST, 2 * len(decoder.example))}",
        f"-timeout={SLOWEST_SECONDS}",
        f"-artifact_prefix={place / 'found'}/",
        "-print_final_stats=1",
        "-seed=1",
        "-rss_limit_mb=0",  # it looks once a second; the system's own limit holds for every allocation
    ]
    atheris.Setup([sys.argv[0], *options, str(place / "corpus")], lambda data: harmless(decoder, data))
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    atheris.Fuzz()


def main(folder: Path) -> None:
    import atheris

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is said while instrumenting is no answer
    with atheris.instrument_imports(include=["verticil"], enable_loader_override=False):
        from support import decoders as table
        from support import releases
    study = releases.release_study_of_two()
    (made := folder / "made").mkdir()
    content = releases.content_of(study)
    decoders = table.make_decoders(made, study, content, releases.draw_peer_case, releases.peer_study_of_three)
    for name, planted in PLANTED.items():
        decoders[name] = table.Decoder(atheris.instrument_func(planted), b"VTC1")
    seeds = tuple(raw[:LONGEST] for raw in table.RAW)
    for number, line in enumerate(sys.stdin):
        seconds, name = line.strip().split(" ", 1)
        place = folder / str(number)
        for part in ("corpus", "found"):
            (place / part).mkdir(parents=True)
        child = os.fork()
        if child == 0:
            fuzz(atheris, decoders[name], place, int(seconds), seeds, table.harmless)
        _, status = os.waitpid(child, 0)
        print(place, os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(Path(sys.argv[1]))
