"""The torch module that the LM's graph is held to."""

from __future__ import annotations

from dataclasses import fields

import torch

from export.checkpoint import Checkpoint
from export.errors import ExportError
from export.lm import LlamaConfig
from training.models.llama import SpeechLM, SpeechLMConfig


def reference_lm(checkpoint: Checkpoint) -> SpeechLM:
    """The checkpoint (sharded, bf16, tied: any that `build_lm` takes) as a SpeechLM in float32, eval mode.

    ExportError for a scaled RoPE, which the training model does not have and therefore cannot vouch for.
    """
    config = LlamaConfig.from_dict(checkpoint.config)
    if config.rope_type != "default":
        raise ExportError("the torch model has no scaled RoPE, so there is nothing to hold this checkpoint's graph to")
    known = {field.name for field in fields(SpeechLMConfig)}
    values = {name: value for name, value in checkpoint.config.items() if name in known}
    values |= {
        "logit_offset": config.logit_offset,
        "channels": config.channels,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rope_theta": config.rope_theta,
        "pad_token_id": config.pad_id,
        "architectures": tuple(values.get("architectures") or ()),
    }
    model = SpeechLM(SpeechLMConfig(**values))
    tied = {} if "lm_head.weight" in checkpoint.names else {"lm_head.weight": "model.embed_tokens.weight"}
    model.load_state_dict(
        {name: torch.from_numpy(checkpoint.tensor(tied.get(name, name))) for name in model.state_dict()}
    )
    return model.eval()
