"""Decoder fields and settings from the command line and from TOML."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from ripple import RPS, Confidence, Frechet, RippleError
from ripple.caches import D2Cache, DualCache
from ripple.cli import Parser, options
from ripple.decoders import DECODERS
from ripple.engine.result import Settings
from tests.cli.conftest import Cli


def _parse(*argv: str) -> argparse.Namespace:
    parser = Parser(allow_abbrev=False)
    options.add_model(parser)
    options.add_engine(parser)
    options.add_decoder(parser)
    return parser.parse_args(argv)


def _settings(*argv: str) -> Settings:
    table = options.gather(_parse(*argv))
    return options.settings(table, options.chosen_decoder(table))


def test_defaults_are_those_of_settings() -> None:
    assert _settings() == Settings()


def test_every_field_of_every_decoder_has_an_option() -> None:
    for name, cls in DECODERS.items():
        for field, value in cls().settings().items():
            option = "--" + field.replace("_", "-")
            given = (
                [option]
                if value is True
                else [f"--no-{option[2:]}"]
                if value is False
                else [option, str(value)]
            )
            assert _settings("--decoder", name, *given).decoder == cls(), (name, field)
            if not isinstance(value, bool):
                assert _settings("--decoder", name, "--set", f"{field}={value}").decoder == cls(), (
                    name,
                    field,
                )


def test_fields_are_parsed_by_type() -> None:
    found = _settings(
        "--lam", "0.2", "--tau-pivot", "0.95", "--k-max", "4", "--standard", "frechet:delta=0.3"
    )
    assert found.decoder == RPS(lam=0.2, tau_pivot=0.95, k_max=4, standard=Frechet(delta=0.3))
    assert _settings("--decoder", "factor", "--stock-tail").decoder.settings()["stock_tail"] is True
    assert (
        _settings("--decoder", "factor", "--set", "stock_tail=yes").decoder.settings()["stock_tail"] is True
    )
    assert _settings("--decoder", "rps/dream", "--set", "k-max=3").decoder == RPS(tau_pivot=0.95, k_max=3)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--decoder", "rsp"], "Unknown decoder 'rsp'. Did you mean 'rps'?"),
        (["--decoder", "rps/dreem"], "Did you mean 'rps/dream'?"),
        (["--set", "lamm=1"], "Unknown field of decoder 'rps', 'lamm'. Did you mean 'lam'?"),
        (["--decoder", "confidence", "--tau1", "0.5"], "decoder 'confidence', 'tau1'. Did you mean 'tau'?"),
        (["--k-max", "many"], "rps: k_max must be a whole number, got 'many'."),
        (["--lam", "x"], "rps: lam must be a number, got 'x'."),
        (["--tau", "1.5"], r"rps: tau must lie in \(0, 1\], got 1.5."),
        (["--decoder", "factor", "--set", "stock_tail=maybe"], "factor: stock_tail must be true or false"),
        (["--standard", "frechett"], "Did you mean 'frechet'?"),
        (["--standard", "lopa"], "standard must be a single-forward decoder"),
        (["--set", "lam"], "FIELD=VALUE"),
        (["--cache", "duel"], "Unknown cache 'duel'. Did you mean 'dual'?"),
        (["--lookahead", "pakced"], "Did you mean 'packed'?"),
        (["--length", "0"], "length must be a whole number of at least 1, got 0."),
        (["--length", "8", "--block", "9"], "block must not exceed length 8"),
        (["--temperature", "-1"], "temperature must be 0 or a positive number"),
        (["--length", "ten"], "Argument --length: invalid int value: 'ten'."),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence) as caught:
        _settings(*argv)
    assert "\n" not in str(caught.value)


def test_cache_settings() -> None:
    assert _settings("--cache", "dual", "--refresh", "4", "--stock-first").cache == DualCache(4, True)
    assert _settings("--cache", "dual", "--keep-prompt").cache == DualCache(keep_prompt=True)
    assert _settings("--cache", "d2:masks=9", "--refresh", "4").cache == D2Cache(refresh=4, masks=9)
    with pytest.raises(RippleError, match="field of cache 'prefix', 'keep_prompt'"):
        _settings("--cache", "prefix", "--keep-prompt")


def test_specs_are_split_at_decoders() -> None:
    text = "default, rps:lam=0.2,r=0.3,standard=frechet:delta=0.3,rps/dream,confidence:tau=0.8"
    specs = options.split_specs(text)
    assert len(specs) == 4
    assert options.build(specs[1]) == RPS(lam=0.2, r=0.3, standard=Frechet(delta=0.3))
    assert options.build(specs[3]) == Confidence(tau=0.8)


CONFIG = """
decoder = "rps"
length = 16
block = 8
cache = "prefix"
temperature = 1
stop = "x"
[fields]
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
    found = _settings("--config", str(config))
    assert found.decoder == RPS(lam=0.3, tau_pivot=1.0, standard=Frechet(delta=0.3))
    assert (found.length, found.block, found.cache.name) == (16, 8, "prefix")
    assert (found.temperature, found.stop) == (1.0, ("x",))


def test_command_line_wins(config: Path) -> None:
    found = _settings("--config", str(config), "--length", "24", "--lam", "0.5", "--decoder", "rps/dream")
    assert found.length == 24 and found.block == 8
    assert found.decoder == RPS(lam=0.5, tau_pivot=1.0, standard=Frechet(delta=0.3))
    assert _settings("--config", str(config), "--decoder", "confidence").decoder == Confidence()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lenght = 3", "'lenght'. Did you mean 'length'?"),
        ("length = 'three'", "length must be a whole number, got 'three'."),
        ("length = true", "length must be a whole number, got True."),
        ("temperature = '0'", "temperature must be a number"),
        ("stop = [1]", "stop must be a list of text"),
        ("fields = 3", "fields must be a table"),
        ("[fields]\nlamm = 0.1", "Did you mean 'lam'?"),
        ("[fields]\nk_max = 2.5", "k_max must be a whole number, got 2.5."),
        ("[fields]\nstandard = 3", "standard must be a decoder"),
        ("length = ", "is not TOML"),
    ],
)
def test_bad_config_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(RippleError) as caught:
        _settings("--config", str(path))
    assert sentence in str(caught.value)


def test_missing_config_file(cli: Cli, tmp_path: Path) -> None:
    done = cli("generate", "hi", "--config", tmp_path / "none.toml")
    assert done.code == 2 and "Cannot read the config" in done.err


def test_compare_reads_its_own_keys(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(f'model = "{checkpoint}"\nlength = 8\ndecoders = ["default:k=2", "rps,lopa"]\n')
    found: dict[str, Any] = json.loads(cli("compare", "hi", "--config", path, "--json").out)
    assert [row["decoder"] for row in found["rows"]] == ["default(k=2)", "rps", "lopa"]
    path.write_text('decoder = "rps"\n')
    assert "'decoder'. Did you mean 'decoders'?" in cli("compare", "hi", "--config", path).err
