"""Pages for people: the playground, what its form offers, the empty page to share runs in, and the routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

import ripple
from ripple.caches import CACHES, cache_plugins
from ripple.decoders import DECODERS, PRESETS, Decoder, decoder_plugins
from ripple.errors import RippleError
from ripple.fields import fields_of
from ripple.listing import field_facts, listed
from ripple.models.hub import embedded_models
from ripple.options import Options
from ripple.server import documents
from ripple.server.service import Service
from ripple.tasks import TASKS
from ripple.tokenizer import Tokenizer
from ripple.viewer.page import STATIC, page

# What the form asks beside the decoder.
OFFERED = (
    "length", "block", "cache", "lookahead", "temperature", "seed", "stop_at_end", "end_fill",
    "lookahead_budget",
)  # fmt: skip


def add_pages(app: FastAPI, service: Service) -> None:
    """Serve the playground and a page that lists the routes."""
    offers = what_is_offered(service)
    empty = page()

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(documents.PAGE)

    @app.get("/", include_in_schema=False)
    async def playground() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.get("/playground", include_in_schema=False)
    async def offered() -> dict[str, Any]:
        return offers

    @app.get("/playground/page", include_in_schema=False)
    async def empty_page() -> Response:
        return HTMLResponse(empty)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def what_is_offered(service: Service) -> dict[str, Any]:
    """Return what the playground's form is made of."""
    chosen, tokenizer = service.options.decoder, service.engine.tokenizer
    return {
        "model": service.name,
        "version": ripple.__version__,
        "decoder": chosen.describe() if isinstance(chosen, Decoder) else chosen,
        "decoders": listed("decoder", DECODERS, decoder_plugins(), PRESETS, ())["decoders"],
        "options": list(_options(service.options)),
        "has_chat": tokenizer is not None and tokenizer.has_chat,
        "has_memory": tokenizer is not None and tokenizer.has_chat and has_memory(tokenizer),
        "examples": _examples() if service.name in embedded_models() else [],
    }


def has_memory(tokenizer: Tokenizer) -> bool:
    """Return whether the chat template passes on earlier turns; some pass on the last question only."""
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    try:
        return tokenizer.encode_chat(turns) != tokenizer.encode_chat(turns[-1:])
    except RippleError:
        return True  # a template that rejects these turns says so when it is asked


def _options(options: Options) -> Iterator[dict[str, Any]]:
    """Describe each option, with this server's value as its default."""
    for name in OFFERED:
        if name == "lookahead_budget" and options.lookahead_budget is None:
            continue  # it is refused
        facts = field_facts(fields_of(Options)[name]) | {"default": getattr(options, name)}
        if name == "cache":
            names = [*CACHES, *cache_plugins().classes]
            facts |= {"type": "str", "default": options.policy.describe(), "allowed": " | ".join(names)}
        if name == "seed":  # where it matters most, a request without one gets another every time
            about = f"{facts['about']}; none is {options.seed}, or with a temperature a random one"
            facts |= {"default": None, "about": about}
        yield facts


def _examples() -> list[dict[str, str]]:
    """Return a problem of each family that the embedded models were trained on."""
    items = {name: next(iter(task.stream("test"))) for name, task in TASKS.items()}
    return [{"name": name, "prompt": item.prompt} for name, item in items.items()]
