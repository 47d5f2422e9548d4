"""What the OpenAPI schema says of every route: what comes back, and when which failure does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from ripple.server.frames import canvas_schema
from ripple.server.option_schema import option_schema
from ripple.server.schema import ChatRequest, CompletionRequest

PAGE = Path(__file__).parent / "docs.html"
ABOUT = (
    "Diffusion language models behind OpenAI's interface. The field `ripple` of a request has decoder, cache "
    'and every other option (RippleOptions). A stream with `ripple.stream: "canvas"` also carries frames of '
    "the canvas as it fills (CanvasFrame)."
)


class Open(BaseModel):
    """An object that may get more fields."""

    model_config = ConfigDict(extra="allow")


class Fault(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Failure(BaseModel):
    """Every answer that is no success."""

    error: Fault


class Cost(Open):
    """What decoding cost."""

    nfe: int
    normal: int
    lookahead: int
    canvases: int
    seconds: float
    finish: str | None


class ChoiceCost(Cost):
    """What decoding one choice cost, and its trace if that was asked for."""

    trace: list[dict[str, Any]] | None = None


class Usage(Open):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class TextLogprobs(BaseModel):
    """Log probabilities of tokens when they were committed; null for those of an echoed prompt."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(Open):
    """One completion."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"]
    ripple: ChoiceCost


class Completion(Open):
    """The answer of /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    ripple: Cost


class AssistantMessage(Open):
    """What the model says."""

    role: Literal["assistant"]
    content: str


class RankedToken(Open):
    """A token and how probable it was."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(RankedToken):
    """One token of an answer; it is its own only alternative."""

    top_logprobs: list[RankedToken]


class ChatLogprobs(Open):
    """Log probabilities of tokens when they were committed."""

    content: list[TokenLogprob]
    refusal: None


class ChatChoice(Open):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]
    ripple: ChoiceCost


class ChatCompletion(Open):
    """The answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    ripple: Cost


class TextPiece(Open):
    """What a chunk adds to one completion; the last one has the reason and the cost."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    ripple: ChoiceCost | None = None


class Chunk(Open):
    """One event of a stream."""

    id: str
    created: int
    model: str
    usage: Usage | None = Field(None, description="in the last chunk alone, if it was asked for")
    ripple: Any = Field(None, description="a frame of the canvas; such a chunk has no choices")


class CompletionChunk(Chunk):
    """One event of a stream of /v1/completions."""

    object: Literal["text_completion"]
    choices: list[TextPiece]


class Delta(Open):
    """What a chunk adds to a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatPiece(Open):
    """What a chunk adds to one answer; the last one has the reason and the cost."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    ripple: ChoiceCost | None = None


class ChatCompletionChunk(Chunk):
    """One event of a stream of /v1/chat/completions."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatPiece]


class ModelCard(Open):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Open):
    """All models."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(Open):
    """Requests are taken and decoded."""

    status: Literal["ok"]
    running: int
    waiting: int


class Version(BaseModel):
    """The version of Ripple."""

    version: str


Responses = dict[int | str, dict[str, Any]]

_MEANINGS = {
    400: "a field is wrong or cannot be honoured", 401: "a key is needed", 404: "there is no such model",
    408: "the body did not arrive in time", 413: "the body is too large", 415: "the body is not JSON",
    429: "the queue is full", 500: "the request failed while it was decoded", 503: "the engine has stopped",
    504: "the request took too long",
}  # fmt: skip


def _failures(*statuses: int) -> Responses:
    told = {"application/json": {"schema": _ref("Failure")}}
    return {status: {"content": told, "description": _MEANINGS[status]} for status in statuses}


def _decoding(body: str, answer: type[BaseModel], chunk: str) -> dict[str, Any]:
    """Return what FastAPI is told of a route that decodes; we read its body ourselves."""
    event = {
        "type": "string", "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [_ref(chunk), _ref("Failure")]},
        "description": "a chunk as JSON; the last event is `[DONE]`, and a failure may come before it",
    }  # fmt: skip
    events = {"schema": {"type": "object", "required": ["data"], "properties": {"data": event}}}
    success = _success(answer, "the answer, or with stream: true a stream of chunks")
    failures = _failures(400, 401, 404, 408, 413, 415, 429, 500, 503, 504)
    return {
        "responses": {200: success | {"content": {"text/event-stream": events}}, **failures},
        "openapi_extra": {
            "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
        },
    }  # fmt: skip


def _success(answer: type[BaseModel], about: str) -> dict[str, Any]:
    return {"model": answer, "description": about}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": REF.format(model=name)}


REF = "#/components/schemas/{model}"
COMPLETIONS = _decoding("CompletionRequest", Completion, "CompletionChunk")
CHATS = _decoding("ChatRequest", ChatCompletion, "ChatCompletionChunk")
MODELS: Responses = {200: _success(ModelList, "the model"), **_failures(401)}
MODEL: Responses = {200: _success(ModelCard, "the model"), **_failures(401, 404)}
HEALTH: Responses = {200: _success(Health, "requests are taken and decoded"), **_failures(503)}
METRICS: Responses = {200: {"description": "Prometheus's text format"}, **_failures(401)}
VERSION: Responses = {200: _success(Version, "the version"), **_failures(401)}


def complete(app: FastAPI, has_key: bool) -> None:
    """Take out of the schema what never happens here, and add bodies, chunks, frames and the key."""
    schema = app.openapi()
    parts = schema["components"]["schemas"]
    for path in schema["paths"].values():
        for route in path.values():
            route["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        parts.pop(name, None)
    ours = (CompletionRequest, ChatRequest, CompletionChunk, ChatCompletionChunk, Failure)
    parts |= models_json_schema([(one, "validation") for one in ours], ref_template=REF)[1]["$defs"]
    parts["RippleOptions"] = option_schema()
    parts["CanvasFrame"] = {name: part for name, part in canvas_schema().items() if name != "$schema"}
    for one in ours[:-1]:
        inner = "RippleOptions" if one in (CompletionRequest, ChatRequest) else "CanvasFrame"
        field = parts[one.__name__]["properties"]["ripple"]
        field.pop("title", None)
        field["anyOf"] = [_ref(inner), {"type": "null"}]
    if has_key:
        schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"key": []}]
        schema["paths"]["/health"]["get"]["security"] = []
