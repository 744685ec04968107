"""Pure decisions: a frozen observation in, a list of typed actions and a status out.

No I/O, no clock (time is an input) and no await: all policy is here, where tables and state machines can prove it.
"""
