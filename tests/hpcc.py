"""HPCC: what it is asked to do, and what it says."""

from __future__ import annotations

# HPL's settings, in the order in which it reads them: one small problem. A separator and PTRANS follow.
_SETTINGS = "8 1 {size} 1 50 0 1 {rows} {columns} 16.0 1 2 1 4 1 2 1 1 1 1 1 1 2 64 0 0 1 8 - 0 1200 0 40"


def script(start: str, rows: int, columns: int, size: int = 200) -> str:
    """Shell commands that solve equations on rows x columns ranks in the working directory, and print the results."""
    lines = _SETTINGS.format(size=size, rows=rows, columns=columns).split()
    settings = "\n".join(["small", "nobody", "hpl.out", *lines])
    return f"cat >hpccinf.txt <<'EOF'\n{settings}\nEOF\nrm -f hpccoutf.txt; timeout 700 {start} hpcc; cat hpccoutf.txt"


def results(printed: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in printed.splitlines())
