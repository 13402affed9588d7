"""Forms of text, each with the sentence that people are told when theirs is another; API server and contract say the same."""

from __future__ import annotations

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
ENTRY_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9]{6}$"
DIGEST = r"^sha256:[0-9a-f]{64}$"
DECIMAL = r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$"
TEMPERATURE = r"^[0-9]+(\.[0-9]+)?$"
DURATION = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"
TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"
DIRECTORY = r"^(file://)?/.+$"
HTTP_URL = r"^https?://[^ ]+$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"

SENTENCES = {
    NAME: "must be a name of lower-case letters, digits and dashes that starts and ends with a letter or digit",
    OBJECT_NAME: "must be a name of lower-case letters, digits, dashes and dots that starts and ends with a letter or digit",
    ENTRY_NAME: "must name a log entry: the channel's name, a dash and six digits, for example support-000003",
    DIGEST: "must be a digest: sha256: and 64 hexadecimal digits in lower case",
    DECIMAL: 'must be a decimal number in quotes, for example "0.5" or "3e-3"',
    TEMPERATURE: 'must be a decimal number in quotes, not negative, for example "0" or "1.0"',
    DURATION: "must be whole hours, minutes and seconds without spaces, for example 24h, 90m or 1h30m; days are written in hours",
    TIMESTAMP: "must be RFC 3339 in UTC, for example 2026-01-01T09:00:00Z",
    DIRECTORY: "must be a directory as the Jobs' Pods see it: file:// and an absolute path, for example file:///gatevalve/data/inbox/a1",
    HTTP_URL: "must be an http or https URL without spaces, for example https://judge.example/v1",
    VARIABLE: "must be a variable's name: letters, digits and underscores, no digit first",
}
"""What each form asks for, in words: the rest of a sentence that starts with the field."""
