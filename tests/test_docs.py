"""The documents are true: their examples run, their links lead somewhere, and they stay short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.decoders import DECODERS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def examples(page: str, language: str = "python") -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not re.match(r"\w+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_is_short_and_performance_fits_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len((ROOT / "docs" / "performance.md").read_text().split()) <= 1000


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/api.md"])
def test_the_first_example_runs_offline(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(examples(page)[0], page, "exec"), {"__name__": "example"})
    out = capsys.readouterr().out
    assert "####" in out and re.search(r"\d+ end$", out.strip()), out


def test_every_decoder_of_the_readme_exists_and_the_table_is_the_results_one() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", readme, re.MULTILINE)
    models = re.findall(r"(tiny-\w+): accuracy \| NFE", readme)
    assert len(rows) >= 8 and models[:2] == ["tiny-llada", "tiny-dream"]
    results = (ROOT / "results" / "decoders-gpu.md").read_text()
    for name, cells in rows:
        assert name in DECODERS
        _, *told = (cell.strip(" *") for cell in cells.split("|"))
        for model, accuracy, nfe in zip(models, told[::2], told[1::2], strict=True):
            table = results.split(f"### {model}, cache none, mean over 4 families")[1].split("###")[0]
            row = next(line for line in table.splitlines() if re.match(rf"\| {name}\b", line))
            assert accuracy.split("*")[0].split()[0] in row and nfe in row, (name, model, row)


def test_the_decoder_of_the_guide_is_a_decoder(tmp_path: Path, engine: ripple.Engine) -> None:
    source = examples("docs/add-a-decoder.md")[0]
    path = ROOT / "src" / "ripple" / "decoders" / "spread.py"
    config = ["--config", str(ROOT / "pyproject.toml"), "--stdin-filename", str(path), "-"]
    for command in (["check"], ["format", "--check"]):
        ruff = [str(Path(sys.executable).parent / "ruff"), *command, *config]
        done = subprocess.run(ruff, input=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    names: dict[str, Any] = {"__name__": "spread"}
    module = type(sys)("spread")
    sys.modules["spread"] = module
    try:
        exec(compile(source, "spread.py", "exec"), vars(module))
        names = vars(module)
        spread = names["Spread"](tau_near=0.6)
        assert spread.describe() == "spread:tau_near=0.6"
        plain = engine.generate([1, 2, 3], decoder="confidence", length=24, block=8)
        wide = engine.generate(
            [1, 2, 3], decoder=names["Spread"](tau_near=0.01), length=24, block=8, cache="dual"
        )
        assert wide.is_full and wide.nfe < plain.nfe
        assert engine.generate([1], decoder=ripple.RPS(standard=spread), length=16).is_full
    finally:
        del sys.modules["spread"]
