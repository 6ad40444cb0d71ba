//! The key file, and what is done with its keys: AES-256-GCM by ring. A sealed value is bound to whose it is and what it is called.
//!
//! The file has one key a line, 64 hexadecimal digits (or the 44 characters of base64 that 32 bytes are); `#` begins a comment. The first seals, all of
//! them open. So a key is replaced by writing a new line above it and restarting the server, which seals everything anew; then the old line may go.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headway_api::secret::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use crate::store::SecretId;

/// Nothing that keys are read from is larger, in bytes.
pub(super) const LONGEST_TEXT: u64 = 64 * 1024;

/// The keys of a key file. Prints nothing of them but their ids.
pub struct Keyring {
    /// What seals.
    first: String,
    /// By id.
    keys: BTreeMap<String, LessSafeKey>,
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The key it is sealed with; the beginning of a digest of it.
    pub key_id: String,
    pub nonce: [u8; NONCE_LEN],
    pub bytes: Vec<u8>,
}

/// Why a key file cannot be used. Nothing of what is in it is told.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    #[error("reading the secrets' key file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("others than its owner may use the secrets' key file {path} (mode {mode:o}): chmod 600 {path}")]
    Open { path: PathBuf, mode: u32 },
    #[error(
        "line {line} of the secrets' key file {path} is no key: 64 hexadecimal digits a line, as `openssl rand -hex 32` makes them, or base64 of 32 bytes"
    )]
    Malformed { path: PathBuf, line: usize },
    #[error("there is no key in the secrets' key file {path}: openssl rand -hex 32 > {path}")]
    Empty { path: PathBuf },
    #[error("--secrets-key-command names no program")]
    NoCommand,
    #[error("running the secrets' key command {program}")]
    Run {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the secrets' key command {program} had printed no key after {seconds} s and was ended")]
    Late { program: String, seconds: f64 },
    #[error(
        "the secrets' key command {program} ended with {status}; run it by hand as the server's user: what it says is not logged"
    )]
    Failed { program: String, status: std::process::ExitStatus },
    #[error(
        "line {line} of what the secrets' key command {program} printed is no key: 64 hexadecimal digits a line, or base64 of 32 bytes"
    )]
    MalformedOutput { program: String, line: usize },
    #[error("the secrets' key command {program} printed no key")]
    NothingPrinted { program: String },
}

/// A line that is no key.
pub(super) struct Malformed {
    pub(super) line: usize,
}

/// Why a stored value cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("it is sealed with key {0}, which is not in the key file")]
    NoKey(String),
    #[error("its row was changed, or its key file has another key under the same id")]
    Broken,
}

impl Keyring {
    /// Reads the file, which nobody but its owner may be able to.
    pub fn read(path: &Path) -> Result<Self, KeyringError> {
        let unreadable = |source| KeyringError::Read { path: path.into(), source };
        let mut file = std::fs::File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyringError::Open { path: path.into(), mode });
        }
        let mut text = String::new();
        file.by_ref().take(LONGEST_TEXT).read_to_string(&mut text).map_err(unreadable)?;
        let keys = keys(&text).map_err(|Malformed { line }| KeyringError::Malformed { path: path.into(), line })?;
        Self::of(&keys).ok_or_else(|| KeyringError::Empty { path: path.into() })
    }

    /// `None` without a key.
    #[must_use]
    pub fn of(keys: &[[u8; 32]]) -> Option<Self> {
        let first = id(keys.first()?);
        let usable = |key: &[u8; 32]| {
            let unbound = UnboundKey::new(&AES_256_GCM, key).expect("a key has 32 bytes");
            (id(key), LessSafeKey::new(unbound))
        };
        Some(Self { first, keys: keys.iter().map(usable).collect() })
    }

    /// The id of the key that seals.
    #[must_use]
    pub fn first(&self) -> &str {
        &self.first
    }

    #[must_use]
    pub fn has(&self, key_id: &str) -> bool {
        self.keys.contains_key(key_id)
    }

    /// `nonce`: drawn at random; never the same twice.
    #[must_use]
    pub fn seal(&self, whose: &SecretId, value: &Secret, nonce: [u8; NONCE_LEN]) -> Sealed {
        self.seal_bound(bound_to(whose), value, nonce)
    }

    pub fn open(&self, whose: &SecretId, sealed: &Sealed) -> Result<Secret, OpenError> {
        self.open_bound(bound_to(whose), sealed)
    }

    /// Likewise of what signs nodes' certificates.
    #[must_use]
    pub fn seal_key_of_authority(&self, fingerprint: &str, key: &Secret, nonce: [u8; NONCE_LEN]) -> Sealed {
        self.seal_bound(bound_to_authority(fingerprint), key, nonce)
    }

    pub fn open_key_of_authority(&self, fingerprint: &str, sealed: &Sealed) -> Result<Secret, OpenError> {
        self.open_bound(bound_to_authority(fingerprint), sealed)
    }

    fn seal_bound(&self, to: Vec<u8>, value: &Secret, nonce: [u8; NONCE_LEN]) -> Sealed {
        let key = self.keys.get(&self.first).expect("the first key is one of the keys");
        let mut bytes = value.expose().as_bytes().to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(to), &mut bytes)
            .expect("a secret is far shorter than what can be sealed");
        Sealed { key_id: self.first.clone(), nonce, bytes }
    }

    fn open_bound(&self, to: Vec<u8>, sealed: &Sealed) -> Result<Secret, OpenError> {
        let key = self.keys.get(&sealed.key_id).ok_or_else(|| OpenError::NoKey(sealed.key_id.clone()))?;
        let mut bytes = sealed.bytes.clone();
        let nonce = Nonce::assume_unique_for_key(sealed.nonce);
        let opened = key.open_in_place(nonce, Aad::from(to), &mut bytes).map_err(|_| OpenError::Broken)?;
        std::str::from_utf8(opened).map(Secret::new).map_err(|_| OpenError::Broken)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("first", &self.first).finish_non_exhaustive()
    }
}

/// The keys of a text.
pub(super) fn keys(text: &str) -> Result<Vec<[u8; 32]>, Malformed> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).zip(1..);
    let written = lines.filter(|(digits, _)| !digits.is_empty());
    written.map(|(digits, line)| key(digits).ok_or(Malformed { line })).collect()
}

fn key(digits: &str) -> Option<[u8; 32]> {
    let bytes = match digits.len() {
        64 => hex::decode(digits).ok()?,
        _ => STANDARD.decode(digits).ok()?,
    };
    bytes.try_into().ok()
}

/// Tells a key and lends nothing of it.
fn id(key: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update(b"headway secrets key\0").chain_update(key).finalize();
    hex::encode(&digest[..6])
}

fn bound_to_authority(fingerprint: &str) -> Vec<u8> {
    format!("headway node authority\0{fingerprint}").into_bytes()
}

/// No name and no owner holds a NUL, so that no two secrets are bound to the same.
fn bound_to(whose: &SecretId) -> Vec<u8> {
    let (kind, owner) = (<&str>::from(whose.owner.kind()), whose.owner.name());
    format!("headway secret\0{kind}\0{owner}\0{}", whose.name).into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::store::SecretOwner;

    fn of_ada(name: &str) -> SecretId {
        SecretId { owner: SecretOwner::User("ada".into()), name: name.into() }
    }

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        file
    }

    proptest! {
        #[test]
        fn what_is_stored_opens_to_the_value_and_never_holds_it(
            value in "[ -~]{4,200}", key in any::<[u8; 32]>(), nonce in any::<[u8; 12]>(),
        ) {
            let keyring = Keyring::of(&[key]).unwrap();
            let sealed = keyring.seal(&of_ada("key"), &Secret::new(value.clone()), nonce);
            let holds = sealed.bytes.windows(4).any(|window| value.as_bytes().windows(4).any(|part| part == window));
            // Four bytes agree by chance once in billions of pairs: of 200 × 200 that is one case in 10⁵.
            prop_assert!(!holds || !sealed.bytes.windows(8).any(|w| value.as_bytes().windows(8).any(|part| part == w)));
            prop_assert!(!sealed.bytes.starts_with(value.as_bytes()));
            let opened = keyring.open(&of_ada("key"), &sealed).unwrap();
            prop_assert_eq!(opened.expose(), value);
        }

        #[test]
        fn a_changed_row_opens_no_more(value in "[ -~]{1,40}", at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let keyring = Keyring::of(&[[7; 32]]).unwrap();
            let mut sealed = keyring.seal(&of_ada("key"), &Secret::new(value), [1; 12]);
            let at = at.index(sealed.bytes.len());
            sealed.bytes[at] ^= 1 << bit;
            prop_assert_eq!(keyring.open(&of_ada("key"), &sealed), Err(OpenError::Broken));
        }
    }

    #[test]
    fn a_value_opens_under_no_other_name_and_for_no_other_owner() {
        let keyring = Keyring::of(&[[7; 32]]).unwrap();
        let sealed = keyring.seal(&of_ada("key"), &Secret::new("hunter22"), [1; 12]);
        let project = SecretId { owner: SecretOwner::Project("ada".into()), name: "key".into() };
        for other in [of_ada("other"), project] {
            assert_eq!(keyring.open(&other, &sealed), Err(OpenError::Broken));
        }
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let old = Keyring::of(&[[1; 32]]).unwrap();
        let sealed = old.seal(&of_ada("key"), &Secret::new("hunter22"), [1; 12]);
        let both = Keyring::of(&[[2; 32], [1; 32]]).unwrap();
        assert_eq!(both.open(&of_ada("key"), &sealed).unwrap().expose(), "hunter22");
        assert_ne!(both.first(), old.first());
        let new = Keyring::of(&[[2; 32]]).unwrap();
        assert_eq!(new.open(&of_ada("key"), &sealed), Err(OpenError::NoKey(old.first().to_owned())));
    }

    #[test]
    fn a_key_file_is_its_owners_alone_and_says_what_is_wrong_with_it() {
        let key = "ab".repeat(32);
        let keyring = Keyring::read(file(&format!("# newest\n{key} # of May\n\n"), 0o600).path()).unwrap();
        assert!(!format!("{keyring:?}").contains(&key));
        let read = |text: &str, mode| Keyring::read(file(text, mode).path()).unwrap_err();
        assert!(matches!(read(&key, 0o644), KeyringError::Open { mode: 0o644, .. }));
        assert!(matches!(read(&format!("{key}\nabc"), 0o600), KeyringError::Malformed { line: 2, .. }));
        assert!(matches!(read("# none\n", 0o400), KeyringError::Empty { .. }));
        assert!(matches!(Keyring::read(Path::new("/nowhere")).unwrap_err(), KeyringError::Read { .. }));
    }
}
