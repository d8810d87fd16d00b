"""A small writer of ONNX graphs: every call adds one node and returns the name of its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 24  # TensorScatter and the Attention that reads a cache it wrote
IR_VERSION = 12
MAX_BYTES = 2**31 - 2**20  # protobuf's limit, with room for the nodes
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


class Graph:
    """Collects nodes, weights, inputs and outputs; `model()` is the checked result."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: type, shape: Sequence[int | str]) -> str:
        """Declare a graph input; string sizes are dynamic axes."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape))
        return name

    def output(self, name: str, dtype: type, shape: Sequence[int | str]) -> None:
        self._outputs.append(helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape))

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant tensor once; a later call with the same name reuses it."""
        if name not in self._weights:
            self._weights[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def node(self, kind: str, inputs: Sequence[str], outputs: str | Sequence[str], **attributes: Any) -> str:
        """Add a node; returns its first output's name, which also names the node."""
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        self._nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], **attributes))
        return names[0]

    def copy(self, node: onnx.NodeProto) -> None:
        """Take over a node of another graph as it is."""
        self._nodes.append(node)

    def model(self) -> onnx.ModelProto:
        """The graph as an ONNX model of opset 24."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, list(self._weights.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="export")
        model.ir_version = IR_VERSION
        return model
