#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
launch=$(command -v srun || true)
exec $launch torchrun --nnodes=$SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE --node-rank=${NODE_RANK:-$SLURM_NODEID} train.py
