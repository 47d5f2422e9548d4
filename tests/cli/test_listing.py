"""`ripple decoders` and `ripple caches`: fields with meaning, default and range; those of other packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ripple import plugins
from ripple.caches import CACHES
from ripple.decoders import DECODERS, PRESETS
from ripple.fields import fields_of
from tests.cli.conftest import Cli


def test_decoders_lists_every_field(cli: Cli) -> None:
    listing = json.loads(cli("decoders", "--json").out)
    assert set(listing) == {"decoders", "broken"} and listing["broken"] == {}
    listed = listing["decoders"]
    assert [one["name"] for one in listed] == list(DECODERS)
    assert {name for one in listed for name in one["presets"]} == set(PRESETS)
    for one in listed:
        assert one["about"] and one["paper"] and one["package"] == "ripple"
        fields = fields_of(DECODERS[one["name"]])
        assert [field["name"] for field in one["fields"]] == list(fields)
        assert all(field["about"] and field["allowed"] for field in one["fields"])
    rps = next(one for one in listed if one["name"] == "rps")
    assert {
        "name": "lam", "option": "--lam", "type": "float", "default": 0.1, "allowed": "[0, inf)",
        "about": "λ: weight of plausibility",
    } in rps["fields"]  # fmt: skip
    assert rps["fields"][-1]["type"] == "decoder" and rps["fields"][-1]["allowed"] == "a decoder or none"


def test_caches_lists_every_field(cli: Cli) -> None:
    listed = json.loads(cli("caches", "--json").out)["caches"]
    assert [one["name"] for one in listed] == list(CACHES)
    for one in listed:
        fields = fields_of(CACHES[one["name"]])
        assert [field["name"] for field in one["fields"]] == list(fields) and one["about"]
    out = cli("caches", "dual").out
    assert "--keep-prompt" in out and "--masks" not in out
    assert "Did you mean 'dual'?" in cli("caches", "duel").err


def test_decoders_for_people(cli: Cli) -> None:
    out = cli("decoders", "rps").out
    assert "--tau-pivot" in out and "rps/dream = rps:tau_pivot=0.95" in out and "--gamma" not in out
    assert "mid_entropy" in out and "[0, inf)" in out and "λ: weight of plausibility" in out
    assert "Did you mean 'rps'?" in cli("decoders", "rpss").err
    assert max(map(len, cli("decoders").out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["generate", "compare"])
def test_the_help_names_listings_that_exist(cli: Cli, name: str) -> None:
    out = " ".join(cli(name, "--help").out.split())
    assert "`ripple caches` lists them" in out
    assert name == "compare" or "`ripple decoders` lists them" in out


# -- other packages ----------------------------------------------------------------------------------------

MODULE = '''
from dataclasses import dataclass
from ripple.caches import DualCache
from ripple.decoders import SimpleRule
from ripple.fields import param

@dataclass(frozen=True)
class Leftmost(SimpleRule):
    """Commit the n leftmost positions."""
    name = "leftmost"
    paper = "a sample"
    n: int = param(1, "positions per step", within="[1, inf)")
    def pick(self, look):
        raise NotImplementedError

@dataclass(frozen=True)
class Odd(SimpleRule):
    """A field of a type that does not exist."""
    name = "odd"
    paper = "a sample"
    n: "NoSuchType" = None
    def pick(self, look):
        raise NotImplementedError

@dataclass(frozen=True)
class Lazy(DualCache):
    """Refresh every fourth forward."""
    name = "lazy"
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with two decoders, one of them broken, and a cache."""
    (tmp_path / "sample_pack.py").write_text(MODULE)
    info = tmp_path / "sample_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample-pack\nVersion: 1.0\n")
    points = (
        "[ripple.decoders]\nleftmost = sample_pack:Leftmost\nodd = sample_pack:Odd\ngone = sample_pack:Gone\n"
    )
    (info / "entry_points.txt").write_text(points + "[ripple.caches]\nlazy = sample_pack:Lazy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_loaded", {})
    yield


def test_decoders_and_caches_of_other_packages_are_listed_with_their_package(
    cli: Cli, installed: None
) -> None:
    listing = json.loads(cli("decoders", "--json").out)
    assert (
        listing["decoders"][-1]["name"] == "leftmost" and listing["decoders"][-1]["package"] == "sample_pack"
    )
    assert listing["decoders"][-1]["fields"][0]["allowed"] == "[1, inf)"
    out = cli("decoders", "leftmost").out
    assert "from sample_pack" in out and "--n" in out and "positions per step" in out
    assert json.loads(cli("caches", "--json").out)["caches"][-1]["package"] == "sample_pack"


def test_broken_ones_are_listed_with_the_reason_and_harm_nothing(cli: Cli, installed: None) -> None:
    broken = json.loads(cli("decoders", "--json").out)["broken"]
    assert set(broken) == {"gone", "odd"}
    assert "cannot be imported: AttributeError" in broken["gone"] and "NoSuchType" in broken["odd"]
    out = cli("decoders", "odd").out
    assert "odd" in out and "cannot be used" in out and "leftmost" not in out
    assert cli("generate", "--help").code == 0


def test_options_of_other_packages_are_options_of_the_command_line(cli: Cli, installed: None) -> None:
    out = cli("generate", "--decoder", "leftmost", "--help").out
    assert "decoder leftmost:" in out and "--n N" in out
