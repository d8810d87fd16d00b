"""Smaller and faster forms of lm.onnx: int8 with per-token activation scales, 8- and 4-bit weight-only.

All keep a row's result independent of its batch-mates: no scale is shared between tokens, which is why ONNX Runtime's
`quantize_dynamic` (one activation scale a tensor) is not among them. Only MatMuls by a weight change; embeddings,
norms, attention and the cache stay float32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from export.graph import Graph

TINY = 1e-10  # keeps the scale of an all-zero token positive
# Weights that share a scale. Larger blocks are a little faster, but there ONNX Runtime's kernels for one row and for
# several differ in the 8-bit rounding of activations: a request's result would depend on its company.
BLOCK = 32


def row8(model: onnx.ModelProto) -> onnx.ModelProto:
    """int8 x int8 MatMuls: activations scaled token by token to [-127, 127], weights output by output.

    Activations travel as uint8 with zero point 128, the form processors have instructions for. (Without VNNI, x86 adds
    pairs of products in 16 bits and can saturate; the parity row shows it.)
    """
    weights = {weight.name: weight for weight in model.graph.initializer}
    graph = Graph(model.graph.name)
    graph.weight("row8.limit", np.array(127, np.float32))
    graph.weight("row8.tiny", np.array(TINY, np.float32))
    graph.weight("row8.centre", np.array(128, np.float32))
    graph.weight("row8.zero_point", np.array(128, np.uint8))
    graph.weight("row8.last", np.array([-1], np.int64))
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            graph.copy(node)
            continue
        x, name, y = node.input[0], node.input[1], node.output[0]
        weight = numpy_helper.to_array(weights.pop(name))
        scale = np.maximum(np.abs(weight).max(0) / 127, TINY).astype(np.float32)
        quantised = graph.weight(f"{name}.int8", np.rint(weight / scale).astype(np.int8))
        size = graph.node("Abs", [x], f"{y}.abs")
        size = graph.node("ReduceMax", [size, "row8.last"], f"{y}.max", keepdims=1)
        size = graph.node("Max", [size, "row8.tiny"], f"{y}.size")
        gain = graph.node("Div", ["row8.limit", size], f"{y}.gain")
        q = graph.node("Mul", [x, gain], f"{y}.scaled")
        q = graph.node("Add", [q, "row8.centre"], f"{y}.centred")
        q = graph.node("Round", [q], f"{y}.rounded")
        q = graph.node("Cast", [q], f"{y}.uint8", to=onnx.TensorProto.UINT8)
        z = graph.node("MatMulInteger", [q, quantised, "row8.zero_point"], f"{y}.int32")
        z = graph.node("Cast", [z], f"{y}.float", to=onnx.TensorProto.FLOAT)
        z = graph.node("Mul", [z, graph.weight(f"{name}.scale", scale)], f"{y}.by_output")
        graph.node("Div", [z, gain], y)
    result = graph.model()
    result.graph.initializer.extend(weights.values())
    result.graph.input.extend(model.graph.input)
    result.graph.output.extend(model.graph.output)
    return result


def weight_only(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """MatMulNBits (ONNX Runtime's own operator): weights in 8 or 4 bits, one scale per `BLOCK` of them."""
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    logging.getLogger(MatMulNBitsQuantizer.__module__).setLevel(logging.WARNING)  # else a line for every node
    copy = onnx.ModelProto()
    copy.CopyFrom(model)  # the quantiser works in place
    # Accuracy level 4: activations go to int8 inside the kernel too, block by block within a token.
    config = DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=bits == 8, bits=bits, accuracy_level=4)
    quantiser = MatMulNBitsQuantizer(copy, algo_config=config)
    quantiser.process()
    return quantiser.model.model


VARIANTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "fp32": lambda model: model,
    "int8": row8,
    "nbits8": lambda model: weight_only(model, 8),
    "nbits4": lambda model: weight_only(model, 4),
}
