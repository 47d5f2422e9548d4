"""Decoders and caches of other packages, with a package that is really built and installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ripple

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "ripple-plugin-sample"
version = "1.0"

[project.entry-points."ripple.decoders"]
leftmost = "ripple_plugin_sample:Leftmost"
absent = "ripple_plugin_sample:Absent"
function = "ripple_plugin_sample:function"
rps = "ripple_plugin_sample:Usurper"
other_name = "ripple_plugin_sample:Leftmost"

[project.entry-points."ripple.caches"]
lazy = "ripple_plugin_sample:Lazy"

[tool.setuptools]
py-modules = ["ripple_plugin_sample"]
"""
MODULE = '''
from dataclasses import dataclass

import numpy as np

from ripple.caches import DualCache
from ripple.decoders import RPS, SimpleRule
from ripple.fields import param


@dataclass(frozen=True)
class Leftmost(SimpleRule):
    """Commit the n leftmost positions."""

    name = "leftmost"
    paper = "a sample"

    n: int = param(1, "positions per step", within="[1, inf)")

    def pick(self, look):
        return np.arange(len(look)) < self.n, "standard"


@dataclass(frozen=True)
class Usurper(RPS):
    """Wants a name that is taken."""

    name = "rps"


@dataclass(frozen=True)
class Lazy(DualCache):
    """Refresh every fourth forward unless told otherwise."""

    name = "lazy"

    refresh: int | None = param(4, "recompute everything at every n-th forward", within="[1, inf)")


def function():
    pass
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the sample package is installed into."""
    source, target = tmp_path_factory.mktemp("sample"), tmp_path_factory.mktemp("installed")
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "ripple_plugin_sample.py").write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, capture_output=True)
    return target


def python(installed: Path, code: str) -> str:
    """Run code where the sample package is installed."""
    path = os.pathsep.join([str(installed), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_decoder_and_cache_work_by_name(installed: Path, folders: dict[str, Path]) -> None:
    code = f"""
import ripple
engine = ripple.load({str(folders["llada"])!r}, device="cpu", dtype="float32")
how = {{"decoder": "leftmost:n=2", "cache": "lazy:keep_prompt=true", "length": 8, "block": 4}}
result = engine.generate([1, 2], trace=True, **how)
print(result.nfe, result.is_full, [e.data["pos"] for e in result.trace if e.kind == "commit"])
print(ripple.decoder("rps:standard=leftmost").describe(), ripple.decoder("rps").k_max)
print(ripple.cache("lazy").refresh, ripple.options.Options.of({{"decoder": "leftmost", "n": 3}}).decoder)
"""
    assert python(installed, code).splitlines() == [
        "4 True [[2, 3], [4, 5], [6, 7], [8, 9]]", "rps:standard=leftmost 10", "4 leftmost:n=3"
    ]  # fmt: skip


def test_broken_classes_are_named_and_harm_nothing_else(installed: Path) -> None:
    code = """
import ripple
from ripple.decoders import decoder_plugins
plugins = decoder_plugins()
print(sorted(plugins.classes))
for name in sorted(plugins.failures): print(name, plugins.failures[name])
for name in ("absent", "leftmst"):
    try: ripple.decoder(name)
    except ripple.RippleError as error: print(error)
"""
    classes, *lines = python(installed, code).splitlines()
    assert classes == "['leftmost']"
    assert lines[0].startswith("absent ripple_plugin_sample:Absent cannot be imported: AttributeError")
    assert lines[1:4] == [
        "function ripple_plugin_sample:function is no dataclass derived from Decoder",
        "other_name ripple_plugin_sample:Leftmost calls itself 'leftmost' and is registered as 'other_name'",
        "rps ripple_plugin_sample:Usurper wants the name 'rps', which is taken",
    ]
    assert lines[4].startswith("The decoder 'absent' is installed but broken: ")
    assert "Did you mean 'leftmost'?" in lines[5]


def test_without_other_packages_nothing_is_offered() -> None:
    assert not ripple.decoders.decoder_plugins().classes and not ripple.caches.cache_plugins().failures
