"""One `Options` for everybody: objects, keywords, flat tables, and one value per prompt."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

import pytest

import ripple
from ripple.caches import CACHES, D2Cache, DualCache
from ripple.decoders import DECODERS, PRESETS
from ripple.fields import fields_of
from ripple.options import OptionFields, Options, combine, per_prompt


def test_the_keywords_are_the_fields() -> None:
    hints = typing.get_type_hints(OptionFields)
    assert list(hints) == [field.name for field in dataclasses.fields(Options)]
    for name, field in typing.get_type_hints(Options).items():
        assert hints[name] == field | Sequence[field], f"{name}: a value, or one for each prompt"


def test_a_block_is_32_or_the_length_if_that_is_smaller() -> None:
    assert [Options(length=n).block_size for n in (256, 32, 31, 1)] == [32, 32, 31, 1]
    assert Options(length=40, block=40).block_size == 40


def test_caches_and_stop_strings_are_normalised() -> None:
    assert Options(cache="dual") == Options(cache=DualCache())
    assert Options(stop="x").stop == ("x",) and Options(stop=["x", "y"]).stop == ("x", "y")
    assert Options("rps:lam=0.2").decoder == "rps:lam=0.2", "a name stays one: the family decides"


def test_a_flat_table_holds_options_and_the_fields_of_decoder_and_cache() -> None:
    table = {"decoder": "rps/dream", "lam": "0.3", "k_max": 4, "cache": "d2", "masks": "9", "length": "24"}
    options = Options.of(table)
    assert ripple.decoder(options.decoder) == ripple.RPS(tau_pivot=0.95, lam=0.3, k_max=4)
    assert options.cache == D2Cache(masks=9) and options.length == 24
    nested = Options.of({"standard": "eb:gamma=0.3,proxy=margin", "decoder": "rps:lam=0.2"})
    assert ripple.decoder(nested.decoder) == ripple.RPS(lam=0.2, standard=ripple.EB(0.3, "margin"))
    assert Options.of({"decoder": ripple.RPS(), "lam": 0.5}).decoder == ripple.RPS(lam=0.5)
    assert Options.of({}) == Options()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"lamm": 1}, "Unknown option 'lamm'. Did you mean 'lam'"),
        ({"decoder": "confidence", "lam": 1}, "Unknown option 'lam'"),
        ({"cache": "prefix", "masks": 3}, "Unknown option 'masks'"),
        ({"lenght": 1}, "Did you mean 'length'"),
        ({"length": "ten"}, "length must be a whole number of at least 1 or none, got 'ten'"),
        ({"length": 1.5}, "length must be a whole number"),
        ({"lam": "x"}, "glide: lam must be a number of at least 0, got 'x'"),
        ({"decoder": "rsp"}, "Did you mean 'rps'"),
        ({"decoder": 3}, "decoder must be a name"),
        ({"cache": 3}, "cache must be a name"),
        ({"stop": [""]}, "stop must be a list of non-empty strings"),
        ({"model": "x"}, "Unknown option 'model'"),
    ],
)
def test_bad_tables_get_one_sentence(table: dict[str, object], sentence: str) -> None:
    with pytest.raises(ripple.RippleError, match=sentence) as told:
        Options.of(table)
    assert "\n" not in str(told.value)


def test_fields_of_decoders_caches_and_options_share_no_name() -> None:
    """A flat table could not tell them apart."""
    of_decoders = {name for cls in DECODERS.values() for name in fields_of(cls)}
    of_caches = {name for cls in CACHES.values() for name in fields_of(cls)}
    assert not of_decoders & of_caches and not (of_decoders | of_caches) & set(fields_of(Options))


def test_a_bare_name_means_the_preset_of_the_models_family(engine: ripple.Engine, family: str) -> None:
    assert engine.decoder_of(Options("rps")) == PRESETS[f"rps/{family}"]
    assert engine.decoder_of(Options("rps:lam=0.3")) == dataclasses.replace(PRESETS[f"rps/{family}"], lam=0.3)
    assert engine.decoder_of(Options("rps/llada")) == ripple.RPS(), "a preset is that preset"
    assert engine.decoder_of(Options(ripple.RPS())) == ripple.RPS(), "and an object that object"
    assert engine.decoder_of(Options()) == ripple.decoder("glide"), "glide is the default"


def test_one_value_per_prompt() -> None:
    base = Options(length=8)
    assert [options.seed for options in per_prompt(2, None, {"seed": (1, 2)})] == [1, 2]
    assert per_prompt(2, base, {}) == [base, base]
    each = per_prompt(
        2, base, {"seed": [1, 2], "stop": [["a"], ["b", "c"]], "decoder": ["rps", ripple.Lopa()]}
    )
    assert [options.seed for options in each] == [1, 2] and all(options.length == 8 for options in each)
    assert [options.stop for options in each] == [("a",), ("b", "c")]
    assert per_prompt(2, [base, Options(length=9)], {"seed": 3})[1] == Options(length=9, seed=3)
    assert per_prompt(2, None, {"stop": ["a", "b"]})[0].stop == ("a", "b"), "stop is a list by nature"
    for options, fields in ((None, {"seed": [1]}), ([base], {}), (base, {"stop": [["a"]]})):
        with pytest.raises(ripple.RippleError, match="one value for each of the 2 prompts, got 1"):
            per_prompt(2, options, fields)


def test_only_options_are_options() -> None:
    with pytest.raises(ripple.RippleError, match=r"options must be ripple.Options, got \{"):
        combine({"length": 3}, {})  # type: ignore[arg-type]
    with pytest.raises(ripple.RippleError, match="Did you mean 'temperature'"):
        combine(None, {"temprature": 1})


def test_generate_takes_options_and_lists_of_values(engine: ripple.Engine) -> None:
    options = Options("confidence", length=16, block=8)
    one = engine.generate([1, 2], options)
    assert one.token_ids == engine.generate([1, 2], decoder="confidence", length=16, block=8).token_ids
    many = engine.generate([[1, 2], [3]], options, seed=[4, 5], temperature=1.0)
    alone = [engine.generate(p, options, seed=s, temperature=1.0) for p, s in (([1, 2], 4), ([3], 5))]
    assert [r.token_ids for r in many] == [r.token_ids for r in alone]
    assert engine.generate([1], length=16).is_full, "no block has to be given"
