"""Small rewrites in front of and behind the normaliser's library, each for one thing it leaves or gets wrong.

All are plain functions from text to text, linear in its length (no nested quantifiers).
"""

from __future__ import annotations

import re

from num2words import num2words

from tts_engine.text.english import (
    DOMAIN_ENDINGS,
    PRONOUNCED_ACRONYMS,
    REIGNING_NAMES,
    ROMAN_NUMERALS,
    ROMAN_VALUES,
    STRESSED_WORDS,
    SYMBOL_NAMES,
    URL_SYMBOLS,
)

_CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
_SCALES = r"(?!\s?(?:thousand|million|billion|trillion|[kKmMbB]\b))"

_URL = re.compile(
    r"(?<![\w.@-])(?:https?://)?(?:\w[\w+-]{0,63}(?:\.[\w+-]{1,63}){0,4}@)?(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    rf"(?:{'|'.join(sorted(DOMAIN_ENDINGS))})(?![\w-])(?:[/:?#][^\s,;)\"]*)?"
)
_SCHEME = re.compile(r"^https?://")
_URL_PART = re.compile(r"[A-Za-z]+|\d|[./@:+~_-]")


def read_addresses(text: str) -> str:
    """URLs and e-mail addresses as people say them, without the scheme and the query."""

    def read(match: re.Match[str]) -> str:
        address = re.split(r"[?#]", _SCHEME.sub("", match[0]))[0]
        closing = "." if match[0].endswith(".") else ""
        parts = [URL_SYMBOLS.get(part, part) for part in _URL_PART.findall(address.rstrip("./"))]
        return " ".join("w w w" if part.lower() == "www" else part for part in parts) + closing

    return _URL.sub(read, text)


_MONEY = re.compile(rf"([$£€])\s?(\d{{1,12}}(?:,\d{{3}})*)\.(\d\d)(?![\d.]\d){_SCALES}")
_MONEY_RANGE = re.compile(r"(?<=\d)\s?[-—]\s?(?=[$£€]\d)")
_ROUND_PLURALS = {"10s": "tens", "100s": "hundreds", "1000s": "thousands"}
_ROUND_PLURAL = re.compile(rf"(?<![\w.,$£€])(?:{'|'.join(_ROUND_PLURALS)})\b")
_LARGE_DECIMAL = re.compile(r"(?<![\d.])(\d{4,12})\.(\d{1,12})(?![\d.]*\d)")
_TIMESTAMP = re.compile(r"(?<=\d\d-\d\d)T(?=\d\d:\d\d)")
_HASHTAG = re.compile(r"#(?=[A-Za-z])")
_DECADE = re.compile(r"\b(1\d|20)(\d0)'?s\b")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,]\d)")
_METERS = re.compile(r"(?<=\d)\s?m(?=[\s,.;:!?)]|$)(?!\.m\.)")
_DOTTED_NUMBER = re.compile(r"(?<=\d)\.(?=\d)")
_VERSION = re.compile(r"\bv(\d{1,4}(?:\.\d{1,4}){1,4})\b")
_FEET_INCHES = re.compile(r"\b(\d{1,3})'(\d{1,2})(?:\"|''|(?=\s|$))")


def prepare_numbers(text: str) -> str:
    """Money with cents, decades, grouped decimals, meters, versions and heights, in forms the library reads well."""
    text = _MONEY.sub(_money, _MONEY_RANGE.sub(" to ", text))
    text = _ROUND_PLURAL.sub(lambda m: _ROUND_PLURALS[m[0]], text)
    text = _DECADE.sub(_decade, text)
    text = _GROUPED.sub(lambda m: m[0].replace(",", ""), text)
    text = _LARGE_DECIMAL.sub(lambda m: f"{num2words(int(m[1]))} point {_digits(m[2])}", text)
    text = _HASHTAG.sub("hashtag ", _TIMESTAMP.sub(" ", text))
    text = _FEET_INCHES.sub(r"\1 feet \2", text)
    text = _VERSION.sub(lambda m: "version " + _DOTTED_NUMBER.sub(" point ", m[1]), text)
    return _METERS.sub(" meters", text)


def _money(match: re.Match[str]) -> str:
    whole, part = int(match[2].replace(",", "")), int(match[3])
    names = zip((whole, part), _CURRENCIES[match[1]], strict=True)
    return " and ".join(f"{num2words(n)} {_plural(name, n)}" for n, name in names if n) or f"{match[1]}0"


def _digits(number: str) -> str:
    return " ".join(num2words(int(digit)) for digit in number)


def _plural(name: str, number: int) -> str:
    return name if number == 1 else "pence" if name == "penny" else name + "s"


def _decade(match: re.Match[str]) -> str:
    century, tens = int(match[1]), int(match[2])
    if tens == 0:
        return "two thousands" if century == 20 else f"{num2words(century)} hundreds"
    return f"{num2words(century)} {num2words(tens)[:-1]}ies"


_LEFTOVER = re.compile("[" + re.escape("".join(SYMBOL_NAMES)) + r"]|\d+")


def read_leftovers(text: str) -> str:
    """Digits and symbols still there after the library (or in its place, where it fails), one by one."""

    def read(match: re.Match[str]) -> str:
        found = match[0]
        if found in SYMBOL_NAMES:
            return f" {SYMBOL_NAMES[found]} "
        return f" {num2words(int(found)) if len(found) <= 9 and found[0] != '0' else _digits(found)} "

    return _LEFTOVER.sub(read, text)


_roman = "|".join(sorted(ROMAN_NUMERALS, key=len, reverse=True))
_ROMAN = re.compile(rf"\b([A-Z][a-z]+) ({_roman})\b")


def read_roman_numerals(text: str) -> str:
    """ "Henry VIII" -> "Henry the eighth", "Chapter IV" -> "Chapter four"; only behind a capitalised word."""

    def read(match: re.Match[str]) -> str:
        value = 0
        for letter, following in zip(match[2], [*match[2][1:], "I"], strict=True):
            one = ROMAN_VALUES[letter]
            value += -one if one < ROMAN_VALUES[following] else one
        ordinal = match[1] in REIGNING_NAMES
        return f"{match[1]} " + (f"the {num2words(value, to='ordinal')}" if ordinal else str(num2words(value)))

    return _ROMAN.sub(read, text)


_CAPITALS = re.compile(r"(?<![A-Za-z'])([A-Z]{2,})((?:'?s)?)(?![A-Za-z])")
_LETTER_A = re.compile(r"(?<=[\w,] )A(?=$|[,.;:?!)]|\s[B-HJ-Z]\b)")
MAX_SPELLED = 4
_MAX_UNVOICED = 8  # longer strings without a vowel are noise; espeak makes of them what it can


def spell_acronyms(text: str) -> str:
    """ "the FBI" -> "the f b i"; acronyms said as words, stressed words and shouted texts become lower case."""
    capitals = _CAPITALS.findall(text)
    shouted = len(capitals) > 1 and not re.search(r"[a-z]{2}", text)

    def read(match: re.Match[str]) -> str:
        word, ending = match[1], match[2]
        unvoiced = not re.search("[AEIOUY]", word) and len(word) <= _MAX_UNVOICED
        known = word in PRONOUNCED_ACRONYMS or word.lower() in STRESSED_WORDS
        if unvoiced or (len(word) <= MAX_SPELLED and not known and not shouted):
            return _letters(word) + (ending and "'s")
        return word.lower() + ending

    return _LETTER_A.sub("ay", _CAPITALS.sub(read, text))


def _letters(word: str) -> str:
    # "ay" is the name of the letter; "a" would be the article.
    return " ".join("ay" if letter == "A" else letter.lower() for letter in word)
