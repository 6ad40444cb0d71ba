//! How many GPUs a script asks for, in whichever of Slurm's ways, and how its tasks lie on them.

use serde_json::json;

use super::{Translation, Wrong, quantity, wrong};
use crate::failure::{Failure, Kind};

/// How a script's tasks lie on nodes and GPUs.
pub(super) struct Shape {
    /// Of the whole job.
    pub(super) gpus: u32,
    pub(super) gpus_per_node: Option<u32>,
    pub(super) tasks_per_node: u32,
    pub(super) per_gpu: bool,
}

impl Translation<'_> {
    pub(super) fn shape(&mut self, uses_srun: bool) -> Result<Shape, Wrong> {
        let nodes = self.node_count()?;
        let tasks = self.options.count("ntasks")?.map(|(_, count)| count);
        let tasks_per_node = self.options.count("ntasks-per-node")?;
        let in_all = self.gpu_option("gpus")?;
        let per_node = match self.gpu_option("gpus-per-node")? {
            Some(found) => Some(found),
            None => self.gres()?,
        };
        let per_task = self.gpu_option("gpus-per-task")?;
        let of_tasks =
            tasks.unwrap_or_else(|| nodes.unwrap_or(1).saturating_mul(tasks_per_node.map_or(1, |(_, count)| count)));
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
        let tasks_per_node = match (tasks_per_node, tasks, nodes) {
            (Some((_, count)), ..) => count,
            (None, Some(tasks), Some(nodes)) => tasks.div_ceil(nodes),
            _ => 1,
        };
        // One task per GPU, started by srun, is what `per: gpu` is.
        let per_gpu = uses_srun && tasks_per_node > 1 && gpus_per_node == Some(tasks_per_node);
        self.set("resources.gpus", line, json!(gpus));
        if let Some(gpu_type) = gpu_type {
            self.set("resources.gpus", line, json!({ "min": gpus, "max": gpus, "type": gpu_type }));
        }
        if nodes.is_some_and(|nodes| nodes > 1) {
            self.options.note(line, format!("{gpus} GPUs in all; Headway chooses on how many nodes"));
        }
        Ok(Shape { gpus, gpus_per_node, tasks_per_node, per_gpu })
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
