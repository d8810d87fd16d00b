"""The symbols a sentence is made of, besides phones: punctuation, the space between words, the unknown."""

# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

PUNCTUATION = (",", ".", "?", "!", ";", ":", "—")
SPACE = " "
UNKNOWN = "<unk>"
STRESS_MARKS = "ˈˌ"
LENGTH_MARK = "ː"
SYLLABIC_MARK = "\u0329"  # the stroke under a consonant that carries a syllable
# What an American says for the foreign phones espeak gives a few borrowed names.
NATIVE = {"r": "ɹ", "x": "k", "ɬ": "l", "ç": "h", "ɡʲ": "ɡ", "e": "eɪ", "o": "oʊ", "ɑ̃": "ɑː", "ɔ̃": "ɔː", "ɲ": "n"}


def symbol_table(phones: list[str]) -> list[str]:
    """A voice's table in its fixed order: punctuation, space, unknown, then the phones sorted."""
    return [*PUNCTUATION, SPACE, UNKNOWN, *sorted(set(phones) - {*PUNCTUATION, SPACE, UNKNOWN})]


def simplified(phone: str) -> list[str]:
    """Ever plainer forms of a phone, nearest first, for a table that lacks it.

    Other stress, no stress, native instead of foreign, without length and syllabic marks, first letter only.
    """
    stress = phone[:1] if phone[:1] in STRESS_MARKS else ""
    bare = phone.strip(STRESS_MARKS)
    short = bare.replace(LENGTH_MARK, "").replace(SYLLABIC_MARK, "")
    plainer = [bare, NATIVE.get(bare, ""), NATIVE.get(short, ""), short, bare[:1] + LENGTH_MARK, bare[:1]]
    forms = [mark + form for form in plainer if form for mark in (stress, "", *STRESS_MARKS)]
    return [form for form in dict.fromkeys(forms) if form != phone]
