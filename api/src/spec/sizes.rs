//! `training.layouts` by size: what a script supports on each number of GPUs it is made for, and on no other.

use std::collections::BTreeMap;

use headway_types::spec::{GpuRange, LayoutLimits, SizeLayouts};
use headway_types::{GpuCount, Sequences};
use serde_json::{Map, Value, json};

use super::section::Section;
use super::training::{EXECUTION, UNEVEN_SHARES, exact, execution};

/// Whether a key of the section names a size.
pub(super) fn is_size(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads `layouts` whose keys are numbers of GPUs.
pub(super) fn read(training: &Section<'_>, map: &Map<String, Value>, largest: Sequences) -> Option<LayoutLimits> {
    let (path, findings) = (training.field("layouts"), training.findings());
    let keys: Vec<&str> = map.keys().map(String::as_str).filter(|key| is_size(key)).collect();
    let known: Vec<&str> = keys.iter().copied().chain(["micro_batch"]).collect();
    let value = Value::Object(map.clone());
    let section = Section::open(&path, &value, &known, &[], findings)?;
    let micro = if section.has("micro_batch") {
        section.whole("micro_batch", 1).map(|micro| Sequences(u64::from(micro)))
    } else {
        Some(largest)
    };
    // Every size is read before the first bad one ends it.
    let sizes: Vec<Option<(GpuCount, SizeLayouts)>> = keys.into_iter().map(|key| of_size(&section, key)).collect();
    let sizes: BTreeMap<GpuCount, SizeLayouts> = sizes.into_iter().collect::<Option<_>>()?;
    Some(LayoutLimits { sizes, ..LayoutLimits::degrees(vec![1], vec![1], micro?) })
}

fn of_size(layouts: &Section<'_>, key: &str) -> Option<(GpuCount, SizeLayouts)> {
    let Some(gpus) = key.parse().ok().filter(|gpus| (1..=1 << 20).contains(gpus)) else {
        layouts.wrong(key, "is no number of GPUs");
        return None;
    };
    let (path, value) = (layouts.field(key), layouts.get(key)?);
    let known = [&["tp", "pp", UNEVEN_SHARES], &EXECUTION[..]].concat();
    let section = Section::open(&path, value, &known, &[], layouts.findings())?;
    let (tp, pp, execution) = (exact(&section, "tp"), exact(&section, "pp"), execution(&section, exact));
    let (tp, pp, execution) = (tp?, pp?, execution?);
    let products = tp.iter().flat_map(|tp| pp.iter().map(move |pp| u64::from(*tp) * u64::from(*pp)));
    let mut ranks = products.flat_map(|product| execution.cp.iter().map(move |cp| product * u64::from(*cp)));
    if !ranks.any(|ranks| ranks > 0 && u64::from(gpus).is_multiple_of(ranks)) {
        let hint = "the rest is data parallelism, so tp × pp × cp divides the number of GPUs";
        layouts.wrong_hint(key, format!("none of its degrees divide {gpus} GPUs"), hint);
    }
    Some((GpuCount(gpus), SizeLayouts { tp, pp, execution }))
}

/// A job runs on no size for which its script names no layout.
pub(super) fn bound(spec: &Section<'_>, range: GpuRange, layouts: &LayoutLimits) -> GpuRange {
    if layouts.sizes.is_empty() {
        return range;
    }
    let sizes: Vec<GpuCount> = layouts.sizes.keys().copied().filter(|size| range.allows(*size)).collect();
    let (Some(min), Some(max)) = (sizes.first().copied(), sizes.last().copied()) else {
        let listed: Vec<String> = layouts.sizes.keys().map(ToString::to_string).collect();
        let message =
            format!("allows none of the sizes for which training.layouts has a layout: {}", listed.join(", "));
        spec.wrong("resources.gpus", message);
        return range;
    };
    GpuRange { min, max, sizes, ..range }
}

/// As it is read; `plain` writes what goes beyond degrees.
pub(super) fn to_json(layouts: &LayoutLimits, beyond: impl Fn(&SizeLayouts) -> Value) -> Value {
    let mut written = json!({ "micro_batch": layouts.max_micro_batch });
    for (gpus, size) in &layouts.sizes {
        written[gpus.to_string()] = beyond(size);
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::GpuCount;

    use crate::spec::{read_json, read_yaml, to_json};

    fn with(gpus: &str, layouts: &str) -> String {
        format!(
            "version: 1\nname: a\nresources: {{gpus: {gpus}}}\nrun: {{command: x}}\n\
             training: {{model: llama-3-8b, precision: bf16, reference_batch: 64 sequences, layouts: {layouts}}}\n"
        )
    }

    #[test]
    fn each_size_has_its_layout_and_no_other_is_allowed() {
        let spec =
            read_yaml(&with("{min: 4, max: 64}", "{8: {tp: 2}, 16: {tp: 4, pp: [1, 2]}, 128: {tp: 8}}")).unwrap();
        let (range, layouts) = (&spec.role().gpus, &spec.training().unwrap().layouts);
        assert_eq!(range.sizes, [GpuCount(8), GpuCount(16)]);
        assert_eq!((range.min, range.max), (GpuCount(8), GpuCount(16)));
        assert_eq!(layouts.on(GpuCount(16)).1, [1, 2]);
        assert_eq!(layouts.on(GpuCount(8)).0, [2], "a number is that degree, not those up to it");
        let written = to_json(&spec);
        assert_eq!(read_json(&written).unwrap().training(), spec.training(), "{written}");
    }

    #[test]
    fn mistakes_in_sizes_are_told() {
        let wrong = [
            ("8", "{16: {tp: 4}}"),
            ("8", "{8: {tp: 3}}"),
            ("8", "{8: {tp: 2, micro_batch: 2}}"),
            ("8", "{8: {tp: 2}, tp: 4}"),
            ("8", "{0: {tp: 1}}"),
            ("8", "[{tp: 2}]"),
        ];
        let told: Vec<String> =
            wrong.iter().map(|(gpus, layouts)| read_yaml(&with(gpus, layouts)).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
