#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gres=gpu:4
mpiexec -n ${SLURM_NTASKS} ./simulate -n 1000
