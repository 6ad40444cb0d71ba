//! Archives as `tar` reads them: headers of POSIX ustar, and sizes beyond 8 GiB as GNU writes them. Regular files only.

/// Headers and contents begin at multiples of it.
pub const BLOCK: usize = 512;
/// What eleven octal digits hold.
const OCTAL_MOST: u64 = 0o77_777_777_777;

/// What a header says of the file behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// At most 100 bytes of ASCII.
    pub name: String,
    /// Bytes, without the padding up to the next block.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: u64,
}

/// Why a block is no header of an archive like ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no header of an archive")]
pub struct NotAHeader;

impl Entry {
    /// The header, for a file that its owner alone may read.
    #[must_use]
    pub fn header(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let name = self.name.as_bytes();
        block[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
        block[100..108].copy_from_slice(b"0000600\0");
        block[108..116].copy_from_slice(b"0000000\0");
        block[116..124].copy_from_slice(b"0000000\0");
        if self.size <= OCTAL_MOST {
            block[124..136].copy_from_slice(format!("{:011o}\0", self.size).as_bytes());
        } else {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&self.size.to_be_bytes());
        }
        block[136..148].copy_from_slice(format!("{:011o}\0", self.modified.min(OCTAL_MOST)).as_bytes());
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum = checksum(&block);
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    /// Reads a header; where it is damaged, its own checksum says so.
    pub fn read(block: &[u8; BLOCK]) -> Result<Self, NotAHeader> {
        if octal(&block[148..156]) != Some(u64::from(checksum(block))) || &block[257..262] != b"ustar" {
            return Err(NotAHeader);
        }
        let name = block[..100].split(|byte| *byte == 0).next().unwrap_or_default();
        let size = match block[124] {
            0x80 => u64::from_be_bytes(block[128..136].try_into().expect("eight bytes")),
            _ => octal(&block[124..136]).ok_or(NotAHeader)?,
        };
        Ok(Self {
            name: String::from_utf8(name.to_vec()).map_err(|_| NotAHeader)?,
            size,
            modified: octal(&block[136..148]).ok_or(NotAHeader)?,
        })
    }

    /// Zeros between the end of the contents and the next header.
    #[must_use]
    pub fn padding(&self) -> usize {
        (BLOCK - (self.size % BLOCK as u64) as usize) % BLOCK
    }
}

/// What ends an archive.
#[must_use]
pub fn end() -> [u8; 2 * BLOCK] {
    [0; 2 * BLOCK]
}

/// The sum of all bytes, those of the sum itself taken for spaces.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let of = |(at, byte): (usize, &u8)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte });
    block.iter().enumerate().map(of).sum()
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    u64::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(name in "[a-z./-]{1,100}", size in any::<u64>(), modified in 0..OCTAL_MOST) {
            let entry = Entry { name, size, modified };
            prop_assert_eq!(Entry::read(&entry.header()).unwrap(), entry.clone());
            prop_assert_eq!((u128::from(entry.size) + entry.padding() as u128) % BLOCK as u128, 0);
        }

        #[test]
        fn damage_is_found(at in 0..500_usize, to in any::<u8>()) {
            let entry = Entry { name: "database.dump".into(), size: 7, modified: 8 };
            let mut block = entry.header();
            prop_assume!(block[at] != to && !(148..156).contains(&at));
            block[at] = to;
            prop_assert_eq!(Entry::read(&block), Err(NotAHeader));
        }
    }

    #[test]
    fn tar_itself_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let entry = Entry { name: "a/b.txt".into(), size: 5, modified: 1_700_000_000 };
        let mut archive = entry.header().to_vec();
        archive.extend(b"hello");
        archive.extend(vec![0; entry.padding()]);
        archive.extend(end());
        let file = dir.path().join("a.tar");
        std::fs::write(&file, archive).unwrap();
        let done = std::process::Command::new("tar").arg("xOf").arg(&file).output().unwrap();
        assert_eq!((done.status.success(), done.stdout.as_slice()), (true, b"hello".as_slice()));
    }
}
