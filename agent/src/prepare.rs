//! Phase one of a gang start on this node: is everything there that the launch will need, and if not, whose fault is it?
//! Takes only the rendezvous port, which stays bound until the launch so that nobody else gets it.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headway_node::Share;
use headway_types::{ConditionKind, Fault, GpuHealth, LaunchOrder, NodeInventory};
use nix::unistd::geteuid;
use tokio_util::sync::CancellationToken;

use crate::checkpoints;
use crate::foreign;
use crate::gpu::Device;
use crate::hooks;
use crate::process;
use crate::site::Site;
use crate::user::UnixUser;
use crate::user_program::{NoAnswer, run_script};

/// What a passed check holds for the launch: the rendezvous port, on the first node of the gang.
pub(crate) type Prepared = Option<TcpListener>;

/// How long a file system may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks the working directory, the checkpoint directory and the checkpoint to resume from as the user who will need
/// them: root may see less of a shared file system than that user, or more. What the specification names and this node lacks is a
/// mistake as far as one node can tell: whether another has it, or had it, the scheduler knows. The checkpoint to resume from was there:
/// where it is gone, the newest one that is there is named.
/// What a job saves below a directory that everybody may write to is its user's alone; elsewhere that directory's own rules hold.
///
/// The job's directory must be a real directory of the job's user, as one look at the name itself shows: in a sticky directory nobody
/// else can change that afterwards. A directory of the agent's own user is no attack, and it fails below if it is closed. A file system
/// that shows one owner for everybody's files (a FUSE mount, NFS with `all_squash`) is recognised by what the user makes there.
///
/// The end of a former generation, on this node or on another, removes the job's directory while it is empty
/// (`checkpoints.rs`): also between two steps of this script. It then begins again, with all checks. What holds a
/// directory of this generation is not removed.
const PROBE: &str = r#"
if [ -n "$1" ] && ! cd -- "$1"; then
    [ -e "$1" ] && exit 11
    exit 12
fi
job=${2%/*}
root=${job%/*}
root=${root:-/}
mkdir -p -- "$root" || exit 13
if [ -k "$root" ]; then umask 077; fi
attempt=0
gone() { [ ! -e "$job" ] && [ ! -L "$job" ] && [ "$attempt" -lt 20 ]; }
while :; do
    attempt=$((attempt + 1))
    [ -e "$job" ] || [ -L "$job" ] || why=$(mkdir -- "$job" 2>&1) || [ -e "$job" ] || {
        case $why in *"File exists"*) gone && continue ;; esac
        echo "$why" >&2
        exit 13
    }
    found=$(stat -c '%u %F' -- "$job" 2>&1) || { gone && continue; echo "$found" >&2; exit 13; }
    if [ "$found" != "$5 directory" ] && [ "$found" != "$6 directory" ]; then
        tried=$(mktemp -d -- "$root/.headway-owner-XXXXXXXX" 2>/dev/null) && {
            made=$(stat -c '%u %F' -- "$tried")
            rmdir -- "$tried"
        }
        if [ "$made" = "$5 directory" ] || [ "$made" != "$found" ]; then
            echo "$found"
            exit 16
        fi
    fi
    why=$(mkdir -- "$2" 2>&1) || [ -d "$2" ] || { gone && continue; echo "$why" >&2; exit 13; }
    [ "$(stat -c '%u %F' -- "$job" 2>&1)" = "$found" ] && break
    [ "$attempt" -lt 20 ] || exit 13
done
[ -w "$2" ] && [ -x "$2" ] || exit 13
if [ -n "$3" ] && [ ! -r "$3/manifest.json" ]; then
    case $(stat -- "$3/manifest.json" 2>&1) in *"No such file"*) exit 17 ;; esac
    exit 14
fi
[ -x "$4" ] || exit 15
"#;

/// Runs the checks, then the prolog. Touches shared file systems, so it may take long, but no longer than the group is wanted.
pub(crate) async fn check(order: &LaunchOrder, site: &Site, withdrawn: &CancellationToken) -> Result<Prepared, Fault> {
    let (share, user) = tokio::select! {
        biased;
        () = withdrawn.cancelled() => return Err(Fault::of_infrastructure("the group was stopped during its checks")),
        looked = look(order, site) => looked?,
    };
    // A prolog ends by itself when the group is withdrawn: something of it may have to be ended first.
    hooks::prolog(order, site, user.as_ref(), withdrawn).await?;
    if share.node_rank > 0 {
        return Ok(None);
    }
    let bound = TcpListener::bind(("0.0.0.0", 0));
    bound.map(Some).map_err(|error| Fault::of_node(format!("no free rendezvous port: {error}")))
}

/// What the launch will find, and as whom. No process is left of it wherever it is broken off.
async fn look<'a>(order: &'a LaunchOrder, site: &Site) -> Result<(Share<'a>, Option<UnixUser>), Fault> {
    let Some(devices) = site.gpus.look().await else {
        return Err(Fault::of_node("the GPU driver does not answer"));
    };
    let inventory = site.inventory.now();
    if let Some(reason) = &inventory.leaving_reason {
        return Err(Fault::of_infrastructure(format!("nothing new starts on a node that leaves: {reason}")));
    }
    let Some(share) = Share::of(order, inventory.node) else {
        return Err(Fault::of_infrastructure("the placement does not name this node"));
    };
    check_gpus(&share, &inventory, &devices)?;
    if let Some(full) = inventory.conditions.iter().find(|condition| condition.kind == ConditionKind::DiskPressure) {
        return Err(Fault::of_full_disk(format!("nothing new starts here: {}", full.message)));
    }
    let user = site.user(&order.owner).await?;
    // Only to see that it can be filled in; the port and the secret come with the launch.
    site.members(order, 0, "", user.as_ref())?;
    probe(order, site, user.as_ref()).await?;
    Ok((share, user))
}

fn check_gpus(share: &Share<'_>, inventory: &NodeInventory, devices: &[Device]) -> Result<(), Fault> {
    for uuid in &share.slice.gpus {
        match inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| &gpu.health) {
            Some(GpuHealth::Healthy) => {}
            Some(GpuHealth::Broken(cause)) => return Err(Fault::of_node(format!("GPU {uuid} is broken: {cause}"))),
            None => return Err(Fault::of_node(format!("this node has no GPU {uuid}"))),
        }
        let Some(device) = devices.iter().find(|device| device.gpu.uuid == *uuid) else { continue };
        if let Some(file) = device.files.iter().find(|file| !file.exists()) {
            return Err(Fault::of_node(format!("GPU {uuid} has no device file {}", file.display())));
        }
        for pid in &device.processes {
            match process::mark_of(*pid) {
                // Gone meanwhile, or in another pid namespace, of which nothing can be told.
                None => {}
                Some(mark) if mark.starts_with(&inventory.node.to_string()) => {
                    return Err(Fault::of_infrastructure(format!("GPU {uuid} is still held by process {pid}")));
                }
                Some(_) => {
                    let message = format!("GPU {uuid} is used by process {pid}, which Headway did not start");
                    return Err(Fault::of_node(message));
                }
            }
        }
    }
    Ok(())
}

async fn probe(order: &LaunchOrder, site: &Site, user: Option<&UnixUser>) -> Result<(), Fault> {
    let mut probed = run_probe(order, site, user).await?;
    if let Probed::Foreign(foreign) = &probed {
        replace_foreign(order, user, foreign).await?;
        probed = run_probe(order, site, user).await?;
    }
    match (probed, &order.resume) {
        (Probed::Foreign(foreign), _) => Err(refuse_foreign(order, user, &foreign, "it was taken again at once")),
        (Probed::MissingCheckpoint, Some(missing)) => {
            Err(checkpoints::describe_missing(order, missing, &site.users.prefix(user)).await)
        }
        (Probed::Ready | Probed::MissingCheckpoint, _) => Ok(()),
    }
}

/// What a probe found.
enum Probed {
    Ready,
    /// The job's checkpoint directory is not its user's: uid and file type, as `stat` names them.
    Foreign(String),
    /// The checkpoint to resume from is not there.
    MissingCheckpoint,
}

async fn run_probe(order: &LaunchOrder, site: &Site, user: Option<&UnixUser>) -> Result<Probed, Fault> {
    let workdir = order.run.workdir.clone().unwrap_or_default();
    let checkpoints = format!("{}/{}", order.checkpoint_dir, order.generation);
    let resume = order.resume.as_ref().map(|resume| resume.path.clone()).unwrap_or_default();
    let own = geteuid().as_raw();
    let uids = [user.map_or(own, |user| user.ids().0).to_string(), own.to_string()];
    let directories = [&workdir, &checkpoints, &resume].map(OsStr::new);
    let uids = uids.each_ref().map(OsStr::new);
    let arguments = [&directories[..], &[site.files.root().as_os_str()], &uids[..]].concat();
    let output = match run_script(&site.users.prefix(user), PROBE, &arguments, &[], PATIENCE).await {
        Ok(output) => output,
        Err(NoAnswer::NotRun { error, .. }) => {
            return Err(Fault::of_node(format!("looking at the job's directories: {error}")));
        }
        Err(NoAnswer::Late(patience)) => {
            let seconds = patience.as_secs();
            return Err(Fault::of_node(format!("{workdir} or {checkpoints} did not answer within {seconds} s")));
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let whom = name_of(user);
    match output.status.code() {
        Some(0) => Ok(Probed::Ready),
        Some(11) => Err(Fault::of_mistake(format!(
            "working directory {workdir} cannot be entered as {whom} ({said}); open it to its owner, or correct run.workdir"
        ))),
        Some(12) => Err(Fault::of_mistake(format!(
            "there is no working directory {workdir}; make it where every node sees it, or correct run.workdir"
        ))),
        Some(13) => {
            if user.is_some() && said.contains("Permission denied") {
                site.closed_roots.report_for(order);
            }
            Err(unwritable(&checkpoints, &whom, said))
        }
        Some(14) => Err(Fault::of_node(format!("checkpoint {resume} cannot be read on this node"))),
        Some(15) => {
            let root = site.files.root().display();
            Err(Fault::of_node(format!("{root} must let the users of jobs pass through, and so must its parents")))
        }
        Some(16) => Ok(Probed::Foreign(String::from_utf8_lossy(&output.stdout).trim().to_owned())),
        Some(17) => Ok(Probed::MissingCheckpoint),
        _ => Err(Fault::of_node(format!("looking at the job's directories ended with {}: {said}", output.status))),
    }
}

fn name_of(user: Option<&UnixUser>) -> String {
    user.map_or_else(|| "the agent's user".to_owned(), |user| format!("user {}", user.name()))
}

/// Replaces a checkpoint directory that is not the job's user's, or says why that cannot be done. A committed checkpoint in it was saved
/// by the job, so then the file system has changed owners, and its operator must decide.
async fn replace_foreign(order: &LaunchOrder, user: Option<&UnixUser>, foreign: &str) -> Result<(), Fault> {
    let directory = PathBuf::from(&order.checkpoint_dir);
    if order.resume.as_ref().is_some_and(|resume| Path::new(&resume.path).starts_with(&directory)) {
        return Err(refuse_foreign(order, user, foreign, "the checkpoint to resume from lies in it"));
    }
    let (job, owner) = (order.job, user.cloned());
    let replacing = tokio::task::spawn_blocking(move || foreign::replace(&directory, job, owner.as_ref()));
    match tokio::time::timeout(PATIENCE, replacing).await {
        Ok(Ok(Ok(Some(aside)))) => {
            let (directory, aside) = (&order.checkpoint_dir, aside.display());
            tracing::warn!(job_id = %job, %directory, %foreign, %aside, "another user made a job's checkpoint directory; it was renamed");
            Ok(())
        }
        Ok(Ok(Ok(None))) => Ok(()),
        Ok(Ok(Err(error))) => Err(refuse_foreign(order, user, foreign, &error.to_string())),
        Ok(Err(error)) => Err(refuse_foreign(order, user, foreign, &error.to_string())),
        Err(_) => Err(refuse_foreign(order, user, foreign, "the file system did not answer")),
    }
}

/// Blames neither the job nor the node: else whoever made the directory could fail the job, or take the node out of use.
fn refuse_foreign(order: &LaunchOrder, user: Option<&UnixUser>, foreign: &str, why: &str) -> Fault {
    let (directory, whom) = (&order.checkpoint_dir, name_of(user));
    let (uid, kind) = foreign.split_once(' ').unwrap_or((foreign, "file"));
    Fault::of_infrastructure(format!(
        "checkpoint directory {directory} is a {kind} of uid {uid}, not a directory of {whom}, and the agent cannot replace it ({why}); an \
         operator must remove it, or give it to {whom} if its content is the job's"
    ))
}

/// Decides who answers for a checkpoint directory that cannot be written. What is no directory, or somebody else's, was named by mistake.
/// A full file system is usually the one that all nodes share, so it speaks against no node and no job. A quota is one user's: a second
/// node that fails alike clears the first. A broken file system is the node's trouble.
fn unwritable(checkpoints: &str, whom: &str, said: &str) -> Fault {
    let message = format!("checkpoint directory {checkpoints} cannot be written as {whom} ({said})");
    let named_wrong = ["Permission denied", "Not a directory", "File exists", "No such file"];
    if said.is_empty() || named_wrong.iter().any(|words| said.contains(words)) {
        let what_to_do = "open it to its owner, or correct training.checkpoint.dir";
        return Fault { mistake: true, ..Fault::of_node(format!("{message}; {what_to_do}")) };
    }
    if said.contains("No space left") {
        return Fault { full_disk: true, ..Fault::of_infrastructure(message) };
    }
    Fault::of_node(message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use headway_types::{Blame, CheckpointRef, Generation, GpuType, Sequences};

    use super::*;
    use crate::node::tests::fixture;

    #[tokio::test]
    async fn checks_that_wait_for_an_answer_end_with_the_stop_of_their_group() {
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(dir.path());
        let order = fixture::order(&site.inventory.now(), 1, "true");
        let withdrawn = CancellationToken::new();
        let (checked, ()) = tokio::join!(check(&order, &site, &withdrawn), async { withdrawn.cancel() });
        let fault = checked.unwrap_err();
        assert_eq!((fault.blame, &*fault.message), (Blame::Infrastructure, "the group was stopped during its checks"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_start_survives_that_the_empty_directory_of_its_job_vanishes() {
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(&dir.path().join("agent"));
        let order = fixture::order(&site.inventory.now(), 2, "true");
        let job = dir.path().join(order.job.to_string());
        let order = LaunchOrder { checkpoint_dir: job.display().to_string(), ..order };
        let (done, removals) = (CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        let (over, left, taken) = (done.clone(), Arc::clone(&removals), job.clone());
        // As other nodes do when a former generation ends there, at once and three times for each start.
        let remover = std::thread::spawn(move || {
            while !over.is_cancelled() {
                if left.load(Ordering::SeqCst) > 0 && std::fs::remove_dir(&taken).is_ok() {
                    left.fetch_sub(1, Ordering::SeqCst);
                }
            }
        });
        for _ in 0..10 {
            removals.store(3, Ordering::SeqCst);
            let probed = run_probe(&order, &site, None).await.map(|probed| matches!(probed, Probed::Ready));
            assert_eq!(probed, Ok(true));
            assert!(job.join("g2").is_dir());
            std::fs::remove_dir(job.join("g2")).unwrap();
        }
        done.cancel();
        remover.join().unwrap();
        assert!(removals.load(Ordering::SeqCst) < 3, "it has vanished under the last start");
    }

    #[tokio::test]
    async fn a_checkpoint_that_is_gone_is_told_from_one_that_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(&dir.path().join("agent"));
        let mut order = fixture::order(&site.inventory.now(), 2, "true");
        let job = dir.path().join(order.job.to_string());
        order.checkpoint_dir = job.display().to_string();
        std::fs::create_dir_all(job.join("g1")).unwrap();
        let mut probe_at = async |path: &str| {
            order.resume = Some(CheckpointRef {
                generation: Generation(1),
                path: job.join(path).display().to_string(),
                step: 1,
                samples_seen: Sequences(1),
                manifest_sha256: "00".into(),
            });
            probe(&order, &site, None).await.unwrap_err()
        };
        assert!(probe_at("g1/step-000000001").await.missing_checkpoint.is_some());
        let fault = probe_at(&format!("g1/{}", "x".repeat(300))).await;
        assert!(fault.missing_checkpoint.is_none() && fault.message.contains("cannot be read"), "{fault:?}");
    }

    #[test]
    fn a_full_checkpoint_root_blames_nobody_and_a_quota_the_node_until_another_fails_alike() {
        let unwritable = |said: &str| {
            let fault =
                unwritable("/ckpt/job/1", "user ada", &format!("mkdir: cannot create directory '/ckpt/job': {said}"));
            (fault.blame, fault.full_disk, fault.mistake)
        };
        assert_eq!(unwritable("No space left on device"), (Blame::Infrastructure, true, false));
        assert_eq!(unwritable("Disk quota exceeded"), (Blame::Node, false, false));
        assert_eq!(unwritable("Input/output error"), (Blame::Node, false, false));
        assert_eq!(unwritable("Permission denied"), (Blame::Node, false, true));
    }

    #[test]
    fn a_gpu_somebody_else_computes_on_is_not_taken() {
        let inventory = fixture::inventory(1);
        let order = fixture::order(&inventory, 1, "true");
        let share = Share::of(&order, inventory.node).unwrap();
        let device = |processes: Vec<u32>, file: &str| Device {
            gpu: inventory.gpus[0].clone(),
            gpu_type: GpuType("H200".into()),
            slowed: None,
            used: None,
            busy: None,
            celsius: None,
            watts: None,
            processes,
            files: vec![file.into()],
            own: Vec::new(),
        };
        let check = |device: Device| check_gpus(&share, &inventory, &[device]).map_err(|fault| fault.blame);
        assert_eq!(check(device(vec![], "/dev/null")), Ok(()));
        assert_eq!(check(device(vec![u32::MAX], "/dev/null")), Ok(()));
        assert_eq!(check(device(vec![], "/dev/no-such-gpu")), Err(Blame::Node));
        assert_eq!(check(device(vec![std::process::id()], "/dev/null")), Err(Blame::Node));
        let mark = format!("{}/x/g1/0/", inventory.node);
        let mut ours = std::process::Command::new("sleep").arg("60").env(process::MARK, mark).spawn().unwrap();
        // A fork shows its parent's environment until it has become `sleep`.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while process::mark_of(ours.id()).is_none_or(|mark| mark.is_empty()) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(check(device(vec![ours.id()], "/dev/null")), Err(Blame::Infrastructure));
        ours.kill().unwrap();
        ours.wait().unwrap();
    }
}
