#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=8
#SBATCH --gpus=8
srun python prepare.py
mpirun -np 8 python train.py
