"""Runs programs that nobody has read, and says which of them are right: `run`, `run_many`."""

from ripple.tasks.sandbox.run import Program, ProgramOutcome, missing_walls, run, run_many

__all__ = ["Program", "ProgramOutcome", "missing_walls", "run", "run_many"]
