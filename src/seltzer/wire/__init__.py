"""What the guard and the rest of Seltzer exchange: names, formats and their parsing.

It uses the standard library only, since the guard runs where there is nothing else, and has no I/O.
"""
