//! Pairs of classes that one gang may span, where its job says so. A mix is counted on from the classes: its index is one where a shape or a
//! placement is asked for its class, and none of its own rows, nodes or prices exist. Two classes are enough: three would be three clusters.

use headway_types::{GpuCount, GpuType, NodeClass, NodeCount, Placement};

use crate::cluster::{Class, Cluster, Reach, Shape};

/// Two classes as one gang finds them.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// What it is valued by.
    alike: NodeClass,
    slower: usize,
    faster: usize,
}

/// Every pair that can be compared.
pub(crate) fn mixes(classes: &[Class]) -> Vec<Mix> {
    let pairs = (0..classes.len()).flat_map(|a| (a + 1..classes.len()).map(move |b| (a, b)));
    let mix = |(a, b): (usize, usize)| {
        let (first, second) = (&classes[a].alike, &classes[b].alike);
        let alike = headway_goodput::slowest([first, second])?;
        // Of classes of one GPU type either may be called the slower.
        let (slower, faster) = if alike.gpu_type == first.gpu_type { (a, b) } else { (b, a) };
        Some(Mix { alike, slower, faster })
    };
    pairs.filter_map(mix).collect()
}

impl Cluster<'_> {
    fn mix(&self, class: usize) -> Option<&Mix> {
        self.mixes.get(class.checked_sub(self.classes.len())?)
    }

    /// The class, or what a mix is valued by.
    pub fn alike(&self, class: usize) -> &NodeClass {
        self.mix(class).map_or_else(|| &self.classes[class].alike, |mix| &mix.alike)
    }

    /// The classes whose nodes it has; of a class that one, twice.
    pub fn members(&self, class: usize) -> [usize; 2] {
        self.mix(class).map_or([class, class], |mix| [mix.slower, mix.faster])
    }

    pub fn is_mix(&self, class: usize) -> bool {
        class >= self.classes.len()
    }

    /// "H100-80G"; of a mix of two types "A100-80G+H100-80G".
    pub fn gpu_type(&self, class: usize) -> GpuType {
        let types = self.members(class).map(|one| self.classes[one].alike.gpu_type.clone());
        GpuType::joined(types).unwrap_or_else(|| self.alike(class).gpu_type.clone())
    }

    /// Whether some of its nodes are further from each other than others.
    pub fn has_domains(&self, class: usize) -> bool {
        self.is_mix(class) || self.classes[class].has_domains()
    }

    /// How many kinds of GPUs of the cluster are faster.
    pub fn faster_kinds(&self, class: usize) -> u32 {
        self.classes[self.members(class)[0]].faster
    }

    /// What a shape is in each class; of one in a class that alone.
    pub fn parts(&self, shape: Shape) -> impl Iterator<Item = Shape> + use<> {
        let part = |class: usize, nodes: NodeCount| Shape {
            class,
            gpus: GpuCount(shape.per_node() * nodes.0),
            nodes,
            reach: if self.is_mix(shape.class) { Reach::Class } else { shape.reach },
            of_faster: NodeCount(0),
        };
        let [slower, faster] = self.members(shape.class);
        let first = part(slower, NodeCount(shape.nodes.0 - shape.of_faster.0));
        let second = part(faster, shape.of_faster);
        [first, second].into_iter().filter(|part| part.nodes.0 > 0)
    }

    /// The class that all nodes of a placement have, or the mix of the two that they have, where they are known.
    pub fn class_of_placement(&self, placement: &Placement) -> Option<usize> {
        let mut found: Option<[usize; 2]> = None;
        for slice in placement.slices() {
            let class = self.class_of(self.index_of(slice.node)?);
            found = match found {
                None => Some([class, class]),
                Some([a, b]) if class == a || class == b => found,
                Some([a, b]) if a == b => Some([a.min(class), a.max(class)]),
                Some(_) => return None,
            };
        }
        let [a, b] = found?;
        let is_it = |mix: &Mix| [mix.slower.min(mix.faster), mix.slower.max(mix.faster)] == [a, b];
        if a == b { Some(a) } else { Some(self.classes.len() + self.mixes.iter().position(is_it)?) }
    }

    /// Whether a placement is what a shape describes, wherever its nodes lie.
    pub fn has_shape(&self, placement: &Placement, shape: Shape) -> bool {
        let [slower, faster] = self.members(shape.class);
        let is_faster =
            |node| self.index_of(node).is_some_and(|node| slower != faster && self.class_of(node) == faster);
        self.class_of_placement(placement) == Some(shape.class)
            && placement.gpus() == shape.gpus
            && placement.nodes() == shape.nodes
            && placement.slices().iter().filter(|slice| is_faster(slice.node)).count() == shape.of_faster.0 as usize
    }

    /// Shapes of `gpus` over both classes of each mix of these classes, by the nodes that each class has room for. A node gives as many GPUs
    /// as the smaller kind has.
    pub fn mixed_shapes(&self, classes: &[usize], gpus: GpuCount, nodes_of: impl Fn(&Class, u32) -> u32) -> Vec<Shape> {
        let open = self
            .mixes
            .iter()
            .enumerate()
            .filter(|(_, mix)| classes.contains(&mix.slower) && classes.contains(&mix.faster));
        open.flat_map(|(at, mix)| {
            let per_node = mix.alike.gpus_per_node.0.max(1);
            let nodes = if gpus.0.is_multiple_of(per_node) { gpus.0 / per_node } else { 0 };
            let [slower, faster] = [mix.slower, mix.faster].map(|class| nodes_of(&self.classes[class], per_node));
            // As few of the faster as there can be, as many, and half way.
            let (least, most) = (nodes.saturating_sub(slower).max(1), faster.min(nodes.saturating_sub(1)));
            let mut divisions = vec![least, least.midpoint(most), most];
            divisions.retain(|of_faster| (least..=most).contains(of_faster));
            divisions.dedup();
            let class = self.classes.len() + at;
            let shape = move |of_faster| Shape {
                class,
                gpus,
                nodes: NodeCount(nodes),
                reach: Reach::Class,
                of_faster: NodeCount(of_faster),
            };
            divisions.into_iter().map(shape).collect::<Vec<_>>()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use headway_goodput::JobModel;
    use headway_types::spec::{BatchRange, LayoutLimits, Work};
    use headway_types::{Configuration, Generation, NodeSlice, Plan, Seconds, Sequences, StepReport, Tokens, example};

    use super::*;
    use crate::builder::{after, bare, job, job_id, node, rigid, round};
    use crate::curves::CurveCache;
    use crate::input::{Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
    use crate::{never_while, plan, verify};

    fn real(number: u32, gpu_type: &str) -> PlanNode {
        let mut node = node(number, gpu_type, 8);
        node.class.emulated = None;
        node
    }

    /// Nodes of each type, numbered on.
    fn nodes(kinds: &[(&str, u32)]) -> Vec<PlanNode> {
        let types = kinds.iter().flat_map(|&(gpu_type, nodes)| (0..nodes).map(move |_| gpu_type));
        types.enumerate().map(|(number, gpu_type)| real(number as u32 + 1, gpu_type)).collect()
    }

    /// A model that data parallelism does not tire, on whole nodes.
    fn training_job(number: u32, most: u32) -> PlanJob {
        let mut training = example::training(Work::Model(example::llama2_7b()));
        training.layouts = LayoutLimits::degrees(vec![1, 2, 4, 8], vec![1], Sequences(4));
        training.reference_batch = Sequences(1_152);
        training.batch = BatchRange { min: Sequences(1_152), max: Sequences(1_152) };
        let mut job = job(number, 8, most);
        job.range.sizes = (1..=most / 8).map(|nodes| GpuCount(8 * nodes)).collect();
        job.range.mixed = true;
        PlanJob { work: PlanWork::Model(Arc::new(JobModel::new(training))), ..job }
    }

    fn planned(input: &PlanInput) -> Plan {
        let plan = plan(input, &mut CurveCache::new()).unwrap();
        assert_eq!(verify(input, &plan), Ok(()));
        plan
    }

    /// GPUs by type that a job is given.
    fn given(input: &PlanInput, plan: &Plan, number: u32) -> BTreeMap<String, usize> {
        let mut gpus = BTreeMap::new();
        for slice in plan.assignments.get(&job_id(number)).iter().flat_map(|at| at.placement.slices()) {
            let node = input.nodes.iter().find(|node| node.node == slice.node).unwrap();
            *gpus.entry(node.class.gpu_type.0.clone()).or_default() += slice.gpus.len();
        }
        gpus
    }

    fn of(types: &[(&str, usize)]) -> BTreeMap<String, usize> {
        types.iter().map(|&(name, gpus)| (name.to_owned(), gpus)).collect()
    }

    #[test]
    fn a_gang_spans_classes_where_that_beats_staying_in_one() {
        let input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![training_job(1, 64)]);
        let plan = planned(&input);
        assert_eq!(given(&input, &plan, 1), of(&[("H100-80G", 16), ("H200", 16)]));
        let next = after(&input, &plan);
        assert_eq!(planned(&next).assignments[&job_id(1)].placement, plan.assignments[&job_id(1)].placement);
    }

    #[test]
    fn nobody_waits_for_a_slower_member_whose_help_is_less_than_that() {
        let input = round(nodes(&[("B200", 2), ("A100-80G", 2)]), vec![training_job(1, 64)]);
        assert_eq!(given(&input, &planned(&input), 1), of(&[("B200", 16)]));
    }

    #[test]
    fn a_job_that_did_not_say_so_stays_in_one_class() {
        let mut one = training_job(1, 64);
        one.range.mixed = false;
        let input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![one]);
        assert_eq!(given(&input, &planned(&input), 1), of(&[("H200", 16)]));
    }

    #[test]
    fn it_is_valued_by_the_slower_member() {
        let input = round(nodes(&[("A100-40G", 1), ("A100-80G", 1)]), vec![training_job(1, 16)]);
        let plan = planned(&input);
        assert_eq!(given(&input, &plan, 1), of(&[("A100-40G", 8), ("A100-80G", 8)]));
        let all_slow = round(nodes(&[("A100-40G", 2)]), vec![training_job(1, 16)]);
        let (mixed, slow) =
            (plan.assignments[&job_id(1)].predicted, planned(&all_slow).assignments[&job_id(1)].predicted);
        assert!(mixed.goodput.0 <= slow.goodput.0 * 1.001, "{mixed:?} {slow:?}");
    }

    #[test]
    fn what_runs_on_one_class_leaves_it_the_rest_of_the_other() {
        let mut input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![training_job(1, 64), rigid(2, 8)]);
        let held = NodeSlice { node: input.nodes[2].node, gpus: input.nodes[2].gpus.clone() };
        input.jobs[1].current = Some(bare(Placement::try_new(vec![held]).unwrap()));
        input.jobs[1].freedom = Freedom::Fixed { reason: "saving".into() };
        let plan = planned(&input);
        assert_eq!(given(&input, &plan, 2), of(&[("H200", 8)]));
        assert_eq!(given(&input, &plan, 1), of(&[("H100-80G", 16), ("H200", 8)]));
    }

    #[test]
    fn a_job_larger_than_any_class_can_run_on_two_and_is_told_so() {
        let mut one = training_job(1, 32);
        one.range.min = GpuCount(32);
        one.range.sizes = vec![GpuCount(32)];
        let input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![one.clone()]);
        let never =
            |input: &PlanInput| never_while(input, &[job_id(1)], &mut CurveCache::new(), || true).0.remove(&job_id(1));
        assert!(never(&input).is_none());
        assert_eq!(given(&input, &planned(&input), 1), of(&[("H100-80G", 16), ("H200", 16)]));
        one.range.mixed = false;
        assert_eq!(
            never(&round(input.nodes.clone(), vec![one])).unwrap().detail,
            "it needs 32 GPUs of one node class, and the largest has 16"
        );
    }

    #[test]
    fn who_waits_for_two_classes_is_told_what_both_have_free() {
        let mut waits = training_job(1, 32);
        (waits.range.min, waits.range.sizes) = (GpuCount(32), vec![GpuCount(32)]);
        let mut input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![waits, rigid(2, 8)]);
        let held = NodeSlice { node: input.nodes[2].node, gpus: input.nodes[2].gpus.clone() };
        input.jobs[1].current = Some(bare(Placement::try_new(vec![held]).unwrap()));
        input.jobs[1].freedom = Freedom::Fixed { reason: "saving".into() };
        let plan = planned(&input);
        let headline = &plan.report.jobs[&job_id(1)].headline;
        assert!(headline.starts_with("Needs 32 GPUs; 24 are free"), "{headline}");
    }

    /// Rank 0 is on the faster node, and what was learnt is of the slower.
    #[test]
    fn nothing_keeps_a_mixed_gang_in_a_batch_that_its_steps_contradicted() {
        let mut one = training_job(1, 16);
        (one.range.min, one.range.sizes) = (GpuCount(16), vec![GpuCount(16)]);
        let mut input = round(nodes(&[("H200", 1), ("H100-80G", 1)]), vec![one]);
        let mut next = after(&input, &planned(&input));
        let classes: Vec<NodeClass> = input.nodes.drain(..).map(|node| node.class).collect();
        let class = headway_goodput::slowest(&classes).unwrap();
        let job = &mut next.jobs[0];
        let PlanWork::Model(model) = &mut job.work else { panic!("it is modelled") };
        let (model, current) = (Arc::make_mut(model), job.current.as_mut().unwrap());
        let sound = current.configuration.unwrap();
        let other = if sound.micro_batch.0 == 1 { 2 } else { sound.micro_batch.0 / 2 };
        let ruined = Configuration { micro_batch: Sequences(other), ..sound };
        let expected = |model: &JobModel, at| model.step_time(&class, GpuCount(16), NodeCount(2), at).unwrap().time.0;
        for _ in 0..5 {
            let seconds = expected(&JobModel::new(model.training.clone()), &sound);
            model.observe(&class, NodeCount(2), &report(sound, seconds));
        }
        for _ in 0..2 {
            let seconds = 10.0 * expected(&JobModel::new(model.training.clone()), &ruined);
            model.observe(&class, NodeCount(2), &report(ruined, seconds));
        }
        assert!(model.contradiction(&class, NodeCount(2), &ruined).is_some());
        current.configuration = Some(ruined);
        job.batch_bound = Some("its batch was changed 6 times within the hour".into());
        let left = planned(&next).assignments[&job_id(1)].configuration.unwrap();
        assert_eq!(left.layout, ruined.layout, "on the same GPUs");
        assert_ne!(left.micro_batch, ruined.micro_batch, "whatever the bound");
    }

    fn report(configuration: Configuration, seconds: f64) -> StepReport {
        StepReport {
            job: job_id(1),
            generation: Generation(1),
            step: 1,
            steps: 1,
            samples_seen: configuration.global_batch,
            tokens: Tokens(0.0),
            duration: Seconds(seconds),
            configuration,
            loss: None,
            noise: None,
            preconditioned: None,
            memory_peak: None,
        }
    }

    #[test]
    fn the_report_names_both_types() {
        let start = round(nodes(&[("H100-80G", 2)]), vec![training_job(1, 64)]);
        let mut grown = after(&start, &planned(&start));
        grown.nodes = nodes(&[("H100-80G", 2), ("H200", 2)]);
        let plan = planned(&grown);
        insta::assert_snapshot!(plan.report.moves[0].reason, @"job job-1 arrived: job-1 grows from 16 GPUs of H100-80G (dp8 tp2 pp1, batch 1152) to 32 GPUs of H100-80G+H200 (dp16 tp2 pp1, batch 1152), speed-up 0.51 to 1.00");
    }
}
