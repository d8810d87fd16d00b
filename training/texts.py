"""Training text, made here from word lists: a small grammar, WordNet's example phrases, frequent words.

Words come from Debian's `wordnet-base` (parts of speech, example phrases) and the `wordfreq` package
(how common a word is); inflections from `lemminflect`. No sentence of the evaluation set gets in.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

WORDNET = Path("/usr/share/wordnet")
HARVARD = Path(__file__).with_name("harvard.txt")
MIN_ZIPF = 3.0  # a word seen less than once in a million words teaches a small voice little
PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
# Words a demo voice need not practise.
UNWANTED = re.compile(r"^(?:fuck|shit|cunt|nigg|fag|porn|sex|rape|slut|whore|bitch|dick|cock|anal|nazi|tit)s?\w*$")
EXAMPLE = re.compile(r'"([^"]+)"')
PLAIN = re.compile(r"^[A-Za-z][A-Za-z' ,;?!.-]*$")

# One letter a slot: N/P noun singular/plural, A adjective, T/D verb present/past, G -ing form, R adverb.
PATTERNS = (
    "the A N D the N", "the N D the A N on the N", "the P T the A N", "a A N D in the N",
    "the N of the N D R", "R the A P D the N", "she D the N and D the P", "he D a A N for the N",
    "they T the P in the A N", "we D the N with a A N", "the N D when the N D", "G the N is A",
    "it is A to T the N", "the P were A and A", "a N of A P D the N", "the A N was D by the N",
    "there was a N in the A N", "do not T the N before the N", "T the N to the A N", "T a A N from the P",
    "if the N is A, the P T", "the A A N D R", "you can T the P at the N", "I D the N, but the P D",
    "when did the N T the P?", "the N and the N D the A P", "both P D the N of the N", "no N is A without a N",
    "he will T the A N again", "the N D under the N", "with a A N the P D", "her N was A, and his P were A",
    "what N D the A N?", "these P T like A P", "the N that D the N was A", "some P T more N than A P",
    "the N D over the N and into the N", "T R, and the N will T", "my N has D the A N", "most P are A in the N",
)  # fmt: skip


def harvard_sentences() -> list[str]:
    """The 100 evaluation sentences (Harvard lists 1 to 10)."""
    return [line.split("\t")[-1].strip() for line in HARVARD.read_text().splitlines() if line.strip()]


def words_of(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z']+", text.lower()))


class TextMaker:
    """Draws training texts; the same seed draws the same texts.

    `sentence()` gives 3 to 16 words, `phrase(n)` exactly `n` words in no grammar, for pronunciation.
    """

    def __init__(self, seed: int = 0) -> None:
        from wordfreq import top_n_list, zipf_frequency

        self._random = random.Random(seed)
        self._zipf = zipf_frequency
        self._frequent = [
            w for w in top_n_list("en", 25_000) if re.fullmatch(r"[a-z]{2,14}(?:'[a-z]{1,2})?", w) and self._decent(w)
        ]
        self._lemmas = self._load_lemmas()
        self._examples = self._load_examples()
        self._banned = self._evaluation_grams()

    @staticmethod
    def _decent(word: str) -> bool:
        return not UNWANTED.match(word)

    def _load_lemmas(self) -> dict[str, list[str]]:
        """Lemmas whose tagged uses are mostly of that part of speech, by WordNet's sense counts."""
        counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for line in (WORDNET / "cntlist.rev").read_text().splitlines():
            sense, _, count = line.split()
            lemma, rest = sense.split("%")
            counts[lemma]["nvara"[int(rest[0]) - 1]] += int(count)
        lemmas: dict[str, list[str]] = defaultdict(list)
        for lemma, uses in sorted(counts.items()):
            part = max(uses, key=lambda key: uses[key])
            if re.fullmatch(r"[a-z]{3,12}", lemma) and self._zipf(lemma, "en") >= MIN_ZIPF and self._decent(lemma):
                lemmas[part].append(lemma)
        return lemmas

    def _load_examples(self) -> list[str]:
        found = []
        for part in PARTS.values():
            for line in (WORDNET / f"data.{part}").read_text(encoding="latin-1").splitlines():
                gloss = line.partition("|")[2]
                for example in EXAMPLE.findall(gloss):
                    text = example.strip()
                    words = words_of(text)
                    if PLAIN.match(text) and 3 <= len(words) <= 16 and all(self._decent(w) for w in words):
                        found.append(text.replace("-", " "))
        return sorted(set(found))

    @staticmethod
    def _evaluation_grams() -> set[tuple[str, ...]]:
        grams = set()
        for sentence in harvard_sentences() if HARVARD.exists() else []:
            words = words_of(sentence)
            grams |= {words[i : i + 4] for i in range(len(words) - 3)}
        return grams

    def _leaks(self, text: str) -> bool:
        words = words_of(text)
        return any(words[i : i + 4] in self._banned for i in range(len(words) - 3))

    def _inflect(self, lemma: str, tag: str) -> str:
        from lemminflect import getInflection

        forms = getInflection(lemma, tag)
        return forms[0] if forms else lemma

    def _fill(self, pattern: str) -> str:
        slots = {"N": ("n", None), "P": ("n", "NNS"), "A": ("a", None), "R": ("r", None)} | {
            "T": ("v", "VB"), "D": ("v", "VBD"), "G": ("v", "VBG")
        }  # fmt: skip

        def draw(match: re.Match[str]) -> str:
            part, tag = slots[match.group()]
            lemma = self._random.choice(self._lemmas[part])
            return self._inflect(lemma, tag) if tag else lemma

        text = re.sub(r"\b[NPARTDG]\b", draw, pattern)
        return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)

    def sentence(self) -> str:
        while True:
            if self._random.random() < 0.5:
                text = self._random.choice(self._examples)
            else:
                text = self._fill(self._random.choice(PATTERNS))
            if not self._leaks(text):
                text = text[0].upper() + text[1:]
                return text if text[-1] in ".?!" else text.rstrip(",;- ") + "."

    def phrase(self, words: int) -> str:
        """`words` words; frequent ones more often (log-uniform in rank)."""
        ranks = [int(len(self._frequent) ** self._random.random()) - 1 for _ in range(words)]
        spread = [self._random.randrange(len(self._frequent)) for _ in range(words)]
        picks = [self._frequent[r if self._random.random() < 0.5 else s] for r, s in zip(ranks, spread, strict=True)]
        return " ".join(picks) + self._random.choice((".", ".", ".", "?", "!", ","))


def training_texts(count: int, seed: int) -> Iterator[str]:
    """The corpus mix: 60 % sentences, 25 % phrases of one to four words, 15 % word strings of five to nine."""
    maker, draw = TextMaker(seed), random.Random(seed + 1)
    for _ in range(count):
        kind = draw.random()
        if kind < 0.60:
            yield maker.sentence()
        elif kind < 0.85:
            yield maker.phrase(draw.randint(1, 4))
        else:
            yield maker.phrase(draw.randint(5, 9))
