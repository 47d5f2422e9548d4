"""An OpenAI-compatible server: HTTP in asyncio, one engine in a thread of its own.

`create_app(Service(engine, name))` is the FastAPI application; `ripple serve` runs it under uvicorn.
"""
