"""Glide, written out literally beside docs/glide.md; see `decoders.py` for the common terms."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from tests.reference.decoders import LogitsFn, Result, blocks, confidence, entropy, look_at, masked_in, top1


def reference_glide(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    width: int,
    cap: float,
    tau: float,
    tau_far: float,
    tau_pivot: float,
    k_max: int,
    r: float,
    lam: float,
    pivots: int = 1,
    joint: int = 3,
    branches: int | None = None,
    hold: bool = True,
    slide: bool = True,
    notes: Counter[str] | None = None,
) -> Result:
    """Slide a window, commit and search where at most `cap` nats are undecided to the left."""
    notes = Counter() if notes is None else notes
    n = len(prompt) + length
    x = list(prompt) + [mask_id] * length

    def window() -> tuple[int, int]:
        first = x.index(mask_id, len(prompt))
        if slide:
            return first, min(first + width, n)
        return next((a, b) for a, b in blocks(len(prompt), length, block) if a <= first < b)

    def near(i: int, M: list[int], p: list[np.ndarray]) -> bool:
        return sum(entropy(p[j]) for j in M if j < i) <= cap

    def sure(M: list[int], p: list[np.ndarray]) -> list[int]:
        return [i for i in M if confidence(p[i]) >= (tau if near(i, M, p) else tau_far)]

    def support(v: np.ndarray) -> list[int]:
        order = sorted((token for token in range(len(v)) if token != mask_id), key=lambda t: (-v[t], t))
        return order[:k_max]

    def find_pivots(M: list[int], p: list[np.ndarray]) -> list[tuple[int, list[int]]]:
        """(position, tokens to try) of the near positions with the highest truncated entropy."""
        if len(masked_in(x, *window(), mask_id)) < 2:
            notes["skip_single"] += 1
            return []
        feasible = [i for i in M if near(i, M, p) and sum(float(p[i][v]) for v in support(p[i])) >= tau_pivot]
        spread = {
            i: -sum(float(p[i][v]) * math.log(p[i][v]) for v in support(p[i]) if p[i][v] > 0)
            for i in feasible
        }
        chosen = []
        for i in sorted(feasible, key=lambda i: -spread[i])[:pivots]:
            tokens = [v for v in support(p[i]) if p[i][v] >= r * confidence(p[i])][:branches]
            if len(tokens) < 2:
                break
            chosen.append((i, tokens))
        return chosen

    p = look_at(logits, x, mask_id)
    nfe = 1
    M = masked_in(x, *window(), mask_id)
    while True:
        S = sure(M, p)
        notes["far_commit"] += any(not near(i, M, p) for i in S)
        searched = find_pivots(M, p) if hold and not S else []
        notes["held"] += bool(searched)
        if not searched:
            if not S:
                notes["forced"] += 1
                S = [M[0] if hold else max((i for i in M if near(i, M, p)), key=lambda i: confidence(p[i]))]
            for i in S:
                x[i] = top1(p[i])
            M = [i for i in M if i not in S]
            if mask_id not in x[len(prompt) :]:
                return x[len(prompt) :], nfe
            searched = find_pivots(M, p)
        if not searched:
            p = look_at(logits, x, mask_id)
            nfe += 1
            M = masked_in(x, *window(), mask_id)
            continue

        # One lookahead forward: the anchor, every token of the first pivot alone, pairs with the second.
        anchor = look_at(logits, x, mask_id)
        nfe += 1
        M = masked_in(x, *window(), mask_id)
        at = [i for i, _ in searched]
        rest = [i for i in M if i not in at]

        def score(branch: list[np.ndarray], plausibility: float, rest: list[int] = rest) -> float:
            value = -sum(entropy(branch[i]) for i in rest) / len(rest) if rest else 0.0
            if lam != 0:
                value += lam * (math.log(plausibility) if plausibility > 0 else -math.inf)
            return value

        best_score = score(anchor, math.prod(confidence(anchor[i]) for i in at))
        best: dict[int, int] = {}
        best_look = anchor
        if hold and not sure(M, anchor):
            best_score = -math.inf  # something must be committed
            notes["must_commit"] += 1
        first, tokens = searched[0]
        alone: dict[int, list[np.ndarray]] = {}
        for c in tokens:
            branch_x = list(x)
            branch_x[first] = c
            alone[c] = look_at(logits, branch_x, mask_id)
            open_p = confidence(alone[c][at[1]]) if len(at) == 2 else 1.0
            value = score(alone[c], float(anchor[first][c]) * open_p)
            if value > best_score:
                best_score, best, best_look = value, {first: c}, alone[c]
        if len(searched) == 2:
            second, others = searched[1]
            for c in tokens[:joint]:
                for d in others[:joint]:
                    branch_x = list(x)
                    branch_x[first], branch_x[second] = c, d
                    branch = look_at(logits, branch_x, mask_id)
                    value = score(branch, float(anchor[first][c]) * float(alone[c][second][d]))
                    if value > best_score:
                        best_score, best, best_look = value, {first: c, second: d}, branch
        notes[["left_masked", "one_token", "two_tokens"][len(best)]] += 1
        for i, token in best.items():
            x[i] = token
        if mask_id not in x[len(prompt) :]:
            return x[len(prompt) :], nfe
        M = [i for i in M if i not in best]
        p = best_look
        if not M:
            p = look_at(logits, x, mask_id)
            nfe += 1
            M = masked_in(x, *window(), mask_id)
