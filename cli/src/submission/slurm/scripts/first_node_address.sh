#!/bin/bash
#SBATCH --job-name=several-nodes
#SBATCH --ntasks=4
#SBATCH --nodes=4
#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=96
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
first=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address)
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint "$first:29500" train.py "$@"
