//! The story of a job that gets nothing: what it needs, what is missing, who could give it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use headway_types::spec::HostResource;
use headway_types::{GpuCount, Reason, ReasonCode, Seconds};

use super::limits::Demand;
use super::obstructed::{accounts_of_others, before_reservations};
use super::{Account, gpus, list, obstructed, reason, span};
use crate::candidate::Candidate;
use crate::cluster::Shape;
use crate::due::is_due;
use crate::input::Freedom;
use crate::obstacle::Closed;
use crate::rows::describe_site;
use crate::urgency;
use crate::value::Quanta;

impl Account<'_> {
    pub(super) fn unserved(&self, job: usize) -> (String, Vec<Reason>) {
        let options = &self.options[job];
        if let Some(obstacle) = &options.obstacle {
            return obstructed(self.round, options.job, obstacle);
        }
        if let Freedom::Fixed { reason: why } = &options.job.freedom {
            return (format!("Waits: {why}"), vec![reason(ReasonCode::Cooldown, true, why.clone())]);
        }
        let Some(need) = self.least(job) else {
            if let Some(&row) = options.barred.first() {
                let detail = format!("{} is exceeded by what cannot be moved now", self.round.rows.describe(row));
                return (format!("Waits: {detail}"), vec![reason(self.code(row), true, detail)]);
            }
            let detail = "its script cannot change its layout, and its GPUs are no longer usable".to_owned();
            return (format!("Waits: {detail}"), vec![reason(ReasonCode::NodesUnhealthy, true, detail)]);
        };
        let demands = self.demands(job, need);
        let (tail, mut reasons) = self.missing(job, need, &demands);
        match (&options.job.current, self.yielded(job)) {
            (Some(current), Some(first)) => {
                let head = format!("Gives up its {}: {}", gpus(current.placement.gpus()), first.detail);
                reasons.insert(0, first);
                (head, reasons)
            }
            (Some(current), None) => {
                let head = format!("Gives up its {}", gpus(current.placement.gpus()));
                (format!("{head} and waits for {}; {tail}", need.gpus), reasons)
            }
            (None, _) => (format!("Needs {}; {tail}", gpus(need.gpus)), reasons),
        }
    }

    /// Who gets the GPUs it gives up, and by what right.
    fn yielded(&self, job: usize) -> Option<Reason> {
        let taker = self.taker(job)?;
        let (other, priority) = (self.options[taker].job, self.options[job].job.priority);
        let sure = self.owed.sure.contains_key(&taker);
        let goes = format!("they go to {}", other.name);
        let line = self.line.as_ref().filter(|_| !sure);
        Some(if let Some(line) = line {
            let first = line.why_it_comes_first(taker, job).map(|why| format!(", {why}")).unwrap_or_default();
            reason(ReasonCode::InLine, true, format!("{goes}{first}"))
        } else if self.owed.reclaiming.contains(&taker) {
            reason(ReasonCode::Reclaim, true, format!("{goes}, which gets back what others borrowed"))
        } else if sure && is_due(self.round, other) {
            reason(ReasonCode::Patient, true, format!("{goes}, which has waited {}", span(other.claim.waited)))
        } else if sure {
            reason(ReasonCode::Floor, true, format!("{goes}, which is sure of them"))
        } else if other.priority > priority {
            let detail = format!("{goes}, of priority {} against {}", other.priority.0, priority.0);
            reason(ReasonCode::PriorityBehind, true, detail)
        } else {
            reason(ReasonCode::BestForCluster, true, format!("{goes}{}", self.why_worth_more(job, taker)))
        })
    }

    /// Why GPUs are worth more to another job.
    fn why_worth_more(&self, job: usize, taker: usize) -> String {
        let (own, other) = (&self.options[job], &self.options[taker]);
        let known = urgency::is_known(own.job) && urgency::is_known(other.job);
        if known && urgency::work(other) < urgency::work(own) {
            let left = |of| span(Seconds(urgency::work(of)));
            return format!(", which has less left to do: {} of one GPU against {}", left(other), left(own));
        }
        ", to which they are worth more".into()
    }

    /// Of the smallest ways to run the one that lacks the fewest things, and of those the best.
    fn least(&self, job: usize) -> Option<&Candidate> {
        let placeable = || self.options[job].candidates.iter().filter(|candidate| candidate.shape.is_some());
        let smallest = placeable().map(|candidate| candidate.gpus).min()?;
        placeable().filter(|candidate| candidate.gpus == smallest).min_by_key(|candidate| {
            let short = self.demands(job, candidate).into_iter().filter(|one| one.is_short()).count();
            (short, Reverse(Quanta::of(self.net(candidate))))
        })
    }

    /// What keeps it from its smallest way to run: the end of the headline, and all of it as reasons.
    fn missing(&self, job: usize, need: &Candidate, demands: &[Demand]) -> (String, Vec<Reason>) {
        let short: Vec<Demand> = demands.iter().copied().filter(|one| one.is_short()).collect();
        let room = |code| matches!(code, ReasonCode::NotEnoughFree | ReasonCode::Fragmented | ReasonCode::FabricDomain);
        let (space, rules): (Vec<Demand>, Vec<Demand>) = short.iter().partition(|one| room(self.code(one.row)));
        let alone = rules.is_empty() || (space.is_empty() && rules.len() == 1);
        let mut reasons: Vec<Reason> =
            rules.iter().map(|one| reason(self.code(one.row), alone, self.shortage(*one))).collect();
        let mut tail = reasons.first().map(|first| first.detail.clone());
        if space.iter().any(|one| self.code(one.row) == ReasonCode::NotEnoughFree) {
            let (text, told) = self.occupied(job, need, alone);
            tail.get_or_insert(text);
            reasons.extend(told);
        } else if let Some(first) = space.first() {
            let detail = self.scattered(job, need, self.code(first.row));
            tail.get_or_insert(detail.clone());
            reasons.push(reason(self.code(first.row), alone, detail));
        }
        if short.is_empty() {
            let (text, told) = self.unsettled(job, need, demands);
            tail.get_or_insert(text);
            reasons.push(told);
        }
        let reserved = self.set_aside(job, need.gpus);
        let tail = reserved.first().map(|first| first.detail.clone()).or(tail);
        (tail.unwrap_or_default(), reserved.into_iter().chain(reasons).collect())
    }

    /// Not enough GPUs are left: how many are, and who could give the others.
    fn occupied(&self, job: usize, need: &Candidate, alone: bool) -> (String, Vec<Reason>) {
        if let Some(line) = &self.line {
            return self.behind(line, job, need, alone);
        }
        let free = self.most_free(job);
        // What would be taken is worth what the size asked for is worth; a larger one would take more.
        let (short, gain) = (need.gpus.saturating_sub(free), need.value);
        let are = if free.0 == 1 { "is" } else { "are" };
        let mut reasons =
            vec![reason(ReasonCode::NotEnoughFree, alone, format!("needs {}, {free} {are} free", gpus(need.gpus)))];
        let of_class = |class: usize| self.givers.cheapest(class, need.gpus.saturating_sub(self.free(class)));
        let giver = self.classes_of(job).into_iter().filter_map(of_class).min();
        let tail = match giver {
            Some((loss, giver)) if loss >= gain.0 => {
                let other = &self.options[giver].job;
                let ahead = other.priority > self.options[job].job.priority;
                let code = if ahead { ReasonCode::PriorityBehind } else { ReasonCode::BestForCluster };
                let taking = format!("taking {short} from {}", other.name);
                let detail = format!(
                    "{taking} (priority {}) would lose {:.2} and gain at most {:.2}",
                    other.priority.0,
                    Quanta(loss).units(),
                    gain.units()
                );
                reasons.push(reason(code, alone, detail));
                format!("{taking} would lose more than it gains")
            }
            Some((_, giver)) => {
                let apart = if need.gpus.0 > 1 { "they would not lie together, or " } else { "" };
                let name = &self.options[giver].job.name;
                let detail = format!("{name} could give {short}, but {apart}other limits stand against it");
                reasons.push(reason(ReasonCode::Fragmented, alone, detail.clone()));
                detail
            }
            None => {
                let detail = format!("no single job can be moved to give {}", gpus(short));
                reasons.push(reason(ReasonCode::BestForCluster, alone, detail.clone()));
                detail
            }
        };
        (format!("{free} {are} free and {tail}"), reasons)
    }

    /// Enough GPUs are left, but not together.
    pub(super) fn scattered(&self, job: usize, need: &Candidate, code: ReasonCode) -> String {
        let free = gpus(self.most_free(job));
        let nodes = need.shape.map_or(1, |shape| shape.nodes.0);
        let per_node = gpus(GpuCount(need.shape.map_or(0, Shape::per_node)));
        match (code, nodes) {
            (ReasonCode::FabricDomain, _) => {
                format!("{free} are free, but no fabric domain has {nodes} nodes with {per_node} each")
            }
            (_, 1) => format!("{free} are free, but scattered: no node has {per_node} together"),
            _ => format!("{free} are free, but scattered: fewer than {nodes} nodes have {per_node} together"),
        }
    }

    /// Every row has enough left: then it is the nodes themselves, or the choice is better for the cluster.
    fn unsettled(&self, job: usize, need: &Candidate, demands: &[Demand]) -> (String, Reason) {
        let told = |code, detail: String| (detail.clone(), reason(code, true, detail));
        if !self.has_place(job, need, false) {
            let of = self.options[job].job;
            let parts = need.shape.into_iter().flat_map(|shape| self.round.cluster.parts(shape));
            let lacking = parts.flat_map(|part| self.rest().lacking(of, part.class, part.per_node()));
            let lacking: BTreeSet<HostResource> = lacking.collect();
            let lacking: Vec<&str> = lacking.into_iter().map(HostResource::in_words).collect();
            return if !lacking.is_empty() {
                let detail = format!("nodes with enough GPUs left lack the {} it needs", list(&lacking));
                told(ReasonCode::HostResources, detail)
            } else if let Some(detail) = self.closed_by_rows(job, need) {
                told(ReasonCode::SiteRow, detail)
            } else if !of.needs.only.is_any() {
                let asked = of.needs.only.in_words();
                told(ReasonCode::Excluded, format!("what is free is not on {asked}, or scattered"))
            } else if !of.needs.avoid.is_empty() {
                let of_others = accounts_of_others(self.round, of);
                let accounts: String = of_others.iter().map(|told| format!("; {told}")).collect();
                told(ReasonCode::Excluded, format!("what is free is on nodes it must not use, or scattered{accounts}"))
            } else {
                told(ReasonCode::Fragmented, self.scattered(job, need, ReasonCode::Fragmented))
            };
        }
        if let Some(promise) = self.round.promise.as_ref().filter(|_| !self.has_place(job, need, need.outlasts_promise))
        {
            let other = &self.options[promise.job].job.name;
            return told(ReasonCode::Patient, format!("nodes with enough GPUs left are kept for {other}"));
        }
        if let Some(line) = &self.line {
            let told = self.held_back(line, job);
            return (told.detail.clone(), told);
        }
        let price = self.price(demands);
        let detail = if price > need.value.units() {
            format!("others lose {price:.2} by it, and it gains {:.2}", need.value.units())
        } else {
            let bound = self.decision.bound.unwrap_or(self.decision.objective);
            let gap = Quanta((bound.0 - self.decision.objective.0).max(0));
            format!("it fits, and the plan is within {:.4} of the best there is", gap.units())
        };
        told(ReasonCode::BestForCluster, detail)
    }

    /// Rows of the site that keep it from nodes with enough GPUs left.
    pub(super) fn closed_by_rows(&self, job: usize, need: &Candidate) -> Option<String> {
        let of = self.options[job].job;
        let parts = self.round.cluster.parts(need.shape?);
        let rows = parts.flat_map(|part| self.rest().rows_in_the_way(of, part.class, part.per_node()));
        let rows: BTreeSet<usize> = rows.collect();
        let named: Vec<String> =
            rows.into_iter().map(|row| describe_site(&self.round.input.policy.rows[row].name)).collect();
        (!named.is_empty()).then(|| format!("nodes with enough GPUs left are closed to it by {}", list(&named)))
    }

    /// Enough is free, but reserved for others.
    fn set_aside(&self, job: usize, need: GpuCount) -> Vec<Reason> {
        let of = self.options[job].job;
        let classes = 0..self.round.cluster.classes.len();
        let mut closed = classes.filter(|class| self.accepts(job, *class) && self.free(*class) >= need);
        let found = closed.find_map(|class| Some((class, Closed::new(self.round.closed_by(of, class)?))));
        let Some((class, by)) = found else { return Vec::new() };
        let detail = format!(
            "{} of {} are free, but reserved: {}",
            self.free(class),
            self.round.cluster.classes[class].alike.gpu_type,
            by.in_words(self.round.input.now)
        );
        let hint = before_reservations(self.round, of, &[by]);
        std::iter::once(reason(ReasonCode::Reserved, true, detail)).chain(hint).collect()
    }
}
