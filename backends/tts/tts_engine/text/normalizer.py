"""Written text to spoken text (first version: Unicode only; numbers and abbreviations follow)."""

from __future__ import annotations

import re
import unicodedata

from anyascii import anyascii

_ELLIPSIS_INSIDE = re.compile(r"(?:…|\.(?:\s?\.)+)(?=\s*[a-z])")
_ELLIPSIS = re.compile(r"…|\.(?:\s?\.)+")


class Normalizer:
    """Pure functions on strings; never raises on a str."""

    def clean(self, text: str) -> str:
        text = unicodedata.normalize("NFKC", text).replace("’", "'").replace("‘", "'")
        return _ELLIPSIS.sub(".", _ELLIPSIS_INSIDE.sub(",", text))

    def normalize(self, text: str) -> str:
        return anyascii(text.replace("—", " -- ").replace("–", " -- "))
