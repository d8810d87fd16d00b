"""The loop the engine is measured against decodes what the model itself says."""

from __future__ import annotations

import torch

from tests.benchmarks.sequential import CachedLM
from training.models.llama import SpeechLM, SpeechLMConfig


def test_cached_steps_equal_the_whole_sequence() -> None:
    torch.manual_seed(0)
    config = SpeechLMConfig(
        vocab_size=60,
        logit_offset=40,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=96,
    )
    model = SpeechLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.2)  # far from uniform, so that a wrong position or mask shows
    with torch.no_grad():
        model.get_parameter("model.embed_tokens.weight")[0] = 0
    tokens = torch.randint(1, 60, (1, 12, 4))
    tokens[:, 5:, 1:] = 0
    cached = CachedLM(model, positions=32)
    with torch.inference_mode():
        whole = model(tokens)[0, :, config.logit_offset :]
        for _ in range(2):  # a second sequence starts clean
            cached.reset()
            steps = [cached.step(tokens[:, :5])] + [cached.step(tokens[:, i : i + 1]) for i in range(5, 12)]
            torch.testing.assert_close(torch.stack(steps), whole[4:], atol=1e-4, rtol=1e-4)
