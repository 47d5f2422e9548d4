"""The paper's own numbers, transcribed from its tables; every report marks them as the paper's.

Source: Ripple-Pivot Search, arXiv 2608.11742. Table names are its labels. Accuracies are in percent.
"""

from __future__ import annotations

from typing import NamedTuple


class MainRow(NamedTuple):
    """One decoder of the main tables."""

    accuracy: float
    nfe: float
    nfe_speedup: float
    tps: float
    tps_speedup: float


class SweepRow(NamedTuple):
    """One value of a hyper-parameter (tab:hparam-sweep)."""

    accuracy: float
    nfe: float
    tps: float
    candidates: float


class LengthRow(NamedTuple):
    """One decoder at one generation length (tab:length)."""

    accuracy: float
    nfe_speedup: float
    tps_speedup: float


METHODS = {
    "default": "Default", "confidence": "Confidence", "klass": "KLASS", "eb": "EB-Sampler", "wino": "WINO",
    "lopa": "LoPA", "rps": "RPS",
}  # fmt: skip
BENCHMARKS = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "math500": "MATH-500", "mbpp": "MBPP"}
_SEVEN = tuple(METHODS)
_FIVE = ("default", "confidence", "wino", "lopa", "rps")


def _rows(names: tuple[str, ...], table: str) -> dict[str, MainRow]:
    """Read one row per decoder from a block of numbers."""
    rows = [MainRow(*map(float, line.split())) for line in table.strip().splitlines()]
    return dict(zip(names, rows, strict=True))


# tab:main-results, tab:main-llada15. model -> benchmark -> decoder
MAIN: dict[str, dict[str, dict[str, MainRow]]] = {
    "LLaDA": {
        "gsm8k": _rows(_SEVEN, """
            79.00 256.0 1.00 4.02 1.00
            79.45 77.80 3.29 13.21 3.29
            79.30 131.93 1.94 7.88 1.96
            79.45 87.73 2.92 11.88 2.96
            78.24 57.37 4.46 17.70 4.40
            78.70 41.95 6.10 22.98 5.68
            79.15 35.73 7.17 26.66 6.63"""),
        "humaneval": _rows(_SEVEN, """
            41.46 256.0 1.00 14.24 1.00
            42.07 78.83 3.25 45.93 3.23
            41.46 128.82 1.99 28.75 2.02
            41.46 91.46 2.80 40.16 2.82
            40.24 73.67 3.47 47.83 3.36
            38.41 40.25 6.36 76.42 5.37
            42.68 37.22 6.88 82.98 5.83"""),
        "math500": _rows(_SEVEN, """
            38.40 256.0 1.00 6.02 1.00
            38.60 98.85 2.59 15.47 2.57
            38.20 157.05 1.63 9.92 1.65
            38.60 210.50 1.22 7.45 1.24
            38.80 73.15 3.50 20.75 3.45
            38.20 70.36 3.64 21.21 3.53
            38.20 48.32 5.30 29.09 4.83"""),
        "mbpp": _rows(_SEVEN, """
            30.60 256.0 1.00 3.99 1.00
            30.60 69.82 3.67 14.72 3.69
            30.60 111.32 2.30 9.41 2.36
            30.80 79.64 3.22 13.07 3.28
            30.00 67.63 3.79 15.06 3.77
            29.20 37.83 6.77 23.25 5.83
            32.80 29.92 8.56 25.10 6.29"""),
    },
    "Dream": {
        "gsm8k": _rows(_SEVEN, """
            78.70 256.0 1.00 5.14 1.00
            77.33 66.05 3.88 19.16 3.73
            79.38 120.87 2.12 10.47 2.04
            79.30 108.15 2.37 11.86 2.31
            76.12 61.90 4.14 19.43 3.78
            75.66 34.62 7.40 31.31 6.09
            78.62 41.74 6.13 28.21 5.49"""),
        "humaneval": _rows(_SEVEN, """
            57.32 256.0 1.00 9.13 1.00
            58.54 82.98 3.08 28.51 3.12
            60.98 125.45 2.04 19.26 2.11
            60.37 110.01 2.33 21.98 2.41
            57.93 79.37 3.23 26.68 2.92
            53.05 40.36 6.34 43.02 4.71
            58.54 48.33 5.30 41.32 4.53"""),
        "math500": _rows(_SEVEN, """
            44.60 256.0 1.00 7.84 1.00
            45.60 93.90 2.73 21.17 2.70
            44.20 142.56 1.80 14.28 1.82
            44.20 100.29 2.55 20.36 2.60
            44.80 82.60 3.10 22.31 2.84
            44.20 64.39 3.98 27.62 3.52
            44.80 55.61 4.60 33.27 4.24"""),
        "mbpp": _rows(_SEVEN, """
            58.80 256.0 1.00 2.40 1.00
            56.20 39.61 6.46 14.71 6.13
            55.20 61.58 4.16 8.87 3.70
            55.00 38.34 6.68 14.17 5.90
            56.40 42.03 6.09 13.11 5.46
            55.60 25.19 10.16 21.75 9.06
            56.80 23.81 10.76 23.52 9.80"""),
    },
    "LLaDA-1.5": {
        "gsm8k": _rows(_FIVE, """
            80.52 256.0 1.00 3.80 1.00
            81.05 74.62 3.43 12.96 3.41
            80.29 57.48 4.46 16.64 4.38
            80.21 37.61 6.81 23.33 6.14
            80.52 33.73 7.59 25.99 6.84"""),
        "humaneval": _rows(_FIVE, """
            42.07 256.0 1.00 5.03 1.00
            41.46 100.92 2.54 12.90 2.56
            42.68 84.76 3.02 14.08 2.80
            40.24 47.46 5.39 24.30 4.83
            41.46 42.31 6.05 27.21 5.41"""),
        "math500": _rows(_FIVE, """
            39.80 256.0 1.00 5.32 1.00
            39.60 95.11 2.69 14.26 2.68
            40.20 75.30 3.40 17.83 3.35
            38.20 57.70 4.44 22.80 4.29
            39.60 49.37 5.19 25.91 4.87"""),
        "mbpp": _rows(_FIVE, """
            38.40 256.0 1.00 1.46 1.00
            38.40 42.68 6.00 8.37 5.73
            39.00 46.48 5.51 7.91 5.42
            40.20 24.66 10.38 14.38 9.85
            44.20 23.50 10.89 14.40 9.86"""),
    },
}  # fmt: skip


def _lengths(table: str) -> dict[str, dict[int, LengthRow]]:
    """Read decoder -> length -> numbers; a row holds the three lengths side by side."""
    rows: dict[str, dict[int, LengthRow]] = {}
    for line in table.strip().splitlines():
        name, *cells = line.split()
        numbers = list(map(float, cells))
        rows[name] = {
            length: LengthRow(*numbers[3 * i : 3 * i + 3]) for i, length in enumerate((128, 256, 512))
        }
    return rows


# tab:length. model -> benchmark -> decoder -> length
LENGTH: dict[str, dict[str, dict[str, dict[int, LengthRow]]]] = {
    "LLaDA": {
        "humaneval": _lengths("""
            default 30.49 1.00 1.00 41.46 1.00 1.00 43.29 1.00 1.00
            confidence 29.27 3.59 3.49 42.07 3.25 3.23 41.46 3.15 3.15
            lopa 22.56 4.79 4.39 38.41 6.36 5.37 40.85 6.32 5.19
            rps 28.66 6.49 5.26 42.68 6.88 5.83 42.07 6.48 5.45"""),
        "math500": _lengths("""
            default 34.40 1.00 1.00 38.40 1.00 1.00 42.20 1.00 1.00
            confidence 34.20 2.13 2.13 38.60 2.59 2.57 42.40 3.42 3.38
            lopa 34.40 3.00 2.91 38.20 3.64 3.53 40.40 6.84 6.21
            rps 35.60 4.22 3.86 38.20 5.30 4.83 42.40 6.97 6.36"""),
    },
    "Dream": {
        "humaneval": _lengths("""
            default 58.54 1.00 1.00 57.32 1.00 1.00 53.66 1.00 1.00
            confidence 59.76 2.71 2.56 58.54 3.08 3.12 57.32 5.72 5.63
            lopa 53.66 4.14 3.30 53.05 6.34 4.71 53.66 9.43 6.90
            rps 58.54 4.20 3.73 58.54 5.30 4.53 58.54 9.77 8.19"""),
        "math500": _lengths("""
            default 42.00 1.00 1.00 44.60 1.00 1.00 45.60 1.00 1.00
            confidence 42.80 2.08 2.09 45.60 2.73 2.70 47.80 4.31 4.30
            lopa 40.60 3.02 2.65 44.20 3.98 3.52 46.20 6.54 5.79
            rps 41.40 3.39 2.99 44.80 4.60 4.24 49.20 7.15 6.62"""),
    },
}  # fmt: skip

# tab:hparam-sweep, LLaDA on GSM8K. field -> value
SWEEPS: dict[str, dict[float, SweepRow]] = {
    "k_max": {5: SweepRow(78.70, 42.09, 23.24, 3.00), 10: SweepRow(79.15, 35.73, 26.66, 3.87),
              20: SweepRow(74.91, 32.02, 28.30, 5.16)},
    "r": {0.05: SweepRow(78.62, 35.15, 26.31, 4.77), 0.1: SweepRow(79.15, 35.73, 26.66, 3.87),
          0.2: SweepRow(78.70, 37.51, 26.06, 3.00), 0.3: SweepRow(77.41, 39.93, 24.90, 2.55)},
    "tau_pivot": {0.6: SweepRow(78.17, 31.12, 29.26, 5.05), 0.7: SweepRow(77.33, 31.38, 28.93, 5.02),
                  0.8: SweepRow(78.62, 32.26, 28.54, 4.70), 0.9: SweepRow(79.15, 35.73, 26.66, 3.87),
                  0.95: SweepRow(77.86, 40.62, 23.90, 3.20)},
}  # fmt: skip

# tab:decomp, LLaDA on GSM8K: forwards per sample, milliseconds each, percent of the time
BREAKDOWN = {"normal": (12.3, 219.0, 31.4), "lookahead": (23.4, 252.0, 68.6)}

# What the text says in numbers.
LAMBDA_GAIN = 2.1  # points that λ = 0.1 gains over λ = 0 (LLaDA, GSM8K)
LAMBDA_SPREAD = 1.1  # points between the best and the worst λ in [0.1, 0.5]
NOT_TOP_1 = 0.85  # share of mid-entropy cases whose correct token is not the top-1 (LLaDA, GSM8K)
CACHED_SPEEDUP = 17.82  # most TPS speed-up with a prefix cache
CACHED_CHANGE = 0.5  # points of accuracy that caching costs at most


COUNTERPARTS = {"llada": "LLaDA", "dream": "Dream"}  # model family -> the paper's model
OWN_TABLES = {"LLaDA-1.5": "LLaDA-1.5"}  # released models that have tables of their own, by repository name


def counterpart(model: str, family: str) -> str:
    """Return the paper's model that one of ours is compared with."""
    return OWN_TABLES.get(model.rpartition("/")[2], COUNTERPARTS.get(family, "LLaDA"))
