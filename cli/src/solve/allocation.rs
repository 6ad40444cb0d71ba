//! Who holds which GPU. Those named by index are theirs; those only counted are the lowest nobody names.

use std::collections::{BTreeMap, BTreeSet};

use headway_api::solve::{Allocation, Held};
use headway_api::v1;
use headway_types::{Configuration, Execution, GpuUuid, Layout, NodeSlice, Placement, Sequences};

use super::check::{Findings, MOST};
use super::nodes::{self, Nodes};

/// The GPUs of a round that are held, while they are being handed out.
pub struct Holders<'a> {
    nodes: &'a Nodes,
    /// By node, index of the GPU → number of the job.
    held: Vec<BTreeMap<u32, usize>>,
}

impl<'a> Holders<'a> {
    pub fn new(nodes: &'a Nodes) -> Self {
        Self { nodes, held: vec![BTreeMap::new(); nodes.len()] }
    }

    /// Takes what a job names by index. To be asked for all jobs before [`Self::placement`] is asked for any.
    pub fn claim(&mut self, job: usize, allocation: &Allocation, findings: &mut Findings) {
        for (name, held) in &allocation.nodes {
            let field = || format!("jobs[{job}].allocation.nodes.{name}");
            let Some(number) = self.nodes.find(name) else {
                let hint = "leave the allocation out if the node is gone";
                findings.hint(field(), format!("no node is called \"{name}\""), hint);
                continue;
            };
            let Held::Indices(indices) = held else { continue };
            let built = self.nodes.get(number).class.gpus_per_node.0;
            for &index in indices {
                if index >= built {
                    findings.add(field(), format!("a node of {built} GPUs has no GPU {index}"));
                } else if let Some(other) = self.held[number].insert(index, job) {
                    let message = if other == job {
                        format!("GPU {index} is named twice")
                    } else {
                        format!("GPU {index} is held by jobs[{other}] too")
                    };
                    findings.add(field(), message);
                }
            }
        }
    }

    /// What a job holds, in rank order. Nothing where it cannot be told.
    pub fn placement(&mut self, job: usize, allocation: &Allocation, findings: &mut Findings) -> Option<Placement> {
        let field = format!("jobs[{job}].allocation");
        let mut slices = Vec::with_capacity(allocation.nodes.len());
        for (name, held) in &allocation.nodes {
            // A node nobody knows has been reported.
            let number = self.nodes.find(name)?;
            let gpus: Vec<GpuUuid> = match held {
                Held::Indices(indices) if self.claimed(job, number, indices) => {
                    indices.iter().map(|index| nodes::gpu(name, *index)).collect()
                }
                // What could not be claimed has been reported.
                Held::Indices(_) => return None,
                Held::Count(count) => self.take(job, number, *count, &format!("{field}.nodes.{name}"), findings)?,
            };
            slices.push(NodeSlice { node: self.nodes.get(number).node, gpus });
        }
        match Placement::try_new(slices) {
            Ok(placement) => {
                self.check(allocation, &placement, &field, findings);
                Some(placement)
            }
            Err(error) => {
                findings.hint(format!("{field}.nodes"), error.to_string(), "leave the allocation out if it holds none");
                None
            }
        }
    }

    /// Whether all of these are the job's, each named once.
    fn claimed(&self, job: usize, number: usize, indices: &[u32]) -> bool {
        let named: BTreeSet<u32> = indices.iter().copied().collect();
        named.len() == indices.len() && named.iter().all(|index| self.held[number].get(index) == Some(&job))
    }

    fn take(
        &mut self,
        job: usize,
        number: usize,
        count: u32,
        field: &str,
        findings: &mut Findings,
    ) -> Option<Vec<GpuUuid>> {
        let node = self.nodes.get(number);
        let held = &mut self.held[number];
        let free: Vec<(u32, &GpuUuid)> = node
            .gpus
            .iter()
            .filter_map(|gpu| Some((nodes::index(gpu)?, gpu)))
            .filter(|(index, _)| !held.contains_key(index))
            .take(count as usize)
            .collect();
        if free.len() < count as usize {
            findings.add(field, format!("{count} GPUs are held, but only {} are left", free.len()));
            return None;
        }
        held.extend(free.iter().map(|(index, _)| (*index, job)));
        Some(free.into_iter().map(|(_, gpu)| gpu.clone()).collect())
    }

    /// What the allocation says of itself must be so.
    fn check(&self, allocation: &Allocation, placement: &Placement, field: &str, findings: &mut Findings) {
        if let Some(gpus) = allocation.gpus
            && gpus != placement.gpus().0
        {
            findings.add(format!("{field}.gpus"), format!("its nodes give it {}, not {gpus}", placement.gpus()));
        }
        let Some(wanted) = &allocation.gpu_type else { return };
        let types = allocation.nodes.iter().filter_map(|(name, _)| self.nodes.find(name));
        let mut types = types.map(|number| &self.nodes.get(number).class.gpu_type.0);
        if let Some(other) = types.find(|other| *other != wanted) {
            findings.add(format!("{field}.gpu_type"), format!("its nodes have {other}, not {wanted}"));
        }
    }
}

/// How a job trains now.
pub fn configuration(of: &v1::Configuration, field: &str, findings: &mut Findings) -> Configuration {
    let layout = &of.layout;
    let execution = of.execution.unwrap_or_default();
    let mut degree = |value, name| findings.whole(value, 1..=MOST, format_args!("{field}.{name}"));
    let Execution { cp, ep, vpp, .. } = execution;
    let (cp, ep, vpp) = (degree(cp, "execution.cp"), degree(ep, "execution.ep"), degree(vpp, "execution.vpp"));
    let execution = Execution { cp, ep, vpp, ..execution };
    let (dp, tp, pp) = (degree(layout.dp, "layout.dp"), degree(layout.tp, "layout.tp"), degree(layout.pp, "layout.pp"));
    if !execution.shares.are_sound(dp) {
        findings.add(format_args!("{field}.execution.shares"), "are of no replicas of that layout".to_owned());
    }
    let layout = Layout { dp, tp, pp, execution };
    let product =
        [layout.dp, layout.tp, layout.pp, execution.cp].map(u64::from).into_iter().fold(1, u64::saturating_mul);
    if product > u64::from(MOST) {
        findings.add(format_args!("{field}.layout"), format!("dp x tp x pp x cp is {product} GPUs"));
    }
    for (name, value) in
        [("micro_batch_sequences", of.micro_batch_sequences), ("global_batch_sequences", of.global_batch_sequences)]
    {
        if !(1..=1 << 32).contains(&value) {
            findings.add(format_args!("{field}.{name}"), format!("must be sequences from 1 to 2^32, not {value}"));
        }
    }
    Configuration {
        layout,
        micro_batch: Sequences(of.micro_batch_sequences),
        global_batch: Sequences(of.global_batch_sequences),
    }
}
