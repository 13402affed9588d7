"""Which requests count as attempts to get past the aliases."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve_serving.bypass import (
    SENTENCES,
    Attempts,
    Bypass,
    carries_an_adapter_header,
    content_names_an_adapter,
    printable,
    tries_an_adapter_route,
)
from gatevalve_serving.progress import Progress


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/adapters",
        "/adapters/support-3f2a9c1d",
        "/invocations",
        "/collective_rpc",
        "//v1///load_lora_adapter//",
        "/V1/Load_LoRA_Adapter",
        "/v1/%6coad_lora_adapter",
        "/v1%2fload_lora_adapter",
        "\\v1\\load_lora_adapter",
        "/v1/x/../load_lora_adapter",
        "http://host/v1/load_lora_adapter",
        "/load_lora_adapter?x",
        "/adapters;x=1",
        "adapters",
    ],
)
def test_a_route_for_adapters_is_seen_however_it_is_spelt(path: str) -> None:
    assert tries_an_adapter_route(path)


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/responses", "/adapters-of-ours", "/my_adapters", "/", "", "/health", "/v1/models/adapter"]
)
def test_other_paths_are_ordinary_mistakes(path: str) -> None:
    assert not tries_an_adapter_route(path)


@pytest.mark.parametrize(
    "name", [b"x-amzn-sagemaker-adapter-identifier", b"x-amzn-sagemaker-adapter-alias", b"X-Amzn-SageMaker-Adapter-Id"]
)
def test_sagemakers_adapter_headers_are_seen(name: bytes) -> None:
    assert carries_an_adapter_header({"headers": [(b"host", b"x"), (name, b"a")]})
    assert not carries_an_adapter_header({"headers": [(b"host", b"x"), (b"x-amzn-sagemaker-session-id", b"a")]})


def asked(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (asked({"type": "a1"}), True),
        (asked({"type": "a1_url"}), True),
        (asked({"type": "text"}, {"type": "a1_x_y"}), True),
        (asked({"type": "text"}), False),
        (asked({"type": "a1-x"}), False),
        (asked({"type": ["a1"]}, {"type": None}, {}, "a1", 7, None), False),
        ({"messages": "a1"}, False),
        ({"messages": [None, "a1", {"content": "a1"}, {"content": {"type": "a1"}}, {}]}, False),
        ({"prompt": "a1"}, False),
    ],
)
def test_a_content_part_names_an_adapter_by_its_type_up_to_the_first_underscore(body: dict[str, Any], names: bool) -> None:
    assert content_names_an_adapter(body, {"a1", "b2"}.__contains__) is names


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("a\nb\x1b[0m", "a?b?[0m"), ("\u202eé\ud800", "???"), ("x" * 11, "x" * 10 + "..."), ("", "")],
)
def test_what_a_client_wrote_is_cut_and_printable(text: str, shown: str) -> None:
    assert printable(text, 10) == shown


def test_what_is_told_of_a_request_is_words_of_ours_and_one_word_for_each_of_the_clients() -> None:
    attempts = Attempts(Progress(), 0.0)
    attempts.note(Bypass.ROUTE, "GET; X", "/adapters/evidence of a; status Promoted of candidate b")
    assert attempts.newest is not None
    method, path, words = attempts.newest.message.split(" ", 2)
    assert (method, path) == ("GET%3B%20X", "/adapters/evidence%20of%20a%3B%20status%20Promoted%20of%20candidate%20b:")
    assert words == SENTENCES[Bypass.ROUTE]


def test_every_way_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Bypass)
