"""The demo voice's small wordpiece vocabulary, as a Hugging Face `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from training.phonemes import vocabulary
from tts_engine.text.symbols import PUNCTUATION

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # ids 0 to 4
VOCABULARY_SIZE = 4096


def make_wordpiece(path: Path, texts: Iterable[str]) -> int:
    """Train on English words as often as people use them (damped) and on `texts`; returns the vocabulary's size."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=[*PUNCTUATION, "'"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(texts), trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return int(tokenizer.get_vocab_size())


def _sentences(texts: Iterable[str]) -> Iterator[str]:
    from wordfreq import word_frequency

    for word in vocabulary():
        # The square root keeps "the" from filling the counts; a word of one in a million counts once.
        yield f"{word} " * max(1, round((word_frequency(word, "en") * 1e6) ** 0.5))
    yield from texts
