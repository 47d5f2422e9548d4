"""GSM8K rows of our own, and harness tasks over them that include the harness's stock configuration.

Run as a script it evaluates one task with the harness and writes the outcome, for tests that need processes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ripple.tasks import TASKS

N_TEST, N_TRAIN = 4, 6
CHOICES = """task: own_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {root}/gsm8k/test.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_choice: ["1", "22"]
doc_to_target: 0
metric_list:
  - metric: acc
"""
STOCK = """include: {stock}
task: own_gsm8k
tag: null
dataset_path: json
dataset_name: null
dataset_kwargs:
  data_files:
    train: {root}/gsm8k/train.jsonl
    test: {root}/gsm8k/test.jsonl
"""


def write(root: Path) -> Path:
    """Write rows that the embedded models can solve, in GSM8K's format, and the tasks over them."""
    import lm_eval

    words = TASKS["words"]
    splits = {
        "test": words.test_items(N_TEST),
        "train": [words.generate("train", index) for index in range(N_TRAIN)],
    }
    folder = root / "gsm8k"
    folder.mkdir(parents=True)
    for name, items in splits.items():
        rows = [
            {"question": item.prompt.split("Question: ")[1].split("\nAnswer")[0], "answer": item.solution}
            for item in items
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stock = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    (root / "own_gsm8k.yaml").write_text(STOCK.format(root=root, stock=stock))
    (root / "own_choice.yaml").write_text(CHOICES.format(root=root))
    return root


def evaluate(root: Path, model: Any, tasks: list[str], **how: Any) -> dict[str, Any] | None:
    """Run the harness on tasks of `root` alone, which is much faster than reading its own thousands."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(root), include_defaults=False)
    report = simple_evaluate(model=model, tasks=tasks, task_manager=manager, bootstrap_iters=0, **how)
    assert report is None or isinstance(report, dict)
    return report


def outcome(report: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on who computed it: every prompt, response and score."""
    rows = {
        task: sorted([r["doc_id"], r["filter"], str(r["arguments"]), str(r["resps"])] for r in samples)
        for task, samples in report["samples"].items()
    }
    scores = {
        task: {k: v for k, v in s.items() if "stderr" not in k} for task, s in report["results"].items()
    }
    return {"rows": rows, "scores": scores, "generated": report["config"]["ripple"]["generated"]}


if __name__ == "__main__":
    from ripple.eval.harness import register
    from ripple.eval.processes import leave

    register()
    root, arguments, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    result = evaluate(
        root, "ripple", ["own_gsm8k", "own_choice"], model_args=arguments, num_fewshot=1, batch_size=4
    )
    leave()
    if result is not None:
        out.write_text(json.dumps(outcome(result)))
