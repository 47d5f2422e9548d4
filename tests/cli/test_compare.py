"""`ripple compare`: a table of costs, and every response whole."""

from __future__ import annotations

import json
from pathlib import Path

from ripple.cli.compare import first_difference
from ripple.tasks import TASKS
from tests.cli.conftest import Cli


def test_compare(cli: Cli, checkpoint: Path) -> None:
    model = ("--model", checkpoint, "--length", 32)
    done = cli("compare", "hello", *model, "--json")
    runs = json.loads(done.out)["decoders"]
    assert [one["decoder"] for one in runs] == ["default", "confidence", "rps", "glide"]
    assert runs[0]["nfe"] == 32 and runs[0]["first_difference"] is None
    for one in runs:
        assert (
            one["nfe_speedup"] == 32 / one["nfe"] and one["nfe"] == one["nfe_normal"] + one["nfe_lookahead"]
        )
        assert one["time_speedup"] == runs[0]["seconds"] / one["seconds"]
    shown = cli("compare", "hello", *model, "--decoders", "default,default:k=2,rps/dream").out
    assert "default:k=2" in shown and "rps:tau_pivot=0.95" in shown and "2.00x" in shown


def test_a_name_means_the_preset_of_the_models_family(cli: Cli) -> None:
    done = cli(
        "compare",
        "hi",
        "--model",
        "tiny-dream",
        "--length",
        4,
        "--decoders",
        "rps,rps:lam=0.2,rps/llada",
        "--json",
    )
    names = [one["decoder"] for one in json.loads(done.out)["decoders"]]
    assert names == ["rps:tau_pivot=0.95", "rps:tau_pivot=0.95,lam=0.2", "rps"]


def test_nothing_is_cut_at_80_columns(cli: Cli, tmp_path: Path) -> None:
    """Code keeps its lines; long ones are wrapped."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(TASKS["functions"].test_items(1)[0].prompt + "\n")
    argv = (
        "compare",
        "--prompt-file",
        prompt,
        "--length",
        64,
        "--decoders",
        "rps:lam=0.1,lopa",
        "--model",
        "tiny-llada",
    )
    decoders = json.loads(cli(*argv, "--json").out)["decoders"]
    out = cli(*argv).out
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    together = "".join(out.split())
    for one in decoders:
        lines = one["text"].splitlines()
        assert len(lines) > 1 and "".join(one["text"].split()) in together
        for line in lines:
            if line.strip() and len(line) < 78:
                assert f"\n  {line.rstrip()}\n" in "\n".join(part.rstrip() for part in out.split("\n"))


def test_a_response_that_is_the_same_is_said_to_be(cli: Cli, checkpoint: Path) -> None:
    out = cli(
        "compare", "hello", "--model", checkpoint, "--length", 8, "--decoders", "default,default:k=1"
    ).out
    assert "(the same as default)" in out and "same" in out


def test_compare_unknown_decoder(cli: Cli, checkpoint: Path) -> None:
    done = cli("compare", "hello", "--model", checkpoint, "--decoders", "default,lopaa")
    assert done.code == 2 and "Did you mean 'lopa'?" in done.err
    done = cli("compare", "hello", "--model", checkpoint, "--decoders", "default,rps:lamm=1")
    assert done.code == 2 and "Did you mean 'lam'?" in done.err


def test_first_difference() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2, 3], [1, 2]) == 2
