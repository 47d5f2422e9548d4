"""The engine: batching, packing, caching, counting and tracing, each exactly once."""
