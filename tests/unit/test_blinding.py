"""Blinded ids on P-256: against plain arithmetic on the curve, what is refused, and a blinding_state that is killed."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Awaitable, Callable

import pytest

from support.linking import seeds
from verticil.party.dataset import blinding
from verticil.party.dataset.blinding import (
    BlindingKey,
    BlindingState,
    Pool,
    TokenInvalidError,
    blind_seeds,
    blind_tokens,
)

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
A = P - 3
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
"""P-256, from SEC 2 (version 2), section 2.4.2."""
KEY, STUDY = bytes(range(32)), b"s" * 32
IDS = [f"person {number}" for number in range(40)]

Point = tuple[int, int] | None


def add(one: Point, other: Point) -> Point:
    """The group law in affine coordinates."""
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 + A) * pow(2 * y1, -1, P) if one == other else (y2 - y1) * pow(x2 - x1, -1, P)
    x3 = (slope * slope - x1 - x2) % P
    return x3, (slope * (x1 - x3) - y1) % P


def times(scalar: int, point: Point) -> Point:
    result: Point = None
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def lifted(x: int) -> Point:
    square = (pow(x, 3, P) + A * x + B) % P
    y = pow(square, (P + 1) // 4, P)
    return (x, y) if x < P and y * y % P == square else None


def test_tokens_are_those_of_the_formula() -> None:
    key = BlindingKey((0xABCDEF0123456789 << 100).to_bytes(32, "big"))
    values, _ = seeds(KEY, STUDY, IDS[:3])
    made = blind_seeds(key, values.tobytes())
    for number, seed in enumerate(values):
        counter, point = 0, None
        while point is None:
            text = b"verticil/psi/point/v1" + counter.to_bytes(4, "big") + seed.tobytes()
            point, counter = lifted(int.from_bytes(hashlib.sha256(text).digest(), "big")), counter + 1
        expected = times(int.from_bytes(key.secret, "big"), point)
        assert expected is not None
        assert made[32 * number : 32 * (number + 1)] == expected[0].to_bytes(32, "big")


def test_the_order_of_the_keys_does_not_matter_and_that_of_the_list_is_kept() -> None:
    a, b, c = (BlindingKey.draw() for _ in range(3))
    data = seeds(KEY, STUDY, IDS)[0].tobytes()
    one = blind_tokens(c, blind_tokens(b, blind_seeds(a, data)))
    other = blind_tokens(a, blind_tokens(c, blind_seeds(b, data)))
    assert one == other
    assert len({one[i : i + 32] for i in range(0, len(one), 32)}) == len(IDS)


def test_seeds_are_keyed_ascending_and_know_their_rows() -> None:
    values, rows = seeds(KEY, STUDY, IDS)
    texts = [value.tobytes() for value in values]
    assert texts == sorted(texts)
    again, where = seeds(KEY, STUDY, [IDS[row] for row in rows])
    assert (again.tobytes(), where.tolist()) == (values.tobytes(), list(range(len(IDS))))
    assert not set(texts) & {value.tobytes() for value in seeds(b"k" * 32, STUDY, IDS)[0]}
    assert not set(texts) & {value.tobytes() for value in seeds(KEY, b"t" * 32, IDS)[0]}
    assert seeds(KEY, STUDY, [])[0].shape == (0, 32)


def not_a_point() -> bytes:
    return next(x.to_bytes(32, "big") for x in range(1, 100) if lifted(x) is None)


@pytest.mark.parametrize("token", [not_a_point(), b"\xff" * 32, P.to_bytes(32, "big"), b"short"])
def test_what_is_no_point_is_refused_with_its_place(token: bytes) -> None:
    good = blind_seeds(BlindingKey.draw(), seeds(KEY, STUDY, IDS)[0].tobytes())
    for place in (0, 17):
        data = good[: 32 * place] + token
        with pytest.raises(TokenInvalidError) as caught, Pool(1) as pool:
            pool.blind(BlindingKey.draw(), data, own=False)
        assert caught.value.position == place


@pytest.mark.parametrize("secret", [b"", bytes(32), b"\xff" * 32])
def test_what_is_no_key_is_refused(secret: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (OpenSSL's own words for two of them)
        BlindingKey(secret)


def test_several_processes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blinding, "_WORTH_PROCESSES", 1)
    monkeypatch.setattr(blinding, "_PIECE", 8)
    key, data = BlindingKey.draw(), seeds(KEY, STUDY, IDS)[0].tobytes()
    with Pool(len(IDS), processes=2) as pool:
        tokens = pool.blind(key, data, own=True)
        assert tokens == blind_seeds(key, data)
        assert pool._pool is not None
        assert pool._pool.submit(signal.getsignal, signal.SIGHUP).result() is signal.SIG_IGN
        with pytest.raises(TokenInvalidError) as caught:
            pool.blind(key, tokens[: 32 * 20] + not_a_point() + tokens, own=False)
    assert caught.value.position == 20


class Killed(Exception):
    """Stands for the end of the process."""


async def test_a_list_goes_on_where_it_was_killed_and_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(blinding, "_PIECE", 2)  # slices of eight points
    data = seeds(KEY, STUDY, IDS)[0].tobytes()
    slices: list[int] = []

    async def heavily(work: Callable[[], bytes]) -> bytes:
        slices.append(1)
        return work()

    def until(percent: int) -> Callable[[int], Awaitable[None]]:
        async def progress(now: int) -> None:
            if now >= percent:
                raise Killed

        return progress

    for percent in (20, 40, 60):
        with pytest.raises(Killed):
            await BlindingState(tmp_path, STUDY).blind_into(
                "own.list", data, own=True, heavily=heavily, progress=until(percent)
            )
    shop = BlindingState(tmp_path, STUDY)
    part = next(path for path in (tmp_path / "linkage" / STUDY.hex()).iterdir() if path.name.endswith(".part"))
    with part.open("ab") as file:
        file.write(b"half of a tok")  # what was being written when the power failed
    await shop.blind_into("own.list", data, own=True, heavily=heavily, progress=until(101))
    assert shop.take("own.list") == blind_seeds(shop.key(), data)
    assert len(slices) < 4 * 5  # not from the beginning each time
    await shop.blind_into("own.list", data, own=True, heavily=heavily, progress=until(0))  # there already
    shop.forget_key()
    shop.forget_key()
    assert not (tmp_path / "linkage" / STUDY.hex() / "blinding.key").exists()
    shop.drop()
    shop.drop()
    assert shop.take("own.list") is None
    assert asyncio.get_running_loop().is_running()
