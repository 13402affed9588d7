"""What a channel may tell the evaluation engine: how it computes, never whom it answers, what it loads, or what it writes about requests.

The engine answers sealed prompts. Its address, its models and its silence about requests are the operator's; options that load code or
files by name, that send tokens elsewhere, or that apply only a part of an adapter are nobody's. An allow-list, because vLLM's parser takes
every unambiguous beginning of an option for the option, and because the next version has options that nobody has judged.
"""

from __future__ import annotations

import re

ENGINE_OPTIONS = (
    # numbers and their precision
    *("--dtype", "--quantization", "--kv-cache-dtype", "--lora-dtype", "--seed", "--use-fp64-gumbel"),
    # the model as its own files describe it
    *("--config-format", "--load-format", "--tokenizer-mode", "--trust-remote-code", "--hf-overrides", "--generation-config"),
    *("--model-impl", "--safetensors-load-strategy", "--language-model-only", "--limit-mm-per-prompt"),
    # how a chat becomes a prompt
    *("--chat-template", "--chat-template-content-format", "--default-chat-template-kwargs", "--reasoning-parser"),
    # capacity
    *("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--max-cpu-loras", "--fully-sharded-loras", "--block-size"),
    *("--gpu-memory-utilization", "--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--cpu-offload-gb"),
    # speed
    *("--enforce-eager", "--optimization-level", "--cudagraph-capture-sizes", "--max-cudagraph-capture-size", "--attention-backend"),
    *("--moe-backend", "--linear-backend", "--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-chunked-prefill"),
    *("--no-enable-chunked-prefill", "--async-scheduling", "--no-async-scheduling", "--specialize-active-lora"),
    # devices
    *("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel"),
    *("--disable-custom-all-reduce", "--all2all-backend"),
)
"""Options of `vllm serve` that `evaluation.engineArgs` may hold, by their whole names."""

_NUMBER = re.compile(r"-[0-9.]+")

ENGINE_RULE = f"self.all(arg, !arg.startsWith('-') || arg.matches('^-[0-9.]+$') || arg.split('=')[0] in {list(ENGINE_OPTIONS)})"
ENGINE_RULE_MESSAGE = "only the engine options listed in docs/training.md may be set, by their whole names"


def checked_options(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The same arguments; raises ValueError that names the first option which a channel may not set. Values are not looked at."""
    options = (argument.split("=")[0] for argument in arguments if argument.startswith("-") and not _NUMBER.fullmatch(argument))
    refused = next((option for option in options if option not in ENGINE_OPTIONS), None)
    if refused is not None:
        raise ValueError(f"{refused} is refused: {ENGINE_RULE_MESSAGE}")
    return arguments


RESERVED_VARIABLES = (
    "^(LD_PRELOAD|LD_AUDIT|PYTHONPATH|PYTHONHOME|PYTHONSTARTUP|VLLM_API_KEY|VLLM_PLUGINS|VLLM_PORT|VLLM_RUST_FRONTEND_PATH"
    "|VLLM_MODEL_REDIRECT_PATH|VLLM_ALLOW_RUNTIME_LORA_UPDATING|VLLM_ALLOW_INSECURE_SERIALIZATION|VLLM_LORA_RESOLVER_.*"
    "|VLLM_SERVER_DEV_MODE|VLLM_CONFIGURE_LOGGING|VLLM_LOGGING_.*|VLLM_DEBUG_.*|VLLM_TRACE_FUNCTION)$"
)
"""Variables that a channel may not give its Jobs, because no value of ours could take their effect back.

Those that put other code into every process, and those of vLLM that load code, open its interface, send another model
for the one asked for, or write requests and replies to its log. Others (OMP_*, NCCL_*, HF_*, VLLM_*) pass: the base is a local directory
named by digest. VLLM_HOST_IP, HOME and USER pass and are overridden.
"""

RESERVED_MESSAGE = (
    "LD_PRELOAD, LD_AUDIT, PYTHONPATH, PYTHONHOME, PYTHONSTARTUP and variables of vLLM that load code, open its interface"
    " or write requests to its log may not be set"
)
