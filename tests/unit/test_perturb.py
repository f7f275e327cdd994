"""Sticky randomization: what it depends on, what it must not depend on, exact thresholds, and equal bytes of both paths.

Known answers stand in tests/vectors, the distribution in tests/statistical.
"""

import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from support.linking import pseudonyms
from verticil.party.dataset import perturb as module
from verticil.party.dataset.perturb import (
    codebook_digest,
    fingerprint,
    perturb,
    perturb_numba,
    perturb_numpy,
    record_tags,
    unit_key,
)
from verticil.party.dataset.pseudonyms import linkage_context
from verticil.shared.mechanisms.transition import SCALE, Transition, blocks, quantize, symmetric
from verticil.shared.numerics.model.artifact import pack
from verticil.shared.numerics.model.schema import Missing, Variable

SECRET = bytes(range(32))
IDS = [f"{i:06d}" for i in range(20_000)]
VARIABLE = Variable(name="ward", owner="hospital", labels=("a", "b", "c", "d", "e"))
FIVE = quantize(symmetric(5, epsilon=1.5))
BOTH = pytest.mark.parametrize("path", [perturb_numpy, perturb_numba])


def codes_of(n_states, n=20_000, seed=0):
    dtype = np.uint8 if n_states <= 256 else np.uint16
    return np.random.default_rng(seed).integers(0, n_states, n).astype(dtype)


def key_of(
    transition=FIVE, *, secret=SECRET, variable=VARIABLE, recode=None, column="ward", dataset="people", version=b""
):
    return unit_key(
        secret,
        dataset=dataset,
        source_columns=[column],
        codebook_digest=codebook_digest(variable, recode or {}),
        transition_digest=transition.digest(),
        version_tag=version,
    )


@pytest.fixture(scope="module")
def tags():
    return record_tags(SECRET, IDS)


@BOTH
def test_any_row_order_gives_every_record_its_value(tags, path):
    codes = codes_of(5)
    released = path(key_of(), tags, codes, FIVE)
    order = np.random.default_rng(1).permutation(len(IDS))
    assert (path(key_of(), tags[order], codes[order], FIVE) == released[order]).all()
    part = order[:777]
    assert (path(key_of(), tags[part], codes[part], FIVE) == released[part]).all()
    # In the common order, that of the pseudonyms, the artifacts are therefore byte-identical.
    back = np.argsort(order)
    shuffled = path(key_of(), tags[order], codes[order], FIVE)
    assert pack(shuffled[back], 5) == pack(released, 5)


@BOTH
def test_a_new_site_secret_changes_the_values(tags, path):
    codes = codes_of(5)
    other = bytes(32)
    mine, theirs = path(key_of(), tags, codes, FIVE), path(key_of(secret=other), record_tags(other, IDS), codes, FIVE)
    agreement = float((mine == theirs).mean())
    # Two independent draws agree with probability sum_y P(y|x)^2; 20,000 records: 6 standard errors are .021.
    assert agreement == pytest.approx(float((FIVE.probabilities**2).sum(axis=1).mean()), abs=0.021)


def test_what_others_control_does_not_enter_the_key():
    """The study's name for the variable, its owner, how synthetic values are written. Linkage key and study are no arguments."""
    renamed = Variable(name="station", owner="clinic", labels=VARIABLE.labels, integer=True)
    assert key_of(variable=renamed) == key_of()
    again = Missing(category="e", spellings=("?", ""))
    other_order = Missing(category="e", spellings=("", "?"))
    labels = VARIABLE.labels
    one, two = (Variable(name="w", owner="h", labels=labels, missing=missing) for missing in (again, other_order))
    assert codebook_digest(one, {}) == codebook_digest(two, {})


def test_a_new_linkage_key_or_name_moves_records_and_changes_no_value(tags):
    """From linkage to released values: the common order is another, the value of every id is the same."""
    codes = codes_of(5)
    released = {}
    for linkage_key, name in ((bytes(32), "ward"), (bytes([1]) * 32, "station")):
        _, order = pseudonyms(linkage_key, linkage_context(bytes(32)), IDS)
        variable = Variable(name=name, owner="hospital", labels=VARIABLE.labels)
        values = perturb(key_of(variable=variable), tags[order], codes[order], FIVE)
        released[name] = (order.tolist(), dict(zip([IDS[row] for row in order], values.tolist(), strict=True)))
    assert released["ward"][0] != released["station"][0]
    assert released["ward"][1] == released["station"][1]


VARIANTS = {
    "secret": {"secret": bytes(32)},
    "data set": {"dataset": "staff"},
    "column": {"column": "ward2"},
    "version": {"version": b"2"},
    "matrix": {"transition": quantize(symmetric(5, epsilon=1.6))},
    "labels": {"variable": Variable(name="ward", owner="hospital", labels=("b", "a", "c", "d", "e"))},
    "other": {"variable": Variable(name="ward", owner="hospital", labels=VARIABLE.labels, other="e")},
    "bins": {"variable": Variable(name="ward", owner="hospital", labels=VARIABLE.labels, bins=(0, 1, 2, 3, 4, 5))},
    "edges": {"variable": Variable(name="ward", owner="hospital", labels=VARIABLE.labels, bins=(0, 1, 2, 3, 4, 6))},
    "outside": {
        "variable": Variable(
            name="ward", owner="hospital", labels=VARIABLE.labels, bins=(0, 1, 2, 3, 4, 5), outside="clamp"
        )
    },
    "missing": {
        "variable": Variable(
            name="ward", owner="hospital", labels=VARIABLE.labels, missing=Missing(category="e", spellings=("",))
        )
    },
    "recode": {"recode": {"x": "a"}},
}


def test_everything_that_gives_a_value_its_meaning_enters_the_key():
    keys = {"plain": key_of()} | {name: key_of(**variant) for name, variant in VARIANTS.items()}
    assert len(set(keys.values())) == len(keys)


def test_names_cannot_be_shifted_from_one_part_of_the_key_to_another():
    digest = bytes(32)

    def key(dataset, columns, version=b""):
        return unit_key(
            SECRET,
            dataset=dataset,
            source_columns=columns,
            codebook_digest=digest,
            transition_digest=digest,
            version_tag=version,
        )

    keys = [key("ab", ["c"]), key("a", ["bc"]), key("a", ["b", "c"]), key("a", ["b"], b"c"), key("a", ["c", "b"])]
    assert len(set(keys)) == len(keys)


def test_columns_of_equal_codes_are_drawn_independently(tags):
    """Same codes, codebook and matrix, another local column: another key, so two independent draws (see the bound above)."""
    codes = codes_of(5)
    one, two = (perturb(key_of(column=column), tags, codes, FIVE) for column in ("ward", "ward2"))
    assert float((one == two).mean()) == pytest.approx(float((FIVE.probabilities**2).sum(axis=1).mean()), abs=0.021)


MATRICES = {
    "2": quantize(symmetric(2, epsilon=0.5)),
    "3": quantize(symmetric(3, epsilon=0.5)),
    "5": FIVE,
    "6": quantize(symmetric(6, epsilon=1.5)),
    "23": quantize(symmetric(23, epsilon=2.0)),
    "24, searched": quantize(symmetric(24, epsilon=2.0)),
    "100": quantize(symmetric(100, epsilon=3.0)),
    "256": quantize(symmetric(256, epsilon=4.0)),
    "300, two bytes": quantize(symmetric(300, epsilon=4.0)),
    "identity": quantize(np.eye(6)),
    "blocks": quantize(blocks([(0, 3), (1, 4, 5), (2,)], 6, keep=0.7)),
    "wide blocks": quantize(blocks([range(20), range(20, 40)], 40, keep=0.5)),
    "shift": quantize(np.roll(np.eye(30), 7, axis=1)),
    "random": quantize(np.random.default_rng(3).dirichlet(np.ones(31), size=31)),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [0, 1, 255, 16_384, 16_385, 20_000])
def test_both_paths_give_equal_bytes(tags, name, n):
    transition = MATRICES[name]
    codes = codes_of(transition.n_states)[:n]
    one = perturb_numpy(SECRET, tags[:n], codes, transition)
    two = perturb_numba(SECRET, tags[:n], codes, transition)
    assert one.dtype == two.dtype == codes.dtype
    assert one.tobytes() == two.tobytes()
    assert (transition.probabilities[codes, one] > 0).all()
    if transition.is_identity:
        assert (one == codes).all()


def test_arrays_need_not_be_contiguous_aligned_or_writable(tags):
    codes = codes_of(5)
    expected = perturb_numpy(SECRET, tags[::3], codes[::3], FIVE)
    raw = b"x" + tags[::3].tobytes()
    shifted = np.frombuffer(raw, dtype=np.uint8)[1:].reshape(-1, 14)
    frozen = codes[::3].astype(np.uint16)
    frozen.setflags(write=False)
    for path in (perturb_numpy, perturb_numba, perturb):
        assert (path(SECRET, tags[::3], codes[::3], FIVE) == expected).all()
        assert (path(SECRET, shifted, frozen, FIVE) == expected).all()


def tags_with_u(key, code, targets):
    """Tags that make u exactly the target: the block is the decryption of target ‖ filler, searched until it ends in `code`."""
    found = []
    for target in targets:
        for start in range(0, 1 << 20, 1 << 16):
            n = 1 << 16
            filler = (np.arange(start, start + n, dtype=np.uint64)).astype("<u8")
            blocks = np.empty((n, 2), dtype="<u8")
            blocks[:, 0], blocks[:, 1] = target, filler
            decryptor = Cipher(algorithms.AES(key), modes.ECB()).decryptor()
            plain = np.frombuffer(decryptor.update(blocks.tobytes()), dtype=np.uint8).reshape(-1, 16)
            hits = np.flatnonzero(np.ascontiguousarray(plain[:, 14:]).view("<u2")[:, 0] == code)
            if hits.size:
                found.append(plain[hits[0], :14])
                break
        else:  # pragma: no cover  probability e^-16 for one target of an ideal cipher; the key is fixed
            raise AssertionError("no block found")
    return np.array(found)


THIRD = SCALE // 3
EDGES = Transition(
    weights=(
        (THIRD, THIRD, SCALE - 2 * THIRD),
        (0, 5, SCALE - 5),  # leading zero
        (SCALE - 1, 1, 0),  # trailing zero, and a category of weight 1 of 2^64
    )
)
SINGLE = Transition(weights=((0, SCALE, 0), (SCALE, 0, 0), (0, 0, SCALE)))


@BOTH
@pytest.mark.parametrize(
    ("transition", "code", "u", "expected"),
    [
        (EDGES, 0, [0, THIRD - 1, THIRD, 2 * THIRD - 1, 2 * THIRD, SCALE - 1], [0, 0, 1, 1, 2, 2]),
        (EDGES, 1, [0, 4, 5, SCALE - 1], [1, 1, 2, 2]),
        (EDGES, 2, [0, SCALE - 2, SCALE - 1], [0, 0, 1]),
        (SINGLE, 0, [0, SCALE - 1], [1, 1]),
        (SINGLE, 1, [0, SCALE - 1], [0, 0]),
        (SINGLE, 2, [0, SCALE - 1], [2, 2]),
    ],
)
def test_exact_thresholds(path, transition, code, u, expected):
    """u is placed exactly at, and one below, each threshold; released = #{j : u >= t_j}, written out by hand."""
    tags = tags_with_u(SECRET, code, u)
    codes = np.full(len(u), code, dtype=np.uint8)
    assert path(SECRET, tags, codes, transition).tolist() == expected


@BOTH
def test_exact_thresholds_of_a_searched_matrix(path):
    """K = 40, so both paths search: 38 categories of weight 1 behind a leading zero."""
    row = (0, *([1] * 38), SCALE - 38)
    transition = Transition(weights=(row,) * 40)
    u = [0, 1, 37, 38, SCALE - 1]
    released = path(SECRET, tags_with_u(SECRET, 0, u), np.zeros(5, dtype=np.uint8), transition)
    assert released.tolist() == [1, 2, 38, 39, 39]


def test_fingerprint_names_the_data_under_any_row_order(tags):
    codes = codes_of(5)
    order = np.random.default_rng(1).permutation(len(IDS))
    whole = fingerprint(tags, codes)
    assert fingerprint(tags[order], codes[order].astype(np.uint16)) == whole
    changed = codes.copy()
    changed[3] = (changed[3] + 1) % 5
    assert (
        len({whole, fingerprint(tags, changed), fingerprint(tags[1:], codes[1:]), fingerprint(tags[order], codes)}) == 4
    )
    assert fingerprint(record_tags(bytes(32), IDS), codes) != whole


@BOTH
@pytest.mark.parametrize(
    ("key", "n_tags", "codes"),
    [
        (SECRET[1:], 3, np.zeros(3, dtype=np.uint8)),
        (SECRET, 2, np.zeros(3, dtype=np.uint8)),
        (SECRET, 3, np.zeros((3, 1), dtype=np.uint8)),
        (SECRET, 3, np.zeros(3, dtype=np.int64)),
        (SECRET, 3, np.array([0, 5, 0], dtype=np.uint8)),  # the compiled path must not read behind the table
    ],
)
def test_misuse(tags, path, key, n_tags, codes):
    with pytest.raises(ValueError, match=r"expected|not less"):
        path(key, tags[:n_tags], codes, FIVE)


def test_misuse_of_keys():
    digest = bytes(32)
    for secret, columns, codebook in ((b"", ["a"], digest), (SECRET, [], digest), (SECRET, ["a"], b"")):
        with pytest.raises(ValueError, match=r"bytes|at least one"):
            unit_key(secret, dataset="d", source_columns=columns, codebook_digest=codebook, transition_digest=digest)
    with pytest.raises(ValueError, match="tag key of 3 bytes"):
        record_tags(b"abc", ["1"])


def test_without_numba_the_values_are_the_same(tags, monkeypatch):
    """numba is optional at the party: the import fails here as it does where it is not installed."""
    codes = codes_of(5)
    expected = perturb(key_of(), tags, codes, FIVE)
    monkeypatch.setitem(sys.modules, "verticil.party.dataset.kernels", None)
    module._load_kernels.cache_clear()
    try:
        assert (perturb(key_of(), tags, codes, FIVE) == expected).all()
        with pytest.raises(ImportError, match="numba"):
            perturb_numba(key_of(), tags, codes, FIVE)
    finally:
        module._load_kernels.cache_clear()
