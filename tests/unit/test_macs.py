"""MACs of many ids at once: the bytes of Python's `hmac`, compiled or not, and the ids of `normalise_ids`."""

import functools
import hmac

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.party.dataset import mac_kernels
from verticil.party.dataset import macs as module
from verticil.party.dataset.macs import Macs, PackedIds, macs_of
from verticil.party.dataset.pseudonyms import NORMALISATIONS, normalise_ids, packed_ids

KEY = bytes(range(32))


def expected(key, prefix, texts, size):
    return [hmac.digest(key, prefix + text, "sha256")[:size] for text in texts]


def listed(macs):
    return [row.tobytes() for row in macs]


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """Both ways, whatever the number of ids; the kernel as it is, also where it would not be used."""
    monkeypatch.setattr(module, "load_kernel", lambda: mac_kernels)
    monkeypatch.setattr(module, "_is_kernel_worth_it", lambda _n_asked: request.param == "compiled")


def test_a_kernel_with_other_bytes_is_not_used(monkeypatch):
    """As a cache of compiled code could have it: one that stops short in one lane alone."""

    class Wrong:
        @staticmethod
        def hmac_sha256(key, prefix, data, ends, macs):
            mac_kernels.hmac_sha256(key, prefix, data, ends, macs)
            macs[15] = 0

    monkeypatch.setattr(module.importlib, "import_module", lambda _name: Wrong)
    module.load_kernel.cache_clear()
    assert module.load_kernel() is None
    monkeypatch.undo()
    module.load_kernel.cache_clear()
    assert module.load_kernel() is mac_kernels


@pytest.mark.parametrize("size", [8, 14, 16, 32])
@pytest.mark.parametrize("before", [0, 1, 51, 55, 56, 64, 300])
def test_every_length_around_the_blocks_of_sha_256(path, size, before):
    """Texts of 0 to 199 bytes, so that neighbours need one to four blocks, in no order of length."""
    generator = np.random.default_rng(before)
    texts = ["x" * int(length) for length in generator.permutation(200)]
    prefix = generator.bytes(before)
    macs = Macs(KEY, prefix=prefix, size=size).of(PackedIds.of(texts))
    assert macs.shape == (200, size)
    assert listed(macs) == expected(KEY, prefix, [text.encode() for text in texts], size)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
def test_every_number_of_ids_around_a_group(path, n):
    ids = [f"person {i} ✓" for i in range(n)]
    assert listed(macs_of(KEY, ids, size=16)) == expected(KEY, b"", [i.encode() for i in ids], 16)


def test_rfc_4231(path):
    """Test case 1: the key of 20 bytes 0x0b, which zeros up to 32 leave the same key, and the data "Hi There"."""
    (mac,) = macs_of(bytes([0x0B]) * 20 + bytes(12), ["Hi There"], size=32)
    assert mac.tobytes().hex() == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"


def test_the_compiled_kernel_comes_in_when_there_are_many(monkeypatch):
    calls = []
    kernel = module.load_kernel()
    assert kernel is not None

    class Counted:
        @staticmethod
        def hmac_sha256(*arguments):
            calls.append(len(arguments[-1]))
            kernel.hmac_sha256(*arguments)

    loading = functools.cache(lambda: Counted)
    monkeypatch.setattr(module, "_WORTH_COMPILING", 5)
    monkeypatch.setattr(module, "load_kernel", loading)
    monkeypatch.setattr(Macs, "n_asked", 0)
    ids = [PackedIds.of(part) for part in (["a", "b"], ["c", "d"], ["e", "f", "g"])]
    macs = [Macs(KEY, size=14), Macs(KEY, size=14), Macs(KEY, size=14)]  # the ids of all keys count
    assert [listed(own.of(part)) for own, part in zip(macs, ids, strict=True)] == [
        expected(KEY, b"", part.texts(), 14) for part in ids
    ]
    assert calls == [3]
    monkeypatch.setattr(Macs, "n_asked", 0)  # a kernel that is loaded is used for fewer, too
    assert listed(macs[0].of(ids[0])) == expected(KEY, b"", ids[0].texts(), 14)
    assert calls == [3, 2]


def test_a_key_of_another_length_is_refused():
    with pytest.raises(ValueError, match="31 bytes"):
        Macs(KEY[1:], size=16)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(st.characters(codec="ascii"), max_size=8) | st.text(max_size=4), max_size=8),
    st.lists(st.sampled_from(sorted(NORMALISATIONS)), max_size=4),
)
def test_packed_ids_are_those_of_normalise_ids(ids, steps):
    """Most of the lists are ASCII, where there is a shorter way."""
    assert packed_ids(ids, steps).texts() == [text.encode() for text in normalise_ids(ids, steps)]


def test_every_ascii_character_by_itself():
    every = [f"{chr(a)}1{chr(b)}" for a in range(128) for b in (0, 9, 32, 65, 127)]
    for steps in (
        ["nfkc"],
        ["trim"],
        ["casefold"],
        ["digits-only"],
        ["nfkc", "trim", "casefold"],
        ["digits-only", "trim"],
    ):
        assert packed_ids(every, steps).texts() == [text.encode() for text in normalise_ids(every, steps)]


def test_bytes_that_are_no_text_name_nobody():
    for ids in (["a", "\udcff", ""], ["ä", "x\udcff", ""]):
        assert packed_ids(ids, ["nfkc", "trim"]).empty.tolist() == [False, True, True]
    with pytest.raises(ValueError, match="unknown normalisation"):
        packed_ids(["a"], ["soundex"])
