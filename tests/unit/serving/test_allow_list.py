"""What a client may reach."""

from __future__ import annotations

import pytest

from gatevalve_serving.allow_list import ALLOWED, find
from gatevalve_serving.api_key import ApiKeys


@pytest.mark.parametrize(("method", "path"), ALLOWED)
def test_the_allow_list_is_open(method: str, path: str) -> None:
    assert find(method, path) is not None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/adapters"),
        ("POST", "/invocations"),
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1//chat/completions"),
        ("POST", "/V1/chat/completions"),
        ("POST", "/v1/../v1/load_lora_adapter"),
        ("GET", "/metrics/x"),
        ("HEAD", "/health"),
        ("OPTIONS", "/v1/chat/completions"),
        ("POST", "/gatevalve/v1/channels/support"),
        ("GET", "/gatevalve/v1/channels/"),
        ("GET", "/gatevalve/v1/channels/a/b"),
        ("PUT", "/gatevalve/v1/channels/Support"),
        ("PUT", "/gatevalve/v1/channels/.."),
        ("PUT", "/gatevalve/v1/channels/" + "a" * 41),
        ("GET", "support"),
        ("POST", "http://x/v1/chat/completions"),
        ("POST", "/v1%2Fchat/completions"),
        ("POST", "/v1/chat/completions?x"),
        ("POST", "/v1/chat/completions;x"),
        ("POST", "/v1/chat/completions\x00"),
        ("POST", "/v1/chat/completions "),
        ("POST", "\\v1\\chat\\completions"),
        ("POST", "/prefix/v1/chat/completions"),
        ("POST", "v1/chat/completions"),
        ("post", "/v1/chat/completions"),
        ("HEAD", "/v1/models"),
        ("TRACE", "/health"),
        ("CONNECT", "/health"),
        ("POST", "/health"),
        ("GET", "/metrics/"),
        ("GET", "/metrics/../v1/load_lora_adapter"),
        ("PUT", "/gatevalve/v1/channels/support/"),
        ("PUT", "/gatevalve/v1/channels/support\n"),
    ],
)
def test_everything_else_does_not_exist(method: str, path: str) -> None:
    assert find(method, path) is None


def test_a_channels_path_carries_its_name() -> None:
    found = find("PUT", "/gatevalve/v1/channels/support-2")
    assert found is not None
    assert (found.channel, found.needs_key) == ("support-2", True)


def test_only_health_readiness_and_metrics_go_without_the_key() -> None:
    assert {path for (_, path), allowed in ALLOWED.items() if not allowed.needs_key} == {"/health", "/metrics", "/gatevalve/readyz"}


@pytest.mark.parametrize(
    ("given", "admitted"),
    [
        (b"Bearer right", True),
        (b"bearer second", True),
        (b"Bearer wrong", False),
        (b"Bearer ", False),
        (b"Basic right", False),
        (b"right", False),
        (None, False),
    ],
)
def test_one_of_the_keys_opens(given: bytes | None, admitted: bool) -> None:
    headers = [(b"authorization", given)] if given is not None else []
    assert ApiKeys(("right", "second")).admit({"headers": headers}) is admitted


def test_without_keys_the_server_is_open() -> None:
    assert ApiKeys(()).admit({"headers": []})
