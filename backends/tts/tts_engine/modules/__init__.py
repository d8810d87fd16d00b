"""The engine's modules: each `run(items)` serves all items that wait for it as one batch."""
