"""Turns what a model wrote for HumanEval into the program that is tested.

Chat models answer with prose, fences and whole functions where a continuation was asked for. The papers
score them after the same clean-up: the fenced block, the longest span of lines that parses, and of that
the imports and whatever the wanted function needs.
"""

from __future__ import annotations

import ast
import warnings

FENCE = "```python\n"
MAX_LINES = 100

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


def fenced(text: str) -> str:
    """Return what stands between the first Python fence and the next fence, or all of the text."""
    _, opened, rest = text.partition(FENCE)
    return rest.split("```", 1)[0] if opened else text


def program(prompt: str, completion: str, *needed: str) -> str:
    """Return the cleaned program for a prompt and its completion: what the needed names reach."""
    return keep_needed(longest_valid(plain(f"{prompt}\n{fenced(completion)}")), *needed)


def plain(text: str) -> str:
    """Return the text with spaces for tabs and one sort of newline."""
    text = text.replace("\t", "    ").replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\n") + "\n"


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a text, or nothing when it is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in a model's strings are not our warnings
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


def longest_valid(text: str) -> str:
    """Return the span of the first lines that parses and has the most lines with something on them."""
    lines = text.split("\n")[:MAX_LINES]
    full = [0]
    for line in lines:
        full.append(full[-1] + bool(line.strip()))
    spans = {
        # Blank lines at either end change neither the parse nor the count: one span stands for them all.
        # A span that opens with an indented line never parses.
        (i, j): full[j] - full[i]
        for i in range(len(lines))
        for j in range(i + 1, len(lines) + 1)
        if lines[i].strip() and lines[j - 1].strip() and not lines[i][0].isspace()
    }
    # The longest first: nearly always the first try is the answer, and shorter spans are never parsed.
    for i, j in sorted(spans, key=lambda span: (-spans[span], span)):
        piece = "\n".join(lines[i:j])
        if parsed(piece) is not None:
            return piece
    return ""


def keep_needed(text: str, *needed: str) -> str:
    """Return the imports and the definitions that the needed names reach.

    A function without a `return` is left out: that is how the bare signature of the prompt goes when the
    completion repeats the whole function.
    """
    tree = parsed(text)
    if tree is None:
        return text
    imports: list[ast.stmt] = []
    defined: dict[str, Definition] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(isinstance(part, ast.Return) for part in ast.walk(node)):
                _define(defined, node.name, node)
        elif isinstance(node, ast.ClassDef):
            _define(defined, node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for name in _targets(node):
                _define(defined, name, node)
    wanted = _reach(needed, defined)
    kept = dict.fromkeys(node for name, node in defined.items() if name in wanted)
    return "\n".join(ast.unparse(node) for node in (*imports, *kept))


def _define(defined: dict[str, Definition], name: str, node: Definition) -> None:
    defined.pop(name, None)  # the last definition holds, at its own place in the order
    defined[name] = node


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Return the names that an assignment sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def names_in(text: str) -> list[str]:
    """Return the names that a piece of code uses, or none when it is no Python."""
    tree = parsed(text)
    return [part.id for part in ast.walk(tree) if isinstance(part, ast.Name)] if tree else []


def _reach(needed: tuple[str, ...], defined: dict[str, Definition]) -> set[str]:
    """Return the defined names that are needed, directly or not."""
    wanted: set[str] = set()
    waiting = list(needed)
    while waiting:
        name = waiting.pop()
        if name in wanted or name not in defined:
            continue
        wanted.add(name)
        waiting += [part.id for part in ast.walk(defined[name]) if isinstance(part, ast.Name)]
    return wanted
