//! Groups that no live generation owns are stopped; ended ones whose end is recorded are forgotten.

use headway_types::{AgentCommand, Generation, GroupPhase, JobId, NodeId, StopMode};

use super::Step;
use crate::seen::SeenGroup;
use crate::situation::Situation;

pub(super) fn groups(at: Situation<'_>) -> Vec<Step> {
    let connected = at.seen.nodes.iter().filter(|(_, seen)| seen.connected());
    let groups =
        connected.flat_map(|(node, seen)| seen.contact.groups().into_iter().flatten().map(move |one| (*node, one)));
    let commands: Vec<(NodeId, AgentCommand)> =
        groups.filter_map(|(node, (key, group))| Some((node, command(at, node, *key, group)?))).collect();
    let forgotten = |(node, command): &(NodeId, AgentCommand)| match command {
        AgentCommand::Forget { job, generation } => {
            Some(Step::Forget { node: *node, job: *job, generation: *generation })
        }
        _ => None,
    };
    let forgotten: Vec<Step> = commands.iter().filter_map(forgotten).collect();
    commands.into_iter().map(|(node, command)| Step::Send { node, command }).chain(forgotten).collect()
}

fn command(at: Situation<'_>, node: NodeId, key: (JobId, Generation), group: &SeenGroup) -> Option<AgentCommand> {
    let (job, generation) = key;
    let allocation = at.facts.allocations.get(&key);
    let holds = allocation.is_some_and(|one| one.holds_on(node));
    let owner = at.facts.jobs.get(&job);
    let owned = owner.is_some_and(|job| job.state.generation() == Some(generation));
    let newest = at.facts.is_newest(job, generation);
    if matches!(group.phase, GroupPhase::Ended { .. }) {
        // How a part ended counts until the whole of the newest generation is known to be over.
        let wanted = newest && allocation.is_some_and(|one| one.holds());
        return (!owned && !holds && !wanted).then_some(AgentCommand::Forget { job, generation });
    }
    if owned && holds {
        return None;
    }
    // The newest generation of a queued job may still save what it did while out of sight.
    let mode = if newest && holds { StopMode::Checkpoint } else { StopMode::Kill };
    // One that reports its stop has heard it.
    if group.phase == GroupPhase::Stopping && at.seen.has_sent_stop(key, node, mode as u64) {
        return None;
    }
    let grace = owner.map(|job| job.spec.checkpoint_policy()).unwrap_or_default().grace;
    Some(AgentCommand::Stop { job, generation, mode, grace })
}
