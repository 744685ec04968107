"""Wait for something, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE = 600.0


async def until(what: str, true: Callable[[], Awaitable[bool]], pause: float = 0.05) -> float:
    """When this was true, by the monotonic clock."""
    end = time.monotonic() + DEADLINE
    while not await true():
        if time.monotonic() > end:
            raise SystemExit(f"bench: waited {DEADLINE:.0f} s in vain: {what}")
        await asyncio.sleep(pause)
    return time.monotonic()
