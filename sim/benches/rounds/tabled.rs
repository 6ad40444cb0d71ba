//! Jobs with goodput tables of about 15 rows: three GPU types of different speed, concave in the number of GPUs.

use std::sync::Arc;

use headway_planner::{GoodputTable, PlanInput, PlanJob, PlanProject, PlanWork, TableRow};
use headway_types::spec::Priority;
use headway_types::{GpuCount, GpuType, IdSource, example};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::modelled::{input, job, node};

/// Jobs and GPUs; in the last two most jobs wait.
const SIZES: [(u32, u32); 6] =
    [(200, 512), (1_000, 4_096), (5_000, 20_000), (20_000, 100_000), (5_000, 1_024), (100_000, 4_096)];
/// Name, speed of one GPU, share of the cluster in eighths.
const TYPES: [(&str, f64, u32); 3] = [("A100-80G", 1.0, 4), ("H100-80G", 2.3, 3), ("B200", 4.6, 1)];
const PROJECTS: u32 = 20;

pub fn rounds() -> Vec<(String, PlanInput)> {
    SIZES.map(|(jobs, gpus)| (format!("{jobs} jobs, {gpus} GPUs"), round(jobs, gpus))).to_vec()
}

fn round(jobs: u32, gpus: u32) -> PlanInput {
    let (mut ids, mut random) = (IdSource::seeded(7), StdRng::seed_from_u64(u64::from(jobs)));
    let mut nodes = Vec::new();
    for (gpu_type, _, eighths) in TYPES {
        let count = gpus / 8 * eighths / 8;
        nodes.extend((0..count).map(|number| node(format!("{gpu_type}-{number}"), gpu_type, 8, &mut ids)));
    }
    let jobs: Vec<PlanJob> = (0..jobs).map(|number| tabled(number, &mut random, &mut ids)).collect();
    let mut round = input(nodes, jobs, &mut ids);
    round.policy.max_moves = Some(50);
    round.policy.tolerance = 1e-3;
    round.projects = (0..PROJECTS)
        .map(|number| PlanProject {
            name: format!("project-{number:02}"),
            quota: Some(GpuCount(gpus / 8)),
            floor: GpuCount(gpus / 64),
            ..PlanProject::default()
        })
        .collect();
    round
}

fn tabled(number: u32, random: &mut StdRng, ids: &mut IdSource) -> PlanJob {
    let largest: u32 = random.random_range(2..=6);
    let power: f64 = random.random_range(0.6..0.95);
    let rows = TYPES.iter().flat_map(|(gpu_type, speed, _)| {
        let affinity: f64 = random.random_range(0.8..1.2);
        (0..=largest).map(move |level| TableRow {
            gpu_type: GpuType((*gpu_type).into()),
            gpus: GpuCount(1 << level),
            nodes: None,
            goodput: 1_000.0 * speed * affinity * f64::from(1u32 << level).powf(power),
            watts_per_gpu: None,
            label: None,
        })
    });
    let table = GoodputTable { rows: rows.collect() };
    let range = example::gpus(1, 1 << largest);
    let work = PlanWork::Table(Arc::new(table));
    let mut job = job(format!("job-{number}"), range, work, Priority([25, 50, 75][number as usize % 3]), ids);
    job.claim.project = format!("project-{:02}", random.random_range(0..PROJECTS));
    job
}
