"""Fetches a benchmark's published files from the Hugging Face hub, for the same reader as local ones."""

from __future__ import annotations

from pathlib import Path

from ripple.errors import RippleError, unknown


def parquet_file(split: str) -> str:
    """Return what the hub calls the only Parquet file of a split."""
    return f"{split}-00000-of-00001.parquet"


# benchmark -> data set on the hub, and its files that we read
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "gsm8k": ("openai/gsm8k", (f"main/{parquet_file('test')}", f"main/{parquet_file('train')}")),
    "math500": ("HuggingFaceH4/MATH-500", ("test.jsonl",)),
    "humaneval": ("openai/openai_humaneval", (f"openai_humaneval/{parquet_file('test')}",)),
    "mbpp": (
        "google-research-datasets/mbpp",
        (f"full/{parquet_file('test')}", f"full/{parquet_file('prompt')}"),
    ),
}


def fetch(name: str) -> Path:
    """Download a benchmark's files, or find them in the hub's cache; return the folder they lie in."""
    if name not in FILES:
        raise unknown("benchmark", name, FILES)
    repository, files = FILES[name]
    otherwise = f"say with --data where {name}'s files are"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise RippleError(
            f"Fetching {name} needs the packages of the extra `hub`: pip install 'ripple-dllm[hub]', or "
            f"{otherwise}."
        ) from None
    try:
        # One snapshot, so that all files are of the same commit.
        folder = Path(snapshot_download(repository, repo_type="dataset", allow_patterns=list(files)))
    except Exception as cause:  # network, HTTP, disk and validation errors share no base class
        raise RippleError(
            f"{repository} is not in the local hub cache and cannot be fetched from the hub "
            f"({type(cause).__name__}): {otherwise}."
        ) from cause
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise RippleError(
            f"{repository} lacks the file {missing[0]}, on the hub or in its cache: {otherwise}."
        )
    return folder
