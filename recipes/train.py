"""Trains an embedded model: autoregressively for about a minute, then as a masked-diffusion model.

    python recipes/train.py --model tiny-llada --minutes 9.5 --out build/tiny-llada
    python recipes/train.py --model tiny-llada --minutes 9.5 --out build/tiny-llada --resume build/tiny-llada
    python recipes/train.py --model tiny-dream --smoke --out build/smoke          # half a minute on a CPU

`--minutes` is the wall-clock time of this session from its start to its end, the last score and saving
included. `--later-minutes` tells how much training is planned after it, so that the learning rate is not
brought down yet.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import checkpoint
import noise
import tokenizer
import torch
from checkpoint import Progress
from data import CHUNK, Generators, Pool
from decode import held_out, judge
from network import MODELS, SMOKE, Network, layer, weighted_loss
from optim import Optimizer
from schedule import Clock

BEGAN = time.monotonic() - 5.0  # the session's start; importing took some seconds
# (positions, rows, share of steps): the same number of tokens per step; canvases of about 150, 270 and 590.
BUCKETS = ((192, 320, 0.62), (320, 192, 0.31), (640, 96, 0.07))
SMOKE_BUCKETS = ((192, 4, 0.9), (320, 2, 0.1))
SMOKE_STEPS, SMOKE_AR_STEPS = 100, 60
JUDGE_LENGTH = 320  # positions: a canvas of 256 or so


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--minutes", type=float, default=9.5, help="wall-clock time of this session")
    parser.add_argument(
        "--later-minutes", type=float, default=0.0, help="training planned after this session"
    )
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    parser.add_argument(
        "--resume",
        type=Path,
        help="an earlier session's folder; without its state files, only its weights",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--smoke", action="store_true", help="a tiny network for 100 steps")
    parser.add_argument("--ar-seconds", type=float, default=90.0, help="length of the autoregressive phase")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument(
        "--cached-share", type=float, default=0.0, help="share of steps whose context has stale keys"
    )
    parser.add_argument("--samples", type=int, default=2_500_000, help="size of the sample pool")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--judge-minutes", type=float, default=2.0, help="time between held-out scores")
    parser.add_argument("--judge-items", type=int, default=128, help="held-out items per family")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke:
        args.samples, args.workers, args.judge_items, args.no_compile = 2000, 1, 1, True
    return args


class Trainer:
    """One session of training."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        # Held back at the end: two full held-out scores and saving.
        self.reserve = 35.0
        self.deadline = BEGAN + args.minutes * 60
        torch.manual_seed(args.seed)
        if args.smoke:
            torch.set_num_threads(1)  # such small products only lose by sharing a busy machine
        torch.set_float32_matmul_precision("high")
        self.device = torch.device(args.device)
        sizes = (SMOKE if args.smoke else MODELS)[args.model]
        self.special = tokenizer.SPECIALS[sizes.family]
        self.mask, self.eos = self.special.id(self.special.mask), self.special.id(self.special.eos)
        dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
        self.model = Network(sizes, dtype).to(self.device)
        self.optimizer = Optimizer(self.model, args.lr, args.lr)
        self.progress = Progress(args.model)
        if args.resume:
            self.progress = checkpoint.load(self.model, self.optimizer, args.resume)
            torch.manual_seed(args.seed + self.progress.steps)
        self.rng = random.Random(args.seed + self.progress.steps)
        self.buckets = SMOKE_BUCKETS if args.smoke else BUCKETS
        chunks = args.samples // CHUNK
        self.makers = Generators(sizes.family, args.workers, chunks, self.progress.next_chunk)
        self.pool = Pool(self.device, args.samples, self.eos, self.buckets[0][0])
        self.items = held_out(args.judge_items)
        self.tok = tokenizer.load(sizes.family)
        self.run, self.loss = layer, weighted_loss
        if not args.no_compile and args.device == "cuda":
            torch._dynamo.config.recompile_limit = 64  # three lengths, causal or not
            self.run = torch.compile(layer, dynamic=False)
            self.loss = torch.compile(weighted_loss, dynamic=False)
        args.out.mkdir(parents=True, exist_ok=True)
        self.log_file = (args.out / "log.jsonl").open("a" if args.resume else "w")
        count = sum(p.numel() for p in self.model.parameters())
        self.log("start", parameters=count, device=str(self.device), resumed_steps=self.progress.steps)

    def log(self, event: str, **fields: Any) -> None:
        """Write one line of the log and print it."""
        wall = time.monotonic() - BEGAN
        row = {"event": event, "wall_s": round(wall, 1), "step": self.progress.steps, **fields}
        self.log_file.write(json.dumps(row) + "\n")
        self.log_file.flush()
        text = "  ".join(f"{k} {v}" for k, v in fields.items())
        left = max(0.0, self.deadline - time.monotonic())
        print(
            f"[{wall:6.1f} s, {left:5.0f} s left] step {self.progress.steps:6d}  {event}  {text}", flush=True
        )

    def refill(self, wait_s: float = 0.0) -> None:
        """Move ready samples into the pool."""
        for chunk in self.makers.take(wait_s):
            self.pool.add(chunk)

    def step_loss(self, phase: str) -> torch.Tensor:
        """Return the loss of one fresh batch."""
        pick, shift = self.rng.random(), self.model.sizes.shift
        if phase == "ar":
            length, rows, _ = self.buckets[0]
            batch = self.pool.batch(rows, length)
            state = self.model.hidden(batch.ids, causal=True, run=self.run)
            return self.shifted(state, batch.ids, noise.autoregressive_weight(batch), 1)
        for length, rows, share in self.buckets:  # noqa: B007 - the last bucket takes the rest
            pick -= share
            if pick < 0:
                break
        batch = self.pool.batch(rows, length)
        if self.rng.random() < self.args.cached_share:
            return self.cached_loss(batch)
        noised = noise.diffusion(batch, self.mask)
        return self.shifted(self.model.hidden(noised.ids, run=self.run), batch.ids, noised.weight, shift)

    def cached_loss(self, batch: noise.Batch) -> torch.Tensor:
        """Return the loss of a batch whose context's keys are stale, as a cache's are."""
        shift = self.model.sizes.shift
        noised = noise.diffusion(batch, self.mask, whole_share=0.0)
        with torch.no_grad():
            opened = noise.opening(batch, noised, self.mask)
            _, stale = self.model.forward_all(opened, run=self.run)
        dual = torch.rand(len(batch.ids), device=batch.ids.device) < 0.5
        live = noise.live_rows(batch, noised, shift, dual)
        state, _ = self.model.forward_all(noised.ids, run=self.run, stale=stale, live=live)
        # A stale row predicts nothing in decoding; with the shift, row i answers for token i + 1.
        answers = torch.roll(live, shift, dims=1) if shift else live
        return self.shifted(state, batch.ids, noised.weight * answers, shift)

    def shifted(
        self, state: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor, shift: int
    ) -> torch.Tensor:
        """Return the loss where row i answers for token i + shift."""
        if shift:
            # Keep the shape: the last row answers for nothing.
            ids = torch.cat((ids[:, 1:], ids[:, :1]), dim=1)
            weight = torch.cat((weight[:, 1:], torch.zeros_like(weight[:, :1])), dim=1)
        # Flat, so that all lengths have the same shape here and the loss is compiled once.
        logits = self.model.logits(state).flatten(0, 1)
        return self.loss(logits, ids.flatten(), weight.flatten())

    def judge(self, threshold: float | None, final: bool = False) -> None:
        """Score the held-out items and log the result."""
        began = time.monotonic()
        blocks = 1 if self.args.smoke else 99
        score, texts = judge(
            self.model, self.tok, self.items, JUDGE_LENGTH, self.mask, self.eos, threshold, blocks
        )
        rows = {name: round(value, 3) for name, value in score.accuracy.items()}
        how = "one token per step" if threshold is None else f"threshold {threshold}"
        self.log(
            "score",
            how=how,
            **rows,
            forwards=round(score.forwards, 1),
            took_s=round(time.monotonic() - began, 1),
        )
        if final:
            for i in range(0, len(texts), max(1, self.args.judge_items)):
                self.log("sample", prompt=self.items[i].prompt, response=texts[i])

    def train(self) -> None:
        """Train until the time is up."""
        args = self.args
        while self.pool.count < min(args.samples // 2, 40_000):
            self.refill(wait_s=60.0)
            if not any(process.is_alive() for process in self.makers.processes) and self.pool.count == 0:
                raise SystemExit("The generator processes ended without giving a sample.")
        limits = (SMOKE_STEPS, SMOKE_AR_STEPS) if args.smoke else (0, 0)
        clock = Clock(
            self.progress, self.deadline - self.reserve, args.later_minutes * 60, args.ar_seconds, *limits
        )
        self.log("train", samples=self.pool.count, seconds_planned=round(clock.planned - clock.before))
        recent: list[torch.Tensor] = []
        last, judged = (self.progress.steps, time.monotonic()), time.monotonic()
        while not clock.over():
            phase, scale = clock.phase(), clock.scale()
            loss = self.step_loss(phase)
            loss.backward()
            self.optimizer.step(scale)
            clock.tick(phase)
            recent.append(loss.detach())
            if clock.session % 10:
                continue
            self.refill()
            now = time.monotonic()
            if now - last[1] > 10 or args.smoke:
                rate = (self.progress.steps - last[0]) / (now - last[1])
                self.report(phase, recent, rate, scale)
                recent, last = [], (self.progress.steps, now)
            if now - judged > args.judge_minutes * 60 and phase == "diffusion" and not clock.over():
                self.judge(0.9)
                self.save()
                judged = time.monotonic()
                last = (self.progress.steps, judged)
        self.log(
            "end", seconds=round(self.progress.seconds, 1), diffusion_steps=self.progress.diffusion_steps
        )

    def report(self, phase: str, recent: list[torch.Tensor], rate: float, scale: float) -> None:
        """Log the mean loss since the last report, and stop on a broken one."""
        value = float(torch.stack(recent).mean())
        self.log(
            phase,
            loss=round(value, 4),
            steps_per_s=round(rate, 1),
            lr=round(scale, 3),
            samples=self.pool.count,
        )
        if not math.isfinite(value):
            raise SystemExit("The loss is not finite.")

    def save(self) -> None:
        """Write the model folder and the state to continue from."""
        self.progress.next_chunk = self.makers.next
        checkpoint.save(self.model, self.optimizer, self.progress, self.args.out)


def main() -> None:
    """Run one session."""
    trainer = Trainer(parse())
    try:
        trainer.train()
        trainer.makers.stop()
        trainer.save()
        trainer.judge(0.9)
        trainer.judge(None, final=True)
    finally:
        trainer.makers.stop()
    trainer.log("done", seconds_trained=round(trainer.progress.seconds), out=str(trainer.args.out))


if __name__ == "__main__":
    main()
