"""Manifests of Jobs: a channel's variables reach the container and never take the place of the operator's own."""

from __future__ import annotations

from typing import Any

from support.world import World, channel_spec

ENV = [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "VLLM_HOST_IP", "value": "0.0.0.0"}, {"name": "HOME", "value": "/root"}]


def environments(step: str) -> dict[str, list[dict[str, Any]]]:
    """The environment of each container of a step's Job in a channel that sets ENV everywhere."""
    world = World(spec=channel_spec(training={"pod": {"env": ENV}}, evaluation={"pod": {"env": ENV}}))
    world.run()
    world.apply("monday")
    world.run()
    pod = next(job for job in world.jobs.values() if job.view.step == step).manifest["spec"]["template"]["spec"]
    return {container["name"]: container["env"] for container in (*pod.get("initContainers", ()), *pod["containers"])}


def in_force(env: list[dict[str, Any]]) -> dict[str, Any]:
    """What the container sees: the last of each name."""
    return {item["name"]: item.get("value") for item in env}


def test_the_trainer_sees_the_channels_variables_and_our_own_in_force() -> None:
    env = environments("train")["train"]
    assert env[:3] == ENV
    assert in_force(env) | {"GATEVALVE_JOB": ""} == {
        "OMP_NUM_THREADS": "1",
        "VLLM_HOST_IP": "0.0.0.0",
        "HOME": "/tmp",
        "USER": "gatevalve",
        "GATEVALVE_JOB": "",
    }


def test_the_evaluation_engine_stays_on_the_loopback_whatever_the_channel_says() -> None:
    seen = in_force(environments("evaluate")["engine"])
    assert (seen["VLLM_HOST_IP"], seen["HOME"], seen["OMP_NUM_THREADS"]) == ("127.0.0.1", "/tmp", "1")


def test_containers_with_keys_see_nothing_of_the_channels_variables() -> None:
    containers = environments("evaluate") | environments("snapshot")
    assert all("OMP_NUM_THREADS" not in in_force(containers[name]) for name in ("publish", "evaluate", "snapshot"))
