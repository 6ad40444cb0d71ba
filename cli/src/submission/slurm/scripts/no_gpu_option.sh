#!/bin/bash

#SBATCH -t 0:30:00 --exclusive --mem=0 --overcommit --ntasks-per-node=8
#SBATCH --nodes=4

srun -l --container-image "registry#pytorch" --output=logs/%x_%j.log sh -c "echo rank $SLURM_PROCID"
