#!/bin/bash
#SBATCH -J run
#SBATCH --ntasks=1
#SBATCH -c 1
#SBATCH --gres=gpu:1
#SBSTCH --partition=misspelt
#SBATCH --time 0:00:40
#SBATCH --export=ALL
#SBATCH --signal=B:USR1@20
on_signal() {
  wait $child
  scontrol requeue $SLURM_JOB_ID
  exit 0
}
trap on_signal SIGUSR1
python3 train.py &
child=$!
wait $child
