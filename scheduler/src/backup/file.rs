//! The file of a backup: the dump, then the manifest, in one `tar` archive. The manifest comes last since it says what the dump came to; nothing of it is
//! written twice, and nothing is buffered.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::manifest::Manifest;
use crate::tar::{self, BLOCK, Entry};

const DUMP: &str = "database.dump";
const MANIFEST: &str = "manifest.json";
/// No manifest is longer, in bytes.
const LONGEST_MANIFEST: u64 = 1 << 20;
/// Read and written at once.
pub(super) const PIECE: usize = 256 * 1024;

/// Why a file is no backup that can be restored.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is no backup of Headway, or not whole: {why}")]
    NotABackup { path: PathBuf, why: &'static str },
    #[error("{path} is of a newer release (form {format}, made by {version}); restore it with that one")]
    Newer { path: PathBuf, format: u32, version: String },
    #[error("{path} is damaged: its dump has the SHA-256 {found}, not {expected}")]
    Damaged { path: PathBuf, expected: String, found: String },
}

/// A backup that has been opened: its manifest is read, its dump is not looked at yet.
#[derive(Debug)]
pub struct BackupFile {
    pub manifest: Manifest,
    path: PathBuf,
    file: File,
}

impl BackupFile {
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let not = |why| FileError::NotABackup { path: path.to_owned(), why };
        let read = |source: io::Error| match source.kind() {
            io::ErrorKind::UnexpectedEof => not("it ends too early"),
            _ => FileError::Read { path: path.to_owned(), source },
        };
        let mut file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut entry = |name: &str, at: u64| {
            let mut block = [0; BLOCK];
            file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut block)).map_err(read)?;
            let entry = Entry::read(&block).map_err(|_| not("it is no archive"))?;
            let ends = at.checked_add(BLOCK as u64).and_then(|begins| begins.checked_add(entry.size));
            match ends {
                _ if entry.name != name => Err(not("the archive holds something else")),
                Some(ends) if ends <= length => Ok(entry),
                _ => Err(not("it ends too early")),
            }
        };
        let dump = entry(DUMP, 0)?;
        let last = entry(MANIFEST, BLOCK as u64 + dump.size + dump.padding() as u64)?;
        if last.size > LONGEST_MANIFEST {
            return Err(not("its manifest is too long"));
        }
        let mut text = vec![0; last.size as usize];
        file.read_exact(&mut text).map_err(read)?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|_| not("its manifest cannot be read"))?;
        if !manifest.is_known() {
            return Err(FileError::Newer { path: path.to_owned(), format: manifest.format, version: manifest.version });
        }
        if manifest.bytes != dump.size {
            return Err(not("its manifest is of another dump"));
        }
        Ok(Self { manifest, path: path.to_owned(), file })
    }

    /// Reads the dump from its beginning.
    pub(super) fn dump(&mut self) -> io::Result<io::Take<&mut File>> {
        self.file.seek(SeekFrom::Start(BLOCK as u64))?;
        Ok(io::Read::by_ref(&mut self.file).take(self.manifest.bytes))
    }

    /// Reads the whole dump, and says whether it is what was written.
    pub fn verify(&mut self) -> Result<(), FileError> {
        let path = self.path.clone();
        let read = |source| FileError::Read { path: path.clone(), source };
        let mut hash = Sha256::new();
        let mut dump = self.dump().map_err(read)?;
        let mut piece = vec![0; PIECE];
        loop {
            match dump.read(&mut piece).map_err(read)? {
                0 => break,
                some => hash.update(&piece[..some]),
            }
        }
        let found = hex::encode(hash.finalize());
        if found == self.manifest.sha256 {
            return Ok(());
        }
        Err(FileError::Damaged { path: self.path.clone(), expected: self.manifest.sha256.clone(), found })
    }
}

/// A backup that is being written, for its owner alone. Until it is whole it has another name, and is gone with this value.
pub(super) struct Unfinished {
    file: NamedTempFile,
    hash: Sha256,
    bytes: u64,
}

impl Unfinished {
    pub fn begin(beside: &Path) -> io::Result<Self> {
        let mut file = tempfile::Builder::new().prefix(".headway-backup-").tempfile_in(directory(beside))?;
        // For the header, which is known at the end.
        file.write_all(&[0; BLOCK])?;
        Ok(Self { file, hash: Sha256::new(), bytes: 0 })
    }

    pub fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        self.file.write_all(piece)
    }

    /// Ends the file with its manifest, and gives it its name. One of that name is never replaced.
    pub fn finish(self, path: &Path, manifest: impl FnOnce(u64, String) -> Manifest) -> io::Result<Manifest> {
        let Self { mut file, hash, bytes } = self;
        let manifest = manifest(bytes, hex::encode(hash.finalize()));
        let modified = u64::try_from(manifest.made_at.timestamp()).unwrap_or_default();
        let text = serde_json::to_vec_pretty(&manifest)?;
        let dump = Entry { name: DUMP.into(), size: bytes, modified };
        let last = Entry { name: MANIFEST.into(), size: text.len() as u64, modified };
        file.write_all(&vec![0; dump.padding()])?;
        file.write_all(&last.header())?;
        file.write_all(&text)?;
        file.write_all(&vec![0; last.padding()])?;
        file.write_all(&tar::end())?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&dump.header())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        File::open(directory(path))?.sync_all()?;
        Ok(manifest)
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use chrono::DateTime;
    use headway_types::Term;
    use uuid::Uuid;

    use super::*;
    use crate::store::Contents;

    fn written(path: &Path) -> Manifest {
        let contents = Contents {
            cluster: Uuid::nil(),
            term: Term(3),
            migrations: vec![1, 2],
            live_jobs: 1,
            rows: [("jobs".to_owned(), 2)].into(),
            postgres: "15.1".into(),
        };
        let mut file = Unfinished::begin(path).unwrap();
        file.add(&[7; 700]).unwrap();
        let made_at = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        file.finish(path, |bytes, sha256| Manifest::new("abc", made_at, &contents, bytes, sha256)).unwrap()
    }

    #[test]
    fn what_was_written_is_opened_and_verified_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.backup");
        let manifest = written(&path);
        let mut opened = BackupFile::open(&path).unwrap();
        assert_eq!((opened.manifest.clone(), manifest.bytes), (manifest, 700));
        opened.verify().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let listed = std::process::Command::new("tar").arg("tf").arg(&path).output().unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), "database.dump\nmanifest.json\n");
    }

    #[test]
    fn a_backup_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.backup");
        std::fs::write(&path, "precious").unwrap();
        let file = Unfinished::begin(&path).unwrap();
        assert!(file.finish(&path, |_, _| written(&dir.path().join("two.backup"))).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_file_that_is_damaged_cut_short_or_something_else_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.backup");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        let broken = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            match BackupFile::open(&path) {
                Ok(mut opened) => opened.verify().unwrap_err().to_string(),
                Err(error) => error.to_string(),
            }
        };
        let mut flipped = whole.clone();
        flipped[BLOCK + 100] ^= 1;
        assert!(broken(&flipped).contains("is damaged"));
        for length in [0, 100, BLOCK, BLOCK + 200, 2 * BLOCK + 300] {
            let told = broken(&whole[..length]);
            assert!(told.contains("ends too early"), "{length}: {told}");
        }
        assert!(broken(&[0; 4096]).contains("is no archive"));
        let text = String::from_utf8_lossy(&whole).replace("\"format\": 1", "\"format\": 9");
        assert!(broken(text.as_bytes()).contains("newer release (form 9"));
    }
}
