"""Who may import whom: the dependency directions of docs/ARCHITECTURE.md, read from every import in the source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Where each part lives, and the name under which its modules are imported.
ROOTS = {
    "tts_engine": "backends/tts/tts_engine",
    "tts_client": "client/tts_client",
    "backends.launcher": "backends/launcher",
    "export": "export",
    "training": "training",
    "loadtest": "loadtest",
}
BACKEND = ("model", "stream", "watch", "wire", "metrics")  # in backends/tts, where Triton puts them on the path

# What of ours a part may import besides itself.
DATA = tuple(
    f"tts_engine.{name}" for name in ("chunk", "config", "errors", "item", "prompt", "request", "text", "voice")
)
ALLOWED: dict[str, tuple[str, ...]] = {
    "tts_engine": (),
    "backend": ("tts_engine",),
    "tts_client": (),
    "backends.launcher": (),
    "export": (*DATA, "tts_engine.speculative", "training.models"),  # drafts: groups are built at export
    "training": DATA,
    "loadtest": ("tts_client",),
}
# These judge the served engine itself.
EXCEPTIONS = {
    "training.evaluate": ("tts_engine.engine",),
    "training.speculation": ("tts_engine.engine", "tts_engine.speculative"),
}

# The engine from the ground up; a module imports from its own layer and those below. No cycles anywhere.
ENGINE_LAYERS = (
    ("data", ("errors", "config", "request", "chunk", "item", "prompt", "text.sentence")),
    ("text and runtime", ("text", "session", "denormals", "kv_cache", "voice", "sampling", "speculative")),
    ("lanes", ("lanes",)),
    ("state", ("language_model", "stats", "pool", "scheduler")),
    ("proposers", ("proposers",)),
    ("modules", ("modules",)),
    ("overlap", ("overlap",)),
    ("engine", ("engine",)),
    ("its twin", ("twin",)),
)

# The extras of pyproject.toml that a part's libraries must be declared in.
EXTRAS = {
    "tts_engine": ("serve",),
    "backend": ("serve",),
    "backends.launcher": ("serve",),
    "tts_client": ("client",),
    "export": ("export", "serve"),
    "training": ("train", "evaluate", "serve"),
    "loadtest": ("loadtest",),
}
# Brought along by what is declared, given by Triton, or asked for only where it is there.
UNDECLARED = {
    "tts_client": {"numpy", "grpc", "sounddevice"},
    "loadtest": {"numpy", "grpc"},
    "backend": {"triton_python_backend_utils"},
    "export": {"tensorrt"},
}


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its import name."""
    found = {name: ROOT / "backends" / "tts" / f"{name}.py" for name in BACKEND}
    for name, folder in ROOTS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((name, *(part for part in parts if part != "__init__")))] = path
    return found


def part(module: str) -> str:
    if module.split(".")[0] in BACKEND:
        return "backend"
    return next(name for name in ROOTS if within(module, name))


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@cache
def imports(module: str) -> frozenset[str]:
    """All that a module imports, at any depth; ours as full module names, libraries by their first name."""
    names = set()
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports in full"
            base = node.module or ""
            # `from package import module` names the module, `from module import thing` only the module.
            names |= {f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names}
    ours = {name for name in names if name in modules()}
    return frozenset(ours | {name.split(".")[0] for name in names - ours})


def ours(module: str) -> set[str]:
    return {name for name in imports(module) if name in modules()}


def test_the_source_is_found() -> None:
    parts = {part(module) for module in modules()}
    assert {"tts_engine", "backend", "tts_client", "backends.launcher", "export", "training"} <= parts
    assert "tts_engine.request" in ours("tts_engine.engine")


@pytest.mark.parametrize("module", sorted(modules()))
def test_parts_import_only_what_they_may(module: str) -> None:
    allowed = (part(module), *ALLOWED[part(module)], *EXCEPTIONS.get(module, ()))
    if part(module) == "backend":
        allowed += BACKEND
    wrong = {name for name in ours(module) if not any(within(name, package) for package in allowed)}
    assert not wrong, f"{module} may not import {', '.join(sorted(wrong))}"


def layer(module: str) -> int:
    inner = module.removeprefix("tts_engine").removeprefix(".")
    for index, (_, names) in enumerate(ENGINE_LAYERS):
        if any(within(inner, name) for name in names):
            return index
    raise AssertionError(f"give {module} a layer in ENGINE_LAYERS")


@pytest.mark.parametrize("module", [name for name in sorted(modules()) if name.startswith("tts_engine.")])
def test_the_engine_is_layered(module: str) -> None:
    above = {name for name in ours(module) if name != "tts_engine" and layer(name) > layer(module)}
    assert not above, f"{module} ({ENGINE_LAYERS[layer(module)][0]}) may not import {', '.join(sorted(above))}"


def test_there_are_no_cycles() -> None:
    graph = {module: ours(module) - {module} for module in modules()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("module", [name for name in sorted(modules()) if part(name) in EXTRAS])
def test_libraries_are_declared_for_their_part(module: str) -> None:
    """No torch where it serves, nothing that the extra does not install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [line for extra in EXTRAS[part(module)] for line in project[extra]]
    declared = {normal(re.split(r"[\[=<>~ ]", line)[0]) for line in lines}
    libraries = {name for name in imports(module) if name not in modules() and name not in sys.stdlib_module_names}
    undeclared = {
        name
        for name in libraries - UNDECLARED.get(part(module), set())
        if not {normal(dist) for dist in distributions().get(name, [name])} & declared
    }
    assert not undeclared, f"{module}: declare {', '.join(sorted(undeclared))} in {EXTRAS[part(module)]}"


@cache
def distributions() -> Mapping[str, list[str]]:
    """Names of the packages on the index, by the name that is imported."""
    return packages_distributions()


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
