"""One cluster and all that evaluation asks of it, as a process of its own: `python -m ... MODEL OUT`."""

from __future__ import annotations

import sys
from pathlib import Path

from ripple.decoders import Confidence, Default
from ripple.eval.facts import choose_model
from ripple.eval.remote import RemoteEvaluation
from ripple.eval.runner import evaluate
from ripple.eval.sweep import Piece, TaskSource, summaries
from ripple.eval.workers import run_all
from ripple.files import write_lines
from ripple.options import Options
from ripple.pool.cluster import Cluster
from ripple.tasks import find_task

OPTIONS = Options("confidence", length=32)
N = 12


def pieces(model: str) -> list[Piece]:
    settings = (Confidence(), Default(k=4))
    return [
        Piece(choose_model(model), task, "none", 16, 2, settings, TaskSource(), "cpu")
        for task in ("words", "algebra")
    ]


def main(model: str, out: Path) -> None:
    with Cluster(2, 2).joined() as workers:
        recipe = workers.recipe(model, {"device": "cpu"}, 3)
        run = RemoteEvaluation.prepare(workers, recipe, find_task("words"), OPTIONS, "small", chat=False)
        evaluate(run, out / "items.jsonl", N)
        write_lines(out / "summaries.jsonl", run_all(summaries, pieces(model), workers))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
