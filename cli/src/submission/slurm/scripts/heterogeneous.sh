#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH hetjob
#SBATCH --nodes=4
#SBATCH --gres=gpu:2
srun --het-group=0,1 echo both parts
