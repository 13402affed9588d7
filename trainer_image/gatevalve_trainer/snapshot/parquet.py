"""Snapshot rows as Parquet and back; the same rows give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SnapshotRow

ROWS_PER_GROUP = 4096

TRAIN_SCHEMA = pa.schema(
    [
        pa.field("row_id", pa.string(), nullable=False),
        pa.field("created_at", pa.string(), nullable=False),
        pa.field("entry", pa.string(), nullable=False),
        pa.field("adapter_digest", pa.string(), nullable=False),
        pa.field("prompt_token_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("response_token_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("response_logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("behavior_exact", pa.bool_(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("response_text", pa.string(), nullable=False),
        pa.field("messages", pa.string(), nullable=False),
    ]
)

DRIFT_SCHEMA = pa.schema([TRAIN_SCHEMA.field(name) for name in ("row_id", "prompt_token_ids", "messages")])
"""Prompts only: the drift side is asked again, never trained on."""


def train_bytes(rows: Sequence[SnapshotRow]) -> bytes:
    """train/part-00000.parquet of these rows."""
    return _bytes(rows, TRAIN_SCHEMA)


def drift_bytes(rows: Sequence[SnapshotRow]) -> bytes:
    """drift/part-00000.parquet of these rows' prompts."""
    return _bytes(rows, DRIFT_SCHEMA)


def read_train_rows(path: str, data: bytes) -> list[SnapshotRow]:
    """The rows of a train part; raises ContractError when it is not one."""
    try:
        table = pq.read_table(io.BytesIO(data), use_threads=False, pre_buffer=False)  # where no thread can be made, threads would hang
    except pa.ArrowException as error:
        raise ContractError(path, f"is not Parquet: {error}", "cut the snapshot anew") from error
    if not table.schema.equals(TRAIN_SCHEMA):
        raise ContractError(
            path, f"has the columns {', '.join(table.schema.names)}", f"write {', '.join(TRAIN_SCHEMA.names)} as snapshot does"
        )
    return [SnapshotRow.parse(row) for row in table.to_pylist()]


def _bytes(rows: Sequence[SnapshotRow], schema: pa.Schema) -> bytes:
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd", row_group_size=ROWS_PER_GROUP)
    return sink.getvalue()
