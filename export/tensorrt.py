"""Build TensorRT plans from an exported voice. Needs NVIDIA's libraries and a GPU: never run by this project's CI.

    python -m export.tensorrt                                     # model_repository/tts/1 -> plans/
    python -m export.tensorrt --voice /srv/voice --out /srv/plans --buckets 256 512 --float32

Written against the documented `tensorrt` Python API, 10.15 or later (the first whose ONNX parser takes TensorScatter).
The cache's length T must be fixed in a plan, so the language model gets one plan a T bucket, each with a profile for
decoding and one for prefill. present_k/v must be bound to the addresses of past_k/v, as on the CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import onnx
from tqdm import tqdm

from export.errors import ExportError

MINIMUM = (10, 15)
WORKSPACE_BYTES = 4 << 30
Range = tuple[int, int, int]
Profile = dict[str, tuple[list[int], list[int], list[int]]]


@dataclass(frozen=True)
class Plan:
    """One engine to build: the graph, the plan's file name, and each profile's (min, opt, max) of every free axis."""

    graph: str
    name: str
    profiles: tuple[Mapping[str, Range], ...]


def plans(buckets: Sequence[int], batch: int, max_wordpieces: int = 256) -> list[Plan]:
    """What a voice needs: the LM a bucket of T, vocoder, frontend; fp32, as TensorRT quantises by other means."""
    rows = (1, min(8, batch), batch)
    made = []
    for length in buckets:
        fixed = {"B": rows, "T": (length, length, length)}
        decode = {**fixed, "n": (1, 1, 16), "m": (1, 1, 16)}
        prefill = {**fixed, "n": (1, min(64, length), length), "m": (1, 1, 1)}
        made.append(Plan("variants/lm_fp32.onnx", f"lm_{length}.plan", (decode, prefill)))
    made.append(Plan("variants/vocoder_fp32.onnx", "vocoder.plan", ({"B": rows, "n": (1, 32, 500)},)))
    made.append(Plan("frontend.onnx", "frontend.plan", ({"B": rows, "L": (1, 32, max_wordpieces)},)))
    return made


def profile(graph: onnx.GraphProto, ranges: Mapping[str, Range]) -> Profile:
    """(min, opt, max) shapes of every input of a graph; ExportError for a free axis without a range."""
    shapes: Profile = {}
    for value in graph.input:
        columns = []
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param and axis.dim_param not in ranges:
                raise ExportError(f"input {value.name} has a free axis {axis.dim_param} that no profile range covers")
            columns.append(ranges[axis.dim_param] if axis.dim_param else (axis.dim_value,) * 3)
        low, best, high = ([column[i] for column in columns] for i in range(3))
        shapes[value.name] = (low, best, high)
    return shapes


def library() -> ModuleType:
    """The `tensorrt` package; ExportError where it is missing or too old."""
    try:
        import tensorrt  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ExportError(
            "TensorRT is not installed: on a machine with an NVIDIA GPU run `pip install 'tensorrt>=10.15'`; "
            "the exported ONNX voice needs none of this"
        ) from error
    version = tuple(int(part) for part in tensorrt.__version__.split(".")[:2])
    if version < MINIMUM:
        raise ExportError(f"TensorRT {tensorrt.__version__} is too old; 10.15 is the first that reads these graphs")
    module: ModuleType = tensorrt
    return module


def build_plan(trt: ModuleType, file: Path, profiles: Sequence[Mapping[str, Range]], half: bool) -> bytes:
    """The serialised engine of one ONNX file; ExportError with the parser's own words when it refuses."""
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    data = file.read_bytes()
    if not parser.parse(data):
        reasons = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise ExportError(f"TensorRT cannot read {file}: {reasons}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
    if half:
        config.set_flag(trt.BuilderFlag.FP16)
    graph = onnx.load_model_from_string(data).graph
    for ranges in profiles:
        shapes = builder.create_optimization_profile()
        for name, (low, best, high) in profile(graph, ranges).items():
            shapes.set_shape(name, low, best, high)
        config.add_optimization_profile(shapes)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ExportError(f"TensorRT built no engine for {file}; its log above says why")
    return bytes(plan)


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m export.tensorrt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voice", type=Path, default=Path("model_repository/tts/1"), help="an exported voice")
    parser.add_argument("--out", type=Path, default=Path("plans"))
    parser.add_argument("--buckets", type=int, nargs="+", default=[256, 512, 1024, 2048], help="cache lengths T")
    parser.add_argument("--batch", type=int, default=32, help="largest batch")
    parser.add_argument("--float32", action="store_true", help="no fp16 kernels")
    args = parser.parse_args()
    try:
        trt = library()
        args.out.mkdir(parents=True, exist_ok=True)
        for plan in tqdm(plans(args.buckets, args.batch), desc="plans", unit="plan"):
            built = build_plan(trt, args.voice / plan.graph, plan.profiles, half=not args.float32)
            (args.out / plan.name).write_bytes(built)
    except (ExportError, OSError) as error:
        print(f"no plans: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
