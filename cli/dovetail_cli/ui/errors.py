"""What ends a command, with its exit code. One sentence each, for standard error.

CommandError          1   refused, or failed
├── UsageError        2   the command line or an input file says something that cannot be
├── MissingError      3   a job, sandbox or file that does not exist
└── NoConnectionError 4   no API server answers
"""


class CommandError(Exception):
    """Refused, or failed."""

    exit_code = 1


class UsageError(CommandError):
    """The command line or an input file says something that cannot be."""

    exit_code = 2


class MissingError(CommandError):
    """Something named does not exist."""

    exit_code = 3


class NoConnectionError(CommandError):
    """No API server answers, or none is known."""

    exit_code = 4
