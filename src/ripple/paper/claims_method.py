"""What the paper says about the method: λ, the search space, pivots, the ripple, failures, the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ripple.decoders import Lopa
from ripple.eval.settings import lambdas, pivots
from ripple.files import Line
from ripple.paper import oracle, published
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.failures import Failures, failures
from ripple.paper.judge import (
    AGREES,
    DIFFERS,
    ENOUGH,
    LEVEL,
    OPEN,
    OTHER,
    SAME,
    Judgement,
    described,
    higher,
    pool_lines,
)
from ripple.paper.line_index import LineIndex

FEW = 10  # failures or points below this many say nothing
MOSTLY = 0.75  # a share from here on counts as the paper's 85 %


def lambda_rows(index: LineIndex) -> Iterator[tuple[str, str, dict[float, Line]]]:
    """Yield model, task and the line of each λ."""
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["lambda"]):
            rows = index.rows(model, task, lambdas(index.family(model))[1:])
            if rows:
                yield model, task, {row["fields"]["lam"]: row for row in rows}


def plausibility_helps(index: LineIndex) -> Judgement | None:
    """A positive λ is more accurate than none."""
    tables = [rows for _, _, rows in lambda_rows(index) if {0.0, 0.1} <= set(rows)]
    pair = pool_lines([(rows[0.0], rows[0.1]) for rows in tables])
    if pair is None:
        return None
    claim = f"λ = 0.1 is more accurate than λ = 0 (by {published.LAMBDA_GAIN} points)."
    return Judgement("lambda", claim, f"λ = 0.1 against λ = 0: {described(pair)}.", higher(pair))


def plateau(index: LineIndex) -> Judgement | None:
    """Accuracy hardly depends on λ between 0.1 and 0.5."""
    spreads, extremes = [], []
    for _, _, rows in lambda_rows(index):
        some = [row for lam, row in rows.items() if lam > 0]
        if len(some) > 1:
            some.sort(key=lambda row: row["accuracy"])
            spreads.append(100 * (some[-1]["accuracy"] - some[0]["accuracy"]))
            extremes.append((some[0], some[-1]))
    pair = pool_lines(extremes)
    if pair is None:
        return None
    claim = f"Between λ = 0.1 and 0.5 accuracy varies by {published.LAMBDA_SPREAD} points."
    ours = f"By {' and '.join(f'{s:.1f}' for s in spreads)} points (best against worst: p = {pair.p:.2g})."
    is_small = max(spreads) <= published.LAMBDA_SPREAD and pair.n >= ENOUGH
    return Judgement("lambda", claim, ours, AGREES if is_small else DIFFERS if pair.p < LEVEL else OPEN)


def _sweep(name: str) -> Callable[[LineIndex], Judgement | None]:
    """Return the check of one hyper-parameter's effect on forwards and candidates, first value to last."""

    def check(index: LineIndex) -> Judgement | None:
        table = list(published.SWEEPS[name].values())
        signs = [table[-1].nfe > table[0].nfe, table[-1].candidates > table[0].candidates]
        ways, parts = [], []
        for model in index.models:
            for task in index.tasks_of(EXPERIMENTS[name]):
                rows = index.of_experiment(name, model, task)
                if len(rows) < 2:
                    continue
                a, b = rows[0], rows[-1]
                few, many = a["search"]["mean_candidates"], b["search"]["mean_candidates"]
                ways.append([b["nfe"] > a["nfe"], many > few])
                parts.append(
                    f"{model}: NFE {a['nfe']:.1f} to {b['nfe']:.1f}, candidates {few:.1f} to {many:.1f}"
                )
        if not ways:
            return None
        a_, b_ = table[0], table[-1]
        low, high = min(published.SWEEPS[name]), max(published.SWEEPS[name])
        claim = (
            f"From {name} = {low:g} to {high:g}, NFE goes from {a_.nfe:.1f} to {b_.nfe:.1f} and candidates "
            f"from {a_.candidates:.1f} to {b_.candidates:.1f}."
        )
        n_same = sum(way == sign for pair in ways for way, sign in zip(pair, signs, strict=True))
        n_all = 2 * len(ways)
        verdict = (
            AGREES if n_same == n_all else DIFFERS if n_same == 0 else SAME if 2 * n_same > n_all else OTHER
        )
        return Judgement(name, claim, f"{'; '.join(parts)}.", verdict)

    return check


def _pivot_rows(index: LineIndex) -> list[dict[str, Line]]:
    """Return, per model and task, the line of each pivot rule with the full score."""
    tables = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["pivot"]):
            rules = pivots(index.family(model))[1:5]  # the four with the full score
            rows = index.rows(model, task, rules)
            tables.append({row["fields"]["pivot"]: row for row in rows})
    return [rows for rows in tables if len(rows) == 4]


def confident_pivots_are_slow(index: LineIndex) -> Judgement | None:
    """Pivots of high confidence need more forwards."""
    rows = _pivot_rows(index)
    if not rows:
        return None
    ratio = sum(r["max_confidence"]["nfe"] / r["mid_entropy"]["nfe"] for r in rows) / len(rows)
    claim = "A max-confidence pivot is slower than a mid-entropy one."
    return Judgement(
        "pivot", claim, f"It needs {ratio:.2f} times the forwards.", AGREES if ratio > 1 else DIFFERS
    )


def wild_pivots_are_wrong(index: LineIndex) -> Judgement | None:
    """Unconstrained max-entropy pivots are fast but inaccurate."""
    rows = _pivot_rows(index)
    pair = pool_lines([(r["max_entropy"], r["mid_entropy"]) for r in rows])
    if pair is None:
        return None
    ratio = sum(r["max_entropy"]["nfe"] / r["mid_entropy"]["nfe"] for r in rows) / len(rows)
    claim = "A max-entropy pivot is faster than a mid-entropy one but less accurate."
    ours = f"It needs {ratio:.2f} times the forwards; mid-entropy against it: {described(pair)}."
    return Judgement("pivot", claim, ours, higher(pair) if ratio < 1 else DIFFERS)


def all_points(index: LineIndex) -> list[oracle.OraclePoint]:
    """Return the points of every oracle analysis."""
    lines = [line for m in index.models for t in index.tasks for line in index.analysis("oracle", m, t)]
    return [oracle.OraclePoint(*point) for line in lines for point in line["points"]]


def mid_entropy_ripples(index: LineIndex) -> Judgement | None:
    """Resolving a mid-entropy position reduces uncertainty elsewhere the most."""
    rows = {row["regime"]: row for row in oracle.summary(all_points(index))}
    falls = {name: row["reduction"] for name, row in rows.items() if row["n"] >= FEW}
    if "mid" not in falls or len(falls) < 2:
        return None
    claim = "Resolving a position in the mid-entropy regime reduces the uncertainty of the others the most."
    parts = ", ".join(f"{name} {fall:.3f} nats (n = {rows[name]['n']})" for name, fall in falls.items())
    best = max(falls, key=lambda name: falls[name])
    verdict = DIFFERS if best != "mid" else AGREES if len(falls) == 3 else SAME  # nothing to compare above it
    return Judgement("oracle", claim, f"Mean fall by regime: {parts}.", verdict)


def often_not_top_1(index: LineIndex) -> Judgement | None:
    """In the mid-entropy regime the right token is often not the most probable one."""
    mid = next(row for row in oracle.summary(all_points(index)) if row["regime"] == "mid")
    if mid["n"] < FEW:
        return None
    claim = f"In {100 * published.NOT_TOP_1:.0f} % of mid-entropy cases the right token is not the top-1."
    ours = f"In {100 * mid['not_top_1']:.0f} % of {mid['n']} cases."
    verdict = AGREES if mid["not_top_1"] >= MOSTLY else SAME if mid["not_top_1"] > 0.5 else DIFFERS
    return Judgement("oracle", claim, ours, verdict)


def failure_counts(index: LineIndex, model: str, task: str) -> tuple[Failures, Failures] | None:
    """Return LoPA's failures against RPS and RPS's against LoPA, where the lines tell."""
    rows = index.rows(model, task, [Lopa(), index.rps(model)])
    if len(rows) < 2 or not all("source_lines" in row for row in rows):
        return None
    return failures(rows[0], rows[1]), failures(rows[1], rows[0])


def lopa_stops_early(index: LineIndex) -> Judgement | None:
    """When LoPA fails, its program is the shorter one more often than when RPS fails."""
    tasks = index.tasks_of(EXPERIMENTS["failure"])
    both = [counts for m in index.models for t in tasks if (counts := failure_counts(index, m, t))]
    if not both:
        return None
    lopa = Failures(sum(a.n for a, _ in both), sum(a.n_shorter for a, _ in both))
    rps = Failures(sum(b.n for _, b in both), sum(b.n_shorter for _, b in both))
    claim = "A failing program that is shorter than the right one is more common when LoPA fails."
    ours = (
        f"Shorter in {lopa.n_shorter} of {lopa.n} failures of LoPA alone, "
        f"{rps.n_shorter} of {rps.n} of RPS alone."
    )
    if min(lopa.n, rps.n) < FEW or lopa.share is None or rps.share is None:
        return Judgement("failure", claim, ours, OPEN)
    return Judgement("failure", claim, ours, AGREES if lopa.share > rps.share else DIFFERS)


def bound_holds(index: LineIndex) -> Judgement | None:
    """Proposition 1 holds in every search."""
    places = [(m, t) for m in index.models for t in index.tasks_of(EXPERIMENTS["bound"])]
    lines = [line for m, t in places for line in index.rows(m, t, [index.rps(m)])]
    pairs = [pair for line in lines for pair in line.get("bound", ())]
    if not pairs:
        return None
    n = sum(count for *_, count in pairs)
    n_broken = sum(count for _, certified, observed, count in pairs if observed < certified)
    claim = "At least the certified number of positions can be committed after a search (Proposition 1)."
    return Judgement("bound", claim, f"In {n - n_broken} of {n} searches.", DIFFERS if n_broken else AGREES)


CHECKS = (
    plausibility_helps, plateau, _sweep("k_max"), _sweep("r"), _sweep("tau_pivot"), confident_pivots_are_slow,
    wild_pivots_are_wrong, mid_entropy_ripples, often_not_top_1, lopa_stops_early, bound_holds,
)  # fmt: skip
