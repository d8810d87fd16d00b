"""`tts-client say "Hello." -o out.wav`: speech from a server, written (or played) while it arrives."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tqdm import tqdm

from tts_client.client import TTSClient
from tts_client.errors import DeadlineExceeded, InvalidArgument, ServerUnreachable, TTSError, Unavailable
from tts_client.player import Player
from tts_client.report import StreamReport
from tts_client.wav import WavWriter, read_reference

FAILED, WRONG_REQUEST, UNREACHABLE, UNAVAILABLE, TIMED_OUT, INTERRUPTED = 1, 2, 3, 4, 5, 130
EXIT_CODES: tuple[tuple[type[TTSError], int], ...] = (
    (InvalidArgument, WRONG_REQUEST),
    (ServerUnreachable, UNREACHABLE),
    (Unavailable, UNAVAILABLE),
    (DeadlineExceeded, TIMED_OUT),
)
# Request parameters of the server: name, type, help. Defaults and ranges are the voice's.
PARAMETERS = (
    ("temperature", float, "randomness of sampling; 0 always takes the likeliest"),
    ("top_k", int, "sample among the K likeliest; 0 among all"),
    ("top_p", float, "sample among the likeliest that make up probability P; 1 among all"),
    ("seed", int, "same seed and text, same audio"),
    ("max_seconds", float, "longest audio"),
    ("chunk_frames", int, "size to which chunks grow, codec frames"),
    ("first_chunk_frames", int, "size of the first chunk, codec frames"),
    ("speculation", str, "what drafts tokens: none, medusa, mtp or draft, as the voice has them"),
    ("acceptance", str, "rule that verifies drafts: exact, tolerance, bias, group or top_k"),
    ("tolerance", int, "samples a drafted token may equal one of (rule tolerance)"),
    ("bias", float, "added to the acceptance ratio (rule bias)"),
    ("theta", float, "cosine above which codes sound alike (rule group)"),
    ("verify_top_k", int, "accept among the K likeliest (rule top_k)"),
    ("verify_eos_top_k", int, "accept an end of sentence among the K likeliest (rule top_k)"),
    ("nodes", int, "drafted tokens a step; 0 leaves it to the server"),
)
EPILOG = """examples:
  tts-client say "The birch canoe slid on the smooth planks." -o out.wav
  fortune | tts-client say --play
  tts-client say --url gpu-box:8001 --seed 7 --temperature 0.6 --json "Same again."

exit status: 0 spoken, 1 failed, 2 wrong request, 3 no server, 4 server full or model not loaded, 5 timed out,
130 interrupted"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(prog="tts-client", description=__doc__, add_help=True)
    commands = root.add_subparsers(dest="command", required=True)
    say = commands.add_parser(
        "say",
        help="speak a text",
        description="Speak a text, written or played while it arrives.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    say.add_argument("text", nargs="?", help="what to say; standard input when left out")
    say.add_argument("-o", "--output", type=Path, metavar="FILE", help="WAV file to write (out.wav unless --play)")
    say.add_argument("--play", action="store_true", help="play it on the default sound device")
    say.add_argument("--url", default="localhost:8001", metavar="HOST:PORT", help="the server's gRPC (%(default)s)")
    say.add_argument("--model", default="tts", metavar="NAME", help="model to ask (%(default)s)")
    say.add_argument("--timeout", type=float, metavar="S", help="give up after so many seconds")
    say.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    say.add_argument("--quiet", action="store_true", help="no progress line")
    say.add_argument("--reference", type=Path, metavar="FILE", help="WAV of a voice to clone (16-bit mono, 16 kHz)")
    say.add_argument("--reference-text", metavar="TEXT", help="what is said in it")
    group = say.add_argument_group("request parameters (the voice has defaults and ranges)")
    for name, kind, text in PARAMETERS:
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=name[0].upper(), help=text)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        report = say(options)
    except TTSError as error:
        print(f"tts-client: {error}", file=sys.stderr)
        return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)
    except OSError as error:
        print(f"tts-client: cannot write the audio: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("tts-client: interrupted", file=sys.stderr)
        return INTERRUPTED
    print(json.dumps(report.to_dict()) if options.json else report)
    if not report.chunks:
        print("tts-client: the voice said nothing; try another --seed or another text", file=sys.stderr)
        return FAILED
    if report.finish_reason == "length":
        print("tts-client: cut at max_seconds; give --max-seconds a larger value", file=sys.stderr)
    return 0


def say(options: argparse.Namespace) -> StreamReport:
    """Stream one text to the file and the loudspeaker. Raises TTSError, OSError."""
    text = _read_standard_input() if options.text is None else options.text
    params = {name: value for name, _, _ in PARAMETERS if (value := getattr(options, name)) is not None}
    reference = read_reference(options.reference) if options.reference else None
    output = options.output or (None if options.play else Path("out.wav"))
    with ExitStack() as stack:
        sinks: list[WavWriter | Player] = []
        if output is not None:
            sinks.append(stack.enter_context(WavWriter(output)))
        if options.play:
            sinks.append(stack.enter_context(Player()))
        client = stack.enter_context(TTSClient(options.url, options.model))
        client.check()  # connects too: the latencies are then the request's own
        hidden = options.quiet or not sys.stderr.isatty()
        line = "{desc}{n:.1f} s of audio in {elapsed}{postfix}"
        progress = stack.enter_context(
            tqdm(desc="waiting", bar_format=line, disable=hidden, leave=False, mininterval=0.05)
        )
        stream = stack.enter_context(
            client.stream(
                text, reference_wav=reference, reference_text=options.reference_text, timeout=options.timeout, **params
            )
        )
        for chunk in stream:
            for sink in sinks:
                if chunk.pcm.size:
                    sink.write(chunk.pcm, chunk.sample_rate)
            if chunk.index == 0:
                progress.set_description_str(f"first chunk {1e3 * chunk.received_s:.0f} ms, ", refresh=False)
            progress.update(chunk.pcm.size / chunk.sample_rate if chunk.pcm.size else 0)
        return stream.report


def _read_standard_input() -> str:
    if sys.stdin.isatty():
        print("Type what to say, then Ctrl-D.", file=sys.stderr)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"standard input is not UTF-8 text: {error}") from error
