"""Releases of very many records: drawn and written piece by piece, the same as at once as long as they are drawn at once."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import signal
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.knowing import content_that_knows
from support.releases import random_mixture, with_joint, with_posterior
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.release import records
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats.table_files import write_csv, write_parquet
from verticil.shared.release.posterior import sets_fault
from verticil.shared.release.records import draw_release_records
from verticil.shared.storage import unlinked_files as nameless
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.synthesis import synthesis
from verticil.shared.synthesis import table_columns as written
from verticil.shared.synthesis.synthesis import decode, sample_chunks
from verticil.shared.synthesis.table_columns import PiecewiseTable, cell_counts

N = 2_600
"""Three pieces of 1,000, the last one shorter."""


def pieces_of(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    for module in (records, written):
        monkeypatch.setattr(module, "PIECE", n)


def with_study(content: ReleaseContent, study: Study) -> ReleaseContent:
    return dataclasses.replace(content, study=study, effective_digest=canonical.digest(study).hex())


@pytest.fixture(params=["network", "joint", "posterior", "knowledge", "within bins", "independent"])
def content(request: pytest.FixtureRequest, release_content: ReleaseContent) -> ReleaseContent:
    """A release of N records, drawn in each of the ways that there are."""
    base = content_that_knows() if request.param == "knowledge" else release_content
    base = dataclasses.replace(base, n_common=N)
    study = base.study
    if request.param == "independent":
        rule = dataclasses.replace(study.release, sampling="independent")
        return with_study(base, dataclasses.replace(study, release=rule))
    if request.param == "joint":
        return with_joint(base, random_mixture(study.schema.n_states))
    if request.param == "posterior":
        return with_posterior(base)
    if request.param == "within bins":
        sampled = with_posterior(base)
        estimated = dataclasses.replace(sampled.study.posterior, within_bins="estimated")
        return with_study(sampled, dataclasses.replace(sampled.study, posterior=estimated))
    return base


def drawn(content: ReleaseContent, folder: Path):
    networks = () if content.posterior is None else content.posterior.networks
    return draw_release_records(content.network, content.study, N, content.joint, networks, folder=folder)


def test_pieces_are_the_table(content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes, frames, the bytes of the CSV file, the records of the Parquet file; and no file is left where they waited."""
    codes, whole = drawn(content, tmp_path)
    assert isinstance(whole, pd.DataFrame)
    pieces_of(monkeypatch, 1_000)
    folder = tmp_path / "waiting"
    folder.mkdir()
    others, table = drawn(content, folder)
    assert isinstance(table, PiecewiseTable)
    assert (len(table), table.columns) == (N, tuple(whole.columns))
    for one, other in zip(codes, others, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert [len(piece) for piece in table] == [1_000, 1_000, 600]
    pd.testing.assert_frame_equal(pd.concat(table, ignore_index=True), whole)
    assert list(folder.iterdir()) == []
    for write, suffix in ((write_csv, "csv"), (write_parquet, "parquet")):
        write(whole, tmp_path / f"whole.{suffix}")
        write(table, tmp_path / f"pieces.{suffix}")
    assert (tmp_path / "pieces.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    one, other = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("whole", "pieces"))
    pd.testing.assert_frame_equal(one, other)


def test_above_the_limit_they_are_drawn_in_chunks(
    content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `release sample` draws them: each chunk, then its numbers, from one generator."""
    pieces_of(monkeypatch, 1_000)
    monkeypatch.setattr(records, "IN_ONE_PIECE", 0)
    for module in (records, synthesis):
        monkeypatch.setattr(module, "CHUNK", 700)
    codes, table = drawn(content, tmp_path)
    again, same = drawn(content, tmp_path)
    assert all(np.array_equal(one, other) for one, other in zip(codes, again, strict=True))
    found = pd.concat(table, ignore_index=True)
    pd.testing.assert_frame_equal(found, pd.concat(same, ignore_index=True))
    study = content.study
    if content.posterior is not None:
        made = dataclasses.replace(content, codes=codes, synthetic=table)
        assert sets_fault(write_release(tmp_path / "release", made), study, content.posterior, N) == ""
        return
    generator = np.random.Generator(np.random.Philox(study.release.seed))
    source = content.joint or content.network
    chunks = sample_chunks(
        source, N, generator=generator, method=study.release.sampling, support=rake(source, study.support())
    )
    frames = [decode(study.schema, chunk, generator, knowledge=study.knowledge) for chunk in chunks]
    assert [len(frame) for frame in frames] == [700, 700, 700, 500]
    pd.testing.assert_frame_equal(found, pd.concat(frames, ignore_index=True))


def test_a_release_of_pieces_is_the_release(
    release_content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file but the Parquet one, which has a row group for each piece here, and what lists its digest."""
    content = dataclasses.replace(release_content, n_common=N)
    for name, size in (("whole", N), ("pieces", 1_000)):
        pieces_of(monkeypatch, size)
        codes, synthetic = drawn(content, tmp_path)
        write_release(tmp_path / name, dataclasses.replace(content, codes=codes, synthetic=synthetic))
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert files == {path.name for path in (tmp_path / "pieces").iterdir()}
    other = {"synthetic.parquet", "datapackage.json", "manifest.json"}
    assert {
        name for name in files if (tmp_path / "whole" / name).read_bytes() != (tmp_path / "pieces" / name).read_bytes()
    } == other


@pytest.mark.slow
def test_at_full_size_the_parquet_file_has_the_same_bytes(release_content: ReleaseContent, tmp_path: Path) -> None:
    """Two row groups and a bit: what pyarrow makes of one frame."""
    n = 2 * written.PIECE + 1234
    codes, table = draw_release_records(release_content.network, release_content.study, n, folder=tmp_path)
    assert isinstance(table, PiecewiseTable)
    write_parquet(table, tmp_path / "pieces.parquet")
    write_parquet(pd.concat(table, ignore_index=True), tmp_path / "whole.parquet")
    digests = [hashlib.sha256((tmp_path / f"{name}.parquet").read_bytes()).hexdigest() for name in ("pieces", "whole")]
    assert digests[0] == digests[1]
    assert len(codes[0]) == n


def test_counts_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_of(monkeypatch, 7)
    generator = np.random.default_rng(0)
    columns = [generator.integers(0, states, 50).astype(np.uint8) for states in (3, 2, 4)]
    expected = np.zeros((3, 2, 4), dtype=np.int64)
    np.add.at(expected, tuple(columns), 1)
    assert cell_counts(columns, (3, 2, 4)).tolist() == expected.ravel().tolist()
    assert cell_counts([columns[0][:0]], (3,)).tolist() == [0, 0, 0]


def test_a_full_disk_is_named(release_content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(owner: object, folder: Path):
        file = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115  every write to it says ENOSPC
        weakref.finalize(owner, file.close)
        return file

    monkeypatch.setattr(nameless, "nameless_file", full)
    pieces_of(monkeypatch, 1_000)
    with pytest.raises(DataFault) as caught:
        drawn(dataclasses.replace(release_content, n_common=N), tmp_path)
    assert caught.value.code == "DISK_FULL"


def test_killed_while_it_writes_it_writes_the_same_again(
    release_content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL in the middle of each table: no release is there, and who comes next makes the one of an undisturbed process."""
    pieces_of(monkeypatch, 1_000)

    def write(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        content = dataclasses.replace(release_content, n_common=N)
        codes, table = drawn(content, folder)
        write_release(folder / "release", dataclasses.replace(content, codes=codes, synthetic=table))

    def killed_at(folder: Path, last: int) -> int:
        """The signal that ended a process which makes as many pieces and no more."""
        if (child := os.fork()) == 0:
            try:
                taken = itertools.count(1)
                frame = written.frame

                def counted(*arguments, **keys):
                    if next(taken) == last:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return frame(*arguments, **keys)

                written.frame = counted
                write(folder)
            finally:
                os._exit(1)
        return os.WTERMSIG(os.waitpid(child, 0)[1])

    write(tmp_path / "undisturbed")
    for last in (2, 5):  # three pieces for each of the two tables
        assert killed_at(tmp_path / "killed", last) == signal.SIGKILL
        assert [path.name for path in (tmp_path / "killed").iterdir()] == [".release.partial"]
    write(tmp_path / "killed")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "release").iterdir()}
        for name in ("undisturbed", "killed")
    )
    assert first == second
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["release"]
