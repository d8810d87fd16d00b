"""Proposers: what drafts tokens for the language model to verify. One file each, one interface: `Proposer`."""

from __future__ import annotations

from tts_engine.config import EngineConfig
from tts_engine.errors import VoiceError
from tts_engine.kv_cache import KVCache
from tts_engine.lanes import Lanes
from tts_engine.proposers.draft_model import DraftModel
from tts_engine.proposers.heads import DraftHeads
from tts_engine.proposers.mtp import MTP
from tts_engine.proposers.proposer import Proposer
from tts_engine.voice import Voice

LAYERS = {"draft": "layers", "mtp": "modules"}  # by proposer: the entry that counts its layers of the cache


def draft_layers(voice: Voice) -> int:
    """Layers that the voice's drafts add to the key-value cache."""
    return sum(int(voice.drafts[name][key]) for name, key in LAYERS.items() if name in voice.drafts)


def load_proposers(voice: Voice, config: EngineConfig, cache: KVCache, lanes: Lanes) -> dict[str, Proposer]:
    """All the voice has, by name; their layers lie behind the LM's in `cache`. VoiceError names a wrong entry."""
    made: dict[str, Proposer] = {}
    layer = voice.layers
    for name, entry in voice.drafts.items():
        try:
            if name == "medusa":
                made[name] = DraftHeads(voice, config)
                continue
            kind = DraftModel if name == "draft" else MTP
            made[name] = kind(voice, config, cache, lanes, layer)
            layer += int(entry[LAYERS[name]])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise VoiceError(f"draft {name!r} of voice {voice.name} is wrong: {error!r}; export it again") from error
    return made
