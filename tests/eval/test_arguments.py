"""The harness's flat tables become settings; what they cannot mean is one sentence."""

from __future__ import annotations

from typing import Any

import pytest

import ripple
from ripple.errors import RippleError
from ripple.eval.arguments import of_request, settings


def test_a_flat_table_is_settings() -> None:
    table = {"decoder": "rps", "lam": 0.2, "k_max": 5, "length": 64, "cache": "dual", "refresh": 4, "tau": 1}
    assert settings(table) == ripple.Settings(
        decoder=ripple.RPS(lam=0.2, k_max=5, tau=1.0), length=64, cache=ripple.DualCache(refresh=4)
    )
    assert settings({}) == ripple.Settings()
    assert settings({"length": 8}).block == 8 and settings({"length": 64}).block == 32
    assert settings({"decoder": "rps/dream"}).decoder == ripple.decoder("rps/dream")
    assert settings({"standard": "frechet"}).decoder == ripple.RPS(standard=ripple.Frechet())


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"lamb": 0.2}, r"Unknown setting 'lamb'\. Did you mean 'lam'\?"),
        ({"lenght": 64}, r"Did you mean 'length'\?"),
        ({"decoder": "confidence", "lam": 0.2}, "Unknown setting 'lam'"),
        ({"decoder": "rsp"}, r"Unknown decoder 'rsp'\. Did you mean 'rps'\?"),
        ({"cache": "daul"}, r"Unknown cache 'daul'\. Did you mean 'dual'\?"),
        ({"lam": "much"}, "lam must be a number, got 'much'"),
        ({"length": 1.5}, "length must be a whole number, got 1.5"),
        ({"stop_at_end": 1}, "stop_at_end must be true or false, got 1"),
        ({"length": 0}, "length must be a whole number of at least 1"),
        ({"block": 300}, "block must not exceed length 256"),
    ],
)
def test_bad_tables_are_one_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence):
        settings(table)


def test_generation_arguments() -> None:
    assert of_request(
        {"until": ["\n", "Q:"], "max_gen_toks": 32, "do_sample": False, "temperature": 0.7}
    ) == (
        {"length": 32, "temperature": 0.0},
        ("\n", "Q:"),
    )
    assert of_request({"until": "\n", "max_tokens": 8}) == ({"length": 8}, ("\n",))
    assert of_request({"do_sample": True, "temperature": 0.5}) == ({"temperature": 0.5}, ())
    assert of_request({"top_p": 0.9, "do_sample": False}) == ({"temperature": 0.0}, ())
    assert of_request({"lam": 0.3}) == ({"lam": 0.3}, ())
    with pytest.raises(RippleError, match=r"Sampling with top_p=0\.9 is not supported"):
        of_request({"top_p": 0.9, "do_sample": True, "temperature": 0.5})
