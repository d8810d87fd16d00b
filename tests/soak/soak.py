"""The streams of a soak: spoken, cancelled, killed, malformed, read fast and slowly; counted, compared, weighed."""

from __future__ import annotations

import asyncio
import random
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from backends.launcher import RunningServer
from tts_client import AsyncTTSClient, InvalidArgument, TTSError

TEXTS = (
    "Go.",
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet. To the dark blue background.",
    "It is easy to tell the depth of a well, they say, and then they look at you and wait for an answer.",
)
MALFORMED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {}),
    ("...", {}),
    ("Too hot.", {"temperature": 9.0}),
    ("No such thing.", {"volume": 11}),
    ("Not a number.", {"top_k": "many"}),
    ("Too much of it. " * 3000, {}),
)
CANCELLED, WRONG, KEPT = 0.10, 0.05, 0.01  # shares; KEPT: compared with the same request alone
MEMORY_BOUND = 0.02
STUB = "triton_python_backend_stub"  # the kernel keeps 15 letters of a process's name
WARM_UP = 0.2  # of the streams, before memory is weighed


async def soak(server: RunningServer, streams: int, together: int, seed: int) -> dict[str, Any]:
    """Send `streams`, `together` at a time, and wait until the server has let go of all.

    Returns:
        Counts by outcome, kilobytes of the server's and the stub's memory after the warm-up and at the end, and
        `faults`: sentences that say what was lost, none if nothing was.
    """
    outcomes: Counter[str] = Counter()
    kept: list[tuple[str, dict[str, Any], np.ndarray]] = []
    faults: list[str] = []
    weights: list[dict[str, int]] = []
    numbers = iter(range(streams))
    bar = tqdm(total=streams, desc="soak", unit="stream", leave=False)

    async def caller(client: AsyncTTSClient) -> None:
        for number in numbers:
            chance = random.Random(seed * streams + number)
            try:
                outcome = await one(client, chance, number, kept)
            except TTSError as error:
                outcome = "failed"
                faults.append(f"stream {number} failed: {error}")
            outcomes[outcome] += 1
            bar.update()
            if number == int(WARM_UP * streams):
                weights.append(memory(server.pid))

    async with AsyncTTSClient(server.grpc_url) as client:
        await asyncio.gather(*(caller(client) for _ in range(together)))
        bar.close()
        held = await emptied(server)
        weights.append(memory(server.pid))
        for text, params, sound in kept:
            alone = await spoken(client, text, params)
            if not np.array_equal(alone, sound):
                faults.append(f"{text!r} with {params} sounds different alone")
    faults += [f"{name} is {value:g} after all streams have ended" for name, value in held.items() if value]
    before, after = weights[0], weights[-1]
    for name, kilobytes in after.items():
        if kilobytes > before.get(name, kilobytes) * (1 + MEMORY_BOUND):
            faults.append(f"{name} grew from {before[name]} to {kilobytes} kB")
    return {
        "streams": streams,
        **dict(sorted(outcomes.items())),
        "compared_with_alone": len(kept),
        "memory_kb_after_warm_up": before,
        "memory_kb_at_the_end": after,
        "faults": faults,
    }


async def one(
    client: AsyncTTSClient, chance: random.Random, number: int, kept: list[tuple[str, dict[str, Any], np.ndarray]]
) -> str:
    """One stream to its end, whatever that is; how it ended."""
    kind = chance.random()
    if kind < WRONG:
        text, wrong = chance.choice(MALFORMED)
        try:
            await spoken(client, text, wrong)
        except InvalidArgument:
            return "refused"
        raise TTSError(f"{text[:20]!r} with {wrong} was not refused")
    text = chance.choice(TEXTS)
    params: dict[str, Any] = {
        "seed": number,
        "max_seconds": chance.choice((0.2, 0.6, 1.5)),
        "chunk_frames": chance.choice((4, 10, 40)),
        "first_chunk_frames": chance.choice((2, 8, 16)),
    }
    stop_after = chance.randrange(3) if kind < WRONG + CANCELLED else -1
    pause = chance.choice((0.0, 0.0, 0.002, 0.02))
    sound, finals = [], 0
    stream = client.stream(text, **params)
    try:
        while stop_after != 0:
            stop_after -= 1
            chunk = await anext(stream, None)
            if chunk is None:
                break
            finals += chunk.final
            sound.append(chunk.pcm)
            await asyncio.sleep(pause)
    finally:
        stream.close()
    if stop_after == 0:
        return "cancelled"
    if finals != 1:
        raise TTSError(f"it had {finals} final responses")
    if kind > 1 - KEPT:
        kept.append((text, params, np.concatenate(sound)))
    return "spoken"


async def spoken(client: AsyncTTSClient, text: str, params: dict[str, Any]) -> np.ndarray:
    """The whole sound of a request."""
    return np.concatenate([chunk.pcm async for chunk in client.stream(text, **params)])


async def emptied(server: RunningServer, seconds: float = 20) -> dict[str, float]:
    """What the server still holds, at the latest after `seconds`."""
    names = ("tts_pool_items", "tts_kv_slots_used")
    for _ in range(int(seconds / 0.1)):
        with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line.startswith("tts_"))
        held = {name: float(lines[f'{name}{{model="tts"}}']) for name in names}
        if not any(held.values()):
            break
        await asyncio.sleep(0.1)
    return held


def memory(pid: int) -> dict[str, int]:
    """Resident kilobytes of the server and of its stub."""
    made = {"server": _resident(pid)}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if fields.get("PPid", "").strip() == str(pid) and STUB.startswith(fields["Name"].strip()):
            made["stub"] = _resident(int(status.parent.name))
    if "stub" not in made:
        raise LookupError(f"server {pid} has no process {STUB}")
    return made


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0
