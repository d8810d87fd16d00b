"""Soak: many mixed streams against the real server, and what must be true afterwards (`make soak`)."""
