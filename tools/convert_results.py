"""Turns result files of schema version 1 into version 2 and proves that no figure changed.

    python tools/convert_results.py results/decoders-gpu.jsonl [MORE ...]       # in place
    python tools/convert_results.py --check FILE ...                            # convert nothing, only prove

The proof: every new line is turned back and must equal the old one, field by field. Where drawings of the
file lie beside it (Markdown, SVG, PNG, HTML), they are drawn again from the new lines and must equal the old
ones but for labels that are spelled differently; the labels are listed. What version 1 did not write down is
null: the weights' hash, the version, whether products were fused.

`programs` were lines written down from what runs printed; they are analyses of the name `accuracy` now.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ripple.caches import cache
from ripple.decoders import decoder
from ripple.errors import RippleError
from ripple.eval import blame, decoders
from ripple.eval.facts import choose_model
from ripple.eval.lines import check_line, make_line, read_results, run_line, run_name, short_hash
from ripple.fields import join_spec, split_commas, split_spec
from ripple.files import Line, read_lines, write_lines
from ripple.paper import report, run

RENAMED = {  # fields of decoders and caches: version 1 -> now
    "stock_tail": "match_fast_dllm_tail", "stock_dream": "match_klass_dream",
    "stock_first": "match_fast_dllm_first",
}  # fmt: skip
OLD = {new: old for old, new in RENAMED.items()}
OLD_FILTER = "tiny-llada"  # learn2pd's default in version 1; now it is the one in the model's folder
PROCESSORS = ("x86_64", "aarch64", "arm64", "AMD64")  # device names of version 1 that mean a CPU
NUMBERS = (
    "n", "accuracy", "interval", "right", "nfe", "nfe_normal", "nfe_lookahead", "new_tokens", "seconds",
    "tps", "torch", "batch",
)  # fmt: skip
COLUMNS = ("source_lines", "bound")  # that a summary line may have
TIMING = ("length", "n", "nfe", "new_tokens", "seconds", "tps", "forwards")
PAPER = {
    "timing": TIMING, "oracle": ("length", "n", "solved", "points"),
    "snapshots": ("length", "n", "item", "prompt", "sides"),
}  # fmt: skip
BLAME = (
    "n", "length", "solved", "lost", "commits", "guilty", "bin_nats", "pivots_by_entropy",
    "guilty_by_entropy", "cases",
)  # fmt: skip
PRINTED = ("length", "n", "n_right", "nfe", "right")  # of programs that were evaluated and only printed
ITEM = (
    "item", "digest", "right", "text", "finish", "nfe", "nfe_normal", "nfe_lookahead", "prompt_tokens",
    "new_tokens", "tokens_fast_dllm", "seconds",
)  # fmt: skip
RUN = (
    "model", "weights", "device", "dtype", "fused", "task", "decoder", "length", "block", "lookahead", "seed",
    "temperature", "stop_at_end", "stop", "version", "chat",
)  # fmt: skip
TASK_FACTS = ("shots", "sources", "notes", "task_stops")


def picked(line: Line, names: Sequence[str]) -> Line:
    """Return those of the fields that the line has."""
    return {name: line[name] for name in names if name in line}


# -- settings ---------------------------------------------------------------------------------------------


def new_setting(old: str, model: str) -> str:
    """Return `rps(tau_pivot=0.95, standard=frechet)` as one types it, its fields in the same order."""
    name, pairs = _read_old(old)
    if name == "learn2pd" and pairs.get("filter", OLD_FILTER) == model:
        pairs.pop("filter", None)  # the model's own, which is the default now
    typed = join_spec(name, pairs)
    decoder(typed)  # it must mean something
    return typed


def _read_old(old: str) -> tuple[str, dict[str, str]]:
    match = re.fullmatch(r"([\w/-]+)(?:\((.*)\))?", old)
    if match is None:
        raise RippleError(f"{old!r} is no setting of version 1.")
    pairs = {}
    for part in split_commas(match[2]) if match[2] else ():
        name, _, value = part.partition("=")
        inner = join_spec(*_read_old(value)) if name == "standard" else value
        pairs[RENAMED.get(name, name)] = inner
    return match[1], pairs


def old_setting(new: str, model: str) -> str:
    """Return a setting as version 1 wrote it."""
    name, pairs = split_spec(new)
    if name == "learn2pd" and model != OLD_FILTER:
        pairs = {"filter": model, **pairs}
    if "standard" in pairs:
        pairs["standard"] = old_setting(pairs["standard"], model)
    inside = ", ".join(f"{OLD.get(field, field)}={value}" for field, value in pairs.items())
    return f"{name}({inside})" if inside else name


def renamed(fields: Line, names: dict[str, str]) -> Line:
    """Return a decoder's fields under other names."""
    return {names.get(name, name): value for name, value in fields.items()}


def new_cache(old: str) -> str:
    """Return a cache policy under the present names of its fields."""
    for before, now in RENAMED.items():
        old = old.replace(before, now)
    return cache(old).describe()


def old_cache(new: str) -> str:
    """Return a cache policy as version 1 wrote it."""
    for before, now in RENAMED.items():
        new = new.replace(now, before)
    return new


def family_of(model: str) -> str:
    """Return a model's family, which version 1 did not write down."""
    return choose_model(model).family


# -- one line, and back -----------------------------------------------------------------------------------


def summary(old: Line) -> Line:
    """Convert a line of `ripple bench decoders`."""
    model, setting = old["model"], new_setting(old["setting"], old["model"])
    _check_fields(setting, renamed(old["fields"], RENAMED), model)
    facts = {
        "model": model, "model_family": family_of(model), "weights": None,
        "device": "cpu" if old["device"] in PROCESSORS else "cuda",
        "dtype": old["dtype"], "fused": None, "task": old["family"], "task_facts": {}, "chat": False,
        "decoder": old["method"], "setting": setting, "fields": renamed(old["fields"], RENAMED),
        "length": old["length"], "block": old["block"],
        "cache": new_cache(old["cache"]), "lookahead": "packed", "seed": 0, "temperature": 0.0,
        "stop_at_end": False, "stop": [], "version": None,
    }  # fmt: skip
    line = make_line("summary", {"run": run_name(facts), **facts, **picked(old, NUMBERS)})
    line |= {"canvases": old["rows"], "device_name": old["device"], **picked(old, COLUMNS)}
    return line | ({"search": old["search"]} if old["search"] is not None else {})


def summary_back(new: Line) -> Line:
    """Return a summary line as version 1 wrote it."""
    return picked(new, NUMBERS) | picked(new, COLUMNS) | {
        "bench": "decoders", "model": new["model"], "family": new["task"], "cache": old_cache(new["cache"]),
        "method": new["decoder"], "setting": old_setting(new["setting"], new["model"]),
        "fields": renamed(new["fields"], OLD), "length": new["length"], "block": new["block"],
        "rows": new["canvases"], "device": new["device_name"], "dtype": new["dtype"],
        "search": new.get("search"),
    }  # fmt: skip


def paper(old: Line) -> Line:
    """Convert a line of `ripple paper` that is no setting's."""
    name, model = old["experiment"], old["model"]
    is_setting = name == "timing"
    setting = new_setting(old["setting"], model) if is_setting else old["setting"]
    return make_line("analysis", {
        "analysis": name, "model": model, "model_family": family_of(model), "task": old["family"],
        "chat": False, "cache": new_cache(old["cache"]), "device_name": old["device"],
        "dtype": old["dtype"], "torch": old["torch"], **({"decoder": old["method"]} if is_setting else {}),
        "setting": setting, **picked(old, PAPER[name]),
    })  # fmt: skip


def paper_back(new: Line) -> Line:
    """Return a timing, an oracle analysis or snapshots as version 1 wrote them."""
    name, model = new["analysis"], new["model"]
    return {
        "bench": "paper", "experiment": name, "model": model, "family": new["task"],
        "cache": old_cache(new["cache"]), "device": new["device_name"], "dtype": new["dtype"],
        "torch": new["torch"], "method": new.get("decoder", new["setting"]),
        "setting": old_setting(new["setting"], model) if name == "timing" else new["setting"],
        **picked(new, PAPER[name]),
    }  # fmt: skip


def programs(old: Line) -> Line:
    """Convert a line that was written down from what a run printed."""
    own = {"cache": new_cache(old["cache"]), "dtype": old["dtype"], **picked(old, PRINTED)}
    own |= {"canvases": old["rows"]} if "rows" in old else {}
    return make_line("analysis", _head("accuracy", old) | own)


def programs_back(new: Line) -> Line:
    """Return such a line as version 1 wrote it."""
    own = {"cache": old_cache(new["cache"]), "dtype": new["dtype"], **picked(new, PRINTED)}
    own |= {"rows": new["canvases"]} if "canvases" in new else {}
    return _head_back("programs", new) | own


def _head(analysis: str, old: Line) -> Line:
    model = old["model"]
    return {
        "analysis": analysis, "model": model, "model_family": family_of(model), "task": old["family"],
        "setting": new_setting(old["setting"], model),
    }  # fmt: skip


def _head_back(bench: str, new: Line) -> Line:
    setting = old_setting(new["setting"], new["model"])
    return {"bench": bench, "model": new["model"], "family": new["task"], "setting": setting}


CONVERTERS: dict[str, tuple[Callable[[Line], Line], Callable[[Line], Line]]] = {
    "decoders": (summary, summary_back), "paper": (paper, paper_back), "programs": (programs, programs_back),
    "blame": (
        lambda old: make_line("analysis", _head("blame", old) | picked(old, BLAME)),
        lambda new: _head_back("blame", new) | picked(new, BLAME),
    ),
}  # fmt: skip


def _check_fields(setting: str, fields: Line, model: str) -> None:
    """Raise unless a setting means these fields."""
    own = {"filter": model} if fields.get("filter") == model else {}
    meant = decoder(setting).settings() | own
    if decoder(setting).describe() != setting or any(meant[name] != fields[name] for name in fields):
        raise RippleError(f"The setting {setting!r} does not mean the fields {fields} that stand beside it.")


# -- the lines of `ripple eval` -----------------------------------------------------------------------------


def evaluated(lines: Sequence[Line]) -> Iterator[Line]:
    """Convert a file of `ripple eval`: what every item said of its run is said once."""
    environments = {short_hash(old): _environment(old) for old in lines if old["kind"] == "environment"}
    written: set[str] = set()
    for old in lines:
        if old["kind"] == "item":
            own, environment = run_line(_run_facts(old)), environments[old["environment"]]
            names = {"run": own["run"], "environment": environment["environment"]}
            for head, name in zip((own, environment), names.values(), strict=True):
                if name not in written:
                    written.add(name)
                    yield head
            marks = {"marks": old.get("marks", {}), "found": old.get("found", {})}
            costs = {"canvases": old["rows"], "engine_seconds": old["wall_seconds"]}
            theirs = {"tokens_fast_dllm": old.get("tokens_fast_dllm")}
            yield make_line("item", names | picked(old, ITEM) | marks | costs | theirs)


def _environment(old: Line) -> Line:
    facts = {name: value for name, value in old.items() if name not in ("kind", "run", "device")}
    facts["device_name"] = old["device"]
    return make_line("environment", {"environment": short_hash(facts), **facts})


def _run_facts(old: Line) -> Line:
    return picked(old, RUN) | {
        "model_family": family_of(old["model"]), "task_facts": picked(old, TASK_FACTS),
        "setting": new_setting(old["setting"], old["model"]), "fields": renamed(old["fields"], RENAMED),
        "cache": new_cache(old["cache"]), "chat": old.get("chat", False),
    }  # fmt: skip


def item_back(new: Line, of: Line) -> Line:
    """Return what an item line and its run say, under the names of version 1; without names of runs."""
    old = picked(new, ITEM) | {name: new[name] for name in ("marks", "found") if new[name]}
    old |= {"rows": new["canvases"], "wall_seconds": new["engine_seconds"]}
    old |= picked(of, RUN) | of["task_facts"] | {"fields": renamed(of["fields"], OLD)}
    return old | {
        "setting": old_setting(of["setting"], of["model"]), "cache": old_cache(of["cache"]),
    }  # fmt: skip


# -- a file, and the proof --------------------------------------------------------------------------------


def convert(old: Sequence[Line], where: str) -> list[Line]:
    """Convert the lines of one file and prove that nothing but names changed."""
    if old and all("kind" in line and "v" not in line for line in old):
        new = list(evaluated(old))
        _prove_items(old, new, where)
    else:
        new = []
        for number, line in enumerate(old, start=1):
            if line.get("bench") not in CONVERTERS:
                raise RippleError(f"{where}, line {number}: not a line of schema version 1.")
            there, back = CONVERTERS[line["bench"]]
            new.append(there(line))
            _must_equal(back(new[-1]), line, f"{where}, line {number}")
    for number, line in enumerate(new, start=1):
        check_line(line, f"{where}, line {number} of the result")
    return new


def _prove_items(old: Sequence[Line], new: Sequence[Line], where: str) -> None:
    runs = {line["run"]: line for line in new if line["kind"] == "run"}
    before = [line for line in old if line["kind"] == "item"]
    after = [line for line in new if line["kind"] == "item"]
    for number, (was, now) in enumerate(zip(before, after, strict=True), start=1):
        policy = cache(runs[now["run"]]["cache"])
        back = item_back(now, runs[now["run"]]) | picked(was, ("kind", "run", "environment"))
        back |= {"refresh": policy.refresh, "stock_first": policy.match_fast_dllm_first}
        _must_equal(back, {"tokens_fast_dllm": None} | was, f"{where}, item {number}")


def _must_equal(back: Line, old: Line, where: str) -> None:
    if back != old:
        names = sorted(name for name in {*back, *old} if back.get(name, "?") != old.get(name, "?"))
        raise RippleError(f"{where}: {', '.join(names)} would change; nothing was written.")


def labels(old: Sequence[Line], new: Sequence[Line]) -> dict[str, str]:
    """Return which labels are spelled differently now, the longest first."""
    pairs = {(was.get("setting"), now.get("setting")) for was, now in zip(old, new, strict=True)}
    changed = {was: now for was, now in pairs if was is not None and was != now}
    return dict(sorted(changed.items(), key=lambda pair: -len(pair[0])))


def draw(folder: Path, name: str, lines: Sequence[Line]) -> None:
    """Draw what is drawn of a file of these lines, in its folder."""
    kinds = {line.get("analysis", line["kind"]) for line in lines}
    if name == run.LINES:
        report.write(folder)
    elif kinds == {"summary"}:
        decoders.draw(folder / name)
    elif kinds == {"blame"}:
        blame.draw(folder / name, lines)


def prove_drawings(path: Path, new: Sequence[Line], spelled: dict[str, str]) -> list[Path]:
    """Draw a file's tables and figures from its new lines; return those that lie beside it and are the same.

    Raise where more than a label changed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for notes in path.parent.glob("*notes.md"):
            shutil.copy(notes, folder)
        write_lines(folder / path.name, new)
        draw(folder, path.name, new)
        drawn = [one for one in sorted(folder.iterdir()) if "notes" not in one.name and one.name != path.name]
        there = [one for one in drawn if (path.parent / one.name).exists()]
        for one in there:
            before, after = (path.parent / one.name).read_bytes(), one.read_bytes()
            if before != after and not _same_text(before, after, spelled):
                raise RippleError(f"{path.parent / one.name} would change in more than its labels.")
    return [path.parent / one.name for one in there]


def _same_text(before: bytes, after: bytes, spelled: dict[str, str]) -> bool:
    """Compare two texts but for labels; the column `rows` is called `canvases`."""
    was, now = before.decode(errors="surrogateescape"), after.decode(errors="surrogateescape")
    for old, new in spelled.items():
        was = was.replace(f"| {old} |", f"| {new} |")
    return was.replace("| rows |", "| canvases |") == now


def convert_file(path: Path, only_check: bool) -> str:
    """Convert one file, write it and its drawings, and return what was proved."""
    old = read_lines(path)
    if not old:
        raise RippleError(f"There are no result lines in {path}.")
    if all(line.get("v") == 2 for line in old):
        return f"{path}: is of schema version 2 already."
    new = convert(old, str(path))
    spelled = labels(old, new) if len(old) == len(new) and "bench" in old[0] else {}
    same = prove_drawings(path, new, spelled)
    if not only_check:
        write_lines(path, new, "the results")
        read_results(path)
        if same:
            draw(path.parent, path.name, new)
    told = f"{path}: {len(old)} lines; turned back, every field of every line equals the old one."
    if same:
        names = ", ".join(one.name for one in same)
        told += f"\n  drawn again, equal but for labels: {names}"
    return "\n".join([told, *(f"  {was}  ->  {now}" for was, now in spelled.items())])


def main(argv: Sequence[str] | None = None) -> int:
    """Convert the files that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing, only prove")
    args = parser.parse_args(argv)
    try:
        for path in args.files:
            print(convert_file(path, args.check))
    except RippleError as error:
        print(f"convert_results: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
