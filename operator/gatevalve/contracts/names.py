"""Names that more than one part must agree on: API group, labels, annotations, objects, mount paths, environment, file layout."""

from __future__ import annotations

import hashlib

from gatevalve.contracts.errors import ContractError

GROUP = "gatevalve.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "gatevalve"
FIELD_MANAGER = "gatevalve"

POLICIES, CHANNELS, CANDIDATES, RELEASES = "gatepolicies", "adapterchannels", "adaptercandidates", "adapterreleases"

LABEL_POOL = f"{GROUP}/pool"
LABEL_CHANNEL = f"{GROUP}/channel"
LABEL_CANDIDATE = f"{GROUP}/candidate"
LABEL_CANDIDATE_UID = f"{GROUP}/candidate-uid"
LABEL_STEP = f"{GROUP}/step"
LABEL_ATTEMPT = f"{GROUP}/attempt"
ANNOTATION_ADOPT = f"{GROUP}/adopt"
ANNOTATION_UNFREEZE = f"{GROUP}/unfreeze"

TRAINER_SERVICE_ACCOUNT = "gatevalve-trainer"
SIGNING_SECRET, SEAL_SECRET, KEYS_CONFIGMAP = "gatevalve-signing", "gatevalve-seal", "gatevalve-keys"
SIGNING_KEY_FILE, CERTIFICATE_FILE = "tls.key", "tls.crt"
SEAL_SEED_KEY, SEAL_SPLIT_KEY = "seed", "split-key"
JUDGE_SECRET, JUDGE_KEY = "gatevalve-judge", "api-key"

ENV_JOB = "GATEVALVE_JOB"
ENV_SPLIT_KEY = "GATEVALVE_SPLIT_KEY"
ENV_SEAL_SEED = "GATEVALVE_SEAL_SEED"
ENV_JUDGE_API_KEY = "GATEVALVE_JUDGE_API_KEY"
ENV_NAMESPACE = "GATEVALVE_NAMESPACE"
ENV_POOL = "GATEVALVE_POOL"
ENV_POD_NAME = "GATEVALVE_POD_NAME"
ENV_POD_UID = "GATEVALVE_POD_UID"
ENV_KEY_SHA256 = "GATEVALVE_KEY_SHA256"
ENV_DATA_URL = "GATEVALVE_DATA_URL"
ENV_POOL_PATH, ENV_KEYS_PATH, ENV_CACHE_PATH = "GATEVALVE_POOL_PATH", "GATEVALVE_KEYS_PATH", "GATEVALVE_CACHE_PATH"
ENV_POOL_API_KEY = "GATEVALVE_POOL_API_KEY"

DATA_PATH, SEALED_PATH, LOG_PATH = "/gatevalve/data", "/gatevalve/sealed", "/gatevalve/log"
MODELS_PATH = "/models"
ARMS_PATH = "/gatevalve/arms"
POOL_PATH, KEYS_PATH, CACHE_PATH = "/gatevalve/pool", "/gatevalve/keys", "/gatevalve/cache"
TERMINATION_LOG = "/dev/termination-log"
TERMINATION_BYTES = 4096

HEADER_RELEASE = "x-gatevalve-release"
HEADER_PROBE = "x-gatevalve-probe"

MANIFEST = "MANIFEST.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SEQUENCE_DIGITS = 6


def entry_name(channel: str, sequence: int) -> str:
    """The AdapterRelease that holds an entry: <channel>-<six-digit sequence>."""
    if not 0 <= sequence < 10**SEQUENCE_DIGITS:
        raise ContractError("sequence", f"{sequence} is outside 0..{10**SEQUENCE_DIGITS - 1}", "start a new channel")
    return f"{channel}-{sequence:0{SEQUENCE_DIGITS}d}"


def entry_sequence(name: str) -> int:
    """The sequence in an entry's name."""
    return int(name.rsplit("-", 1)[1])


def adapter_name(channel: str, digest: str) -> str:
    """The engine's name of an adapter: <channel>-<first eight hex digits of its digest>."""
    return f"{channel}-{digest.removeprefix('sha256:')[:8]}"


def job_name(candidate: str, uid: str, step: str, attempt: int) -> str:
    """The Job of one attempt at one step: <candidate>-<uid8>-<step>-<n>."""
    return f"{candidate}-{uid[:8]}-{step}-{attempt}"


def sentinel_job_name(channel: str, uid: str, number: int, attempt: int) -> str:
    """The Job of one attempt at a sentinel, as long as a candidate's: eight digits tell channel and number apart from all others."""
    told = hashlib.sha256(f"{uid}/{number}".encode()).hexdigest()[:8]
    return f"{channel}-{told}-sentinel-{attempt}"


def pool_configmap(pool: str) -> str:
    """The ConfigMap that carries the documents of a pool's channels."""
    return f"gatevalve-pool-{pool}"


def digest_hex(digest: str) -> str:
    """The hex digits of a digest: the form used in paths."""
    return digest.removeprefix("sha256:")


def snapshot_dir(channel_uid: str, digest: str) -> str:
    """A snapshot's directory in the data area."""
    return f"{channel_uid}/snapshots/{digest_hex(digest)}"


def adapter_dir(channel_uid: str, digest: str) -> str:
    """A published adapter's directory in the data area."""
    return f"{adapters_dir(channel_uid)}/{digest_hex(digest)}"


def adapters_dir(channel_uid: str) -> str:
    """The published adapters of a channel in the data area."""
    return f"{channel_uid}/adapters"


def arm_dir(digest: str) -> str:
    """An adapter's directory among the verified arms of an evaluation Pod."""
    return digest_hex(digest)


def work_dir(channel_uid: str, candidate_uid: str) -> str:
    """The directory in the data area that one candidate's Jobs write."""
    return f"{channel_uid}/work/{candidate_uid}"


def traffic_dir(channel_uid: str) -> str:
    """The captured traffic of a channel in the data area."""
    return f"{channel_uid}/traffic"


def inbox_dir() -> str:
    """Artifacts made elsewhere, in the data area, shared by the namespace's channels."""
    return "inbox"


def suites_dir() -> str:
    """Fixed suites in the data area, shared by the namespace's channels."""
    return "suites"


def rounds_dir(channel_uid: str) -> str:
    """The item sets of a channel's rounds in the sealed area."""
    return f"{channel_uid}/rounds"


def round_dir(channel_uid: str, number: int) -> str:
    """A round's sealed items in the sealed area."""
    return f"{rounds_dir(channel_uid)}/{number:06d}"


def sentinels_dir(channel_uid: str) -> str:
    """The item sets of a channel's sentinels in the sealed area, apart from all rounds."""
    return f"{channel_uid}/sentinels"


def sentinel_dir(channel_uid: str, number: int) -> str:
    """A sentinel's own items in the sealed area."""
    return f"{sentinels_dir(channel_uid)}/{number:06d}"


def evidence_dir(channel_uid: str, test_entry: str) -> str:
    """The evidence of one test in the sealed area."""
    return f"{channel_uid}/evidence/{test_entry}"


def progress_file(channel_uid: str, test_entry: str) -> str:
    """How far the evaluation of a test is, in the sealed area; there only while it runs."""
    return f"{evidence_dir(channel_uid, test_entry)}/progress.json"


def log_file(channel_uid: str, sequence: int) -> str:
    """An entry's copy in the external log."""
    return f"{channel_uid}/{sequence:0{SEQUENCE_DIGITS}d}.json"
