"""Denormals, numbers under 1e-38: softmax gives them to masked positions, and arithmetic on them takes a third of
attention's time."""

from __future__ import annotations

import ctypes
import platform

FLUSH = 0x8040  # MXCSR: results that are denormal become zero, and operands that are count as zero
MXCSR = 7  # its place in glibc's fenv_t, the last of eight words
POSSIBLE = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"


def flush() -> None:
    """This thread, no other, takes denormals as zero from now on; where it is not `POSSIBLE` nothing changes.

    ONNX Runtime's own option for this changes the thread that loads a process's first graph, which may be anyone's.
    """
    if POSSIBLE:
        environment, libm = (ctypes.c_uint32 * (MXCSR + 1))(), ctypes.CDLL("libm.so.6")
        libm.fegetenv(environment)
        environment[MXCSR] |= FLUSH
        libm.fesetenv(environment)
