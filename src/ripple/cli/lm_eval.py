"""`ripple lm-eval`: the stock lm-evaluation-harness, with ripple as one of its models."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from ripple.errors import RippleError

HELP = "run lm-evaluation-harness with ripple as one of its models (--model ripple)"


def run_words(words: Sequence[str]) -> int:
    """Give all words to the harness's own command line."""
    if importlib.util.find_spec("lm_eval") is None:
        raise RippleError("ripple lm-eval needs lm-evaluation-harness: pip install 'ripple-dllm[lm-eval]'.")
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
