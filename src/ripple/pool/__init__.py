"""Engines that share a stream of prompts: one in this process, or one per worker of a Ray cluster."""
