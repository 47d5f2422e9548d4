"""Decoding options from the command line and from TOML."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from ripple import RPS, Confidence, Frechet, Options, RippleError
from ripple.caches import CACHES, D2Cache, DualCache, cache
from ripple.cli import Parser, options
from ripple.decoders import DECODERS, Decoder, decoder
from ripple.fields import fields_of, split_specs
from tests.cli.conftest import Cli


def _parse(*argv: str) -> argparse.Namespace:
    parser = Parser(allow_abbrev=False)
    options.add_model(parser)
    options.add_options(parser, argv)
    return parser.parse_args(argv)


def _options(*argv: str) -> Options:
    return options.options_of(options.gather(_parse(*argv)))


def _decoder(*argv: str) -> Decoder:
    return decoder(_options(*argv).decoder)


def test_defaults_are_those_of_the_library() -> None:
    assert _options() == Options()


def test_every_field_of_every_decoder_and_cache_has_an_option() -> None:
    for kind, classes in (("--decoder", DECODERS), ("--cache", CACHES)):
        for name, cls in classes.items():
            for field in fields_of(cls).values():
                value = getattr(cls(), field.name)
                given = [field.option, str(value)]
                if isinstance(value, bool):
                    given = [field.option if value else f"--no-{field.option[2:]}"]
                chosen = _options(kind, name, *given)
                made = decoder(chosen.decoder) if kind == "--decoder" else cache(chosen.cache)
                assert made == cls(), (name, field.name)
                if kind == "--decoder":
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    assert _decoder(kind, name, "--set", f"{field.name}={text}") == cls(), (name, field.name)


def test_fields_are_parsed_by_type() -> None:
    assert _decoder(
        "--decoder",
        "rps",
        "--lam",
        "0.2",
        "--tau-pivot",
        "0.95",
        "--k-max",
        "4",
        "--standard",
        "frechet:delta=0.3",
    ) == RPS(lam=0.2, tau_pivot=0.95, k_max=4, standard=Frechet(delta=0.3))
    for given in (["--match-fast-dllm-tail"], ["--set", "match_fast_dllm_tail=yes"]):
        assert _decoder("--decoder", "factor", *given).settings()["match_fast_dllm_tail"] is True
    assert _decoder("--decoder", "rps/dream", "--set", "k-max=3") == RPS(tau_pivot=0.95, k_max=3)
    assert _decoder("--decoder", "rps:lam=0.2,r=0.3", "--lam", "0.4") == RPS(lam=0.4, r=0.3)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--decoder", "rsp"], "Unknown decoder 'rsp'. Did you mean 'rps'?"),
        (["--decoder", "rps/dreem"], "Did you mean 'rps/dream'?"),
        (["--decoder", "rps:lamm=0.2"], "'lamm'. Did you mean 'lam'?"),
        (["--set", "lamm=1"], "'lamm'. Did you mean 'lam'?"),
        (["--decoder", "confidence", "--tau1", "0.5"], "'tau1'. Did you mean 'tau'?"),
        (["--k-max", "many"], "glide: k_max must be a whole number in [1, 255], got 'many'."),
        (["--lam", "x"], "glide: lam must be a number of at least 0, got 'x'."),
        (["--lam", "inf"], "glide: lam must be a finite number, got inf."),
        (["--lam", "nan"], "glide: lam must be a finite number, got nan."),
        (["--tau", "1.5"], "glide: tau must lie in (0, 1], got 1.5."),
        (["--decoder", "factor", "--set", "match_fast_dllm_tail=maybe"], "true or false, got 'maybe'"),
        (["--decoder", "rps", "--pivot", "mid"], "pivot must be one of mid_entropy, max_confidence"),
        (["--decoder", "rps", "--standard", "frechett"], "Did you mean 'frechet'?"),
        (["--decoder", "rps", "--standard", "lopa"], "standard must be a single-forward decoder such as"),
        (["--set", "lam"], "A field is set as field=value, got 'lam'."),
        (["--set", "lam=1", "--set", "lam=2"], "The field lam is set twice"),
        (["--cache", "duel"], "Unknown cache 'duel'. Did you mean 'dual'?"),
        (["--lookahead", "pakced"], "(did you mean 'packed'?), got 'pakced'."),
        (["--length", "0"], "length must be a whole number of at least 1 or none, got 0."),
        (["--length", "8", "--block", "9"], "block must not exceed length 8"),
        (["--temperature", "-1"], "temperature must be at least 0, got -1"),
        (["--length", "ten"], "length must be a whole number of at least 1 or none, got 'ten'."),
        (["--stop", ""], "stop must be a list of non-empty strings"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(RippleError) as caught:
        _options(*argv)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_cache_settings() -> None:
    assert _options("--cache", "dual", "--refresh", "4", "--match-fast-dllm-first").policy == DualCache(
        refresh=4, match_fast_dllm_first=True
    )
    assert _options("--cache", "dual", "--keep-prompt").policy == DualCache(keep_prompt=True)
    assert _options("--cache", "d2:masks=9", "--refresh", "4").policy == D2Cache(refresh=4, masks=9)
    with pytest.raises(RippleError, match="'keep_prompt'"):
        _options("--cache", "prefix", "--keep-prompt")


def test_the_help_explains_the_decoder_and_the_cache_that_are_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for argv in (("--decoder", "rps"), ("--decoder=rps:lam=0.2",)):
        out = cli("generate", *argv, "--help").out
        assert "decoder rps:" in out and "--tau-pivot" in out and "weight of plausibility" in out
        assert "--gamma" not in out and "--keep-prompt" not in out
    out = cli("generate", "--decoder", "eb", "--cache", "dual:refresh=3", "--help").out
    assert "decoder eb:" in out and "--gamma" in out and "--tau-pivot" not in out
    assert "cache dual:" in out and "--keep-prompt" in out
    for argv in ((), ("--decoder", "rsp")):
        out = " ".join(cli("generate", *argv, "--help").out.split())
        assert "decoder glide:" in out and "λ: weight of plausibility; [0, inf) (default 0.05)" in out


def test_specs_are_split_at_decoders() -> None:
    text = "default, rps:lam=0.2,r=0.3,standard=frechet:delta=0.3,rps/dream,confidence:tau=0.8"
    specs = split_specs(text)
    assert len(specs) == 4
    assert decoder(specs[1]) == RPS(lam=0.2, r=0.3, standard=Frechet(delta=0.3))
    assert decoder(specs[3]) == Confidence(tau=0.8)


CONFIG = """
decoder = "rps"
length = 16
block = 8
cache = "prefix"
temperature = 1
stop = ["x"]
lam = 0.3
tau_pivot = 1
standard = { name = "frechet", delta = 0.3 }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(CONFIG)
    return path


def test_config_file(config: Path) -> None:
    chosen = _options("--config", str(config))
    assert decoder(chosen.decoder) == RPS(lam=0.3, tau_pivot=1.0, standard=Frechet(delta=0.3))
    assert (chosen.length, chosen.block, chosen.policy.name) == (16, 8, "prefix")
    assert (chosen.temperature, chosen.stop) == (1.0, ("x",))


def test_command_line_wins(config: Path) -> None:
    chosen = _options("--config", str(config), "--length", "24", "--lam", "0.5", "--decoder", "rps/dream")
    assert chosen.length == 24 and chosen.block == 8
    assert decoder(chosen.decoder) == RPS(lam=0.5, tau_pivot=1.0, standard=Frechet(delta=0.3))
    assert _decoder("--config", str(config), "--decoder", "confidence") == Confidence()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lenght = 3", "'lenght'. Did you mean 'length'?"),
        ("length = 'three'", "length must be a whole number of at least 1 or none, got 'three'."),
        ("length = true", "length must be a whole number of at least 1 or none, got True."),
        ("temperature = 'x'", "temperature must be a number of at least 0, got 'x'."),
        ("stop = [1]", "stop must be a list of non-empty strings"),
        ("lamm = 0.1", "Did you mean 'lam'?"),
        ("k_max = 2.5", "k_max must be a whole number in [1, 255], got '2.5'."),
        ("decoder = 'rps'\nstandard = 3", "Unknown decoder '3'."),
        ("decoder = 3", "decoder must be a name such as 'rps'"),
        ("cache = 3", "cache must be a name such as 'dual'"),
        ("length = ", "is not TOML"),
    ],
)
def test_bad_config_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(RippleError) as caught:
        _options("--config", str(path))
    assert sentence in str(caught.value)


def test_missing_config_file(cli: Cli, tmp_path: Path) -> None:
    done = cli("generate", "hi", "--config", tmp_path / "none.toml")
    assert done.code == 2 and "Cannot read the config" in done.err


def test_compare_reads_its_own_keys(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(f'model = "{checkpoint}"\nlength = 8\ndecoders = ["default:k=2", "rps,lopa"]\n')
    printed: dict[str, Any] = json.loads(cli("compare", "hi", "--config", path, "--json").out)
    assert [one["decoder"] for one in printed["decoders"]] == ["default:k=2", "rps", "lopa"]
    path.write_text('decoder = "rps"\n')
    assert "takes decoders, a list, and no decoder, got 'rps'" in cli("compare", "hi", "--config", path).err
    for bad in ("decoders = 3", "decoders = []", "decoders = [3]"):
        path.write_text(bad)
        assert "decoders must be names with commas between" in cli("compare", "hi", "--config", path).err
