from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.text.conftest import WORDPIECE
from training import prosody
from training.models.bert import BertConfig, ProsodyBert
from training.prosody import NO_LABEL, collate, draw, example, options, train
from tts_engine.text import TextFrontend
from tts_engine.text.wordpiece import WordpieceEncoder, WordpieceError

TINY = BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)


def tiny() -> ProsodyBert:
    torch.manual_seed(0)
    return ProsodyBert(TINY).eval()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.arange(14).reshape(2, 7) + 5
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    return ids, mask


def test_scores_and_padding() -> None:
    model, (ids, mask) = tiny(), inputs()
    scores = model(ids, mask)
    assert scores.shape == (2, 7, 3, 2)
    alone = model(ids[1:, :4], mask[1:, :4])
    torch.testing.assert_close(scores[1:, :4], alone)
    assert not torch.allclose(scores[0, :4], model(ids[:1, :4], mask[:1, :4])[0])  # real context does count


def test_encoder_equals_torchs_own_transformer() -> None:
    """Post-norm, exact GELU, by another implementation."""
    model, (ids, _) = tiny(), inputs()
    x = model.bert["embeddings"](ids)
    for layer in model.bert["encoder"]["layer"]:  # type: ignore[index]
        other = nn.TransformerEncoderLayer(24, 3, 40, 0.0, "gelu", TINY.layer_norm_eps, batch_first=True).eval()
        attention, mixed = layer.attention["self"], layer.attention["output"]
        three = (attention.query, attention.key, attention.value)
        other.self_attn.in_proj_weight.data = torch.cat([part.weight for part in three])
        other.self_attn.in_proj_bias.data = torch.cat([part.bias for part in three])
        other.self_attn.out_proj.load_state_dict(mixed.dense.state_dict())
        other.linear1.load_state_dict(layer.intermediate["dense"].state_dict())
        other.linear2.load_state_dict(layer.output.dense.state_dict())
        other.norm1.load_state_dict(mixed.LayerNorm.state_dict())
        other.norm2.load_state_dict(layer.output.LayerNorm.state_dict())
        x = other(x)
    torch.testing.assert_close(model.hidden(ids, torch.ones_like(ids)), x, atol=1e-5, rtol=1e-4)


def test_encoder_equals_hugging_faces_bert(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install transformers to compare with the original")
    torch.manual_seed(1)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    original = transformers.BertModel(transformers.BertConfig(vocab_size=50, **sizes)).eval()
    for norm in (m for m in original.modules() if isinstance(m, nn.LayerNorm)):
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    original.save_pretrained(tmp_path)
    ids, mask = inputs()
    expected = original(ids, attention_mask=mask).last_hidden_state
    found = ProsodyBert.from_pretrained(tmp_path, new_head=True).hidden(ids, mask)
    torch.testing.assert_close(found[mask == 1], expected[mask == 1], atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match=r"lacks prosody\.bias"):
        ProsodyBert.from_pretrained(tmp_path)


def test_saves_half_precision_and_loads_it_back(tmp_path: Path) -> None:
    model = tiny()
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert stored["prosody.weight"].shape == (6, 24)
    assert stored["bert.encoder.layer.1.attention.self.query.weight"].shape == (24, 24)
    torch.testing.assert_close(ProsodyBert.from_pretrained(tmp_path)(*inputs()), model(*inputs()), atol=1e-3, rtol=1e-2)


def test_first_berts_norm_names_are_understood(tmp_path: Path) -> None:
    model = tiny()
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    old = {
        k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for k, v in load_file(file).items()
    }
    assert any(name.endswith("gamma") for name in old)
    save_file(old, file)
    torch.testing.assert_close(ProsodyBert.from_pretrained(tmp_path)(*inputs()), model(*inputs()), atol=1e-3, rtol=1e-2)


def test_labels_lie_on_first_pieces() -> None:
    frontend = TextFrontend(wordpiece_path=WORDPIECE)
    (sentence,) = frontend.sentences("Unfathomable zyzzyvas slept.")
    encoding = frontend.encode(sentence)
    made = example(encoding, [[1, 0, 0], [0, 1, 0], [1, 1, 1]])
    ids, mask, labels = collate([made, made], (2, 3))
    assert ids[0].tolist() == encoding.input_ids
    assert mask.sum() == 2 * len(encoding.input_ids)
    assert labels[0, encoding.first_piece].tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 1]]
    assert int((labels[0] == NO_LABEL).all(-1).sum()) == len(encoding.input_ids) - 3


def manifest_of(path: Path) -> Path:
    """Texts whose phrase ends are at commas and full stops: learnable in a few steps."""
    names, verbs = (
        ("birds", "dogs", "boats", "kings", "rivers", "clouds"),
        ("sing", "run", "sail", "rule", "flow", "drift"),
    )
    rows = []
    for i in range(60):
        words = [names[i % 6], verbs[i // 6 % 6], "and", names[(i + 1) % 6], verbs[i % 5]]
        text = f"{words[0]} {words[1]}, and {words[3]} {words[4]}."
        prosody = [[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]]
        rows.append({"id": str(i), "text": text.capitalize(), "words": words, "prosody": prosody})
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_learns_and_an_interrupted_run_ends_as_a_whole_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifest_of(tmp_path / "manifest.jsonl")

    def run(name: str) -> ProsodyBert:
        out = tmp_path / name
        out.mkdir(exist_ok=True)
        (out / "wordpiece.json").write_bytes(WORDPIECE.read_bytes())
        settings = f"--manifest {manifest} --out {out} --work {out / 'work'} --budget 150 --steps 60 --save-every 20"
        return train(options().parse_args([*settings.split(), "--rate", "2e-3"]))

    whole = run("whole")
    last = capsys.readouterr().out.strip().splitlines()[-1]
    scores = [float(score) for score in re.findall(r"\d\.\d+", last)]
    assert len(scores) == 3 and min(scores) > 0.9, last
    assert (tmp_path / "whole" / "loss.png").stat().st_size > 0

    calls = 0

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 30:
            raise KeyboardInterrupt
        return draw(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prosody, "draw", interrupted)
        run("halves")
    for one, other in zip(whole.parameters(), run("halves").parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_missing_corpus_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "wordpiece.json").write_bytes(WORDPIECE.read_bytes())
    args = options().parse_args(f"--manifest {tmp_path / 'none.jsonl'} --out {tmp_path} --work {tmp_path}".split())
    with pytest.raises(FileNotFoundError, match=r"python -m training\.corpus"):
        train(args)


def test_wrong_vocabularies_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "wordpiece.json"
    file.write_text("{}")
    with pytest.raises(WordpieceError, match=r"not a tokenizer\.json"):
        WordpieceEncoder(file)
    stripped = json.loads(WORDPIECE.read_text(encoding="utf-8"))
    stripped["added_tokens"] = [token for token in stripped["added_tokens"] if token["content"] != "[CLS]"]
    del stripped["model"]["vocab"]["[CLS]"]
    file.write_text(json.dumps(stripped))
    with pytest.raises(WordpieceError, match="CLS"):
        WordpieceEncoder(file)
