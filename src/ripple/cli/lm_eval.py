"""`ripple lm-eval`: the stock lm-evaluation-harness, with ripple as one of its models."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from ripple.errors import RippleError

HELP = "run lm-evaluation-harness with ripple as one of its models (--model ripple)"
INSTALL = "pip install 'ripple-dllm[lm-eval]'"
USAGE = f"""usage: ripple lm-eval --model ripple --model_args pretrained=PATH,decoder=rps --tasks NAMES ...

Runs lm-evaluation-harness, which is not installed here; with it, all words go to its own command line:

  {INSTALL}

docs/evaluation.md says what --model_args takes."""


def run_words(words: Sequence[str]) -> int:
    """Give all words to the harness's own command line."""
    if importlib.util.find_spec("lm_eval") is None:
        if {"-h", "--help"} & set(words):
            print(USAGE)
            return 0
        raise RippleError(f"ripple lm-eval needs lm-evaluation-harness: {INSTALL}.")
    from lm_eval.__main__ import cli_evaluate

    from ripple.eval.harness import register
    from ripple.eval.processes import leave

    register()
    before = sys.argv
    sys.argv = ["lm-eval", *words]
    try:
        cli_evaluate()
    finally:
        sys.argv = before
    leave()  # only after success: a process that fails must not wait for the others
    return 0
