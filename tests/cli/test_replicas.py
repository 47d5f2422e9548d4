"""`ripple serve --ray` and the config file of Ray Serve: what they are told, without a cluster."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ripple.cli.replicas import application, plan_of
from ripple.errors import RippleError
from tests.cli.conftest import Cli

TABLE: dict[str, Any] = {"model": "tiny-llada", "decoder": "rps", "lam": 0.2, "max_batch": 32, "queue": 8}


def test_a_table_of_options_is_a_plan() -> None:
    plan = plan_of(TABLE | {"device": "cpu", "length": 64}, 1, 4, 1.0)
    assert (plan.model, plan.name, plan.arguments) == ("tiny-llada", "tiny-llada", {"device": "cpu"})
    assert (plan.options.decoder, plan.options.length, plan.options.stop_at_end) == ("rps:lam=0.2", 64, True)
    assert (plan.limits.max_batch, plan.limits.queue, plan.least, plan.most, plan.gpus) == (32, 8, 1, 4, 1.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
def test_serve_is_told_what_one_engine_batches() -> None:
    made = application(TABLE | {"replicas": "1:4", "gpus_per_replica": 0.5, "auth": False})
    replica = made._bound_deployment
    scaling = replica._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.target_ongoing_requests) == (1, 4, 32)
    assert replica.max_ongoing_requests > 32 + 8  # overflow reaches our own 429
    assert replica.ray_actor_options["num_gpus"] == 0.5
    fixed = application(TABLE | {"replicas": 3, "gpus_per_replica": 0, "api_key": "k"})
    assert fixed._bound_deployment.num_replicas == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_documented_config_file_is_a_proper_one() -> None:
    from ray.serve.schema import ServeDeploySchema

    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    file = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    [app] = ServeDeploySchema(**file).applications
    module, _, name = app.import_path.partition(":")
    made = getattr(importlib.import_module(module), name)(app.args)
    assert made._bound_deployment.max_ongoing_requests > app.args["max_batch"] + app.args["queue"]


@pytest.mark.parametrize(
    "more, sentence",
    [
        ({}, "set a key with --api-key or RIPPLE_API_KEY, or say --no-auth"),
        ({"auth": False, "replicas": "4:1"}, "replicas must be a number, or MIN:MAX"),
        ({"auth": False, "lengthh": 4}, "Did you mean 'length'?"),
    ],
)
def test_mistakes_in_a_config_file_are_one_sentence(
    more: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RIPPLE_API_KEY", raising=False)
    with pytest.raises(RippleError) as said:
        application(TABLE | {"gpus_per_replica": 0} | more)
    assert sentence in str(said.value)


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (("--replicas", "2"), "--replicas goes with --ray."),
        (("--address", "auto"), "--address goes with --ray."),
        (("--ray", "--replicas", "0"), "--replicas must be a number, or MIN:MAX"),
        (("--ray", "--host", "0.0.0.0"), "set a key"),
        (("--ray", "--lenght", "4"), "Did you mean '--length'?"),
    ],
)
def test_mistakes_are_one_sentence_before_a_cluster_is_started(
    cli: Cli, argv: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RIPPLE_API_KEY", raising=False)
    done = cli("serve", *argv)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
