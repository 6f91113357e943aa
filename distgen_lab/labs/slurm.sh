#!/bin/bash
# A lab of the course on a Slurm cluster:  sbatch --nodes=2 --ntasks-per-node=1 slurm.sh distgen_lab.labs.link
# Under MPI instead of torch:              LAUNCH="srun --mpi=pmi2" VIA="-m mpi4py" sbatch ... slurm.sh distgen_lab.labs.link
#SBATCH --job-name=distgen
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:10:00
set -euo pipefail

# Where the ranks of torch.distributed meet: the first node of the job.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))

# Ranks run where the course is installed: activate its environment in this shell before sbatch, or set PYTHON.
${LAUNCH:-srun} "${PYTHON:-python}" ${VIA:-} -m "${@:-distgen_lab.labs.link}"
