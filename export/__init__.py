"""Torch checkpoints -> ONNX voice directory, with parity gates. Run `python -m export --help`."""
