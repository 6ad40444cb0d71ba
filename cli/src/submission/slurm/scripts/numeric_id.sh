#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
#SBATCH --ntasks-per-node=1
export MASTER_PORT=$((15000 + SLURM_JOB_ID % 5000))
torchrun --nproc-per-node=2 --master-port=$MASTER_PORT train.py
