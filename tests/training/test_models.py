"""Codec, quantiser and speech LM: streaming equals one-shot, ragged equals alone, files round-trip."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.codec import SpectralLoss, step_loss
from training.lm import GridFactors, save_folded
from training.models.codec import HOP, Codec, CodecConfig
from training.models.fsq import FSQ
from training.models.llama import SpeechLM, SpeechLMConfig
from tts_engine.prompt import Vocabulary

SMALL = CodecConfig(encoder_dim=32, encoder_layers=1, decoder_dim=32, decoder_layers=2, fine_dim=24, fine_layers=1)


@pytest.fixture(scope="module")
def codec() -> Codec:
    torch.manual_seed(0)
    return Codec(SMALL).eval()


def test_fsq_codes_name_their_grid_points() -> None:
    fsq = FSQ((8, 8, 8, 8))
    values, codes = fsq(torch.randn(500, 4) * 2)
    assert fsq.size == 4096
    torch.testing.assert_close(fsq.grid[codes], values, atol=1e-5, rtol=0)
    assert len(codes.unique()) > 100


def test_fsq_gradient_passes_straight_through() -> None:
    z = torch.zeros(1, 4, requires_grad=True)
    FSQ((8, 8, 8, 8))(z)[0].sum().backward()
    assert z.grad is not None
    assert (z.grad > 0).all()


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_streamed_equals_one_shot(codec: Codec, chunk: int) -> None:
    codes = torch.randint(0, 4096, (2, 29), generator=torch.Generator().manual_seed(1))
    whole = codec.decode(codes)
    state, pieces = codec.decoder.initial_state(2), []
    with torch.no_grad():
        for start in range(0, 29, chunk):
            part = codes[:, start : start + chunk]
            pcm, state = codec.decoder(part, torch.full((2,), part.shape[1]), state)
            pieces.append(pcm)
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=2e-3 * float(whole.abs().max()), rtol=0)


def test_padding_in_a_ragged_batch_changes_nothing(codec: Codec) -> None:
    codes = torch.randint(0, 4096, (2, 10), generator=torch.Generator().manual_seed(2))
    more = torch.randint(0, 4096, (2, 6), generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor([10, 4])
    with torch.no_grad():
        both, state = codec.decoder(codes, lengths, codec.decoder.initial_state(2))
        after, _ = codec.decoder(more, torch.tensor([6, 6]), state)
        alone, alone_state = codec.decoder(codes[1:, :4], lengths[1:], codec.decoder.initial_state(1))
        alone_after, _ = codec.decoder(more[1:], torch.tensor([6]), alone_state)
    torch.testing.assert_close(both[1:, : 4 * 2 * HOP], alone, atol=1e-4, rtol=0)  # 2e-5 on some processors
    torch.testing.assert_close(after[1:], alone_after, atol=1e-4, rtol=0)


def test_codec_files_round_trip(codec: Codec, tmp_path) -> None:  # type: ignore[no-untyped-def]
    codec.save_pretrained(tmp_path)
    loaded = Codec.from_pretrained(tmp_path)
    assert loaded.config == codec.config
    for name, weight in codec.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight.half().float(), atol=0, rtol=0)


def test_codec_learns_a_voice_like_tone() -> None:
    torch.manual_seed(0)
    codec, spectral = Codec(SMALL).train(), SpectralLoss()
    optimiser = torch.optim.AdamW(codec.parameters(), 3e-3)
    phase = 2 * torch.pi * 120 * torch.arange(12_800) / 16_000
    harmonics = torch.arange(1, 20)[:, None]
    wave = (torch.cos(harmonics * phase) / harmonics).sum(0).repeat(2, 1) * 0.1
    f0 = torch.full((2, 12_800 // 80 + 16), 120.0)
    seen = []
    for _ in range(40):
        loss, pitch = step_loss(codec, spectral, wave, f0, bf16=False)
        optimiser.zero_grad()
        (loss + pitch).backward()
        optimiser.step()
        seen.append((loss.item(), pitch.item()))
    assert seen[-1][0] < 0.6 * seen[0][0]
    assert seen[-1][1] < 0.5 * seen[0][1]


def small_lm(vocabulary: Vocabulary) -> SpeechLM:
    torch.manual_seed(0)
    return SpeechLM(
        SpeechLMConfig(
            vocabulary.size, vocabulary.logit_offset, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, intermediate_size=48,
        )
    ).eval()  # fmt: skip


def test_lm_is_causal_and_sums_channels(tmp_path) -> None:  # type: ignore[no-untyped-def]
    vocabulary = Vocabulary.from_phonemes([" ", "a", "b"], codebook_size=16)
    model = small_lm(vocabulary)
    tokens = torch.zeros(1, 6, 4, dtype=torch.long)
    tokens[0, :, 0] = torch.tensor([1, 4, 5, 2, vocabulary.audio_offset, vocabulary.audio_offset + 3])
    changed = tokens.clone()
    changed[0, 5, 0] += 1
    with torch.no_grad():
        a, b = model(tokens), model(changed)
    torch.testing.assert_close(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5], b[:, 5])
    labelled = tokens.clone()
    labelled[0, 1, 1] = vocabulary.prosody_offset
    with torch.no_grad():
        assert not torch.allclose(model(labelled), a)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(SpeechLM.from_pretrained(tmp_path)(tokens), a, atol=1e-2, rtol=0)


def test_grid_factors_fold_into_plain_tables(tmp_path) -> None:  # type: ignore[no-untyped-def]
    vocabulary = Vocabulary.from_phonemes([" ", "a", "b"], codebook_size=64)
    model = small_lm(vocabulary)
    for module in (model.model.embed_tokens, model.lm_head):
        torch.nn.utils.parametrize.register_parametrization(module, "weight", GridFactors(vocabulary, (8, 8), 32))
    tokens = torch.from_numpy(np.array([[[1, 0, 0, 0], [4, 0, 0, 0], [vocabulary.audio_offset + 9, 0, 0, 0]]]))
    with torch.no_grad():
        expected = model(tokens)
    save_folded(model, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(SpeechLM.from_pretrained(tmp_path)(tokens), expected, atol=2e-2, rtol=0)
