//! One question about a model, asked of the search for so many GPUs, or for the fewest that keep a deadline.

use headway_estimator::search::{Found, Wanted, search};
use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::{Catalog, Hardware};
use headway_goodput::caution::{Caution, cautions};
use headway_goodput::collective::Cluster;
use headway_goodput::memory::USABLE;
use headway_goodput::physics::Parameters;
use headway_goodput::strategy::Strategy;

use super::answer::{Answer, describe};
use super::{Estimate, Wish, precision};
use crate::failure::{Failure, Kind};

const TOKENS_PER_STEP: u64 = 2 << 20;
const SHOWN: usize = 10;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const DAY: f64 = 86_400.0;
/// Most GPUs that a deadline is looked at with.
const MOST_GPUS: u32 = 1 << 15;

pub struct Question<'a> {
    pub estimate: &'a Estimate,
    pub architecture: Architecture,
    pub stack: Option<&'a str>,
    pub parameters: &'a Parameters,
    pub catalog: &'a Catalog,
}

impl Question<'_> {
    pub fn answer(&self, wish: &Wish) -> Result<Answer, Failure> {
        let hardware = self.catalog.find(&wish.gpu_type);
        let hardware = hardware.ok_or_else(|| Failure::new(Kind::Usage, "no such GPU type"))?;
        let wanted = match (wish.count, self.estimate.days) {
            (Some(_), Some(_)) => {
                let hint = format!("write --gpus {} to find out how many", wish.gpu_type);
                return Err(Failure::new(Kind::Usage, "--days finds the number of GPUs, which is said here").hint(hint));
            }
            (Some(count), None) => self.wanted(count),
            (None, Some(days)) => self.wanted(self.fewest(&wish.gpu_type, &hardware, days * DAY)?),
            (None, None) => {
                return Err(Failure::new(Kind::Usage, format!("how many {}?", wish.gpu_type))
                    .hint("write --gpus 64xH100, or --tokens and --days to find out"));
            }
        };
        let found = self.search(&wish.gpu_type, &hardware, &wanted);
        if found.best.is_empty() && found.unlikely.is_empty() {
            return Err(self.nothing_fits(&wish.gpu_type, &hardware, &found, &wanted));
        }
        let ranked = found.best.first().or(found.unlikely.first());
        let cautions = ranked.map_or_else(Vec::new, |ranked| self.cautions(&wish.gpu_type, &ranked.strategy));
        Ok(Answer::new(&self.architecture, &wish.gpu_type, &hardware, &wanted, &found, &cautions, self.estimate.tokens))
    }

    fn wanted(&self, gpus: u32) -> Wanted {
        let usual = (TOKENS_PER_STEP / u64::from(self.architecture.seq_len)).max(1);
        Wanted {
            gpus,
            global_batch: self.estimate.batch.unwrap_or(usual),
            precision: precision(self.estimate.precision),
            fused_attention: !self.estimate.unfused_attention,
            offload: self.estimate.offload,
        }
    }

    fn search(&self, gpu_type: &str, hardware: &Hardware, wanted: &Wanted) -> Found {
        let profile = self.parameters.profile(self.stack);
        let mut cluster = Cluster::usual(hardware, &profile, self.estimate.gpus_per_node.clamp(1, wanted.gpus));
        if let Some(gigabytes) = self.estimate.network.filter(|rate| *rate > 0.0) {
            cluster.network = gigabytes * 1e9;
        }
        let deviation = |strategy: &Strategy| self.parameters.deviation(self.stack, &self.cautions(gpu_type, strategy));
        search(&self.architecture, &cluster, wanted, SHOWN, &deviation)
    }

    fn cautions(&self, gpu_type: &str, strategy: &Strategy) -> Vec<Caution> {
        cautions(&self.architecture, strategy, gpu_type, self.catalog, self.parameters, self.stack)
    }

    /// The fewest whole nodes (1, 2, 3, 4, 6, 8, 12, …) that train the tokens in so many seconds.
    fn fewest(&self, gpu_type: &str, hardware: &Hardware, seconds: f64) -> Result<u32, Failure> {
        let tokens = self.estimate.tokens.unwrap_or_default();
        let nodes = std::iter::once(1).chain((0..16).flat_map(|power| [2u32 << power, 3 << power]));
        let counts = nodes.map_while(|nodes| self.estimate.gpus_per_node.checked_mul(nodes));
        let mut best: Option<(f64, u32)> = None;
        for gpus in counts.take_while(|gpus| *gpus <= MOST_GPUS) {
            let wanted = self.wanted(gpus);
            let found = self.search(gpu_type, hardware, &wanted);
            let Some(fastest) = found.best.first() else { continue };
            let step = wanted.global_batch as f64 * f64::from(self.architecture.seq_len);
            let takes = tokens / step * fastest.time.total().0;
            if takes <= seconds {
                return Ok(gpus);
            }
            if best.is_none_or(|(least, _)| takes < least) {
                best = Some((takes, gpus));
            }
        }
        let why = match best {
            Some((takes, gpus)) => format!("the soonest on {gpu_type} is {:.1} days, on {gpus}", takes / DAY),
            None => format!("the model is not likely to fit any number of {gpu_type} at this batch"),
        };
        Err(Failure::new(Kind::Failed, why).hint("allow more days, or a larger --batch, which more GPUs can share"))
    }

    fn nothing_fits(&self, gpu_type: &str, hardware: &Hardware, found: &Found, wanted: &Wanted) -> Failure {
        let reasons: Vec<String> = found.excluded.iter().map(|(why, count)| format!("{count}× {why}")).collect();
        let failure = Failure::new(Kind::Failed, format!("no configuration is possible: {}", reasons.join(", ")));
        let Some(least) = found.least_memory else { return failure };
        let needs = format!(
            "the smallest needs {:.1} GiB per GPU, of which {:.1} GiB can be planned with",
            least / GIB,
            USABLE * hardware.memory / GIB
        );
        let offloaded =
            (!wanted.offload).then(|| self.search(gpu_type, hardware, &Wanted { offload: true, ..*wanted }));
        let best = offloaded.and_then(|found| found.best.into_iter().next());
        failure.hint(match best {
            Some(best) => format!(
                "{needs}; with --offload {} fits, at {:.1} s a step",
                describe(&best.strategy),
                best.time.total().0
            ),
            None => needs,
        })
    }
}
