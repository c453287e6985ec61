"""vLLM's own trainer end of a weight transfer by NCCL."""

from typing import Any

from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

from magcli.cluster.meeting import free_port
from magcli.errors import EnvironmentFault
from magcli.generate.weights.gloo import TRAINER_RANK


def connected(client: Any, source: Any, host: str, world_size: int) -> Any:
    """The transport of a trainer at ``host`` to the ranks of an engine; ``world_size`` counts both.

    Raises:
        EnvironmentFault: vLLM has no NCCL.
    """
    info = NCCLTrainerInitInfo(
        rank=TRAINER_RANK,
        master_address=host,
        master_port=free_port(host),
        world_size=world_size,
    )
    transport = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    if transport.model_update_group.disabled:
        raise EnvironmentFault("vLLM finds no NCCL (or VLLM_DISABLE_PYNCCL is set); use --transfer file")
    return transport
