"""Lines of what was killed, soaked and fuzzed, as one table: what was done, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ripple.files import Line

HEAD = "| what | how often | what came of it |\n| --- | --- | --- |"


def survival_table(name: str, lines: Sequence[Line]) -> str:
    """Return the table as one Markdown page; lines of the same kind are summed up in one row."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["bench"], line.get("what", "")), []).append(line)
    rows = [f"| {' | '.join(_ROWS[bench](group))} |" for (bench, _), group in groups.items()]
    return "\n".join([f"# What survives\n\nDrawn from `{name}`; one machine, CPU.\n", HEAD, *rows, ""])


def _kill(lines: Sequence[Line]) -> tuple[str, str, str]:
    if "clients" in lines[0]:
        return _replicas(lines)
    victims: Counter[str] = Counter()
    for line in lines:
        victims.update({line["victim"]: line["n"]} if isinstance(line["victim"], str) else line["victim"])
    told = ", ".join(f"{n} × {victim}" for victim, n in victims.items())
    jobs, same = _sum(lines, "jobs"), _sum(lines, "identical")
    outcome = (
        f"{_sum(lines, 'lost')} rows lost, {_sum(lines, 'doubled')} doubled; {same} of {jobs} jobs ended "
        "with the file of an undisturbed one"
    )
    return f"`ripple {lines[0]['what']}`, SIGKILL", f"{_sum(lines, 'n')} kills ({told})", outcome


def _replicas(lines: Sequence[Line]) -> tuple[str, str, str]:
    stray = _sum(lines, "failed_that_were_not_in_flight")
    outcome = (
        f"{_sum(lines, 'failed')} requests failed, {stray} of them not in flight at a kill, "
        f"{_sum(lines, 'failed_without_503')} without a 503, {_sum(lines, 'wrong')} wrong; all replicas back "
        f"after {max(x['back_s'][0] for x in lines):g} s (median) and "
        f"{max(x['back_s'][1] for x in lines):g} s (longest); "
        f"{_sum(lines, 'failed_in_updates')} failed in {_sum(lines, 'updates')} rolling updates"
    )
    times = f"{_sum(lines, 'n')} kills under {_sum(lines, 'requests'):,} requests"
    return "a replica behind Ray Serve, SIGKILL", times, outcome


def _soak(lines: Sequence[Line]) -> tuple[str, str, str]:
    shares = ", ".join(
        f"{100 * lines[0][name]:g} % {told}"
        for name, told in (("vanish", "leave"), ("bad", "are broken"), ("slow", "read slowly"))
        if lines[0][name]
    )
    growth = max(lines, key=lambda line: abs(line["growth"]))["growth"]
    files = [max(line["open_files"]) - line["open_files"][0] for line in lines]
    outcome = (
        f"{_sum(lines, 'wrong')} wrong answers, {_sum(lines, 'lost')} lost; memory {100 * growth:+.1f} % "
        f"from the first tenth to the last, at most {max(files)} more open files"
    )
    return "the server, soaked", f"{_sum(lines, 'requests'):,} requests ({shares})", outcome


def _fuzz(lines: Sequence[Line]) -> tuple[str, str, str]:
    told = ", ".join(f"{name} {one['n']:,}" for name, one in lines[0]["surfaces"].items())
    outcome = (
        f"{_sum(lines, 'refused'):,} refused cleanly, {_sum(lines, 'accepted'):,} accepted, "
        f"{_sum(lines, 'failed')} neither"
    )
    return "malformed inputs", f"{_sum(lines, 'n'):,} ({told})", outcome


_ROWS: dict[str, Callable[[Sequence[Line]], tuple[str, str, str]]] = {
    "kill": _kill, "soak": _soak, "fuzz": _fuzz,
}  # fmt: skip


def _sum(lines: Sequence[Line], name: str) -> int:
    return sum(int(line[name]) for line in lines)
