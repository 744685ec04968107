"""The fault campaign: real faults against a real cluster with jobs in flight, and what each of them costs.

Run it with `make faults`, or `python -m tests.faults.campaign --help`. The faults are the table in `table.py`; the next
one is a line there. What is measured, and what counts as lost or run twice, is in `measure.py` and `account.py`, both
pure; docs/faults.md is written from the results.
"""
