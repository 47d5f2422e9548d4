"""Models: checkpoints in their released format in, hidden states out. Own lean code, no remote code."""
