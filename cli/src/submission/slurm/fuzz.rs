#![allow(clippy::unwrap_used)]
//! Scripts for Slurm that nobody should write: each becomes a submission or is refused, and of what it asks nothing is lost in silence.

use headway_fuzz::Target;

use super::*;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "#SBATCH", "#!/bin/bash", "srun", "torchrun", "export", "--job-name", "-J", "--nodes", "-N", "2-4", "--ntasks",
    "-n", "--ntasks-per-node", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "--gres", "gpu:a100:4",
    "gres/gpu:2", "--cpus-per-task", "-c", "--cpus-per-gpu", "--mem", "512G", "--mem-per-gpu", "--mem-per-cpu",
    "--tmp", "--time", "-t", "2-00:00:00", "1:30", "UNLIMITED", "--signal", "B:USR1@120", "R:", "--array", "-a",
    "0-15:5%2", "--dependency", "-d", "afterok:prep:other", "afterany", "singleton", "--begin", "now+1hour", "-H",
    "--hold", "--nodelist", "-w", "n[01-02,7]", "n[1-999999999]", "--exclude", "-x", "--constraint", "-C",
    "nvme&gen=4", "[a|b]", "--account", "--partition", "-p", "--qos", "--output", "logs/%x-%j.out", "--export",
    "ALL,MODE=fast", "--exclusive", "--requeue", "--no-requeue", "--switches", "--chdir", "-D", "--wrap",
    "$SLURM_JOB_NODELIST", "$SLURM_ARRAY_TASK_ID", "$SLURM_PROCID", "${SLURM_NTASKS:-1}", "het", "#SBATCH hetjob",
    "--comment", "'a b'", "\"a b\"",
];

fn scripts() -> [&'static str; 6] {
    [
        "#!/bin/bash\n#SBATCH --job-name=llama-8b\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n#SBATCH --cpus-per-task=96\n#SBATCH --mem=512G\n#SBATCH --time=2-00:00:00\n#SBATCH --partition=h100\n#SBATCH --account=nlp\n#SBATCH --signal=B:USR1@120\n#SBATCH --requeue\n\nexport NCCL_DEBUG=WARN\nsrun torchrun --nnodes=$SLURM_NNODES train.py\n",
        "#!/bin/bash -l\n#SBATCH -J eval -N 2 --ntasks-per-node=4 --gres=gpu:a100:4 -t 90\n#SBATCH --export=ALL,MODE=fast\n#SBATCH -x node[01-02] --switches=1 --nice=100 --qos=long\nsrun python eval.py\n",
        "#!/bin/sh\n#SBATCH --gpus=1 --array=0-15:5%2\npython train.py --seed $SLURM_ARRAY_TASK_ID\n",
        "#!/bin/sh\n#SBATCH --gpus=1 -d afterok:prep:other,afternotok:x,after:z\ntrue\n",
        "#!/bin/sh\n#SBATCH --gpus=1 -w n[1-2],n7 -C nvme&gen=4 --mem-per-gpu=64G --tmp=10G\ntrue\n",
        "#!/bin/sh\n#SBATCH -G 4 -n 4 --gpus-per-task=1 --mem-per-cpu=2G -c 3\n#SBATCH --comment=\"a b\" --time=1:30\nsrun ./a.sh\n",
    ]
}

#[test]
fn any_script_becomes_a_submission_or_is_refused() {
    Target::text("slurm-scripts", WORDS).seeds(scripts()).check(|input| {
        let text = String::from_utf8_lossy(input);
        let directory = Path::new("/home/ada/proj");
        let script = Script { text: &text, source: "job.sh", name: "job", arguments: &[], directory };
        let submission = match translate(&script, &[]) {
            Ok(submission) => submission,
            Err(failure) => {
                assert!(failure.message.starts_with("job.sh"), "it is not said where: {}", failure.message);
                return false;
            }
        };
        match submission.check() {
            Ok(jobs) => assert_eq!(jobs.len(), 1),
            Err(failure) => assert!(failure.message.starts_with("job.sh"), "it is not said where: {}", failure.message),
        }
        true
    });
}
