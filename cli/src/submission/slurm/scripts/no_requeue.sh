#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --no-requeue        # appends to a table
echo "row of $(date)" >> table.csv
