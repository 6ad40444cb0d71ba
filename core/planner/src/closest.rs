//! What comes closest to a job that can never run on this cluster: the planner asked again with what the job does not name. Asked by
//! people only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::spec::{HostResource, LayoutLimits};
use headway_types::{GpuCount, GpuType, Sequences};

use crate::candidate;
use crate::claim::Spread;
use crate::cluster::{Class, Reach, Shape};
use crate::curves::{CurveCache, Lack};
use crate::explain::{gpus, host_amount, list};
use crate::input::{PlanJob, PlanNode};
use crate::obstacle::{Fit, Obstacle};
use crate::round::Round;

/// How far from the size asked for another is looked for, in GPUs.
const NEAR: u32 = 64;

/// "it could run on 6 GPUs of H100-80G (dp2 tp3), a size it does not allow"; `None`: nothing near does.
pub(crate) fn closest(round: &Round<'_>, job: &PlanJob, obstacle: &Obstacle) -> Option<String> {
    let asker = Asker { round, job };
    match obstacle {
        Obstacle::WrongType => {
            let types = asker.types();
            let fits: Vec<Fit> = types.iter().filter_map(|of| asker.near(of, None)).collect();
            let named: Vec<&str> = types.iter().map(|of| of.0.as_str()).collect();
            asker.in_words(&fits).or_else(|| Some(format!("the cluster has {}", list(&named))))
        }
        Obstacle::TooLarge { .. } => asker.in_words(&asker.of_accepted(|of| asker.near(of, None))),
        Obstacle::NotAskedFor => Some(asker.asked_for()),
        Obstacle::HostTooSmall { lacking } => Some(format!("the nodes it accepts have {}", asker.roomiest(lacking))),
        Obstacle::Infeasible { fits, .. } if !fits.is_empty() => asker.in_words(fits),
        Obstacle::Infeasible { refusal, .. } => {
            let sizes = asker.in_words(&asker.of_accepted(|of| asker.near(of, None)));
            sizes.or_else(|| asker.otherwise(refusal.lacks))
        }
        _ => None,
    }
}

struct Asker<'r, 'a> {
    round: &'r Round<'a>,
    job: &'r PlanJob,
}

impl Asker<'_, '_> {
    fn types(&self) -> BTreeSet<GpuType> {
        self.round.cluster.classes.iter().map(|class| class.alike.gpu_type.clone()).collect()
    }

    /// Of the types it accepts, those that come nearest.
    fn of_accepted(&self, ask: impl Fn(&GpuType) -> Option<Fit>) -> Vec<Fit> {
        let fits: Vec<Fit> = self.types().iter().filter(|of| self.job.range.accepts(of)).filter_map(ask).collect();
        let far = |fit: &Fit| fit.gpus.0.abs_diff(self.job.least().0);
        let nearest = fits.iter().map(far).min();
        fits.into_iter().filter(|fit| Some(far(fit)) == nearest).collect()
    }

    fn model(&self) -> Option<Arc<JobModel>> {
        self.job.work.model().map(|model| candidate::effective_model(self.round, self.job, model))
    }

    /// The size of a type nearest to the smallest it asks for, fewer before more, whatever it accepts; with another model, if one is given.
    fn near(&self, of: &GpuType, model: Option<&Arc<JobModel>>) -> Option<Fit> {
        let most = self.round.cluster.classes.iter().filter(|class| class.alike.gpu_type == *of);
        let most = most.map(|class| class.nominal()).max()?.0;
        // What is larger than the cluster comes nearest at all of it.
        let from = self.job.least().0.min(most);
        let around = (0..NEAR).flat_map(|far| [from.checked_sub(far), from.checked_add(far).filter(|_| far > 0)]);
        let near = around.flatten().filter(|size| (1..=most).contains(size));
        // Farther off, halves are tried: one that cannot run at large sizes may at small ones.
        let halves = (1..32).map(|power| from >> power).take_while(|size| *size > 0);
        let mut curves = CurveCache::new();
        let own = self.model();
        near.chain(halves).find_map(|size| self.runs(of, GpuCount(size), model.or(own.as_ref()), &mut curves))
    }

    fn runs(
        &self,
        of: &GpuType,
        size: GpuCount,
        model: Option<&Arc<JobModel>>,
        curves: &mut CurveCache,
    ) -> Option<Fit> {
        let cluster = self.round.cluster;
        let classes = (0..cluster.classes.len()).filter(|&class| cluster.classes[class].alike.gpu_type == *of);
        let shapes = classes.flat_map(|class| cluster.nominal_shapes(class, size));
        let near = |shape: &Shape| self.job.needs.spread == Spread::Prefer || shape.reach == Reach::Domain;
        let mut hosted = shapes.filter(|shape| near(shape) && cluster.hosts_as_built(&self.job.needs, *shape));
        hosted.find_map(|shape| {
            let mut ways = candidate::ways(self.round, self.job, model, shape, None, curves).into_iter();
            let way = ways.find(|way| !way.offer.unlikely)?;
            Some(Fit { gpu_type: of.clone(), gpus: size, layout: way.offer.configuration.map(|at| at.layout) })
        })
    }

    /// With layouts or batches that it does not allow.
    fn otherwise(&self, lacks: Lack) -> Option<String> {
        let own = self.model()?;
        let mut other = JobModel::clone(&own);
        let how = match lacks {
            Lack::Layout => {
                let limits = &other.training.layouts;
                other.training.layouts =
                    LayoutLimits { tp: Vec::new(), pp: Vec::new(), sizes: BTreeMap::new(), ..limits.clone() };
                "were its tensor and pipeline degrees free".to_owned()
            }
            Lack::Batch => {
                let batch = &mut other.training.batch;
                batch.max = Sequences(batch.max.0.max(u64::from(self.job.least().0)));
                format!("with batches of up to {} sequences", batch.max.0)
            }
            Lack::Memory | Lack::Known => return None,
        };
        let other = Arc::new(other);
        let fits = self.of_accepted(|of| self.near(of, Some(&other)));
        self.in_words(&fits).map(|fits| format!("{fits}, {how}"))
    }

    fn in_words(&self, fits: &[Fit]) -> Option<String> {
        let fits = fits.iter().map(|one| one.in_words(&self.job.range));
        fits.reduce(|all, one| format!("{all}, or on {one}")).map(|would| format!("it could run on {would}"))
    }

    /// The nodes that are as it asks; where there are none, what names and labels there are.
    fn asked_for(&self) -> String {
        let (nodes, only) = (self.round.cluster.nodes, &self.job.needs.only);
        let asked: Vec<_> = nodes.iter().filter(|node| only.takes(&node.name, &node.labels)).collect();
        if !asked.is_empty() {
            let class = |node: &&PlanNode| format!("{} of {}", gpus(node.class.gpus_per_node), node.class.gpu_type);
            let built: Vec<String> = asked.iter().map(|node| format!("{} with {}", node.name, class(node))).collect();
            return format!("what it asks for is {}", list(&built));
        }
        let unknown: Vec<String> =
            only.include.iter().filter(|name| nodes.iter().all(|node| node.name != **name)).cloned().collect();
        if !unknown.is_empty() {
            let known: Vec<&str> = nodes.iter().map(|one| one.name.as_str()).collect();
            return format!("no node is called {}; there are {}", list(&unknown), list(&known));
        }
        let values = |name: &String| {
            let values: BTreeSet<String> = nodes.iter().filter_map(|node| node.labels.get(name).cloned()).collect();
            let values = list(&values.into_iter().collect::<Vec<_>>());
            if values.is_empty() { format!("no node has a label {name}") } else { format!("{name} is {values} here") }
        };
        let told: Vec<String> = only.labels.keys().map(values).collect();
        told.join("; ")
    }

    /// What the nodes it accepts have most of, of what none has enough of.
    fn roomiest(&self, lacking: &[HostResource]) -> String {
        let hosts = || {
            let accepted = |class: &&Class| self.job.range.accepts(&class.alike.gpu_type);
            let nodes = self.round.cluster.classes.iter().filter(accepted).flat_map(|class| &class.nodes);
            nodes.map(|&node| self.round.cluster.nodes[node].host)
        };
        let most = lacking.iter().map(|of| {
            let most = hosts().filter_map(|host| host.amount(*of)).max().unwrap_or(0);
            host_amount(*of, most)
        });
        format!("{} at most", list(&most.collect::<Vec<_>>()))
    }
}
