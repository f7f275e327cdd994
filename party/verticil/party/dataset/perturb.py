"""Sticky randomization: the released value of a record is a function of a secret that never leaves the site.

For each record and unit (a column, or a joint tuple) one block is encrypted with AES-256 under a key of that unit:

    block    = tag ‖ true code       tag: first 14 bytes of HMAC-SHA-256(tag key, normalised id); code: uint16 little-endian
    u        = first 8 bytes of AES-256(unit key, block), little-endian
    released = #{j : u >= t_j}       t_j: cumulative quantized weights of the true code's row, 0 <= j < K-1

The unit key is derived from the site secret, the data set's name, the local source columns, the codebook and the quantized
matrix (`unit_key`): neither the linkage key, nor the study, nor the analyst's name for the column enters, so nothing that
others control can make the site draw again, and a retry ships the same values (contract.md section 2; Ma & Sivakumar, section 3,
for the transition matrix). AES is used as a pseudo-random function of distinct inputs, not to encrypt; the privacy statement
is computational in it, and needs tags that are MACs: an id cannot be chosen so that two records share a block.

Blocks are never shared between columns, because the key is the unit's own. The true code of a compound is the code of its
combination (`compound_codes`): one draw for all its columns. `perturb_numba` and `perturb_numpy` give equal bytes; `perturb`
takes the first where numba is installed. `subsets` releases sets of categories from the same blocks.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Final

import numpy as np
import rfc8785
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.dataset.macs import macs_of
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.transition import Transition
from verticil.shared.numerics.model.schema import Variable

TAG_BYTES: Final = 14
_BLOCK_BYTES: Final = 16
_CHUNK: Final = 16_384  # records in one call of the cipher: 256 KiB stay in the cache
_WIDE: Final = 24  # from this many categories on, search the limits instead of comparing with each
_BLOCK: Final = np.dtype([("tag", f"V{TAG_BYTES}"), ("code", "<u2")])


def record_tags(tag_key: bytes, ids: Iterable[str]) -> NDArray[np.uint8]:
    """Tag of each record: first 14 bytes of HMAC-SHA-256(tag key, id as UTF-8).

    Args:
        tag_key: 32 bytes; see `verticil.party.storage.secret.SiteSecret.tag_key`.
        ids: normalised ids.

    Returns:
        (n, 14), uint8, read-only. Secret: tags never leave the site.

    Raises:
        ValueError: the key is not 32 bytes.
    """
    _check_length("tag key", tag_key)
    return macs_of(tag_key, ids, size=TAG_BYTES)


def codebook_digest(variable: Variable, recode: Mapping[str, str], style: str = "plain") -> bytes:
    """SHA-256 of what decides which code a text of the local column gets: 32 bytes.

    RFC 8785 JSON of the categories in order, bins, `outside`, `other`, the missing spellings, the column's recode, and
    how its numbers are written unless plainly. Not the study's name for the variable, its owner, or `integer`,
    `representatives` and `means`, which only say how synthetic values are written.
    """
    missing = variable.missing
    meaning: dict[str, object] = {
        "labels": list(variable.labels),
        "bins": None if variable.bins is None else [float(edge) for edge in variable.bins],
        "outside": variable.outside,
        "other": variable.other,
        "missing": None if missing is None else [missing.category, sorted(missing.spellings)],
        "recode": dict(recode),
        **({} if style == "plain" else {"written": style}),
        **({} if variable.kind is None else _typed(variable)),
    }
    return hashlib.sha256(rfc8785.dumps(meaning)).digest()  # type: ignore[arg-type]  # values are JSON; dict is invariant


def _typed(variable: Variable) -> dict[str, object]:
    """Return what of a typed column decides which code a text gets."""
    return {
        "type": variable.kind,
        "points": [float(point) for point in variable.points],
        "format": variable.format,
        "groups": [[category, list(values)] for category, values in variable.groups],
        "group_by": variable.group_by,
    }


def compound_digest(codebook_digests: Sequence[bytes], impossible: Sequence[Sequence[int]]) -> bytes:
    """SHA-256 of what decides which code a combination of texts gets in a compound: 32 bytes.

    The digests of the columns' codebooks one after the other, in the order of the product domain; then, when combinations are
    removed from it, these as RFC 8785 JSON in ascending order, because each of them shifts the codes behind it. The number of
    digests is that of the columns, which the unit key has too, so different arguments never give it the same text.

    Args:
        codebook_digests: `codebook_digest` of each column.
        impossible: combinations of codes that are not in the domain, in any order.

    Raises:
        ValueError: a digest is not 32 bytes.
    """
    for digest in codebook_digests:
        _check_length("codebook digest", digest)
    combinations = sorted([int(code) for code in combination] for combination in impossible)
    canonical_bytes = rfc8785.dumps(combinations) if combinations else b""
    return hashlib.sha256(b"".join(codebook_digests) + canonical_bytes).digest()


def unit_key(
    site_secret: bytes,
    *,
    dataset: str,
    source_columns: Sequence[str],
    codebook_digest: bytes,
    transition_digest: bytes,
    version_tag: bytes = b"",
) -> bytes:
    """AES-256 key of one unit: 32 bytes.

        subkey = HKDF-SHA-256(site secret, info = "verticil/perturb/v1" ‖ L(data set) ‖ m ‖ L(column 1) ‖ .. [‖ L(version tag)])
        key    = HKDF-SHA-256(subkey, info = codebook digest ‖ matrix digest)

    without salt; L(x) = length of x in UTF-8 as uint32 big-endian ‖ x; m = number of columns as uint32 big-endian. With lengths
    and count written out, different arguments never give the same info.

    Args:
        site_secret: 32 bytes.
        dataset: name of the data set in party.toml.
        source_columns: the local columns of the unit, in the order of the product domain.
        codebook_digest: see the function of that name; for several columns, `compound_digest`.
        transition_digest: `Transition.digest`, or that of another channel.
        version_tag: names the version of the data when the policy says ``on_data_change = "fresh"``; else empty.

    Raises:
        ValueError: the secret or a digest is not 32 bytes, or there is no column.
    """
    _check_length("codebook digest", codebook_digest)
    _check_length("matrix digest", transition_digest)
    return column_key(
        site_secret,
        b"verticil/perturb/v1",
        dataset=dataset,
        source_columns=source_columns,
        context=codebook_digest + transition_digest,
        version_tag=version_tag,
    )


def column_key(
    site_secret: bytes,
    label: bytes,
    *,
    dataset: str,
    source_columns: Sequence[str],
    context: bytes,
    version_tag: bytes = b"",
) -> bytes:
    """Derive the key of a unit's columns for one purpose, which `label` names; see `unit_key`, whose label is
    ``verticil/perturb/v1``.

    Raises:
        ValueError: the secret is not 32 bytes, or there is no column.
    """
    _check_length("site secret", site_secret)
    if not source_columns:
        raise ValueError("a unit has at least one source column")
    columns = [_prefix_length(column.encode("utf-8")) for column in source_columns]
    info = [label, _prefix_length(dataset.encode("utf-8")), len(columns).to_bytes(4, "big"), *columns]
    if version_tag:
        info.append(_prefix_length(version_tag))
    return _hkdf(_hkdf(site_secret, b"".join(info)), context)


def perturb(key: bytes, tags: NDArray[np.uint8], codes: Codes, transition: Transition) -> Codes:
    """Released codes of one unit.

    Args:
        key: see `unit_key`.
        tags: (n, 14), uint8; see `record_tags`.
        codes: (n,), uint8 or uint16, true codes, each less than K.
        transition: the quantized matrix, K x K.

    Returns:
        (n,), uint8 up to 256 categories, else uint16. Record i depends on nothing but the key, tag i and code i.

    Raises:
        ValueError: shapes, dtypes or key length do not fit, or a code is not less than K.
    """
    if _load_kernels() is None:
        return perturb_numpy(key, tags, codes, transition)
    return perturb_numba(key, tags, codes, transition)


def perturb_numpy(key: bytes, tags: NDArray[np.uint8], codes: Codes, transition: Transition) -> Codes:
    """`perturb` with numpy alone: the reference."""
    tags, codes = checked_records(key, tags, codes, transition.n_states)
    limits, lead = transition.thresholds()
    limits = np.sort(limits, axis=1)  # released counts limits below u, in whatever order they stand
    columns = np.ascontiguousarray(limits.T)
    opaque = tags.view(f"V{TAG_BYTES}").reshape(-1)
    reports = np.empty_like(codes)

    def fill(blocks: NDArray[np.uint8], part: slice) -> None:
        fields = blocks.reshape(-1).view(_BLOCK)
        fields["tag"] = opaque[part]
        fields["code"] = codes[part]

    def count(words: NDArray[np.uint64], part: slice) -> None:
        u = words[::2].astype(np.uint64)
        if transition.n_states < _WIDE:
            reports[part] = _count_by_limit(u, codes[part], columns, lead)
        else:
            reports[part] = _count_by_code(u, codes[part], limits, lead)

    _encrypt(key, len(codes), fill, count)
    return reports


def perturb_numba(key: bytes, tags: NDArray[np.uint8], codes: Codes, transition: Transition) -> Codes:
    """`perturb` with compiled kernels.

    Raises:
        ImportError: numba is not installed or cannot store its cache, or this is a big-endian machine.
    """
    kernels = _load_kernels()
    if kernels is None:
        raise ImportError("the compiled kernels are not available: they need numba and a folder for its cache")
    tags, codes = checked_records(key, tags, codes, transition.n_states)
    limits, lead = transition.thresholds()
    compare = kernels.count_each
    if transition.n_states <= 5:
        compare, limits = kernels.count_four, _pad_limits(limits, 4)
    elif transition.n_states >= _WIDE:
        compare, limits = kernels.count_halving, _pad_limits(limits, (1 << limits.shape[1].bit_length()) - 1)
    pairs = tags.view(np.uint16)
    wide_lead = lead.astype(np.uint16)
    wide_codes, wide_released = np.empty(_CHUNK, dtype=np.uint16), np.empty(_CHUNK, dtype=np.uint16)
    reports = np.empty_like(codes)

    def fill(blocks: NDArray[np.uint8], part: slice) -> None:
        wide_codes[: len(blocks)] = codes[part]
        kernels.fill_blocks(pairs[part], wide_codes[: len(blocks)], blocks.reshape(-1).view(np.uint64))

    def count(words: NDArray[np.uint64], part: slice) -> None:
        here = words.size // 2
        compare(words, wide_codes[:here], limits, wide_lead, wide_released[:here])
        reports[part] = wide_released[:here]

    _encrypt(key, len(codes), fill, count)
    return reports


def fingerprint(tags: NDArray[np.uint8], codes: Codes) -> bytes:
    """SHA-256 of the rows tag ‖ code (uint16 little-endian), sorted: names the data of one unit under any row order.

    Guessing the data from it needs the site secret, because tags are MACs.

    Args:
        tags: (n, 14), uint8.
        codes: (n,), uint8 or uint16, true codes.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    rows = record_blocks(tags, codes)
    words = rows.view(">u8").astype(np.uint64)
    return hashlib.sha256(rows[np.lexsort((words[:, 1], words[:, 0]))].tobytes()).digest()


def record_blocks(tags: NDArray[np.uint8], codes: Codes) -> NDArray[np.uint8]:
    """Build the block of each record: tag ‖ true code.

    Args:
        tags: (n, 14), uint8.
        codes: (n,), uint8 or uint16, true codes.

    Returns:
        (n, 16), uint8. Secret, as tags are.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    _check_records(tags, codes)
    rows = np.empty((len(codes), _BLOCK_BYTES), dtype=np.uint8)
    rows[:, :TAG_BYTES] = tags
    rows[:, TAG_BYTES:] = codes.astype("<u2").view(np.uint8).reshape(-1, 2)
    return rows


def checked_records(
    key: bytes, tags: NDArray[np.uint8], codes: Codes, n_states: int
) -> tuple[NDArray[np.uint8], Codes]:
    """Contiguous, aligned tags and codes, the latter in the dtype of the released ones.

    Raises:
        ValueError: shapes, dtypes or key length do not fit, or a code is not less than K.
    """
    _check_length("unit key", key)
    _check_records(tags, codes)
    if codes.size and int(codes.max()) >= n_states:
        raise ValueError(f"a code is not less than the number of categories, {n_states}")
    dtype = np.uint8 if n_states <= 256 else np.uint16
    pairs = np.require(np.ascontiguousarray(tags).view(np.uint16), requirements=["C", "A"])
    return pairs.view(np.uint8), np.require(codes, dtype=dtype, requirements=["C", "A"])


def _encrypt(
    key: bytes,
    n_records: int,
    fill: Callable[[NDArray[np.uint8], slice], None],
    count: Callable[[NDArray[np.uint64], slice], None],
) -> None:
    """Chunk by chunk: let `fill` write the blocks of some records, encrypt them, let `count` use the words, two a record."""
    cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305  a pseudo-random function of distinct blocks
    encryptor = cipher.encryptor()
    blocks = np.zeros((_CHUNK, _BLOCK_BYTES), dtype=np.uint8)
    cipher_bytes = np.zeros((_CHUNK + 1) * _BLOCK_BYTES, dtype=np.uint8)  # the cipher wants room for one more block
    for start in range(0, n_records, _CHUNK):
        part = slice(start, min(start + _CHUNK, n_records))
        part_blocks = blocks[: part.stop - start]
        fill(part_blocks, part)
        n_bytes = encryptor.update_into(part_blocks.reshape(-1).data, cipher_bytes.data)
        count(cipher_bytes[:n_bytes].view("<u8"), part)


def _count_by_limit(u: NDArray[np.uint64], codes: Codes, columns: NDArray[np.uint64], lead: Codes) -> Codes:
    """Compare every u with its row's first limit, then with the second, and so on; `columns` is (K-1, K)."""
    rows = codes.astype(np.intp)
    reports = lead.take(rows)
    for column in columns:
        reports += u > column.take(rows)
    return reports


def _count_by_code(u: NDArray[np.uint64], codes: Codes, limits: NDArray[np.uint64], lead: Codes) -> Codes:
    """Search the u of each true code in its row's limits, ascending, (K, K-1)."""
    order = np.argsort(codes, kind="stable")
    sorted_u = u[order]
    n_limits = np.empty_like(codes)
    stop = 0
    for code, n_here in enumerate(np.bincount(codes).tolist()):
        start, stop = stop, stop + n_here
        if n_here:
            n_limits[start:stop] = np.searchsorted(limits[code], sorted_u[start:stop], side="left")
    reports = np.empty_like(codes)
    reports[order] = n_limits + lead[codes[order]]
    return reports


def _pad_limits(limits: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    """Sort each row and fill it up to `width` limits with one that no u exceeds."""
    table = np.full((len(limits), width), np.iinfo(np.uint64).max, dtype=np.uint64)
    table[:, : limits.shape[1]] = limits
    return np.sort(table, axis=1)


@functools.cache
def _load_kernels() -> ModuleType | None:
    """Return the kernels; None where they cannot be imported. The released values are the same."""
    if sys.byteorder != "little":
        return None
    try:
        return importlib.import_module("verticil.party.dataset.kernels")
    except (ImportError, RuntimeError):  # RuntimeError: numba finds no folder where it may store its cache
        return None


def _check_records(tags: NDArray[np.uint8], codes: Codes) -> None:
    if tags.dtype != np.uint8 or tags.shape != (codes.size, TAG_BYTES) or codes.ndim != 1:
        raise ValueError(f"tags {tags.dtype}{tags.shape}, expected uint8({codes.size}, {TAG_BYTES})")
    if codes.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
        raise ValueError(f"codes of dtype {codes.dtype}, expected uint8 or uint16")


def _check_length(what: str, value: bytes) -> None:
    if len(value) != 32:
        raise ValueError(f"{what} of {len(value)} bytes, expected 32")


def _prefix_length(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def _hkdf(key: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(key)
