"""`ripple train-filter`: trains Learn2PD's filter on decodings of the model at hand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripple.cli.console import print_json
from ripple.cli.options import MODEL, add_model, load_arguments
from ripple.cli.running import DEFAULT_MODEL
from ripple.errors import RippleError
from ripple.files import check_new_file
from ripple.progress import Progress

HELP = "train the filter of the decoder learn2pd on decodings of a model"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> None:
    """Declare the options of `ripple train-filter`."""
    add_model(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the filter goes")
    parser.add_argument("--items", type=int, default=32, help="prompts to decode (default 32)")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="one per line (else generated tasks)")
    parser.add_argument("--length", type=int, default=128, help="response positions (default 128)")
    parser.add_argument("--block", type=int, default=32, help="positions per block (default 32)")
    parser.add_argument(
        "--reference",
        default="confidence",
        help="decoder whose tokens count as final (default confidence; the paper's `default` takes longer)",
    )
    parser.add_argument("--steps", type=int, default=600, help="training steps (default 600)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and of the split (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Decode, train, write the file and say how good the filter is."""
    from ripple.decoders import family_decoder
    from ripple.engine.load import load
    from ripple.eval.facts import choose_model
    from ripple.filter import traces, train

    for name in ("items", "length", "block", "steps"):
        if getattr(args, name) < 1:
            raise RippleError(f"--{name} must be at least 1, got {getattr(args, name)}.")
    check_new_file(args.out, "the filter")
    model = choose_model(args.model or DEFAULT_MODEL)
    reference = family_decoder(args.reference, model.family)
    prompts = _lines(args.prompts, args.items) if args.prompts else _task_prompts(args.items)
    where = {name: value for name in MODEL if (value := getattr(args, name)) is not None}
    engine = load(model.given, max_batch=8, **load_arguments(where))
    with Progress("prompts", len(prompts)) as progress:
        looks = traces.collect(engine, prompts, args.length, args.block, reference, progress.update)
    with Progress("training steps", args.steps) as progress:
        made = train.fit(looks, args.steps, args.seed, progress.update)
    settings = {
        "model": model.name, "block": args.block, "length": args.length, "items": len(prompts),
        "reference": reference.describe(), "steps": args.steps, "seed": args.seed, "looks": made.n_looks,
    }  # fmt: skip
    train.save(made.filter, args.out, settings)
    facts: dict[str, Any] = {name: round(getattr(made, name), 4) for name in made._fields[1:]}
    if args.json:
        print_json({"out": str(args.out), **settings, **facts})
    else:
        print(f"{args.out}: {made.n_looks} looks; loss {made.loss_first:.3f} -> {made.loss_last:.3f}")
        share, other = 100 * made.held_out_accuracy, 100 * made.held_out_majority
        print(f"on prompts held out: right at {share:.1f} % of the masks (always one answer: {other:.1f} %)")
        print(f"use it: ripple generate --decoder learn2pd --filter {args.out} ...")
    return 0


def _task_prompts(n: int) -> list[str]:
    """Return prompts of the training streams of all task families, one family after another."""
    from ripple.tasks import TASKS

    families = list(TASKS.values())
    return [families[i % len(families)].generate("train", i // len(families)).prompt for i in range(n)]


def _lines(path: Path, n: int) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RippleError(f"Cannot read the prompts {path}: {reason}.") from None
    prompts = [line for line in lines if line.strip()][:n]
    if not prompts:
        raise RippleError(f"{path} holds no prompts; it should have one per line.")
    return prompts
