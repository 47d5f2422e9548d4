"""The house rules: which room may import which, and how large things may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ripple"

# room -> the rooms and third-party packages it may import, beside the standard library and itself
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "canvas": {"numpy"},
    "look": {"numpy", "canvas"},
    "trace": {"errors"},
    "caches": {"numpy", "canvas", "look", "errors"},
    "decoders": {"numpy", "canvas", "look", "errors"},
    "models": {"torch", "triton", "numpy", "tokenizers", "huggingface_hub", "errors", "text"},
    "text": {"transformers", "errors", "models"},
    "engine": {
        "torch",
        "triton",
        "numpy",
        "canvas",
        "look",
        "trace",
        "caches",
        "decoders",
        "models",
        "text",
        "errors",
    },
    "tasks": {"errors"},
    "benchmarks": {"math_verify", "sympy", "huggingface_hub", "pyarrow", "tasks", "errors"},
    "view": {"rich", "trace", "errors"},
    "analysis": {"matplotlib", "errors"},
    "bench": {
        "torch",
        "triton",
        "numpy",
        "canvas",
        "look",
        "trace",
        "caches",
        "decoders",
        "engine",
        "models",
        "tasks",
        "benchmarks",
        "analysis",
        "errors",
    },
    "eval": {
        "torch",
        "numpy",
        "lm_eval",
        "tqdm",
        "canvas",
        "caches",
        "decoders",
        "engine",
        "models",
        "tasks",
        "benchmarks",
        "analysis",
        "errors",
    },
    "paper": {
        "torch",
        "numpy",
        "matplotlib",
        "caches",
        "canvas",
        "decoders",
        "engine",
        "errors",
        "eval",
        "look",
        "models",
        "tasks",
        "benchmarks",
        "analysis",
        "bench",
        "trace",
    },
    "filter": {"torch", "numpy", "canvas", "look", "decoders", "engine", "errors"},
    "cli": {"rich", "*"},
}
NO_TORCH = (
    "errors",
    "canvas",
    "look",
    "trace",
    "caches",
    "decoders",
    "tasks",
    "view",
    "analysis",
    "benchmarks",
)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    """Absolute names that a module imports, wherever the statement stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            found.add(node.module)
            if node.module == "ripple":
                found.update(f"ripple.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    assert room in ROOMS, f"a new room {room!r}: give it a row in this table"
    allowed = ROOMS[room]
    for name in imported(ast.parse(path.read_text())):
        top, _, rest = name.partition(".")
        wanted = rest.split(".")[0] if top == "ripple" else top
        if wanted in sys.stdlib_module_names or wanted in ("", room) or "*" in allowed:
            continue
        assert wanted in allowed, f"{room} may not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    limit = 200 if room_of(path) == "decoders" else 300
    assert text.count("\n") <= limit, f"over {limit} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert n_lines <= 60, f"{node.name} has {n_lines} lines"


def test_the_package_imports_without_torch_or_any_extra() -> None:
    blocked = (
        "torch triton transformers rich safetensors tokenizers huggingface_hub matplotlib math_verify sympy"
    )
    blocked += " pyarrow lm_eval"
    rooms = ", ".join(f"ripple.{room}" for room in NO_TORCH)
    code = (
        f"import sys\nfor name in {blocked.split()!r}: sys.modules[name] = None\n"
        f"import ripple, {rooms}\nprint(ripple.decoder('rps').describe())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "rps\n", done.stderr


def test_no_decoder_touches_a_tensor() -> None:
    for path in (SOURCE / "decoders").glob("*.py"):
        assert not any(name.split(".")[0] == "torch" for name in imported(ast.parse(path.read_text())))


def test_no_pickle_and_no_remote_code() -> None:
    for path in modules():
        text = path.read_text()
        assert "torch.load" not in text and "import pickle" not in text
        assert "trust_remote_code=True" not in text
