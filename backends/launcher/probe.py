"""A real inference over gRPC: the warm-up, and the only health check that sees a dead backend process.

python -m backends.launcher.probe                         # exit status 0: it speaks, 1: it does not (and why)
python -m backends.launcher.probe --url host:8001 --full-is-fine      # a full server's refusal is an answer, too
"""

from __future__ import annotations

import argparse
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

SEED = 1  # a health check must not depend on chance


def synthesise(url: str, text: str, seconds: float = 60) -> int:
    """Samples of audio the server makes of `text`, the same each time: its words are drawn with one seed.

    Raises InferenceServerException or TimeoutError.
    """
    arrived: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    tensor = grpcclient.InferInput("target_text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()]], dtype=object))
    with grpcclient.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        try:
            client.async_stream_infer("tts", [tensor], enable_empty_final_response=True, parameters={"seed": SEED})
            samples = 0
            while True:
                try:
                    result, error = arrived.get(timeout=seconds)
                except queue.Empty:
                    raise TimeoutError(f"no answer within {seconds:.0f} s") from None
                if error is not None:
                    raise error
                waveform = result.as_numpy("waveform")
                samples += 0 if waveform is None else waveform.size
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return samples
        finally:
            client.stop_stream(cancel_requests=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m backends.launcher.probe", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", help="the server's gRPC (default: localhost:8001)")
    parser.add_argument("--timeout", type=float, default=8.0, help="seconds to wait for the answer")
    parser.add_argument("--full-is-fine", action="store_true", help="count a refusal for lack of room as healthy")
    args = parser.parse_args()
    try:
        samples = synthesise(args.url, "Fine.", args.timeout)
    except (InferenceServerException, TimeoutError) as error:
        if args.full_is_fine and "try again" in str(error):
            print("full")
            return 0
        print(f"{args.url} does not speak: {error}", file=sys.stderr)
        return 1
    if not samples:
        print(f"{args.url} answers without sound", file=sys.stderr)
        return 1
    print(f"ok, {samples} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
