#!/bin/bash
# Run a magcli command on the nodes of a Slurm job: starts Ray on each node, waits for all of them, runs the command on
# the first node with --cluster, and stops Ray. Never run on a real Slurm: a test runs it with commands that stand in for
# Slurm's.
#
#   sbatch recipes/cluster/slurm.sh rl problems.arrow --model MODEL --run runs/rl --device cuda \
#       --trainers 24 --generators 4 --tensor-parallel 2
#
# The folder that you submit from, the model and the run's folder must be on storage that all nodes share. Submit the same
# command again to resume a job that was stopped. MAGCLI is the command, such as /path/to/.venv/bin/magcli; Ray is taken
# from the same folder.

#SBATCH --job-name=magcli
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --output=magcli-%j.log

set -euo pipefail

MAGCLI=${MAGCLI:-magcli}
PORT=${PORT:-6379}
JOIN_SECONDS=${JOIN_SECONDS:-300}
bin=$(dirname "$(command -v "$MAGCLI")")

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | cut -d' ' -f1)

# All nodes read one token, which no other user can read.
umask 077
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN_PATH=$PWD/.ray-token-$SLURM_JOB_ID
"$bin/python" -c 'import secrets; print(secrets.token_hex(32))' > "$RAY_AUTH_TOKEN_PATH"

# Slurm ends what srun started when the job ends; the head goes first so that a node has something to join.
stop() {
    kill "${steps[@]}" 2> /dev/null || true
    wait
    rm -f "$RAY_AUTH_TOKEN_PATH"
}
steps=()
trap stop EXIT

srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" \
    "$bin/ray" start --head --node-ip-address="$address" --port="$PORT" --include-dashboard=false --block &
steps+=($!)
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --overlap --nodelist="$node" "$bin/ray" start --address="$address:$PORT" --block &
    steps+=($!)
done

"$bin/python" - "$address:$PORT" "${#nodes[@]}" "$JOIN_SECONDS" << 'END'
"""Wait until a number of nodes have joined the Ray at an address."""
import socket
import sys
import time

import ray

address, nodes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
deadline = time.monotonic() + seconds


def joined():
    host, port = address.rsplit(":", 1)
    try:
        # Ray itself would try for minutes before it gives up.
        socket.create_connection((host, int(port)), timeout=5).close()
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        return sum(node["Alive"] for node in ray.nodes())
    except (OSError, RuntimeError):
        return 0  # the head is not up yet


while (number := joined()) < nodes:
    if time.monotonic() > deadline:
        sys.exit(f"slurm.sh: {number} of {nodes} nodes joined Ray at {address} within {seconds:.0f} s; see above")
    time.sleep(1)
END

"$MAGCLI" "$@" --cluster "$address:$PORT"
