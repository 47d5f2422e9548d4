"""The paper's evidence, reproduced: what it ran, run here; what it drew, drawn beside its own numbers."""
