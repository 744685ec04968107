"""Logs one JSON object per line, so that a log can be searched by object and step."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

_MORE = ("object", "step")


class JsonFormatter(logging.Formatter):
    """Always one line, whatever the message contains."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in _MORE if hasattr(record, name)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def set_up(level: str) -> None:
    """Log to stderr, as JSON unless stderr is a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    else:
        handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
