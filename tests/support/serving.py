"""What tests of serving are made of: a signing key, channel documents, adapters, a pod's directories, and an ASGI client in process."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from safetensors.numpy import save_file
from starlette.types import ASGIApp, Message

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import AdapterManifest, Probe
from gatevalve.contracts.hashing import digest_of_facts, directory_digest, file_fact
from gatevalve.contracts.kinds import Capture
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST, adapter_dir, adapter_name, entry_name
from gatevalve.contracts.serving import (
    SIGNATURE_CONTEXT_DOCUMENT,
    AdapterOnPod,
    AdapterRole,
    ChannelDocument,
    PodReport,
    Route,
    SignedDocument,
)
from gatevalve_serving.config import Settings, Timing
from gatevalve_serving.middleware import Gatevalve
from gatevalve_serving.pod import Pod
from support.scripted_vllm import ScriptedVllm, logprob, shift_of

UID = "0b5e2c1a-uid"
LAYERS, HIDDEN, WIDE = 2, 8, 16
TARGETS = ("q_proj", "down_proj")
QUICK = Timing(
    poll=0.02, tick=0.05, probe=0.3, retry_first=0.1, retry_longest=0.3, load=5.0, generation=5.0, capture_flush=0.05, registry=0.05
)

Tensors = dict[str, np.ndarray[Any, Any]]


class SigningKey:
    """An ed25519 key and its certificate: the operator's side of the documents."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gatevalve")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self._private.public_key())
        builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
        self.certificate = builder.sign(self._private, None).public_bytes(serialization.Encoding.PEM)
        self.key_id = sha256(self.certificate)

    def sign(self, document: ChannelDocument) -> SignedDocument:
        """The document with this key's signature."""
        signature = self._private.sign(SIGNATURE_CONTEXT_DOCUMENT + document.canonical())
        return SignedDocument(document=document, signature=base64.b64encode(signature).decode())


def tiny_base(path: Path, hidden: int = HIDDEN, layers: int = LAYERS) -> Path:
    """A base with two linear layers a block, enough for shapes."""
    path.mkdir(parents=True)
    tensors: Tensors = {"model.embed_tokens.weight": np.zeros((32, hidden), np.float32)}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = np.zeros((WIDE, hidden), np.float32)
        tensors[f"model.layers.{layer}.mlp.down_proj.weight"] = np.zeros((hidden, WIDE), np.float32)
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"model_type": "tiny", "hidden_size": hidden}))
    return path


def lora_tensors(seed: int, rank: int = 4, hidden: int = HIDDEN, layers: int = LAYERS) -> Tensors:
    """Weights of an adapter that fits `tiny_base`."""
    random = np.random.default_rng(seed)
    sizes = {"self_attn.q_proj": (WIDE, hidden), "mlp.down_proj": (hidden, WIDE)}
    tensors: Tensors = {}
    for layer in range(layers):
        for module, (out, into) in sizes.items():
            stem = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{stem}.lora_A.weight"] = random.standard_normal((rank, into)).astype(np.float32)
            tensors[f"{stem}.lora_B.weight"] = random.standard_normal((out, rank)).astype(np.float32)
    return tensors


def lora_config(rank: int = 4, **changes: Any) -> dict[str, Any]:
    """adapter_config.json of an adapter that fits `tiny_base`."""
    plain = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": list(TARGETS), "bias": "none", "lora_dropout": 0.0}
    return plain | {"init_lora_weights": True, "use_dora": False, "modules_to_save": None, "rank_pattern": {}} | changes


def write_peft(path: Path, tensors: Tensors, config: Mapping[str, Any]) -> None:
    """The two files of a PEFT adapter."""
    path.mkdir(parents=True)
    save_file(tensors, path / ADAPTER_WEIGHTS)
    (path / ADAPTER_CONFIG).write_text(json.dumps(config))


def scripted_probes(path: Path) -> tuple[Probe, ...]:
    """What a trainer would record of the scripted engine's answers."""
    shift, tokens = shift_of(path), (3, 5, 9)
    return (
        Probe(
            prompt_token_ids=(1, 2, 3),
            token_ids=tokens,
            adapter_logprobs=tuple(f"{logprob(shift, token):.6f}" for token in tokens),
            base_logprobs=tuple(f"{logprob(0, token):.6f}" for token in tokens),
        ),
    )


def publish(
    data: Path,
    peft: Path,
    base_digest: str,
    probes: tuple[Probe, ...],
    uid: str = UID,
    rank: int = 4,
    alpha: int = 8,
    targets: tuple[str, ...] = TARGETS,
) -> AdapterOnPod:
    """Put an adapter into the data area as the trainer does, MANIFEST last; returns how a document names it."""
    facts = tuple(file_fact(peft, peft / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS))
    digest = digest_of_facts(facts)
    uri = adapter_dir(uid, digest)
    target = data / uri
    target.mkdir(parents=True)
    for fact in facts:
        (target / fact.path).write_bytes((peft / fact.path).read_bytes())
    manifest = AdapterManifest(
        digest=digest, files=facts, base_digest=base_digest, rank=rank, alpha=alpha, target_modules=targets, probes=probes
    )
    (target / MANIFEST).write_text(manifest.model_dump_json(by_alias=True, exclude_none=True))
    return AdapterOnPod(name=adapter_name("support", digest), digest=digest, uri=uri, role=AdapterRole.LIVE)


async def eventually(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Return as soon as something holds that no event tells of, such as a file or a counter."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Answer:
    """A response as a client sees it; `chunks` are the body's pieces in order."""

    status: int
    headers: dict[str, str]
    chunks: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def report(self) -> PodReport:
        return PodReport.parse_json(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The objects of a stream, without its end mark."""
        lines = [line.removeprefix(b"data: ") for line in self.body.split(b"\n\n") if line]
        assert lines[-1] == b"[DONE]", self.body
        return [json.loads(line) for line in lines[:-1]]


@dataclass
class Client:
    """Asks an ASGI application in process."""

    app: ASGIApp
    scope: dict[str, Any]

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        gone_after: int | None = None,
    ) -> Answer:
        """One request. `gone_after`: the client hangs up after so many pieces of the body."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        given = {"content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(key.encode(), value.encode()) for key, value in given.items()],
            **self.scope,
        }
        pending, gone = [raw], asyncio.Event()
        start: Message = {}
        chunks: list[bytes] = []

        async def receive() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message.get("body"):
                chunks.append(message["body"])
                if gone_after is not None and len(chunks) >= gone_after:
                    gone.set()
                    raise OSError("the client hung up")

        await self.app(scope, receive, send)
        names = {key.decode(): value.decode() for key, value in start["headers"]}
        return Answer(start["status"], names, chunks)


@dataclass
class PodRig:
    """A pod's directories, its scripted engine, and the operator's key."""

    root: Path
    key: SigningKey = field(default_factory=SigningKey)
    api_key: str | None = None
    runtime_lora: bool = True
    max_cpu_loras: int = 4
    timing: Timing = QUICK

    def __post_init__(self) -> None:
        self.base = tiny_base(self.root / "base") if not (self.root / "base").exists() else self.root / "base"
        self.base_digest = directory_digest(self.base)
        for name in ("pool", "keys", "cache", "data"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "keys" / "tls.crt").write_bytes(self.key.certificate)
        self.engine = ScriptedVllm(self.base, self.api_key, self.runtime_lora, self.max_cpu_loras)

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def settings(self) -> Settings:
        return Settings(
            namespace="shop",
            pool="pool-a",
            pod="pool-a-0",
            pod_uid="pod-uid",
            key_digest=self.key.key_id,
            data_url=f"file://{self.data}",
            pool_path=self.root / "pool",
            keys_path=self.root / "keys",
            cache_path=self.root / "cache",
            timing=self.timing,
        )

    def adapter(self, seed: int, uid: str = UID) -> AdapterOnPod:
        """A published adapter that fits."""
        return self.odd_adapter(f"a{seed}-{uid}", lora_tensors(seed), lora_config(), uid=uid)

    def odd_adapter(self, name: str, tensors: Tensors, config: Mapping[str, Any], **manifest: Any) -> AdapterOnPod:
        """A published adapter of any kind."""
        peft = self.root / "peft" / name
        write_peft(peft, tensors, config)
        return publish(self.data, peft, manifest.pop("base_digest", self.base_digest), scripted_probes(peft), **manifest)

    def document(
        self, revision: tuple[int, int], adapters: tuple[AdapterOnPod, ...] = (), routed: AdapterOnPod | None = None, **changes: Any
    ) -> ChannelDocument:
        """A document of channel `support`; its entry is named by the revision's sequence."""
        channel = changes.pop("channel", "support")
        document = ChannelDocument(
            namespace="shop",
            pool="pool-a",
            channel=channel,
            uid=UID,
            base_name="tiny",
            base_digest=self.base_digest,
            key_id=self.key.key_id,
            revision=revision,
            alias=channel,
            adapters=adapters,
            routes=(Route(adapter=routed.name if routed else None, entry=entry_name(channel, revision[0])),),
            drain_seconds=5,
            capture=Capture(enabled=False),
        )
        return document.model_copy(update=changes)

    def signed(self, *arguments: Any, **changes: Any) -> SignedDocument:
        """The same, signed."""
        return self.key.sign(self.document(*arguments, **changes))

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[RunningPod]:
        """The middleware around the engine, between the lifespan's start and its end."""
        middleware = Gatevalve(self.engine, replace(self.settings, **settings))
        messages: asyncio.Queue[Message] = asyncio.Queue()
        said: asyncio.Queue[Message] = asyncio.Queue()
        messages.put_nowait({"type": "lifespan.startup"})
        lifespan = asyncio.create_task(middleware({"type": "lifespan", "app": self.engine}, messages.get, said.put))
        started = asyncio.create_task(said.get())
        await asyncio.wait((lifespan, started), return_when=asyncio.FIRST_COMPLETED)
        if lifespan.done():
            started.cancel()
            lifespan.result()
        try:
            yield RunningPod(Client(middleware, {"app": self.engine}), middleware, self.api_key)
        finally:
            messages.put_nowait({"type": "lifespan.shutdown"})
            await lifespan


@dataclass
class RunningPod:
    """A pod that answers."""

    client: Client
    middleware: Gatevalve
    api_key: str | None = None

    @property
    def pod(self) -> Pod:
        assert self.middleware.pod is not None
        return self.middleware.pod

    async def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
        """A request with the API key, where there is one."""
        key = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return await self.client.ask(method, path, body, {**key, **(headers or {})}, **more)

    async def put(self, signed: SignedDocument, channel: str = "support") -> Answer:
        """Push a document."""
        return await self.ask("PUT", f"/gatevalve/v1/channels/{channel}", signed.wire())

    async def report(self, channel: str = "support") -> PodReport:
        """The channel's report now."""
        return (await self.ask("GET", f"/gatevalve/v1/channels/{channel}")).report

    async def until(self, holds: Callable[[PodReport], bool], channel: str = "support", seconds: float = 10) -> PodReport:
        """The first report that holds."""
        async with asyncio.timeout(seconds):
            while not holds(report := await self.report(channel)):  # noqa: ASYNC110 -- seen from outside
                await asyncio.sleep(0.01)
        return report

    async def settled(self, signed: SignedDocument, channel: str = "support") -> PodReport:
        """Push a document and wait until its routes are in force and all its adapters verified."""
        assert (await self.put(signed, channel)).status == 202
        return await self.until(lambda report: report.committed and all(one.state == "Verified" for one in report.adapters), channel)

    async def chat(self, model: str = "support", **body: Any) -> Answer:
        """A chat completion through an alias."""
        return await self.ask("POST", "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "hi"}], **body})
