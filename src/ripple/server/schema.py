"""What clients send: OpenAI's fields, and an object `ripple` with our own.

Fields that stock clients send at a value that changes nothing are accepted at that value (`NEUTRAL`); any
other value, and any other field, is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ripple.errors import LONGEST_NAME, nearest

MOST_CHOICES = 128
MOST_NAMES = 100  # fields of `ripple` or of `metadata`
MOST_STOPS = 16
SEEDS = 1 << 63  # of which any whole number names one
LONGEST_SPEC = 400  # characters of a value in `ripple`
STREAMS = ("text", "canvas")

# Field -> the values at which it changes nothing; null always is one.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (), "bad_words": ([],), "best_of": (1,), "frequency_penalty": (0,),
    "function_call": ("none", "auto"), "functions": ([],), "guided_json": (),
    "length_penalty": (1,), "logit_bias": ({},), "min_p": (0,),
    "min_tokens": (0,), "modalities": (["text"],), "parallel_tool_calls": (True, False), "prediction": (),
    "presence_penalty": (0,), "prompt_logprobs": (0,), "reasoning_effort": ("none",),
    "repetition_penalty": (1,), "response_format": ({"type": "text"},), "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,), "stop_token_ids": ([],),
    "store": (False,), "suffix": ("",), "tool_choice": ("none", "auto"), "tools": ([],), "top_k": (-1, 0),
    "top_p": (1,), "use_beam_search": (False,), "verbosity": ("medium",), "web_search_options": (),
}  # fmt: skip
_MESSAGE_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "annotations": ([],), "audio": (), "function_call": (), "reasoning_content": ("",), "refusal": ("",),
    "tool_calls": ([],),
}  # fmt: skip


def _whole(value: Any) -> Any:
    """Return 8 for 8.0: JSON knows one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_ids(value: Any) -> Any:
    """Return token ids with 8 for 8.0."""
    has_floats = isinstance(value, list) and float in set(map(type, value))
    return [_whole(one) for one in value] if has_floats else value


def _few(value: Any) -> Any:
    """Refuse an object with too many fields before each of them is looked at."""
    if isinstance(value, dict) and len(value) > MOST_NAMES:
        raise PydanticCustomError("too_many", f"must have at most {MOST_NAMES} fields")
    return value


# Bounds stand inside of what converts: outside of it, the JSON schema would not have them.
# A list is refused at its first wrong member: the faults of two million would take a minute to tell.
Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Choices = Annotated[int, Field(ge=1, le=MOST_CHOICES), BeforeValidator(_whole)]
Seed = Annotated[int, BeforeValidator(_whole), AfterValidator(lambda seed: seed % SEEDS)]
Alternatives = Annotated[int, Field(ge=0, le=1), BeforeValidator(_whole)]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
TokenIds = Annotated[list[int], Field(min_length=1, fail_fast=True), BeforeValidator(_whole_ids)]
TokenIdLists = Annotated[list[TokenIds], Field(min_length=1, fail_fast=True)]
Value = Annotated[str | int | float | bool | None, BeforeValidator(_whole)]
Labels = Annotated[dict[str, str], Field(max_length=MOST_NAMES), BeforeValidator(_few)]
Values = Annotated[dict[str, Value], Field(max_length=MOST_NAMES), BeforeValidator(_few)]
Stops = Annotated[list[Text], Field(max_length=MOST_STOPS, fail_fast=True)]
AnyPrompt = str | list[int] | list[dict[str, str]]


def _fault(name: str, message: str) -> PydanticCustomError:
    told = name[:LONGEST_NAME].encode(errors="replace").decode()  # pydantic takes no lone surrogates
    return PydanticCustomError("field", "{message}", {"field": told, "message": message})


def _equal(value: Any, other: Any) -> bool:
    """Compare as JSON does: 1 and 1.0 are equal, 1 and true are not."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _tell_neutral(schema: dict[str, Any], model: type[Any]) -> None:
    """Add the neutral fields to a JSON schema."""
    properties = schema.setdefault("properties", {})
    for name, values in model.neutral.items():
        properties[name] = {"enum": [*values, None], "description": "accepted at values that change nothing"}


class Body(BaseModel):
    """An object from outside: every field is known and of its own type."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra=_tell_neutral
    )
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, given: Any) -> Any:
        """Take out what changes nothing, and refuse what we cannot honour or do not know."""
        if not isinstance(given, dict):
            return given
        kept = {}
        for name, value in given.items():
            if name in cls.model_fields:
                kept[name] = value
            elif name not in cls.neutral:
                near = nearest(name, cls.model_fields)
                hint = f" (did you mean {near!r}?)" if near else ""
                raise _fault(name, f"is not a field that this server knows{hint}")
            elif value is not None and not any(_equal(value, one) for one in cls.neutral[name]):
                allowed = " or ".join(json.dumps(one) for one in (*cls.neutral[name], None))
                raise _fault(name, f"cannot be honoured here; leave it out or at {allowed}")
        return kept


class StreamOptions(Body):
    """What a stream carries beside its text."""

    neutral: ClassVar = {"continuous_usage_stats": (True, False), "include_obfuscation": (True, False)}
    include_usage: bool | None = Field(None, description="send a last chunk with the usage")


class DecodeRequest(Body):
    """The fields that completions and chats have in common."""

    neutral: ClassVar = NEUTRAL
    model: str | None = Field(None, description="the model's name; may be left out")
    max_tokens: Count | None = Field(None, description="response positions to decode")
    max_completion_tokens: Count | None = Field(None, description="the newer name of max_tokens")
    temperature: float | None = Field(None, ge=0, description="0, the default, is greedy")
    seed: Seed | None = Field(None, description="any whole number; choice i is decoded with seed + i")
    stop: Text | Stops | None = Field(None, description="cut the text before these")
    n: Choices | None = Field(None, description="choices per prompt")
    stream: bool | None = Field(None, description="send server-sent events")
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, description="accepted, not used")
    metadata: Labels | None = Field(None, description="accepted, not used")
    safety_identifier: str | None = Field(None, description="accepted, not used")
    prompt_cache_key: str | None = Field(None, description="accepted, not used")
    ignore_eos: bool | None = Field(
        None, description="decode the whole canvas although the text has ended; the text still ends there"
    )
    ripple: Values | None = Field(
        None,
        description="our own options: decoder, cache, and every field of both",
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise _fault("stream_options", "needs stream: true")
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            raise _fault("max_completion_tokens", f"is {new} and max_tokens {old}: give one of them")
        return self

    @property
    def length(self) -> int | None:
        """Response positions, if OpenAI's fields say so."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def wants_logprobs(self) -> bool:
        """Whether the probabilities of committed tokens are wanted."""
        raise NotImplementedError

    prompt_field: ClassVar[str]

    @property
    def prompts(self) -> list[AnyPrompt]:
        """The prompts, one by one."""
        raise NotImplementedError


class CompletionRequest(DecodeRequest):
    """The body of /v1/completions."""

    prompt_field: ClassVar = "prompt"

    prompt: Text | Texts | TokenIds | TokenIdLists = Field(
        description="a string, token ids, or a list of either"
    )
    echo: bool | None = Field(None, description="put the prompt before the text")
    logprobs: Alternatives | None = Field(None, description="probabilities of tokens as they were committed")

    @model_validator(mode="before")
    @classmethod
    def _refuse_scoring(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("echo") and _equal(given.get("max_tokens"), 0):
            raise _fault("max_tokens", "must be at least 1: a prompt alone cannot be scored here")
        return given

    @property
    def wants_logprobs(self) -> bool:
        """Whether the probabilities of committed tokens are wanted."""
        return self.logprobs is not None

    @property
    def prompts(self) -> list[AnyPrompt]:
        """The prompts, one by one."""
        is_one = isinstance(self.prompt, str) or isinstance(next(iter(self.prompt), None), int)
        return [self.prompt] if is_one else list(self.prompt)  # type: ignore[list-item, arg-type]


class TextPart(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class ChatMessage(Body):
    """One turn of a conversation."""

    neutral: ClassVar = _MESSAGE_NEUTRAL
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = Field(
        None, description="may be left out or null where the assistant said nothing"
    )
    name: str | None = Field(None, description="accepted, not used")

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise _fault("content", "is missing")
        return self

    def plain(self) -> dict[str, str]:
        """Return the message as chat templates read it."""
        parts = [] if self.content is None else self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(DecodeRequest):
    """The body of /v1/chat/completions."""

    prompt_field: ClassVar = "messages"

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    logprobs: bool | None = Field(None, description="probabilities of tokens as they were committed")
    top_logprobs: Alternatives | None = Field(None, description="goes with logprobs: true")

    @model_validator(mode="after")
    def _check_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise _fault("top_logprobs", "needs logprobs: true")
        return self

    @property
    def wants_logprobs(self) -> bool:
        """Whether the probabilities of committed tokens are wanted."""
        return bool(self.logprobs)

    @property
    def prompts(self) -> list[AnyPrompt]:
        """The conversation, as the one prompt that it is."""
        return [[message.plain() for message in self.messages]]
