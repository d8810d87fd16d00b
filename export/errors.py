"""What stops an export, told in one sentence."""

from __future__ import annotations


class ExportError(Exception):
    """The checkpoint cannot be exported, or the exported graph failed a gate."""
