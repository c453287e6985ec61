"""Whether an environment can be used, before any work."""

from magcli.errors import usage
from magcli.stages.shared.options import GraderOptions, environment_judges


def check_environment(stage: str, config: GraderOptions, spec: str, reward: str = "") -> None:
    """An environment that can be imported, has no second reward, and whose programs can be isolated here.

    Raises:
        UsageError: there is no such class, it lacks its method, or both have a reward.
        EnvironmentFault: programs cannot be isolated on this machine.
    """
    if not spec:
        return
    # Options are checked before anything that grades is needed.
    from magcli.stages.shared import graders

    judges = environment_judges(spec)
    usage(not (reward and judges), f"{stage}: --environment {spec} has its own reward; omit --reward")
    graders.check_isolation(config, spec)
