"""Errors of Ray as errors of magcli."""

from ray import exceptions

from magcli.cluster.errors import MemberLost, NodeLost
from magcli.errors import EnvironmentFault, MagError, first_line


def as_magcli_error(error: Exception, member: str) -> MagError:
    """What an error of a call to an actor or task means.

    Args:
        error: what the call raised.
        member: the process that was called, as it is named in messages.

    Returns:
        ``MemberLost`` if the process is gone, ``NodeLost`` if its node is, the error that was raised in it if that is
        one of magcli, and ``EnvironmentFault`` for any other.
    """
    # It was raised by the code that was called, so its process lives.
    if isinstance(error, exceptions.RayTaskError):
        cause = error.cause
        if isinstance(cause, MagError):
            return cause
        return EnvironmentFault(f"{member}: {type(cause).__name__}: {first_line(cause)}")
    if isinstance(error, exceptions.RayActorError) and error.actor_init_failed:
        # Ray quotes the traceback, whose last line names the exception.
        *_, reason = str(error).strip().splitlines()
        return EnvironmentFault(f"{member} cannot start: {reason}; does its node have the same magcli?")
    gone = (
        exceptions.RayActorError,
        exceptions.ObjectLostError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.LocalRayletDiedError,
        exceptions.OutOfMemoryError,
    )
    # Before the general case: where the node is gone, the process may never have run.
    if isinstance(error, gone) and _is_without_node(error):
        return NodeLost(f"{member} died: its node is gone")
    if isinstance(error, gone):
        return MemberLost(f"{member} died: {_why_lost(error)}")
    if isinstance(error, exceptions.RayError):
        return EnvironmentFault(f"{member}: {first_line(error)}")
    return error if isinstance(error, MagError) else EnvironmentFault(f"{member}: {first_line(error)}")


def _why_lost(error: Exception) -> str:
    """The reason in Ray's message, without its list of fields and its advice."""
    text = " ".join(str(error).split())
    if "killed by" in text and "ray.kill" in text:
        return "it was ended"
    if isinstance(error, exceptions.ActorUnavailableError):
        return "its process was killed, or its node is gone"
    return "its process was killed, or ran out of memory"


def _is_without_node(error: Exception) -> bool:
    """Whether Ray says that a node is gone, with a process or with an answer that had not left it."""
    if isinstance(error, exceptions.NodeDiedError | exceptions.ObjectLostError):
        return True
    return "its node has died" in str(error)
