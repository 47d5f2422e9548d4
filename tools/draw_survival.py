"""Draws the table of what was killed, soaked and fuzzed beside its lines.

python tools/draw_survival.py results/survival-cpu.jsonl
"""

from __future__ import annotations

import sys
from pathlib import Path

from ripple.analysis.plots import draw_beside
from ripple.analysis.survival import survival_table
from ripple.files import read_lines

if __name__ == "__main__":
    out = Path(sys.argv[1])
    print(draw_beside(out, survival_table(out.name, read_lines(out)))["files"])
