//! Phase one of a gang start on this node: is everything there that the launch will need? Takes only the rendezvous
//! port, which stays bound until the launch so that nobody else gets it.

use std::net::TcpListener;
use std::path::Path;

use headway_node::Share;
use headway_types::{GpuHealth, LaunchOrder, NodeInventory};

/// What a passed check holds for the launch: the rendezvous port, on the first node of the gang.
pub(crate) type Prepared = Option<TcpListener>;

/// Runs the checks; the error is for people. Touches shared file systems, so it may take long.
pub(crate) fn check(order: &LaunchOrder, inventory: &NodeInventory) -> Result<Prepared, String> {
    let share = Share::of(order, inventory.node).ok_or("the placement does not name this node")?;
    for uuid in &share.slice.gpus {
        match inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| &gpu.health) {
            Some(GpuHealth::Healthy) => {}
            Some(GpuHealth::Broken(cause)) => return Err(format!("GPU {uuid} is broken: {cause}")),
            None => return Err(format!("this node has no GPU {uuid}")),
        }
    }
    if let Some(workdir) = &order.run.workdir
        && !Path::new(workdir).is_dir()
    {
        return Err(format!("working directory {workdir} does not exist on this node"));
    }
    let checkpoints = Path::new(&order.checkpoint_dir).join(order.generation.to_string());
    std::fs::create_dir_all(&checkpoints)
        .map_err(|error| format!("checkpoint directory {} cannot be made: {error}", checkpoints.display()))?;
    if let Some(resume) = &order.resume
        && !Path::new(&resume.path).join("manifest.json").is_file()
    {
        return Err(format!("checkpoint {} is not visible on this node", resume.path));
    }
    if share.node_rank > 0 {
        return Ok(None);
    }
    TcpListener::bind(("0.0.0.0", 0)).map(Some).map_err(|error| format!("no free rendezvous port: {error}"))
}
