"""Tiny random checkpoints of the real layout, and one voice exported from them for all tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from export.gate import Gate
from export.pipeline import Options, export_voice
from training.models.bert import BertConfig, ProsodyBert
from training.models.codec import Codec, CodecConfig
from training.models.llama import SpeechLM, SpeechLMConfig
from tts_engine.prompt import Vocabulary

COMMITTED = Path(__file__).resolve().parents[2] / "checkpoints" / "rms"
LEVELS = (4, 4)


def write_lm(directory: Path) -> None:
    """A two-layer LM with the committed phoneme table; weights large enough for logits that differ."""
    table = COMMITTED / "lm" / "phonemes.json"
    vocabulary = Vocabulary.from_phonemes(json.loads(table.read_text(encoding="utf-8")), 16)
    torch.manual_seed(1)
    model = SpeechLM(
        SpeechLMConfig(
            vocab_size=vocabulary.size,
            logit_offset=vocabulary.logit_offset,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=96,
            max_position_embeddings=512,
        )
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6 if weight.dim() == 2 else 1)
    model.save_pretrained(directory)
    shutil.copyfile(table, directory / "phonemes.json")


def write_codec(directory: Path, levels: tuple[int, ...] = LEVELS) -> None:
    torch.manual_seed(2)
    sizes = {"encoder_dim": 16, "encoder_layers": 1, "decoder_dim": 24, "decoder_layers": 2, "fine_dim": 16}
    Codec(CodecConfig(levels=levels, fine_layers=1, **sizes)).save_pretrained(directory)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """lm/, codec/, prosody/ of a voice called `tiny`."""
    root = tmp_path_factory.mktemp("checkpoints") / "tiny"
    write_lm(root / "lm")
    write_codec(root / "codec")
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=4096,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    ProsodyBert(config).save_pretrained(root / "prosody")
    shutil.copyfile(COMMITTED / "prosody" / "wordpiece.json", root / "prosody" / "wordpiece.json")
    return root


@pytest.fixture(scope="session")
def exported(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Gate]]:
    """(voice directory, table rows) of the whole export, all gates at full length."""
    out = tmp_path_factory.mktemp("repository") / "1"
    return out, export_voice(Options(checkpoints, out, "tiny"))
