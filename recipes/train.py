"""Trains an embedded model: autoregressively for about a minute, then as a masked-diffusion model.

    python recipes/train.py --model tiny-llada --minutes 9.5 --out build/tiny-llada
    python recipes/train.py --model tiny-llada --minutes 9.5 --out build/tiny-llada --resume build/tiny-llada
    python recipes/train.py --model tiny-sdar --minutes 9.2 --init build/tiny-llada --out build/tiny-sdar
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import checkpoint
import noise
import tokenizer
import torch
from checkpoint import Progress
from data import Pool
from decode import held_out, judge
from network import MODELS, SMOKE, Keys, Network, layer, weighted_loss
from optim import Optimizer
from samples import CHUNK, Generators
from schedule import Clock

BEGAN = time.monotonic() - 5.0  # the session's start; importing took some seconds
# (positions, rows, share of steps): the same number of tokens per step; canvases of about 150, 270 and 590.
BUCKETS = ((192, 320, 0.62), (320, 192, 0.31), (640, 96, 0.07))
SMOKE_BUCKETS = ((192, 4, 0.9), (320, 2, 0.1))
SMOKE_STEPS = 100
AR_SHARE = 0.6  # of the steps, where they are counted
SLIDE_SHARE = 1 / 3  # of the steps with stale keys
JUDGE_LENGTH = 320  # positions: a canvas of 256 or so


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
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
        "--init",
        type=Path,
        help="the folder of a model of another family, whose weights this one begins with",
    )
    parser.add_argument(
        "--weights-only", action="store_true", help="write no more than model.safetensors and log.jsonl"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--smoke", action="store_true", help="a tiny network for 100 steps")
    parser.add_argument("--steps", type=int, default=0, help="train for so many steps, whatever they take")
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
    args = parser.parse_args(argv)
    if args.smoke:
        args.steps = args.steps or SMOKE_STEPS
        args.samples, args.workers, args.no_compile = 1500, 1, True
        args.judge_items = min(args.judge_items, 1)
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
        elif args.init:
            self.progress = checkpoint.begin_with(self.model, args.model, args.init)
        if args.device == "cuda" and sizes.blocks:
            # Of the attention kernels that take a mask, the memory-efficient one.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.rng = random.Random(args.seed + self.progress.steps)
        self.buckets = SMOKE_BUCKETS if args.smoke else BUCKETS
        chunks = args.samples // CHUNK
        self.makers = Generators(sizes.family, args.workers, chunks, self.progress.next_chunk)
        self.pool = Pool(self.device, args.samples, self.eos, self.buckets[0][0])
        self.items = held_out(args.judge_items)
        self.tok = tokenizer.load(sizes.family)
        self.masks: dict[int, torch.Tensor] = {}  # by length
        self.run, self.loss = layer, weighted_loss
        if not args.no_compile and args.device == "cuda":
            torch._dynamo.config.recompile_limit = 64  # three lengths, causal or not
            torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
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
        if self.model.sizes.blocks:
            return self.blocks_loss(self.pool.batch(rows // 2, length))
        batch = self.pool.batch(rows, length)
        if self.rng.random() < self.args.cached_share:
            return self.cached_loss(batch)
        noised = noise.diffusion(batch, self.mask)
        return self.shifted(self.model.hidden(noised.ids, run=self.run), batch.ids, noised.weight, shift)

    def blocks_loss(self, batch: noise.Batch) -> torch.Tensor:
        """Return the loss of all blocks of a batch at once, over clean earlier blocks."""
        length = batch.ids.shape[1]
        if length not in self.masks:
            self.masks[length] = noise.noised_beside_clean(length, self.device)
        noised = noise.every_block(batch, self.mask)
        at = torch.arange(length, device=self.device).repeat(2)
        both = torch.cat((noised.ids, batch.ids), dim=1)
        state = self.model.hidden(both, positions=at, run=self.run, mask=self.masks[length])
        return self.shifted(state[:, :length], batch.ids, noised.weight, 0)

    def cached_loss(self, batch: noise.Batch) -> torch.Tensor:
        """Return the loss of a batch whose context's keys are stale, as a cache's are."""
        shift, length = self.model.sizes.shift, batch.ids.shape[1]
        if self.rng.random() < SLIDE_SHARE:
            width = self.rng.randint(noise.BLOCK, 2 * noise.BLOCK)
            noised = noise.diffusion(batch, self.mask, whole_share=0.0, window=width)
            stale = self.slid(batch, noised.first, width)
            stop = noised.first + width
        else:
            noised = noise.diffusion(batch, self.mask, whole_share=0.0)
            with torch.no_grad():
                opened = noise.opening(batch, noised.first, self.mask)
                _, stale = self.model.forward_all(opened, run=self.run)
            dual = torch.rand(len(batch.ids), device=batch.ids.device) < 0.5
            stop = torch.where(dual, noised.first + noise.BLOCK, length)
        live = noise.live_rows(batch, noised.first, stop, shift)
        state, _ = self.model.forward_all(noised.ids, run=self.run, stale=stale, live=live)
        # A stale row predicts nothing in decoding; with the shift, row i answers for token i + 1.
        answers = torch.roll(live, shift, dims=1) if shift else live
        return self.shifted(state, batch.ids, noised.weight * answers, shift)

    @torch.no_grad()
    def slid(self, batch: noise.Batch, first: torch.Tensor, width: int) -> list[Keys]:
        """Return the keys that a window leaves to itself and others on its way to `first` [batch]."""
        start = torch.zeros_like(first)
        _, keys = self.model.forward_all(noise.opening(batch, start, self.mask), run=self.run)
        halfway = (torch.rand(len(first), device=first.device) * first).long()
        for stop in (halfway, first):
            live = noise.live_rows(batch, start, stop + width, self.model.sizes.shift)
            opened = noise.opening(batch, stop, self.mask)
            _, keys = self.model.forward_all(opened, stale=keys, live=live)  # too rare to compile for
            start = stop
        return keys

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
        stop_at, later_s = self.deadline - self.reserve, args.later_minutes * 60
        ar_steps = round(AR_SHARE * args.steps)
        clock = Clock(self.progress, stop_at, later_s, args.ar_seconds, args.steps, ar_steps)
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
        if self.args.weights_only:
            checkpoint.save_weights(self.model, self.args.out)
        else:
            checkpoint.save(self.model, self.optimizer, self.progress, self.args.out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one session."""
    trainer = Trainer(parse(argv))
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
