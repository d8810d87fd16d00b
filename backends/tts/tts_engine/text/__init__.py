"""Text frontend: normalisation, sentences, phones, wordpieces. Pure text, no arrays, no torch."""

from tts_engine.text.frontend import TextFrontend
from tts_engine.text.sentence import Sentence, Word
from tts_engine.text.wordpiece import WordpieceEncoding, WordpieceError

__all__ = ["Sentence", "TextFrontend", "Word", "WordpieceEncoding", "WordpieceError"]
