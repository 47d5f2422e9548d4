"""A model is a folder or a hub id; nothing here touches the network."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects

from ripple.errors import RippleError
from ripple.models.hub import resolve


def test_an_existing_folder_is_returned_as_it_is(tmp_path, monkeypatch):
    assert resolve(tmp_path) == tmp_path
    assert resolve(str(tmp_path)) == tmp_path
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name") == Path("owner/name")


def test_a_hub_id_is_fetched_without_code_or_pickles(tmp_path, monkeypatch):
    asked = {}

    def fetch(name, **patterns):
        asked.update(patterns, name=name)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert resolve("GSAI-ML/LLaDA-8B-Instruct") == tmp_path
    assert asked["name"] == "GSAI-ML/LLaDA-8B-Instruct"
    assert set(asked["allow_patterns"]) == {"*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"}
    held = ["config.json", "model.safetensors", "modeling_x.py", "pytorch_model.bin"]
    held += ["linear_spec_lora/adapter_model.safetensors", "linear_spec_lora/adapter_config.json"]
    fetched = filter_repo_objects(
        held, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
    )
    assert list(fetched) == ["config.json", "model.safetensors"], "no folder within is ever read"


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch):
    def fail(name, **patterns):
        raise ConnectionError("line 1\nline 2")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(RippleError) as caught:
        resolve("owner/name")
    assert str(caught.value) == (
        "owner/name is no folder here, is not in the local hub cache, and cannot be fetched from the hub "
        "(ConnectionError)."
    )


@pytest.mark.parametrize("name", ["llada", "./missing", "/missing/folder", "a/b/c", "", "owner/../x"])
def test_what_is_neither_folder_nor_hub_id_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RippleError, match="neither an existing folder nor a hub id"):
        resolve(name)


def test_a_file_is_not_a_model(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(RippleError, match="is a file"):
        resolve(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", [None, 3, ["tiny-llada"], b"tiny-llada"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(RippleError, match="A model is a folder or a name, not"):
        resolve(name)


def test_a_misspelt_name_gets_the_nearest_embedded_model():
    with pytest.raises(RippleError, match="Did you mean 'tiny-llada'"):
        resolve("tiny-lada")


@pytest.mark.parametrize("name", ["x" * 100_000, "~nobody-here/model/x", "a\0b", "\ud800", "x/" * 3000])
def test_odd_names_give_one_sentence(name):
    with pytest.raises(RippleError) as caught:
        resolve(name)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400
