"""Smaller and faster forms of lm.onnx: int8 with per-token activation scales, 8- and 4-bit weight-only.

All keep a row's result independent of its batch-mates: no scale is shared between tokens, which is why ONNX Runtime's
`quantize_dynamic` (one activation scale a tensor) is not among them. Only MatMuls by a weight change; embeddings,
norms, attention and the cache stay float32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from export.graph import Graph

TINY = 1e-10  # keeps the scale of an all-zero output positive
# Weights that share a scale. Larger blocks are a little faster, but there ONNX Runtime's kernels for one row and for
# several differ in the 8-bit rounding of activations: a request's result would depend on its company.
BLOCK = 32


def row8(model: onnx.ModelProto, exact: Collection[str] = ()) -> onnx.ModelProto:
    """int8 x int8 MatMuls: activations scaled token by token to [-127, 127], weights output by output.

    exact: names of weights that stay float32.

    Activations travel as uint8 with zero point 128, the form processors have instructions for (ONNX Runtime's int8 x
    int8 is six times slower; without VNNI, x86 adds pairs of products in 16 bits and can saturate: the parity row
    shows it). Passes over the activations cost as much as the products, so there is one QuantizeLinear, whose block
    is a whole token, and the scale of the weights is applied inside ONNX Runtime's MatMulIntegerToFloat.
    """
    weights = {weight.name: weight for weight in model.graph.initializer}
    graph = Graph(model.graph.name)
    graph.weight("row8.step", np.array(1 / 127, np.float32))
    graph.weight("row8.huge", np.array(np.finfo(np.float32).max, np.float32))
    graph.weight("row8.last", np.array([-1], np.int64))
    graph.weight("row8.one", np.array(1, np.float32))
    graph.weight("row8.centre", np.array(128, np.uint8))
    quantised: dict[str, tuple[str, str]] = {}  # what several MatMuls read is quantised once

    def quantise(x: str, size: int) -> tuple[str, str]:
        """uint8 x and its scales, one a token."""
        if x not in quantised:
            largest = graph.node("Abs", [x], f"{x}.abs")
            largest = graph.node("ReduceMax", [largest, "row8.last"], f"{x}.max", keepdims=1)
            step = graph.node("Mul", [largest, "row8.step"], f"{x}.step")  # 0 for a token of zeros, whose codes are any
            centre = graph.node("QuantizeLinear", [step, "row8.huge", "row8.centre"], f"{x}.centre")  # 128 a token
            codes = graph.node("QuantizeLinear", [x, step, centre], f"{x}.uint8", axis=-1, block_size=size)
            quantised[x] = codes, step
        return quantised[x]

    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights or node.input[1] in exact:
            graph.copy(node)
            continue
        x, name, y = node.input[0], node.input[1], node.output[0]
        weight = numpy_helper.to_array(weights.pop(name))
        scale = np.maximum(np.abs(weight).max(0) / 127, TINY).astype(np.float32)
        integers = graph.weight(f"{name}.int8", np.rint(weight / scale).astype(np.int8))
        by_output = graph.weight(f"{name}.scale", scale)
        codes, step = quantise(x, weight.shape[0])
        z = graph.node(
            "MatMulIntegerToFloat",
            [codes, integers, "row8.one", by_output, "row8.centre"],
            f"{y}.by_output",
            domain="com.microsoft",
        )
        graph.node("Mul", [z, step], y)
    result = graph.model()
    result.opset_import.append(helper.make_opsetid("com.microsoft", 1))
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
