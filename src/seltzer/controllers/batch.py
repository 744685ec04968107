"""Many calls to the API server, a limited number at a time, and their results."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from seltzer.errors import SeltzerError
from seltzer.kube.errors import Conflict, NotFound

logger = logging.getLogger(__name__)

T = TypeVar("T")
IN_FLIGHT = 32
PATIENCE = 2.0


@dataclass(frozen=True)
class BatchResult(Generic[T]):
    """The items that were done, how many were begun, and the error that stopped the batch, if any."""

    done: tuple[T, ...]
    begun: int
    error: SeltzerError | None


async def each(items: Sequence[T], do: Callable[[T], Awaitable[bool]]) -> BatchResult[T]:
    """Calls `do` for the items, at most IN_FLIGHT at a time: the deadline of a call doesn't begin before it is sent.

    Begins no further calls after PATIENCE seconds: the next pass does the rest, and sees what has changed meanwhile.
    Nor after a failure, which is returned once all calls have ended. `do` returns whether there was something to do.
    """
    left = iter(enumerate(items))
    end = time.monotonic() + PATIENCE
    failures: list[Exception] = []
    begun = 0
    done: set[int] = set()

    async def work() -> None:
        nonlocal begun
        for index, item in left:
            begun += 1
            try:
                if await do(item):
                    done.add(index)
            except Exception as error:
                failures.append(error)
            if failures or time.monotonic() >= end:
                return

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    error = failures[0] if failures else None
    if error is not None and not isinstance(error, SeltzerError):
        raise error
    return BatchResult(tuple(item for index, item in enumerate(items) if index in done), begun, error)


async def if_there(call: Awaitable[Any]) -> bool:
    """Whether the object was there. One that is gone or replaced needs nothing: the next pass sees what is there."""
    try:
        await call
    except (NotFound, Conflict) as error:
        logger.debug("skipped: %s", error)
        return False
    return True
