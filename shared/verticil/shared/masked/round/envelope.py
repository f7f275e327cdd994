"""A message as a file: frames that only its recipient can open, and the sender's signature over the sealed bytes.

    "VTMASK01" ‖ number of frames (uint32) ‖ L(frame 0) ‖ L(frame 1) ‖ .. ‖ L(Signed)

with L(x) = length of x as uint32 big-endian ‖ x. A frame is one HPKE box (`verticil.shared.federation.transport.sealing`), made
and opened by itself, so a message of any length passes in flat memory. Bound into each box are what the message is and the
frame's place among how many; the signature is over what the message is and the SHA-256 of all frames as they stand in the file.
Nothing outside of a box is a function of what is inside (model-three.md, section 9: a signature over plaintext). How many
frames a message has, and how large they are at most, follows from the plan: what says otherwise is refused before it is read.

A box has an ephemeral key of its own, so a message is sealed once, stored, and sent as it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from google.protobuf.message import DecodeError

from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.transport.sealing import OVERHEAD, open_sealed, seal
from verticil.shared.masked.arithmetic.streams import encode_fields
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.durable import rename, sync_directory, sync_file
from verticil.wire.v1 import common_pb2

_MAGIC: Final = b"VTMASK01"
_SIGNED_LIMIT: Final = 1 << 15
_PIECE: Final = 1 << 20

Signer = Callable[[bytes], common_pb2.Signed]


def write(
    target: Path,
    frames: Iterable[bytes],
    *,
    count: int,
    what: bytes,
    recipient: X25519PublicKey,
    sender: X25519PrivateKey,
    sign: Signer,
) -> None:
    """Seal a message into its place, whole and on the disk, or not at all.

    Args:
        target: the file; its folder exists.
        frames: in order.
        count: how many they are.
        what: names the message, and all that it is bound to.
        recipient: who can open it.
        sender: by whom it is authenticated.
        sign: signs a statement.

    Raises:
        ValueError: there are more or fewer frames than said.
        DataFault: DISK_FULL.
    """
    part = target.with_name(f".{target.name}.part")
    with disk_faults(target):
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_MAGIC + count.to_bytes(4, "big"))
            digest, n_written = hashlib.sha256(), 0
            for number, frame in enumerate(frames):
                box = seal(frame, recipient=recipient, sender=sender, info=what, aad=_place(number, count))
                sealed = len(box).to_bytes(4, "big") + box
                digest.update(sealed)
                file.write(sealed)
                n_written += 1
            if n_written != count:
                raise ValueError(f"a message of {n_written} frames, expected {count}")
            signed = sign(encode_fields(what, count, digest.digest())).SerializeToString()
            file.write(len(signed).to_bytes(4, "big") + signed)
            file.flush()
            sync_file(file.fileno(), part)
        rename(part, target)
        sync_directory(target.parent)


def read_signed(path: Path, *, what: bytes, name: str, sizes: Sequence[int]) -> common_pb2.Signed:
    """Read the signature of a message that came, once its file is whole and the signature is over these bytes.

    Whose it is, and whether it holds, is the caller's to check.

    Args:
        path: the file.
        what: as `write` got it.
        name: of the message, for errors.
        sizes: of its frames, at most, bytes.

    Raises:
        PeerFault: MESSAGE_INVALID, it is torn, has more, fewer or larger frames, or is signed as another message.
    """
    with path.open("rb") as file:
        digest = hashlib.sha256()
        for size in _boxes(file, name, sizes):
            digest.update(size.to_bytes(4, "big"))
            for start in range(0, size, _PIECE):
                digest.update(_read(file, min(size - start, _PIECE), name))
        size = _number(file, name)
        data = _read(file, size, name) if size <= _SIGNED_LIMIT else b""
        if len(data) != size or file.read(1):
            raise _report_incomplete(name)
    try:
        signed = common_pb2.Signed.FromString(data)
    except DecodeError:
        raise _report_incomplete(name) from None
    if signed.body != encode_fields(what, len(sizes), digest.digest()):
        raise PeerFault(
            "MESSAGE_INVALID",
            f"{name}: signed as another message, or of another transcript than this node has",
            hint="the sender has another plan, or other messages of this round; the round ends",
        )
    return signed


def read_frames(
    path: Path, *, what: bytes, recipient: X25519PrivateKey, sender: X25519PublicKey, name: str, sizes: Sequence[int]
) -> Iterator[bytes]:
    """Read the frames of a message for this node, one after the other.

    Raises:
        PeerFault: MESSAGE_INVALID, it is not sealed by this sender for this node as this message, or as `read_signed`.
    """
    with path.open("rb") as file:
        for number, size in enumerate(_boxes(file, name, sizes)):
            box, aad = _read(file, size, name), _place(number, len(sizes))
            frame = open_sealed(box, recipient=recipient, sender=sender, info=what, aad=aad)
            if frame is None:
                raise PeerFault(
                    "MESSAGE_INVALID",
                    f"{name}: frame {number} of {len(sizes)} is not sealed by its sender for this node",
                    hint="compare the fingerprints of the pinned sealing keys with the sender; the round ends",
                )
            yield frame


def size_of_file(frames: Iterable[int]) -> int:
    """Return how many bytes a message with frames of these sizes has at most."""
    return len(_MAGIC) + 8 + _SIGNED_LIMIT + sum(4 + OVERHEAD + size for size in frames)


def _place(number: int, count: int) -> bytes:
    return encode_fields("frame", number, count)


def _boxes(file: BinaryIO, name: str, sizes: Sequence[int]) -> Iterator[int]:
    """Read the size of each box, bytes, with the file behind it: the caller reads so many before it asks for the next."""
    if _read(file, len(_MAGIC), name) != _MAGIC:
        raise _report_incomplete(name)
    if (count := _number(file, name)) > len(sizes):
        raise _wrong(name, f"frame {len(sizes)} of {count} is one too many, expected {len(sizes)}")
    if count < len(sizes):
        raise _wrong(name, f"{count} frames, expected {len(sizes)}")
    for number, most in enumerate(sizes):
        size = _number(file, name)
        if size > most + OVERHEAD:
            raise _wrong(name, f"frame {number} has {size - OVERHEAD} bytes, expected {most} at most")
        yield size


def _number(file: BinaryIO, name: str) -> int:
    return int.from_bytes(_read(file, 4, name), "big")


def _read(file: BinaryIO, size: int, name: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise _report_incomplete(name)
    return data


def _report_incomplete(name: str) -> PeerFault:
    return _wrong(name, "not a whole message")


def _wrong(name: str, problem: str) -> PeerFault:
    return PeerFault("MESSAGE_INVALID", f"{name}: {problem}", hint="the round ends")
