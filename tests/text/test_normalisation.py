"""What is written against what is said, through the whole frontend (segmentation may not get in the way)."""

# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

import pytest

from tts_engine.text import TextFrontend

SPOKEN = {
    # numbers
    "I have 3 cats.": "i have three cats.",
    "1,234,567 people": "one million two hundred thirty four thousand five hundred and sixty seven people.",
    "It is -7 outside": "it is negative seven outside.",
    "pi is 3.14": "pi is three point one four.",
    "1,000.50": "one thousand point five zero.",
    "the 21st of May": "the twenty first of may.",
    "1st 2nd 3rd": "first second third.",
    "1/2 and 3/4": "one half and three quarters.",
    "½ cup, 3½ cups": "one half cup, three and a half cups.",
    "10–20 people": "ten to twenty people.",
    "100s of them": "hundreds of them.",
    "50% off": "fifty percent off.",
    "x = 2 + 3": "x equals two plus three.",
    # dates and times
    "On Jan. 5, 2024 we met.": "on the fifth of january, twenty twenty four we met.",
    "July 4, 1776": "the fourth of july, seventeen seventy six.",
    "2024-01-05": "the fifth of january twenty twenty four.",
    "5/6/2023": "the sixth of may twenty twenty three.",
    "in 1999": "in nineteen ninety nine.",
    "the 1990s and '90s": "the nineteen nineties and nineties.",
    "at 3:30 p.m. sharp": "at three thirty p m sharp.",
    "10:00 or 9:05 am": "ten o'clock or nine o five ay m.",
    # money, measures
    "$5": "five dollars.",
    "$12.50 each": "twelve dollars and fifty cents each.",
    "$0.99": "ninety nine cents.",
    "£2.02": "two pounds and two pence.",
    "€3.20": "three euros and twenty cents.",
    "$2.5 billion": "two point five billion dollars.",
    "$5-$10": "five dollars to ten dollars.",
    "5 km/h": "five kilometers per hour.",
    "100 m": "one hundred meters.",
    "It's 50°C": "it's fifty degrees celsius.",
    "20 kg": "twenty kilograms.",
    "5'11\" tall": "five feet eleven tall.",
    # telephone numbers, addresses
    "Call 555-123-4567 now.": "call five five five, one two three, four five six seven now.",
    "https://www.example.com/page?x=1": "w w w dot example dot com slash page.",
    "mail bob.smith@example.com.": "mail bob dot smith at example dot com.",
    "192.168.0.1": "one nine two dot one six eight dot zero dot one.",
    "use v2.0": "use version two point zero.",
    # abbreviations
    "Dr. Smith lives at 221 Baker St.": "doctor smith lives at two twenty one baker street.",
    "Mr. and Mrs. Jones": "mister and missus jones.",
    "I saw St. Paul and Mt. Hood.": "i saw saint paul and mount hood.",
    "e.g. this, i.e. that, etc.": "for example this, that is that, et cetera.",
    "See fig. 3 vs. No. 5.": "see figure three versus number five.",
    "Tolkien, J. R. R. Tolkien": "tolkien, j r r tolkien.",
    # acronyms and capitals
    "the FBI": "the f b i.",
    "the USA and NASA": "the u s ay and nasa.",
    "The U.S. economy": "the u s economy.",
    "I am NOT happy": "i am not happy.",
    "HELLO WORLD, HOW ARE YOU": "hello world, how are you.",
    "The BBC's plan": "the b b c's plan.",
    "AT&T": "at and t.",
    "Henry VIII, Chapter IV": "henry the eighth, chapter four.",
    # characters
    "don't can't I'll": "don't can't i'll.",
    "‘Tis the café’s naïve “plan”": "'tis the cafe's naive plan.",
    "wait... then go": "wait, then go.",
    "yes — no -- maybe": "yes— no— maybe.",
    "half-hearted (so they say)": "half hearted, so they say,",
    "hi 😀 there\u200b\x00": "hi there.",
    "Ｆｕｌｌ width": "full width.",
    "Привет": "privet.",
    "Really?!": "really?!",
}


@pytest.mark.parametrize("written", SPOKEN)
def test_is_said(frontend: TextFrontend, written: str) -> None:
    assert [sentence.text for sentence in frontend.sentences(written)] == [SPOKEN[written]]
