"""Self-checks on the machine at hand: fast paths against slow ones."""
