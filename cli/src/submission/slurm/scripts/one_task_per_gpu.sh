#!/bin/bash
#sbatch --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --ntasks=8
#SBATCH --mem=100G
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
srun python eval.py --rank $SLURM_PROCID --local-rank $SLURM_LOCALID
