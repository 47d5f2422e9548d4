"""The report drawn from a fixed result file: the golden text, figures, a page that stands alone.

`lines.jsonl` are lines of real runs of tiny-llada, four items each, thinned out. After a wanted change, write
the golden again: `python -m tests.paper.test_report`.
"""

from __future__ import annotations

import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ripple.analysis.statistics import Paired
from ripple.files import read_lines
from ripple.paper import figures, published
from ripple.paper.judge import AGREES, DIFFERS, OPEN, OTHER, SAME, higher, not_lower
from ripple.paper.judgements import judgements
from ripple.paper.line_index import LineIndex
from ripple.paper.report import write

HERE = Path(__file__).parent
LINES, GOLDEN = HERE / "lines.jsonl", HERE / "golden.md"
ALONE = ("img", "link", "script", "iframe")  # tags that load something


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    shutil.copy(LINES, folder / "lines.jsonl")
    write(folder)
    return folder


def test_the_report_is_the_golden_one(report: Path) -> None:
    pytest.importorskip("matplotlib")
    assert (report / "report.md").read_text() == GOLDEN.read_text()


def test_every_figure_comes_as_svg_and_png(report: Path) -> None:
    pytest.importorskip("matplotlib")
    names = {path.stem for path in report.glob("*.svg")}
    assert names >= {"main", "length", "lambda", "k_max", "r", "tau_pivot", "pivot", "breakdown", "caches"}
    assert names >= {"oracle", "failure", "bound"} and names == {path.stem for path in report.glob("*.png")}
    for name in names:
        assert f"]({name}.svg)" in GOLDEN.read_text()


class Tags(HTMLParser):
    """Collects what a page is made of and checks that its tags close in order."""

    VOID = ("meta", "br", "img", "link")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("href", "src", "xlink:href") and value:
                self.links.append(value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_else(report: Path) -> None:
    text = (report / "index.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == [] and not set(ALONE) & set(tags.seen)
    assert len(tags.ids) == len(set(tags.ids)), "pictures on one page must not share names"
    assert tags.seen.count("figure") == len(list(report.glob("*.svg")))
    for link in tags.links:
        assert link.startswith(("#", "data:")) and (link[0] != "#" or link[1:] in tags.ids)
    assert 'class="published"' in text, "the paper's numbers are marked"


def test_a_figure_drawn_again_is_the_same_file(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figures, "FIGURES", {"bound": figures.FIGURES["bound"]})
    figures.draw(LineIndex(read_lines(LINES)), tmp_path)
    assert (report / "bound.svg").read_bytes() == (tmp_path / "bound.svg").read_bytes()


def test_conclusions_follow_the_lines() -> None:
    """Turn the numbers round and the sentences turn with them."""
    lines = read_lines(LINES)
    before = {f.claim: f.verdict for f in judgements(LineIndex(lines))}
    fewest = next(claim for claim in before if "fewest forwards" in claim)
    assert before[fewest] == AGREES
    for line in lines:
        if line["kind"] == "summary" and line["decoder"] == "rps":
            line["nfe"] *= 100
        for pair in line.get("bound", ()):
            pair[1] = pair[2] + 1  # certify one more than was seen
    after = {f.claim: f.verdict for f in judgements(LineIndex(lines))}
    bound = next(claim for claim in before if "Proposition 1" in claim)
    assert after[fewest] == DIFFERS and (before[bound], after[bound]) == (AGREES, DIFFERS)


def test_verdicts_on_accuracy_need_evidence() -> None:
    assert higher(Paired(200, 5, 25)) == AGREES and higher(Paired(200, 25, 5)) == DIFFERS
    assert [higher(Paired(200, a, b)) for a, b in ((4, 6), (6, 4), (5, 5))] == [SAME, OTHER, OPEN]
    assert not_lower(Paired(8000, 150, 145)) == AGREES and not_lower(Paired(200, 5, 5)) == OPEN
    assert not_lower(Paired(200, 6, 4)) == OPEN and not_lower(Paired(200, 25, 5)) == DIFFERS


def test_tables_never_mix_numbers_of_items() -> None:
    lines = [line for line in read_lines(LINES) if line["kind"] == "summary"]
    model, task, length = "tiny-llada", "words", 128
    settings = [line["setting"] for line in lines if (line["task"], line["cache"]) == (task, "none")]
    more = [line | {"n": 8, "right": "ff"} for line in lines if line["setting"] in settings[:2]]
    index = LineIndex([*lines, *more])

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def describe(self) -> str:
            return self.name

    rows = index.rows(model, task, [Named(name) for name in settings], length=length)  # type: ignore[misc]
    assert len(rows) == len(settings) and {row["n"] for row in rows} == {4}
    rows = index.rows(model, task, [Named(name) for name in settings[:2]], length=length)  # type: ignore[misc]
    assert {row["n"] for row in rows} == {8}, "the larger number where both are complete"
    shorter = [line | {"length": 64} for line in lines]
    both = [("none", 64), ("none", length)]
    across = LineIndex([*lines, *more, *shorter]).across(
        model,
        task,
        [Named(name) for name in settings[:2]],  # type: ignore[misc]
        both,
    )
    assert {row["n"] for rows in across for row in rows} == {4}, "one number over all places of a table"


def test_without_matplotlib_everything_but_figures_is_written_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shutil.copy(LINES, tmp_path / "lines.jsonl")
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"lines.jsonl", "report.md", "index.html"}
    golden = GOLDEN.read_text().splitlines()
    lines = (tmp_path / "report.md").read_text().splitlines()
    missing = [line for line in lines if line.startswith("The figure `")]
    assert len(missing) == sum(line.startswith("![") for line in golden) == 12
    assert (
        missing[0]
        == "The figure `main.svg` is missing: drawing it needs matplotlib: pip install 'ripple-dllm[plots]'."
    )
    tables = [line for line in golden if line.startswith("|")]
    assert [line for line in lines if line.startswith("|")] == tables
    assert (tmp_path / "index.html").read_text().count("is missing: drawing it needs") == 12


def test_notes_beside_the_lines_come_into_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", {})  # they take seconds
    shutil.copy(LINES, tmp_path / "lines.jsonl")
    (tmp_path / "notes.md").write_text("Timed on a\nbusy machine.\n\nTwice.\n")
    write(tmp_path)
    for name in ("report.md", "index.html"):
        assert "Timed on a busy machine." in (tmp_path / name).read_text()


def test_a_models_counterpart_goes_by_its_family_not_by_its_name() -> None:
    assert published.counterpart("my-dream-of-a-llada", "llada") == "LLaDA"
    assert published.counterpart("some-folder", "dream") == "Dream"
    assert published.counterpart("GSAI-ML/LLaDA-1.5", "llada") == "LLaDA-1.5"


def test_published_numbers_agree_with_themselves() -> None:
    """Speed-ups follow from NFE and TPS to the paper's rounding; a slip in transcription would show."""
    for model, tables in published.MAIN.items():
        for benchmark, rows in tables.items():
            base = rows["default"]
            for method, row in rows.items():
                where = (model, benchmark, method)
                assert row.nfe_speedup == pytest.approx(base.nfe / row.nfe, abs=0.02), where
                assert row.tps_speedup == pytest.approx(row.tps / base.tps, rel=0.02), where
                stretch = published.LENGTH.get(model, {}).get(benchmark, {}).get(method, {}).get(256)
                if stretch is not None:
                    assert stretch == (row.accuracy, row.nfe_speedup, row.tps_speedup), where
    rps = published.MAIN["LLaDA"]["gsm8k"]["rps"]
    for field, value in (("k_max", 10), ("r", 0.1), ("tau_pivot", 0.9)):
        sweep = published.SWEEPS[field][value]
        assert (sweep.accuracy, sweep.nfe, sweep.tps) == (rps.accuracy, rps.nfe, rps.tps)
    assert sum(share for _, _, share in published.BREAKDOWN.values()) == pytest.approx(100)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as where:
        shutil.copy(LINES, Path(where) / "lines.jsonl")
        write(Path(where))
        shutil.copy(Path(where) / "report.md", GOLDEN)
