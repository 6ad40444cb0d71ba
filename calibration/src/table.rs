//! Whole measurement files: rows that are used, and rows that are not with their reasons counted.

use std::collections::BTreeMap;
use std::path::Path;

use headway_goodput::catalog::Catalog;

use crate::measurement::{Measurement, Skip};
use crate::row::Columns;

/// Rows of one or several files.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub measurements: Vec<Measurement>,
    /// Rows not used, by source and reason.
    pub skipped: BTreeMap<(String, Skip), usize>,
}

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("reading {file}")]
    Read {
        file: String,
        #[source]
        source: csv::Error,
    },
    #[error("reading {file}: it has no header with a column num_gpus or dp")]
    NoHeader { file: String },
}

impl Table {
    /// Adds a file's rows.
    pub fn read(&mut self, path: &Path, catalog: &Catalog) -> Result<(), TableError> {
        let file = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let named = |source| TableError::Read { file: path.display().to_string(), source };
        let reader = csv::ReaderBuilder::new().flexible(true).from_path(path).map_err(named)?;
        self.add(reader, &file, catalog).map_err(|error| match error {
            TableError::Read { source, .. } => named(source),
            TableError::NoHeader { .. } => TableError::NoHeader { file: path.display().to_string() },
        })
    }

    /// Adds the rows of a file's contents.
    pub fn parse(&mut self, contents: impl AsRef<[u8]>, file: &str, catalog: &Catalog) -> Result<(), TableError> {
        self.add(csv::ReaderBuilder::new().flexible(true).from_reader(contents.as_ref()), file, catalog)
    }

    fn add<R: std::io::Read>(
        &mut self,
        mut reader: csv::Reader<R>,
        file: &str,
        catalog: &Catalog,
    ) -> Result<(), TableError> {
        let named = |source| TableError::Read { file: file.to_owned(), source };
        let header = csv::StringRecord::from_byte_record_lossy(reader.byte_headers().map_err(named)?.clone());
        let columns = Columns::new(&header);
        if !columns.has("num_gpus") && !columns.has("dp") {
            return Err(TableError::NoHeader { file: file.to_owned() });
        }
        for record in reader.byte_records() {
            // Text that is no UTF-8 spoils its own cell, not the file.
            let record = csv::StringRecord::from_byte_record_lossy(record.map_err(named)?);
            let row = columns.row(&record);
            match Measurement::read(&row, file, catalog) {
                Ok(measurement) => self.measurements.push(measurement),
                Err(skip) => {
                    let source = row.text("source").unwrap_or(file).to_owned();
                    *self.skipped.entry((source, skip)).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Rows used whose missing columns were assumed, by source and column.
    #[must_use]
    pub fn assumed(&self) -> BTreeMap<(String, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for measurement in &self.measurements {
            for column in &measurement.assumed {
                *counts.entry((measurement.source.clone(), *column)).or_default() += 1;
            }
        }
        counts
    }
}
