"""A public key in words that two people can compare by telephone.

Eight words of five letters, 128 bits of a SHA-256 over the name of whoever has the key and the key itself: to find a key with the
words of another takes about 2^128 tries, for each name anew. A word is 16 bits, consonants and vowels in turn, so that it can be
said in most languages, and no list of words is needed.

D. S. Wilkerson, "A Proposal for Proquints: Identifiers that are Readable, Spellable, and Pronounceable", arXiv:0901.4016, 2009.
"""

from __future__ import annotations

import hashlib
from typing import Final

_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aiou"
_PURPOSE: Final = b"verticil/spoken-key/v1"
_WORDS: Final = 8


def proquint(number: int) -> str:
    """16 bits as a word of five letters.

    >>> proquint(0x7F00), proquint(0x0001)
    ('lusab', 'babad')
    """
    letters = ((12, 15, _CONSONANTS), (10, 3, _VOWELS), (6, 15, _CONSONANTS), (4, 3, _VOWELS), (0, 15, _CONSONANTS))
    return "".join(of[number >> shift & mask] for shift, mask, of in letters)


def key_words(name: str, public: bytes) -> str:
    """Return the words of a public key.

    Args:
        name: of whoever has the key.
        public: the key, raw.

    >>> key_words("insurer", bytes(32))
    'mavig-banod-bilah-gasal-miraj-nohag-tukun-damok'
    """
    name_bytes = name.encode("utf-8")
    digest = hashlib.sha256(_PURPOSE + len(name_bytes).to_bytes(8, "big") + name_bytes + public).digest()
    return "-".join(proquint(int.from_bytes(digest[i : i + 2], "big")) for i in range(0, 2 * _WORDS, 2))


def says(text: str, name: str, public: bytes) -> bool:
    """Return whether somebody's words, or the 64 hexadecimal digits of a key, are those of this key.

    Args:
        text: as it was heard or written; blanks, hyphens and capitals do not matter.
        name, public: as for `key_words`.

    >>> says(key_words("insurer", bytes(32)).upper().replace("-", " "), "insurer", bytes(32))
    True
    >>> says("00" * 32, "insurer", bytes(32))
    True
    >>> says(key_words("insurer", bytes(32)), "clinic", bytes(32)), says("", "insurer", bytes(32))
    (False, False)
    """
    plain = "".join(letter for letter in text.lower() if letter.isalnum())
    return plain in {key_words(name, public).replace("-", ""), public.hex()}
