"""Streaming text-to-speech engine: numpy and ONNX Runtime only. Import from the submodules."""
