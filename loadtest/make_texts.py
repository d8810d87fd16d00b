"""Make loadtest/texts.json anew: sentences in the manner of the Harvard ones, measured through a running server.

    make serve &
    python -m loadtest.make_texts --url localhost:8001      # a minute; the same seed and voice give the same file

Long texts are two sentences. Of the candidates of each length those are kept whose durations are near the paper's mean,
and the set is then trimmed until its own mean is that one; the mixed set takes from the three in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from itertools import chain

from tqdm import tqdm

from loadtest.texts import MEAN_SECONDS, PATH, Text, save_texts
from tts_client import AsyncTTSClient

EACH = 60
AT_ONCE = 8
SPREAD = 0.3  # of the mean, to either side
SUBJECTS = (
    "The old farmer", "A small boat", "The tired clerk", "Her brother", "The young baker", "A grey cat",
    "The last train", "My neighbour", "The tall sailor", "A cold wind", "The new teacher", "Our driver",
    "The quiet girl", "A brown horse", "The night guard", "The painter",
)  # fmt: skip
VERBS = (
    "crossed", "followed", "left", "found", "watched", "reached", "passed", "kept", "opened", "moved",
    "carried", "saw", "covered", "turned", "missed", "marked",
)  # fmt: skip
OBJECTS = (
    "the narrow bridge", "a wooden box", "the white house", "the long road", "a heavy stone", "the open gate",
    "the red coat", "a broken wheel", "the empty field", "the low fence", "a paper bag", "the green bottle",
    "the dark room", "a silver coin", "the kitchen door", "the warm bread",
)  # fmt: skip
PLACES = (
    "by the river", "near the station", "on the hill", "behind the church", "in the garden", "under the bridge",
    "at the market", "beside the barn", "in the snow", "along the shore",
)  # fmt: skip
TIMES = (
    "before the rain", "after dark", "in the early morning", "every Sunday", "without a word",
    "as the sun went down", "at the end of May", "while the others slept", "when the bell rang",
    "with great care",
)  # fmt: skip


def sentence(draw: random.Random, places: int, times: int) -> str:
    """A sentence with so many places and times in it."""
    parts = [draw.choice(words) for words in (SUBJECTS, VERBS, OBJECTS)]
    parts += draw.sample(PLACES, places) + draw.sample(TIMES, times)
    return " ".join(parts) + "."


def candidates(draw: random.Random, count: int) -> dict[str, list[str]]:
    """Unmeasured texts of each length."""
    return {
        "short": [sentence(draw, draw.randint(0, 1), draw.randint(0, 1)) for _ in range(count)],
        "medium": [sentence(draw, 1, draw.randint(0, 2)) for _ in range(count)],
        "long": [
            f"{sentence(draw, 1, draw.randint(0, 1))} {sentence(draw, draw.randint(0, 1), 1)}" for _ in range(count)
        ],
    }


async def measure(url: str, texts: list[str]) -> list[Text]:
    """Each text spoken with its number for a seed; those that did not end by themselves are left out."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: AsyncTTSClient, seed: int, text: str) -> Text | None:
        async with gate:
            stream = client.stream(text, seed=seed)
            async for chunk in stream:
                last = chunk
            bar.update()
            return Text(text, seed, round(stream.report.audio_s, 2)) if last.finish_reason == "stop" else None

    with tqdm(total=len(texts), desc="speaking", leave=False) as bar:
        async with AsyncTTSClient(url) as client:
            spoken = await asyncio.gather(*(one(client, seed, text) for seed, text in enumerate(texts)))
    return [text for text in spoken if text]


def choose(texts: list[Text], mean: float, count: int) -> list[Text]:
    """`count` of the texts, of that mean duration; ValueError where there are too few near it."""
    near = [text for text in texts if abs(text.seconds - mean) <= SPREAD * mean]
    if len(near) < count:
        raise ValueError(f"only {len(near)} of {len(texts)} texts last about {mean} s and {count} are needed")
    chosen, spare = near[:count], near[count:]
    while True:  # the exchange that brings the mean nearest, until none does
        off = sum(text.seconds - mean for text in chosen)
        left = {(old, new): abs(off + new.seconds - old.seconds) for old in chosen for new in spare}
        if not left or min(left.values()) >= abs(off):
            break
        old, new = min(left, key=left.__getitem__)
        chosen[chosen.index(old)], spare[spare.index(new)] = new, old
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.make_texts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    made = {
        kind: choose(asyncio.run(measure(args.url, texts)), MEAN_SECONDS[kind], EACH)
        for kind, texts in candidates(draw, 3 * EACH).items()
    }
    made["mixed"] = list(chain.from_iterable(zip(*made.values(), strict=True)))
    save_texts(made)
    for kind, texts in made.items():
        lengths = [text.seconds for text in texts]
        mean = sum(lengths) / len(lengths)
        print(f"{kind:7} {len(texts)} texts, {min(lengths):.2f} to {max(lengths):.2f} s, mean {mean:.2f} s")
    print(f"written to {PATH}")


if __name__ == "__main__":
    main()
