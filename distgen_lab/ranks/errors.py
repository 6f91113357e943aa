"""What can go wrong between ranks, one class each; the message is for the person who wrote the cell."""

__all__ = ["DeadlockError", "LaunchError", "MismatchError", "RankError"]


class LaunchError(ValueError):
    """The ranks cannot be started as asked: the message names the cause and the cure."""


class RankError(RuntimeError):
    """A rank raised an exception or died; the message holds its traceback and what the others were doing."""


class DeadlockError(RankError):
    """Ranks wait for each other, or for one that never comes; the message says who waits for whom, and where."""


class MismatchError(RankError):
    """The ranks finished, but disagreed about an operation, so that the result is not what it seems.

    ``run`` holds the results all the same.
    """

    run = None
