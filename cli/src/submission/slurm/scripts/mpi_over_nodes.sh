#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
launch=$(which mpirun)
$launch -np 16 -x NCCL_DEBUG python train.py
