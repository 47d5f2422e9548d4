"""What the model is shown, as goldens on rows of our own; and the protocol that every runner uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ripple.errors import RippleError
from ripple.tasks import BENCHMARKS, Task, cut, open_benchmark
from ripple.tasks.published.gsm8k import Gsm8k, choose
from tests.tasks.published import rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return rows.folder(tmp_path / "data")


def test_gsm8k_prompt(data: Path) -> None:
    bench = Gsm8k.open(data, 2, "first")
    assert bench.generate("test", 0).prompt == (
        "Question: Ada plants 2 rows of 2 beans. How many beans?\nAnswer: 2*2=4\n#### 4\n\n"
        "Question: Ada plants 3 rows of 3 beans. How many beans?\nAnswer: 3*3=9\n#### 9\n\n"
        "Question: Bo has 3 boats with 4 oars each. How many oars?\nAnswer:"
    )
    assert bench.generate("test", 1).answer == "1,500"
    assert bench.stops == ("Question:", "</s>", "<|im_end|>")
    assert open_benchmark("gsm8k", data).shots == 5


def test_the_harness_draws_other_examples_for_each_item(data: Path) -> None:
    # Random(1234).sample, one draw per item: numbers taken from the harness 0.4.13 on a pool of 7473.
    assert choose("harness", 2, 7473, 5)[0] == [6374, 3610, 957, 61, 742]
    assert choose("harness", 3, 7473, 5)[:2] == choose("harness", 2, 7473, 5)  # a limit changes nothing
    first, second = open_benchmark("gsm8k", data).test_items()
    assert first.prompt.count("Question:") == second.prompt.count("Question:") == 6
    assert first.prompt.split("Question: Bo")[0] != second.prompt.split("Question: Cy")[0]
    with pytest.raises(RippleError, match=r"Unknown sampler 'frist'\. Did you mean 'first'"):
        Gsm8k.open(data, sampler="frist")


def test_math500_prompt(data: Path, tmp_path: Path) -> None:
    assert open_benchmark("math500", data).generate("test", 0).prompt == (
        "Problem:\nAdd $1$ and $2$.\n\nSolution:"
    )
    shots = rows.write(tmp_path / "shots.jsonl", rows.MATH_SHOTS)
    bench = open_benchmark("math500", data, 1, shots_file=shots)
    assert bench.generate("test", 1).prompt == (
        "Problem:\nDouble $4$.\n\nSolution: $\\boxed{8}$.\n"
        "Final Answer: The final answer is $8$. I hope it is correct.\n\n"
        "Problem:\nHalve $3$.\n\nSolution:"
    )
    assert bench.stops == ("Problem:",) and bench.generate("test", 1).kind == "Prealgebra, level 2"
    with pytest.raises(RippleError, match="0 to 2 worked examples, not 4"):
        open_benchmark("math500", data, shots_file=shots)
    with pytest.raises(RippleError, match=r"not shipped with ripple.*--shots-file"):
        open_benchmark("math500", data, 4)
    with pytest.raises(RippleError, match=r"gsm8k takes no file of worked examples .*; only math500"):
        open_benchmark("gsm8k", data, shots_file=shots)


def test_humaneval_prompt(data: Path) -> None:
    bench = open_benchmark("humaneval", data)
    assert bench.generate("test", 0).prompt == rows.HUMANEVAL[0]["prompt"]
    assert bench.generate("test", 0).tests.endswith("\ncheck(total)")
    assert bench.stops_for(chat=False) == ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
    assert bench.stops_for(chat=True) == ()
    with pytest.raises(RippleError, match="humaneval can show 0 to 0 worked examples, not 2"):
        open_benchmark("humaneval", data, 2)


def test_mbpp_prompt(data: Path) -> None:
    bench = open_benchmark("mbpp", data, 1)
    head = "You are an expert Python programmer, and here is your task: Write a function to add"
    assert bench.generate("test", 0).prompt == (
        f"{head} 2. Your code should pass these tests:\n\n"
        "assert add(0) == 2\nassert add(1) == 3\nassert add(2) == 4\n[BEGIN]\n"
        "def add(x):\r\n  return x + 2\n[DONE]\n\n"
        f"{head} 11. Your code should pass these tests:\n\n"
        "assert add(0) == 11\nassert add(1) == 12\nassert add(2) == 13\n[BEGIN]\n"
    )
    assert bench.size == 2 and bench.stops == ("[DONE]",)  # ids 11 and 12; 600 is no test row
    assert open_benchmark("mbpp", data).generate("test", 0).prompt.count("[DONE]") == 3


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_a_task(name: str, data: Path) -> None:
    bench: Task = open_benchmark(name, data, allow_code=True)
    items = bench.test_items()
    assert [item.id for item in items] == [f"{name}/test/{i}" for i in range(2)]
    assert bench.name == name and bench.test_items(1) == items[:1] and bench.generate("test", 1) == items[1]
    if name != "mbpp":  # there the second row needs set-up code, which the headline mark leaves out
        assert bench.score_many(items, [item.solution for item in items], 1)[0]
    with pytest.raises(RippleError, match="items 0 to 1, not 2"):
        bench.generate("test", 2)
    with pytest.raises(RippleError, match="Unknown stream"):
        bench.generate("train", 0)


def test_stops_cut_one_after_the_other() -> None:
    assert cut("one STOP two END three", ("END", "STOP")) == "one "
    assert cut("nothing", ("STOP", "")) == "nothing"


def test_an_unknown_benchmark_names_the_nearest(data: Path) -> None:
    with pytest.raises(RippleError, match=r"Unknown benchmark 'gsm8'\. Did you mean 'gsm8k'"):
        open_benchmark("gsm8", data)
