#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
mpirun --version
mpirun -x PATH -np 8 python train.py
