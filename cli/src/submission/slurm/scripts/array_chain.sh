#!/bin/bash
#SBATCH --array=1-4%1      # one after another
#SBATCH --gres=gpu:1
#SBATCH --output=logs/%x-%A_%a.out
set -euo pipefail
rates=(1e-4 2e-4 3e-4)
python train.py --rate "${rates[$((SLURM_ARRAY_TASK_ID % ${#rates[@]}))]}"
