#!/bin/bash
#SBATCH --job-name=tune
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gres=gpu:8
#SBATCH --partition=fast   # adjust
#SBATCH --output=./logs/%x-%j.out
#SBATCH --err=./logs/%x-%j.err
#SBATCH --requeue
set -x -e
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export LAUNCH="echo launch --machines $SLURM_NNODES --rank \$SLURM_PROCID --ip $MASTER_ADDR"
clear; srun --wait=60 --kill-on-bad-exit=1 --jobid $SLURM_JOB_ID bash -c "$LAUNCH: $1" 2>&1
