//! Quantities with units: `300B tokens`, `4Mi tokens`, `64 sequences`, `512GiB`, `15m`.

use headway_types::{Bytes, Seconds, Sequences, Tokens};

/// Above this a double no longer holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// More training data than there is.
const MOST: f64 = 1e18;
/// Longest duration taken for meant.
const LONGEST: Seconds = Seconds(10.0 * 366.0 * 86_400.0);

/// An amount of training data, in the unit the user chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Amount {
    Tokens(f64),
    Sequences(f64),
}

impl Amount {
    /// `300B tokens` or `64 sequences`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wanted = || format!("must be an amount such as \"4Mi tokens\" or \"64 sequences\", not \"{text}\"");
        let (value, unit) = number(text).ok_or_else(wanted)?;
        let (scale, unit) = match unit.split_once(char::is_whitespace) {
            Some((scale, unit)) => (scale, unit.trim_start()),
            None => ("", unit),
        };
        let count = value * factor(scale).ok_or_else(wanted)?;
        let amount = match unit {
            "tokens" | "token" => Self::Tokens(count),
            "sequences" | "sequence" => Self::Sequences(count),
            _ => return Err(wanted()),
        };
        if count == 0.0 {
            Err("must be more than nothing".into())
        } else if count > MOST {
            Err(format!("must be {MOST:e} at most"))
        } else {
            Ok(amount)
        }
    }

    /// `300B`: tokens, where the key says so.
    pub(super) fn bare(text: &str) -> Option<Self> {
        Self::parse(&format!("{text} tokens")).ok()
    }

    pub(super) fn tokens(self, seq_len: u32) -> Tokens {
        match self {
            Self::Tokens(tokens) => Tokens(tokens),
            Self::Sequences(sequences) => Tokens(sequences * f64::from(seq_len)),
        }
    }

    /// Whole sequences, or what is wrong.
    pub(super) fn sequences(self, seq_len: u32) -> Result<Sequences, String> {
        let sequences = match self {
            Self::Tokens(tokens) => tokens / f64::from(seq_len),
            Self::Sequences(sequences) => sequences,
        };
        if sequences.fract() == 0.0 && (1.0..=EXACT).contains(&sequences) {
            return Ok(Sequences(sequences as u64));
        }
        Err(match self {
            Self::Tokens(tokens) => {
                let below = sequences.floor().max(1.0);
                format!(
                    "{tokens} tokens are {sequences} sequences of {seq_len} tokens; it must be whole sequences, as \
                     {below} or {} are",
                    below + 1.0
                )
            }
            Self::Sequences(_) => format!("must be whole sequences, not {sequences}"),
        })
    }
}

/// An amount of tokens; `4Mi` needs no unit where the key says it.
pub(super) fn tokens(text: &str) -> Result<Tokens, String> {
    match Amount::parse(text).or_else(|error| Amount::bare(text).ok_or(error))? {
        Amount::Tokens(tokens) => Ok(Tokens(tokens)),
        Amount::Sequences(_) => Err(format!("must be an amount of tokens such as \"4Mi tokens\", not \"{text}\"")),
    }
}

/// `15m`, `48h`, `90s`, `1h30m`; more than nothing.
pub fn duration(text: &str) -> Result<Seconds, String> {
    match duration_or_none(text)? {
        Seconds(0.0) => Err(not_a_duration(text)),
        time => Ok(time),
    }
}

/// A duration, or `0s` where none is sensible.
pub(super) fn duration_or_none(text: &str) -> Result<Seconds, String> {
    let wanted = || not_a_duration(text);
    let mut total = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wanted());
    }
    while !rest.is_empty() {
        let (value, tail) = number(rest).ok_or_else(wanted)?;
        let unit = &tail[..tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len())];
        total += value
            * match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return Err(wanted()),
            };
        rest = tail[unit.len()..].trim_start();
    }
    if total <= LONGEST.0 { Ok(Seconds(total)) } else { Err("must be ten years at most".into()) }
}

fn not_a_duration(text: &str) -> String {
    format!("must be a duration such as 90s, 15m, 48h or 2d, not \"{text}\"")
}

/// `512GiB`, `40 GB`, `1024B`.
pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    let wanted = || format!("must be a size such as 512GiB or 40GB, not \"{text}\"");
    let (value, unit) = number(text).ok_or_else(wanted)?;
    let size = value * unit.strip_suffix('B').and_then(factor).ok_or_else(wanted)?;
    if size.fract() == 0.0 && (1.0..=EXACT).contains(&size) { Ok(Bytes(size as u64)) } else { Err(wanted()) }
}

/// Splits a number that is not negative from what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let value: f64 = text[..end].replace('_', "").parse().ok()?;
    value.is_finite().then(|| (value, text[end..].trim_start()))
}

fn factor(scale: &str) -> Option<f64> {
    Some(match scale {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" | "B" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_carry_their_unit() {
        assert_eq!(Amount::parse("4Mi tokens"), Ok(Amount::Tokens(4_194_304.0)));
        assert_eq!(Amount::parse("300B tokens"), Ok(Amount::Tokens(3e11)));
        assert_eq!(Amount::parse("1.5 M  tokens"), Ok(Amount::Tokens(1.5e6)));
        assert_eq!(Amount::parse("64 sequences"), Ok(Amount::Sequences(64.0)));
        assert_eq!(Amount::parse("1_024 sequences"), Ok(Amount::Sequences(1024.0)));
        for wrong in
            ["64", "tokens", "64 parsecs", "-1 tokens", "0 tokens", "4Xi tokens", "", "1e9 tokens", "9999999T tokens"]
        {
            assert!(Amount::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_whole_sequences() {
        assert_eq!(Amount::Tokens(8192.0).sequences(4096), Ok(Sequences(2)));
        assert_eq!(
            Amount::Tokens(10_000.0).sequences(4096),
            Err("10000 tokens are 2.44140625 sequences of 4096 tokens; it must be whole sequences, as 2 or 3 are"
                .into())
        );
        assert!(Amount::Sequences(1.5).sequences(8).is_err());
        assert!(Amount::Tokens(1.0).sequences(8).is_err());
    }

    #[test]
    fn durations_and_sizes_need_units() {
        assert_eq!(duration("15m"), Ok(Seconds(900.0)));
        assert_eq!(duration("1h30m"), Ok(Seconds(5400.0)));
        assert_eq!(duration("2d"), Ok(Seconds(172_800.0)));
        for wrong in ["15", "", "0s", "m", "15 minutes", "99999d", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("512GiB"), Ok(Bytes(512 << 30)));
        assert_eq!(bytes("40 GB"), Ok(Bytes(40_000_000_000)));
        assert_eq!(bytes("100B"), Ok(Bytes(100)));
        for wrong in ["512", "512Gi", "0.3B", "0GiB", "big"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
