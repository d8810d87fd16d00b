"""The LM speaking for its drafts: cached equals recomputed, samples follow the served distribution, files are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.tiny_draft import VOCABULARY, batch, tiny_lm
from training import drafting
from training.data import Utterance
from training.drafting import HELD, base_logits, load_examples, prompts, served_probabilities
from training.own_speech import Cached, speak
from tts_engine.prompt import Vocabulary

PHONEMES = Path(__file__).resolve().parents[2] / "checkpoints" / "rms" / "lm" / "phonemes.json"
SAMPLING = (0.9, 8, 0.95)


@torch.no_grad()
def test_cached_states_are_the_recomputed_ones() -> None:
    base, tokens = tiny_lm(), batch().tokens
    tokens = tokens[(tokens[:, :, 0] > 0).sum(1) >= 14][:, :14]  # rows without padding
    model = Cached(base, len(tokens), 14)
    parts = [model.forward(tokens[:, a:b]) for a, b in ((0, 5), (5, 6), (6, 14))]
    torch.testing.assert_close(torch.cat(parts, 1), base.hidden(tokens)[0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_speech_follows_the_served_distribution_to_the_end() -> None:
    """The first two tokens of many runs against their exact joint distribution; every row ends by the end token."""
    base, draws = tiny_lm(), 4000
    prompt = torch.zeros(1, 4, 4, dtype=torch.long)
    prompt[0, :, 0] = torch.tensor([1, VOCABULARY.phoneme_offset, VOCABULARY.phoneme_offset + 1, VOCABULARY.soa_id])
    rows = speak(base, prompt.expand(draws, -1, -1), SAMPLING, 40, torch.Generator().manual_seed(0))
    first = served_probabilities(base_logits(base, base.hidden(prompt)[0][:, -1]), *SAMPLING)[0]
    best = int(first[1:].argmax())
    following = torch.zeros(1, 1, 4, dtype=torch.long)
    following[..., 0] = VOCABULARY.audio_offset + best
    second_state = base.hidden(torch.cat([prompt, following], 1))[0][:, -1]
    second = served_probabilities(base_logits(base, second_state), *SAMPLING)[0]
    spoken = [row for row in rows if row is not None]
    assert all(((row >= 0) & (row < 16)).all() for row in spoken)
    assert len(spoken) > draws / 10
    starting = [row for row in rows if row is not None and len(row) and row[0] == best]
    unended = sum(row is None for row in rows)
    # Rows that are given up hide their codes, so the share lies between with none and with all of them.
    share = float(first[1 + best])
    assert len(starting) / draws - 0.03 <= share <= (len(starting) + unended) / draws + 0.03
    assert abs(sum(row is not None and len(row) == 0 for row in rows) / draws - float(first[0])) < 0.03
    ended = sum(len(row) == 1 for row in starting) / draws
    assert abs(ended - share * float(second[0])) < 0.03


def test_own_speech_takes_the_place_of_the_teachers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def utterance(key: str, text: str) -> Utterance:
        words = text.split()
        spans = [[0.1 * place, 0.1 * place + 0.1] for place in range(len(words))]
        wave, f0 = np.zeros(3200, np.int16), np.zeros(40, np.float32)
        return Utterance(key, text, words, [[0, 0, 0]] * len(words), spans, wave, f0)

    corpus = [utterance("a", "one lamp"), utterance("b", "two lamps"), utterance("c", "the old river")]
    monkeypatch.setattr(drafting, "load_corpus", lambda *_: corpus)
    vocabulary = Vocabulary.from_phonemes(json.loads(PHONEMES.read_text()))
    np.savez(tmp_path / "own.npz", ids=np.array(["c", "a"]), codes=np.array([5, 6, 7], np.uint16), ends=[1, 3])
    made = load_examples(Path(), Path(), Path(), vocabulary, HELD, tmp_path / "own.npz")
    assert [example.codes.tolist() for example in made] == [[6, 7], [5]]  # "b" was not spoken
    wanted = prompts(corpus, vocabulary)
    assert list(wanted) == ["a", "b", "c"]
    for example, key in zip(made, "ac", strict=True):
        np.testing.assert_array_equal(example.prompt, wanted[key])
