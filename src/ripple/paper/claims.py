"""What the paper says about results: accuracy, forwards, speed, lengths, caches. One check per statement."""

from __future__ import annotations

from ripple.analysis import published
from ripple.analysis.lines import Line
from ripple.analysis.published import METHODS
from ripple.bench.grid import paper_rps
from ripple.caches import CACHES
from ripple.decoders import Lopa
from ripple.paper.book import Book
from ripple.paper.experiments import EXPERIMENTS, four
from ripple.paper.judge import (
    AGREES,
    DIFFERS,
    ENOUGH,
    LEVEL,
    OPEN,
    Finding,
    higher,
    main_tables,
    mean,
    not_lower,
    pair_up,
    paper_tables,
)

LITTLE_SLOWER = 1.3  # a lookahead forward up to this much dearer than a plain one counts as "a little"


def fewest_forwards(book: Book) -> Finding | None:
    """RPS needs the fewest forwards."""
    tables = [best for _, _, best in main_tables(book)]
    if not tables:
        return None
    n = sum(min(best, key=lambda m: best[m]["nfe"]) == "rps" for best in tables)
    theirs = [min(table, key=lambda m: table[m].nfe) == "rps" for table in paper_tables(book)]
    claim = f"RPS needs the fewest forwards (in {sum(theirs)} of the paper's {len(theirs)} tables)."
    speedups = [best["default"]["nfe"] / best["rps"]["nfe"] for best in tables]
    times = f"{min(speedups):.1f} to {max(speedups):.1f} times fewer than Default"
    ours = f"It does in {n} of {len(tables)} tables, {times}."
    return Finding("main", claim, ours, AGREES if 2 * n > len(tables) else DIFFERS)


def as_good_as_default(book: Book) -> Finding | None:
    """RPS keeps Default's accuracy."""
    found = pair_up([(best["default"], best["rps"]) for _, _, best in main_tables(book)])
    if found is None:
        return None
    theirs = [table["rps"].accuracy - table["default"].accuracy for table in paper_tables(book)]
    claim = f"RPS largely preserves Default's accuracy ({mean(theirs):+.1f} points on average)."
    return Finding("main", claim, f"RPS against Default: {found}.", not_lower(found))


def _against_lopa(book: Book) -> list[tuple[Line, Line]]:
    """Return LoPA's and RPS's lines, both at their one published setting."""
    pairs = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["main"]):
            both = book.rows(model, task, [Lopa(), paper_rps(model)])
            if len(both) == 2:
                pairs.append((both[0], both[1]))
    return pairs


def better_than_lopa(book: Book) -> Finding | None:
    """RPS is more accurate than LoPA."""
    found = pair_up(_against_lopa(book))
    if found is None:
        return None
    theirs = [table["rps"].accuracy - table["lopa"].accuracy for table in paper_tables(book)]
    claim = f"RPS is more accurate than LoPA ({min(theirs):+.1f} to {max(theirs):+.1f} points)."
    return Finding("main", claim, f"RPS against LoPA (k = 3): {found}.", higher(found))


def fewer_than_lopa(book: Book) -> Finding | None:
    """RPS needs fewer forwards than LoPA."""
    pairs = _against_lopa(book)
    if not pairs:
        return None
    ratios = [rps["nfe"] / lopa["nfe"] for lopa, rps in pairs]
    theirs = [table["rps"].nfe / table["lopa"].nfe for table in paper_tables(book)]
    claim = f"RPS needs {mean(theirs):.2f} times LoPA's forwards on average."
    n = sum(ratio < 1 for ratio in ratios)
    ours = f"{mean(ratios):.2f} times on average; fewer in {n} of {len(ratios)} tables."
    return Finding("main", claim, ours, AGREES if (mean(ratios) < 1) == (mean(theirs) < 1) else DIFFERS)


def speed(book: Book) -> Finding | None:
    """RPS is several times faster by the clock."""
    found = []
    for model, task, best in main_tables(book):
        mine, base = book.tps(model, task, best["rps"]["setting"]), book.tps(model, task, "default")
        if mine and base:
            found.append(mine / base)
    if not found:
        return None
    theirs = [table["rps"].tps_speedup for table in paper_tables(book)]
    claim = f"RPS decodes {min(theirs):.1f} to {max(theirs):.1f} times as many tokens per second as Default."
    ours = f"{min(found):.1f} to {max(found):.1f} times, one request at a time."
    return Finding("main", claim, ours, AGREES if min(found) >= min(theirs) else DIFFERS)


def at_all_lengths(book: Book) -> Finding | None:
    """RPS has the largest NFE speed-up at every length."""
    experiment = EXPERIMENTS["length"]
    n = n_best = 0
    for model in book.models:
        for task in book.tasks_of(experiment):
            for share in experiment.lengths:
                rows = book.rows(model, task, four(model), length=round(share * book.length))
                if len(rows) == 4:
                    n += 1
                    n_best += min(rows, key=lambda row: row["nfe"])["method"] == "rps"
    if not n:
        return None
    theirs = [
        max(rows, key=lambda m: rows[m][length].nfe_speedup) == "rps"
        for tables in published.LENGTH.values()
        for rows in tables.values()
        for length in (128, 256, 512)
    ]
    claim = f"RPS has the largest NFE speed-up at {sum(theirs)} of {len(theirs)} lengths and tasks."
    ours = f"At {n_best} of {n}."
    return Finding("length", claim, ours, AGREES if 2 * n_best > n else DIFFERS)


def lookahead_is_cheap(book: Book) -> Finding | None:
    """A lookahead forward is little slower than a plain one."""
    found = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["main"]):
            line = book.timing(model, task, paper_rps(model).describe())
            if line and line["forwards"]["lookahead"]["ms"] and line["forwards"]["normal"]["ms"]:
                found.append(line["forwards"]["lookahead"]["ms"] / line["forwards"]["normal"]["ms"])
    if not found:
        return None
    theirs = published.BREAKDOWN["lookahead"][1] / published.BREAKDOWN["normal"][1]
    claim = f"A lookahead forward takes {theirs:.2f} times as long as a normal one."
    ours = f"{min(found):.2f} to {max(found):.2f} times."
    return Finding("breakdown", claim, ours, AGREES if mean(found) <= LITTLE_SLOWER else DIFFERS)


def caches_add_up(book: Book) -> Finding | None:
    """RPS with a cache is the fastest of all combinations."""
    winners = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["caches"]):
            speeds = {
                (cache, line["method"]): line["tps"]
                for cache in CACHES
                for line in book.other("timing", model, task, cache)
            }
            if len({cache for cache, _ in speeds}) > 1:
                winners.append((model, task, *max(speeds, key=lambda key: speeds[key])))
    if not winners:
        return None
    n = sum(cache != "none" and method == "rps" for _, _, cache, method in winners)
    claim = f"RPS with a cache has the highest throughput (up to {published.CACHED_SPEEDUP} times Default)."
    named = ", ".join(f"{m} on {t}: {METHODS[method]} with {cache}" for m, t, cache, method in winners)
    return Finding("caches", claim, f"Fastest are, for {named}.", AGREES if 2 * n > len(winners) else DIFFERS)


def caches_cost_nothing(book: Book) -> Finding | None:
    """The prefix cache hardly changes RPS's accuracy."""
    pairs = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["caches"]):
            both = [(cache, book.length) for cache in ("none", "prefix")]
            plain, cached = book.across(model, task, [paper_rps(model)], both)
            if plain and cached:
                pairs.append((plain[0], cached[0]))
    found = pair_up(pairs)
    if found is None:
        return None
    claim = f"A prefix cache changes accuracy by less than {published.CACHED_CHANGE} points."
    is_small = abs(found.points) < published.CACHED_CHANGE and found.n >= ENOUGH
    verdict = AGREES if is_small else DIFFERS if found.p < LEVEL else OPEN
    return Finding("caches", claim, f"RPS with prefix against without: {found}.", verdict)


CHECKS = (
    fewest_forwards, as_good_as_default, better_than_lopa, fewer_than_lopa, speed, at_all_lengths,
    lookahead_is_cheap, caches_add_up, caches_cost_nothing,
)  # fmt: skip
