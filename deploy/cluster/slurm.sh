#!/bin/bash
# A simulation on several nodes of a Slurm cluster: sbatch deploy/cluster/slurm.sh strategy=all
# Whatever follows the script's name goes to `fedkin run`. It was not run where it was written:
# there was no Slurm.
#SBATCH --job-name=fedkin
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
set -euo pipefail

# The same environment on every node, on a file system that all of them see (docs/cluster.md).
source "${FEDKIN_ENVIRONMENT:-$HOME/fedkin/.venv}/bin/activate"
export FL_DATA_DIR="${FL_DATA_DIR:-$HOME/fedkin-data}"
# Without a token, whoever reaches one of Ray's ports can run code as you.
RAY_AUTH_TOKEN="$(python -c 'import secrets; print(secrets.token_hex(32))')"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0

head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
address="$head:6379"
# srun does not take it over from sbatch, and a worker for each CPU would share one.
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
common=(--num-cpus "$SLURM_CPUS_PER_TASK" --block)
if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then common+=(--num-gpus "$SLURM_GPUS_ON_NODE"); fi

srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --port=6379 --include-dashboard=false "${common[@]}" &
timeout 300 bash -c "until ray status --address '$address' > /dev/null 2>&1; do sleep 2; done"
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes="$((SLURM_JOB_NUM_NODES - 1))" --ntasks="$((SLURM_JOB_NUM_NODES - 1))" \
    --exclude="$head" ray start --address="$address" "${common[@]}" &
fi
timeout 300 python - "$address" "$SLURM_JOB_NUM_NODES" <<'PYTHON'
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    time.sleep(2)
PYTHON

fedkin run --ray-address "$address" "$@"
