"""The encoding of a file, guessed for who holds the table: UTF-8 where nearly all of it is, else a code page.

The same bytes are letters of one language in one code page and a mixture in another. charset-normalizer measures how odd the
letters look; in words as short as those of tables that is not enough, so the words are held against the alphabets of languages.
"""

from __future__ import annotations

import codecs
import itertools
import re
import unicodedata
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from verticil.party.dataset.sources.csv_files import undecodable
from verticil.party.dataset.sources.opening import open_bytes
from verticil.party.dataset.sources.source_table import DatasetRule

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE_BYTES: Final = 1 << 20
_SCORED_BYTES: Final = 1 << 14
_BAD_BYTES: Final = 0.25  # as many damaged bytes as letters that are whole, or the file is in another encoding
_CODE_PAGES: Final = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "koi8_r", "cp866", "mac_roman", "cp850",
    "cp852", "cp437", "iso8859_1", "iso8859_2", "iso8859_5", "iso8859_7", "iso8859_8", "iso8859_9", "iso8859_15",
    "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr",
)  # fmt: skip
_SHORT: Final = 3  # letters
_CYRILLIC_VOWELS: Final = "аеёиоуыэюяіїєђј"
_GREEK_ACCENTS: Final = "άέήίόύώΐΰ"
_ALPHABETS: Final = (
    "äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü", "áâãàçéêíóôõú", "àèéìíîòóùú", "áéëïóöü", "åæøéòôê", "åäöéšž",
    "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "ąćęłńóśźż", "áéíóöőúüű", "ăâîșțşţ", "čćđšž", "çğıi̇öşüâîû", "äöõüšž",
    "āčēģīķļņšūž", "ąčęėįšųūž", "абвгдеёжзийклмнопрстуфхцчшщъыьэюя", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
    "абвгдђежзијклљмнњопрстћуфхцчџш", "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ", "áéíóúýþðæö",
)  # fmt: skip
"""Letters beyond ASCII by which languages of Europe are told apart; other scripts need none. Icelandic is the last, because
its letters þ, ð and ý are those of Turkish in another code page: where both could be, it is Turkish."""


def guess_encoding(rule: DatasetRule) -> tuple[str, list[str]]:
    """Return the encoding of a file, and what is to be said of it.

    Args:
        rule: how the file is opened; its encoding is not used.

    Returns:
        A codec of Python, and sentences.
    """
    with open_bytes(rule) as file:
        start = file.read(4)
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name, []
    if b"\0" in start:
        return ("utf-16-be" if start.startswith(b"\0") else "utf-16-le"), []
    place = undecodable(replace(rule, encoding="utf-8"))
    if place is None:
        return "utf-8", []
    with open_bytes(rule) as file:
        sample = file.read(max(_SAMPLE_BYTES, min(place + 4096, 64 * _SAMPLE_BYTES)))
    n_bad, n_good = _count_bad(sample)
    if n_good and n_bad <= max(1, _BAD_BYTES * n_good):
        line = sample[:place].count(b"\n") + 1
        return "utf-8", [
            f"the file is not utf-8 at byte {place} (line {line}), one of {n_bad} damaged places: a value there is none of its "
            "column's"
        ]
    encoding = _code_page(rule, sample)
    return encoding, [
        f"the file is not UTF-8: its encoding was taken for {encoding}; if letters look wrong, write it as UTF-8"
    ]


def _count_bad(sample: bytes) -> tuple[int, int]:
    """Return how many bytes are no UTF-8, and how many letters beyond ASCII are."""
    text = sample.decode("utf-8", "surrogateescape")
    n_bad = sum("\udc80" <= letter <= "\udcff" for letter in text)
    return n_bad, sum(letter > "\x7f" for letter in text) - n_bad


def _code_page(rule: DatasetRule, sample: bytes) -> str:
    """Return the code page of a file, by the words that its letters make; cp1252 or latin-1 where nothing is found."""
    scores = dict[str, tuple[float, bool]]()
    try:
        from charset_normalizer.md import mess_ratio
    except ImportError:
        pass
    else:
        letters = b"\n".join(line for line in dict.fromkeys(sample.splitlines()) if not line.isascii())[:_SCORED_BYTES]
        for name in _CODE_PAGES:
            try:
                text = letters.decode(name)
            except UnicodeDecodeError as error:
                if error.start < len(letters) - 4:  # else the last letter was cut
                    continue
                text = letters[: error.start].decode(name)
            oddness, alphabet = _oddness(_words_of(text))
            scores[name] = round(mess_ratio(text) + oddness, 3), alphabet == len(_ALPHABETS) - 1
    ranked = sorted(scores, key=lambda name: (*scores[name], _CODE_PAGES.index(name)))
    for name in (*ranked, "cp1252", "latin-1"):  # a page can read the sample and not the file
        if undecodable(replace(rule, encoding=name)) is None:
            return name
    return "latin-1"


def _words_of(text: str) -> list[str]:
    """Return the words of a text that have letters beyond ASCII."""
    return [word for word in re.split(r"[\s,;|\"']+", text) if not word.isascii()]


def _oddness(words: Collection[str]) -> tuple[float, int]:
    """Return how little words are words, and the alphabet of the language that writes most of them.

    The first is the part of them that look odd, and the part that this language cannot write.
    """
    n_words = max(len(words), 1)
    n_written = [sum(_is_written_with(word, alphabet) for word in words) for alphabet in _ALPHABETS]
    most = max(n_written)
    return sum(map(_word_oddness, words)) / n_words + 1 - most / n_words, n_written.index(most)


def _is_written_with(word: str, alphabet: str) -> bool:
    letters = (letter for letter in word.lower() if not letter.isascii() and letter.isalpha())
    return all(letter in alphabet or not _is_european(letter) for letter in letters)


def _is_european(letter: str) -> bool:
    return unicodedata.name(letter, "?").split()[0] in {"LATIN", "CYRILLIC", "GREEK"}


def _word_oddness(word: str) -> float:
    """Return 1 for a word of two scripts, with a sign or a capital inside, or of accents alone; .5 where it may be a word."""
    inner = word.strip("-.():/%°²³0123456789")
    letters = [letter for letter in inner if letter.isalpha()]
    scripts = {unicodedata.name(letter, "?").split()[0] for letter in letters if letter != "µ"}
    has_sign = any(not letter.isalnum() and letter not in "-.'/°" for letter in inner[:-1])
    has_capital = any(one.islower() and other.isupper() for one, other in itertools.pairwise(inner))
    is_accented = scripts == {"LATIN"} and len(letters) > 1 and not any(map(str.isascii, letters))
    is_spelled = _can_be_said(inner, scripts)
    is_mixed = len(scripts - {"CJK", "HIRAGANA", "KATAKANA"}) > 1 or "HALFWIDTH" in scripts
    if is_mixed or is_accented or has_sign or has_capital or not is_spelled:
        return 1.0
    ends_in_sign = len(inner) > 1 and not inner[-1].isalnum() and not inner[-1].isascii()
    return 0.5 if ends_in_sign or (len(inner) > 2 and inner.isupper()) else 0.0


def _can_be_said(word: str, scripts: Collection[str]) -> bool:
    """Return whether a word can be one of its script: a Cyrillic one has a vowel, a Greek one in small letters an accent."""
    letters = word.casefold()
    if len(word) < _SHORT or word.isupper():
        return True
    if scripts == {"CYRILLIC"}:
        return any(letter in _CYRILLIC_VOWELS for letter in letters)
    return scripts != {"GREEK"} or any(letter in _GREEK_ACCENTS for letter in letters)
