"""Every decoding rule, written out literally.

These are the oracle of `tests/decoders/test_against_reference.py`. They share no code with `ripple`: plain
lists, explicit loops, one canvas per forward, float64 probabilities. They are slow on purpose and meant to be
read beside the papers.

Common terms:

* `logits(ids)` is one forward over the whole canvas; row i is about position i (any shift already undone).
* A *look* is what one forward said: a list with one probability vector per canvas position.
* A function returns the response ids and the NFE. All branches of one lookahead count as one forward.
* Each lookahead branch is exact: one forward over the canvas that holds the branch's edit.
* `notes`, where given, counts what happened on the way, so that a test can tell its cases are not trivial.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

LogitsFn = Callable[[list[int]], np.ndarray]
"""Ids of the whole canvas -> [N, V]."""

ShadowFn = Callable[[list[int], int, int], np.ndarray]
"""(ids, start, stop) -> [stop - start, V]: each position of the block predicted without its own token."""

Probs = dict[int, np.ndarray]
"""Masked position -> its distribution over the vocabulary."""

CommitRule = Callable[[Probs], list[int]]
"""Which of the masked positions to commit now (never empty for a non-empty argument)."""

Result = tuple[list[int], int]
"""(response ids, NFE)."""


# ----------------------------------------------------------------------------------------------------
# Small pieces
# ----------------------------------------------------------------------------------------------------


def distribution(row: np.ndarray, mask_id: int) -> np.ndarray:
    """Softmax of one row of logits; the mask id is never a prediction."""
    scores = np.array(row, dtype=np.float64)
    scores[mask_id] = -math.inf
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def look_at(logits: LogitsFn, canvas: list[int], mask_id: int) -> list[np.ndarray]:
    """One forward: the distribution at every position of the canvas."""
    rows = logits(list(canvas))
    return [distribution(rows[i], mask_id) for i in range(len(canvas))]


def top1(p: np.ndarray) -> int:
    """The most probable token, the lowest id on ties."""
    return int(np.argmax(p))


def confidence(p: np.ndarray) -> float:
    """P_max."""
    return float(p.max())


def entropy(p: np.ndarray) -> float:
    """Full-vocabulary entropy in nats."""
    return -sum(float(q) * math.log(q) for q in p if q > 0.0)


def margin(p: np.ndarray) -> float:
    """Probability of the best token minus that of the second best."""
    best, second = sorted((float(q) for q in p), reverse=True)[:2]
    return best - second


def masked_in(canvas: list[int], start: int, stop: int, mask_id: int) -> list[int]:
    """M: the masked positions of [start, stop), left to right."""
    return [i for i in range(start, stop) if canvas[i] == mask_id]


def blocks(first: int, length: int, block: int) -> Iterator[tuple[int, int]]:
    """Blocks of the response, left to right; the last one may be shorter."""
    start = first
    while start < first + length:
        stop = min(start + block, first + length)
        yield start, stop
        start = stop


def by_confidence(probs: Probs) -> list[int]:
    """Positions, most confident first, earlier position first on ties."""
    return sorted(sorted(probs), key=lambda i: -confidence(probs[i]))


# ----------------------------------------------------------------------------------------------------
# Rules that need one look and keep no state
# ----------------------------------------------------------------------------------------------------


def commit_best(probs: Probs, k: int, order: str) -> list[int]:
    """The k most confident (or least entropic) positions."""
    if order == "confidence":
        ranked = by_confidence(probs)
    elif order == "entropy":
        ranked = sorted(sorted(probs), key=lambda i: entropy(probs[i]))
    elif order == "left":
        ranked = sorted(probs)
    else:
        raise ValueError(order)
    return ranked[:k]


def commit_confidence(probs: Probs, tau: float) -> list[int]:
    """S = {i : P_max >= tau}, or the single most confident position if that is empty."""
    chosen = [i for i in sorted(probs) if confidence(probs[i]) >= tau]
    if not chosen:
        chosen = [by_confidence(probs)[0]]
    return chosen


def commit_factor(probs: Probs, f: float, match_fast_dllm_tail: bool = False) -> list[int]:
    """Largest n with (n + 1)(1 - c_(n)) < f, at least 1.

    `match_fast_dllm_tail`: Fast-dLLM also commits the last masked position if its scan got that far,
    passed or failed.
    """
    ranked = by_confidence(probs)
    accepted = 1
    for n in range(2, len(ranked) + 1):
        c = confidence(probs[ranked[n - 1]])
        if not (n + 1) * (1 - c) < f:
            if match_fast_dllm_tail and n == len(ranked):
                accepted = n
            break
        accepted = n
    return ranked[:accepted]


def commit_frechet(probs: Probs, delta: float) -> list[int]:
    """Largest n with G_n = (sum_{j<=n} c_(j) - (n - 1)) - (1 - c_(n)) > delta, at least 1."""
    ranked = by_confidence(probs)
    accepted = 1
    for n in range(2, len(ranked) + 1):
        total = sum(confidence(probs[i]) for i in ranked[:n])
        lower_bound = total - (n - 1)
        gap = lower_bound - (1 - confidence(probs[ranked[n - 1]]))
        if not gap > delta:
            break
        accepted = n
    return ranked[:accepted]


def commit_entropy_bounded(probs: Probs, gamma: float, proxy: str) -> list[int]:
    """Longest prefix U, in the order of the proxy, with sum_U H - max_U H <= gamma; |U| = 1 always passes."""
    if proxy == "confidence":
        ranked = by_confidence(probs)
    elif proxy == "entropy":
        ranked = sorted(sorted(probs), key=lambda i: entropy(probs[i]))
    elif proxy == "margin":
        ranked = sorted(sorted(probs), key=lambda i: -margin(probs[i]))
    else:
        raise ValueError(proxy)
    accepted = 1
    for n in range(2, len(ranked) + 1):
        entropies = [entropy(probs[i]) for i in ranked[:n]]
        if not sum(entropies) - max(entropies) <= gamma:
            break
        accepted = n
    return ranked[:accepted]


def filter_scores(tensors: dict[str, np.ndarray], p: list[float]) -> list[float]:
    """Learn2PD's filter: a hidden layer with a ReLU, one logit per position of the block, a sigmoid."""
    hidden = [
        max(0.0, bias + sum(float(w) * q for w, q in zip(row, p, strict=True)))
        for row, bias in zip(tensors["w1"], tensors["b1"], strict=True)
    ]
    logits = [
        bias + sum(float(w) * h for w, h in zip(row, hidden, strict=True))
        for row, bias in zip(tensors["w2"], tensors["b2"], strict=True)
    ]
    return [1 / (1 + math.exp(-float(x))) for x in logits]


def reference_learn2pd(
    logits: LogitsFn, prompt: list[int], length: int, block: int, mask_id: int,
    tensors: dict[str, np.ndarray], threshold: float, end_token: int = -1, notes: Counter[str] | None = None,
) -> Result:  # fmt: skip
    """Commit what the filter scores above the threshold, and the most confident position.

    Revealed positions, and those a block lacks, count as probability 1. With an end token: everything after
    the first accepted end token, else after the most confident predicted one, becomes end tokens.
    """
    canvas, nfe = list(prompt) + [mask_id] * length, 0
    n = len(canvas)
    notes = Counter() if notes is None else notes
    for start, stop in blocks(len(prompt), length, block):
        while masked := masked_in(canvas, start, stop, mask_id):
            looks = look_at(logits, canvas, mask_id)
            nfe += 1
            p = [1.0] * len(tensors["b2"])
            for i in masked:
                p[i - start] = confidence(looks[i])
            scores = filter_scores(tensors, p)
            accepted = [i for i in masked if scores[i - start] > threshold]
            best = by_confidence({i: looks[i] for i in masked})[0]
            notes["accepted"] += len(accepted)
            notes["best_only"] += best not in accepted
            ends = [i for i in accepted if top1(looks[i]) == end_token]
            if not ends:
                hopeful = [i for i in range(start, n) if canvas[i] == mask_id and top1(looks[i]) == end_token]
                ends = by_confidence({i: looks[i] for i in hopeful})[:1]
                notes["hopeful_end"] += len(ends)
            else:
                notes["accepted_end"] += 1
            for i in {*accepted, best}:
                canvas[i] = top1(looks[i])
            if end_token >= 0 and ends:
                for i in range(ends[0] + 1, n):
                    canvas[i] = end_token if canvas[i] == mask_id else canvas[i]
    return canvas[len(prompt) :], nfe


def decode_with_rule(
    logits: LogitsFn, prompt: list[int], length: int, block: int, mask_id: int, rule: CommitRule
) -> Result:
    """Block loop of every single-forward decoder: look, choose, commit top-1, until the block is full."""
    canvas = list(prompt) + [mask_id] * length
    nfe = 0
    for start, stop in blocks(len(prompt), length, block):
        while masked_in(canvas, start, stop, mask_id):
            look = look_at(logits, canvas, mask_id)
            nfe += 1
            probs = {i: look[i] for i in masked_in(canvas, start, stop, mask_id)}
            for i in rule(probs):
                canvas[i] = top1(look[i])
    return canvas[len(prompt) :], nfe


def reference_default(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    k: int = 1,
    order: str = "confidence",
) -> Result:
    """Section 1.1, k per step."""
    return decode_with_rule(logits, prompt, length, block, mask_id, lambda p: commit_best(p, k, order))


def reference_confidence(
    logits: LogitsFn, prompt: list[int], length: int, block: int, mask_id: int, *, tau: float
) -> Result:
    """Section 1.2."""
    return decode_with_rule(logits, prompt, length, block, mask_id, lambda p: commit_confidence(p, tau))


def reference_factor(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    f: float,
    match_fast_dllm_tail: bool = False,
) -> Result:
    """Section 1.3."""
    return decode_with_rule(
        logits, prompt, length, block, mask_id, lambda p: commit_factor(p, f, match_fast_dllm_tail)
    )


def reference_frechet(
    logits: LogitsFn, prompt: list[int], length: int, block: int, mask_id: int, *, delta: float
) -> Result:
    """Section 1.10."""
    return decode_with_rule(logits, prompt, length, block, mask_id, lambda p: commit_frechet(p, delta))


def reference_eb(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    gamma: float,
    proxy: str = "confidence",
) -> Result:
    """Section 1.5."""
    return decode_with_rule(
        logits, prompt, length, block, mask_id, lambda p: commit_entropy_bounded(p, gamma, proxy)
    )


# ----------------------------------------------------------------------------------------------------
# Decoders with state or with more than one look per step
# ----------------------------------------------------------------------------------------------------


def reference_klass(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    tau: float,
    eps_kl: float,
    history: int = 2,
    notes: Counter[str] | None = None,
) -> Result:
    """Section 1.4, the LLaDA version: commit what is confident and whose distribution has stopped moving."""
    notes = Counter() if notes is None else notes
    canvas = list(prompt) + [mask_id] * length
    response = range(len(prompt), len(canvas))
    p_prev: dict[int, np.ndarray | None] = {i: None for i in response}  # None stands for all zeros
    kl_history: dict[int, list[float]] = {i: [0.0] * history for i in response}
    nfe = 0
    for start, stop in blocks(len(prompt), length, block):
        step_in_block = 0
        while masked_in(canvas, start, stop, mask_id):
            look = look_at(logits, canvas, mask_id)
            nfe += 1
            for i in response:  # every position, other blocks too
                before = p_prev[i]
                kl = 0.0
                for v in range(len(look[i])):
                    p = float(look[i][v])
                    q = 0.0 if before is None else float(before[v])
                    kl += p * (math.log(p + 1e-12) - math.log(q + 1e-12))
                kl_history[i] = [*kl_history[i][1:], kl]
                p_prev[i] = look[i]

            masked = masked_in(canvas, start, stop, mask_id)
            ready = []
            for i in masked:
                stable = all(kl < eps_kl for kl in kl_history[i])
                if step_in_block < history - 1:
                    stable = False
                if stable and confidence(look[i]) > tau:
                    ready.append(i)
            notes["ready" if ready else "fallback"] += 1
            if not ready:
                ready = [by_confidence({i: look[i] for i in masked})[0]]
            for i in ready:
                canvas[i] = top1(look[i])
            step_in_block += 1
    return canvas[len(prompt) :], nfe


def reference_wino(
    logits: LogitsFn,
    shadow: ShadowFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    tau1: float,
    tau2: float,
    notes: Counter[str] | None = None,
) -> Result:
    """Section 1.6: draft widely, verify what was committed earlier, take back what no longer convinces.

    Draft and verification read the same forward, so both see the canvas as it was when the step began.
    """
    notes = Counter() if notes is None else notes
    canvas = list(prompt) + [mask_id] * length
    nfe = 0
    for start, stop in blocks(len(prompt), length, block):
        accepted_before = 30
        while masked_in(canvas, start, stop, mask_id):
            look = look_at(logits, canvas, mask_id)
            shadow_rows = shadow(list(canvas), start, stop)
            nfe += 1
            masked = masked_in(canvas, start, stop, mask_id)
            committed_earlier = [i for i in range(start, stop) if canvas[i] != mask_id]

            # Draft.
            cap = min(max(int(0.7 * len(masked)), 5), 20)
            ranked = by_confidence({i: look[i] for i in masked})
            drafted = [i for i in ranked if confidence(look[i]) > tau1]
            if len(drafted) > cap:
                drafted = drafted[:cap]
                notes["draft_capped"] += 1
            if not drafted:
                drafted = [ranked[0]]

            # Verify.
            support = {}
            for i in committed_earlier:
                support[i] = float(distribution(shadow_rows[i - start], mask_id)[canvas[i]])
            remasked: list[int] = []
            if len(drafted) > 1:
                weakest_first = sorted(committed_earlier, key=lambda i: support[i])
                remasked = [i for i in weakest_first if support[i] < tau2]
                if len(remasked) >= accepted_before:
                    remasked = weakest_first[: accepted_before - 1]
                    notes["remask_capped"] += 1

            for i in drafted:
                canvas[i] = top1(look[i])
            for i in remasked:
                canvas[i] = mask_id
            notes["remasked"] += len(remasked)
            notes["drafted"] += len(drafted)
            accepted_before = len(drafted)
    return canvas[len(prompt) :], nfe


def reference_lopa(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    tau: float,
    k: int,
    rank: str = "confidence",
    score: str = "entropy",
    notes: Counter[str] | None = None,
) -> Result:
    """Section 1.7: after each commit try k single-token branches beside the base and go on with the best."""
    notes = Counter() if notes is None else notes
    canvas = list(prompt) + [mask_id] * length
    nfe = 0
    for start, stop in blocks(len(prompt), length, block):
        look = look_at(logits, canvas, mask_id)
        nfe += 1
        while masked_in(canvas, start, stop, mask_id):
            masked = masked_in(canvas, start, stop, mask_id)
            for i in commit_confidence({i: look[i] for i in masked}, tau):
                canvas[i] = top1(look[i])
            masked = masked_in(canvas, start, stop, mask_id)
            if not masked:
                break

            if rank == "confidence":
                ranked = by_confidence({i: look[i] for i in masked})
            elif rank == "entropy":
                ranked = sorted(masked, key=lambda i: entropy(look[i]))
            else:
                raise ValueError(rank)
            branches = []
            for i in ranked[:k]:
                branch = list(canvas)
                branch[i] = top1(look[i])
                branches.append(branch)
            branches.append(list(canvas))  # the base is listed last

            nfe += 1
            best_score, best_look, best_index = -math.inf, look, -1
            for index, branch in enumerate(branches):
                branch_look = look_at(logits, branch, mask_id)
                remaining = masked_in(branch, start, stop, mask_id)
                if not remaining:
                    value = 1.0
                elif score == "entropy":
                    value = sum(-entropy(branch_look[i]) for i in remaining) / len(remaining)
                elif score == "confidence":
                    value = sum(confidence(branch_look[i]) for i in remaining) / len(remaining)
                else:
                    raise ValueError(score)
                if value > best_score:
                    best_score, best_look, best_index = value, branch_look, index
            notes["base_won" if best_index == len(branches) - 1 else f"branch_{best_index}_won"] += 1
            canvas, look = branches[best_index], best_look
    return canvas[len(prompt) :], nfe


def reference_ete(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    f: float,
    target: float,
    k: int,
    span: int,
    late: float = 0.0,
    notes: Counter[str] | None = None,
) -> Result:
    """Section 1.8, "ETE-style": exploit by the factor condition across blocks, explore near a confidence."""
    notes = Counter() if notes is None else notes
    canvas = list(prompt) + [mask_id] * length
    end = len(canvas)
    nfe = 0

    def exploitable(probs: Probs) -> list[int]:
        """Positions accepted, most confident first, while (1 + n)(1 - c_(n)) <= f."""
        accepted = []
        for i in by_confidence(probs):
            n = len(accepted) + 1
            if not (1 + n) * (1 - confidence(probs[i])) <= f:
                break
            accepted.append(i)
        return accepted

    for start, stop in blocks(len(prompt), length, block):
        if not masked_in(canvas, start, stop, mask_id):
            notes["block_already_full"] += 1
            continue
        wide_stop = min(stop + span * block, end)
        look = look_at(logits, canvas, mask_id)
        nfe += 1
        while masked_in(canvas, start, stop, mask_id):
            # Exploit.
            probs = {i: look[i] for i in masked_in(canvas, start, wide_stop, mask_id)}
            accepted = exploitable(probs)
            if not accepted:
                accepted = [by_confidence(probs)[0]]
            for i in accepted:
                canvas[i] = top1(look[i])
                notes["beyond_block"] += i >= stop
            if not masked_in(canvas, start, stop, mask_id):
                break

            # Explore.
            masked = masked_in(canvas, start, wide_stop, mask_id)

            def distance(
                i: int, start: int = start, stop: int = wide_stop, look: list[np.ndarray] = look
            ) -> float:
                way = (i - start) / max(stop - start - 1, 1)
                return abs(confidence(look[i]) - target) / (1 + late * way)

            nearest = sorted(masked, key=distance)
            branches = [list(canvas)]  # the base is listed first
            for i in nearest[:k]:
                branch = list(canvas)
                branch[i] = top1(look[i])
                branches.append(branch)

            nfe += 1
            most, best_look, best_index = -1, look, -1
            for index, branch in enumerate(branches):
                branch_look = look_at(logits, branch, mask_id)
                unlocked = len(
                    exploitable({i: branch_look[i] for i in masked_in(branch, start, wide_stop, mask_id)})
                )
                if unlocked > most:
                    most, best_look, best_index = unlocked, branch_look, index
            notes["base_won" if best_index == 0 else "branch_won"] += 1
            canvas, look = branches[best_index], best_look
            notes["branch_filled_block"] += not masked_in(canvas, start, stop, mask_id)
    return canvas[len(prompt) :], nfe


def rps_score(branch: list[np.ndarray], rest: list[int], p_anchor: float, lam: float) -> float:
    """Eq. 4: minus the mean entropy over the rest of M, plus lambda times the log plausibility."""
    value = -sum(entropy(branch[i]) for i in rest) / len(rest)
    if lam != 0:  # 0 * log 0 is left out
        value += lam * (math.log(p_anchor) if p_anchor > 0 else -math.inf)
    return value


def reference_rps(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    tau: float,
    tau_pivot: float,
    k_max: int,
    r: float,
    lam: float,
    pivot: str = "mid_entropy",
    candidates: str = "search",
    standard: CommitRule | None = None,
    notes: Counter[str] | None = None,
) -> Result:
    """Algorithm 1 of the paper; comments say what it leaves open."""
    notes = Counter() if notes is None else notes
    rule: CommitRule = (lambda probs: commit_confidence(probs, tau)) if standard is None else standard
    x = list(prompt) + [mask_id] * length
    nfe = 0
    for start, stop in blocks(len(prompt), length, block):
        p = look_at(logits, x, mask_id)  # block-opening forward
        nfe += 1
        M = masked_in(x, start, stop, mask_id)
        while M:
            # Standard commit.
            S = rule({i: p[i] for i in M})
            for i in S:
                x[i] = top1(p[i])
            M = [i for i in M if i not in S]
            if not M:
                break

            # The score is a mean over M minus the pivot: with one position left it is empty.
            if len(M) == 1:
                p = look_at(logits, x, mask_id)
                nfe += 1
                notes["skip_single"] += 1
                continue

            # Truncated support, its mass and its un-normalised entropy, from the p that produced S.
            T: dict[int, list[int]] = {}
            mu: dict[int, float] = {}
            truncated_entropy: dict[int, float] = {}
            for i in M:
                order = sorted((v for v in range(len(p[i])) if v != mask_id), key=lambda v: (-p[i][v], v))
                T[i] = order[:k_max]
                mu[i] = sum(float(p[i][v]) for v in T[i])
                truncated_entropy[i] = -sum(float(p[i][v]) * math.log(p[i][v]) for v in T[i] if p[i][v] > 0)

            # Where to commit.
            if pivot == "mid_entropy":
                feasible = [i for i in M if mu[i] >= tau_pivot]
                if not feasible:
                    p = look_at(logits, x, mask_id)
                    nfe += 1
                    notes["skip_infeasible"] += 1
                    continue
                i_star = max(feasible, key=lambda i: truncated_entropy[i])  # max() keeps the first on ties
            elif pivot == "max_entropy":
                i_star = max(M, key=lambda i: truncated_entropy[i])
            elif pivot == "max_confidence":
                i_star = max(M, key=lambda i: confidence(p[i]))
            else:
                raise ValueError(pivot)

            # What to commit: C without [MASK], most probable first.
            if candidates == "search":
                C = [v for v in T[i_star] if p[i_star][v] >= r * confidence(p[i_star])]
                if len(C) <= 1:
                    p = look_at(logits, x, mask_id)
                    nfe += 1
                    notes["skip_no_choice"] += 1
                    continue
            elif candidates == "greedy":
                C = [top1(p[i_star])]
            else:
                raise ValueError(candidates)

            # Lookahead forward: the anchor (pivot stays masked) and one branch per token, one NFE together.
            anchor = look_at(logits, x, mask_id)
            nfe += 1
            notes["lookahead"] += 1

            # [MASK] comes first; a token needs a strictly higher score.
            rest = [i for i in M if i != i_star]
            c_star, best_look = mask_id, anchor
            best_score = rps_score(anchor, rest, confidence(anchor[i_star]), lam)
            for c in C:
                branch_x = list(x)
                branch_x[i_star] = c
                branch = look_at(logits, branch_x, mask_id)
                branch_score = rps_score(branch, rest, float(anchor[i_star][c]), lam)
                if branch_score > best_score:
                    c_star, best_score, best_look = c, branch_score, branch

            if c_star == mask_id:
                notes["pivot_left_masked"] += 1
            else:
                notes["pivot_top1" if c_star == top1(p[i_star]) else "pivot_not_top1"] += 1
                x[i_star] = c_star
                M = [i for i in M if i != i_star]
            p = best_look  # the winner's distributions carry over
    return x[len(prompt) :], nfe
