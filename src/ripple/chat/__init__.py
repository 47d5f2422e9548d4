"""Conversations with a model, here or behind a server; `ripple chat` is their terminal."""
