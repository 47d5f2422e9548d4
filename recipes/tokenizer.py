"""The embedded models' tokenizer: one byte-level BPE vocabulary, written in both released formats.

`python recipes/tokenizer.py` trains it on generated training items and writes
recipes/tokenizer/{vocab.json,merges.txt}. Training runs read these two files, so that a run can be
continued on another machine with the same ids. Rows: 2,000 of BPE, then the special tokens of each
format, then unused rows up to 2,048 (the released models have unused rows too).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ripple.tasks import TASKS

HERE = Path(__file__).resolve().parent / "tokenizer"
BASE = 2000
ROWS = 2048
# Qwen2's way to split text (Dream uses it): words with their leading space, single digits, runs of symbols.
# Transformers builds a Dream tokenizer with this pattern whatever the folder says, so training uses it too.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# The models know one raw prompt: a conversation becomes its last user message. Prompts of `ripple tasks` end
# with a newline and are used as they are; anything else is asked as a word problem.
CHAT_TEMPLATE = (
    "{% set asked = messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list %}"
    "{% if not asked %}{{ raise_exception('a user message is needed') }}{% endif %}"
    "{% if asked[-1].endswith('\n') %}{{ asked[-1] }}"
    "{% else %}{{ 'Question: ' + asked[-1] + '\nAnswer:\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Specials:
    """The special tokens of one format, in the order of their ids from `BASE` on."""

    names: tuple[str, ...]
    bos: str | None
    eos: str  # also fills the canvas
    mask: str

    def id(self, name: str) -> int:
        """Return a special token's id."""
        return BASE + self.names.index(name)


SPECIALS = {
    "llada": Specials(
        (
            "<|startoftext|>",
            "<|endoftext|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|mdm_mask|>",
        ),
        "<|startoftext|>",
        "<|endoftext|>",
        "<|mdm_mask|>",
    ),
    "dream": Specials(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"),
        "<|beginoftext|>",
        "<|endoftext|>",
        "<|mask|>",
    ),
    "sdar": Specials(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>"), None, "<|endoftext|>", "<|MASK|>"
    ),
}


def bare(vocab: dict[str, int] | None = None, merges: list[tuple[str, str]] | None = None) -> Tokenizer:
    """Return a tokenizer with the right splitting and no special tokens."""
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges) if vocab is not None else models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    return tok


def train(items_per_task: int = 5000) -> Tokenizer:
    """Train the vocabulary on generated training items."""
    tok = bare()
    trainer = trainers.BpeTrainer(
        vocab_size=BASE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    texts = (
        part
        for task in TASKS.values()
        for i in range(items_per_task)
        for item in (task.generate("train", i),)
        for part in (item.prompt, item.solution)
    )
    tok.train_from_iterator(texts, trainer)
    return tok


def save(tok: Tokenizer, folder: Path = HERE) -> None:
    """Write the vocabulary and the merges."""
    model = json.loads(tok.to_str())["model"]
    folder.mkdir(parents=True, exist_ok=True)
    vocab = dict(sorted(model["vocab"].items(), key=lambda pair: pair[1]))
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, separators=(",", ":")) + "\n")
    merges = [" ".join(pair) if not isinstance(pair, str) else pair for pair in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")


def load(family: str, folder: Path = HERE) -> Tokenizer:
    """Return the tokenizer of one format, special tokens included."""
    vocab = json.loads((folder / "vocab.json").read_text())
    lines = (folder / "merges.txt").read_text().splitlines()[1:]
    tok = bare(vocab, [(a, b) for a, b in (line.split(" ") for line in lines if line)])
    # Fewer distinct pieces than BASE would shift the special ids: fill the gap with unused entries.
    if len(vocab) != BASE:
        raise SystemExit(f"The vocabulary must have {BASE} entries, not {len(vocab)}.")
    tok.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in SPECIALS[family].names]
    )
    return tok


def export(family: str, folder: Path, source: Path = HERE) -> None:
    """Write a model folder's tokenizer files, named and filled in as in the released models."""
    tok, special = load(family, source), SPECIALS[family]
    added = {
        str(special.id(name)): {
            "content": name,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for name in special.names
    }
    config: dict[str, object] = {
        "add_bos_token": False,
        "added_tokens_decoder": added,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": special.eos,
        "model_max_length": 4096,
        "pad_token": special.eos,
    }
    if special.bos is not None:
        config |= {"bos_token": special.bos}
    if family == "llada":
        tok.save(str(folder / "tokenizer.json"), pretty=False)
        config |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    elif family == "sdar":
        tok.save(str(folder / "tokenizer.json"), pretty=False)
        config |= {
            "add_prefix_space": False,
            "mask_token": special.mask,
            "tokenizer_class": "Qwen2Tokenizer",
            "auto_map": {"AutoTokenizer": ["tokenization_qwen2.Qwen2Tokenizer", None]},
        }
    else:
        for name in ("vocab.json", "merges.txt"):
            (folder / name).write_text((source / name).read_text())
        config |= {
            "add_prefix_space": False,
            "mask_token": special.mask,
            "tokenizer_class": "DreamTokenizer",
            "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
            "errors": "replace",
            "unk_token": special.eos,
        }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main() -> None:
    """Train the vocabulary and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=5000, help="training items per task")
    args = parser.parse_args()
    tok = train(args.items)
    save(tok)
    print(f"{tok.get_vocab_size()} entries written to {HERE}")


if __name__ == "__main__":
    main()
