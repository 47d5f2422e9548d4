"""The house rules: which room may import which, and how large things may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ripple"
OWN = ("errors", "fields", "files")  # what every room may import

# room -> the rooms and third-party packages it may import, beside the standard library, OWN and itself
ROOMS: dict[str, str] = {
    "errors": "",
    "fields": "",
    "files": "",
    "measurement": "",
    "plugins": "",
    "progress": "rich",
    "canvas": "numpy",
    "look": "numpy canvas",
    "trace": "",
    "schedule": "trace",
    "decoders": "numpy safetensors canvas look plugins",
    "caches": "numpy canvas look plugins",
    "options": "caches decoders",
    "listing": "decoders plugins",
    "tokenizer": "transformers tokenizers",
    "models": "torch triton numpy safetensors huggingface_hub canvas tokenizer",
    "engine": "torch triton numpy canvas look trace decoders caches options tokenizer models viewer",
    "tasks": "math_verify sympy huggingface_hub pyarrow",
    "analysis": "matplotlib",
    "view": "rich trace",
    "viewer": "trace view",
    "check": "torch engine models options progress",
    "bench": "torch triton numpy canvas look trace schedule decoders caches options models engine analysis"
    " check measurement progress paper",
    "filter": "torch numpy safetensors canvas look decoders options engine",
    "pool": "torch ray decoders options engine",
    "eval": "torch numpy lm_eval tqdm canvas look trace schedule decoders caches options models engine tasks"
    " analysis measurement pool progress",
    "paper": "torch numpy matplotlib canvas look trace decoders caches options models engine tasks analysis"
    " eval pool progress",
    "batch": "pyarrow options engine pool progress",
    "chat": "trace options engine",
    "server": "numpy fastapi starlette pydantic pydantic_core prometheus_client uvicorn canvas trace decoders"
    " options tokenizer engine caches listing models tasks viewer",
    "replicas": "ray starlette fastapi prometheus_client options engine pool server",
    "cli": "*",
}
NO_TORCH = (
    "errors", "fields", "files", "measurement", "plugins", "progress", "canvas", "look", "trace", "decoders",
    "schedule", "caches", "options", "tasks", "analysis", "view", "viewer", "listing", "chat",
)  # fmt: skip
DECODER_LINES, FILE_LINES, FUNCTION_LINES = 200, 400, 60
SAME_LINES = 6  # that may not stand twice, except within these folders and for these reasons
TWICE = {
    "models/families": "a family is one self-contained file: facts that agree by chance are not shared",
    "chat": "a protocol and the classes that follow it state the same signature",
}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Absolute names that a module imports, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def that_runs(tree: ast.Module) -> ast.Module:
    """A module without what stands there for type checkers alone: a type may be named from below."""

    class Running(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Running().visit(ast.parse(ast.unparse(tree)))  # type: ignore[no-any-return]


def test_imports_point_one_way() -> None:
    wrong = []
    for path, tree in trees().items():
        room = room_of(path)
        if room in ("__init__", "__main__"):
            continue
        assert room in ROOMS, f"a new room {room!r}: give it a row in this table"
        allowed = {*ROOMS[room].split(), *OWN, room, "ripple"}
        for name in imported(tree):
            top, _, rest = name.partition(".")
            wanted = rest.split(".")[0] if top == "ripple" and rest else top
            known = wanted in sys.stdlib_module_names or wanted in allowed or "*" in allowed
            if not known and (top != "ripple" or wanted in ROOMS):
                wrong.append(f"{name_of(path)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_room_imports_itself_by_a_detour() -> None:
    graph = {room: {name for name in allowed.split() if name in ROOMS} for room, allowed in ROOMS.items()}
    assert_acyclic(graph)


def test_no_file_imports_itself_by_a_detour() -> None:
    modules = {"ripple." + name_of(path).removesuffix(".py").replace("/", "."): path for path in trees()}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        graph[name] = {wanted for wanted in imported(that_runs(trees()[path])) if wanted in modules} - {name}
        # Importing a module runs the packages that hold it; a package may import its own parts.
        graph[name] -= {".".join(name.split(".")[:n]) for n in range(1, name.count(".") + 1)}
    assert_acyclic(graph)


def assert_acyclic(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join([*way[way.index(name) :], name])
        if name not in done:
            for wanted in graph.get(name, ()):
                visit(wanted, (*way, name))
            done.add(name)

    for name in list(graph):
        visit(name, ())


def test_files_and_functions_stay_small() -> None:
    wrong = []
    for path, tree in trees().items():
        limit = DECODER_LINES if room_of(path) == "decoders" else FILE_LINES
        n_lines = path.read_text().count("\n")
        if n_lines > limit:
            wrong.append(f"{name_of(path)} has {n_lines} lines, {limit} are allowed")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if n_lines > FUNCTION_LINES:
                    wrong.append(f"{name_of(path)}: {node.name} has {n_lines} lines")
    assert not wrong, "\n".join(wrong)


def own_lines(path: Path) -> list[str]:
    """A file's lines but for blank ones and, in Python, imports."""
    lines = dict(enumerate(path.read_text().splitlines(), start=1))
    if path in trees():
        for node in ast.walk(trees()[path]):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    lines.pop(number, None)
    return [line.strip() for line in lines.values() if line.strip()]


def test_no_six_lines_stand_twice_without_a_reason() -> None:
    places: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in (".py", ".cu", ".cuh", ".js", ".css"):
            lines = own_lines(path)
            for at in range(len(lines) - SAME_LINES + 1):
                places[tuple(lines[at : at + SAME_LINES])].append(path.relative_to(SOURCE))
    twice = {
        (*map(str, where), lines[0])
        for lines, where in places.items()
        if len(where) > 1 and not any(all(path.is_relative_to(room) for path in where) for room in TWICE)
    }
    assert not twice, twice


def test_a_type_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name_of(path))
            elif (alias := alias_of(node)) is not None and alias[1] not in places[alias[0]]:
                places[alias[0]].append(alias[1])  # the same type may be abbreviated in several files
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, twice


def alias_of(node: ast.stmt) -> tuple[str, str] | None:
    """Return the name of a type that a file's statement gives, and what it stands for."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    name = node.targets[0].id
    is_type = name[0].isupper() and not name.isupper() and "_" not in name
    return (name, ast.unparse(node.value)) if is_type else None


def test_the_package_imports_without_torch_or_any_extra() -> None:
    blocked = (
        "torch triton transformers rich safetensors tokenizers huggingface_hub matplotlib math_verify sympy"
        " pyarrow lm_eval shtab"
    )
    rooms = ", ".join(f"ripple.{room}" for room in NO_TORCH)
    code = (
        f"import sys\nfor name in {blocked.split()!r}: sys.modules[name] = None\n"
        f"import ripple, {rooms}\nprint(ripple.decoder('rps').describe())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "rps\n", done.stderr


def test_no_decoder_touches_a_tensor() -> None:
    for path, tree in trees().items():
        if room_of(path) == "decoders":
            assert not any(name.split(".")[0] == "torch" for name in imported(tree)), path


def test_no_pickle_and_no_remote_code() -> None:
    for path in trees():
        text = path.read_text()
        assert "torch.load" not in text and "import pickle" not in text, path
        assert "trust_remote_code=True" not in text, path


def test_no_assert_guards_against_callers() -> None:
    """Asserts vanish under -O: decoders and canvases raise instead."""
    for path, tree in trees().items():
        if room_of(path) in ("canvas", "look", "decoders", "caches", "options", "fields"):
            assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), path
