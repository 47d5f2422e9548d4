"""Ripple as a model of lm-evaluation-harness, under the name `ripple`. Needs the extra `lm-eval`.

The harness asks three things of a model. Generation runs through the same decoding as `ripple eval`.
Likelihoods are those of `likelihood.py`. Whether a continuation is the greedy one is
decided by decoding that many tokens, one per step.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lm_eval.utils
from lm_eval.api.model import TemplateLM

import ripple
from ripple.decoders import Default, family_decoder
from ripple.engine.load import load
from ripple.errors import RippleError
from ripple.eval.decoding import NamedPrompt, costs, decode, default_batch, one_block
from ripple.eval.facts import environment_line
from ripple.eval.generation import read_generation
from ripple.eval.likelihood import check_fits, log_likelihood
from ripple.eval.processes import Processes
from ripple.options import LENGTH, Options
from ripple.progress import Progress
from ripple.tasks import cut

NAME = "ripple"
_OWN = (
    "pretrained", "dtype", "block_size", "mc_num", "check_greedy", "escape_until", "batch_size",
    "max_batch_size", "device",
)  # fmt: skip


def register() -> None:
    """Make the model known to the harness, beside the harness's own."""
    import lm_eval.models  # noqa: F401 - the built-in models register only while the table is empty
    from lm_eval.api.registry import model_registry

    model_registry.register(NAME, target=RippleLM)


class RippleLM(TemplateLM):  # type: ignore[misc]
    """A diffusion language model; `model_args` names the checkpoint and how it is decoded.

    Args:
        pretrained: an embedded model, a checkpoint folder or a hub id.
        batch_size: requests decoded together, and draws of a likelihood per forward; "auto" chooses.
        max_batch_size: an upper bound for "auto".
        device: `cpu`, `cuda`, `cuda:N` or `auto`.
        dtype: `float32`, `bfloat16`, `float16`, `fp8` or `auto`.
        block_size: positions per block of a model that attends block by block, where its folder does not say.
        mc_num: draws per likelihood; a model that attends block by block takes them for each block.
        check_greedy: find out whether a continuation is the greedy one; costs a forward per token.
        escape_until: leave responses whole instead of cutting them at the task's stop strings.
        trust_remote_code: set by the harness's flag of that name for data sets; a model's code is never run.
        decoding: decoding options, the decoder and its fields, the cache and its fields. They win over what
            a task or `--gen_kwargs` says.
    """

    def __init__(
        self, pretrained: str = "", batch_size: int | str = "auto", max_batch_size: int | None = None,
        device: str = "auto", dtype: str = "auto", block_size: int | None = None, mc_num: int = 128,
        check_greedy: bool = True, escape_until: bool = False, trust_remote_code: bool = False,
        **decoding: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if not pretrained:
            raise RippleError("Say which model to load: --model_args pretrained=PATH.")
        if isinstance(mc_num, bool) or not isinstance(mc_num, int) or mc_num < 1:
            raise RippleError(f"mc_num must be a whole number of at least 1, got {mc_num!r}.")
        self.given = decoding
        self.options = Options.of(decoding, also=_OWN)
        self.n_draws, self.check_greedy, self.escape_until = mc_num, check_greedy, escape_until
        self.processes = Processes()
        # The harness is told of one process: it then gives each the same requests, few-shot examples
        # included, and lets the one with LOCAL_RANK 0 write.
        self._rank, self._world_size = 0, 1
        self.engine = load(
            str(pretrained),
            device=self.processes.device(str(device)),
            dtype=str(dtype),
            block_size=block_size,
        )
        self._device = self.engine.model.device
        # The folder's own name, so that no machine's paths get into a result file.
        self.name = Path(pretrained).resolve().name if Path(pretrained).is_dir() else str(pretrained)
        self.engine.max_batch = _batch(batch_size, max_batch_size, default_batch(self.engine))
        if self.engine.tokenizer is None:
            raise RippleError(f"{pretrained} has no tokenizer, and the harness speaks text.")
        self._tokenizer = self.engine.tokenizer
        self.costs: list[dict[str, float]] = []  # of every generated response, in the order of the requests

    # -- text ---------------------------------------------------------------------------------------

    @property
    def eot_token_id(self) -> int:
        """The token that stands before a text without a context."""
        return self.engine.model.config.end_ids[0]

    @property
    def tokenizer_name(self) -> str:
        """A name for the harness's own caches of requests."""
        return self.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return the ids of a text, with nothing added."""
        return self._tokenizer.encode(string)

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Check that the checkpoint's own template was asked for; it has no others."""
        if isinstance(chat_template, str):
            raise RippleError(
                "A checkpoint brings one chat template: use --apply_chat_template without a name."
            )
        return ""

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation in the checkpoint's template; a begun answer is left open."""
        begun = "" if add_generation_prompt else chat_history[-1]["content"]
        turns = chat_history if add_generation_prompt else chat_history[:-1]
        return self._tokenizer.decode(self._tokenizer.encode_chat(turns), skip_special=False) + begun

    # -- generation ---------------------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Decode every request and cut it at its stop strings."""
        asked = [request.args for request in requests]
        prompts, stops = self._prompts(asked)
        mine = self._mine("generate_until", asked)
        done: dict[int, tuple[str, dict[str, float]]] = {}
        with self._progress("decoding", len(mine), disable_tqdm) as progress:
            for place, result in decode(self.engine, [prompts[i] for i in mine]):
                i = mine[place]
                text = cut(result.text, () if self.escape_until else stops[i])
                done[i] = text, costs(self.engine, result, () if self.escape_until else stops[i])
                self._remember("generate_until", asked[i], text)
                progress.update()
        gathered = self.processes.gather(done, len(asked))
        self.costs += [cost for _, cost in gathered]
        return [text for text, _ in gathered]

    def _prompts(
        self, asked: Sequence[tuple[str, dict[str, Any]]]
    ) -> tuple[list[NamedPrompt], list[tuple[str, ...]]]:
        """Return what to decode and where to cut; complain before anything is decoded."""
        prompts, cuts = [], []
        seen: Counter[str] = Counter()
        for number, (context, generation) in enumerate(asked):
            table, stops = read_generation(generation)
            options = Options.of(table | self.given, also=_OWN)
            # A request that is there again wants another sample.
            key = json.dumps([context, generation], sort_keys=True, default=str)
            length = options.length or LENGTH
            options = replace(options, seed=options.seed + seen[key], trace=False, length=length)
            seen[key] += 1
            ids = self.tok_encode(context)
            try:
                check_fits(self.engine, len(ids), length)
            except RippleError as error:
                raise RippleError(f"Request {number}: {error}") from None
            prompts.append(NamedPrompt(f"Request {number}", ids, options))
            cuts.append(stops)
        return prompts, cuts

    # -- likelihoods --------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Estimate each continuation's log-likelihood and say whether it is the greedy one."""
        pairs = [(context, target) for _, context, target in requests]
        mine = self._mine("loglikelihood", pairs)
        for context, target in pairs:
            check_fits(self.engine, len(context), len(target))
        greedy = self._are_greedy([pairs[i] for i in mine]) if self.check_greedy else [False] * len(mine)
        done: dict[int, tuple[float, bool]] = {}
        with self._progress("likelihoods", len(mine), disable_tqdm) as progress:
            for i, is_greedy in zip(mine, greedy, strict=True):
                done[i] = self._estimate(*pairs[i]), is_greedy
                if requests[i][0] is not None:
                    self._remember("loglikelihood", requests[i][0], done[i])
                progress.update()
        return list(self.processes.gather(done, len(pairs)))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Estimate the log-likelihood of whole texts, in windows as long as the model's positions."""
        asked = [request.args for request in requests]
        mine = self._mine("loglikelihood_rolling", asked)
        done = {}
        with self._progress("likelihoods", len(mine), disable_tqdm) as progress:
            for i in mine:
                done[i] = self._whole_text(asked[i][0])
                self._remember("loglikelihood_rolling", asked[i], done[i])
                progress.update()
        return list(self.processes.gather(done, len(asked)))

    def _whole_text(self, text: str) -> float:
        windows = lm_eval.utils.get_rolling_token_windows(
            token_list=self.tok_encode(text), prefix_token=self.eot_token_id,
            max_seq_len=self.engine.model.config.max_positions - 1, context_len=1,
        )  # fmt: skip
        parts = map(lm_eval.utils.make_disjoint_window, windows)
        return sum(self._estimate(context, target) for context, target in parts)

    def _estimate(self, context: list[int], target: list[int]) -> float:
        return log_likelihood(
            self.engine, context, target, self.n_draws, self.options.seed, self.engine.max_batch
        )

    def _are_greedy(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[bool]:
        """Decode as many tokens as each continuation has, the surest one per step, and compare."""
        places = [i for i, (_, target) in enumerate(pairs) if target]
        prompts = []
        for i in places:
            context, target = pairs[i]
            options = Options(Default(), len(target), one_block(self.engine, len(target)))
            prompts.append(NamedPrompt(f"Request {i}", context, options))
        greedy = [True] * len(pairs)
        for place, result in decode(self.engine, prompts):
            target = pairs[places[place]][1]
            greedy[places[place]] = result.token_ids[: len(target)] == target
        return greedy

    # -- who does what, and what is told -------------------------------------------------------------

    def _mine(self, kind: str, asked: Iterable[Any]) -> range:
        """Return this process's requests, after checking that all processes hold the same ones."""
        listed = list(asked)
        self.processes.check_alike(hashlib.sha256(repr((kind, listed)).encode()).hexdigest())
        return self.processes.share(len(listed))

    def _remember(self, kind: str, asked: Any, answer: Any) -> None:
        """Put one answer into the harness's cache; with several processes it caches what they share."""
        if self.processes.is_alone:
            self.cache_hook.add_partial(kind, asked, answer)

    def _progress(self, what: str, n: int, is_quiet: bool) -> Progress:
        return Progress(what, n, is_quiet or self.processes.rank > 0)

    def get_model_info(self) -> dict[str, Any]:
        """Return what the harness writes beside its results: settings, environment and mean costs."""
        n = len(self.costs)
        names = self.costs[0] if n else {}
        decoder = family_decoder(self.options.decoder, self.engine.model.config.family)
        about = {
            "version": ripple.__version__, "model": self.name, "decoder": decoder.describe(),
            "cache": self.options.policy.describe(), "given": dict(self.given), "mc_num": self.n_draws,
            "processes": self.processes.n, "environment": environment_line(self.engine), "generated": n,
            "mean": {name: sum(cost[name] for cost in self.costs) / n for name in names},
        }  # fmt: skip
        return {"ripple": about}


def _batch(given: int | str, most: int | None, default: int) -> int:
    """Return how many requests to decode together."""
    if isinstance(given, str) and given.split(":")[0] == "auto":
        return min(default, most or default)
    try:
        batch = int(given)
    except ValueError:
        batch = 0
    if batch < 1:
        raise RippleError(f"batch_size must be a whole number of at least 1 or auto, got {given!r}.")
    return batch
