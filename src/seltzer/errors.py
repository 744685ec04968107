"""What a user may see when something goes wrong."""


class SeltzerError(Exception):
    """One line for the person at the terminal: what went wrong, and what to do about it.

    The command line prints it as it is and exits with 1; anything else that escapes is a bug of ours.
    """
