#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
set -x -e
cat > config.json <<EOT
{"micro": 4}
EOT
$(command -v srun) torchrun train.py config.json
echo "after training"
