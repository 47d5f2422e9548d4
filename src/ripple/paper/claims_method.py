"""What the paper says about the method: λ, the search space, pivots, the ripple, failures, the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ripple.analysis import published
from ripple.analysis.lines import Line
from ripple.bench.grid import paper_rps
from ripple.decoders import Lopa
from ripple.paper import oracle
from ripple.paper.book import Book
from ripple.paper.experiments import EXPERIMENTS, lambdas, pivots
from ripple.paper.judge import AGREES, DIFFERS, ENOUGH, LEVEL, OPEN, OTHER, SAME, Finding, higher, pair_up
from ripple.paper.lengths import Failures, failures

FEW = 10  # failures or points below this many say nothing
MOSTLY = 0.75  # a share from here on counts as the paper's 85 %


def lambda_rows(book: Book) -> Iterator[tuple[str, str, dict[float, Line]]]:
    """Yield model, task and the line of each λ."""
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["lambda"]):
            rows = book.rows(model, task, lambdas(model)[1:])
            if rows:
                yield model, task, {row["fields"]["lam"]: row for row in rows}


def plausibility_helps(book: Book) -> Finding | None:
    """A positive λ is more accurate than none."""
    found = pair_up([(rows[0.0], rows[0.1]) for _, _, rows in lambda_rows(book) if {0.0, 0.1} <= set(rows)])
    if found is None:
        return None
    claim = f"λ = 0.1 is more accurate than λ = 0 (by {published.LAMBDA_GAIN} points)."
    return Finding("lambda", claim, f"λ = 0.1 against λ = 0: {found}.", higher(found))


def plateau(book: Book) -> Finding | None:
    """Accuracy hardly depends on λ between 0.1 and 0.5."""
    spreads, extremes = [], []
    for _, _, rows in lambda_rows(book):
        some = [row for lam, row in rows.items() if lam > 0]
        if len(some) > 1:
            some.sort(key=lambda row: row["accuracy"])
            spreads.append(100 * (some[-1]["accuracy"] - some[0]["accuracy"]))
            extremes.append((some[0], some[-1]))
    found = pair_up(extremes)
    if found is None:
        return None
    claim = f"Between λ = 0.1 and 0.5 accuracy varies by {published.LAMBDA_SPREAD} points."
    ours = f"By {' and '.join(f'{s:.1f}' for s in spreads)} points (best against worst: p = {found.p:.2g})."
    is_small = max(spreads) <= published.LAMBDA_SPREAD and found.n >= ENOUGH
    return Finding("lambda", claim, ours, AGREES if is_small else DIFFERS if found.p < LEVEL else OPEN)


def _sweep(name: str) -> Callable[[Book], Finding | None]:
    """Return the check of one hyper-parameter's effect on forwards and candidates, first value to last."""

    def check(book: Book) -> Finding | None:
        table = list(published.SWEEPS[name].values())
        signs = [table[-1].nfe > table[0].nfe, table[-1].candidates > table[0].candidates]
        ways, parts = [], []
        for model in book.models:
            for task in book.tasks_of(EXPERIMENTS[name]):
                rows = book.rows(model, task, EXPERIMENTS[name].settings(model))
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
        return Finding(name, claim, f"{'; '.join(parts)}.", verdict)

    return check


def _pivot_rows(book: Book) -> list[dict[str, Line]]:
    """Return, per model and task, the line of each pivot rule with the full score."""
    found = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["pivot"]):
            rows = book.rows(model, task, pivots(model)[1:5])  # the four rules with the full score
            found.append({row["fields"]["pivot"]: row for row in rows})
    return [rows for rows in found if len(rows) == 4]


def confident_pivots_are_slow(book: Book) -> Finding | None:
    """Pivots of high confidence need more forwards."""
    rows = _pivot_rows(book)
    if not rows:
        return None
    ratio = sum(r["max_confidence"]["nfe"] / r["mid_entropy"]["nfe"] for r in rows) / len(rows)
    claim = "A max-confidence pivot is slower than a mid-entropy one."
    return Finding(
        "pivot", claim, f"It needs {ratio:.2f} times the forwards.", AGREES if ratio > 1 else DIFFERS
    )


def wild_pivots_are_wrong(book: Book) -> Finding | None:
    """Unconstrained max-entropy pivots are fast but inaccurate."""
    rows = _pivot_rows(book)
    found = pair_up([(r["max_entropy"], r["mid_entropy"]) for r in rows])
    if found is None:
        return None
    ratio = sum(r["max_entropy"]["nfe"] / r["mid_entropy"]["nfe"] for r in rows) / len(rows)
    claim = "A max-entropy pivot is faster than a mid-entropy one but less accurate."
    ours = f"It needs {ratio:.2f} times the forwards; mid-entropy against it: {found}."
    return Finding("pivot", claim, ours, higher(found) if ratio < 1 else DIFFERS)


def all_points(book: Book) -> list[oracle.Point]:
    """Return the points of every oracle analysis."""
    lines = [line for m in book.models for t in book.tasks for line in book.other("oracle", m, t)]
    return [oracle.Point(*point) for line in lines for point in line["points"]]


def mid_entropy_ripples(book: Book) -> Finding | None:
    """Resolving a mid-entropy position reduces uncertainty elsewhere the most."""
    rows = {row["regime"]: row for row in oracle.summary(all_points(book))}
    falls = {name: row["reduction"] for name, row in rows.items() if row["n"] >= FEW}
    if "mid" not in falls or len(falls) < 2:
        return None
    claim = "Resolving a position in the mid-entropy regime reduces the uncertainty of the others the most."
    parts = ", ".join(f"{name} {fall:.3f} nats (n = {rows[name]['n']})" for name, fall in falls.items())
    best = max(falls, key=lambda name: falls[name])
    verdict = DIFFERS if best != "mid" else AGREES if len(falls) == 3 else SAME  # nothing to compare above it
    return Finding("oracle", claim, f"Mean fall by regime: {parts}.", verdict)


def often_not_top_1(book: Book) -> Finding | None:
    """In the mid-entropy regime the right token is often not the most probable one."""
    mid = next(row for row in oracle.summary(all_points(book)) if row["regime"] == "mid")
    if mid["n"] < FEW:
        return None
    claim = f"In {100 * published.NOT_TOP_1:.0f} % of mid-entropy cases the right token is not the top-1."
    ours = f"In {100 * mid['not_top_1']:.0f} % of {mid['n']} cases."
    verdict = AGREES if mid["not_top_1"] >= MOSTLY else SAME if mid["not_top_1"] > 0.5 else DIFFERS
    return Finding("oracle", claim, ours, verdict)


def failure_counts(book: Book, model: str, task: str) -> tuple[Failures, Failures] | None:
    """Return LoPA's failures against RPS and RPS's against LoPA, where the lines tell."""
    rows = book.rows(model, task, [Lopa(), paper_rps(model)])
    if len(rows) < 2 or not all("source_lines" in row for row in rows):
        return None
    return failures(rows[0], rows[1]), failures(rows[1], rows[0])


def lopa_stops_early(book: Book) -> Finding | None:
    """When LoPA fails, its program is the shorter one more often than when RPS fails."""
    tasks = book.tasks_of(EXPERIMENTS["failure"])
    both = [found for m in book.models for t in tasks if (found := failure_counts(book, m, t))]
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
        return Finding("failure", claim, ours, OPEN)
    return Finding("failure", claim, ours, AGREES if lopa.share > rps.share else DIFFERS)


def bound_holds(book: Book) -> Finding | None:
    """Proposition 1 holds in every search."""
    places = [(m, t) for m in book.models for t in book.tasks_of(EXPERIMENTS["bound"])]
    lines = [line for m, t in places for line in book.rows(m, t, [paper_rps(m)])]
    pairs = [pair for line in lines for pair in line.get("bound", ())]
    if not pairs:
        return None
    n = sum(count for *_, count in pairs)
    n_broken = sum(count for _, certified, observed, count in pairs if observed < certified)
    claim = "At least the certified number of positions can be committed after a search (Proposition 1)."
    return Finding("bound", claim, f"In {n - n_broken} of {n} searches.", DIFFERS if n_broken else AGREES)


CHECKS = (
    plausibility_helps, plateau, _sweep("k_max"), _sweep("r"), _sweep("tau_pivot"), confident_pivots_are_slow,
    wild_pivots_are_wrong, mid_entropy_ripples, often_not_top_1, lopa_stops_early, bound_holds,
)  # fmt: skip
