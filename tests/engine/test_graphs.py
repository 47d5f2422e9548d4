"""Forwards padded to the sizes that graphs are captured at read the same as exact ones; no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ripple
from ripple.caches import Cache, DualCache, NoCache, PrefixCache
from ripple.engine.assemble import Shape, Sheet, pack, shape_of, view
from ripple.engine.graphs import rounded
from ripple.engine.plan import arrange
from ripple.engine.result import Settings


@pytest.mark.parametrize("cache", [NoCache(), PrefixCache(), DualCache(), DualCache(keep_prompt=True)])
@pytest.mark.parametrize("n_requests", [1, 3])
def test_padding_to_a_graphs_size_changes_no_row_that_is_read(
    folders: dict[str, Path], family: str, cache: Cache, n_requests: int
) -> None:
    engine = ripple.load(folders[family])
    model, store = engine.model, engine._store
    settings = Settings(ripple.Lopa(k=3), 24, 8, cache)
    sessions = [engine.submit(list(range(3, 10 + 5 * i)), settings) for i in range(n_requests)]
    n_padded = 0
    for _ in range(8):
        engine.tick()
        readings = [session.lay_out(packed=True) for session in sessions if session.ask is not None]
        for of, read in zip(*arrange(readings, model.config.logit_shift), strict=True):
            exact = pack(of, read, Sheet(shape_of(of, len(read))))
            size = rounded(exact.shape)
            # Only the kernels may be told of more keys than there are; the plain path reads them all.
            n_keys = exact.shape.n_keys if exact.shape.has_slots else size.r
            padded = pack(of, read, Sheet(size._replace(n_keys=n_keys)))
            n_padded += padded.shape != exact.shape
            expected = model.hidden(view(torch.from_numpy(exact.flat), exact), store)
            found = model.hidden(view(torch.from_numpy(padded.flat), padded, fixed=True), store)
            torch.testing.assert_close(found[: len(read)], expected, atol=1e-5, rtol=1e-5)
    assert n_padded > 3


def test_sizes_are_few_and_never_smaller() -> None:
    seen = set()
    for s in range(1, 65):
        for g in range(17):
            for r in (20, 32, 33, 100, 300):
                exact = Shape(s, r, g, 32, 900, s * 32, r < 300, False)
                size = rounded(exact)
                assert all(big >= small for big, small in zip(size[:6], exact[:6], strict=True))
                assert rounded(size) == size
                seen.add((size.s, size.r, size.g))
    assert len(seen) <= 7 * 11 * 5
