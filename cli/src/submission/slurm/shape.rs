//! How many GPUs a script asks for, in whichever of Slurm's ways, and how its tasks lie on them. A script for which Headway would
//! start fewer tasks than Slurm is refused: it would succeed after a part of its work.

use serde_json::json;

use super::body::Launches;
use super::mpi::{JobRuns, MpiCall};
use super::{Translation, Wrong, quantity, wrong};
use crate::failure::{Failure, Kind};

/// How a script's tasks lie on nodes and GPUs.
pub(super) struct Shape {
    /// Of the whole job.
    pub(super) gpus: u32,
    pub(super) gpus_per_node: Option<u32>,
    /// `None`: several tasks, and the script says neither on how many nodes nor how many on each.
    pub(super) tasks_per_node: Option<u32>,
    pub(super) per_gpu: bool,
}

impl Translation<'_> {
    pub(super) fn shape(&mut self, script: &str, left_out: &[String]) -> Result<Shape, Wrong> {
        let launches = Launches::from_script(script);
        let nodes = self.node_count()?;
        let tasks = self.options.count("ntasks")?;
        let tasks_per_node = self.options.count("ntasks-per-node")?;
        let tasks_per_gpu = self.options.count("ntasks-per-gpu")?;
        let in_all = self.gpu_option("gpus")?;
        let per_node = match self.gpu_option("gpus-per-node")? {
            Some(found) => Some(found),
            None => self.gres()?,
        };
        let per_task = self.gpu_option("gpus-per-task")?;
        let of_nodes = |(line, count): (usize, u32)| (line, nodes.unwrap_or(1).saturating_mul(count));
        let stated_tasks = tasks.or(tasks_per_node.map(of_nodes));
        let of_tasks = stated_tasks.map_or(nodes.unwrap_or(1), |(_, count)| count);
        let (line, gpus, gpu_type) = match (&in_all, &per_node, &per_task) {
            (Some((line, gpus, gpu_type)), ..) => (*line, *gpus, gpu_type.clone()),
            (None, Some((line, gpus, gpu_type)), _) => {
                (*line, gpus.saturating_mul(nodes.unwrap_or(1)), gpu_type.clone())
            }
            (None, None, Some((line, gpus, gpu_type))) => (*line, gpus.saturating_mul(of_tasks), gpu_type.clone()),
            (None, None, None) => {
                let failure = Failure::new(Kind::Usage, "asks for no GPUs, and Headway's jobs have one at least");
                return Err((None, failure.hint("add #SBATCH --gpus-per-node=N, or give --gpus N")));
            }
        };
        let gpus_per_node = per_node.map(|(_, gpus, _)| gpus).or(nodes.map(|nodes| gpus.div_ceil(nodes)));
        let of_gpus = |(line, count): (usize, u32)| (line, gpus.saturating_mul(count));
        let by_share = per_task.map(|(line, share, _)| (line, (gpus / share.max(1)).max(1)));
        let slurm_tasks =
            stated_tasks.or(tasks_per_gpu.map(of_gpus)).or(by_share).unwrap_or((line, nodes.unwrap_or(1)));
        let per_gpu = launches.is_any() && gpus > 1 && slurm_tasks.1 == gpus;
        let headway_tasks = if per_gpu { gpus } else { nodes.unwrap_or(1) };
        self.refuse_fewer_tasks(launches.most_tasks(slurm_tasks, nodes), headway_tasks, left_out)?;
        let job = JobRuns { slurm_tasks: slurm_tasks.1, nodes: nodes.unwrap_or(1), runs: headway_tasks };
        for call in MpiCall::find_all(script) {
            self.refuse_other_processes(&call, &job, left_out)?;
        }
        let tasks_per_node = match (tasks_per_node, nodes) {
            (Some((_, count)), _) => Some(count),
            (None, Some(nodes)) => Some(slurm_tasks.1.div_ceil(nodes)),
            (None, None) => Some(slurm_tasks.1).filter(|count| *count == 1),
        };
        self.set("resources.gpus", line, json!(gpus));
        if let Some(gpu_type) = gpu_type {
            self.set("resources.gpus", line, json!({ "min": gpus, "max": gpus, "type": gpu_type }));
        }
        if nodes.is_some_and(|nodes| nodes > 1) {
            self.options.note(line, format!("{gpus} GPUs in all; Headway chooses on how many nodes"));
        }
        Ok(Shape { gpus, gpus_per_node, tasks_per_node, per_gpu })
    }

    /// `slurm`: the most tasks that a step of the script would have, with the line that asks for them.
    fn refuse_fewer_tasks(
        &mut self,
        slurm: Option<(usize, u32)>,
        headway: u32,
        left_out: &[String],
    ) -> Result<(), Wrong> {
        let Some((line, slurm)) = slurm.filter(|(_, slurm)| *slurm > headway) else { return Ok(()) };
        if left_out.iter().any(|one| one.trim_start_matches('-') == "ntasks") {
            let note = format!("Slurm would start {slurm} tasks; Headway starts {headway}, as you asked");
            self.options.note(line, note);
            return Ok(());
        }
        let (line, failure) =
            wrong(line, format!("Slurm would start {slurm} tasks, and Headway would start {headway}"));
        Err((
            line,
            failure.hint(
                "Headway starts one task per node (--ntasks-per-node=1, with --nodes), or one per GPU (as many tasks as \
                 GPUs). Let one task per node start the others, as torchrun --nproc-per-node does; where fewer tasks are \
                 right, give --leave-out ntasks",
            ),
        ))
    }

    /// Refuses a call of an MPI launcher that would start other processes than under Slurm.
    fn refuse_other_processes(&mut self, call: &MpiCall, job: &JobRuns, left_out: &[String]) -> Result<(), Wrong> {
        let Some((message, hint)) = job.describe_difference(call) else { return Ok(()) };
        if left_out.iter().any(|one| one.trim_start_matches('-') == "ntasks") {
            self.options.note(call.line, format!("{message}, as you asked"));
            return Ok(());
        }
        let (line, failure) = wrong(call.line, message);
        Err((line, failure.hint(format!("{hint}; where this is right, give --leave-out ntasks"))))
    }

    fn node_count(&mut self) -> Result<Option<u32>, Wrong> {
        let Some(one) = self.options.take("nodes") else { return Ok(None) };
        let least = one.value.split_once('-').map_or(one.value.as_str(), |(least, _)| least);
        let count = quantity::count(least).filter(|count| *count > 0);
        let count = count.ok_or_else(|| wrong(one.line, format!("--nodes must be a number, not \"{}\"", one.value)))?;
        if least != one.value {
            let note = "a range of nodes became its least; a job with a training section may have a range of GPUs";
            self.options.note(one.line, note);
        }
        Ok(Some(count))
    }

    /// `[type:]number`.
    fn gpu_option(&mut self, name: &str) -> Result<Option<(usize, u32, Option<String>)>, Wrong> {
        let Some(one) = self.options.take(name) else { return Ok(None) };
        let read = quantity::gpus(&one.value);
        let (gpu_type, count) =
            read.ok_or_else(|| wrong(one.line, format!("--{name} must be [TYPE:]NUMBER, not \"{}\"", one.value)))?;
        Ok(Some((one.line, count, gpu_type)))
    }

    fn gres(&mut self) -> Result<Option<(usize, u32, Option<String>)>, Wrong> {
        let Some(one) = self.options.take("gres") else { return Ok(None) };
        let mut found = None;
        for part in one.value.split(',') {
            match part.strip_prefix("gres/").unwrap_or(part).strip_prefix("gpu") {
                Some(rest) => {
                    let rest = rest.strip_prefix(':').unwrap_or(if rest.is_empty() { "1" } else { rest });
                    let read = quantity::gpus(rest);
                    let bad = || wrong(one.line, format!("--gres must be gpu[:TYPE]:NUMBER, not \"{part}\""));
                    let (gpu_type, count) = read.ok_or_else(bad)?;
                    found = Some((one.line, count, gpu_type));
                }
                None => self.options.note(one.line, format!("--gres {part} is left out: Headway allocates GPUs only")),
            }
        }
        Ok(found)
    }
}
