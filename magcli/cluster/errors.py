"""Losses of processes of a cluster; ``magcli.cluster.ray_errors`` says which errors of Ray are such."""

from magcli.errors import EnvironmentFault


class MemberLost(EnvironmentFault):
    """A process of the cluster is gone: it was killed, its node died, or it does not answer any more."""


class NodeLost(MemberLost):
    """The node of a process is gone, and the process with it."""


class RanksLost(MemberLost):
    """A rank is gone, so the others cannot go on; the group can be started again."""
