//! The launch contract (docs/worker-protocol.md): what a worker finds in its environment and in `{placeholders}`.
//! Pure: order and inventory in, variables and arguments out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headway_api::agent::Secrets;
use headway_node::Share;
use headway_types::spec::{Command, RunPer, family_name};
use headway_types::{Execution, Generation, GpuUuid, JobId, LaunchOrder, Layout, NodeId, NodeInventory, Timestamp};

use crate::process::MARK;

/// What differs between the ranks of a node.
const PER_RANK: [&str; 3] = ["RANK", "LOCAL_RANK", MARK];

/// What the node adds to an order.
pub(crate) struct Host<'a> {
    pub(crate) inventory: &'a NodeInventory,
    pub(crate) socket: &'a Path,
    pub(crate) python: &'a str,
    pub(crate) headway: &'a Path,
    /// Variables every worker inherits: `PATH` and `LANG` of the agent, and what a login of its user sets.
    pub(crate) inherited: &'a BTreeMap<String, String>,
}

/// One process to start.
#[derive(PartialEq)]
pub(crate) struct Member {
    /// Global rank.
    pub(crate) rank: u32,
    pub(crate) argv: Vec<String>,
    pub(crate) variables: BTreeMap<String, String>,
    /// Those of the variables that do not belong to this one launch: what the node and the job itself set. `None` if the
    /// job's have placeholders, which are filled in anew every time.
    pub(crate) lasting: Option<BTreeMap<String, String>>,
    /// Secrets that it is handed as open files, by variable.
    pub(crate) files: Secrets,
}

/// Secrets may be among the variables.
impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, argv, variables, lasting: _, files: _ } = self;
        f.debug_struct("Member").field("rank", rank).field("argv", argv).field("variables", &variables.keys()).finish()
    }
}

impl Member {
    /// Takes what the launch brought: as files, and as variables where the job has asked for that. The contract's own variables stay as they
    /// are, and no interpreter is kept warm with a secret.
    pub(crate) fn take_secrets(&mut self, secrets: &Secrets, as_files: &BTreeSet<String>) {
        for (name, value) in secrets {
            if as_files.contains(name) {
                self.files.insert(name.clone(), value.clone());
            } else {
                self.variables.entry(name.clone()).or_insert_with(|| value.expose().to_owned());
            }
        }
    }

    /// Makes it one that runs beside the ranks and speaks to nobody.
    pub(crate) fn stand_aside(&mut self, mark: String) {
        self.variables.insert(MARK.to_owned(), mark);
        for name in ["HEADWAY_SOCKET", "HEADWAY_SECRET", "MASTER_PORT"] {
            self.variables.remove(name);
        }
    }

    /// Says when the launch began, so that the worker can tell what its start took.
    pub(crate) fn launched_at(&mut self, at: Timestamp) {
        self.variables.insert("HEADWAY_LAUNCHED_AT".to_owned(), format!("{:.6}", at.0 as f64 / 1e6));
    }
}

/// The mark of a generation on a node; that of a rank follows with `mark_of_rank`.
pub(crate) fn mark(node: NodeId, job: JobId, generation: Generation) -> String {
    format!("{node}/{job}/{generation}/")
}

pub(crate) fn mark_of_rank(group: &str, rank: u32) -> String {
    format!("{group}{rank}/")
}

/// Whether every secret that the order names has come.
pub(crate) fn check_secrets(order: &LaunchOrder, come: &Secrets) -> Result<(), String> {
    match order.run.secrets.iter().find(|(variable, _)| !come.contains_key(*variable)) {
        None => Ok(()),
        Some((variable, name)) => Err(format!(
            "there is no secret {name} for {variable} that {} may use: it was deleted since the job was submitted, or belongs to a project \
             that {} is no member of; set it again (headway secret set {name}) and requeue the job",
            order.owner, order.owner
        )),
    }
}

/// Every process of the order on this node. The error is for people: a command that cannot be filled in.
pub(crate) fn members(
    order: &LaunchOrder,
    share: &Share<'_>,
    port: u16,
    secret: &str,
    host: &Host<'_>,
) -> Result<Vec<Member>, String> {
    let processes = match order.run.per {
        RunPer::Node => 1,
        RunPer::Gpu => share.slice.gpus.len() as u32,
    };
    let values = placeholders(order, port, host, share);
    let launch = launch_variables(order, port, secret, host, share);
    let mut lasting = lasting(host.inventory, host.inherited, is_loopback(&master_address(order)));
    for (name, value) in &order.run.env {
        lasting.insert(name.clone(), fill(value, &values)?);
    }
    let constant = order.run.env.iter().all(|(name, value)| lasting.get(name) == Some(value));
    // None of the user's may replace the contract.
    lasting.retain(|name, _| !launch.contains_key(name) && !PER_RANK.contains(&name.as_str()));
    let argv = argv(order, &values)?;
    let group = mark(host.inventory.node, order.job, order.generation);
    Ok((0..processes)
        .map(|local_rank| {
            let rank = share.first_rank + local_rank;
            let mut variables = lasting.clone();
            variables.extend(launch.clone());
            let of_rank = [rank.to_string(), local_rank.to_string(), mark_of_rank(&group, rank)];
            variables.extend(PER_RANK.map(String::from).into_iter().zip(of_rank));
            let lasting = constant.then(|| lasting.clone());
            Member { rank, argv: argv.clone(), variables, lasting, files: Secrets::new() }
        })
        .collect())
}

fn argv(order: &LaunchOrder, values: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let render = |text: &String| fill(text, values);
    match &order.run.command {
        Command::Shell(line) => Ok(vec!["sh".into(), "-c".into(), render(line)?]),
        Command::Argv(words) if words.is_empty() => Err("the command is empty".into()),
        Command::Argv(words) => words.iter().map(render).collect(),
    }
}

fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    headway_api::spec::render(text, values).map_err(|error| error.to_string())
}

/// What the node sets for every launch, whatever the job.
pub(crate) fn lasting(
    inventory: &NodeInventory,
    inherited: &BTreeMap<String, String>,
    stays_here: bool,
) -> BTreeMap<String, String> {
    let mut variables = inherited.clone();
    variables.insert("PYTHONUNBUFFERED".into(), "1".into());
    if inventory.emulated.is_some() {
        // Emulated devices share the node's cores; a thread pool per worker would fight over them.
        variables.insert("OMP_NUM_THREADS".into(), "1".into());
    }
    if is_loopback(&inventory.address) && stays_here {
        variables.insert("GLOO_SOCKET_IFNAME".into(), "lo".into());
    }
    variables
}

/// The contract's variables that all ranks of the node share.
fn launch_variables(
    order: &LaunchOrder,
    port: u16,
    secret: &str,
    host: &Host<'_>,
    share: &Share<'_>,
) -> BTreeMap<String, String> {
    let inventory = host.inventory;
    let mut variables = BTreeMap::new();
    let gpus = share.slice.gpus.len();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    set("WORLD_SIZE", order.placement.gpus().to_string());
    set("LOCAL_WORLD_SIZE", gpus.to_string());
    set("GROUP_RANK", share.node_rank.to_string());
    set("NODE_RANK", share.node_rank.to_string());
    set("NNODES", order.placement.nodes().to_string());
    set("GPUS_PER_NODE", gpus.to_string());
    set("MASTER_ADDR", master_address(order));
    set("MASTER_PORT", port.to_string());
    set("TORCHELASTIC_RUN_ID", format!("{}-{}", order.job, order.generation));
    set("CUDA_VISIBLE_DEVICES", visible_devices(inventory, share));
    set("HEADWAY_JOB_ID", order.job.to_string());
    set("HEADWAY_JOB_NAME", order.job_name.clone());
    if let Some(place) = &order.array {
        set("HEADWAY_ARRAY_ID", place.array.to_string());
        set("HEADWAY_ARRAY_INDEX", place.index.to_string());
        set("HEADWAY_ARRAY_COUNT", place.count.to_string());
    }
    set("HEADWAY_GENERATION", order.generation.0.to_string());
    set("HEADWAY_SOCKET", host.socket.display().to_string());
    set("HEADWAY_SECRET", secret.to_owned());
    if let Some(configuration) = &order.configuration {
        set("HEADWAY_DP", configuration.layout.dp.to_string());
        set("HEADWAY_TP", configuration.layout.tp.to_string());
        set("HEADWAY_PP", configuration.layout.pp.to_string());
        for (name, value) in execution(&configuration.layout.execution) {
            set(&format!("HEADWAY_{}", name.to_uppercase()), value);
        }
        set("HEADWAY_SHARES", configuration.layout.execution.shares.list(configuration.layout.dp));
        set("HEADWAY_UNEVEN_STAGES", has_uneven_stages(order, &configuration.layout).to_string());
        set("HEADWAY_MICRO_BATCH", configuration.micro_batch.to_string());
        set("HEADWAY_GLOBAL_BATCH", configuration.global_batch.to_string());
    }
    set("HEADWAY_LR_SCALE", order.lr_scale.to_string());
    set("HEADWAY_LR_SCALING", order.lr_scaling.to_string());
    if let Some(batch) = order.reference_batch {
        set("HEADWAY_REFERENCE_BATCH", batch.to_string());
    }
    set("HEADWAY_CHECKPOINT_DIR", order.checkpoint_dir.clone());
    set("HEADWAY_CHECKPOINT_EVERY", order.checkpoint_every.0.to_string());
    if let Some(resume) = &order.resume {
        set("HEADWAY_RESUME_PATH", resume.path.clone());
        set("HEADWAY_RESUME_STEP", resume.step.to_string());
        set("HEADWAY_SAMPLES_SEEN", resume.samples_seen.to_string());
        set("HEADWAY_RESUME_MANIFEST_SHA256", resume.manifest_sha256.clone());
    }
    set("HEADWAY_GRACE", order.grace.0.to_string());
    if let Some(device) = inventory.emulated {
        set("HEADWAY_DEVICE_FLOPS", device.flop_per_second.to_string());
        set("HEADWAY_LINK_BYTES_PER_SECOND", device.link_bytes_per_second.to_string());
    }
    variables
}

fn placeholders(order: &LaunchOrder, port: u16, host: &Host<'_>, share: &Share<'_>) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut set = |name: &str, value: String| values.insert(name.to_owned(), value);
    if let Some(configuration) = &order.configuration {
        set("dp", configuration.layout.dp.to_string());
        set("tp", configuration.layout.tp.to_string());
        set("pp", configuration.layout.pp.to_string());
        for (name, value) in execution(&configuration.layout.execution) {
            set(name, value);
        }
        set("shares", configuration.layout.execution.shares.list(configuration.layout.dp));
        set("uneven_stages", has_uneven_stages(order, &configuration.layout).to_string());
        set("micro_batch", configuration.micro_batch.to_string());
        set("global_batch_sequences", configuration.global_batch.to_string());
    }
    set("nnodes", order.placement.nodes().to_string());
    set("node_rank", share.node_rank.to_string());
    set("gpus_per_node", share.slice.gpus.len().to_string());
    set("master_addr", master_address(order));
    set("master_port", port.to_string());
    set("job_id", order.job.to_string());
    set("job_name", order.job_name.clone());
    if let Some(place) = &order.array {
        set("array_id", place.array.to_string());
        set("array_index", place.index.to_string());
        set("array_count", place.count.to_string());
        set("array_first", place.first.to_string());
        set("array_last", place.last.to_string());
        set("array_name", family_name(&order.job_name).to_owned());
    }
    set("generation", order.generation.0.to_string());
    set("checkpoint_dir", order.checkpoint_dir.clone());
    set("resume_path", order.resume.as_ref().map(|resume| resume.path.clone()).unwrap_or_default());
    set("samples_seen", order.resume.as_ref().map_or(0, |resume| resume.samples_seen.0).to_string());
    set("lr_scale", order.lr_scale.to_string());
    set("python", host.python.to_owned());
    set("headway", host.headway.display().to_string());
    values
}

/// What a layout is beyond dp, tp and pp, by name, but for what replicas share out.
fn execution(execution: &Execution) -> [(&'static str, String); 8] {
    let Execution { cp, ep, vpp, schedule, sharding, recompute, sequence_parallel, offload, shares: _ } = execution;
    [
        ("cp", cp.to_string()),
        ("ep", ep.to_string()),
        ("vpp", vpp.to_string()),
        ("schedule", schedule.to_string()),
        ("sharding", sharding.to_string()),
        ("recompute", recompute.to_string()),
        ("sequence_parallel", sequence_parallel.to_string()),
        ("offload", offload.to_string()),
    ]
}

/// Whether the layers come out even only with the embedding and the output projection in a layer's place.
fn has_uneven_stages(order: &LaunchOrder, layout: &Layout) -> bool {
    let stages = layout.pp.saturating_mul(layout.execution.vpp);
    order.model.is_some_and(|(shape, _)| !shape.layers.is_multiple_of(stages.max(1)))
}

/// Where rank 0 listens: the address of the placement's first node.
fn master_address(order: &LaunchOrder) -> String {
    let first = order.placement.first_node();
    let address = order.nodes.iter().find(|node| node.node == first).map(|node| node.address.clone());
    address.unwrap_or_else(|| "127.0.0.1".to_owned())
}

fn is_loopback(address: &str) -> bool {
    address == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Indices of the group's GPUs; empty on emulated devices, so that a script falls back to the CPU.
fn visible_devices(inventory: &NodeInventory, share: &Share<'_>) -> String {
    if inventory.emulated.is_some() {
        return String::new();
    }
    let index = |uuid: &GpuUuid| inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| gpu.index.to_string());
    share.slice.gpus.iter().filter_map(index).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::{CheckpointRef, Configuration, Sequences, Shares};

    use super::*;
    use crate::node::tests::fixture;

    #[test]
    fn every_rank_gets_torchruns_variables_and_the_contract_wins_over_the_user() {
        let inventory = fixture::inventory(2);
        let mut order = fixture::order(&inventory, 3, "echo {gpus_per_node} {master_port}");
        order.run.env.insert("RANK".into(), "99".into());
        order.run.env.insert("MINE".into(), "{job_name}".into());
        let inherited = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        let host = Host {
            inventory: &inventory,
            socket: Path::new("/run/s"),
            python: "py",
            headway: Path::new("/bin/headway"),
            inherited: &inherited,
        };
        let share = Share::of(&order, inventory.node).unwrap();
        let members = members(&order, &share, 4242, "s3cret", &host).unwrap();
        let ranks: Vec<_> = members.iter().map(|member| member.variables["RANK"].clone()).collect();
        assert_eq!(ranks, ["0", "1"]);
        let variables = &members[1].variables;
        for (name, value) in [
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "1"),
            ("MASTER_PORT", "4242"),
            ("HEADWAY_GENERATION", "3"),
            ("HEADWAY_SECRET", "s3cret"),
            ("MINE", "job"),
            ("CUDA_VISIBLE_DEVICES", ""),
            ("OMP_NUM_THREADS", "1"),
            ("GLOO_SOCKET_IFNAME", "lo"),
        ] {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(members[0].argv, ["sh", "-c", "echo 2 4242"]);
        assert!(!variables.contains_key("HEADWAY_RESUME_PATH"));
        assert_eq!(members[1].lasting, None, "{{job_name}} is filled in for each launch");
        order.run.env.insert("MINE".into(), "same".into());
        let share = Share::of(&order, inventory.node).unwrap();
        let member = super::members(&order, &share, 4242, "s3cret", &host).unwrap().remove(1);
        let lasting = member.lasting.unwrap();
        let names: Vec<&str> = lasting.keys().map(String::as_str).collect();
        assert_eq!(names, ["GLOO_SOCKET_IFNAME", "MINE", "OMP_NUM_THREADS", "PATH", "PYTHONUNBUFFERED"]);
    }

    #[test]
    fn a_script_is_told_what_each_replica_does() {
        let inventory = fixture::inventory(2);
        let mut order = fixture::order(&inventory, 3, "echo {shares}");
        let inherited = BTreeMap::new();
        let (socket, headway) = (Path::new("/run/s"), Path::new("/bin/headway"));
        let host = Host { inventory: &inventory, socket, python: "py", headway, inherited: &inherited };
        for (shares, told) in [(Shares::EVEN, "1,1,1,1"), (Shares { slower: 2, faster: 3, of_faster: 1 }, "2,2,2,3")] {
            let layout = Layout { dp: 4, execution: Execution { shares, ..Execution::PLAIN }, ..Layout::single() };
            order.configuration =
                Some(Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(36) });
            let share = Share::of(&order, inventory.node).unwrap();
            let member = super::members(&order, &share, 4242, "s3cret", &host).unwrap().remove(0);
            assert_eq!(member.variables.get("HEADWAY_SHARES").map(String::as_str), Some(told));
            assert_eq!(member.argv, ["sh", "-c", &format!("echo {told}")]);
        }
    }

    #[test]
    fn a_script_is_told_where_its_stages_are_uneven() {
        let inventory = fixture::inventory(2);
        let mut order = fixture::order(&inventory, 3, "echo {uneven_stages} {offload}");
        let shape = headway_api::spec::read_model("llama-3.1-405b").unwrap();
        order.model = Some((shape, headway_types::spec::Precision::Bf16));
        let inherited = BTreeMap::new();
        let (socket, headway) = (Path::new("/run/s"), Path::new("/bin/headway"));
        let host = Host { inventory: &inventory, socket, python: "py", headway, inherited: &inherited };
        for (pp, vpp, told) in [(1, 1, "false"), (2, 1, "false"), (2, 2, "true"), (8, 1, "true")] {
            let execution = Execution { vpp, ..Execution::PLAIN };
            let layout = Layout { pp, execution, ..Layout::single() };
            order.configuration = Some(Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(8) });
            let share = Share::of(&order, inventory.node).unwrap();
            let member = super::members(&order, &share, 4242, "s3cret", &host).unwrap().remove(0);
            assert_eq!(
                member.variables.get("HEADWAY_UNEVEN_STAGES").map(String::as_str),
                Some(told),
                "pp {pp} vpp {vpp}"
            );
            assert_eq!(member.variables.get("HEADWAY_OFFLOAD").map(String::as_str), Some("none"));
            assert_eq!(member.argv, ["sh", "-c", &format!("echo {told} none")]);
        }
    }

    #[test]
    fn who_resumes_is_told_which_manifest_was_committed() {
        let inventory = fixture::inventory(1);
        let mut order = fixture::order(&inventory, 3, "true");
        order.resume = Some(CheckpointRef {
            generation: Generation(2),
            path: "/c/g2/step-000000007".into(),
            step: 7,
            samples_seen: Sequences(112),
            manifest_sha256: "ab12".into(),
        });
        let inherited = BTreeMap::new();
        let (socket, headway) = (Path::new("/run/s"), Path::new("/bin/headway"));
        let host = Host { inventory: &inventory, socket, python: "py", headway, inherited: &inherited };
        let share = Share::of(&order, inventory.node).unwrap();
        let mut member = members(&order, &share, 1, "", &host).unwrap().remove(0);
        member.launched_at(Timestamp(1_500_000));
        for (name, value) in [
            ("HEADWAY_RESUME_PATH", "/c/g2/step-000000007"),
            ("HEADWAY_RESUME_MANIFEST_SHA256", "ab12"),
            ("HEADWAY_SAMPLES_SEEN", "112"),
            ("HEADWAY_LAUNCHED_AT", "1.500000"),
        ] {
            assert_eq!(member.variables.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
}
