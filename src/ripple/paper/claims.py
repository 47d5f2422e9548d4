"""What the paper says about results: accuracy, forwards, speed, lengths, caches. One check per statement."""

from __future__ import annotations

from ripple.decoders import Lopa
from ripple.eval.settings import four
from ripple.files import Line
from ripple.paper import published
from ripple.paper.experiments import CACHES, EXPERIMENTS
from ripple.paper.judge import (
    AGREES,
    DIFFERS,
    ENOUGH,
    LEVEL,
    OPEN,
    Judgement,
    described,
    higher,
    main_tables,
    mean,
    not_lower,
    paper_tables,
    points,
    pool_lines,
)
from ripple.paper.line_index import LineIndex
from ripple.paper.published import METHODS

LITTLE_SLOWER = 1.3  # a lookahead forward up to this much dearer than a plain one counts as "a little"


def fewest_forwards(index: LineIndex) -> Judgement | None:
    """RPS needs the fewest forwards."""
    tables = [best for _, _, best in main_tables(index)]
    if not tables:
        return None
    n = sum(min(best, key=lambda m: best[m]["nfe"]) == "rps" for best in tables)
    theirs = [min(table, key=lambda m: table[m].nfe) == "rps" for table in paper_tables(index)]
    claim = f"RPS needs the fewest forwards (in {sum(theirs)} of the paper's {len(theirs)} tables)."
    speedups = [best["default"]["nfe"] / best["rps"]["nfe"] for best in tables]
    times = f"{min(speedups):.1f} to {max(speedups):.1f} times fewer than Default"
    ours = f"It does in {n} of {len(tables)} tables, {times}."
    return Judgement("main", claim, ours, AGREES if 2 * n > len(tables) else DIFFERS)


def as_good_as_default(index: LineIndex) -> Judgement | None:
    """RPS keeps Default's accuracy."""
    pair = pool_lines([(best["default"], best["rps"]) for _, _, best in main_tables(index)])
    if pair is None:
        return None
    theirs = [table["rps"].accuracy - table["default"].accuracy for table in paper_tables(index)]
    claim = f"RPS largely preserves Default's accuracy ({mean(theirs):+.1f} points on average)."
    return Judgement("main", claim, f"RPS against Default: {described(pair)}.", not_lower(pair))


def _against_lopa(index: LineIndex) -> list[tuple[Line, Line]]:
    """Return LoPA's and RPS's lines, both at their one published setting."""
    pairs = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["main"]):
            both = index.rows(model, task, [Lopa(), index.rps(model)])
            if len(both) == 2:
                pairs.append((both[0], both[1]))
    return pairs


def better_than_lopa(index: LineIndex) -> Judgement | None:
    """RPS is more accurate than LoPA."""
    pair = pool_lines(_against_lopa(index))
    if pair is None:
        return None
    theirs = [table["rps"].accuracy - table["lopa"].accuracy for table in paper_tables(index)]
    claim = f"RPS is more accurate than LoPA ({min(theirs):+.1f} to {max(theirs):+.1f} points)."
    return Judgement("main", claim, f"RPS against LoPA (k = 3): {described(pair)}.", higher(pair))


def fewer_than_lopa(index: LineIndex) -> Judgement | None:
    """RPS needs fewer forwards than LoPA."""
    pairs = _against_lopa(index)
    if not pairs:
        return None
    ratios = [rps["nfe"] / lopa["nfe"] for lopa, rps in pairs]
    theirs = [table["rps"].nfe / table["lopa"].nfe for table in paper_tables(index)]
    claim = f"RPS needs {mean(theirs):.2f} times LoPA's forwards on average."
    n = sum(ratio < 1 for ratio in ratios)
    ours = f"{mean(ratios):.2f} times on average; fewer in {n} of {len(ratios)} tables."
    return Judgement("main", claim, ours, AGREES if (mean(ratios) < 1) == (mean(theirs) < 1) else DIFFERS)


def speed(index: LineIndex) -> Judgement | None:
    """RPS is several times faster by the clock."""
    speedups = []
    for model, task, best in main_tables(index):
        mine, base = index.tps(model, task, best["rps"]["setting"]), index.tps(model, task, "default")
        if mine and base:
            speedups.append(mine / base)
    if not speedups:
        return None
    theirs = [table["rps"].tps_speedup for table in paper_tables(index)]
    claim = f"RPS decodes {min(theirs):.1f} to {max(theirs):.1f} times as many tokens per second as Default."
    ours = f"{min(speedups):.1f} to {max(speedups):.1f} times, one request at a time."
    return Judgement("main", claim, ours, AGREES if min(speedups) >= min(theirs) else DIFFERS)


def at_all_lengths(index: LineIndex) -> Judgement | None:
    """RPS has the largest NFE speed-up at every length."""
    experiment = EXPERIMENTS["length"]
    n = n_best = 0
    for model in index.models:
        for task in index.tasks_of(experiment):
            for share in experiment.lengths:
                rows = index.rows(model, task, four(index.family(model)), length=round(share * index.length))
                if len(rows) == 4:
                    n += 1
                    n_best += min(rows, key=lambda row: row["nfe"])["decoder"] == "rps"
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
    return Judgement("length", claim, ours, AGREES if 2 * n_best > n else DIFFERS)


def lookahead_is_cheap(index: LineIndex) -> Judgement | None:
    """A lookahead forward is little slower than a plain one."""
    ratios = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["main"]):
            line = index.timing(model, task, index.rps(model).describe())
            if line and line["forwards"]["lookahead"]["ms"] and line["forwards"]["normal"]["ms"]:
                ratios.append(line["forwards"]["lookahead"]["ms"] / line["forwards"]["normal"]["ms"])
    if not ratios:
        return None
    theirs = published.BREAKDOWN["lookahead"][1] / published.BREAKDOWN["normal"][1]
    claim = f"A lookahead forward takes {theirs:.2f} times as long as a normal one."
    ours = f"{min(ratios):.2f} to {max(ratios):.2f} times."
    return Judgement("breakdown", claim, ours, AGREES if mean(ratios) <= LITTLE_SLOWER else DIFFERS)


def caches_add_up(index: LineIndex) -> Judgement | None:
    """RPS with a cache is the fastest of all combinations."""
    winners = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["caches"]):
            speeds = {
                (cache, line["decoder"]): line["tps"]
                for cache in CACHES
                for line in index.analysis("timing", model, task, cache)
            }
            if len({cache for cache, _ in speeds}) > 1:
                winners.append((model, task, *max(speeds, key=lambda key: speeds[key])))
    if not winners:
        return None
    n = sum(cache != "none" and decoder == "rps" for _, _, cache, decoder in winners)
    claim = f"RPS with a cache has the highest throughput (up to {published.CACHED_SPEEDUP} times Default)."
    named = ", ".join(f"{m} on {t}: {METHODS[name]} with {cache}" for m, t, cache, name in winners)
    return Judgement(
        "caches", claim, f"Fastest are, for {named}.", AGREES if 2 * n > len(winners) else DIFFERS
    )


def caches_cost_nothing(index: LineIndex) -> Judgement | None:
    """The prefix cache hardly changes RPS's accuracy."""
    pairs = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["caches"]):
            both = [(cache, index.length) for cache in ("none", "prefix")]
            plain, cached = index.across(model, task, [index.rps(model)], both)
            if plain and cached:
                pairs.append((plain[0], cached[0]))
    pair = pool_lines(pairs)
    if pair is None:
        return None
    claim = f"A prefix cache changes accuracy by less than {published.CACHED_CHANGE} points."
    is_small = abs(points(pair)) < published.CACHED_CHANGE and pair.n >= ENOUGH
    verdict = AGREES if is_small else DIFFERS if pair.p < LEVEL else OPEN
    return Judgement("caches", claim, f"RPS with prefix against without: {described(pair)}.", verdict)


CHECKS = (
    fewest_forwards, as_good_as_default, better_than_lopa, fewer_than_lopa, speed, at_all_lengths,
    lookahead_is_cheap, caches_add_up, caches_cost_nothing,
)  # fmt: skip
