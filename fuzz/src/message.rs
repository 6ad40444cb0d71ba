//! Edits of protobuf messages, field by field, so that lengths stay true and what is inside is reached. What the fields mean is not
//! known here.

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use crate::{Edit, LONGEST, choose};

/// Messages within messages, as far as they are taken apart.
const DEPTH: usize = 12;
const WHOLE: &[u64] = &[
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    65_535,
    65_536,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 53) + 1,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];
const REAL: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-300,
    1e300,
    f64::MIN_POSITIVE,
    f64::MAX,
    f64::MIN,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    5e-324,
];
#[rustfmt::skip]
const TEXT: &[&str] = &[
    "", "a", "00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff", "none", "full", "1f1b",
    "TERM", "/", "../..", "a\0b", "a\nb", "\u{1b}[2J", "\u{202e}", "step=(\\d+)", "((((", "-1",
    "18446744073709551616", "H100-80G", "ü",
];

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

#[derive(Clone, Debug, PartialEq)]
struct Field {
    tag: u32,
    value: Value,
}

/// A seed after these edits. `seeds`: where else fields are taken from.
pub fn edited(seed: &[u8], edits: &[Edit], seeds: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut fields) = read(seed, 0) else { return seed.to_vec() };
    let mut torn = None;
    for one in edits {
        let count = count(&fields);
        if one.kind % 16 == 15 || count == 0 {
            torn = Some(*one);
            continue;
        }
        let stranger = || taken(choose::<Vec<u8>>(seeds, one.much), one.with);
        visit(&mut fields, &mut (one.at as usize % count), &mut |fields, index| edit(fields, index, *one, &stranger));
    }
    let mut bytes = written(&fields);
    // Bytes that are wrong are so at the end: nothing that is taken apart has them.
    if let Some(Edit { at, with, .. }) = torn {
        let place = at as usize % bytes.len().max(1);
        match bytes.get_mut(place) {
            Some(byte) if with % 4 > 0 => *byte ^= 1 << (with / 4 % 8),
            _ => bytes.truncate(place),
        }
    }
    bytes
}

fn edit(
    fields: &mut Vec<Field>,
    index: usize,
    Edit { kind, with, much, .. }: Edit,
    stranger: &dyn Fn() -> Option<Field>,
) {
    let field = &mut fields[index];
    match kind % 16 {
        0..=6 => match &mut field.value {
            Value::Varint(value) => *value = *choose(WHOLE, with),
            Value::Fixed64(value) => *value = choose(REAL, with).to_le_bytes(),
            Value::Fixed32(value) => *value = (*choose(REAL, with) as f32).to_le_bytes(),
            Value::Bytes(bytes) if much.is_multiple_of(32) => {
                *bytes = choose(TEXT, with).repeat(LONGEST >> (much / 32 % 16)).into_bytes();
                bytes.truncate(LONGEST);
            }
            Value::Bytes(bytes) => *bytes = choose(TEXT, with).as_bytes().to_vec(),
            Value::Message(inner) => inner.clear(),
        },
        7 | 8 => drop(fields.remove(index)),
        9 => {
            let again = field.clone();
            let times = if much.is_multiple_of(16) { 1 << (with % 13) } else { 1 };
            let room = LONGEST / written(std::slice::from_ref(&again)).len().max(1);
            fields.extend(std::iter::repeat_n(again, times.min(room)));
        }
        10 => field.tag = 1 + with % 24,
        11 => {
            field.value = match with % 3 {
                0 => Value::Varint(u64::from(much)),
                1 => Value::Fixed64(f64::from(much).to_le_bytes()),
                _ => Value::Bytes(much.to_le_bytes().to_vec()),
            }
        }
        12 | 13 => {
            if let Some(Field { value, .. }) = stranger() {
                field.value = value;
            }
        }
        _ => fields.extend(stranger()),
    }
}

/// What a message is made of; `None` where it is torn or has groups, which nobody sends.
fn read(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (tag, kind) = decode_key(&mut bytes).ok()?;
        let value = match kind {
            WireType::Varint => Value::Varint(decode_varint(&mut bytes).ok()?),
            WireType::SixtyFourBit => Value::Fixed64(*bytes.split_off(..8)?.first_chunk()?),
            WireType::ThirtyTwoBit => Value::Fixed32(*bytes.split_off(..4)?.first_chunk()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
                let inner = bytes.split_off(..length)?;
                match read(inner, depth + 1).filter(|fields| depth < DEPTH && !fields.is_empty()) {
                    Some(fields) => Value::Message(fields),
                    None => Value::Bytes(inner.to_vec()),
                }
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        fields.push(Field { tag, value });
    }
    Some(fields)
}

fn written(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { tag, value } in fields {
        let kind = match value {
            Value::Varint(_) => WireType::Varint,
            Value::Fixed64(_) => WireType::SixtyFourBit,
            Value::Fixed32(_) => WireType::ThirtyTwoBit,
            Value::Bytes(_) | Value::Message(_) => WireType::LengthDelimited,
        };
        encode_key(*tag, kind, &mut bytes);
        let delimited = |inner: &[u8], bytes: &mut Vec<u8>| {
            encode_varint(inner.len() as u64, bytes);
            bytes.extend_from_slice(inner);
        };
        match value {
            Value::Varint(value) => encode_varint(*value, &mut bytes),
            Value::Fixed64(value) => bytes.extend_from_slice(value),
            Value::Fixed32(value) => bytes.extend_from_slice(value),
            Value::Bytes(inner) => delimited(inner, &mut bytes),
            Value::Message(inner) => delimited(&written(inner), &mut bytes),
        }
    }
    bytes
}

fn count(fields: &[Field]) -> usize {
    let inner = |field: &Field| if let Value::Message(inner) = &field.value { count(inner) } else { 0 };
    fields.iter().map(|field| 1 + inner(field)).sum()
}

/// Comes to the field of this number, counted in depth, with those beside it.
fn visit(fields: &mut Vec<Field>, number: &mut usize, then: &mut dyn FnMut(&mut Vec<Field>, usize)) -> bool {
    for index in 0..fields.len() {
        if *number == 0 {
            then(fields, index);
            return true;
        }
        *number -= 1;
        if let Value::Message(inner) = &mut fields[index].value
            && visit(inner, number, then)
        {
            return true;
        }
    }
    false
}

/// One field of a message.
fn taken(from: &[u8], number: u32) -> Option<Field> {
    let mut fields = read(from, 0)?;
    let count = count(&fields);
    let mut found = None;
    if count > 0 {
        visit(&mut fields, &mut (number as usize % count), &mut |fields, index| found = Some(fields[index].clone()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_edits_is_what_it_was() {
        // A name, a message of a number and a double within, and a number.
        let bytes = [
            &[0x0a, 3, b'a', b'/', b'b', 0x12, 11, 0x08, 7, 0x11][..],
            &1.5f64.to_le_bytes(),
            &[0x18, 0x80, 1, 0x25, 1, 0, 0, 0],
        ]
        .concat();
        let fields = read(&bytes, 0).expect("it is a message");
        assert!(matches!(&fields[1].value, Value::Message(inner) if inner.len() == 2), "{fields:?}");
        assert_eq!((written(&fields), count(&fields)), (bytes, 6));
    }

    #[test]
    fn what_is_no_message_is_left_as_it_is() {
        let edit = Edit { kind: 0, at: 0, with: 0, much: 1 };
        assert_eq!(edited(b"\xff", &[edit], &[vec![0xff]]), b"\xff");
    }
}
