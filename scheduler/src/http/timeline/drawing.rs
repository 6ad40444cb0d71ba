//! Bars of a lane: what was entered when becomes spans that touch, and spans too short to be seen are drawn together. Pure.

use headway_types::{Seconds, Timestamp};

/// A time in one state; the moment it ends belongs to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Span<S> {
    pub from: Timestamp,
    pub to: Timestamp,
    pub state: S,
}

/// A span, or several drawn together.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar<S> {
    pub from: Timestamp,
    pub to: Timestamp,
    /// What it was in for most of the time.
    pub state: S,
    /// Time by state where several spans are drawn together; nothing of one that is drawn as it is.
    pub times: Vec<(S, Seconds)>,
}

/// Spans between these moments, of what was entered when, oldest first: each lasts until the next. `None`: it was in no state.
pub fn spans<S: Clone + PartialEq>(entered: &[(Timestamp, Option<S>)], from: Timestamp, to: Timestamp) -> Vec<Span<S>> {
    let ends = entered.iter().skip(1).map(|(at, _)| *at).chain([to]);
    let mut spans: Vec<Span<S>> = Vec::new();
    for ((begin, state), end) in entered.iter().zip(ends) {
        let (begin, end) = ((*begin).max(from), end.min(to));
        let Some(state) = state.as_ref().filter(|_| begin < end) else { continue };
        match spans.last_mut() {
            Some(last) if last.to == begin && last.state == *state => last.to = end,
            _ => spans.push(Span { from: begin, to: end, state: state.clone() }),
        }
    }
    spans
}

/// Draws spans shorter than the resolution together with their neighbours, until a bar is that long; spans that are longer stay as they are, and no
/// gap is drawn over. `alike` says which states count as one.
pub fn bars<S: Clone>(spans: Vec<Span<S>>, resolution: Option<Seconds>, alike: impl Fn(&S, &S) -> bool) -> Vec<Bar<S>> {
    let long = |from: Timestamp, to: Timestamp| resolution.is_none_or(|least| to.since(from) >= least);
    let mut bars: Vec<Bar<S>> = Vec::new();
    let mut open: Vec<Span<S>> = Vec::new();
    for span in spans {
        let goes_on = open.last().is_some_and(|last| last.to == span.from);
        let full = open.first().zip(open.last()).is_some_and(|(first, last)| long(first.from, last.to));
        if long(span.from, span.to) || !goes_on || full {
            bars.extend(together(std::mem::take(&mut open), &alike));
        }
        if long(span.from, span.to) {
            bars.push(Bar { from: span.from, to: span.to, state: span.state, times: Vec::new() });
        } else {
            open.push(span);
        }
    }
    bars.extend(together(open, &alike));
    bars
}

fn together<S: Clone>(spans: Vec<Span<S>>, alike: impl Fn(&S, &S) -> bool) -> Option<Bar<S>> {
    let (from, to) = (spans.first()?.from, spans.last()?.to);
    if spans.len() == 1 {
        return spans.into_iter().next().map(|span| Bar { from, to, state: span.state, times: Vec::new() });
    }
    // Few states, however many spans.
    let mut times: Vec<(S, Seconds)> = Vec::new();
    for span in spans {
        let time = span.to.since(span.from);
        match times.iter_mut().find(|(state, _)| alike(state, &span.state)) {
            Some((_, sum)) => sum.0 += time.0,
            None => times.push((span.state, time)),
        }
    }
    let most = times.iter().fold(None::<&(S, Seconds)>, |most, one| match most {
        Some(most) if most.1.0 >= one.1.0 => Some(most),
        _ => Some(one),
    });
    let state = most.map(|(state, _)| state.clone())?;
    Some(Bar { from, to, state, times })
}

/// How wide the shortest bar is to be of a span of time: what was asked for, or what makes some hundreds of it; of a short one nothing is drawn
/// together.
pub fn resolution(asked: Option<Seconds>, span: Seconds) -> Option<Seconds> {
    const STEPS: [f64; 14] =
        [1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0];
    const USUAL: f64 = 600.0;
    const MOST: f64 = 2_000.0;
    const SHORT: f64 = 900.0;
    let step = |least: f64| STEPS.into_iter().find(|step| *step >= least).unwrap_or(least);
    match asked {
        Some(asked) if asked.0 * MOST >= span.0 => (asked.0 > 0.0).then_some(asked),
        Some(_) => Some(Seconds(step(span.0 / MOST))),
        None => (span.0 > SHORT).then(|| Seconds(step(span.0 / USUAL))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const FROM: Timestamp = Timestamp(20_000_000);
    const TO: Timestamp = Timestamp(80_000_000);

    fn entered() -> impl Strategy<Value = Vec<(Timestamp, Option<u8>)>> {
        proptest::collection::vec((0i64..100_000_000, proptest::option::weighted(0.9, 0u8..4)), 0..60).prop_map(
            |mut all| {
                all.sort_by_key(|(at, _)| *at);
                all.into_iter().map(|(at, state)| (Timestamp(at), state)).collect()
            },
        )
    }

    /// What state it was in, asked of each moment by itself.
    fn state_at(entered: &[(Timestamp, Option<u8>)], at: Timestamp) -> Option<u8> {
        entered.iter().rev().find(|(since, _)| *since <= at).and_then(|(_, state)| *state)
    }

    fn exact(spans: &[Span<u8>]) -> BTreeMap<u8, i64> {
        let mut sums = BTreeMap::new();
        for span in spans {
            *sums.entry(span.state).or_default() += span.to.0 - span.from.0;
        }
        sums
    }

    proptest! {
        #[test]
        fn spans_cover_what_was_and_nothing_else(entered in entered(), at in 20_000_000i64..80_000_000) {
            let spans = spans(&entered, FROM, TO);
            prop_assert!(spans.iter().all(|span| FROM <= span.from && span.from < span.to && span.to <= TO));
            prop_assert!(spans.windows(2).all(|pair| pair[0].to <= pair[1].from), "they never overlap");
            prop_assert!(spans.windows(2).all(|pair| pair[0].to < pair[1].from || pair[0].state != pair[1].state));
            let at = Timestamp(at);
            let there = spans.iter().find(|span| span.from <= at && at < span.to).map(|span| span.state);
            prop_assert_eq!(there, state_at(&entered, at));
        }

        #[test]
        fn bars_never_overlap_and_their_times_are_exact(entered in entered(), resolution in proptest::option::of(1u32..30)) {
            let spans = spans(&entered, FROM, TO);
            let wanted = exact(&spans);
            let covered: i64 = wanted.values().sum();
            let resolution = resolution.map(|seconds| Seconds(f64::from(seconds)));
            let bars = bars(spans.clone(), resolution, |one, other| one == other);
            prop_assert!(bars.windows(2).all(|pair| pair[0].to <= pair[1].from));
            prop_assert_eq!(bars.iter().map(|bar| bar.to.0 - bar.from.0).sum::<i64>(), covered, "no gap is drawn over");
            let mut sums: BTreeMap<u8, f64> = BTreeMap::new();
            for bar in &bars {
                let alone = [(bar.state, bar.to.since(bar.from))];
                for (state, time) in if bar.times.is_empty() { &alone[..] } else { &bar.times } {
                    *sums.entry(*state).or_default() += time.0;
                }
            }
            for (state, time) in &wanted {
                prop_assert!((sums[state] - *time as f64 / 1e6).abs() < 1e-6);
            }
            prop_assert_eq!(sums.len(), wanted.len());
            match resolution {
                None => prop_assert_eq!(bars.len(), spans.len()),
                Some(least) => {
                    let gaps = spans.windows(2).filter(|pair| pair[0].to < pair[1].from).count() + 1;
                    prop_assert!(bars.len() <= (2.0 * 60.0 / least.0) as usize + 2 * gaps + 1, "as many as are seen");
                }
            }
        }
    }

    #[test]
    fn a_long_time_is_drawn_in_some_hundreds_of_steps() {
        let of = |asked: Option<f64>, span| resolution(asked.map(Seconds), Seconds(span)).map(|step| step.0);
        assert_eq!(of(None, 600.0), None);
        assert_eq!(of(None, 6.0 * 3_600.0), Some(60.0));
        assert_eq!(of(None, 3.0 * 86_400.0), Some(600.0));
        assert_eq!(of(Some(0.0), 600.0), Some(1.0));
        assert_eq!(of(Some(30.0), 3_600.0), Some(30.0));
        assert_eq!(of(Some(1.0), 86_400.0), Some(60.0), "no finer than can be sent");
    }
}
